"""The events of groups: each decision passes an event to an observer.

Events have reasons as values; `odradek_broker.explain.groups` turns events into texts. An observer
must read the groups and members in an event before it returns, because they change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, IntEnum, auto
from typing import Any

from odradek_broker.coordinator.groups.classic.group import (
    ClassicGroup,
    GroupState,
    JoinCall,
    Member,
)
from odradek_broker.coordinator.groups.modern.group import ModernGroup, ModernMember
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple

# --- Reasons --------------------------------------------------------------------------------------


class MemberRemovalReason(Enum):
    """The reason for the removal of a member. LEFT: the member sent a LeaveGroup.
    LEFT_BY_HEARTBEAT: the member sent a heartbeat with epoch -1; a heartbeat has no field for a
    reason."""

    LEFT = auto()
    LEFT_BY_HEARTBEAT = auto()
    REMOVED_BY_ADMIN = auto()
    GROUP_FULL = auto()
    SESSION_TIMEOUT = auto()
    NO_JOIN_IN_JOIN_PHASE = auto()
    NO_SYNC_IN_GENERATION = auto()
    REPLACED_BY_CLASSIC = auto()
    REVOCATION_TIMEOUT = auto()
    REJOIN_TIMEOUT = auto()
    SYNC_TIMEOUT = auto()


class Removal(NamedTuple):
    """The reason for the removal of a member. `waited_ms`: the time for which the coordinator
    waited for a request of the member, None if unknown.

    `stated`: the reason that the client itself gave (LeaveGroup version 5, KIP-800).
    """

    reason: MemberRemovalReason
    waited_ms: int | None = None
    stated: str | None = None


class RebalanceReason(Enum):
    """The reason for a rebalance of a classic group."""

    MEMBER_ADDED = auto()
    MEMBER_CHANGED = auto()
    LEADER_REJOINED = auto()
    STATIC_MEMBER_CHANGED = auto()
    STATIC_MEMBER_RETURNED = auto()
    MEMBER_REMOVED = auto()
    MEMBER_TIMED_OUT = auto()
    MEMBERS_LEFT = auto()
    NO_SYNC = auto()
    ASSIGNMENT_NOT_WRITTEN = auto()
    GENERATION_NOT_WRITTEN = auto()
    DOWNGRADED = auto()


class RebalanceCause(NamedTuple):
    """The cause of a rebalance of a classic group. `member_ids`: the members that caused the
    rebalance; `error`: the error of the append that caused it.

    `generation`: the generation that was not completed.
    """

    reason: RebalanceReason
    member_ids: Sequence[str] = ()
    instance_id: str | None = None
    generation: int = -1
    error: ErrorCode = ErrorCode.NONE


class ConversionReason(Enum):
    """The reason for the conversion of a group."""

    GROUP_EMPTY = auto()
    MEMBER_JOINED = auto()
    LAST_CONSUMER_MEMBER_GONE = auto()


class OffsetDeletion(Enum):
    """The reason for the deletion of committed offsets."""

    TOPIC_DELETED = auto()
    TOPIC_MISSING = auto()
    GROUP_DELETED = auto()
    REQUESTED = auto()
    EXPIRED = auto()


# --- Classic groups -------------------------------------------------------------------------------


class GroupLoaded(NamedTuple):
    """A group with members was loaded from the log (G-90)."""

    group: ClassicGroup


class MemberIdGiven(NamedTuple):
    """A new member received the member id to join with (G-25)."""

    group_id: str
    member_id: str
    call: JoinCall


class MemberIdExpired(NamedTuple):
    """A member id was not used in time (G-26)."""

    group_id: str
    member_id: str


class MemberJoined(NamedTuple):
    """A new member was added."""

    group_id: str
    member: Member


class MemberRejoined(NamedTuple):
    """A known member joined again, `waited_ms` after the rebalance began."""

    group_id: str
    member_id: str
    waited_ms: int


class MemberReplaced(NamedTuple):
    """A static member joined under a new id; its old id is fenced (G-28)."""

    group_id: str
    member: Member
    fenced_member_id: str


class RebalanceStarted(NamedTuple):
    """The join phase began. `awaited`: the members that must join within `timeout_ms`. If the group
    was empty, `timeout_ms` is the initial delay, in which any member may join."""

    group: ClassicGroup
    before: GroupState
    cause: RebalanceCause
    awaited: Sequence[str]
    timeout_ms: int


class GenerationStarted(NamedTuple):
    """The join phase is complete, after `waited_ms`.

    `last_to_join`: the id of the last member to join, and the milliseconds from the beginning of
    the join phase to its JoinGroup; None if no member had to wait for another.
    """

    group: ClassicGroup
    before: GroupState
    generation: int
    protocol: str
    waited_ms: int
    last_to_join: tuple[str, int] | None


class GroupStabilized(NamedTuple):
    """The leader's assignment is stored (G-61)."""

    group: ClassicGroup
    before: GroupState
    generation: int


class GroupEmptied(NamedTuple):
    """The last member was removed."""

    group: ClassicGroup
    before: GroupState
    generation: int


# --- Modern groups --------------------------------------------------------------------------------


class RecordReplayed(NamedTuple):
    """A record changed a loaded group. `before`, `after`: the member to which the record belongs,
    before and after the replay."""

    kind: IntEnum
    group: ModernGroup[Any, Any]
    before: Any
    after: Any


# --- All -----------------------------------------------------------------------------------------


class MemberRemoved(NamedTuple):
    """A member left, or was removed."""

    group_id: str
    member: Member | ModernMember
    removal: Removal


class GroupRequestRefused(NamedTuple):
    """A request was answered with an error. `group`: the classic group, if there is one.

    `join`: the JoinGroup, if the request was a JoinGroup. `client`: (client id, host) if they are
    known. `message`: the message of the answer; without a message the reason follows from the other
    fields.
    """

    group_id: str
    request: str
    error: ErrorCode
    member_id: str
    instance_id: str | None
    group: ClassicGroup | None = None
    generation: int | None = None
    join: JoinCall | None = None
    client: tuple[str, str] | None = None
    message: str | None = None


class GroupConverted(NamedTuple):
    """The group has another protocol, `classic`, `consumer` or `streams` (G-150, G-155, G-156)."""

    group_id: str
    protocol: str
    reason: ConversionReason


class OffsetsDeleted(NamedTuple):
    """Committed offsets of a group were deleted (O-11, O-14, O-15). `origin`: the client that asked
    for it."""

    group_id: str
    partitions: Sequence[TopicPartition]
    reason: OffsetDeletion
    origin: str | None = None


class OffsetsMoved(NamedTuple):
    """A client that is no member committed offsets that no member has read to (O-25). `back`,
    `ahead`: the number of records, added up over the partitions."""

    group_id: str
    partitions: Sequence[TopicPartition]
    back: int
    ahead: int
    origin: str


class GroupRemoved(NamedTuple):
    """A group was removed: it has neither members nor offsets."""

    group_id: str


GroupEvent = (
    GroupLoaded
    | MemberIdGiven
    | MemberIdExpired
    | MemberJoined
    | MemberRejoined
    | MemberReplaced
    | RebalanceStarted
    | GenerationStarted
    | GroupStabilized
    | GroupEmptied
    | RecordReplayed
    | MemberRemoved
    | GroupRequestRefused
    | GroupConverted
    | OffsetsDeleted
    | OffsetsMoved
    | GroupRemoved
)

Observer = Callable[[GroupEvent], None]


def unobserved(_: GroupEvent) -> None:
    """Ignore an event: the default observer."""
