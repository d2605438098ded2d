"""PromoteMirrorTopics (key 10004, Odradek's own): makes mirror topics ordinary topics (I-10 to
I-12, A-24)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred, gather
from odradek_broker.mirror.promotion import Promoted
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.promote_mirror_topics import (
    PromotedTopic,
    PromoteMirrorTopicsRequest,
    PromoteMirrorTopicsResponse,
)

#: The minimum wait for the promotions. A shorter timeout in a request is raised to this.
_WAIT_MS_MIN = 1_000
_LATE = Promoted(
    ErrorCode.REQUEST_TIMED_OUT, "the promotion continues; send the request again to get its result"
)


def handle(
    node: Node, context: RequestContext, request: PromoteMirrorTopicsRequest
) -> PromoteMirrorTopicsResponse | Deferred[PromoteMirrorTopicsResponse]:
    """Promote each topic, and answer when all promotions are durable; errors are per topic."""
    names = list(dict.fromkeys(request.topics))
    if not node.authorizer.allows(context, Operation.ALTER, CLUSTER):
        refused = Promoted(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return _response(names, [refused] * len(names))
    promotions = [node.promotions.promote(name) for name in names]
    answer: Deferred[PromoteMirrorTopicsResponse] = Deferred()

    def late() -> None:
        if not answer.done:
            outcomes = [each.result() if each.done else _LATE for each in promotions]
            answer.resolve(_response(names, outcomes))

    timer = node.scheduler.call_later(max(request.timeout_ms, _WAIT_MS_MIN), late)

    def ended(outcomes: list[Promoted]) -> None:
        if not answer.done:
            timer.cancel()
            answer.resolve(_response(names, outcomes))

    gather(promotions).then(ended)
    return answer


def _response(names: list[str], outcomes: list[Promoted]) -> PromoteMirrorTopicsResponse:
    return PromoteMirrorTopicsResponse(
        topics=[_topic(name, each) for name, each in zip(names, outcomes, strict=True)]
    )


def _topic(name: str, outcome: Promoted) -> PromotedTopic:
    return PromotedTopic(
        name=name,
        error_code=outcome.error,
        error_message=outcome.message or None,
        aborted_transactions=outcome.aborted,
    )
