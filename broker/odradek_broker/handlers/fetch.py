"""Fetch (key 1): read batches, now or when there are enough (rules F-01..F-11, F-14, F-15, A-09).

Which partitions a request means is the session's business (`fetch_sessions.py`); how bytes are read
is the log's.
"""

from __future__ import annotations

from odradek_broker.authorizer import Operation, denied_topics, may_fetch_as
from odradek_broker.context import RequestContext
from odradek_broker.fetch_sessions import FetchPlan, Wanted
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_broker.partition import Partition
from odradek_broker.storage.errors import IndexesBeingRebuilt, OffsetOutOfRange, StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records import iter_batches
from odradek_protocol.schemas.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
_TOP_LEVEL_ERROR_SINCE = 7
_TOPIC_IDS_SINCE = 13
_NOT_AVAILABLE_SINCE = 11


def handle(
    node: Node, context: RequestContext, request: FetchRequest
) -> FetchResponse | Later[FetchResponse]:
    """Answer at once if the request's conditions are met (F-01), else park it."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _failed_as_a_whole(request, context.api_version)
    plan = node.fetch_sessions.plan(request, context.api_version)
    if isinstance(plan, ErrorCode):
        return FetchResponse(error_code=plan)
    fetch = _Fetch(node, context, request, plan)
    if request.max_wait_ms <= 0 or not plan.wanted or fetch.satisfied():
        return fetch.read()
    return fetch.park(request.max_wait_ms)


class _Fetch:
    """One request from its arrival to its answer."""

    __slots__ = (
        "_committed",
        "_later",
        "_max_bytes",
        "_min_bytes",
        "_node",
        "_partitions",
        "_plan",
        "_replica_id",
        "_timer",
        "_version",
    )

    def __init__(
        self, node: Node, context: RequestContext, request: FetchRequest, plan: FetchPlan
    ) -> None:
        self._node = node
        self._plan = plan
        self._version = context.api_version
        self._committed = request.isolation_level == READ_COMMITTED
        self._max_bytes = min(request.max_bytes, node.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._replica_id = max(request.replica_id, request.replica_state.replica_id)
        self._partitions = [
            (wanted, *self._resolve(wanted, context.api_version)) for wanted in plan.wanted
        ]
        self._refuse_denied(context, request)
        self._later: Later[FetchResponse] | None = None
        self._timer: object = None

    def _refuse_denied(self, context: RequestContext, request: FetchRequest) -> None:
        """A-09. Asked with every fetch, for rights may be taken away; an unknown id has no name."""
        authorizer = self._node.authorizer
        named = (wanted.topic for wanted in self._plan.wanted if wanted.error is ErrorCode.NONE)
        if may_fetch_as(authorizer, context, self._replica_id):
            denied = denied_topics(authorizer, context, Operation.READ, named)
        else:
            denied = frozenset(named)
        if denied:
            self._partitions = [
                (wanted, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if wanted.topic in denied
                else (wanted, partition, error)
                for wanted, partition, error in self._partitions
            ]

    def _resolve(self, wanted: Wanted, version: int) -> tuple[Partition | None, ErrorCode]:
        """The partition, or why it cannot be read."""
        node = self._node
        if wanted.error is not ErrorCode.NONE:
            return None, wanted.error
        partition = node.partition(wanted.topic, wanted.partition)
        if partition is None:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._replica_id >= 0:
            # Nobody else has a replica of anything here.
            return partition, ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = ErrorCode.NONE
        if wanted.current_leader_epoch >= 0:
            error = node.check_leader_epoch(partition, wanted.current_leader_epoch)
        return partition, error

    def _bound(self, partition: Partition) -> int:
        log = partition.log
        return log.last_stable_offset if self._committed else log.high_watermark

    def satisfied(self) -> bool:
        """True if waiting longer could not be asked for: enough bytes, or an error (F-01, F-04)."""
        missing = self._min_bytes
        for wanted, partition, error in self._partitions:
            if error is not ErrorCode.NONE or partition is None or partition.log.offline:
                return True
            log = partition.log
            if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
                return True
            if self._diverges(wanted, partition):
                return True
            bound = self._bound(partition)
            if wanted.fetch_offset < bound:
                available = log.readable_bytes(wanted.fetch_offset, bound)
                missing -= min(available, wanted.max_bytes)
        return missing <= 0

    def _diverges(self, wanted: Wanted, partition: Partition) -> bool:
        """Must the client be told of its epoch, or of an error?"""
        try:
            return _divergence(wanted, partition) is not None
        except StorageError:
            return True

    def read(self) -> FetchResponse:
        """Read every partition in order, as far as the bytes go (F-05, F-06)."""
        limit = remaining = min(self._max_bytes, self._node.answer_room_bytes())
        nothing_yet = True
        answers = []
        for wanted, partition, error in self._partitions:
            if partition is not None and partition is not self._node.partition(
                wanted.topic, wanted.partition
            ):
                # Deleted while this fetch was parked.
                partition, error = None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition is None:
                answers.append((wanted, _unknown(wanted, error)))
                continue
            if error is not ErrorCode.NONE:
                answers.append((wanted, _failed(wanted, error)))
                continue
            answer = self._read_partition(wanted, partition, remaining, nothing_yet)
            if answer.records:
                nothing_yet = False
                remaining -= len(answer.records)
            answers.append((wanted, answer))
        self._node.metrics.fetched_bytes(limit - remaining)
        response: FetchResponse = self._plan.respond(answers)
        return response

    def _read_partition(
        self, wanted: Wanted, partition: Partition, remaining: int, nothing_yet: bool
    ) -> PartitionData:
        log = partition.log
        if log.offline:
            return _failed(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
        bound = self._bound(partition)
        limit = min(wanted.max_bytes, remaining)
        records: bytes = b""
        try:
            diverging = _divergence(wanted, partition)
            if diverging is not None:
                return PartitionData(
                    partition_index=wanted.partition,
                    high_watermark=log.high_watermark,
                    last_stable_offset=log.last_stable_offset,
                    log_start_offset=log.log_start_offset,
                    diverging_epoch=diverging,
                    aborted_transactions=None,
                    records=b"",
                )
            if wanted.fetch_offset < log.log_start_offset or limit > 0 or nothing_yet:
                records = log.read(
                    wanted.fetch_offset,
                    max(limit, 0),
                    upper_bound=bound,
                    minimum_one=nothing_yet,
                )
            aborted = self._aborted(partition, wanted.fetch_offset, bound, records)
        except IndexesBeingRebuilt as later:
            # Whoever does not know the one asks again after the other.
            known = self._version >= _NOT_AVAILABLE_SINCE
            return _failed(wanted, later.error if known else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except StorageError as error:
            return _failed(wanted, error.error)
        return PartitionData(
            partition_index=wanted.partition,
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

    # --- Waiting ---

    def park(self, max_wait_ms: int) -> Later[FetchResponse]:
        """Wait for bytes, for a bound that moves, or for the deadline (F-01, F-03)."""
        later: Later[FetchResponse] = Later()
        later.on_abandon = self._leave
        self._later = later
        for _, partition, _ in self._partitions:
            if partition is not None:
                partition.data_waiters[self._woken] = None
        self._node.parked_fetches[self._finish] = None
        self._timer = self._node.call_later(max_wait_ms, self._finish)
        return later

    def _woken(self) -> None:
        if self.satisfied():
            self._finish()

    def _leave(self) -> None:
        for _, partition, _ in self._partitions:
            if partition is not None:
                partition.data_waiters.pop(self._woken, None)
        self._node.parked_fetches.pop(self._finish, None)
        self._node.cancel(self._timer)

    def _finish(self) -> None:
        self._leave()
        if self._later is not None and not self._later.done:
            self._later.resolve(self.read())


def _divergence(wanted: Wanted, partition: Partition) -> EpochEndOffset | None:
    """Where the log of a client that names the epoch of its last record parts from ours (F-12);
    None if it does not. OffsetOutOfRange if nothing is known of that epoch; StorageError."""
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.end_of_epoch(wanted.last_fetched_epoch)
    if epoch < 0:
        log = partition.log
        raise OffsetOutOfRange(wanted.fetch_offset, log.log_start_offset, log.log_end_offset)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _failed(wanted: Wanted, error: ErrorCode) -> PartitionData:
    """The answer for a partition that is there."""
    return PartitionData(
        partition_index=wanted.partition,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def _unknown(wanted: Wanted, error: ErrorCode) -> PartitionData:
    """The answer for a partition that is not there, or that the client may not know of."""
    return PartitionData(
        partition_index=wanted.partition, error_code=error, high_watermark=-1, records=b""
    )


def _failed_as_a_whole(request: FetchRequest, version: int) -> FetchResponse:
    """As Kafka answers an isolation level that does not exist."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse(error_code=error if version >= _TOP_LEVEL_ERROR_SINCE else 0)
    if version < _TOPIC_IDS_SINCE:
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
