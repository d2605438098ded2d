"""Times and durations as callers give them, and Kafka's: milliseconds since 1970, UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

Time = int | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_NUMBER = "[+-]?[0-9]{1,19}"
_ISO_DURATION = re.compile(
    rf"(?P<sign>[+-]?)P(?:(?P<days>{_NUMBER})D)?"
    rf"(?P<time>T(?:(?P<hours>{_NUMBER})H)?(?:(?P<minutes>{_NUMBER})M)?"
    rf"(?:(?P<seconds>{_NUMBER})(?:[.,](?P<fraction>[0-9]{{0,9}}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_UNITS_S = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_FRACTION_DIGITS = 9
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000


def as_ms(at: Time, what: str) -> int:
    """The milliseconds since 1970 of a time, given in milliseconds or as a datetime (local time
    without a time zone). TypeError with `what` for anything else."""
    if isinstance(at, datetime):
        # The method timestamp() would return a float, which rounds some milliseconds down.
        return (at.astimezone(UTC) - _EPOCH) // _MILLISECOND
    if not isinstance(at, int) or isinstance(at, bool):
        raise TypeError(
            f"{what} is {type(at).__name__}; give a datetime, or whole milliseconds since 1970"
        )
    return at


def parse_iso_duration_ms(text: str) -> int | None:
    """Parse an ISO 8601 duration of days, hours, minutes and seconds, such as P2DT1H30M; None for
    any other text. Fractions of a millisecond are rounded up.

    Kafka's tools and clients take the same texts, with signs, either decimal separator and letters
    of either case: those of Java.
    """
    match = _ISO_DURATION.fullmatch(text)
    if match is None or match["time"] in ("T", "t"):
        return None
    amounts = {unit: match[unit] for unit in _UNITS_S if match[unit] is not None}
    if not amounts:
        return None
    fraction_ns = int((match["fraction"] or "").ljust(_FRACTION_DIGITS, "0"))
    if amounts.get("seconds", "").startswith("-"):
        fraction_ns = -fraction_ns
    whole_s = sum(int(amount) * _UNITS_S[unit] for unit, amount in amounts.items())
    duration_ns = whole_s * _NS_PER_S + fraction_ns
    if match["sign"] == "-":
        duration_ns = -duration_ns
    return -(-duration_ns // _NS_PER_MS)
