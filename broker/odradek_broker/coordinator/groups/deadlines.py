"""The deadlines of groups, by name: the keys of a shard's timers."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Deadline(Enum):
    """The kinds of timers of a group."""

    SESSION = "a member must be heard of"
    PENDING = "an id that was handed out must join"
    JOIN = "the join phase ends"
    SYNC = "every member must have fetched its assignment"
    EXPIRY = "look for offsets that nobody wants any more"
    MEMBER_SESSION = "a member of a consumer group must be heard of"
    MEMBER_REVOCATION = "it must have given its partitions back"
    MEMBER_REJOIN = "it speaks the classic protocol, and must have joined again"
    MEMBER_SYNC = "it speaks the classic protocol, and must have fetched its assignment"


class TimerName(NamedTuple):
    """A deadline of a group, or of one member."""

    kind: Deadline
    group_id: str = ""
    member_id: str = ""
