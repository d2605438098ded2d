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
from odradek_broker.coordinator.groups.group import ClassicGroup, Observer
from odradek_broker.coordinator.groups.offsets import (
    NO_PRODUCER,
    OFFSET_APPEND_ERRORS,
    CommitCall,
    FetchedOffsets,
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
from odradek_protocol.schemas.describe_groups import DescribedGroup
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek_protocol.stored import group_metadata, offset_commit

#: Tombstones in one batch. What is left over is written at the next look.
TOMBSTONES_MAX = 1_000
#: When that is, if there is something left over.
_EXPIRY_PAUSE_MS = 1_000
_MINUTE_MS = 60_000
_INT16 = Packer(">h")
#: When a group died is of no interest to anyone.
_NO_MOMENT = Moment(0, 0)


class GroupShard:
    """Decides for its groups; see `runtime.Core` for who calls what."""

    def __init__(
        self,
        config: GroupSettings,
        random: Randomness,
        history: History,
        observer: Observer | None = None,
    ) -> None:
        self.timers: Timers[TimerName] = Timers()
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self._config = config
        self._observer = observer
        self._history = history
        self._active = False
        self._rebalances = Rebalances(config, self.timers, history)
        self._classic = ClassicProtocol(config, self.groups, self._rebalances, random, self._create)

    def _create(self, group_id: str, moment: Moment) -> ClassicGroup:
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
        """The transaction of this producer is decided (O-17)."""
        for group_id in self.offsets.end_transaction(producer_id, commit):
            self._drop_if_void(group_id)

    def _replay_record(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        kind = _INT16.unpack_from(key)[0] if len(key) >= _INT16.size else -1
        if kind == group_metadata.KEY_TYPE:
            self._replay_group(group_metadata.decode_key(key).group, value)
        elif kind in (offset_commit.LEGACY_KEY_TYPE, offset_commit.KEY_TYPE):
            where = offset_commit.decode_key(key)
            committed = None if value is None else offset_commit.decode_value(value)
            place = (where.topic, where.partition)
            self.offsets.replay(where.group, place, committed, producer_id)
            if committed is not None:
                self._known(where.group)
            else:
                self._drop_if_void(where.group)

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        if value is not None:
            self._known(group_id).replay(group_metadata.decode_value(value))
        elif group_id in self.groups:
            self.groups[group_id].stored = None
            self._drop_if_void(group_id)

    def _known(self, group_id: str) -> ClassicGroup:
        """Whoever has a record exists."""
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
        return self._tidied(call.request.group_id, self._classic.join(call, moment))

    def sync(
        self, request: SyncGroupRequest, later: Later[SyncGroupResponse], moment: Moment
    ) -> Outcome:
        return self._classic.sync(request, later, moment)

    def heartbeat(
        self, request: HeartbeatRequest, later: Later[HeartbeatResponse], moment: Moment
    ) -> Outcome:
        return self._classic.heartbeat(request, later, moment)

    def leave(
        self,
        request: LeaveGroupRequest,
        api_version: int,
        later: Later[LeaveGroupResponse],
        moment: Moment,
    ) -> Outcome:
        return self._tidied(
            request.group_id, self._classic.leave(request, api_version, later, moment)
        )

    def on_timer(self, name: TimerName, moment: Moment) -> Outcome:
        out = Outcome()
        if name.kind is Deadline.EXPIRY:
            return self._expire(moment)
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
        moment: Moment,
    ) -> Outcome:
        """O-08 to O-10."""
        parts = list(self.offsets.fetch(group_id, places, require_stable))
        answer = FetchedOffsets(ErrorCode.NONE, parts)
        return Outcome(replies=[Reply(later, answer, lambda error: FetchedOffsets(error, []))])

    # --- Administration (O-14) ---

    def summaries(self) -> list[GroupSummary]:
        return [summary(group) for group in self.groups.values()]

    def describe(self, group_id: str) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is None:
            message = f"Group {group_id} not found."
            return not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        return described(group)

    def deletion(self, group_id: str) -> tuple[ErrorCode, list[Record]]:
        """Whether the group may go, and the tombstones of all that it has; its own comes last, so
        that a deletion that a crash cuts short is one that can be asked for again."""
        error = deletion_error(self.groups.get(group_id))
        if error is not ErrorCode.NONE:
            return error, []
        places = self.offsets.places_of_group(group_id)
        records = self.tombstones((group_id, place) for place in places)
        self.tell_deleted(((group_id, place) for place in places), "the group was deleted")
        return error, [*records, (group_metadata.encode_key(group_id), None)]

    def offset_deletion(
        self, group_id: str, places: list[Place]
    ) -> tuple[DeletedOffsets, list[Record]]:
        """A code for each place, and the tombstones. Where nothing is committed, nothing is amiss;
        an offset of an open transaction is deleted with the others."""
        group = self.groups.get(group_id)
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
        for group_id, group in self.groups.items():
            if len(records) >= TOMBSTONES_MAX:
                break
            held = self.offsets.of_group(group_id)
            expired = [
                place
                for place in expired_places(group, held, retention_ms, moment.wall_ms)
                if not self.offsets.is_pending(group_id, place)
            ][:TOMBSTONES_MAX]
            records += self.tombstones((group_id, place) for place in expired)
            if expired:
                why = "unused for offsets.retention.minutes"
                self.tell_deleted(((group_id, place) for place in expired), why)
            nothing_left = len(expired) == len(held) and not self.offsets.in_transaction(group_id)
            if nothing_left and group.state is GroupState.EMPTY and group.stored is not None:
                records.append((group_metadata.encode_key(group_id), None))
        if len(records) >= TOMBSTONES_MAX:
            self.timers.set(TimerName(Deadline.EXPIRY), moment.now_ms + _EXPIRY_PAUSE_MS)
        return Outcome(records=records)
