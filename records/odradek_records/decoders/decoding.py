"""The choice of the format of a key or value, and the guess, which tries one format after the
other.

A guess uses the format of the rule for the topic. Without a rule it tries decoders of other
packages first, then formats with a schema, then JSON, text and Protobuf without a schema. A hex
dump always works, and is tried last. If a format fails, the result lists it as an attempt; there is
never an exception.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from typing import Any

from odradek_records.decoders import protobuf
from odradek_records.decoders.plain import (
    Attempt,
    CannotDecode,
    Decoded,
    Found,
    Limits,
    as_json,
    as_text,
    hex_dump,
    indented_json,
)
from odradek_records.decoders.schema_registry import AVRO, PROTOBUF, SchemaRegistry
from odradek_records.decoders.schemas import DecoderError, Schemas, best, framed, parse_rule

#: The name of the choice that tries every format.
GUESS = "guess"
HEX = "hex"
NULL = "null"
#: Protobuf without a schema.
RAW = "protobuf-raw"
#: The group of entry points by which other packages offer decoders.
ENTRY_POINTS = "odradek.decoders"

#: A decoder of another package: bytes, topic, true for a key; returns a value for JSON.
Plugin = Callable[[bytes, str, bool], Any]
_Try = Callable[[bytes, str, bool], Found]

_ERROR_CHARACTERS_MAX = 500


class Decoders:
    """The formats of a program: the built-in ones, and those of other packages.

    `formats`: rules `[TOPIC:][key=|value=]FORMAT` for a guess. `schemas`: rules with a file instead
    of a format: an Avro schema, or FILE#MESSAGE for descriptors of Protobuf. `plugins`: decoders of
    other packages by name; by default those of the entry points of installed packages. DecoderError
    names a rule or file that cannot be used.
    """

    def __init__(
        self,
        *,
        formats: Sequence[str] = (),
        schemas: Sequence[str] = (),
        schema_registry: SchemaRegistry | None = None,
        plugins: Mapping[str, Plugin] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._schemas = Schemas(schemas, schema_registry, self.limits)
        self._builtin: dict[str, _Try] = {
            "json": self._json,
            "text": lambda data, _topic, _key: _text(data),
            "avro": self._schemas.decode_avro,
            "protobuf": self._schemas.decode_protobuf,
            RAW: self._raw_protobuf,
            HEX: lambda data, _topic, _key: Found(None, hex_dump(data, self.limits)),
        }
        found = _installed_plugins() if plugins is None else plugins
        self._plugins: dict[str, _Try] = {
            name: _Guarded(name, plugin, self.limits).decode
            for name, plugin in sorted(found.items())
            if name not in self._builtin and name != GUESS
        }
        self._rules = [parse_rule(each) for each in formats]
        for rule in self._rules:
            if rule.rest not in self.formats:
                raise DecoderError(self._unknown(rule.rest))

    @property
    def formats(self) -> tuple[str, ...]:
        """The names of formats for `decode`."""
        return (GUESS, *self._builtin, *self._plugins)

    def rule_for(self, topic: str, is_key: bool) -> str | None:
        """The format that a rule names; None if it is guessed."""
        number = best(self._rules, topic, is_key)
        named = GUESS if number is None else self._rules[number].rest
        return None if named == GUESS else named

    def may_block(self, data: bytes | None) -> bool:
        """True if decoding would send a request to a schema registry, which takes some time."""
        return data is not None and self._schemas.may_block(data)

    def tries(
        self, which: str, data: bytes, topic: str, is_key: bool
    ) -> Iterator[tuple[str, _Try]]:
        """The formats to try if `which` is chosen, the first one first. Raises ValueError for an
        unknown format."""
        if which not in self.formats:
            raise ValueError(self._unknown(which))
        if which == GUESS:
            which = self.rule_for(topic, is_key) or GUESS
        if which == GUESS:
            return self._guess(data, topic, is_key)
        names = [
            which,
            *([RAW] if which == "protobuf" else []),
            *([] if which == HEX else ["text"]),
        ]
        every = self._builtin | self._plugins
        return ((name, every[name]) for name in names)

    def _guess(self, data: bytes, topic: str, is_key: bool) -> Iterator[tuple[str, _Try]]:
        yield from self._plugins.items()
        for name, kind in (("avro", AVRO), ("protobuf", PROTOBUF)):
            if self._schemas.is_for(kind, data, topic, is_key):
                yield name, self._builtin[name]
        yield from ((name, self._builtin[name]) for name in ("json", "text"))
        yield RAW, self._likely_protobuf

    def _unknown(self, which: str) -> str:
        return f"there is no format {which!r}; there are {', '.join(self.formats)}"

    def _json(self, data: bytes, _topic: str, _is_key: bool) -> Found:
        frame = framed(data)
        return as_json(data if frame is None else frame[1], self.limits)

    def _raw_protobuf(self, data: bytes, _topic: str, _is_key: bool) -> Found:
        return protobuf.raw(_unframed(data), self.limits)

    def _likely_protobuf(self, data: bytes, _topic: str, _is_key: bool) -> Found:
        return protobuf.raw(_unframed(data), self.limits, likely=True)


def _unframed(data: bytes) -> bytes:
    """The message without the schema id and the message indexes that precede it."""
    frame = framed(data)
    return data if frame is None else protobuf.read_indexes(frame[1])[1]


def decode(
    data: bytes | None, *, which: str = GUESS, topic: str, is_key: bool, registry: Decoders
) -> Decoded:
    """A key or value in the format `which`, or, for "guess", in the first format that fits.

    Bytes that are not in the named format are shown as text or as a hex dump. Raises ValueError for
    an unknown format, and for nothing else."""
    attempts: list[Attempt] = []
    limits = registry.limits
    tries = registry.tries(which, data or b"", topic, is_key)
    if data is None:
        return Decoded(NULL, NULL, None)
    if len(data) > limits.data_bytes_max:
        name, _ = next(tries)
        too_long = f"{len(data)} bytes are more than {limits.data_bytes_max}, the limit"
        return Decoded(HEX, hex_dump(data, limits), None, (Attempt(name, too_long),))
    for name, attempt in tries:
        if any(name == each.format for each in attempts):
            # The guess after a failed format does not try that format again.
            continue
        try:
            found = attempt(data, topic, is_key)
            text = indented_json(found.value) if found.text is None else found.text
            return Decoded(name, text, found.value, tuple(attempts))
        except CannotDecode as error:
            attempts.append(Attempt(name, str(error)))
    return Decoded(HEX, hex_dump(data, limits), None, tuple(attempts))


def _text(data: bytes) -> Found:
    text = as_text(data)
    return Found(text, text)


# --- Decoders of others ---------------------------------------------------------------------------


def _installed_plugins() -> dict[str, Plugin]:
    """The decoders of installed packages by name; each is imported at its first use."""
    return {
        point.name: partial(_load_and_call, point) for point in entry_points(group=ENTRY_POINTS)
    }


def _load_and_call(point: Any, data: bytes, topic: str, is_key: bool) -> Any:
    return point.load()(data, topic, is_key)


class _Guarded:
    """A decoder of another package, run in a separate thread because it may fail or hang.

    A decoder that took longer than the limit is not used again.
    """

    def __init__(self, name: str, plugin: Plugin, limits: Limits) -> None:
        self._name = name
        self._plugin = plugin
        self._limits = limits
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._hung = False
        self._questions: queue.SimpleQueue[tuple[bytes, str, bool]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Found | CannotDecode] = queue.SimpleQueue()

    def decode(self, data: bytes, topic: str, is_key: bool) -> Found:
        with self._lock:
            if self._hung:
                raise CannotDecode(
                    "not called, because an earlier call took longer than"
                    f" {self._limits.plugin_s:g} s"
                )
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name=f"decoder {self._name}", daemon=True
                )
                self._thread.start()
            self._questions.put((data, topic, is_key))
            try:
                answer = self._answers.get(timeout=self._limits.plugin_s)
            except queue.Empty:
                self._hung = True
                raise CannotDecode(f"took longer than {self._limits.plugin_s:g} s") from None
        if isinstance(answer, CannotDecode):
            raise answer
        return answer

    def _work(self) -> None:
        while True:
            question = self._questions.get()
            answer: Found | CannotDecode
            try:
                answer = Found(_plain_value(self._plugin(*question), self._limits))
            except CannotDecode as error:
                answer = error
            except BaseException as error:  # noqa: BLE001 code of others may raise anything
                said = str(error)[:_ERROR_CHARACTERS_MAX]
                answer = CannotDecode(f"{type(error).__name__}: {said}" if said else repr(error))
            self._answers.put(answer)


def _plain_value(value: Any, limits: Limits) -> Any:
    """A copy that has only values of JSON. CannotDecode for a value that is too long, or that JSON
    cannot represent."""
    text = indented_json(value)
    if len(text) > limits.text_characters_max:
        raise CannotDecode(f"its value is longer than {limits.text_characters_max} characters")
    return json.loads(text)
