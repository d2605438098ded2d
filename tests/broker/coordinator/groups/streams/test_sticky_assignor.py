"""The assignor of streams groups (J-40)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from at_once import at_once
from odradek_broker.coordinator.groups.partitions import each_partition
from odradek_broker.coordinator.groups.streams.assignor import AssignmentMember, assign_sticky
from odradek_broker.coordinator.groups.streams.tasks import TaskSet
from streams_histories import case_of, histories, printed, subtopology

#: Each line is a case, a tab, and the assignment by Kafka 4.3.0. `StickyTasks.java` writes them.
RECORDED = Path(__file__).with_name("sticky_assignments.txt").read_text("utf-8").splitlines()


def test_j40_tasks_are_assigned_as_kafka_assigns_them() -> None:
    assert len(RECORDED) > 100
    for line in RECORDED:
        case, answer = line.split("\t")
        assert printed(case_of(case).assigned()) == answer, case


@given(st.integers(min_value=0, max_value=1 << 32))
def test_j40_active_tasks_are_assigned_once_and_standbys_to_other_processes(seed: int) -> None:
    for case in histories(seed, 5):
        targets = case.assigned()
        active = [task for each in targets.values() for task in each_partition(each.active)]
        wanted = [
            (each_id, index)
            for each_id, each in case.subtopologies.items()
            for index in range(each.tasks)
        ]
        assert sorted(active) == sorted(wanted)
        processes = [
            (task, case.members[member_id].process_id)
            for member_id, each in targets.items()
            for tasks in (each.active, each.standby)
            for task in each_partition(tasks)
        ]
        assert len(set(processes)) == len(processes)


def _members(targets: Mapping[str, TaskSet], *member_ids: str) -> dict[str, AssignmentMember]:
    return {each: AssignmentMember(each, targets.get(each, TaskSet())) for each in member_ids}


def test_j40_a_member_that_joins_takes_no_more_than_its_share() -> None:
    parts = {"0": subtopology(6, stateful=False)}
    alone = at_once(assign_sticky(parts, _members({}, "a"), 0))
    both = at_once(assign_sticky(parts, _members(alone, "a", "b"), 0))
    assert [len(both[each].active["0"]) for each in "ab"] == [3, 3]
    assert both["a"].active["0"] <= alone["a"].active["0"]


def test_j40_a_standby_becomes_active_when_the_active_member_leaves() -> None:
    parts = {"0": subtopology(4, stateful=True)}
    both = at_once(assign_sticky(parts, _members({}, "a", "b"), 1))
    assert both["a"].standby == both["b"].active
    alone = at_once(assign_sticky(parts, _members(both, "b"), 1))
    assert alone["b"] == TaskSet({"0": frozenset(range(4))})


def test_a_streams_group_without_members_has_no_target_assignments() -> None:
    assert at_once(assign_sticky({"0": subtopology(1, stateful=False)}, {}, 1)) == {}
