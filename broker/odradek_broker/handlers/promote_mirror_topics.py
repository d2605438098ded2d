"""PromoteMirrorTopics (key 10004, Odradek's own): makes mirror topics ordinary topics (I-10 to
I-12, A-24)."""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.deferred import Deferred
from odradek_broker.mirror.promotion import Promoted
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_broker.slices import arrived, paced
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


async def handle(
    node: Node, context: RequestContext, request: PromoteMirrorTopicsRequest
) -> PromoteMirrorTopicsResponse:
    """Promote each topic, and answer when all promotions are durable; errors are per topic."""
    names = list(dict.fromkeys(request.topics))
    if not node.authorizer.allows(context, Operation.ALTER, CLUSTER):
        refused = Promoted(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return await _response([(name, refused) for name in names])
    promotions = [node.promotions.promote(name) async for name in paced(names, changing=True)]
    await _in_time(node, node.slices.run(arrived(promotions)), request.timeout_ms)
    outcomes = [each.result() if each.done else _LATE async for each in paced(promotions)]
    return await _response(zip(names, outcomes, strict=True))


def _in_time(node: Node, promoted: object | Deferred[object], timeout_ms: int) -> Deferred[None]:
    """Resolves when all promotions are durable, or when the time is over."""
    if not isinstance(promoted, Deferred):
        return Deferred.of(None)
    ended: Deferred[None] = Deferred()

    def end(_: object = None) -> None:
        timer.cancel()
        if not ended.done:
            ended.resolve(None)

    timer = node.scheduler.call_later(max(timeout_ms, _WAIT_MS_MIN), end)
    promoted.then(end)
    return ended


async def _response(outcomes: Iterable[tuple[str, Promoted]]) -> PromoteMirrorTopicsResponse:
    return PromoteMirrorTopicsResponse(
        topics=[_topic(name, each) async for name, each in paced(outcomes)]
    )


def _topic(name: str, outcome: Promoted) -> PromotedTopic:
    return PromotedTopic(
        name=name,
        error_code=outcome.error,
        error_message=outcome.message or None,
        aborted_transactions=outcome.aborted,
    )
