"""Comparison of the records of two clusters, partition by partition, in little memory.

With the same offsets every record that both logs can still have is compared with its offset, also
those of aborted transactions, and the ends of the logs. A copy that was made exactly once has the
committed records in the same order. Compaction runs at each cluster by itself, so a difference in
a compacted topic may only be compaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from odradek.mirror.plan import Mode, ends_of
from odradek_client.admin import Admin
from odradek_client.consumer.consumer import Consumer
from odradek_client.structs import ConsumerRecord, TopicPartition

_POLL_MS = 500


async def _records(
    settings: dict[str, Any], tp: TopicPartition, first: int, end: int, *, committed: bool
) -> AsyncIterator[ConsumerRecord]:
    """The records of a partition at offsets from `first` up to `end`."""
    isolation = "read_committed" if committed else "read_uncommitted"
    async with Consumer(
        **settings, isolation_level=isolation, enable_auto_commit=False
    ) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, first)
        while await consumer.position(tp) < end:
            for record in await consumer.poll(timeout_ms=_POLL_MS):
                if record.offset >= end:
                    return
                yield record


def _content(record: ConsumerRecord | None, *, with_offset: bool) -> tuple[object, ...] | None:
    if record is None:
        return None
    offset = record.offset if with_offset else None
    return offset, record.timestamp, record.key, record.value, tuple(record.headers)


async def differences(
    source: tuple[Admin, dict[str, Any]],
    target: tuple[Admin, dict[str, Any]],
    topics: list[str],
    mode: Mode,
) -> tuple[int, list[str]]:
    """The number of equal records, and the first difference of each partition."""
    here = await ends_of(source[0], (await source[0].describe_topics(topics)).values())
    there = await ends_of(target[0], (await target[0].describe_topics(topics)).values())
    equal, found = 0, list[str]()
    for tp, (first, end) in sorted(here.items()):
        if tp not in there:
            found.append(f"{tp.topic}-{tp.partition} is missing at the target")
            continue
        same = mode is Mode.SAME_OFFSETS
        first_there, end_there = there[tp]
        if same and end != end_there:
            found.append(
                f"{tp.topic}-{tp.partition} ends at offset {end} at the source, and at {end_there}"
                " at the target"
            )
        begin = max(first, first_there) if same else first
        begin_there = begin if same else first_there
        ours = _records(source[1], tp, begin, end, committed=not same)
        theirs = _records(target[1], tp, begin_there, end_there, committed=not same)
        count, difference = await _compare(tp, ours, theirs, with_offset=same)
        equal += count
        found += difference
    return equal, found


async def _compare(
    tp: TopicPartition,
    ours: AsyncIterator[ConsumerRecord],
    theirs: AsyncIterator[ConsumerRecord],
    *,
    with_offset: bool,
) -> tuple[int, list[str]]:
    """The number of equal records up to the first difference, and its text if there is one."""
    equal = 0
    while True:
        left, right = await anext(ours, None), await anext(theirs, None)
        if left is None and right is None:
            return equal, []
        if _content(left, with_offset=with_offset) != _content(right, with_offset=with_offset):
            at = "no record" if left is None else f"offset {left.offset}"
            at_target = "no record" if right is None else f"offset {right.offset}"
            text = (
                f"{tp.topic}-{tp.partition} differs behind {equal} equal records: {at} of the"
                f" source, {at_target} of the target"
            )
            return equal, [text]
        equal += 1
