"""Fast codecs: straight-line Python, generated from the declarations, one pair per version.

The construct of a declaration (`message.layout`) says what the bytes mean; the code made here does
the same without interpreting it, and a test holds the two equal for every message and version.
Codecs are made when a version is first used.

Decoding checks every length against the bytes that are there before it allocates (rule N-06), and
hands out record sets as memoryviews. Encoding gives a list of buffers, so that record sets are
never copied either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct as Packer
from struct import error as struct_error
from struct import unpack_from
from typing import Any, TypeVar, cast

from odradek_protocol.message import ArrayOf, FieldSpec, FieldType, Message, Struct
from odradek_protocol.primitives import (
    MAX_ARRAY_ELEMENTS,
    MAX_MESSAGE_ELEMENTS,
    MAX_STRING_BYTES,
    RECORDS,
    DecodeError,
    EncodeError,
    WireType,
    decode_uvarint,
    encode_uvarint,
)

Buffer = bytes | bytearray | memoryview
# Classes are typed Any where they are cache keys: mypy takes the missing hash of an instance for
# that of its class.
M = TypeVar("M", bound=Message)
Decoder = Callable[[Any, int, int, list[int]], tuple[Any, int]]
Encoder = Callable[[Any, Callable[[Buffer], None]], None]

_INT16 = Packer(">h")
_INT32 = Packer(">i")
#: Buffers up to this size are joined with their neighbours; a copy is cheaper than one more iovec.
_JOIN_BYTES = 4096


def decode_at(
    cls: type[M],
    version: int,
    buffer: Buffer,
    position: int = 0,
    elements_max: int = MAX_MESSAGE_ELEMENTS,
) -> tuple[M, int]:
    """(message, position behind it). DecodeError for bytes that are no such message.

    `elements_max`: how many array elements it may have, all arrays taken together.
    """
    try:
        found: tuple[M, int] = decoder(cast(Any, cls), version)(
            buffer, position, len(buffer), [elements_max]
        )
        return found
    except (struct_error, IndexError) as error:
        raise DecodeError(f"the frame ends inside {cls.__name__} v{version}") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"{cls.__name__} v{version}: {error}") from error


def decode(
    cls: type[M],
    version: int,
    buffer: Buffer,
    position: int = 0,
    elements_max: int = MAX_MESSAGE_ELEMENTS,
) -> M:
    """The message at `position`; bytes behind it are ignored (rule N-08)."""
    return decode_at(cls, version, buffer, position, elements_max)[0]


def encode(instance: Message, version: int) -> list[Buffer]:
    """Buffers that follow one another. EncodeError for a value that this version cannot carry."""
    parts: list[Buffer] = []
    try:
        encoder(cast(Any, type(instance)), version)(instance, parts.append)
    except (struct_error, AttributeError, TypeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{type(instance).__name__} v{version}: {error}") from error
    return parts


def encode_bytes(instance: Message, version: int) -> bytes:
    """`encode`, joined."""
    return b"".join(encode(instance, version))


def gather(parts: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in few buffers: small ones joined, large ones (record sets) left alone."""
    out: list[Buffer] = []
    start = 0
    for index, size in enumerate(map(len, parts)):
        if size > _JOIN_BYTES:
            if index > start:
                out.append(b"".join(parts[start:index]))
            out.append(parts[index])
            start = index + 1
    if start < len(parts):
        out.append(b"".join(parts[start:]))
    return out


@lru_cache(maxsize=4096)
def decoder(cls: Any, version: int) -> Decoder:
    """The generated reader: (buffer, position, end, [elements left]) -> (message, position)."""
    if version not in cls.versions:
        raise DecodeError(f"{cls.__name__} has no version {version}")
    return _struct_decoder(cls, version, version in cls.flexible)


@lru_cache(maxsize=4096)
def encoder(cls: Any, version: int) -> Encoder:
    """The generated writer: (message, take a buffer) -> None."""
    if version not in cls.versions:
        raise EncodeError(f"{cls.__name__} has no version {version}")
    return _struct_encoder(cls, version, version in cls.flexible)


@lru_cache(maxsize=512)
def carries_records(cls: Any) -> bool:
    """True if a message of this type may hold record sets, which are worth not copying."""
    return any(
        spec.type is RECORDS
        or (isinstance(spec.type, ArrayOf) and _holds_records(spec.type.element))
        or _holds_records(spec.type)
        for spec in cls.fields
    )


def _holds_records(type_: Any) -> bool:
    return not isinstance(type_, WireType | ArrayOf) and carries_records(type_)


# --- What the generated code calls ----------------------------------------------------------------


def _bad_length(cls: str, name: str, length: int) -> DecodeError:
    return DecodeError(f"{cls}.{name} has length {length}, which cannot be")


def _crowded(cls: str, name: str, length: int) -> DecodeError:
    return DecodeError(f"{cls}.{name} adds {length} elements to more than a message may have")


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


_SMALL_VARINTS = [encode_uvarint(value) for value in range(16384)]


def _min_bytes(type_: FieldType, version: int, flexible: bool) -> int:
    """The fewest bytes an element can take; at least 1, so that a count is always bounded."""
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


class _Source:
    """Lines of a function in the making, and the objects they refer to."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls, self.version, self.flexible = cls, version, flexible
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {}
        self.indent = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, value: Any, prefix: str = "k") -> str:
        """A name in the function's scope for an object."""
        name = f"{prefix}{len(self.scope)}"
        self.scope[name] = value
        return name

    def function(self, signature: str) -> Any:
        """Compile what was written."""
        source = f"def {signature}:\n" + "\n".join(self.lines) + "\n"
        where = f"<odradek {self.cls.__name__} v{self.version}>"
        exec(compile(source, where, "exec"), self.scope)  # noqa: S102  generated from declarations
        return self.scope[signature.partition("(")[0]]


# --- Decoding -------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def _struct_decoder(cls: Any, version: int, flexible: bool) -> Decoder:
    source = _Source(cls, version, flexible)
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
            _assign_default(source, spec)
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


def _assign_default(source: _Source, spec: FieldSpec) -> None:
    if isinstance(spec.default, list):
        source.line(f"o.{spec.name} = []")
    elif isinstance(spec.default, type):
        source.line(f"o.{spec.name} = {source.name(spec.default)}()")
    else:
        source.line(f"o.{spec.name} = {source.name(spec.default)}")


def _decode_run(source: _Source, run: list[FieldSpec]) -> None:
    """Neighbouring fields of fixed size are unpacked together."""
    if not run:
        return
    types = [spec.type for spec in run if isinstance(spec.type, WireType)]
    packer = Packer(">" + "".join(type_.format for type_ in types))
    unpack = source.name(packer.unpack_from)
    source.line(", ".join(f"o.{spec.name}" for spec in run) + f", = {unpack}(b, p)")
    source.line(f"p += {packer.size}")


def _decode_length(source: _Source, prefix_bytes: int) -> None:
    """Leaves the length in `n`, -1 for null."""
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
    source: _Source, type_: FieldType, target: str, nullable: bool, name: str
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
        decode = source.name(_struct_decoder(cast(Any, type_), source.version, source.flexible))
        if nullable:
            source.line("p += 1")
            source.line("if b[p - 1] > 127:")
            source.line(f"    {target} = None")
            source.line("else:")
            source.line(f"    {target}, p = {decode}(b, p, end, left)")
        else:
            source.line(f"{target}, p = {decode}(b, p, end, left)")


def _decode_sized(source: _Source, type_: WireType, target: str, nullable: bool, name: str) -> None:
    text = type_.name == "string"
    _decode_length(source, 2 if text else 4)
    take = {
        "string": "str(b[p:q], 'utf-8')",
        "bytes": "bytes(b[p:q])",
        "records": "memoryview(b)[p:q]",
    }[type_.name]
    where = f"{source.cls.__name__!r}, {name!r}, n"
    source.line("q = p + n")
    # The length of a classic string has 16 bits; a compact one says more than Kafka would take.
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


def _decode_array(source: _Source, type_: ArrayOf, target: str, nullable: bool, name: str) -> None:
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
        source.indent -= 1
        source.line(f"{target} = a")
    source.indent -= 1


def _decode_tags(source: _Source) -> None:
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


# --- Encoding -------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def _struct_encoder(cls: Any, version: int, flexible: bool) -> Encoder:
    source = _Source(cls, version, flexible)
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


def _differs(source: _Source, spec: FieldSpec, target: str) -> str:
    """An expression: has `target` another value than the field's default? Structs are compared
    field by field here, because most answers carry some at their default.
    """
    if isinstance(spec.default, list):
        return f"({target} or {target} is None)"
    if not isinstance(spec.default, type):
        return f"{target} != {source.name(spec.default)}"
    cls: Any = spec.default
    parts = [_differs(source, inner, f"{target}.{inner.name}") for inner in cls.fields]
    return f"({target} is None or {target}.unknown_tags or {' or '.join(parts)})"


def _encode_run(source: _Source, run: list[FieldSpec]) -> None:
    if run:
        types = [spec.type for spec in run if isinstance(spec.type, WireType)]
        pack = source.name(Packer(">" + "".join(type_.format for type_ in types)).pack)
        source.line(f"w({pack}({', '.join(f'o.{spec.name}' for spec in run)}))")


def _encode_value(source: _Source, type_: FieldType, nullable: bool, name: str) -> None:
    """Write what is in `v`."""
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
        source.line(
            f"{source.name(_struct_encoder(cast(Any, type_), source.version, source.flexible))}(v, w)"
        )
    source.indent -= 1


def _encode_length(source: _Source, prefix: str) -> None:
    """Of what is in `v`."""
    if source.flexible:
        source.line("n = len(v) + 1")
        source.line("w(small[n] if n < 16384 else uvarint(n))")
    else:
        source.line(f"w({prefix}(len(v)))")


def _encode_array(source: _Source, type_: ArrayOf, name: str) -> None:
    element = type_.element
    _encode_length(source, "int32")
    if isinstance(element, WireType) and element.format and element.name != "uuid":
        source.line(f"w(packer(f'>{{len(v)}}{element.format}').pack(*v))")
    elif not isinstance(element, WireType | ArrayOf):
        encode = source.name(_struct_encoder(cast(Any, element), source.version, source.flexible))
        source.line(f"for e in v: {encode}(e, w)")
    else:
        source.line("for v in v:")
        source.indent += 1
        _encode_value(source, element, False, name)
        source.indent -= 1


def _encode_tag_section(source: _Source) -> None:
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
