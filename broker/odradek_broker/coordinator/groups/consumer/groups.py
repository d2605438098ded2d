"""The consumer groups of one partition of `__consumer_offsets`, beside its classic ones.

One name is one group: `conversion` turns a classic group into a consumer group and back where that
is asked for and allowed.
"""

from __future__ import annotations

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.classic_members import ClassicProtocolMembers
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, MemberState
from odradek_broker.coordinator.groups.consumer.heartbeat import ConsumerProtocol
from odradek_broker.coordinator.groups.conversion import GroupConversion
from odradek_broker.coordinator.groups.deadlines import ConsumerDeadlines, Deadline, TimerName
from odradek_broker.coordinator.groups.events import (
    Observer,
    RecordReplayed,
    Removal,
    RemovalReason,
)
from odradek_broker.coordinator.groups.settings import GroupSettings, Topics
from odradek_broker.coordinator.runtime import Instant, Outcome
from odradek_broker.platform.seams import Randomness
from odradek_protocol.stored.consumer_group import RecordType, decode_key, decode_value

_REASONS = {
    Deadline.MEMBER_REVOCATION: RemovalReason.REVOCATION_TIMEOUT,
    Deadline.MEMBER_SESSION: RemovalReason.SESSION_TIMEOUT,
    Deadline.MEMBER_REJOIN: RemovalReason.REJOIN_TIMEOUT,
    Deadline.MEMBER_SYNC: RemovalReason.SYNC_TIMEOUT,
}


class ConsumerGroups:
    """`groups`, by id, and their deadlines are the shard's. See `GroupShard` for who calls what."""

    def __init__(
        self,
        config: GroupSettings,
        topics: Topics,
        random: Randomness,
        observer: Observer,
        groups: dict[str, ConsumerGroup],
        deadlines: ConsumerDeadlines,
        conversion: GroupConversion,
    ) -> None:
        self._observer = observer
        self._active = False
        self.groups = groups
        self.deadlines = deadlines
        self.protocol = ConsumerProtocol(
            config, self.groups, topics, self.deadlines, random, observer, conversion
        )
        self.classic = ClassicProtocolMembers(config, topics, self.deadlines, self.protocol, random)

    # --- Replay ---

    def replay(self, kind: RecordType, key: bytes, value: bytes | None) -> str:
        """Take one record; the id of the group that it is about.

        A group exists from its first record to the end of its own one.
        """
        named = decode_key(kind, key)
        group_id: str = named.group_id  # type: ignore[attr-defined]
        held = self.groups.get(group_id)
        if held is None:
            if value is None:
                return group_id
            held = self.groups[group_id] = ConsumerGroup(group_id)
        member_id = str(getattr(named, "member_id", ""))
        before = held.members.get(member_id)
        make.replay(held, kind, named, None if value is None else decode_value(kind, value))
        if self._active and value is not None:
            after = held.members.get(member_id)
            self._observer(RecordReplayed(kind, held, before, after))
        if kind is RecordType.GROUP and value is None:
            del self.groups[group_id]
            self.deadlines.forget_all(held)
        return group_id

    def restored(self, now: Instant) -> None:
        """Begin all deadlines: everything is loaded."""
        self._active = True
        for group in self.groups.values():
            self.deadlines.restored(group, now)

    # --- Time ---

    def on_timer(self, name: TimerName, out: Outcome, now: Instant) -> None:
        """Remove a member that was silent, or did not give its partitions back (G-123, G-124)."""
        group = self.groups.get(name.group_id)
        member = None if group is None else group.members.get(name.member_id)
        if group is None or member is None:
            return
        revokes = member.state is MemberState.UNREVOKED_PARTITIONS
        if name.kind is Deadline.MEMBER_REVOCATION and not revokes:
            return
        removal = Removal(_REASONS[name.kind])
        self.protocol.remove(group, {member.member_id: removal}, out, now)
