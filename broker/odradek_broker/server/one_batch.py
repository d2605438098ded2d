"""The short road of Produce: one batch for one partition, without decoding, handler and encoding.

Whatever is unusual takes the ordinary road (`dispatch.py`, `handlers/produce.py`), before anything
has happened. What is left does the same in the same order, and a batch that the log refuses is
answered by the same codecs. Tests send the same requests both ways, and hold answers, logs and
state equal.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from odradek_broker.deferred import Deferred
from odradek_broker.handlers.produce import fail, fill_refusal, unanswered
from odradek_broker.node import Node
from odradek_broker.partition import Partition
from odradek_broker.platform.fault_points import FaultPoint
from odradek_broker.request import CloseConnection, EncodedReply
from odradek_broker.security.authorizer import ALLOW_EVERYTHING
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import AppendResult
from odradek_protocol import frames
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.produce_frames import OneBatch, one_batch_answer, read_one_batch
from odradek_protocol.records.batch import peek
from odradek_protocol.records.layout import CODEC_MASK, TRANSACTIONAL_BIT
from odradek_protocol.schemas.produce import (
    TOPIC_IDS_SINCE,
    ZSTD_SINCE,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

_API = APIS[ApiKey.PRODUCE]
_NONE = ErrorCode.NONE


class Unusual(Enum):
    """Says that a request takes the ordinary road, and that nothing has happened yet."""

    UNUSUAL = "unusual"


UNUSUAL: Final = Unusual.UNUSUAL


class OneBatchRoad:
    """Answers Produce requests with one batch, on a node without quotas and authorizer."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    def answer(self, frame: memoryview) -> EncodedReply | Deferred[EncodedReply] | Unusual:
        """The reply to one request, now or later; UNUSUAL if it is not for this road.

        Raises CloseConnection as `Dispatcher.answer` does.
        """
        node = self._node
        quotas = node.quotas
        if (
            quotas.produce is not None
            or quotas.request is not None
            or node.authorizer is not ALLOW_EVERYTHING
        ):
            return UNUSUAL
        request = read_one_batch(frame)
        if request is None:
            return UNUSUAL
        topic: str | bytes | None = request.topic
        if request.version >= TOPIC_IDS_SINCE:
            topic = node.metadata.topic_name(request.topic_field)
        if not isinstance(topic, str):
            return UNUSUAL
        partition = node.partition(topic, request.partition)
        if (
            partition is None
            or not -1 <= request.acks <= 1
            or node.metadata.is_internal(topic)
            or (request.version < ZSTD_SINCE and request.attributes & CODEC_MASK >= Codec.ZSTD)
        ):
            return UNUSUAL
        transactional = request.attributes & TRANSACTIONAL_BIT
        if transactional and not self._is_verified(request, topic, partition):
            return UNUSUAL
        started_us = node.metrics.now_us()
        records = request.records
        try:
            result = partition.append(records, node.clock.wall_ms())
        except StorageError as problem:
            return self._refused(request, partition, problem, started_us)
        node.metrics.appended_bytes(len(records))
        if transactional:
            node.fault_points.reach(FaultPoint.TRANSACTIONAL_BATCH_WRITTEN)
        if partition.durable(result.last_offset):
            return self.appended(request, result, started_us)
        # Who waits for the disk must not keep the memory of the frame.
        records.release()
        waiting = _Waiting(self, node, request, result, started_us)
        partition.when_durable(result.last_offset, waiting.settled)
        if waiting.done:
            return waiting.result()
        if request.acks:
            node.request_timeouts.begin(waiting, max(request.timeout_ms, 0))
        return waiting

    def _is_verified(self, request: OneBatch, topic: str, partition: Partition) -> bool:
        """Whether a transactional batch needs no question to its coordinator (T-62)."""
        log = partition.log
        producer = peek(request.records)
        if request.transactional_id is None or producer is None or log.offline or not log.loaded:
            return False
        return self._node.verification.may_append(
            partition, (topic, request.partition), producer[2], producer[3]
        )

    def appended(self, request: OneBatch, result: AppendResult, started_us: int) -> EncodedReply:
        """The answer to a batch that may be acknowledged."""
        self._node.metrics.request_counted(_API.name, request.version, started_us)
        if not request.acks:
            return None
        return [
            one_batch_answer(
                request, result.base_offset, result.log_append_time_ms, result.log_start_offset
            )
        ]

    def _refused(
        self, request: OneBatch, partition: Partition, problem: StorageError, started_us: int
    ) -> EncodedReply:
        answer = PartitionProduceResponse(index=request.partition)
        fill_refusal(answer, partition, problem)
        response = _response(request, answer)
        if not request.acks:
            closing = unanswered(response)
            assert isinstance(closing, CloseConnection), "the batch was refused"
            raise closing
        return self._encoded(request, response, started_us)

    def failed(self, request: OneBatch, error: ErrorCode, started_us: int) -> EncodedReply:
        """The answer to a batch that was appended, and may not be acknowledged."""
        answer = PartitionProduceResponse(index=request.partition)
        fail(answer, error)
        response = _response(request, answer)
        if request.acks:
            return self._encoded(request, response, started_us)
        closing = unanswered(response)
        assert isinstance(closing, CloseConnection), "it has failed"
        self._node.metrics.request_finished(_API, request.version, started_us, closing)
        return closing

    def _encoded(
        self, request: OneBatch, response: ProduceResponse, started_us: int
    ) -> EncodedReply:
        self._node.metrics.request_finished(_API, request.version, started_us, response)
        return list(frames.encode_response(_API, request.version, request.correlation_id, response))


def _response(request: OneBatch, answer: PartitionProduceResponse) -> ProduceResponse:
    topic = TopicProduceResponse(partition_responses=[answer])
    if isinstance(request.topic, str):
        topic.name = request.topic
    else:
        topic.topic_id = request.topic
    return ProduceResponse(responses=[topic])


class _Waiting(Deferred[EncodedReply]):
    """The reply to a request whose batch is not durable yet (P-22)."""

    __slots__ = ("_node", "_request", "_result", "_road", "_started_us")

    def __init__(
        self,
        road: OneBatchRoad,
        node: Node,
        request: OneBatch,
        result: AppendResult,
        started_us: int,
    ) -> None:
        super().__init__()
        self._road = road
        self._node = node
        self._request = request
        self._result = result
        self._started_us = started_us

    def settled(self, error: ErrorCode) -> None:
        """The batch is durable, or never will be."""
        if self.done:
            return
        request = self._request
        if request.acks:
            self._node.request_timeouts.end(self, max(request.timeout_ms, 0))
        if error is _NONE:
            self.resolve(self._road.appended(request, self._result, self._started_us))
        else:
            self.resolve(self._road.failed(request, error, self._started_us))

    def timed_out(self) -> None:
        """The disk is too slow for this client; what is appended stays appended (P-23)."""
        if not self.done:
            self.resolve(
                self._road.failed(self._request, ErrorCode.REQUEST_TIMED_OUT, self._started_us)
            )
