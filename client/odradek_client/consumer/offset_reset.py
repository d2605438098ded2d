"""The policies of auto.offset.reset. A policy sets the position of a partition without a committed
offset (O-16, KIP-1106).
"""

from __future__ import annotations

from datetime import timedelta

from odradek_protocol.constants import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.settings import parse_iso_duration_ms

#: A special value of `timestamp`: the time of the request minus `duration_ms`.
BY_DURATION = -1_000_000

_PREFIX = "by_duration:"


class OffsetResetPolicy(NamedTuple):
    """The policy of auto.offset.reset. `timestamp`: the timestamp for ListOffsets; None: raise
    NoOffset instead; BY_DURATION: the first record of the last `duration_ms`."""

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
    duration_ms = parse_iso_duration_ms(plain[len(_PREFIX) :])
    if duration_ms is None:
        raise ValueError(
            f"auto_offset_reset={text!r} names no duration; write it as in P7D, PT1H30M or PT0.5S"
        )
    if duration_ms < 0:
        raise ValueError(f"auto_offset_reset={text!r} must not be negative")
    return OffsetResetPolicy(BY_DURATION, duration_ms)
