"""The names in a request or an answer: partitions, groups, transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from odradek_broker.faults.rules import Named
from odradek_protocol.message import Message
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest

TopicName = Callable[[bytes], str | None]

#: Fields that hold a group id or several, in the messages of all APIs.
_GROUPS = ("group_id", "group_ids", "groups_names", "groups")
_TRANSACTIONAL_IDS = (
    "transactional_id",
    "transactional_ids",
    "v3_and_below_transactional_id",
    "transactions",
)
_TOPICS = ("topics", "topic_data", "topic_names", "v3_and_below_topics", "responses")
_PARTITIONS = ("partitions", "partition_data", "partition_indexes")
_INDEX = ("index", "partition_index", "partition")
_KEY_TYPE_GROUP = 0
_KEY_TYPE_TRANSACTION = 1


def topic_of(element: Any, topic_name: TopicName) -> str | None:
    """The topic of a part of a message, which has its name or its id."""
    if isinstance(element, str):
        return element
    name: str | None = getattr(element, "name", None) or getattr(element, "topic", None)
    if name:
        return name
    topic_id = getattr(element, "topic_id", None)
    return topic_name(topic_id) if topic_id else None


def partition_of(element: Any) -> int | None:
    """The index of a part of a message about one partition."""
    if isinstance(element, int):
        return element
    if isinstance(element, str):
        return None
    for name in _INDEX:
        if (index := getattr(element, name, None)) is not None:
            return int(index)
    return None


def named_in(message: Message, topic_name: TopicName) -> Named:
    """`topic_name`: of a topic id; None if there is none."""
    groups = frozenset(_texts(message, _GROUPS, "group_id"))
    ids = frozenset(_texts(message, _TRANSACTIONAL_IDS, "transactional_id"))
    if isinstance(message, FindCoordinatorRequest):
        keys = frozenset((*message.coordinator_keys, message.key)) - {""}
        groups = keys if message.key_type == _KEY_TYPE_GROUP else frozenset()
        ids = keys if message.key_type == _KEY_TYPE_TRANSACTION else frozenset()
    return Named(frozenset(_partitions(message, topic_name)), groups, ids)


def _texts(message: Any, names: tuple[str, ...], inner: str) -> Iterator[str]:
    for name in names:
        held = getattr(message, name, None)
        for each in held if isinstance(held, list) else [held]:
            text = each if isinstance(each, str) else getattr(each, inner, None)
            if text:
                yield text


def _partitions(message: Any, topic_name: TopicName) -> Iterator[tuple[str, int]]:
    for part in (
        message,
        *_structs(getattr(message, "groups", None)),
        *_structs(getattr(message, "transactions", None)),
    ):
        for name in _TOPICS:
            for element in _listed(getattr(part, name, None)):
                topic = topic_of(element, topic_name)
                if topic is not None:
                    for index in list(_indexes(element)) or [-1]:
                        yield topic, index


def _indexes(element: Any) -> Iterator[int]:
    for name in _PARTITIONS:
        for part in _listed(getattr(element, name, None)):
            if (index := partition_of(part)) is not None:
                yield index


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _structs(value: Any) -> list[Any]:
    return [each for each in _listed(value) if not isinstance(each, str)]
