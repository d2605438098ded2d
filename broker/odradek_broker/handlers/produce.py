"""Produce (key 0): appends batches; the answer comes when they are durable (rules P-06, P-07, P-22,
P-23).

`handle` and `handle_one` both use `_Produce`. Nearly all requests have one batch; a second, faster
codec reads these requests for `handle_one`. Requests are checked here, batches by the log
(`storage/log.py`). A transactional batch may have to wait until its coordinator has verified the
transaction (`coordinator/transactions/verification.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from odradek_broker.coordinator.transactions.verification import TRANSIENT_ERRORS, UnverifiedAppend
from odradek_broker.deferred import Deferred
from odradek_broker.node import Node
from odradek_broker.partition import Partition
from odradek_broker.platform.fault_points import FaultPoint
from odradek_broker.request import NO_RESPONSE, CloseConnection, NoResponse, RequestContext
from odradek_broker.security.authorizer import ALLOW_EVERYTHING, Operation, transactional_id
from odradek_broker.security.authorizer import topic as topic_resource
from odradek_broker.slices import in_order, paced
from odradek_broker.storage.errors import AppendRejected, NotOneBatch, StorageError
from odradek_broker.storage.log import AppendResult
from odradek_broker.storage.log_config import AppendOrigin
from odradek_broker.storage.validation import DecompressionBudget, check_batch, only_header
from odradek_protocol.codec import Buffer, struct_maker
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.produce_frames import OneBatch
from odradek_protocol.records.batch import peek
from odradek_protocol.records.layout import CODEC_MASK, MAGIC, TRANSACTIONAL_BIT
from odradek_protocol.schemas.produce import (
    TOPIC_IDS_SINCE,
    TRANSACTION_ABORTABLE_SINCE,
    TRANSACTIONS_V2_SINCE,
    ZSTD_SINCE,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

R = TypeVar("R")
_E = ErrorCode
#: A separate constant, because access to a member of an enumeration in each request is slow.
_NONE = ErrorCode.NONE
_make_answer = struct_maker(PartitionProduceResponse, current_leader=LeaderIdAndEpoch())
_Reply = ProduceResponse | NoResponse | CloseConnection

#: The most partitions of a request that is handled in one piece. Its batches are not verified and
#: flushed in parts, and other connections wait no longer than for a large batch.
_PARTITIONS_AT_ONCE = 1_000
#: The most partitions that are appended in one slice of a larger request.
_APPENDED_AT_ONCE = 64
#: Answers with these errors have no log start offset, as in Kafka.
_WITHOUT_LOG_START = frozenset(
    (_E.CORRUPT_MESSAGE, _E.MESSAGE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE, _E.KAFKA_STORAGE_ERROR)
)


def handle(
    node: Node, context: RequestContext, request: ProduceRequest
) -> _Reply | Deferred[_Reply]:
    """Append the batch of every partition. The reply comes when all batches are durable."""
    if node.quotas.produce is not None:
        node.quotas.produce.record(context, context.size_bytes)
    produce = _Produce(node, context.api_version, request, DecompressionBudget())
    if sum(map(len, [topic.partition_data for topic in request.topic_data])) > _PARTITIONS_AT_ONCE:
        return node.slices.run(_handle_many(node, context, request, produce))
    topic_data = _each_once(request.topic_data)
    refusal = _transaction_error(node, context, request.transactional_id, _producers(request))
    topics = _append_all(node, context, request, produce, topic_data, refusal)
    reply = partial(_reply_to_many, request.acks, topics)
    if produce.open:
        return produce.reply(reply, request.timeout_ms if request.acks else None)
    return _at_once(reply())


async def _handle_many(
    node: Node, context: RequestContext, request: ProduceRequest, produce: _Produce
) -> _Reply:
    """Like `handle`, for a request with so many partitions that they are appended in slices."""
    batches: dict[tuple[str, bytes], dict[int, PartitionProduceData]] = {}
    producers: set[tuple[int, int] | None] = set()
    async for topic in paced(request.topic_data):
        if not topic.partition_data:
            continue
        of_topic = batches.setdefault((topic.name, topic.topic_id), {})
        async for data in paced(topic.partition_data):
            of_topic[data.index] = data
            producers.add(_transactional_producer(data.records))
    refusal = _transaction_error(node, context, request.transactional_id, producers)
    topics: list[_Topic] = []
    async for (name, topic_id), of_topic in paced(batches.items(), changing=True):
        whole = _Topic(name, topic_id, [])
        topics.append(whole)
        async for some in paced(
            in_order(list(of_topic.values()), _APPENDED_AT_ONCE), changing=True
        ):
            part = TopicProduceData(name=name, topic_id=topic_id, partition_data=list(some))
            (appended,) = _append_all(node, context, request, produce, [part], refusal)
            whole.outcomes.extend(appended.outcomes)
    if produce.open:
        await produce.reply(lambda: None, request.timeout_ms if request.acks else None)
    responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[_response(*each) async for each in paced(topic.outcomes)],
        )
        async for topic in paced(topics)
    ]
    return _reply(request.acks, responses)


def _reply_to_many(acks: int, topics: list[_Topic]) -> _Reply:
    responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[_response(*each) for each in topic.outcomes],
        )
        for topic in topics
    ]
    return _reply(acks, responses)


def _reply(acks: int, responses: list[TopicProduceResponse]) -> _Reply:
    if acks:
        return ProduceResponse(responses=responses)
    return _unanswered(
        (topic.name, answer) for topic in responses for answer in topic.partition_responses
    )


def handle_one(
    node: Node, context: RequestContext, request: OneBatch
) -> _Reply | list[Buffer] | Deferred[_Reply | list[Buffer]]:
    """Handle a request with one batch as `handle` does. If the batch is appended, this function
    also encodes the response."""
    if node.quotas.produce is not None:
        node.quotas.produce.record(context, context.size_bytes)
    topic, records = request.topic, request.records
    error, producer = _NONE, None
    if not isinstance(topic, str):
        topic, error = _topic_name(node, context, "", topic)
    elif node.authorizer is not ALLOW_EVERYTHING:
        topic, error = _topic_name(node, context, topic, ZERO_UUID)
    if request.attributes & TRANSACTIONAL_BIT:
        producer = _transactional_producer(records)
        error = _transaction_error(node, context, request.transactional_id, [producer]) or error
    produce = _Produce(node, request.version, request)
    outcome: _Outcome
    if error:
        outcome = _refused(request.partition, error)
    else:
        outcome = produce.partition(topic, request.partition, records, producer)
    if produce.open:
        # A request that waits must not keep its frame in memory.
        records.release()
        timeout_ms = request.timeout_ms if request.acks else None
        return produce.reply(partial(_reply_to_one, context, request, outcome), timeout_ms)
    reply = _reply_to_one(context, request, outcome)
    return reply if request.acks else _at_once(reply)


def _reply_to_one(
    context: RequestContext, request: OneBatch, outcome: _Outcome
) -> _Reply | list[Buffer]:
    result = outcome.result if isinstance(outcome, _WaitingBatch) else outcome
    if isinstance(result, AppendResult) and request.acks and not context.throttle_ms:
        return request.encode_response(
            result.base_offset, result.log_append_time_ms, result.log_start_offset
        )
    answer = _response(request.partition, outcome)
    if request.acks:
        return request.response(answer)
    return _unanswered([(request.topic if isinstance(request.topic, str) else "", answer)])


def _at_once(reply: R) -> R:
    if isinstance(reply, CloseConnection):
        raise reply
    return reply


def _producers(request: ProduceRequest) -> Iterator[tuple[int, int] | None]:
    return (
        _transactional_producer(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _append_all(
    node: Node,
    context: RequestContext,
    request: ProduceRequest,
    produce: _Produce,
    topic_data: Sequence[TopicProduceData],
    refusal: ErrorCode,
) -> list[_Topic]:
    """Append batches; in a transaction, those that are not verified yet are verified together."""
    if request.transactional_id is None:
        return [_append(node, context, produce, topic, refusal) for topic in topic_data]
    with node.verification.one_request():
        return [_append(node, context, produce, topic, refusal) for topic in topic_data]


def _append(
    node: Node,
    context: RequestContext,
    produce: _Produce,
    topic: TopicProduceData,
    refusal: ErrorCode,
) -> _Topic:
    name, error = _topic_name(node, context, topic.name, topic.topic_id)
    error = refusal or error
    outcomes: list[tuple[int, _Outcome]] = []
    for data in topic.partition_data:
        if error:
            outcome: _Outcome = _refused(data.index, error)
        else:
            producer = _transactional_producer(data.records)
            outcome = produce.partition(name, data.index, data.records, producer)
        outcomes.append((data.index, outcome))
    return _Topic(topic.name, topic.topic_id, outcomes)


def _each_once(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """The last batch of each partition, as in Kafka, because the response has one result per
    partition. Topics without partitions are left out."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    found: dict[tuple[str, bytes], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        if not topic.partition_data:
            continue
        batches = found.setdefault((topic.name, topic.topic_id), {})
        batches.update((data.index, data) for data in topic.partition_data)
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(batches.values()))
        for (name, topic_id), batches in found.items()
    ]


def _transactional_producer(records: Buffer | None) -> tuple[int, int] | None:
    """(producer id, epoch) of a transactional batch; None for any other batch.

    Anything but a batch of magic 2 is not transactional; the log refuses it (P-07).
    """
    found = None if records is None else peek(records)
    if found is None or found[0] != MAGIC or not found[1] & TRANSACTIONAL_BIT:
        return None
    return found[2], found[3]


def _transaction_error(
    node: Node,
    context: RequestContext,
    wanted: str | None,
    producers: Iterable[tuple[int, int] | None],
) -> ErrorCode:
    """The error of the whole request because of its transaction (P-06, A-01, T-25).

    `wanted`: the transactional id of the request; `producers`: the producer of each batch, None for
    a batch that is not transactional.
    """
    producer_ids = {producer[0] for producer in producers if producer is not None}
    if not producer_ids:
        return _E.NONE
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
    authorizer = node.authorizer
    if authorizer is not ALLOW_EVERYTHING and not authorizer.allows(
        context, Operation.WRITE, topic_resource(name)
    ):
        return name, _E.TOPIC_AUTHORIZATION_FAILED
    return name, _E.NONE


def _verification_error(error: ErrorCode, version: int) -> ErrorCode:
    """The error that a producer gets if the coordinator refuses the verification (T-61, T-62)."""
    if error in TRANSIENT_ERRORS:
        return _E.NOT_ENOUGH_REPLICAS
    if error is _E.PRODUCER_FENCED:
        return _E.INVALID_PRODUCER_EPOCH
    if error is _E.TRANSACTION_ABORTABLE and version < TRANSACTION_ABORTABLE_SINCE:
        return _E.INVALID_TXN_STATE
    return error


def _refused(
    partition: int, error: ErrorCode, message: str | None = None
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=partition, error_code=error, base_offset=-1, error_message=message
    )


def _refused_codec(index: int, batch: memoryview) -> PartitionProduceResponse | None:
    """The refusal of a batch whose codec the version of the request does not have."""
    found = peek(batch)
    codec = found[1] & CODEC_MASK if found is not None and found[0] == MAGIC else Codec.NONE
    if codec == Codec.ZSTD:
        code = _E.UNSUPPORTED_COMPRESSION_TYPE
        return _refused(index, code, "zstd needs Produce 7 or newer")
    if codec > Codec.ZSTD:
        return _refused(index, _E.UNKNOWN_SERVER_ERROR, f"no codec has the number {codec}")
    return None


def _refused_by_log(
    index: int, partition: Partition, problem: StorageError
) -> PartitionProduceResponse:
    answer = _refused(index, problem.error, problem.message)
    if isinstance(problem, AppendRejected):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in problem.record_errors
        ]
        if not isinstance(problem, NotOneBatch) and problem.error not in _WITHOUT_LOG_START:
            answer.log_start_offset = partition.log.log_start_offset
    return answer


def _unanswered(
    answers: Iterable[tuple[str, PartitionProduceResponse]],
) -> NoResponse | CloseConnection:
    """The reply to a request with acks=0: no response; after an error the connection is closed
    (P-23)."""
    for topic, answer in answers:
        if answer.error_code:
            return CloseConnection(
                f"produce with acks=0 to {topic}-{answer.index} failed with "
                f"{ErrorCode.of(answer.error_code).name}"
            )
    return NO_RESPONSE


class _WaitingBatch:
    """A batch that waits for the disk or for its transaction. `result`: None while the batch waits;
    then the result of its append, or the answer if the append was refused or has failed."""

    __slots__ = ("index", "result")

    def __init__(
        self, index: int, result: AppendResult | PartitionProduceResponse | None = None
    ) -> None:
        self.index = index
        self.result = result


#: The outcome of a batch: appended and durable, refused, or not known yet.
_Outcome = AppendResult | PartitionProduceResponse | _WaitingBatch


class _Topic(NamedTuple):
    """A topic of a request, and the outcome of the batch of each partition."""

    name: str
    topic_id: bytes
    outcomes: list[tuple[int, _Outcome]]


class _Produce:
    """A Produce request until all of its batches are durable or refused."""

    __slots__ = (
        "_acks",
        "_budget",
        "_make",
        "_node",
        "_now_ms",
        "_reply",
        "_timeout_ms",
        "_transactional_id",
        "_version",
        "open",
    )

    def __init__(
        self,
        node: Node,
        version: int,
        request: ProduceRequest | OneBatch,
        budget: DecompressionBudget | None = None,
    ) -> None:
        self._node = node
        self._version = version
        # The request itself is not kept, because it refers to the frame's memory.
        self._acks = request.acks
        self._transactional_id = request.transactional_id
        self._now_ms = node.clock.wall_ms()
        self._budget = budget
        #: Batches that are neither durable nor refused yet.
        self.open: set[_WaitingBatch] = set()
        self._reply: Deferred[Any] | None = None
        # The fields below are set by `reply`.
        self._make: Callable[[], Any]
        self._timeout_ms: int | None

    def partition(
        self,
        topic: str,
        index: int,
        records: Buffer | None,
        producer: tuple[int, int] | None,
    ) -> _Outcome:
        """Append the batch of a partition. `producer`: the producer of a transactional batch; None
        for others."""
        node = self._node
        partition = node.partition(topic, index)
        if partition is None:
            return _refused(index, _E.UNKNOWN_TOPIC_OR_PARTITION)
        if self._acks not in (-1, 0, 1):
            return self._refused_acks(index, records)
        if not node.metadata.takes_records(topic):
            return self._refused_by_topic(topic, index)
        if records is None:
            return _refused(index, _E.INVALID_RECORD, "no records")
        batch = records if isinstance(records, memoryview) else memoryview(records)
        if self._version < ZSTD_SINCE:
            refusal = _refused_codec(index, batch)
            if refusal is not None:
                return refusal
        if producer is None:
            return self._append(partition, batch, index)
        return self._append_in_transaction(partition, topic, index, batch, producer)

    def _refused_acks(self, index: int, records: Buffer | None) -> PartitionProduceResponse:
        """The refusal of a batch because of the request's acks. As in Kafka, a batch that is not
        one of our format is refused as such."""
        batch = memoryview(records or b"")
        refusal = _refused_codec(index, batch) if self._version < ZSTD_SINCE else None
        if refusal is not None:
            return refusal
        try:
            only_header(batch, AppendOrigin.CLIENT)
        except NotOneBatch as problem:
            return _refused(index, problem.error, problem.message)
        return _refused(index, _E.INVALID_REQUIRED_ACKS)

    def _refused_by_topic(self, topic: str, index: int) -> PartitionProduceResponse:
        node = self._node
        if node.metadata.is_internal(topic):
            return _refused(index, _E.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own topic")
        node.mirror_recorder.produce_refused(topic, index)
        return _refused(index, _E.INVALID_REQUEST, node.metadata.mirror_refusal(topic))

    def _append(
        self,
        partition: Partition,
        batch: memoryview,
        index: int,
        waiting: _WaitingBatch | None = None,
    ) -> _Outcome:
        """Append a batch. `waiting`: the batch, if it has waited for its transaction."""
        try:
            result = partition.append(batch, self._now_ms, budget=self._budget)
        except StorageError as problem:
            refusal = _refused_by_log(index, partition, problem)
            if waiting is None:
                return refusal
            waiting.result = refusal
            return waiting
        self._node.metrics.appended_bytes(len(batch))
        durable = partition.durable(result.last_offset)
        if waiting is not None:
            waiting.result = result
        elif durable:
            return result
        else:
            waiting = _WaitingBatch(index, result)
        if not durable:
            self.open.add(waiting)
            partition.when_durable(result.last_offset, partial(self._durable, waiting))
        return waiting

    # --- Transactions ---

    def _append_in_transaction(
        self,
        partition: Partition,
        topic: str,
        index: int,
        batch: memoryview,
        producer: tuple[int, int],
    ) -> _Outcome:
        """Append the batch when the transaction's coordinator has verified that the transaction is
        open; the verification for an earlier batch is enough. A duplicate batch is verified too,
        because its transaction may have ended."""
        where = (topic, index)
        verification = self._node.verification
        try:
            if verification.may_append(partition, where, *producer):
                return self._append_verified(partition, batch, index)
            header = check_batch(batch, partition.log.config, AppendOrigin.CLIENT)
        except StorageError as error:
            return _refused(index, error.error, error.message)
        waiting = _WaitingBatch(index)
        self.open.add(waiting)
        # A second view, because the caller may release the first before the verification ends.
        batch = memoryview(batch)

        def verified(error: ErrorCode) -> None:
            in_time = waiting in self.open
            self.open.discard(waiting)
            if error is not _NONE:
                code = _verification_error(error, self._version)
                text = f"{topic}-{index} is not in the transaction: {error.name}"
                waiting.result = _refused(index, code, text)
            elif self._node.partition(*where) is not partition:
                code, text = _E.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted"
                waiting.result = _refused(index, code, text)
            elif in_time:
                self._append_verified(partition, batch, index, waiting)
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
        return waiting

    def _append_verified(
        self,
        partition: Partition,
        batch: memoryview,
        index: int,
        waiting: _WaitingBatch | None = None,
    ) -> _Outcome:
        outcome = self._append(partition, batch, index, waiting)
        result = outcome.result if isinstance(outcome, _WaitingBatch) else outcome
        if isinstance(result, AppendResult):
            self._node.fault_points.reach(FaultPoint.TRANSACTIONAL_BATCH_WRITTEN)
        return outcome

    # --- The reply ---

    def reply(self, make: Callable[[], Any], timeout_ms: int | None) -> Deferred[Any]:
        """The reply that `make` returns. `make` is called when every batch is durable or refused,
        or after `timeout_ms` (None: no limit)."""
        self._make = make
        reply: Deferred[Any] = Deferred()
        self._reply = reply
        if timeout_ms is not None:
            timeout_ms = max(timeout_ms, 0)
            self._node.request_timeouts.begin(self, timeout_ms)
        self._timeout_ms = timeout_ms
        return reply

    def _durable(self, waiting: _WaitingBatch, error: ErrorCode) -> None:
        """Called when a batch is durable, and when it is certain that it never will be."""
        if waiting not in self.open:
            return
        self.open.discard(waiting)
        if error is not _NONE:
            waiting.result = _refused(waiting.index, error)
        self._finish_if_complete()

    def _finish_if_complete(self) -> None:
        reply = self._reply
        if self.open or reply is None:
            return
        self._reply = None
        if self._timeout_ms is not None:
            self._node.request_timeouts.end(self, self._timeout_ms)
        reply.resolve(self._make())

    def timed_out(self) -> None:
        """Answer REQUEST_TIMED_OUT for the batches that are neither durable nor refused, because
        the disk or the coordinator is too slow for this client (P-23).

        An appended batch stays appended; a batch that waits for its transaction is never appended.
        """
        for waiting in self.open:
            waiting.result = _refused(waiting.index, _E.REQUEST_TIMED_OUT)
        self.open.clear()
        self._finish_if_complete()


def _response(index: int, outcome: _Outcome) -> PartitionProduceResponse:
    result = outcome.result if isinstance(outcome, _WaitingBatch) else outcome
    if not isinstance(result, AppendResult):
        assert result is not None, "a batch that still waits has no answer"
        return result
    answer = _make_answer()
    answer.index = index
    answer.base_offset = result.base_offset
    answer.log_append_time_ms = result.log_append_time_ms
    answer.log_start_offset = result.log_start_offset
    return answer
