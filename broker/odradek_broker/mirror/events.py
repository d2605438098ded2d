"""The decisions about mirror topics, for an observer (`odradek explain mirror`)."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple


class MirrorEvent(Enum):
    """The kinds of events of a mirror topic."""

    BEGAN = "the first request for a partition since the start of the broker"
    APPENDED = "batches were appended"
    RESTARTED = "the log was started again at a later offset"
    EPOCH_RAISED = "a leader epoch was raised"
    LOG_START_MOVED = "the log start followed the source's"
    REFUSED = "batches were refused"
    PROMOTED = "the topic is an ordinary one"
    NOT_PROMOTED = "a promotion failed"


class MirrorDecision(NamedTuple):
    """An event of a mirror topic; unused fields have their defaults."""

    event: MirrorEvent
    topic: str
    partitions: tuple[TopicPartition, ...] = ()
    offset: int = -1
    epoch: int = -1
    aborted: int = 0
    error: ErrorCode = ErrorCode.NONE
    reason: str = ""


class SourceState(NamedTuple):
    """The last report of a mirror about a partition at its source, and the wall time of the report
    in ms."""

    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    told_ms: int


class MirrorObserver(Protocol):
    """A function that gets each decision."""

    def __call__(self, decision: MirrorDecision, /) -> None: ...
