"""Checks of the arguments of a record, before it is put into a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from odradek_client.config.producer import ProducerConfig
from odradek_client.errors import RecordTooLarge
from odradek_client.producer.accumulator import Headers
from odradek_protocol.records import HEADER_BYTES, record_upper_bound


def check_record(
    config: ProducerConfig, topic: Any, value: Any, key: Any, headers: Any, partition: Any
) -> Headers:
    """Check types and size (C-12); returns the headers as a sequence of pairs. TypeError,
    ValueError, RecordTooLarge."""
    check_topic(topic)
    for what, content in (("value", value), ("key", key)):
        if content is not None and not isinstance(content, bytes | bytearray | memoryview):
            _refuse_type(what, content)
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
        raise TypeError(f"a partition is a number, not {partition!r}")
    pairs = _header_pairs(headers)
    size = HEADER_BYTES + record_upper_bound(key, value, pairs)
    for limit in ("max_request_size", "buffer_memory"):
        allowed = getattr(config, limit)
        if size > allowed:
            raise RecordTooLarge(
                f"the record takes {size} bytes, {limit} is {allowed}; send less at once or "
                "raise it"
            )
    return pairs


def check_topic(topic: Any) -> None:
    """TypeError or ValueError for an invalid name of a topic."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic is a name, of type str, not {topic!r}")
    if not topic:
        raise ValueError("a topic is a name, and this one is empty")


def _header_pairs(headers: Any) -> Headers:
    """The headers as a sequence of (str, bytes or None). TypeError names the wrong header and its
    problem."""
    if headers is None:
        return ()
    if isinstance(headers, Mapping):
        headers = list(headers.items())
    if not isinstance(headers, list | tuple):
        raise TypeError(
            f"headers must be (name, bytes) pairs, or a mapping, not {type(headers).__name__}"
        )
    for pair in headers:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise TypeError(f"each of the headers must be a (name, bytes) pair, not {pair!r}")
        name, content = pair
        if not isinstance(name, str):
            raise TypeError(f"the name of header {name!r} is {type(name).__name__}, not str")
        if content is not None and not isinstance(content, bytes | bytearray | memoryview):
            raise TypeError(
                f"the value of header {name!r} is {type(content).__name__}, but must be bytes or None"
            )
    return headers


def _refuse_type(what: str, content: object) -> NoReturn:
    if isinstance(content, str):
        raise TypeError(
            f"the {what} is str, but records are bytes: encode it, as in {what}.encode(), or give "
            f"the producer {what}_serializer=str.encode"
        )
    raise TypeError(
        f"the {what} is {type(content).__name__}, but records are bytes: make bytes of it, or give "
        f"the producer a {what}_serializer"
    )
