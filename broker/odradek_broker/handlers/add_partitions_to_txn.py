"""AddPartitionsToTxn (key 24): adds partitions to a transaction (rules T-20 to T-22, A-05).

In versions below 2 the error of a fenced producer is INVALID_PRODUCER_EPOCH. Versions from 4 on are
for brokers. Such a request names many transactions, and for each it either adds partitions, or
verifies that partitions were added earlier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek_broker.coordinator.transactions.decisions import AddCall
from odradek_broker.deferred import Deferred
from odradek_broker.explain.sentences import describe_client
from odradek_broker.handlers._parts import TransactionAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, topic, transactional_id
from odradek_broker.slices import each_once, paced, pause
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.add_partitions_to_txn import (
    BETWEEN_BROKERS_SINCE,
    PRODUCER_FENCED_SINCE,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

#: Requests of clients are always for transactions of version 1.
_CLIENT_VERSION = 1

#: The errors of partitions with which the coordinator is not asked.
_REFUSED_BEFORE = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

_Codes = Mapping[TopicPartition, ErrorCode]


async def handle(
    node: TransactionAndMetadataParts, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add all partitions or none; the answer has an error code for each partition (T-21). Even
    a request without partitions begins a transaction."""
    if context.api_version >= BETWEEN_BROKERS_SINCE:
        return await _between_brokers(node, context, request.transactions)
    topics = request.v3_and_below_topics
    codes = await _for_client(node, context, request)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=await _results(topics, codes, context.api_version)
    )


async def _for_client(
    node: TransactionAndMetadataParts, context: RequestContext, request: AddPartitionsToTxnRequest
) -> _Codes:
    name = request.v3_and_below_transactional_id
    parts = await _partitions(request.v3_and_below_topics)
    if not node.authorizer.allows(context, Operation.WRITE, transactional_id(name)):
        return dict.fromkeys(parts, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    codes = {part: _fit(node, context, part) async for part in paced(parts)}
    if any(codes.values()):
        return await _none_attempted(codes)
    if not name:
        return dict.fromkeys(parts, ErrorCode.INVALID_REQUEST)
    call = AddCall(
        name,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        frozenset(parts),
        _CLIENT_VERSION,
        describe_client(context.client_id, context.host),
    )
    await pause()
    error = await node.transactions.add_partitions(call)
    await pause()
    return dict.fromkeys(parts, error)


async def _between_brokers(
    node: TransactionAndMetadataParts,
    context: RequestContext,
    transactions: Sequence[AddPartitionsToTxnTransaction],
) -> AddPartitionsToTxnResponse:
    """Add or verify the partitions of every transaction separately (T-22)."""
    if not node.authorizer.allows(context, Operation.CLUSTER_ACTION, CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = [
        (each, await _for_broker(node, each)) async for each in paced(transactions, changing=True)
    ]
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=await _results(
                    each.topics, await codes, context.api_version, verified=each.verify_only
                ),
            )
            async for each, codes in paced(asked)
        ]
    )


async def _for_broker(
    node: TransactionAndMetadataParts, asked: AddPartitionsToTxnTransaction
) -> Deferred[_Codes]:
    parts = await _partitions(asked.topics)
    codes = {part: _known(node, part) async for part in paced(parts)}
    if any(codes.values()):
        return Deferred.of(await _none_attempted(codes))
    return node.transactions.verify_or_add(
        asked.transactional_id,
        asked.producer_id,
        asked.producer_epoch,
        parts,
        add=not asked.verify_only,
    )


def _fit(
    node: TransactionAndMetadataParts, context: RequestContext, part: TopicPartition
) -> ErrorCode:
    """The error that forbids this client to write to the partition, or NONE (A-05, I-02). No client
    may write to the broker's internal topics."""
    name = part[0]
    internal = node.metadata.is_internal(name)
    if internal or not node.authorizer.allows(context, Operation.WRITE, topic(name)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _known(node, part)


def _known(node: TransactionAndMetadataParts, part: TopicPartition) -> ErrorCode:
    if node.metadata.leader_of(*part) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_REQUEST if node.metadata.is_mirror(part[0]) else ErrorCode.NONE


async def _none_attempted(codes: dict[TopicPartition, ErrorCode]) -> _Codes:
    async for part in paced(codes):
        codes[part] = codes[part] or ErrorCode.OPERATION_NOT_ATTEMPTED
    return codes


async def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [
        (asked.name, index)
        async for asked in paced(topics)
        async for index in paced(asked.partitions)
    ]


async def _results(
    topics: Sequence[AddPartitionsToTxnTopic],
    codes: _Codes,
    version: int,
    *,
    verified: bool = False,
) -> list[AddPartitionsToTxnTopicResult]:
    """The results in the order of the request and with its repetitions; as in Kafka without them if
    the partitions were only verified, or if the coordinator was not asked."""

    def code_of(part: TopicPartition) -> ErrorCode:
        code = codes[part]
        if code is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_SINCE:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return code

    if verified or any(map(_REFUSED_BEFORE.__contains__, codes.values())):
        topics = await _each_once(topics)
    return [
        AddPartitionsToTxnTopicResult(
            name=asked.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code_of((asked.name, index))
                )
                async for index in paced(asked.partitions)
            ],
        )
        async for asked in paced(topics)
    ]


async def _each_once(topics: Sequence[AddPartitionsToTxnTopic]) -> list[AddPartitionsToTxnTopic]:
    found: dict[str, dict[int, None]] = {}
    async for asked in paced(topics):
        if asked.partitions:
            found.setdefault(asked.name, {}).update(await each_once(asked.partitions))
    return [
        AddPartitionsToTxnTopic(name=name, partitions=list(indexes))
        async for name, indexes in paced(found.items())
    ]
