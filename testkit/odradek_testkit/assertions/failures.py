"""Texts of failed assertions: the records or offsets that were found, and the history of Odradek's
broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from odradek_client.admin.history import HistoryDescription, Subject
from odradek_client.errors import NothingKnown, OdradekError, UnsupportedByBroker
from odradek_client.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from odradek_client.admin import Admin

_VALUE_MAX = 120
_EVENTS_MAX = 12
_SUBJECTS_MAX = 6


def shown_value(value: object) -> str:
    """A key or value as text, shortened."""
    text = value
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value
    shown = repr(text)
    return (
        shown if len(shown) <= _VALUE_MAX else f"{shown[:_VALUE_MAX]}... ({len(shown)} characters)"
    )


def shown_record(record: ConsumerRecord) -> str:
    """A record in one line."""
    headers = ", ".join(f"{name}={shown_value(value)}" for name, value in record.headers)
    line = (
        f"{record.topic}-{record.partition} offset {record.offset}:"
        f" key {shown_value(record.key)}, value {shown_value(record.value)}"
    )
    return f"{line}, headers {headers}" if headers else line


def section(title: str, lines: Iterable[str]) -> list[str]:
    """A title followed by the indented lines; an empty list if there are no lines."""
    found = [f"  {line}" for line in lines]
    return [title, *found] if found else []


async def explained(admin: Admin, subjects: Iterable[tuple[Subject, str]]) -> list[str]:
    """The newest events and the state of each subject, in the words of `odradek explain`; no lines
    if the broker keeps no history."""
    lines: list[str] = []
    for subject, name in list(subjects)[:_SUBJECTS_MAX]:
        try:
            found = await admin.describe_history(subject, name, limit=_EVENTS_MAX)
        except NothingKnown:
            continue
        except UnsupportedByBroker:
            return lines
        except OdradekError as error:
            lines.append(f"no history of {subject.value} {name}: {error}")
            continue
        told = [line for each in found for line in _told(each)]
        lines += section(f"explain {subject.value} {name}:", told)
    return lines


def _told(found: HistoryDescription) -> list[str]:
    lines = [f"{_time(event.time_ms)}  {event.text}" for event in found.events]
    return lines + [f"now           {state.text}" for state in found.states]


def _time(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000)
    return moment.isoformat(sep=" ", timespec="milliseconds")[11:]


async def explained_topic(admin: Admin, partitions: Iterable[TopicPartition]) -> list[str]:
    """The histories of partitions, and of the producers that last wrote to them."""
    wanted = list(partitions)[:_SUBJECTS_MAX]
    if not wanted:
        return []
    lines = await explained(
        admin, [(Subject.PARTITION, f"{each.topic}-{each.partition}") for each in wanted]
    )
    try:
        described = await admin.describe_producers(wanted, raise_errors=False)
    except OdradekError:
        return lines
    known = {
        each.producer_id: each.last_timestamp_ms for some in described.values() for each in some
    }
    newest = sorted(known, key=lambda each: known[each], reverse=True)
    return lines + await explained(admin, [(Subject.PRODUCER_ID, str(each)) for each in newest])
