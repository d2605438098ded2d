"""Checkers of share groups find each kind of wrong history, and report nothing for right
histories."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.sim.checkers.share_dead_letters import check_dead_letters
from tests.sim.checkers.share_deliveries import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Place,
    ShareDeliveries,
    no_pause,
)
from tests.sim.checkers.share_readers import Fate, ShareReaders
from tests.sim.checkers.share_states import StoredStates, check_keys, is_finished

from odradek_broker.coordinator.groups.share.group import StatePartitions, StateTopic
from odradek_broker.share_state import ShareKey, ShareState, StateBatch

PLACE = Place(bytes(16), 0)
LOCK_MS = 1_000


class Group:
    """The deliveries of one record, at offset 7, to members of a group, with a clock."""

    def __init__(self, limit: int = 3, pause_ms: Callable[[int], int] = no_pause) -> None:
        self.checker = ShareDeliveries(limit, LOCK_MS, pause_ms)
        self.now_ms = 0.0

    def lend(self, member: str, count: int = 1, *, since_ms: float | None = None) -> list[str]:
        since_ms = self.now_ms if since_ms is None else since_ms
        offsets = range(7, 8)
        return list(self.checker.acquired(PLACE, member, offsets, count, since_ms, self.now_ms))

    def answer(self, member: str, kind: int) -> list[str]:
        """Acknowledge the record; the broker confirms the acknowledgement 1 ms later. Returns
        violations."""
        asked = self.checker.asked(PLACE, member, 7, [kind], 7, self.now_ms)
        self.now_ms += 1
        return list(self.checker.confirmed(asked, self.now_ms))

    def end(self, *, finished: bool = True) -> list[str]:
        return list(self.checker.check_finished(PLACE, [7], [7] if finished else []))


@pytest.fixture
def group() -> Group:
    return Group()


def test_a_released_and_then_accepted_record_is_no_violation(group: Group) -> None:
    assert group.lend("a") == []
    assert group.answer("a", RELEASE) == []
    assert group.lend("b", 2) == []
    assert group.answer("b", ACCEPT) == []
    assert group.end() == []


def test_a_delivery_during_the_lock_of_another_member_is_a_violation(group: Group) -> None:
    group.lend("a")
    group.now_ms = 999
    (problem,) = group.lend("b", 2)
    assert "while a has it until 1000 ms" in problem
    other = Group()
    other.lend("a")
    other.now_ms = 1_000
    assert other.lend("b", 2) == []


def test_a_renewed_lock_lasts_for_another_period(group: Group) -> None:
    group.lend("a")
    group.now_ms = 900
    assert group.answer("a", RENEW) == []
    group.now_ms = 1_800
    assert "has it until 1900 ms" in group.lend("b", 2)[0]


def test_an_ended_session_and_a_restart_release_records(group: Group) -> None:
    group.lend("a")
    group.checker.left("a", [PLACE], group.now_ms)
    group.now_ms += 1
    assert group.lend("b", 2) == []
    group.checker.restarted()
    assert group.lend("c", 2) == []


def test_a_session_may_end_before_the_answer_with_its_records(group: Group) -> None:
    """The broker handles the acknowledgements in a request before it responds; the session may end
    before the response arrives."""
    group.now_ms = 50
    group.checker.left("a", [PLACE], group.now_ms)
    group.lend("a", since_ms=40)
    assert group.lend("b", 2) == []


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
def test_a_delivery_after_a_confirmed_acknowledgement_is_a_violation(
    group: Group, kind: int
) -> None:
    group.lend("a")
    group.answer("a", kind)
    group.checker.restarted()
    assert "after a confirmed" in group.lend("b", 2)[0]


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ((0,), "the limit is 3"),
        ((4,), "the limit is 3"),
        ((2,), "follows delivery 0"),
        ((1, 1), "it was stored that there were 1"),
    ],
)
def test_wrong_delivery_counts_are_a_violation(
    group: Group, counts: tuple[int, ...], says: str
) -> None:
    found: list[str] = []
    for count in counts:
        found += group.lend("a", count)
        group.answer("a", RELEASE)
    assert says in found[0]


def test_a_delivery_may_follow_one_with_a_late_or_lost_answer() -> None:
    group = Group(limit=5)
    group.checker.acquiring(PLACE, [7], 1)
    assert group.lend("b", 2) == []
    group.answer("b", RELEASE)
    assert "follows delivery 2" in group.lend("a", 4)[0]


def test_an_acknowledgement_of_another_members_record_is_a_violation(group: Group) -> None:
    group.lend("a")
    assert "is taken, and a has the record" in group.answer("b", ACCEPT)[0]
    # Any member may acknowledge records that are finished or deleted; this has no effect.
    group.answer("a", ACCEPT)
    assert group.answer("b", REJECT) == []


def test_a_record_finished_without_a_reason_is_a_violation() -> None:
    assert "was never delivered" in Group().end()[0]
    group = Group()
    group.lend("a")
    assert "is not finished" in group.end(finished=False)[0]
    assert "nobody has answered it" in group.end()[0]
    group.checker.may_be_deleted(PLACE, 8)
    assert group.end() == []
    # The response to the last delivery was lost; its lock ended, and the record was given up.
    unheard = Group(limit=2)
    unheard.lend("a")
    unheard.checker.acquiring(PLACE, [7], 2)
    assert unheard.end() == []
    given_up = Group(limit=1)
    given_up.lend("a")
    assert given_up.end() == []


def test_a_stored_state_against_a_confirmed_acknowledgement_is_a_violation(group: Group) -> None:
    group.lend("a")
    group.answer("a", ACCEPT)
    assert list(group.checker.check_stored(PLACE, 7, accepted=True)) == []
    (problem,) = group.checker.check_stored(PLACE, 7, accepted=False)
    assert "archived after a confirmed accept" in problem


# --- Pauses ---


def test_a_delivery_before_the_end_of_its_pause_is_a_violation() -> None:
    group = Group(pause_ms=lambda count: 100 * count)
    group.lend("a")
    group.answer("a", RELEASE)
    group.now_ms = 99
    assert "its pause ends at 100 ms" in group.lend("b", 2)[0]
    group.now_ms = 1_298
    assert "its pause ends at 1299 ms" in group.lend("a", 3)[0]


def test_the_pause_after_a_lock_begins_when_the_lock_expires() -> None:
    group = Group(pause_ms=lambda count: 100 * count)
    group.lend("a")
    # The lock has expired, so the member's release does not start another pause.
    group.now_ms = 1_050
    group.answer("a", RELEASE)
    group.now_ms = 1_099
    assert "its pause ends at 1100 ms" in group.lend("b", 2)[0]
    group.now_ms += LOCK_MS + 200
    assert group.lend("a", 3) == []


@pytest.mark.parametrize("how", ["restarted", "forgotten"])
def test_a_loaded_share_state_has_no_pauses(how: str) -> None:
    group = Group(pause_ms=lambda count: 100)
    group.lend("a")
    group.answer("a", RELEASE)
    if how == "restarted":
        group.checker.restarted()
    else:
        group.checker.forgotten(PLACE, group.now_ms)
    group.now_ms += 1
    assert group.lend("b", 2) == []


# --- Share partitions that are reset ---


def begin_anew(group: Group, start_offset: int = 0, *, sure: bool = True) -> None:
    group.checker.reset_asked(PLACE)
    group.checker.begun_anew(PLACE, start_offset, group.now_ms, sure=sure)
    group.now_ms += 1


def test_traces_of_a_reset_share_state_are_a_violation(group: Group) -> None:
    group.lend("a")
    group.answer("a", RELEASE)
    begin_anew(group)
    assert "follows delivery 0" in group.lend("b", 2)[0]
    other = Group()
    other.lend("a")
    other.answer("a", ACCEPT)
    begin_anew(other)
    assert "was never delivered" in other.end()[0]
    assert other.lend("b") == []
    assert other.answer("b", ACCEPT) == []
    assert other.end() == []


def test_a_delivery_before_the_altered_start_offset_is_a_violation(group: Group) -> None:
    begin_anew(group, 8)
    assert group.end() == []
    assert "the group begins at offset 8" in group.lend("a")[0]


def test_deliveries_during_a_reset_are_not_checked(group: Group) -> None:
    """Deliveries are not checked before the reset has a response, nor after a reset that never gets
    one."""
    group.lend("a")
    group.answer("a", RELEASE)
    group.checker.reset_asked(PLACE)
    assert group.lend("b", 2) == []
    group.checker.begun_anew(PLACE, 0, group.now_ms)
    group.now_ms += 1
    assert group.lend("c", 3) == []
    begin_anew(group, sure=False)
    assert group.end() == []
    assert "is not finished" in group.end(finished=False)[0]
    assert group.lend("d") == []
    group.answer("d", RELEASE)
    assert "follows delivery 1" in group.lend("d", 3)[0]


def test_a_refused_reset_changes_nothing(group: Group) -> None:
    group.lend("a")
    group.checker.reset_asked(PLACE)
    group.checker.reset_refused(PLACE)
    assert group.answer("a", ACCEPT) == []
    assert "after a confirmed accept" in group.lend("b", 2)[0]


def test_applications_may_get_records_and_results_of_before_a_reset(group: Group) -> None:
    group.lend("a")
    group.answer("a", ACCEPT)
    begin_anew(group)
    reading = readers(group)
    assert list(reading.handed_out("a", PLACE, 7, b"x", 1)) == []
    assert list(reading.accepted("a", PLACE, 7)) == []
    assert "was told that it is accepted" in next(reading.accepted("a", PLACE, 8))


# --- What applications get ---


def readers(group: Group, *, committed: bool = True) -> ShareReaders:
    found = ShareReaders(group.checker, committed=committed)
    found.fates = {b"x": Fate.PLAIN, b"y": Fate.ABORTED, b"z": Fate.OPEN}
    return found


def test_records_that_were_not_delivered_to_an_application_are_a_violation(group: Group) -> None:
    reading = readers(group)
    assert "which had not acquired it" in next(reading.handed_out("a", PLACE, 7, b"x", 1))
    group.lend("a")
    assert list(reading.handed_out("a", PLACE, 7, b"x", 1)) == []
    assert "as delivery 2 of 1" in next(reading.handed_out("a", PLACE, 7, b"x", 2))
    assert "is b'z', and was b'x'" in next(reading.handed_out("a", PLACE, 7, b"z", 1))
    assert "and was b'x'" in next(reading.check_values(PLACE, {7: b"y"}))
    assert list(reading.check_values(PLACE, {7: b"x", 8: b"new"})) == []


def test_aborted_records_at_an_application_are_a_violation(group: Group) -> None:
    group.lend("a")
    for value in (b"y", b"z"):
        (problem,) = readers(group).handed_out("a", PLACE, 7, value, 1)
        assert "and is in" in problem
        assert list(readers(group, committed=False).handed_out("a", PLACE, 7, value, 1)) == []
    assert "which nobody has sent" in next(readers(group).handed_out("a", PLACE, 7, b"?", 1))


def test_a_confirmed_acceptance_that_was_never_sent_is_a_violation(group: Group) -> None:
    group.lend("a")
    assert "was told that it is accepted" in next(readers(group).accepted("a", PLACE, 7))
    group.answer("a", ACCEPT)
    assert list(readers(group).accepted("a", PLACE, 7)) == []


def test_an_acceptance_may_come_after_compaction(group: Group) -> None:
    group.lend("a")
    group.checker.restarted()
    group.lend("b")
    group.answer("b", GAP)
    assert list(readers(group).accepted("a", PLACE, 7)) == []


def test_an_acceptance_may_come_after_another_member_has_finished_the_record(
    group: Group,
) -> None:
    """The start offset is behind the record by then, and the broker passes over the acceptance."""
    group.lend("a")
    group.now_ms += LOCK_MS
    group.lend("b", 2)
    assert "was told that it is accepted" in next(readers(group).accepted("a", PLACE, 7))
    group.answer("b", REJECT)
    assert list(readers(group).accepted("a", PLACE, 7)) == []


def test_an_acceptance_may_come_after_the_last_delivery() -> None:
    group = Group(limit=1)
    group.lend("a")
    assert list(readers(group).accepted("b", PLACE, 7)) == []


@pytest.mark.parametrize("start_offset", [7, 8])
def test_an_acceptance_may_come_after_a_reset_to_a_later_offset(
    group: Group, start_offset: int
) -> None:
    """The member does not know of the reset, and the broker passes over the acceptance."""
    group.lend("a")
    group.checker.reset_asked(PLACE)
    group.checker.begun_anew(PLACE, start_offset, group.now_ms)
    assert (list(readers(group).accepted("a", PLACE, 7)) == []) is (start_offset == 8)


def test_an_acceptance_after_the_last_lock_may_have_no_effect() -> None:
    """The broker has archived the record and moved the start offset, and could not store it."""
    group = Group(limit=1)
    group.lend("a")
    group.now_ms += LOCK_MS
    assert group.answer("a", ACCEPT) == []
    group.checker.forgotten(PLACE, group.now_ms)
    assert group.lend("b") == []
    assert group.answer("b", ACCEPT) == []
    group.checker.forgotten(PLACE, group.now_ms)
    assert "after a confirmed accept" in group.lend("a")[0]


# --- What is stored ---


def test_a_stored_share_state_that_goes_back_is_a_violation() -> None:
    key = ShareKey("g", bytes(16), 0)

    def problems(*states: ShareState) -> list[str]:
        stored = StoredStates()
        return [problem for state in states for problem in stored.check({key: state})]

    def state(start: int, *batches: StateBatch) -> ShareState:
        return ShareState(0, 1, 0, start, batches=batches)

    first = state(3, StateBatch(5, 9, 2, 1))
    assert problems(first, first, state(7, StateBatch(7, 9, 2, 1)), state(10)) == []
    assert "the start offset went back" in problems(first, state(2, StateBatch(5, 9, 2, 1)))[0]
    assert "is not stored" in problems(first, state(3, StateBatch(6, 9, 2, 1)))[0]
    assert "from state 2 to 0" in problems(first, state(3, StateBatch(5, 9, 0, 2)))[0]
    stored = StoredStates()
    assert list(stored.check({key: first})) == []
    assert list(stored.check({key: state(0)}, {key})) == []
    again = state(3, StateBatch(5, 9, 0, 2))
    assert "from delivery 2 to 1" in problems(again, state(3, StateBatch(5, 9, 2, 1)))[0]
    assert [is_finished(first, offset) for offset in (2, 3, 5, 9, 10)] == [
        *(True, False, True, True, False)
    ]


def test_a_stored_state_that_its_group_does_not_know_is_a_violation() -> None:
    topic_id = bytes(16)
    keys = [ShareKey("g", topic_id, index) for index in range(2)]
    topic = {topic_id: StateTopic("t", frozenset({0}))}

    def problems(noted: StatePartitions | None) -> int:
        return len(list(check_keys(keys, noted)))

    assert problems(None) == problems(StatePartitions()) == 2
    assert problems(StatePartitions(initializing=topic)) == 1
    assert problems(StatePartitions(initialized=topic)) == 1
    assert problems(StatePartitions(deleting={topic_id: "t"})) == 0
    assert problems(StatePartitions(deleting={b"another topic...": "o"})) == 2


# --- Dead letters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "in_time", "letters", "problems"),
    [
        (REJECT, True, 1, []),
        (REJECT, True, 2, [f"{PLACE}, offset 3 has 2 dead letters"]),
        (REJECT, True, 0, [f"{PLACE}, offset 3 has no dead letter after a confirmed reject"]),
        (ACCEPT, True, 0, []),
        (ACCEPT, True, 1, [f"{PLACE}, offset 3 has a dead letter after a confirmed accept"]),
        (ACCEPT, False, 1, []),
    ],
)
def test_dead_letters_are_compared_with_confirmed_answers(
    kind: int, in_time: bool, letters: int, problems: list[str]
) -> None:
    deliveries = ShareDeliveries(3, 1_000)
    record = deliveries.of(PLACE, 3)
    record.confirmed, record.in_time = kind, in_time
    named = [(*PLACE, 3)] * letters + [(b"another topic...", PLACE.partition, 3)] * 2
    assert list(check_dead_letters(named, PLACE, [3], deliveries)) == problems


def test_a_reset_group_may_have_one_more_dead_letter_of_a_record() -> None:
    deliveries = ShareDeliveries(3, 1_000)
    deliveries.reset_asked(PLACE)
    deliveries.begun_anew(PLACE, 0, 5)
    found = [
        list(check_dead_letters([(*PLACE, 3)] * count, PLACE, [3], deliveries)) for count in (2, 3)
    ]
    assert found == [[], [f"{PLACE}, offset 3 has 3 dead letters"]]
