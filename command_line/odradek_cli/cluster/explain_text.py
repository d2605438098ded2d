"""A history as text for people.

Members have short names, which a legend explains. Times are times of day, with the time since the
previous event. Lines are wrapped to the width of the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from odradek_cli.layout import padded, wrap
from odradek_cli.say import say
from odradek_protocol.visible import visible, width

if TYPE_CHECKING:
    from odradek_client.admin.history import HistoryDescription, HistoryEvent

#: The details of an event or state that have a member id.
_MEMBERS = ("member", "fenced_member")
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"

#: A member id of the classic protocol, alone or in a list of members.
_CLASSIC_ID = re.compile(rf"[^\s,]*{_UUID}")
_UUID_END = re.compile(rf"-?{_UUID}$")
_SHORT = 12
_NAME_MAX = 24


class MemberNames:
    """Short names of members: the client id, with `#2`, `#3` for further members with the same
    client id.

    A name never changes, because it depends only on earlier members.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._clients: dict[str, str] = {}
        self._taken: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def see(self, text: str, details: Mapping[str, str]) -> list[str]:
        """Note the members that an event or state names. Returns the new member ids."""
        found = [visible(details[key]) for key in _MEMBERS if len(details.get(key, "")) > _SHORT]
        client = visible(details.get("client", ""))
        if client and "member" in details:
            self._clients.setdefault(visible(details["member"]), client)
        found += _CLASSIC_ID.findall(text)
        new = [each for each in dict.fromkeys(found) if each not in self._names]
        for member_id in new:
            self._names[member_id] = self._new_name(member_id)
        if new:
            longest_first = sorted(self._names, key=len, reverse=True)
            ids = "|".join(map(re.escape, longest_first))
            self._pattern = re.compile(rf"(?<![\w-])(?:{ids})(?![\w-])")
        return new

    def short(self, text: str, details: Mapping[str, str]) -> str:
        """The sentence with short names instead of member ids. Client ids are left out, because the
        short names contain them."""
        if self._pattern is None:
            return text
        client = visible(details.get("client", ""))
        if client and visible(details.get("member", "")) in self._names:
            text = text.replace(f" of {client}", "", 1)
        return self._pattern.sub(lambda found: self._names[found[0]], text)

    def legend(self, member_ids: list[str]) -> list[tuple[str, str]]:
        """(name, meaning) of each member."""
        return [(self._names[each], self._meaning(each)) for each in member_ids]

    def _meaning(self, member_id: str) -> str:
        client_id, host = self._client(member_id)
        if not host:
            return member_id
        # A classic member's id begins with its client id.
        named = "" if member_id.startswith(f"{client_id}-") else f", client {client_id}"
        return f"{member_id}{named} at {host}"

    def _client(self, member_id: str) -> tuple[str, str]:
        """(client id, host); empty if they are not known."""
        client_id, _, host = self._clients.get(member_id, "").rpartition(" at ")
        return client_id.removeprefix("client "), host

    def _new_name(self, member_id: str) -> str:
        client, _ = self._client(member_id)
        if not client or client == "(no id)":
            client = _UUID_END.sub("", member_id) if _UUID_END.search(member_id) else ""
        base = "".join("_" if each.isspace() else each for each in client) or "member"
        if len(base) > _NAME_MAX:
            base = base[: _NAME_MAX - 1] + "…"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}#{number}"
        self._taken.add(name)
        return name


#: Colours of events, by a part of their name.
_STYLES = {
    "refused": typer.colors.RED,
    "stopped": typer.colors.RED,
    "not_recorded": typer.colors.RED,
    "timeout": typer.colors.YELLOW,
    "removed": typer.colors.YELLOW,
    "left": typer.colors.YELLOW,
    "replaced": typer.colors.YELLOW,
    "again": typer.colors.YELLOW,
    "duplicate": typer.colors.YELLOW,
    "held_back": typer.colors.YELLOW,
    "complete": typer.colors.GREEN,
    "stable": typer.colors.GREEN,
}

#: The width of the longest relative time: `+59.9 min`.
_SINCE_WIDTH = 9
_TIME_WIDTH = len("09:20:07.364")
_MARGIN = " " * (_TIME_WIDTH + _SINCE_WIDTH + 3)


def moment(time_ms: int) -> str:
    """Date and time, in this machine's time zone."""
    return datetime.fromtimestamp(time_ms / 1000).isoformat(sep=" ", timespec="milliseconds")


class Printer:
    """Prints one history, and with `follow` its later events."""

    def __init__(self, *, short_names: bool, several: bool) -> None:
        self._names = MemberNames()
        self._short_names = short_names
        self._several = several
        self._date = ""
        self._last_ms: int | None = None

    def head(self, title: str, found: Iterable[HistoryDescription], *, shown: int) -> None:
        """Print the title, and the time from which the history is complete. `shown`: the number of
        events that will be printed."""
        say(*wrap(title, rest="  "), bold=True)
        for each in found:
            for note in self._notes(each):
                self._dim(f"({note})")
        if not shown:
            self._dim("(nothing has happened to it since then)")

    def legend(self, entries: Iterable[tuple[str, dict[str, str]]]) -> None:
        """Print the names of all members in these (sentences, details), with their meaning."""
        if not self._short_names:
            return
        new = [each for text, details in entries for each in self._names.see(text, details)]
        names = self._names.legend(new)
        columns = max((width(name) for name, _ in names), default=0)
        for name, meaning in names:
            say(*wrap(meaning, f"{padded(name, columns)}  = "))

    def event(self, node_id: int, event: HistoryEvent) -> None:
        """Print the lines of an event, with its date if the date has changed."""
        text = event.text
        if self._short_names:
            new = self._names.see(text, event.details)
            for name, meaning in self._names.legend(new):
                self._dim(f"{name} = {meaning}", _MARGIN)
            text = self._names.short(text, event.details)
        if event.times > 1:
            text += f" ({event.times} times, last at {moment(event.last_time_ms)[11:]})"
        date, time = moment(event.time_ms).split(" ")
        if date != self._date:
            self._date = date
            say(date, dim=True)
        self._line(time, self._since(event.time_ms), self._of_node(node_id, text), event.name)
        self._last_ms = max(event.last_time_ms, self._last_ms or 0)

    def now(self, found: Iterable[HistoryDescription]) -> None:
        """Print the present states."""
        label = "now"
        for each in found:
            for state in each.states:
                text = state.text
                if self._short_names:
                    text = self._names.short(text, state.details)
                since = self._since(each.now_ms) if label else ""
                self._line(label, since, self._of_node(each.node_id, text), state.name, bold=True)
                label = ""

    def note(self, text: str) -> None:
        """Print a line between the events."""
        self._dim(f"({text})", _MARGIN)

    def notes_of_restart(self, found: HistoryDescription) -> None:
        """Print that the broker was restarted while its history was followed."""
        for note in self._notes(found):
            self.note(note)

    # --- Parts ---

    def _notes(self, found: HistoryDescription) -> list[str]:
        """Notes on the time from which the events are complete, and on missing events."""
        from odradek_broker.explain.sentences import duration_text

        ago = duration_text(found.now_ms - found.started_ms)
        started = moment(found.started_ms)[:19]
        notes = [
            (
                f"{self._broker(found)} remembers what has happened since its start, {ago} ago at {started};"
                " earlier events are not known"
            )
        ]
        if found.forgotten:
            count = f"{found.dropped} " if found.dropped else ""
            until = moment(found.complete_since_ms)[:19]
            notes.append(f"{count}older events were dropped for newer ones, up to {until}")
        return notes

    def _broker(self, found: HistoryDescription) -> str:
        return f"node {found.node_id}" if self._several else "the broker"

    def _of_node(self, node_id: int, text: str) -> str:
        return f"node {node_id}: {text}" if self._several else text

    def _since(self, time_ms: int) -> str:
        """The time since the previous event; empty if both have the same time, or if a clock was
        set back."""
        if self._last_ms is None or time_ms <= self._last_ms:
            return ""
        from odradek_broker.explain.sentences import duration_text

        return f"+{duration_text(time_ms - self._last_ms)}"

    def _line(
        self, label: str, since: str, text: str, name: str, *, bold: bool | None = None
    ) -> None:
        margin = f"{label.ljust(_TIME_WIDTH)} {since.rjust(_SINCE_WIDTH)}  "
        first, *rest = wrap(text, margin, _MARGIN + "  ")
        colour = next((colour for part, colour in _STYLES.items() if part in name), None)
        say(first[: len(margin)], dim=True, nl=False)
        say(first[len(margin) :], *rest, fg=colour, bold=bold)

    def _dim(self, text: str, margin: str = "") -> None:
        say(*wrap(text, margin, f"{margin} "), dim=True)
