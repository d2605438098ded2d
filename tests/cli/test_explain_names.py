"""Short names in `odradek explain`, and the events that are new for `--follow`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek_cli.cluster import explain
from odradek_cli.cluster.explain_text import MemberNames, Printer
from odradek_client.admin.history import CurrentState, HistoryDescription, HistoryEvent

A = "c-00000000-0000-4000-8000-00000000000a"
B = "c-00000000-0000-4000-8000-00000000000b"
C = "dddddddddddddddddddddd"


def event(time_ms: int, text: str, times: int = 1, name: str = "x", **details: str) -> HistoryEvent:
    return HistoryEvent(time_ms, time_ms + times, times, name, text, details)


def history(*events: HistoryEvent, started_ms: int = 0) -> HistoryDescription:
    return HistoryDescription(1, 90_000, started_ms, started_ms, 0, list(events), [])


# --- Names ---


def test_members_are_named_by_client_id_with_a_number_for_duplicates() -> None:
    names = MemberNames()
    assert names.see(f"{A} joined", {"member": A, "client": "client c at h"}) == [A]
    assert names.see(f"because of {B}, {A}", {}) == [B]
    assert names.see(f"{C} joined", {"member": C, "client": "client dee at h"}) == [C]
    assert names.see(f"{A}, {B}, {C}", {}) == []
    assert names.legend([A, B, C]) == [
        ("c", f"{A} at h"),
        ("c#2", B),
        ("dee", f"{C}, client dee at h"),
    ]
    details = {"member": A, "client": "client c at h"}
    assert names.short(f"{A} (static: i) of client c at h left; {B} ({C})", details) == (
        "c (static: i) left; c#2 (dee)"
    )


def test_a_member_id_inside_another_word_is_not_replaced() -> None:
    names = MemberNames()
    names.see("", {"member": C, "client": "client dee at h"})
    assert names.short(f"x{C} {C}-1 {C}", {}) == f"x{C} {C}-1 dee"


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("client (no id) at h", "member"),
        ("client a b\x1b[1m at h", "a_b\\x1b[1m"),
        (f"client {'x' * 90} at h", "x" * 23 + "…"),
    ],
)
def test_odd_client_ids_become_readable_names(client: str, name: str) -> None:
    names = MemberNames()
    names.see("", {"member": C, "client": client})
    assert names.legend([C])[0][0] == name


@pytest.mark.full
def test_names_of_members_stay_while_others_join() -> None:
    names = MemberNames()
    ids = [f"c-00000000-0000-4000-8000-{number:012x}" for number in range(200)]
    for each in ids:
        names.see(each, {})
    assert names.short(ids[0], {}) == "c" and names.short(ids[199], {}) == "c#200"


# --- Lines ---


def test_no_line_is_longer_than_100_columns_with_long_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "n" * 260
    found = replace(
        history(event(1, f"{A} did {'much ' * 60}", member=A, client=f"client {long} at h")),
        states=[CurrentState("now", f"{long} {long}", {})],
        complete_since_ms=5,
        dropped=3,
    )
    for several in (False, True):
        printer = Printer(short_names=True, several=several)
        printer.head(f"group {long}", [found], shown=1)
        printer.legend([(each.text, each.details) for each in found.events])
        printer.event(1, found.events[0])
        printer.event(1, event(500, f"{B} joined", times=3))
        printer.now([found])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 100
    assert any(" c joined (3 times, last at" in line and "+498 ms  " in line for line in lines)
    assert any("(3 older events were dropped" in line for line in lines)


# --- Following ---


def test_only_events_since_the_last_request_are_new() -> None:
    one, two, three = event(1, "a"), event(2, "b"), event(2, "c")
    assert explain._since(None, history(one)).events == [one]
    assert explain._since(history(one), history(one)).events == []
    assert explain._since(history(one), history(one, two, three)).events == [two, three]
    # A repetition raises the count of an event, so that the event is shown again.
    again = event(1, "a", times=2)
    assert explain._since(history(one), history(again, two)).events == [again, two]
    # The events in the previous answer were dropped afterwards, or lost in a restart.
    assert explain._since(history(one), history(two, three)).events == [two, three]
    assert explain._since(history(one), history(one, started_ms=7)).events == [one]
    assert explain._since(history(), history(one)).events == [one]
