"""Costs of the Spark connector: rows per second, and the time that it adds to a micro-batch.

    python -m benchmarks.spark [--rounds 5] [--records 2000000] [--only
        read,write,write-kafka,batch]
        [--kafka-jars DIR] [--json]

The first round of each measurement is a warm-up and not used. Rows have 100 B. "write" writes to
our broker, and "write-kafka" writes to Apache Kafka, if Java and Maven are installed. After every
turn the arrived rows are counted. "batch" runs a stream over 100 partitions with one row
each: our source and sink, and for comparison a source and a sink in Python that do nothing, with
the same number of tasks (`spark_nothing`). The source and sink that do nothing run twice:
unchanged, and with the change that our connector makes in Spark's workers, so that garbage
collections leave out imported modules. Spark's own `kafka` format is measured in the same turns as
our source and sink, from the JARs that Maven fetches or that are in the directory of
`--kafka-jars`.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.clients import topic_with
from benchmarks.support import Report, Spread, odradek_broker, parser, say

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from kafka_cluster import (
    SHIPPED_HEAP,
    KafkaCluster,
    KafkaUnavailable,
    spark_format_jars,
    spark_jars,
)

READ_TARGET = 1_000_000
WRITE_TARGET = 300_000
WRITE_RATIO_TARGET = 1.2
EXACTLY_ONCE_SHARE = 0.8
OVERHEAD_TARGET_MS = 150
VALUE_BYTES = 100
PARTITIONS = 4
BATCH_PARTITIONS = 100
#: The steps that `spark_sources.TimedSource` measures.
DRIVER_STEPS = ("latestOffset", "partitions", "commit")
_CORES = 2
_SAME_BATCHES = "batches as ours"
#: Settings that give Kafka's producer the batch size and linger of our producer.
_LIKE_OURS = {"kafka.batch.size": "262144", "kafka.linger.ms": "20"}
_WARM_BATCHES = 2
TURNS = 2


def spark_session(jars: Path | None) -> Any:
    """A session with two cores; its Python workers can import the data sources in this folder."""
    from odradek.spark import session

    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    )
    settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    if jars is not None:
        settings["spark.jars"] = ",".join(map(str, spark_format_jars(jars)))
    return session(
        "odradek benchmark",
        f"local[{_CORES}]",
        log_file=Path(tempfile.gettempdir()) / "odradek-benchmark-spark.log",
        **{name.replace(".", "_"): value for name, value in settings.items()},
    )


def fill(bootstrap: str, topic: str, records: int) -> None:
    """Produce batches of 64 KB, evenly to all partitions, like an ordinary producer."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "queue.buffering.max.messages": 2_000_000,
            "batch.size": 65_536,
            "linger.ms": 20,
            "log_level": 0,
        }
    )
    value = bytes(range(VALUE_BYTES))
    for index in range(records):
        producer.produce(topic, value, partition=index % PARTITIONS)
        if index % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the topic could not be filled within two minutes")


def formats(jars: Path | None) -> list[str]:
    return ["odradek", "kafka"] if jars is not None else ["odradek"]


def in_turns(names: list[str], rounds: int, run: Callable[[str], float]) -> dict[str, list[float]]:
    """Call `run` with each name in turns. Returns the seconds by name, without the first round."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        for name in names:
            seconds = run(name)
            if number:
                found[name].append(seconds)
    return found


def read(report: Report, spark: Any, bootstrap: str, arguments: Any) -> None:
    """Read a topic into a sink that discards it."""
    report.table(
        f"Read {arguments.records:,} rows of {VALUE_BYTES} B (target: {READ_TARGET:,} rows/s)",
        ("format", "rows/s", "x kafka format"),
    )
    topic = topic_with(bootstrap, PARTITIONS)
    fill(bootstrap, topic, arguments.records)

    def once(name: str) -> float:
        say(f"read, {name}")
        frame = (
            spark.read.format(name.partition(" ")[0])
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .options(**({"columns": "value"} if "value only" in name else {}))
            .load()
        )
        started = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started

    found = in_turns(
        [*formats(arguments.kafka_jars), "odradek, value only"],
        arguments.rounds,
        lambda name: once(name.replace("odradek,", "odradek")),
    )
    tell_rates(report, found, arguments.records, READ_TARGET)


def tell_rates(report: Report, found: dict[str, list[float]], rows: int, target: float) -> None:
    theirs = found.get("kafka")
    for name, seconds in found.items():
        rate = Spread.of([rows / each for each in seconds])
        ratio = None
        if theirs is not None and not name.endswith("keyed") and name != "kafka":
            ratio = Spread.of([b / a for a, b in zip(seconds, theirs, strict=True)])
        missed = not name.startswith("kafka") and rate.median < target
        report.row(
            (
                name,
                f"{rate.median:,.0f} ({rate.low:,.0f}-{rate.high:,.0f})"
                + (" **missed**" if missed else ""),
                "-" if ratio is None else str(ratio),
            ),
            rows_per_s=rate.median,
            ratio=None if ratio is None else ratio.median,
            met=not missed,
        )


def write(
    report: Report, spark: Any, bootstrap: str, arguments: Any, broker: str = "our broker"
) -> None:
    """Write rows that Spark generates into a topic."""
    rows = arguments.records // 2
    report.table(
        f"Write {rows:,} rows of {VALUE_BYTES} B to {broker} (targets: {WRITE_TARGET:,} rows/s, "
        f"{WRITE_RATIO_TARGET} x Spark's own, exactly_once {EXACTLY_ONCE_SHARE} of at_least_once)",
        ("format", "rows/s", "x kafka format"),
    )
    value = f"cast(lpad(cast(id as string), {VALUE_BYTES}, '0') as binary) as value"
    frames = {
        "": spark.range(0, rows, 1, PARTITIONS).selectExpr(value),
        ", keyed": spark.range(0, rows, 1, PARTITIONS).selectExpr(
            "cast(cast(id % 1000 as string) as binary) as key", value
        ),
    }
    for frame in frames.values():
        frame.cache().count()

    def once(name: str) -> float:
        say(f"write, {name}")
        topic = topic_with(bootstrap, PARTITIONS)
        kind, _, how = name.partition(", ")
        how, _, keyed = how.partition(", ")
        options = _LIKE_OURS if how == _SAME_BATCHES else {"semantics": how} if how else {}
        writer = (
            frames[f", {keyed}" if keyed else ""]
            .write.format(kind)
            .mode("append")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", topic)
            .options(**options)
        )
        started = time.perf_counter()
        writer.save()
        seconds = time.perf_counter() - started
        check_arrived(bootstrap, topic, rows)
        return seconds

    names = ["odradek, at_least_once", "odradek, exactly_once"]
    if arguments.kafka_jars is not None:
        names += ["kafka", f"kafka, {_SAME_BATCHES}"]
        names += [f"{name}, keyed" for name in (*names[:2], names[3])]
    found = in_turns(names, arguments.rounds, once)
    tell_rates(report, found, rows, WRITE_TARGET)
    plain, exact = found[names[0]], found[names[1]]
    share = Spread.of([a / b for a, b in zip(plain, exact, strict=True)])
    missed = " **missed**" if share.median < EXACTLY_ONCE_SHARE else ""
    report.note(f"exactly_once beside at_least_once: {share}{missed}")
    tell_write_ratios(report, found)
    for frame in frames.values():
        frame.unpersist()


def tell_write_ratios(report: Report, found: dict[str, list[float]]) -> None:
    """Print the ratios of our sink to Spark's own sink, for each setting of Spark's sink."""
    for keyed in ("", ", keyed"):
        for theirs in ("kafka", f"kafka, {_SAME_BATCHES}"):
            base = found.get(theirs + keyed)
            for semantics in ("at_least_once", "exactly_once") if base else ():
                ours = found[f"odradek, {semantics}{keyed}"]
                ratio = Spread.of([b / a for a, b in zip(ours, base or (), strict=True)])
                missed = " **missed**" if ratio.median < WRITE_RATIO_TARGET else ""
                report.note(f"{semantics}{keyed} / {theirs}{keyed}: {ratio}{missed}")


def check_arrived(bootstrap: str, topic: str, rows: int) -> None:
    """Check that the topic has as many rows as were written. Raises SystemExit if not.

    The offsets include markers: each transaction adds at most one to each partition.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            # With this setting, the end offset includes transactions whose markers are not written
            # yet.
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(part, timeout=30)[1] for part in parts]
    consumer.close()
    if not rows <= sum(ends) <= rows + PARTITIONS * PARTITIONS:
        raise SystemExit(f"{sum(ends)} records are in the topic, {rows} were written")


def batch(report: Report, spark: Any, bootstrap: str, arguments: Any) -> None:
    """Measure the milliseconds of a micro-batch, from Spark's own progress reports."""
    from benchmarks.spark_nothing import NothingSource
    from benchmarks.spark_sources import TimedSource

    spark.dataSource.register(NothingSource)
    spark.dataSource.register(TimedSource)
    batches = max(arguments.rounds, 3)
    topic = topic_with(bootstrap, BATCH_PARTITIONS)
    row_each = feeder(bootstrap, topic)

    def nothing(checkpoint: Path, **options: str) -> list[float]:
        reader = spark.readStream.format("odradek-nothing").options(
            partitions=BATCH_PARTITIONS, **options
        )
        frame = reader.load()
        return durations_ms(frame, "odradek-nothing", options, checkpoint, batches, lambda: None)

    def ours(checkpoint: Path, semantics: str) -> list[float]:
        common = {"kafka.bootstrap.servers": bootstrap, "timings": f"{checkpoint}.timings"}
        reader = (
            spark.readStream.format("odradek-timed")
            .options(**common)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            # A batch only begins when every partition has a row.
            .option("minOffsetsPerTrigger", BATCH_PARTITIONS)
            .option("maxTriggerDelay", "10m")
        )
        sink = common | {"topic": topic_with(bootstrap, PARTITIONS), "semantics": semantics}
        frame = reader.load().select("value")
        return durations_ms(frame, "odradek-timed", sink, checkpoint, batches, row_each)

    kinds: dict[str, Callable[[Path], list[float]]] = {
        "nothing": nothing,
        "nothing, imports spared": functools.partial(nothing, sparesImports="true"),
        "odradek, at_least_once": functools.partial(ours, semantics="at_least_once"),
        "odradek, exactly_once": functools.partial(ours, semantics="exactly_once"),
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for name, run in kinds.items():
                # Spark reuses its workers, and a worker in which imports were once excluded keeps
                # them excluded. So the plain source is only measured in the first turn, before any
                # such exclusion.
                if name != "nothing" or turn == 0:
                    say(f"batch, {name}")
                    found[name] += run(Path(folder) / f"{turn}-{name}")
        timings = {
            name: driver_ms([Path(folder) / f"{turn}-{name}.timings" for turn in range(TURNS)])
            for name in kinds
        }
    tell_batches(report, found, timings)


def tell_batches(
    report: Report, found: dict[str, list[float]], timings: dict[str, dict[str, Spread]]
) -> None:
    """Print the whole time of a micro-batch, and the time of our code on the driver."""
    report.table(
        f"A micro-batch over {BATCH_PARTITIONS} partitions, one row each (target: at most "
        f"{OVERHEAD_TARGET_MS} ms more than a source and a sink that do nothing)",
        ("source and sink", "ms", "ms more", *(f"of it {each}, ms" for each in DRIVER_STEPS)),
    )
    least = statistics.median(found["nothing"])
    for name, durations in found.items():
        spread = Spread.of(durations)
        more = spread.median - least
        missed = more > OVERHEAD_TARGET_MS
        steps = [timings[name].get(each) for each in DRIVER_STEPS]
        report.row(
            (
                name,
                str(spread),
                f"{more:.0f}{' **missed**' if missed else ''}",
                *("-" if each is None else str(each) for each in steps),
            ),
            ms=spread.median,
            more_ms=more,
            met=not missed,
            **{
                f"{step}_ms": None if each is None else each.median
                for step, each in zip(DRIVER_STEPS, steps, strict=True)
            },
        )


def feeder(bootstrap: str, topic: str) -> Callable[[], None]:
    """A function that writes one row to every partition."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def row_each() -> None:
        for number in range(BATCH_PARTITIONS):
            producer.produce(topic, b"row", partition=number)
        if producer.flush(30):
            raise SystemExit("the rows of a batch could not be written within 30 seconds")

    return row_each


def driver_ms(files: list[Path]) -> dict[str, Spread]:
    """The times that `spark_sources.TimedSource` has noted, by step, without the times of the
    warm-up batches."""
    found: dict[str, list[float]] = {}
    for file in files:
        seen: dict[str, list[float]] = {}
        for line in file.read_text().splitlines() if file.exists() else ():
            name, ms = line.split()
            seen.setdefault(name, []).append(float(ms))
        for name, values in seen.items():
            found.setdefault(name, []).extend(values[_WARM_BATCHES:])
    return {name: Spread.of(values) for name, values in found.items() if values}


def durations_ms(
    frame: Any,
    sink: str,
    options: dict[str, str],
    checkpoint: Path,
    batches: int,
    feed: Callable[[], None],
) -> list[float]:
    """The durations of `batches` full batches, after a few warm-up batches."""
    feed()
    query = (
        frame.writeStream.format(sink)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    durations: dict[int, float] = {}
    try:
        deadline = time.monotonic() + 30 * batches
        while len(durations) < batches + _WARM_BATCHES:
            if (error := query.exception()) is not None:
                raise error
            if time.monotonic() > deadline:
                raise SystemExit(f"only {len(durations)} batches came")
            for each in query.recentProgress:
                if each.numInputRows and each.batchId not in durations:
                    durations[each.batchId] = each.durationMs["triggerExecution"]
                    feed()
            time.sleep(0.02)
    finally:
        query.stop()
    return [durations[number] for number in sorted(durations)][_WARM_BATCHES:]


def write_to_kafka(report: Report, spark: Any, arguments: Any) -> None:
    """Write to a broker of Apache Kafka in the same way."""
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            KafkaCluster(Path(folder), heap=SHIPPED_HEAP) as kafka,
        ):
            write(report, spark, kafka.bootstrap, arguments, "Apache Kafka")
    except KafkaUnavailable as missing:
        report.note(f"without Apache Kafka: {missing}")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--records", type=int, default=2_000_000)
    options.add_argument(
        "--only", default="read,write,write-kafka,batch", help="parts, with commas"
    )
    options.add_argument("--kafka-jars", type=Path, help="where the JARs of Spark's own format are")
    arguments = options.parse_args()
    report = Report("spark", as_json=arguments.json)
    if arguments.kafka_jars is None:
        try:
            arguments.kafka_jars = spark_jars()
        except KafkaUnavailable as missing:
            report.note(f"without Spark's own format: {missing}")
    report.machine()
    spark = spark_session(arguments.kafka_jars)
    chosen = arguments.only.split(",")
    parts = {"read": read, "write": write, "batch": batch}
    with odradek_broker("page-cache", metrics=False) as target:
        for name in chosen:
            if name in parts:
                parts[name](report, spark, target.bootstrap, arguments)
    if "write-kafka" in chosen:
        write_to_kafka(report, spark, arguments)
    spark.stop()


if __name__ == "__main__":
    main()
