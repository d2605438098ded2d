"""Fetch (key 1): read batches, now or when there are enough (rules F-01..F-11, F-14, F-15, A-09).

The partitions of a request come from its session (`fetch/sessions.py`); waiting is in
`fetch/parked.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from odradek_broker.deferred import Deferred
from odradek_broker.fetch.sessions import (
    Answers,
    Claim,
    FetchContext,
    FetchSession,
    RequestedPartition,
    add_answers,
    response_of,
    turn_of,
)
from odradek_broker.node import Node
from odradek_broker.partition import Partition
from odradek_broker.quotas.managers import RateQuota
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import (
    ALLOW_EVERYTHING,
    Operation,
    denied_topics,
    may_fetch_as,
    topic,
)
from odradek_broker.slices import each_once, in_pieces, in_sorted_order, let_go, paced, pause
from odradek_broker.storage.errors import IndexesBeingRebuilt, OffsetOutOfRange, StorageError
from odradek_broker.topic_partition import TOPIC_NAME_MAX
from odradek_protocol import codec
from odradek_protocol.constants import READ_COMMITTED, READ_UNCOMMITTED
from odradek_protocol.errors import ErrorCode
from odradek_protocol.fetch_frames import OneFetch
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.schemas.fetch import (
    OFFSET_NOT_AVAILABLE_SINCE,
    TOP_LEVEL_ERROR_SINCE,
    TOPIC_IDS_SINCE,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)


def handle(
    node: Node, context: RequestContext, request: FetchRequest | OneFetch
) -> _Reply | Deferred[_Reply]:
    """Answer immediately if the request's conditions are met (F-01), otherwise park the fetch.

    A response without errors to a request in the common shape is encoded here.
    """
    replica_id = -1
    if isinstance(request, FetchRequest):
        if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            return node.slices.run(_failed_as_a_whole(request, context.api_version))
        replica_id = max(request.replica_id, request.replica_state.replica_id)
    # Rights can change between requests, so with an authorizer every partition of the session is
    # checked.
    everything = replica_id >= 0 or node.authorizer is not ALLOW_EVERYTHING
    plan = node.fetch_sessions.plan(request, context.api_version, everything=everything)
    if plan is None:
        return node.slices.run(_handle_in_slices(node, context, request, replica_id, everything))
    if isinstance(plan, ErrorCode):
        return FetchResponse(error_code=plan)
    fetch = Fetch(node, context, plan, request)
    fetch.look_up(replica_id, skips=not everything)
    if request.max_wait_ms <= 0 or plan.asks_for_nothing or fetch.satisfied():
        return fetch.read()
    return node.parked_fetches.park(
        fetch, fetch.partitions(), request.max_wait_ms, plan.session, fetch.include
    )


async def _handle_in_slices(
    node: Node,
    context: RequestContext,
    request: FetchRequest | OneFetch,
    replica_id: int,
    everything: bool,
) -> FetchResponse:
    """Like `handle`, for a request or a session with many partitions."""
    claim = Claim()
    try:
        plan = await node.fetch_sessions.plan_in_slices(
            request, context.api_version, claim, everything=everything
        )
        if isinstance(plan, ErrorCode):
            return FetchResponse(error_code=plan)
        fetch = Fetch(node, context, plan, request)
        await fetch.look_up_in_slices(replica_id, skips=not everything)
        if request.max_wait_ms > 0 and not plan.asks_for_nothing:
            await fetch.wait_in_slices(request.max_wait_ms, replica_id, claim)
        return await fetch.read_in_slices()
    finally:
        claim.release()


_Reply = FetchResponse | list[codec.Buffer]

#: The maximum number of partitions of a connection whose last error is kept.
ERRORS_KEPT_MAX = 100

#: Separate constants, because access to a member of an enumeration for each partition is slow.
_NONE, _UNKNOWN_TOPIC_ID = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID
#: Compiled for speed, because a response may have thousands of partitions.
_make_answer = codec.struct_maker(
    PartitionData,
    diverging_epoch=EpochEndOffset(),
    current_leader=LeaderIdAndEpoch(),
    snapshot_id=SnapshotId(),
)

_Resolved = tuple[Partition | None, ErrorCode]


class Fetch:
    """A Fetch request from its arrival to its answer."""

    __slots__ = (
        "_answers",
        "_committed",
        "_context",
        "_max_bytes",
        "_missing",
        "_node",
        "_partitions",
        "_peer",
        "_plan",
        "_remaining",
        "_request",
        "_unnamed",
        "min_bytes",
    )

    def __init__(
        self,
        node: Node,
        context: RequestContext,
        plan: FetchContext,
        request: FetchRequest | OneFetch,
    ) -> None:
        self._node = node
        self._plan = plan
        self._context = context
        #: The request, if it has the common shape; otherwise None.
        self._request = request if isinstance(request, OneFetch) else None
        self._committed = request.isolation_level == READ_COMMITTED
        self._peer = node.connections.peers.get(context.connection_id)
        if self._peer is not None:
            self._peer.fetched_ms = node.clock.monotonic_ms()
            self._peer.read_committed = self._committed
        max_bytes = min(request.max_bytes, node.config.fetch_max_bytes)
        if node.quotas.fetch is not None:
            # The quota would never allow a larger answer.
            max_bytes = int(min(max_bytes, node.quotas.fetch.most_at_once(context)))
        self._max_bytes = max_bytes
        self.min_bytes = min(request.min_bytes, max_bytes)
        self._partitions: dict[RequestedPartition, _Resolved] = {}
        self._answers: Answers = []
        #: The answers for partitions that do not exist, or that the client may not describe.
        #: The answers of partitions that are not here, first those of topics without a name.
        self._unnamed: Answers = []
        self._missing: Answers = []
        #: The bytes of records for which the answer has room.
        self._remaining = 0

    def look_up(self, replica_id: int, *, skips: bool) -> None:
        """Find the partitions that the session plans for this fetch. `skips`: true to leave out,
        from an incremental fetch, partitions in which nothing has changed for the client."""
        plan = self._plan
        denied: Collection[str] = ()
        if self._node.authorizer is not ALLOW_EVERYTHING:
            denied = self._denied(replica_id)
        session = plan.session if plan.incremental and skips else None
        self._find(plan.partitions, replica_id, session, denied)

    def _find(
        self,
        partitions: Sequence[RequestedPartition],
        replica_id: int,
        session: FetchSession | None,
        denied: Collection[str],
    ) -> None:
        """See `look_up`. `session`: the one whose partitions may be left out. `denied`: the topics
        that the client may not read."""
        for requested in partitions:
            partition, error = resolved = self._resolve(requested, replica_id)
            if denied and requested.topic in denied:
                self._partitions[requested] = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif session is None or partition is None or error is not _NONE:
                self._partitions[requested] = resolved
            elif self._is_up_to_date(requested, partition):
                session.mark_up_to_date(requested, partition)
            else:
                self._partitions[requested] = resolved

    async def look_up_in_slices(self, replica_id: int, *, skips: bool) -> None:
        """Like `look_up`."""
        await self._find_in_slices(self._plan.partitions, replica_id, skips=skips)

    async def _find_in_slices(
        self, partitions: Sequence[RequestedPartition], replica_id: int, *, skips: bool
    ) -> None:
        plan, node = self._plan, self._node
        sessions = node.fetch_sessions
        denied: Collection[str] = ()
        if node.authorizer is not ALLOW_EVERYTHING:
            denied = names = await each_once(_named(partitions))
            if may_fetch_as(node.authorizer, self._context, replica_id):
                denied = await denied_topics(node.authorizer, self._context, Operation.READ, names)
        async for some in in_pieces(partitions):
            sessions.look_up_again(some, plan)
            session = plan.session if plan.incremental and skips else None
            if session is not None and not sessions.has(session):
                session = None
            self._find(some, replica_id, session, denied)

    def _denied(self, replica_id: int) -> Collection[str]:
        """The topics that the client may not read. Every fetch of a session checks this, because
        rights can be withdrawn (A-09)."""
        authorizer, context = self._node.authorizer, self._context
        names = dict.fromkeys(_named(self._plan.partitions))
        if not may_fetch_as(authorizer, context, replica_id):
            return names
        return {
            name for name in names if not authorizer.allows(context, Operation.READ, topic(name))
        }

    def _is_up_to_date(self, requested: RequestedPartition, partition: Partition) -> bool:
        """True if the fetch needs no answer for the partition until its offsets change."""
        log = partition.log
        return (
            log.high_watermark == requested.sent_high_watermark
            and log.log_start_offset == requested.sent_log_start_offset
            and log.loaded
            and not log.offline
            and self._bound(partition) <= requested.fetch_offset <= log.log_end_offset
            and log.log_start_offset <= requested.fetch_offset
            and (requested.last_fetched_epoch < 0 or not self._diverges(requested, partition))
        )

    def include(self, requested: RequestedPartition, partition: Partition) -> None:
        """Add a partition that has changed while this fetch is parked; see `fetch/parked.py`."""
        self._partitions[requested] = partition, _NONE

    def _resolve(self, requested: RequestedPartition, replica_id: int) -> _Resolved:
        """The partition, or the reason why it cannot be read."""
        node = self._node
        if requested.error is _UNKNOWN_TOPIC_ID:
            return None, requested.error
        partition = node.partition(requested.topic, requested.partition)
        if partition is None:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if requested.error is not _NONE:
            return partition, requested.error
        if replica_id >= 0:
            # The node has no followers: every partition has a single replica.
            return partition, ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = _NONE
        if requested.current_leader_epoch >= 0:
            error = partition.check_leader_epoch(requested.current_leader_epoch)
        return partition, error

    def partitions(self) -> list[Partition]:
        """The existing partitions of this fetch that the client may read, without those that
        `look_up` skipped."""
        return [partition for partition, _ in self._partitions.values() if partition is not None]

    def _bound(self, partition: Partition) -> int:
        log = partition.log
        return log.last_stable_offset if self._committed else log.high_watermark

    def satisfied(self) -> bool:
        """True if the fetch can be answered now: enough bytes, or an error (F-01, F-04)."""
        missing = self.min_bytes
        limited = False
        for requested, (partition, error) in self._partitions.items():
            available = self._available(requested, partition, error)
            if available < 0:
                return True
            if available:
                limited = limited or available > requested.max_bytes
                missing -= min(available, requested.max_bytes)
        if missing <= 0 or not limited:
            return missing <= 0
        return self._answer_bytes() >= self.min_bytes

    def available_bytes(self, requested: RequestedPartition) -> int:
        partition, error = self._partitions[requested]
        available = self._available(requested, partition, error)
        if available <= requested.max_bytes or partition is None:
            return available
        # The first partition with records gives a whole batch in any case (F-06).
        bound = self._bound(partition)
        first_bytes = partition.log.first_batch_bytes(requested.fetch_offset, bound)
        return max(requested.max_bytes, first_bytes)

    def _available(
        self, requested: RequestedPartition, partition: Partition | None, error: ErrorCode
    ) -> int:
        """The bytes that can be read of a partition; -1 if the fetch is to be answered, because the
        answer has an error or a diverging epoch."""
        if error is not _NONE or partition is None or partition.log.offline:
            return -1
        log, offset = partition.log, requested.fetch_offset
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return -1
        if requested.last_fetched_epoch >= 0 and self._diverges(requested, partition):
            return -1
        bound = log.last_stable_offset if self._committed else log.high_watermark
        return log.readable_bytes(offset, bound) if offset < bound else 0

    async def wait_in_slices(self, max_wait_ms: int, replica_id: int, claim: Claim) -> None:
        """Wait until the fetch is satisfied, at most for `max_wait_ms`, and not at all if the
        client has sent the next fetch of its session (`claim`), or the session is gone. Unlike
        `satisfied`, this does not look at which of the partitions is the first one with records
        (F-06), so the answer may come with fewer bytes."""
        plan, node = self._plan, self._node
        gone = plan.session is not None and not node.fetch_sessions.has(plan.session)
        if gone or claim.is_wanted:
            return
        waiting = node.parked_fetches.wait(self, max_wait_ms, plan.session, self.include)
        try:
            if plan.incremental and plan.session is not None:
                # Partitions that changed after the plan was made, and before this wait began.
                changed = [each for each in plan.session.changed if each not in self._partitions]
                await self._find_in_slices(changed, replica_id, skips=False)
            async for some in in_pieces(self._partitions.items()):
                for requested, (partition, _) in some:
                    waiting.watch(requested, partition)
                if waiting.done:
                    break
            waiting.check()
            await waiting
        finally:
            node.slices.run(waiting.forget())

    def _answer_bytes(self) -> int:
        """The size of the records in an immediate response, in bytes (F-04). The first batch of the
        first partition with records is included with its whole size (F-06)."""
        total_bytes = 0
        for requested in self._in_order():
            partition = self._partitions[requested][0]
            if partition is None:
                continue
            log, offset, bound = partition.log, requested.fetch_offset, self._bound(partition)
            available_bytes = log.readable_bytes(offset, bound)
            limit_bytes = min(requested.max_bytes, self._max_bytes - total_bytes)
            if available_bytes > limit_bytes:
                first_bytes = log.first_batch_bytes(offset, bound)
                if first_bytes <= limit_bytes:
                    available_bytes = limit_bytes
                else:
                    available_bytes = 0 if total_bytes else first_bytes
            total_bytes += available_bytes
        return total_bytes

    def _diverges(self, requested: RequestedPartition, partition: Partition) -> bool:
        """True if the client's log diverges from ours, or if the epochs cannot be read."""
        try:
            return _divergence(requested, partition) is not None
        except StorageError:
            return True

    def read(self) -> _Reply:
        """Read every partition in order until the byte limit (F-05, F-06). Partitions that do not
        exist, or that the client may not describe, come last (F-28)."""
        limit = self._remaining = min(self._max_bytes, self._node.answer_room_bytes())
        self._read(self._in_order(), limit)
        answers = self._in_answer_order()
        plan = self._plan
        included = plan.included(answers) if plan.incremental else answers
        quota = self._node.quotas.fetch
        if quota is not None and self._is_over(quota, included):
            return self._node.fetch_sessions.withhold(plan)
        self._node.metrics.fetched_bytes(limit - self._remaining)
        if plan.session is not None:
            plan.note_sent(answers)
        if self._request is not None and not self._context.throttle_ms:
            by_id = self._context.api_version >= TOPIC_IDS_SINCE
            frame = self._request.encode_response(
                plan.session_id,
                [(each.topic_id if by_id else each.topic, answer) for each, answer in included],
            )
            if frame is not None:
                return frame
        return response_of(plan.session_id, included)

    async def read_in_slices(self) -> FetchResponse:
        """Like `read`."""
        plan, node = self._plan, self._node
        limit = self._remaining = min(self._max_bytes, node.answer_room_bytes())
        partitions: Iterable[RequestedPartition] = self._partitions
        if plan.incremental:
            partitions = await in_sorted_order(partitions, turn_of)
        async for some in in_pieces(partitions):
            self._read(some, limit)
        answers = self._in_answer_order()
        response = FetchResponse(session_id=plan.session_id)
        async for part in in_pieces(answers):
            add_answers(response, plan.included(part) if plan.incremental else part)
        quota = node.quotas.fetch
        if quota is not None:
            size_bytes = 0
            for parts in codec.encode_with_pauses(response, self._context.api_version):
                size_bytes += sum(map(len, parts))
                await pause()
            if self._exceeds(quota, size_bytes):
                return node.fetch_sessions.withhold(plan)
        node.metrics.fetched_bytes(limit - self._remaining)
        if plan.session is not None:
            async for part in in_pieces(answers):
                plan.note_sent(part)
        await let_go(answers, self._answers, self._unnamed, self._missing, self._partitions)
        return response

    def _read(self, partitions: Iterable[RequestedPartition], limit: int) -> None:
        """Read partitions in their order. `limit`: the limit of all records in the answer."""
        answers, remaining = self._answers, self._remaining
        for requested in partitions:
            partition, error = self._partitions[requested]
            if partition is not None and partition is not self._node.partition(
                requested.topic, requested.partition
            ):
                # The topic was deleted while this fetch was parked.
                partition, error = None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition is None:
                self._note_error(requested, error)
                missing = _unknown(requested, error)
                is_unnamed = missing.error_code == _UNKNOWN_TOPIC_ID
                (self._unnamed if is_unnamed else self._missing).append((requested, missing))
                continue
            if error is not _NONE:
                self._note_error(requested, error)
                answers.append((requested, _failed(requested, error)))
                continue
            answer = self._read_partition(requested, partition, remaining, remaining == limit)
            if answer.records:
                remaining -= len(answer.records)
            elif answer.error_code:
                self._note_error(requested, ErrorCode(answer.error_code))
            answers.append((requested, answer))
        self._remaining = remaining

    def _note_error(self, requested: RequestedPartition, error: ErrorCode) -> None:
        """Note the error of a partition, for explanations; the oldest is forgotten. No topic has a
        longer name than TOPIC_NAME_MAX."""
        if self._peer is not None and len(requested.topic) <= TOPIC_NAME_MAX:
            errors = self._peer.fetch_errors
            errors.pop((requested.topic, requested.partition), None)
            if len(errors) >= ERRORS_KEPT_MAX:
                del errors[next(iter(errors))]
            now_ms = self._node.clock.monotonic_ms()
            errors[requested.topic, requested.partition] = error, now_ms

    def _in_answer_order(self) -> Answers:
        """The answers; those of topics without a name, and then those of other missing ones, come
        last."""
        if not (self._unnamed or self._missing):
            return self._answers
        return self._answers + self._unnamed + self._missing

    def _in_order(self) -> list[RequestedPartition]:
        """The partitions in reading order. They are sorted, because `include` appends partitions
        whose turn may be earlier."""
        if self._plan.incremental and len(self._partitions) > 1:
            return sorted(self._partitions, key=turn_of)
        return list(self._partitions)

    def _is_over(self, quota: RateQuota, included: Answers) -> bool:
        """True if the answer exceeds the rest of the client's quota. The size of such an answer is
        not charged to the quota."""
        parts = codec.encode(
            response_of(self._plan.session_id, included), self._context.api_version
        )
        return self._exceeds(quota, sum(map(len, parts)))

    def _exceeds(self, quota: RateQuota, size_bytes: int) -> bool:
        # As in Kafka, the size includes the length field.
        size_bytes += 4
        if not quota.record(self._context, size_bytes):
            return False
        quota.record_only(self._context, -size_bytes)
        return True

    def _read_partition(
        self, requested: RequestedPartition, partition: Partition, remaining: int, nothing_yet: bool
    ) -> PartitionData:
        log = partition.log
        if log.offline:
            return _failed(requested, ErrorCode.KAFKA_STORAGE_ERROR)
        bound = self._bound(partition)
        limit = min(requested.max_bytes, remaining)
        records: bytes = b""
        try:
            diverging = None
            if requested.last_fetched_epoch >= 0:
                diverging = _divergence(requested, partition)
            if diverging is not None:
                return PartitionData(
                    partition_index=requested.partition,
                    high_watermark=log.high_watermark,
                    last_stable_offset=log.last_stable_offset,
                    log_start_offset=log.log_start_offset,
                    diverging_epoch=diverging,
                    aborted_transactions=None,
                    records=b"",
                )
            # The offset is checked even if the answer has no room for records.
            if (
                limit > 0
                or nothing_yet
                or not log.log_start_offset <= requested.fetch_offset <= log.log_end_offset
            ):
                records = log.read(
                    requested.fetch_offset,
                    max(limit, 0),
                    upper_bound=bound,
                    minimum_one=nothing_yet,
                )
            aborted = None
            if self._committed:
                aborted = _aborted(partition, requested.fetch_offset, bound, records)
        except IndexesBeingRebuilt as deferred:
            # Clients that do not know OFFSET_NOT_AVAILABLE retry after NOT_LEADER_OR_FOLLOWER.
            known = self._context.api_version >= OFFSET_NOT_AVAILABLE_SINCE
            return _failed(requested, deferred.error if known else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except StorageError as error:
            return _failed(requested, error.error)
        answer = _make_answer()
        answer.partition_index = requested.partition
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = log.last_stable_offset
        answer.log_start_offset = log.log_start_offset
        answer.aborted_transactions = aborted
        answer.records = records
        return answer


def _aborted(
    partition: Partition, start: int, bound: int, records: bytes
) -> list[AbortedTransaction]:
    """The aborted transactions with records in the answer (F-08, F-09). `start`: the offset at
    which the answer begins. Raises StorageError."""
    aborted = partition.log.aborted_transactions(start, bound) if records else []
    if not aborted:
        return []
    end = 0
    for _, header in iter_batches(records):
        end = header.next_offset
    return [
        AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in aborted
        if first_offset < end
    ]


def _divergence(requested: RequestedPartition, partition: Partition) -> EpochEndOffset | None:
    """The epoch and end offset at which a client's log diverges from ours (F-12); None if the logs
    agree. The logs are compared by the epoch of the last record that the client has.

    Raises OffsetOutOfRange if the epoch is unknown. Also raises StorageError.
    """
    if requested.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.end_of_epoch(requested.last_fetched_epoch)
    if epoch < 0:
        log = partition.log
        raise OffsetOutOfRange(requested.fetch_offset, log.log_start_offset, log.log_end_offset)
    if epoch < requested.last_fetched_epoch or end_offset < requested.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _named(partitions: Iterable[RequestedPartition]) -> list[str]:
    return [each.topic for each in partitions if each.error is not _UNKNOWN_TOPIC_ID]


def _failed(requested: RequestedPartition, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=requested.partition,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def _unknown(requested: RequestedPartition, error: ErrorCode) -> PartitionData:
    """The answer for a partition that does not exist, or that the client may not describe."""
    return PartitionData(
        partition_index=requested.partition, error_code=error, high_watermark=-1, records=b""
    )


async def _failed_as_a_whole(request: FetchRequest, version: int) -> FetchResponse:
    """Kafka's answer to an isolation level that does not exist, with the session id of the
    request."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse()
    if version >= TOP_LEVEL_ERROR_SINCE:
        response.error_code, response.session_id = error, request.session_id
    if version < TOPIC_IDS_SINCE:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=asked.partition,
                        error_code=error,
                        high_watermark=-1,
                        records=b"",
                    )
                    async for asked in paced(topic.partitions)
                ],
            )
            async for topic in paced(request.topics)
        ]
    return response
