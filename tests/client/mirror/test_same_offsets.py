"""The copier with the same offsets, with a source and a target that answer as they are told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.mirror import same_offsets
from odradek.mirror.progress import Progress
from odradek.mirror.same_offsets import SameOffsetsCopier
from odradek.mirror.source import FetchedPartition
from odradek_client.admin.results import Results
from odradek_client.errors import RequestTimedOut
from odradek_client.structs import TopicPartition
from odradek_protocol.records import simple_batch
from odradek_protocol.schemas.append_mirror_records import (
    MirroredPartition,
    MirroredPartitionResult,
)

TP = TopicPartition("orders", 0)


class Reader:
    """Two pieces of a partition, one for each poll."""

    def __init__(self) -> None:
        self.positions = {TP: 0}
        self._pieces = [piece(0), piece(10)]

    async def poll(self, _: float) -> list[FetchedPartition]:
        return [self._pieces.pop(0)] if self._pieces else []

    def unassign(self, tp: TopicPartition) -> None:
        del self.positions[tp]

    def troubles(self) -> dict[TopicPartition, Any]:
        return {}


def piece(first: int) -> FetchedPartition:
    batch = simple_batch([(None, b"%d" % number) for number in range(10)], 1, base_offset=first)
    return FetchedPartition(TP, b"", first, first + 10, memoryview(batch), 20, 20, 0, 0, 0, [])


def copier_of(reader: Reader) -> SameOffsetsCopier:
    """A copier whose only partition is at offset 0 on both sides."""
    progress = Progress(0.0)
    progress.begin(TP, 0, 20)
    job = SimpleNamespace(source=None, target=None, rate=None, progress=progress, tell=print)
    copier = SameOffsetsCopier.__new__(SameOffsetsCopier)
    copier._job, copier._target, copier._reader = cast(Any, job), cast(Any, None), cast(Any, reader)
    copier._ends, copier._unknown, copier._ids = {TP: 0}, {}, {TP: b""}
    copier._corrupt, copier._appending = {}, None
    return copier


async def test_a_request_has_a_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_offsets, "_REQUEST_BYTES_MAX", 2 * len(piece(0).records))
    other = [TopicPartition("orders", number) for number in range(5)]
    copier, sent = copier_of(Reader()), list[int]()
    copier._ends = dict.fromkeys(other, 0)

    async def send(
        wanted: dict[TopicPartition, MirroredPartition],
    ) -> Results[TopicPartition, MirroredPartitionResult]:
        sent.append(len(wanted))
        return Results()

    copier._send = send  # type: ignore[method-assign]
    await copier._append([replace(piece(0), tp=tp) for tp in other])
    assert sent == [2, 2, 1]


async def test_nothing_is_appended_behind_an_append_that_failed() -> None:
    reader, sent = Reader(), list[int]()
    copier = copier_of(reader)

    async def send(
        wanted: dict[TopicPartition, MirroredPartition],
    ) -> Results[TopicPartition, MirroredPartitionResult]:
        sent.append(wanted[TP].expected_end_offset)
        results = Results[TopicPartition, MirroredPartitionResult]()
        results.errors[TP] = RequestTimedOut("the target does not answer")
        return results

    copier._send = send  # type: ignore[method-assign]
    await copier.step(0)
    copier._unknown.clear()
    await copier.step(0)
    await copier.flush()
    assert sent == [0], "the second piece was appended, although the first one is not there"
    assert copier._unknown == {TP: b""}
