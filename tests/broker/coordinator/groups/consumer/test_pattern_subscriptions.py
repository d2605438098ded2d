"""The matching of regular expressions in slices (rules G-117, G-147, A-67), counted in steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from consumer_group_world import FakeMember, assigned, consumer_group, send
from group_world import GroupWorld
from odradek_broker.coordinator.groups.consumer import pattern_subscriptions
from odradek_broker.patterns import PROGRAM_STEPS_MAX, Pattern, compile_pattern
from odradek_broker.request import CloseConnection
from odradek_broker.slices import TURN_US
from odradek_protocol.errors import ErrorCode

#: The steps of a match that take a microsecond.
STEPS_PER_US = 200
SLOW = "(?:.?.?.?.?.?.?.?.?.?.?){100}"
NAME_CHARACTERS_MAX = 249


class Steps:
    """The steps of the matches since the last call of `taken`."""

    def __init__(self) -> None:
        self.steps = 0
        self._taken = 0

    def taken(self) -> int:
        before, self._taken = self._taken, self.steps
        return self.steps - before

    def now_us(self) -> int:
        return self.steps // STEPS_PER_US


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    counted, matches = Steps(), Pattern.matches

    def count(pattern: Pattern, name: str) -> bool:
        counted.steps += pattern.steps(name)
        return matches(pattern, name)

    monkeypatch.setattr(Pattern, "matches", count)
    return counted


@pytest.fixture
def world(steps: Steps) -> GroupWorld:
    """A broker with many topics of long names, whose clock counts the steps of matches."""
    world = GroupWorld()
    world.now_us = steps.now_us
    for at in range(300):
        name = f"{at:03}".ljust(NAME_CHARACTERS_MAX, "x")
        world.metadata.counts[name], world.metadata.ids[name] = (
            1,
            bytes([1, at // 256, at % 256]) * 5 + b"i",
        )
    return world


def turns(world: GroupWorld, until: Callable[[], bool]) -> Iterator[None]:
    """Let the turns of the loop come one after the other."""
    while not until():
        assert world.turns.turn()
        yield


def test_g147_no_slice_takes_long(world: GroupWorld, steps: Steps) -> None:
    member = FakeMember(world, "m", topics=None, pattern=SLOW)
    answer = send(world, **member.request())
    taken = [steps.taken()]
    taken += [steps.taken() for _ in turns(world, lambda: answer.done)]
    assert len(taken) > 100
    longest = PROGRAM_STEPS_MAX * (NAME_CHARACTERS_MAX + 1)
    assert max(taken) <= TURN_US * STEPS_PER_US + longest
    assert len(assigned(answer.result()) or ()) == 300 + 20


def test_g147_others_are_answered_between_the_slices(world: GroupWorld) -> None:
    slow = send(world, **FakeMember(world, "m", topics=None, pattern=SLOW).request())
    assert not slow.done
    assert FakeMember(world, "other", topics=["topic"]).beat().error_code == ErrorCode.NONE
    assert not slow.done


def test_g147_the_expressions_of_a_group_are_matched_by_one_work_at_a_time(
    world: GroupWorld, steps: Steps
) -> None:
    first = FakeMember(world, "first", topics=None, pattern=SLOW)
    answer = send(world, **first.request())
    for _ in turns(world, lambda: answer.done):
        pass
    first.take(answer.result())
    once = steps.taken()
    world.metadata.topics_version += 1
    again = send(world, **first.request())
    # Members with the same expression need no new matches; a member with another one waits.
    same = [FakeMember(world, f"same-{at}", topics=None, pattern=SLOW) for at in range(3)]
    assert all(member.beat().error_code == ErrorCode.NONE for member in same)
    other = send(world, **FakeMember(world, "o", topics=None, pattern="topic").request())
    assert not again.done and not other.done
    for _ in turns(world, lambda: other.done):
        pass
    assert again.done and other.result().error_code == ErrorCode.NONE
    assert steps.taken() < 1.1 * once
    assert consumer_group(world).patterns["topic"] == {"topic"}


def test_g147_a_join_with_a_known_expression_matches_nothing(
    world: GroupWorld, steps: Steps
) -> None:
    first = send(world, **FakeMember(world, "a", topics=None, pattern="top.*").request())
    for _ in turns(world, lambda: first.done):
        pass
    assert steps.taken()
    FakeMember(world, "b", topics=None, pattern="top.*").beat()
    assert not steps.taken()
    assert consumer_group(world).subscribed_names == {"topic"}


def test_g147_topics_that_change_meanwhile_are_matched_at_the_next_heartbeat(
    world: GroupWorld,
) -> None:
    member = FakeMember(world, "m", topics=None, pattern=SLOW)
    answer = send(world, **member.request())
    assert not answer.done
    world.metadata.counts["late"], world.metadata.ids["late"] = 1, b"L" * 16
    world.metadata.topics_version += 1
    for _ in turns(world, lambda: answer.done):
        pass
    member.take(answer.result())
    assert "late" not in consumer_group(world).patterns[SLOW]
    later = send(world, **member.request())
    for _ in turns(world, lambda: later.done):
        pass
    assert "late" in consumer_group(world).patterns[SLOW]


def test_n10_the_match_for_a_closed_connection_ends_and_another_heartbeat_takes_over(
    world: GroupWorld, steps: Steps
) -> None:
    closed = send(world, **FakeMember(world, "a", topics=None, pattern=SLOW).request())
    waits = send(world, **FakeMember(world, "b", topics=None, pattern=SLOW).request())
    world.turns.turn()
    steps.taken()
    closed.abandon()
    for _ in turns(world, lambda: waits.done):
        pass
    assert waits.result().error_code == ErrorCode.NONE and not closed.done
    assert set(consumer_group(world).members) == {"b"}


def test_g147_the_others_go_on_after_a_match_that_fails_late(
    world: GroupWorld, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = send(world, **FakeMember(world, "a", topics=None, pattern=SLOW).request())
    waits = send(world, **FakeMember(world, "b", topics=None, pattern=SLOW).request())
    world.turns.turn()
    with monkeypatch.context() as patch:

        def fails(_: Pattern, __: str) -> bool:
            patch.undo()
            raise ValueError

        patch.setattr(Pattern, "matches", fails)
        for _ in turns(world, lambda: failing.done):
            pass
    assert isinstance(failing.result(), CloseConnection)
    for _ in turns(world, lambda: waits.done):
        pass
    assert waits.result().error_code == ErrorCode.NONE
    assert set(consumer_group(world).members) == {"b"}


def test_g147_a_match_that_takes_too_long_is_refused(
    world: GroupWorld, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = FakeMember(world, "a", topics=None, pattern="top.*")
    first = send(world, **member.request())
    for _ in turns(world, lambda: first.done):
        pass
    member.take(first.result())
    monkeypatch.setattr(pattern_subscriptions, "MATCH_STEPS_MAX", 1_000)
    other = send(world, **FakeMember(world, "b", topics=None, pattern=SLOW).request())
    for _ in turns(world, lambda: other.done):
        pass
    assert other.result().error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "takes too long" in (other.result().error_message or "")
    # An expression of the group keeps its topics.
    world.metadata.topics_version += 1
    later = send(world, **member.request())
    for _ in turns(world, lambda: later.done):
        pass
    assert later.result().error_code == ErrorCode.NONE
    assert consumer_group(world).patterns["top.*"] == {"topic"}


def test_a67_only_topics_that_the_user_may_see_are_matched(world: GroupWorld, steps: Steps) -> None:
    for seen in ((), ("topic",)):
        assert list(
            pattern_subscriptions.match(
                frozenset([SLOW]), {}, world.metadata, frozenset(seen).intersection
            )
        )
        assert steps.taken() == sum([compile_pattern(SLOW).steps(name) for name in seen])


def test_g117_a_group_is_told_what_to_install_if_the_library_is_missing(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    answer = FakeMember(world, "m", topics=None, pattern="not compiled before").beat()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "pip install 'odradek[regex]'" in (answer.error_message or "")
