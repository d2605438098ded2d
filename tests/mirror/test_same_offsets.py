"""The copier that keeps offsets, with a fake source and a fake target, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek_client.admin.results import Outcomes, Results
from odradek_client.admin.topics import PartitionDescription, TopicDescription
from odradek_client.errors import OdradekError, RequestTimedOut, TaskCancelled
from odradek_client.structs import OffsetAndTimestamp, TopicPartition
from odradek_mirror import same_offsets
from odradek_mirror.plan import TopicAction, TopicPlan
from odradek_mirror.progress import Progress
from odradek_mirror.same_offsets import SameOffsetsCopier, parts_of
from odradek_mirror.source import FetchedPartition, SourceReadingEnded
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    AppendMirrorRecordsResponse,
    MirroredPartition,
    MirroredPartitionResult,
    MirroredTopicResult,
)
from odradek_testkit.simulation.simulate import run
from task_killer import Ending, TaskKiller
from waiting import DEADLINE_S

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
#: The end of each partition at the source, and the interval of the reports to the target.
SOURCE_END, TELL_EVERY_S = 9, 10.0


def on_virtual_time(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs on virtual time."""

    @wraps(story)
    def test(**arguments: Any) -> None:
        run(lambda: story(**arguments))

    return test


class Reader:
    """A fake reader of the source: each poll returns the next item of `news`, or raises it."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.news: list[list[FetchedPartition] | SourceReadingEnded] = []
        self.silent: dict[TopicPartition, Any] = {}

    async def poll(self, wait_ms: float) -> list[FetchedPartition]:
        if not self.news:
            await asyncio.sleep(wait_ms / 1000)
            return []
        news = self.news.pop(0)
        if isinstance(news, SourceReadingEnded):
            raise news
        return news

    def assign(self, tp: TopicPartition, offset: int, **_: object) -> None:
        self.positions[tp] = offset

    def unassign(self, tp: TopicPartition) -> None:
        self.positions.pop(tp, None)

    def troubles(self) -> dict[TopicPartition, Any]:
        return self.silent

    async def close(self) -> None:
        self.positions.clear()


class Source:
    """A fake source; `leaders` are those of the partitions of every topic. A node in `down` never
    answers."""

    def __init__(self, *leaders: int | None, down: frozenset[int] = frozenset()) -> None:
        self.leaders, self.down = leaders, down

    async def describe_topics(
        self, names: Sequence[str], *, raise_errors: bool
    ) -> Results[str, TopicDescription]:
        found = Results[str, TopicDescription]()
        parts = [PartitionDescription(n, at, 0, [], [], []) for n, at in enumerate(self.leaders)]
        found |= {name: TopicDescription(name, b"", False, parts) for name in names}
        return found

    async def list_offsets(
        self, wanted: dict[TopicPartition, str], *, raise_errors: bool
    ) -> Results[TopicPartition, OffsetAndTimestamp]:
        found = Results[TopicPartition, OffsetAndTimestamp]()
        for tp, place in wanted.items():
            leader = self.leaders[tp.partition]
            assert leader is not None, "a partition without a leader is waited for"
            if leader in self.down:
                await asyncio.sleep(3600)
            found[tp] = OffsetAndTimestamp(SOURCE_END * (place == "latest"), -1, -1)
        return found


class Target(Source):
    """A fake target that appends at most `batches_max` batches for each request.

    `sent`: (partition, fetch offset, number of batches) of each part of each append. `told`: (time,
    high watermarks) of each report. `refuse`: the error of appends. `answer`: that to reports.
    """

    def __init__(self, batches_max: int = 1_000, frame_bytes_max: int | None = None) -> None:
        super().__init__(*[1] * 5)
        self.sent: list[list[tuple[int, int, int]]] = []
        self.told: list[tuple[float, dict[TopicPartition, int]]] = []
        self.stored: dict[TopicPartition, list[int]] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.refuse: OdradekError | None = None
        self.answer: MirroredPartitionResult | None = None
        self.batches_max, self._frame_bytes_max = batches_max, frame_bytes_max
        self.config = SimpleNamespace(request_timeout_ms=1_000)
        self.network = self.requests = self

    async def describe_cluster(self) -> object:
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=1)])

    async def describe_configs(self, resources: list[object], names: list[str]) -> object:
        value = None if self._frame_bytes_max is None else str(self._frame_bytes_max)
        return {resources[0]: {names[0]: SimpleNamespace(value=value)}}

    async def for_each_partition(
        self,
        wanted: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Outcomes[TopicPartition, Any]]],
        _: bool,
        **__: object,
    ) -> Results[TopicPartition, Any]:
        results, tps = Results[TopicPartition, Any](), list(wanted)
        try:
            results |= await ask(1, tps)
        except OdradekError as error:
            results.errors |= dict.fromkeys(tps, error)
        for tp in [tp for tp, each in results.items() if isinstance(each, OdradekError)]:
            results.errors[tp] = results.pop(tp)
        return results

    async def send(
        self, node_id: int, request: AppendMirrorRecordsRequest
    ) -> AppendMirrorRecordsResponse:
        asked = {
            TopicPartition(topic.name, part.partition_index): part
            for topic in request.topics
            for part in topic.partitions
        }
        parts = {tp: part for tp, part in asked.items() if part.expected_end_offset >= 0}
        if parts:
            answers = self._append(parts)
        else:
            answers = {tp: self._end(tp) for tp in asked}
            told = {tp: part.source_high_watermark for tp, part in asked.items()}
            if -1 not in told.values():
                self.told.append((asyncio.get_running_loop().time(), told))
                answers |= dict.fromkeys(asked, self.answer) if self.answer else {}
        return AppendMirrorRecordsResponse(
            topics=[
                MirroredTopicResult(name=tp.topic, partitions=[answer])
                for tp, answer in answers.items()
            ]
        )

    def _append(
        self, parts: dict[TopicPartition, MirroredPartition]
    ) -> dict[TopicPartition, MirroredPartitionResult]:
        self.sent.append([])
        left = self.batches_max
        for tp, part in parts.items():
            headers = [header for _, header in iter_batches(part.records or b"")]
            self.sent[-1].append((tp.partition, part.fetch_offset, len(headers)))
            if self.refuse is None:
                assert part.expected_end_offset == part.fetch_offset == self.ends.get(tp, 0)
                taken, left = headers[:left], max(left - len(headers), 0)
                self.stored.setdefault(tp, []).extend(each.base_offset for each in taken)
                self.ends[tp] = taken[-1].next_offset if taken else part.expected_end_offset
        if self.refuse is not None:
            raise self.refuse
        return {tp: self._end(tp) for tp in parts}

    def _end(self, tp: TopicPartition) -> MirroredPartitionResult:
        return MirroredPartitionResult(
            partition_index=tp.partition, log_end_offset=self.ends.get(tp, 0)
        )


class Mirror:
    """A copier between a fake source and a fake target. `told`: the lines for the user."""

    def __init__(self, target: Target | None = None, source: Source | None = None) -> None:
        self.reader, self.target = Reader(), target or Target()
        self.progress, self.told = Progress(0.0), list[str]()
        job = SimpleNamespace(
            source=source or Source(*[1] * 5),
            target=self.target,
            rate=None,
            progress=self.progress,
            plan=SimpleNamespace(source_cluster=None),
            tell=self.told.append,
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(same_offsets, "SourceReader", lambda *_, **__: self.reader)
            self.copier = SameOffsetsCopier(cast(Any, job))

    async def begin(self, *topics: TopicPlan, reading: int | None = None) -> None:
        """Add the topics, and step until that many of their partitions are read; all without an
        argument. The reports to the target have begun then, too."""
        await self.copier.start()
        await self.copier.add(topics)
        await self.until_reading(reading or sum(topic.partitions for topic in topics))
        await self.copier.step(0)

    async def until_reading(self, partitions: int = 1) -> None:
        """Step until this number of partitions is read."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.reader.positions) < partitions:
                await self.copier.step(100)

    async def copy(self, *news: list[FetchedPartition]) -> None:
        """Let the copier read these pieces, and wait for the answers to their appends."""
        self.reader.news = list(news)
        for _ in news:
            await self.copier.step(0)
        await self.copier.flush()


def topic_of(partitions: int, name: str = "orders") -> TopicPlan:
    return TopicPlan(name, TopicAction.CONTINUE, bytes(16), partitions, {}, (), 0, 0)


def piece(first: int, value_bytes: int = 1) -> FetchedPartition:
    """A piece of one batch of 10 records."""
    values = [b"%d" % number for number in range(9)] + [b"9".ljust(value_bytes)]
    batch = simple_batch([(None, value) for value in values], 1, base_offset=first)
    return FetchedPartition(TP, b"", first, first + 10, memoryview(batch), 20, 20, 0, 0, 0, [])


def pieces_of(partitions: int, batches: int, value_bytes: int = 1) -> list[FetchedPartition]:
    """For each partition, a piece of `batches` batches, from offset 0 on."""
    pieces = [piece(10 * number, value_bytes).records for number in range(batches)]
    content = memoryview(b"".join(pieces))
    whole = replace(piece(0), topic_id=bytes(16), records=content, next_offset=10 * batches)
    return [replace(whole, tp=TopicPartition("orders", number)) for number in range(partitions)]


@on_virtual_time
async def test_a_request_has_a_limited_size() -> None:
    mirror = Mirror()
    await mirror.begin(topic_of(5))
    await mirror.copy(pieces_of(5, 1, 1_500_000))
    assert [len(parts) for parts in mirror.target.sent] == [2, 2, 1]


@on_virtual_time
async def test_a_large_batch_is_sent_alone() -> None:
    mirror, pieces = Mirror(), pieces_of(2, 3, 4_500_000)
    await mirror.begin(topic_of(2))
    await mirror.copy(pieces)
    assert mirror.target.sent == [[(tp, at, 1)] for tp in range(2) for at in (0, 10, 20)]
    assert mirror.target.stored == {each.tp: [0, 10, 20] for each in pieces}


@pytest.mark.parametrize("batches_max", [1, 2, 4])
@on_virtual_time
async def test_batches_that_the_target_has_no_room_for_are_sent_again(batches_max: int) -> None:
    mirror, pieces = Mirror(Target(batches_max)), pieces_of(3, 3)
    await mirror.begin(topic_of(3))
    await mirror.copy(pieces)
    assert mirror.target.stored == {each.tp: [0, 10, 20] for each in pieces}
    assert len(mirror.target.sent) == -(-9 // batches_max)
    assert mirror.progress.partitions[TP].copied == 30


@on_virtual_time
async def test_a_target_that_never_has_room_ends_the_copy_of_a_partition() -> None:
    mirror = Mirror(Target(0))
    await mirror.begin(topic_of(1))
    await mirror.copy(pieces_of(1, 1))
    assert "does not append it" in mirror.progress.failures[TP]


@on_virtual_time
async def test_a_batch_that_the_target_cannot_take_names_the_setting() -> None:
    mirror = Mirror(Target(frame_bytes_max=4_000))
    await mirror.begin(topic_of(2))
    first, second = pieces_of(2, 2)
    large = bytes(simple_batch([(None, b"x" * 5_000)], 1, base_offset=20))
    content = memoryview(bytes(first.records) + large + piece(21).records)
    await mirror.copy([replace(first, records=content, next_offset=31), second])
    told = mirror.progress.failures
    assert list(told) == [first.tp]
    assert f"at or after offset 20 has {len(large)} bytes" in told[first.tp]
    assert "requests of at most 4000: raise socket.request.max.bytes" in told[first.tp]
    assert mirror.target.stored == {first.tp: [0, 10], second.tp: [0, 10]}


@on_virtual_time
async def test_partitions_without_new_records_are_still_reported_to_the_target() -> None:
    mirror = Mirror()
    mirror.reader.silent = {TP: SimpleNamespace(error="no leader")}
    await mirror.begin(topic_of(2))
    for _ in range(25):
        await mirror.copier.step(1_000)
    assert [told for _, told in mirror.target.told] == [{OTHER: SOURCE_END}] * 3
    times_s = [at_s for at_s, _ in mirror.target.told]
    assert all(after - before >= TELL_EVERY_S for before, after in pairwise(times_s))


@pytest.mark.parametrize("is_error", [True, False])
@on_virtual_time
async def test_i14_a_copy_that_is_created_again_is_filled_without_new_records(
    is_error: bool,
) -> None:
    mirror = Mirror()
    await mirror.begin(topic_of(1))
    await mirror.copy(pieces_of(1, 1))
    assert mirror.copier.translate(TP, 10) == 10
    mirror.target.ends[TP] = end = 0 if is_error else 9
    code = ErrorCode.INCONSISTENT_TOPIC_ID if is_error else ErrorCode.NONE
    mirror.target.answer = MirroredPartitionResult(
        partition_index=0, error_code=code, log_end_offset=end
    )
    async with asyncio.timeout(DEADLINE_S):
        while mirror.reader.positions:
            await mirror.copier.step(100)
    assert (mirror.copier.translate(TP, 10) is None) is is_error
    mirror.target.answer = None
    await mirror.until_reading()
    assert mirror.reader.positions == {TP: end}


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


@on_virtual_time
async def test_no_batch_is_appended_after_a_failed_append() -> None:
    mirror = Mirror()
    await mirror.begin(topic_of(1))
    mirror.target.refuse = RequestTimedOut("the target does not answer")
    first = pieces_of(1, 1)
    second = [replace(first[0], records=piece(10).records, fetch_offset=10, next_offset=20)]
    await mirror.copy(first, second)
    assert mirror.target.sent == [[(0, 0, 1)]], "the second piece was appended after a gap"
    assert mirror.reader.positions == {}
    await mirror.until_reading()
    assert mirror.reader.positions == {TP: 0}


@on_virtual_time
async def test_i41_a_dropped_topic_is_no_longer_appended_or_translated() -> None:
    mirror, other = Mirror(source=Source(1, None)), TopicPartition("others", 0)
    mirror.target.ends[other] = 5
    await mirror.begin(topic_of(2), topic_of(1, "others"), reading=2)
    assert list(mirror.progress.troubles) == ["orders-1"]
    await mirror.copier.drop({"orders": "it is the mirror of another topic"})
    await mirror.copier.step(0)
    assert mirror.reader.positions == {other: 5} and mirror.progress.troubles == {}
    assert (mirror.copier.translate(TP, 0), mirror.copier.translate(other, 5)) == (None, 5)
    assert sorted(mirror.told) == [
        f"orders-{number} is not copied any more: it is the mirror of another topic"
        for number in range(2)
    ]


@on_virtual_time
async def test_c83_a_cancelled_append_ends_the_mirror_with_an_error() -> None:
    mirror = Mirror()
    await mirror.begin(topic_of(1))
    with (
        TaskKiller("SameOffsetsCopier._append", Ending.UNBEGUN),
        pytest.raises(TaskCancelled, match="an append to the target was cancelled"),
    ):
        await mirror.copy(pieces_of(1, 1))
    assert mirror.target.sent == []


@pytest.mark.parametrize("source", [Source(1, None), Source(1, 2, down=frozenset({2}))])
@on_virtual_time
async def test_a_partition_whose_leader_does_not_answer_delays_no_other(source: Source) -> None:
    mirror = Mirror(source=source)
    await mirror.begin(topic_of(2), reading=1)
    assert mirror.reader.positions == {TP: 0}
    (trouble,) = mirror.progress.troubles.items()
    assert trouble[0] == "orders-1"
    assert "target" not in trouble[1]
    await mirror.copier.close()


@pytest.mark.parametrize(
    "victim", ["SameOffsetsCopier._ask_leaders", "SameOffsetsCopier._ask_ends"]
)
@on_virtual_time
async def test_c83_a_cancelled_search_for_ends_ends_the_mirror_with_an_error_or_goes_on(
    victim: str,
) -> None:
    mirror = Mirror(source=Source(1, 1))
    with TaskKiller(victim, Ending.UNBEGUN):
        try:
            await mirror.begin(topic_of(1))
        except TaskCancelled as error:
            assert "was cancelled" in str(error)
        else:
            assert victim == "SameOffsetsCopier._ask_ends"


@on_virtual_time
async def test_a_failed_partition_is_retried_and_reported_once() -> None:
    mirror = Mirror()
    error = SourceReadingEnded(TP, "no right to read it")
    for _ in range(2):
        await mirror.begin(topic_of(1))
        mirror.reader.news = [error]
        await mirror.copier.step(0)
        assert TP not in mirror.reader.positions
        assert mirror.progress.failures == {TP: str(error)}
    assert mirror.told == [f"orders-0 is not copied any more: {error}"]
