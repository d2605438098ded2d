"""DescribeHistory (key 10000, Odradek's own): the recent events, as text, and the current state of
a transactional id, a producer id, a group, a partition, a record of a share group, a client or a
mirror topic.

Rights (A-12, A-18): DESCRIBE on the transactional id, the group or the topic; for a record of a
share group, DESCRIBE on the group and the topic; for a client, DESCRIBE on the cluster. For a
producer id, the answer has the parts about topics that the client may READ and transactional ids
that it may DESCRIBE. The answer shows the client to which the id was assigned only with DESCRIBE on
the cluster. The same rights apply to the transaction that blocks the last stable offset of a
partition. Partitions, names of topics and groups that the client may not DESCRIBE are left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from odradek_broker.coordinator.groups.settings import (
    group_setting,
)
from odradek_broker.coordinator.transactions.transaction import Transaction
from odradek_broker.explain.groups import states_of_group
from odradek_broker.explain.history import (
    CurrentState,
    Event,
    History,
    Ring,
    SubjectHistory,
)
from odradek_broker.explain.lag import oldest_unread, state_of_lag
from odradek_broker.explain.last_stable_offset import (
    BlockedPartition,
    blocked_partition,
    state_of_blocked,
    state_of_everything_stable,
)
from odradek_broker.explain.mirrors import state_of_mirror, states_of_mirrored
from odradek_broker.explain.modern_groups import states_of_modern_group
from odradek_broker.explain.producers import (
    NOT_IN_ANY_PARTITION,
    partitions_not_opened,
    state_of_producer,
)
from odradek_broker.explain.share_groups import (
    state_of_share_record,
    states_of_share_partitions,
)
from odradek_broker.explain.texts import Rights, event_text, state_text
from odradek_broker.explain.transactions import state_of_owner, state_of_transaction
from odradek_broker.explain.verdicts import state_of_verdict
from odradek_broker.metadata.cluster import INTERNAL_TOPICS
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, group, topic, transactional_id
from odradek_broker.share_state import ShareKey
from odradek_broker.slices import paced
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas import describe_history as wire
from odradek_protocol.schemas.describe_history import (
    DescribeHistoryRequest,
    DescribeHistoryResponse,
)

_E = ErrorCode

#: The maximum number of partitions whose files are opened for one request about a producer id.
OPENED_MAX = 64
#: The digits of an int64.
_DIGITS_MAX = 19


async def handle(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse:
    """The history. The error code for an unknown subject depends on the type of the subject."""
    if request.subject_type == wire.TRANSACTIONAL_ID:
        return await _transaction(node, context, request)
    if request.subject_type == wire.PRODUCER_ID:
        return await _producer(node, context, request)
    if request.subject_type == wire.GROUP:
        return await _group(node, context, request)
    if request.subject_type == wire.PARTITION:
        return await _partition(node, context, request)
    if request.subject_type == wire.SHARE_RECORD:
        return await _share_record(node, context, request)
    if request.subject_type == wire.CLIENT:
        return await _client(node, context, request)
    if request.subject_type == wire.MIRROR:
        return await _mirror(node, context, request)
    return _failed(_E.INVALID_REQUEST, f"there is no subject type {request.subject_type}")


# --- Transactional ids and groups ---


async def _transaction(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse:
    name = request.subject
    if not node.authorizer.allows(context, Operation.DESCRIBE, transactional_id(name)):
        return _failed(_E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    error, transaction = await node.transactions.describe(name)
    if error not in (_E.NONE, _E.TRANSACTIONAL_ID_NOT_FOUND):
        return _failed(error)
    history = node.transaction_history
    if transaction is None and not history.about(name).events:
        return _failed(_E.TRANSACTIONAL_ID_NOT_FOUND)
    now = state_of_transaction(transaction, node.clock.wall_ms(), history.started_ms)
    return await _answer(node, context, request, history, [now])


async def _group(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse:
    name = request.subject
    if not node.authorizer.allows(context, Operation.DESCRIBE, group(name)):
        return _failed(_E.GROUP_AUTHORIZATION_FAILED)
    error = node.groups.readiness(name)
    if error is not _E.NONE:
        return _failed(error)
    history = node.group_history
    classic = node.groups.group(name)
    share = node.groups.share_group(name)
    modern = share or node.groups.consumer_group(name) or node.groups.streams_group(name)
    committed = node.groups.committed(name)
    offsets = len(committed)
    if modern is not None:
        setting = f"{modern.protocol_type}.session.timeout.ms"
        session_ms = group_setting(node.config, node.metadata, name, setting)
        now = states_of_modern_group(modern, node.metadata, offsets, session_ms)
    elif classic is None and not history.about(name).events:
        return _failed(_E.GROUP_ID_NOT_FOUND)
    else:
        now = states_of_group(classic, offsets, node.clock.wall_ms())
    if share is not None:
        now += states_of_share_partitions(
            node.share_partitions.of_group(name),
            node.share_partitions.settings(name),
            node.share_partitions.statistics.partitions.get,
        )
    elif offsets:
        members = sum(len(each.members) for each in (classic, modern) if each)
        now += await _lag(node, committed)
        now.append(_verdict(node, name, offsets, members))
    return await _answer(node, context, request, history, now)


async def _lag(node: Node, committed: dict[TopicPartition, int]) -> list[CurrentState]:
    def log_of(where: TopicPartition) -> PartitionLog | None:
        partition = node.partition(*where)
        return None if partition is None else partition.log

    unread = await oldest_unread(committed, log_of, node.clock.wall_ms())
    return [] if unread is None else [state_of_lag(unread)]


def _verdict(node: Node, group_id: str, offsets: int, members: int) -> CurrentState:
    now_ms = node.clock.wall_ms()
    found = node.verdicts.verdict(group_id, now_ms, members)
    return state_of_verdict(found, offsets, now_ms, members)


# --- Partitions ---


async def _partition(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse:
    where = _partition_of(request.subject)
    if where is None:
        text = f"{request.subject[:50]!r} is no partition: it must be TOPIC-NUMBER"
        return _failed(_E.INVALID_REQUEST, text)
    name, number = where
    if not node.authorizer.allows(context, Operation.DESCRIBE, topic(name)):
        return _failed(_E.TOPIC_AUTHORIZATION_FAILED)
    request.subject = f"{name}-{number}"
    found = node.partition(name, number)
    if found is None:
        return _failed(_E.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {request.subject}")
    log, history = found.log, node.partition_history
    compaction = node.compaction_state(log)
    try:
        blocked = blocked_partition(log)
    except StorageError:
        return await _answer(node, context, request, history, [compaction])
    if blocked is None:
        now = [state_of_everything_stable(log), compaction]
        return await _answer(node, context, request, history, now)
    error, known = await node.transactions.list_all()
    state = _blocked(node, context, blocked, error, known)
    return await _answer(node, context, request, history, [state, compaction])


def _blocked(
    node: Node,
    context: RequestContext,
    blocked: BlockedPartition,
    error: ErrorCode,
    known: list[Transaction],
) -> CurrentState:
    owners = [each for each in known if each.producer_id == blocked.producer_id]
    return state_of_blocked(
        blocked,
        owners if error is _E.NONE else None,
        may_read=node.authorizer.would_allow(context, Operation.READ, topic(blocked.where[0])),
        may_describe=all(_may_describe_id(node, context, each.transactional_id) for each in owners),
        wall_ms=node.clock.wall_ms(),
    )


def _partition_of(text: str) -> TopicPartition | None:
    """The partition of a text TOPIC-NUMBER; None for another text."""
    name, _, number = text.rpartition("-")
    if not (name and number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX):
        return None
    return name, int(number)


# --- Records of share groups ---


async def _share_record(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse:
    partition, _, rest = request.subject.partition(":")
    number, _, name = rest.partition(":")
    where = _partition_of(partition)
    if where is None or not (
        name and number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX
    ):
        text = f"{request.subject[:50]!r} is no record: it must be TOPIC-NUMBER:OFFSET:GROUP"
        return _failed(_E.INVALID_REQUEST, text)
    if not node.authorizer.allows(context, Operation.DESCRIBE, group(name)):
        return _failed(_E.GROUP_AUTHORIZATION_FAILED)
    if not node.authorizer.allows(context, Operation.DESCRIBE, topic(where[0])):
        return _failed(_E.TOPIC_AUTHORIZATION_FAILED)
    found = node.partition(*where)
    if found is None:
        text = f"there is no partition {where[0]}-{where[1]}"
        return _failed(_E.UNKNOWN_TOPIC_OR_PARTITION, text)
    error = node.groups.readiness(name)
    if error is not _E.NONE:
        return _failed(error)
    key = ShareKey(name, node.metadata.topic_id(where[0]), where[1])
    history, offset = node.share_history, int(number)
    if node.groups.share_group(name) is None and not history.about(key).events:
        return _failed(_E.GROUP_ID_NOT_FOUND, f"there is no share group {name[:249]!r}")
    leader = node.share_partitions
    result = await node.share_state.read_summary(key, 0)
    now = state_of_share_record(
        offset,
        found.log,
        leader.led(key),
        result.state,
        leader.settings(name),
        node.clock.monotonic_ms(),
    )
    events = history.story(key, offset)
    return await _answer_about(node, context, request, history, history.about(key), [now], events)


# --- Clients ---


async def _client(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse:
    if not node.authorizer.allows(context, Operation.DESCRIBE, CLUSTER):
        return _failed(_E.CLUSTER_AUTHORIZATION_FAILED)
    connections, name = node.connections, request.subject
    if not connections.history.about(name).events:
        text = f"no connection of client id {name[:249]!r} is known since the broker's start"
        return _failed(_E.RESOURCE_NOT_FOUND, text)
    return await _answer(node, context, request, connections.history, connections.states_of(name))


# --- Mirror topics ---


async def _mirror(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse:
    name, metadata = request.subject, node.metadata
    if name and not node.authorizer.allows(context, Operation.DESCRIBE, topic(name)):
        return _failed(_E.TOPIC_AUTHORIZATION_FAILED)
    if not name:
        now = [
            state_of_mirror(each, metadata.mirror_sources[each], metadata.partition_count(each))
            async for each in paced(sorted(metadata.mirror_sources))
            if each in metadata.mirror_sources
            and node.authorizer.would_allow(context, Operation.DESCRIBE, topic(each))
        ]
        return await _answer(node, context, request, node.mirror_history, now)
    if name not in metadata.topics:
        return _failed(_E.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name[:249]!r}")
    source = metadata.mirror_sources.get(name)
    now = [state_of_mirror(name, source, metadata.partition_count(name))]
    if source is not None:
        logs = [
            (partition.log, node.mirrors.source_of(name, index))
            async for index in paced(metadata.topics[name].partitions)
            if (partition := node.partition(name, index)) is not None
        ]
        now += await states_of_mirrored(logs, node.clock.wall_ms())
    return await _answer(node, context, request, node.mirror_history, now)


# --- Producer ids ---


async def _producer(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse:
    text = request.subject
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return _failed(_E.INVALID_REQUEST, f"{text[:50]!r} is no producer id: it must be a number")
    request.subject = str(int(text))
    producer_id = int(text)
    now = [
        state_of_owner(transaction, producer_id)
        async for transaction in paced(node.transactions.transactions())
        if producer_id
        in (transaction.producer_id, transaction.previous_producer_id, transaction.next_producer_id)
        and _may_describe_id(node, context, transaction.transactional_id)
    ]
    now += await _partitions_that_know(node, context, producer_id)
    history = node.producer_history
    may_see = ProducerEventRights(node, context)
    events = [event for event in history.about(request.subject).events if may_see(event)]
    if not events and not now:
        return _failed(
            _E.UNKNOWN_PRODUCER_ID,
            f"nothing is known of producer id {producer_id}: it never wrote here, its state has"
            " expired (producer.id.expiration.ms), or it belongs to topics that you may not read",
        )
    if not now:
        now = [NOT_IN_ANY_PARTITION]
    return await _answer(node, context, request, history, now, events)


async def _partitions_that_know(
    node: Node, context: RequestContext, producer_id: int
) -> list[CurrentState]:
    """The state of the producer in each readable partition that knows the producer. At most
    OPENED_MAX partitions that were not used since the start are opened; if more remain, the last
    entry has their number."""
    found, opened, unread = [], 0, 0
    now_ms = node.clock.wall_ms()
    readable = Rights(
        lambda name: node.authorizer.would_allow(context, Operation.READ, topic(name))
    )
    # Internal topics come last, because users rarely mean them.
    names = sorted(node.metadata.topics)
    names.sort(key=INTERNAL_TOPICS.__contains__)
    async for name, index in _partitions_of(node, names):
        partition = node.partition(name, index)
        if partition is None:
            continue  # The topic was deleted during a pause.
        log = partition.log
        if not readable(name) or log.offline:
            continue
        if not log.loaded:
            if opened == OPENED_MAX:
                unread += 1
                continue
            opened += 1
        try:
            entry, restored_to = log.producers.entry(producer_id), log.producers_restored_to
        except StorageError:
            continue
        if entry is not None:
            found.append(state_of_producer((name, index), entry, restored_to, now_ms))
    if unread:
        found.append(partitions_not_opened(unread))
    return found


async def _partitions_of(node: Node, names: Iterable[str]) -> AsyncIterator[TopicPartition]:
    """The partitions of topics."""
    async for name in paced(names):
        found = node.metadata.topics.get(name)
        async for index in paced(found.partitions if found else ()):
            yield name, index


class ProducerEventRights:
    """The rights of the client to events of producer ids, each checked once."""

    def __init__(self, node: Node, context: RequestContext) -> None:
        would_allow = node.authorizer.would_allow
        self._cluster = Rights(lambda _: would_allow(context, Operation.DESCRIBE, CLUSTER))
        self._read = Rights(lambda name: would_allow(context, Operation.READ, topic(name)))
        self._describe_id = Rights(lambda name: _may_describe_id(node, context, name))

    def __call__(self, event: Event) -> bool:
        """True if the client may see the event."""
        name = event.fields.get("transactional_id")
        if name is not None and not self._describe_id(str(name)):
            return False
        if name is None and not event.partitions:
            return self._cluster("")
        return all(self._read(where) for where, _ in event.partitions)


def _may_describe_id(node: Node, context: RequestContext, name: str) -> bool:
    return node.authorizer.would_allow(context, Operation.DESCRIBE, transactional_id(name))


# --- The answer ---


async def _answer(
    node: Node,
    context: RequestContext,
    request: DescribeHistoryRequest,
    history: History,
    now: Iterable[CurrentState],
    events: list[Event] | None = None,
) -> DescribeHistoryResponse:
    past = history.about(request.subject)
    events = past.events if events is None else events
    return await _answer_about(node, context, request, history, past, now, events)


async def _answer_about(
    node: Node,
    context: RequestContext,
    request: DescribeHistoryRequest,
    history: Ring[Any, Any],
    past: SubjectHistory[Any],
    now: Iterable[CurrentState],
    events: list[Event],
) -> DescribeHistoryResponse:
    """The answer with the newest of `events`, up to the request's limit. A negative limit means
    all events."""
    if request.limit >= 0:
        events = events[max(len(events) - request.limit, 0) :]
    may_describe = Rights(
        lambda name: node.authorizer.would_allow(context, Operation.DESCRIBE, topic(name))
    )
    may_describe_group = Rights(
        lambda name: node.authorizer.would_allow(context, Operation.DESCRIBE, group(name))
    )
    return DescribeHistoryResponse(
        error_code=_E.NONE,
        now_ms=node.clock.wall_ms(),
        started_ms=history.started_ms,
        complete_since_ms=past.since_ms,
        dropped=past.dropped,
        events=[
            event_text(event, may_describe, may_describe_group) async for event in paced(events)
        ],
        states=[state_text(each, may_describe) async for each in paced(now)],
    )


def _failed(error: ErrorCode, message: str | None = None) -> DescribeHistoryResponse:
    return DescribeHistoryResponse(error_code=error, error_message=message)
