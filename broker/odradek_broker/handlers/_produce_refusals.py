"""The refusals of batches in the answers to Produce (rules P-06, P-23, T-61, T-62)."""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.coordinator.transactions.verification import refused_verification
from odradek_broker.partition import Partition
from odradek_broker.request import NO_RESPONSE, CloseConnection, NoResponse
from odradek_broker.storage.errors import AppendRejected, NotOneBatch, StorageError
from odradek_broker.storage.log_config import AppendOrigin
from odradek_broker.storage.validation import only_header
from odradek_protocol.codec import Buffer
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import peek
from odradek_protocol.records.layout import CODEC_MASK, MAGIC
from odradek_protocol.schemas.produce import (
    TRANSACTION_ABORTABLE_SINCE,
    ZSTD_SINCE,
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
)

_E = ErrorCode
#: Answers with these errors have no log start offset, as in Kafka.
_WITHOUT_LOG_START = frozenset(
    (_E.CORRUPT_MESSAGE, _E.MESSAGE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE, _E.KAFKA_STORAGE_ERROR)
)


def verification_error(error: ErrorCode, version: int) -> ErrorCode:
    """The error that a producer gets if the coordinator refuses the verification (T-61, T-62)."""
    return refused_verification(
        error, _E.NOT_ENOUGH_REPLICAS, knows_abortable=version >= TRANSACTION_ABORTABLE_SINCE
    )


def refused(
    partition: int, error: ErrorCode, message: str | None = None
) -> PartitionProduceResponse:
    """The answer for a batch that is not appended."""
    return PartitionProduceResponse(
        index=partition, error_code=error, base_offset=-1, error_message=message
    )


def deleted(partition: int) -> PartitionProduceResponse:
    """The refusal of a batch whose topic was deleted while the batch waited."""
    return refused(partition, _E.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")


def refused_codec(index: int, batch: memoryview) -> PartitionProduceResponse | None:
    """The refusal of a batch whose codec the version of the request does not have."""
    found = peek(batch)
    codec = found[1] & CODEC_MASK if found is not None and found[0] == MAGIC else Codec.NONE
    if codec == Codec.ZSTD:
        code = _E.UNSUPPORTED_COMPRESSION_TYPE
        return refused(index, code, "zstd needs Produce 7 or newer")
    if codec > Codec.ZSTD:
        return refused(index, _E.UNKNOWN_SERVER_ERROR, f"no codec has the number {codec}")
    return None


def refused_acks(index: int, records: Buffer | None, version: int) -> PartitionProduceResponse:
    """The refusal of a batch because of the request's acks. As in Kafka, a batch that is not one of
    our format is refused as such."""
    batch = memoryview(records or b"")
    refusal = refused_codec(index, batch) if version < ZSTD_SINCE else None
    if refusal is not None:
        return refusal
    try:
        only_header(batch, AppendOrigin.CLIENT)
    except NotOneBatch as problem:
        return refused(index, problem.error, problem.message)
    return refused(index, _E.INVALID_REQUIRED_ACKS)


def refused_by_log(
    index: int, partition: Partition, problem: StorageError
) -> PartitionProduceResponse:
    """The refusal of a batch by its log, with the records that are the reason."""
    answer = refused(index, problem.error, problem.message)
    if isinstance(problem, AppendRejected):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in problem.record_errors
        ]
        if not isinstance(problem, NotOneBatch) and problem.error not in _WITHOUT_LOG_START:
            answer.log_start_offset = partition.log.log_start_offset
    return answer


def unanswered(
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
