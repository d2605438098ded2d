"""The mode same-offsets, which appends batches of the source to mirror topics of an Odradek broker.

Batches are copied unchanged, including their compression and the markers of transactions. The ends
of the target's logs are the positions, and no other positions are kept. So any run can continue at
the end of the target's log, even a second mirror or a run after a kill.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from odradek_client.admin import Admin, ConfigResource
from odradek_client.admin.requests import partition_error
from odradek_client.admin.results import Outcomes, Results
from odradek_client.errors import (
    CorruptMessage,
    OdradekError,
    Retriable,
    UnknownTopicOrPartition,
    error_for,
)
from odradek_client.structs import TopicPartition, group_by_topic
from odradek_client.tasks import all_done, cancel, failure_of
from odradek_mirror.plan import TopicPlan, ends_of, leaders_of, mirror_source
from odradek_mirror.run import DELETED, MirrorJob
from odradek_mirror.source import (
    MIRROR_LIMITS,
    FetchedPartition,
    SourceReader,
    SourceReadingEnded,
    SourceRecordsDeleted,
    SourceTopicDeleted,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    AppendMirrorRecordsResponse,
    MirroredPartition,
    MirroredPartitionResult,
    MirroredTopic,
)
from odradek_protocol.schemas.promote_mirror_topics import (
    PromotedTopic,
    PromoteMirrorTopicsRequest,
    PromoteMirrorTopicsResponse,
)
from odradek_records.partition_fetch import FetchLimits

#: A batch is fetched again at most this many times after the target has found it damaged.
_CORRUPT_MAX = 3
#: The maximum number of bytes in a request, unless one batch is larger.
_REQUEST_BYTES_MAX = 4 * 1024 * 1024
#: The maximum number of bytes around the batches of a request: this number for each partition, and
#: this number again for the request itself.
_AROUND_BYTES = 512
#: The interval at which the ends of the source are sent to the target, for its metrics.
_TELL_EVERY_S = 10.0
#: The broker's setting for the largest request. A broker closes the connection of a larger request.
_FRAME_LIMIT = "socket.request.max.bytes"


def parts_of(piece: FetchedPartition, bytes_max: int) -> Iterator[FetchedPartition]:
    """The piece, divided into parts of whole batches. A part exceeds the limit only if its single
    batch does.

    The fetch offset of each part is the end of the previous part.
    """
    begin = end = 0
    fetch_offset = next_offset = piece.fetch_offset
    for at, header in iter_batches(piece.records):
        if begin < at and at + header.size_bytes - begin > bytes_max:
            yield replace(
                piece,
                records=piece.records[begin:at],
                fetch_offset=fetch_offset,
                next_offset=next_offset,
            )
            begin, fetch_offset = at, next_offset
        end, next_offset = at + header.size_bytes, header.next_offset
    yield replace(piece, records=piece.records[begin:end], fetch_offset=fetch_offset)


def behind(piece: FetchedPartition, offset: int) -> FetchedPartition:
    """The batches of a piece, from the first one that begins at `offset` or after it."""
    for at, header in iter_batches(piece.records):
        if header.base_offset >= offset:
            return replace(piece, records=piece.records[at:], fetch_offset=offset)
    return replace(piece, records=piece.records[:0], fetch_offset=offset)


#: The pause between lookups of partitions whose ends are not known.
_LOOK_UP_EVERY_S = 1.0


class _CopyRecreated(Retriable):
    """The topic of the target has another id than the one in the request."""


class SameOffsetsCopier:
    """The copier of the mode same-offsets. While one request is being appended, the next batches
    are fetched."""

    def __init__(self, job: MirrorJob, limits: FetchLimits = MIRROR_LIMITS) -> None:
        self._job = job
        self._target = job.target
        self._reader = SourceReader(job.source, read_committed=False, limits=limits, rate=job.rate)
        #: The log end offset at the target of every copied partition.
        self._ends: dict[TopicPartition, int] = {}
        #: Partitions whose end at the target is not known, with their topics' ids at the source.
        self._unknown: dict[TopicPartition, bytes] = {}
        self._ids: dict[TopicPartition, bytes] = {}
        #: The ids of the topics of the target, as of the last lookup. A topic of the same source
        #: that is created again meanwhile has the same records at the same offsets.
        self._copies: dict[str, bytes] = {}
        self._corrupt: dict[TopicPartition, int] = {}
        #: The size of the largest request that the target accepts; None if unknown.
        self._frame_bytes_max: int | None = None
        self._failed: set[TopicPartition] = set()
        #: `_asked`: the partitions whose ends are being looked up now. `_unknown_for`: the reasons
        #: why ends of other partitions are still unknown.
        self._asked: set[TopicPartition] = set()
        self._unknown_for: dict[TopicPartition, str] = {}
        self._looking_up: list[asyncio.Task[None]] = []
        self._look_up_at_s = 0.0
        self._appending: asyncio.Task[None] | None = None
        self._tell_at_s = 0.0

    async def start(self) -> None:
        """Read the limit of the request size from the target. There are no positions to read,
        because the ends of the target's logs are the positions."""
        self._frame_bytes_max = await self._ask_frame_bytes_max()

    @property
    def waits_for(self) -> str:
        """The text that tells the user for which operation a long step waits."""
        return "the target's answer to an append"

    async def add(self, topics: Sequence[TopicPlan]) -> None:
        """Add topics, and retry their failed partitions."""
        await self.flush()
        for topic in topics:
            for number in range(topic.partitions):
                tp = TopicPartition(topic.name, number)
                known = tp in self._ends or tp in self._unknown
                if not known or tp in self._failed or self._ids[tp] != topic.topic_id:
                    self._reader.unassign(tp)
                    self._failed.discard(tp)
                    self._ids[tp] = topic.topic_id
                    self._unknown[tp] = topic.topic_id
        self._look_up()

    async def drop(self, topics: Mapping[str, str]) -> None:
        """Stop the copying of topics, by name with the reasons."""
        await self.flush()
        for tp in {*self._ends, *self._unknown}:
            if tp.topic in topics:
                self._ends.pop(tp, None)
                self._fail(tp, topics[tp.topic])

    async def step(self, wait_ms: float) -> None:
        """Fetch batches, and wait for the answer to the previous append. Then append the batches in
        the background."""
        self._look_up()
        if self._looking_up and not self._reader.positions:
            await asyncio.wait(
                self._looking_up, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED
            )
            return
        try:
            fetched = await self._reader.poll(wait_ms)
        except SourceReadingEnded as error:
            fetched = []
            await self.flush()
            await self._on_source_error(error)
        self._tell_troubles()
        fetched = [each for each in fetched if each.tp in self._ends]
        if fetched:
            await self.flush()
            # A partition is no longer read if its last append failed. Its next batches are dropped:
            # they would leave a gap.
            reading = self._reader.positions
            fetched = [each for each in fetched if each.tp in reading]
            if fetched:
                self._appending = asyncio.create_task(self._append(fetched))
        await self._tell_ends(asyncio.get_running_loop().time())

    async def flush(self) -> None:
        """Wait for the answer to the last append."""
        task, self._appending = self._appending, None
        if task is not None:
            await all_done("an append to the target", task)

    def translate(self, tp: TopicPartition, offset: int) -> int | None:
        """The same offset, once all records before it are at the target."""
        return offset if offset <= self._ends.get(tp, -1) else None

    def topic_ids(self, tp: TopicPartition) -> tuple[bytes, bytes]:
        """The ids of the topic at the source and at the target."""
        return self._ids[tp], self._copies[tp.topic]

    async def close(self) -> None:
        """Wait for the last append, and end the reading."""
        try:
            await self.flush()
        finally:
            await cancel(*self._looking_up)
            await self._reader.close()

    # --- the target -------------------------------------------------------------------------------

    def _look_up(self) -> None:
        """Look up the ends of unknown partitions on both sides, in the background, so that a leader
        that does not answer delays only its own partitions."""
        for task in [task for task in self._looking_up if task.done()]:
            self._looking_up.remove(task)
            if failure := failure_of(task, "the search for the ends of partitions"):
                raise failure
        now_s = asyncio.get_running_loop().time()
        due = self._unknown.keys() - self._asked
        if due and now_s >= self._look_up_at_s:
            self._look_up_at_s = now_s + _LOOK_UP_EVERY_S
            self._asked |= due
            self._looking_up.append(asyncio.create_task(self._ask_leaders(due)))

    async def _ask_leaders(self, tps: Collection[TopicPartition]) -> None:
        """Request the ends of partitions from each leader of the source."""
        try:
            topics = sorted({tp.topic for tp in tps})
            described = await self._job.source.describe_topics(topics, raise_errors=False)
            leaders = leaders_of(described.values())
            by_leader: dict[int, list[TopicPartition]] = {}
            for tp in tps:
                error = described.errors.get(tp.topic)
                if isinstance(error, UnknownTopicOrPartition):
                    self._fail(tp, DELETED)
                elif error is not None and not error.retriable:
                    self._fail(tp, f"the source does not describe its topic: {error}")
                elif tp in leaders:
                    by_leader.setdefault(leaders[tp], []).append(tp)
                else:
                    self._unknown_for[tp] = str(error or "it has no leader at the source")
            await all_done("a request", *map(self._ask_ends, by_leader.values()))
        except OdradekError as error:
            if not error.retriable:
                raise
            self._unknown_for |= dict.fromkeys(tps, f"the source does not answer: {error}")
        finally:
            self._asked -= set(tps)

    async def _ask_ends(self, tps: Sequence[TopicPartition]) -> None:
        """Request the ends of partitions from the source, and then from the target; begin to read
        them.
        """
        try:
            ends = await ends_of(self._job.source, tps)
            silent = "the source does not tell where it ends"
            self._unknown_for |= {tp: silent for tp in tps if tp not in ends}
            names = sorted({tp.topic for tp in ends})
            copies = await self._target.describe_topics(names, raise_errors=False)
            self._copies |= {name: copy.topic_id for name, copy in copies.items()}
            asked = {
                tp: MirroredPartition(partition_index=tp.partition)
                for tp in ends
                if tp.topic in copies
            }
            answers = await self._send(asked, self._ids)
            answers.errors |= {
                tp: copies.errors[tp.topic] for tp in ends if tp.topic in copies.errors
            }
            self._begin(ends, answers)
        finally:
            self._asked -= set(tps)

    def _begin(
        self,
        ends: Mapping[TopicPartition, tuple[int, int]],
        answers: Results[TopicPartition, MirroredPartitionResult],
    ) -> None:
        """Read partitions from the end of the target's log on. Partitions that the target refuses
        are given up."""
        for tp, answer in answers.items():
            if tp not in self._unknown:
                continue
            start, end = ends[tp]
            offset = max(answer.log_end_offset, start)
            self._ends[tp] = answer.log_end_offset
            topic_id = self._unknown.pop(tp)
            self._unknown_for.pop(tp, None)
            # With the epoch of the last record, the source can detect that it has lost that record.
            known = offset == answer.log_end_offset
            epoch = answer.last_leader_epoch if known else -1
            self._reader.assign(tp, offset, topic_id=topic_id, last_epoch=epoch)
            self._job.progress.begin(tp, offset, end)
        for tp, error in answers.errors.items():
            if error.retriable:
                self._unknown_for[tp] = f"the target does not take it yet: {error}"
            elif tp in self._unknown:
                self._ends.pop(tp, None)
                self._fail(tp, str(error))

    async def _send(
        self,
        wanted: Mapping[TopicPartition, MirroredPartition],
        topic_ids: Mapping[TopicPartition, bytes],
    ) -> Results[TopicPartition, MirroredPartitionResult]:
        """Send appends to the leaders of the target; the errors are in the results. `topic_ids`:
        the ids of the source's topics whose records these are."""
        admin, cluster = self._target, self._job.plan.source_cluster

        async def ask(
            node_id: int, asked: list[TopicPartition]
        ) -> Outcomes[TopicPartition, MirroredPartitionResult]:
            request = AppendMirrorRecordsRequest(
                timeout_ms=admin.config.request_timeout_ms,
                topics=[
                    MirroredTopic(
                        name=topic,
                        topic_id=self._copies[topic],
                        source=mirror_source(cluster, topic_ids[some[0]]),
                        partitions=[wanted[tp] for tp in some],
                    )
                    for topic, some in group_by_topic(asked).items()
                ],
            )
            response: AppendMirrorRecordsResponse = await admin.network.send(node_id, request)
            outcomes: Outcomes[TopicPartition, MirroredPartitionResult] = {}
            for topic in response.topics:
                for part in topic.partitions:
                    tp = TopicPartition(topic.name, part.partition_index)
                    outcomes[tp] = part
                    about = f"{topic.name}-{part.partition_index} of the target"
                    if part.error_code == ErrorCode.INCONSISTENT_TOPIC_ID:
                        outcomes[tp] = _CopyRecreated(
                            f"{about} belongs to a topic that was created again meanwhile",
                            code=ErrorCode.INCONSISTENT_TOPIC_ID,
                        )
                    elif part.error_code and part.log_end_offset < 0:
                        outcomes[tp] = error_for(part.error_code, part.error_message, about=about)
            return outcomes

        final = UnknownTopicOrPartition, _CopyRecreated
        return await admin.requests.for_each_partition(wanted, ask, False, final=final)

    async def _ask_frame_bytes_max(self) -> int | None:
        """The size of the largest request that all nodes of the target accept; None if unknown."""
        try:
            brokers = (await self._target.describe_cluster()).brokers
            found = await self._target.describe_configs(
                [ConfigResource.broker(each.node_id) for each in brokers], names=[_FRAME_LIMIT]
            )
        except OdradekError:
            return None
        entries = [each.get(_FRAME_LIMIT) for each in found.values()]
        limits = [
            int(each.value) for each in entries if each is not None and each.value is not None
        ]
        return min(limits, default=None)

    @property
    def _request_bytes_max(self) -> int:
        """The maximum number of bytes in a request, unless one batch is larger."""
        if self._frame_bytes_max is None:
            return _REQUEST_BYTES_MAX
        return min(_REQUEST_BYTES_MAX, self._frame_bytes_max - _AROUND_BYTES)

    async def _append(self, fetched: list[FetchedPartition]) -> None:
        """Append the fetched batches, in requests of a limited size.

        After a failed part, no later part of its partition is sent, because it would leave a gap.
        """
        part_bytes_max = self._request_bytes_max - _AROUND_BYTES
        left = deque(part for piece in fetched for part in parts_of(piece, part_bytes_max))
        failed = set[TopicPartition]()
        while left:
            together = dict[TopicPartition, FetchedPartition]()
            size_bytes = 0
            while left and left[0].tp not in together:
                part_bytes = len(left[0].records) + _AROUND_BYTES
                if together and size_bytes + part_bytes > self._request_bytes_max:
                    break
                part = left.popleft()
                if part.tp in failed:
                    continue
                if self._is_too_large(part):
                    failed.add(part.tp)
                    continue
                together[part.tp] = part
                size_bytes += part_bytes
            if together:
                left.extendleft(await self._append_together(together, failed))

    async def _tell_ends(self, now_s: float) -> None:
        """Send the ends of the source to the target at intervals, also for partitions without new
        records, because a target that receives nothing assumes that the mirror has ended. The
        answers show if the target has lost the records of such a partition."""
        if now_s < self._tell_at_s:
            return
        self._tell_at_s = now_s + _TELL_EVERY_S
        troubles, known = self._reader.troubles(), self._job.progress.partitions
        wanted = {
            tp: MirroredPartition(
                partition_index=tp.partition, source_high_watermark=known[tp].high_watermark
            )
            for tp in self._reader.positions
            if tp in self._ends and tp not in troubles
        }
        if not wanted:
            return
        ends = {tp: self._ends[tp] for tp in wanted}
        answers = await self._send(wanted, self._ids)
        await self.flush()
        for tp, end in ends.items():
            # The append may have reported the same error.
            if tp not in self._reader.positions or tp not in self._ends:
                continue
            answer, error = answers.get(tp), answers.errors.get(tp)
            if answer is not None and answer.error_code:
                error = partition_error(tp, answer.error_code, answer.error_message)
            if error is not None:
                self._on_target_error(tp, error)
            elif answer is not None and answer.log_end_offset < end:
                self._look_up_again(tp)

    def _is_too_large(self, part: FetchedPartition) -> bool:
        """True if the batch does not fit into the largest request of the target. In this case the
        partition is given up."""
        size_bytes, bytes_max = len(part.records), self._frame_bytes_max
        if bytes_max is None or size_bytes + 2 * _AROUND_BYTES <= bytes_max:
            return False
        self._fail(
            part.tp,
            f"the batch at or after offset {part.fetch_offset} has {size_bytes} bytes, and the"
            f" target takes requests of at most {bytes_max}: raise {_FRAME_LIMIT} of its brokers"
            f" above {size_bytes + 2 * _AROUND_BYTES}, and run this again",
        )
        return True

    async def _append_together(
        self, parts: dict[TopicPartition, FetchedPartition], failed: set[TopicPartition]
    ) -> list[FetchedPartition]:
        """Append parts with one request, and note the ends of the target. Returns what the target
        did not append although there was no error: whole parts, and the remaining batches of parts
        that were appended incompletely. `failed` gets the partitions with errors."""
        wanted = {
            each.tp: MirroredPartition(
                partition_index=each.tp.partition,
                expected_end_offset=self._ends[each.tp],
                fetch_offset=each.fetch_offset,
                source_leader_epoch=each.leader_epoch,
                source_log_start_offset=each.log_start_offset,
                source_high_watermark=each.high_watermark,
                records=each.records or None,
            )
            for each in parts.values()
        }
        answers = await self._send(wanted, {each.tp: each.topic_id for each in parts.values()})
        left: list[FetchedPartition] = []
        for each in parts.values():
            answer, error = answers.get(each.tp), answers.errors.get(each.tp)
            end_before = self._ends[each.tp]
            if answer is not None and answer.error_code:
                error = partition_error(each.tp, answer.error_code, answer.error_message)
            if answer is not None:
                self._note(each, answer)
            if error is not None:
                failed.add(each.tp)
                self._on_target_error(each.tp, error)
                continue
            self._corrupt.pop(each.tp, None)
            if answer is None or not (rest := behind(each, answer.log_end_offset)).records:
                continue
            if answer.log_end_offset == end_before and len(parts) == 1:
                failed.add(each.tp)
                self._fail(each.tp, "the target takes a batch and does not append it")
            else:
                left.append(rest)
        return left

    def _note(self, fetched: FetchedPartition, answer: MirroredPartitionResult) -> None:
        progress, tp = self._job.progress, fetched.tp
        records, size_bytes, timestamp_ms = 0, 0, -1
        for _, header in iter_batches(fetched.records):
            if header.next_offset > answer.log_end_offset:
                break
            records += 0 if header.is_control else header.record_count
            size_bytes += header.size_bytes
            timestamp_ms = max(timestamp_ms, header.max_timestamp)
        self._ends[tp] = answer.log_end_offset
        progress.seen(tp, fetched.high_watermark, fetched.last_stable_offset)
        copied = max(answer.log_end_offset, progress.partitions[tp].copied)
        if not answer.error_code and not fetched.records:
            # If the source has deleted all records, its log start is after the last copied batch.
            copied = max(copied, fetched.next_offset)
        progress.copied(
            tp, copied, records=records, size_bytes=size_bytes, timestamp_ms=timestamp_ms
        )

    # --- errors -----------------------------------------------------------------------------------

    def _on_target_error(self, tp: TopicPartition, error: OdradekError) -> None:
        """Look up the end of the target's log and continue there, or give up the partition."""
        if isinstance(error, CorruptMessage):
            self._corrupt[tp] = self._corrupt.get(tp, 0) + 1
            if self._corrupt[tp] > _CORRUPT_MAX:
                self._fail(tp, f"a batch of the source is damaged: {error}")
                return
        elif not error.retriable and error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            self._fail(tp, str(error))
            return
        if isinstance(error, _CopyRecreated):
            del self._ends[tp]
        self._look_up_again(tp)

    def _look_up_again(self, tp: TopicPartition) -> None:
        self._reader.unassign(tp)
        self._unknown[tp] = self._ids[tp]

    async def _on_source_error(self, error: SourceReadingEnded) -> None:
        tp = error.tp
        if tp not in self._reader.positions:
            return
        if isinstance(error, SourceRecordsDeleted):
            self._job.tell(str(error))
            self._reader.seek(tp, error.log_start_offset)
        elif isinstance(error, SourceTopicDeleted):
            self._fail(tp, DELETED)
        else:
            self._fail(tp, str(error))

    def _fail(self, tp: TopicPartition, why: str) -> None:
        self._reader.unassign(tp)
        self._unknown.pop(tp, None)
        self._unknown_for.pop(tp, None)
        self._failed.add(tp)
        if self._job.progress.failures.get(tp) != why:
            self._job.progress.failed(tp, why)
            self._job.tell(f"{tp.topic}-{tp.partition} is not copied any more: {why}")

    def _tell_troubles(self) -> None:
        self._job.progress.troubles = {
            f"{tp.topic}-{tp.partition}": trouble.error
            for tp, trouble in self._reader.troubles().items()
        } | {
            f"{tp.topic}-{tp.partition}": self._unknown_for.get(tp, "its ends are not known yet")
            for tp in self._unknown
        }


async def promote(target: Admin, topics: Sequence[str]) -> Results[str, PromotedTopic]:
    """Make mirror topics of an Odradek broker ordinary topics; errors of topics are in the
    results.
    """

    async def ask(names: list[str]) -> Outcomes[str, PromotedTopic]:
        request = PromoteMirrorTopicsRequest(
            timeout_ms=target.config.request_timeout_ms, topics=names
        )
        response: PromoteMirrorTopicsResponse = await target.requests.to_controller(request)
        return {
            each.name: error_for(each.error_code, each.error_message, about=f"topic {each.name!r}")
            if each.error_code
            else each
            for each in response.topics
        }

    return await target.requests.for_each(topics, ask, False)
