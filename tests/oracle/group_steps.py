"""Steps for scenarios about groups: request bodies, and steps that bring a group into a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.script import Ask, Assigned, Receive, Send, Step, coordinator

#: A session timeout in ms, longer than any scenario.
SESSION_MS = 45_000
RANGE = (("range", b"\x01"),)


def group(name: str = "@g") -> list[Step]:
    """Wait until the coordinator of a group has loaded."""
    return [coordinator(name), Ask("DescribeGroups", {"groups": [name]}, version=5, quiet=True)]


def join_body(
    member_id: str = "", protocols: Sequence[tuple[str, Any]] = RANGE, **more: Any
) -> dict[str, Any]:
    """The body of a JoinGroup request of a consumer without subscriptions."""
    return {
        "group_id": "@g",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": name, "metadata": data} for name, data in protocols],
        **more,
    }


def sync_body(
    member_id: str = "$m",
    generation: int | str = "$gen",
    assignments: Mapping[str, bytes | Assigned] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The body of a SyncGroup request. `assignments`: member id -> assignment, if the leader sends
    it."""
    return {
        "group_id": "@g",
        "generation_id": generation,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [
            {"member_id": member, "assignment": data}
            for member, data in (assignments or {}).items()
        ],
        **more,
    }


def heartbeat(
    member_id: str = "$m", generation: int | str = "$gen", on: str = "a", **more: Any
) -> Ask:
    """A Heartbeat whose answer is recorded. In a scenario about Heartbeat, it has the version that
    is being played."""
    body = {"group_id": "@g", "generation_id": generation, "member_id": member_id, **more}
    return Ask("Heartbeat", body, on=on)


def rebalancing(member_id: str = "$m", generation: int | str = "$gen", on: str = "a") -> Ask:
    """Wait until a member learns that its group rebalances."""
    body = {"group_id": "@g", "generation_id": generation, "member_id": member_id}
    return Ask("Heartbeat", body, on=on, version=4, until={"error_code": "REBALANCE_IN_PROGRESS"})


def described(*names: str, version: int | None = 6) -> Ask:
    """A DescribeGroups request; its answer shows the states of the groups."""
    return Ask("DescribeGroups", {"groups": list(names or ("@g",))}, version=version)


def joined(protocols: Sequence[tuple[str, Any]] = RANGE, **more: Any) -> list[Step]:
    """Bring a group into CompletingRebalance: its only member `$m` has joined, but not synced."""
    body = join_body(protocols=protocols, **more)
    return [
        *group(body["group_id"]),
        Ask(
            *("JoinGroup", body),
            version=5 if "group_instance_id" in more else 3,
            quiet=True,
            save={"m": "member_id", "gen": "generation_id"},
        ),
    ]


def stable(protocols: Sequence[tuple[str, Any]] = RANGE, **more: Any) -> list[Step]:
    """Bring a group into Stable: its only member `$m` has the assignment 0xaa."""
    given = {"group_id": more.get("group_id", "@g")}
    body = sync_body(assignments={"$m": b"\xaa"}, protocol_name=protocols[0][0], **given)
    return [*joined(protocols, **more), Ask("SyncGroup", body, version=3, quiet=True)]


def empty() -> list[Step]:
    """Bring a group into Empty: its only member `$m` has left."""
    body = {"group_id": "@g", "member_id": "$m", "members": [{"member_id": "$m"}]}
    return [*stable(), Ask("LeaveGroup", body, version=4, quiet=True)]


def preparing() -> list[Step]:
    """Bring a group into PreparingRebalance.

    The member `$m` has synced. The JoinGroup request of another member, on connection b, waits
    until `$m` joins again.
    """
    return [*stable(), Send(Ask("JoinGroup", join_body(), on="b", version=3)), rebalancing()]


def two_joined() -> list[Step]:
    """Bring a group into CompletingRebalance, with the leader `$m` (connection a) and the follower
    `$n` (connection b)."""
    saved = {"n": "member_id", "gen": "generation_id"}
    return [
        *stable(),
        Send(Ask("JoinGroup", join_body(), on="b", version=3, quiet=True, save=saved)),
        rebalancing(),
        Ask("JoinGroup", join_body("$m"), version=3, quiet=True),
        Receive("b"),
    ]


def two_stable() -> list[Step]:
    """Bring a group into Stable, with the leader `$m` and the follower `$n`."""
    assignments = {"$m": b"\xaa", "$n": b"\xbb"}
    return [
        *two_joined(),
        Ask("SyncGroup", sync_body(assignments=assignments), version=3, quiet=True),
        Ask("SyncGroup", sync_body("$n"), on="b", version=3, quiet=True),
    ]
