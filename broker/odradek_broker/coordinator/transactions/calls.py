"""The requests of producers with a transactional id, as the coordinator decides about them, and their
answers."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from odradek_broker.coordinator.transactions.states import (
    TransactionState,
)
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode

_E = ErrorCode
_S = TransactionState

#: The transaction version from which on every end of a transaction raises the epoch (KIP-890).
VERSION_2 = 2


class InitCall(NamedTuple):
    """An InitProducerId with a transactional id. -1 and -1 for a producer that knows none yet.

    `client`, here and below, is who asks, for people; empty where it is the broker itself.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    enable_two_phase_commit: bool = False
    keep_prepared: bool = False
    client: str = ""


class EndCall(NamedTuple):
    """An EndTxn. `version` is the transaction version: 2 from EndTxn 5 on."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    version: int
    client: str = ""


class AddCall(NamedTuple):
    """Partitions for a transaction. `version` as in `EndCall`. `group`: whose offsets they are for."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: Collection[TopicPartition]
    version: int
    client: str = ""
    group: str = ""


Call = InitCall | AddCall | EndCall


class InitAnswer(NamedTuple):
    """The answer to InitProducerId."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1
    ongoing_producer_id: int = -1
    ongoing_epoch: int = -1


class EndAnswer(NamedTuple):
    """The answer to EndTxn: the identity to go on with."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1
