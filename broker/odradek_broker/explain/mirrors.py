"""The events of mirror topics, and their present state (`odradek explain mirror`)."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

from odradek_broker.explain.history import Fields, History, SubjectState, remark
from odradek_broker.explain.sentences import EventKind, duration_text
from odradek_broker.mirror.events import MirrorDecision, MirrorEvent, SourceState
from odradek_broker.slices import paced
from odradek_broker.storage.log import PartitionLog
from odradek_protocol.errors import ErrorCode

#: The limit of the partitions that are shown separately.
_PARTITIONS_MAX = 100

_KINDS = {
    MirrorEvent.BEGAN: EventKind.MIRROR_BEGAN,
    MirrorEvent.APPENDED: EventKind.MIRROR_APPENDED,
    MirrorEvent.RESTARTED: EventKind.MIRROR_RESTARTED,
    MirrorEvent.EPOCH_RAISED: EventKind.MIRROR_EPOCH_RAISED,
    MirrorEvent.LOG_START_MOVED: EventKind.MIRROR_LOG_START_MOVED,
    MirrorEvent.REFUSED: EventKind.MIRROR_REFUSED,
    MirrorEvent.PROMOTED: EventKind.MIRROR_PROMOTED,
    MirrorEvent.NOT_PROMOTED: EventKind.MIRROR_NOT_PROMOTED,
}


class MirrorRecorder:
    """Records the decisions about mirror topics in a history, by the name of the topic."""

    def __init__(self, history: History) -> None:
        self._history = history

    def record(self, decision: MirrorDecision, /) -> None:
        """Record a decision; equal decisions in a row become one event."""
        self._history.record(
            decision.topic,
            _KINDS[decision.event],
            error=decision.error,
            partitions=decision.partitions,
            topic=decision.topic,
            offset=decision.offset if decision.offset >= 0 else None,
            epoch=decision.epoch if decision.epoch >= 0 else None,
            aborted=decision.aborted or None,
            reason=decision.reason or None,
        )

    def produce_refused(self, topic: str, index: int) -> None:
        """Record that a mirror topic has refused records of a producer."""
        self._history.record(
            topic,
            EventKind.MIRROR_PRODUCE_REFUSED,
            error=ErrorCode.INVALID_REQUEST,
            partitions=((topic, index),),
        )


def state_of_mirror(topic: str, source: str | None, partitions: int) -> SubjectState:
    """The state of a topic; `source` is None for an ordinary topic."""
    if source is None:
        return SubjectState.of(EventKind.NOW_NO_MIRROR, topic=topic)
    return SubjectState.of(EventKind.NOW_MIRROR, topic=topic, source=source, count=partitions)


async def states_of_mirrored(
    logs: Sequence[tuple[PartitionLog, SourceState | None]], now_ms: int
) -> list[SubjectState]:
    """The states of the mirrored partitions that are furthest behind their sources. The state of a
    source is None if no mirror has reported it since the start of the broker."""
    ranked = [
        (-records_behind(log, source), log.partition, log, source)
        async for log, source in paced(logs)
    ]
    furthest = nsmallest(_PARTITIONS_MAX, ranked)
    shown = [_state_of_mirrored(log, source, now_ms) for _, _, log, source in furthest]
    if len(logs) > len(furthest):
        more = len(logs) - len(furthest)
        shown.append(remark(f"{more} more partitions are not further behind"))
    return shown


def records_behind(log: PartitionLog, source: SourceState | None) -> int:
    """The number of offsets by which a mirrored partition is behind its source; -1 if unknown."""
    if source is None or source.high_watermark < 0:
        return -1
    return max(source.high_watermark - log.high_watermark, 0)


def _state_of_mirrored(log: PartitionLog, source: SourceState | None, now_ms: int) -> SubjectState:
    fields: Fields = {"start": log.log_start_offset, "offset": log.high_watermark}
    behind = records_behind(log, source)
    if source is not None and behind >= 0:
        told = duration_text(now_ms - source.told_ms)
        fields |= {"end": source.high_watermark, "behind": behind, "told": told}
    where = (log.topic, log.partition)
    return SubjectState.of(EventKind.NOW_MIRRORED, fields, partitions=(where,))
