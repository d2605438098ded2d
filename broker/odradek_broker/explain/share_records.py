"""The history of share partitions, and of single records in them (`odradek explain share`, H-242 to
H-245).

The leader's events are kept unchanged, with runs of offsets. The history of a record is made by a
search for the events about its offset.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import cast, get_args

from odradek_broker.explain.history import Fields, RecordedEvent, Ring
from odradek_broker.explain.sentences import EventKind, Value, describe_client, duration_text
from odradek_broker.share.acquisition import Acquired
from odradek_broker.share.events import (
    AcknowledgementsRefused,
    DeadLettered,
    Dropped,
    Loaded,
    LocksExpired,
    LogStartMoved,
    NotDeadLettered,
    NothingAcquired,
    OffsetsReset,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsRemoved,
    RecordsReturned,
    SessionBegan,
    SessionEnd,
    ShareEvent,
)
from odradek_broker.share.in_flight import ArchiveReason, RecordState
from odradek_broker.share.share_partition import AcknowledgeType, ShareAcknowledgementBatch
from odradek_broker.share_state import ShareKey, StateBatch
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass

_K = EventKind

EVENTS_MAX = 20_000
PARTITION_EVENTS_MAX = 1_000
BYTES_MAX = 8 * 1024 * 1024
#: The limit of the stored batches that the event of a load keeps. The loaded state may have many
#: more batches.
LOADED_BATCHES_MAX = 2_000
#: The limit of the members whose client and address are kept. The members with the newest sessions
#: stay.
MEMBERS_MAX = 5_000
#: The approximate memory of an event, and of each run of offsets in it.
_EVENT_BYTES = 500
_RUN_BYTES = 200

_Member = (
    RecordsAcquired
    | RecordsAcknowledged
    | AcknowledgementsRefused
    | RecordsReturned
    | NothingAcquired
)
#: The types of events with a member. Such events are frequent, and a lookup in a set is fast.
_OF_MEMBER = frozenset(get_args(_Member))

_REMOVALS = {
    ArchiveReason.COMPACTED: "compaction has removed it from the log",
    ArchiveReason.ABORTED: "its transaction was aborted, and the group reads committed records",
    ArchiveReason.LOG_START: "the log begins after it (retention, or deleted records)",
}
_ENDS = {
    SessionEnd.CLOSED: "left and closed its session",
    SessionEnd.DISCONNECTED: "lost its connection, which ended its session",
}
_DROPS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "no member has a session, or the state was changed by others",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or its state was deleted",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group was deleted",
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk has failed",
}
_VERBS = {
    AcknowledgeType.GAP: "acknowledgement as a gap",
    AcknowledgeType.ACCEPT: "acceptance",
    AcknowledgeType.RELEASE: "release",
    AcknowledgeType.REJECT: "rejection",
    AcknowledgeType.RENEW: "renewal",
}
_FINISHED = {
    AcknowledgeType.ACCEPT: _K.SHARE_RECORD_ACCEPTED,
    AcknowledgeType.REJECT: _K.SHARE_RECORD_REJECTED,
    AcknowledgeType.GAP: _K.SHARE_RECORD_GAP,
}
_LOADED = {
    RecordState.ACKNOWLEDGED: "it was accepted",
    RecordState.ARCHIVED: "it was archived",
}


@dataclass(slots=True)
class ShareEntry:
    """An event of a share partition, or several equal events. `client`: the client of the event's
    member."""

    at_ms: int
    event: ShareEvent
    client: str | None
    last_ms: int
    times: int = 1


class ShareHistory(Ring[ShareKey, ShareEntry]):
    """The events of all share partitions that this broker leads."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        events_max: int = EVENTS_MAX,
        partition_events_max: int = PARTITION_EVENTS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        super().__init__(
            now_ms,
            events_max=events_max,
            subject_events_max=partition_events_max,
            bytes_max=bytes_max,
        )
        self._clients: OrderedDict[tuple[str, str], str] = OrderedDict()

    def record(self, event: ShareEvent) -> None:
        """Add an event, or note the client of the member whose session began. A repeated
        NothingAcquired or AcknowledgementsRefused only increases the count of the previous
        event."""
        now_ms = self.now_ms()
        if isinstance(event, RecordsAcquired):
            # Acquisitions are frequent, so they are handled first.
            client = self._clients.get((event.key[0], event.member_id))
            size_bytes = _EVENT_BYTES + _RUN_BYTES * len(event.acquired)
            self.add(event.key, ShareEntry(now_ms, event, client, now_ms), size_bytes)
            return
        if isinstance(event, SessionBegan):
            self._note_client(event)
            return
        client = None
        if type(event) in _OF_MEMBER:
            client = self._clients.get((event.key[0], cast(_Member, event).member_id))
        if isinstance(event, RecordsAcknowledged):
            event = _compact(event)
        elif isinstance(event, Loaded):
            event = event._replace(batches=tuple(event.batches[:LOADED_BATCHES_MAX]))
        elif isinstance(event, NothingAcquired | AcknowledgementsRefused):
            last = self.last_of(event.key)
            if last is not None and last.event == event:
                last.times += 1
                last.last_ms = now_ms
                return
        self.add(event.key, ShareEntry(now_ms, event, client, now_ms), _size_bytes(event))

    def _note_client(self, event: SessionBegan) -> None:
        member = event.group_id, event.member_id
        self._clients[member] = describe_client(event.client_id, event.host)
        self._clients.move_to_end(member)
        if len(self._clients) > MEMBERS_MAX:
            self._clients.popitem(last=False)

    def story(self, key: ShareKey, offset: int) -> list[RecordedEvent]:
        """The history of one record, oldest event first."""
        story = _Story(offset)
        for entry in self.about(key).events:
            story.add(entry)
        return story.events


def _compact(event: RecordsAcknowledged) -> RecordsAcknowledged:
    """The event with its acknowledgement types converted to bytes, which take less memory."""
    for each in event.acknowledgements:
        if len(each.types) > 1:
            break
    else:
        return event
    compact = [each._replace(types=bytes(each.types)) for each in event.acknowledgements]
    return event._replace(acknowledgements=compact)


def _size_bytes(event: ShareEvent) -> int:
    if isinstance(event, RecordsAcknowledged):
        runs = len(event.acknowledgements) + len(event.stored)
        types = sum(len(each.types) for each in event.acknowledgements)
        return _EVENT_BYTES + _RUN_BYTES * runs + types
    if isinstance(event, AcknowledgementsRefused):
        types = sum(len(each.types) for each in event.acknowledgements)
        return _EVENT_BYTES + _RUN_BYTES * len(event.acknowledgements) + 8 * types
    if isinstance(event, RecordsReturned | LocksExpired):
        return _EVENT_BYTES + _RUN_BYTES * len(event.stored)
    if isinstance(event, Loaded):
        return _EVENT_BYTES + _RUN_BYTES * len(event.batches)
    return _EVENT_BYTES


# --- The story of one record ----------------------------------------------------------------------


class _Story:
    """The events of one offset. `cause`: the reason why the record may be delivered again;
    `holder`: the member that has the record."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.events: list[RecordedEvent] = []
        self._holder: Fields = {}
        self._cause: str | None = None
        self._open = False

    def add(self, entry: ShareEntry) -> None:
        """Add an event of the share partition, if it is about this record."""
        event, offset = entry.event, self.offset
        who: Fields = {"member": getattr(event, "member_id", None), "client": entry.client}
        tell = partial(self._tell, entry)
        match event:
            case RecordsAcquired(_, _, acquired, lock_ms):
                run = next((each for each in acquired if each[0] <= offset <= each[1]), None)
                if run is not None:
                    self._acquired(entry, who, run, duration_text(lock_ms))
            case RecordsAcknowledged():
                self._acknowledged(entry, who, event)
            case AcknowledgementsRefused(_, _, acknowledgements, error, message):
                if _kind_of(acknowledgements, offset) is not None:
                    tell(_K.SHARE_RECORD_REFUSED, who | {"reason": message}, error=error)
            case RecordsReturned(_, _, end, batches, _, error):
                stored = _stored_at(batches, offset)
                if stored is not None and error is not ErrorCode.NONE:
                    request = "return at the end of the session"
                    tell(_K.SHARE_RECORD_NOT_RECORDED, who, error=error, request=request)
                elif stored is not None:
                    self._back(entry, stored, who, how=_ENDS[end])
            case LocksExpired(_, batches, _):
                stored = _stored_at(batches, offset)
                if stored is not None:
                    self._back(entry, stored, self._holder, how=None)
            case RecordsRemoved(_, removed):
                if removed.first_offset <= offset <= removed.last_offset:
                    tell(_K.SHARE_RECORD_REMOVED, reason=_REMOVALS[removed.reason])
                    self._open = False
            case LogStartMoved(_, before, log_start_offset):
                if before <= offset < log_start_offset:
                    tell(_K.SHARE_RECORD_LOG_START, offset=log_start_offset)
            case DeadLettered(_, first, last, _, _, topic, partition, letter_offset):
                if first <= offset <= last:
                    letter, where = letter_offset + offset - first, ((topic, partition),)
                    tell(_K.SHARE_RECORD_DEAD_LETTERED, partitions=where, offset=letter)
            case NotDeadLettered(_, first, last, _, _, problem):
                if first <= offset <= last:
                    tell(_K.SHARE_RECORD_NOT_DEAD_LETTERED, reason=problem)
            case OffsetsReset():
                self._reset(entry, event)
            case Loaded():
                self._loaded(entry, event)
            case Dropped(_, error) if self._open:
                tell(_K.SHARE_RECORD_FORGOTTEN, reason=_DROPS.get(error, error.name))

    def _tell(
        self,
        entry: ShareEntry,
        kind: EventKind,
        first: Fields | None = None,
        /,
        *,
        error: ErrorCode = ErrorCode.NONE,
        partitions: tuple[TopicPartition, ...] = (),
        **fields: Value | None,
    ) -> None:
        given = {**fields, **(first or {})}
        shown = {name: value for name, value in given.items() if value is not None}
        event = RecordedEvent(
            entry.at_ms, kind, error, partitions, 0, shown, entry.last_ms, entry.times
        )
        self.events.append(event)

    def _acquired(self, entry: ShareEntry, who: Fields, run: Acquired, lock: str) -> None:
        first, last, count = run
        together = f"{first} to {last}" if first != last else None
        fields: Fields = {"count": count, "lock": lock, "because": self._cause, "range": together}
        self._tell(entry, _K.SHARE_RECORD_ACQUIRED, who | fields)
        self._holder, self._cause, self._open = who, None, True

    def _acknowledged(self, entry: ShareEntry, who: Fields, event: RecordsAcknowledged) -> None:
        number = _kind_of(event.acknowledgements, self.offset)
        if number is None:
            return
        kind, stored = AcknowledgeType(number), _stored_at(event.stored, self.offset)
        if event.error is not ErrorCode.NONE:
            verb = _VERBS[kind]
            self._tell(entry, _K.SHARE_RECORD_NOT_RECORDED, who, error=event.error, request=verb)
        elif kind is AcknowledgeType.RENEW:
            self._tell(entry, _K.SHARE_RECORD_RENEWED, who)
        elif stored is not None and kind is AcknowledgeType.RELEASE:
            self._back(entry, stored, who, how="released it")
        elif stored is not None:
            self._tell(entry, _FINISHED[kind], who, count=stored.delivery_count)
            self._open = False

    def _back(self, entry: ShareEntry, stored: StateBatch, who: Fields, *, how: str | None) -> None:
        """Add the sentence of a delivery without a result: the record is available again, or has
        reached the limit of deliveries. `how`: the member's action; None if the lock expired."""
        member, client = who.get("member"), who.get("client")
        archived = stored.delivery_state == RecordState.ARCHIVED
        if how is None:
            member, how = f"the lock of {member}" if member else "its lock", "expired"
        by_client = f" of {client}" if client else ""
        kind = _K.SHARE_RECORD_GIVEN_UP if archived else _K.SHARE_RECORD_BACK
        text = f"{member}{by_client} {how}"
        self._tell(entry, kind, who, how=text, count=stored.delivery_count)
        self._cause = None if archived else f"{member} {how}"
        self._holder, self._open = {}, not archived

    def _reset(self, entry: ShareEntry, event: OffsetsReset) -> None:
        behind, delivered = self.offset < event.start_offset, bool(self.events)
        note = "it is passed over" if behind else "whatever became of it before, it is delivered"
        start: int | None = event.start_offset
        if event.start_offset < 0:
            start, note = None, "the group starts again where share.auto.offset.reset says"
        self._tell(entry, _K.SHARE_RECORD_RESET, offset=start, note=note)
        self._cause = "the offsets of the group were reset" if delivered else None
        self._holder, self._open = {}, not behind

    def _loaded(self, entry: ShareEntry, event: Loaded) -> None:
        stored, count = _stored_at(event.batches, self.offset), None
        if self.offset < event.start_offset:
            note = "it was finished"
        elif stored is not None:
            state = RecordState(stored.delivery_state)
            note, count = _LOADED.get(state, "it is available again"), stored.delivery_count
        elif len(event.batches) == LOADED_BATCHES_MAX and (
            self.offset > event.batches[-1].last_offset
        ):
            # One of the stored batches beyond LOADED_BATCHES_MAX, which the event lacks, may have
            # the record.
            note = "what was stored of it is not kept"
        elif self.events:
            note = "it is available: no delivery of it had ended"
        else:
            return
        self._tell(entry, _K.SHARE_RECORD_LOADED, note=note, count=count)
        if self._open and self._holder.get("member") is not None:
            self._cause = "the leader no longer knew which member had it"
        self._holder = {}


def _kind_of(acknowledgements: Iterable[ShareAcknowledgementBatch], offset: int) -> int | None:
    for each in acknowledgements:
        if each.first_offset <= offset <= each.last_offset:
            types = each.types
            return types[0] if len(types) == 1 else types[offset - each.first_offset]
    return None


def _stored_at(batches: Sequence[StateBatch], offset: int) -> StateBatch | None:
    for each in batches:
        if each.first_offset <= offset <= each.last_offset:
            return each
    return None
