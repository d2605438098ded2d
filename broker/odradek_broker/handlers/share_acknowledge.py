"""ShareAcknowledge (key 79): acknowledge acquired records of a share group (rules H-185, H-188).

The checks, the acknowledgements, and the leaders in the answer are the same for ShareFetch
(`share_fetch.py`), which uses the functions here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import PartitionAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, group
from odradek_broker.share.manager import AcknowledgementOutcome, SharePartitions
from odradek_broker.share.sessions import FINAL_EPOCH, AskedPartition, ShareSessions
from odradek_broker.share.share_partition import AcknowledgeType, ShareAcknowledgementBatch
from odradek_broker.share_state import ShareKey
from odradek_broker.slices import Slices, arrived, paced
from odradek_protocol.common_structs import NodeEndpoint
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_acknowledge import (
    RENEW_SINCE,
    AcknowledgedPartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

_E = ErrorCode
_MEMBER_ID_MAX = 36
#: The errors with which the answer names the leader.
_NAMES_LEADER = frozenset({_E.NOT_LEADER_OR_FOLLOWER, _E.FENCED_LEADER_EPOCH})


class ShareParts(PartitionAndMetadataParts, Protocol):
    """The share partitions and share sessions, the parts of `PartitionAndMetadataParts`, and the
    address of the broker."""

    @property
    def share_partitions(self) -> SharePartitions: ...
    @property
    def share_sessions(self) -> ShareSessions: ...
    @property
    def slices(self) -> Slices: ...
    def advertised(self, listener: str = "") -> tuple[str, int]: ...


class AcknowledgedRange(Protocol):
    """A range of offsets with its acknowledgements, in a ShareAcknowledge or ShareFetch request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


#: The acknowledgements of a request, by partition.
Acknowledged = Mapping[AskedPartition, Sequence[AcknowledgedRange]]
Outcomes = dict[AskedPartition, AcknowledgementOutcome]


async def handle(
    node: ShareParts, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Acknowledge records of each partition; answer when all acknowledgements are durable (D5)."""
    group_id, member_id = request.group_id or "", request.member_id or ""
    epoch = request.share_session_epoch
    error = refusal(node, context, request.group_id, request.member_id)
    if error is _E.NONE:
        error = node.share_sessions.acknowledging(group_id, member_id, epoch)
    if error is not _E.NONE:
        return ShareAcknowledgeResponse(error_code=error)
    acknowledged = {
        AskedPartition(topic.topic_id, each.partition_index): each.acknowledgement_batches
        async for topic in paced(request.topics)
        async for each in paced(topic.partitions)
    }
    outcomes = await (
        await acknowledge(
            node, context, group_id, member_id, acknowledged, renews=request.is_renew_ack
        )
    )
    if epoch == FINAL_EPOCH:
        node.share_sessions.close(group_id, member_id)
    settings = node.share_partitions.settings(group_id)
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=settings.record_lock_duration_ms
    )
    topics: dict[bytes, list[AcknowledgedPartition]] = {}
    async for each in paced(acknowledged):
        outcome = outcomes.get(each)
        if outcome is None:
            continue
        partition = AcknowledgedPartition(
            partition_index=each.partition,
            error_code=outcome.error,
            error_message=outcome.message,
        )
        if name_leader(node, partition.current_leader, outcome.error, each):
            host, port = node.advertised(context.listener)
            response.node_endpoints = [
                NodeEndpoint(node_id=partition.current_leader.leader_id, host=host, port=port)
            ]
        topics.setdefault(each.topic_id, []).append(partition)
    response.responses = [
        ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
        async for topic_id, partitions in paced(topics.items())
    ]
    return response


def refusal(
    node: ShareParts, context: RequestContext, group_id: str | None, member_id: str | None
) -> ErrorCode:
    """The error that answers the whole request, or NONE (H-187)."""
    if node.metadata.share_groups_off:
        node.share_sessions.clear()
        return _E.UNSUPPORTED_VERSION
    if group_id is None:
        return _E.INVALID_REQUEST
    if not node.authorizer.allows(context, Operation.READ, group(group_id)):
        return _E.GROUP_AUTHORIZATION_FAILED
    if not member_id or len(member_id) > _MEMBER_ID_MAX:
        return _E.INVALID_REQUEST
    return _E.NONE


async def unreadable_topics(
    node: ShareParts, context: RequestContext, names: Iterable[str | None]
) -> Collection[str]:
    """The topics that the client may not read."""
    known = dict.fromkeys([name for name in names if name is not None])
    return await denied_topics(node.authorizer, context, Operation.READ, known)


async def acknowledge(
    node: ShareParts,
    context: RequestContext,
    group_id: str,
    member_id: str,
    acknowledged: Acknowledged,
    *,
    renews: bool,
) -> Deferred[Outcomes]:
    """Carry out the acknowledgements of a request, separately for each partition (H-188). The
    outcomes arrive when they are durable."""
    metadata = node.metadata
    names = {each: metadata.topic_name(each.topic_id) async for each in paced(acknowledged)}
    denied = await unreadable_topics(node, context, names.values())
    outcomes: Outcomes = {}
    without: Outcomes = {}
    pending: dict[AskedPartition, Deferred[AcknowledgementOutcome]] = {}
    async for each, ranges in paced(acknowledged.items(), changing=True):
        name = names[each]
        if name is None:
            outcomes[each] = AcknowledgementOutcome(_E.UNKNOWN_TOPIC_ID)
        elif not await _sound(ranges, context.api_version, renews=renews):
            outcomes[each] = AcknowledgementOutcome(_E.INVALID_REQUEST)
        elif name in denied:
            outcomes[each] = AcknowledgementOutcome(_E.TOPIC_AUTHORIZATION_FAILED)
        elif metadata.leader_of(name, each.partition) is None:
            outcomes[each] = AcknowledgementOutcome(_E.UNKNOWN_TOPIC_OR_PARTITION)
        elif not ranges:
            without[each] = AcknowledgementOutcome()
        else:
            pending[each] = await node.share_partitions.acknowledge(
                ShareKey(group_id, *each),
                member_id,
                [
                    ShareAcknowledgementBatch(
                        own.first_offset, own.last_offset, own.acknowledge_types
                    )
                    async for own in paced(ranges)
                ],
            )
    if not pending:
        # A request in which no partition has acknowledgements gets an answer without partitions, as
        # in Kafka.
        return Deferred.of(outcomes)

    async def ended() -> Outcomes:
        found = await arrived(pending.values())
        results = dict(zip(pending, found, strict=True))
        failed = [each for each, result in results.items() if result.error is not _E.NONE]
        await node.share_partitions.statistics.acknowledgements_answered(
            [names[each] or "" for each in results], [names[each] or "" for each in failed]
        )
        return {**results, **outcomes, **without}

    return node.slices.deferred(ended())


async def _sound(ranges: Sequence[AcknowledgedRange], version: int, *, renews: bool) -> bool:
    """True if the ranges of a partition ascend, and all acknowledgement types are known."""
    highest = AcknowledgeType.RENEW if version >= RENEW_SINCE else AcknowledgeType.REJECT
    end = -1
    async for each in paced(ranges):
        types = each.acknowledge_types
        length = each.last_offset - each.first_offset + 1
        if length <= 0 or each.first_offset < end or len(types) not in (1, length):
            return False
        if min(types) < AcknowledgeType.GAP or max(types) > highest:
            return False
        if AcknowledgeType.RENEW in types and not renews:
            return False
        end = each.last_offset
    return True


class Leader(Protocol):
    """The leader in an answer."""

    leader_id: int
    leader_epoch: int


def name_leader(node: ShareParts, leader: Leader, error: int, each: AskedPartition) -> bool:
    """Name the leader of a partition after an error that means that this broker does not lead it.
    Returns True if the leader was named; the answer then needs the address of the leader
    (H-191)."""
    if error not in _NAMES_LEADER:
        return False
    name = node.metadata.topic_name(each.topic_id) or ""
    leader_id = node.metadata.leader_of(name, each.partition)
    if leader_id is None:
        return False
    leader.leader_id = leader_id
    leader.leader_epoch = node.metadata.leader_epoch_of(name, each.partition)
    return True
