"""Every rejected record, and every record with too many deliveries, gets exactly one dead letter,
even if the power fails or the broker is killed at any moment (H-205, H-206)."""

from __future__ import annotations

import errno
import random

import pytest

import budget
from dead_letter_world import ACCEPT, GROUP, LETTERS, OTHERS, REJECT, RELEASE, DeadLetterWorld
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import SHARE_STATE_TOPIC
from odradek_broker.share.manager import AcknowledgementOutcome
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.disk import DiskFailure

RECORDS = 6
POISON = (1, 2, 4)


def _work_off(world: DeadLetterWorld) -> None:
    """Consume the remaining records: reject those with offsets in `POISON`, and accept the
    others."""
    for _ in range(20):
        acquired = world.acquired("late")
        if not acquired:
            world.settle()
            return
        for first, last, _ in acquired:
            for offset in range(first, last + 1):
                world.acknowledge(offset, offset, REJECT if offset in POISON else ACCEPT, "late")
        world.settle()
    raise AssertionError("the group is never done")


def _first_steps(world: DeadLetterWorld) -> list[tuple[range, Deferred[AcknowledgementOutcome]]]:
    """Acknowledge without waiting; returns the rejected offsets with the answers."""
    world.jobs(RECORDS)
    world.acquired()
    world.acknowledge(0, 0, ACCEPT)
    return [
        (range(1, 3), world.acknowledge(1, 2, REJECT)),
        (range(4, 5), world.acknowledge(4, 4, REJECT)),
    ]


@pytest.mark.parametrize(
    ("durability", "keep_page_cache"),
    # With `page-cache` durability there are kills, but no power cuts, which would lose the page
    # cache.
    budget.of_which([("fsync", False), ("fsync", True), ("page-cache", True)], [("fsync", False)]),
    ids=["power-cut", "kill", "kill-page-cache"],
)
def test_h206_a_record_has_one_dead_letter_after_a_crash_at_any_step(
    durability: str, keep_page_cache: bool
) -> None:
    steps, moments = 0, set()
    while True:
        for seed in range(budget.examples(4)):
            world = DeadLetterWorld(durability)
            answers = _first_steps(world)
            left = [world.step() for _ in range(steps)]
            told = [
                offset
                for offsets, answer in answers
                if answer.done and answer.result().error is ErrorCode.NONE
                for offset in offsets
            ]
            moments.add((len(world.letters()), len(told)))
            world.cut_power(seed, keep_page_cache=keep_page_cache)
            found = world.letter_offsets()
            assert sorted(found) == sorted(set(found)), f"doubled after {steps} steps"
            assert set(told) <= set(found), f"lost after {steps} steps"
            acquired = {
                offset for first, last, _ in world.acquired() for offset in range(first, last + 1)
            }
            assert not acquired & set(found), f"delivered and dead after {steps} steps"
            world.cut_power(seed, keep_page_cache=keep_page_cache)
            _work_off(world)
            assert sorted(world.letter_offsets()) == list(POISON), f"after {steps} steps"
        if left and not all(left):
            break
        steps += 1
    # Some crashes came before any answer, some between the two answers, some after both.
    assert {told for _, told in moments} >= {0, 2, 3}
    if durability == "fsync":
        assert {letters for letters, _ in moments} >= {0, 2, 3}


@pytest.mark.parametrize("seed", budget.of_which(range(300), range(12)))
def test_h206_a_record_has_one_dead_letter_after_random_crashes(seed: int) -> None:
    """Members of two groups with one dead letter topic release and reject records, locks expire,
    power is cut, and disks are full, until every record is finished."""
    rng = random.Random(seed)
    world = DeadLetterWorld(limit=2, copy=rng.random() < 0.5)
    world.jobs(RECORDS)
    told: set[tuple[str, int]] = set()
    accepted: set[tuple[str, int]] = set()

    def answer(group: str, offset: int, kind: int) -> None:
        def answered(outcome: AcknowledgementOutcome) -> None:
            if outcome.error is ErrorCode.NONE and kind != RELEASE:
                (told if kind == REJECT else accepted).add((group, offset))

        world.acknowledge(offset, offset, kind, group=group).then(answered)

    def check() -> set[tuple[str, int]]:
        found = [(group, at) for group in (GROUP, OTHERS) for at in world.letter_offsets(group)]
        assert len(found) == len(set(found)), "doubled"
        assert told <= set(found), "lost"
        return set(found)

    for _ in range(rng.randrange(1, 6)):
        if rng.random() < 0.4:
            path_part = rng.choice([LETTERS, SHARE_STATE_TOPIC])
            nth = rng.randrange(1, 4)
            world.files.fail(
                DiskFailure("append", nth, code=errno.ENOSPC, path_part=path_part, for_ever=True)
            )
        for group in (GROUP, OTHERS):
            for first, last, _ in world.acquired("a", rng.choice([1, 3, 500]), group):
                for offset in range(first, last + 1):
                    kind = rng.choice([ACCEPT, RELEASE, REJECT, None])
                    if kind is not None:
                        answer(group, offset, kind)
        for _ in range(rng.randrange(25)):
            world.step()
        if rng.random() < 0.5:
            world.files.heal()
            for _ in range(rng.randrange(25)):
                world.step()
        if rng.random() < 0.3:
            world.pass_time(30_000)
        world.cut_power(rng.randrange(1000), keep_page_cache=rng.random() < 0.3)
        check()
    for group in (GROUP, OTHERS):
        while acquired := world.acquired("late", group=group):
            for first, last, _ in acquired:
                world.acknowledge(first, last, ACCEPT, "late", group)
            world.settle()
    assert not accepted & check(), "a record that was accepted has a dead letter"
