"""Produce (key 0): append batches, answer when they are durable (rules P-06, P-07, P-22, P-23).

Batches are checked by the log (`storage/log.py`), requests here. A transactional batch may have to
wait until its coordinator has verified the transaction
(`coordinator/transactions/verification.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.coordinator.transactions.verification import TRANSIENT_ERRORS, UnverifiedAppend
from odradek_broker.deferred import Deferred
from odradek_broker.node import Node
from odradek_broker.partition import Partition
from odradek_broker.platform.fault_points import FaultPoint
from odradek_broker.request import NO_RESPONSE, CloseConnection, NoResponse, RequestContext
from odradek_broker.security.authorizer import Operation, transactional_id
from odradek_broker.security.authorizer import topic as topic_resource
from odradek_broker.storage.errors import AppendRejected, NotOneBatch, StorageError
from odradek_broker.storage.log_config import AppendOrigin
from odradek_broker.storage.validation import DecompressionBudget, check_batch
from odradek_protocol.codec import Buffer
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import peek
from odradek_protocol.records.layout import CODEC_MASK, MAGIC, TRANSACTIONAL_BIT
from odradek_protocol.schemas.produce import (
    TOPIC_IDS_SINCE,
    TRANSACTION_ABORTABLE_SINCE,
    TRANSACTIONS_V2_SINCE,
    ZSTD_SINCE,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_E = ErrorCode

#: Errors of a log whose answer has no log start offset, as in Kafka.
_WITHOUT_LOG_START = frozenset(
    (_E.CORRUPT_MESSAGE, _E.MESSAGE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE, _E.KAFKA_STORAGE_ERROR)
)


def handle(
    node: Node, context: RequestContext, request: ProduceRequest
) -> (
    ProduceResponse
    | NoResponse
    | Deferred[ProduceResponse]
    | Deferred[NoResponse | CloseConnection]
):
    """Append the batch of every partition; answered when all of them are durable."""
    if node.quotas.produce is not None:
        node.quotas.produce.record(context, context.size_bytes)
    produce = _Produce(node, context, request)
    if request.transactional_id is None:
        _append_all(node, context, request, produce)
    else:
        with node.verification.one_request():
            _append_all(node, context, request, produce)
    if request.acks == 0:
        return produce.finish_unanswered()
    return produce.finish(request.timeout_ms)


def _append_all(
    node: Node, context: RequestContext, request: ProduceRequest, produce: _Produce
) -> None:
    refusal = _transaction_error(node, context, request)
    for topic in _each_once(request.topic_data):
        name, error = _topic_name(node, context, topic.name, topic.topic_id)
        error = refusal or error
        answers = [
            produce.partition(name, data) if error is ErrorCode.NONE else _refused(data, error)
            for data in topic.partition_data
        ]
        produce.response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )


def _each_once(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """The last batch of each partition, as in Kafka: with one answer per partition, nobody could
    tell what became of two."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    found: dict[tuple[str, bytes], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        batches = found.setdefault((topic.name, topic.topic_id), {})
        batches.update((data.index, data) for data in topic.partition_data)
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(batches.values()))
        for (name, topic_id), batches in found.items()
    ]


def _transactional_producer(records: Buffer) -> tuple[int, int] | None:
    """(producer id, epoch) of a transactional batch, None for any other.

    Anything but a batch of magic 2 is not transactional; the log refuses it (P-07).
    """
    found = peek(records)
    if found is None or found[0] != MAGIC or not found[1] & TRANSACTIONAL_BIT:
        return None
    return found[2], found[3]


def _transaction_error(node: Node, context: RequestContext, request: ProduceRequest) -> ErrorCode:
    """The error of the whole request because of its transaction (P-06, A-01, T-25)."""
    producer_ids = {
        producer[0]
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records is not None
        and (producer := _transactional_producer(data.records)) is not None
    }
    if not producer_ids:
        return _E.NONE
    wanted = request.transactional_id
    if wanted is None or not node.authorizer.allows(
        context, Operation.WRITE, transactional_id(wanted)
    ):
        return _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return _E.NONE if len(producer_ids) == 1 else _E.INVALID_PRODUCER_ID_MAPPING


def _topic_name(
    node: Node, context: RequestContext, name: str, topic_id: bytes
) -> tuple[str, ErrorCode]:
    """The name of a topic that this client may write to (A-03)."""
    if context.api_version >= TOPIC_IDS_SINCE:
        found = node.metadata.topic_name(topic_id)
        if found is None:
            return "", _E.UNKNOWN_TOPIC_ID
        name = found
    if not node.authorizer.allows(context, Operation.WRITE, topic_resource(name)):
        return name, _E.TOPIC_AUTHORIZATION_FAILED
    return name, _E.NONE


def _verification_error(error: ErrorCode, version: int) -> ErrorCode:
    """The producer's error for a coordinator's refusal (T-61, T-62)."""
    if error in TRANSIENT_ERRORS:
        return _E.NOT_ENOUGH_REPLICAS
    if error is _E.PRODUCER_FENCED:
        return _E.INVALID_PRODUCER_EPOCH
    if error is _E.TRANSACTION_ABORTABLE and version < TRANSACTION_ABORTABLE_SINCE:
        return _E.INVALID_TXN_STATE
    return error


def _refused(
    data: PartitionProduceData, error: ErrorCode, message: str | None = None
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index, error_code=error, base_offset=-1, error_message=message
    )


def fill_refusal(
    answer: PartitionProduceResponse, partition: Partition, problem: StorageError
) -> None:
    """The answer to a batch that the log has refused."""
    fail(answer, problem.error, problem.message)
    if isinstance(problem, AppendRejected):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in problem.record_errors
        ]
        if not isinstance(problem, NotOneBatch) and problem.error not in _WITHOUT_LOG_START:
            answer.log_start_offset = partition.log.log_start_offset


def unanswered(response: ProduceResponse) -> NoResponse | CloseConnection:
    """The reply with acks=0: none, or after an error the end of the connection (P-23)."""
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                return CloseConnection(
                    f"produce with acks=0 to {topic.name}-{answer.index} failed with "
                    f"{ErrorCode.of(answer.error_code).name}"
                )
    return NO_RESPONSE


class _Produce:
    """One request until all of its batches are durable or refused."""

    __slots__ = (
        "_acks",
        "_budget",
        "_finished",
        "_node",
        "_now_ms",
        "_open",
        "_timeout_ms",
        "_transactional_id",
        "_version",
        "response",
    )

    def __init__(self, node: Node, context: RequestContext, request: ProduceRequest) -> None:
        self._node = node
        self._version = context.api_version
        self._acks = request.acks
        self._transactional_id = request.transactional_id
        self._now_ms = node.clock.wall_ms()
        self._budget = DecompressionBudget()
        #: Partitions of the answer that are not settled yet, by `id`.
        self._open: dict[int, PartitionProduceResponse] = {}
        self._finished: Callable[[], None] | None = None
        self._timeout_ms = -1
        self.response = ProduceResponse()

    def partition(self, topic: str, data: PartitionProduceData) -> PartitionProduceResponse:
        """Append one partition's batch; its part of the answer."""
        node = self._node
        partition = node.partition(topic, data.index)
        if partition is None:
            return _refused(data, _E.UNKNOWN_TOPIC_OR_PARTITION)
        if self._acks not in (-1, 0, 1):
            return _refused(data, _E.INVALID_REQUIRED_ACKS)
        if node.metadata.is_internal(topic):
            return _refused(data, _E.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own topic")
        records = data.records
        if records is None:
            return _refused(data, _E.INVALID_RECORD, "no records")
        batch = memoryview(records)
        if self._version < ZSTD_SINCE:
            found = peek(batch)
            codec = found[1] & CODEC_MASK if found is not None and found[0] == MAGIC else Codec.NONE
            if codec == Codec.ZSTD:
                code = _E.UNSUPPORTED_COMPRESSION_TYPE
                return _refused(data, code, "zstd needs Produce 7 or newer")
            if codec > Codec.ZSTD:
                return _refused(data, _E.UNKNOWN_SERVER_ERROR, f"no codec has the number {codec}")
        answer = PartitionProduceResponse(index=data.index)
        producer = _transactional_producer(batch)
        if producer is None:
            self._append(partition, batch, answer)
        else:
            self._append_in_transaction(partition, topic, batch, producer, answer)
        return answer

    def _append(
        self, partition: Partition, batch: memoryview, answer: PartitionProduceResponse
    ) -> None:
        """Append, and fill the answer in; it is open until the batch is durable."""
        node = self._node
        try:
            result = partition.append(batch, self._now_ms, budget=self._budget)
        except StorageError as problem:
            fill_refusal(answer, partition, problem)
            return
        node.metrics.appended_bytes(len(batch))
        answer.base_offset = result.base_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = result.log_start_offset
        if not partition.durable(result.last_offset):
            key = id(answer)
            self._open[key] = answer
            partition.when_durable(result.last_offset, lambda error: self._settled(key, error))

    # --- Transactions ---

    def _append_in_transaction(
        self,
        partition: Partition,
        topic: str,
        batch: memoryview,
        producer: tuple[int, int],
        answer: PartitionProduceResponse,
    ) -> None:
        """Append when the transaction is verified to be open here; a duplicate at once (P-09)."""
        where = (topic, answer.index)
        verification = self._node.verification
        try:
            if verification.may_append(partition, where, *producer):
                self._append_verified(partition, batch, answer)
                return
            header = check_batch(batch, partition.log.config, AppendOrigin.CLIENT)
            duplicate = partition.log.producers.find_duplicate(header)
        except StorageError as error:
            fail(answer, error.error, error.message)
            return
        if duplicate is not None:
            self._append(partition, batch, answer)
            return
        key = id(answer)
        self._open[key] = answer

        def verified(error: ErrorCode) -> None:
            in_time = self._open.pop(key, None) is not None
            if error is not _E.NONE:
                code = _verification_error(error, self._version)
                fail(
                    answer, code, f"{topic}-{answer.index} is not in the transaction: {error.name}"
                )
            elif self._node.partition(*where) is not partition:
                fail(answer, _E.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
            elif in_time:
                self._append_verified(partition, batch, answer)
            self._finish_if_complete()

        verification.verify(
            UnverifiedAppend(
                partition=partition,
                where=where,
                transactional_id=self._transactional_id or "",
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                add=self._version >= TRANSACTIONS_V2_SINCE,
                done=verified,
            )
        )

    def _append_verified(
        self, partition: Partition, batch: memoryview, answer: PartitionProduceResponse
    ) -> None:
        self._append(partition, batch, answer)
        if not answer.error_code:
            self._node.fault_points.reach(FaultPoint.TRANSACTIONAL_BATCH_WRITTEN)

    # --- The answer ---

    def finish(self, timeout_ms: int) -> ProduceResponse | Deferred[ProduceResponse]:
        """The answer, when every append is durable or the request's time is up."""
        if not self._open:
            return self.response
        deferred: Deferred[ProduceResponse] = Deferred()
        self._finished = lambda: deferred.resolve(self.response)
        self._timeout_ms = max(timeout_ms, 0)
        self._node.request_timeouts.begin(self, self._timeout_ms)
        return deferred

    def finish_unanswered(self) -> NoResponse | Deferred[NoResponse | CloseConnection]:
        """The reply with acks=0. It comes when the records may be read: the next request sees
        them."""
        if not self._open:
            outcome = unanswered(self.response)
            if isinstance(outcome, CloseConnection):
                raise outcome
            return outcome
        deferred: Deferred[NoResponse | CloseConnection] = Deferred()
        self._finished = lambda: deferred.resolve(unanswered(self.response))
        return deferred

    def _settled(self, key: int, error: ErrorCode) -> None:
        answer = self._open.pop(key, None)
        if answer is None:
            return
        if error is not _E.NONE:
            fail(answer, error)
        self._finish_if_complete()

    def _finish_if_complete(self) -> None:
        if self._open or self._finished is None:
            return
        finished, self._finished = self._finished, None
        if self._timeout_ms >= 0:
            self._node.request_timeouts.end(self, self._timeout_ms)
        finished()

    def timed_out(self) -> None:
        """The disk or the coordinator is too slow for this client (P-23).

        What is appended stays appended; what still waits for its transaction never will be.
        """
        for answer in self._open.values():
            fail(answer, _E.REQUEST_TIMED_OUT)
        self._open.clear()
        self._finish_if_complete()


def fail(answer: PartitionProduceResponse, error: ErrorCode, message: str | None = None) -> None:
    """Make it the answer to a batch that failed."""
    answer.error_code = error
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
    answer.error_message = message
