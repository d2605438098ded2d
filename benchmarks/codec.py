"""Comparison of generated codecs with hand-written codecs, for frequent messages.

    python -m benchmarks.codec [--json]

Each hand-written twin reads or writes the same bytes in the same version, with the same classes,
but only for a fixed shape: one topic, one partition, no tags. The time of the twin is the lower
limit for Python code. The target for the generated codec is at most 4 times this limit. The twins
are checked against the codecs before the measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct as Packer
from typing import Any

from benchmarks.support import Report, best_us, parser

from odradek_protocol import codec
from odradek_protocol.message import Message
from odradek_protocol.schemas.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

BUDGET = 4.0
RECORDS = bytes(16_000)

_ACKS_TIMEOUT = Packer(">hi")
_INT32 = Packer(">i")
_INT16 = Packer(">h")
_PRODUCED = Packer(">ihqqq")
_FETCH_HEAD = Packer(">iiiibii")
_FETCH_PARTITION = Packer(">iiqqi")
_FETCHED_HEAD = Packer(">ihii")
_FETCHED = Packer(">ihqqqiii")


# --- Produce 9: flexible -----------------------------------------------------------------------


def _uvarint(buffer: Any, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def read_produce_request(buffer: Any) -> ProduceRequest:
    assert buffer[0] == 0, "no transactional id"
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(buffer, 1)
    size, position = _uvarint(buffer, 8)
    name = str(buffer[position : position + size - 1], "utf-8")
    position += size
    (index,) = _INT32.unpack_from(buffer, position)
    size, position = _uvarint(buffer, position + 4)
    records = memoryview(buffer)[position : position + size - 1]
    data = PartitionProduceData(index=index, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=name, partition_data=[data])],
    )


def write_produce_response(response: ProduceResponse) -> bytes:
    topic = response.responses[0]
    name = topic.name.encode()
    found = topic.partition_responses[0]
    return b"".join(
        (
            b"\x02",
            bytes((len(name) + 1,)),
            name,
            b"\x02",
            _PRODUCED.pack(
                found.index,
                found.error_code,
                found.base_offset,
                found.log_append_time_ms,
                found.log_start_offset,
            ),
            # An empty list of record errors, a null message, and the tags of partition and topic.
            b"\x01\x00\x00\x00",
            _INT32.pack(response.throttle_time_ms),
            b"\x00",
        )
    )


# --- Fetch 11: the version of librdkafka ----------------------------------------------------------


def read_fetch_request(buffer: Any) -> FetchRequest:
    replica, wait, least, most, isolation, session, epoch = _FETCH_HEAD.unpack_from(buffer, 0)
    (size,) = _INT16.unpack_from(buffer, _FETCH_HEAD.size + 4)
    position = _FETCH_HEAD.size + 6
    name = str(buffer[position : position + size], "utf-8")
    position += size + 4
    partition, leader_epoch, offset, start, limit = _FETCH_PARTITION.unpack_from(buffer, position)
    return FetchRequest(
        replica_id=replica,
        max_wait_ms=wait,
        min_bytes=least,
        max_bytes=most,
        isolation_level=isolation,
        session_id=session,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        current_leader_epoch=leader_epoch,
                        fetch_offset=offset,
                        log_start_offset=start,
                        partition_max_bytes=limit,
                    )
                ],
            )
        ],
    )


def write_fetch_response(response: FetchResponse) -> list[Any]:
    topic = response.responses[0]
    name = topic.topic.encode()
    found = topic.partitions[0]
    records = found.records or b""
    head = _FETCHED_HEAD.pack(
        response.throttle_time_ms, response.error_code, response.session_id, 1
    )
    partition = _FETCHED.pack(
        found.partition_index,
        found.error_code,
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
        0,
        found.preferred_read_replica,
        len(records),
    )
    start = b"".join((head, _INT16.pack(len(name)), name, b"\0\0\0\x01", partition))
    return [start, records]


# --- Measuring ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """The generated codec and its twin, for one direction (reading or writing) of one message."""

    name: str
    ours: Callable[[], Any]
    twin: Callable[[], Any]


def pairs() -> list[Pair]:
    """All pairs. Raises SystemExit unless every twin agrees with its codec."""
    produce_request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="flights", partition_data=[PartitionProduceData(index=3, records=RECORDS)]
            )
        ],
    )
    produce_response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="flights",
                partition_responses=[
                    PartitionProduceResponse(index=3, base_offset=1 << 40, log_start_offset=0)
                ],
            )
        ]
    )
    fetch_request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[
            FetchTopic(
                topic="flights",
                partitions=[
                    FetchPartition(partition=3, fetch_offset=1 << 40, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    fetch_response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="flights",
                partitions=[
                    PartitionData(
                        partition_index=3,
                        high_watermark=1 << 40,
                        last_stable_offset=1 << 40,
                        log_start_offset=0,
                        aborted_transactions=[],
                        records=RECORDS,
                    )
                ],
            )
        ]
    )
    return [
        _reading("ProduceRequest v9, read", produce_request, 9, read_produce_request),
        _writing("ProduceResponse v9, write", produce_response, 9, write_produce_response),
        _reading("FetchRequest v11, read", fetch_request, 11, read_fetch_request),
        _writing("FetchResponse v11, write", fetch_response, 11, write_fetch_response),
    ]


def _reading(name: str, sample: Message, version: int, twin: Callable[[Any], Any]) -> Pair:
    data = memoryview(bytearray(codec.encode_bytes(sample, version)))
    if not sample == twin(data) == codec.decode(type(sample), version, data):
        raise SystemExit(f"{name}: the twin reads something else")
    cls = type(sample)
    return Pair(name, lambda: codec.decode(cls, version, data), lambda: twin(data))


def _writing(name: str, sample: Any, version: int, twin: Callable[[Any], Any]) -> Pair:
    written = twin(sample)
    joined = written if isinstance(written, bytes) else b"".join(written)
    if joined != codec.encode_bytes(sample, version):
        raise SystemExit(f"{name}: the twin writes something else")
    if isinstance(written, bytes):
        return Pair(name, lambda: codec.encode_bytes(sample, version), lambda: twin(sample))
    return Pair(name, lambda: codec.gather(codec.encode(sample, version)), lambda: twin(sample))


def main() -> None:
    arguments = parser(__doc__).parse_args()
    report = Report("codec", as_json=arguments.json)
    report.machine()
    report.table(
        f"Codecs (budget: {BUDGET:.0f} x a twin written by hand)",
        ("message", "ours us", "twin us", "ours / twin"),
    )
    for pair in pairs():
        ours, twin = best_us(pair.ours), best_us(pair.twin)
        ratio = ours / twin
        report.row(
            (
                pair.name,
                f"{ours:.2f}",
                f"{twin:.2f}",
                f"{ratio:.2f}" + ("" if ratio <= BUDGET else " **missed**"),
            ),
            ours_us=round(ours, 3),
            twin_us=round(twin, 3),
            ratio=round(ratio, 3),
            met=ratio <= BUDGET,
        )


if __name__ == "__main__":
    main()
