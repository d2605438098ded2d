"""Spark's options for the start and end of a read, and the offsets that result from them."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_odradek.errors import DataLoss, OptionsError
from pyspark_odradek.offsets import (
    EARLIEST,
    LATEST,
    AtEdge,
    AtOffsets,
    AtTime,
    LogBounds,
    Resolution,
    check_named,
    parse_assignment,
    parse_offsets,
    parse_time,
    parse_times,
    resolve,
    times_to_ask,
)
from pyspark_odradek.planning import OffsetRange, Partition

A0, A1 = Partition("a", 0), Partition("a", 1)


def test_words_and_json_are_parsed_as_offsets_and_times() -> None:
    assert parse_offsets(" Earliest ", "startingOffsets") == AtEdge(EARLIEST)
    assert parse_offsets("latest", "endingOffsets") == AtEdge(LATEST)
    assert parse_offsets('{"a":{"0":23,"1":-2}}', "startingOffsets") == AtOffsets({A0: 23, A1: -2})
    assert parse_times('{"a":{"0":1000}}', "x") == AtTime(times_ms={A0: 1000})
    assert parse_time("1000", "startingTimestamp") == AtTime(time_ms=1000)
    assert parse_assignment('{"a":[1,0,1]}', "assign") == (A0, A1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("erliest", "is not understood"),
        ("[1]", "is no object"),
        ("{}", "names no partition"),
        ('{"a":5}', "needs an object"),
        ('{"a":{"0":"5"}}', "is no whole number"),
        ('{"a":{"0":true}}', "is no whole number"),
        ('{"a":{"0":1.5}}', "is no whole number"),
        ('{"a":{"0":-3}}', "is impossible"),
        ('{"a":{"x":3}}', "is no partition"),
        ('{"a":{"-1":3}}', "is no partition"),
        ('{"a":{"0":3,"0":4}}', "twice"),
        ('{"a":{"0":99999999999999999999}}', "is no whole number"),
    ],
)
def test_invalid_offsets_are_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        parse_offsets(text, "startingOffsets")
    assert "startingOffsets" in str(caught.value)


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "1.5", "99999999999999999999"])
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="startingTimestamp"):
        parse_time(text, "startingTimestamp")


@pytest.mark.parametrize("text", ['{"a":[]}', '{"a":0}', "{}", '{"a":["x"]}', '{"a":[-1]}', "a"])
def test_invalid_assignments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="assign"):
        parse_assignment(text, "assign")


def test_json_must_name_every_partition_and_no_other() -> None:
    problems: list[str] = []
    bound = AtOffsets({A0: 1, Partition("b", 0): 2})
    check_named(bound, [A0, A1], "startingOffsets", problems)
    assert len(problems) == 2
    assert "a-1" in problems[0] and "b-0" in problems[1]
    check_named(AtEdge(EARLIEST), [A0], "startingOffsets", problems)
    check_named(AtTime(time_ms=5), [A0], "startingTimestamp", problems)
    assert len(problems) == 2


def test_only_times_need_a_request_for_offsets() -> None:
    assert times_to_ask(AtEdge(EARLIEST), [A0, A1]) == {}
    assert times_to_ask(AtTime(time_ms=7), [A0, A1]) == {A0: 7, A1: 7}
    assert times_to_ask(AtTime(times_ms={A1: 9}), [A0, A1]) == {A1: 9}


def case(**changed: Any) -> Resolution:
    values: dict[str, Any] = {
        "start": AtEdge(EARLIEST),
        "end": AtEdge(LATEST),
        "logs": {A0: LogBounds(10, 50)},
        "start_found": {},
        "end_found": {},
        "latest_if_no_record": False,
        "fail_on_data_loss": True,
    }
    return Resolution(**(values | changed))


def ranges(resolution: Resolution) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in resolve(resolution)[0]]


def test_the_whole_log_is_read_by_default() -> None:
    both = {A1: LogBounds(0, 0), A0: LogBounds(10, 50)}
    assert resolve(case(logs=both))[0] == [OffsetRange(A0, 10, 50), OffsetRange(A1, 0, 0)]


def test_offsets_within_the_log_are_taken_as_they_are() -> None:
    assert ranges(case(start=AtOffsets({A0: 12}), end=AtOffsets({A0: 30}))) == [(12, 30)]
    assert ranges(case(start=AtOffsets({A0: EARLIEST}), end=AtOffsets({A0: LATEST}))) == [(10, 50)]


@pytest.mark.parametrize(
    "bad",
    [
        {"start": AtOffsets({A0: 9})},
        {"start": AtOffsets({A0: 51})},
        {"end": AtOffsets({A0: 51})},
    ],
)
def test_offsets_outside_the_log_are_data_loss(bad: dict[str, Any]) -> None:
    with pytest.raises(DataLoss, match="a-0"):
        resolve(case(**bad))


def test_a_range_is_cut_to_the_log_without_fail_on_data_loss() -> None:
    found, warnings = resolve(case(start=AtOffsets({A0: 2}), fail_on_data_loss=False))
    assert (found[0].start, found[0].end) == (10, 50)
    assert len(warnings) == 1
    assert ranges(case(end=AtOffsets({A0: 99}), fail_on_data_loss=False)) == [(10, 50)]
    assert ranges(case(start=AtOffsets({A0: 99}), fail_on_data_loss=False)) == [(50, 50)]
    assert ranges(case(end=AtOffsets({A0: 5}), fail_on_data_loss=False)) == [(10, 10)]


def test_a_starting_offset_after_the_ending_offset_is_refused() -> None:
    with pytest.raises(OptionsError, match="behind its end"):
        resolve(case(start=AtOffsets({A0: 30}), end=AtOffsets({A0: 20})))
    late, early = AtTime(time_ms=9), AtTime(time_ms=5)
    with pytest.raises(OptionsError, match="behind its end"):
        resolve(case(start=late, end=early, start_found={A0: 30}, end_found={A0: 20}))


def test_a_starting_time_after_all_records_may_be_after_the_ending_offset() -> None:
    found = case(start=AtTime(time_ms=9), end=AtOffsets({A0: 20}), latest_if_no_record=True)
    assert ranges(found) == [(50, 50)]


def test_times_are_resolved_to_the_found_offsets() -> None:
    found = case(
        start=AtTime(time_ms=5), start_found={A0: 20}, end=AtTime(time_ms=9), end_found={A0: 40}
    )
    assert ranges(found) == [(20, 40)]


def test_a_starting_time_after_all_records_is_refused_by_default() -> None:
    late = {"start": AtTime(time_ms=5), "start_found": {A0: None}}
    with pytest.raises(OptionsError, match="startingOffsetsByTimestampStrategy"):
        resolve(case(**late))
    assert ranges(case(**late, latest_if_no_record=True)) == [(50, 50)]
    assert ranges(case(end=AtTime(time_ms=5), end_found={A0: None})) == [(10, 50)]
