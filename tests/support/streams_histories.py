"""Histories of streams groups for the assignor: members join and leave, and each assignment starts
from the last one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

from at_once import at_once
from odradek_broker.coordinator.groups.partitions import Tasks, each_partition, partitions_of
from odradek_broker.coordinator.groups.streams.assignor import AssignmentMember, assign_sticky
from odradek_broker.coordinator.groups.streams.tasks import TaskSet
from odradek_broker.coordinator.groups.streams.topology import ConfiguredSubtopology, InternalTopic

_CHANGELOG = {"changelog": InternalTopic("changelog", 1, 1, {})}


class AssignorCase(NamedTuple):
    """The input for one assignment."""

    subtopologies: Mapping[str, ConfiguredSubtopology]
    members: Mapping[str, AssignmentMember]
    standby_replicas: int

    def assigned(self) -> dict[str, TaskSet]:
        """The assignment that our assignor computes."""
        return at_once(assign_sticky(self.subtopologies, self.members, self.standby_replicas))

    def line(self) -> str:
        """The case as a line for the program `StickyTasks.java`."""
        topology = " ".join(
            f"{each_id}:{each.tasks}:{int(each.is_stateful)}"
            for each_id, each in self.subtopologies.items()
        )
        fields = [str(self.standby_replicas), topology]
        for member_id, member in self.members.items():
            fields += [member_id, member.process_id, *_texts(member.target)]
        return ";".join(fields)


def subtopology(tasks: int, *, stateful: bool) -> ConfiguredSubtopology:
    changelogs = _CHANGELOG if stateful else {}
    return ConfiguredSubtopology(tasks, frozenset({"t"}), frozenset(), {}, changelogs)


def printed(targets: Mapping[str, TaskSet]) -> str:
    """The targets in the form in which the program prints them."""
    return ";".join(
        ";".join((member_id, *_texts(targets[member_id]))) for member_id in sorted(targets)
    )


def case_of(line: str) -> AssignorCase:
    """Parse the case in a line."""
    replicas, topology, *rest = line.split(";")
    subtopologies = {}
    for each in topology.split(" "):
        each_id, tasks, stateful = each.split(":")
        subtopologies[each_id] = subtopology(int(tasks), stateful=stateful == "1")
    members = {}
    for at in range(0, len(rest), 4):
        member_id, process_id, active, standby = rest[at : at + 4]
        members[member_id] = AssignmentMember(process_id, TaskSet(_tasks(active), _tasks(standby)))
    return AssignorCase(subtopologies, members, int(replicas))


def _texts(target: TaskSet) -> tuple[str, str]:
    return _text(target.active), _text(target.standby)


def _text(tasks: Tasks) -> str:
    return " ".join(f"{each_id}_{index}" for each_id, index in sorted(each_partition(tasks)))


def _tasks(text: str) -> Tasks:
    pairs = (each.split("_") for each in text.split())
    return partitions_of((each_id, [int(index)]) for each_id, index in pairs)


def histories(seed: int, number: int) -> Iterator[AssignorCase]:
    """Yield `number` cases; the targets in each case are the result of the case before."""
    random = Random(seed)
    made = 0
    while made < number:
        subtopologies = {
            str(place): subtopology(random.randint(1, 9), stateful=random.random() < 0.6)
            for place in range(random.randint(1, 3))
        }
        processes = [f"{random.getrandbits(64):016x}" for _ in range(random.randint(1, 6))]
        replicas = random.choice((0, 0, 1, 2))
        targets: dict[str, TaskSet] = {}
        members: dict[str, str] = {}
        for _ in range(random.randint(1, 6)):
            for gone in [each for each in members if random.random() < 0.25]:
                del members[gone]
            for _ in range(random.randint(0 if members else 1, 4)):
                members[f"m{random.getrandbits(40):010x}"] = random.choice(processes)
            case = AssignorCase(
                subtopologies,
                {
                    each: AssignmentMember(process, targets.get(each, TaskSet()))
                    for each, process in members.items()
                },
                replicas,
            )
            targets = case.assigned()
            made += 1
            yield case
