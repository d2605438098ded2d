"""DeleteTopics (key 20): deletes topics; the answer comes when the deletions are durable (A-17).

In versions below 6 a request names topics only by name. In versions below 3 a broker with topic
deletion disabled answers INVALID_REQUEST, because clients do not know TOPIC_DELETION_DISABLED.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from odradek_broker.config.broker import BrokerConfig
from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import TopicParts
from odradek_broker.metadata.commit import committed, refuse_if_late, too_late
from odradek_broker.metadata.topics import DeleteResult, TopicRef, delete_topics
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial, topic
from odradek_broker.slices import batches, let_go, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.delete_topics import (
    QUOTA_ERROR_SINCE,
    TOPIC_DELETION_DISABLED_SINCE,
    TOPIC_STATES_SINCE,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)


class _Parts(TopicParts, Protocol):
    """The parts of the node that this handler needs."""

    @property
    def config(self) -> BrokerConfig: ...


async def handle(
    node: _Parts, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete the valid topics; errors are per topic."""
    if context.api_version >= TOPIC_STATES_SINCE:
        wanted = [TopicRef(asked.name, asked.topic_id) async for asked in paced(request.topics)]
    else:
        wanted = [TopicRef(name) async for name in paced(request.topic_names)]
    if not node.config.delete_topic_enable:
        return await _disabled(context, wanted)
    if await too_late(request.timeout_ms, await _valid(wanted)):
        late = ErrorCode.REQUEST_TIMED_OUT
        return await _response(
            [DeleteResult(ref.name, ref.topic_id, late) async for ref in paced(wanted)]
        )
    allowed, refused, missing = await _sort_out(node, context, wanted)
    quota = node.quotas.mutations(context, QUOTA_ERROR_SINCE)
    found: dict[tuple[str | None, bytes], DeleteResult] = {}
    recorded: list[Deferred[bool]] = []
    ids: dict[str, bytes] = {}

    def topic_id(ref: TopicRef) -> Hashable:
        """The id of the topic, if it exists: a name and an id may mean the same topic."""
        if ref.name is None:
            return ref.topic_id
        known = ids.setdefault(ref.name, node.metadata.topic_id(ref.name))
        return ref.name if known == ZERO_UUID else known

    # As in Kafka, a reference to no topic is refused as often as it is in the request.
    invalid = [
        delete_topics(node.metadata, [ref])[1][0]
        async for ref in paced(allowed)
        if not _is_valid(ref)
    ]
    allowed = await _valid(allowed)
    async for batch in paced(await batches(allowed, topic_id), changing=True):
        # A topic that was created meanwhile may only be deleted with the right.
        found_late = [ref for ref in batch if ref in missing and ref.name in node.metadata.topics]
        records, deleted = delete_topics(
            node.metadata, [ref for ref in batch if ref not in found_late], quota
        )
        deleted += [_denied(ref.name, ref.topic_id) for ref in found_late]
        found.update(((result.name, result.topic_id), result) for result in deleted)
        if records:
            recorded.append(committed(node, records, request.timeout_ms))
    results = [*found.values(), *invalid]
    if not recorded:
        recorded.append(committed(node, (), request.timeout_ms))
    await refuse_if_late(results, recorded)
    response = await _response(results + refused)
    found.clear()
    await let_go(results, refused, allowed, wanted)
    return response


def _is_valid(ref: TopicRef) -> bool:
    """True for a reference that has either a name or an id."""
    return (ref.name is None) is not (ref.topic_id == ZERO_UUID)


async def _valid(wanted: Iterable[TopicRef]) -> list[TopicRef]:
    return [ref async for ref in paced(wanted) if _is_valid(ref)]


async def _sort_out(
    node: _Parts, context: RequestContext, wanted: Sequence[TopicRef]
) -> tuple[list[TopicRef], list[DeleteResult], set[TopicRef]]:
    """The topics that this client may delete, and the refusals of the other topics. The first list
    includes topics that do not exist, also without the right; the set has those. A client with
    the right ALL on the cluster, which includes DELETE, may delete every topic. If a topic was
    given by id, its refusal has the topic's name only if the client may describe the topic. A
    client that may neither delete nor describe a topic cannot find out whether a topic of this name
    exists."""
    if node.authorizer.would_allow(context, Operation.DELETE, CLUSTER):
        return list(wanted), [], set()
    allowed: list[TopicRef] = []
    refused: list[DeleteResult] = []
    missing: set[TopicRef] = set()
    async for ref in paced(wanted):
        name = ref.name if ref.name is not None else node.metadata.topic_name(ref.topic_id)
        if name is None or node.authorizer.allows(context, Operation.DELETE, topic(name)):
            allowed.append(ref)
            continue
        may_know = node.authorizer.would_allow(context, Operation.DESCRIBE, topic(name))
        if may_know and name not in node.metadata.topics:
            allowed.append(ref)
            missing.add(ref)
            continue
        refused.append(_denied(name if may_know else ref.name, ref.topic_id))
    return allowed, refused, missing


def _denied(shown: str | None, topic_id: bytes) -> DeleteResult:
    """The refusal of a topic. `shown`: its name, if the client may know it."""
    message = "You do not have the right DELETE on the topic."
    if shown is not None:
        message = denial(Operation.DELETE, topic(shown))
    return DeleteResult(shown, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)


async def _disabled(context: RequestContext, wanted: Sequence[TopicRef]) -> DeleteTopicsResponse:
    error = ErrorCode.TOPIC_DELETION_DISABLED
    if context.api_version < TOPIC_DELETION_DISABLED_SINCE:
        error = ErrorCode.INVALID_REQUEST
    reason = "delete.topic.enable is false"
    return await _response(
        [DeleteResult(ref.name, ref.topic_id, error, reason) async for ref in paced(wanted)]
    )


async def _response(results: Iterable[DeleteResult]) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=result.name,
                topic_id=result.topic_id,
                error_code=result.error,
                error_message=result.message,
            )
            async for result in paced(results)
        ]
    )
