"""Points in time as callers give them, and as Kafka has them: milliseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

Time = int | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def as_ms(at: Time, what: str) -> int:
    """Milliseconds since 1970 of a time that is given as such, or as a datetime (which without a
    zone is local time, as everywhere in Python). TypeError that names `what` for anything else."""
    if isinstance(at, datetime):
        # Not timestamp(): a float would round some milliseconds down.
        return (at.astimezone(UTC) - _EPOCH) // _MILLISECOND
    if not isinstance(at, int) or isinstance(at, bool):
        raise TypeError(
            f"{what} is {type(at).__name__}; give a datetime, or whole milliseconds since 1970"
        )
    return at
