"""Acknowledged records are in the log exactly once and in order; other records are there at most
once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Sent:
    """The records that one producer sent to one partition, in the order of its calls."""

    values: list[bytes] = field(default_factory=list)
    #: Value -> acknowledged offset.
    acknowledged: dict[bytes, int] = field(default_factory=dict)


def check_acknowledged(
    sent: Mapping[tuple[str, str], Sent], logs: Mapping[str, Sequence[tuple[int, bytes]]]
) -> Iterator[str]:
    """Yield violations.

    `sent`: the records sent, by (producer, partition). `logs`: (offset, value) of all readable
    records, by partition. Values must be distinct.
    """
    found: dict[bytes, list[tuple[str, int]]] = {}
    for partition, records in logs.items():
        last = -1
        for offset, value in records:
            if offset <= last:
                yield f"{partition}: offset {offset} was read behind {last}"
            last = offset
            found.setdefault(value, []).append((partition, offset))
    known: set[bytes] = set()
    for (producer, partition), calls in sorted(sent.items()):
        known.update(calls.values)
        yield from _check_one(producer, partition, calls, found)
    for value, places in found.items():
        if value not in known:
            yield f"{places[0][0]}: {value!r} at {places[0][1]} was never sent"


def _check_one(
    producer: str, partition: str, calls: Sent, found: Mapping[bytes, list[tuple[str, int]]]
) -> Iterator[str]:
    last_offset, last_value = -1, b""
    for value in calls.values:
        places = found.get(value, [])
        offset = calls.acknowledged.get(value)
        if len(places) > 1:
            yield f"{producer}: {value!r} is there {len(places)} times: {places}"
        if offset is not None and (partition, offset) not in places:
            yield (
                f"{producer}: {value!r} was acknowledged at {partition} offset {offset}, and is"
                f" {'nowhere' if not places else f'at {places}'}"
            )
        if places:
            if places[0][1] < last_offset:
                yield (
                    f"{producer}: {value!r} at {places[0]} comes before {last_value!r}, which was"
                    " sent earlier"
                )
            last_offset, last_value = places[0][1], value
