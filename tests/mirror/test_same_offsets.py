"""The copier that keeps offsets, with a fake source and a fake target."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek_client.admin.results import Results
from odradek_client.admin.topics import PartitionDescription, TopicDescription
from odradek_client.errors import RequestTimedOut, TaskCancelled
from odradek_client.structs import OffsetAndTimestamp, TopicPartition
from odradek_mirror import same_offsets
from odradek_mirror.plan import TopicAction, TopicPlan
from odradek_mirror.progress import Progress
from odradek_mirror.same_offsets import SameOffsetsCopier, parts_of
from odradek_mirror.source import FetchedPartition
from odradek_protocol.records import iter_batches, simple_batch
from odradek_protocol.schemas.append_mirror_records import (
    MirroredPartition,
    MirroredPartitionResult,
)
from task_killer import Ending, TaskKiller
from waiting import DEADLINE_S

TP = TopicPartition("orders", 0)


class Reader:
    """A fake reader of the source: two polls each return a piece of the partition."""

    def __init__(self) -> None:
        self.positions = {TP: 0}
        self._pieces = [piece(0), piece(10)]

    async def poll(self, _: float) -> list[FetchedPartition]:
        return [self._pieces.pop(0)] if self._pieces else []

    def unassign(self, tp: TopicPartition) -> None:
        self.positions.pop(tp, None)

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
    copier._copies = {}
    copier._corrupt, copier._appending = {}, None
    copier._frame_bytes_max = None
    copier._tell_at_s = float("inf")
    copier._failed, copier._asked, copier._unknown_for = set(), set(), {}
    copier._looking_up, copier._look_up_at_s = [], float("inf")
    return copier


class Target:
    """A fake target that appends at most `batches_max` batches for each request."""

    def __init__(self, copier: SameOffsetsCopier, batches_max: int = 1_000) -> None:
        self.sent: list[list[tuple[int, int, int]]] = []
        self.stored: dict[TopicPartition, list[int]] = {}
        self._batches_max = batches_max
        copier._send = self.send  # type: ignore[method-assign]

    async def send(
        self,
        wanted: Mapping[TopicPartition, MirroredPartition],
        topic_ids: Mapping[TopicPartition, bytes],
    ) -> Results[TopicPartition, MirroredPartitionResult]:
        """Append; `sent` gets (partition, fetch offset, number of batches) of each part."""
        results = Results[TopicPartition, MirroredPartitionResult]()
        self.sent.append([])
        left = self._batches_max
        for tp, part in wanted.items():
            assert part.expected_end_offset == part.fetch_offset
            headers = [header for _, header in iter_batches(part.records or b"")]
            self.sent[-1].append((tp.partition, part.fetch_offset, len(headers)))
            taken, left = headers[:left], max(left - len(headers), 0)
            self.stored.setdefault(tp, []).extend(each.base_offset for each in taken)
            end = taken[-1].next_offset if taken else part.expected_end_offset
            results[tp] = MirroredPartitionResult(partition_index=tp.partition, log_end_offset=end)
        return results


def pieces_of(copier: SameOffsetsCopier, partitions: int, batches: int) -> list[FetchedPartition]:
    """For each partition, a piece of `batches` batches. The copier will copy from offset 0 on."""
    content = b"".join(bytes(piece(10 * number).records) for number in range(batches))
    tps = [TopicPartition("orders", number) for number in range(partitions)]
    for tp in tps:
        copier._job.progress.begin(tp, 0, 10 * batches)
        copier._ends[tp] = 0
        copier._reader.positions[tp] = 10 * batches  # type: ignore[index]
    whole = replace(piece(0), records=memoryview(content), next_offset=10 * batches)
    return [replace(whole, tp=tp) for tp in tps]


def set_limit(monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """Limit a request to the bytes of `batches` partitions with one batch each."""
    size_bytes = len(piece(0).records) + same_offsets._AROUND_BYTES
    monkeypatch.setattr(same_offsets, "_REQUEST_BYTES_MAX", batches * size_bytes)


async def test_a_request_has_a_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, 2)
    copier = copier_of(Reader())
    target = Target(copier)
    await copier._append(pieces_of(copier, 5, 1))
    assert [len(parts) for parts in target.sent] == [2, 2, 1]


async def test_a_large_batch_is_sent_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    copier = copier_of(Reader())
    target = Target(copier)
    pieces = pieces_of(copier, 2, 3)
    monkeypatch.setattr(same_offsets, "_REQUEST_BYTES_MAX", 1)
    await copier._append(pieces)
    assert target.sent == [[(tp, at, 1)] for tp in range(2) for at in (0, 10, 20)]
    assert target.stored == {each.tp: [0, 10, 20] for each in pieces}


@pytest.mark.parametrize("batches_max", [1, 2, 4])
async def test_batches_that_the_target_has_no_room_for_are_sent_again(batches_max: int) -> None:
    copier = copier_of(Reader())
    target = Target(copier, batches_max)
    pieces = pieces_of(copier, 3, 3)
    await copier._append(pieces)
    assert target.stored == {each.tp: [0, 10, 20] for each in pieces}
    assert len(target.sent) == -(-9 // batches_max)
    assert copier._job.progress.partitions[TP].copied == 30


async def test_a_target_that_never_has_room_ends_the_copy_of_a_partition() -> None:
    copier = copier_of(Reader())
    Target(copier, 0)
    await copier._append(pieces_of(copier, 1, 1))
    assert "does not append it" in copier._job.progress.failures[TP]


async def test_a_batch_that_the_target_cannot_take_names_the_setting() -> None:
    copier = copier_of(Reader())
    target = Target(copier)
    first, second = pieces_of(copier, 2, 2)
    large = bytes(simple_batch([(None, b"x" * 5_000)], 1, base_offset=20))
    content = memoryview(bytes(first.records) + large)
    copier._frame_bytes_max = 4_000
    await copier._append([replace(first, records=content, next_offset=21), second])
    told = copier._job.progress.failures
    assert list(told) == [first.tp]
    assert f"at or after offset 20 has {len(large)} bytes" in told[first.tp]
    assert "requests of at most 4000: raise socket.request.max.bytes" in told[first.tp]
    assert target.stored == {first.tp: [0, 10], second.tp: [0, 10]}


async def test_partitions_without_new_records_are_still_reported_to_the_target() -> None:
    copier = copier_of(Reader())
    other = TopicPartition("orders", 1)
    sent = list[Mapping[TopicPartition, MirroredPartition]]()

    async def send(
        wanted: Mapping[TopicPartition, MirroredPartition],
        topic_ids: Mapping[TopicPartition, bytes],
    ) -> Results[TopicPartition, MirroredPartitionResult]:
        sent.append(wanted)
        return Results()

    copier._send = send  # type: ignore[method-assign]
    copier._job.progress.begin(other, 3, 9)
    copier._reader.positions[other] = 3  # type: ignore[index]
    copier._ends[other] = 3
    copier._reader.troubles = lambda: {TP: "no leader"}  # type: ignore
    copier._tell_at_s = 5.0
    for now_s in (4.0, 5.0, 6.0, 15.0):
        await copier._tell_ends(now_s)
    assert sent == [
        {other: MirroredPartition(partition_index=1, source_high_watermark=9)} for _ in range(2)
    ]


@pytest.mark.parametrize("is_error", [True, False])
async def test_i14_a_copy_that_is_created_again_is_filled_without_new_records(
    is_error: bool,
) -> None:
    copier = copier_of(Reader())
    copier._ends[TP], copier._tell_at_s = 10, 0.0

    async def send(
        wanted: Mapping[TopicPartition, MirroredPartition],
        topic_ids: Mapping[TopicPartition, bytes],
    ) -> Results[TopicPartition, MirroredPartitionResult]:
        results = Results[TopicPartition, MirroredPartitionResult]()
        if is_error:
            results.errors[TP] = same_offsets._CopyRecreated("the topic was created again")
        else:
            results[TP] = MirroredPartitionResult(partition_index=0, log_end_offset=9)
        return results

    copier._send = send  # type: ignore[method-assign]
    await copier._tell_ends(0.0)
    assert copier._reader.positions == {} and copier._unknown == {TP: b""}
    assert (copier.translate(TP, 10) is None) is is_error


def test_parts_of_a_piece_are_contiguous() -> None:
    content = b"".join(bytes(piece(offset).records) for offset in (3, 13, 40, 50))
    size_bytes = len(content) // 4
    whole = replace(piece(5), records=memoryview(content), next_offset=60)
    for batches, expected in ((1, [5, 13, 23, 50]), (2, [5, 23]), (3, [5, 50]), (4, [5])):
        parts = list(parts_of(whole, batches * size_bytes))
        assert [part.fetch_offset for part in parts] == expected
        assert b"".join(part.records for part in parts) == content
        assert [part.next_offset for part in parts] == [*expected[1:], 60]
    news = replace(whole, records=memoryview(b""))
    assert list(parts_of(news, 10)) == [news]


async def test_no_batch_is_appended_after_a_failed_append() -> None:
    reader, sent = Reader(), list[int]()
    copier = copier_of(reader)

    async def send(
        wanted: Mapping[TopicPartition, MirroredPartition],
        topic_ids: Mapping[TopicPartition, bytes],
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


async def test_i41_a_dropped_topic_is_no_longer_appended_or_translated() -> None:
    copier, told = copier_of(Reader()), list[str]()
    copier._job.tell = told.append
    other = TopicPartition("others", 0)
    copier._ends[other] = 5
    copier._unknown[TopicPartition("orders", 1)] = b""
    await copier.drop({"orders": "it is the mirror of another topic"})
    assert copier._reader.positions == {} and not copier._unknown
    assert (copier.translate(TP, 0), copier.translate(other, 5)) == (None, 5)
    assert sorted(told) == [
        f"orders-{number} is not copied any more: it is the mirror of another topic"
        for number in range(2)
    ]


async def test_c83_a_cancelled_append_ends_the_mirror_with_an_error() -> None:
    copier = copier_of(Reader())
    target = Target(copier)
    await copier.step(0)
    assert copier._appending is not None
    copier._appending.cancel()
    with pytest.raises(TaskCancelled, match="an append to the target was cancelled"):
        await copier.flush()
    assert target.sent == []


class Source:
    """A fake source of two partitions with given leaders; a node in `down` never answers."""

    def __init__(self, *leaders: int | None, down: frozenset[int] = frozenset()) -> None:
        self.leaders, self.down = leaders, down

    async def describe_topics(
        self, names: Sequence[str], *, raise_errors: bool
    ) -> Results[str, TopicDescription]:
        found = Results[str, TopicDescription]()
        parts = [PartitionDescription(n, at, 0, [], [], []) for n, at in enumerate(self.leaders)]
        found["orders"] = TopicDescription("orders", b"", False, parts)
        return found

    async def list_offsets(
        self, wanted: dict[TopicPartition, str], *, raise_errors: bool
    ) -> Results[TopicPartition, OffsetAndTimestamp]:
        found = Results[TopicPartition, OffsetAndTimestamp]()
        for tp in wanted:
            leader = self.leaders[tp.partition]
            assert leader is not None, "a partition without a leader is waited for"
            if leader in self.down:
                await asyncio.sleep(3600)
            found[tp] = OffsetAndTimestamp(0, -1, -1)
        return found


class Idle(Reader):
    """A fake reader that accepts partitions, and never returns records."""

    def __init__(self) -> None:
        self.positions = {}
        self._pieces = []

    async def poll(self, _: float) -> list[FetchedPartition]:
        await asyncio.sleep(0)
        return []

    def assign(self, tp: TopicPartition, offset: int, **_: object) -> None:
        self.positions[tp] = offset


def looking_copier(source: Source) -> SameOffsetsCopier:
    """A copier that does not know any partition yet; its target is empty."""
    copier = copier_of(Idle())
    copier._job.source = cast(Any, source)
    copier._target = cast(Any, Source(1, 1))
    copier._ends, copier._ids, copier._look_up_at_s = {}, {}, 0.0

    async def send(
        wanted: Mapping[TopicPartition, MirroredPartition],
        topic_ids: Mapping[TopicPartition, bytes],
    ) -> Results[TopicPartition, MirroredPartitionResult]:
        results = Results[TopicPartition, MirroredPartitionResult]()
        for tp in wanted:
            results[tp] = MirroredPartitionResult(
                partition_index=tp.partition, log_start_offset=0, log_end_offset=0
            )
        return results

    copier._send = send  # type: ignore[method-assign]
    return copier


TOPIC = TopicPlan("orders", TopicAction.CONTINUE, b"", 2, {}, (), 0, 0)


@pytest.mark.parametrize("source", [Source(1, None), Source(1, 2, down=frozenset({2}))])
async def test_a_partition_whose_leader_does_not_answer_delays_no_other(source: Source) -> None:
    copier = looking_copier(source)
    await copier.add([TOPIC])
    async with asyncio.timeout(DEADLINE_S):
        while not copier._reader.positions:
            await copier.step(100)
    assert copier._reader.positions == {TP: 0}
    await copier.step(0)
    (trouble,) = copier._job.progress.troubles.items()
    assert trouble[0] == "orders-1"
    assert "target" not in trouble[1]
    for task in copier._looking_up:
        task.cancel()


@pytest.mark.parametrize(
    "victim", ["SameOffsetsCopier._ask_leaders", "SameOffsetsCopier._ask_ends"]
)
async def test_c83_a_cancelled_search_for_ends_ends_the_mirror_with_an_error_or_goes_on(
    victim: str,
) -> None:
    copier = looking_copier(Source(1, 1))
    with TaskKiller(victim, Ending.UNBEGUN):
        await copier.add([TOPIC])
        async with asyncio.timeout(DEADLINE_S):
            try:
                while TP not in copier._reader.positions:
                    copier._look_up_at_s = 0.0
                    await copier.step(100)
            except TaskCancelled as error:
                assert "was cancelled" in str(error)
            else:
                assert victim == "SameOffsetsCopier._ask_ends"


async def test_a_failed_partition_is_retried_and_reported_once() -> None:
    copier, told = looking_copier(Source(1, 1)), list[str]()
    copier._job.tell = told.append
    for _ in range(2):
        await copier.add([TOPIC])
        async with asyncio.timeout(DEADLINE_S):
            while TP not in copier._reader.positions:
                copier._look_up_at_s = 0.0
                await copier.step(100)
        copier._fail(TP, "no right to read it")
        assert TP not in copier._reader.positions
        assert copier._job.progress.failures == {TP: "no right to read it"}
    assert told == ["orders-0 is not copied any more: no right to read it"]
