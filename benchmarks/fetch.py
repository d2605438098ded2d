"""Costs of a Fetch for the broker: reads, waits at a log's end, large sessions, idle consumers.

    python -m benchmarks.fetch [--rounds 5] [--scale 1.0] [--only read,tail,sessions,idle] [--json]

All clients are bare sockets in one thread. Processor time is that of the broker's process, user and
system. If each fetch needs an append, the table also has the time of an append without a fetch.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.broker import create_topic
from benchmarks.support import Report, Target, odradek_broker, parser, percentile, say

from odradek_protocol import frames
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.message import Message
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek_protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_FETCH_VERSION = 12
_PRODUCE_VERSION = 9
_BATCH = bytes(simple_batch([(None, bytes(1000))] * 16, 1_700_000_000_000))
_MB = 1024 * 1024
_IDLE_S = 2.0
#: Slots for all sessions: each consumer has a session, and the sessions of earlier rows remain.
_SETTINGS = {"max.incremental.fetch.session.cache.slots": 100_000}


class Client:
    """A connection that sends a request and reads its answer."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._view = memoryview(bytearray(2 * _MB))

    def send(self, request: Message, version: int) -> None:
        self.socket.sendall(b"".join(frames.encode_request(request, version, 1, "raw")))

    def receive(self) -> memoryview:
        """The next answer, without its length prefix."""
        self._fill(4, 0)
        size = int.from_bytes(self._view[:4], "big")
        self._fill(size, 0)
        return self._view[:size]

    def _fill(self, size: int, got: int) -> None:
        while got < size:
            count = self.socket.recv_into(self._view[got:size])
            if not count:
                raise SystemExit("the broker closed the connection")
            got += count

    def fetched(self) -> FetchResponse:
        answer = frames.decode_response(APIS[ApiKey.FETCH], _FETCH_VERSION, self.receive())
        assert isinstance(answer, FetchResponse)
        if answer.error_code:
            raise SystemExit(f"a fetch failed with error {answer.error_code}")
        return answer


def _fetch(
    topic: str,
    offsets: dict[int, int],
    session: tuple[int, int] = (0, -1),
    *,
    at_most_bytes: int = _MB,
    max_wait_ms: int = 500,
) -> FetchRequest:
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=at_most_bytes)
        for index, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=50 * _MB,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, partitions=partitions)] if partitions else [],
    )


def _produce(topic: str, partition: int) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=_BATCH)
    return ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


@contextmanager
def _client(target: Target) -> Iterator[Client]:
    client = Client(target.bootstrap)
    try:
        yield client
    finally:
        client.socket.close()


def _append(client: Client, topic: str, partition: int) -> None:
    client.send(_produce(topic, partition), _PRODUCE_VERSION)
    client.receive()


def _cost_us(target: Target, count: int, run: Callable[[], None]) -> float:
    before = target.cpu_s() or 0.0
    run()
    return ((target.cpu_s() or 0.0) - before) / count * 1e6


def read_us(target: Target, at_most_bytes: int, count: int) -> float:
    """The broker's processor time in microseconds for a fetch that is answered immediately from the
    page cache."""
    topic = create_topic(target.bootstrap)
    with _client(target) as client:
        batches = max(64, at_most_bytes // len(_BATCH) * 4)
        for _ in range(batches):
            _append(client, topic, 0)
        step = max(1, at_most_bytes // len(_BATCH))
        offsets = range(0, 16 * (batches - step), 16)

        def run() -> None:
            for number in range(count):
                offset = offsets[number % len(offsets)]
                client.send(_fetch(topic, {0: offset}, at_most_bytes=at_most_bytes), _FETCH_VERSION)
                client.receive()

        run()
        return _cost_us(target, count, run)


def tail(
    target: Target, partitions: int, count: int, *, session: bool
) -> tuple[float, list[float]]:
    """Measure a consumer that waits at the end of `partitions` partitions while batches arrive one
    by one. Returns the broker's processor time for an append together with the fetch that the
    append completes, and the milliseconds from the append to the answer to the fetch.
    """
    topic = create_topic(target.bootstrap, partitions)
    took: list[float] = []
    with _client(target) as producer, _client(target) as consumer:
        ends = dict.fromkeys(range(partitions), 0)
        consumer.send(_fetch(topic, ends, (0, 0 if session else -1), max_wait_ms=0), _FETCH_VERSION)
        session_id = consumer.fetched().session_id
        epoch = 0
        changed = {}
        # The first append to a log is not measured, because it opens the log.
        for partition in range(partitions):
            _append(producer, topic, partition)
            ends[partition] = 16
        changed = dict(ends)

        def run() -> None:
            nonlocal epoch, changed
            for number in range(count):
                epoch += 1
                if session:
                    asked = _fetch(topic, changed, (session_id, epoch), max_wait_ms=30_000)
                else:
                    asked = _fetch(topic, ends, max_wait_ms=30_000)
                consumer.send(asked, _FETCH_VERSION)
                partition = number * 7 % partitions
                # After this pause, the fetch is waiting in the broker.
                time.sleep(0.001 + partitions * 2e-6)
                started = time.perf_counter()
                producer.send(_produce(topic, partition), _PRODUCE_VERSION)
                answer = consumer.receive()
                took.append((time.perf_counter() - started) * 1000)
                assert len(answer) > len(_BATCH)
                producer.receive()
                ends[partition] += 16
                changed = {partition: ends[partition]}

        run()
        took.clear()
        return _cost_us(target, count, run), took


def append_us(target: Target, count: int) -> float:
    """The broker's processor time in microseconds for an append for which no fetch waits."""
    topic = create_topic(target.bootstrap)
    with _client(target) as producer:

        def run() -> None:
            for _ in range(count):
                _append(producer, topic, 0)
                time.sleep(0.001)

        run()
        return _cost_us(target, count, run)


def idle_us(target: Target, consumers: int, partitions: int, *, session: bool) -> float:
    """The broker's processor time in microseconds for a fetch that waits 500 ms and gets no
    records. `consumers`: the number of consumers that fetch at the same time."""
    topic = create_topic(target.bootstrap, partitions)
    selector = selectors.DefaultSelector()
    epochs = dict.fromkeys(range(consumers), 0)
    ids: dict[int, int] = {}
    ends = dict.fromkeys(range(partitions), 0)
    with ExitStack() as stack:
        clients = [stack.enter_context(_client(target)) for _ in range(consumers)]
        for number, client in enumerate(clients):
            client.send(
                _fetch(topic, ends, (0, 0 if session else -1), max_wait_ms=0), _FETCH_VERSION
            )
            ids[number] = client.fetched().session_id
            selector.register(client.socket, selectors.EVENT_READ, number)

        def ask(number: int) -> None:
            epochs[number] += 1
            if session:
                clients[number].send(
                    _fetch(topic, {}, (ids[number], epochs[number])), _FETCH_VERSION
                )
            else:
                clients[number].send(_fetch(topic, ends), _FETCH_VERSION)

        answered = 0

        def run() -> None:
            nonlocal answered
            answered = 0
            until = time.monotonic() + _IDLE_S
            while time.monotonic() < until:
                for key, _ in selector.select(0.1):
                    clients[key.data].receive()
                    answered += 1
                    ask(key.data)

        for number in range(consumers):
            ask(number)
        run()
        before = target.cpu_s() or 0.0
        run()
        return ((target.cpu_s() or 0.0) - before) / answered * 1e6


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--scale", type=float, default=1.0, help="of the number of requests")
    options.add_argument("--only", default="read,tail,sessions,idle", help="parts, with commas")
    arguments = options.parse_args()
    wanted = [part.strip() for part in arguments.only.split(",")]
    report = Report("fetch", as_json=arguments.json)
    report.machine()

    def row(name: str, measure: Callable[[], float]) -> None:
        say(name)
        found = [measure() for _ in range(arguments.rounds)]
        median = statistics.median(found)
        report.row(
            (name, f"{median:,.0f}", f"{min(found):,.0f}-{max(found):,.0f}", "-"), cpu_us=median
        )

    def row_of_tail(name: str, partitions: int, *, session: bool) -> None:
        say(name)
        found = [
            tail(broker, partitions, count(2000 if partitions < 100 else 500), session=session)
            for _ in range(arguments.rounds)
        ]
        costs = [cost for cost, _ in found]
        median = statistics.median(costs)
        p50 = percentile([each for _, took in found for each in took], 0.5)
        report.row(
            (name, f"{median:,.0f}", f"{min(costs):,.0f}-{max(costs):,.0f}", f"{p50:.3f}"),
            cpu_us=median,
            p50_ms=p50,
        )

    def count(usual: int) -> int:
        return max(100, int(usual * arguments.scale))

    with odradek_broker("page-cache", _SETTINGS) as broker:
        report.table("A Fetch", ("what", "broker CPU us", "range", "p50 ms"))
        if "read" in wanted:
            row("16 KB, at once", lambda: read_us(broker, 17_000, count(5000)))
            row("1 MB, at once", lambda: read_us(broker, _MB, count(1000)))
        if "tail" in wanted:
            row("an append of 16 KB alone", lambda: append_us(broker, count(2000)))
            row_of_tail("woken by an append, no session", 1, session=False)
            row_of_tail("woken by an append, session", 1, session=True)
        if "sessions" in wanted:
            for partitions in (100, 1000):
                for session in (False, True):
                    kind = "session" if session else "no session"
                    row_of_tail(
                        f"woken by an append to one of {partitions:,}, {kind}",
                        partitions,
                        session=session,
                    )
        if "idle" in wanted:
            for partitions in (1, 100):
                for session in (False, True):
                    kind = "session" if session else "no session"
                    row(
                        f"waits in vain, 1,000 consumers of {partitions}, {kind}",
                        lambda partitions=partitions, session=session: idle_us(  # type: ignore[misc]
                            broker, 1000, partitions, session=session
                        ),
                    )


if __name__ == "__main__":
    main()
