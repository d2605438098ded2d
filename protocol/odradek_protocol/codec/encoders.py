"""Generated encoders: for each struct and version a function without loops over fields."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct as Packer
from typing import Any

from odradek_protocol.message import ArrayOf, FieldSpec, FieldType
from odradek_protocol.primitives import (
    MAX_STRING_BYTES,
    EncodeError,
    WireType,
    encode_uvarint,
)

from .source import PAUSE_ELEMENTS, Buffer, Encoder, FunctionSource, has_arrays

_INT16 = Packer(">h")
_INT32 = Packer(">i")


class _SmallVarints(dict[int, bytes]):
    """The varint of each number below 16,384, made when it is first needed."""

    def __missing__(self, value: int) -> bytes:
        encoded = self[value] = encode_uvarint(value)
        return encoded


_SMALL_VARINTS = _SmallVarints()


def _dropped(cls: str, name: str, version: int) -> EncodeError:
    return EncodeError(f"{cls} v{version} cannot carry {name}")


def _too_long(cls: str, name: str, version: int, length: int) -> EncodeError:
    return EncodeError(
        f"{cls} v{version}: {name} has {length} bytes; a string has at most {MAX_STRING_BYTES}"
    )


def _encode_tags(tags: dict[int, bytes], write: Callable[[Buffer], None]) -> None:
    write(encode_uvarint(len(tags)))
    for tag in sorted(tags):
        write(encode_uvarint(tag))
        write(encode_uvarint(len(tags[tag])))
        write(tags[tag])


@lru_cache(maxsize=8192)
def struct_encoder(cls: Any, version: int, flexible: bool, pausing: bool = False) -> Encoder:
    """The encoder of a struct or message in one version; `pausing`: see `FunctionSource`."""
    source = FunctionSource(cls, version, flexible, pausing)
    source.scope.update(
        small=_SMALL_VARINTS,
        uvarint=encode_uvarint,
        int16=_INT16.pack,
        int32=_INT32.pack,
        dropped=_dropped,
        too_long=_too_long,
        encode_tags=_encode_tags,
        EncodeError=EncodeError,
        packer=Packer,
    )
    run: list[FieldSpec] = []
    for spec in cls.fields:
        if version not in spec.versions:
            if not spec.ignorable:
                source.line(f"v = o.{spec.name}")
                source.line(f"if {_differs(source, spec, 'v')}:")
                source.line(f"    raise dropped({cls.__name__!r}, {spec.name!r}, {version})")
            continue
        if version in spec.tagged:
            continue
        if isinstance(spec.type, WireType) and spec.type.format:
            run.append(spec)
            continue
        _encode_run(source, run)
        run = []
        source.line(f"v = o.{spec.name}")
        _encode_value(source, spec.type, version in spec.nullable, spec.name)
    _encode_run(source, run)
    if flexible:
        _encode_tag_section(source)
    source.line("return")
    encode: Encoder = source.function("encode(o, w)")
    return encode


def _differs(source: FunctionSource, spec: FieldSpec, target: str) -> str:
    """An expression that is true if `target` has another value than the field's default. Structs
    are compared field by field, because that is faster and most answers have structs with default
    values."""
    if isinstance(spec.default, list):
        return f"({target} or {target} is None)"
    if not isinstance(spec.default, type):
        return f"{target} != {source.name(spec.default)}"
    cls: Any = spec.default
    parts = [_differs(source, inner, f"{target}.{inner.name}") for inner in cls.fields]
    return f"({target} is None or {target}.unknown_tags or {' or '.join(parts)})"


def _encode_run(source: FunctionSource, run: list[FieldSpec]) -> None:
    if run:
        types = [spec.type for spec in run if isinstance(spec.type, WireType)]
        pack = source.name(Packer(">" + "".join(type_.format for type_ in types)).pack)
        source.line(f"w({pack}({', '.join(f'o.{spec.name}' for spec in run)}))")


def _encode_value(source: FunctionSource, type_: FieldType, nullable: bool, name: str) -> None:
    """Lines that write the value of the variable `v`."""
    if isinstance(type_, WireType) and type_.format:
        source.line(f"w({source.name(Packer('>' + type_.format).pack)}(v))")
        return
    null = "b'\\x00'" if source.flexible else "b'\\xff\\xff\\xff\\xff'"
    if isinstance(type_, WireType) and type_.name == "string" and not source.flexible:
        null = "b'\\xff\\xff'"
    if not isinstance(type_, WireType | ArrayOf):
        null = "b'\\xff'"
    source.line("if v is None:")
    if nullable:
        source.line(f"    w({null})")
    else:
        source.line(f"    raise EncodeError({f'{source.cls.__name__}.{name} may not be null'!r})")
    source.line("else:")
    source.indent += 1
    if isinstance(type_, ArrayOf):
        _encode_array(source, type_, name)
    elif isinstance(type_, WireType):
        if type_.name == "string":
            source.line("v = v.encode()")
            if source.flexible:
                source.line(f"if len(v) > {MAX_STRING_BYTES}:")
                source.line(
                    f"    raise too_long({source.cls.__name__!r}, {name!r}, {source.version}, len(v))"
                )
        prefix = "int16" if type_.name == "string" else "int32"
        _encode_length(source, prefix)
        source.line("w(v)")
    else:
        if nullable:
            source.line("w(b'\\x01')")
        source.line(_struct_call(source, type_, "v"))
    source.indent -= 1


def _struct_call(source: FunctionSource, type_: Any, target: str) -> str:
    """The call that writes the struct in the variable `target`."""
    pauses = source.pausing and has_arrays(type_)
    encoder = struct_encoder(type_, source.version, source.flexible, pauses)
    return f"{'yield from ' if pauses else ''}{source.name(encoder)}({target}, w)"


def _encode_length(source: FunctionSource, prefix: str) -> None:
    """Lines that write the length of the variable `v`."""
    if source.flexible:
        source.line("n = len(v) + 1")
        source.line("w(small[n] if n < 16384 else uvarint(n))")
    else:
        source.line(f"w({prefix}(len(v)))")


def _encode_array(source: FunctionSource, type_: ArrayOf, name: str) -> None:
    element = type_.element
    _encode_length(source, "int32")
    if isinstance(element, WireType) and element.format and element.name != "uuid":
        source.line(f"w(packer(f'>{{len(v)}}{element.format}').pack(*v))")
        return
    source.line("for i, v in enumerate(v, 1):" if source.pausing else "for v in v:")
    source.indent += 1
    if isinstance(element, WireType | ArrayOf):
        _encode_value(source, element, False, name)
    else:
        source.line(_struct_call(source, element, "v"))
    if source.pausing:
        source.line(f"if not i % {PAUSE_ELEMENTS}: yield")
    source.indent -= 1


def _encode_tag_section(source: FunctionSource) -> None:
    known = [
        spec
        for spec in source.cls.fields
        if source.version in spec.versions and source.version in spec.tagged
    ]
    source.line("t = o.unknown_tags")
    if known:
        source.line("t = dict(t) if t else {}")
    for spec in known:
        source.line(f"v = o.{spec.name}")
        source.line(f"if {_differs(source, spec, 'v')}:")
        source.indent += 1
        source.line("held = []")
        source.line("outer, w = w, held.append")
        _encode_value(source, spec.type, source.version in spec.nullable, spec.name)
        source.line("w = outer")
        source.line(f"t[{spec.tag}] = b''.join(held)")
        source.indent -= 1
    source.line("if t: encode_tags(t, w)")
    source.line("else: w(b'\\x00')")
