"""Names of OpenTelemetry's conventions for messaging, those of version 1.24 and of 1.45."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import SpanKind

from odradek_protocol.lazy_tuple import NamedTuple

Attributes = dict[str, Any]


class SpanNames(NamedTuple):
    """An operation in the conventions of 1.24 (`old`) and 1.45 (`new`): its names, the instruments
    of its duration and of its number of messages, and the kinds of its spans. `kind`: the value of
    messaging.operation.type."""

    old: str
    new: str
    kind: str
    old_duration: str
    new_duration: str
    old_messages: str
    new_messages: str
    old_span: SpanKind
    new_span: SpanKind


SEND = SpanNames(
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
RECEIVE = SpanNames(
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
#: Only the old conventions count processed messages. The new ones count messages when they are
#: received.
PROCESS = SpanNames(
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


class ConventionNames:
    """The names of spans, metrics and attributes that are in use. `old`: use those of 1.24; `new`:
    use those of 1.45. At least one of the two is true."""

    def __init__(self, opted: str) -> None:
        chosen = {part.strip() for part in opted.split(",")}
        both = "messaging/dup" in chosen
        self.new = both or "messaging" in chosen
        self.old = both or not self.new

    def span(self, operation: SpanNames, topic: str) -> str:
        if self.new:
            return f"{operation.new} {topic}".rstrip()
        return f"{topic} {operation.old}".lstrip()

    def kind(self, operation: SpanNames) -> SpanKind:
        return operation.new_span if self.new else operation.old_span

    def of_operation(self, operation: SpanNames, topic: str, group: str | None) -> Attributes:
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
