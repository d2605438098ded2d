"""Checkers of consumer groups: violations on bad histories, and none on a good one."""

from __future__ import annotations

from tests.sim.checkers.assignment import check_assignment
from tests.sim.checkers.committed import CommittedChecker
from tests.sim.checkers.ownership import OwnershipChecker
from tests.sim.checkers.processed import ProcessedChecker


def yes(_: str) -> bool:
    return True


def no(_: str) -> bool:
    return False


def test_a_partition_with_two_members_in_one_generation_is_a_violation() -> None:
    checker = OwnershipChecker()
    assert list(checker.assigned("a", "id-a", 3, ["t-0", "t-1"], yes)) == []
    checker.released("a", ["t-0", "t-1"])
    assert list(checker.assigned("b", "id-b", 4, ["t-0", "t-1"], yes)) == []
    checker.released("b", ["t-1"])
    assert checker.held_by("b") == ["t-0"]
    assert list(checker.assigned("c", "id-c", 4, ["t-1"], yes)) == [
        "t-1 is of id-b and id-c in generation 4"
    ]


def test_a_partition_assigned_while_another_member_has_it_is_a_violation() -> None:
    checker = OwnershipChecker()
    assert list(checker.assigned("a", "id-a", 3, ["t-0"], yes)) == []
    assert list(checker.assigned("a", "id-a", 4, ["t-0"], yes)) == []
    assert list(checker.assigned("b", "id-b", 5, ["t-0"], yes)) == [
        "t-0 was given to b while a, in the group, has it"
    ]
    assert list(checker.assigned("c", "id-c", 6, ["t-0"], no)) == [], "the others were dropped"


def test_a_removed_member_that_rejoins_has_no_old_claim() -> None:
    checker = OwnershipChecker()
    assert list(checker.assigned("a", "id-a", 3, ["t-0", "t-1"], yes)) == []
    checker.dropped("a")
    assert list(checker.assigned("b", "id-b", 4, ["t-0"], yes)) == []
    assert checker.held_by("a") == ["t-0", "t-1"]
    assert list(checker.assigned("a", "id-a", 5, ["t-1"], yes)) == []
    assert list(checker.assigned("b", "id-b", 6, ["t-1"], yes)) == [
        "t-1 was given to b while a, in the group, has it"
    ]


def test_a_static_member_that_missed_a_rebalance_has_no_old_claim() -> None:
    """Member `a` stays in the group, but its partitions are reassigned; its old claim to them must
    not count when `a` joins again."""
    checker = OwnershipChecker()
    assert list(checker.assigned("a", "static", 3, ["t-0"], yes)) == []
    assert list(checker.assigned("b", "id-b", 4, ["t-0"], lambda member: member != "a")) == []
    assert list(checker.assigned("b", "id-b", 5, ["t-0"], yes)) == []
    checker.released("b", ["t-0"])
    assert list(checker.assigned("a", "static", 6, ["t-0"], yes)) == []
    assert list(checker.assigned("b", "id-b", 7, ["t-0"], yes)) == [
        "t-0 was given to b while a, in the group, has it"
    ]


def test_a_static_member_that_restarts_may_keep_its_partitions() -> None:
    checker = OwnershipChecker()
    assert list(checker.assigned("one", "static", 3, ["t-0"], yes)) == []
    checker.released("one", ["t-0"])
    assert list(checker.assigned("one, again", "static", 3, ["t-0"], yes)) == []


def test_a_coordinator_with_two_owners_of_a_partition_is_a_violation() -> None:
    assert list(check_assignment("g", {"a": [("t", 0)], "b": [("t", 1)]})) == []
    assert list(check_assignment("g", {"a": [("t", 0)], "b": [("t", 1), ("t", 0)]})) == [
        "group g: ('t', 0) is given to a and b"
    ]


def test_committed_offsets_that_go_back_are_a_violation() -> None:
    checker = CommittedChecker()
    assert list(checker.observed({"t-0": 5}, checker.begin())) == []
    checker.acknowledged("t-0", 7, "a")
    assert list(checker.observed({"t-0": 7}, checker.begin())) == []
    assert list(checker.observed({"t-0": 6}, checker.begin())) == [
        "t-0: 6 is committed, after 7 was acknowledged to a"
    ]
    assert list(checker.observed({}, checker.begin())) == [
        "t-0: -1 is committed, after 7 was acknowledged to a"
    ]


def test_an_observation_may_miss_commits_acknowledged_meanwhile() -> None:
    checker = CommittedChecker()
    beginning = checker.begin()
    checker.acknowledged("t-0", 7, "a")
    assert list(checker.observed({"t-0": 5}, beginning)) == []


def test_only_an_administrator_may_reset_offsets() -> None:
    checker = CommittedChecker()
    checker.acknowledged("t-0", 7, "a")
    checker.reset_may_come("t-0")
    assert list(checker.observed({"t-0": 7}, checker.begin())) == []
    assert list(checker.observed({"t-0": 2}, checker.begin())) == []
    checker.reset("t-0", 2)
    assert list(checker.observed({"t-0": 2}, checker.begin())) == []
    assert list(checker.observed({"t-0": 1}, checker.begin())) == [
        "t-0: 1 is committed, after 2 was set by an administrator"
    ]


def test_an_observation_during_a_reset_is_not_checked() -> None:
    checker = CommittedChecker()
    checker.acknowledged("t-0", 16, "a")
    early = checker.begin()
    checker.reset_may_come("t-0")
    late = checker.begin()
    checker.reset("t-0", 1)
    assert list(checker.observed({"t-0": 1}, early)) == []
    assert list(checker.observed({"t-0": 16}, early)) == []  # read before the reset
    assert list(checker.observed({"t-0": 1}, late)) == []
    assert list(checker.observed({"t-0": 1}, checker.begin())) == []
    assert list(checker.observed({"t-0": 0}, checker.begin())) == [
        "t-0: 0 is committed, after 1 was set by an administrator"
    ]


def test_unread_records_below_a_committed_offset_are_a_violation() -> None:
    checker = ProcessedChecker()
    for offset in (0, 1, 3):
        checker.read("t-0", offset)
    assert list(checker.committed({"t-0": 2})) == []
    assert list(checker.committed({"t-0": 4})) == [
        "t-0: 4 is committed, and nobody has read the record at 2"
    ]
    checker.read("t-0", 2)
    assert list(checker.committed({"t-0": 4})) == []
    assert list(checker.committed({"t-1": 1})) != []
