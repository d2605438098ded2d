"""The kinds and rows of the broker's settings, and the parsing and formatting of values.

Texts are read as Kafka reads them: surrounding blanks are ignored, booleans are true or false in
any case, lists are separated by commas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any

from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import (
    ANYTHING,
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    Check,
    Row,
    read_boolean,
    read_set,
    trim,
)

Value = bool | int | float | str | tuple[str, ...]

#: The maximum number of characters in a value. It is limited because values are kept in memory and
#: in the metadata log.
VALUE_CHARACTERS_MAX = 32_768
_SHOWN_CHARACTERS_MAX = 200


class BrokerConfigError(ValueError):
    """The error of a bad value, with the key, the value and the allowed values."""

    def __init__(self, key: str, value: str | None, allowed: str) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        shown = "empty" if value is None else repr(value[:_SHOWN_CHARACTERS_MAX])
        super().__init__(f"{key} is {shown}; it must be {allowed}")


class UnknownSettingError(BrokerConfigError):
    """The error for an unknown key."""

    def __init__(self, key: str, problem: str) -> None:
        ValueError.__init__(self, f"{key} {problem}")
        self.key = key
        self.value = None
        self.allowed = ""


class ConfigType(IntEnum):
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


_KIND_TEXT = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "a text",
    ConfigType.INT: "a 32-bit integer",
    ConfigType.SHORT: "a 16-bit integer",
    ConfigType.LONG: "a 64-bit integer",
    ConfigType.DOUBLE: "a number",
    ConfigType.LIST: "a list separated by commas",
    ConfigType.PASSWORD: "a secret",
}


def _read_integer(limit: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        # int() accepts "1_000", but Java refuses it. Python and Java both accept the digits of any
        # script.
        digits = text[1:] if text[:1] in {"-", "+"} else text
        if not digits.isdecimal() or len(digits) > 20:
            raise ValueError(text)
        value = int(text)
        if not -limit - 1 <= value <= limit:
            raise ValueError(text)
        return value

    return read


def _read_double(text: str) -> float:
    # float() accepts "1_0" and the digits of any script, but Java accepts neither.
    value = float(text)
    if not math.isfinite(value) or "_" in text or not text.isascii():
        raise ValueError(text)
    return value


_READERS: dict[ConfigType, Callable[[str], Value]] = {
    ConfigType.BOOLEAN: read_boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _read_integer(INT32_MAX),
    ConfigType.SHORT: _read_integer(INT16_MAX),
    ConfigType.LONG: _read_integer(INT64_MAX),
    ConfigType.DOUBLE: _read_double,
    ConfigType.LIST: read_set,
    ConfigType.PASSWORD: str,
}


def allowed_text(kind: ConfigType, check: Check) -> str:
    """The allowed values, for people."""
    if kind in (ConfigType.STRING, ConfigType.LIST) and check.text:
        return check.text
    return ", ".join(part for part in (_KIND_TEXT[kind], check.text) if part)


def read_value(key: str, text: str | None, kind: ConfigType, check: Check = ANYTHING) -> Value:
    """The value of a text. Raises ConfigError, which names the key, the text and what is
    allowed."""
    try:
        if text is None or len(text) > VALUE_CHARACTERS_MAX:
            raise ValueError(key)
        value = _READERS[kind](trim(text))
    except ValueError:
        shown = "(hidden)" if kind is ConfigType.PASSWORD and text is not None else text
        raise BrokerConfigError(key, shown, allowed_text(kind, check)) from None
    try:
        if check.accepts(value):
            return value
        why = ""
    except ValueError as problem:
        why = f": {problem}"
    raise BrokerConfigError(key, text, allowed_text(kind, check) + why)


def has_empty_parts(text: str) -> bool:
    """True if a list has an empty element: "a,,b", ",a" or "a,"."""
    return bool(trim(text)) and "" in map(trim, text.split(","))


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
    """Another key of a setting, which is used if the setting's own key is not given.

    `factor` is the size of the synonym's unit in the setting's units (minutes to milliseconds:
    60000). `default` is the default that Kafka shows for the synonym, None if Kafka shows none. As
    in Kafka, a synonym is read-only even if its setting is dynamic.
    """

    name: str
    factor: int = 1
    default: str | None = None


@dataclass(frozen=True, kw_only=True)
class ConfigRow(Row[ConfigType, Value]):
    """A row of one of the broker's tables.

    `effective` is False for a setting that is accepted and kept but has no effect on a single node;
    its `doc` then says so.
    """

    effective: bool = True

    @property
    def allowed(self) -> str:
        """The allowed values, for people."""
        return allowed_text(self.kind, self.check)

    def read(self, text: str | None) -> Value:
        """The value of a text. Raises ConfigError if it is bad."""
        return read_value(self.name, text, self.kind, self.check)

    def check_parts(self, text: str | None) -> None:
        """Raise ConfigError if a list of words has empty parts. Only new values are checked: files
        and stored values may have such lists."""
        if self.kind is ConfigType.LIST and self.check.choices and has_empty_parts(text or ""):
            allowed = f"{allowed_text(self.kind, self.check)}, without empty parts"
            raise BrokerConfigError(self.name, text, allowed)


@dataclass(frozen=True, kw_only=True)
class Setting(ConfigRow):
    """A broker setting.

    `name` is Kafka's; `dynamic`: the setting may be changed while the broker runs; `ours`: Kafka
    has no such setting.
    """

    synonyms: tuple[Synonym, ...] = ()
    dynamic: bool = False
    ours: bool = False

    @property
    def attribute(self) -> str:
        """The setting's name in the parsed configuration."""
        return self.name.replace(".", "_")

    @property
    def names(self) -> tuple[str, ...]:
        """The setting's own name and its synonyms, strongest first."""
        return (self.name, *(synonym.name for synonym in self.synonyms))

    def read(self, text: str | None, key: str = "") -> Value:
        """The value of a text given under `key`, one of `names`. Raises ConfigError if it is
        bad."""
        key = key or self.name
        factors = {synonym.name: synonym.factor for synonym in self.synonyms}
        factor = factors.get(key, 1)
        if factor == 1:
            return read_value(key, text, self.kind, self.check)
        value = read_value(key, text, ConfigType.INT)
        assert isinstance(value, int)
        # -1 means "no limit" in every unit.
        scaled = value * factor if value >= 0 else value
        if not self.check.accepts(scaled):
            allowed = allowed_text(ConfigType.INT, ANYTHING)
            raise BrokerConfigError(
                key, text, f"{allowed} that makes {self.name} {self.check.text}"
            )
        return scaled


def setting(
    kind: ConfigType, default: Value, doc: str, check: Check = ANYTHING, **marks: Any
) -> Any:
    """Declare a setting as a field of a dataclass; the field's name is the key with underscores.

    `marks`: the other fields of `Setting`.
    """
    return Setting("", kind, default, doc, check, **marks).as_field()
