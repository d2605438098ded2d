"""A writer of OpenTelemetry's MetricsData that follows only the description of the format and
imports nothing of ours."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache

DELTA, CUMULATIVE = 1, 2


@lru_cache(maxsize=1_024)
def varint(value: int) -> bytes:
    made = bytearray()
    value &= (1 << 64) - 1
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def message(number: int, content: bytes) -> bytes:
    """A field with a length: an embedded message, a text or bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def fixed64(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def attribute(number: int, key: str, value: str | bool | float) -> bytes:
    if isinstance(value, bool):
        any_value = number_field(2, value)
    elif isinstance(value, int):
        any_value = number_field(3, value)
    elif isinstance(value, float):
        any_value = double(4, value)
    else:
        any_value = message(1, value.encode("utf-8", "surrogatepass"))
    return message(number, message(1, key.encode()) + message(2, any_value))


def point(
    value: float,
    attributes: Mapping[str, str | bool | int | float] | None = None,
    time_ns: int = 0,
    flags: int = 0,
) -> bytes:
    """A NumberDataPoint."""
    made = fixed64(3, time_ns)
    if isinstance(value, int):
        made += varint(6 << 3 | 1) + struct.pack("<q", value)
    else:
        made += double(4, value)
    for key, text in (attributes or {}).items():
        made += attribute(7, key, text)
    return made + (number_field(8, flags) if flags else b"")


def gauge(name: str, *points: bytes) -> bytes:
    """A Metric with a gauge."""
    return message(1, name.encode()) + message(5, b"".join(message(1, each) for each in points))


def counter(name: str, *points: bytes, temporality: int = DELTA, monotonic: bool = True) -> bytes:
    """A Metric with a sum."""
    data = b"".join(message(1, each) for each in points)
    data += number_field(2, temporality) + (number_field(3, 1) if monotonic else b"")
    return message(1, name.encode()) + message(7, data)


def histogram(name: str, count: int, total: float, temporality: int = CUMULATIVE) -> bytes:
    """A Metric with a histogram of one data point."""
    data = fixed64(4, count) + double(5, total) + message(6, struct.pack("<2Q", 1, count - 1))
    data += message(7, struct.pack("<d", 1.5))
    return message(1, name.encode()) + message(9, message(1, data) + number_field(2, temporality))


def metrics_data(
    metrics: Iterable[bytes], resource: Mapping[str, str | bool | int | float] | None = None
) -> bytes:
    """A MetricsData with one resource and one scope."""
    attributes = b"".join(attribute(1, key, text) for key, text in (resource or {}).items())
    scope = message(1, message(1, b"scope")) + b"".join(message(2, each) for each in metrics)
    return message(1, message(1, attributes) + message(2, scope))
