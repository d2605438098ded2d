"""The merge of state batches, compared with a model that has one state per offset (H-109)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budget import examples
from odradek_broker.coordinator.share.shard import is_settled, merge_batches, merge_into
from odradek_broker.share_state import StateBatch


@st.composite
def state_batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 25))
    last = first + draw(st.integers(0, 12))
    return StateBatch(first, last, draw(st.sampled_from([0, 2, 4])), draw(st.integers(1, 3)))


def by_offset(batches: list[StateBatch], start: int) -> dict[int, tuple[int, int]]:
    """The greatest (delivery count, state) of each offset from `start` on."""
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(max(first, start), last + 1):
            found[offset] = max(found.get(offset, (0, 0)), (count, state))
    return found


@given(st.lists(state_batches(), max_size=12), st.integers(-1, 30))
@settings(max_examples=examples(400))
def test_h109_a_merge_keeps_the_greatest_state_of_each_offset(
    batches: list[StateBatch], start: int
) -> None:
    merged = merge_batches(batches, start)
    assert by_offset(list(merged), -1) == by_offset(batches, start)
    for before, after in itertools.pairwise(merged):
        assert before.last_offset < after.first_offset


@given(st.lists(state_batches(), max_size=12), st.integers(-1, 30))
@settings(max_examples=examples(150))
def test_h109_a_merge_of_merged_batches_leaves_no_equal_neighbours(
    batches: list[StateBatch], start: int
) -> None:
    merged = merge_batches(merge_batches(batches, start), start)
    for before, after in itertools.pairwise(merged):
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:]
    assert merge_batches(merged, start) == merged


@given(
    st.lists(state_batches(), max_size=12),
    st.lists(state_batches(), max_size=4),
    st.integers(-1, 30),
    st.integers(-1, 30),
)
@settings(max_examples=examples(600))
def test_h109_a_merge_into_settled_batches_equals_a_full_merge(
    old: list[StateBatch], new: list[StateBatch], first_start: int, start: int
) -> None:
    settled = merge_batches(merge_batches(old, first_start), first_start)
    assert is_settled(settled)
    merged, is_again = merge_into(settled, new, start)
    assert merged == merge_batches((*settled, *new), start)
    assert is_again == (merge_batches(merged, start) == merged)


def test_h109_equal_neighbours_after_a_merge_are_not_settled() -> None:
    old = (StateBatch(0, 4, 2, 1), StateBatch(5, 9, 0, 1))
    assert is_settled(old)
    merged, settled = merge_into(old, [StateBatch(5, 9, 2, 1)], 0)
    assert merged == (StateBatch(0, 4, 2, 1), StateBatch(5, 9, 2, 1))
    assert not settled
    assert merge_batches(merged, 0) == (StateBatch(0, 9, 2, 1),)


@pytest.mark.parametrize(
    ("batches", "merged"),
    [
        ([(0, 4, 0, 1), (5, 9, 0, 1)], [(0, 9, 0, 1)]),
        ([(0, 4, 0, 1), (5, 9, 0, 2)], [(0, 4, 0, 1), (5, 9, 0, 2)]),
        ([(0, 4, 0, 1), (6, 9, 0, 1)], [(0, 4, 0, 1), (6, 9, 0, 1)]),
        ([(0, 9, 0, 1), (3, 5, 2, 1)], [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(0, 9, 4, 1), (3, 5, 0, 2)], [(0, 2, 4, 1), (3, 5, 0, 2), (6, 9, 4, 1)]),
        ([(0, 9, 0, 2), (3, 12, 4, 1)], [(0, 9, 0, 2), (10, 12, 4, 1)]),
        # Batch 2 is not merged with batch 1, although batch 3 gives both the same state.
        ([(0, 4, 2, 1), (5, 9, 0, 1), (5, 9, 2, 1)], [(0, 4, 2, 1), (5, 9, 2, 1)]),
        ([(7, 3, 2, 1), (0, 9, 0, 1)], [(0, 9, 0, 1)]),
    ],
)
def test_h109_overlapping_and_adjacent_batches_are_merged(
    batches: list[tuple[int, int, int, int]], merged: list[tuple[int, int, int, int]]
) -> None:
    assert [tuple(each) for each in merge_batches([StateBatch(*b) for b in batches], -1)] == merged


def test_h109_a_batch_is_cut_at_the_start_offset() -> None:
    batches = [StateBatch(0, 4, 2, 1), StateBatch(5, 9, 0, 1)]
    assert merge_batches(batches, 3) == (StateBatch(3, 4, 2, 1), StateBatch(5, 9, 0, 1))
    assert merge_batches(batches, 5) == (StateBatch(5, 9, 0, 1),)
    assert merge_batches(batches, 10) == ()
