"""The reader of pushed metrics: OpenTelemetry's MetricsData, in protobuf's wire format.

No protobuf package is used, because clients choose the bytes: this reader spends time and memory
only on the parts that are kept. Values of attributes that are lists or maps are left out, and the
numbers of fields, data points and characters are limited. Unknown fields are skipped, as protobuf
demands.

A data point becomes a series of Prometheus: a gauge or a counter with a name and labels. Only
the number and the sum of a histogram or a summary are kept.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from enum import Enum

from odradek_protocol.compression import Codec, CompressionError, decompress
from odradek_protocol.lazy_tuple import NamedTuple

#: The maximum size of a push after decompression.
DECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
#: The maximum number of fields of a push, at all depths together.
FIELDS_MAX = 200_000
#: The maximum length of a metric's name. A metric with a longer name is left out.
NAME_BYTES_MAX = 255
#: The maximum number of characters in an attribute's name or value. The rest is cut off.
TEXT_CHARACTERS_MAX = 255
#: The maximum number of attributes of a data point, including those of its resource. Further
#: attributes are left out.
ATTRIBUTES_MAX = 24

Labels = tuple[tuple[str, str], ...]


class MetricType(Enum):
    """The kind of a series. The value is Prometheus' name of it."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Point(NamedTuple):
    """A data point. `delta`: true if the value is the change since the last point. `name`: the
    served name, such as kafka_client_producer_record_send_total; `source`: the pushed name.
    `time_ns`: the client's time."""

    name: str
    labels: Labels
    kind: MetricType
    delta: bool
    value: float
    time_ns: int
    source: str


class Points(NamedTuple):
    """The data points of a push. `left_out`: the number of data points that were dropped."""

    points: list[Point]
    left_out: int


class MetricsError(ValueError):
    """The error for pushed bytes that are not metrics; the text has the reason."""


def read_metrics(compression_type: int, data: bytes | memoryview, points_max: int) -> Points:
    """The first `points_max` data points of a push. Raises MetricsError if the bytes cannot be
    decompressed or read."""
    try:
        plain = decompress(Codec(compression_type), data, DECOMPRESSED_BYTES_MAX)
    except CompressionError as error:
        raise MetricsError(str(error)) from error
    return _Reader(plain, points_max).read()


# --- Names and labels -----------------------------------------------------------------------------

_PREFIX = "kafka_client_"
_KAFKA_PREFIX = "org.apache.kafka."
_NO_NAME_CHARACTERS = re.compile("[^a-zA-Z0-9_]+")
#: The labels that the broker gives every series. Attributes cannot replace them: an attribute with
#: such a name gets a prefix.
CLIENT_LABELS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
)
_OWN_LABELS = frozenset(CLIENT_LABELS)


def served_name(source: str, kind: MetricType, suffix: str = "") -> str:
    """Prometheus' name of a metric; names of counters end with _total."""
    name = _NO_NAME_CHARACTERS.sub("_", source.removeprefix(_KAFKA_PREFIX)).strip("_")
    name = f"{_PREFIX}{name}{suffix}"
    if kind is MetricType.COUNTER and not name.endswith("_total"):
        name += "_total"
    return name


def printable(text: str) -> str:
    """A text with at most TEXT_CHARACTERS_MAX characters, each of which can be printed."""
    text = text[:TEXT_CHARACTERS_MAX]
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _label(key: str) -> str:
    name = _NO_NAME_CHARACTERS.sub("_", key[:TEXT_CHARACTERS_MAX]).strip("_")
    if not name or name[0].isdigit():
        name = f"attribute_{name}"
    return f"exported_{name}" if name in _OWN_LABELS else name


# --- The wire format ------------------------------------------------------------------------------

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DOUBLE = struct.Struct("<d")
_INT64 = struct.Struct("<q")
_DELTA = 1
_UNRECORDED = 1

#: The field numbers of the attributes and of the flags in a data point (NumberDataPoint).
_NUMBER_POINT = (7, 8)
#: Field number of a histogram or summary in a metric -> field numbers of the attributes and of the
#: flags in its data points.
_COUNTED = {9: (9, 10), 10: (1, 10), 11: (7, 8)}

#: The start and the end of a message or a text.
Span = tuple[int, int]


def _as_double(bits: int) -> float:
    value: float = _DOUBLE.unpack(bits.to_bytes(8, "little"))[0]
    return value


class _Reader:
    def __init__(self, data: bytes, points_max: int) -> None:
        self._data = data
        self._points_max = points_max
        self._fields_left = FIELDS_MAX
        self._points: list[Point] = []
        self._left_out = 0
        #: The labels from the resource that is being read.
        self._resource: dict[str, str] = {}

    def read(self) -> Points:
        for span in self._spans((0, len(self._data)), 1):
            self._read_resource(span)
        return Points(self._points, self._left_out)

    # Resources, scopes and metrics

    def _read_resource(self, span: Span) -> None:
        self._resource = {}
        for resource in self._spans(span, 1):
            self._read_attributes(self._spans(resource, 1), self._resource)
        for scope in self._spans(span, 2):
            for metric in self._spans(scope, 2):
                self._read_metric(metric)

    def _read_metric(self, span: Span) -> None:
        source = ""
        for field, value in self._fields(span):
            if field == 1 and isinstance(value, tuple):
                source = self._name(value)
            elif not isinstance(value, tuple):
                continue
            elif field == 5:
                self._read_numbers(source or self._named(span), value, is_sum=False)
            elif field == 7:
                self._read_numbers(source or self._named(span), value, is_sum=True)
            elif field in _COUNTED:
                self._read_counted(source or self._named(span), value, _COUNTED[field])

    def _named(self, span: Span) -> str:
        """The name of a metric whose message has the data before the name."""
        names = list(self._spans(span, 1))
        return self._name(names[-1]) if names else ""

    def _name(self, span: Span) -> str:
        if span[1] - span[0] > NAME_BYTES_MAX:
            return ""
        return printable(self._data[span[0] : span[1]].decode("utf-8", "replace"))

    def _read_numbers(self, source: str, span: Span, *, is_sum: bool) -> None:
        kind = MetricType.COUNTER if is_sum and self._number(span, 3) else MetricType.GAUGE
        delta = is_sum and self._number(span, 2) == _DELTA
        name = served_name(source, kind)
        for point, labels in self._data_points(source, span, _NUMBER_POINT):
            time_ns = point.get(3, 0)
            if 4 in point:
                value = _as_double(point[4])
            elif 6 in point:
                value = float(_INT64.unpack(point[6].to_bytes(8, "little"))[0])
            else:
                self._left_out += 1
                continue
            self._points.append(Point(name, labels, kind, delta, value, time_ns, source))

    def _read_counted(self, source: str, span: Span, layout: tuple[int, int]) -> None:
        """Read the number and the sum of histograms and summaries."""
        # A summary has no temporality field: its number and sum are cumulative.
        delta = self._number(span, 2) == _DELTA
        for point, labels in self._data_points(source, span, layout):
            # Protobuf leaves a number of 0 out of the wire format.
            values = {"_count": float(point.get(4, 0))}
            if 5 in point:
                values["_sum"] = _as_double(point[5])
            for suffix, value in values.items():
                name = served_name(source, MetricType.COUNTER, suffix)
                time_ns = point.get(3, 0)
                self._points.append(
                    Point(name, labels, MetricType.COUNTER, delta, value, time_ns, source)
                )

    def _data_points(
        self, source: str, span: Span, layout: tuple[int, int]
    ) -> Iterator[tuple[dict[int, int], Labels]]:
        """The data points that are kept, each as (numeric fields by field number, labels)."""
        attributes, flags = layout
        for point in self._spans(span, 1):
            if not source or len(self._points) >= self._points_max:
                self._left_out += 1
                continue
            numbers: dict[int, int] = {}
            given: list[Span] = []
            for field, value in self._fields(point):
                if isinstance(value, int):
                    numbers[field] = value
                elif field == attributes:
                    given.append(value)
            if numbers.get(flags, 0) & _UNRECORDED:
                continue
            labels = dict(self._resource)
            self._read_attributes(given, labels)
            yield numbers, tuple(sorted(labels.items()))

    # Attributes

    def _read_attributes(self, spans: Iterable[Span], labels: dict[str, str]) -> None:
        for span in spans:
            key, value = "", ""
            for field, given in self._fields(span):
                if field == 1 and isinstance(given, tuple):
                    key = self._text(given)
                elif field == 2 and isinstance(given, tuple):
                    value = self._attribute(given)
            name = _label(key)
            # In Prometheus an empty label is the same as a missing label.
            if value and (name in labels or len(labels) < ATTRIBUTES_MAX):
                labels[name] = printable(value)

    def _attribute(self, span: Span) -> str:
        """The value of an attribute as text; empty for lists, maps and bytes."""
        text = ""
        for field, given in self._fields(span):
            if field == 1 and isinstance(given, tuple):
                text = self._text(given)
            elif not isinstance(given, int):
                continue
            elif field == 2:
                text = "true" if given else "false"
            elif field == 3:
                text = str(given - (1 << 64) if given >> 63 else given)
            elif field == 4:
                text = str(_as_double(given))
        return text

    def _text(self, span: Span) -> str:
        """The first TEXT_CHARACTERS_MAX characters of a text; each has at most four bytes."""
        start, end = span
        end = min(end, start + 4 * TEXT_CHARACTERS_MAX)
        return self._data[start:end].decode("utf-8", "replace")[:TEXT_CHARACTERS_MAX]

    # Fields

    def _spans(self, span: Span, number: int) -> Iterator[Span]:
        """The positions of the length-delimited fields (messages and texts) with this field
        number."""
        for field, value in self._fields(span):
            if field == number and isinstance(value, tuple):
                yield value

    def _number(self, span: Span, number: int) -> int | None:
        """The value of the last numeric field with this field number; None if there is none."""
        found = None
        for field, value in self._fields(span):
            if field == number and isinstance(value, int):
                found = value
        return found

    def _fields(self, span: Span) -> Iterator[tuple[int, int | Span]]:
        """The fields of a message, each with its field number: a numeric field as an unsigned
        integer, any other field as the position of its content."""
        position, end = span
        data = self._data
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise MetricsError(f"more than {FIELDS_MAX} fields")
            tag, position = self._varint(position, end)
            field, wire_type = tag >> 3, tag & 7
            if not field:
                raise MetricsError(f"a field with the number 0 before byte {position}")
            if wire_type == _VARINT:
                value, position = self._varint(position, end)
                yield field, value
            elif wire_type == _LENGTH:
                length, position = self._varint(position, end)
                if length > end - position:
                    raise MetricsError(
                        f"a field of {length} bytes at byte {position}, with {end - position} left"
                    )
                start, position = position, position + length
                yield field, (start, position)
            elif wire_type in (_FIXED64, _FIXED32):
                start, position = position, position + (8 if wire_type == _FIXED64 else 4)
                if position > end:
                    raise MetricsError(f"a number at byte {start} is incomplete")
                yield field, int.from_bytes(data[start:position], "little")
            else:
                raise MetricsError(f"a field of unknown type {wire_type} before byte {position}")

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        """A varint of at most 64 bits, and the position after it."""
        data = self._data
        value = shift = 0
        while position < end and shift < 70:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, position
            shift += 7
        raise MetricsError(f"a number before byte {position} is incomplete or too long")
