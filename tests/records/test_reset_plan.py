"""The options for new positions of a group, and the resulting offsets."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_records.offset_grammar import OffsetError
from odradek_records.reset_plan import (
    Range,
    ResetTarget,
    Where,
    parse_duration_ms,
    parse_target,
    parse_topics,
    plan,
    read_csv,
    write_csv,
)

PLACE = ("t", 0)
HELD = {PLACE: Range(10, 20)}


def planned(
    where: Where, value: int = 0, *, committed: int | None = 15, at: int | None = None
) -> tuple[int, list[str]]:
    made = plan(
        ResetTarget(where, value),
        HELD,
        {} if committed is None else {PLACE: committed},
        {PLACE: at},
        {PLACE: value},
    )
    return made.offsets[PLACE], made.notes


@pytest.mark.parametrize(
    ("where", "value", "offset"),
    [
        (Where.EARLIEST, 0, 10),
        (Where.LATEST, 0, 20),
        (Where.CURRENT, 0, 15),
        (Where.OFFSET, 12, 12),
        (Where.OFFSET, 10, 10),
        (Where.OFFSET, 20, 20),
        (Where.SHIFT, 3, 18),
        (Where.SHIFT, -5, 10),
        (Where.FILE, 13, 13),
    ],
)
def test_each_reset_target_gives_its_offset(where: Where, value: int, offset: int) -> None:
    assert planned(where, value) == (offset, [])


@pytest.mark.parametrize(
    ("where", "value", "committed", "offset", "said"),
    [
        (Where.OFFSET, 9, 15, 10, "9 is below the first offset; 10 is taken"),
        (Where.OFFSET, 21, 15, 20, "21 is above the last offset; 20 is taken"),
        (Where.SHIFT, 6, 15, 20, "21 is above the last offset; 20 is taken"),
        (Where.SHIFT, -100, 15, 10, "-85 is below the first offset; 10 is taken"),
        (Where.FILE, 3, 15, 10, "3 is below"),
        (Where.CURRENT, 0, 5, 10, "5 is below"),
        (Where.CURRENT, 0, 500, 20, "500 is above"),
    ],
)
def test_an_offset_outside_the_log_becomes_the_nearest_one_inside(
    where: Where, value: int, committed: int, offset: int, said: str
) -> None:
    found, (note,) = planned(where, value, committed=committed)
    assert found == offset
    assert note.startswith("t-0: ") and said in note


def test_a_reset_by_time_takes_the_next_record_or_the_end() -> None:
    assert planned(Where.TIME, at=13) == (13, [])
    offset, (note,) = planned(Where.TIME, at=None)
    assert offset == 20 and "the end is taken" in note
    empty = plan(ResetTarget(Where.TIME), {PLACE: Range(7, 7)}, {}, {PLACE: None}, {})
    assert (empty.offsets, empty.notes) == ({PLACE: 7}, [])


def test_a_group_without_a_position_resets_to_the_end_and_cannot_shift() -> None:
    offset, (note,) = planned(Where.CURRENT, committed=None)
    assert offset == 20 and "no position" in note
    with pytest.raises(OffsetError, match="t-0: the group has no position there"):
        planned(Where.SHIFT, 1, committed=None)


NOTHING: dict[str, Any] = {
    "to_earliest": False,
    "to_latest": False,
    "to_current": False,
    "to_offset": None,
    "to_datetime": None,
    "by_duration": None,
    "shift_by": None,
    "from_file": False,
    "now_ms": 1_000_000,
}


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"to_earliest": True}, ResetTarget(Where.EARLIEST)),
        ({"to_latest": True}, ResetTarget(Where.LATEST)),
        ({"to_current": True}, ResetTarget(Where.CURRENT)),
        ({"to_offset": 0}, ResetTarget(Where.OFFSET, 0)),
        ({"to_datetime": "1970-01-01T00:00:01Z"}, ResetTarget(Where.TIME, 1_000)),
        ({"to_datetime": "77"}, ResetTarget(Where.TIME, 77)),
        ({"by_duration": "PT1M"}, ResetTarget(Where.TIME, 940_000)),
        ({"by_duration": "-PT1M"}, ResetTarget(Where.TIME, 1_060_000)),
        ({"by_duration": "P99999D"}, ResetTarget(Where.TIME, 0)),
        ({"shift_by": 0}, ResetTarget(Where.SHIFT, 0)),
        ({"from_file": True}, ResetTarget(Where.FILE)),
    ],
)
def test_a_reset_target_is_parsed(given: dict[str, Any], target: ResetTarget) -> None:
    assert parse_target(**(NOTHING | given)) == target


@pytest.mark.parametrize(
    "given", [{}, {"to_earliest": True, "to_latest": True}, {"to_offset": 0, "shift_by": 1}]
)
def test_exactly_one_reset_target_is_needed(given: dict[str, Any]) -> None:
    with pytest.raises(OffsetError, match="say where to, once"):
        parse_target(**(NOTHING | given))


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT1H30M", 5_400_000),
        ("P2D", 172_800_000),
        ("P1DT0.5S", 86_400_500),
        ("90m", 5_400_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
        ("30s", 30_000),
        ("250ms", 250),
    ],
)
def test_durations_are_parsed(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "90", "1y", "-5m", "P1M", "P1W", "soon", "9" * 5_000 + "s"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(OffsetError, match="no duration"):
        parse_duration_ms(text)


def test_topics_with_partitions_are_parsed() -> None:
    assert parse_topics(["a", "b:0,3", "b:3,1", "c:1", "c"]) == {
        "a": None,
        "b": [0, 3, 1],
        "c": None,
    }
    assert parse_topics([]) == {}


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:x", "a:1,", "a:-1", "a:1:2"])
def test_invalid_topics_with_partitions_are_refused(text: str) -> None:
    with pytest.raises(OffsetError, match="write TOPIC or TOPIC:0,1,2"):
        parse_topics([text])


def test_offsets_are_written_and_read_as_kafkas_csv() -> None:
    rows = [("g", "t", 0, 5), ("g", "t", 1, 6), ("h,1", "u", 0, 7)]
    assert write_csv(rows[:2], with_group=False) == "t,0,5\nt,1,6\n"
    text = write_csv(rows, with_group=True)
    assert text == 'g,t,0,5\ng,t,1,6\n"h,1",u,0,7\n'
    assert read_csv(text, ["g", "h,1"]) == {"g": {("t", 0): 5, ("t", 1): 6}, "h,1": {("u", 0): 7}}
    assert read_csv(text, ["g"]) == {"g": {("t", 0): 5, ("t", 1): 6}}
    assert read_csv("\nt, 0, 5\n", ["g"]) == {"g": {("t", 0): 5}}


@pytest.mark.parametrize("text", ["t,0", "t,0,x", "g,t,0,5,6", "t,-1,5", "TOPIC,PARTITION,OFFSET"])
def test_invalid_csv_of_offsets_is_refused(text: str) -> None:
    with pytest.raises(OffsetError, match=r"line 2: .* is not TOPIC,PARTITION,OFFSET"):
        read_csv(f"t,0,5\n{text}\n", ["g"])
    with pytest.raises(OffsetError, match=r"line 1: .* is not GROUP,TOPIC,PARTITION,OFFSET"):
        read_csv("t,0,5\n", ["g", "h"])
