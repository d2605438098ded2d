"""Produce (key 0): appends batches; the answer comes when they are durable (rules P-06, P-07, P-22,
P-23).

`handle` and `handle_one` both use `_Produce`. Nearly all requests have one batch; a second, faster
codec reads these requests for `handle_one`. Requests are checked here, batches by the log
(`storage/log.py`). A transactional batch may have to wait until its coordinator has verified the
transaction (`coordinator/transactions/verification.py`), and a batch that inflates to megabytes is
checked in a thread first (`storage/large_batches.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from odradek_broker.coordinator.transactions.verification import UnverifiedAppend
from odradek_broker.deferred import Deferred
from odradek_broker.handlers._produce_refusals import (
    deleted,
    refused,
    refused_acks,
    refused_by_log,
    refused_codec,
    unanswered,
    verification_error,
)
from odradek_broker.node import Node
from odradek_broker.partition import Partition
from odradek_broker.platform.fault_points import FaultPoint
from odradek_broker.request import CloseConnection, NoResponse, RequestContext
from odradek_broker.security.authorizer import ALLOW_EVERYTHING, Operation, transactional_id
from odradek_broker.security.authorizer import topic as topic_resource
from odradek_broker.slices import paced
from odradek_broker.storage.errors import (
    AppendRejected,
    StorageError,
    TakesLong,
    ThreadBusy,
)
from odradek_broker.storage.large_batches import in_thread
from odradek_broker.storage.log import AppendResult
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_broker.storage.validation import (
    DecompressionBudget,
    ValidatedBatch,
    check_batch,
    prepare,
)
from odradek_protocol.codec import Buffer, struct_maker
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.produce_frames import OneBatch
from odradek_protocol.records.batch import peek
from odradek_protocol.records.layout import MAGIC, TRANSACTIONAL_BIT
from odradek_protocol.schemas.produce import (
    TOPIC_IDS_SINCE,
    TRANSACTIONS_V2_SINCE,
    ZSTD_SINCE,
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
#: The most bytes of such a request.
_BYTES_AT_ONCE = 4 * 1024 * 1024
#: The most partitions, and about as many bytes, that are appended in one slice of a larger request.
_APPENDED_AT_ONCE, _APPENDED_AT_ONCE_BYTES = 64, 1024 * 1024


def handle(
    node: Node, context: RequestContext, request: ProduceRequest
) -> _Reply | Deferred[_Reply]:
    """Append the batch of every partition. The reply comes when all batches are durable."""
    if node.quotas.produce is not None:
        node.quotas.produce.record(context, context.size_bytes)
    produce = _Produce(node, context.api_version, request, DecompressionBudget())
    partitions = sum(map(len, [topic.partition_data for topic in request.topic_data]))
    if partitions > _PARTITIONS_AT_ONCE or (partitions > 1 and context.size_bytes > _BYTES_AT_ONCE):
        return node.slices.run(_handle_many(node, context, request, produce))
    topic_data = _each_once(request.topic_data)
    refusal = _transaction_error(node, context, request.transactional_id, _producers(request))
    topics = _append_all(node, context, request, produce, topic_data, refusal)
    reply = partial(_reply_to_many, request.acks, topics)
    timeout_ms = request.timeout_ms if request.acks else None
    if produce.long:
        return node.slices.run(_finish_long(produce, reply, timeout_ms))
    if produce.open:
        return produce.reply(reply, timeout_ms)
    return _at_once(reply())


async def _finish_long(produce: _Produce, make: Callable[[], R], timeout_ms: int | None) -> R:
    """The reply, after the batches of `produce.long`. Until it is there, the requests behind this
    one wait (N-03), so that no batch of the connection overtakes another."""
    await produce.append_long()
    if produce.open:
        await produce.reply(lambda: None, timeout_ms)
    return make()


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
        async for some in paced(_parts(list(of_topic.values())), changing=True):
            produce.begin_slice()
            part = TopicProduceData(name=name, topic_id=topic_id, partition_data=list(some))
            (appended,) = _append_all(node, context, request, produce, [part], refusal)
            whole.outcomes.extend(appended.outcomes)
    await produce.append_long()
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


def _parts(batches: list[PartitionProduceData]) -> Iterator[list[PartitionProduceData]]:
    """The batches in parts that are appended in one slice each."""
    part: list[PartitionProduceData] = []
    size_bytes = 0
    for data in batches:
        part.append(data)
        size_bytes += len(data.records or b"")
        if len(part) >= _APPENDED_AT_ONCE or size_bytes >= _APPENDED_AT_ONCE_BYTES:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part


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
    return unanswered(
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
        outcome = refused(request.partition, error)
    else:
        outcome = produce.partition(topic, request.partition, records, producer)
    if produce.open:
        # A request that waits must not keep its frame in memory.
        records.release()
        timeout_ms = request.timeout_ms if request.acks else None
        make = partial(_reply_to_one, context, request, outcome)
        if produce.long:
            return node.slices.run(_finish_long(produce, make, timeout_ms))
        return produce.reply(make, timeout_ms)
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
    return unanswered([(request.topic if isinstance(request.topic, str) else "", answer)])


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
            outcome: _Outcome = refused(data.index, error)
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


class _LongBatch(NamedTuple):
    """A batch that inflates to so much that it is checked in a thread. `batch` keeps the frame in
    memory."""

    waiting: _WaitingBatch
    partition: Partition
    topic: str
    batch: memoryview
    producer: tuple[int, int] | None


#: A batch that was checked before its transaction is verified; None if the check is part of the
#: append.
_Checked = ValidatedBatch | AppendRejected | None


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
        "long",
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
        #: Those of them that `append_long` appends.
        self.long: list[_LongBatch] = []
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
            return refused(index, _E.UNKNOWN_TOPIC_OR_PARTITION)
        if self._acks not in (-1, 0, 1):
            return refused_acks(index, records, self._version)
        if not node.metadata.takes_records(topic):
            return self._refused_by_topic(topic, index)
        if records is None:
            return refused(index, _E.INVALID_RECORD, "no records")
        batch = records if isinstance(records, memoryview) else memoryview(records)
        if self._version < ZSTD_SINCE:
            refusal = refused_codec(index, batch)
            if refusal is not None:
                return refusal
        try:
            if producer is None:
                return self._append(partition, batch, index)
            waiting = _WaitingBatch(index)
            return self._append_in_transaction(partition, topic, batch, producer, waiting)
        except TakesLong:
            waiting = _WaitingBatch(index)
            self.open.add(waiting)
            # A second view, because the caller may release the first before the batch is appended.
            self.long.append(_LongBatch(waiting, partition, topic, memoryview(batch), producer))
            return waiting

    def begin_slice(self) -> None:
        """Other requests have had the loop."""
        if self._budget is not None:
            self._budget.begin_slice()

    async def append_long(self) -> None:
        """Append the batches that take long: each in a slice of its own if that is enough,
        otherwise after it was checked in a thread."""
        budget = self._budget = self._budget or DecompressionBudget()
        long, self.long = self.long, []
        async for each in paced(long, changing=True):
            budget.begin_slice()
            try:
                self._append_waiting(each, None)
            except TakesLong:
                self._append_waiting(each, await self._checked(each, budget))

    async def _checked(self, long: _LongBatch, budget: DecompressionBudget) -> _Checked:
        config = long.partition.log.config

        def check() -> _Checked:
            budget.begin_thread()
            return _prepared(long.batch, config, self._now_ms, budget)

        try:
            return await in_thread(self._node.slices, check)
        except ThreadBusy as busy:
            return AppendRejected(busy.error, busy.message)

    def _append_waiting(self, long: _LongBatch, checked: _Checked) -> None:
        """Append a batch, and keep its outcome in `waiting`."""
        waiting, partition, topic, batch, producer = long
        index = waiting.index
        self.open.discard(waiting)
        if self._node.partition(topic, index) is not partition:
            waiting.result = deleted(index)
        elif producer is None:
            self._append(partition, batch, index, waiting, checked)
        else:
            self._append_in_transaction(partition, topic, batch, producer, waiting, checked)

    def _refused_by_topic(self, topic: str, index: int) -> PartitionProduceResponse:
        node = self._node
        if node.metadata.is_internal(topic):
            return refused(index, _E.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own topic")
        node.mirror_recorder.produce_refused(topic, index)
        return refused(index, _E.INVALID_REQUEST, node.metadata.mirror_refusal(topic))

    def _append(
        self,
        partition: Partition,
        batch: memoryview,
        index: int,
        waiting: _WaitingBatch | None = None,
        checked: _Checked = None,
    ) -> _Outcome:
        """Append a batch. `waiting`: the batch, if it has waited for its transaction or a thread.
        Raises TakesLong if the batch was not checked before."""
        try:
            if isinstance(checked, AppendRejected):
                raise checked.kept()
            now_ms = self._now_ms if checked is None else self._node.clock.wall_ms()
            result = partition.append(batch, now_ms, budget=self._budget, prepared=checked)
        except StorageError as problem:
            refusal = refused_by_log(index, partition, problem)
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
        batch: memoryview,
        producer: tuple[int, int],
        waiting: _WaitingBatch,
        checked: _Checked = None,
    ) -> _Outcome:
        """Append the batch when the transaction's coordinator has verified that the transaction is
        open; the verification for an earlier batch is enough. A duplicate batch is verified too,
        because its transaction may have ended.

        A batch that waits is checked before, as the check may take long, and later batches must not
        overtake this one after the verification. Raises TakesLong if `checked` is None.
        """
        index = waiting.index
        where = (topic, index)
        verification = self._node.verification
        try:
            if verification.may_append(partition, where, *producer):
                return self._append_verified(partition, batch, waiting, checked)
            config = partition.log.config
            header = check_batch(batch, config, AppendOrigin.CLIENT)
        except StorageError as error:
            waiting.result = refused(index, error.error, error.message)
            return waiting.result
        # A second view, because the caller may release the first before the verification ends.
        batch = memoryview(batch)
        if checked is None:
            checked = _prepared(batch, config, self._now_ms, self._budget)
        self.open.add(waiting)

        def verified(error: ErrorCode) -> None:
            in_time = waiting in self.open
            self.open.discard(waiting)
            if error is not _NONE:
                code = verification_error(error, self._version)
                text = f"{topic}-{index} is not in the transaction: {error.name}"
                waiting.result = refused(index, code, text)
            elif self._node.partition(*where) is not partition:
                waiting.result = deleted(index)
            elif in_time:
                self._append_verified(partition, batch, waiting, checked)
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
        waiting: _WaitingBatch,
        checked: _Checked,
    ) -> _Outcome:
        outcome = self._append(partition, batch, waiting.index, waiting, checked)
        if isinstance(waiting.result, AppendResult):
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
            waiting.result = refused(waiting.index, error)
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
            waiting.result = refused(waiting.index, _E.REQUEST_TIMED_OUT)
        self.open.clear()
        self._finish_if_complete()


def _prepared(
    batch: memoryview, config: LogConfig, now_ms: int, budget: DecompressionBudget | None
) -> ValidatedBatch | AppendRejected:
    """The batch, checked, or its refusal. Raises TakesLong."""
    try:
        return prepare(batch, config, AppendOrigin.CLIENT, now_ms, budget)
    except AppendRejected as refusal:
        return refusal.kept()


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
