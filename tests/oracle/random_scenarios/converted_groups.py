"""A group with members of both protocols, which the coordinator converts from one protocol to the
other (KIP-848)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.oracle.group_steps import described, group, heartbeat, join_body, sync_body
from tests.oracle.random_scenarios.versions import any_version
from tests.oracle.scenarios.groups_consumer import (
    TOPICS_KNOWN,
    consumer_described,
    consumer_heartbeat,
    owned,
)
from tests.oracle.scenarios.offsets import commit_offsets, fetch_offsets
from tests.oracle.script import Ask, Assigned, Receive, Send, Step, Subscribed, Wait, topic

_KINDS = (
    *("join", "join", "join", "sync", "sync", "classic-beat", "classic-leave", "receive"),
    *("enter", "enter", "beat", "beat", "beat", "leave", "show", "commit", "fetch"),
)
_SUBSCRIPTIONS: tuple[list[str], ...] = (["@t"], ["@t"], ["@t", "@u"], ["@u"])
#: The assignments of classic members in DescribeGroups.
ASSIGNMENTS = "groups.*.members.*.member_assignment"
#: The limit of the classic members for a rebalance, longer than a scenario takes.
_REBALANCE_MS = 6_000


def converted(random: Random) -> list[Step]:
    """Two classic members and two of KIP-848 in one group."""
    return _Converted(random).steps()


class _Converted:
    """The classic members have the connections a and b; all requests but their joins and syncs use
    connection c. `_due`: the connections on which an answer is still missing. `_known`: the
    connections whose members have joined. `_epochs`: the members of KIP-848 and their epochs.
    `_owned`: the partitions that a classic leader last assigned, by connection.

    The range assignor sorts static members by their instance ids, and dynamic members by their
    member ids, which the broker may choose. There is at most one dynamic member, so that each run
    has the same assignments.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._instances = {"b": "i"} | random.choice([{"a": "h"}, {"@m": "m", "@n": "n"}])
        if "a" in self._instances:
            self._instances["@n"] = "n"
        self._was_modern = False
        self._due: set[str] = set()
        self._known: set[str] = set()
        self._epochs: dict[str, str] = {}
        self._owned: dict[str, dict[str, list[int]]] = {}

    def steps(self) -> list[Step]:
        steps: list[Step] = [*topic(partitions=2), *topic("@u"), *group(), TOPICS_KNOWN]
        for number in range(self._random.randint(6, 18)):
            steps += self._step(f"e{number}")
            classic = self._known | self._due
            if self._was_modern and not self._epochs:
                # After a conversion to a classic group, our broker shows the partitions that the
                # members have, and Kafka those that they were to get. In our broker the epochs of
                # an empty group continue, in Kafka they start over.
                shown = replace(described(version=6), ignore=(ASSIGNMENTS,), on="c")
                return [*steps, *self._received(), shown] if classic else steps
            self._was_modern |= bool(self._epochs)
        return [*steps, *self._received(), *self._show()]

    def _received(self) -> list[Step]:
        return [Receive(on) for on in sorted(self._due)]

    def _show(self) -> list[Step]:
        return [
            replace(consumer_described(), version=1, on="c"),
            replace(described(version=6), on="c"),
        ]

    def _step(self, name: str) -> list[Step]:
        random = self._random
        kind = random.choice(_KINDS)
        on = random.choice("ab")
        if kind == "show":
            # Ids are compared in the order in which answers show them.
            return self._show() if self._due <= self._known else []
        if kind == "fetch":
            return [any_version(random, replace(fetch_offsets(), on="c"), first=2)]
        if kind in ("enter", "beat", "leave"):
            return self._modern(kind, name)
        if kind == "commit" and self._epochs and random.random() < 0.5:
            member, epoch = random.choice(sorted(self._epochs.items()))
            return [any_version(random, self._commit(member, epoch))]
        if on in self._due:
            if kind != "receive":
                return []
            self._due.discard(on)
            self._known.add(on)
            return [Receive(on)]
        if kind == "join":
            return self._join(on)
        if on not in self._known:
            return []
        member, generation = f"${on}m", f"${on}g"
        match kind:
            case "classic-beat":
                return [any_version(random, heartbeat(member, generation, on="c"))]
            case "classic-leave":
                self._known.discard(on)
                self._owned.pop(on, None)
                given = {"group_id": "@g", "member_id": member, "members": [{"member_id": member}]}
                return [any_version(random, Ask("LeaveGroup", given, on="c"))]
            case "commit":
                return [any_version(random, self._commit(member, generation))]
            case "sync":
                return self._sync(on)
        return []

    def _commit(self, member: str, epoch: str) -> Ask:
        ask = commit_offsets(("@t", [(0, 3)]), member_id=member, generation=epoch)
        return replace(ask, on="c")

    def _join(self, on: str) -> list[Step]:
        random = self._random
        topics = random.choice(_SUBSCRIPTIONS)
        known = on in self._known
        claimed = random.choice([None, {}, self._owned.get(on, {})])
        body = join_body(
            f"${on}m" if known else "",
            [("range", Subscribed(topics, claimed))],
            rebalance_timeout_ms=_REBALANCE_MS,
            session_timeout_ms=30_000,
        )
        # From version 4 on, the first join of a dynamic member only gets an id. If the group has no
        # other members, Kafka would keep the group. If it has some, a conversion ends a waiting
        # join that has no id with different errors: our broker returns UNKNOWN_MEMBER_ID, and Kafka
        # REBALANCE_IN_PROGRESS.
        others = bool(self._known | self._due or self._epochs)
        version = random.choice([3, 5, 9]) if known else 9 if others else 3
        if on in self._instances:
            body["group_instance_id"] = self._instances[on]
            version = random.choice([5, 9])
        save = {f"{on}m": "member_id", f"{on}g": "generation_id"}
        ask = Ask("JoinGroup", body, on=on, save=save, version=version)
        if others and not known and on not in self._instances:
            self._known.add(on)
            return [ask]
        self._due.add(on)
        # Before the first generation Kafka cannot convert the group.
        return [Send(ask), Wait(80 if known else 300)]

    def _sync(self, on: str) -> list[Step]:
        random = self._random
        user_data = b"d" if random.random() < 0.1 else None
        shares: list[dict[str, list[int]]] = random.choice(
            [
                [{"@t": [0, 1]}, {"@u": [0]}],
                [{"@t": [0]}, {"@t": [1]}],
                [{"@t": [0, 1], "@u": [0]}, {}],
            ]
        )
        assignments: dict[str, Any] = {
            f"${each}m": Assigned(share, user_data)
            for each, share in zip("ab", shares, strict=True)
            if each in self._known
        }
        self._owned[on] = shares["ab".index(on)]
        self._due.add(on)
        body = sync_body(f"${on}m", f"${on}g", assignments=assignments)
        return [Send(any_version(random, Ask("SyncGroup", body, on=on))), Wait(80)]

    def _modern(self, kind: str, name: str) -> list[Step]:
        random = self._random
        member = random.choice(("@m", "@n"))
        if kind != "enter" and member not in self._epochs:
            return []
        more: dict[str, Any] = {}
        if member in self._instances and kind in ("enter", "leave"):
            more["instance_id"] = self._instances[member]
        save = {name: "member_epoch"}
        if kind == "enter":
            if more and member in self._epochs:
                # Kafka refuses a static member that joins again.
                return []
            more["subscribed_topic_names"] = random.choice(_SUBSCRIPTIONS)
            ask = consumer_heartbeat(member, save=save, server_assignor="range", **more)
        elif kind == "leave":
            epochs = [-1, -1, -2] if more else [-1]
            ask = consumer_heartbeat(member, random.choice(epochs), **more)
        else:
            if random.random() < 0.6:
                more["topic_partitions"] = owned(*random.choice([(), (0,), (1,), (0, 1)]))
            ask = consumer_heartbeat(member, self._epochs[member], save=save, **more)
        if kind != "leave":
            self._epochs[member] = f"${name}"
        else:
            self._epochs.pop(member)
        return [replace(ask, version=1, on="c")]
