"""The groups and offsets of one partition of `__consumer_offsets`: the core that a runtime runs."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct as Packer

from odradek_broker.coordinator.groups.administration import (
    DeletedOffsets,
    GroupSummary,
    deletion_error,
    described,
    is_subscribed,
    not_described,
    offset_deletion_error,
    summary,
)
from odradek_broker.coordinator.groups.classic import ClassicProtocol, JoinCall, why_refused
from odradek_broker.coordinator.groups.consumer.deadlines import MEMBER_DEADLINES
from odradek_broker.coordinator.groups.consumer.describe import (
    consumer_not_described,
)
from odradek_broker.coordinator.groups.consumer.describe import described as consumer_described
from odradek_broker.coordinator.groups.consumer.group import FIRST_EPOCH, ConsumerGroup
from odradek_broker.coordinator.groups.consumer.groups import ConsumerGroups
from odradek_broker.coordinator.groups.consumer.heartbeat import (
    HeartbeatCall,
    Opened,
    not_a_consumer_group,
)
from odradek_broker.coordinator.groups.consumer.migration import (
    downgraded,
    emptied,
    may_downgrade,
    upgraded,
)
from odradek_broker.coordinator.groups.consumer.offsets import check_commit as check_consumer_commit
from odradek_broker.coordinator.groups.consumer.offsets import check_fetch
from odradek_broker.coordinator.groups.consumer.offsets import (
    expired_places as expired_consumer_places,
)
from odradek_broker.coordinator.groups.consumer.records import group_tombstones
from odradek_broker.coordinator.groups.consumer.settings import Topics
from odradek_broker.coordinator.groups.group import ClassicGroup, Observer
from odradek_broker.coordinator.groups.offsets import (
    NO_PRODUCER,
    NOT_A_MEMBER,
    OFFSET_APPEND_ERRORS,
    CommitCall,
    FetchedOffsets,
    FetchingMember,
    OffsetStore,
    Place,
    check_commit,
    commit_records,
    expired_places,
)
from odradek_broker.coordinator.groups.rebalance import (
    Deadline,
    GroupSettings,
    Rebalances,
    TimerName,
)
from odradek_broker.coordinator.groups.states import GroupState
from odradek_broker.coordinator.runtime import (
    Moment,
    Outcome,
    ProducerIdentity,
    Record,
    Reply,
)
from odradek_broker.coordinator.timers import Timers
from odradek_broker.history import History
from odradek_broker.history_words import What
from odradek_broker.later import Later
from odradek_broker.seams import Randomness
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_describe import DescribedConsumerGroup
from odradek_protocol.schemas.describe_groups import DescribedGroup
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek_protocol.stored import group_metadata, offset_commit
from odradek_protocol.stored.consumer_group import RecordType
from odradek_protocol.stored.group_metadata import GroupMetadataValue

#: Tombstones in one batch. What is left over is written at the next look.
TOMBSTONES_MAX = 1_000
#: When that is, if there is something left over.
_EXPIRY_PAUSE_MS = 1_000
_MINUTE_MS = 60_000
#: Groups without any record: ids were handed out, or the first join phase has not ended. Beyond it
#: newcomers are asked to come again, so that asking for ids and never joining costs only so much.
UNRECORDED_GROUPS_MAX = 10_000
_INT16 = Packer(">h")
_CONSUMER_TYPES = frozenset(RecordType)
#: When a group died is of no interest to anyone.
_NO_MOMENT = Moment(0, 0)


class GroupShard:
    """Decides for its groups; see `runtime.Core` for who calls what."""

    def __init__(
        self,
        config: GroupSettings,
        random: Randomness,
        topics: Topics,
        history: History,
        observer: Observer | None = None,
    ) -> None:
        self.timers: Timers[TimerName] = Timers()
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self._unrecorded: set[str] = set()
        self._config = config
        self._topics = topics
        self._observer = observer
        self._history = history
        self._active = False
        self._rebalances = Rebalances(config, self.timers, history)
        self._classic = ClassicProtocol(config, self.groups, self._rebalances, random, self._create)
        self._consumer = ConsumerGroups(
            config, self.timers, topics, random, history, self._open_consumer, self._downgrade
        )
        self.consumers = self._consumer.groups

    def _create(self, group_id: str, moment: Moment) -> ClassicGroup | None:
        if len(self._unrecorded) >= UNRECORDED_GROUPS_MAX:
            return None
        self._unrecorded.add(group_id)
        group = ClassicGroup(group_id, state_since_ms=moment.wall_ms, observer=self._observer)
        self.groups[group_id] = group
        return group

    # --- Replay: the only place where durable state changes ---

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take one record. Types that we do not know are skipped (O-02).

        DecodeError for a record of a known type that cannot be read.
        """
        self._replay_record(key, value, NO_PRODUCER)

    def replay_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Take one record of an open transaction: an offset that is not decided yet (O-17)."""
        self._replay_record(key, value, producer_id)

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """The transaction of this producer is decided (O-17). A group that it leaves without anything
        is forgotten at the next look for what expired."""
        self.offsets.end_transaction(producer_id, commit)

    def _replay_record(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        kind = _INT16.unpack_from(key)[0] if len(key) >= _INT16.size else -1
        if kind == group_metadata.KEY_TYPE:
            self._replay_group(group_metadata.decode_key(key).group, value)
        elif kind in (offset_commit.LEGACY_KEY_TYPE, offset_commit.KEY_TYPE):
            where = offset_commit.decode_key(key)
            committed = None if value is None else offset_commit.decode_value(value)
            place = (where.topic, where.partition)
            self.offsets.replay(where.group, place, committed, producer_id)
            if committed is None:
                self._drop_if_void(where.group)
            elif where.group not in self.consumers:
                self._known(where.group)
        elif kind in _CONSUMER_TYPES:
            self._replay_consumer(RecordType(kind), key, value)

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        if value is not None:
            self._known(group_id).replay(group_metadata.decode_value(value))
        elif group_id in self.groups:
            group = self.groups[group_id]
            group.stored = None
            if group_id in self.consumers:
                self._retire_classic(group_id)
                return
            if not group.members:
                # Ids that were handed out and have not joined are of the group that is gone.
                self._rebalances.forget_pending(group)
            self._drop_if_void(group_id)

    def _replay_consumer(self, kind: RecordType, key: bytes, value: bytes | None) -> None:
        existed = len(self.consumers)
        group_id = self._consumer.replay(kind, key, value)
        if len(self.consumers) > existed:
            self._retire_classic(group_id)
        elif len(self.consumers) < existed and self.offsets.has(group_id):
            self._known(group_id)

    def _retire_classic(self, group_id: str) -> None:
        """The name is a consumer group's from now on (G-156)."""
        group = self.groups.get(group_id)
        if group is None or group.stored is not None:
            return
        del self.groups[group_id]
        self._unrecorded.discard(group_id)
        self._rebalances.forget_timers(group)
        group.become(GroupState.DEAD, _NO_MOMENT)

    def _known(self, group_id: str) -> ClassicGroup:
        """Whoever has a record exists."""
        self._unrecorded.discard(group_id)
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, observer=self._observer)
        return group

    def _drop_if_void(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if group is None or group.state is not GroupState.EMPTY or not group.is_void:
            return
        if not self.offsets.has(group_id):
            del self.groups[group_id]
            self._unrecorded.discard(group_id)
            group.become(GroupState.DEAD, _NO_MOMENT)
            if self._active:
                self._history.record(
                    group_id, What.GROUP_GONE, reason="it has neither members nor offsets"
                )

    def loaded(self, moment: Moment) -> Outcome:
        """G-90: give every group its soft state and its deadlines."""
        for group in self.groups.values():
            group.state_since_ms = moment.wall_ms
            group.restore(moment)
            self._rebalances.restored(group, moment)
        self._consumer.restored(moment)
        self._active = True
        self._set_expiry(moment)
        return Outcome()

    def closed(self, error: ErrorCode) -> Outcome:
        """This broker coordinates these groups no more."""
        out = Outcome()
        for group in self.groups.values():
            for member in group.members.values():
                self._rebalances.release(member, error, out)
            self._rebalances.forget_timers(group)
            if group.state is not GroupState.DEAD:
                group.become(GroupState.DEAD, _NO_MOMENT)
        return out

    # --- Membership ---

    def join(self, call: JoinCall, moment: Moment) -> Outcome:
        consumer = self.consumers.get(call.request.group_id)
        if consumer is not None and consumer.members:
            return self._consumer.classic.join(consumer, call, moment)
        if consumer is not None:
            return self._join_empty_consumer(consumer, call, moment)
        return self._tidied(call.request.group_id, self._classic.join(call, moment))

    def sync(
        self, request: SyncGroupRequest, later: Later[SyncGroupResponse], moment: Moment
    ) -> Outcome:
        consumer = self.consumers.get(request.group_id)
        if consumer is not None:
            return self._consumer.classic.sync(consumer, request, later, moment)
        return self._classic.sync(request, later, moment)

    def heartbeat(
        self, request: HeartbeatRequest, later: Later[HeartbeatResponse], moment: Moment
    ) -> Outcome:
        consumer = self.consumers.get(request.group_id)
        if consumer is not None:
            return self._consumer.classic.heartbeat(consumer, request, later, moment)
        return self._classic.heartbeat(request, later, moment)

    def leave(
        self,
        request: LeaveGroupRequest,
        api_version: int,
        later: Later[LeaveGroupResponse],
        moment: Moment,
    ) -> Outcome:
        consumer = self.consumers.get(request.group_id)
        if consumer is not None:
            return self._consumer.classic.leave(consumer, request, api_version, later, moment)
        return self._tidied(
            request.group_id, self._classic.leave(request, api_version, later, moment)
        )

    def consumer_heartbeat(self, call: HeartbeatCall, moment: Moment) -> Outcome:
        return self._consumer.protocol.heartbeat(call, moment)

    def _open_consumer(
        self, group_id: str, joins: bool, moment: Moment, out: Outcome
    ) -> Opened | None:
        """The group that a member of the consumer protocol speaks to (G-150, G-156)."""
        held = self.consumers.get(group_id)
        if held is not None:
            return Opened(held, [], [])
        if not joins:
            return None
        classic = self.groups.get(group_id)
        if classic is None:
            return Opened(ConsumerGroup(group_id), [], [])
        ending: list[Record] = []
        if classic.stored is not None:
            ending.append((group_metadata.encode_key(group_id), None))
        if classic.state is GroupState.EMPTY:
            self._tell_converted(
                group_id, "consumer", "nobody was in it when a member joined with it"
            )
            # Epochs go on from where generations ended: neither ever goes back.
            epoch = max(FIRST_EPOCH, classic.generation)
            return Opened(ConsumerGroup(group_id, epoch=epoch), [], ending)
        made = upgraded(classic, self._config, self._topics)
        if made is None:
            raise not_a_consumer_group(group_id)
        group, records = made
        self._tell_converted(group_id, "consumer", "a member joined with it")
        self._leave_classic_phase(classic, out)
        self._consumer.deadlines.restored(group, moment)
        return Opened(group, records, ending)

    def _tell_converted(self, group_id: str, protocol: str, why: str) -> None:
        self._history.record(group_id, What.GROUP_CONVERTED, protocol=protocol, reason=why)

    def _leave_classic_phase(self, classic: ClassicGroup, out: Outcome) -> None:
        """Nobody waits in a join phase any more: who knows its id joins again at once."""
        classic.storing_generation = None
        for member in classic.members.values():
            known = not member.is_new
            error = ErrorCode.REBALANCE_IN_PROGRESS if known else ErrorCode.UNKNOWN_MEMBER_ID
            self._rebalances.release(member, error, out)

    def _downgrade(
        self, group: ConsumerGroup, gone: set[str], out: Outcome, moment: Moment
    ) -> bool:
        """G-155: without its last members that speak the consumer protocol, a classic group again.

        Its members are as they were in the record; they are told to join again.
        """
        if not may_downgrade(group, gone, self._config):
            return False
        why = "the last member that spoke the consumer protocol is gone"
        self._tell_converted(group.group_id, "classic", why)
        value, records = downgraded(group, gone, self._topics, moment.wall_ms)
        self._consumer.deadlines.forget_all(group)
        classic = self._revive_classic(group.group_id, value, moment)
        for member in classic.members.values():
            side = group.members[member.member_id].classic
            if side is not None:
                member.protocols = list(side.protocols)
            self._rebalances.restart_session(classic, member, moment)
        self._rebalances.start(classic, out, moment, "the group speaks the classic protocol again")
        out.records += records
        self._undo_if_refused(classic, group, out)
        return True

    def _revive_classic(
        self, group_id: str, value: GroupMetadataValue, moment: Moment
    ) -> ClassicGroup:
        """As it will be by a record that is being written."""
        classic = ClassicGroup(group_id, state_since_ms=moment.wall_ms, observer=self._observer)
        self.groups[group_id] = classic
        classic.replay(value)
        classic.restore(moment)
        return classic

    def _undo_if_refused(self, classic: ClassicGroup, group: ConsumerGroup, out: Outcome) -> None:
        """The classic group is there before its records are: if they are refused, it never was."""
        before = out.settled

        def settled(error: ErrorCode, then: Moment) -> Outcome:
            if error is ErrorCode.NONE:
                return Outcome() if before is None else before(error, then)
            undone = Outcome()
            for member in classic.members.values():
                self._rebalances.release(member, error, undone)
            self._rebalances.forget_timers(classic)
            if self.groups.get(classic.group_id) is classic:
                del self.groups[classic.group_id]
            self._consumer.deadlines.restored(group, then)
            return undone

        out.settled = settled

    def _join_empty_consumer(self, group: ConsumerGroup, call: JoinCall, moment: Moment) -> Outcome:
        """G-156: nobody speaks the consumer protocol here; the first to come decides."""
        why = "nobody was in it when a member joined with it"
        self._tell_converted(group.group_id, "classic", why)
        value, records = emptied(group, moment.wall_ms)
        classic = self._revive_classic(group.group_id, value, moment)
        out = self._classic.join(call, moment)
        out.records[:0] = records
        self._undo_if_refused(classic, group, out)
        return out

    def on_timer(self, name: TimerName, moment: Moment) -> Outcome:
        out = Outcome()
        if name.kind is Deadline.EXPIRY:
            return self._expire(moment)
        if name.kind in MEMBER_DEADLINES:
            self._consumer.on_timer(name, out, moment)
            return out
        group = self.groups.get(name.group_id)
        if group is None:
            return out
        if name.kind is Deadline.SESSION:
            self._rebalances.on_session_end(group, name.member_id, out, moment)
        elif name.kind is Deadline.PENDING:
            self._rebalances.on_pending_end(group, name.member_id, out, moment)
        elif name.kind is Deadline.JOIN:
            self._rebalances.on_join_end(group, out, moment)
        else:
            self._rebalances.on_sync_end(group, out, moment)
        return self._tidied(name.group_id, out)

    def _tidied(self, group_id: str, out: Outcome) -> Outcome:
        """If nothing of the group is or will be durable, and nobody is in it, it is gone."""
        if not out.records:
            self._drop_if_void(group_id)
        return out

    # --- Offsets ---

    def commit(
        self,
        call: CommitCall,
        later: Later[list[ErrorCode]],
        moment: Moment,
        producer: ProducerIdentity | None = None,
    ) -> Outcome:
        """O-03 to O-07; with a producer as part of its transaction (O-05, O-17).

        The answer has one code for each part of the call.
        """

        def refused(error: ErrorCode) -> list[ErrorCode]:
            return [error] * len(call.parts)

        group = self.groups.get(call.group_id)
        consumer = self.consumers.get(call.group_id)
        if consumer is not None:
            error = check_consumer_commit(consumer, call, transactional=producer is not None)
        else:
            error = check_commit(group, call, transactional=producer is not None)
        if error is not ErrorCode.NONE:
            self._tell_refused(call, error, producer)
            return Outcome(replies=[Reply(later, refused(error), refused)])
        if producer is None and group is not None and call.member_id in group.members:
            member = group.members[call.member_id]
            self._rebalances.restart_session(group, member, moment)
        records, errors = commit_records(
            call, self._config.offset_metadata_max_bytes, moment.wall_ms
        )

        def keep_own(error: ErrorCode) -> list[ErrorCode]:
            return [error if own is ErrorCode.NONE else own for own in errors]

        return Outcome(
            records=records,
            replies=[Reply(later, errors, keep_own)],
            append_errors=OFFSET_APPEND_ERRORS,
            producer=producer,
        )

    def _tell_refused(
        self, call: CommitCall, error: ErrorCode, producer: ProducerIdentity | None
    ) -> None:
        group = self.groups.get(call.group_id)
        reason = why_refused(group, call.member_id, call.instance_id, call.generation)
        self._history.record(
            call.group_id,
            What.GROUP_REFUSED,
            error=error,
            request="OffsetCommit" if producer is None else "TxnOffsetCommit",
            member=call.member_id or None,
            instance=call.instance_id,
            reason=reason,
        )

    def fetch(
        self,
        group_id: str,
        places: Iterable[Place] | None,
        require_stable: bool,
        later: Later[FetchedOffsets],
        member: FetchingMember = NOT_A_MEMBER,
    ) -> Outcome:
        """O-08 to O-10, O-21."""
        consumer = self.consumers.get(group_id)
        if consumer is not None:
            error = check_fetch(consumer, member)
            if error is not ErrorCode.NONE:
                refusal = FetchedOffsets(error, [])
                return Outcome(
                    replies=[Reply(later, refusal, lambda error: FetchedOffsets(error, []))]
                )
        parts = list(self.offsets.fetch(group_id, places, require_stable))
        answer = FetchedOffsets(ErrorCode.NONE, parts)
        return Outcome(replies=[Reply(later, answer, lambda error: FetchedOffsets(error, []))])

    # --- Administration (O-14) ---

    def summaries(self) -> list[GroupSummary]:
        classic = [summary(group) for group in self.groups.values()]
        return classic + [summary(group) for group in self.consumers.values()]

    def _any(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        return self.consumers.get(group_id) or self.groups.get(group_id)

    def describe(self, group_id: str) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is None:
            message = f"Group {group_id} not found."
            if group_id in self.consumers:
                message = f"Group {group_id} is not a classic group."
            return not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        return described(group)

    def describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        group = self.consumers.get(group_id)
        if group is None:
            message = f"Group {group_id} not found."
            if group_id in self.groups:
                message = f"Group {group_id} is not a consumer group."
            return consumer_not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        return consumer_described(group, self._config, self._topics)

    def deletion(self, group_id: str) -> tuple[ErrorCode, list[Record]]:
        """Whether the group may go, and the tombstones of all that it has; its own comes last, so
        that a deletion that a crash cuts short is one that can be asked for again."""
        error = deletion_error(self._any(group_id))
        if error is not ErrorCode.NONE:
            return error, []
        places = self.offsets.places_of_group(group_id)
        records = self.tombstones((group_id, place) for place in places)
        self.tell_deleted(((group_id, place) for place in places), "the group was deleted")
        consumer = self.consumers.get(group_id)
        if consumer is not None:
            return error, [*records, *group_tombstones(consumer)]
        return error, [*records, (group_metadata.encode_key(group_id), None)]

    def offset_deletion(
        self, group_id: str, places: list[Place]
    ) -> tuple[DeletedOffsets, list[Record]]:
        """A code for each place, and the tombstones. Where nothing is committed, nothing is amiss;
        an offset of an open transaction is deleted with the others."""
        group = self._any(group_id)
        error = offset_deletion_error(group)
        if group is None or error is not ErrorCode.NONE:
            return DeletedOffsets(error, []), []
        used = {name: is_subscribed(group, name) for name in {name for name, _ in places}}
        codes = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if used[name] else ErrorCode.NONE
            for name, _ in places
        ]
        doomed = dict.fromkeys(
            (group_id, place)
            for place in places
            if not used[place[0]] and self.offsets.holds(group_id, place)
        )
        self.tell_deleted(doomed, "their deletion was asked for")
        return DeletedOffsets(error, codes), self.tombstones(doomed)

    # --- Removal of offsets (O-11, O-15) ---

    def tombstones(self, places: Iterable[tuple[str, Place]]) -> list[Record]:
        return [(offset_commit.encode_key(group_id, *place), None) for group_id, place in places]

    def tell_deleted(self, places: Iterable[tuple[str, Place]], why: str) -> None:
        """Record, for people, that committed offsets are deleted; (group, place) each."""
        by_group: dict[str, list[Place]] = {}
        for group_id, place in places:
            by_group.setdefault(group_id, []).append(place)
        for group_id, held in by_group.items():
            self._history.record(group_id, What.OFFSETS_DELETED, places=held, reason=why)

    def _set_expiry(self, moment: Moment) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self.timers.set(TimerName(Deadline.EXPIRY), moment.now_ms + interval_ms)

    def _expire(self, moment: Moment) -> Outcome:
        """Remove what nobody has needed for the retention time, and groups that have nothing."""
        self._set_expiry(moment)
        retention_ms = self._config.offsets_retention_minutes * _MINUTE_MS
        records: list[Record] = []
        for group_id in [*self.groups, *self.consumers]:
            if len(records) >= TOMBSTONES_MAX:
                break
            records += self._expire_group(group_id, retention_ms, moment.wall_ms)
            self._drop_if_void(group_id)
        if len(records) >= TOMBSTONES_MAX:
            self.timers.set(TimerName(Deadline.EXPIRY), moment.now_ms + _EXPIRY_PAUSE_MS)
        return Outcome(records=records)

    def _expire_group(self, group_id: str, retention_ms: int, wall_ms: int) -> list[Record]:
        """What is to be written of one group; at most its own tombstones above the limit."""
        held = self.offsets.of_group(group_id)
        classic, consumer = self.groups.get(group_id), self.consumers.get(group_id)
        if consumer is not None:
            due = expired_consumer_places(consumer, held, retention_ms, wall_ms)
        elif classic is not None:
            due = expired_places(classic, held, retention_ms, wall_ms)
        else:
            return []
        expired = [place for place in due if not self.offsets.is_pending(group_id, place)]
        del expired[TOMBSTONES_MAX:]
        records = self.tombstones((group_id, place) for place in expired)
        if expired:
            why = "unused for offsets.retention.minutes"
            self.tell_deleted(((group_id, place) for place in expired), why)
        if len(expired) < len(held) or self.offsets.in_transaction(group_id):
            return records
        if consumer is not None and not consumer.members:
            records += group_tombstones(consumer)
        elif (
            classic is not None
            and classic.state is GroupState.EMPTY
            and classic.stored
            # Somebody was given an id a moment ago and is about to join with it.
            and not classic.pending
        ):
            records.append((group_metadata.encode_key(group_id), None))
        return records
