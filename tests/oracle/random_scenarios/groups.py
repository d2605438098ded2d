"""Members of a group and its committed offsets, for classic groups and for groups of KIP-848."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.oracle.group_steps import described, group, heartbeat, join_body, sync_body
from tests.oracle.random_scenarios.versions import any_version
from tests.oracle.scenarios.groups_consumer import (
    CONSUMER_GROUP,
    TOPICS_KNOWN,
    consumer_described,
    consumer_heartbeat,
    owned,
)
from tests.oracle.scenarios.offsets import (
    commit_offsets,
    delete_groups,
    delete_offsets,
    fetch_offsets,
)
from tests.oracle.script import Ask, Receive, Send, Step, Wait, topic

# --- Committed offsets, and a single member ---

_OFFSET_KINDS = (
    *("commit", "commit", "fetch", "fetch", "delete", "join", "leave", "drop", "show", "beat"),
    "sync",
)


def offsets(random: Random) -> list[Step]:
    """Commit offsets as a member, as another client, and without a group; sometimes the
    group is deleted."""
    steps: list[Step] = [*topic(partitions=2), *topic("@u"), *group()]
    joined = False
    for _ in range(random.randint(5, 16)):
        match random.choice(_OFFSET_KINDS):
            case "commit":
                steps.append(_commit(random, joined))
            case "fetch":
                steps.append(_fetch(random))
            case "delete":
                # Our broker deletes a group without members when its last offset is deleted.
                name = random.choice(["@t", "@u"]) if joined else "@absent"
                steps.append(delete_offsets((name, (random.randint(0, 2),))))
            case "join":
                # A second member's join would wait for the first member.
                if joined and random.random() < 0.5:
                    steps.append(_join(random, "$m"))
                elif not joined:
                    steps.append(_join(random, ""))
                    joined = True
            case "sync" if joined:
                body = sync_body(assignments={"$m": b"\xaa"})
                steps.append(any_version(random, Ask("SyncGroup", body)))
            case "beat" if joined:
                steps.append(any_version(random, heartbeat()))
            case "leave" if joined:
                steps.append(any_version(random, Ask("LeaveGroup", _leave_body("$m"))))
                joined = random.random() < 0.3
            case "drop":
                steps.append(any_version(random, delete_groups("@g")))
            case "show":
                steps.append(any_version(random, described(version=None)))
    return steps


def _commit(random: Random, joined: bool) -> Ask:
    given = []
    for _ in range(random.randint(1, 2)):
        position = (random.randint(0, 2), random.randint(-1, 9), random.choice(["", "m", None]))
        given.append((random.choice(["@t", "@t", "@u", "@absent"]), [position]))
    by: dict[str, Any] = {}
    if joined:
        by = {"member_id": "$m", "generation": "$gen"}
    if random.random() < 0.3:
        by = {"member_id": random.choice(["", "gone"]), "generation": random.randint(-1, 1)}
    return any_version(random, commit_offsets(*given, **by))


def _fetch(random: Random) -> Ask:
    named = random.choice(
        [None, (("@t", (0, 1)),), (("@t", (0, 5)), ("@u", (0,))), (("@absent", (0,)),)]
    )
    ask = fetch_offsets(named, require_stable=random.random() < 0.3)
    return any_version(random, ask, first=2 if named is None else 1)


def _join(random: Random, member_id: str) -> Ask:
    body = join_body(member_id)
    static = random.random() < 0.3
    if static:
        body["group_instance_id"] = "i"
    ask = Ask("JoinGroup", body, save={"m": "member_id", "gen": "generation_id"})
    if member_id:
        return replace(ask, version=random.randint(5 if static else 0, 9))
    # From version 4 on, a dynamic member is added only by its second JoinGroup request. After the
    # first request, Kafka already has a group, which does not have the member yet.
    return replace(ask, version=9 if static else random.choice([0, 3]))


def _leave_body(member_id: str) -> dict[str, Any]:
    return {"group_id": "@g", "member_id": member_id, "members": [{"member_id": member_id}]}


# --- Two classic members ---

#: If equally many members prefer each of two protocols, Kafka chooses one arbitrarily.
_PROTOCOLS = (
    (("range", b"\x01"),),
    (("range", b"\x02"), ("sticky", b"\x03")),
    (("sticky", b"\x04"),),
)
_CLASSIC_KINDS = (
    *("join", "join", "join", "sync", "sync", "receive", "beat", "leave", "commit", "show"),
    "fetch",
)


def classic(random: Random) -> list[Step]:
    """Two members of a classic group: the joins and syncs of each member wait for the other
    member."""
    return _Classic(random).steps()


class _Classic:
    """Two members of a classic group, on the connections a and b.

    The broker answers the requests of a connection in order, so a member's requests other than
    joins and syncs use the third connection c. `_due`: the connections on which an answer is still
    missing.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._due: set[str] = set()
        self._known: set[str] = set()
        self._static = {on for on in "ab" if random.random() < 0.2}

    def steps(self) -> list[Step]:
        steps: list[Step] = [*topic(), *group()]
        for _ in range(self._random.randint(6, 16)):
            steps += self._step(self._random.choice("ab"))
        steps += [Receive(on) for on in sorted(self._due)]
        return [*steps, replace(described(version=5), on="c")]

    def _step(self, on: str) -> list[Step]:
        random = self._random
        kind = random.choice(_CLASSIC_KINDS)
        if kind in ("show", "fetch"):
            ask = described(version=None) if kind == "show" else fetch_offsets()
            return [any_version(random, replace(ask, on="c"), first=2)]
        if on in self._due:
            if kind != "receive":
                return []
            self._due.discard(on)
            return [Receive(on)]
        if kind == "join":
            return self._join(on)
        if on not in self._known:
            return []
        member, generation = f"${on}m", f"${on}g"
        asks: dict[str, Callable[[], Ask]] = {
            "beat": lambda: heartbeat(member, generation, on="c"),
            "leave": lambda: Ask("LeaveGroup", _leave_body(member), on="c"),
            "commit": lambda: replace(
                commit_offsets(("@t", [(0, 3)]), member_id=member, generation=generation), on="c"
            ),
        }
        if kind in asks:
            return [any_version(random, asks[kind]())]
        if kind != "sync":
            return []
        self._due.add(on)
        body = sync_body(member, generation, assignments={member: b"\xaa"})
        # The wait lets this request arrive before the next request on another connection.
        return [Send(any_version(random, Ask("SyncGroup", body, on=on))), Wait(60)]

    def _join(self, on: str) -> list[Step]:
        random = self._random
        known = on in self._known
        body = join_body(
            f"${on}m" if known and random.random() < 0.9 else "",
            random.choices(_PROTOCOLS, (4, 4, 1))[0],
            rebalance_timeout_ms=1_500,
            session_timeout_ms=10_000,
        )
        first = 1
        if on in self._static:
            body["group_instance_id"] = on
            first = 5
        save = {f"{on}m": "member_id", f"{on}g": "generation_id"}
        # Before version 4, the first join already adds the member and returns its id.
        versions = [max(first, 3)] if not known else [max(first, 3), random.randint(first, 9), 9]
        ask = Ask("JoinGroup", body, on=on, save=save, version=random.choice(versions))
        if known:
            self._due.add(on)
            return [Send(ask), Wait(60)]
        self._known.add(on)
        return [Send(ask), Wait(60), Receive(on)]


# --- Two members with the consumer protocol ---

_SUBSCRIPTIONS: tuple[list[str], ...] = (["@u"], ["@t", "@u"], ["@t"], [])
_CONSUMER_KINDS = (
    *("join", "beat", "beat", "beat", "beat", "leave", "show", "commit", "fetch", "other"),
)


def consumer(random: Random) -> list[Step]:
    """Two members of a consumer group; each reports the partitions that it owns, sometimes wrong
    ones."""
    steps: list[Step] = [*CONSUMER_GROUP, *topic("@u"), TOPICS_KNOWN]
    epochs: dict[str, str] = {}
    for number in range(random.randint(5, 14)):
        member = random.choice(("@m", "@n"))
        name = f"e{number}"
        match random.choice(_CONSUMER_KINDS):
            case "join":
                steps.append(_join_consumer(random, member, name, again=member in epochs))
                epochs[member] = f"${name}"
            case "beat" if member in epochs:
                steps.append(_beat(random, member, epochs[member], name))
                if random.random() < 0.9:
                    epochs[member] = f"${name}"
            case "leave" if member in epochs:
                more: dict[str, Any] = {"instance_id": "i"} if random.random() < 0.3 else {}
                leaves = consumer_heartbeat(member, random.choice([-1, -1, -2]), **more)
                steps.append(replace(leaves, version=1))
            case "show":
                steps.append(replace(consumer_described(), version=1))
            case "commit" if member in epochs:
                ask = commit_offsets(("@t", [(0, 3)]), member_id=member, generation=epochs[member])
                steps.append(any_version(random, ask))
            case "fetch":
                steps.append(any_version(random, fetch_offsets((("@t", (0, 1)),)), first=8))
            case "other":
                asks = [described(version=None), delete_groups("@g"), heartbeat(member, 1)]
                steps.append(any_version(random, random.choice(asks)))
    return steps


def _join_consumer(random: Random, member: str, name: str, *, again: bool) -> Ask:
    more: dict[str, Any] = {}
    # Kafka refuses a static member that joins again.
    if random.random() < 0.3 and not again:
        more["instance_id"] = random.choice("ij")
    if random.random() < 0.3:
        more["server_assignor"] = random.choice(["range", "uniform", "odd"])
    if random.random() < 0.3:
        more["subscribed_topic_names"] = random.choice(_SUBSCRIPTIONS)
    return replace(consumer_heartbeat(member, save={name: "member_epoch"}, **more), version=1)


def _beat(random: Random, member: str, epoch: str, name: str) -> Ask:
    more: dict[str, Any] = {}
    if random.random() < 0.5:
        more["topic_partitions"] = owned(*random.choice([(), (0,), (1,), (0, 1)]))
    if random.random() < 0.2:
        more["subscribed_topic_names"] = random.choice(_SUBSCRIPTIONS)
    epoch += random.choice(["", "", "", "", "-1", "+1"])
    ask = consumer_heartbeat(member, epoch, save={name: "member_epoch"}, **more)
    return replace(ask, version=1)
