"""GetTelemetrySubscriptions and PushTelemetry, and what /metrics shows afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import otlp_messages as otlp
from at_once import at_once
from fake_node import FakeNode
from handler_calls import ask, handled
from odradek_broker.deferred import Deferred
from odradek_broker.handlers import get_telemetry_subscriptions, push_telemetry
from odradek_broker.metrics.families import gathered
from odradek_broker.metrics.telemetry import telemetry_families
from odradek_broker.request import Peer, RequestContext
from odradek_broker.telemetry import manager
from odradek_broker.telemetry.manager import client_labels
from odradek_broker.telemetry.series import GONE_KEPT_MS
from odradek_broker.telemetry.subscriptions import ClientAttributes
from odradek_protocol.compression import Codec, compress
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import uuid_text
from odradek_protocol.schemas.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from odradek_protocol.schemas.push_telemetry import PushTelemetryRequest

E = ErrorCode
ID = bytes(range(1, 17))
PREFIX = "org.apache.kafka.producer."


class World:
    """A node with a subscription to all metrics."""

    def __init__(self, **settings: str) -> None:
        self.node: Any = FakeNode(**settings)
        self.node.telemetry.subscriptions.update("s", {"metrics": "*", "interval.ms": "1000"})

    def context(self, connection: int = 1, client_id: str | None = "orders") -> RequestContext:
        self.node.peers[connection] = Peer(
            "10.0.0.7", connection, software_name="librdkafka", software_version="2.6", port=4711
        )
        return RequestContext(0, client_id, "10.0.0.7", connection, user="alice")

    def get(self, client: bytes = ID) -> Any:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=client)
        return handled(get_telemetry_subscriptions.handle(self.node, self.context(), request))

    def push(
        self, *metrics: bytes, client: bytes = ID, codec: int = 0, data: bytes | None = None
    ) -> Any:
        """Let the push interval pass, and push metrics. Returns the error code, or a Deferred if
        the answer comes later."""
        self.node.clock.advance(1000)
        found = self.node.telemetry.instances.get(client) or self.get(client)
        metrics_data = otlp.metrics_data(metrics) if data is None else data
        request = PushTelemetryRequest(
            client_instance_id=client,
            subscription_id=found.subscription_id,
            compression_type=codec,
            metrics=metrics_data,
        )
        answer = handled(push_telemetry.handle(self.node, self.context(), request))
        return answer if isinstance(answer, Deferred) else E(answer.error_code)

    def text(self) -> str:
        """The metrics of clients, as /metrics shows them."""
        found = gathered(telemetry_families(self.node))
        return b"".join(family.encoded() for family in found).decode()

    def samples(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        """The samples of /metrics by name; fails if Prometheus' own parser refuses the text."""
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(self.text()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
        return found


def test_m02_a_new_client_gets_an_id_and_its_subscription() -> None:
    world = World(telemetry_max_bytes="77777")
    answer = world.get(bytes(16))
    assert answer.client_instance_id not in (bytes(16), bytes(15) + b"\1")
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert (answer.push_interval_ms, answer.telemetry_max_bytes) == (1000, 77777)
    assert answer.requested_metrics == ["*"] and answer.delta_temporality
    assert world.get(bytes(16)).client_instance_id != answer.client_instance_id


def test_m01_telemetry_requests_need_no_right() -> None:
    world = World()
    answer = ask(world.node, GetTelemetrySubscriptionsRequest(client_instance_id=ID), 0)
    request = PushTelemetryRequest(client_instance_id=ID, subscription_id=answer.subscription_id)
    assert ask(world.node, request, 0).error_code == E.NONE


def test_m20_pushed_metrics_are_served_with_the_labels_of_their_client() -> None:
    world = World()
    sent = otlp.counter(PREFIX + "record.send.total", otlp.point(3, {"topic": "orders"}))
    delay = otlp.gauge(PREFIX + "record.queue.time.avg", otlp.point(1.5))
    assert world.push(sent, delay) is E.NONE
    assert world.push(sent, delay) is E.NONE
    samples = world.samples()
    client = {
        "client_instance_id": uuid_text(ID),
        "client_id": "orders",
        "client_software_name": "librdkafka",
        "client_software_version": "2.6",
    }
    assert samples["kafka_client_producer_record_send_total"] == [
        ({**client, "topic": "orders"}, 6)
    ]
    assert samples["kafka_client_producer_record_queue_time_avg"] == [(client, 1.5)]
    assert samples["kafka_server_client_metrics_plugin_export_count_total"] == [({}, 2)]
    assert samples["odradek_client_telemetry_series"] == [({}, 2)]


def test_m20_a_metric_pushed_with_several_types_is_untyped() -> None:
    world = World()
    world.push(otlp.gauge("a.total", otlp.point(1)))
    world.push(otlp.counter("a.total", otlp.point(2)), client=bytes(16)[:-1] + b"\7")
    world.push(otlp.counter("a", otlp.point(3)), client=bytes(16)[:-1] + b"\x08")
    assert "# TYPE kafka_client_a_total untyped" in world.text()
    assert sorted(value for _, value in world.samples()["kafka_client_a_total"]) == [1, 2, 3]


def test_hostile_names_and_values_leave_the_metrics_readable() -> None:
    world = World()
    world.push(
        otlp.gauge('a"b\n{}#\x00', otlp.point(1.0, {"l\n": '"\\\n\x00', "le": "x"})),
        otlp.gauge("__name__", otlp.point(2.0, {"__name__": "x", "9": "y"})),
        otlp.gauge("c", *map(otlp.point, (float("nan"), float("inf")))),
    )
    samples = world.samples()
    assert samples["kafka_client_a_b"][0][0]["l"].startswith('"\\')
    assert samples["kafka_client_name"][0][1] == 2.0
    assert "kafka_client_c" not in samples


def test_m23_left_out_series_are_counted_by_limit() -> None:
    world = World(telemetry_max_series="3", telemetry_max_series_per_client="2")
    points = [otlp.point(1, {"n": str(number)}) for number in range(4)]
    assert world.push(otlp.gauge("a", *points)) is E.NONE
    world.push(otlp.gauge("a", *points), client=bytes(15) + b"\7")
    samples = world.samples()
    left_out = {labels["limit"]: value for labels, value in samples[_LEFT_OUT]}
    assert left_out == {"client": 4, "broker": 1, "characters": 0}
    assert samples["odradek_client_telemetry_series"] == [({}, 3)]
    assert samples["odradek_client_telemetry_series_limit"] == [({}, 3)]


_LEFT_OUT = "odradek_client_telemetry_left_out_total"


def test_m24_the_metrics_of_a_gone_client_are_removed_after_a_while() -> None:
    world = World()
    world.push(otlp.gauge("a", otlp.point(1)))
    world.node.telemetry.connection_closed(1)
    world.node.telemetry.expire()
    assert "kafka_client_a" in world.samples()
    world.node.clock.advance(GONE_KEPT_MS)
    world.node.telemetry.expire()
    assert "kafka_client_a" not in world.samples()


def test_m24_metrics_without_a_terminating_push_are_kept_until_the_next_push() -> None:
    world = World()
    world.node.telemetry.subscriptions.update("s", {"metrics": "*", "interval.ms": "3600000"})
    found = world.get()
    count = otlp.metrics_data([otlp.counter("a", otlp.point(1))])
    for last in (False, True):
        request = PushTelemetryRequest(
            client_instance_id=ID,
            subscription_id=found.subscription_id,
            terminating=last,
            metrics=count,
        )
        handled(push_telemetry.handle(world.node, world.context(), request))
        world.node.telemetry.connection_closed(1)
        world.node.clock.advance(GONE_KEPT_MS)
        world.node.telemetry.expire()
        assert ("kafka_client_a_total" in world.samples()) is not last
        world.node.clock.advance(3_600_000)


def test_m12_an_unreadable_push_is_an_invalid_record() -> None:
    world = World()
    assert world.push(data=b"\x0a\x7f") is E.INVALID_RECORD
    assert world.push(data=b"") is E.NONE
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        answer = world.push(data=b"\x0a\x7f" * 1000, codec=codec)
        assert answer is E.INVALID_RECORD
    samples = world.samples()
    assert samples["kafka_server_client_metrics_plugin_error_count_total"] == [({}, 5)]


@pytest.mark.parametrize("codec", list(Codec))
def test_m12_a_large_push_is_read_in_the_background(codec: Codec) -> None:
    world = World()
    begun: list[Any] = []
    world.node.telemetry._reads._background = lambda *job: begun.append(job)
    many = [otlp.gauge(f"a.{number}", otlp.point(1, {"k": "v" * 200})) for number in range(300)]
    data = compress(codec, otlp.metrics_data(many))
    first, second = (world.push(data=data, codec=codec) for _ in range(2))
    assert not first.done and len(begun) == 1
    (work, done) = begun.pop()
    work()
    done(None)
    assert first.result().error_code == E.NONE and not second.done
    assert len(world.samples()["kafka_client_a_299"]) == 1
    done = begun.pop()[1]
    done(InterruptedError("the broker is stopping"))
    assert second.result().error_code == E.INVALID_RECORD


def test_m13_pushes_that_wait_for_the_reader_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "WAITING_MAX", 1)
    world = World()
    world.node.telemetry._reads._background = lambda *_: None
    data = otlp.metrics_data([otlp.gauge("a", otlp.point(1))] * 1000)
    answers = [world.push(data=data) for _ in range(3)]
    assert [isinstance(each, Deferred) for each in answers] == [True, True, False]
    assert answers[2] is E.THROTTLING_QUOTA_EXCEEDED


def test_metrics_of_a_client_that_left_during_its_push_are_removed() -> None:
    world = World()
    begun: list[Any] = []
    world.node.telemetry._reads._background = lambda *job: begun.append(job)
    world.push(*[otlp.gauge("a", otlp.point(1))] * 1000)
    world.node.telemetry.connection_closed(1)
    work, done = begun.pop()
    work()
    done(None)
    world.node.clock.advance(GONE_KEPT_MS)
    world.node.telemetry.expire()
    assert world.node.telemetry.series.series == 0


def test_m04_long_client_ids_are_shortened() -> None:
    attributes = ClientAttributes("id", "\x1b" * 300, "s", "", "h", "1")
    assert client_labels(attributes) == {
        "client_instance_id": "id",
        "client_id": "\N{REPLACEMENT CHARACTER}" * 255,
        "client_software_name": "s",
    }
    world = World()
    context = world.context(client_id="x" * 30_000)
    _, instance = at_once(world.node.telemetry.get(context, ID))
    assert len(instance.attributes.client_id) == 256
