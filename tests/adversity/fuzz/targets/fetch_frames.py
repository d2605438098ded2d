"""Frames of Fetch requests: the hand-written codec decodes them as the generated codec does."""

from __future__ import annotations

from collections.abc import Iterator

from tests.adversity.fuzz.target import Target

from common_fetch import check_one_fetch
from odradek_protocol import frames
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic


def _check(data: bytes) -> None:
    check_one_fetch(memoryview(data))


def _seeds() -> Iterator[bytes]:
    for version in FetchRequest.versions:
        for count, client_id in ((1, "c"), (0, None), (2, "")):
            partitions = [FetchPartition(partition=1, fetch_offset=7)] * max(count, 1)
            topic = FetchTopic(topic="t" * 120, topic_id=b"t" * 16, partitions=partitions)
            request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic] if count else [])
            parts = frames.encode_request(request, version, 7, client_id)
            yield b"".join(parts)[4:]


TARGET = Target(_check, _seeds)
