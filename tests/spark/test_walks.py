"""Tasks that read a range or write rows use only the files that their walks in
`docs/understand/design.md` name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import odradek_client
import pyspark_odradek
from odradek import sync
from odradek.broker import SubprocessBroker
from pyspark_odradek import blocking
from pyspark_odradek.batch_reader import BatchReader
from pyspark_odradek.options import QueryKind, parse_sink, parse_source
from pyspark_odradek.schema import row_schema
from pyspark_odradek.stream_reader import StreamReader
from pyspark_odradek.writer import BatchJobWriter, StreamWriter
from walks import named

_FOLDERS = (pyspark_odradek.__path__[0] + "/", odradek_client.__path__[0] + "/")
#: The maximum number of files that take part, without those of a producer's send.
FILES_MAX = 12
SEND = "A producer's send"
_LEFT_OUT = {"network/transport.py", "network/throttle_times.py"}


class Tracer:
    """Notes the files whose functions are called, in this thread and in the thread of the client's
    loop."""

    def __init__(self) -> None:
        self.entered: set[str] = set()

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        for folder in _FOLDERS:
            if event == "call" and path.startswith(folder):
                self.entered.add(path.removeprefix(folder))

    async def on_loop(self, on: bool) -> None:
        sys.setprofile(self if on else None)

    def rows(self, batches: Any) -> int:
        """Read the rows while the tracer is on. Returns their number."""
        return self.traced(lambda: sum(batch.num_rows for batch in batches))

    def traced(self, task: Callable[[], int]) -> int:
        """Run a task while the tracer is on."""
        thread = blocking.shared().thread
        thread.run(self.on_loop(True))
        sys.setprofile(self)
        try:
            return task()
        finally:
            sys.setprofile(None)
            thread.run(self.on_loop(False))


@pytest.fixture
def no_other_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """New clients for this test, because clients of other tests may still send requests to stopped
    brokers."""
    monkeypatch.setattr(blocking, "_shared", None)
    made = blocking.shared()
    yield
    for settings in list(made.networks._clients):
        made.networks.discard(made.thread, settings)
    made.thread.loop.call_soon_threadsafe(made.thread.loop.stop)


@pytest.mark.usefixtures("no_other_clients")
@pytest.mark.parametrize("stream", [False, True])
def test_a_task_that_reads_a_range_enters_the_files_of_its_walk_only(
    odradek_broker: SubprocessBroker, unique_topic: str, stream: bool
) -> None:
    address = odradek_broker.bootstrap
    with sync.Producer(bootstrap_servers=address) as producer:
        producer.send(unique_topic, b"record").result(20_000)
    given = {"kafka.bootstrap.servers": address, "subscribe": unique_topic}
    options = parse_source(given, QueryKind.STREAM if stream else QueryKind.BATCH)
    reader: BatchReader | StreamReader
    if stream:
        reader = StreamReader(options, row_schema(False))
        (partition,) = reader.partitions({unique_topic: {"0": 0}}, {unique_topic: {"0": 1}})
    else:
        reader = BatchReader(options, row_schema(False))
        (partition,) = reader.partitions()
    assert len(list(reader.read(partition))) == 1
    tracer = Tracer()
    assert tracer.rows(reader.read(partition)) == 1
    assert tracer.entered - named("A row of Spark") - _LEFT_OUT == set()
    assert {"blocking.py", "fetching.py", "network/broker_connection.py"} < tracer.entered


@pytest.mark.usefixtures("no_other_clients")
@pytest.mark.parametrize("made", [BatchJobWriter, StreamWriter])
def test_a_task_that_writes_rows_enters_the_files_of_its_walk_only(
    odradek_broker: SubprocessBroker,
    unique_topic: str,
    made: type[BatchJobWriter | StreamWriter],
) -> None:
    options = parse_sink(
        {"kafka.bootstrap.servers": odradek_broker.bootstrap, "topic": unique_topic}
    )
    writer = made(options, StructType([StructField("value", BinaryType())]))

    def task() -> int:
        return writer.write(iter([pa.record_batch({"value": [b"1", b"2"]})])).rows

    assert task() == 2
    tracer = Tracer()
    assert tracer.traced(task) == 2
    decided = tracer.entered - named(SEND) - _LEFT_OUT
    assert decided - named("A row that Spark writes") == set()
    assert len(decided) <= FILES_MAX
    assert {"writer.py", "blocking.py", "producer/arrow.py"} < tracer.entered
