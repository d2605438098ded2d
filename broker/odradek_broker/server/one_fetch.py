"""The short road of Fetch: one partition, or what has moved of a session, without decoding, handler
and encoding.

Whatever is unusual takes the ordinary road (`dispatch.py`, `handlers/fetch.py`), before anything
has happened. What turns out to be unusual when it is read, an error above all, is read by the
ordinary road. Tests send the same requests both ways, and hold answers, sessions and counters
equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.fetch.available import answer_bytes
from odradek_broker.fetch.sessions import FetchPlan, RequestedPartition, Session
from odradek_broker.handlers.fetch import Fetch, aborted_in, divergence
from odradek_broker.node import Node
from odradek_broker.partition import Partition
from odradek_broker.request import EncodedReply, HandlerReply, RequestContext
from odradek_broker.security.authorizer import ALLOW_EVERYTHING
from odradek_broker.server.one_batch import UNUSUAL, Unusual
from odradek_broker.storage.errors import StorageError
from odradek_protocol.constants import (
    INITIAL_SESSION_EPOCH,
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.fetch_frames import FetchedPartition, OneFetch, fetch_answer, read_one_fetch
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.fetch import TOPIC_IDS_SINCE

_NAME = APIS[ApiKey.FETCH].name
_NONE = ErrorCode.NONE

P = TypeVar("P")
#: Ends a request on the ordinary road: who asks, the frame, when it came, and what reads the
#: answer.
End = Callable[[P, memoryview, int, Callable[[RequestContext], HandlerReply]], EncodedReply]


class OneFetchRoad(Generic[P]):
    """Answers Fetch requests of consumers on a node without quotas and authorizer.

    `frame_bytes_max`: of a request. `P`: who asks, which only the ordinary road wants to know.
    """

    __slots__ = ("_frame_bytes_max", "_node", "end")

    def __init__(self, node: Node, frame_bytes_max: int, end: End[P]) -> None:
        self._node = node
        self._frame_bytes_max = frame_bytes_max
        self.end = end

    def answer(self, peer: P, frame: memoryview) -> EncodedReply | Deferred[EncodedReply] | Unusual:
        """The reply to one request, now or later; UNUSUAL if it is not for this road."""
        node = self._node
        quotas = node.quotas
        if (
            quotas.fetch is not None
            or quotas.request is not None
            or node.authorizer is not ALLOW_EVERYTHING
            or len(frame) > self._frame_bytes_max
        ):
            return UNUSUAL
        request = read_one_fetch(frame)
        if request is None or not READ_UNCOMMITTED <= request.isolation_level <= READ_COMMITTED:
            return UNUSUAL
        if request.session_epoch > INITIAL_SESSION_EPOCH:
            plan = self._of_session(request)
        else:
            plan = self._alone(request)
        if plan is None:
            return UNUSUAL
        session, looked_at = plan
        reading = _Reading(self, node, peer, frame, request, session, looked_at)
        if request.max_wait_ms <= 0 or reading.satisfied():
            return reading.read()
        return node.parked_fetches.park(
            reading, list(looked_at.values()), request.max_wait_ms, session
        )

    def _alone(self, request: OneFetch) -> _Plan | None:
        """Without a session."""
        if (
            request.session_epoch == INITIAL_SESSION_EPOCH
            or request.session_id
            or not request.topic
        ):
            return None
        node = self._node
        topic, topic_id = request.topic, ZERO_UUID
        if not isinstance(topic, str):
            topic_id = topic
            topic = node.metadata.topic_name(topic_id) or ""
        partition = node.partition(topic, request.partition)
        if partition is None or not _can_be_read(request, partition):
            return None
        requested = RequestedPartition(
            topic,
            topic_id,
            request.partition,
            request.fetch_offset,
            request.partition_max_bytes,
            request.current_leader_epoch,
            request.last_fetched_epoch,
        )
        return None, {requested: partition}

    def _of_session(self, request: OneFetch) -> _Plan | None:
        """Incremental: the partition that is asked for, if one is, and those that have moved."""
        node = self._node
        sessions = node.fetch_sessions
        session = sessions.at_rest(
            request.session_id, request.session_epoch, request.isolation_level, request.version
        )
        if session is None:
            return None
        asked: RequestedPartition | None = None
        found: dict[RequestedPartition, Partition] = {}
        if request.topic:
            asked = session.partitions.get((request.topic, request.partition))
            if asked is None:
                return None
            partition = node.partition(asked.topic, asked.partition)
            if partition is None or asked.error or not _can_be_read(request, partition):
                return None
            found[asked] = partition
        for requested in session.attention:
            if requested is not asked:
                partition = node.partition(requested.topic, requested.partition)
                if partition is None or requested.error or not _can_be_read(requested, partition):
                    return None
                found[requested] = partition
        sessions.go_on(session)
        if asked is not None:
            session.look_at(asked)
            asked.update(request)
        committed = request.isolation_level == READ_COMMITTED
        looked_at: dict[RequestedPartition, Partition] = {}
        for requested, partition in found.items():
            log = partition.log
            bound = log.last_stable_offset if committed else log.high_watermark
            if (
                log.high_watermark == requested.sent_high_watermark
                and log.log_start_offset == requested.sent_log_start_offset
                and bound <= requested.fetch_offset
            ):
                session.settle(requested, partition)
            else:
                looked_at[requested] = partition
        return session, looked_at


_Plan = tuple[Session | None, dict[RequestedPartition, Partition]]


def _can_be_read(asked: OneFetch | RequestedPartition, partition: Partition) -> bool:
    """Whether there is no error to tell of a partition."""
    log = partition.log
    return (
        log.loaded
        and not log.offline
        and log.log_start_offset <= asked.fetch_offset <= log.log_end_offset
        and asked.current_leader_epoch in (-1, partition.leader_epoch)
        and (asked.last_fetched_epoch < 0 or asked.last_fetched_epoch == partition.leader_epoch)
    )


class _Reading(Generic[P]):
    """One request from its arrival to its answer. See `fetch/parked.py`."""

    __slots__ = (
        "_committed",
        "_frame",
        "_looked_at",
        "_max_bytes",
        "_min_bytes",
        "_node",
        "_peer",
        "_request",
        "_road",
        "_session",
        "_started_us",
    )

    def __init__(
        self,
        road: OneFetchRoad[P],
        node: Node,
        peer: P,
        frame: memoryview,
        request: OneFetch,
        session: Session | None,
        looked_at: dict[RequestedPartition, Partition],
    ) -> None:
        self._road = road
        self._node = node
        self._peer = peer
        self._frame = frame
        self._request = request
        self._session = session
        self._looked_at = looked_at
        self._started_us = node.metrics.now_us()
        self._committed = request.isolation_level == READ_COMMITTED
        self._max_bytes = min(request.max_bytes, node.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)

    def include(self, requested: RequestedPartition, partition: Partition) -> None:
        """See `Fetch`."""
        self._looked_at[requested] = partition

    def _is_readable(self, requested: RequestedPartition, partition: Partition) -> bool:
        """Whether there is still no error to tell."""
        log = partition.log
        if log.offline or not log.log_start_offset <= requested.fetch_offset <= log.log_end_offset:
            return False
        epoch = requested.last_fetched_epoch
        if epoch < 0 or epoch == partition.leader_epoch:
            return True
        try:
            return divergence(requested, partition) is None
        except StorageError:
            return False

    def satisfied(self) -> bool:
        """Whether there are enough bytes, or there is an error to tell (F-01, F-04)."""
        missing = self._min_bytes
        limited = False
        for requested, partition in self._looked_at.items():
            if not self._is_readable(requested, partition):
                return True
            log = partition.log
            bound = log.last_stable_offset if self._committed else log.high_watermark
            if requested.fetch_offset < bound:
                available = log.readable_bytes(requested.fetch_offset, bound)
                limited = limited or available > requested.max_bytes
                missing -= min(available, requested.max_bytes)
        if missing <= 0 or not limited:
            return missing <= 0
        logs = ((each, self._looked_at[each].log) for each in self._in_order())
        reads = (
            (each, log, log.last_stable_offset if self._committed else log.high_watermark)
            for each, log in logs
        )
        return answer_bytes(reads, self._max_bytes) >= self._min_bytes

    def _in_order(self) -> list[RequestedPartition]:
        """The partitions as they are read: those of a session by their turn."""
        in_order = list(self._looked_at)
        if len(in_order) > 1:
            in_order.sort(key=_turn)
        return in_order

    def read(self) -> EncodedReply:
        """Every partition in order, as far as the bytes go (F-05, F-06)."""
        node, session = self._node, self._session
        if node.quotas.fetch is not None:
            return self._read_ordinarily()
        limit = remaining = min(self._max_bytes, node.answer_room_bytes())
        looked_at = self._looked_at
        told: list[tuple[RequestedPartition, FetchedPartition]] = []
        nothing_yet = True
        for requested in self._in_order():
            partition = looked_at[requested]
            there = node.partition(requested.topic, requested.partition)
            if there is not partition or not self._is_readable(requested, partition):
                return self._read_ordinarily()
            try:
                found = self._read(requested, partition, remaining, nothing_yet)
            except StorageError:
                return self._read_ordinarily()
            if found.records:
                nothing_yet = False
                remaining -= len(found.records)
            elif (
                session is not None
                and found.high_watermark == requested.sent_high_watermark
                and found.log_start_offset == requested.sent_log_start_offset
            ):
                continue
            told.append((requested, found))
        node.metrics.fetched_bytes(limit - remaining)
        for requested, found in told if session is not None else ():
            requested.sent_high_watermark = found.high_watermark
            requested.sent_log_start_offset = found.log_start_offset
            if found.records and session is not None:
                session.move_to_end(requested)
        request = self._request
        node.metrics.request_counted(_NAME, request.version, self._started_us)
        return fetch_answer(
            request.version,
            request.correlation_id,
            0 if session is None else session.id,
            [found for _, found in told],
        )

    def _read(
        self,
        requested: RequestedPartition,
        partition: Partition,
        remaining: int,
        nothing_yet: bool,
    ) -> FetchedPartition:
        log = partition.log
        offset = requested.fetch_offset
        bound = log.last_stable_offset if self._committed else log.high_watermark
        records = b""
        at_most = min(requested.max_bytes, remaining)
        if offset < bound and (at_most > 0 or nothing_yet):
            records = log.read(offset, max(at_most, 0), upper_bound=bound, minimum_one=nothing_yet)
        aborted: list[tuple[int, int]] | None = None
        if self._committed:
            aborted = aborted_in(partition, offset, bound, records) if records else []
        return FetchedPartition(
            requested.topic_id if self._request.version >= TOPIC_IDS_SINCE else requested.topic,
            requested.partition,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted,
            records,
        )

    def _read_ordinarily(self) -> EncodedReply:
        return self._road.end(self._peer, self._frame, self._started_us, self._handled)

    def _handled(self, context: RequestContext) -> HandlerReply:
        session, request = self._session, self._request
        plan = FetchPlan(list(self._looked_at), session, incremental=session is not None)
        fetch = Fetch(
            self._node, context, plan, request.isolation_level, self._max_bytes, self._min_bytes
        )
        for requested, partition in self._looked_at.items():
            fetch.include(requested, partition)
        return fetch.read()


def _turn(requested: RequestedPartition) -> int:
    return requested.turn
