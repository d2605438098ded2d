"""ShareAcknowledge (key 79): acknowledge acquired records of a share group (rules H-185, H-188)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers.share_fetch import (
    Outcomes,
    ShareParts,
    acknowledge,
    name_leader,
    refusal,
)
from odradek_broker.request import RequestContext
from odradek_broker.share.sessions import FINAL_EPOCH, AskedPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_acknowledge import (
    AcknowledgedPartition,
    NodeEndpoint,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def handle(
    node: ShareParts, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Deferred[ShareAcknowledgeResponse]:
    """Acknowledge records of each partition; answer when all of it is durable (D5)."""
    group_id, member_id = request.group_id or "", request.member_id or ""
    epoch = request.share_session_epoch
    error = refusal(node, context, request.group_id, request.member_id)
    if error is ErrorCode.NONE:
        error = node.share_sessions.acknowledging(group_id, member_id, epoch)
    if error is not ErrorCode.NONE:
        return ShareAcknowledgeResponse(error_code=error)
    acknowledged = {
        AskedPartition(topic.topic_id, each.partition_index): each.acknowledgement_batches
        for topic in request.topics
        for each in topic.partitions
    }

    def answer(outcomes: Outcomes) -> ShareAcknowledgeResponse:
        if epoch == FINAL_EPOCH:
            node.share_sessions.close(group_id, member_id)
        settings = node.share_partitions.settings(group_id)
        response = ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=settings.record_lock_duration_ms
        )
        in_order = [each for each in acknowledged if each in outcomes]
        topics: dict[bytes, list[AcknowledgedPartition]] = {}
        for each in in_order:
            outcome = outcomes[each]
            told = AcknowledgedPartition(
                partition_index=each.partition,
                error_code=outcome.error,
                error_message=outcome.message,
            )
            if name_leader(node, told.current_leader, outcome.error, each):
                host, port = node.advertised(context.listener)
                response.node_endpoints = [
                    NodeEndpoint(node_id=told.current_leader.leader_id, host=host, port=port)
                ]
            topics.setdefault(each.topic_id, []).append(told)
        response.responses = [
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ]
        return response

    return acknowledge(
        node, context, group_id, member_id, acknowledged, renews=request.is_renew_ack
    ).map(answer)
