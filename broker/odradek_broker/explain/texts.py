"""Events and current states as text, in the form of DescribeHistory.

Names that the client may not see are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek_broker.explain.history import LIST_MAX, CurrentState, Event
from odradek_broker.explain.sentences import Value, sentence
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas import describe_history as wire

_E = ErrorCode

#: The limit of the characters of one text in the answer. With 4 bytes for each character, the text
#: is nearly as long as the protocol allows.
_TEXT_MAX = 8_000

MayDescribe = Callable[[str], bool]


class Rights:
    """The right of the client to see a name, checked once for each name."""

    def __init__(self, may_describe: MayDescribe) -> None:
        self._may_describe = may_describe
        self._known: dict[str, bool] = {}

    def __call__(self, name: str) -> bool:
        answer = self._known.get(name)
        if answer is None:
            answer = self._known[name] = self._may_describe(name)
        return answer


def event_text(
    event: Event, may_describe: MayDescribe, may_describe_group: MayDescribe
) -> wire.Event:
    """The text of an event, with only those names that the client has the right to see."""
    fields = dict(event.fields)
    if "group" in fields and not may_describe_group(str(fields["group"])):
        del fields["group"]
    topics = fields.get("topics")
    if isinstance(topics, tuple):
        # The list may end in "and 3 more". No topic's name has a space.
        fields["topics"] = tuple(each for each in topics if " " in each or may_describe(each))
    fields |= _partition_names(event.partitions, event.partitions_more, may_describe)
    if event.error is not _E.NONE:
        fields["error"] = event.error.name
    return wire.Event(
        time_ms=event.at_ms,
        last_time_ms=event.last_ms,
        times=event.times,
        name=event.kind.name.lower(),
        text=_cut(sentence(event.kind, fields)),
        details=_details(fields),
    )


def state_text(now: CurrentState, may_describe: MayDescribe) -> wire.State:
    """The text of a state, with only those names that the client has the right to see."""
    fields = {**now.fields, **_partition_names(now.partitions, 0, may_describe)}
    return wire.State(
        name=now.kind.name.lower(), text=_cut(sentence(now.kind, fields)), details=_details(fields)
    )


def _partition_names(
    partitions: Iterable[TopicPartition], more: int, may_describe: MayDescribe
) -> dict[str, Value]:
    known = [f"{name}-{index}" for name, index in partitions if may_describe(name)]
    if not known:
        return {}
    shown = tuple(known[:LIST_MAX])
    more += len(known) - len(shown)
    return {"partitions": (*shown, f"and {more} more") if more else shown}


def _details(fields: dict[str, Value]) -> list[wire.Detail]:
    return [
        wire.Detail(
            name=name, value=_cut(", ".join(value) if isinstance(value, tuple) else str(value))
        )
        for name, value in fields.items()
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 3] + "..."
