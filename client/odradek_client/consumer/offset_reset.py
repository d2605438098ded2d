"""The position without a committed offset: auto.offset.reset (O-16, KIP-1106)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import NamedTuple

from odradek_protocol.constants import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

#: In place of a timestamp of ListOffsets: a duration before the time of the request.
BY_DURATION = -1_000_000

_PREFIX = "by_duration:"
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class OffsetResetPolicy(NamedTuple):
    """The policy of auto.offset.reset. `timestamp`: that of ListOffsets, None to raise instead,
    BY_DURATION for the first record of the last `duration_ms`."""

    timestamp: int | None
    duration_ms: int = 0


_NAMED = {
    "earliest": OffsetResetPolicy(EARLIEST_TIMESTAMP),
    "latest": OffsetResetPolicy(LATEST_TIMESTAMP),
    "none": OffsetResetPolicy(None),
}


def parse_reset(text: str | timedelta) -> OffsetResetPolicy:
    """ "earliest", "latest", "none", or a duration: a timedelta, or "by_duration:" and an ISO 8601
    duration. ValueError with the problem."""
    if isinstance(text, timedelta):
        if text < timedelta(0):
            raise ValueError(f"auto_offset_reset={text!r} must not be negative")
        return OffsetResetPolicy(BY_DURATION, text // timedelta(milliseconds=1))
    if not isinstance(text, str):
        raise ValueError(  # noqa: TRY004  a setting's value is wrong
            f"auto_offset_reset={text!r} must be one of {', '.join(_NAMED)}, or a timedelta"
        )
    plain = text.strip()
    named = _NAMED.get(plain.lower())
    if named is not None:
        return named
    if not plain.lower().startswith(_PREFIX):
        raise ValueError(
            f"auto_offset_reset={text!r} must be one of {', '.join(_NAMED)}, or "
            f"by_duration:PT1H for one hour back"
        )
    match = _DURATION.fullmatch(plain[len(_PREFIX) :])
    parts = match.groupdict() if match is not None else {}
    given = {unit: amount for unit, amount in parts.items() if amount is not None}
    if not given or plain.upper().endswith("T"):
        raise ValueError(
            f"auto_offset_reset={text!r} names no duration; write it as in P7D, PT1H30M or PT0.5S"
        )
    duration_ms = round(sum(float(amount) * _UNITS_MS[unit] for unit, amount in given.items()))
    return OffsetResetPolicy(BY_DURATION, duration_ms)
