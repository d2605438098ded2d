"""The states of the exactly-once mirror, its pauses after failures, and its given-up partitions."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_client.admin import Admin
from odradek_client.errors import ConnectionLost, Refused
from odradek_client.structs import TopicPartition
from odradek_mirror.copier_state import (
    COPIER_STEPS,
    STARTED,
    CopierState,
    GivenUpPartitions,
    IllegalCopierStep,
    RetryPolicy,
    next_state,
)
from odradek_mirror.exactly_once import ExactlyOnceCopier, OutSettings

S = CopierState
CUT = ConnectionLost("cut")


@pytest.mark.parametrize("state", S)
def test_i30_a_step_that_the_table_does_not_have_raises(state: S) -> None:
    for entered in S:
        if entered in COPIER_STEPS[state]:
            assert next_state(state, entered) is entered
        else:
            with pytest.raises(IllegalCopierStep, match=f"{state.name} -> {entered.name}"):
                next_state(state, entered)


def test_i30_only_a_start_leads_back_from_a_failure_and_a_closed_mirror_stays_closed() -> None:
    assert COPIER_STEPS[S.FAILED] == {S.STARTING, S.CLOSED}
    assert {state for state in S if S.COMMITTING in COPIER_STEPS[state]} == {S.COPYING}
    assert {state for state in set(S) - STARTED if COPIER_STEPS[state] & STARTED} == {S.STARTING}
    assert not COPIER_STEPS[S.CLOSED]
    assert all(S.CLOSED in COPIER_STEPS[state] for state in S if state is not S.CLOSED)


def test_i30_pauses_double_until_the_maximum_and_begin_anew_after_a_success() -> None:
    retries = RetryPolicy(None)
    now_s, pauses = 100.0, []
    for _ in range(8):
        assert retries.failed(CUT, now_s)
        pauses.append(round(retries.left_s(now_s), 3))
        now_s += pauses[-1]
        assert retries.left_s(now_s) == pytest.approx(0)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert retries.is_failing
    retries.succeeded()
    assert not retries.is_failing
    assert retries.failed(CUT, now_s)
    assert retries.left_s(now_s) == pytest.approx(0.2)


def test_i30_patience_is_measured_from_the_first_failure_of_a_row() -> None:
    retries = RetryPolicy(1_000)
    assert retries.failed(CUT, 5.0) and retries.failed(CUT, 6.0)
    assert not retries.failed(CUT, 6.1)
    retries.succeeded()
    assert not retries.failed(Refused("final"), 6.2)
    assert retries.failed(CUT, 6.2) and retries.failed(CUT, 7.2)


def test_i41_the_reason_of_a_partition_that_was_given_up_is_told_once() -> None:
    told: list[str] = []
    given_up = GivenUpPartitions(told.append)
    first, second, other = (TopicPartition(*each) for each in (("t", 0), ("t", 1), ("u", 0)))
    for tp in (first, second, other):
        given_up.add(tp, "damaged")
    given_up.retry({"t"})
    assert [tp in given_up for tp in (first, second, other)] == [False, False, True]
    given_up.add(first, "damaged")
    given_up.add(second, "too large")
    assert first in given_up and second in given_up
    assert told == [
        *(f"{name} is not copied any more: damaged" for name in ("t-0", "t-1", "u-0")),
        "t-1 is not copied any more: too large",
    ]


class NoProgress:
    """The progress of a mirror that copies nothing."""

    def __init__(self) -> None:
        self.troubles: dict[str, str] = {}


async def test_i30_a_failed_start_waits_and_a_final_error_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = [Refused("final"), CUT]
    states = []

    async def fail(copier: ExactlyOnceCopier) -> None:
        states.append(copier._state)
        raise errors.pop()

    monkeypatch.setattr(ExactlyOnceCopier, "_begin", fail)
    progress: Any = NoProgress()
    source, target = (Admin(bootstrap_servers="127.0.0.1:1") for _ in range(2))
    copier = ExactlyOnceCopier(source, target, OutSettings("m"), progress)
    await copier.step(0)
    assert copier._state is S.FAILED
    assert progress.troubles == {"the target": "cut"}
    await copier.step(0)
    assert len(errors) == 1, "the pause is not over"
    with pytest.raises(Refused, match="final"):
        await copier.start()
    assert states == [S.STARTING, S.STARTING]
    await copier.close()
    await copier.close()
    with pytest.raises(IllegalCopierStep, match="CLOSED -> STARTING"):
        await copier.start()
    assert not errors and len(states) == 2
