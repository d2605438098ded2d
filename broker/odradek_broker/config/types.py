"""Types of settings: kinds, checks, defaults, and how texts are read and written.

Texts are read as Kafka reads them: surrounding blanks do not count, booleans are true or false in
any case, lists are separated by commas.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Any

Value = bool | int | float | str | tuple[str, ...]

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


#: No value is longer; settings are kept in memory and in the metadata log.
VALUE_CHARACTERS_MAX = 32_768
_SHOWN_CHARACTERS_MAX = 200


class ConfigError(ValueError):
    """A bad value of a setting: its key, the value, what is allowed."""

    def __init__(self, key: str, value: str | None, allowed: str) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        shown = "empty" if value is None else repr(value[:_SHOWN_CHARACTERS_MAX])
        super().__init__(f"{key} is {shown}; it must be {allowed}")


class UnknownSettingError(ConfigError):
    """An unknown key."""

    def __init__(self, key: str, problem: str) -> None:
        ValueError.__init__(self, f"{key} {problem}")
        self.key = key
        self.value = None
        self.allowed = ""


class Kind(IntEnum):
    """The type of a value; the numbers are those that DescribeConfigs sends."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The source of a value; the numbers are those that DescribeConfigs sends."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True)
class Check:
    """A condition on parsed values, and its text for people."""

    text: str
    accepts: Callable[[Any], bool]


ANYTHING = Check("", lambda _: True)


def at_least(lowest: float) -> Check:
    """A lower bound, included."""
    return Check(f"at least {lowest}", lambda value: value >= lowest)


def between(lowest: float, highest: float) -> Check:
    """Both bounds, included."""
    return Check(f"between {lowest} and {highest}", lambda value: lowest <= value <= highest)


def one_of(*legal: str) -> Check:
    """A check that a value is one of several words."""
    return Check(f"one of {', '.join(legal)}", lambda value: value in legal)


def any_of(*legal: str, may_be_empty: bool = False) -> Check:
    """For lists: some of them, and nothing else."""
    return Check(
        f"one or more of {', '.join(legal)}" + (", or nothing" if may_be_empty else ""),
        lambda values: (bool(values) or may_be_empty) and all(value in legal for value in values),
    )


_KIND_TEXT = {
    Kind.BOOLEAN: "true or false",
    Kind.STRING: "a text",
    Kind.INT: "a 32-bit integer",
    Kind.SHORT: "a 16-bit integer",
    Kind.LONG: "a 64-bit integer",
    Kind.DOUBLE: "a number",
    Kind.LIST: "a list separated by commas",
    Kind.PASSWORD: "a secret",
}


def _read_boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _read_integer(limit: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        # int() alone would take "1_000", which Java does not; both take the digits of any script.
        digits = text[1:] if text[:1] in {"-", "+"} else text
        if not digits.isdecimal() or len(digits) > 20:
            raise ValueError(text)
        value = int(text)
        if not -limit - 1 <= value <= limit:
            raise ValueError(text)
        return value

    return read


def _read_double(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _read_list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


_READERS: dict[Kind, Callable[[str], Value]] = {
    Kind.BOOLEAN: _read_boolean,
    Kind.STRING: str,
    Kind.INT: _read_integer(INT32_MAX),
    Kind.SHORT: _read_integer(INT16_MAX),
    Kind.LONG: _read_integer(INT64_MAX),
    Kind.DOUBLE: _read_double,
    Kind.LIST: _read_list,
    Kind.PASSWORD: str,
}


def allowed_text(kind: Kind, check: Check) -> str:
    """The allowed values, for people."""
    if kind in (Kind.STRING, Kind.LIST) and check.text:
        return check.text
    return ", ".join(part for part in (_KIND_TEXT[kind], check.text) if part)


def read_value(key: str, text: str | None, kind: Kind, check: Check = ANYTHING) -> Value:
    """The value of a text. ConfigError names the key, the text and what is allowed."""
    try:
        if text is None or len(text) > VALUE_CHARACTERS_MAX:
            raise ValueError(key)
        value = _READERS[kind](text.strip())
    except (ValueError, KeyError):
        shown = "(hidden)" if kind is Kind.PASSWORD and text is not None else text
        raise ConfigError(key, shown, allowed_text(kind, check)) from None
    if not check.accepts(value):
        raise ConfigError(key, text, allowed_text(kind, check))
    return value


def write_value(value: Value) -> str:
    """The text of a value, as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return java_double(value)
    return str(value)


def java_double(value: float) -> str:
    """Write a double as Java does: 0.9, 1.0E7, 1.7976931348623157E308."""
    number = Decimal(repr(value))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{number:f}"
    mantissa, _, exponent = f"{number:E}".partition("E")
    whole, _, rest = mantissa.partition(".")
    return f"{whole}.{rest.rstrip('0') or '0'}E{int(exponent)}"


@dataclass(frozen=True)
class Synonym:
    """Another key for the same setting, used where the first is not given.

    `factor` is how many of the setting's units one of its own units is (minutes to milliseconds:
    60000). `default` is what Kafka shows for it, None for nothing. Synonyms are read-only, as in
    Kafka, where the setting may be dynamic.
    """

    name: str
    factor: int = 1
    default: str | None = None


@dataclass(frozen=True)
class Setting:
    """A broker setting: a row of the table.

    `name` is Kafka's; `dynamic` means that it may be changed while the broker runs; `ours` that
    Kafka has no such setting; `effective` is False for what is accepted and kept but changes
    nothing on one node, which its `doc` then says.
    """

    name: str
    kind: Kind
    default: Value
    doc: str
    check: Check
    synonyms: tuple[Synonym, ...]
    dynamic: bool
    sensitive: bool
    ours: bool
    effective: bool

    @property
    def attribute(self) -> str:
        """The setting's name in the parsed configuration."""
        return self.name.replace(".", "_")

    @property
    def names(self) -> tuple[str, ...]:
        """The setting's own name and its synonyms, strongest first."""
        return (self.name, *(synonym.name for synonym in self.synonyms))

    def read(self, key: str, text: str | None) -> Value:
        """The value from a text given under `key`, one of `names`. ConfigError if it is bad."""
        if key == self.name:
            return read_value(key, text, self.kind, self.check)
        synonym = next(entry for entry in self.synonyms if entry.name == key)
        if synonym.factor == 1:
            return read_value(key, text, self.kind, self.check)
        value = read_value(key, text, Kind.INT)
        assert isinstance(value, int)
        # -1 means "no limit" in every unit.
        scaled = value * synonym.factor if value >= 0 else value
        if not self.check.accepts(scaled):
            raise ConfigError(
                key,
                text,
                allowed_text(Kind.INT, ANYTHING) + f" that makes {self.name} {self.check.text}",
            )
        return scaled


_METADATA_KEY = "setting"


def setting(
    kind: Kind,
    default: Value,
    doc: str,
    check: Check = ANYTHING,
    *,
    synonyms: tuple[Synonym, ...] = (),
    dynamic: bool = False,
    sensitive: bool = False,
    ours: bool = False,
    effective: bool = True,
) -> Any:
    """Declare a setting as a field of a dataclass; the field's name is the key with underscores."""
    row = Setting("", kind, default, doc, check, synonyms, dynamic, sensitive, ours, effective)
    return dataclasses.field(default=default, repr=not row.sensitive, metadata={_METADATA_KEY: row})


def settings_of(cls: Any) -> dict[str, Setting]:
    """The rows that a dataclass declares, by key, in the order of declaration."""
    rows = {}
    for field in dataclasses.fields(cls):
        row = field.metadata.get(_METADATA_KEY)
        if row is not None:
            name = field.name.replace("_", ".")
            rows[name] = dataclasses.replace(row, name=name)
    return rows
