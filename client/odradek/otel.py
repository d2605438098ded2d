"""Spans and metrics of OpenTelemetry for a producer, a consumer or a share consumer, after the
conventions for messaging.

    from odradek.otel import instrument, processing

    async with instrument(Consumer("orders", group_id="bills", ...)) as consumer:
        async for record in consumer:
            with processing(consumer, record):
                ...

`instrument` puts its own methods in front of those of one client; a client that is not instrumented
has none of this, and `opentelemetry` is only imported with this module. It needs the extra `otel`.

Names are those of version 1.24 of the conventions, and with `messaging` in the environment variable
OTEL_SEMCONV_STABILITY_OPT_IN those of 1.45; with `messaging/dup` both.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.producer.batch import Delivery, ProducerBatch, RecordMetadata
from odradek_client.producer.producer import Producer
from odradek_client.share.consumer import ShareConsumer
from odradek_client.share.record import ShareRecord
from odradek_client.structs import ConsumerRecord
from odradek_protocol.constants import NO_OFFSET

try:
    from opentelemetry import context, metrics, propagate, trace
    from opentelemetry.trace import Link, SpanKind, StatusCode
except ImportError as error:
    raise ImportError(
        "OpenTelemetry is not installed; install the extra: pip install 'odradek[otel]'"
    ) from error

Client = TypeVar("Client", Producer, Consumer, ShareConsumer)
T = TypeVar("T")
Attributes = dict[str, Any]
Header = tuple[str, bytes | None]

_NAME = "odradek"
_OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
#: As many as OpenTelemetry's SDK keeps by default.
LINKS_MAX = 128
#: The bounds in seconds that the conventions give for durations.
_DURATIONS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


# --- Names ----------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """An operation: its names in the conventions of 1.24 and 1.45, the instruments of its duration
    and of its number of messages in both, and the kind of its span in both."""

    old: str
    new: str
    kind: str
    old_duration: str
    new_duration: str
    old_messages: str
    new_messages: str
    old_span: SpanKind
    new_span: SpanKind


SEND = Operation(
    "publish",
    "send",
    "send",
    "messaging.publish.duration",
    "messaging.client.operation.duration",
    "messaging.publish.messages",
    "messaging.client.sent.messages",
    SpanKind.PRODUCER,
    SpanKind.PRODUCER,
)
RECEIVE = Operation(
    "receive",
    "poll",
    "receive",
    "messaging.receive.duration",
    "messaging.client.operation.duration",
    "messaging.receive.messages",
    "messaging.client.consumed.messages",
    SpanKind.CONSUMER,
    SpanKind.CLIENT,
)
#: Messages that are processed were counted when they were received, except by the old conventions.
PROCESS = Operation(
    "process",
    "process",
    "process",
    "messaging.process.duration",
    "messaging.process.duration",
    "messaging.process.messages",
    "",
    SpanKind.CONSUMER,
    SpanKind.CONSUMER,
)


class _Names:
    """The names in force. `old`, `new`: those of 1.24 and of 1.45, at least one of them."""

    def __init__(self, opted: str) -> None:
        chosen = {part.strip() for part in opted.split(",")}
        both = "messaging/dup" in chosen
        self.new = both or "messaging" in chosen
        self.old = both or not self.new

    def span(self, operation: Operation, topic: str) -> str:
        if self.new:
            return f"{operation.new} {topic}".rstrip()
        return f"{topic} {operation.old}".lstrip()

    def kind(self, operation: Operation) -> SpanKind:
        return operation.new_span if self.new else operation.old_span

    def of_operation(self, operation: Operation, topic: str, group: str | None) -> Attributes:
        """The attributes that spans and metrics of an operation share."""
        found: Attributes = {}
        if topic:
            found["messaging.destination.name"] = topic
        if self.old:
            found["messaging.system"] = "kafka"
            found["messaging.operation"] = operation.old
            if group is not None:
                found["messaging.kafka.consumer.group"] = group
        if self.new:
            found["messaging.system.name"] = "kafka"
            found["messaging.operation.name"] = operation.new
            found["messaging.operation.type"] = operation.kind
            if group is not None:
                found["messaging.consumer.group.name"] = group
        return found

    def of_client(self, client_id: str | None) -> Attributes:
        found: Attributes = {}
        if client_id and self.old:
            found["messaging.client_id"] = client_id
        if client_id and self.new:
            found["messaging.client.id"] = client_id
        return found

    def of_record(self, key: object, value: object) -> Attributes:
        """The attributes of one record. Keys that are no text are left out."""
        found: Attributes = {}
        text = _text(key)
        if self.old:
            if text is not None:
                found["messaging.kafka.message.key"] = text
            if value is None:
                found["messaging.kafka.message.tombstone"] = True
        if self.new:
            if text is not None:
                found["kafka.message.key"] = text
            if value is None:
                found["kafka.message.tombstone"] = True
        return found

    def of_place(self, partition: int, offset: int) -> Attributes:
        """The attributes of the place of a record; an offset below 0 is unknown."""
        found: Attributes = {}
        if self.old:
            found["messaging.kafka.destination.partition"] = partition
            if offset >= 0:
                found["messaging.kafka.message.offset"] = offset
        if self.new:
            found["messaging.destination.partition.id"] = str(partition)
            if offset >= 0:
                found["kafka.offset"] = offset
        return found


def _text(key: object) -> str | None:
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return None
    return None


# --- Headers --------------------------------------------------------------------------------------


class _Headers:
    """Reads and writes fields of the propagated context in the headers of a record."""

    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        found = [
            value.decode("latin-1") for name, value in carrier if value is not None and name == key
        ]
        return found or None

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [name for name, _ in carrier]

    def set(self, carrier: list[Header], key: str, value: str) -> None:
        # Headers that a program passes on have the context of the record before.
        carrier[:] = [header for header in carrier if header[:1] != (key,)]
        carrier.append((key, value.encode("latin-1", "replace")))


_HEADERS: Any = _Headers()


def _links(records: Iterable[Any]) -> list[Link]:
    """Links to the contexts in which records were sent, each context once."""
    found: dict[tuple[int, int], Link] = {}
    for record in records:
        if not record.headers:
            continue
        remote = propagate.extract(record.headers, context.Context(), _HEADERS)
        sent = trace.get_current_span(remote).get_span_context()
        if sent.is_valid:
            found.setdefault((sent.trace_id, sent.span_id), Link(sent))
            if len(found) >= LINKS_MAX:
                break
    return list(found.values())


# --- Spans and metrics ----------------------------------------------------------------------------


class _Telemetry:
    """The tracer and the instruments of one client."""

    def __init__(
        self,
        client: Producer | Consumer | ShareConsumer,
        tracer_provider: trace.TracerProvider | None,
        meter_provider: metrics.MeterProvider | None,
    ) -> None:
        self.names = _Names(os.environ.get(_OPT_IN, ""))
        self.tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        config: Any = client.config
        self.client: Attributes = self.names.of_client(config.client_id)
        self.group: str | None = getattr(config, "group_id", None)
        self._durations: dict[str, Any] = {}
        self._counters: dict[str, Any] = {}

    def begin(
        self,
        operation: Operation,
        topic: str,
        more: Mapping[str, Any],
        links: Sequence[Link] = (),
        began_ns: int | None = None,
    ) -> trace.Span:
        """A new span; without links to other contexts it is a child of the present span."""
        names = self.names
        return self.tracer.start_span(
            names.span(operation, topic),
            kind=names.kind(operation),
            attributes={
                **names.of_operation(operation, topic, self.group),
                **self.client,
                **more,
            },
            links=links,
            start_time=began_ns,
        )

    def measure(
        self, operation: Operation, topic: str, seconds: float, messages: int, error: str | None
    ) -> None:
        """Count an operation with its duration and its messages."""
        attributes = self.names.of_operation(operation, topic, self.group)
        if error is not None:
            attributes["error.type"] = error
        chosen = [
            each
            for each, wanted in (
                ((operation.old_duration, operation.old_messages), self.names.old),
                ((operation.new_duration, operation.new_messages), self.names.new),
            )
            if wanted
        ]
        # Both conventions have the same name for the duration of processing.
        for duration in dict.fromkeys(each[0] for each in chosen):
            self._duration(duration).record(seconds, attributes)
        for _, counter in chosen:
            if counter and messages:
                self._counter(counter).add(messages, attributes)

    def _duration(self, name: str) -> Any:
        made = self._durations.get(name)
        if made is None:
            made = self._durations[name] = self._meter.create_histogram(
                name,
                unit="s",
                description="Duration of operations.",
                explicit_bucket_boundaries_advisory=_DURATIONS_S,
            )
        return made

    def _counter(self, name: str) -> Any:
        made = self._counters.get(name)
        if made is None:
            made = self._counters[name] = self._meter.create_counter(
                name, unit="{message}", description="Number of messages."
            )
        return made


def _end(span: trace.Span, error: BaseException | None) -> str | None:
    """End a span; returns the type of the error, if there is one."""
    name = None
    if error is not None:
        name = type(error).__name__
        span.record_exception(error)
        span.set_attribute("error.type", name)
        span.set_status(StatusCode.ERROR, str(error))
    span.end()
    return name


# --- A producer -----------------------------------------------------------------------------------


class _Sent:
    """A record that is being sent, with its span."""

    __slots__ = ("_began_s", "_span", "_telemetry", "_topic", "headers")

    def __init__(
        self, telemetry: _Telemetry, topic: str, value: Any, key: Any, headers: Any
    ) -> None:
        self._telemetry, self._topic = telemetry, topic
        self._span = telemetry.begin(SEND, topic, telemetry.names.of_record(key, value))
        self._began_s = time.perf_counter()
        #: The headers of the record, with the context of its span.
        self.headers: list[Header] = list(
            headers.items() if isinstance(headers, Mapping) else headers or ()
        )
        propagate.inject(self.headers, trace.set_span_in_context(self._span), _HEADERS)

    def end(self, error: BaseException | None, metadata: RecordMetadata | None = None) -> None:
        """End the span when the record is written, or has failed."""
        telemetry = self._telemetry
        if metadata is not None:
            place = telemetry.names.of_place(metadata.partition, metadata.offset)
            self._span.set_attributes(place)
        name = _end(self._span, error)
        telemetry.measure(SEND, self._topic, time.perf_counter() - self._began_s, 1, name)


class _TracedProducer:
    """The methods that stand in front of those of a producer."""

    names = ("send", "send_nowait")

    def __init__(self, producer: Producer, telemetry: _Telemetry) -> None:
        self._send, self._send_nowait = producer.send, producer.send_nowait
        self._telemetry = telemetry
        #: The records of each batch whose result is not known, and the tasks that wait for it.
        self._waiting: dict[ProducerBatch, list[tuple[Delivery, _Sent]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Any = (),
        **where: Any,
    ) -> Delivery:
        """The producer's `send`, in a span that ends when the record is written."""
        sent = _Sent(self._telemetry, topic, value, key, headers)
        try:
            delivery = await self._send(topic, value, key, headers=sent.headers, **where)
        except BaseException as error:
            sent.end(error)
            raise
        self._watch(delivery, sent)
        return delivery

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Any = (),
        **where: Any,
    ) -> Delivery:
        """The producer's `send_nowait`, in such a span."""
        sent = _Sent(self._telemetry, topic, value, key, headers)
        try:
            delivery = self._send_nowait(topic, value, key, headers=sent.headers, **where)
        except BaseException as error:
            sent.end(error)
            raise
        self._watch(delivery, sent)
        return delivery

    def _watch(self, delivery: Delivery, sent: _Sent) -> None:
        batch = delivery.owner
        waiting = self._waiting.get(batch)
        if waiting is None:
            waiting = self._waiting[batch] = []
            task = asyncio.get_running_loop().create_task(self._finish(batch, waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiting.append((delivery, sent))

    async def _finish(self, batch: ProducerBatch, waiting: list[tuple[Delivery, _Sent]]) -> None:
        """End the spans of a batch's records. One task for each batch, as its records end
        together."""
        try:
            while waiting:
                delivery, sent = waiting[0]
                try:
                    metadata = await delivery
                except OdradekError as error:
                    sent.end(error)
                else:
                    sent.end(None, metadata)
                del waiting[0]
        finally:
            del self._waiting[batch]
            for _, sent in waiting:
                sent.end(asyncio.CancelledError("the loop ended before the record was written"))


# --- Consumers ------------------------------------------------------------------------------------


class _Received:
    """Makes the spans of what a consumer has received."""

    def __init__(self, telemetry: _Telemetry) -> None:
        self._telemetry = telemetry

    async def timed(self, receive: Callable[[], Awaitable[T]], found: Callable[[T], Any]) -> T:
        """The result of `receive`, with a span for each topic of its records, which `found`
        gives."""
        began_ns, began_s = time.time_ns(), time.perf_counter()
        try:
            result = await receive()
        except Exception as error:
            span = self._telemetry.begin(RECEIVE, "", {}, (), began_ns)
            name = _end(span, error)
            self._telemetry.measure(RECEIVE, "", time.perf_counter() - began_s, 0, name)
            raise
        self.received(found(result), began_ns, time.perf_counter() - began_s)
        return result

    def received(self, records: Sequence[Any], began_ns: int, seconds: float) -> None:
        """Make a span for each topic of the records, with links to those who sent them."""
        telemetry = self._telemetry
        by_topic: dict[str, list[Any]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record)
        for topic, some in by_topic.items():
            more: Attributes = {"messaging.batch.message_count": len(some)}
            partitions = {record.partition for record in some}
            if len(partitions) == 1:
                offset = some[0].offset if len(some) == 1 else NO_OFFSET
                more |= telemetry.names.of_place(some[0].partition, offset)
            _end(telemetry.begin(RECEIVE, topic, more, _links(some), began_ns), None)
            telemetry.measure(RECEIVE, topic, seconds, len(some), None)


class _TracedConsumer(_Received):
    """The methods that stand in front of those of a consumer: `poll`, `getone` and iteration are
    made of these."""

    names = ("getmany", "_next_buffered")

    def __init__(self, consumer: Consumer, telemetry: _Telemetry) -> None:
        super().__init__(telemetry)
        self._getmany, self._buffered = consumer.getmany, consumer._next_buffered

    async def getmany(self, *partitions: Any, **how: Any) -> Any:
        """The consumer's `getmany`, with spans."""
        return await self.timed(
            lambda: self._getmany(*partitions, **how),
            lambda found: [record for records in found.values() for record in records],
        )

    def _next_buffered(self) -> Any:
        """The next record that is buffered, with a span."""
        record = self._buffered()
        if record is not None:
            self.received([record], time.time_ns(), 0.0)
        return record


class _TracedShareConsumer(_Received):
    """The method that stands in front of that of a share consumer: `getmany`, `getone` and
    iteration are made of it."""

    names = ("poll",)

    def __init__(self, consumer: ShareConsumer, telemetry: _Telemetry) -> None:
        super().__init__(telemetry)
        self._poll = consumer.poll

    async def poll(self, *how: Any, **more: Any) -> Any:
        """The share consumer's `poll`, with spans."""
        return await self.timed(lambda: self._poll(*how, **more), lambda found: found)


# --- What users call ------------------------------------------------------------------------------

_TRACED: tuple[tuple[type, Any], ...] = (
    (Producer, _TracedProducer),
    (Consumer, _TracedConsumer),
    (ShareConsumer, _TracedShareConsumer),
)
_instrumented: WeakKeyDictionary[Any, tuple[_Telemetry, tuple[str, ...]]] = WeakKeyDictionary()


def instrument(
    client: Client,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> Client:
    """Have a producer, consumer or share consumer make spans and metrics; returns the client.

    The providers are the global ones by default. TypeError for another object, also for the
    blocking clients of `odradek.sync`; ValueError if the client is instrumented already.
    """
    traced = next((made for kind, made in _TRACED if isinstance(client, kind)), None)
    if traced is None:
        raise TypeError(
            f"instrument takes a Producer, a Consumer or a ShareConsumer, not {type(client)!r}"
        )
    if client in _instrumented:
        raise ValueError("this client is instrumented already")
    telemetry = _Telemetry(client, tracer_provider, meter_provider)
    methods = traced(client, telemetry)
    for name in traced.names:
        setattr(client, name, getattr(methods, name))
    _instrumented[client] = telemetry, traced.names
    return client


def uninstrument(client: Client) -> Client:
    """Undo `instrument`; nothing happens to a client that is not instrumented."""
    _, names = _instrumented.pop(client, (None, ()))
    for name in names:
        delattr(client, name)
    return client


@contextmanager
def processing(
    client: Consumer | ShareConsumer, record: ConsumerRecord | ShareRecord
) -> Iterator[trace.Span]:
    """A span for the processing of a record, which is the present span inside the block. It has a
    link to the context in which the record was sent. An exception ends it with an error.

    ValueError if the client is not instrumented.
    """
    if client not in _instrumented:
        raise ValueError("this client is not instrumented: call instrument(client) first")
    telemetry, _ = _instrumented[client]
    names, topic = telemetry.names, record.topic
    more = {
        **names.of_place(record.partition, record.offset),
        **names.of_record(record.key, record.value),
    }
    began_s = time.perf_counter()
    span = telemetry.begin(PROCESS, topic, more, _links([record]))
    error: BaseException | None = None
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield span
    except BaseException as raised:
        error = raised
        raise
    finally:
        name = _end(span, error)
        telemetry.measure(PROCESS, topic, time.perf_counter() - began_s, 1, name)
