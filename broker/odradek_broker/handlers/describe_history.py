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

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from odradek_broker.coordinator.groups.settings import group_setting
from odradek_broker.explain.blocking_transaction import (
    BlockedPartition,
    blocked_partition,
    state_of_blocked,
    state_of_everything_stable,
)
from odradek_broker.explain.causes import Judge
from odradek_broker.explain.groups import states_of_group
from odradek_broker.explain.history import RecordedEvent, Ring, SubjectState
from odradek_broker.explain.lag import oldest_unread, state_of_lag
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
from odradek_broker.explain.texts import Rights, event_values, state_text
from odradek_broker.explain.transactions import client_of, state_of_owner, state_of_transaction
from odradek_broker.metadata.cluster import INTERNAL_TOPICS
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import (
    CLUSTER,
    Operation,
    Resource,
    group,
    topic,
    transactional_id,
)
from odradek_broker.share_state import ShareKey
from odradek_broker.slices import paced, with_pauses
from odradek_broker.storage.errors import StorageError
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
    answer = _ANSWERS.get(request.subject_type)
    if answer is None:
        return _failed(_E.INVALID_REQUEST, f"there is no subject type {request.subject_type}")
    return await answer(_Question(node, context, request))


class _Question:
    """A request about one subject."""

    def __init__(
        self, node: Node, context: RequestContext, request: DescribeHistoryRequest
    ) -> None:
        self.node = node
        self.subject = request.subject
        self.rights = Rights(node.authorizer, context)
        self._context = context
        self._limit = request.limit

    def may_describe(self, resource: Resource) -> bool:
        return self.node.authorizer.allows(self._context, Operation.DESCRIBE, resource)

    async def answered(
        self,
        history: Ring[Any, Any],
        now: Iterable[SubjectState],
        events: list[RecordedEvent] | None = None,
        key: ShareKey | None = None,
    ) -> DescribeHistoryResponse:
        """The answer with the newest of `events`, up to the request's limit. A negative limit means
        all events. `events`: those of the subject by default; `key`: the key of the subject in the
        history if it is not the name."""
        past = history.about(key or self.subject)
        events = past.events if events is None else events
        if self._limit >= 0:
            events = events[max(len(events) - self._limit, 0) :]
        return DescribeHistoryResponse(
            error_code=_E.NONE,
            now_ms=self.node.clock.wall_ms(),
            started_ms=history.started_ms,
            complete_since_ms=past.since_ms,
            dropped=past.dropped,
            events=[
                wire.Event(**event_values(event, self.rights)) async for event in paced(events)
            ],
            states=[state_text(each, self.rights) async for each in paced(now)],
        )


def _failed(error: ErrorCode, message: str | None = None) -> DescribeHistoryResponse:
    return DescribeHistoryResponse(error_code=error, error_message=message)


# --- Transactional ids and groups ---


async def _transaction(question: _Question) -> DescribeHistoryResponse:
    node, name = question.node, question.subject
    if not question.may_describe(transactional_id(name)):
        return _failed(_E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    error, transaction = await node.transactions.describe(name)
    if error not in (_E.NONE, _E.TRANSACTIONAL_ID_NOT_FOUND):
        return _failed(error)
    history = node.transaction_history
    if transaction is None and not history.about(name).events:
        return _failed(_E.TRANSACTIONAL_ID_NOT_FOUND)
    client = client_of(history.about(name).events)
    gone = None if client is None else await node.connections.end_of(client)
    now = state_of_transaction(transaction, node.clock.wall_ms(), history.started_ms, gone)
    return await question.answered(history, [now])


async def _group(question: _Question) -> DescribeHistoryResponse:
    node, name = question.node, question.subject
    if not question.may_describe(group(name)):
        return _failed(_E.GROUP_AUTHORIZATION_FAILED)
    _, error = node.groups.shards.find(name)
    if error is not _E.NONE:
        return _failed(error)
    history = node.group_history
    classic = node.groups.group(name)
    share = node.groups.share_group(name)
    modern = share or node.groups.consumer_group(name) or node.groups.streams_group(name)
    offsets = node.groups.offset_count(name)
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
        committed, wall_ms = node.groups.committed(name), node.clock.wall_ms()
        unread = await oldest_unread(committed, node.log_of, wall_ms)
        now += [] if unread is None else [state_of_lag(unread)]
        now.append(await with_pauses(Judge(node).state_of(name)))
    answer = await question.answered(history, now)
    answer.lag = [
        wire.LagSample(time_ms=time_ms, records=records)
        for time_ms, records in node.verdicts.group_lags.of(name)
    ]
    return answer


# --- Partitions ---


async def _partition(question: _Question) -> DescribeHistoryResponse:
    node, where = question.node, _partition_of(question.subject)
    if where is None:
        text = f"{question.subject[:50]!r} is no partition: it must be TOPIC-NUMBER"
        return _failed(_E.INVALID_REQUEST, text)
    if not question.may_describe(topic(where[0])):
        return _failed(_E.TOPIC_AUTHORIZATION_FAILED)
    question.subject = "{}-{}".format(*where)
    found = node.partition(*where)
    if found is None:
        return _failed(_E.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {question.subject}")
    now = [node.compaction_state(found.log)]
    with suppress(StorageError):
        blocked = blocked_partition(found.log)
        if blocked is None:
            now.insert(0, state_of_everything_stable(found.log))
        else:
            now.insert(0, await _blocked(question, blocked))
    return await question.answered(node.partition_history, now)


async def _blocked(question: _Question, blocked: BlockedPartition) -> SubjectState:
    node, rights = question.node, question.rights
    error, known = await node.transactions.list_all()
    owners = [each for each in known if each.producer_id == blocked.producer_id]
    return state_of_blocked(
        blocked,
        owners if error is _E.NONE else None,
        may_read=rights.read(blocked.where[0]),
        may_describe=all(rights.transactional_id(each.transactional_id) for each in owners),
        wall_ms=node.clock.wall_ms(),
    )


def _partition_of(text: str) -> TopicPartition | None:
    """The partition of a text TOPIC-NUMBER; None for another text."""
    name, _, number = text.rpartition("-")
    return (name, int(number)) if name and _is_number(number) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


# --- Records of share groups ---


async def _share_record(question: _Question) -> DescribeHistoryResponse:
    node = question.node
    partition, _, rest = question.subject.partition(":")
    number, _, name = rest.partition(":")
    where = _partition_of(partition)
    if where is None or not (name and _is_number(number)):
        text = f"{question.subject[:50]!r} is no record: it must be TOPIC-NUMBER:OFFSET:GROUP"
        return _failed(_E.INVALID_REQUEST, text)
    if not question.may_describe(group(name)):
        return _failed(_E.GROUP_AUTHORIZATION_FAILED)
    if not question.may_describe(topic(where[0])):
        return _failed(_E.TOPIC_AUTHORIZATION_FAILED)
    found = node.partition(*where)
    if found is None:
        text = f"there is no partition {where[0]}-{where[1]}"
        return _failed(_E.UNKNOWN_TOPIC_OR_PARTITION, text)
    _, error = node.groups.shards.find(name)
    if error is not _E.NONE:
        return _failed(error)
    key = ShareKey(name, node.metadata.topic_id(where[0]), where[1])
    history, offset, leader = node.share_history, int(number), node.share_partitions
    if node.groups.share_group(name) is None and not history.about(key).events:
        return _failed(_E.GROUP_ID_NOT_FOUND, f"there is no share group {name[:249]!r}")
    stored = (await node.share_state.read_summary(key, 0)).state
    settings, now_ms = leader.settings(name), node.clock.monotonic_ms()
    now = await state_of_share_record(offset, found.log, leader.led(key), stored, settings, now_ms)
    return await question.answered(history, [now], history.story(key, offset), key)


# --- Clients ---


async def _client(question: _Question) -> DescribeHistoryResponse:
    connections, name = question.node.connections, question.subject
    if not question.may_describe(CLUSTER):
        return _failed(_E.CLUSTER_AUTHORIZATION_FAILED)
    if not connections.history.about(name).events:
        text = f"no connection of client id {name[:249]!r} is known since the broker's start"
        return _failed(_E.RESOURCE_NOT_FOUND, text)
    return await question.answered(connections.history, connections.states_of(name))


# --- Mirror topics ---


async def _mirror(question: _Question) -> DescribeHistoryResponse:
    node, name, metadata = question.node, question.subject, question.node.metadata
    if name and not question.may_describe(topic(name)):
        return _failed(_E.TOPIC_AUTHORIZATION_FAILED)
    if not name:
        now = [
            state_of_mirror(each, metadata.mirror_sources[each], metadata.partition_count(each))
            async for each in paced(sorted(metadata.mirror_sources))
            if each in metadata.mirror_sources and question.rights.topic(each)
        ]
        return await question.answered(node.mirror_history, now)
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
    return await question.answered(node.mirror_history, now)


# --- Producer ids ---


async def _producer(question: _Question) -> DescribeHistoryResponse:
    node, text, rights = question.node, question.subject, question.rights
    if not _is_number(text):
        return _failed(_E.INVALID_REQUEST, f"{text[:50]!r} is no producer id: it must be a number")
    producer_id = int(text)
    question.subject = str(producer_id)
    now = [
        state_of_owner(transaction, producer_id)
        async for transaction in paced(node.transactions.transactions())
        if producer_id
        in (transaction.producer_id, transaction.previous_producer_id, transaction.next_producer_id)
        and rights.transactional_id(transaction.transactional_id)
    ]
    now += await _partitions_that_know(node, rights, producer_id)
    past = node.producer_history.about(question.subject).events
    events = [event for event in past if rights.to_event_of_producer(event)]
    if not events and not now:
        return _failed(
            _E.UNKNOWN_PRODUCER_ID,
            f"nothing is known of producer id {producer_id}: it never wrote here, its state has"
            " expired (producer.id.expiration.ms), or it belongs to topics that you may not read",
        )
    return await question.answered(node.producer_history, now or [NOT_IN_ANY_PARTITION], events)


async def _partitions_that_know(node: Node, rights: Rights, producer_id: int) -> list[SubjectState]:
    """The state of the producer in each readable partition that knows the producer. At most
    OPENED_MAX partitions that were not used since the start are opened; if more remain, the last
    entry has their number."""
    found, opened, unread = [], 0, 0
    now_ms = node.clock.wall_ms()
    # Internal topics come last, because users rarely mean them.
    names = sorted(node.metadata.topics)
    names.sort(key=INTERNAL_TOPICS.__contains__)
    partitions = (
        (name, index)
        async for name in paced(names)
        if name in node.metadata.topics
        async for index in paced(node.metadata.topics[name].partitions)
    )
    async for name, index in partitions:
        partition = node.partition(name, index)
        if partition is None:
            continue  # The topic was deleted during a pause.
        log = partition.log
        if not rights.read(name) or log.offline:
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


_ANSWERS: dict[int, Callable[[_Question], Awaitable[DescribeHistoryResponse]]] = {
    wire.TRANSACTIONAL_ID: _transaction,
    wire.PRODUCER_ID: _producer,
    wire.GROUP: _group,
    wire.PARTITION: _partition,
    wire.SHARE_RECORD: _share_record,
    wire.CLIENT: _client,
    wire.MIRROR: _mirror,
}
