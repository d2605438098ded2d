"""ShareFetch (key 78): acquire and read records of a share group (rules H-173 to H-191).

The partitions come from the share session (`share/sessions.py`), the fetch itself is in
`share/fetching.py`, and its wait in `fetch/parked.py`. Acknowledgements in the same request are
carried out first, and have their own errors. `share_acknowledge.py` carries them out, and has the
code that both requests use for the checks and for the leaders in the answer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from odradek_broker.config.broker import BrokerConfig
from odradek_broker.deferred import Deferred
from odradek_broker.fetch.parked import ParkedFetches
from odradek_broker.fetch.sessions import PARTITIONS_AT_ONCE
from odradek_broker.handlers.share_acknowledge import (
    Outcomes,
    ShareParts,
    acknowledge,
    name_leader,
    refusal,
    unreadable_topics,
)
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.platform.seams import Scheduler
from odradek_broker.quotas.managers import QuotaManagers
from odradek_broker.request import RequestContext
from odradek_broker.share.acquisition import AcquisitionLimits
from odradek_broker.share.events import SessionBegan
from odradek_broker.share.fetching import Answers, ShareFetch, ShareFetched
from odradek_broker.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    AskedPartition,
    SessionPartition,
    ShareFetchContext,
)
from odradek_broker.slices import end_of_change, in_pieces, paced, pause
from odradek_protocol import codec
from odradek_protocol.common_structs import NodeEndpoint
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.share_fetch import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchedPartition,
    ShareFetchRequest,
    ShareFetchResponse,
)

_E = ErrorCode
#: ShareAcquireMode: in the second mode MaxRecords is an exact limit (KIP-1206).
_BATCH_OPTIMIZED, _RECORD_LIMIT = 0, 1


class ShareFetchParts(ShareParts, Protocol):
    """The parts of `ShareParts`, and those of fetches."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def parked_fetches(self) -> ParkedFetches: ...
    @property
    def quotas(self) -> QuotaManagers: ...
    @property
    def metrics(self) -> BrokerMetrics: ...
    @property
    def scheduler(self) -> Scheduler: ...
    def answer_room_bytes(self) -> int: ...


async def handle(
    node: ShareFetchParts, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse:
    """Carry out the acknowledgements, and answer with acquired records, now or when there are
    enough (H-173)."""
    error = refusal(node, context, request.group_id, request.member_id)
    if error is _E.NONE and (
        request.share_acquire_mode not in (_BATCH_OPTIMIZED, _RECORD_LIMIT)
        or (request.is_renew_ack and _asks_for_records(request))
    ):
        error = _E.INVALID_REQUEST
    if error is not _E.NONE:
        return ShareFetchResponse(error_code=error)
    group_id, member_id = request.group_id or "", request.member_id or ""
    acknowledged = {
        AskedPartition(topic.topic_id, each.partition_index): each.acknowledgement_batches
        async for topic in paced(request.topics)
        async for each in paced(topic.partitions)
    }
    acknowledges = any(acknowledged.values())
    sessions, epoch = node.share_sessions, request.share_session_epoch
    asked = {each: sessions.named(each, epoch) async for each in paced(acknowledged)}
    forgotten = [
        AskedPartition(topic.topic_id, index)
        async for topic in paced(request.forgotten_topics_data)
        async for index in paced(topic.partitions)
    ]
    while (leaving := sessions.leaving(group_id, member_id)) is not None:
        await leaving
    plan = sessions.plan(
        group_id,
        member_id,
        epoch,
        asked,
        forgotten,
        context.connection_id,
        acknowledges=acknowledges,
    )
    if plan is _E.SHARE_SESSION_LIMIT_REACHED:
        return await _later(node, request.max_wait_ms, ShareFetchResponse(error_code=plan))
    if isinstance(plan, ErrorCode):
        return ShareFetchResponse(error_code=plan)
    if epoch == INITIAL_EPOCH:
        began = SessionBegan(group_id, member_id, context.client_id, context.host)
        node.share_partitions.tell(began)
    # The records are acquired and read while the acknowledgements become durable.
    outcomes: Deferred[Outcomes] = Deferred.of({})
    if acknowledges:
        outcomes = await acknowledge(
            node, context, group_id, member_id, acknowledged, renews=request.is_renew_ack
        )
    answers: Answers = []
    # Nobody may acquire records for a closed connection.
    await end_of_change()
    if not request.is_renew_ack:
        answers = await _fetch(node, context, request, plan)
    return await _answer(node, context, request, plan, answers, await outcomes)


def _asks_for_records(request: ShareFetchRequest) -> bool:
    """True if the request asks for records: one of its limits is above 0. A request that renews
    acquisition locks fetches no records, so its limits must be 0."""
    return bool(
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    )


def _later(
    node: ShareFetchParts, wait_ms: int, response: ShareFetchResponse
) -> Deferred[ShareFetchResponse]:
    """Answer after the maximum wait, so that a client without a session does not send the next
    request immediately."""
    answer: Deferred[ShareFetchResponse] = Deferred()
    timer = node.scheduler.call_later(max(0, wait_ms), lambda: answer.resolve(response))
    answer.on_abandon = timer.cancel
    return answer


async def _fetch(
    node: ShareFetchParts,
    context: RequestContext,
    request: ShareFetchRequest,
    plan: ShareFetchContext,
) -> Answers:
    """Acquire and read. A partition that cannot be read has an error in the result."""
    names = [each.topic for each in plan.partitions]
    denied = await unreadable_topics(node, context, names)
    max_bytes = min(request.max_bytes, node.config.fetch_max_bytes, node.answer_room_bytes())
    if node.quotas.fetch is not None:
        # The quota would never allow a larger answer.
        max_bytes = int(min(max_bytes, node.quotas.fetch.most_at_once(context)))
    fetch = ShareFetch(
        node.share_partitions,
        request.group_id or "",
        request.member_id or "",
        (),
        AcquisitionLimits(
            request.max_records,
            request.batch_size,
            record_limit=request.share_acquire_mode == _RECORD_LIMIT,
        ),
        request.min_bytes,
        max(0, max_bytes),
    )
    failed: Answers = []
    async for some in in_pieces(plan.partitions):
        # No pause may come between these two: the topic may be deleted, and another one created
        # with the same name.
        errors = [_error(node, each, denied) for each in some]
        fetch.lead([each for each, error in zip(some, errors, strict=True) if error is _E.NONE])
        failed += [
            (each, ShareFetched(error))
            for each, error in zip(some, errors, strict=True)
            if error is not _E.NONE
        ]
    waits = request.max_wait_ms > 0 and not fetch.asks_for_nothing
    if len(plan.partitions) > PARTITIONS_AT_ONCE:
        if waits:
            await _wait(node, fetch, request.max_wait_ms)
        return await fetch.read_in_slices() + failed
    if not waits or fetch.satisfied():
        return fetch.read() + failed
    parked = node.parked_fetches.park(fetch, fetch.watched(), request.max_wait_ms)
    return await parked + failed


def _error(node: ShareFetchParts, each: SessionPartition, denied: Collection[str]) -> ErrorCode:
    """The reason why a partition cannot be read, or NONE."""
    name, metadata = each.topic, node.metadata
    if name is None:
        return _E.UNKNOWN_TOPIC_ID
    if name in denied:
        return _E.TOPIC_AUTHORIZATION_FAILED
    is_known = metadata.topic_name(each.asked.topic_id) == name
    if not is_known or metadata.leader_of(name, each.asked.partition) is None:
        return _E.UNKNOWN_TOPIC_OR_PARTITION
    return _E.NONE


async def _wait(node: ShareFetchParts, fetch: ShareFetch, max_wait_ms: int) -> None:
    """Wait until there is enough to acquire, at most for `max_wait_ms`."""
    waiting = node.parked_fetches.wait(fetch, max_wait_ms)
    try:
        async for some in in_pieces(fetch.led.items()):
            for each, led in some:
                if led.error is _E.NONE:
                    waiting.watch(each, led.partition)
                    waiting.watch(each, led)
            if waiting.done:
                break
        if not fetch.led:
            waiting.answer()
        waiting.check()
        await waiting
    finally:
        node.slices.run(waiting.forget())


async def _answer(
    node: ShareFetchParts,
    context: RequestContext,
    request: ShareFetchRequest,
    plan: ShareFetchContext,
    answers: Answers,
    outcomes: Outcomes,
) -> ShareFetchResponse:
    group_id, member_id = request.group_id or "", request.member_id or ""
    if not request.is_renew_ack:
        failed = [each.topic for each, answer in answers if answer.error and each.topic]
        await node.share_partitions.statistics.fetched(
            [each.topic for each in plan.partitions if each.topic], failed
        )
    included = answers
    if plan.session is not None:
        session = plan.session
        included = [
            (each, answer)
            async for each, answer in paced(answers)
            if session.includes(each, records=bool(answer.records), error=bool(answer.error))
        ]
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=node.share_partitions.settings(group_id).record_lock_duration_ms
    )
    partitions = {
        each.asked: _fetched(each.asked, answer) async for each, answer in paced(included)
    }
    async for each, partition in paced(partitions.items()):
        if name_leader(node, partition.current_leader, partition.error_code, each):
            host, port = node.advertised(context.listener)
            leader_id = partition.current_leader.leader_id
            response.node_endpoints = [NodeEndpoint(node_id=leader_id, host=host, port=port)]
    await _group(response, partitions)
    quota = node.quotas.fetch
    if quota is not None:
        # As in Kafka, the size includes the length field.
        size_bytes = 4
        for parts in codec.encode_with_pauses(response, context.api_version):
            size_bytes += sum(map(len, parts))
            await pause()
        if quota.record(context, size_bytes):
            quota.record_only(context, -size_bytes)
            partitions = {}
    records = [each.records for each in partitions.values()]
    node.metrics.fetched_bytes(sum(map(len, records)))
    await _add_outcomes(partitions, outcomes)
    await _group(response, partitions)
    if request.share_session_epoch == FINAL_EPOCH:
        node.share_sessions.close(group_id, member_id)
    return response


def _fetched(asked: AskedPartition, answer: ShareFetched) -> ShareFetchedPartition:
    return ShareFetchedPartition(
        partition_index=asked.partition,
        error_code=answer.error,
        records=answer.records,
        acquired_records=[
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in answer.acquired
        ],
    )


async def _add_outcomes(
    partitions: dict[AskedPartition, ShareFetchedPartition], outcomes: Outcomes
) -> None:
    """Add the outcomes of acknowledgements to the answer. Partitions that the answer does not have
    yet are added."""
    async for each, (error, message) in paced(outcomes.items()):
        if each not in partitions:
            partitions[each] = _fetched(each, ShareFetched())
        partitions[each].acknowledge_error_code = error
        partitions[each].acknowledge_error_message = message


async def _group(
    response: ShareFetchResponse, partitions: dict[AskedPartition, ShareFetchedPartition]
) -> None:
    topics: dict[bytes, list[ShareFetchedPartition]] = {}
    async for each, partition in paced(partitions.items()):
        topics.setdefault(each.topic_id, []).append(partition)
    response.responses = [
        ShareFetchableTopicResponse(topic_id=topic_id, partitions=own)
        async for topic_id, own in paced(topics.items())
    ]
