"""Subscription, assignment and positions, without a loop (K-06, K-12, K-25)."""

from __future__ import annotations

import re

import pytest

from odradek_client.consumer.errors import IllegalState, NotAssigned
from odradek_client.consumer.subscription_state import FetchState, SubscriptionState
from odradek_client.structs import OffsetAndMetadata, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def an_assignment() -> SubscriptionState:
    state = SubscriptionState()
    state.assign_by_user([P0, P1])
    return state


def test_topics_patterns_and_manual_assignment_exclude_each_other() -> None:
    state = an_assignment()
    with pytest.raises(IllegalState, match=r"assigned by hand; unsubscribe\(\) first"):
        state.subscribe_topics(["t"])
    state.unsubscribe()
    state.subscribe_topics(["t"])
    with pytest.raises(IllegalState):
        state.subscribe_pattern(re.compile("t"))
    with pytest.raises(IllegalState):
        state.assign_by_user([P0])


def test_partitions_that_stay_assigned_keep_their_state() -> None:
    state = an_assignment()
    state.seek(P0, 5)
    state.seek(P1, 6)
    state.assign_by_user([P0])
    assert state.consumed() == {P0: OffsetAndMetadata(5)}
    state.assign_by_user([P0, P1])
    assert state.state(P1).fetch_state is FetchState.INITIALIZING


def test_a_position_is_initialized_reset_and_fetched() -> None:
    state = an_assignment()
    assert state.in_fetch_state(FetchState.INITIALIZING, 0) == [P0, P1]
    state.reset(P0, -2)
    assert state.in_fetch_state(FetchState.AWAIT_RESET, 0) == [P0]
    assert state.state(P0).position is None
    state.seek(P0, 3, leader_epoch=2)
    state.seek(P1, 4)
    assert state.all_fetching()
    assert state.consumed()[P0] == OffsetAndMetadata(3, "", 2)
    state.reset(P0, -1)
    assert not state.all_fetching()
    with pytest.raises(IllegalState, match="cannot go from resetting to initializing"):
        state.state(P0).step(FetchState.INITIALIZING)


def test_a_partition_in_backoff_is_left_out_until_its_retry_time() -> None:
    state = an_assignment()
    state.state(P0).retry_at_ms = 100
    assert state.in_fetch_state(FetchState.INITIALIZING, 99) == [P1]
    assert state.in_fetch_state(FetchState.INITIALIZING, 100) == [P0, P1]


def test_an_unassigned_partition_is_named_in_the_error() -> None:
    state = an_assignment()
    other = TopicPartition("u", 9)
    for act in (
        lambda: state.seek(other, 1),
        lambda: state.reset(other, -1),
        lambda: state.pause([P0, other]),
        lambda: state.resume([other]),
        lambda: state.state(other),
    ):
        with pytest.raises(NotAssigned, match="u-9 is not assigned"):
            act()
    assert state.paused() == set()  # pause() is all or nothing


def test_a_negative_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="offsets begin at 0"):
        an_assignment().seek(P0, -1)


def test_a_pattern_matches_whole_topic_names() -> None:
    state = SubscriptionState()
    state.subscribe_pattern(re.compile("or.*s"))
    assert state.match(["orders", "ors2", "xors"])
    assert state.topics == {"orders"}
    assert not state.match(["orders", "more"])


def test_pause_and_resume_change_the_paused_partitions() -> None:
    state = an_assignment()
    state.pause([P1])
    assert state.paused() == {P1}
    before = state.changes
    state.resume([P1])
    assert state.paused() == set()
    assert state.changes > before
