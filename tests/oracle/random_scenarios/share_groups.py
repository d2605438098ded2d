"""Members of a share group, its offsets, and the stored states of share partitions."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.oracle.group_steps import group
from tests.oracle.random_scenarios.versions import any_version
from tests.oracle.scenarios.groups_share import (
    all_share_offsets,
    alter_share_offsets,
    delete_share_offsets,
    share_described,
    share_heartbeat,
    share_offsets,
)
from tests.oracle.scenarios.offsets import delete_groups
from tests.oracle.scenarios.share_state import (
    STATES_START,
    STATES_TOPIC,
    delete_state,
    initialize_state,
    read_state,
    read_state_summary,
    write_state,
)
from tests.oracle.script import Batch, Step, Wait, produced, topic

#: Partitions get their states in the background.
_INITIALIZED = Wait(300)
_MEMBER_KINDS = (
    *("join", "beat", "beat", "beat", "leave", "show", "show", "offsets", "alter", "delete"),
    "drop",
)


def share_members(random: Random) -> list[Step]:
    """Members that join, leave and change topics; offsets that are described, set and deleted."""
    # Kafka creates the internal topic for the states when the first state is stored.
    first_state = initialize_state(group_id="@other", quiet=True)
    # Each topic has one partition, because Kafka assigns several partitions to the members in an
    # arbitrary way.
    steps: list[Step] = [*topic(), *topic("@u"), *group(), STATES_TOPIC, first_state]
    steps.append(produced(Batch(["a", "b", "c"])))
    epochs: dict[str, str] = {}
    for number in range(random.randint(5, 14)):
        member, name = random.choice("mn"), f"e{number}"
        save = {name: "member_epoch"}
        match random.choice(_MEMBER_KINDS):
            case "join":
                both = ["@t", "@u"] if member == "m" else ["@t"]
                topics = random.choice([["@t"], ["@u"], both, ["@absent"]])
                joins = share_heartbeat(member, save=save, subscribed_topic_names=topics)
                steps += [joins, _INITIALIZED]
                epochs[member] = f"${name}"
            case "beat" if member in epochs:
                epoch = epochs[member] + random.choice(["", "", "", "-1", "+1"])
                more: dict[str, Any] = {}
                if random.random() < 0.2:
                    more["subscribed_topic_names"] = random.choice([["@t"], ["@u"], []])
                steps += [share_heartbeat(member, epoch, save=save, **more), _INITIALIZED]
                epochs[member] = f"${name}"
            case "leave":
                steps.append(share_heartbeat(member, -1))
            case "show":
                steps.append(share_described())
            case "offsets":
                asks = [all_share_offsets(), share_offsets(("@t", [0]), ("@absent", [0]))]
                steps.append(random.choice(asks))
            case "alter":
                # Kafka cannot delete a group in which an absent partition got an offset.
                starts = {0: random.randint(-1, 4)}
                name = random.choice(["@t", "@t", "@u", "@absent"])
                steps.append(alter_share_offsets((name, starts)))
            case "delete":
                names = random.sample(["@t", "@u", "@absent"], k=random.randint(0, 2))
                steps += [delete_share_offsets(*names), _INITIALIZED]
            case "drop":
                steps.append(any_version(random, delete_groups("@g")))
    return [*steps, share_described(), all_share_offsets()]


_STATE_KINDS = ("write", "write", "write", "write", "read", "read", "summary", "init", "delete")


def share_states(random: Random) -> list[Step]:
    """The states of two share partitions, written with batches that overlap, and read."""
    steps: list[Step] = [*STATES_START]
    for _ in range(random.randint(5, 16)):
        partition = random.choice([0, 0, 0, 1])
        leader_epoch = random.choice([0, 0, 0, 0, 1, 2, -1])
        state_epoch = random.choice([1, 1, 1, 1, 0, 2])
        match random.choice(_STATE_KINDS):
            case "write":
                batches = []
                for _ in range(random.randint(0, 3)):
                    first = random.randint(0, 12)
                    last = first + random.choice([0, 1, 2, 5])
                    batches.append((first, last, random.choice([0, 0, 2, 4]), random.randint(0, 3)))
                ask = write_state(
                    *batches,
                    partition=partition,
                    state_epoch=state_epoch,
                    leader_epoch=leader_epoch,
                    start_offset=random.choice([-1, -1, 0, 2, 5, 9]),
                    complete=random.choice([0, 0, 3]),
                )
            case "read":
                ask = read_state(partition, leader_epoch)
            case "summary":
                ask = read_state_summary(partition, leader_epoch)
            case "init":
                ask = initialize_state(partition, state_epoch, random.choice([-1, 0, 3]))
            case _:
                ask = delete_state(partition)
        steps.append(any_version(random, ask))
    return [*steps, read_state(0, 2), read_state(1, 2)]
