"""The checker of tasks finds tasks that are active twice, or standby in the process of the active
task."""

from __future__ import annotations

from tests.sim.checkers.streams_tasks import TaskOwners, Tasks

FIRST, SECOND = ("0", 0), ("0", 1)


def test_an_active_task_of_two_members_is_a_violation() -> None:
    owners = TaskOwners(lambda _: True)
    assert list(owners.runs("a", "p", Tasks({FIRST}))) == []
    assert list(owners.runs("b", "q", Tasks({SECOND}, {FIRST}))) == []
    assert list(owners.runs("b", "q", Tasks({FIRST, SECOND}))) == ["0_0 is active in b and in a"]
    owners.ended("a")
    assert list(owners.runs("b", "q", Tasks({FIRST, SECOND}))) == []


def test_a_removed_member_has_no_claim_to_its_tasks() -> None:
    removed: set[str] = set()
    owners = TaskOwners(lambda member: member not in removed)
    list(owners.runs("a", "p", Tasks({FIRST})))
    assert len(list(owners.runs("b", "q", Tasks({FIRST})))) == 1
    removed.add("a")
    assert list(owners.runs("b", "q", Tasks({FIRST}))) == []


def test_a_standby_task_in_the_process_of_the_active_one_is_a_violation() -> None:
    owners = TaskOwners(lambda _: True)
    assert len(list(owners.runs("a", "p", Tasks({FIRST}, {FIRST})))) == 1
    list(owners.runs("a", "p", Tasks({FIRST})))
    (problem,) = owners.runs("b", "p", Tasks(set(), {FIRST}))
    assert problem == "0_0 is active and standby in the process of b and a"
    assert list(owners.runs("b", "q", Tasks(set(), {FIRST}))) == []
