"""The share fetches and acknowledgements of one consumer: the next request to each leader, and the
handling of answers.

A leader gets one request at a time, because each request has the epoch of its share session.
Acknowledgements are sent with the next ShareFetch to the leader from which the records were
acquired. If no ShareFetch to this leader follows, they are sent in a ShareAcknowledge after a short
wait. Records are fetched only while a poll waits and no record is buffered, because the time of
their locks begins when the broker answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from odradek_client.consumer.errors import RETRY, RETRY_WITH_NEW_METADATA
from odradek_client.errors import BadAnswer, NotLeader, OdradekError, error_for
from odradek_client.network.cluster import BrokerAddress, ClusterView
from odradek_client.share.acknowledgements import (
    AcknowledgeType,
    PendingAcknowledgements,
    TopicIdPartition,
    Types,
)
from odradek_client.share.acquired import AcquiredBatch, ReadSettings
from odradek_client.share.held import HeldRecords
from odradek_client.share.record import DeliveryState, Holder, ShareRecord
from odradek_client.share.session import CLOSE_EPOCH, ShareSessionHandler, acknowledge_topics
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import BatchError
from odradek_protocol.schemas.share_acknowledge import (
    AcknowledgedPartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from odradek_protocol.schemas.share_fetch import (
    ShareFetchedPartition,
    ShareFetchRequest,
    ShareFetchResponse,
)

#: The time for which acknowledgements wait for a fetch that can include them.
ACKNOWLEDGE_DELAY_MS = 100
#: The assumed duration of locks if a broker does not report it: the default of brokers.
LOCK_MS = 30_000

SESSION_LOST = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
#: The errors after which an acknowledgement is not retried, because the broker has released the
#: locks or does not lead the partition.
_LEADER_GONE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


@dataclass(frozen=True, slots=True)
class ShareFetchSettings:
    """The settings for share fetches."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    record_limit: bool = False
    retry_backoff_ms: int = 100
    renew_locks: bool = True
    handling_max_ms: float = 300_000
    answer_grace_ms: float = 30_000
    read: ReadSettings = field(default_factory=ReadSettings)


class PlanKind(Enum):
    """The purpose of a request."""

    FETCH = "records and acknowledgements"
    ACKNOWLEDGE = "acknowledgements alone"
    CLOSE = "the end of the session"


@dataclass(slots=True)
class SharePlan:
    """A request to send to a node, and the acknowledgements in it."""

    kind: PlanKind
    node_id: int
    request: ShareFetchRequest | ShareAcknowledgeRequest
    acknowledged: dict[TopicIdPartition, Types]
    #: The partitions of the session, by topic id and number.
    partitions: dict[tuple[bytes, int], TopicIdPartition]


@dataclass(slots=True)
class _Node:
    """A leader, with its session and the acknowledgements that wait for a request to it."""

    session: ShareSessionHandler = field(default_factory=ShareSessionHandler)
    pending: dict[TopicIdPartition, PendingAcknowledgements] = field(default_factory=dict)
    in_flight: PlanKind | None = None
    retry_at_ms: float = 0.0
    #: The time at which pending acknowledgements are sent even without a fetch.
    due_ms: float = 0.0
    closed: bool = False

    @property
    def has_pending(self) -> bool:
        return any(self.pending.values())


@dataclass(slots=True)
class ShareCounts:
    """The totals that `metrics` reports."""

    fetches: int = 0
    records: int = 0
    bytes: int = 0
    acknowledgements: int = 0
    failed_acknowledgements: int = 0


class ShareFetcher:
    """The requests of a share consumer to the leaders of its partitions.

    The caller sends the requests of `next_requests`, passes each answer to `on_response` or the
    error to `on_failure`, and takes records with `collect`. The caller sets `wanted_records` to the
    number of records that a poll is waiting for, 0 if no poll waits. The caller also fetches
    metadata when `metadata_wanted` is set, and clears that flag.
    """

    def __init__(
        self, group_id: str, member_id: str, settings: ShareFetchSettings, holder: Holder
    ) -> None:
        self._group_id, self._member_id = group_id, member_id
        self._settings = settings
        self.holder = holder
        self._nodes: dict[int, _Node] = {}
        self._assigned: dict[TopicIdPartition, None] = {}
        self._buffer: deque[AcquiredBatch] = deque()
        self._errors: list[OdradekError] = []
        self._stopped = self._closing = False
        self.held = HeldRecords(
            settings.renew_locks, settings.handling_max_ms, settings.answer_grace_ms
        )
        self.counts = ShareCounts()
        self.wanted_records = 0
        self.metadata_wanted = False

    # --- partitions and records -------------------------------------------------------------------

    @property
    def assigned(self) -> Collection[TopicIdPartition]:
        return self._assigned.keys()

    def assign(self, partitions: Iterable[TopicIdPartition], now_ms: float) -> None:
        """Fetch exactly these partitions, and release buffered records of other partitions."""
        self._assigned = dict.fromkeys(partitions)
        kept: deque[AcquiredBatch] = deque()
        for batch in self._buffer:
            if batch.partition in self._assigned:
                kept.append(batch)
            else:
                self._release(batch, now_ms)
        self._buffer = kept

    def _release(self, batch: AcquiredBatch, now_ms: float) -> None:
        release = int(AcknowledgeType.RELEASE)
        for offset in batch.offsets:
            self._add(batch.node_id, batch.partition, offset, release, now_ms)

    def collect(self, limit: int, now_ms: float) -> list[ShareRecord]:
        """Take up to `limit` buffered records. If unreadable records follow readable records, this
        call returns the readable records, and the next call raises the error."""
        found: list[ShareRecord] = []
        while not self._errors and self._buffer and len(found) < limit:
            batch = self._buffer[0]
            if batch.deadline_ms <= now_ms:
                # The locks have expired, so other members may have acquired the records.
                self._buffer.popleft()
                continue
            taken = batch.take(limit - len(found))
            for offset, kind in taken.answers.items():
                self._add(batch.node_id, batch.partition, offset, kind, now_ms)
            if taken.interruption is not None:
                # The application gets none of these records, so it must not accept them.
                for record in found:
                    record.release()
                raise taken.interruption
            for raw, count in taken.records:
                place = batch.partition, batch.node_id
                record = ShareRecord(self.holder, *place, raw, count, batch.deadline_ms)
                self.held.add(record)
                found.append(record)
            if batch.exhausted:
                self._buffer.popleft()
            if taken.failure is not None:
                self._errors.append(taken.failure)
        self.counts.records += len(found)
        if not found and self._errors:
            raise self._errors.pop(0)
        return found

    @property
    def buffered(self) -> bool:
        """True if `collect` has something to return or to raise."""
        return bool(self._buffer or self._errors)

    # --- acknowledgements -------------------------------------------------------------------------

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType, now_ms: float) -> None:
        """Queue the application's acknowledgement of a record, unless its lock has expired."""
        if record.state is not DeliveryState.ACQUIRED:
            return
        if kind is not AcknowledgeType.RENEW:
            self.held.answered(record)
        self._add(record.node_id, record.place, record.offset, kind, now_ms)

    def _add(
        self, node_id: int, partition: TopicIdPartition, offset: int, kind: int, now_ms: float
    ) -> None:
        node = self._nodes.setdefault(node_id, _Node())
        if not node.has_pending:
            node.due_ms = now_ms + ACKNOWLEDGE_DELAY_MS
        node.pending.setdefault(partition, PendingAcknowledgements()).add(offset, kind)

    def flush(self) -> None:
        """Send pending acknowledgements as soon as their leader has no request in flight."""
        for node in self._nodes.values():
            node.due_ms = 0.0

    def pass_time(self, now_ms: float) -> None:
        """Expire locks, and renew those of records that are being handled."""
        for record in self.held.expire(now_ms):
            node = self._nodes.get(record.node_id)
            if node is not None and record.place in node.pending:
                node.pending[record.place].drop(record.offset)
        for record in self.held.to_renew(now_ms):
            self._add(record.node_id, record.place, record.offset, AcknowledgeType.RENEW, now_ms)
            self._nodes[record.node_id].due_ms = 0.0

    # --- sending ----------------------------------------------------------------------------------

    def next_requests(self, cluster: ClusterView, now_ms: float) -> list[SharePlan]:
        """Plan a request for each node that needs one and has none in flight. The planned requests
        count as in flight."""
        self._drop_moved(cluster)
        by_node: dict[int, list[TopicIdPartition]] = {}
        for partition in self._assigned:
            leader = cluster.leader_of(partition.topic, partition.partition)
            if leader is None:
                self.metadata_wanted = True
            else:
                by_node.setdefault(leader, []).append(partition)
                self._nodes.setdefault(leader, _Node())
        plans: list[SharePlan] = []
        # The nodes are in the order of the partitions, because with a strict limit only the first
        # leader gets a fetch.
        for node_id in dict.fromkeys([*by_node, *self._nodes]):
            node = self._nodes[node_id]
            if node.in_flight is not None or node.closed or node.retry_at_ms > now_ms:
                continue
            self._fail_moved(node_id, node, cluster, now_ms)
            plan = self._plan(node_id, node, by_node.get(node_id, []), now_ms)
            if plan is not None:
                node.in_flight = plan.kind
                plans.append(plan)
        return plans

    def _plan(
        self, node_id: int, node: _Node, wanted: list[TopicIdPartition], now_ms: float
    ) -> SharePlan | None:
        session = node.session
        if self._closing:
            return self._plan_close(node_id, node, now_ms)
        fetches = self._may_fetch(wanted)
        due = node.has_pending and node.due_ms <= now_ms
        if not session.is_open:
            # Acknowledgements need a session, and only a fetch opens a session.
            if not wanted:
                self._fail_pending(
                    node_id, node, "does not lead any partition of this consumer", now_ms
                )
                return None
            return self._fetch(node_id, node, wanted, {}, fetches) if fetches or due else None
        if renewals := _take_renewals(node):
            return self._acknowledge(node_id, node, renewals)
        if fetches:
            return self._fetch(node_id, node, wanted, _take(node), True)
        return self._acknowledge(node_id, node, _take(node)) if due else None

    def _may_fetch(self, wanted: list[TopicIdPartition]) -> bool:
        if not wanted or not self.wanted_records or self.buffered or self._stopped:
            return False
        # The records of several leaders together could exceed a strict limit.
        return not self._settings.record_limit or all(
            node.in_flight is not PlanKind.FETCH for node in self._nodes.values()
        )

    def _fetch(
        self,
        node_id: int,
        node: _Node,
        wanted: list[TopicIdPartition],
        acknowledged: dict[TopicIdPartition, Types],
        with_records: bool,
    ) -> SharePlan:
        settings = self._settings
        if settings.record_limit and len(self._assigned) > 1:
            # The next fetch begins with another partition.
            first = wanted[0]
            del self._assigned[first]
            self._assigned[first] = None
        of_session = node.session.fetch(wanted, acknowledged)
        limit = self.wanted_records if with_records else 0
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=of_session.epoch,
            max_wait_ms=settings.max_wait_ms if with_records else 0,
            min_bytes=settings.min_bytes if with_records else 0,
            max_bytes=settings.max_bytes if with_records else 0,
            max_records=limit,
            batch_size=limit,
            share_acquire_mode=int(settings.record_limit),
            topics=of_session.topics,
            forgotten_topics_data=of_session.forgotten,
        )
        self.counts.fetches += 1
        return self._planned(PlanKind.FETCH, node_id, node, request, acknowledged)

    def _acknowledge(
        self, node_id: int, node: _Node, acknowledged: dict[TopicIdPartition, Types]
    ) -> SharePlan:
        renews = any(AcknowledgeType.RENEW in types.values() for types in acknowledged.values())
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=node.session.epoch,
            is_renew_ack=renews,
            topics=acknowledge_topics(acknowledged),
        )
        return self._planned(PlanKind.ACKNOWLEDGE, node_id, node, request, acknowledged)

    def _plan_close(self, node_id: int, node: _Node, now_ms: float) -> SharePlan | None:
        """The request that ends the session, with all pending acknowledgements. The broker then
        releases the other records that this member has acquired."""
        if not node.session.is_open:
            node.closed = True
            self._fail_pending(node_id, node, "has lost the share session", now_ms)
            return None
        acknowledged = {
            partition: types
            for partition, pending in node.pending.items()
            if (types := pending.take_all())
        }
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=CLOSE_EPOCH,
            topics=acknowledge_topics(acknowledged),
        )
        return self._planned(PlanKind.CLOSE, node_id, node, request, acknowledged)

    def _planned(
        self,
        kind: PlanKind,
        node_id: int,
        node: _Node,
        request: ShareFetchRequest | ShareAcknowledgeRequest,
        acknowledged: dict[TopicIdPartition, Types],
    ) -> SharePlan:
        self.counts.acknowledgements += sum(map(len, acknowledged.values()))
        named = {*node.session.partitions, *acknowledged}
        partitions = {(each.topic_id, each.partition): each for each in named}
        return SharePlan(kind, node_id, request, acknowledged, partitions)

    def wake_at_ms(self, now_ms: float) -> float | None:
        """The time of the next request, or of the next expiry or renewal of a lock; None if nothing
        is planned."""
        times = [
            max(node.retry_at_ms, node.due_ms)
            for node in self._nodes.values()
            if node.in_flight is None and node.has_pending and not node.closed
        ]
        if self.wanted_records or self._closing:
            times += [
                node.retry_at_ms
                for node in self._nodes.values()
                if node.in_flight is None and node.retry_at_ms > now_ms
            ]
        lock_ms = self.held.wake_at_ms()
        if lock_ms is not None:
            times.append(lock_ms)
        return min(times, default=None)

    # --- answers ----------------------------------------------------------------------------------

    def on_failure(self, plan: SharePlan, error: OdradekError, now_ms: float) -> None:
        """Called when a request has no answer. A new session begins, and it is unknown whether the
        acknowledgements were carried out."""
        node = self._nodes[plan.node_id]
        node.in_flight = None
        node.session.restart()
        node.retry_at_ms = now_ms + self._settings.retry_backoff_ms
        node.closed = node.closed or plan.kind is PlanKind.CLOSE
        self.metadata_wanted = True
        for partition, types in plan.acknowledged.items():
            self._finish(partition, types, error, now_ms)
        self._fail_lent(plan.node_id, node, now_ms)

    def on_response(
        self,
        plan: SharePlan,
        response: ShareFetchResponse | ShareAcknowledgeResponse,
        cluster: ClusterView,
        now_ms: float,
    ) -> None:
        """Handle an answer: buffer its records, and note the results of acknowledgements and new
        leaders."""
        node = self._nodes[plan.node_id]
        node.in_flight = None
        node.closed = node.closed or plan.kind is PlanKind.CLOSE
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._on_refused(plan, node, code, response.error_message, now_ms)
            return
        node.session.answered()
        lock_ms = response.acquisition_lock_timeout_ms
        lock_until_ms = now_ms + (lock_ms if lock_ms > 0 else LOCK_MS)
        self._learn_leaders(plan, response, cluster)
        unanswered = dict(plan.acknowledged)
        for topic in response.responses:
            for data in topic.partitions:
                partition = plan.partitions.get((topic.topic_id, data.partition_index))
                if partition is None:
                    continue
                types = unanswered.pop(partition, None)
                if types is not None:
                    self._on_result(plan, node, partition, types, data, lock_until_ms, now_ms)
                if isinstance(data, ShareFetchedPartition):
                    self._on_records(plan, node, partition, data, lock_until_ms, now_ms)
        for partition, types in unanswered.items():
            missing = BadAnswer(f"{partition.topic}-{partition.partition} is not in the answer")
            self._finish(partition, types, missing, now_ms)

    def _on_refused(
        self, plan: SharePlan, node: _Node, code: ErrorCode, message: str | None, now_ms: float
    ) -> None:
        node.retry_at_ms = now_ms + self._settings.retry_backoff_ms
        error = error_for(code, message, about=f"share session with node {plan.node_id}")
        lost = code in SESSION_LOST
        if lost:
            node.session.restart()
        else:
            node.session.answered()
        if code in RETRY_WITH_NEW_METADATA:
            self.metadata_wanted = True
        for partition, types in plan.acknowledged.items():
            if (lost or error.retriable) and not node.closed:
                # The broker has carried out no acknowledgement, because it checks the session
                # first.
                node.pending.setdefault(partition, PendingAcknowledgements()).add_again(types)
            else:
                self._finish(partition, types, error, now_ms)
        if code is ErrorCode.SHARE_SESSION_NOT_FOUND:
            self._fail_lent(plan.node_id, node, now_ms)
        if not error.retriable and plan.kind is PlanKind.FETCH:
            self._errors.append(error)

    def _learn_leaders(
        self,
        plan: SharePlan,
        response: ShareFetchResponse | ShareAcknowledgeResponse,
        cluster: ClusterView,
    ) -> None:
        """Take over the new leaders that the answer names."""
        nodes = {
            each.node_id: BrokerAddress(each.node_id, each.host, each.port, each.rack)
            for each in response.node_endpoints
        }
        for topic in response.responses:
            for data in topic.partitions:
                leader = data.current_leader
                partition = plan.partitions.get((topic.topic_id, data.partition_index))
                if partition is None or leader.leader_id < 0 or leader.leader_epoch < 0:
                    continue
                if ErrorCode.of(data.error_code) in _LEADER_GONE:
                    cluster.update_leader(
                        partition.topic,
                        partition.partition,
                        leader.leader_id,
                        leader.leader_epoch,
                        nodes.get(leader.leader_id),
                    )

    def _on_result(
        self,
        plan: SharePlan,
        node: _Node,
        partition: TopicIdPartition,
        types: Types,
        data: ShareFetchedPartition | AcknowledgedPartition,
        lock_until_ms: float,
        now_ms: float,
    ) -> None:
        """Handle the result of a partition's acknowledgements."""
        if isinstance(data, ShareFetchedPartition):
            code, message = (
                ErrorCode.of(data.acknowledge_error_code),
                data.acknowledge_error_message,
            )
        else:
            code, message = ErrorCode.of(data.error_code), data.error_message
        if code is ErrorCode.NONE:
            for offset, kind in types.items():
                if kind == AcknowledgeType.RENEW:
                    self.held.renewed(partition, offset, now_ms, lock_until_ms)
                else:
                    self.held.finish(partition, offset, None)
            return
        error = error_for(code, message, about=f"{partition.topic}-{partition.partition}")
        pending = node.pending.setdefault(partition, PendingAcknowledgements())
        if code is ErrorCode.INVALID_RECORD_STATE and len(types) > 1 and not node.closed:
            pending.halve(types)
        elif error.retriable and code not in _LEADER_GONE and not node.closed:
            node.retry_at_ms = now_ms + self._settings.retry_backoff_ms
            pending.add_again(self.held.still_locked(partition, types, now_ms))
        else:
            self.metadata_wanted = self.metadata_wanted or code in _LEADER_GONE
            self._finish(partition, types, error, now_ms)

    def _finish(
        self,
        partition: TopicIdPartition,
        types: Mapping[int, int],
        error: OdradekError,
        now_ms: float,
    ) -> None:
        for offset, kind in types.items():
            self.counts.failed_acknowledgements += 1
            if kind == AcknowledgeType.RENEW:
                self.held.not_renewed(partition, offset, error, now_ms)
            else:
                self.held.finish(partition, offset, error)

    def _on_records(
        self,
        plan: SharePlan,
        node: _Node,
        partition: TopicIdPartition,
        data: ShareFetchedPartition,
        lock_until_ms: float,
        now_ms: float,
    ) -> None:
        code = ErrorCode.of(data.error_code)
        if code in RETRY_WITH_NEW_METADATA or code in RETRY:
            self.metadata_wanted = self.metadata_wanted or code in RETRY_WITH_NEW_METADATA
            node.retry_at_ms = now_ms + self._settings.retry_backoff_ms
            return
        about = f"{partition.topic}-{partition.partition}"
        if code is not ErrorCode.NONE:
            node.retry_at_ms = now_ms + self._settings.retry_backoff_ms
            self._errors.append(error_for(code, data.error_message, about=about))
            return
        if not data.acquired_records:
            return
        try:
            batch = AcquiredBatch(
                partition,
                plan.node_id,
                data.records,
                data.acquired_records,
                lock_until_ms,
                self._settings.read,
            )
        except BatchError as error:
            self._errors.append(BadAnswer(f"{about}: {error}"))
            return
        self.counts.bytes += len(data.records or b"")
        pending = node.pending.get(partition)
        for offset in batch.offsets:
            # An acknowledgement of an earlier acquisition must not apply to this acquisition.
            self.held.lent_again(partition, offset)
            if pending is not None:
                pending.drop(offset)
        if partition in self._assigned and not self._closing:
            self._buffer.append(batch)
        else:
            self._release(batch, now_ms)

    # --- leaders that are gone --------------------------------------------------------------------

    def _drop_moved(self, cluster: ClusterView) -> None:
        """Drop the buffered records of partitions that have a new leader, because their locks are
        lost."""
        self._buffer = deque(
            batch
            for batch in self._buffer
            if not _is_led_elsewhere(cluster, batch.partition, batch.node_id)
        )

    def _fail_moved(self, node_id: int, node: _Node, cluster: ClusterView, now_ms: float) -> None:
        """Fail acknowledgements for partitions with a new leader, which has none of the locks."""
        for partition in list(node.pending):
            if _is_led_elsewhere(cluster, partition, node_id):
                self._fail_of(
                    node_id, node, partition, "does not lead the partition any more", now_ms
                )

    def _fail_pending(self, node_id: int, node: _Node, why: str, now_ms: float) -> None:
        for partition in list(node.pending):
            self._fail_of(node_id, node, partition, why, now_ms)

    def _fail_of(
        self, node_id: int, node: _Node, partition: TopicIdPartition, why: str, now_ms: float
    ) -> None:
        pending = node.pending.pop(partition)
        while types := pending.take() or pending.take_renewals():
            self._finish(partition, types, _given_back(node_id, partition, why), now_ms)

    def _fail_lent(self, node_id: int, node: _Node, now_ms: float) -> None:
        """Fail the records that were acquired in a session that the node has lost. The node has
        released these records, and would ignore acknowledgements of records that another member has
        finished."""
        why = "has lost the share session"
        self._buffer = deque(batch for batch in self._buffer if batch.node_id != node_id)
        self._fail_pending(node_id, node, why, now_ms)
        self.held.end_lent_by(node_id, lambda partition: _given_back(node_id, partition, why))

    # --- closing ----------------------------------------------------------------------------------

    def stop_fetching(self) -> None:
        """Stop fetching; records that are being handled can still be acknowledged."""
        self._stopped = True
        self.wanted_records = 0

    def begin_close(self, now_ms: float) -> None:
        """Release unacknowledged records; the next requests end the sessions."""
        self.stop_fetching()
        for batch in self._buffer:
            self._release(batch, now_ms)
        self._buffer.clear()
        self._errors.clear()
        self._closing = True

    @property
    def is_closed(self) -> bool:
        """True if every session is closed."""
        return all(node.closed for node in self._nodes.values())


def _is_led_elsewhere(cluster: ClusterView, partition: TopicIdPartition, node_id: int) -> bool:
    """True if the leader of the partition is known to be another node."""
    leader = cluster.leader_of(partition.topic, partition.partition)
    return leader is not None and leader != node_id


def _given_back(node_id: int, partition: TopicIdPartition, why: str) -> NotLeader:
    lent = f"{partition.topic}-{partition.partition}: node {node_id}, which lent the records, {why}"
    return NotLeader(
        f"{lent}; the group delivers them again", code=ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def _take(node: _Node) -> dict[TopicIdPartition, Types]:
    """The next acknowledgements of each partition, except renewals."""
    return _taken(node, PendingAcknowledgements.take)


def _take_renewals(node: _Node) -> dict[TopicIdPartition, Types]:
    """The next renewals of each partition. Renewals are sent first, because their locks are about
    to expire, and in a request of their own, because a broker acquires no records in such a
    request."""
    return _taken(node, PendingAcknowledgements.take_renewals)


def _taken(
    node: _Node, take: Callable[[PendingAcknowledgements], Types]
) -> dict[TopicIdPartition, Types]:
    found = {
        partition: types for partition, pending in node.pending.items() if (types := take(pending))
    }
    for partition in [each for each, pending in node.pending.items() if not pending]:
        del node.pending[partition]
    return found
