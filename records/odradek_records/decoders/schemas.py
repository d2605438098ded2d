"""Schemas for topics: from files, and from a registry by the id that a record begins with.

A rule names a topic, a key or value, or none of them: `[TOPIC:][key=|value=]REST`. REST is a format
or a file. In TOPIC `*` stands for any characters. The most specific rule applies: a rule with a
whole topic takes precedence over one with a pattern, a rule for the key or the value over one for
both, and the last of equally specific rules over those before it.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from odradek_records.decoders import avro, protobuf
from odradek_records.decoders.plain import CannotDecode, Found, Limits
from odradek_records.decoders.schema_registry import (
    AVRO,
    PROTOBUF,
    RegisteredSchema,
    SchemaRegistry,
    said,
)

_FILE_BYTES_MAX = 16 * 1024 * 1024
_COMPILED_MAX = 256
_RULE = re.compile(r"(?:(?P<topic>[\w.*-]+):)?(?:(?P<part>key|value)=)?(?P<rest>.+)", re.DOTALL)


class DecoderError(ValueError):
    """The error of an unusable rule or schema file; the text names the rule or file."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. `topic`: a name or pattern, None for all topics. `is_key`: None for key and value.
    `rest`: the format or file of the rule."""

    topic: str | None
    is_key: bool | None
    rest: str

    def rank(self, topic: str, is_key: bool) -> tuple[int, int] | None:
        """A number that is larger for a more specific rule; None if the rule does not apply."""
        if self.is_key is not None and self.is_key != is_key:
            return None
        if self.topic is not None and not fnmatchcase(topic, self.topic):
            return None
        named = 0 if self.topic is None else 1 if "*" in self.topic else 2
        return named, int(self.is_key is not None)


def parse_rule(text: str) -> Rule:
    """The rule in a text. Raises DecoderError."""
    found = _RULE.fullmatch(text)
    if found is None:
        raise DecoderError(f"{text!r} is no choice; write [TOPIC:][key=|value=]NAME")
    part = found["part"]
    return Rule(found["topic"], None if part is None else part == "key", found["rest"])


def best(rules: Sequence[Rule], topic: str, is_key: bool) -> int | None:
    """The index of the most specific rule that applies (the last of equally specific rules), or
    None."""
    ranked = [
        (rank, number)
        for number, rule in enumerate(rules)
        if (rank := rule.rank(topic, is_key)) is not None
    ]
    return max(ranked)[1] if ranked else None


# --- Files ----------------------------------------------------------------------------------------


def load(rest: str) -> avro.AvroSchema | protobuf.ProtobufSchema:
    """The schema in a file: Avro as JSON, or FILE#MESSAGE for descriptors. Raises DecoderError."""
    name, _, message = rest.partition("#")
    try:
        with Path(name).open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
        if len(data) > _FILE_BYTES_MAX:
            raise DecoderError(f"{name}: more than {_FILE_BYTES_MAX} bytes are no schema")
        if message:
            return protobuf.ProtobufSchema.from_set(data, message)
        if not data.lstrip().startswith((b"{", b"[", b'"')):
            raise DecoderError(
                f"{name}: no Avro schema; a file of Protobuf descriptors needs FILE#MESSAGE"
            )
        return avro.parse_schema(data.decode())
    except OSError as error:
        raise DecoderError(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DecoderError(f"{name}: an Avro schema is UTF-8") from None
    except (avro.AvroSchemaError, protobuf.DescriptorError) as error:
        raise DecoderError(f"{name}: {error}") from None


# --- Records --------------------------------------------------------------------------------------

_FRAME_BYTES = 5


def framed(data: bytes) -> tuple[int, bytes] | None:
    """The schema id with which a record begins, and the bytes after it; None if there is no id.

    A zero byte and the id in four bytes are the beginning of such a record.
    """
    if len(data) < _FRAME_BYTES or data[0] != 0:
        return None
    schema_id = int.from_bytes(data[1:_FRAME_BYTES], "big")
    return (schema_id, data[_FRAME_BYTES:]) if schema_id else None


class Schemas:
    """The schemas of a program: rules with files, and a registry.

    `files`: rules whose `rest` names a file. Raises DecoderError for a file that cannot be used.
    """

    def __init__(
        self, files: Sequence[str], registry: SchemaRegistry | None, limits: Limits
    ) -> None:
        self._rules = [parse_rule(each) for each in files]
        self._loaded = [load(each.rest) for each in self._rules]
        self._registry = registry
        self._limits = limits
        self._lock = threading.Lock()
        self._compiled: OrderedDict[int, avro.AvroSchema | protobuf.ProtobufSchema] = OrderedDict()

    def is_for(self, kind: str, data: bytes, topic: str, is_key: bool) -> bool:
        """True if a guess should try the format `kind`, because of the bytes or a rule."""
        if kind == AVRO and data.startswith(avro.CONTAINER):
            return True
        if isinstance(self._of_topic(topic, is_key), _TYPES[kind]):
            return True
        return framed(data) is not None and (kind == AVRO or self._registry is not None)

    def may_block(self, data: bytes) -> bool:
        """True if decoding would send a request to the registry."""
        frame = framed(data)
        return (
            self._registry is not None
            and frame is not None
            and not self._registry.is_known(frame[0])
        )

    def decode_avro(self, data: bytes, topic: str, is_key: bool) -> Found:
        """The value of a record or of an object container."""
        if data.startswith(avro.CONTAINER):
            return Found(avro.read_container(data, self._limits))
        frame = framed(data)
        chosen = self._of_topic(topic, is_key)
        if isinstance(chosen, avro.AvroSchema):
            if frame is not None:
                try:
                    return Found(chosen.decode(frame[1], self._limits))
                except CannotDecode:
                    pass
            return Found(chosen.decode(data, self._limits))
        schema: avro.AvroSchema = self._of_frame(frame, AVRO)
        return Found(schema.decode(self._payload(frame), self._limits))

    def decode_protobuf(self, data: bytes, topic: str, is_key: bool) -> Found:
        """A message, decoded with a file of descriptors, or with a schema of the registry."""
        frame = framed(data)
        chosen = self._of_topic(topic, is_key)
        if isinstance(chosen, protobuf.ProtobufSchema):
            # A message never begins with a zero byte.
            return chosen.decode(data if frame is None else protobuf.read_indexes(frame[1])[1])
        schema: protobuf.ProtobufSchema = self._of_frame(frame, PROTOBUF)
        indexes, message = protobuf.read_indexes(self._payload(frame))
        return schema.decode(message, indexes=indexes)

    def _of_topic(
        self, topic: str, is_key: bool
    ) -> avro.AvroSchema | protobuf.ProtobufSchema | None:
        number = best(self._rules, topic, is_key)
        return None if number is None else self._loaded[number]

    @staticmethod
    def _payload(frame: tuple[int, bytes] | None) -> bytes:
        assert frame is not None
        return frame[1]

    def _of_frame(self, frame: tuple[int, bytes] | None, kind: str) -> Any:
        """The compiled schema that the id of a record names. CannotDecode."""
        if frame is None:
            raise CannotDecode(
                "there is no schema: the record has no id of one, and no file is given for the topic"
            )
        schema_id = frame[0]
        if self._registry is None:
            raise CannotDecode(
                f"the record begins like one with schema {schema_id} of a registry, and no registry "
                "is given"
            )
        registered = self._registry.by_id(schema_id)
        if registered.kind != kind:
            raise CannotDecode(f"schema {schema_id} of the registry is {said(registered.kind)}")
        with self._lock:
            found = self._compiled.get(schema_id)
        if found is None:
            try:
                found = _compiled(registered)
            except (avro.AvroSchemaError, protobuf.DescriptorError, binascii.Error) as error:
                raise CannotDecode(f"schema {schema_id} of the registry: {said(error)}") from None
            with self._lock:
                self._compiled[schema_id] = found
                while len(self._compiled) > _COMPILED_MAX:
                    self._compiled.popitem(last=False)
        return found


_TYPES: dict[str, type[Any]] = {AVRO: avro.AvroSchema, PROTOBUF: protobuf.ProtobufSchema}


def _compiled(registered: RegisteredSchema) -> avro.AvroSchema | protobuf.ProtobufSchema:
    if registered.kind == PROTOBUF:
        texts = [*(text for _, text in registered.others), registered.text]
        try:
            files = [base64.b64decode(text, validate=True) for text in texts]
        except binascii.Error:
            raise protobuf.DescriptorError(
                "the registry gives no serialized descriptors (format=serialized)"
            ) from None
        return protobuf.ProtobufSchema(_named(files, registered), None)
    known: dict[str, Any] = {}
    for _, text in registered.others:
        known |= avro.parse_schema(text, known).named
    return avro.parse_schema(registered.text, known)


def _named(files: list[bytes], registered: RegisteredSchema) -> list[bytes]:
    """The descriptors, each under the name by which other descriptors import it."""
    names = [*(name for name, _ in registered.others), None]
    return [protobuf.renamed(file, name) for file, name in zip(files, names, strict=True)]
