"""Steps for scenarios about groups: bodies of requests, and steps that lead to a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.script import Ask, Receive, Send, Step, coordinator

#: Long enough that no session ends while a scenario plays.
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
    assignments: Mapping[str, bytes] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The body of a SyncGroup request; `assignments` are those that a leader makes."""
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
    """A recorded Heartbeat, in the present version if the scenario is about Heartbeat."""
    body = {"group_id": "@g", "generation_id": generation, "member_id": member_id, **more}
    return Ask("Heartbeat", body, on=on)


def rebalancing(member_id: str = "$m", generation: int | str = "$gen", on: str = "a") -> Ask:
    """Wait until a member learns that its group rebalances."""
    body = {"group_id": "@g", "generation_id": generation, "member_id": member_id}
    return Ask("Heartbeat", body, on=on, version=4, until={"error_code": "REBALANCE_IN_PROGRESS"})


def described(*names: str, version: int | None = 6) -> Ask:
    """A DescribeGroups request, which shows the state."""
    return Ask("DescribeGroups", {"groups": list(names or ("@g",))}, version=version)


def joined(protocols: Sequence[tuple[str, Any]] = RANGE, **more: Any) -> list[Step]:
    """A group whose only member `$m` has joined but not synced: CompletingRebalance."""
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
    """A Stable group with one member, `$m`, which has the assignment 0xaa."""
    given = {"group_id": more.get("group_id", "@g")}
    body = sync_body(assignments={"$m": b"\xaa"}, protocol_name=protocols[0][0], **given)
    return [*joined(protocols, **more), Ask("SyncGroup", body, version=3, quiet=True)]


def empty() -> list[Step]:
    """A group whose only member, `$m`, has left: Empty."""
    body = {"group_id": "@g", "member_id": "$m", "members": [{"member_id": "$m"}]}
    return [*stable(), Ask("LeaveGroup", body, version=4, quiet=True)]


def preparing() -> list[Step]:
    """PreparingRebalance: `$m` is Stable, and another member's join (due on b) waits for it."""
    return [*stable(), Send(Ask("JoinGroup", join_body(), on="b", version=3)), rebalancing()]


def two_joined() -> list[Step]:
    """CompletingRebalance, with the leader `$m` on a, the follower `$n` on b."""
    saved = {"n": "member_id", "gen": "generation_id"}
    return [
        *stable(),
        Send(Ask("JoinGroup", join_body(), on="b", version=3, quiet=True, save=saved)),
        rebalancing(),
        Ask("JoinGroup", join_body("$m"), version=3, quiet=True),
        Receive("b"),
    ]


def two_stable() -> list[Step]:
    """Stable, with the leader `$m` and the follower `$n`."""
    assignments = {"$m": b"\xaa", "$n": b"\xbb"}
    return [
        *two_joined(),
        Ask("SyncGroup", sync_body(assignments=assignments), version=3, quiet=True),
        Ask("SyncGroup", sync_body("$n"), on="b", version=3, quiet=True),
    ]
