"""The states of a classic group, their transitions, and the answers to requests, as tables.

`ANSWERS` is the table of the rules G-20 to G-64: (state, what came) to the action. What came is
known only after the checks that precede the state: is the member known, is its instance id its own
(25, 82), and for Sync and Heartbeat, is the generation the current one (22).
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The names are those that Kafka's tools show (G-03, G-04)."""

    EMPTY = "Empty"
    """No members; there may be offsets. A new group starts here."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are (re)joining; those that have are parked."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """Everyone has the new generation; the leader's assignment is awaited."""

    STABLE = "Stable"
    """Everyone can have its assignment."""

    DEAD = "Dead"
    """Deleted, expired or unloaded."""


_S = GroupState

#: state -> states from which it may be entered (G-03).
PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE}),
    _S.PREPARING_REBALANCE: frozenset({_S.STABLE, _S.COMPLETING_REBALANCE, _S.EMPTY}),
    _S.COMPLETING_REBALANCE: frozenset({_S.PREPARING_REBALANCE}),
    _S.STABLE: frozenset({_S.COMPLETING_REBALANCE}),
    _S.DEAD: frozenset(_S),
}


class IllegalTransition(RuntimeError):
    """A transition that the table does not have: a bug, never a client's doing."""


def check_transition(group_id: str, source: GroupState, target: GroupState) -> None:
    """IllegalTransition unless `source` may become `target`."""
    if source not in PREDECESSORS[target]:
        raise IllegalTransition(f"group {group_id}: {source.value} -> {target.value}")


class Request(Enum):
    """A request of a member, as far as the table distinguishes it."""

    JOIN_NEW = "Join, new member"
    JOIN_LEADER = "Join, leader, same metadata"
    JOIN_FOLLOWER = "Join, follower, same metadata"
    JOIN_CHANGED = "Join, existing, changed metadata"
    SYNC = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE = "LeaveGroup, or the end of a session"


class Action(Enum):
    """The reaction to a request."""

    ADD_AND_REBALANCE = "add the member, start the join phase, park"
    ADD_AND_PARK = "add the member to the running join phase, park"
    UPDATE_AND_REBALANCE = "take the metadata, start the join phase, park"
    UPDATE_AND_PARK = "take the metadata, park"
    ANSWER_JOIN = "a lost answer: give the current generation again"
    PARK_SYNC = "await the leader's assignment; the leader brings it"
    ANSWER_SYNC = "give the stored assignment"
    ALIVE = "restart the session timer"
    ALIVE_BUT_REJOIN = "restart the session timer, REBALANCE_IN_PROGRESS"
    REMOVE_AND_REBALANCE = "remove the member, start the join phase"
    REMOVE_AND_RECHECK = "remove the member, the join phase may be complete"
    REBALANCE_IN_PROGRESS = "27"
    UNKNOWN_MEMBER_ID = "25"
    COORDINATOR_NOT_AVAILABLE = "15"


_R, _A = Request, Action

_ROWS: dict[GroupState, dict[Request, Action]] = {
    _S.EMPTY: {
        _R.JOIN_NEW: _A.ADD_AND_REBALANCE,
        _R.JOIN_LEADER: _A.UNKNOWN_MEMBER_ID,
        _R.JOIN_FOLLOWER: _A.UNKNOWN_MEMBER_ID,
        _R.JOIN_CHANGED: _A.UNKNOWN_MEMBER_ID,
        _R.SYNC: _A.UNKNOWN_MEMBER_ID,
        _R.HEARTBEAT: _A.UNKNOWN_MEMBER_ID,
        _R.LEAVE: _A.UNKNOWN_MEMBER_ID,
    },
    _S.PREPARING_REBALANCE: {
        _R.JOIN_NEW: _A.ADD_AND_PARK,
        _R.JOIN_LEADER: _A.UPDATE_AND_PARK,
        _R.JOIN_FOLLOWER: _A.UPDATE_AND_PARK,
        _R.JOIN_CHANGED: _A.UPDATE_AND_PARK,
        _R.SYNC: _A.REBALANCE_IN_PROGRESS,
        _R.HEARTBEAT: _A.ALIVE_BUT_REJOIN,
        _R.LEAVE: _A.REMOVE_AND_RECHECK,
    },
    _S.COMPLETING_REBALANCE: {
        _R.JOIN_NEW: _A.ADD_AND_REBALANCE,
        _R.JOIN_LEADER: _A.ANSWER_JOIN,
        _R.JOIN_FOLLOWER: _A.ANSWER_JOIN,
        _R.JOIN_CHANGED: _A.UPDATE_AND_REBALANCE,
        _R.SYNC: _A.PARK_SYNC,
        _R.HEARTBEAT: _A.ALIVE,
        _R.LEAVE: _A.REMOVE_AND_REBALANCE,
    },
    _S.STABLE: {
        _R.JOIN_NEW: _A.ADD_AND_REBALANCE,
        _R.JOIN_LEADER: _A.UPDATE_AND_REBALANCE,
        _R.JOIN_FOLLOWER: _A.ANSWER_JOIN,
        _R.JOIN_CHANGED: _A.UPDATE_AND_REBALANCE,
        _R.SYNC: _A.ANSWER_SYNC,
        _R.HEARTBEAT: _A.ALIVE,
        _R.LEAVE: _A.REMOVE_AND_REBALANCE,
    },
    _S.DEAD: dict.fromkeys(_R, _A.COORDINATOR_NOT_AVAILABLE),
}

ANSWERS: dict[tuple[GroupState, Request], Action] = {
    (state, request): action for state, row in _ROWS.items() for request, action in row.items()
}
