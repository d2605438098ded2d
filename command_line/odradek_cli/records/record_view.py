"""The records of `odradek consume` for people: filtered, decoded and in colour."""

from __future__ import annotations

import datetime as dt
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.commands import fail
from odradek_cli.common import tell
from odradek_cli.options import option
from odradek_protocol.visible import visible
from odradek_records.record_filter import (
    FilterError,
    RecordFilter,
    condition,
    json_value,
    parse_filter,
    parse_path_condition,
)
from odradek_records.record_format import FormatError, Headers, PrintedRecord, Printer, to_json_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from odradek_records.decoders import Decoded, Decoders

REGISTRY_VARIABLE = "ODRADEK_SCHEMA_REGISTRY"
#: The maximum number of failed decodings that a run reports.
_FAILURES_TOLD = 20
#: Colours of topics, in the order of the topics' first records.
_TOPIC_STYLES = ("cyan", "magenta", "green", "yellow", "blue", "red")
#: The maximum length of JSON that is coloured, in characters. Colouring longer JSON would take too
#: long.
_COLOURED_CHARACTERS_MAX = 65_536
_SHOWN_BYTES_MAX = 200

Decode = Annotated[
    list[str] | None,
    option(
        "--decode [TOPIC:][key=|value=]FORMAT",
        "Decode keys and values: guess, json, text, avro, protobuf, protobuf-raw, hex, or a "
        "decoder of an installed package; repeatable.",
    ),
]
SchemaFiles = Annotated[
    list[str] | None,
    option(
        "--schema [TOPIC:][key=|value=]FILE[#MESSAGE]",
        "A file with an Avro schema, or with Protobuf descriptors and the name of a message; "
        "repeatable.",
    ),
]
RegistryUrl = Annotated[
    str | None,
    option("--registry URL", "The schema registry that has the schemas of the ids in records."),
]
ShownFields = Annotated[
    list[str] | None,
    option(
        "--show-field PATH",
        "Show the value of this field, such as order.id or *.id; repeatable.",
    ),
]
HiddenFields = Annotated[
    list[str] | None,
    option(
        "--hide-field PATH",
        "Hide the value of this field even if another option shows it; repeatable.",
    ),
]


@dataclass(frozen=True)
class ViewOptions:
    """The options of a command that choose records and decode them."""

    key: Annotated[
        list[str] | None,
        option("--key KEY", "Only records with this key; repeatable: one of the keys."),
    ] = None
    header: Annotated[
        list[str] | None,
        option(
            "--header NAME[=VALUE]",
            "Only records with this header; repeatable: all of the headers.",
        ),
    ] = None
    grep: Annotated[
        list[str] | None,
        option(
            "--grep REGEX",
            "Only records with this text in key, value or a header; repeatable: all of the texts.",
        ),
    ] = None
    jsonpath: Annotated[
        list[str] | None,
        option(
            "--jsonpath PATH[=VALUE]",
            "Only records whose value meets this condition: '$.total>=10', '$.lines[*].sku=a', "
            "'$.id'; repeatable: all of the conditions.",
        ),
    ] = None
    filter_: Annotated[
        str | None, option("--filter FILTER", "A filter expression, as in the web console.")
    ] = None
    decode: Decode = None
    schema: SchemaFiles = None
    registry: RegistryUrl = None
    pretty: Annotated[
        bool,
        option(
            "--pretty",
            "Print each record for people: partition, offset, time, key, headers and indented value.",
        ),
    ] = False

    @property
    def decodes(self) -> bool:
        return bool(self.decode or self.schema or self.registry is not None or self.pretty)

    @property
    def filters(self) -> bool:
        return bool(
            self.key or self.header or self.grep or self.jsonpath or self.filter_ is not None
        )


class View:
    """The filter and the decoders of a run.

    `blocks`: true if decoding may send requests to a schema registry, so that it has to run in a
    thread. FilterError, DecoderError or another ValueError for a wrong option.
    """

    def __init__(self, options: ViewOptions) -> None:
        self._options = options
        self._records = _DecodedRecords(make_decoders(options)) if options.decodes else None
        self.blocks = options.decodes and _registry_url(options) is not None
        self.wanted = self._filter() if options.filters else None

    def _filter(self) -> RecordFilter:
        options = self._options
        value_of = json_value if self._records is None else self._records.value_of
        base = parse_filter(options.filter_ or "", value_of=value_of)
        conditions = list(base.conditions)
        if options.key:
            wanted = {key.encode("utf-8", "surrogateescape") for key in options.key}
            conditions.append(lambda subject: subject.record.key in wanted)
        for header in options.header or ():
            name, sign, value = header.partition("=")
            if not name:
                raise FilterError(f"--header {header}: the name is missing; write NAME=VALUE")
            conditions.append(condition(f"header.{name}", sign or "exists", value))
        conditions += [condition("text", "=~", each) for each in options.grep or ()]
        conditions += [parse_path_condition(each) for each in options.jsonpath or ()]
        return RecordFilter(tuple(conditions), value_of)

    def printer(self, printer: Printer, *, plain: bool, as_json: bool) -> Printer:
        """The printer for decoded records; `printer` itself if nothing is decoded. `plain`: no
        option selects an output format.

        FormatError for --pretty together with another output format.
        """
        records = self._records
        if records is None:
            return printer
        if self._options.pretty and not plain:
            raise FormatError(
                "--pretty is a form of its own; leave out --json, --format, -K, -Z, -D"
            )
        if as_json:
            return lambda record: to_json_line(record, decoded=records.as_json(record))
        if self._options.pretty or (plain and sys.stdout.isatty()):
            return _PrettyPrinter(records)
        return lambda record: printer(records.of_one_line(record))


def _registry_url(options: ViewOptions) -> str | None:
    return options.registry or os.environ.get(REGISTRY_VARIABLE) or None


def make_decoders(options: ViewOptions) -> Decoders:
    """The decoders that the options name. DecoderError or another ValueError for a wrong option."""
    from odradek_records.decoders import Decoders, SchemaRegistry

    url = _registry_url(options)
    return Decoders(
        formats=options.decode or (),
        schemas=options.schema or (),
        schema_registry=None if url is None else SchemaRegistry(url),
    )


def decoders_of(
    decode: list[str] | None, schema: list[str] | None, registry: str | None
) -> Decoders:
    """The decoders that these options name. Ends the program for a wrong one."""
    try:
        return make_decoders(ViewOptions(decode=decode, schema=schema, registry=registry))
    except ValueError as error:
        fail(str(error), 2)


# --- Decoded records ------------------------------------------------------------------------------


@dataclass(slots=True)
class _OneLine:
    """A record whose key and value are decoded, each on one line."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    headers: Headers
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class _DecodedRecords:
    """The decoded keys and values of records. Those of the last record are kept, because the filter
    and then the printer need them."""

    decoders: Decoders
    _last: dict[bool, tuple[PrintedRecord, Decoded]] = field(default_factory=dict)
    _told: set[tuple[str, bool, str]] = field(default_factory=set)

    def of(self, record: Any, is_key: bool) -> Decoded:
        last = self._last.get(is_key)
        if last is not None and last[0] is record:
            return last[1]
        from odradek_records.decoders import decode

        data = record.key if is_key else record.value
        found = decode(data, topic=record.topic, is_key=is_key, registry=self.decoders)
        self._last[is_key] = (record, found)
        return found

    def value_of(self, record: Any) -> Any:
        return self.of(record, False).value

    def as_json(self, record: PrintedRecord) -> dict[str, Any]:
        """The decoded key and value for a line of JSON."""
        return {
            name: {"format": found.format, "value": found.value}
            | ({} if found.value is not None or found.format == "null" else {"text": found.text})
            for name, is_key in (("key", True), ("payload", False))
            for found in [self.of(record, is_key)]
        }

    def of_one_line(self, record: PrintedRecord) -> _OneLine:
        return _OneLine(
            record.topic, record.partition, record.offset, record.timestamp, record.timestamp_type,
            record.headers, self._line(record, True), self._line(record, False),
        )  # fmt: skip

    def _line(self, record: PrintedRecord, is_key: bool) -> bytes | None:
        data: bytes | None = record.key if is_key else record.value
        if data is None:
            return None
        found = self.of(record, is_key)
        self._tell_failures(record.topic, is_key, found)
        if found.format == "text":
            return visible(found.text, keep=_LINE_ENDS).encode()
        if found.format == "hex":
            return data.hex(" ").encode()
        # Line ends in indented JSON are never inside texts.
        return "".join(line.strip() for line in found.text.split("\n")).encode()

    def _tell_failures(self, topic: str, is_key: bool, found: Decoded) -> None:
        """Report, once for each topic, why a key or value is shown as hex digits, or in another
        format than its `--decode` rule names."""
        ruled = self.decoders.rule_for(topic, is_key)
        if (found.format != "hex" and (ruled is None or found.format == ruled)) or ruled == "hex":
            return
        known = (topic, is_key, found.format)
        if known in self._told or len(self._told) >= _FAILURES_TOLD:
            return
        self._told.add(known)
        part = "key" if is_key else "value"
        tell(f"odradek: a {part} of {topic} is shown as {found.format}; {failures_of(found)}")


def failures_of(found: Decoded) -> str:
    """The formats that were tried without success before the one that fitted, with the reasons."""
    return "; ".join(f"not {each.format}: {each.failure}" for each in found.attempts)


#: The characters of a decoded text that are printed although they are no letters.
_LINE_ENDS = "\n\r\t"

# --- For people -----------------------------------------------------------------------------------


def _short(data: bytes | None) -> str:
    """A header's value: text, or hexadecimal digits if its bytes are no UTF-8."""
    if data is None:
        return "NULL"
    shown = data[:_SHOWN_BYTES_MAX]
    try:
        text = visible(shown.decode())
    except UnicodeDecodeError:
        text = f"0x{shown.hex()}"
    return text + ("..." if len(data) > len(shown) else "")


class _PrettyPrinter:
    """The printer of a line with place, time, key and headers, and of the value below it."""

    def __init__(self, records: _DecodedRecords) -> None:
        from rich.console import Console

        self._records = records
        # The terminal wraps long lines itself, so that copied text has no added line breaks.
        self._console: Console = Console(file=sys.stdout, soft_wrap=True)
        self._styles: dict[str, str] = {}

    def __call__(self, record: PrintedRecord) -> bytes:
        with self._console.capture() as captured:
            self._console.print(self._head(record), highlight=False)
            found = self._records.of(record, False)
            if found.format == "null":
                self._console.print("null", style="dim", highlight=False)
            else:
                self._console.print(_coloured(found), highlight=False)
            if found.attempts and (
                found.format == "hex" or self._records.decoders.rule_for(record.topic, False)
            ):
                self._console.print(
                    visible(f"({failures_of(found)})"), style="dim", markup=False, highlight=False
                )
        return captured.get().encode()

    def _head(self, record: PrintedRecord) -> Text:
        from rich.text import Text

        style = self._styles.setdefault(
            record.topic, _TOPIC_STYLES[len(self._styles) % len(_TOPIC_STYLES)]
        )
        head = Text()
        head.append(f"{record.topic}/{record.partition}", style=f"bold {style}")
        head.append(f" @{record.offset}", style=style)
        head.append(f"  {_moment(record.timestamp)}", style="dim")
        if record.key is not None:
            head.append("  key ", style="dim")
            line = self._records.of_one_line(record).key or b""
            head.append(visible(line.decode("utf-8", "replace")))
        for name, value in record.headers:
            head.append(f"  {visible(name)}=", style="dim")
            head.append(_short(value))
        return head


def _moment(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "no time"
    try:
        moment = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def _coloured(found: Decoded) -> Text:
    from rich.text import Text

    text = Text(visible(found.text, keep=_LINE_ENDS))
    if found.format not in ("text", "hex") and len(found.text) <= _COLOURED_CHARACTERS_MAX:
        from rich.highlighter import JSONHighlighter

        JSONHighlighter().highlight(text)
    return text
