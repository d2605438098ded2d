"""Frames of Produce requests: the hand-written codec decodes them, and encodes the responses, as
the generated codec does."""

from __future__ import annotations

from collections.abc import Iterator

from tests.adversity.fuzz.target import Target

from logs import make_batch
from odradek_protocol import frames
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from produce_worlds import check_one_batch


def _check(data: bytes) -> None:
    check_one_batch(memoryview(data))


def _seeds() -> Iterator[bytes]:
    for version in ProduceRequest.versions:
        for count, client_id, transactional_id in ((1, "c", None), (0, None, "tx"), (2, "", "")):
            records = bytes(make_batch(max(count, 1))) if count else None
            data = [PartitionProduceData(index=1, records=records)] * max(count, 1)
            topics = [TopicProduceData(name="t" * 130, topic_id=b"t" * 16, partition_data=data)]
            request = ProduceRequest(
                transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=topics
            )
            parts = frames.encode_request(request, version, 7, client_id)
            yield b"".join(parts)[4:]


TARGET = Target(_check, _seeds)
