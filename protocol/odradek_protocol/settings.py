"""Settings: rows of a table, bounds, parsing of texts, suggestions for wrong names, and tables for
the documentation.

The tables of the broker (`odradek_broker.config`) and of the client (`odradek_client.config`)
extend `Row`. The broker, the client and the Spark connector raise their own errors.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Generic, Self, TypeVar

from odradek_protocol.lazy_dataclass import dataclass

Kind = TypeVar("Kind")
Value = TypeVar("Value")

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

# --- Bounds ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """A condition on parsed values, and its text for people. `accepts` of a broker's setting may
    raise ValueError that says what is wrong."""

    text: str
    accepts: Callable[[Any], bool]
    lowest: float = -math.inf
    highest: float = math.inf
    #: The allowed words. A value that is a list may contain several of the words.
    choices: tuple[str, ...] = ()


ANYTHING = Check("", lambda _: True)


def at_least(lowest: float) -> Check:
    """A check that a number is at least `lowest`."""
    return Check(f"at least {lowest}", lambda value: value >= lowest, lowest)


def between(lowest: float, highest: float) -> Check:
    """A check that a number is between two bounds, both included."""
    text = f"between {lowest} and {highest}"
    return Check(text, lambda value: lowest <= value <= highest, lowest, highest)


def one_of(*choices: str) -> Check:
    """A check that a value is one of several words."""
    text = f"one of {', '.join(choices)}"
    return Check(text, lambda value: value in choices, choices=choices)


def any_of(*choices: str, may_be_empty: bool = False) -> Check:
    """A check that a list contains only the given words."""
    return Check(
        f"one or more of {', '.join(choices)}" + (", or nothing" if may_be_empty else ""),
        lambda values: (bool(values) or may_be_empty) and all(value in choices for value in values),
        choices=choices,
    )


# --- Rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row(Generic[Kind, Value]):
    """A setting. `kind` is the type of its values; the value of a `secret` is shown nowhere."""

    name: str
    kind: Kind
    default: Value
    doc: str
    check: Check = ANYTHING
    secret: bool = field(default=False, kw_only=True)

    @classmethod
    def like(cls, other: Row[Kind, Value], name: str, doc: str = "", **more: Any) -> Self:
        """A row with the kind and the check of another row."""
        return cls(name, other.kind, other.default, doc or other.doc, other.check, **more)

    def as_field(self) -> Any:
        """The row as a field of a dataclass. The name of the field becomes the name of the row."""
        return dataclasses.field(
            default=self.default, repr=not self.secret, metadata={"row": self}, kw_only=True
        )

    @classmethod
    def declared_by(cls, settings: Any, separator: str = "_") -> dict[str, Self]:
        """The rows that a dataclass declares, by name, in the order of declaration."""
        rows = {}
        for each in dataclasses.fields(settings):
            row = each.metadata.get("row")
            if row is not None:
                name = each.name.replace("_", separator)
                rows[name] = dataclasses.replace(row, name=name)
        return rows


# --- Texts ----------------------------------------------------------------------------------------


class BadValue(ValueError):
    """A value that cannot be read. The text says what is wrong; messages put it after the value."""


BOOLEANS = {"true": True, "false": False}
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))


def trim(text: str) -> str:
    """The text without surrounding blanks, as Java's `String.trim` returns it: blanks are the
    characters up to the space, and not those of Unicode, such as the no-break space."""
    return text.strip(_BLANKS)


def read_boolean(text: str, words: Mapping[str, bool] = BOOLEANS) -> bool:
    """The boolean of a word in upper or lower case. Raises BadValue, with the allowed words, for
    any other text."""
    try:
        return words[trim(text).lower()]
    except KeyError:
        raise BadValue("must be true or false") from None


def read_integer(text: str) -> int:
    """An integer as Python writes it. BadValue for any other text."""
    try:
        return int(text.strip())
    except ValueError:
        raise BadValue("is no whole number") from None


def read_list(text: str, separator: str = ",") -> tuple[str, ...]:
    """The parts of a comma-separated list, without surrounding blanks; empty parts are dropped."""
    return tuple(part for each in text.split(separator) if (part := trim(each)))


def read_set(text: str) -> tuple[str, ...]:
    """The parts of a comma-separated list, without repetitions, in the order of the text."""
    return tuple(dict.fromkeys(read_list(text)))


# --- Durations ------------------------------------------------------------------------------------

_NUMBER = "[+-]?[0-9]{1,19}"
# The pattern is compiled by `re` at its first use, because few processes read a duration.
_ISO_DURATION = (
    rf"(?P<sign>[+-]?)P(?:(?P<days>{_NUMBER})D)?"
    rf"(?P<time>T(?:(?P<hours>{_NUMBER})H)?(?:(?P<minutes>{_NUMBER})M)?"
    rf"(?:(?P<seconds>{_NUMBER})(?:[.,](?P<fraction>[0-9]{{0,9}}))?S)?)?"
)
_UNITS_S = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_FRACTION_DIGITS = 9
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000


def parse_iso_duration_ms(text: str) -> int | None:
    """Parse an ISO 8601 duration of days, hours, minutes and seconds, such as P2DT1H30M; None for
    any other text. Fractions of a millisecond are rounded up.

    The accepted texts are those of Java, as in Kafka's tools and clients: signs are allowed, the
    decimal separator is a point or a comma, and letters may be in upper or lower case.
    """
    match = re.fullmatch(_ISO_DURATION, text, re.IGNORECASE | re.ASCII)
    if match is None or match["time"] in ("T", "t"):
        return None
    amounts = {unit: match[unit] for unit in _UNITS_S if match[unit] is not None}
    if not amounts:
        return None
    fraction_ns = int((match["fraction"] or "").ljust(_FRACTION_DIGITS, "0"))
    if amounts.get("seconds", "").startswith("-"):
        fraction_ns = -fraction_ns
    whole_s = sum(int(amount) * _UNITS_S[unit] for unit, amount in amounts.items())
    duration_ns = whole_s * _NS_PER_S + fraction_ns
    if match["sign"] == "-":
        duration_ns = -duration_ns
    return -(-duration_ns // _NS_PER_MS)


# --- Names that are nearly right ------------------------------------------------------------------


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that the user probably meant; None if no known name is similar."""
    # Imported only for a wrong name, so that programs usually start without it.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(
    name: str, known: Iterable[str], cutoff: float = 0.6, shown: Callable[[str], str] = str
) -> str:
    """The text to append to an error message about an unknown name, with a suggestion; empty if no
    known name is similar."""
    near = nearest(name, known, cutoff)
    return "" if near is None else f"; did you mean {shown(near)}?"


# --- Pages ----------------------------------------------------------------------------------------


def table_row(*cells: str) -> str:
    """A line of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
