"""Two groups that change between all kinds of groups: classic, consumer, share and streams."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.oracle.group_steps import described, group, heartbeat, join_body, sync_body
from tests.oracle.random_scenarios.converted_groups import ASSIGNMENTS
from tests.oracle.random_scenarios.versions import any_version
from tests.oracle.scenarios.groups_consumer import (
    TOPICS_KNOWN,
    consumer_described,
    consumer_heartbeat,
)
from tests.oracle.scenarios.groups_share import all_share_offsets, share_described, share_heartbeat
from tests.oracle.scenarios.groups_streams import streams_described, streams_heartbeat
from tests.oracle.scenarios.offsets import (
    commit_offsets,
    delete_groups,
    delete_offsets,
    fetch_offsets,
)
from tests.oracle.scenarios.share_state import STATES_TOPIC, initialize_state
from tests.oracle.script import Ask, Assigned, Batch, Step, Subscribed, Wait, produced, topic

_GROUPS = ("g", "g", "g", "h")
#: The time in which a share group's partitions get their states, and lose them.
_INITIALIZED = Wait(300)
_KINDS = (
    *("classic", "classic", "classic", "consumer", "consumer", "share", "share", "streams"),
    *("streams", "commit", "fetch", "list", "list", "describe", "describe", "delete", "offsets"),
)
_STATES = (
    *("Stable", "stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance"),
    *("Assigning", "Reconciling", "assigning", "NotReady", "nonsense", ""),
)
#: In our broker the epochs of an empty group continue; in Kafka they start over. For a
#: classic member that has joined again, our broker shows the partitions that the member reports;
#: Kafka shows the partitions that the member last got.
_IGNORED = (
    *("groups.*.group_epoch", "groups.*.assignment_epoch", "groups.*.members.*.member_epoch"),
    *("groups.*.members.*.assignment_epochs", "groups.*.members.*.assignment"),
)
_TYPES = ("classic", "Classic", "consumer", "share", "streams", "STREAMS", "nonsense", "")


def group_kinds(random: Random) -> list[Step]:
    """Members of all protocols join, stay in and leave two groups, which are described as each
    kind, listed and deleted."""
    first_state = initialize_state(group_id="@other", quiet=True)
    steps: list[Step] = [*topic(), *group("@g"), *group("@h"), STATES_TOPIC, first_state]
    steps += [produced(Batch(["a", "b", "c"])), TOPICS_KNOWN]
    #: The variables of the members' epochs, by the group and the kind.
    epochs: dict[tuple[str, str], str] = {}
    for number in range(random.randint(6, 18)):
        steps += _step(random, f"e{number}", epochs)
    return [*steps, _listed([], []), *(ask for name in "gh" for ask in _descriptions(f"@{name}"))]


def _step(random: Random, name: str, epochs: dict[tuple[str, str], str]) -> list[Step]:
    kind, named = random.choice(_KINDS), random.choice(_GROUPS)
    group_id = f"@{named}"
    match kind:
        case "classic":
            return [_classic(random, named, epochs)]
        case "consumer" | "share" | "streams":
            epoch: int | str = 0
            if (named, kind) in epochs and random.random() < 0.7:
                epoch = -1 if random.random() < 0.5 else epochs[named, kind]
            if epoch == -1:
                del epochs[named, kind]
            else:
                epochs[named, kind] = f"${name}"
            return [_member(kind, epoch, group_id, name), _INITIALIZED]
        case "commit":
            ask = commit_offsets(("@t", [(0, random.randint(0, 5))]), group_id=group_id)
            return [any_version(random, ask)]
        case "fetch":
            ask = fetch_offsets(group_id=group_id)
            return [any_version(random, ask, first=2)]
        case "list":
            states = random.sample(_STATES, k=random.choice([0, 0, 1, 2]))
            types = random.sample(_TYPES, k=random.choice([0, 0, 1, 2]))
            return [_listed(states, types)]
        case "describe":
            return [random.choice(_descriptions(group_id))]
        case "offsets":
            # Our broker deletes a group without members when its last offset is deleted.
            ask = delete_offsets(("@absent", (0,)))
            return [random.choice([ask, all_share_offsets()])]
        case _:
            return [any_version(random, delete_groups(group_id)), _INITIALIZED]


def _classic(random: Random, named: str, epochs: dict[tuple[str, str], str]) -> Ask:
    member, generation, group_id = f"${named}m", f"${named}gen", f"@{named}"
    known = (named, "classic") in epochs
    kinds = ["join", "sync", "sync", "beat", "leave", "leave", "commit"]
    match random.choice(kinds) if known else "join":
        case "join":
            epochs[named, "classic"] = generation
            # The range assignor sorts a static member before a dynamic one, so that each run has
            # the same assignments.
            body = join_body(
                member if known else "",
                [("range", Subscribed(["@t"], {}))],
                group_id=group_id,
                group_instance_id="i",
                rebalance_timeout_ms=60_000,
            )
            save = {f"{named}m": "member_id", f"{named}gen": "generation_id"}
            ignored = ("generation_id",)
            version = random.choice([5, 9])
            return Ask("JoinGroup", body, save=save, version=version, ignore=ignored)
        case "sync":
            assignments: dict[str, Any] = {member: Assigned({"@t": [0]})}
            body = sync_body(member, generation, assignments, group_id=group_id)
            return any_version(random, Ask("SyncGroup", body))
        case "beat":
            return any_version(random, heartbeat(member, generation, group_id=group_id))
        case "commit":
            by = {"member_id": member, "generation": generation, "group_id": group_id}
            return any_version(random, commit_offsets(("@t", [(0, 4)]), **by))
        case _:
            del epochs[named, "classic"]
            body = {"group_id": group_id, "member_id": member, "members": [{"member_id": member}]}
            return any_version(random, Ask("LeaveGroup", body))


def _member(kind: str, epoch: int | str, group_id: str, name: str) -> Ask:
    save = {name: "member_epoch"}
    match kind:
        case "consumer":
            ask = consumer_heartbeat(
                "@m", epoch, save=save, group_id=group_id, server_assignor="range"
            )
            return replace(ask, version=1, ignore=("member_epoch",))
        case "share":
            return share_heartbeat("m", epoch, save=save, group_id=group_id)
        case _:
            return streams_heartbeat("m", epoch, save=save, group_id=group_id)


def _descriptions(group_id: str) -> list[Ask]:
    return [
        replace(described(group_id, version=6), ignore=(ASSIGNMENTS,)),
        replace(consumer_described(group_id), version=1, ignore=_IGNORED),
        share_described(group_id),
        streams_described(group_id),
    ]


def _listed(states: list[str], types: list[str]) -> Ask:
    body = {"states_filter": states, "types_filter": types}
    return Ask("ListGroups", body, version=5, mine=True)
