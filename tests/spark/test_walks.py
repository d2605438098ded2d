"""A task that reads a range uses exactly the files that its walk in `docs/understand/design.md`
names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import odradek_client
import pyspark_odradek
from odradek import sync
from odradek.broker import SubprocessBroker
from pyspark_odradek import blocking
from pyspark_odradek.batch_reader import BatchReader
from pyspark_odradek.options import QueryKind, parse_source
from pyspark_odradek.schema import row_schema
from pyspark_odradek.stream_reader import StreamReader
from walks import named

_FOLDERS = (pyspark_odradek.__path__[0] + "/", odradek_client.__path__[0] + "/")
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
        thread = blocking.shared().thread
        thread.run(self.on_loop(True))
        sys.setprofile(self)
        try:
            return sum(batch.num_rows for batch in batches)
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
