"""The consumer groups of one partition of `__consumer_offsets`, beside its classic ones.

One name is one group: `admission` turns a classic group into a consumer group and back where that
is asked for and allowed.
"""

from __future__ import annotations

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.classic_members import ClassicMembers
from odradek_broker.coordinator.groups.consumer.deadlines import ConsumerDeadlines
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup
from odradek_broker.coordinator.groups.consumer.heartbeat import (
    ConsumerProtocol,
    Downgrader,
    Opener,
)
from odradek_broker.coordinator.groups.consumer.settings import Topics
from odradek_broker.coordinator.groups.consumer.states import MemberState
from odradek_broker.coordinator.groups.consumer.telling import tell_replayed
from odradek_broker.coordinator.groups.rebalance import Deadline, GroupSettings, TimerName
from odradek_broker.coordinator.runtime import Moment, Outcome
from odradek_broker.coordinator.timers import Timers
from odradek_broker.history import History
from odradek_broker.seams import Randomness
from odradek_protocol.stored.consumer_group import RecordType, decode_key, decode_value


class ConsumerGroups:
    """`groups`: by id. See `GroupShard` for who calls what."""

    def __init__(
        self,
        config: GroupSettings,
        timers: Timers[TimerName],
        topics: Topics,
        random: Randomness,
        history: History,
        open_group: Opener,
        downgrade: Downgrader,
    ) -> None:
        self._history = history
        self._topics = topics
        self._active = False
        self.groups: dict[str, ConsumerGroup] = {}
        self.deadlines = ConsumerDeadlines(config, topics, timers)
        self.protocol = ConsumerProtocol(
            config, self.groups, topics, self.deadlines, random, history, open_group, downgrade
        )
        self.classic = ClassicMembers(config, topics, self.deadlines, self.protocol, random)

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
            tell_replayed(self._history, self._topics, kind, held, before, after)
        if kind is RecordType.GROUP and value is None:
            del self.groups[group_id]
            self.deadlines.forget_all(held)
        return group_id

    def restored(self, moment: Moment) -> None:
        """Everything is loaded: deadlines begin."""
        self._active = True
        for group in self.groups.values():
            self.deadlines.restored(group, moment)

    # --- Time ---

    def on_timer(self, name: TimerName, out: Outcome, moment: Moment) -> None:
        """G-123, G-124: whoever is silent, or does not give back, is removed."""
        group = self.groups.get(name.group_id)
        member = None if group is None else group.members.get(name.member_id)
        if group is None or member is None:
            return
        if name.kind is Deadline.MEMBER_REVOCATION:
            if member.state is not MemberState.UNREVOKED_PARTITIONS:
                return
            why = "it did not give its partitions back in time (rebalance timeout)"
        elif name.kind is Deadline.MEMBER_SESSION:
            why = "nothing was heard of it (session timeout)"
        elif name.kind is Deadline.MEMBER_REJOIN:
            why = "it did not join again in time (rebalance timeout)"
        else:
            why = "it sent no SyncGroup in time (rebalance timeout)"
        self.protocol.remove(group, [member], out, moment, why)
