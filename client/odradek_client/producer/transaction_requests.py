"""The requests of a transactional producer to coordinators: their order, and the reactions to
answers.

A handler makes one request and reads the answer. The request is repeated until it has an answer
(C-33). The manager chooses the next request by `RequestPriority` (C-30). The reactions to error
codes are in one table (C-68).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum, auto
from typing import Any

from odradek_client.errors import (
    GroupMovedOn,
    OdradekError,
    ProducerFenced,
    UnsupportedByBroker,
    error_for,
)
from odradek_client.producer.batch import Future, NewFuture, ProducerIdAndEpoch
from odradek_client.structs import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
)
from odradek_protocol.constants import GROUP_COORDINATOR, TRANSACTION_COORDINATOR
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.schemas import (
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)
from odradek_protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek_protocol.schemas.end_txn import EndTxnRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TWO_PHASE_REMEDY = (
    "two-phase commit (KIP-939) needs Kafka 4.3 or newer whose brokers all have "
    "transaction.two.phase.commit.enable=true and unstable.api.versions.enable=true, and the right "
    "TWO_PHASE_COMMIT on the transactional id where there are ACLs"
)


class RequestPriority(IntEnum):
    """The kinds of requests, in the order in which they are sent (C-30). Kinds with the same rank
    are sent in the order in which they were requested."""

    INIT = 1
    ADD_PARTITIONS = 2
    ADD_OFFSETS = 3
    COMMIT_OFFSETS = 4
    END = 5
    BUMP = 6

    @property
    def rank(self) -> int:
        return (
            2
            if RequestPriority.ADD_PARTITIONS <= self <= RequestPriority.COMMIT_OFFSETS
            else int(self)
        )


class TxnReaction(Enum):
    """The reaction to a coordinator's error code (C-68). If an answer has several codes, the
    reaction that is last in this list applies."""

    DONE = auto()
    RETRY = auto()
    FIND_COORDINATOR = auto()  # look up the coordinator again, and retry
    ABORTABLE = auto()
    FORGOTTEN = auto()  # abortable if the epoch can be bumped, else fatal
    BACK = auto()  # the call fails without an effect, and may be made again
    FATAL = auto()


_E = ErrorCode
_SPECIAL = {
    _E.NONE: TxnReaction.DONE,
    _E.COORDINATOR_NOT_AVAILABLE: TxnReaction.FIND_COORDINATOR,
    _E.NOT_COORDINATOR: TxnReaction.FIND_COORDINATOR,
    _E.TOPIC_AUTHORIZATION_FAILED: TxnReaction.ABORTABLE,
    _E.GROUP_AUTHORIZATION_FAILED: TxnReaction.ABORTABLE,
    _E.OPERATION_NOT_ATTEMPTED: TxnReaction.ABORTABLE,
    _E.TRANSACTION_ABORTABLE: TxnReaction.ABORTABLE,
    _E.UNKNOWN_PRODUCER_ID: TxnReaction.FORGOTTEN,
}
#: The reaction to each code, for every kind of request.
REACTIONS: dict[ErrorCode, TxnReaction] = {
    code: _SPECIAL.get(code, TxnReaction.RETRY if code.retriable else TxnReaction.FATAL)
    for code in _E
}
#: The reactions that are different for some kinds of requests.
_OF_OFFSETS = {
    _E.ILLEGAL_GENERATION: TxnReaction.ABORTABLE,
    _E.UNKNOWN_MEMBER_ID: TxnReaction.ABORTABLE,
    _E.FENCED_INSTANCE_ID: TxnReaction.ABORTABLE,
    _E.OFFSET_METADATA_TOO_LARGE: TxnReaction.ABORTABLE,
}
_OF_INIT = {
    _E.CLUSTER_AUTHORIZATION_FAILED: TxnReaction.BACK,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TxnReaction.BACK,
}
OVERRIDES: dict[RequestPriority, Mapping[ErrorCode, TxnReaction]] = {
    RequestPriority.INIT: _OF_INIT,
    RequestPriority.COMMIT_OFFSETS: _OF_OFFSETS,
}


def reaction_to(kind: RequestPriority, code: ErrorCode) -> TxnReaction:
    """The reaction to a code in the answer to a request of this kind (C-55, C-68)."""
    return OVERRIDES.get(kind, {}).get(code) or REACTIONS[code]


class TransactionCall:
    """A call of the application that waits for brokers. The operation continues even if its caller
    has stopped waiting (C-67)."""

    __slots__ = ("_new_future", "_waiters", "done", "error", "name")

    def __init__(self, name: str, new_future: NewFuture) -> None:
        self.name = name
        self.done = False
        self.error: OdradekError | None = None
        self._new_future = new_future
        self._waiters: list[Future] = []

    def finish(self, error: OdradekError | None = None) -> None:
        """Set the result; later results are ignored."""
        if self.done:
            return
        self.done, self.error = True, error
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wait(self) -> Future:
        """A future that is done when the operation is; its result is always None."""
        waiter = self._new_future()
        if self.done:
            waiter.set_result(None)
        else:
            self._waiters = [other for other in self._waiters if not other.done()]
            self._waiters.append(waiter)
        return waiter


class TxnRequestHandler:
    """A request to a coordinator, and the meaning of its answer.

    `key`, `key_type`: the key of the coordinator in FindCoordinator. `was_sent`: true if the
    request may have been carried out without an answer.
    """

    kind: RequestPriority
    key_type = TRANSACTION_COORDINATOR
    max_version: int | None = None
    min_version = 0
    #: The advice in the error for a broker that is too old.
    remedy = "use a newer broker"

    def __init__(self, key: str, operation: TransactionCall | None = None) -> None:
        self.key = key
        self.operation = operation
        self.attempts = 0
        self.retry_at_ms = 0.0
        self.was_sent = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r}>"

    def message(self, identity: ProducerIdAndEpoch) -> Message:
        raise NotImplementedError

    def check_version(self, version: int, api_name: str) -> None:
        """Raise UnsupportedByBroker if the newest version that both sides have cannot express the
        request."""
        if version < self.min_version:
            raise UnsupportedByBroker(
                f"the broker serves {api_name} up to version {version}, but {self.min_version} is "
                f"needed; {self.remedy}"
            )

    def finish(self, error: OdradekError | None = None) -> None:
        if self.operation is not None:
            self.operation.finish(error)

    def codes(self, response: Any) -> dict[TopicPartition | None, ErrorCode]:
        """The error code of each partition in an answer. If the answer is not about partitions,
        the key is None."""
        return {None: _E.of(response.error_code)}

    def error(self, tp: TopicPartition | None, code: ErrorCode) -> OdradekError:
        if code is _E.INVALID_PRODUCER_EPOCH:
            # INVALID_PRODUCER_EPOCH is the older name of PRODUCER_FENCED (T-15).
            return ProducerFenced(str(error_for(_E.PRODUCER_FENCED)), code=code)
        return error_for(code, about=f"transactional id {self.key!r}")


class InitProducerIdHandler(TxnRequestHandler):
    """InitProducerId for a new producer: fences older producers, and ends their transaction (T-12,
    T-59)."""

    kind = RequestPriority.INIT

    def __init__(
        self, key: str, operation: TransactionCall, timeout_ms: int, two_phase: bool
    ) -> None:
        super().__init__(key, operation)
        self._timeout_ms = timeout_ms
        self._two_phase = two_phase
        if two_phase:
            self.min_version = init_producer_id.TWO_PHASE_COMMIT_SINCE
            self.remedy = TWO_PHASE_REMEDY

    def message(self, identity: ProducerIdAndEpoch) -> Message:
        return InitProducerIdRequest(
            transactional_id=self.key,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            enable2_pc=self._two_phase,
        )

    def error(self, tp: TopicPartition | None, code: ErrorCode) -> OdradekError:
        if self._two_phase and code is _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            # A broker with two-phase commit disabled also answers with this code (KIP-939).
            return error_for(code, TWO_PHASE_REMEDY, about=f"transactional id {self.key!r}")
        return super().error(tp, code)


class EpochBumpHandler(InitProducerIdHandler):
    """InitProducerId with the present identity, for the next epoch (KIP-360, C-66)."""

    kind = RequestPriority.BUMP


class AddPartitionsToTxnHandler(TxnRequestHandler):
    """AddPartitionsToTxn (C-62)."""

    kind = RequestPriority.ADD_PARTITIONS
    max_version = add_partitions_to_txn.BETWEEN_BROKERS_SINCE - 1

    def __init__(self, key: str, partitions: Iterable[TopicPartition]) -> None:
        super().__init__(key)
        self.partitions = set(partitions)

    def message(self, identity: ProducerIdAndEpoch) -> Message:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            topics.setdefault(topic, []).append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.key,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def codes(self, response: Any) -> dict[TopicPartition | None, ErrorCode]:
        answered = {
            TopicPartition(topic.name, each.partition_index): _E.of(each.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        codes: dict[TopicPartition | None, ErrorCode] = {
            tp: answered.get(tp, _E.UNKNOWN_SERVER_ERROR) for tp in sorted(self.partitions)
        }
        if any(code not in {_E.NONE, _E.OPERATION_NOT_ATTEMPTED} for code in codes.values()):
            # OPERATION_NOT_ATTEMPTED for the other partitions is left out, because the code of the
            # refused partition is the reason.
            return {tp: code for tp, code in codes.items() if code != _E.OPERATION_NOT_ATTEMPTED}
        return codes

    def error(self, tp: TopicPartition | None, code: ErrorCode) -> OdradekError:
        if code is _E.INVALID_PRODUCER_EPOCH:
            return super().error(tp, code)
        assert tp is not None
        return error_for(code, about=f"{tp.topic}-{tp.partition} in a transaction")


class AddOffsetsToTxnHandler(TxnRequestHandler):
    """AddOffsetsToTxn. `then`: the request that commits the offsets afterwards (C-63)."""

    kind = RequestPriority.ADD_OFFSETS

    def __init__(self, key: str, then: TxnOffsetCommitHandler) -> None:
        super().__init__(key, then.operation)
        self.then = then

    def message(self, identity: ProducerIdAndEpoch) -> Message:
        return AddOffsetsToTxnRequest(
            transactional_id=self.key,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=self.then.key,
        )

    def error(self, tp: TopicPartition | None, code: ErrorCode) -> OdradekError:
        if code is _E.GROUP_AUTHORIZATION_FAILED:
            return error_for(code, about=f"group {self.then.key!r}")
        return super().error(tp, code)


class TxnOffsetCommitHandler(TxnRequestHandler):
    """TxnOffsetCommit, to the coordinator of the group."""

    kind = RequestPriority.COMMIT_OFFSETS
    key_type = GROUP_COORDINATOR

    def __init__(
        self,
        transactional_id: str,
        group: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        operation: TransactionCall,
        *,
        v2: bool,
    ) -> None:
        super().__init__(group.group_id, operation)
        self._transactional_id = transactional_id
        self._group = group
        self.offsets = dict(offsets)
        if v2:
            self.min_version = txn_offset_commit.TRANSACTIONS_V2_SINCE
        else:
            self.max_version = txn_offset_commit.TRANSACTIONS_V2_SINCE - 1

    def check_version(self, version: int, api_name: str) -> None:
        super().check_version(version, api_name)
        named = self._group._replace(group_id="") != ConsumerGroupMetadata("")
        if named and version < txn_offset_commit.MEMBER_SINCE:
            raise UnsupportedByBroker(
                "the broker is too old to check group members in transactions (KIP-447); use a "
                "newer one, or give the group_id alone in place of consumer.group_metadata()"
            )

    def message(self, identity: ProducerIdAndEpoch) -> Message:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), at in sorted(self.offsets.items()):
            topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name, partitions=[]))
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=at.offset,
                    committed_leader_epoch=at.leader_epoch,
                    committed_metadata=at.metadata,
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=self.key,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=self._group.generation_id,
            member_id=self._group.member_id,
            group_instance_id=self._group.group_instance_id,
            topics=list(topics.values()),
        )

    def codes(self, response: Any) -> dict[TopicPartition | None, ErrorCode]:
        answered = {
            TopicPartition(topic.name, each.partition_index): _E.of(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }
        return {tp: answered.get(tp, _E.UNKNOWN_SERVER_ERROR) for tp in self.offsets}

    def error(self, tp: TopicPartition | None, code: ErrorCode) -> OdradekError:
        if code in {_E.ILLEGAL_GENERATION, _E.UNKNOWN_MEMBER_ID}:
            return GroupMovedOn(
                f"group {self.key!r} has gone on without the member that read these records; abort "
                "the transaction and poll again, others will read them",
                code=code,
            )
        if code is _E.INVALID_PRODUCER_EPOCH:
            return super().error(tp, code)
        about = f"group {self.key!r}"
        if tp is not None:
            about += f", {tp.topic}-{tp.partition}"
        return error_for(code, about=about)


class EndTxnHandler(TxnRequestHandler):
    """EndTxn."""

    kind = RequestPriority.END

    def __init__(self, key: str, operation: TransactionCall, *, committed: bool, v2: bool) -> None:
        super().__init__(key, operation)
        self.committed = committed
        self.v2 = v2
        if v2:
            self.min_version = end_txn.TRANSACTIONS_V2_SINCE
        else:
            self.max_version = end_txn.TRANSACTIONS_V2_SINCE - 1

    def message(self, identity: ProducerIdAndEpoch) -> Message:
        return EndTxnRequest(
            transactional_id=self.key,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=self.committed,
        )
