"""The decisions of a producer, without I/O: the next requests, and the reactions to answers.

`Sender.step` is one pass (C-30); the sender loop carries out the plan and reports every answer
through `answered` or `unanswered`. The reaction to each error code is one table (C-50 to C-55).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from odradek_client.backoff import Backoff
from odradek_client.config.producer import ProducerConfig
from odradek_client.errors import (
    AuthenticationFailed,
    ClusterAuthorizationFailed,
    DeliveryTimeout,
    OdradekError,
    UnsupportedByBroker,
    error_for,
)
from odradek_client.network.cluster import BrokerAddress, ClusterView
from odradek_client.producer.accumulator import Accumulator, PartitionQueue
from odradek_client.producer.batch import ProducerBatch, ProducerIdAndEpoch
from odradek_client.producer.idempotence import IdempotenceManager
from odradek_client.producer.transaction_manager import TransactionManager
from odradek_client.producer.transaction_requests import TxnRequestHandler
from odradek_client.words import counted
from odradek_protocol.compression import Codec
from odradek_protocol.constants import NO_OFFSET
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek_protocol.schemas.produce import (
    TOPIC_IDS_SINCE,
    TRANSACTIONS_V2_SINCE,
    ZSTD_SINCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


class ProduceReaction(Enum):
    """The reaction to a broker's answer about a batch."""

    WRITTEN = auto()  # success
    WRITTEN_BEFORE = auto()  # success, with an unknown offset (C-24)
    SPLIT = auto()  # try again in smaller batches (C-25)
    OUT_OF_ORDER = auto()  # the owner of the sequences decides (C-50)
    FORGOTTEN = auto()  # the owner of the sequences decides (C-52)
    RETRY = auto()  # send the batch again (C-53)
    FAIL = auto()  # only this batch fails; a transaction must be aborted
    FATAL = auto()  # the producer can send nothing more (C-55)


_SPECIAL = {
    ErrorCode.NONE: ProduceReaction.WRITTEN,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ProduceReaction.WRITTEN_BEFORE,
    ErrorCode.MESSAGE_TOO_LARGE: ProduceReaction.SPLIT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ProduceReaction.OUT_OF_ORDER,
    ErrorCode.UNKNOWN_PRODUCER_ID: ProduceReaction.FORGOTTEN,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ProduceReaction.FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ProduceReaction.FATAL,
    ErrorCode.PRODUCER_FENCED: ProduceReaction.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: ProduceReaction.FATAL,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ProduceReaction.FATAL,
}

#: The reaction to every code, for a producer with an identity.
REACTIONS: dict[ErrorCode, ProduceReaction] = {
    code: _SPECIAL.get(code, ProduceReaction.RETRY if code.retriable else ProduceReaction.FAIL)
    for code in ErrorCode
}

#: The error codes that leave the result of a batch unknown, so that the batch may be in the log.
MAY_BE_WRITTEN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)

#: The reactions for a producer without an identity. Such a producer has no sequences and cannot be
#: fenced.
WITHOUT_IDENTITY: dict[ErrorCode, ProduceReaction] = {
    code: ProduceReaction.FAIL
    if reaction in {ProduceReaction.OUT_OF_ORDER, ProduceReaction.FORGOTTEN, ProduceReaction.FATAL}
    else reaction
    for code, reaction in REACTIONS.items()
}


@dataclass(slots=True)
class Produce:
    """A Produce request to send: its batches, at most one per partition. `topic_names`: the topic
    names by topic id at the time of the request; a topic may be deleted or replaced before the
    answer."""

    node_id: int
    batches: list[ProducerBatch]
    topic_names: dict[bytes, str] = field(default_factory=dict)


@dataclass(slots=True)
class SenderPass:
    """The decisions of one pass. `wake_ms`: the time until the next pass, unless an event causes
    one earlier."""

    produce: list[Produce] = field(default_factory=list)
    init_producer_id: InitProducerIdRequest | None = None
    txn_request: TxnRequestHandler | None = None
    freed: bool = False  # memory was released, without a failure to report
    refresh_metadata: bool = False
    connect: list[int] = field(default_factory=list)
    failed: list[ProducerBatch] = field(default_factory=list)
    wake_ms: float | None = None

    def wake_within(self, wait_ms: float | None) -> None:
        """Make the next pass happen within this time from now."""
        if wait_ms is not None and (self.wake_ms is None or wait_ms < self.wake_ms):
            self.wake_ms = wait_ms


class Sender:
    """The decisions of one producer. All times are the loop's clock, in ms."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: ClusterView,
        accumulator: Accumulator,
        identity: IdempotenceManager | TransactionManager | None,
        backoff: Backoff,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        #: The `IdempotenceManager`, or the `TransactionManager` of a transactional producer.
        self._identity = identity
        self._transactions = identity if isinstance(identity, TransactionManager) else None
        self._may_drain = _always if identity is None else identity.may_drain
        self._stamp = _nothing if identity is None else identity.drained
        self._backoff = backoff
        self._reactions = WITHOUT_IDENTITY if identity is None else REACTIONS
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._mutes = identity is None and self._max_in_flight == 1
        self._in_flight: dict[int, int] = {}
        self._identity_failures = 0
        self._identity_at_ms = 0.0
        self.refresh_metadata = False
        #: The reason why the last unsuccessful batch is sent again; None after an acknowledgement.
        self.trouble: OdradekError | None = None
        # Like `trouble`, for each partition.
        self._troubles: dict[tuple[str, int], OdradekError] = {}
        #: Returns the reason why a node has no connection, or None; set by the sender loop.
        self.why_unreachable: Callable[[int], str | None] = lambda _: None

    # --- one pass ---------------------------------------------------------------------------------

    def step(self, now_ms: float, is_ready: Callable[[int], bool]) -> SenderPass:
        """Plan the requests of one pass (C-30). `is_ready`: returns true for a node to which a
        request would be written immediately."""
        plan = SenderPass(failed=self._expire(now_ms))
        identity = self._identity
        if identity is not None:
            if identity.fatal_error is not None:
                plan.failed += self._fail_all(identity.fatal_error)
                return plan
            identity.resolve()
            if isinstance(identity, TransactionManager):
                self._plan_transaction(plan, identity, now_ms)
            else:
                self._plan_identity(plan, identity, now_ms)
        self._plan_produce(plan, now_ms, is_ready)
        plan.refresh_metadata = plan.refresh_metadata or self.refresh_metadata
        self.refresh_metadata = False
        expiry_ms = self._accumulator.expiry_ms()
        if expiry_ms is not None:
            plan.wake_within(expiry_ms - now_ms)
        return plan

    def _plan_identity(self, plan: SenderPass, identity: IdempotenceManager, now_ms: float) -> None:
        identity.bump_if_requested()
        if identity.needs_identity:
            if now_ms >= self._identity_at_ms:
                plan.init_producer_id = identity.begin_identity()
            else:
                plan.wake_within(self._identity_at_ms - now_ms)

    def _plan_transaction(
        self, plan: SenderPass, transactions: TransactionManager, now_ms: float
    ) -> None:
        """Plan the next request to a coordinator, and fail batches that will never be sent (steps 5
        and 6 of C-30)."""
        error = transactions.undrained_error
        if error is not None:
            undrained = self._accumulator.take_all(only_undrained=True)
            for batch in undrained:
                self._fail(batch, error, may_be_written=False)
            plan.freed = bool(undrained)
        self._accumulator.completing = transactions.is_completing
        plan.txn_request, wait_ms = transactions.next_request(
            self._accumulator.active, bool(self._accumulator.incomplete), now_ms
        )
        plan.wake_within(wait_ms)
        if transactions.fatal_error is not None:
            plan.failed += self._fail_all(transactions.fatal_error)

    def _plan_produce(
        self, plan: SenderPass, now_ms: float, is_ready: Callable[[int], bool]
    ) -> None:
        ready = self._accumulator.ready(now_ms, self._cluster.leader_of)
        if ready.unknown_leaders:
            # A metadata answer without changes causes no pass, so the next pass is scheduled
            # (C-16).
            plan.refresh_metadata = True
            plan.wake_within(self._config.retry_backoff_ms)
        plan.wake_within(ready.check_ms)
        for node_id, queues in ready.nodes.items():
            if self._in_flight.get(node_id, 0) >= self._max_in_flight:
                continue  # the node's next answer causes the next pass
            if not is_ready(node_id):
                plan.connect.append(node_id)
                continue
            self._plan_node(plan, node_id, queues, now_ms)

    def _plan_node(
        self, plan: SenderPass, node_id: int, queues: list[PartitionQueue], now_ms: float
    ) -> None:
        """Plan requests to one node, until no batch is ready or the limit of requests in flight is
        reached."""
        while queues and self._in_flight.get(node_id, 0) < self._max_in_flight:
            batches = self._accumulator.drain(
                node_id,
                queues,
                self._config.max_request_size,
                now_ms,
                self._may_drain,
                self._stamp,
            )
            if not batches:
                return
            for batch in batches:
                batch.last_leader = node_id
                batch.was_sent = batch.on_wire = True
                if self._mutes:
                    self._accumulator.queue(batch.tp).muted = True
            self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
            plan.produce.append(Produce(node_id, batches))
            queues = self._still_ready(plan, node_id, queues, now_ms)

    def _still_ready(
        self, plan: SenderPass, node_id: int, queues: list[PartitionQueue], now_ms: float
    ) -> list[PartitionQueue]:
        """The queues that have another batch to send in this pass, after the drained batch."""
        again = []
        for queue in queues:
            if queue.batches and not queue.muted:
                wait_ms = self._accumulator.wait_ms(queue, node_id, now_ms)
                if wait_ms <= 0:
                    again.append(queue)
                else:
                    plan.wake_within(wait_ms)
        return again

    # --- requests ---------------------------------------------------------------------------------

    def version_limit(self, batches: list[ProducerBatch]) -> int | None:
        """The highest version of Produce for these batches; None: any.

        If a topic id is unknown (brokers before Metadata 10 send none), the version must be one
        with topic names. A request of version TRANSACTIONS_V2_SINCE or later means transactions of
        version 2 (T-60).
        """
        if self._transactions is not None and not self._transactions.is_v2:
            return TRANSACTIONS_V2_SINCE - 1
        for batch in batches:
            if self._cluster.topic_id(batch.tp.topic) == ZERO_UUID:
                return TOPIC_IDS_SINCE - 1
        return None

    def request(self, sent: Produce, version: int) -> ProduceRequest:
        """The request for drained batches. UnsupportedByBroker if the version cannot express the
        batches."""
        if self._config.compression_type == "zstd" and version < ZSTD_SINCE:
            raise UnsupportedByBroker(
                "the broker is too old for compression_type=zstd; choose another one"
            )
        transactional = self._transactions is not None
        if (
            self._transactions is not None
            and self._transactions.is_v2
            and version < TRANSACTIONS_V2_SINCE
        ):
            raise UnsupportedByBroker(
                f"the cluster has transactions v2, but this broker serves Produce only up to version "
                f"{version}; upgrade it",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        topics: dict[str, TopicProduceData] = {}
        for batch in sent.batches:
            topic, partition = batch.tp
            data = topics.get(topic)
            if data is None:
                data = topics[topic] = TopicProduceData(name=topic, partition_data=[])
                if version >= TOPIC_IDS_SINCE:
                    data.topic_id = self._cluster.topic_id(topic)
                    sent.topic_names[data.topic_id] = topic
            if batch.encoded is None:
                estimated = batch.builder.estimated_bytes
                batch.encode(transactional=transactional)
                self._accumulator.encoded(batch, estimated)
            data.partition_data.append(PartitionProduceData(index=partition, records=batch.encoded))
        return ProduceRequest(
            transactional_id=self._config.transactional_id,
            acks=self._config.acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    # --- answers ----------------------------------------------------------------------------------

    def answered(
        self, sent: Produce, response: ProduceResponse | None, now_ms: float
    ) -> list[ProducerBatch]:
        """Handle a broker's answer to a request (None with acks=0). Returns the batches that have
        finally failed."""
        self._returned(sent)
        if response is None:
            for batch in sent.batches:
                self._complete(batch, NO_OFFSET, -1)
            return []
        answers = _by_partition(sent, response)
        nodes = {
            node.node_id: BrokerAddress(node.node_id, node.host, node.port, node.rack)
            for node in response.node_endpoints
        }
        failed: list[ProducerBatch] = []
        for batch in sent.batches:
            answer = answers.get((batch.tp.topic, batch.tp.partition))
            if answer is None:
                answer = PartitionProduceResponse(
                    error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
                    error_message="the answer does not mention the partition",
                )
            leader = answer.current_leader
            if leader.leader_id >= 0:
                self._cluster.update_leader(
                    *batch.tp, leader.leader_id, leader.leader_epoch, nodes.get(leader.leader_id)
                )
            if not batch.done:
                self._react(batch, answer, now_ms, failed)
        return failed

    def unanswered(
        self, sent: Produce, code: ErrorCode, reason: OdradekError, now_ms: float
    ) -> list[ProducerBatch]:
        """Handle a request without an answer: NETWORK_EXCEPTION or REQUEST_TIMED_OUT (C-54), or an
        error of the client itself."""
        self._returned(sent)
        failed: list[ProducerBatch] = []
        for batch in sent.batches:
            if not batch.done:
                answer = PartitionProduceResponse(error_code=code, error_message=str(reason))
                self._react(batch, answer, now_ms, failed, reason)
        return failed

    def _returned(self, sent: Produce) -> None:
        self._in_flight[sent.node_id] -= 1
        for batch in sent.batches:
            batch.on_wire = False
            if self._mutes:
                self._accumulator.queue(batch.tp).muted = False

    def _react(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        now_ms: float,
        failed: list[ProducerBatch],
        reason: OdradekError | None = None,
    ) -> None:
        code = ErrorCode.of(answer.error_code)
        if code.refreshes_metadata:
            self.refresh_metadata = True
        reaction = self._reactions[code]
        if reaction is ProduceReaction.SPLIT and batch.record_count == 1:
            reaction = ProduceReaction.FAIL
        elif reaction is ProduceReaction.OUT_OF_ORDER:
            assert self._identity is not None
            retry = self._identity.out_of_order(batch)
            reaction = ProduceReaction.RETRY if retry else ProduceReaction.FAIL
        elif reaction is ProduceReaction.FORGOTTEN:
            assert self._identity is not None
            retry = self._identity.unknown_producer_id(batch, answer.log_start_offset)
            reaction = ProduceReaction.RETRY if retry else ProduceReaction.FAIL
        if reaction is ProduceReaction.WRITTEN:
            self._complete(batch, answer.base_offset, answer.log_append_time_ms)
        elif reaction is ProduceReaction.WRITTEN_BEFORE:
            self._complete(batch, NO_OFFSET, -1)
        elif reaction is ProduceReaction.SPLIT:
            self._split(batch)
        elif reaction is ProduceReaction.RETRY and batch.attempts < self._config.retries:
            batch.attempts += 1
            batch.may_be_written = batch.may_be_written or code in MAY_BE_WRITTEN
            batch.trouble = self.trouble = self._troubles[batch.tp] = _error(batch, answer, reason)
            batch.retry_at_ms = now_ms + self._backoff.delay_ms(batch.attempts)
            self._accumulator.requeue(batch)
        else:
            error = _error(batch, answer, reason)
            failed.append(batch)
            if reaction is ProduceReaction.FATAL and self._identity is not None:
                self._identity.fail(error)
            # A refused batch may have been accepted in an earlier attempt, when the broker's
            # settings were different.
            unknown = reaction is ProduceReaction.RETRY or batch.may_be_written
            self._fail(batch, error, may_be_written=unknown, answer=answer)

    def _complete(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        self.trouble = None
        self._troubles.pop(batch.tp, None)
        if self._identity is not None:
            self._identity.acknowledged(batch, base_offset)
        self._accumulator.finished(batch)
        batch.complete(base_offset, log_append_time_ms)

    def _fail(
        self,
        batch: ProducerBatch,
        error: OdradekError,
        *,
        may_be_written: bool,
        answer: PartitionProduceResponse | None = None,
    ) -> None:
        batch.unknown_fate = may_be_written
        if self._identity is not None and batch.has_sequence:
            self._identity.gave_up(batch, may_be_written=may_be_written)
        if self._identity is not None:
            self._identity.batch_failed(error)
        self._accumulator.finished(batch)
        reasons = {
            item.batch_index: item.batch_index_error_message or str(error)
            for item in (answer.record_errors if answer is not None else ())
        }
        batch.fail(error, reasons)

    def _split(self, batch: ProducerBatch) -> None:
        # The target is at most half of the size, so that repeated splits reach any limit of a
        # broker.
        target = min(self._config.batch_size, batch.builder.estimated_bytes // 2)
        parts = batch.split(target)
        self._accumulator.replace(batch, parts)
        if self._identity is not None:
            self._identity.sequences.replaced(batch, parts)

    # --- the identity -----------------------------------------------------------------------------

    def identity_answered(self, response: InitProducerIdResponse, now_ms: float) -> None:
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            assert isinstance(self._identity, IdempotenceManager)
            self._identity_failures = 0
            self._identity.identity_given(
                ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            )
        else:
            self.identity_failed(error_for(response.error_code, about="producer id"), now_ms)

    def identity_failed(self, error: OdradekError, now_ms: float) -> None:
        """React to a failed InitProducerId: retry later, or fail."""
        assert isinstance(self._identity, IdempotenceManager)
        if error.retriable:
            self._identity.identity_refused()
            self._identity_failures += 1
            self._identity_at_ms = now_ms + self._backoff.delay_ms(self._identity_failures)
            return
        if isinstance(error, UnsupportedByBroker | ClusterAuthorizationFailed):
            error = type(error)(
                f"{error}; an idempotent producer needs it: set enable_idempotence=False to go "
                "without",
                code=error.code,
            )
        self._identity.fail(error)

    # --- transactions -----------------------------------------------------------------------------

    def request_answered(
        self, handler: TxnRequestHandler, response: Any, version: int, now_ms: float
    ) -> bool:
        """Pass on a coordinator's answer. True if the coordinator must be looked up again before
        the next request."""
        assert self._transactions is not None
        return self._transactions.answered(handler, response, version, now_ms)

    def request_failed(
        self, handler: TxnRequestHandler, error: OdradekError, now_ms: float
    ) -> bool:
        """Pass on the failure of a request. True if the coordinator must be looked up again."""
        assert self._transactions is not None
        return self._transactions.unanswered(handler, error, now_ms)

    def request_message(self, handler: TxnRequestHandler) -> Message:
        assert self._transactions is not None
        return handler.message(self._transactions.identity)

    # --- giving up --------------------------------------------------------------------------------

    def refused(self, node_id: int, error: AuthenticationFailed) -> list[ProducerBatch]:
        """React to a failed authentication at a node: its batches fail immediately. For a
        transactional producer the failure is fatal (C-75)."""
        if self._transactions is not None:
            self._transactions.fail(error)
            return self._fail_all(error)
        failed = self._accumulator.take_of(lambda tp: self._cluster.leader_of(*tp) == node_id)
        for batch in failed:
            self._fail(batch, error, may_be_written=batch.was_sent)
        return failed

    def _expire(self, now_ms: float) -> list[ProducerBatch]:
        """Fail batches older than delivery_timeout_ms (C-40)."""
        expiry_ms = self._accumulator.expiry_ms()
        if expiry_ms is None or now_ms < expiry_ms:
            return []
        expired = self._accumulator.expired(now_ms)
        for batch in expired:
            self._fail(batch, self._timeout(batch), may_be_written=batch.was_sent)
        return expired

    def _timeout(self, batch: ProducerBatch) -> DeliveryTimeout:
        where = f"{batch.tp.topic}-{batch.tp.partition}"
        leader = self._cluster.leader_of(*batch.tp)
        cause: object = batch.trouble
        if batch.was_sent or batch.on_wire:
            what = "were sent but not acknowledged; they may be written or not"
        elif leader is None:
            what = "could not be sent: the partition has no known leader"
            code = self._cluster.topic_errors.get(batch.tp.topic)
            cause = cause if code is None else error_for(code)
        else:
            refused = self._troubles.get(batch.tp)
            what = "could not be sent: " + (
                "the broker is not reachable or not keeping up"
                if refused is None
                else "those before them are not acknowledged"
            )
            cause = self.why_unreachable(leader) or cause or refused
        error = DeliveryTimeout(
            f"records for {where} {what}; delivery_timeout_ms="
            f"{self._config.delivery_timeout_ms} is over"
            f"{f'. The last failure: {cause}' if cause else ''}"
        )
        error.__cause__ = batch.trouble
        return error

    def fail_all(
        self, error: OdradekError, if_sent: OdradekError | None = None
    ) -> list[ProducerBatch]:
        """Fail every batch without a final result, for a forced close. `if_sent`: the error of
        batches that may be in the log."""
        return self._fail_all(error, if_sent)

    def _fail_all(
        self, error: OdradekError, if_sent: OdradekError | None = None
    ) -> list[ProducerBatch]:
        failed = self._accumulator.take_all()
        for batch in failed:
            sent = batch.was_sent or batch.on_wire
            why = if_sent if sent and if_sent is not None else error
            self._fail(batch, why, may_be_written=batch.was_sent)
        return failed


def _always(batch: ProducerBatch) -> bool:
    return True


def _nothing(batch: ProducerBatch) -> None:
    return None


def _error(
    batch: ProducerBatch, answer: PartitionProduceResponse, reason: OdradekError | None
) -> OdradekError:
    if reason is not None:
        return reason
    about = f"{counted(batch.record_count, 'record')} for {batch.tp.topic}-{batch.tp.partition}"
    return error_for(answer.error_code, answer.error_message, about=about)


def codec_of(config: ProducerConfig) -> Codec:
    """The codec of compression_type."""
    return Codec.of_name(config.compression_type)


def _by_partition(
    sent: Produce, response: ProduceResponse
) -> dict[tuple[str, int], PartitionProduceResponse]:
    answers = {}
    for topic in response.responses:
        name = topic.name or sent.topic_names.get(topic.topic_id, "")
        for answer in topic.partition_responses:
            answers[(name, answer.index)] = answer
    return answers
