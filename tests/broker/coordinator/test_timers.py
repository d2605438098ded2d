"""The deadlines of a coordinator, each with a name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek_broker.coordinator.timers import Name, Timers


def due(timers: Timers[Name], now_ms: int) -> list[Name]:
    return list(iter(lambda: timers.pop_due(now_ms), None))


def test_due_names_come_in_order_of_deadline_then_of_setting() -> None:
    timers: Timers[str] = Timers()
    timers.set("late", 30)
    timers.set("first", 10)
    timers.set("second", 10)
    assert timers.next_deadline() == 10
    assert due(timers, 9) == []
    assert due(timers, 10) == ["first", "second"]
    assert due(timers, 30) == ["late"]
    assert timers.next_deadline() is None
    assert len(timers) == 0


def test_setting_a_name_again_moves_its_only_deadline() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("a", 20)
    assert timers.next_deadline() == 20
    assert due(timers, 19) == []
    timers.set("a", 5)
    assert due(timers, 19) == ["a"]
    assert due(timers, 100) == []


def test_a_cancelled_name_is_never_due() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.cancel("a")
    timers.cancel("never set")
    assert "a" not in timers
    assert timers.next_deadline() is None
    assert due(timers, 10) == []


def test_a_due_timer_may_cancel_the_next_due_timer() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("b", 10)
    assert timers.pop_due(10) == "a"
    timers.cancel("b")
    assert timers.pop_due(10) is None


def test_moving_deadlines_repeatedly_does_not_grow_the_heap() -> None:
    timers: Timers[int] = Timers()
    for round_number in range(10_000):
        timers.set(round_number % 3, 1_000_000 - round_number)
    assert len(timers) == 3
    assert len(timers._heap) < 100


_STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "due"]), st.integers(0, 5), st.integers(0, 40)),
    max_size=60,
)


@given(_STEPS)
def test_timers_agree_with_a_plain_dictionary(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, tuple[int, int]] = {}
    for sequence, (kind, name, at_ms) in enumerate(steps):
        if kind == "set":
            timers.set(name, at_ms)
            model[name] = (at_ms, sequence)
        elif kind == "cancel":
            timers.cancel(name)
            model.pop(name, None)
        else:
            passed = sorted((held, key) for key, held in model.items() if held[0] <= at_ms)
            assert due(timers, at_ms) == [key for _, key in passed]
            for _, key in passed:
                del model[key]
        assert len(timers) == len(model)
        assert timers.next_deadline() == min((held[0] for held in model.values()), default=None)


def test_cancelled_and_passed_deadlines_do_not_stay_in_the_heap() -> None:
    timers: Timers[int] = Timers()
    for name in range(300):
        timers.set(name, 1_000 + name)
    for name in range(299, 150, -1):
        timers.cancel(name)
        assert len(timers._heap) <= 2 * len(timers) + 64
    while timers.pop_due(5_000) is not None:
        assert len(timers._heap) <= 2 * len(timers) + 64
    assert len(timers) == 0
