"""What a transactional producer asks coordinators: the requests, their order, what answers mean.

An `Ask` is one question that is put until it has an answer (C-33). Which comes next is the manager's
choice, by `Kind` (C-30). The reactions to error codes are one table (C-68).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum, auto
from typing import Any

from odradek_client.consumer.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
)
from odradek_client.errors import (
    GroupMovedOn,
    OdradekError,
    ProducerFenced,
    UnsupportedByBroker,
    error_for,
)
from odradek_client.producer.batch import Future, NewFuture, ProducerIdentity
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
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

GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1

#: From these versions on a request means transactions v2 (T-60), and below them v1.
PRODUCE_V2_FROM = 12
_OFFSET_COMMIT_V2_FROM = 5
END_V2_FROM = 5
#: The newest AddPartitionsToTxn for clients; those above are between brokers (T-22).
_ADD_PARTITIONS_NEWEST = 3
#: From these versions on requests have the fields that they are named after.
INIT_BUMPS_FROM = 3
INIT_PREPARES_FROM = 6
TWO_PHASE_REMEDY = (
    "two-phase commit (KIP-939) wants Kafka 4.3 or newer whose brokers all have "
    "transaction.two.phase.commit.enable=true and unstable.api.versions.enable=true, and the right "
    "TWO_PHASE_COMMIT on the transactional id where there are ACLs"
)
_OFFSET_COMMIT_MEMBER_FROM = 3


class Kind(IntEnum):
    """The questions, in the order they are put in (C-30); those of one number in order of arrival."""

    INIT = 1
    ADD_PARTITIONS = 2
    ADD_OFFSETS = 3
    COMMIT_OFFSETS = 4
    END = 5
    BUMP = 6

    @property
    def rank(self) -> int:
        return 2 if Kind.ADD_PARTITIONS <= self <= Kind.COMMIT_OFFSETS else int(self)


class Reaction(Enum):
    """What a coordinator's code asks for (C-68), gravest last."""

    DONE = auto()
    RETRY = auto()
    FIND_COORDINATOR = auto()  # and retry
    ABORTABLE = auto()
    FORGOTTEN = auto()  # abortable if the epoch can be bumped, else fatal
    BACK = auto()  # as if it had not been asked; may be tried again
    FATAL = auto()


_E = ErrorCode
_SPECIAL = {
    _E.NONE: Reaction.DONE,
    _E.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
    _E.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
    _E.TOPIC_AUTHORIZATION_FAILED: Reaction.ABORTABLE,
    _E.GROUP_AUTHORIZATION_FAILED: Reaction.ABORTABLE,
    _E.OPERATION_NOT_ATTEMPTED: Reaction.ABORTABLE,
    _E.TRANSACTION_ABORTABLE: Reaction.ABORTABLE,
    _E.UNKNOWN_PRODUCER_ID: Reaction.FORGOTTEN,
}
#: Code -> reaction, for every kind of question.
REACTIONS: dict[ErrorCode, Reaction] = {
    code: _SPECIAL.get(code, Reaction.RETRY if code.retriable else Reaction.FATAL) for code in _E
}
#: What only one kind of question takes otherwise.
_OF_OFFSETS = {
    _E.ILLEGAL_GENERATION: Reaction.ABORTABLE,
    _E.UNKNOWN_MEMBER_ID: Reaction.ABORTABLE,
    _E.FENCED_INSTANCE_ID: Reaction.ABORTABLE,
    _E.OFFSET_METADATA_TOO_LARGE: Reaction.ABORTABLE,
}
_OF_INIT = {
    _E.CLUSTER_AUTHORIZATION_FAILED: Reaction.BACK,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Reaction.BACK,
}
OVERRIDES: dict[Kind, Mapping[ErrorCode, Reaction]] = {
    Kind.INIT: _OF_INIT,
    Kind.COMMIT_OFFSETS: _OF_OFFSETS,
}


def reaction_to(kind: Kind, code: ErrorCode) -> Reaction:
    """C-55, C-68."""
    return OVERRIDES.get(kind, {}).get(code) or REACTIONS[code]


class Operation:
    """A call of the application that waits for brokers; it may outlive its caller's patience (C-67)."""

    __slots__ = ("_new_future", "_waiters", "done", "error", "name")

    def __init__(self, name: str, new_future: NewFuture) -> None:
        self.name = name
        self.done = False
        self.error: OdradekError | None = None
        self._new_future = new_future
        self._waiters: list[Future] = []

    def finish(self, error: OdradekError | None = None) -> None:
        """Only the first end counts."""
        if self.done:
            return
        self.done, self.error = True, error
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wait(self) -> Future:
        """A future that is done when the operation is; always with the result None."""
        waiter = self._new_future()
        if self.done:
            waiter.set_result(None)
        else:
            self._waiters = [other for other in self._waiters if not other.done()]
            self._waiters.append(waiter)
        return waiter


class Ask:
    """One question to a coordinator.

    `key`, `key_type`: whose coordinator (FindCoordinator). `was_sent`: it may have been carried out
    although no answer came.
    """

    kind: Kind
    key_type = TRANSACTION_COORDINATOR
    max_version: int | None = None
    min_version = 0
    #: What to do where the broker is too old.
    remedy = "use a newer broker"

    def __init__(self, key: str, operation: Operation | None = None) -> None:
        self.key = key
        self.operation = operation
        self.attempts = 0
        self.retry_at_ms = 0.0
        self.was_sent = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r}>"

    def message(self, identity: ProducerIdentity) -> Message:
        """The request, under the producer's identity."""
        raise NotImplementedError

    def check_version(self, version: int, api_name: str) -> None:
        """UnsupportedByBroker if the newest version that both sides have cannot carry the question."""
        if version < self.min_version:
            raise UnsupportedByBroker(
                f"the broker serves {api_name} up to version {version}, but {self.min_version} is "
                f"needed; {self.remedy}"
            )

    def codes(self, response: Any) -> dict[Any, ErrorCode]:
        """What was answered, by what it was answered for."""
        return {None: _E.of(response.error_code)}

    def error(self, what: Any, code: ErrorCode) -> OdradekError:
        """The exception for one of the codes."""
        if code is _E.INVALID_PRODUCER_EPOCH:
            # The older name of the same thing (T-15).
            return ProducerFenced(str(error_for(_E.PRODUCER_FENCED)), code=code)
        return error_for(code, about=f"transactional id {self.key!r}")


class InitAsk(Ask):
    """InitProducerId for a new producer: fences older ones, ends their transaction (T-12, T-59)."""

    kind = Kind.INIT

    def __init__(self, key: str, operation: Operation, timeout_ms: int, two_phase: bool) -> None:
        super().__init__(key, operation)
        self._timeout_ms = timeout_ms
        self._two_phase = two_phase
        if two_phase:
            self.min_version = INIT_PREPARES_FROM
            self.remedy = TWO_PHASE_REMEDY

    def message(self, identity: ProducerIdentity) -> Message:
        return InitProducerIdRequest(
            transactional_id=self.key,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            enable2_pc=self._two_phase,
        )

    def error(self, what: Any, code: ErrorCode) -> OdradekError:
        if self._two_phase and code is _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            # Also from a broker that has two-phase commit switched off (KIP-939).
            return error_for(code, TWO_PHASE_REMEDY, about=f"transactional id {self.key!r}")
        return super().error(what, code)


class BumpAsk(InitAsk):
    """InitProducerId with the present identity: the next epoch (KIP-360, C-66)."""

    kind = Kind.BUMP


class AddPartitionsAsk(Ask):
    """AddPartitionsToTxn (C-62)."""

    kind = Kind.ADD_PARTITIONS
    max_version = _ADD_PARTITIONS_NEWEST

    def __init__(self, key: str, partitions: Iterable[TopicPartition]) -> None:
        super().__init__(key)
        self.partitions = set(partitions)

    def message(self, identity: ProducerIdentity) -> Message:
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

    def codes(self, response: Any) -> dict[Any, ErrorCode]:
        answered = {
            TopicPartition(topic.name, each.partition_index): _E.of(each.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        return {tp: answered.get(tp, _E.UNKNOWN_SERVER_ERROR) for tp in self.partitions}

    def error(self, what: Any, code: ErrorCode) -> OdradekError:
        if code is _E.INVALID_PRODUCER_EPOCH:
            return super().error(what, code)
        return error_for(code, about=f"{what.topic}-{what.partition} in a transaction")


class AddOffsetsAsk(Ask):
    """AddOffsetsToTxn; `then` is what the offsets are committed with (C-63)."""

    kind = Kind.ADD_OFFSETS

    def __init__(self, key: str, then: CommitOffsetsAsk) -> None:
        super().__init__(key, then.operation)
        self.then = then

    def message(self, identity: ProducerIdentity) -> Message:
        return AddOffsetsToTxnRequest(
            transactional_id=self.key,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=self.then.key,
        )

    def error(self, what: Any, code: ErrorCode) -> OdradekError:
        if code is _E.GROUP_AUTHORIZATION_FAILED:
            return error_for(code, about=f"group {self.then.key!r}")
        return super().error(what, code)


class CommitOffsetsAsk(Ask):
    """TxnOffsetCommit, to the coordinator of the group."""

    kind = Kind.COMMIT_OFFSETS
    key_type = GROUP_COORDINATOR

    def __init__(
        self,
        transactional_id: str,
        group: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        operation: Operation,
        *,
        v2: bool,
    ) -> None:
        super().__init__(group.group_id, operation)
        self._transactional_id = transactional_id
        self._group = group
        self.offsets = dict(offsets)
        if v2:
            self.min_version = _OFFSET_COMMIT_V2_FROM
        else:
            self.max_version = _OFFSET_COMMIT_V2_FROM - 1

    def check_version(self, version: int, api_name: str) -> None:
        super().check_version(version, api_name)
        named = self._group._replace(group_id="") != ConsumerGroupMetadata("")
        if named and version < _OFFSET_COMMIT_MEMBER_FROM:
            raise UnsupportedByBroker(
                "the broker is too old to check group members in transactions (KIP-447); use a "
                "newer one, or give the group_id alone in place of consumer.group_metadata()"
            )

    def message(self, identity: ProducerIdentity) -> Message:
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

    def codes(self, response: Any) -> dict[Any, ErrorCode]:
        answered = {
            TopicPartition(topic.name, each.partition_index): _E.of(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }
        return {tp: answered.get(tp, _E.UNKNOWN_SERVER_ERROR) for tp in self.offsets}

    def error(self, what: Any, code: ErrorCode) -> OdradekError:
        if code in {_E.ILLEGAL_GENERATION, _E.UNKNOWN_MEMBER_ID}:
            return GroupMovedOn(
                f"group {self.key!r} has gone on without the member that read these records; abort "
                "the transaction and poll again, others will read them",
                code=code,
            )
        if code is _E.INVALID_PRODUCER_EPOCH:
            return super().error(what, code)
        about = f"group {self.key!r}"
        if what is not None:
            about += f", {what.topic}-{what.partition}"
        return error_for(code, about=about)


class EndAsk(Ask):
    """EndTxn."""

    kind = Kind.END

    def __init__(self, key: str, operation: Operation, *, committed: bool, v2: bool) -> None:
        super().__init__(key, operation)
        self.committed = committed
        self.v2 = v2
        if v2:
            self.min_version = END_V2_FROM
        else:
            self.max_version = END_V2_FROM - 1

    def message(self, identity: ProducerIdentity) -> Message:
        return EndTxnRequest(
            transactional_id=self.key,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=self.committed,
        )
