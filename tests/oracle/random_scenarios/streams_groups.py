"""Members of a streams group (KIP-1071), with their tasks and topologies."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.oracle.group_steps import described, heartbeat
from tests.oracle.random_scenarios.versions import any_version
from tests.oracle.scenarios.groups_streams import (
    STREAMS_START,
    streams_described,
    streams_heartbeat,
    subtopology,
    tasks,
    topology_of,
)
from tests.oracle.scenarios.offsets import commit_offsets, delete_groups, fetch_offsets
from tests.oracle.script import Step, topic

_KINDS = (
    *("join", "beat", "beat", "beat", "beat", "beat", "leave", "show", "commit", "fetch", "other"),
)


def streams(random: Random) -> list[Step]:
    """Members of two processes that join, leave, and report the tasks that they have."""
    steps: list[Step] = [*topic("@u"), *STREAMS_START]
    epochs: dict[str, str] = {}
    for number in range(random.randint(5, 16)):
        member, name = random.choice("mn"), f"e{number}"
        save = {name: "member_epoch"}
        match random.choice(_KINDS):
            case "join":
                steps.append(_join(random, member, save))
                epochs[member] = f"${name}"
            case "beat" if member in epochs:
                steps.append(_beat(random, member, epochs[member], save))
                if random.random() < 0.9:
                    epochs[member] = f"${name}"
            case "leave":
                steps.append(streams_heartbeat(member, random.choice([-1, -1, -1, -2])))
            case "show":
                steps.append(streams_described())
            case "commit" if member in epochs:
                ask = commit_offsets(("@t", [(0, 3)]), member_id=member, generation=epochs[member])
                steps.append(any_version(random, ask))
            case "fetch":
                steps.append(any_version(random, fetch_offsets((("@t", (0, 1)),)), first=8))
            case "other":
                asks = [described(version=None), delete_groups("@g"), heartbeat(member, 1)]
                steps.append(any_version(random, random.choice(asks)))
    return [*steps, streams_described()]


def _join(random: Random, member: str, save: dict[str, str]) -> Step:
    more: dict[str, Any] = {"process_id": random.choice(["p", "q"])}
    if random.random() < 0.25:
        more["topology"] = topology_of(
            *random.choice(
                [
                    [subtopology(sources=["@t"]), subtopology("1", ["@u"])],
                    [subtopology(sources=["@absent"])],
                    [subtopology(sources=["@t", "@u"])],
                    [subtopology(sources=["@u"])],
                ]
            ),
            epoch=random.choice([0, 0, 0, 1]),
        )
    # With a missing topic Kafka answers UNKNOWN_SERVER_ERROR to a member with an endpoint.
    if random.random() < 0.2 and "@absent" not in str(more.get("topology")):
        more["user_endpoint"] = {"host": member, "port": 9_000}
        more["endpoint_information_epoch"] = random.choice([-1, 0])
    if random.random() < 0.15:
        more["rack_id"] = random.choice(["r", ""])
    if random.random() < 0.1:
        more["rebalance_timeout_ms"] = random.choice([-1, 0, 1_000])
    return streams_heartbeat(member, save=save, **more)


def _beat(random: Random, member: str, epoch: str, save: dict[str, str]) -> Step:
    more: dict[str, Any] = {}
    if random.random() < 0.6:
        owned: Sequence[int] = random.choice([(), (0,), (1,), (0, 1), (0, 1), (2,)])
        more |= {"active_tasks": tasks(_0=owned), "standby_tasks": [], "warmup_tasks": []}
        if not owned:
            more["active_tasks"] = []
    if random.random() < 0.1:
        more["process_id"] = random.choice(["p", "q", "x"])
    if random.random() < 0.1:
        more["endpoint_information_epoch"] = random.choice([-1, 0, 1])
    if random.random() < 0.05:
        more["shutdown_application"] = True
    epoch += random.choice(["", "", "", "", "-1", "+1"])
    return streams_heartbeat(member, epoch, save=save, **more)
