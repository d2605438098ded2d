"""Where the transaction coordinator and the partitions' leaders meet.

The coordinator asks for markers; a partition's leader asks the coordinator about a transaction's
partitions. Both ask through these, whether the other side is in this process or not (D8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from odradek_broker.deferred import Deferred
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode

PartitionCodes = Mapping[TopicPartition, ErrorCode]
"""An error code for each partition."""


@dataclass(frozen=True, slots=True)
class MarkerRequest:
    """End one producer's transaction in these partitions (T-40).

    `commit` False aborts. `transaction_version`: 2 where the epoch was raised for this marker, so
    that it must be above the data's (T-41).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
    partitions: Sequence[TopicPartition]


class MarkerWriter(Protocol):
    """The partitions' leaders, as the coordinator needs them."""

    def write_markers(
        self, markers: Sequence[MarkerRequest], /
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """Write markers; resolves with one code per partition (T-43) when they are durable.

        The coordinator asks for one producer at a time, so a partition occurs once.
        """
        ...


class TransactionVerifier(Protocol):
    """The coordinator of a transactional id, as a partition's leader needs it."""

    def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        add: bool,
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]]:
        """Are these partitions part of the producer's open transaction?

        `add` puts in what is missing, durably (T-61, as T-20); otherwise what is missing gets
        TRANSACTION_ABORTABLE (T-62). The codes are the coordinator's own: the leader maps them.
        """
        ...
