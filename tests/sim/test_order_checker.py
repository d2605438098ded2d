"""The checker of orders accepts what some order explains, and nothing else."""

from __future__ import annotations

from tests.sim.checkers.in_some_order import Operation, in_some_order

A, B = b"a", b"b"


def create(begun: int, ended: int, topic_id: bytes = b"") -> Operation:
    """A creation; without an id it was refused, because the topic existed."""
    topic = (topic_id, 1) if topic_id else None
    return Operation("create", begun, ended, 1, done=bool(topic_id), topic=topic)


def delete(begun: int, ended: int, *, done: bool = True) -> Operation:
    return Operation("delete", begun, ended, done=done)


def look(begun: int, ended: int, topic: tuple[bytes, int] | None) -> Operation:
    return Operation("look", begun, ended, done=True, topic=topic)


def grow(begun: int, ended: int, count: int, *, done: bool = True) -> Operation:
    return Operation("grow", begun, ended, count, done=done)


def test_operations_that_overlap_may_have_any_order() -> None:
    assert in_some_order([create(1, 4, A), delete(2, 3)])
    assert in_some_order([create(1, 9, A), delete(2, 8), create(3, 7, B), look(10, 11, (B, 1))])
    assert in_some_order([create(1, 2, A), grow(3, 6, 3), grow(4, 5, 2), look(7, 8, (A, 3))])


def test_two_of_an_overlapping_pair_cannot_both_succeed() -> None:
    assert not in_some_order([create(1, 4, A), create(2, 3, B)])
    assert not in_some_order([create(1, 2, A), delete(3, 6), delete(4, 5)])
    assert not in_some_order([create(1, 2, A), grow(3, 6, 2), grow(4, 5, 2)])


def test_operations_that_follow_one_another_keep_their_order() -> None:
    assert not in_some_order([delete(1, 2), create(3, 4, A)])
    assert not in_some_order([create(1, 2, A), look(3, 4, None)])
    assert not in_some_order([create(1, 2, A), delete(3, 4), look(5, 6, (A, 1))])
    assert in_some_order([delete(1, 2, done=False), create(3, 4, A), create(5, 6)])


def test_operations_of_one_connection_keep_their_order() -> None:
    first, second = create(1, 4, A), look(2, 3, None)
    assert in_some_order([first, second])
    second.after = first
    assert not in_some_order([first, second])


def test_an_operation_without_an_answer_may_have_taken_effect_until_it_no_longer_can() -> None:
    lost = Operation("create", 1, 5, 1)
    assert in_some_order([lost, look(2, 3, None)])
    assert in_some_order([lost, look(2, 3, None), look(6, 7, (A, 1)), look(8, 9, (A, 1))])
    assert not in_some_order([lost, look(2, 3, (A, 1)), look(6, 7, (B, 1))])
    assert not in_some_order([lost, look(6, 7, None), look(8, 9, (A, 1))])
