"""Conversion of callers' times to Kafka's timestamps: milliseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

Time = int | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def as_ms(at: Time, what: str) -> int:
    """The milliseconds since 1970 of a time, given in milliseconds or as a datetime (local time if
    it has no time zone). TypeError, with `what` in its text, for any other type."""
    if isinstance(at, datetime):
        # The method timestamp() returns a float, so some times would be a millisecond too low.
        return (at.astimezone(UTC) - _EPOCH) // _MILLISECOND
    if not isinstance(at, int) or isinstance(at, bool):
        raise TypeError(
            f"{what} is {type(at).__name__}; give a datetime, or whole milliseconds since 1970"
        )
    return at
