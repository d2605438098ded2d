"""The gain of a second broker process: two nodes with half of the partitions each, compared with
one node that has all partitions.

    python -m benchmarks.several_nodes [--rounds 5] [--scale 1.0] [--durability page-cache] [--json]

The two nodes are not a cluster and do not know each other; each client is given the node that has
its partitions. One node and two nodes get the same load, from two clients that each write to half
of the partitions.

"librdkafka" is confluent-kafka in one process. The client's own work takes more than a core. "raw"
encodes one Produce request of 16 KB beforehand, and sends it again and again with a window of
requests in flight. It takes almost no client time, so the brokers are the limit. Clients and nodes
share the cores of this machine, so the last column has the throughput that their processor time
would allow, however busy the machine is otherwise. An idempotent librdkafka spins while it waits,
so its processor time means nothing.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.broker import Failures, create_topic, delete_topic
from benchmarks.support import CORES, Report, Spread, Target, odradek_broker, parser, say
from benchmarks.waits import address_of
from confluent_kafka import Producer

from odradek_protocol import frames
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

_CLIENTS = 2
_PARTITIONS_EACH = 2
_VALUE = bytes(range(250)) * 4
_RECORDS = 200_000
_REQUESTS = 12_000
_WINDOW = 32
_PATIENCE_S = 60.0
#: The last version without tagged fields, in which the first error code has a fixed position.
_PRODUCE_VERSION = 8
_BEFORE_ERROR_CODE = 18


@dataclass(frozen=True)
class Place:
    """The target of one client: half of the partitions, and the node that leads them."""

    target: Target
    topic: str


@dataclass(frozen=True)
class Measured:
    """The result of one run: MB/s, and processor time in milliseconds per MB, for the clients and
    for all nodes."""

    mb_per_s: float
    client_ms: float
    nodes_ms: float


@contextlib.contextmanager
def _places(targets: Sequence[Target]) -> Iterator[list[Place]]:
    """Make a topic for each client, alternating between the nodes."""
    owners = [targets[number % len(targets)] for number in range(_CLIENTS)]
    places = [Place(target, create_topic(target.bootstrap, _PARTITIONS_EACH)) for target in owners]
    try:
        yield places
    finally:
        for place in places:
            delete_topic(place.target.bootstrap, place.topic)


def _librdkafka(places: Sequence[Place], scale: float, *, idempotent: bool) -> int:
    """Produce with librdkafka. Returns the acknowledged bytes."""
    failures = Failures()
    producers = [
        Producer(
            {
                "bootstrap.servers": place.target.bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 5,
                "batch.size": 16_384,
                "queue.buffering.max.messages": 2_000_000,
                "delivery.report.only.error": True,
                "log_level": 0,
            }
        )
        for place in places
    ]
    count = int(_RECORDS * scale)
    for index in range(count):
        number = index % len(places)
        partition = index // len(places) % _PARTITIONS_EACH
        producers[number].produce(
            places[number].topic, _VALUE, partition=partition, on_delivery=failures
        )
    left = sum(producer.flush(_PATIENCE_S) for producer in producers)
    if left or failures.count:
        raise SystemExit(f"{left} not sent, {failures.count} failed: {failures.last}")
    return count * len(_VALUE)


def _raw(places: Sequence[Place], scale: float, *, idempotent: bool) -> int:
    """Produce with raw requests, never idempotent. Returns the acknowledged bytes."""
    each = int(_REQUESTS * scale) // len(places)
    with contextlib.ExitStack() as held, selectors.DefaultSelector() as ready:
        for place in places:
            connection = held.enter_context(
                socket.create_connection(address_of(place.target.bootstrap), _PATIENCE_S)
            )
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ready.register(connection, selectors.EVENT_READ, _Pipeline(place, connection, each))
        while ready.get_map():
            for key, _ in ready.select(_PATIENCE_S):
                if key.data.go_on():
                    ready.unregister(key.fileobj)
    return each * len(places) * 16 * len(_VALUE)


class _Pipeline:
    """A connection with `_WINDOW` requests in flight."""

    def __init__(self, place: Place, connection: socket.socket, count: int) -> None:
        self._connection = connection
        self._error_code_at = _BEFORE_ERROR_CODE + len(place.topic)
        self._requests = [_request(place, number) for number in range(_PARTITIONS_EACH)]
        self._to_send, self._to_come = count, count
        self._unread = b""
        for _ in range(min(_WINDOW, count)):
            self._send()

    def _send(self) -> None:
        if self._to_send:
            self._connection.sendall(self._requests[self._to_send % len(self._requests)])
            self._to_send -= 1

    def go_on(self) -> bool:
        """Read the answers that have arrived, and send a new request for each answer. Returns True
        when all requests are answered.
        """
        part = self._connection.recv(65_536)
        if not part:
            raise SystemExit("the broker closed the connection")
        self._unread += part
        while (
            len(self._unread) >= 4
            and len(self._unread) >= (size := int.from_bytes(self._unread[:4], "big")) + 4
        ):
            code = int.from_bytes(self._unread[4 + self._error_code_at :][:2], "big")
            if code:
                raise SystemExit(f"the broker answers with error {code}")
            self._unread = self._unread[4 + size :]
            self._to_come -= 1
            self._send()
        return not self._to_come


def _request(place: Place, partition: int) -> bytes:
    batch = simple_batch([(None, _VALUE)] * 16, int(time.time() * 1000))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=place.topic,
                partition_data=[PartitionProduceData(index=partition, records=batch)],
            )
        ],
    )
    return b"".join(frames.encode_request(request, _PRODUCE_VERSION, 1, "raw"))


LOADS = {
    "librdkafka, 1 KB in 16 KB": (_librdkafka, False),
    "librdkafka, 1 KB in 16 KB, idempotent": (_librdkafka, True),
    "raw, 16 KB": (_raw, False),
}


def measure(load: str, targets: Sequence[Target], scale: float) -> Measured:
    """Run a load once, and measure it."""
    send, idempotent = LOADS[load]
    with _places(targets) as places:
        # This run makes the connections and fetches metadata, so that the measurement does not
        # include that work.
        send(places, 0.01 * scale, idempotent=idempotent)
        nodes_s = -sum(target.cpu_s() or 0.0 for target in targets)
        client_s, started_s = -time.process_time(), time.perf_counter()
        sent_mb = send(places, scale, idempotent=idempotent) / 1e6
        took_s = time.perf_counter() - started_s
        client_s += time.process_time()
        nodes_s += sum(target.cpu_s() or 0.0 for target in targets)
    return Measured(sent_mb / took_s, client_s * 1000 / sent_mb, nodes_s * 1000 / sent_mb)


def possible_mb_per_s(measured: Measured, nodes: int) -> float:
    """The throughput that the measured processor time allows, if a node uses at most one core, and
    clients and nodes together at most all cores."""
    of_the_nodes = nodes * 1000 / measured.nodes_ms
    return min(of_the_nodes, CORES * 1000 / (measured.nodes_ms + measured.client_ms))


def compare(report: Report, durability: str, rounds: int, scale: float) -> None:
    """Print the table for one durability."""
    report.table(
        f"One node and two, {durability}",
        (
            *("load", "one node MB/s", "two nodes MB/s", "two / one"),
            *("CPU ms/MB, client", "one node", "two nodes", "two / one that CPU time allows"),
        ),
    )
    with contextlib.ExitStack() as held:
        nodes = [
            held.enter_context(odradek_broker(durability, {"node.id": number}, metrics=False))
            for number in range(3)
        ]
        sides = (nodes[:1], nodes[1:])
        for load in LOADS:
            say(f"{load}, {durability}")
            found: tuple[list[Measured], list[Measured]] = ([], [])
            for number in range(-1, rounds):
                for which in (0, 1) if number % 2 else (1, 0):
                    measured = measure(load, sides[which], scale)
                    if number >= 0:
                        found[which].append(measured)
            _tell(report, load, durability, *found)


def _tell(
    report: Report, load: str, durability: str, one: list[Measured], two: list[Measured]
) -> None:
    ratio = Spread.of([b.mb_per_s / a.mb_per_s for a, b in zip(one, two, strict=True)])
    _, idempotent = LOADS[load]
    allowed = statistics.median(
        possible_mb_per_s(b, 2) / possible_mb_per_s(a, 1) for a, b in zip(one, two, strict=True)
    )
    rates, nodes_ms = (
        [statistics.median(getattr(each, name) for each in side) for side in (one, two)]
        for name in ("mb_per_s", "nodes_ms")
    )
    client_ms = statistics.median(each.client_ms for each in (*one, *two))
    report.row(
        (
            load,
            *(f"{each:,.0f}" for each in rates),
            str(ratio),
            *(f"{each:.2f}" for each in (client_ms, *nodes_ms)),
            "-" if idempotent else f"{allowed:.2f}",
        ),
        durability=durability,
        one_mb_per_s=rates[0],
        two_mb_per_s=rates[1],
        ratio=ratio.median,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        client_ms_per_mb=client_ms,
        one_ms_per_mb=nodes_ms[0],
        two_ms_per_mb=nodes_ms[1],
        ratio_allowed=None if idempotent else allowed,
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    options.add_argument("--durability", default="page-cache,fsync", help="one, or both")
    arguments = options.parse_args()
    report = Report("several_nodes", as_json=arguments.json)
    report.machine()
    for durability in arguments.durability.split(","):
        compare(report, durability, arguments.rounds, arguments.scale)


if __name__ == "__main__":
    main()
