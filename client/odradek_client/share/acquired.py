"""The records of one partition in one answer to a ShareFetch, taken in parts.

The answer has whole batches, of which only some offsets are acquired; other offsets belong to other
members and are left out. An acquired offset without a record (compacted away, or a control record)
is a gap, and is acknowledged as GAP. Unreadable records are never accepted: the records of a
damaged batch, and those for which a deserializer raises, are released or rejected, and the poll
that would have returned these records raises the error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from struct import Struct as Packer
from typing import Any

from odradek_client.consumer.completed_fetch import Deserializer
from odradek_client.share.acknowledgements import GAP, AcknowledgeType, TopicIdPartition, Types
from odradek_client.share.errors import UnreadableRecord
from odradek_client.structs import ConsumerRecord, TopicPartition
from odradek_protocol.records.batch import (
    BatchError,
    BatchHeader,
    Buffer,
    TruncatedBatch,
    read_header,
    verify_crc,
)
from odradek_protocol.records.record import TimestampType, body_columns, read_body
from odradek_protocol.schemas.share_fetch import AcquiredRecords

_INT64 = Packer(">q")
#: The limit of offsets that an answer may acquire in a partition. Brokers allow far fewer locks in
#: a partition (4,000), so an answer with more offsets is invalid.
ACQUIRED_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings for reading records. `key`, `value`: the deserializers. A null key or value is
    not passed to them. `unreadable`: the acknowledgement of records that cannot be read."""

    check_crcs: bool = True
    key: Deserializer | None = None
    value: Deserializer | None = None
    unreadable: AcknowledgeType = AcknowledgeType.RELEASE


@dataclass(slots=True)
class Taken:
    """The result of `take`. `records`: the readable records with their delivery counts. `answers`:
    the acknowledgements of offsets that are not returned. `failure`: the error of the first
    unreadable record."""

    records: list[tuple[ConsumerRecord, int]] = field(default_factory=list)
    answers: Types = field(default_factory=dict)
    failure: UnreadableRecord | None = None
    interruption: BaseException | None = None


class AcquiredBatch:
    """The acquired records of a partition.

    `node_id`: the leader that returned the records. `deadline_ms`: the time at which the locks of
    the records expire.
    """

    __slots__ = (
        "_at",
        "_data",
        "_decoded",
        "_left",
        "_settings",
        "deadline_ms",
        "node_id",
        "partition",
    )

    def __init__(
        self,
        partition: TopicIdPartition,
        node_id: int,
        data: Buffer | None,
        acquired: Sequence[AcquiredRecords],
        deadline_ms: float,
        settings: ReadSettings,
    ) -> None:
        self.partition = partition
        self.node_id = node_id
        self.deadline_ms = deadline_ms
        self._data = memoryview(data or b"")
        self._at = 0
        #: The acquired offsets that were neither taken nor acknowledged, ascending, with delivery
        #: counts.
        self._left = _offsets(acquired)
        self._decoded: deque[ConsumerRecord] = deque()
        self._settings = settings

    @property
    def exhausted(self) -> bool:
        """True if every acquired offset was taken or acknowledged."""
        return not self._left

    @property
    def offsets(self) -> list[int]:
        """The acquired offsets that were neither taken nor acknowledged."""
        return list(self._left)

    def take(self, limit: int) -> Taken:
        """Take up to `limit` records, up to the first record that cannot be read."""
        taken = Taken()
        while len(taken.records) < limit and self._left:
            if not self._decoded:
                try:
                    if not self._decode_batch():
                        self._end(taken)
                        break
                except BatchError as error:
                    self._refuse_batch(taken, error)
                    break
                continue
            raw = self._decoded.popleft()
            self._pass_gaps(taken, raw.offset)
            count = self._left.pop(raw.offset, None)
            if count is None:
                continue
            try:
                record = self._deserialized(raw)
            except _Unreadable as error:
                self._refuse(taken, [raw.offset], str(error), error.cause)
                break
            except BaseException as error:  # noqa: BLE001  raised by the caller
                given_back = [raw.offset, *(record.offset for record, _ in taken.records)]
                taken.answers |= dict.fromkeys(given_back, int(AcknowledgeType.RELEASE))
                taken.records.clear()
                taken.interruption = error
                break
            taken.records.append((record, count))
        return taken

    def _pass_gaps(self, taken: Taken, offset: int) -> None:
        """Acknowledge the acquired offsets before `offset` as gaps, because the data has no record
        for them."""
        while self._left:
            first = next(iter(self._left))
            if first >= offset:
                return
            del self._left[first]
            taken.answers[first] = GAP

    # --- batches ---

    def _decode_batch(self) -> bool:
        """Decode the next batch. False at the end of the data."""
        while self._at < len(self._data):
            try:
                header = read_header(self._data, self._at)
            except TruncatedBatch:
                return False
            if header.last_offset < next(iter(self._left)):
                self._at += header.size_bytes
                continue
            if self._settings.check_crcs:
                verify_crc(self._data, self._at, header)
            if header.is_control:
                self._at += header.size_bytes
                continue
            self._decoded.extend(self._records(header))
            self._at += header.size_bytes
            return True
        return False

    def _records(self, header: BatchHeader) -> list[ConsumerRecord]:
        columns = body_columns(read_body(self._data, self._at, header), header)
        kind = (
            TimestampType.LOG_APPEND_TIME
            if header.is_log_append_time
            else TimestampType.CREATE_TIME
        )
        topic, number = self.partition.topic, self.partition.partition
        rows = zip(
            repeat(topic),
            repeat(number),
            columns.offsets,
            columns.timestamps,
            repeat(kind),
            columns.keys,
            columns.values,
            columns.headers,
            repeat(header.leader_epoch),
            strict=False,
        )
        return [ConsumerRecord(*row) for row in rows]

    def _deserialized(self, raw: ConsumerRecord) -> ConsumerRecord:
        settings = self._settings
        if settings.key is None and settings.value is None:
            return raw
        return raw._replace(
            key=_call(settings.key, raw.key, "key"),
            value=_call(settings.value, raw.value, "value"),
        )

    # --- what cannot be read ---

    def _end(self, taken: Taken) -> None:
        """Handle the acquired offsets after the last whole batch. Offsets of an incomplete batch
        are released, other offsets are acknowledged as gaps."""
        rest = self._data[self._at :]
        if len(rest):
            cut = _INT64.unpack_from(rest)[0] if len(rest) >= _INT64.size else 0
            self._pass_gaps(taken, cut)
            taken.answers |= dict.fromkeys(self._left, int(AcknowledgeType.RELEASE))
        else:
            taken.answers |= dict.fromkeys(self._left, GAP)
        self._left.clear()

    def _refuse_batch(self, taken: Taken, error: BatchError) -> None:
        """Refuse the acquired records of the damaged batch at the position. If even the header of
        the batch is damaged, also refuse all acquired records after the batch."""
        try:
            header = read_header(self._data, self._at)
        except BatchError:
            header = None
        if header is None or header.last_offset < header.base_offset:
            offsets = list(self._left)
            self._at = len(self._data)
        else:
            self._pass_gaps(taken, header.base_offset)
            offsets = [at for at in self._left if at <= header.last_offset]
            self._at += header.size_bytes
        for offset in offsets:
            del self._left[offset]
        self._refuse(taken, offsets, f"a batch that cannot be read: {error}", error)

    def _refuse(self, taken: Taken, offsets: list[int], trouble: str, cause: BaseException) -> None:
        answer = self._settings.unreadable
        taken.answers |= dict.fromkeys(offsets, int(answer))
        outcome = "rejected" if answer is AcknowledgeType.REJECT else "released"
        partition = TopicPartition(self.partition.topic, self.partition.partition)
        taken.failure = UnreadableRecord(partition, offsets, trouble, outcome)
        taken.failure.__cause__ = cause


class _Unreadable(Exception):
    def __init__(self, what: str, cause: Exception) -> None:
        super().__init__(f"the {what} does not deserialize: {cause!r}")
        self.cause = cause


def _call(deserialize: Deserializer | None, data: bytes | None, what: str) -> Any:
    if deserialize is None or data is None:
        return data
    try:
        return deserialize(data)
    except Exception as error:
        raise _Unreadable(what, error) from error


def _offsets(acquired: Sequence[AcquiredRecords]) -> dict[int, int]:
    """The acquired offsets in ascending order, with their delivery counts. If an offset is named
    twice, its first count applies. Raises BatchError if there are more than ACQUIRED_MAX
    offsets."""
    found: dict[int, int] = {}
    for each in sorted(acquired, key=lambda each: each.first_offset):
        if each.last_offset - each.first_offset + len(found) >= ACQUIRED_MAX:
            raise BatchError(
                f"offsets {each.first_offset} to {each.last_offset} are acquired, more than "
                f"{ACQUIRED_MAX} in one answer"
            )
        for offset in range(each.first_offset, each.last_offset + 1):
            found.setdefault(offset, each.delivery_count)
    return dict(sorted(found.items()))
