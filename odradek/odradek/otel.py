"""Spans and metrics of OpenTelemetry for a producer, a consumer or a share consumer, after the
conventions for messaging.

    from odradek.otel import instrument, processing

    async with instrument(Consumer("orders", group_id="bills", ...)) as consumer:
        async for record in consumer:
            with processing(consumer, record):
                ...

`instrument` replaces methods of one client by methods that call them; other clients are not
affected, and only this module imports `opentelemetry`. It needs the extra `otel`.

By default names are those of version 1.24 of the conventions. With `messaging` in the environment
variable OTEL_SEMCONV_STABILITY_OPT_IN they are those of version 1.45, and with `messaging/dup` both
names are used.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from odradek_client import sync
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.producer.arrow import ArrowDelivery
from odradek_client.producer.batch import Delivery, ProducerBatch, RecordMetadata
from odradek_client.producer.producer import Producer
from odradek_client.share.consumer import ShareConsumer
from odradek_client.share.record import ShareRecord
from odradek_client.structs import ConsumerRecord
from odradek_client.tasks import begin
from odradek_protocol.constants import NO_OFFSET
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.arrow import chosen_columns

try:
    from opentelemetry import context, metrics, propagate, trace
    from opentelemetry.trace import Link, StatusCode

    from odradek.otel_names import PROCESS, RECEIVE, SEND, Attributes, ConventionNames, SpanNames
except ImportError as error:
    raise ImportError(
        "OpenTelemetry is not installed; install the extra: pip install 'odradek[otel]'"
    ) from error

if TYPE_CHECKING:
    import pyarrow

Client = TypeVar(
    "Client", Producer, Consumer, ShareConsumer, sync.Producer, sync.Consumer, sync.ShareConsumer
)
T = TypeVar("T")
Header = tuple[str, bytes | None]

_NAME = "odradek"
_OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
#: The maximum number of links of a span, as in OpenTelemetry's SDK by default.
LINKS_MAX = 128
#: The maximum number of rows of an Arrow batch whose headers are read for links.
ARROW_ROWS_MAX = 1_024
#: The bounds in seconds that the conventions give for durations.
_DURATIONS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


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
        # Headers that a program passes on have the context of the earlier record.
        carrier[:] = [header for header in carrier if header[:1] != (key,)]
        carrier.append((key, value.encode("latin-1", "replace")))


_HEADERS: Any = _Headers()


def _links(records: Iterable[Any]) -> list[Link]:
    """Links to the contexts in which records were sent. Each context is linked once."""
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
        self.names = ConventionNames(os.environ.get(_OPT_IN, ""))
        self.tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        config: Any = client.config
        self.client: Attributes = self.names.of_client(config.client_id)
        self.group: str | None = getattr(config, "group_id", None)
        self._durations: dict[str, Any] = {}
        self._counters: dict[str, Any] = {}

    def begin(
        self,
        operation: SpanNames,
        topic: str,
        more: Mapping[str, Any],
        links: Sequence[Link] = (),
        began_ns: int | None = None,
    ) -> trace.Span:
        """A new span, a child of the present span if there is one, with links to other contexts."""
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
        self, operation: SpanNames, topic: str, seconds: float, messages: int, error: str | None
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
        # In both conventions the duration of processing has the same name, so each name is used
        # once.
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
    """End a span; returns the name of the error's type, or None if there was no error."""
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
    """The methods that replace those of an instrumented producer, and call them."""

    names = ("send", "send_nowait", "produce_arrow")

    def __init__(self, producer: Producer, telemetry: _Telemetry) -> None:
        self._send, self._send_nowait = producer.send, producer.send_nowait
        self._produce_arrow = producer.produce_arrow
        self._telemetry = telemetry
        #: The records of each batch whose result is not known yet. One task for each batch waits
        #: for it.
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
        """The producer's `send_nowait`, in a span that ends when the record is written."""
        sent = _Sent(self._telemetry, topic, value, key, headers)
        try:
            delivery = self._send_nowait(topic, value, key, headers=sent.headers, **where)
        except BaseException as error:
            sent.end(error)
            raise
        self._watch(delivery, sent)
        return delivery

    async def produce_arrow(
        self, topic: str, batch: pyarrow.RecordBatch, **where: Any
    ) -> ArrowDelivery:
        """The producer's `produce_arrow`, in one span for all rows, which ends when all of them are
        written. Headers of the rows are not changed."""
        telemetry, began_s = self._telemetry, time.perf_counter()
        span = telemetry.begin(SEND, topic, {"messaging.batch.message_count": batch.num_rows})

        def end(error: BaseException | None) -> None:
            name = _end(span, error)
            telemetry.measure(SEND, topic, time.perf_counter() - began_s, batch.num_rows, name)

        async def finish(delivery: ArrowDelivery) -> None:
            partitions = {rows.partition for rows in (await delivery).outcomes}
            if len(partitions) == 1:
                span.set_attributes(telemetry.names.of_place(partitions.pop(), NO_OFFSET))

        try:
            delivery = await self._produce_arrow(topic, batch, **where)
        except BaseException as error:
            end(error)
            raise
        self._begin(finish(delivery), end)
        return delivery

    def _watch(self, delivery: Delivery, sent: _Sent) -> None:
        batch = delivery.owner
        waiting = self._waiting.get(batch)
        if waiting is None:
            waiting = self._waiting[batch] = []
            self._begin(self._finish(waiting), partial(self._finished, batch))
        waiting.append((delivery, sent))

    def _begin(
        self, work: Coroutine[Any, Any, None], ended: Callable[[OdradekError | None], None]
    ) -> None:
        task = begin(asyncio.get_running_loop(), work, "the wait for a record's fate", ended)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, waiting: list[tuple[Delivery, _Sent]]) -> None:
        """End the spans of a batch's records, with one task for each batch, because all records of
        a batch end together."""
        while waiting:
            delivery, sent = waiting[0]
            try:
                metadata = await delivery
            except OdradekError as error:
                sent.end(error)
            else:
                sent.end(None, metadata)
            del waiting[0]

    def _finished(self, batch: ProducerBatch, failure: OdradekError | None) -> None:
        for _, sent in self._waiting.pop(batch):
            sent.end(failure)


# --- Consumers ------------------------------------------------------------------------------------


class _Some(NamedTuple):
    """Records of one topic that were received together. `offset`: the offset of the record, if
    there is only one. `headed`: the records whose headers may have a context."""

    topic: str
    messages: int
    partitions: Collection[int]
    offset: int
    headed: Iterable[Any]


def _by_topic(records: Iterable[Any]) -> Iterator[_Some]:
    topics: dict[str, list[Any]] = {}
    for record in records:
        topics.setdefault(record.topic, []).append(record)
    for topic, some in topics.items():
        offset = some[0].offset if len(some) == 1 else NO_OFFSET
        yield _Some(topic, len(some), {record.partition for record in some}, offset, some)


def _rows_by_topic(batch: pyarrow.RecordBatch) -> Iterator[_Some]:
    """The rows of a batch by topic. `headed` has the headers of the first rows, if the batch has a
    column of headers."""
    import pyarrow

    columns = ["topic", "partition"]
    counted = pyarrow.Table.from_batches([batch.select(columns)]).group_by(columns)
    counts: dict[str, dict[int, int]] = {}
    for row in counted.aggregate([([], "count_all")]).to_pylist():
        counts.setdefault(row["topic"], {})[row["partition"]] = row["count_all"]
    for topic, partitions in counts.items():
        yield _Some(
            topic, sum(partitions.values()), partitions, NO_OFFSET, _headed_rows(batch, topic)
        )


def _headed_rows(batch: pyarrow.RecordBatch, topic: str) -> Iterator[Any]:
    if "headers" not in batch.schema.names:
        return
    topics, headers = batch.column("topic"), batch.column("headers")
    for row in range(min(batch.num_rows, ARROW_ROWS_MAX)):
        if topics[row].as_py() == topic:
            pairs = headers[row].as_py() or ()
            yield SimpleNamespace(headers=[(each["key"], each["value"]) for each in pairs])


class _Received:
    """The spans of the records that a consumer has received."""

    def __init__(self, telemetry: _Telemetry) -> None:
        self._telemetry = telemetry

    async def timed(
        self, receive: Callable[[], Awaitable[T]], found: Callable[[T], Iterable[_Some]]
    ) -> T:
        """The result of `receive`, with a span for each topic in it. `found` returns the records of
        each topic in a result."""
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

    def received(self, found: Iterable[_Some], began_ns: int, seconds: float) -> None:
        """Make a span for the records of each topic, with links to the spans of their producers."""
        telemetry = self._telemetry
        for some in found:
            more: Attributes = {"messaging.batch.message_count": some.messages}
            if len(some.partitions) == 1:
                more |= telemetry.names.of_place(next(iter(some.partitions)), some.offset)
            links = _links(some.headed)
            _end(telemetry.begin(RECEIVE, some.topic, more, links, began_ns), None)
            telemetry.measure(RECEIVE, some.topic, seconds, some.messages, None)


class _TracedConsumer(_Received):
    """The methods that replace those of an instrumented consumer, and call them. `poll`, `getone`
    and iteration use these methods."""

    names = ("getmany", "poll_arrow", "next_buffered", "take_buffered")

    def __init__(self, consumer: Consumer, telemetry: _Telemetry) -> None:
        super().__init__(telemetry)
        self._getmany, self._poll_arrow = consumer.getmany, consumer.poll_arrow
        self._buffered, self._taken = consumer.next_buffered, consumer.take_buffered

    async def getmany(self, *partitions: Any, **how: Any) -> Any:
        """The consumer's `getmany`, with spans."""
        return await self.timed(
            lambda: self._getmany(*partitions, **how),
            lambda found: _by_topic(record for some in found.values() for record in some),
        )

    async def poll_arrow(
        self,
        *how: Any,
        include_headers: bool = False,
        columns: Collection[str] | None = None,
        **more: Any,
    ) -> pyarrow.RecordBatch:
        """The consumer's `poll_arrow`, with spans. For the spans, the topic and the partition of
        each row are fetched, whichever columns are requested."""
        chosen = chosen_columns(columns, include_headers)
        read = {*chosen, "topic", "partition"}
        batch = await self.timed(
            lambda: self._poll_arrow(*how, columns=read, **more), _rows_by_topic
        )
        return batch.select(list(chosen))

    def next_buffered(self) -> Any:
        """The asyncio consumer's next buffered record, with a span."""
        return self._one(self._buffered())

    def take_buffered(self) -> Any:
        """The blocking consumer's next buffered record, with a span."""
        return self._one(self._taken())

    def _one(self, record: Any) -> Any:
        if record is not None:
            self.received(_by_topic([record]), time.time_ns(), 0.0)
        return record


class _TracedShareConsumer(_Received):
    """The method that replaces and calls `poll` of an instrumented share consumer. `getmany`,
    `getone` and iteration use this method."""

    names = ("poll",)

    def __init__(self, consumer: ShareConsumer, telemetry: _Telemetry) -> None:
        super().__init__(telemetry)
        self._poll = consumer.poll

    async def poll(self, *how: Any, **more: Any) -> Any:
        """The share consumer's `poll`, with spans."""
        return await self.timed(lambda: self._poll(*how, **more), _by_topic)


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
    """Record spans and metrics of a producer, a consumer or a share consumer. The client may be one
    of `odradek.sync`. Returns the client.

    The providers are the global ones by default. Raises TypeError for another object; raises
    ValueError if the client is instrumented already."""
    inner = _asynchronous(client)
    traced = next((made for kind, made in _TRACED if isinstance(inner, kind)), None)
    if traced is None:
        raise TypeError(
            f"instrument takes a Producer, a Consumer or a ShareConsumer, not {type(client)!r}"
        )
    if inner in _instrumented:
        raise ValueError("this client is instrumented already")
    telemetry = _Telemetry(inner, tracer_provider, meter_provider)
    methods = traced(inner, telemetry)
    for name in traced.names:
        setattr(inner, name, getattr(methods, name))
    _instrumented[inner] = telemetry, traced.names
    return client


def _asynchronous(client: Any) -> Any:
    """The client itself, or the asyncio client inside a blocking client."""
    blocking = isinstance(client, sync.Producer | sync.Consumer | sync.ShareConsumer)
    return client.inner if blocking else client


def uninstrument(client: Client) -> Client:
    """Undo `instrument`; does nothing to a client that is not instrumented."""
    inner = _asynchronous(client)
    _, names = _instrumented.pop(inner, (None, ()))
    for name in names:
        delattr(inner, name)
    return client


@contextmanager
def processing(
    client: Consumer | ShareConsumer | sync.Consumer | sync.ShareConsumer,
    record: ConsumerRecord | ShareRecord,
) -> Iterator[trace.Span]:
    """A span for the processing of a record. The span is the current span inside the block. It has
    a link to the context in which the record was sent. An exception ends the span with an error.

    Raises ValueError if the client is not instrumented.
    """
    inner = _asynchronous(client)
    if inner not in _instrumented:
        raise ValueError("this client is not instrumented: call instrument(client) first")
    telemetry, _ = _instrumented[inner]
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
