"""Nodes that get the same Produce requests, with and without the special codec for common
requests."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import pytest

import record_codecs
from counting_randomness import CountingRandomness
from fake_verifier import FakeVerifier
from generated_codecs import dispatcher_without_common_shapes
from logs import make_marker
from node_world import NodeWorld
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.topics import RequestedTopic, create_topics
from odradek_broker.platform.fault_points import FaultPoint
from odradek_broker.request import CloseConnection, Peer, RequestContext
from odradek_broker.security.authorizer import Operation, Resource, ResourceType
from odradek_broker.server.dispatch import Dispatcher
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log_config import AppendOrigin
from odradek_broker.storage.producers.snapshot import encode_snapshot
from odradek_protocol import codec, frames
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.produce_frames import OneBatch, read_one_batch
from odradek_protocol.records import native
from odradek_protocol.schemas.produce import (
    TOPIC_IDS_SINCE,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

#: Topics by name, with their settings.
TOPICS: dict[str, dict[str, str]] = {
    "orders": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "keyed": {"cleanup.policy": "compact"},
    "packed": {"compression.type": "lz4"},
    "small": {"max.message.bytes": "300"},
    "rolling": {"segment.bytes": "1048576", "segment.ms": "1000"},
}
CONTROL_BYTES_MAX = 1_000_000
#: The prefix of the topics and transactional ids that the client may not write to.
DENIED = "denied"


class Timer:
    """A timer that `Timers` fires."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Timers:
    """The timers of a node, which fire when the test lets time pass."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._number = 0
        self._due: list[tuple[float, int, Timer]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Timer:
        timer = Timer(callback)
        self._number += 1
        heapq.heappush(self._due, (self.now_ms + delay_ms, self._number, timer))
        return timer

    def fire(self, now_ms: float) -> None:
        """Fire the timers that are due until `now_ms`."""
        while self._due and self._due[0][0] <= now_ms:
            self.now_ms, _, timer = heapq.heappop(self._due)
            if timer.callback is not None:
                timer.callback()
        self.now_ms = now_ms


class Denying:
    """An authorizer that denies some requests, and records all questions."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, str, str, str]] = []

    def allows(self, context: RequestContext, operation: Operation, resource: Resource, /) -> bool:
        self.asked.append((context.client_id, context.api_name, operation.name, resource.name))
        return not resource.name.startswith(DENIED)

    def would_allow(
        self, context: RequestContext, operation: Operation, resource: Resource, /
    ) -> bool:
        return not resource.name.startswith(DENIED)

    async def allows_any(
        self, context: RequestContext, operation: Operation, kind: ResourceType, /
    ) -> bool:
        return True


class Reached:
    """The fault points that were reached."""

    def __init__(self) -> None:
        self.points: list[FaultPoint] = []

    def reach(self, point: FaultPoint) -> None:
        self.points.append(point)


class ProduceWorld(NodeWorld):
    """A node with topics, one connection to it, and the responses and effects of its requests."""

    def __init__(self, *, common_codec: bool, **settings: str) -> None:
        self.scheduler = self.timers = Timers()
        self.randomness = CountingRandomness()
        super().__init__(
            offsets_topic_num_partitions="1",
            transaction_state_log_num_partitions="1",
            **settings,
        )
        topics = [RequestedTopic(name, 2, configs=given) for name, given in TOPICS.items()]
        records, results = create_topics(self.node.metadata, topics)
        assert {each.error for each in results} == {ErrorCode.NONE}, results
        self.node.metadata_log.commit(records)
        self.node.ensure_internal_topic("__consumer_offsets")
        self.verifier = FakeVerifier()
        self.verifier.install(self.node)
        self.fault_points = Reached()
        self.node.fault_points = self.fault_points  # type: ignore[assignment]
        self.flush()
        # Measured time grows with the appended bytes, so that request quotas have an effect.
        metrics = self.node.metrics
        metrics.now_us = lambda: 100 * metrics.appended_total
        self.dispatcher = (
            Dispatcher(self.node, CONTROL_BYTES_MAX)
            if common_codec
            else dispatcher_without_common_shapes(self.node, CONTROL_BYTES_MAX)
        )
        self.peer = Peer("10.0.0.1", 1, "PLAINTEXT")
        #: (number of the request, response as text).
        self.replies: list[tuple[int, object]] = []
        self.open: dict[int, Deferred[Any]] = {}
        self._sent = 0

    def topic_id(self, name: str) -> bytes:
        """The topic's id; for an unknown name, an id that no topic has."""
        return self.node.metadata.topic_id(name) or b"\xaa" * 16

    def send(self, frame: bytes) -> None:
        """Send one request, in a new buffer as from the network."""
        number, self._sent = self._sent, self._sent + 1
        view = memoryview(bytearray(frame))
        try:
            reply = self.dispatcher.answer(self.peer, view)
        except CloseConnection as closing:
            self.replies.append((number, f"closed: {closing}"))
            return
        self.replies.append((number, f"waits for {self.peer.throttle_ms} ms"))
        self.peer.throttle_ms = 0
        if isinstance(reply, Deferred):
            self.open[number] = reply
            reply.then(lambda value: self._replied(number, value))
        else:
            self._replied(number, reply)

    def _replied(self, number: int, reply: Any) -> None:
        self.open.pop(number, None)
        if isinstance(reply, list):
            self.replies.append((number, b"".join(reply)))
        elif isinstance(reply, CloseConnection):
            self.replies.append((number, f"closed: {reply}"))
        else:
            self.replies.append((number, "no reply"))
        self.replies.append((number, f"throttled for {self.peer.throttle_ms} ms"))
        self.peer.throttle_ms = 0

    def pass_time(self, duration_ms: int) -> None:
        """Advance the clock, which fires timers."""
        self.clock.advance(duration_ms)
        self.timers.fire(self.clock.now_ms)

    def end_transaction(self, topic: str, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Append a marker to partition 0, if its log accepts it."""
        partition = self.node.partition(topic, 0)
        if partition is not None:
            try:
                partition.append(
                    make_marker(commit, producer_id, epoch=epoch),
                    self.clock.wall_ms(),
                    AppendOrigin.COORDINATOR,
                )
            except StorageError as problem:
                self.replies.append((-1, str(problem)))

    def hang_up(self) -> None:
        """Drop the connection."""
        for waiting in list(self.open.values()):
            waiting.abandon()

    def traces(self) -> dict[str, object]:
        """All state that must be equal: files, offsets, producers, counters, log lines, waiters."""
        node, metrics = self.node, self.node.metrics
        logs = {
            log.name: (
                log.log_end_offset,
                log.high_watermark,
                log.last_stable_offset,
                log.durability.durable_offset,
                log.offline_reason,
                None if log.offline else encode_snapshot(log.producers.entries()),
                None if log.offline else len(log.producers.verifications),
                None if log.offline else [each.size_bytes for each in log.segments],
            )
            for log in self.logs
        }
        files = {
            path: (bytes(inode.content), inode.durable) for path, inode in self.files._names.items()
        }
        quotas = [
            list(quota.usages())
            for quota in (node.quotas.produce, node.quotas.request)
            if quota is not None
        ]
        return {
            "replies": self.replies,
            "open": sorted(self.open),
            "logs": logs,
            "files": files,
            "asked to flush": [repr(log) for log in self.asked],
            "requests": metrics.requests,
            "errors": metrics.errors,
            "times": {name: (each.counts, each.sum_us) for name, each in metrics.times.items()},
            "appended": metrics.appended_total,
            "throttled": (metrics.throttled_requests, metrics.throttle_time_ms),
            "quotas": quotas,
            "told": [
                [(subject, event) for subject, event, _ in history._events.values()]
                for history in (node.producer_history, node.partition_history)
            ],
            "verification": (node.verification.waiting, self.verifier.questions),
            "waits for time": len(node.request_timeouts),
            "disk": [directory.disk.problem for directory in self.logs.directories],
            "fault points": self.fault_points.points,
            "fatal": self.fatal,
        }


def check_one_batch(frame: memoryview) -> OneBatch | None:
    """Decode a request of the common form with the special codec, both compiled and pure, and with
    the generated codec.

    Checks that all of them read the same and encode the same response. Returns None if the request
    does not have the common form.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "CODEC", None)
        read = read_one_batch(frame)
        compiled = record_codecs.compiled()
        if not isinstance(compiled, str):
            patch.setattr(native, "CODEC", compiled)
            assert read_one_batch(frame) == read
    if read is None:
        return None
    header, position = frames.decode_request_header(frame)
    if header.api_version in ProduceRequest.flexible:
        position = frames.skip_tags(frame, position)
    request, end = codec.decode_at(ProduceRequest, header.api_version, frame, position)
    assert end == len(frame)
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    assert data.records is not None
    by_id = header.api_version >= TOPIC_IDS_SINCE
    assert read._replace(topic_field=b"") == OneBatch(
        header.api_version,
        header.correlation_id,
        header.client_id,
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        topic.topic_id if by_id else topic.name,
        b"",
        data.index,
        int.from_bytes(data.records[21:23], "big", signed=True),
        memoryview(data.records),
    )
    answer = PartitionProduceResponse(
        index=data.index, base_offset=2**40, log_append_time_ms=-1, log_start_offset=5
    )
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[answer]
            )
        ]
    )
    api = APIS[ApiKey.PRODUCE]
    encoded = frames.encode_response(api, header.api_version, header.correlation_id, response)
    assert b"".join(read.encode_response(2**40, -1, 5)) == b"".join(encoded)
    assert codec.encode(read.response(answer), header.api_version) == codec.encode(
        response, header.api_version
    )
    return read
