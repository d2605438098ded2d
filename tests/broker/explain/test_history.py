"""The bounded histories of events for `odradek explain`, and the sentences about events."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_broker.explain.history import LIST_MAX, TEXT_MAX, History, SubjectState
from odradek_broker.explain.sentences import EventKind, describe_client, duration_text, sentence
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.clock import SimulatedClock

E = ErrorCode


def left(history: History, member: object, subject: str = "g") -> None:
    history.record(subject, EventKind.MEMBER_LEFT, member=str(member))


def told(history: History, subject: str = "g") -> list[str]:
    return [str(event.fields["member"]) for event in history.about(subject).events]


# --- The ring ---


def test_events_are_kept_by_subject_in_order_with_their_times() -> None:
    clock = SimulatedClock(wall_start_ms=0, now_ms=1_000)
    history = History(clock.wall_ms)
    for number in range(3):
        clock.now_ms += 10
        left(history, number)
        left(history, f"other {number}", "h")
    past = history.about("g")
    assert [(event.at_ms, event.fields["member"]) for event in past.events] == [
        (1_010, "0"), (1_020, "1"), (1_030, "2")
    ]  # fmt: skip
    assert (past.since_ms, past.dropped) == (1_000, 0)
    assert history.about("unknown") == ([], 1_000, 0)


def test_a_busy_subject_drops_its_own_oldest_events_first() -> None:
    clock = SimulatedClock(wall_start_ms=0, now_ms=1_000)
    history = History(clock.wall_ms, events_max=100, subject_events_max=10)
    left(history, "quiet", "quiet")
    for number in range(1_000):
        clock.now_ms += 1
        left(history, number)
    assert told(history) == [str(number) for number in range(990, 1_000)]
    assert history.about("g").dropped == 990
    assert history.about("g").since_ms == 1_990  # the time of the last dropped event
    assert told(history, "quiet") == ["quiet"]
    assert history.about("quiet").since_ms == 1_000
    assert len(history) == 11


def test_d11_the_events_of_all_subjects_are_limited() -> None:
    clock = SimulatedClock(wall_start_ms=0, now_ms=1_000)
    history = History(clock.wall_ms, events_max=50)
    for number in range(200):
        clock.now_ms += 1
        left(history, number, f"g{number}")
    assert len(history) == 50
    assert history.about("g149").events == [] and told(history, "g150") == ["150"]
    # The events of g0 are dropped: its history is known only from the time of the last dropped
    # event on.
    assert history.about("g0") == ([], 1_150, 0)


def test_d11_the_bytes_of_a_history_are_limited() -> None:
    history = History(
        SimulatedClock(wall_start_ms=0, now_ms=1_000).wall_ms,
        bytes_max=100_000,
        subject_events_max=10_000,
    )
    for number in range(1_000):
        left(history, f"{number:010}" * 20)
    assert history.size_bytes <= 100_000
    assert 50 <= len(history) <= 200
    assert told(history)[-1].startswith("0000000999")
    left(history, "x", "s" * 1_000_000)  # larger than the limit
    assert len(history) == 0 and history.size_bytes == 0
    left(history, "y")
    assert told(history) == ["y"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 300)), max_size=80)
)
def test_d11_the_limits_of_a_history_hold_for_random_events(
    steps: list[tuple[str, int, int]],
) -> None:
    clock = SimulatedClock(wall_start_ms=0, now_ms=1_000)
    history = History(clock.wall_ms, events_max=12, subject_events_max=5, bytes_max=8_000)
    kept: dict[str, list[tuple[int, str]]] = {"a": [], "b": [], "c": []}
    for subject, member, size in steps:
        clock.now_ms += 1
        text = str(member) * size
        left(history, text, subject)
        if not kept[subject] or kept[subject][-1][1] != text:
            kept[subject].append((clock.now_ms, text))
        assert len(history) <= 12 and history.size_bytes <= 8_000
    for subject, everything in kept.items():
        past = history.about(subject)
        seen = [(event.at_ms, event.fields["member"]) for event in past.events]
        assert len(seen) <= 5
        assert seen == everything[len(everything) - len(seen) :]
        if len(seen) < len(everything):
            assert past.since_ms >= everything[len(everything) - len(seen) - 1][0]
    if not any(history.about(subject).events for subject in kept):
        assert history.size_bytes == 0


def test_d11_long_topic_names_count_towards_the_bytes_of_a_history() -> None:
    history = History(SimulatedClock(wall_start_ms=0, now_ms=1_000).wall_ms, bytes_max=100_000)
    for number in range(100):
        places = [(f"{number}-{index}" + "t" * 240, index) for index in range(LIST_MAX)]
        history.record("p", EventKind.MARKERS_SENT, partitions=places)
    held = [name for event in history.about("p").events for name, _ in event.partitions]
    assert 0 < sum(map(sys.getsizeof, held)) <= history.size_bytes <= 100_000


def test_a_repeated_event_is_counted() -> None:
    clock = SimulatedClock(wall_start_ms=0, now_ms=1_000)
    history = History(clock.wall_ms)
    for number in range(5):
        clock.now_ms += 100
        history.record("p", EventKind.MEMBER_LEFT, error=E.UNKNOWN_MEMBER_ID, member="m")
        left(history, number)  # events of another subject in between do not matter
    (event,) = history.about("p").events
    assert (event.times, event.at_ms, event.last_ms) == (5, 1_100, 1_500)
    history.record("p", EventKind.MEMBER_LEFT, error=E.NONE, member="m")
    history.record("p", EventKind.MEMBER_LEFT, error=E.UNKNOWN_MEMBER_ID, member="m")
    assert [each.times for each in history.about("p").events] == [5, 1, 1]


def test_d11_long_texts_and_lists_of_an_event_are_shortened() -> None:
    history = History(SimulatedClock(wall_start_ms=0, now_ms=1_000).wall_ms)
    history.record(
        "g",
        EventKind.GENERATION_BEGAN,
        partitions=[("t", index) for index in range(50)],
        leader="x" * 10_000,
        members=tuple(f"{number}" + "y" * 10_000 for number in range(10_000)),
        protocol=None,
    )
    (event,) = history.about("g").events
    assert len(event.partitions) == LIST_MAX and event.partitions_more == 50 - LIST_MAX
    assert len(str(event.fields["leader"])) == TEXT_MAX
    members = event.fields["members"]
    assert isinstance(members, tuple) and len(members) == LIST_MAX + 1
    assert members[-1] == f"and {10_000 - LIST_MAX} more"
    assert all(len(member) <= TEXT_MAX for member in members)
    assert "protocol" not in event.fields
    assert history.size_bytes < 20_000
    assert sum(sys.getsizeof(member) for member in members) <= history.size_bytes


# --- The sentences ---


def test_a_sentence_omits_optional_parts_and_marks_missing_fields() -> None:
    assert sentence(EventKind.MEMBER_LEFT, {"member": "m"}) == "m left"
    assert sentence(EventKind.MEMBER_LEFT, {"member": "m", "instance": "i"}) == "m (static: i) left"
    everything = {"member": "m", "instance": "i", "client": describe_client("c", "h")}
    assert sentence(EventKind.MEMBER_LEFT, everything) == "m (static: i) of client c at h left"
    assert sentence(EventKind.MEMBER_LEFT, {"member": "m", "instance": ""}) == "m left"
    assert sentence(EventKind.MEMBER_LEFT, {}) == "? left"
    assert "epoch 0" in sentence(EventKind.PRODUCER_GIVEN, {"client": "c", "epoch": 0})


def test_brackets_in_a_field_are_not_taken_for_placeholders() -> None:
    hostile = "[{member}] {error} ]["
    assert sentence(EventKind.MEMBER_LEFT, {"member": hostile}) == f"{hostile} left"
    assert sentence(EventKind.MEMBER_LEFT, {"member": "m", "instance": hostile}).count(hostile) == 1


def test_control_characters_of_clients_are_escaped_in_sentences() -> None:
    client = describe_client("x\n2026-01-01 00:00:00.000  all is well\x1b[2J\u202e", "\u00e9\u4e2d")
    said = sentence(EventKind.PRODUCER_GIVEN, {"client": client, "epoch": 0})
    assert said.isprintable()
    assert "x\\n2026" in said and "\\x1b[2J\\u202e" in said and "\u00e9\u4e2d" in said
    assert sentence(EventKind.CONSUMER_JOINED, {"member": "m", "topics": ("a\r",)}).endswith(
        "to a\\r"
    )


@pytest.mark.parametrize("what", EventKind, ids=lambda what: what.name)
def test_every_kind_of_event_has_a_complete_sentence(what: EventKind) -> None:
    names = re.findall(r"\{(\w+)\}", what.value)
    assert names
    said = sentence(what, {name: f"<{name}>" for name in names})
    assert all(f"<{name}>" in said for name in names)
    assert not set("[]{}") & set(said)
    assert sentence(what, {}).count("?") >= 1 or sentence(what, {}) == ""
    assert "  " not in said and said == said.strip()


def test_durations_are_written_with_readable_units() -> None:
    told = [
        duration_text(each) for each in (-5, 0, 999, 1_000, 59_900, 90_000, 5_400_000, 259_200_000)
    ]
    assert told == ["0 ms", "0 ms", "999 ms", "1.0 s", "59.9 s", "1.5 min", "1.5 h", "3.0 d"]


def test_a_state_is_shortened_like_an_event() -> None:
    now = SubjectState.of(
        EventKind.NOW_NOTHING,
        {"reason": "x" * 1_000},
        other=None,
        partitions=[("b", 1), ("a", 0)],
    )
    assert len(str(now.fields["reason"])) == TEXT_MAX and "other" not in now.fields
    assert now.partitions == (("a", 0), ("b", 1))
