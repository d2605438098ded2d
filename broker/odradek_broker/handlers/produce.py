"""Produce (key 0): append batches, answer when they are durable (rules P-06, P-07, P-22, P-23).

The rules of a batch are the log's (`storage/log.py`); here are those of the request.
"""

from __future__ import annotations

from odradek_broker.context import NO_RESPONSE, CloseConnection, NoResponse, RequestContext
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_broker.storage.errors import AppendRejected, StorageError
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records import HEADER_BYTES
from odradek_protocol.schemas.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

_ZSTD_SINCE = 7
_TOPIC_IDS_SINCE = 13
_CODEC_AT = 22
_CODEC_MASK = 7


def handle(
    node: Node, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | NoResponse | Later[ProduceResponse]:
    """Append every partition's batch; the answer waits until all of them are durable."""
    produce = _Produce(node, context, request)
    for topic in request.topic_data:
        name, error = _topic_name(node, context, topic.name, topic.topic_id)
        answers = [
            produce.partition(name, data) if error is ErrorCode.NONE else _refused(data, error)
            for data in topic.partition_data
        ]
        produce.response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    if request.acks == 0:
        return _unanswered(produce.response)
    return produce.finish(request.timeout_ms)


def _topic_name(
    node: Node, context: RequestContext, name: str, topic_id: bytes
) -> tuple[str, ErrorCode]:
    if context.api_version < _TOPIC_IDS_SINCE:
        return name, ErrorCode.NONE
    found = node.metadata.topic_name(topic_id)
    if found is None:
        return "", ErrorCode.UNKNOWN_TOPIC_ID
    return found, ErrorCode.NONE


def _refused(
    data: PartitionProduceData, error: ErrorCode, message: str | None = None
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index, error_code=error, base_offset=-1, error_message=message
    )


def _unanswered(response: ProduceResponse) -> NoResponse:
    """acks=0: silence, or the end of the connection so that the client notices (P-23)."""
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                raise CloseConnection(
                    f"produce with acks=0 to {topic.name}-{answer.index} failed with "
                    f"{ErrorCode.of(answer.error_code).name}"
                )
    return NO_RESPONSE


class _Produce:
    """One request while its partitions are worked on."""

    __slots__ = ("_acks", "_later", "_node", "_now_ms", "_open", "_timer", "_version", "response")

    def __init__(self, node: Node, context: RequestContext, request: ProduceRequest) -> None:
        self._node = node
        self._version = context.api_version
        self._acks = request.acks
        self._now_ms = node.clock.wall_ms()
        self._open: dict[int, PartitionProduceResponse] = {}
        self._later: Later[ProduceResponse] | None = None
        self._timer: object = None
        self.response = ProduceResponse()

    def partition(self, topic: str, data: PartitionProduceData) -> PartitionProduceResponse:
        """Append one partition's batch; what will be answered for it."""
        if self._acks not in (-1, 0, 1):
            return _refused(data, ErrorCode.INVALID_REQUIRED_ACKS)
        node = self._node
        partition = node.partition(topic, data.index)
        if partition is None:
            return _refused(data, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if node.metadata.is_internal(topic):
            return _refused(
                data, ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own topic"
            )
        records = data.records
        if records is None:
            return _refused(data, ErrorCode.INVALID_RECORD, "no records")
        batch = memoryview(records)
        if (
            self._version < _ZSTD_SINCE
            and len(batch) >= HEADER_BYTES
            and batch[_CODEC_AT] & _CODEC_MASK == Codec.ZSTD
        ):
            return _refused(
                data, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce 7 or newer"
            )
        try:
            result = partition.append(batch, self._now_ms)
        except AppendRejected as rejected:
            return self._rejected(data, rejected)
        except StorageError as error:
            return _refused(data, error.error, error.message)
        node.metrics.appended_bytes(len(batch))
        answer = PartitionProduceResponse(
            index=data.index,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
        if self._acks and not partition.durable(result.last_offset):
            key = id(answer)
            self._open[key] = answer
            partition.when_durable(result.last_offset, lambda error: self._settled(key, error))
        return answer

    def _rejected(
        self, data: PartitionProduceData, rejected: AppendRejected
    ) -> PartitionProduceResponse:
        answer = _refused(data, rejected.error, rejected.message)
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in rejected.record_errors
        ]
        return answer

    def finish(self, timeout_ms: int) -> ProduceResponse | Later[ProduceResponse]:
        """The answer, now or when every append is durable or the request's time is up."""
        if not self._open:
            return self.response
        self._later = Later()
        self._timer = self._node.call_later(max(timeout_ms, 0), self._timed_out)
        return self._later

    def _settled(self, key: int, error: ErrorCode) -> None:
        answer = self._open.pop(key, None)
        if answer is None:
            return
        if error is not ErrorCode.NONE:
            answer.error_code = error
            answer.base_offset = -1
        if not self._open and self._later is not None and not self._later.done:
            self._node.cancel(self._timer)
            self._later.resolve(self.response)

    def _timed_out(self) -> None:
        """The disk is too slow for this client; what is appended stays appended (P-23)."""
        if self._later is None or self._later.done:
            return
        for answer in self._open.values():
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            answer.base_offset = -1
        self._open.clear()
        self._later.resolve(self.response)
