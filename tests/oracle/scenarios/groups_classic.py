"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup in every state."""

from __future__ import annotations

from typing import Any

from tests.oracle.group_steps import (
    described,
    empty,
    group,
    heartbeat,
    join_body,
    joined,
    preparing,
    rebalancing,
    stable,
    sync_body,
    two_joined,
    two_stable,
)
from tests.oracle.script import Ask, Close, Receive, Send, scenarios_of

_SAVE = {"m": "member_id", "gen": "generation_id"}
_TWO = (("range", b"\x01"), ("roundrobin", b"\x02"))


def _join(member_id: str = "", on: str = "a", **more: Any) -> Ask:
    return Ask("JoinGroup", join_body(member_id, **more), on=on, save=_SAVE)


def _static(instance: str = "i", member_id: str = "", on: str = "a", **more: Any) -> Ask:
    body = join_body(member_id, group_instance_id=instance, **more)
    return Ask("JoinGroup", body, on=on, save=_SAVE)


def _sync(member_id: str = "$m", on: str = "a", **more: Any) -> Ask:
    return Ask("SyncGroup", sync_body(member_id, **more), on=on)


def _leave(*members: dict[str, Any], version: int | None = None, **more: Any) -> Ask:
    first = members[0].get("member_id", "") if members else ""
    body = {"group_id": "@g", "member_id": first, "members": list(members), **more}
    return Ask("LeaveGroup", body, version=version)


_JOIN = scenarios_of(
    {
        ("join-first", "JoinGroup"): [*group(), _join()],
        ("join-with-the-id-given", "JoinGroup", "4-9"): [
            *group(),
            _join(),
            _join("$m"),
            described(),
            _join("$m"),
        ],
        ("join-refused", "JoinGroup"): [
            *group(),
            _join(group_id=""),
            _join("no-such-member"),
            _join(session_timeout_ms=5_999),
            _join(session_timeout_ms=1_800_001),
            _join(session_timeout_ms=0),
            _join(session_timeout_ms=-1),
            _join(protocol_type=""),
            _join(protocols=()),
            _join(protocols=(("", b""),)),
            described(),
        ],
        ("join-session-timeouts-at-the-bounds", "JoinGroup", "3-9"): [
            *group(),
            _join(session_timeout_ms=6_000),
            *group("@h"),
            _join(session_timeout_ms=1_800_000, group_id="@h"),
        ],
        ("join-rebalance-timeouts", "JoinGroup", "3-3"): [
            *group(),
            _join(rebalance_timeout_ms=0),
            *group("@h"),
            _join(rebalance_timeout_ms=-5, group_id="@h"),
        ],
        ("join-other-protocols", "JoinGroup"): [
            *stable(_TWO),
            Ask("JoinGroup", join_body(protocol_type="connect")),
            Ask("JoinGroup", join_body(protocols=(("sticky", b""),))),
            Ask("JoinGroup", join_body(protocols=())),
            Ask("JoinGroup", join_body(protocol_type="")),
            Ask("JoinGroup", join_body("$m", protocol_type="connect")),
            Ask("JoinGroup", join_body("$m", protocols=())),
            described(),
        ],
        ("join-again-as-the-only-member", "JoinGroup"): [
            *stable(),
            _join("$m"),
            described(),
            _sync(),
            described(),
            _join("$m", protocols=_TWO),
            described(),
        ],
        ("join-protocol-of-another-name", "JoinGroup"): [
            *stable(),
            _join("$m", protocols=(("sticky", b"\x05"),)),
            described(),
        ],
        ("join-again-while-completing", "JoinGroup"): [
            *joined(),
            _join("$m"),
            described(),
            _join("$m", protocols=_TWO),
            described(),
        ],
        ("join-in-an-empty-group", "JoinGroup"): [
            *empty(),
            Ask("JoinGroup", join_body("$m")),
            Ask("JoinGroup", join_body(protocol_type="connect")),
            described(),
            _join(protocols=_TWO),
        ],
        ("join-follower-again-in-stable", "JoinGroup"): [
            *two_stable(),
            Ask("JoinGroup", join_body("$n"), on="b"),
            described(),
            heartbeat(),
        ],
        ("join-follower-changed-in-stable", "JoinGroup"): [
            *two_stable(),
            Send(Ask("JoinGroup", join_body("$n", protocols=_TWO), on="b")),
            rebalancing(),
            Ask("JoinGroup", join_body("$m", protocols=_TWO)),
            Receive("b"),
            described(),
        ],
        ("join-leader-again-in-stable", "JoinGroup"): [
            *two_stable(),
            Send(Ask("JoinGroup", join_body("$m"))),
            rebalancing("$n", on="b"),
            Ask("JoinGroup", join_body("$n"), on="b"),
            Receive("a"),
        ],
        ("join-follower-again-while-completing", "JoinGroup"): [
            *two_joined(),
            Ask("JoinGroup", join_body("$n"), on="b"),
            described(),
        ],
        ("join-leader-again-while-completing", "JoinGroup"): [
            *two_joined(),
            Ask("JoinGroup", join_body("$m")),
            described(),
        ],
        ("join-follower-changed-while-completing", "JoinGroup"): [
            *two_joined(),
            Send(Ask("JoinGroup", join_body("$n", protocols=_TWO), on="b")),
            rebalancing(),
            Ask("JoinGroup", join_body("$m")),
            Receive("b"),
        ],
        ("join-parked-twice", "JoinGroup", "5-9"): [
            *two_stable(),
            Send(Ask("JoinGroup", join_body("$n", protocols=_TWO), on="b")),
            rebalancing(),
            Send(Ask("JoinGroup", join_body("$n", protocols=_TWO), on="c")),
            described(),
            Ask("JoinGroup", join_body("$m")),
            Receive("c"),
            Close("b"),
        ],
        ("join-parked-member-leaves", "JoinGroup"): [
            *two_stable(),
            Send(Ask("JoinGroup", join_body("$n", protocols=_TWO), on="b")),
            rebalancing(),
            _leave({"member_id": "$n"}, version=3),
            Receive("b"),
            described(),
        ],
        ("join-pending-blocks-the-others", "JoinGroup", "4-9"): [
            *stable(),
            Ask("JoinGroup", join_body(), on="b", save={"n": "member_id"}),
            heartbeat(),
            described(),
            Send(Ask("JoinGroup", join_body("$n"), on="b")),
            rebalancing(),
            Ask("JoinGroup", join_body("$m")),
            Receive("b"),
        ],
        ("join-votes-for-a-protocol", "JoinGroup", "0-3"): [
            *stable(_TWO),
            Send(
                Ask(
                    "JoinGroup",
                    join_body(protocols=(("roundrobin", b"\x03"), ("range", b"\x04"))),
                    on="b",
                    save={"n": "member_id"},
                )
            ),
            rebalancing(),
            Ask("JoinGroup", join_body("$m", protocols=(("roundrobin", b"\x05"),))),
            Receive("b"),
            described(),
        ],
        ("join-leader-is-gone", "JoinGroup"): [
            *two_stable(),
            _leave({"member_id": "$m"}, version=3),
            rebalancing("$n", on="b"),
            Ask("JoinGroup", join_body("$n"), on="b"),
            described(),
        ],
        ("join-pipelined", "JoinGroup"): [
            *group(),
            Send(Ask("JoinGroup", join_body(group_id="@g"))),
            Send(Ask("JoinGroup", join_body(group_id=""))),
            Send(Ask("JoinGroup", join_body("nobody"))),
            Receive(),
            Receive(),
            Receive(),
        ],
        ("join-rubbish", "JoinGroup", "0-3"): [
            *group(),
            _join(protocols=(("range", b""),)),
            described(),
        ],
    }
)

_STATIC = scenarios_of(
    {
        ("static-join", "JoinGroup", "5-9"): [
            *group(),
            _static(),
            described(),
            Ask("JoinGroup", join_body("$m")),
        ],
        ("static-join-again-with-its-id", "JoinGroup", "5-9"): [
            *stable(group_instance_id="i"),
            _static(member_id="$m"),
            described(),
        ],
        ("static-replaced-in-stable", "JoinGroup", "5-9"): [
            *stable(group_instance_id="i"),
            Ask(
                "JoinGroup",
                join_body(group_instance_id="i"),
                on="b",
                save={"n": "member_id", "gen": "generation_id"},
            ),
            Ask("Heartbeat", {"group_id": "@g", "generation_id": "$gen", "member_id": "$m"}),
            Ask(
                "Heartbeat",
                {
                    "group_id": "@g",
                    "generation_id": "$gen",
                    "member_id": "$m",
                    "group_instance_id": "i",
                },
            ),
            Ask(
                "Heartbeat",
                {
                    "group_id": "@g",
                    "generation_id": "$gen",
                    "member_id": "$n",
                    "group_instance_id": "i",
                },
            ),
            Ask("JoinGroup", join_body("$m", group_instance_id="i")),
            Ask("SyncGroup", sync_body("$m", group_instance_id="i")),
            Ask("SyncGroup", sync_body("$n", group_instance_id="i")),
            described(),
        ],
        ("static-replaced-with-other-metadata", "JoinGroup", "5-9"): [
            *stable(group_instance_id="i"),
            Ask("JoinGroup", join_body(protocols=_TWO, group_instance_id="i"), on="b"),
            described(),
        ],
        ("static-replaced-while-completing", "JoinGroup", "5-9"): [
            *joined(group_instance_id="i"),
            Ask("JoinGroup", join_body(group_instance_id="i"), on="b"),
            Ask("SyncGroup", sync_body("$m", group_instance_id="i")),
            described(),
        ],
        ("static-unknown", "JoinGroup", "5-9"): [
            *stable(group_instance_id="i"),
            Ask("JoinGroup", join_body("$m", group_instance_id="j")),
            Ask("JoinGroup", join_body("nobody", group_instance_id="i")),
            Ask("JoinGroup", join_body("nobody", group_instance_id="j")),
            Ask("JoinGroup", join_body("$m", group_instance_id="")),
            described(),
        ],
        ("static-fenced-heartbeat", "Heartbeat", "3-4"): [
            *stable(group_instance_id="i"),
            heartbeat(group_instance_id="i"),
            heartbeat("nobody", group_instance_id="i"),
            heartbeat(group_instance_id="j"),
            heartbeat(generation=7, group_instance_id="i"),
            heartbeat("nobody", generation=7, group_instance_id="i"),
            heartbeat(),
            heartbeat("", group_instance_id="i"),
        ],
        ("static-fenced-sync", "SyncGroup", "3-5"): [
            *stable(group_instance_id="i"),
            _sync(group_instance_id="i"),
            _sync("nobody", group_instance_id="i"),
            _sync(group_instance_id="j"),
            _sync("nobody", generation=7, group_instance_id="i"),
        ],
        ("static-leaves", "LeaveGroup", "3-5"): [
            *stable(group_instance_id="i"),
            _leave({"member_id": "nobody", "group_instance_id": "i"}),
            _leave({"member_id": "$m", "group_instance_id": "j"}),
            _leave({"member_id": "", "group_instance_id": "j"}),
            described(),
            _leave({"member_id": "", "group_instance_id": "i", "reason": "removed"}),
            described(),
            _leave({"member_id": "", "group_instance_id": "i"}),
        ],
    }
)

_SYNC = scenarios_of(
    {
        ("sync-leader", "SyncGroup"): [
            *joined(),
            _sync(assignments={"$m": b"\xaa"}),
            _sync(),
            _sync(assignments={"$m": b"\xbb"}),
            described(),
        ],
        ("sync-without-assignments", "SyncGroup"): [*joined(), _sync(), described()],
        ("sync-assigns-to-strangers", "SyncGroup"): [
            *joined(),
            _sync(assignments={"nobody": b"\x01", "$m": b"\xaa", "": b"\x02"}),
            described(),
        ],
        ("sync-assigns-twice", "SyncGroup"): [
            *joined(),
            Ask(
                "SyncGroup",
                {
                    **sync_body(),
                    "assignments": [
                        {"member_id": "$m", "assignment": b"\x01"},
                        {"member_id": "$m", "assignment": b"\x02"},
                    ],
                },
            ),
        ],
        ("sync-refused", "SyncGroup"): [
            *joined(),
            _sync(group_id=""),
            _sync(group_id="@unknown"),
            _sync("nobody"),
            _sync(""),
            _sync(generation=-1),
            _sync(generation=2),
            _sync(generation=0),
            _sync("nobody", generation=2),
            described(),
        ],
        ("sync-other-protocol", "SyncGroup", "5"): [
            *joined(),
            _sync(protocol_type="connect"),
            _sync(protocol_name="roundrobin"),
            _sync(protocol_type=None),
            _sync(protocol_name=None),
            _sync(protocol_type="", protocol_name=""),
            _sync(protocol_type=None, protocol_name=None, generation=9),
            _sync("nobody", protocol_type="connect"),
            described(),
        ],
        ("sync-follower-waits", "SyncGroup"): [
            *two_joined(),
            Send(_sync("$n", on="b", assignments={"$n": b"\x09"})),
            described(),
            _sync(assignments={"$m": b"\xaa", "$n": b"\xbb"}),
            Receive("b"),
            described(),
        ],
        ("sync-leaves-the-follower-out", "SyncGroup"): [
            *two_joined(),
            Send(_sync("$n", on="b")),
            _sync(assignments={"$m": b"\xaa"}),
            Receive("b"),
            _sync("$n", on="b"),
        ],
        ("sync-while-preparing", "SyncGroup"): [
            *preparing(),
            _sync(),
            _sync(generation=5),
            _sync("nobody"),
        ],
        ("sync-parked-when-the-group-rebalances", "SyncGroup"): [
            *two_joined(),
            Send(_sync("$n", on="b")),
            _leave({"member_id": "$m"}, version=3),
            Receive("b"),
            described(),
        ],
        ("sync-in-empty-and-dead", "SyncGroup"): [
            *empty(),
            _sync(),
            _sync("nobody"),
            _sync(""),
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            _sync(),
        ],
        ("sync-pipelined-behind-join", "SyncGroup"): [
            *stable(),
            Send(Ask("JoinGroup", join_body("$m"), version=3)),
            Send(_sync(generation=2, assignments={"$m": b"\xcc"})),
            Send(heartbeat(generation=2)),
            Receive(),
            Receive(),
            Receive(),
        ],
    }
)

_HEARTBEAT = scenarios_of(
    {
        ("heartbeat-stable", "Heartbeat"): [
            *stable(),
            heartbeat(),
            heartbeat(generation=0),
            heartbeat(generation=2),
            heartbeat(generation=-1),
            heartbeat("nobody"),
            heartbeat(""),
            heartbeat(group_id=""),
            heartbeat(group_id="@unknown"),
            heartbeat(group_id="@unknown", generation=-1),
        ],
        ("heartbeat-completing", "Heartbeat"): [
            *joined(),
            heartbeat(),
            heartbeat(generation=2),
            heartbeat("nobody"),
        ],
        ("heartbeat-preparing", "Heartbeat"): [
            *preparing(),
            heartbeat(),
            heartbeat(generation=2),
            heartbeat("nobody"),
        ],
        ("heartbeat-empty-and-dead", "Heartbeat"): [
            *empty(),
            heartbeat(),
            heartbeat(""),
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            heartbeat(),
        ],
        ("heartbeat-of-a-pending-member", "Heartbeat"): [
            *stable(),
            Ask("JoinGroup", join_body(), on="b", version=4, save={"n": "member_id"}),
            heartbeat("$n", on="b"),
            heartbeat("$n", generation=-1, on="b"),
        ],
    }
)

_LEAVE = scenarios_of(
    {
        ("leave-last", "LeaveGroup"): [
            *stable(),
            _leave({"member_id": "nobody"}),
            _leave({"member_id": "$m", "reason": "bye"}),
            described(),
            _leave({"member_id": "$m"}),
        ],
        ("leave-refused", "LeaveGroup"): [
            *stable(),
            _leave({"member_id": "$m"}, group_id=""),
            _leave({"member_id": "$m"}, group_id="@unknown"),
            _leave({"member_id": ""}),
            described(),
        ],
        ("leave-several", "LeaveGroup", "3-5"): [
            *two_stable(),
            _leave(
                {"member_id": "$n"},
                {"member_id": "nobody"},
                {"member_id": "$n"},
                {"member_id": "", "group_instance_id": "i"},
            ),
            described(),
            _leave({"member_id": "$m"}, {"member_id": "$n"}),
            described(),
        ],
        ("leave-nobody", "LeaveGroup", "3-5"): [*stable(), _leave(), described()],
        ("leave-while-completing", "LeaveGroup"): [
            *two_joined(),
            _leave({"member_id": "$n"}),
            described(),
            heartbeat(),
        ],
        ("leave-completes-the-join-phase", "LeaveGroup"): [
            *preparing(),
            _leave({"member_id": "$m"}),
            Receive("b"),
            described(),
        ],
        ("leave-pending", "LeaveGroup"): [
            *stable(),
            Ask("JoinGroup", join_body(), on="b", version=4, save={"n": "member_id"}),
            _leave({"member_id": "$n"}),
            Ask("JoinGroup", join_body("$n"), on="b", version=4),
            described(),
        ],
        ("leave-empty-and-dead", "LeaveGroup"): [
            *empty(),
            _leave({"member_id": "$m"}),
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            _leave({"member_id": "$m"}),
            _leave({"member_id": ""}),
        ],
    }
)

_UNTIL_EMPTY = Ask(
    "DescribeGroups", {"groups": ["@g"]}, version=5, until={"groups.0.group_state": "Empty"}
)

_TIME = scenarios_of(
    {
        ("join-phase-ends-without-a-member", "JoinGroup", "1-3"): [
            *stable(rebalance_timeout_ms=1_000),
            Send(
                Ask(
                    "JoinGroup",
                    join_body(rebalance_timeout_ms=1_000),
                    on="b",
                    save={"n": "member_id"},
                )
            ),
            rebalancing(),
            Receive("b"),
            heartbeat(),
            described(),
        ],
        ("sync-phase-ends-without-a-member", "SyncGroup"): [
            *joined(rebalance_timeout_ms=1_000),
            _UNTIL_EMPTY,
            _sync(assignments={"$m": b"\xaa"}),
            heartbeat(),
        ],
        ("session-ends", "Heartbeat", "4"): [
            *stable(session_timeout_ms=6_000),
            _UNTIL_EMPTY,
            heartbeat(),
        ],
    }
)

SCENARIOS = [*_TIME, *_JOIN, *_STATIC, *_SYNC, *_HEARTBEAT, *_LEAVE]
