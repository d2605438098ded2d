"""A modern group and its members: the common part of consumer groups, share groups and streams
groups (Kafka's ModernGroup and ModernGroupMember).

    subscriptions  ->  group epoch  ->  target assignment  ->  current assignment of each member

The broker computes the assignment. A heartbeat that changes an input of the assignment raises the
group epoch; the targets of all members are computed for a group epoch, and each member moves to its
target with its next heartbeats.

A restart resets the deadlines and the fields below the comment "soft". All other state is durable
and is changed only by the `replay*` functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import field
from enum import Enum, IntEnum
from typing import Any, ClassVar, Generic, Self, TypeVar

from odradek_broker.coordinator.runtime import Record
from odradek_broker.slices import in_pieces
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.stored.modern_groups import encode_key

#: The group epoch before the first change that required an assignment.
FIRST_EPOCH = 1


class ModernGroupState(Enum):
    """The states of a modern group, with the names that Kafka's tools show (G-104, H-05, J-05)."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernMember(ABC):
    """A member of a modern group. `previous_epoch` is still accepted, since the answer with the
    present epoch may have been lost (G-114, H-13, J-14)."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    epoch: int = 0
    previous_epoch: int = 0

    def is_reconciled(self, target_epoch: int) -> bool:
        """True if the member has reached the target of `target_epoch`."""
        return self.epoch == target_epoch

    @property
    def revocation_timeout_ms(self) -> int | None:
        """The time in which the member must revoke partitions or tasks; None if it has none to
        revoke."""
        return None

    @property
    def own_session_timeout_ms(self) -> int | None:
        """The session timeout that the member itself has requested; None if the group's session
        timeout applies."""
        return None

    def may_own(self, owned: Any) -> bool:
        """True if a member that did not receive its last answer could have the partitions or tasks
        `owned`. `owned` None: the heartbeat does not report partitions or tasks."""
        return True

    @property
    def epoch_detail(self) -> str:
        """A text that is added to the refusal of an older epoch."""
        return ""

    @property
    def stale_epoch_error(self) -> ErrorCode:
        """The error of an OffsetCommit or OffsetFetch that has another epoch than the member."""
        return ErrorCode.STALE_MEMBER_EPOCH

    @abstractmethod
    def with_metadata(self, value: Any) -> Self:
        """The member with the fields of its member record, `value`."""

    @abstractmethod
    def with_assignment(self, value: Any) -> Self:
        """The member with the assignment and the epoch of `value`. None is a tombstone: the member
        then has neither."""


M = TypeVar("M", bound=ModernMember)
T = TypeVar("T")


@dataclass(slots=True)
class ModernGroup(ABC, Generic[M, T]):
    """A modern group with members M and targets T.

    `epoch` grows with every change that requires a new assignment; `assignment_epoch` is the epoch
    for which `targets` were computed, at the time `assignment_ms` (0: unknown).
    """

    #: The type of the group in ListGroups, which is also its protocol type.
    protocol_type: ClassVar[str]
    member_class: ClassVar[Callable[..., Any]]
    #: `record_types`: the types of the group's records; all types of groups use the same names.
    #: `other_type`: a type of record that only this type of group has, with the group id as its
    #: key.
    record_types: ClassVar[type[IntEnum]]
    other_type: ClassVar[IntEnum]
    no_target: ClassVar[Any]
    #: The value of `assignment_epoch` after a tombstone has deleted the epoch of the target
    #: assignment.
    unassigned_epoch: ClassVar[int] = FIRST_EPOCH

    group_id: str
    epoch: int = FIRST_EPOCH
    assignment_epoch: int = FIRST_EPOCH
    assignment_ms: int = 0
    members: dict[str, M] = field(default_factory=dict)
    targets: dict[str, T] = field(default_factory=dict)
    # --- soft ---
    #: The version of the cluster's topics that was looked at last; None: not since the start.
    topics_version: int | None = None
    # --- derived ---
    #: The members that have not reached the target of `assignment_epoch`; None: to be found out.
    behind: set[str] | None = field(default=None, compare=False)

    # --- Questions ---

    @property
    def state(self) -> ModernGroupState:
        return self.progress

    @property
    def progress(self) -> ModernGroupState:
        """The state that follows from the epochs of the group and its members (G-104)."""
        if not self.members:
            return ModernGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ModernGroupState.ASSIGNING
        if self.behind is None:
            epoch = self.assignment_epoch
            self.behind = {
                each for each, member in self.members.items() if not member.is_reconciled(epoch)
            }
        return ModernGroupState.RECONCILING if self.behind else ModernGroupState.STABLE

    @property
    @abstractmethod
    def subscribed_names(self) -> frozenset[str]:
        """Every topic that any member may read, whether it exists or not."""

    def target(self, member_id: str) -> T:
        """The target of a member; empty before the member was part of an assignment."""
        found: T = self.targets.get(member_id, self.no_target)
        return found

    async def target_records(
        self, targets: Mapping[str, T], make: Callable[[str, str, T], Coroutine[Any, Any, Record]]
    ) -> list[Record]:
        """The records of the given targets that differ from the present ones. `make` makes one from
        the group id, the member id and the target."""
        return [
            await make(self.group_id, member_id, target)
            async for some in in_pieces(targets.items())
            for member_id, target in some
            if self.targets.get(member_id) != target
        ]

    def forget_topics(self) -> None:
        """Make the next heartbeat resolve the topics again."""
        self.topics_version = None

    # --- Tombstones ---

    async def tombstones(self) -> list[Record]:
        """The tombstones of the members and, at the end, of the group itself."""
        keys: list[bytes] = []
        async for some in in_pieces(self.members):
            for member_id in some:
                keys += self._member_keys(member_id)
        async for others in in_pieces(self.targets.keys() - self.members.keys()):
            keys += [self._member_key("TARGET", member_id) for member_id in others]
        return [(key, None) for key in (*keys, *self.own_keys())]

    def member_tombstones(self, member_id: str) -> list[Record]:
        return [(key, None) for key in self._member_keys(member_id)]

    def _member_keys(self, member_id: str) -> list[bytes]:
        """The keys of a member's records. The key of the member's metadata comes last, so that no
        load finds an incomplete member."""
        return [self._member_key(name, member_id) for name in ("CURRENT", "TARGET", "MEMBER")]

    def _member_key(self, name: str, member_id: str) -> bytes:
        return encode_key(self.record_types[name], group_id=self.group_id, member_id=member_id)

    def own_keys(self) -> list[bytes]:
        """The keys of the group's own records, without the records of members."""
        types = self.record_types
        kinds = (types["TARGET_EPOCH"], self.other_type, types["GROUP"])
        return [encode_key(kind, group_id=self.group_id) for kind in kinds]

    # --- Replay ---

    def replay(self, kind: IntEnum, key: Any, value: Any) -> None:
        """Apply one record; `key` and `value` are decoded, None is a tombstone."""
        if kind.name == "MEMBER":
            self.replay_member(key.member_id, value)
            self._follow(key.member_id)
        elif kind.name == "CURRENT":
            self.replay_current(key.member_id, value)
            self._follow(key.member_id)
        elif kind.name == "TARGET":
            self.replay_target(key.member_id, value)
        elif kind.name == "TARGET_EPOCH":
            self.assignment_epoch = self.unassigned_epoch
            if value is not None:
                self.assignment_epoch = value.assignment_epoch
            self.assignment_ms = 0 if value is None else value.assignment_timestamp
            self.behind = None
        elif kind.name == "GROUP":
            self.replay_group(value)
        else:
            self.replay_other(key, value)

    def _follow(self, member_id: str) -> None:
        """Note whether a member that has changed has reached its target."""
        if self.behind is None:
            return
        member = self.members.get(member_id)
        if member is None or member.is_reconciled(self.assignment_epoch):
            self.behind.discard(member_id)
        else:
            self.behind.add(member_id)

    def replay_member(self, member_id: str, value: Any) -> None:
        """Apply a member's own record; None removes the member."""
        if value is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = self._member(member_id).with_metadata(value)

    def replay_current(self, member_id: str, value: Any) -> None:
        """Apply a member's current assignment. None is a tombstone. After the tombstone, the log
        has either the tombstone of the member's own record or a new current assignment."""
        if value is not None or member_id in self.members:
            self.members[member_id] = self._member(member_id).with_assignment(value)

    def _member(self, member_id: str) -> M:
        found: M = self.members.get(member_id) or self.member_class(member_id=member_id)
        return found

    def replay_target(self, member_id: str, value: Any) -> None:
        """Apply a member's target; None removes the target."""
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = self.stored_target(value)

    @abstractmethod
    def stored_target(self, value: Any) -> T:
        """The target in a record."""

    def replay_group(self, value: Any) -> None:
        """Apply a record of the group epoch."""
        self.epoch = FIRST_EPOCH if value is None else value.epoch

    @abstractmethod
    def replay_other(self, key: Any, value: Any) -> None:
        """Apply a record that only groups of this type have."""
