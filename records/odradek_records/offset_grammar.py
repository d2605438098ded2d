"""The grammar of the option for the start and the end of reading: kcat's, with ISO times.

    beginning | earliest     the oldest record
    end | latest             only records that are appended later
    stored                   the group's committed offset
    N                        this offset
    -N                       N records before the end
    ISO, s@TIME or @TIME     the first record at that time or later
    e@TIME                   stop before the first record at TIME or later

TIME is milliseconds since the epoch, or ISO 8601 (2024-05-01, 2024-05-01T12:30, with or without a
zone; without one it is the local time).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class OffsetError(ValueError):
    """The error of an invalid offset, with the allowed forms."""


class OffsetBase(Enum):
    """The base from which an offset is counted."""

    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    OFFSET = "offset"
    BEFORE_END = "before end"
    TIME = "time"


_NAMES = {
    "beginning": OffsetBase.BEGINNING,
    "earliest": OffsetBase.BEGINNING,
    "end": OffsetBase.END,
    "latest": OffsetBase.END,
    "stored": OffsetBase.STORED,
}


#: The start of a date with hyphens. A date without hyphens needs `@` (`@20240501`), because a text
#: of only digits is an offset.
_LOOKS_LIKE_A_DATE = re.compile(r"\d{4}-")


@dataclass(frozen=True)
class Bound:
    """A bound of a range. `value`: an offset, a count, or milliseconds since the epoch."""

    place: OffsetBase
    value: int = 0


@dataclass(frozen=True)
class OffsetSpan:
    """The range to read. `stop_ms` None: read on."""

    start: Bound | None
    stop_ms: int | None = None


def parse_time(text: str, zone: Callable[[], dt.tzinfo] | None = None) -> int:
    """Milliseconds since the epoch. A time without a zone has that of `zone`, or is the local time.
    Raises OffsetError, and what `zone` raises."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.astimezone() if zone is None else moment.replace(tzinfo=zone())
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise OffsetError(
            f"{text!r} is no time; write milliseconds since the epoch, or 2024-05-01T12:30:00Z"
        ) from None


def utc_time(time_ms: int) -> str:
    """A time in milliseconds since the epoch as a text for `parse_time`, in UTC."""
    moment = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_offset(text: str) -> Bound:
    """Parse the place where reading starts. Raises OffsetError for an invalid text."""
    if text in _NAMES:
        return Bound(_NAMES[text])
    if re.fullmatch(r"\d+", text):
        return Bound(OffsetBase.OFFSET, int(text))
    if re.fullmatch(r"-\d+", text):
        return Bound(OffsetBase.BEFORE_END, -int(text))
    for prefix in ("s@", "@"):
        if text.startswith(prefix):
            return Bound(OffsetBase.TIME, parse_time(text[len(prefix) :]))
    if _LOOKS_LIKE_A_DATE.match(text):
        return Bound(OffsetBase.TIME, parse_time(text))
    raise OffsetError(
        f"{text!r} is no offset; write beginning, end, stored, N, -N, a time such as "
        "2024-05-01T12:30:00Z, s@TIME or e@TIME"
    )


def parse_span(texts: list[str]) -> OffsetSpan:
    """Parse all `-o` options of one command. Raises OffsetError if an option is invalid, or if
    there is more than one start or more than one e@TIME."""
    start: Bound | None = None
    stop_ms: int | None = None
    for text in texts:
        if text.startswith("e@"):
            if stop_ms is not None:
                raise OffsetError("two ends are given; write e@TIME once")
            stop_ms = parse_time(text[2:])
        elif start is not None:
            raise OffsetError(f"two starts are given, the second is {text!r}")
        else:
            start = parse_offset(text)
    return OffsetSpan(start, stop_ms)
