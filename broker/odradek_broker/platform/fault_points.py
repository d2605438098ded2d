"""Fault points: the points at which a broker under test kills itself (the crash table in rule
T-50).

A crash is most dangerous between two steps that belong together. Between such steps of a
transaction there is a named point: `fault_points.reach(FaultPoint.PREPARE_COMMIT_DURABLE)`. The
call has an effect only if the point was armed before the broker started. Only `ODRADEK_FAULT_POINT`
in the environment of `odradek serve` arms a point: no setting, no file and no request does. The
effect is in `fault_injection.py`. Faults that users order are in `odradek_testkit.fault_control`.

Without an armed point, `reach` is one comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

#: The environment variable that arms a point. Its value is `NAME`, or `NAME:N` for the Nth time
#: that the point is reached.
FAULT_POINT_VARIABLE = "ODRADEK_FAULT_POINT"


class FaultPoint(Enum):
    """All fault points. Each is named after the step that was just done; brackets contain the row
    of the crash table."""

    #: [T-50a] InitProducerId is durable, its answer is not sent.
    INIT_PRODUCER_ID_DURABLE = "init-producer-id-durable"
    #: [T-50b] A block of producer ids is durable, no id of it is used.
    PRODUCER_ID_BLOCK_DURABLE = "producer-id-block-durable"
    #: [T-50c] Partitions were added to a transaction, nothing is written to them.
    PARTITIONS_ADDED_DURABLE = "partitions-added-durable"
    #: [T-50d] A batch of an open transaction is in its log, but the producer has no answer yet.
    TRANSACTIONAL_BATCH_WRITTEN = "transactional-batch-written"
    #: [T-50e] The decision to commit is durable, no marker is written.
    PREPARE_COMMIT_DURABLE = "prepare-commit-durable"
    #: [T-50f] The decision to abort is durable, no marker is written.
    PREPARE_ABORT_DURABLE = "prepare-abort-durable"
    #: [T-50e, T-50f] At least one marker is written, perhaps not all.
    MARKER_WRITTEN = "marker-written"
    #: [T-50g] All markers are durable, the Complete record is not written.
    ALL_MARKERS_DURABLE = "all-markers-durable"
    #: [T-50h] The end of a transaction is decided, but not recorded.
    PREPARE_DECIDED = "prepare-decided"
    #: [T-50i] The record of the decision is written in part.
    PREPARE_TORN = "prepare-torn"
    #: [T-50j] A marker is written in part.
    MARKER_TORN = "marker-torn"
    #: [T-50k] A group's offsets are durable in an open transaction, but the producer has no answer
    #: yet.
    TRANSACTIONAL_OFFSETS_DURABLE = "transactional-offsets-durable"

    @property
    def tears(self) -> bool:
        """True if the process ends in the middle of its next write, and not at the point itself."""
        return self in (FaultPoint.PREPARE_TORN, FaultPoint.MARKER_TORN)


class UnknownFaultPoint(ValueError):
    """A name that is no fault point; the message lists those that are."""


class FaultPoints:
    """The fault points of one broker.

    `action` is called when the armed point is reached for the `nth` time. The action does not
    return, or makes the next write tear.
    """

    __slots__ = ("_action", "_armed", "_left")

    def __init__(
        self,
        armed: FaultPoint | None = None,
        nth: int = 1,
        action: Callable[[FaultPoint], None] | None = None,
    ) -> None:
        if armed is not None and action is None:
            raise ValueError("a point that is armed needs something that happens there")
        self._armed = armed
        self._left = nth
        self._action = action

    def reach(self, point: FaultPoint) -> None:
        """Run the action if this point is armed."""
        if point is not self._armed:
            return
        self._left -= 1
        if self._left == 0 and self._action is not None:
            self._action(point)


#: The fault points of a broker that is not under test: none is armed.
NO_FAULT_POINTS = FaultPoints()


def parse_fault_point(text: str) -> tuple[FaultPoint, int]:
    """`NAME` or `NAME:N`, N from 1 on. Raises UnknownFaultPoint for anything else."""
    name, colon, count = text.partition(":")
    try:
        point = FaultPoint(name)
    except ValueError:
        known = ", ".join(each.value for each in FaultPoint)
        raise UnknownFaultPoint(
            f"{FAULT_POINT_VARIABLE}: there is no fault point {name!r}; there are {known}"
        ) from None
    if not colon:
        return point, 1
    if not (count.isascii() and count.isdigit() and int(count) > 0):
        raise UnknownFaultPoint(
            f"{FAULT_POINT_VARIABLE}: {text!r} must end in a number from 1 on, as in {name}:2"
        )
    return point, int(count)
