"""The declaration of a message: a typed class for all its versions.

    @api_message(ApiKey.API_VERSIONS)
    class ApiVersionsRequest(Message):
        client_software_name: str = field(STRING, "3+", ignorable=True)

A field has a wire type and its versions. The versions in which the field may be null, and its tag,
are optional. Every field has a default: Kafka's, if the declaration has none. The declaration
defines the class (a slotted dataclass), the construct of every version (`layout`) and the generated
codecs (`odradek_protocol.codec`).

Tagged fields without a declaration are kept in `unknown_tags`, and are written again when the
message is encoded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform

import construct as c

from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import (
    UVARINT,
    NullableStruct,
    SizedArray,
    WireType,
)

#: The text that is shown instead of a secret.
HIDDEN = "[hidden]"
_LATEST = 32767
_UNSET: Any = object()


@dataclasses.dataclass(frozen=True)
class Versions:
    """An inclusive range of versions; empty if `first` is above `last`."""

    first: int
    last: int

    @classmethod
    @cache  # cached, because the declarations use some fifty texts a few thousand times
    def parse(cls, text: str) -> Versions:
        """The range of a text such as "3", "3-13", "9+" or "none". Raises ValueError for any other
        text."""
        if text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), _LATEST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))


@dataclasses.dataclass(frozen=True)
class ArrayOf:
    """An array of primitives or structs."""

    element: WireType | type[Struct]


FieldType = WireType | ArrayOf | type["Struct"]


class FieldSpec(NamedTuple):
    """A field of a declaration. `name` is Kafka's, in snake case. The values of a `secret` field
    are never shown."""

    name: str
    type: FieldType
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: Any
    ignorable: bool
    secret: bool

    def fresh_default(self) -> Any:
        """The default value; a new object if it is mutable."""
        if isinstance(self.default, type):
            return self.default()
        return [] if isinstance(self.default, list) else self.default


def field(
    type_: FieldType,
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int = -1,
    tagged: str = "none",
    default: Any = _UNSET,
    ignorable: bool = False,
    secret: bool = False,
) -> Any:
    """Declare one field.

    `ignorable`: true if versions without the field silently drop a value other than the default; if
    false, encoding such a value is an error. `secret`: true if no `repr` and no tool shows the
    value.
    """
    if default is _UNSET:
        if isinstance(type_, WireType):
            default = type_.default
        else:
            default = [] if isinstance(type_, ArrayOf) else type_
    return FieldSpec(
        "",  # set when the message class that has the field is made
        type_,
        Versions.parse(versions),
        Versions.parse(nullable),
        Versions.parse(tagged),
        tag,
        default,
        ignorable,
        secret,
    )


def array(element: WireType | type[Struct]) -> ArrayOf:
    """An array of `element`."""
    return ArrayOf(element)


def _compiling_init(self: Any, **values: Any) -> None:
    """Compile the `__init__` of the class of `self`, and call it."""
    cls = type(self)
    cls.__init__ = _init_of(cls)
    cls.__init__(self, **values)


def _init_of(cls: Any) -> Callable[..., None]:
    scope: dict[str, Any] = {"_FRESH": _UNSET}
    parameters, body = [], []
    for spec in cls.fields:
        name, default = spec.name, spec.default
        if isinstance(default, list | type):
            scope[f"_make_{name}"] = list if isinstance(default, list) else default
            parameters.append(f"{name}=_FRESH")
            body.append(f"self.{name} = _make_{name}() if {name} is _FRESH else {name}")
        else:
            scope[f"_default_{name}"] = default
            parameters.append(f"{name}=_default_{name}")
            body.append(f"self.{name} = {name}")
    lines = [
        f"def __init__(self, *, unknown_tags=None, {', '.join(parameters)}):",
        "    self.unknown_tags = unknown_tags",
        *(f"    {each}" for each in body),
    ]
    exec("\n".join(lines), scope)  # noqa: S102 - names of our own declarations
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


@dataclass_transform(kw_only_default=True)
class _Declaration(type):
    """The metaclass of all declared classes. It makes a slot of each field.

    The standard library's dataclass would take four times as long, and a broker that starts
    declares some four hundred classes.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _Declaration:
        for base in bases:
            if getattr(base, "fields", ()):
                raise TypeError(f"{name}: a subclass of {base.__name__} would lose its fields")
        specs = tuple(
            FieldSpec(attribute, *value[1:])
            for attribute, value in namespace.items()
            if isinstance(value, FieldSpec)
        )
        for spec in specs:
            del namespace[spec.name]
        namespace.setdefault("__slots__", tuple(spec.name for spec in specs))
        namespace["fields"] = specs
        namespace["__init__"] = _compiling_init
        return super().__new__(cls, name, bases, namespace)


class Struct(metaclass=_Declaration):
    """A part of a message. `unknown_tags`: the bytes of undeclared tagged fields, by tag."""

    __slots__ = ("unknown_tags",)

    if TYPE_CHECKING:
        fields: ClassVar[tuple[FieldSpec, ...]]
        unknown_tags: dict[int, bytes] | None = None

    # `__eq__` and `__repr__` are shared by all classes, because dataclasses would compile them for
    # each class.

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [
            f"{spec.name}={HIDDEN if spec.secret else repr(getattr(self, spec.name))}"
            for spec in self.fields
        ]
        return f"{type(self).__qualname__}({', '.join(shown)}, unknown_tags={self.unknown_tags!r})"

    def _values(self) -> tuple[Any, ...]:
        return (*(getattr(self, spec.name) for spec in self.fields), self.unknown_tags)


class Message(Struct):
    """A request, a response, or a stored value that is preceded by its version."""

    api_key: ClassVar[int] = -1
    versions: ClassVar[Versions] = Versions(0, 0)
    flexible: ClassVar[Versions] = Versions(1, 0)


M = TypeVar("M", bound=type[Message])


def message(*, versions: str, flexible: str = "none", key: int = -1) -> Callable[[M], M]:
    """Declare a stored message, with all its versions and its flexible versions (KIP-482).
    Messages of an API are declared with `odradek_protocol.keys.api_message`."""

    def decorate(cls: M) -> M:
        cls.api_key = key
        cls.versions = Versions.parse(versions)
        cls.flexible = Versions.parse(flexible)
        return cls

    return decorate


# --- The constructs -------------------------------------------------------------------------------


def _type_layout(type_: FieldType, version: int, flexible: bool, nullable: bool) -> Any:
    if isinstance(type_, WireType):
        return type_.layout(flexible, nullable)
    if isinstance(type_, ArrayOf):
        element = _type_layout(type_.element, version, flexible, False)
        return SizedArray(UVARINT if flexible else c.Int32sb, flexible, nullable, element)
    inner = struct_layout(cast(Any, type_), version, flexible)
    return NullableStruct(inner) if nullable else inner


class _Tags(c.Construct):  # type: ignore[misc]
    """The tagged fields at the end of a flexible struct: declared fields as values, other fields as
    bytes."""

    def __init__(self, known: dict[int, tuple[FieldSpec, Any]]) -> None:
        super().__init__()
        self.known = known

    def _parse(self, stream: Any, context: Any, path: str) -> dict[int, Any]:
        found = {}
        for _ in range(UVARINT._parsereport(stream, context, path)):
            tag = UVARINT._parsereport(stream, context, path)
            size = UVARINT._parsereport(stream, context, path)
            data = c.stream_read(stream, size, path)
            found[tag] = self.known[tag][1].parse(data) if tag in self.known else data
        return found

    def _build(self, obj: dict[int, Any], stream: Any, context: Any, path: str) -> Any:
        UVARINT._build(len(obj), stream, context, path)
        for tag in sorted(obj):
            data = self.known[tag][1].build(obj[tag]) if tag in self.known else obj[tag]
            UVARINT._build(tag, stream, context, path)
            UVARINT._build(len(data), stream, context, path)
            c.stream_write(stream, data, len(data), path)
        return obj


class _StructLayout(c.Adapter):  # type: ignore[misc]
    """Converts between an instance of the declared class and construct's container."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls = cls
        self.tagged = {}
        parts = []
        for spec in cls.fields:
            if version not in spec.versions:
                continue
            inner = _type_layout(spec.type, version, flexible, version in spec.nullable)
            if version in spec.tagged:
                self.tagged[spec.tag] = (spec, inner)
            else:
                parts.append(spec.name / inner)
        self.plain = [part.name for part in parts]
        if flexible:
            parts.append("_tags" / _Tags(self.tagged))
        super().__init__(c.Struct(*parts))

    def _decode(self, obj: Any, context: Any, path: str) -> Struct:
        values = {name: obj[name] for name in self.plain}
        for tag, value in obj.get("_tags", {}).items():
            if tag in self.tagged:
                values[self.tagged[tag][0].name] = value
            else:
                values.setdefault("unknown_tags", {})[tag] = value
        return self.cls(**values)

    def _encode(self, obj: Struct, context: Any, path: str) -> dict[str, Any]:
        values = {name: getattr(obj, name) for name in self.plain}
        tags: dict[int, Any] = dict(obj.unknown_tags or {})
        for tag, (spec, _) in self.tagged.items():
            value = getattr(obj, spec.name)
            if value != spec.fresh_default():
                tags[tag] = value
        values["_tags"] = tags
        return values


@lru_cache(maxsize=4096)
def struct_layout(cls: Any, version: int, flexible: bool) -> Any:
    """The construct of a struct in one version; parses to and builds from instances of `cls`."""
    return _StructLayout(cls, version, flexible)


def layout(cls: type[Message], version: int) -> Any:
    """The construct of a message in one version: `.parse(bytes)` and `.build(instance)`.

    Raises ValueError if the message has no such version.
    """
    if version not in cls.versions:
        raise ValueError(f"{cls.__name__} has no version {version}")
    return struct_layout(cast(Any, cls), version, version in cls.flexible)
