"""TxnOffsetCommit (key 28): commits offsets of a group in a transaction (rules T-24, O-05, O-17).

The offsets are appended to the group's partition of `__consumer_offsets` as records of the
producer, and become visible with its COMMIT marker. Up to version 4 AddOffsetsToTxn has added the
partition to the transaction, and this request only verifies that the partition was added. From
version 5 on this request adds the partition (T-61, T-62).
"""

from __future__ import annotations

from odradek_broker.coordinator.groups.offsets import CommitCall, CommitPart
from odradek_broker.coordinator.runtime import ProducerIdentity
from odradek_broker.coordinator.transactions.verification import (
    UnverifiedAppend,
    refused_verification,
)
from odradek_broker.deferred import Deferred
from odradek_broker.handlers.offset_commit import COMMITTED_AT_ONCE, one_entry_each, still_exists
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.node import Node
from odradek_broker.platform.fault_points import FaultPoint
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, group, transactional_id
from odradek_broker.slices import in_order, paced
from odradek_protocol.common_structs import PartitionError, TopicErrors
from odradek_protocol.constants import NO_EXPIRY, NO_SEQUENCE
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.txn_offset_commit import (
    TRANSACTION_ABORTABLE_SINCE,
    TRANSACTIONS_V2_SINCE,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

_E = ErrorCode
Fit = list[tuple[PartitionError, CommitPart]]


async def handle(
    node: Node, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Commit offsets. Partitions whose offsets may not be stored get an error; the other partitions
    get the coordinator's result."""
    refusal = _refusal(node, context, request)
    denied: frozenset[str] = frozenset()
    if not refusal:
        names = [asked.name for asked in request.topics]
        denied = await denied_topics(node.authorizer, context, Operation.READ, names)
    response = TxnOffsetCommitResponse()
    fit: Fit = []
    count = 0
    async for asked in paced(request.topics):
        count += len(asked.partitions)
        error = _E.TOPIC_AUTHORIZATION_FAILED if asked.name in denied else refusal
        answered, accepted = await _topic(node, asked, error)
        response.topics.append(answered)
        fit += accepted
    if not refusal and len(fit) < count:
        response.topics = await one_entry_each(response.topics, lambda topic: topic.name)
    async for batch in paced(in_order(fit, COMMITTED_AT_ONCE), changing=True):
        existing: Fit = []
        for answer, part in batch:
            if still_exists(node.metadata, part):
                existing.append((answer, part))
            else:
                answer.error_code = _E.UNKNOWN_TOPIC_OR_PARTITION
        if existing:
            errors = await _commit(node, context, request, [part for _, part in existing])
            for (answer, _), error in zip(existing, errors, strict=True):
                answer.error_code = error
    return response


def _refusal(node: Node, context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    """The error that refuses the whole request, or NONE (A-06)."""
    allows = node.authorizer.allows
    if not allows(context, Operation.WRITE, transactional_id(request.transactional_id)):
        return _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not allows(context, Operation.READ, group(request.group_id)):
        return _E.GROUP_AUTHORIZATION_FAILED
    return _E.NONE


async def _topic(
    node: Node, asked: TxnOffsetCommitRequestTopic, error: ErrorCode
) -> tuple[TopicErrors, Fit]:
    """The answer for a topic, and its partitions whose offsets may be stored."""
    answers = []
    fit: Fit = []
    async for part in paced(asked.partitions):
        index = part.partition_index
        own = error
        if not own and node.metadata.leader_of(asked.name, index) is None:
            own = _E.UNKNOWN_TOPIC_OR_PARTITION
        answer = PartitionError(partition_index=index, error_code=own)
        answers.append(answer)
        if not own:
            fit.append((answer, _part(asked.name, part, node.metadata.topic_id(asked.name))))
    return TopicErrors(name=asked.name, partitions=answers), fit


def _part(name: str, part: TxnOffsetCommitRequestPartition, topic_id: bytes) -> CommitPart:
    return CommitPart(
        name,
        part.partition_index,
        part.committed_offset,
        part.committed_leader_epoch,
        part.committed_metadata or "",
        topic_id,
    )


def _commit(
    node: Node,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    parts: list[CommitPart],
) -> Deferred[list[ErrorCode]]:
    """Verify the transaction, then pass the offsets to the group coordinator. The result has an
    error for each part."""
    deferred: Deferred[list[ErrorCode]] = Deferred()
    call = CommitCall(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        api_version=context.api_version,
        retention_ms=NO_EXPIRY,
        parts=parts,
    )

    def stored(errors: list[ErrorCode]) -> None:
        node.fault_points.reach(FaultPoint.TRANSACTIONAL_OFFSETS_DURABLE)
        deferred.resolve(errors)

    def verified(error: ErrorCode) -> None:
        if error is not _E.NONE:
            # After this error the client retries at the same broker.
            refused = refused_verification(
                error,
                _E.COORDINATOR_LOAD_IN_PROGRESS,
                knows_abortable=context.api_version >= TRANSACTION_ABORTABLE_SINCE,
            )
            deferred.resolve([refused] * len(parts))
            return
        producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        node.groups.commit_offsets(call, producer).then(stored)

    if not request.group_id:
        return Deferred.of([_E.INVALID_GROUP_ID] * len(parts))
    index = node.groups.shards.partition_of(request.group_id)
    partition = None if index is None else node.partition(OFFSETS_TOPIC, index)
    if index is None or partition is None:
        missing = _E.COORDINATOR_NOT_AVAILABLE if index is None else _E.NOT_COORDINATOR
        return Deferred.of([missing] * len(parts))
    node.verification.verify(
        UnverifiedAppend(
            partition=partition,
            where=(OFFSETS_TOPIC, index),
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            base_sequence=NO_SEQUENCE,
            add=context.api_version >= TRANSACTIONS_V2_SINCE,
            done=verified,
        )
    )
    return deferred
