"""Offsets of a stream: their JSON, the end of the next batch, and the ranges of a batch."""

from __future__ import annotations

import pytest

from pyspark_odradek.admission import BatchLimits, MinimumGate
from pyspark_odradek.errors import SourceError
from pyspark_odradek.planning import OffsetRange, Partition
from pyspark_odradek.progress import (
    Survey,
    from_json,
    must_wait,
    next_step,
    ranges,
    to_json,
    waiting,
)

P0, P1, P2 = (Partition("t", number) for number in range(3))
NONE = BatchLimits()


def test_c1_offsets_have_the_json_of_the_kafka_format() -> None:
    text = to_json({P1: 7, Partition("a", 0): 1, P0: 5})
    assert text == {"a": {"0": 1}, "t": {"0": 5, "1": 7}}
    assert list(text) == ["a", "t"]
    assert from_json(text) == {P0: 5, P1: 7, Partition("a", 0): 1}


@pytest.mark.parametrize(
    "text", [None, [], {"t": 5}, {"t": {"x": 1}}, {"t": {"0": "1"}}, {"t": {"0": True}}]
)
def test_offsets_of_another_sources_checkpoint_are_refused(text: object) -> None:
    with pytest.raises(SourceError, match="checkpointLocation"):
        from_json(text)


def test_a_batch_without_limit_ends_at_the_log_ends() -> None:
    survey = Survey({P0: 10, P1: 5})
    step = next_step({P0: 3, P1: 5}, survey, NONE)
    assert (step.end, step.lost) == ({P0: 10, P1: 5}, ())
    assert ranges({P0: 3, P1: 5}, step.end) == [OffsetRange(P0, 3, 10)]


def test_a_batch_ends_at_its_limit() -> None:
    step = next_step({P0: 0, P1: 0}, Survey({P0: 300, P1: 100}), BatchLimits(max_offsets=8))
    assert step.end == {P0: 6, P1: 2}


def test_a_new_partition_is_read_from_the_batch_after_its_discovery() -> None:
    survey = Survey({P0: 4, P1: 9}, first={P1: 0})
    entered = next_step({P0: 4}, survey, NONE)
    assert (entered.end, entered.lost) == ({P0: 4, P1: 0}, ())
    assert ranges({P0: 4}, entered.end) == []
    following = next_step(entered.end, survey, NONE)
    assert ranges(entered.end, following.end) == [OffsetRange(P1, 0, 9)]
    assert waiting({P0: 4}, survey) == {P0: 0, P1: 9}


def test_a_new_partition_without_its_first_records_is_reported_as_loss() -> None:
    step = next_step({P0: 4}, Survey({P0: 4, P1: 9}, first={P1: 3}), NONE)
    assert step.end[P1] == 3
    assert "t-1 is new and its log starts at 3" in step.lost[0]


def test_a_log_that_ends_before_the_position_is_reported_as_loss() -> None:
    step = next_step({P0: 10, P1: 1}, Survey({P0: 4, P1: 2}), NONE)
    assert step.end == {P0: 4, P1: 2}
    assert "t-0 was read up to 10 already, and now ends at 4" in step.lost[0]
    assert ranges({P0: 10, P1: 1}, step.end) == [OffsetRange(P1, 1, 2)]


def test_a_recreated_topic_is_read_from_its_beginning() -> None:
    survey = Survey({P0: 50}, first={P0: 0}, recreated=frozenset({P0}))
    step = next_step({P0: 10}, survey, NONE)
    assert step.end == {P0: 0}
    assert "deleted and created again" in step.lost[0]


def test_a_removed_partition_is_reported_as_loss_and_left_out() -> None:
    step = next_step({P0: 1, P1: 2, P2: 3}, Survey({P0: 1}), NONE)
    assert step.end == {P0: 1}
    assert step.lost == ("t-1, t-2 is not there any more, or not subscribed to",)


def test_a_data_loss_is_reported_without_waiting_for_the_minimum() -> None:
    gate = MinimumGate(BatchLimits(min_offsets=1000), last_batch_ms=0)
    start = {P0: 10}
    assert must_wait(start, Survey({P0: 50}), gate, now_ms=1)
    anew = Survey({P0: 50}, first={P0: 0}, recreated=frozenset({P0}))
    for lost in (anew, Survey({P0: 4}), Survey({}), Survey({P0: 10, P1: 9}, first={P1: 3})):
        assert not must_wait(start, lost, gate, now_ms=1)
