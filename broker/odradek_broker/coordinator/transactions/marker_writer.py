"""Writes the markers that end transactions, through each partition's leader (rules T-40 to T-45).

The transaction coordinator of this broker and WriteTxnMarkers from the network both come through
here, so that a marker means the same whoever asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

from odradek_broker.coordinator.transactions.interfaces import MarkerRequest
from odradek_broker.deferred import Deferred, gather
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.partition import Partition
from odradek_broker.platform.fault_points import FaultPoint, FaultPoints
from odradek_broker.platform.seams import Clock
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode

MarkerResults = dict[TopicPartition, ErrorCode]


class Leadership(Protocol):
    """The leaders in the cluster metadata."""

    def leader_of(self, name: str, partition: int, /) -> int | None:
        """The node that leads; None if there is no such partition."""
        ...


class OffsetsReader(Protocol):
    """Who must know of markers on `__consumer_offsets` (O-17)."""

    def marker_written(
        self, index: int, producer_id: int, commit: bool, written: Deferred[ErrorCode], /
    ) -> None:
        """See `GroupCoordinator.marker_written`."""
        ...


class MarkerEnv(Protocol):
    """The node, as the marker writer needs it."""

    @property
    def clock(self) -> Clock:
        """For the markers' timestamps."""
        ...

    @property
    def faults(self) -> FaultPoints:
        """Where a broker under test dies."""
        ...

    @property
    def metadata(self) -> Leadership:
        """Who leads what (D8)."""
        ...

    @property
    def groups(self) -> OffsetsReader:
        """The group coordinator."""
        ...

    def partition(self, topic: str, index: int, /) -> Partition | None:
        """A partition that this node leads."""
        ...


def write_markers(env: MarkerEnv, markers: Sequence[MarkerRequest]) -> Deferred[MarkerResults]:
    """Markers of several producers, no partition twice; see `MarkerWriter`."""
    return gather([write_marker(env, marker) for marker in markers]).map(
        lambda results: dict(chain.from_iterable(map(dict.items, results)))
    )


def write_marker(env: MarkerEnv, marker: MarkerRequest) -> Deferred[MarkerResults]:
    """One producer's markers; resolves when all of them are durable or refused.

    Codes (T-43): NONE; 3 where there is no such partition and 6 where another broker leads it;
    47 and 52 where a newer producer or coordinator was there before (T-41); 56 from the disk.
    """
    partitions = list(dict.fromkeys(marker.partitions))
    return gather([_write(env, marker, partition) for partition in partitions]).map(
        lambda codes: dict(zip(partitions, codes, strict=True))
    )


def _write(env: MarkerEnv, marker: MarkerRequest, where: TopicPartition) -> Deferred[ErrorCode]:
    topic, index = where
    partition = env.partition(topic, index)
    if partition is None:
        led = env.metadata.leader_of(topic, index) is not None
        return Deferred.of(
            ErrorCode.NOT_LEADER_OR_FOLLOWER if led else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    env.faults.reach(FaultPoint.MARKER_TORN)
    written = partition.append_marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        commit=marker.commit,
        transaction_version=marker.transaction_version,
        now_ms=env.clock.wall_ms(),
    )
    refused = written.done and written.result() is not ErrorCode.NONE
    if not refused:
        env.faults.reach(FaultPoint.MARKER_WRITTEN)
    if topic == OFFSETS_TOPIC and not refused:
        env.groups.marker_written(index, marker.producer_id, marker.commit, written)
    return written
