"""DescribeProducers (key 61): the state of producers in partitions (P-01)."""

from __future__ import annotations

from odradek_broker.handlers._parts import PartitionAndMetadataParts
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.topics import check_topic_name
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denial, denied_topics, topic
from odradek_broker.slices import paced
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.producers.state import ProducerEntry
from odradek_protocol.constants import NO_OFFSET
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


async def handle(
    node: PartitionAndMetadataParts, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """The state of producers; errors are per partition, and authorization is checked before
    existence (A-18, A-20).

    A partition that is named several times is answered once, because otherwise the answer might not
    fit into memory (D11).
    """
    seen: set[tuple[str, int]] = set()
    names = [asked.name for asked in request.topics]
    denied = await denied_topics(node.authorizer, context, Operation.READ, names)
    answers = []
    async for asked in paced(request.topics):
        partitions = [
            _failed(
                index,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                denial(Operation.READ, topic(asked.name)),
            )
            if asked.name in denied
            else await _partition(node, asked.name, index)
            async for index in paced(dict.fromkeys(asked.partition_indexes))
            if (asked.name, index) not in seen
        ]
        seen.update([(asked.name, index) for index in asked.partition_indexes])
        if partitions or not asked.partition_indexes:
            answers.append(TopicResponse(name=asked.name, partitions=partitions))
    return DescribeProducersResponse(topics=answers)


async def _partition(node: PartitionAndMetadataParts, name: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(name)
    except AdminError as error:
        return _failed(index, error.error, error.message)
    partition = node.partition(name, index)
    if partition is None:
        if node.metadata.leader_of(name, index) is not None:
            return _failed(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        unknown = f"this broker has no partition {index} of topic {name!r}"
        return _failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown)
    try:
        known = partition.log.producers.entries()
    except StorageError as error:
        return _failed(index, error.error, error.message)
    return PartitionResponse(
        partition_index=index, active_producers=[_state(each) async for each in paced(known)]
    )


def _failed(index: int, error: ErrorCode, message: str | None = None) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=error, error_message=message)


def _state(entry: ProducerEntry) -> ProducerState:
    first_offset = entry.transaction_first_offset
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=NO_OFFSET if first_offset is None else first_offset,
    )
