"""The error codes of JoinGroup, SyncGroup and Heartbeat for a member, classic protocol."""

from __future__ import annotations

from enum import Enum

from odradek_protocol.errors import ErrorCode


class ErrorMeaning(Enum):
    """The meaning of a coordinator's error for the membership."""

    RETRY = "nothing; the same again"
    REDISCOVER = "another broker, or none, coordinates the group"
    REJOIN = "a rebalance is going on"
    NEW_ID = "the coordinator has given a member id to join with"
    GENERATION_LOST = "the group went on; the member id is still good"
    MEMBER_LOST = "the group does not know the member"
    FENCED = "another member took the instance id"
    FATAL = "asking again will not help"


#: Per request, the codes that are not fatal (K-35, K-36, K-37).
_ANYWHERE = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorMeaning.REDISCOVER,
    ErrorCode.NOT_COORDINATOR: ErrorMeaning.REDISCOVER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorMeaning.RETRY,
    ErrorCode.UNKNOWN_MEMBER_ID: ErrorMeaning.MEMBER_LOST,
    ErrorCode.FENCED_INSTANCE_ID: ErrorMeaning.FENCED,
}
JOIN_ERRORS = _ANYWHERE | {
    ErrorCode.MEMBER_ID_REQUIRED: ErrorMeaning.NEW_ID,
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorMeaning.RETRY,
}
SYNC_ERRORS = _ANYWHERE | {
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorMeaning.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: ErrorMeaning.GENERATION_LOST,
}
HEARTBEAT_ERRORS = SYNC_ERRORS
