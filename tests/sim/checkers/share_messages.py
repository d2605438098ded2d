"""Observes requests of share consumers and the broker's responses for `ShareDeliveries`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.sim.checkers.share_deliveries import Asked, Place, ShareDeliveries

from odradek_broker.deferred import Deferred
from odradek_broker.server.dispatch import HANDLERS
from odradek_broker.server.server import Server
from odradek_broker.share.events import Dropped, RecordsAcquired, ShareEvent
from odradek_broker.share_state import ShareKey
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.share_acknowledge import ShareAcknowledgeResponse
from odradek_protocol.schemas.share_fetch import ShareFetchResponse
from odradek_testkit.fault_control.control import FaultControl

Handle = Callable[[Any, Any, Any], Any]


def observe(server: Server, key: ApiKey, wrap: Callable[[Handle], Handle]) -> None:
    """Let requests of this API go through a wrapper of their handler.

    The wrapper is called after the injected faults, so that it sees only requests that are carried
    out.
    """
    faults = server.under_test
    assert isinstance(faults, FaultControl)
    faults.handlers[key] = faults.behind_faults(key, wrap(HANDLERS[key]))


class ShareMessages:
    """Observes the share requests of a broker. After each start of the broker, call `begin` before
    the broker gets a request."""

    def __init__(
        self,
        group_id: str,
        deliveries: ShareDeliveries,
        now_ms: Callable[[], float],
        violated: Callable[[str], None],
    ) -> None:
        self._group_id = group_id
        self._deliveries = deliveries
        self._now_ms = now_ms
        self._violated = violated
        self._server: Server | None = None

    def begin(self, server: Server) -> None:
        """Observe a broker that was just started."""
        self._server = server
        self._deliveries.restarted()
        for key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
            observe(server, key, lambda handle: self._observed(server, handle))
        partitions = server.node.share_partitions
        tell = partitions.tell

        def told(event: ShareEvent) -> None:
            if self._counts(server):
                self._happened(event)
            tell(event)

        partitions.tell = told  # type: ignore[method-assign]
        sessions = server.node.share_sessions
        left = sessions._left

        def leave(member_id: str, keys: list[ShareKey], *rest: Any) -> None:
            if self._counts(server):
                places = [Place(*key[1:]) for key in keys if key.group_id == self._group_id]
                self._deliveries.left(member_id, places, self._now_ms())
            left(member_id, keys, *rest)

        sessions._left = leave

    def _happened(self, event: ShareEvent) -> None:
        """Called when a leader has acquired records for members, or has forgotten all
        acquired records."""
        if isinstance(event, Dropped | RecordsAcquired) and event.key.group_id == self._group_id:
            place = Place(*event.key[1:])
            if isinstance(event, Dropped):
                self._deliveries.forgotten(place, self._now_ms())
                return
            for each in event.acquired:
                offsets = range(each.first_offset, each.last_offset + 1)
                self._deliveries.acquiring(place, offsets, each.delivery_count)

    def _counts(self, server: Server) -> bool:
        """False for a broker that was killed: parts of it may still be called."""
        return server is self._server

    def _told(self, problems: Iterator[str]) -> None:
        for problem in problems:
            self._violated(problem)

    def _observed(self, server: Server, handle: Handle) -> Handle:
        def observed(node: Any, context: Any, request: Any) -> Any:
            if request.group_id != self._group_id or not self._counts(server):
                return handle(node, context, request)
            asked = self._asked(request)
            waits = any(asked.values())
            begun_ms = self._now_ms()

            def answered(answer: Any) -> None:
                if self._counts(server):
                    since_ms = begun_ms if waits else self._now_ms()
                    self._answered(request, answer, asked, since_ms)

            reply = handle(node, context, request)
            if isinstance(reply, Deferred):
                reply.then(answered)
            else:
                answered(reply)
            return reply

        return observed

    def _asked(self, request: Any) -> dict[Place, list[Asked]]:
        asked: dict[Place, list[Asked]] = {}
        for topic in request.topics:
            for partition in topic.partitions:
                place = Place(topic.topic_id, partition.partition_index)
                asked[place] = [
                    each
                    for batch in partition.acknowledgement_batches
                    for each in self._deliveries.asked(
                        place,
                        request.member_id,
                        batch.first_offset,
                        batch.acknowledge_types,
                        batch.last_offset,
                        self._now_ms(),
                    )
                ]
        return asked

    def _answered(
        self, request: Any, answer: Any, asked: dict[Place, list[Asked]], since_ms: float
    ) -> None:
        if not isinstance(answer, ShareFetchResponse | ShareAcknowledgeResponse):
            return
        if answer.error_code != ErrorCode.NONE:
            return
        for place, data in _partitions(answer):
            fetched = isinstance(answer, ShareFetchResponse)
            code = data.acknowledge_error_code if fetched else data.error_code
            if code == ErrorCode.NONE:
                self._told(self._deliveries.confirmed(asked.get(place, ()), self._now_ms()))
            for each in data.acquired_records if fetched else ():
                self._told(
                    self._deliveries.acquired(
                        place,
                        request.member_id,
                        range(each.first_offset, each.last_offset + 1),
                        each.delivery_count,
                        since_ms,
                        self._now_ms(),
                    )
                )


def _partitions(answer: Any) -> Iterable[tuple[Place, Any]]:
    for topic in answer.responses:
        for data in topic.partitions:
            yield Place(topic.topic_id, data.partition_index), data
