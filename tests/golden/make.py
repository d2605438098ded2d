"""Makes the golden bytes in this folder, never with Odradek's own codec.

    python tests/golden/make.py            <api>.jsonl of every API: by kafka-python, judged by kio
    python tests/golden/make.py NAME...    only of these APIs, such as ListOffsets
    python tests/golden/make.py capture    captured.jsonl, from the traffic of real clients

The table in `odradek_protocol.keys` determines the APIs and versions. A line of <api>.jsonl is one
message body: its direction, its version, its bytes and its values. kafka-python encodes the body
from Kafka's definitions. kio, which other people generated from the same definitions, must read the
bytes and write the same bytes again, or the line is not written. A message that kafka-python does
not define is encoded by kio alone, and a message that is not Kafka's (`PRIVATE`) by code in this
file. Byte strings, record sets and UUIDs are hexadecimal.

Needs kafka-python >= 3 and kio. Kafka's field names are in snake case, as in kafka-python.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import importlib
import io
import json
import re
import struct
import sys
import types
import typing
import uuid
from pathlib import Path
from typing import Any

from odradek_protocol.keys import APIS

HERE = Path(__file__).parent

#: API name -> the served versions.
VERSIONS = {api.name: api.versions for api in APIS.values()}
VARIANTS = ("full", "sparse", "long")


def _fields(text: str, **arrays: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Field definitions in Kafka's form, from `name type` lines; the fields of the array `[]` are
    those of `arrays`. A type with `?` is nullable."""
    made = []
    for name, kind in (line.split() for line in re.split(r"[,\n]", text) if line.strip()):
        field: dict[str, Any] = {"name": name, "versions": "0+", "type": kind.rstrip("?")}
        if kind == "[]":
            field["fields"] = arrays[name]
        elif kind.endswith("?"):
            field["nullableVersions"] = "0+"
        made.append(field)
    return made


_DETAILS = _fields("Name string, Value string")
_EVENT = _fields(
    "TimeMs int64, LastTimeMs int64, Times int32, Name string, Text string, Details []",
    Details=_DETAILS,
)
_STATE = _fields("Name string, Text string, Details []", Details=_DETAILS)
_ERROR = "ThrottleTimeMs int32, ErrorCode int16, ErrorMessage string?,"
#: The messages that are not Kafka's: (request, response), all flexible and only of version 0.
PRIVATE = {
    "DescribeHistory": (
        _fields("SubjectType int8, Subject string, Limit int32"),
        _fields(
            _ERROR
            + """NowMs int64, StartedMs int64, CompleteSinceMs int64, Dropped int64,
            Events [], States []""",
            Events=_EVENT,
            States=_STATE,
        ),
    ),
    "DescribeBroker": (
        _fields("Sections []int8, Limit int32, Offset int32, Filter string, After int64"),
        _fields(
            _ERROR
            + """NowMs int64, StartedMs int64, NodeId int32, Version string,
            ConsoleUrl string?, Counters [], BoundsUs []int64, Requests [], ConnectionsTotal int32,
            Connections [], Problems [], NextAfter int64, Events []""",
            Counters=_fields("Name string, Value float64"),
            Requests=_fields(
                "Name string, Requests int64, Errors int64, SumUs int64, Counts []int64"
            ),
            Connections=_fields(
                """ConnectionId int64, Listener string, Host string, User string, ClientId string?,
                SoftwareName string, SoftwareVersion string, OpenedMs int64, Requests int64,
                ApiName string"""
            ),
            Problems=_fields("Name string, Text string, SubjectType int8, Subject string"),
            Events=_fields("Number int64, SubjectType int8, Subject string") + _EVENT,
        ),
    ),
    "DescribeClientTelemetry": (
        _fields("ClientInstanceId uuid, After uuid, First int32, Limit int32"),
        _fields(
            _ERROR + "Clients [], Metrics [], More bool",
            Clients=_fields(
                """ClientInstanceId uuid, ClientId string, SoftwareName string,
                SoftwareVersion string, Host string, Port string, User string, Gone bool,
                Subscribed []string, PushIntervalMs int32, Pushes int64, LastPushAgeMs int64,
                LastPushBytes int32, Series int32, LeftOut int32"""
            ),
            Metrics=_fields(
                "Name string, Source string, Kind string, Labels [], Value float64",
                Labels=_DETAILS,
            ),
        ),
    ),
    "AppendMirrorRecords": (
        _fields(
            "TimeoutMs int32, Topics []",
            Topics=_fields(
                "Name string, TopicId uuid, Source string, Partitions []",
                Partitions=_fields(
                    """PartitionIndex int32, ExpectedEndOffset int64, FetchOffset int64,
                    SourceLeaderEpoch int32, SourceLogStartOffset int64,
                    SourceHighWatermark int64, Records records?"""
                ),
            ),
        ),
        _fields(
            "ThrottleTimeMs int32, Topics []",
            Topics=_fields(
                "Name string, Partitions []",
                Partitions=_fields(
                    """PartitionIndex int32, ErrorCode int16, ErrorMessage string?,
                    LogStartOffset int64, LogEndOffset int64, LastLeaderEpoch int32"""
                ),
            ),
        ),
    ),
    "PromoteMirrorTopics": (
        _fields("TimeoutMs int32, Topics []string"),
        _fields(
            "ThrottleTimeMs int32, Topics []",
            Topics=_fields(
                "Name string, ErrorCode int16, ErrorMessage string?, AbortedTransactions int32"
            ),
        ),
    ),
}

_TEXTS = ["orders", "größe-ß", "漢字かな", "emoji-\U0001f9f5", "z"]
_ERRORS = [0, 3, 35, 7, 87, -1]
_INTEGERS = {
    "int8": [1, 0, 2, 127, -128],
    "int16": [7, -1, 32767, -32768, 0],
    "uint16": [9092, 65535, 0],
    "int32": [1, 2147483647, -1, 70000, -2147483648, 0],
    "int64": [42, -1, 9223372036854775807, 5_000_000_000, -9223372036854775808, 0],
}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FLOATS = [1.5, 1048576.0, -0.25, 1e300, 0.1]


class Values:
    """Notable values for the fields of a message, the same on every run. `variant`: full, sparse or
    long."""

    def __init__(self, version: int, variant: str) -> None:
        self.version, self.variant, self.count = version, variant, 0
        self.long_left = 2 if variant == "long" else 0

    def message(
        self, fields: list[dict[str, Any]], nested: bool = False
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """(arguments for kafka-python, values in the form of the files) of the fields in this
        version."""
        given: dict[str, Any] = {}
        meant: dict[str, Any] = {}
        for field in fields:
            if _holds(field["versions"], self.version):
                name = snake(field["name"])
                given[name], meant[kafka_name(field, nested)] = self.field(field)
        return given, meant

    def field(self, field: dict[str, Any]) -> tuple[Any, Any]:
        self.count += 1
        nullable = _holds(field.get("nullableVersions", "none"), self.version)
        tagged = _holds(field.get("taggedVersions", "none"), self.version)
        if self.variant == "sparse" and tagged:
            return _absent(field)
        if nullable and self.variant == "sparse":
            return None, None
        kind = field["type"]
        if not kind.startswith("[]"):
            return self.value(kind, field)
        size = {"full": 2 + self.count % 2, "sparse": 0, "long": 1}[self.variant]
        pairs = [self.value(kind[2:], field) for _ in range(size)]
        return [given for given, _ in pairs], [meant for _, meant in pairs]

    def value(self, kind: str, field: dict[str, Any]) -> tuple[Any, Any]:
        self.count += 1
        if "fields" in field:
            return self.message(field["fields"], nested=True)
        if kind == "string":
            text = self.text()
            return text, text
        if kind in ("bytes", "records"):
            data = (self.text() + "\0").encode() * (1 + self.count % 3)
            return data, data.hex()
        if kind == "uuid":
            value = uuid.UUID(int=self.count * 0x0123456789ABCDEF0123456789)
            return value, value.bytes.hex()
        if kind == "bool":
            flag = bool(self.count % 2) or "taggedVersions" in field
            return flag, flag
        if kind == "bitfield":  # the type in kafka-python of authorized operations, an int32
            bits = {3, 4 + self.count % 10}
            return bits, sum(1 << bit for bit in bits)
        if kind == "float64":
            number = _FLOATS[self.count % len(_FLOATS)]
            return number, number
        number = self.integer(kind, field["name"])
        if "taggedVersions" in field and number == int(field.get("default", 0)):
            # a field with its default value would be left out
            number = 77 if not field["name"].endswith("ErrorCode") else 3
        return number, number

    def text(self) -> str:
        text = _TEXTS[self.count % len(_TEXTS)]
        if self.long_left == 0:
            return text
        self.long_left -= 1
        return text * (140 // len(text.encode()) + 1)

    def integer(self, kind: str, name: str) -> int:
        """A value for an integer field, within the bounds that kio's type for the field has."""
        if name.lower().endswith("errorcode"):
            return _ERRORS[self.count % len(_ERRORS)]
        if re.search(r"(TimeMs|Timestamp|LogAppendTimeMs)$", name) and kind == "int64":
            return 1_700_000_000_123 + self.count
        if name.endswith(("Ms", "MS")):
            return 1000 * self.count + 1 if kind != "int16" else 5
        choices = _INTEGERS[kind]
        return choices[self.count % len(choices)]


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def kafka_name(field: dict[str, Any], nested: bool) -> str:
    """The name in Kafka's definitions; kafka-python renames some fields that it reads as bit
    fields."""
    if field["name"] == "authorized_operations":
        return f"{'topic' if nested else 'cluster'}_authorized_operations"
    return snake(field["name"])


def _holds(versions: str, version: int) -> bool:
    if versions in ("none", ""):
        return False
    first, _, last = versions.replace("+", "-32767").partition("-")
    return int(first) <= version <= int(last or first)


class _Absent:
    """Marks a tagged field that has its default value and is left out."""


def _absent(field: dict[str, Any]) -> tuple[Any, Any]:
    return _Absent, _Absent


def _present(values: Any) -> Any:
    if isinstance(values, dict):
        return {k: _present(v) for k, v in values.items() if v is not _Absent}
    return [_present(v) for v in values] if isinstance(values, list) else values


# --- kafka-python encodes ------------------------------------------------------------------------


def kafka_python_class(name: str) -> Any:
    """The class of kafka-python for the message; None if it has none."""
    for module in ("producer", "consumer", "metadata", "admin"):
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        if found is not None:
            return found
    return None


def kafka_python_struct(data_class: Any, values: dict[str, Any], version: int) -> Any:
    """An instance of kafka-python's class; nested dictionaries become nested instances."""
    made = {}
    for name, value in values.items():
        field = data_class._struct.fields[name]
        if value is not None and field.is_struct():
            value = kafka_python_struct(field.data_class, value, version)
        elif value is not None and field.is_struct_array():
            value = [kafka_python_struct(field.data_class, item, version) for item in value]
        made[name] = value
    return data_class(version=version, **made)


# --- kio judges -----------------------------------------------------------------------------------


def kio_again(name: str, direction: str, version: int, data: bytes) -> bytes:
    """The bytes that kio writes after reading `data`."""
    serial: Any = importlib.import_module("kio.serial")
    module = importlib.import_module(f"kio.schema.{snake(name)}.v{version}.{direction}")
    cls = getattr(module, f"{name}{direction.capitalize()}")
    value, used = serial.entity_reader(cls)(data, 0)
    if used != len(data):
        raise ValueError(f"kio read {used} of {len(data)} bytes")
    buffer = io.BytesIO()
    serial.entity_writer(cls)(buffer, value)
    return buffer.getvalue()


class KioValues(Values):
    """The values of `Values` for the classes of kio, whose type hints give the type of each
    field."""

    def entity(self, cls: Any) -> tuple[Any, dict[str, Any]]:
        """(an instance of the class, its values in the form of the files)."""
        given, meant = {}, {}
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            hint, kind = hints[field.name], field.metadata.get("kafka_type", "")
            in_ms = kind.startswith("timedelta") or (
                # kio removes the unit from names; the names in `Described...` classes have no unit.
                kind.startswith("datetime") and not cls.__name__.startswith("Described")
            )
            value = self.hinted(hint, kind, field.name)
            given[field.name], meant[field.name + "_ms" * in_ms] = value
        return cls(**given), meant

    def hinted(self, hint: Any, kind: str, name: str) -> tuple[Any, Any]:
        self.count += 1
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if type(None) in options and self.variant == "sparse" and kind != "uuid":
            return None, None
        inner = next(option for option in options if option is not type(None))
        if typing.get_origin(inner) is tuple:
            element = typing.get_args(inner)[0]
            size = {"full": 2 + self.count % 2, "sparse": 0, "long": 1}[self.variant]
            pairs = [self.hinted(element, kind, name) for _ in range(size)]
            return tuple(given for given, _ in pairs), [meant for _, meant in pairs]
        if dataclasses.is_dataclass(inner):
            return self.entity(inner)
        if kind.startswith("timedelta"):
            return datetime.timedelta(milliseconds=1000 * self.count), 1000 * self.count
        if kind == "datetime_i64":
            since = datetime.timedelta(milliseconds=1_700_000_000_123 + self.count)
            return _EPOCH + since, since // datetime.timedelta(milliseconds=1)
        if kind == "error_code":
            number = _ERRORS[self.count % len(_ERRORS)]
            return inner(number), number
        return self.value(kind, {"name": name})


def _json(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def _line(direction: str, version: int, variant: str, data: bytes, meant: Any) -> str:
    return _json(
        {
            "direction": direction,
            "version": version,
            "variant": variant,
            "hex": data.hex(),
            "value": meant,
        }
    )


def kio_lines_of(name: str) -> list[str]:
    """The lines of an API that kio has and kafka-python does not."""
    lines = []
    serial: Any = importlib.import_module("kio.serial")
    for direction in ("request", "response"):
        for version in VERSIONS[name]:
            module = importlib.import_module(f"kio.schema.{snake(name)}.v{version}.{direction}")
            cls = getattr(module, f"{name}{direction.capitalize()}")
            for variant in VARIANTS:
                entity, meant = KioValues(version, variant).entity(cls)
                buffer = io.BytesIO()
                serial.entity_writer(cls)(buffer, entity)
                lines.append(_line(direction, version, variant, buffer.getvalue(), meant))
    return lines


def judged_lines_of(name: str) -> tuple[list[str], list[str]]:
    """The lines of an API that kafka-python encodes and kio checks, and their disagreements."""
    lines, troubles = [], []
    for direction in ("request", "response"):
        cls = kafka_python_class(name + direction.capitalize())
        for version in VERSIONS[name]:
            seen = set()
            for variant in VARIANTS:
                given, meant = Values(version, variant).message(cls._json["fields"])
                given, meant = _present(given), _present(meant)
                where = f"{name} {direction} v{version} {variant}"
                try:
                    data = bytes(kafka_python_struct(cls, given, version).encode(version=version))
                    again = kio_again(name, direction, version, data)
                except Exception as error:  # noqa: BLE001  encoders raise any kind
                    troubles.append(f"{where}: {type(error).__name__}: {error}")
                    continue
                if again != data:
                    troubles.append(f"{where}: kio writes {again.hex()}, not {data.hex()}")
                if data in seen:
                    continue
                seen.add(data)
                lines.append(_line(direction, version, variant, data, meant))
    return lines, troubles


def flexible_bytes(fields: list[dict[str, Any]], values: dict[str, Any]) -> bytes:
    """A flexible struct without tagged fields, encoded after the text of KIP-482."""
    parts = []
    for field in fields:
        value, kind = values[snake(field["name"])], field["type"]
        if kind == "[]":
            parts.append(_uvarint(len(value) + 1))
            parts += [flexible_bytes(field["fields"], item) for item in value]
        elif kind.startswith("[]"):
            parts.append(_uvarint(len(value) + 1))
            parts += [_plain(kind[2:], item) for item in value]
        else:
            parts.append(_plain(kind, value))
    return b"".join(parts) + b"\0"


def _plain(kind: str, value: Any) -> bytes:
    if kind in ("string", "records"):
        text = b"" if value is None else value if kind == "records" else value.encode()
        return _uvarint(0 if value is None else len(text) + 1) + text
    if kind == "uuid":
        raw: bytes = value.bytes
        return raw
    if kind == "bool":
        return bytes([value])
    if kind == "float64":
        return struct.pack(">d", value)
    data: bytes = value.to_bytes(int(kind[3:]) // 8, "big", signed=True)
    return data


def _uvarint(number: int) -> bytes:
    data = b""
    while number > 127:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])


def private_lines_of(name: str) -> list[str]:
    """The lines of an API that is not Kafka's."""
    lines = []
    for direction, fields in zip(("request", "response"), PRIVATE[name], strict=True):
        for variant in VARIANTS:
            given, meant = Values(0, variant).message(fields)
            lines.append(_line(direction, 0, variant, flexible_bytes(fields, given), meant))
    return lines


def lines_of(name: str) -> tuple[list[str], list[str]]:
    """(the lines for the file of an API, the disagreements of the encoders)."""
    if name in PRIVATE:
        return private_lines_of(name), []
    if kafka_python_class(f"{name}Request") is None:
        return kio_lines_of(name), []
    return judged_lines_of(name)


def make(names: list[str]) -> None:
    """Write the files of the given APIs, or of all, except those on which the encoders disagree."""
    failed = False
    for name in names or VERSIONS:
        lines, troubles = lines_of(name)
        for trouble in troubles:
            print(trouble, file=sys.stderr)
        failed = failed or bool(troubles)
        if not troubles:
            (HERE / f"{snake(name)}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if failed:
        raise SystemExit("the encoders disagree; nothing was written for those APIs")


# --- What real clients say -----------------------------------------------------------------------

_FRAME_BYTES_MAX = 4096
_UNSUPPORTED_VERSION = (35).to_bytes(2, "big")


def meaning(value: Any) -> Any:
    """A value that kafka-python has decoded, in the form in which the golden files have it."""
    if isinstance(value, list):
        return [meaning(item) for item in value]
    if isinstance(value, uuid.UUID):
        return value.bytes.hex()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if not hasattr(value, "_struct"):
        return value
    fields = value._struct._fields
    held = {}
    for field in fields:
        if not field.for_version_q(value.version):
            continue
        found = getattr(value, field.name)
        if field.tagged_field_q(value.version) and found == field.default:
            continue
        if field.type_str == "bitfield":
            found = -(2**31) if found is None else sum(1 << bit for bit in found)
        elif field.type_str == "uuid" and found is None:
            found = uuid.UUID(int=0)
        held[
            kafka_name({"name": field._name, "type": field.type_str}, not hasattr(value, "_json"))
        ] = meaning(found)
    return held


class Recorder:
    """A TCP proxy for one broker that keeps the first frames of every kind.

    Answers name the broker's address. The proxy replaces the broker's port by its own, so that all
    connections use the proxy. The kept frames are those that the broker sent.
    """

    def __init__(self, broker: tuple[str, int]) -> None:
        self.broker = broker
        self.client = ""
        self.kept: dict[tuple[str, int, int, str], list[bytes]] = {}
        self.port = 0
        self._connections: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self.server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        asked: dict[int, tuple[str, int, int]] = {}
        upstream = await asyncio.open_connection(*self.broker)
        try:
            await asyncio.gather(
                self._requests(reader, upstream[1], asked),
                self._responses(upstream[0], writer, asked),
            )
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # one side has closed the connection, or the capture is over
        finally:
            writer.close()
            upstream[1].close()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, tuple[str, int, int]],
    ) -> None:
        while True:
            frame = await _read_frame(reader)
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            asked[correlation_id] = (self.client, key, version)
            self._keep((self.client, key, version, "request"), frame)
            writer.write(len(frame).to_bytes(4, "big") + frame)

    async def _responses(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, tuple[str, int, int]],
    ) -> None:
        ours, theirs = (
            self.broker[0].encode() + port.to_bytes(4, "big")
            for port in (self.port, self.broker[1])
        )
        while True:
            frame = await _read_frame(reader)
            correlation_id = int.from_bytes(frame[:4], "big")
            if correlation_id in asked:
                self._keep((*asked.pop(correlation_id), "response"), frame)
            frame = frame.replace(theirs, ours)
            writer.write(len(frame).to_bytes(4, "big") + frame)

    def _keep(self, kind: tuple[str, int, int, str], frame: bytes) -> None:
        kept = self.kept.setdefault(kind, [])
        if len(kept) < 2 and len(frame) <= _FRAME_BYTES_MAX:
            kept.append(frame)

    def lines(self) -> list[str]:
        """The lines of all kept frames of served APIs, with the values that kafka-python
        decodes."""
        names = {int(api.key): api.name for api in APIS.values()}
        lines = []
        for (client, key, version, direction), frames in sorted(self.kept.items()):
            if key not in names or version not in VERSIONS[names[key]]:
                continue
            cls = kafka_python_class(names[key] + direction.capitalize())
            for frame in frames:
                if names[key] == "ApiVersions" and frame[4:6] == _UNSUPPORTED_VERSION:
                    continue  # the mock broker answers with a form that no version has
                decoded = cls.decode(frame, version=version, header=True)
                line = {
                    "client": client,
                    "api": names[key],
                    "direction": direction,
                    "version": version,
                    "hex": frame.hex(),
                    "value": meaning(decoded),
                }
                lines.append(_json(line))
        return lines


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def _with_confluent(address: str) -> None:
    from confluent_kafka import Consumer, Producer

    common = {"bootstrap.servers": address, "client.id": "golden-é", "log_level": 0}
    producer = Producer({**common, "enable.idempotence": True, "compression.type": "lz4"})
    for number in range(3):
        producer.produce("größe", f"value {number}", f"key {number}", headers={"h": b"\0\xff"})
    producer.produce("größe", None, "tombstone")
    if producer.flush(20):
        raise SystemExit("confluent-kafka could not produce")
    consumer = Consumer({**common, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["größe"])
    messages = consumer.consume(4, timeout=20)
    if len(messages) != 4:
        raise SystemExit(f"confluent-kafka read {len(messages)} of 4 messages")
    consumer.commit(asynchronous=False)
    consumer.close()


async def _with_aiokafka(address: str) -> None:
    import aiokafka

    async with aiokafka.AIOKafkaProducer(bootstrap_servers=address, client_id="aio") as producer:
        for number in range(3):
            await producer.send_and_wait("plain", b"value %d" % number, b"key")
    async with aiokafka.AIOKafkaConsumer(
        "plain", bootstrap_servers=address, group_id="aio-readers", auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(3):
            await asyncio.wait_for(consumer.getone(), 20)
        await consumer.commit()


async def capture() -> None:
    """Write captured.jsonl, from clients that use librdkafka's mock broker through a `Recorder`."""
    from confluent_kafka import Producer

    mock = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(mock.list_topics(timeout=20).brokers.values()))
    recorder = Recorder((broker.host, broker.port))
    await recorder.start()
    address = f"127.0.0.1:{recorder.port}"
    recorder.client = "confluent-kafka"
    await asyncio.to_thread(_with_confluent, address)
    recorder.client = "aiokafka"
    await _with_aiokafka(address)
    await recorder.stop()
    (HERE / "captured.jsonl").write_text("\n".join(recorder.lines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["capture"]:
        asyncio.run(capture())
    else:
        make(sys.argv[1:])
