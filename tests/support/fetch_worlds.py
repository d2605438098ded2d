"""Two brokers with disks in memory get the same Fetch requests, and one of the brokers has no
optimised path. The responses of both are compared."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from counting_randomness import CountingRandomness
from generated_codecs import dispatcher_without_common_shapes
from logs import append, append_marker, make_batch
from node_world import NodeWorld, SoonScheduler
from odradek_broker.deferred import Deferred
from odradek_broker.fetch.sessions import RequestedPartition
from odradek_broker.request import CloseConnection, Peer
from odradek_broker.security.authorizer import AllowEverything
from odradek_broker.server.dispatch import Dispatcher
from odradek_broker.storage.errors import StorageError
from odradek_protocol import frames
from odradek_protocol.message import Message
from odradek_testkit.simulation.disk import DiskFailure

#: The attributes of a partition in a fetch session that must be equal in both worlds.
_KEPT = [
    field.name
    for field in fields(RequestedPartition)
    if field.name not in ("turn", "session", "up_to_date_at")
]


class _Numbers(CountingRandomness):
    """Randomness for session ids: distinct numbers, the same in both worlds."""

    def below(self, bound: int) -> int:
        self.calls += 1
        return self.calls % bound


class _Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Timers(SoonScheduler):
    """Timers that fire when the test moves the world's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, _Timer, Callable[[], None]]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Any:
        if delay_ms == 0:
            return super().call_later(delay_ms, callback)
        timer = _Timer()
        heapq.heappush(self._due, (self.now_ms + delay_ms, next(self._order), timer, callback))
        return timer

    def advance(self, by_ms: float) -> None:
        until = self.now_ms + by_ms
        while self._due and self._due[0][0] <= until:
            self.now_ms, _, timer, callback = heapq.heappop(self._due)
            if not timer.cancelled:
                callback()
        self.now_ms = until


class FetchWorld(NodeWorld):
    """A broker, and its responses as bytes, by the number of the request."""

    def __init__(self, *, short_cuts: bool, **settings: str) -> None:
        self.scheduler = self.timers = Timers()
        self.randomness = _Numbers()
        super().__init__(**settings)
        if not short_cuts:
            # This authorizer has to be asked for every partition.
            self.node.authorizer = AllowEverything()
        # Measured time grows with the bytes of the responses, so that request quotas have an
        # effect.
        metrics = self.node.metrics
        metrics.now_us = lambda: 100 * metrics.fetched_total
        make_dispatcher = Dispatcher if short_cuts else dispatcher_without_common_shapes
        self.dispatcher = make_dispatcher(self.node, 1 << 20)
        self.peers: dict[int, Peer] = {}
        self.answers: dict[int, bytes | str] = {}
        self.held: dict[int, Deferred[Any]] = {}
        self._numbers = itertools.count()

    def send(self, frame: bytes, connection: int = 1) -> int:
        """Send a request. Returns its number, by which `answers` has the response, perhaps only
        later."""
        number = next(self._numbers)
        peer = self.peers.setdefault(connection, Peer("/127.0.0.1", connection))
        try:
            reply = self.dispatcher.answer(peer, memoryview(bytearray(frame)))
        except CloseConnection as problem:
            # The broker closes the connection.
            self.answers[number] = str(problem)
            return number
        if isinstance(reply, Deferred):
            self.held[number] = reply
            reply.then(lambda value: self._answered(number, value))
        else:
            self._answered(number, reply)
        return number

    def _answered(self, number: int, reply: Any) -> None:
        self.held.pop(number, None)
        told = b"".join(reply) if isinstance(reply, list) else repr(reply)
        assert number not in self.answers, "answered twice"
        self.answers[number] = told

    def ask(self, request: Message, version: int, connection: int = 1) -> int:
        parts = frames.encode_request(request, version, 7, f"client-{connection}")
        return self.send(b"".join(parts)[4:], connection)

    def abandon(self, number: int) -> None:
        """Drop the connection of a waiting request."""
        held = self.held.pop(number, None)
        if held is not None:
            held.abandon()

    # --- Changes of partitions

    def append(self, name: str, partition: int, count: int, **batch: Any) -> None:
        found = self.node.partition(name, partition)
        if found is not None and not found.log.offline:
            try:
                append(found.log, make_batch(count, **batch))
            except StorageError:
                return
            self.asked[found.log.durability] = None

    def end_transaction(self, name: str, partition: int, producer_id: int, *, commit: bool) -> None:
        found = self.node.partition(name, partition)
        if found is not None and not found.log.offline:
            try:
                append_marker(found.log, commit, producer_id)
            except StorageError:
                return
            self.asked[found.log.durability] = None

    def delete_records(self, name: str, partition: int, offset: int) -> None:
        found = self.node.partition(name, partition)
        if found is not None and not found.log.offline:
            found.log.trimming.delete_records(min(offset, found.log.high_watermark))

    def fail_reads(self, name: str, partition: int) -> None:
        """Let all reads of a partition fail until the disk is repaired.

        A number of failing reads would not be comparable, because the two worlds do not read the
        disk equally often.
        """
        self.files.fail(DiskFailure("read", path_part=f"data/{name}-{partition}/", for_ever=True))

    def take_offline(self, name: str, partition: int) -> None:
        found = self.node.partition(name, partition)
        if found is not None:
            found.log.take_offline("a test")

    def raise_epoch(self, name: str) -> None:
        """Raise the leader epoch of all partitions of a topic, as a start does."""
        if name in self.node.metadata.topics:
            self.node.metadata.topics_version += 1
            for topic, _, partition in self.node.replicas.partitions():
                if topic == name:
                    partition.leader_epoch += 1

    def advance(self, by_ms: int) -> None:
        self.clock.now_ms += by_ms
        self.timers.advance(by_ms)

    def settle_metadata(self) -> None:
        """Wait until all metadata is durable and applied."""
        while self.asked:
            self.flush()
            self.timers.run()

    # --- Comparison

    def state(self) -> dict[str, Any]:
        """The state that must be equal: responses, sessions, parked fetches, counters, disk errors
        and waiters."""
        sessions = self.node.fetch_sessions
        metrics = self.node.metrics
        return {
            "answers": dict(self.answers),
            "waiting": sorted(self.held),
            "parked": len(self.node.parked_fetches),
            "sessions": {
                session.id: (
                    session.epoch,
                    session.used_ms,
                    session.uses_topic_ids,
                    [
                        [getattr(requested, name) for name in _KEPT]
                        for requested in sorted(
                            session.partitions.values(), key=lambda requested: requested.turn
                        )
                    ],
                )
                for session in sessions.by_id.values()
            },
            "held partitions": sessions._partitions,
            "requests": metrics.requests,
            "errors": metrics.errors,
            "times": {name: sum(found.counts) for name, found in metrics.times.items()},
            "fetched": metrics.fetched_total,
            "throttled": (metrics.throttled_requests, metrics.throttle_time_ms),
            "waits": {number: peer.throttle_ms for number, peer in self.peers.items()},
            "unreadable": [dict(each.disk.unreadable) for each in self.logs.directories],
        }

    def check_up_to_date(self) -> None:
        """Check that each partition watches exactly the sessions that are up to date with it, and
        that these sessions still exist."""
        kept = {
            requested
            for session in self.node.fetch_sessions.by_id.values()
            for requested in session.partitions.values()
        }
        for session in self.node.fetch_sessions.by_id.values():
            for requested in session.partitions.values():
                up_to_date = requested.up_to_date_at is not None
                assert up_to_date is not (requested in session.changed)
            assert set(session.changed) <= kept
        for _, _, partition in self.node.replicas.partitions():
            for found in partition.up_to_date_sessions:
                assert isinstance(found, RequestedPartition) and found in kept
                assert found.up_to_date_at is partition
