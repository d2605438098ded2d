"""Events and current states as text, in the form of DescribeHistory.

Names that the client may not see are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from odradek_broker.explain.history import LIST_MAX, RecordedEvent, SubjectState
from odradek_broker.explain.sentences import EventKind, Value, describe_client, sentence
from odradek_broker.request import ANONYMOUS, RequestContext
from odradek_broker.security.authorizer import (
    CLUSTER,
    Authorizer,
    Operation,
    Resource,
    group,
    topic,
    transactional_id,
)
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas import describe_history as wire

MayName = Callable[[str], bool]

#: The limit of the characters of one text in the answer. With 4 bytes for each character, the text
#: is nearly as long as the protocol allows.
_TEXT_MAX = 8_000


class Rights:
    """The rights of the client to what histories tell, each checked once for each name (A-12, A-18,
    A-22)."""

    def __init__(self, authorizer: Authorizer, context: RequestContext) -> None:
        def right(operation: Operation, resource: Callable[[str], Resource]) -> MayName:
            return cache(lambda name: authorizer.would_allow(context, operation, resource(name)))

        self.topic = right(Operation.DESCRIBE, topic)
        self.read = right(Operation.READ, topic)
        self.group = right(Operation.DESCRIBE, group)
        self.transactional_id = right(Operation.DESCRIBE, transactional_id)
        self.cluster = right(Operation.DESCRIBE, lambda _: CLUSTER)

    def to_subject(self, subject_type: int, subject: str) -> bool:
        """True if DescribeHistory would not refuse this subject to the client."""
        if subject_type == wire.TRANSACTIONAL_ID:
            return self.transactional_id(subject)
        if subject_type == wire.GROUP:
            return self.group(subject)
        if subject_type == wire.PARTITION:
            return self.topic(subject.rpartition("-")[0])
        return True

    def to_event_of_producer(self, event: RecordedEvent) -> bool:
        """True if the client may see this event of a producer id."""
        name = event.fields.get("transactional_id")
        if name is not None and not self.transactional_id(str(name)):
            return False
        if name is None and not event.partitions:
            return self.cluster("")
        return all(self.read(where) for where, _ in event.partitions)


def event_values(event: RecordedEvent, rights: Rights) -> dict[str, Any]:
    """The fields of an event in an answer, with only those names that the client has the right to
    see."""
    fields = dict(event.fields)
    if "group" in fields and not rights.group(str(fields["group"])):
        del fields["group"]
    topics = fields.get("topics")
    if isinstance(topics, tuple):
        # The list may end in "and 3 more". No topic's name has a space.
        fields["topics"] = tuple(each for each in topics if " " in each or rights.topic(each))
    fields |= _partition_names(event.partitions, event.partitions_more, rights)
    if event.error is not ErrorCode.NONE:
        fields["error"] = event.error.name
    times = {"time_ms": event.at_ms, "last_time_ms": event.last_ms, "times": event.times}
    return times | _texts(event.kind, fields)


def state_text(now: SubjectState, rights: Rights) -> wire.State:
    """The text of a state, with only those names that the client has the right to see."""
    fields = {**now.fields, **_partition_names(now.partitions, 0, rights)}
    name = fields.get("transactional_id")
    if name is not None and not rights.transactional_id(str(name)):
        del fields["transactional_id"]
        fields.pop("client", None)
    if "user" in fields and not rights.cluster(""):
        del fields["user"]
    return wire.State(**_texts(now.kind, fields))


def _partition_names(
    partitions: Iterable[TopicPartition], more: int, rights: Rights
) -> dict[str, Value]:
    known = [f"{name}-{index}" for name, index in partitions if rights.topic(name)]
    if not known:
        return {}
    shown = tuple(known[:LIST_MAX])
    more += len(known) - len(shown)
    return {"partitions": (*shown, f"and {more} more") if more else shown}


def _texts(kind: EventKind, fields: dict[str, Value]) -> dict[str, Any]:
    return {
        "name": kind.name.lower(),
        "text": _cut(sentence(kind, fields)),
        "details": [
            wire.Detail(
                name=name, value=_cut(", ".join(value) if isinstance(value, tuple) else str(value))
            )
            for name, value in fields.items()
        ],
    }


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 3] + "..."


def origin_of(context: RequestContext) -> str:
    """The client that sent a request, and its user if there is one."""
    client = describe_client(context.client_id, context.host)
    return client if context.user == ANONYMOUS else f"{client} as {context.user}"
