"""Fetch (key 1): read batches, now or when there are enough (rules F-01..F-11, F-14, F-15, A-09).

The partitions of a request come from its session (`fetch/sessions.py`); waiting is in `fetch/parked.py`.
"""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.fetch.sessions import Answers, FetchPlan, RequestedPartition
from odradek_broker.node import Node
from odradek_broker.partition import Partition
from odradek_broker.quotas.managers import RateQuota
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, may_fetch_as
from odradek_broker.storage.errors import IndexesBeingRebuilt, OffsetOutOfRange, StorageError
from odradek_protocol import codec
from odradek_protocol.constants import READ_COMMITTED, READ_UNCOMMITTED
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records import iter_batches
from odradek_protocol.schemas.fetch import (
    OFFSET_NOT_AVAILABLE_SINCE,
    TOP_LEVEL_ERROR_SINCE,
    TOPIC_IDS_SINCE,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)


def handle(
    node: Node, context: RequestContext, request: FetchRequest
) -> FetchResponse | Deferred[FetchResponse]:
    """Answer at once if the request's conditions are met (F-01), else park it."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _failed_as_a_whole(request, context.api_version)
    plan = node.fetch_sessions.plan(request, context.api_version)
    if isinstance(plan, ErrorCode):
        return FetchResponse(error_code=plan)
    fetch = _Fetch(node, context, request, plan)
    if request.max_wait_ms <= 0 or not plan.partitions or fetch.satisfied():
        return fetch.read()
    return node.parked_fetches.park(fetch, fetch.partitions(), request.max_wait_ms)


class _Fetch:
    """One request from its arrival to its answer."""

    __slots__ = (
        "_committed",
        "_context",
        "_max_bytes",
        "_min_bytes",
        "_node",
        "_partitions",
        "_plan",
        "_replica_id",
    )

    def __init__(
        self, node: Node, context: RequestContext, request: FetchRequest, plan: FetchPlan
    ) -> None:
        self._node = node
        self._plan = plan
        self._context = context
        self._committed = request.isolation_level == READ_COMMITTED
        self._max_bytes = min(request.max_bytes, node.config.fetch_max_bytes)
        if node.quotas.fetch is not None:
            # More at once would never be answered.
            self._max_bytes = int(min(self._max_bytes, node.quotas.fetch.most_at_once(context)))
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._replica_id = max(request.replica_id, request.replica_state.replica_id)
        self._partitions = [(requested, *self._resolve(requested)) for requested in plan.partitions]
        self._refuse_denied(context)

    def _refuse_denied(self, context: RequestContext) -> None:
        """Rights are checked in every fetch of a session, as they may be taken away (A-09)."""
        authorizer = self._node.authorizer
        named = (
            requested.topic
            for requested in self._plan.partitions
            if requested.error is ErrorCode.NONE
        )
        if may_fetch_as(authorizer, context, self._replica_id):
            denied = denied_topics(authorizer, context, Operation.READ, named)
        else:
            denied = frozenset(named)
        if denied:
            self._partitions = [
                (requested, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if requested.topic in denied
                else (requested, partition, error)
                for requested, partition, error in self._partitions
            ]

    def _resolve(self, requested: RequestedPartition) -> tuple[Partition | None, ErrorCode]:
        """The partition, or why it cannot be read."""
        node = self._node
        if requested.error is not ErrorCode.NONE:
            return None, requested.error
        partition = node.partition(requested.topic, requested.partition)
        if partition is None:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._replica_id >= 0:
            # Nobody else has a replica of anything here.
            return partition, ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = ErrorCode.NONE
        if requested.current_leader_epoch >= 0:
            error = partition.check_leader_epoch(requested.current_leader_epoch)
        return partition, error

    def partitions(self) -> list[Partition]:
        """The partitions that exist and that the client may read."""
        return [partition for _, partition, _ in self._partitions if partition is not None]

    def _bound(self, partition: Partition) -> int:
        log = partition.log
        return log.last_stable_offset if self._committed else log.high_watermark

    def satisfied(self) -> bool:
        """Whether there are enough bytes, or there is an error to tell (F-01, F-04)."""
        missing = self._min_bytes
        for requested, partition, error in self._partitions:
            if error is not ErrorCode.NONE or partition is None or partition.log.offline:
                return True
            log = partition.log
            if not log.log_start_offset <= requested.fetch_offset <= log.log_end_offset:
                return True
            if self._diverges(requested, partition):
                return True
            bound = self._bound(partition)
            if requested.fetch_offset < bound:
                available = log.readable_bytes(requested.fetch_offset, bound)
                missing -= min(available, requested.max_bytes)
        return missing <= 0

    def _diverges(self, requested: RequestedPartition, partition: Partition) -> bool:
        """Whether the client's log parts from ours, or that cannot be said."""
        try:
            return _divergence(requested, partition) is not None
        except StorageError:
            return True

    def read(self) -> FetchResponse:
        """Read every partition in order, as far as the bytes go (F-05, F-06)."""
        limit = remaining = min(self._max_bytes, self._node.answer_room_bytes())
        nothing_yet = True
        answers = []
        for requested, partition, error in self._partitions:
            if partition is not None and partition is not self._node.partition(
                requested.topic, requested.partition
            ):
                # Deleted while this fetch was parked.
                partition, error = None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition is None:
                answers.append((requested, _unknown(requested, error)))
                continue
            if error is not ErrorCode.NONE:
                answers.append((requested, _failed(requested, error)))
                continue
            answer = self._read_partition(requested, partition, remaining, nothing_yet)
            if answer.records:
                nothing_yet = False
                remaining -= len(answer.records)
            answers.append((requested, answer))
        quota = self._node.quotas.fetch
        if quota is not None and self._is_over(quota, answers):
            return self._node.fetch_sessions.withhold(self._plan)
        self._node.metrics.fetched_bytes(limit - remaining)
        response: FetchResponse = self._plan.respond(answers)
        return response

    def _is_over(self, quota: RateQuota, answers: Answers) -> bool:
        """Whether the answer would be more than the client's quota has left; it does not count then."""
        parts = codec.encode(self._plan.preview(answers), self._context.api_version)
        # With the length in front, as Kafka counts.
        size_bytes = sum(map(len, parts)) + 4
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
            if requested.fetch_offset < log.log_start_offset or limit > 0 or nothing_yet:
                records = log.read(
                    requested.fetch_offset,
                    max(limit, 0),
                    upper_bound=bound,
                    minimum_one=nothing_yet,
                )
            aborted = self._aborted(partition, requested.fetch_offset, bound, records)
        except IndexesBeingRebuilt as deferred:
            # Clients of older versions retry after the other code.
            known = self._context.api_version >= OFFSET_NOT_AVAILABLE_SINCE
            return _failed(requested, deferred.error if known else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except StorageError as error:
            return _failed(requested, error.error)
        return PartitionData(
            partition_index=requested.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )

    def _aborted(
        self, partition: Partition, start: int, bound: int, records: bytes
    ) -> list[AbortedTransaction] | None:
        """None for read_uncommitted, a list for read_committed, empty or not (F-08, F-09)."""
        if not self._committed:
            return None
        if not records:
            return []
        aborted = partition.log.aborted_transactions(start, bound)
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
    """Where a client's log, by the epoch of its last record, parts from ours (F-12); None if it does not.

    OffsetOutOfRange if nothing is known of that epoch; StorageError.
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


def _failed(requested: RequestedPartition, error: ErrorCode) -> PartitionData:
    """The answer for a partition that exists."""
    return PartitionData(
        partition_index=requested.partition,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def _unknown(requested: RequestedPartition, error: ErrorCode) -> PartitionData:
    """The answer for a partition that does not exist, or that the client may not know of."""
    return PartitionData(
        partition_index=requested.partition, error_code=error, high_watermark=-1, records=b""
    )


def _failed_as_a_whole(request: FetchRequest, version: int) -> FetchResponse:
    """As Kafka answers an isolation level that does not exist."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse(error_code=error if version >= TOP_LEVEL_ERROR_SINCE else 0)
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
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response
