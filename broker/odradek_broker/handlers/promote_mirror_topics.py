"""PromoteMirrorTopics (key 10004, Odradek's own): makes mirror topics ordinary topics."""

from __future__ import annotations

from odradek_broker.handlers._parts import MetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.promote_mirror_topics import (
    PromotedTopic,
    PromoteMirrorTopicsRequest,
    PromoteMirrorTopicsResponse,
)


def handle(
    node: MetadataParts, context: RequestContext, request: PromoteMirrorTopicsRequest
) -> PromoteMirrorTopicsResponse:
    """Promote each topic; errors are per topic."""
    allowed = node.authorizer.allows(context, Operation.ALTER, CLUSTER)
    answers = []
    for name in request.topics:
        error = ErrorCode.NONE
        if not allowed:
            error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif name not in node.metadata.topics:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers.append(PromotedTopic(name=name, error_code=error))
    return PromoteMirrorTopicsResponse(topics=answers)
