"""Spans and metrics of OpenTelemetry, with the in-memory exporters of its SDK."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from odradek import Admin, ConfigResource, Consumer, NewTopic, Producer, ShareConsumer, otel
from odradek.broker import SubprocessBroker
from odradek.otel import instrument, processing, uninstrument
from odradek_client import sync
from odradek_client.errors import RecordTooLarge
from task_killer import Ending, TaskKiller


class Telemetry:
    """Providers of OpenTelemetry whose spans and metrics a test can read."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])
        self.providers: Any = {"tracer_provider": self.tracers, "meter_provider": self.meters}

    def spans(self, name: str) -> list[ReadableSpan]:
        """The finished spans of an operation, oldest first."""
        return [span for span in self._exporter.get_finished_spans() if name in span.name.split()]

    def attributes(self, name: str) -> list[dict[str, Any]]:
        return [dict(span.attributes or {}) for span in self.spans(name)]

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        """Metric name -> (attributes, sum or count) of each of its points."""
        data: Any = self._reader.get_metrics_data()
        return {
            metric.name: [
                (dict(point.attributes or {}), getattr(point, "value", None) or point.count)
                for point in metric.data.data_points
            ]
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def producer(self, **settings: Any) -> Producer:
        made = Producer(bootstrap_servers=self.bootstrap, client_id="sender", **settings)
        return instrument(made, **self.providers)

    def consumer(self, **settings: Any) -> Consumer:
        given: Any = {"group_id": "g", "auto_offset_reset": "earliest", **settings}
        made = Consumer(self.topic, bootstrap_servers=self.bootstrap, client_id="reader", **given)
        return instrument(made, **self.providers)


@pytest.fixture
async def telemetry(odradek_broker_session: SubprocessBroker, unique_topic: str) -> Telemetry:
    async with Admin(bootstrap_servers=odradek_broker_session.bootstrap) as admin:
        await admin.create_topics([NewTopic(unique_topic, 1)])
    return Telemetry(odradek_broker_session.bootstrap, unique_topic)


def context_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


async def received(consumer: Consumer, count: int) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        records += await consumer.poll(1_000)
    return records


async def test_old_semantic_conventions_are_the_default(telemetry: Telemetry) -> None:
    topic = telemetry.topic
    async with telemetry.producer() as producer:
        await producer.send_and_wait(topic, b"v", b"key")
        await producer.send_and_wait(topic, None, b"\xff")
    async with telemetry.consumer() as consumer:
        records = await received(consumer, 2)
        with processing(consumer, records[0]):
            pass
    common = {"messaging.system": "kafka", "messaging.destination.name": topic}
    publish = {**common, "messaging.operation": "publish", "messaging.client_id": "sender"}
    place = {"messaging.kafka.destination.partition": 0}
    assert telemetry.attributes("publish") == [
        {**publish, **place, "messaging.kafka.message.key": "key",
         "messaging.kafka.message.offset": 0},
        {**publish, **place, "messaging.kafka.message.tombstone": True,
         "messaging.kafka.message.offset": 1},
    ]  # fmt: skip
    reader = {**common, "messaging.client_id": "reader", "messaging.kafka.consumer.group": "g"}
    (receive,) = telemetry.attributes("receive")
    assert receive == {
        **reader, **place, "messaging.operation": "receive", "messaging.batch.message_count": 2,
    }  # fmt: skip
    (process,) = telemetry.attributes("process")
    assert process == {
        **reader, **place, "messaging.operation": "process", "messaging.kafka.message.offset": 0,
        "messaging.kafka.message.key": "key",
    }  # fmt: skip
    sent, *_ = telemetry.spans("publish")
    assert (sent.name, sent.kind) == (f"{topic} publish", SpanKind.PRODUCER)
    assert telemetry.spans("receive")[0].kind is SpanKind.CONSUMER
    found = telemetry.metrics()
    assert set(found) == {
        "messaging.publish.duration", "messaging.publish.messages", "messaging.receive.duration",
        "messaging.receive.messages", "messaging.process.duration", "messaging.process.messages",
    }  # fmt: skip
    assert found["messaging.publish.messages"] == [
        ({**common, "messaging.operation": "publish"}, 2)
    ]
    assert found["messaging.receive.messages"][0][1] == 2


async def test_new_semantic_conventions_are_used_after_opting_in(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http, messaging")
    topic = telemetry.topic
    async with telemetry.producer() as producer:
        await producer.send_and_wait(topic, None, b"key")
    async with telemetry.consumer() as consumer:
        (record,) = await received(consumer, 1)
        with processing(consumer, record):
            pass
    common = {"messaging.system.name": "kafka", "messaging.destination.name": topic}
    place = {"messaging.destination.partition.id": "0", "kafka.offset": 0}
    of_record = {"kafka.message.key": "key", "kafka.message.tombstone": True}
    group = {"messaging.consumer.group.name": "g", "messaging.client.id": "reader"}

    def operation(name: str, kind: str) -> dict[str, str]:
        return {"messaging.operation.name": name, "messaging.operation.type": kind}

    assert telemetry.attributes("send") == [
        {**common, **place, **of_record, **operation("send", "send"),
         "messaging.client.id": "sender"}
    ]  # fmt: skip
    assert telemetry.attributes("poll") == [
        {**common, **place, **group, **operation("poll", "receive"),
         "messaging.batch.message_count": 1}
    ]  # fmt: skip
    assert telemetry.attributes("process") == [
        {**common, **place, **of_record, **group, **operation("process", "process")}
    ]
    assert telemetry.spans("poll")[0].name == f"poll {topic}"
    assert telemetry.spans("poll")[0].kind is SpanKind.CLIENT
    found = telemetry.metrics()
    assert set(found) == {
        "messaging.client.operation.duration", "messaging.client.sent.messages",
        "messaging.client.consumed.messages", "messaging.process.duration",
    }  # fmt: skip
    assert len(found["messaging.client.operation.duration"]) == 2


async def test_both_semantic_conventions_are_used_with_dup(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "messaging/dup,messaging")
    async with telemetry.producer() as producer:
        await producer.send_and_wait(telemetry.topic, b"v")
    async with telemetry.consumer() as consumer:
        (record,) = await received(consumer, 1)
        with processing(consumer, record):
            pass
    (sent,) = telemetry.attributes("send")
    assert sent["messaging.system"] == sent["messaging.system.name"] == "kafka"
    assert sent["messaging.kafka.message.offset"] == sent["kafka.offset"] == 0
    found = telemetry.metrics()
    assert {"messaging.publish.messages", "messaging.client.sent.messages"} <= set(found)
    assert [count for _, count in found["messaging.process.duration"]] == [1]


async def test_the_trace_context_in_headers_becomes_a_link(telemetry: Telemetry) -> None:
    tracer = telemetry.tracers.get_tracer("test")
    async with telemetry.producer() as producer:
        with tracer.start_as_current_span("request") as request:
            await producer.send_and_wait(telemetry.topic, b"1", headers={"mine": b"x"})
        await producer.send_and_wait(telemetry.topic, b"2")
    first, second = telemetry.spans("publish")
    assert first.parent == request.get_span_context() and second.parent is None
    async with telemetry.consumer() as consumer:
        records = await received(consumer, 2)
        assert [name for name, _ in records[0].headers] == ["mine", "traceparent"]
        trace_id, span_id = context_of(first)
        assert dict(records[0].headers)["traceparent"].split(b"-")[1:3] == [
            f"{trace_id:032x}".encode(), f"{span_id:016x}".encode()
        ]  # fmt: skip
        with pytest.raises(KeyError, match="boom"), processing(consumer, records[1]) as inside:
            assert trace.get_current_span() is inside
            raise KeyError("boom")
    (receive,) = telemetry.spans("receive")
    assert receive.parent is None
    assert linked(receive) == [context_of(first), context_of(second)]
    (process,) = telemetry.spans("process")
    assert process.parent is None and linked(process) == [context_of(second)]
    assert (process.attributes or {})["error.type"] == "KeyError"
    assert not process.status.is_ok


async def test_forwarded_headers_get_the_new_trace_context(telemetry: Telemetry) -> None:
    old = [("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"), ("a", None)]
    async with telemetry.producer() as producer:
        await producer.send_and_wait(telemetry.topic, b"1", headers=old)
    async with telemetry.consumer() as consumer:
        (record,) = await received(consumer, 1)
    assert [name for name, _ in record.headers] == ["a", "traceparent"]
    assert linked(telemetry.spans("receive")[0]) == [context_of(telemetry.spans("publish")[0])]


async def test_every_record_has_a_publish_span_and_receive_links_are_limited(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "LINKS_MAX", 5)
    async with telemetry.producer(linger_ms=50) as producer:
        await producer.partitions_for(telemetry.topic)
        sent = [producer.send_nowait(telemetry.topic, b"1") for _ in range(10)]
        sent += [await producer.send(telemetry.topic, b"2") for _ in range(10)]
        for delivery in sent:
            await delivery
    spans = telemetry.attributes("publish")
    assert [span["messaging.kafka.message.offset"] for span in spans] == list(range(20))
    async with telemetry.consumer() as consumer:
        await received(consumer, 20)
    assert max(len(span.links) for span in telemetry.spans("receive")) == 5


async def test_each_record_of_an_iteration_has_a_receive_span(telemetry: Telemetry) -> None:
    async with telemetry.producer() as producer:
        for number in range(5):
            await producer.send(telemetry.topic, b"%d" % number)
    async with telemetry.consumer() as consumer:
        async for record in consumer:
            if record.offset == 4:
                break
    found = telemetry.attributes("receive")
    assert [span["messaging.kafka.message.offset"] for span in found] == list(range(5))


async def test_failures_end_spans_with_an_error(telemetry: Telemetry) -> None:
    async with telemetry.producer(max_request_size=1_000) as producer:
        with pytest.raises(RecordTooLarge):
            await producer.send(telemetry.topic, bytes(5_000))
        with pytest.raises(RecordTooLarge):
            producer.send_nowait(telemetry.topic, bytes(5_000))
    for span in telemetry.spans("publish"):
        assert (span.attributes or {})["error.type"] == "RecordTooLarge"
        assert not span.status.is_ok and span.end_time
    ((attributes, count),) = telemetry.metrics()["messaging.publish.messages"]
    assert (attributes["error.type"], count) == ("RecordTooLarge", 2)


@pytest.mark.full
async def test_a_share_consumer_has_receive_and_process_spans(telemetry: Telemetry) -> None:
    async with Admin(bootstrap_servers=telemetry.bootstrap) as admin:
        group = ConfigResource.group(telemetry.topic)
        await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    async with telemetry.producer() as producer:
        await producer.send_and_wait(telemetry.topic, b"1")
    plain = ShareConsumer(
        telemetry.topic, bootstrap_servers=telemetry.bootstrap, group_id=telemetry.topic
    )
    async with instrument(plain, **telemetry.providers) as consumer:
        async for record in consumer:
            with processing(consumer, record):
                record.accept()
            break
    (receive,) = telemetry.spans("receive")
    assert linked(receive) == [context_of(telemetry.spans("publish")[0])]
    (process,) = telemetry.attributes("process")
    assert process["messaging.kafka.consumer.group"] == telemetry.topic


async def test_arrow_rows_sent_together_have_one_span(
    telemetry: Telemetry,
) -> None:
    topic = telemetry.topic
    async with telemetry.producer() as producer:
        rows = pyarrow.RecordBatch.from_pydict({"value": [b"1", b"2", b"3"]})
        await (await producer.produce_arrow(topic, rows))
        await producer.send_and_wait(topic, b"4")
        with pytest.raises((TypeError, ValueError), match="no part of a record"):
            await producer.produce_arrow(topic, pyarrow.RecordBatch.from_pydict({"x": [1]}))
    common = {"messaging.system": "kafka", "messaging.destination.name": topic}
    together, sent, failed = sorted(
        telemetry.spans("publish"), key=lambda span: span.start_time or 0
    )
    assert dict(together.attributes or {}) == {
        **common, "messaging.operation": "publish", "messaging.client_id": "sender",
        "messaging.batch.message_count": 3, "messaging.kafka.destination.partition": 0,
    }  # fmt: skip
    assert (failed.attributes or {})["error.type"] == "UnwritableColumn"
    counts = [count for about, count in telemetry.metrics()["messaging.publish.messages"]
              if "error.type" not in about]  # fmt: skip
    assert counts == [4]
    async with telemetry.consumer() as consumer:
        found = await consumer.poll_arrow(10_000, 3, columns=["value"])
        assert found.schema.names == ["value"]
        left = 4 - found.num_rows
        found = await consumer.poll_arrow(10_000, left, columns="value", include_headers=True)
        assert (found.schema.names, found.num_rows) == (["value", "headers"], left)
        with pytest.raises(ValueError, match="none given"):
            await consumer.poll_arrow(columns=[])
    first, second = telemetry.spans("receive")
    assert dict(first.attributes or {}) == {
        **common, "messaging.operation": "receive", "messaging.client_id": "reader",
        "messaging.kafka.consumer.group": "g", "messaging.batch.message_count": 4 - left,
        "messaging.kafka.destination.partition": 0,
    }  # fmt: skip
    assert linked(first) == []
    assert linked(second) == [context_of(sent)]


@pytest.mark.parametrize("arrow", [False, True])
async def test_c83_spans_end_if_the_task_that_ends_them_is_cancelled(
    telemetry: Telemetry, arrow: bool
) -> None:
    async with telemetry.producer() as producer:
        kind = "_TracedProducer"
        victim = f"{kind}.produce_arrow.<locals>.finish" if arrow else f"{kind}._finish"
        with TaskKiller(victim, Ending.UNBEGUN) as killer:
            if arrow:
                rows = pyarrow.RecordBatch.from_pydict({"value": [b"1"]})
                await (await producer.produce_arrow(telemetry.topic, rows))
            else:
                await producer.send_and_wait(telemetry.topic, b"1")
            assert killer.begun[victim] == 1
        await producer.send_and_wait(telemetry.topic, b"2")
    cancelled, _ = telemetry.attributes("publish")
    assert cancelled["error.type"] == "TaskCancelled"


def test_blocking_clients_have_the_same_spans(telemetry: Telemetry) -> None:
    topic, settings = telemetry.topic, {"bootstrap_servers": telemetry.bootstrap}
    tracer = telemetry.tracers.get_tracer("test")
    sender: Any = sync.Producer(client_id="sender", **settings)  # type: ignore[arg-type]
    with instrument(sender, **telemetry.providers) as producer:
        with tracer.start_as_current_span("request") as request:
            producer.send(topic, b"0").result()
        for number in range(1, 4):
            producer.send_and_wait(topic, b"%d" % number)
        producer.produce_arrow(topic, pyarrow.RecordBatch.from_pydict({"value": [b"4"]})).result()
    spans = telemetry.spans("publish")
    assert [span.parent for span in spans] == [request.get_span_context(), None, None, None, None]
    reader: Any = sync.Consumer(
        topic, group_id="g", auto_offset_reset="earliest", **settings  # type: ignore[arg-type]
    )  # fmt: skip
    with instrument(reader, **telemetry.providers) as consumer:
        for record in consumer:
            with processing(consumer, record):
                assert record.value == b"%d" % record.offset
            if record.offset == 4:
                break
    assert [each["messaging.batch.message_count"] for each in telemetry.attributes("receive")] == (
        [1] * 5
    )
    links = [linked(span) for span in telemetry.spans("process")]
    assert links == [[context_of(span)] for span in spans[:4]] + [[]]
    with pytest.raises(ValueError, match="already"):
        instrument(consumer)
    assert uninstrument(consumer) is consumer
    with pytest.raises(ValueError, match="not instrumented"), processing(consumer, record):
        pass


async def test_a_client_is_instrumented_once_and_can_be_uninstrumented(
    telemetry: Telemetry,
) -> None:
    producer = telemetry.producer()
    with pytest.raises(ValueError, match="already"):
        instrument(producer)
    with pytest.raises(TypeError, match="Producer, a Consumer or a ShareConsumer"):
        instrument(object())  # type: ignore[type-var]
    assert uninstrument(uninstrument(producer)) is producer
    assert "send" not in vars(producer)
    async with producer:
        await producer.send_and_wait(telemetry.topic, b"1")
    assert telemetry.spans("publish") == []
    consumer = uninstrument(telemetry.consumer())
    with pytest.raises(ValueError, match="not instrumented"), processing(consumer, None):  # type: ignore[arg-type]
        pass


def test_a_client_without_telemetry_does_not_import_opentelemetry() -> None:
    code = (
        "import sys, odradek\n"
        "odradek.Producer, odradek.Consumer, odradek.ShareConsumer\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
