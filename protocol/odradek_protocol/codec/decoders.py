"""Generated decoders: for each struct and version a function without loops over fields."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct as Packer
from struct import unpack_from
from typing import Any, TypeVar, cast

from odradek_protocol.message import ArrayOf, FieldSpec, FieldType, Struct
from odradek_protocol.primitives import (
    MAX_ARRAY_ELEMENTS,
    MAX_STRING_BYTES,
    DecodeError,
    WireType,
    decode_uvarint,
)

from .defaults import assign_default
from .source import PAUSE_ELEMENTS, Decoder, FunctionSource, has_arrays

S = TypeVar("S", bound=Struct)
_INT16 = Packer(">h")
_INT32 = Packer(">i")


def _bad_length(cls: str, name: str, length: int) -> DecodeError:
    return DecodeError(f"{cls}.{name} has length {length}, which cannot be")


class TooManyElements(DecodeError):
    """The error for arrays with more elements together than the caller accepts."""


def _crowded(cls: str, name: str, length: int) -> DecodeError:
    return TooManyElements(f"{cls}.{name} adds {length} elements to more than a message may have")


def _min_bytes(type_: FieldType, version: int, flexible: bool) -> int:
    """The minimum size of an element in bytes. The result is at least 1, so that the available
    bytes always bound the number of elements."""
    if isinstance(type_, WireType):
        return type_.min_bytes(flexible)
    if isinstance(type_, ArrayOf):
        return 1 if flexible else 4
    total = 1 if flexible else 0
    for spec in type_.fields:
        if version in spec.versions and version not in spec.tagged:
            nullable = not isinstance(spec.type, WireType | ArrayOf) and version in spec.nullable
            total += 1 if nullable else _min_bytes(spec.type, version, flexible)
    return max(total, 1)


@lru_cache(maxsize=8192)
def struct_decoder(cls: Any, version: int, flexible: bool, pausing: bool = False) -> Decoder:
    """The decoder of a struct or message in one version; `pausing`: see `FunctionSource`."""
    source = FunctionSource(cls, version, flexible, pausing)
    source.scope.update(
        cls=cls,
        new=object.__new__,
        bad=_bad_length,
        crowded=_crowded,
        uvarint=decode_uvarint,
        unpack_from=unpack_from,
        int16=_INT16.unpack_from,
        int32=_INT32.unpack_from,
        memoryview=memoryview,
        DecodeError=DecodeError,
    )
    source.line("o = new(cls)")
    source.line("o.unknown_tags = None")
    run: list[FieldSpec] = []
    for spec in cls.fields:
        if version not in spec.versions or version in spec.tagged:
            assign_default(source, spec)
            continue
        if isinstance(spec.type, WireType) and spec.type.format:
            run.append(spec)
            continue
        _decode_run(source, run)
        run = []
        _decode_value(source, spec.type, f"o.{spec.name}", version in spec.nullable, spec.name)
    _decode_run(source, run)
    if flexible:
        _decode_tags(source)
    source.line("return o, p")
    decode: Decoder = source.function("decode(b, p, end, left)")
    return decode


def _decode_run(source: FunctionSource, run: list[FieldSpec]) -> None:
    """Lines that unpack neighbouring fields of fixed size together."""
    if not run:
        return
    types = [spec.type for spec in run if isinstance(spec.type, WireType)]
    packer = Packer(">" + "".join(type_.format for type_ in types))
    unpack = source.name(packer.unpack_from)
    source.line(", ".join(f"o.{spec.name}" for spec in run) + f", = {unpack}(b, p)")
    source.line(f"p += {packer.size}")


def _decode_length(source: FunctionSource, prefix_bytes: int) -> None:
    """Lines that read a length into the variable `n`, -1 for null."""
    if source.flexible:
        source.line("n = b[p] - 1")
        source.line("p += 1")
        source.line("if n > 126:")
        source.line("    n, p = uvarint(b, p - 1)")
        source.line("    n -= 1")
    else:
        source.line(f"n = {'int16' if prefix_bytes == 2 else 'int32'}(b, p)[0]")
        source.line(f"p += {prefix_bytes}")


def _decode_value(
    source: FunctionSource, type_: FieldType, target: str, nullable: bool, name: str
) -> None:
    if isinstance(type_, ArrayOf):
        _decode_array(source, type_, target, nullable, name)
    elif isinstance(type_, WireType):
        if type_.format:
            unpack = source.name(Packer(">" + type_.format).unpack_from)
            source.line(f"{target} = {unpack}(b, p)[0]")
            source.line(f"p += {type_.size_bytes}")
        else:
            _decode_sized(source, type_, target, nullable, name)
    else:
        pauses = source.pausing and has_arrays(type_)
        decoder = struct_decoder(cast(Any, type_), source.version, source.flexible, pauses)
        call = f"{'yield from ' if pauses else ''}{source.name(decoder)}(b, p, end, left)"
        if nullable:
            source.line("p += 1")
            source.line("if b[p - 1] > 127:")
            source.line(f"    {target} = None")
            source.line("else:")
            source.line(f"    {target}, p = {call}")
        else:
            source.line(f"{target}, p = {call}")


def _decode_sized(
    source: FunctionSource, type_: WireType, target: str, nullable: bool, name: str
) -> None:
    text = type_.name == "string"
    _decode_length(source, 2 if text else 4)
    take = {
        "string": "str(b[p:q], 'utf-8')",
        "bytes": "bytes(b[p:q])",
        "records": "memoryview(b)[p:q]",
    }[type_.name]
    where = f"{source.cls.__name__!r}, {name!r}, n"
    source.line("q = p + n")
    # The length of a classic string has 16 bits; a compact length could exceed Kafka's limit.
    too_long = f" or n > {MAX_STRING_BYTES}" if text and source.flexible else ""
    source.line(f"if n < 0 or q > end{too_long}:")
    if nullable:
        source.line(f"    if n != -1: raise bad({where})")
        source.line(f"    {target} = None")
        source.line("else:")
        source.line(f"    {target} = {take}")
        source.line("    p = q")
    else:
        source.line(f"    raise bad({where})")
        source.line(f"{target} = {take}")
        source.line("p = q")


def _decode_array(
    source: FunctionSource, type_: ArrayOf, target: str, nullable: bool, name: str
) -> None:
    _decode_length(source, 4)
    element = type_.element
    least = _min_bytes(element, source.version, source.flexible)
    where = f"{source.cls.__name__!r}, {name!r}, n"
    source.line("if n < 0:")
    if nullable:
        source.line(f"    if n != -1: raise bad({where})")
        source.line(f"    {target} = None")
    else:
        source.line(f"    raise bad({where})")
    source.line(f"elif n * {least} > end - p or n > {MAX_ARRAY_ELEMENTS}:")
    source.line(f"    raise bad({where})")
    source.line("else:")
    source.indent += 1
    source.line("left[0] -= n")
    source.line(f"if left[0] < 0: raise crowded({source.cls.__name__!r}, {name!r}, n)")
    if isinstance(element, WireType) and element.format:
        source.line(
            f"{target} = list(unpack_from('>' + {element.format!r} * n, b, p))"
            if element.name == "uuid"
            else f"{target} = list(unpack_from(f'>{{n}}{element.format}', b, p))"
        )
        source.line(f"p += {element.size_bytes} * n")
    else:
        source.line("a = []")
        source.line("add = a.append")
        source.line("for _ in range(n):")
        source.indent += 1
        _decode_value(source, element, "e", False, name)
        source.line("add(e)")
        if source.pausing:
            source.line(f"if not len(a) % {PAUSE_ELEMENTS}: yield")
        source.indent -= 1
        source.line(f"{target} = a")
    source.indent -= 1


def _decode_tags(source: FunctionSource) -> None:
    known = [
        spec
        for spec in source.cls.fields
        if source.version in spec.versions and source.version in spec.tagged
    ]
    source.line("t = b[p]")
    source.line("p += 1")
    source.line("if t:")
    source.indent += 1
    source.line("if t > 127: t, p = uvarint(b, p - 1)")
    source.line("frame_end = end")
    source.line("for _ in range(t):")
    source.indent += 1
    source.line("tag, p = uvarint(b, p)")
    source.line("n, p = uvarint(b, p)")
    source.line("end = p + n")
    source.line(f"if end > frame_end: raise bad({source.cls.__name__!r}, 'tag', n)")
    for index, spec in enumerate(known):
        source.line(f"{'if' if index == 0 else 'elif'} tag == {spec.tag}:")
        source.indent += 1
        _decode_value(
            source, spec.type, f"o.{spec.name}", source.version in spec.nullable, spec.name
        )
        source.line(f"if p != end: raise bad({source.cls.__name__!r}, {spec.name!r}, end - p)")
        source.indent -= 1
    if known:
        source.line("else:")
        source.indent += 1
    source.line("if o.unknown_tags is None: o.unknown_tags = {}")
    source.line("o.unknown_tags[tag] = bytes(b[p:end])")
    source.line("p = end")
    if known:
        source.indent -= 1
    source.indent -= 1
    source.line("end = frame_end")
    source.indent -= 1
