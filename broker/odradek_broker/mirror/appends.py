"""Appends of another cluster's batches to mirror topics, at the same offsets (I-03 to I-09).

request -> leader epochs and producer ids are recorded, if need be, and durable
        -> batches are appended -> they are durable -> log starts are moved -> answer
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from odradek_broker.deferred import Deferred, gather
from odradek_broker.mirror.batches import (
    LEADER_EPOCH_MAX,
    OFFSET_MAX,
    batches_of,
    check_source,
    highest_producer_id,
)
from odradek_broker.mirror.events import (
    MirrorDecision,
    MirrorEvent,
    SourceState,
)
from odradek_broker.mirror.parts import MirrorParts
from odradek_broker.partition import Partition
from odradek_broker.slices import paced
from odradek_broker.storage.errors import AppendRejected, StorageError, TakesLong
from odradek_broker.storage.index import RELATIVE_OFFSET_MAX
from odradek_broker.storage.large_batches import in_thread
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_broker.storage.validation import DecompressionBudget, ValidatedBatch, prepare
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.schemas.append_mirror_records import (
    ANY_END,
    MirroredPartition,
    MirroredPartitionResult,
)
from odradek_protocol.stored.cluster_metadata import MetadataRecord, PartitionRecord

_E = ErrorCode


class MirrorAppend(NamedTuple):
    """The part of a request about one partition. `topic_id`: the id of the mirror topic; `source`:
    where the batches are from, in the form of the setting mirror.source."""

    topic: str
    topic_id: bytes
    source: str
    part: MirroredPartition

    @property
    def where(self) -> TopicPartition:
        return self.topic, self.part.partition_index


class MirrorAppends:
    """Appends to the mirror topics of this broker. `appended_bytes` is called with the size of each
    append in bytes."""

    def __init__(self, parts: MirrorParts, appended_bytes: Callable[[int], None]) -> None:
        self._metadata, self._metadata_log, self._partition = parts[:3]
        self._logs, self._clock, self._observer, self._slices = parts[3:]
        self._appended_bytes = appended_bytes
        #: The last report about each partition's source, by (topic id, partition). Not stored.
        self._sources: dict[tuple[bytes, int], SourceState] = {}

    def source_of(self, topic: str, index: int) -> SourceState | None:
        """The last report about the source of a partition; None without a report since the
        start."""
        return self._sources.get((self._metadata.topic_id(topic), index))

    def forget(self, topic_id: bytes) -> None:
        """Forget the reports about the source of a topic."""
        for key in [key for key in self._sources if key[0] == topic_id]:
            del self._sources[key]

    def append(self, wanted: Sequence[MirrorAppend]) -> Deferred[list[MirroredPartitionResult]]:
        """Append the batches. Returns the results, in the same order, once all appended batches are
        durable."""
        records = self._to_record(wanted)
        try:
            log = self._metadata_log
            recorded = log.commit(records) if records else log.durable()
        except StorageError as problem:
            refused = AppendRejected(problem.error, problem.message)
            return Deferred.of([self._refused(each, refused) for each in wanted])
        self._tell_raised_epochs(records)
        return recorded.bind(lambda _: self._slices.deferred(self._append_all(wanted)))

    # --- Metadata ---

    def _to_record(self, wanted: Sequence[MirrorAppend]) -> list[MetadataRecord]:
        """The metadata records that must be durable before consumers can read the batches: new
        leader epochs, because clients compare them with the epochs of batches (I-07), and used
        producer ids (I-06).

        There is at most one record for each partition, with the highest epoch of the request, and
        at most one for the producer ids, with the highest id.
        """
        metadata, highest = self._metadata, -1
        epochs: dict[TopicPartition, int] = {}
        for each in wanted:
            try:
                self._check(each)
            except AppendRejected:
                continue
            epoch = each.part.source_leader_epoch
            if epoch > epochs.get(each.where, metadata.leader_epoch_of(*each.where)):
                epochs[each.where] = epoch
            if each.part.records is not None:
                with memoryview(each.part.records) as view:
                    known_below = max(metadata.producer_ids_end, highest)
                    highest = max(highest, highest_producer_id(view, known_below))
        records: list[MetadataRecord] = []
        for (topic, index), epoch in epochs.items():
            records += metadata.leader_epoch_records(topic, {index: epoch})
        return records + metadata.leave_producer_ids_to_others(highest)

    def _tell_raised_epochs(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            if isinstance(record, PartitionRecord):
                topic = self._metadata.topic_name(record.topic_id) or ""
                where = topic, record.partition_id
                epoch = record.leader_epoch
                self._observer(
                    MirrorDecision(MirrorEvent.EPOCH_RAISED, topic, (where,), epoch=epoch)
                )

    def _check(self, wanted: MirrorAppend) -> Partition:
        """The partition, if it belongs to a mirror topic that accepts records of this source.
        Raises AppendRejected."""
        topic, part, metadata = wanted.topic, wanted.part, self._metadata
        partition = self._partition(*wanted.where)
        if partition is None:
            raise AppendRejected(
                _E.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{wanted.where[1]}"
            )
        if wanted.topic_id != metadata.topic_id(topic):
            raise AppendRejected(
                _E.INCONSISTENT_TOPIC_ID, f"{topic} has another topic id: it was created again"
            )
        if topic in metadata.promoting:
            raise AppendRejected(_E.INVALID_REQUEST, f"{topic} is being promoted")
        if not metadata.is_mirror(topic):
            raise AppendRejected(_E.INVALID_REQUEST, f"the topic {topic} is not a mirror topic")
        if (source := metadata.mirror_sources[topic]) != wanted.source:
            raise AppendRejected(
                _E.INVALID_REQUEST,
                f"the topic {topic} is the mirror of {source}, and the records are of"
                f" {wanted.source}: stop one of the two mirrors, or leave the topic out of it",
            )
        for name, value, most in (
            ("leader epoch", part.source_leader_epoch, LEADER_EPOCH_MAX),
            ("log start offset", part.source_log_start_offset, OFFSET_MAX),
        ):
            if not -1 <= value <= most:
                raise AppendRejected(
                    _E.INVALID_REQUEST, f"the source's {name} {value} is not between -1 and {most}"
                )
        return partition

    # --- Batches ---

    async def _append_all(self, wanted: Sequence[MirrorAppend]) -> list[MirroredPartitionResult]:
        budget = DecompressionBudget()
        results, waits = [], []
        async for each in paced(wanted, changing=True):
            result = MirroredPartitionResult(partition_index=each.part.partition_index)
            results.append(result)
            waits.append(await self._append_one(each, result, budget))
            each.part.records = None  # The records hold the frame in memory.
        for result, code in zip(results, await gather(waits), strict=True):
            if code is not _E.NONE and not result.error_code:
                result.error_code = code
        self._move_log_starts(zip(wanted, results, strict=True))
        for each, result in zip(wanted, results, strict=True):
            self._fill(each, result)
        return results

    async def _append_one(
        self, wanted: MirrorAppend, result: MirroredPartitionResult, budget: DecompressionBudget
    ) -> Deferred[ErrorCode]:
        """Append the batches of one partition up to the first refused batch; resolves when the
        appended batches are durable."""
        durable: Deferred[ErrorCode] = Deferred()
        try:
            config = self._check(wanted).log.config
            checked = await self._checked(wanted, config, budget)
            # The topic may have been deleted or promoted meanwhile.
            partition = self._check(wanted)
        except StorageError as problem:
            _fail(result, problem)
            return Deferred.of(_E.NONE)
        end_before = partition.log.log_end_offset
        try:
            self._take(wanted, partition, checked, budget)
        except StorageError as problem:
            _fail(result, problem)
            if problem.error is not _E.OFFSET_OUT_OF_RANGE:
                self._tell(wanted, MirrorEvent.REFUSED, error=problem.error, reason=problem.message)
        if partition.log.log_end_offset > end_before:
            self._tell(wanted, MirrorEvent.APPENDED)
        partition.when_durable(partition.log.log_end_offset - 1, durable.resolve)
        return durable

    async def _checked(
        self, wanted: MirrorAppend, config: LogConfig, budget: DecompressionBudget
    ) -> list[ValidatedBatch | AppendRejected]:
        """The batches of one partition, up to the first that is refused. If they inflate to much,
        they are checked in a thread (N-57). Raises ThreadBusy."""
        records = memoryview(wanted.part.records or b"")
        now_ms = self._clock.wall_ms()
        budget.begin_slice()
        try:
            return _prepared(records, config, now_ms, budget)
        except TakesLong:
            budget.begin_thread()
            return await in_thread(
                self._slices, partial(_prepared, records, config, now_ms, budget)
            )

    def _take(
        self,
        wanted: MirrorAppend,
        partition: Partition,
        checked: Sequence[ValidatedBatch | AppendRejected],
        budget: DecompressionBudget,
    ) -> None:
        """Append batches until the decompression limit of one request is reached. Raises
        StorageError if a batch is refused; the batches before it stay appended."""
        part, log, now_ms = wanted.part, partition.log, self._clock.wall_ms()
        log.ensure_loaded(now_ms)
        expected = part.expected_end_offset
        if expected != log.log_end_offset and not (part.records is None and expected == ANY_END):
            raise AppendRejected(
                _E.OFFSET_OUT_OF_RANGE,
                f"{log.name} ends at {log.log_end_offset}, not at {expected}: another mirror has"
                " written to it, or an answer was lost",
            )
        if part.records is not None:
            _check_fetch_offset(log, part)
        self._note_source(wanted, now_ms)
        records = memoryview(part.records if part.records is not None else b"")
        self._restart(wanted, log, records, now_ms)
        for (batch, header), prepared in zip(batches_of(records), checked, strict=False):
            try:
                check_source(header, part.source_leader_epoch, log.leader_epochs.latest)
                if isinstance(prepared, AppendRejected):
                    raise prepared.kept()
                partition.append(batch, now_ms, AppendOrigin.MIRROR, prepared=prepared)
            except AppendRejected as problem:
                remedy = ""
                if problem.error is _E.MESSAGE_TOO_LARGE:
                    if budget.crowded_out:
                        return  # The batch will fit into a later request.
                    remedy = "; with record.validation=header this broker takes it compressed"
                raise AppendRejected(
                    problem.error,
                    f"the batch at offset {header.base_offset} of {log.name} was refused:"
                    f" {problem.message}{remedy}",
                ) from problem
            self._appended_bytes(len(batch))

    def _restart(
        self, wanted: MirrorAppend, log: PartitionLog, records: memoryview, now_ms: int
    ) -> None:
        """Restart the log if the log start of the source is above the log end (I-08), or if the log
        is empty and the distance to the first batch in the request is too large for a segment. The
        new log begins at this batch. The batch may begin below the source's log start. Without a
        batch, the new position is known only if the source is empty."""
        start, end = wanted.part.source_log_start_offset, log.log_end_offset
        first = -1
        if not len(records) and wanted.part.source_high_watermark != start:
            return
        if len(records):
            # Invalid bytes are refused before the restart removes any records.
            first = next(batches_of(records))[1].base_offset
        empty = end == log.log_start_offset
        if start > end:
            target = first if end <= first < start else start
        elif empty and first - end > RELATIVE_OFFSET_MAX and first <= OFFSET_MAX:
            target = first
        else:
            return
        if target > end:
            log.trimming.restart_at(target, now_ms)
            self._tell(wanted, MirrorEvent.RESTARTED, offset=target)

    def _note_source(self, wanted: MirrorAppend, now_ms: int) -> None:
        part = wanted.part
        key = self._metadata.topic_id(wanted.topic), part.partition_index
        known = self._sources.get(key)
        if known is None:
            self._tell(wanted, MirrorEvent.BEGAN)
        elif part.source_high_watermark < 0:
            return  # A request that only asks for the log's end does not report on the source.
        self._sources[key] = SourceState(
            part.source_high_watermark,
            part.source_log_start_offset,
            part.source_leader_epoch,
            now_ms,
        )

    # --- Answers ---

    def _move_log_starts(
        self, answered: Iterable[tuple[MirrorAppend, MirroredPartitionResult]]
    ) -> None:
        """Move the log start of each partition to the log start of its source (I-08), with one
        write for all partitions."""
        logs, targets, moved = [], [], []
        for wanted, result in answered:
            partition, start = self._meant(wanted), wanted.part.source_log_start_offset
            if partition is None or partition.log.offline or result.error_code:
                continue
            if partition.log.log_start_offset < start <= partition.log.high_watermark:
                logs.append(partition.log)
                targets.append(start)
                moved.append((wanted, result))
        if not logs:
            return
        done = self._logs.advance_log_starts(logs, targets)
        for (wanted, result), start_or_error in zip(moved, done, strict=True):
            if isinstance(start_or_error, StorageError):
                _fail(result, start_or_error)
            else:
                self._tell(wanted, MirrorEvent.LOG_START_MOVED, offset=start_or_error)

    def _meant(self, wanted: MirrorAppend) -> Partition | None:
        """The partition, if the topic has the id and the source of the request; otherwise None."""
        metadata, topic = self._metadata, wanted.topic
        same_id = wanted.topic_id == metadata.topic_id(topic)
        same_source = wanted.source == metadata.mirror_sources.get(topic)
        return self._partition(*wanted.where) if same_id and same_source else None

    def _fill(self, wanted: MirrorAppend, result: MirroredPartitionResult) -> None:
        """Set the offsets of the log in the answer. They stay unset if the request means another
        topic, or if the log is not open, so that its end is unknown."""
        partition = self._meant(wanted)
        if partition is None:
            return
        log = partition.log
        if log.loaded and not log.offline:
            result.log_start_offset = log.log_start_offset
            result.log_end_offset = log.high_watermark
            result.last_leader_epoch = log.leader_epochs.latest

    def _refused(self, wanted: MirrorAppend, problem: StorageError) -> MirroredPartitionResult:
        result = MirroredPartitionResult(partition_index=wanted.part.partition_index)
        _fail(result, problem)
        self._fill(wanted, result)
        return result

    def _tell(
        self,
        wanted: MirrorAppend,
        event: MirrorEvent,
        *,
        offset: int = -1,
        error: ErrorCode = ErrorCode.NONE,
        reason: str = "",
    ) -> None:
        partitions = () if event is MirrorEvent.APPENDED else (wanted.where,)
        self._observer(
            MirrorDecision(event, wanted.topic, partitions, offset, error=error, reason=reason)
        )


def _check_fetch_offset(log: PartitionLog, part: MirroredPartition) -> None:
    """Refuse batches unless the mirror's fetch began at the log end, or all records between the log
    end and the fetch are deleted at the source (I-04). Raises AppendRejected."""
    fetched, end = part.fetch_offset, log.log_end_offset
    if fetched != end and not end < fetched <= part.source_log_start_offset:
        raise AppendRejected(
            _E.OFFSET_OUT_OF_RANGE,
            f"the batches were fetched at offset {fetched} of the source, and {log.name} ends at"
            f" {end}: what is between them is missing",
        )


def _prepared(
    records: memoryview, config: LogConfig, now_ms: int, budget: DecompressionBudget
) -> list[ValidatedBatch | AppendRejected]:
    """The batches, checked, up to the first that is refused. Raises TakesLong."""
    found: list[ValidatedBatch | AppendRejected] = []
    try:
        for batch, _ in batches_of(records):
            found.append(prepare(batch, config, AppendOrigin.MIRROR, now_ms, budget))
    except AppendRejected as refused:
        found.append(refused.kept())
    return found


def _fail(result: MirroredPartitionResult, problem: StorageError) -> None:
    result.error_code, result.error_message = problem.error, problem.message
