"""Filters of records: a text such as `key=a header.kind~order $.total>=10` becomes a predicate.

A filter is one or more conditions, separated by spaces; a record has to meet them all. A condition
is FIELD OPERATOR VALUE, a field alone (the record has it), or text alone (the key, the value or a
header contains it). `!` before a condition negates it. Values with spaces go into quotes.

Fields: `key`, `value`, `header.NAME`, `text` (all three), `time`, `partition`, `offset`, and paths
into the value as JSON: `$.name`, `$.list[0]`, `$.list[*].name`, `$['odd name']`.

Operators: `=`, `!=` (also if the field is missing), `~` contains, `=~` a regular expression; for
numbers, times and paths `<`, `<=`, `>`, `>=`.

Texts are compared with the bytes of a record as UTF-8, so that they are found in any format that
contains them unchanged.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, Protocol

from odradek_records.offset_grammar import OffsetError, parse_time

#: The zone of times without one, which is looked for only if there is such a time.
Zone = Callable[[], tzinfo] | None

#: The operator of a condition that is only a field.
EXISTS = "exists"

_CHARACTERS_MAX = 4096
_CONDITIONS_MAX = 32
_FIELDS = "key, value, text, header.NAME, time, partition, offset, and paths such as $.name"


class FilterError(ValueError):
    """The error of an unusable filter, with the condition and the allowed forms."""


class FilteredRecord(Protocol):
    """The attributes of a record that filters read, such as a ConsumerRecord."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


#: Returns the value of a record in the JSON form that paths search; None if there is no such form.
ValueOf = Callable[[FilteredRecord], Any]


def json_value(record: FilteredRecord) -> Any:
    """The value of a record as JSON; None if it is not JSON."""
    try:
        return None if record.value is None else json.loads(record.value)
    except (ValueError, RecursionError):
        return None


@dataclass(slots=True)
class _Subject:
    """A record during the evaluation of a filter; its value is decoded at most once, if a condition
    needs it.
    """

    record: FilteredRecord
    value_of: ValueOf
    _decoded: list[Any] = field(default_factory=list)

    @property
    def value(self) -> Any:
        if not self._decoded:
            self._decoded.append(self.value_of(self.record))
        return self._decoded[0]


Condition = Callable[[_Subject], bool]


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """A predicate of records: all conditions must hold; without conditions it is true."""

    conditions: tuple[Condition, ...] = ()
    value_of: ValueOf = json_value

    def __call__(self, record: FilteredRecord) -> bool:
        subject = _Subject(record, self.value_of)
        return all(condition(subject) for condition in self.conditions)


def parse_filter(
    text: str,
    *,
    expressions: bool = True,
    value_of: ValueOf = json_value,
    zone: Zone = None,
) -> RecordFilter:
    """The filter that a text describes. FilterError names the condition that is wrong.

    `expressions`: False refuses regular expressions, because nothing limits the time that they
    take. `value_of` decodes values for paths. `zone`: the zone of times without one; None: the
    local time.
    """
    if len(text) > _CHARACTERS_MAX:
        raise FilterError(f"a filter has at most {_CHARACTERS_MAX} characters")
    words = list(_words(text))
    if len(words) > _CONDITIONS_MAX:
        raise FilterError(f"a filter has at most {_CONDITIONS_MAX} conditions")
    return RecordFilter(tuple(_condition(word, expressions, zone) for word in words), value_of)


# --- Words ----------------------------------------------------------------------------------------

_PIECE = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s\"']+")
_QUOTED = re.compile(r"([\"'])(.*)\1", re.DOTALL)
_PARTS = re.compile(
    r"(?P<field>\$(?:[^\s=!~<>\[]|\[(?:'[^']*'|\"[^\"]*\"|[^\]'\"]*)\])*|[\w.-]+)"
    r"(?P<operator>=~|!=|<=|>=|=|~|<|>)(?P<value>.*)",
    re.DOTALL,
)


def _words(text: str) -> Iterator[str]:
    """The conditions: texts between spaces; spaces in quotes do not separate."""
    at = 0
    word = ""
    while at < len(text):
        if text[at].isspace():
            if word:
                yield word
            word = ""
            at += 1
            continue
        piece = _PIECE.match(text, at)
        if piece is None:
            raise FilterError(f"a quote has no end: {text[at:]}")
        word += piece[0]
        at = piece.end()
    if word:
        yield word


def _unquoted(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    return re.sub(r"\\(.)", r"\1", quoted[2], flags=re.DOTALL) if quoted else text


def _condition(word: str, expressions: bool, zone: Zone = None) -> Condition:
    if word.startswith("!") and len(word) > 1:
        inner = _condition(word[1:], expressions, zone)
        return lambda subject: not inner(subject)
    if _QUOTED.fullmatch(word):
        return _on_texts(_texts_of("text"), "~", _unquoted(word), word)
    parts = _PARTS.fullmatch(word)
    if parts is not None:
        name, sign, value = parts["field"], parts["operator"], _unquoted(parts["value"])
        if sign == "=~" and not expressions:
            raise FilterError(f"{word}: regular expressions are not taken here; `~` finds text")
        return condition(name, sign, value, zone)
    if word.startswith("$") or (word.startswith("header.") and len(word) > len("header.")):
        return condition(word, EXISTS, "")
    return _on_texts(_texts_of("text"), "~", word, word)


def parse_path_condition(text: str) -> Condition:
    """A condition on a path: `$.total>=10`, or `$.total` if it has to exist. Raises FilterError."""
    if not text.startswith("$"):
        raise FilterError(f"{text}: a path begins with $: $.name, $.list[0], $.list[*].name")
    return _condition(text, expressions=True)


def condition(name: str, sign: str, value: str, zone: Zone = None) -> Condition:
    """A condition on one field. Raises FilterError for an unknown field, operator or value.

    The operator `EXISTS` is for headers and paths that have to exist. `zone`: see `parse_filter`.
    """
    shown = name if sign == EXISTS else f"{name}{sign}{value}"
    if sign == EXISTS and name.startswith("header."):
        header = name.removeprefix("header.")
        return lambda subject: any(known == header for known, _ in subject.record.headers)
    if name.startswith("$"):
        return _on_path(parse_path(name), sign, value, shown)
    if name in ("key", "value", "text") or name.startswith("header."):
        return _on_texts(_texts_of(name), sign, value, shown)
    if name in ("time", "partition", "offset"):
        return _on_number(name, sign, value, shown, zone)
    raise FilterError(
        f"{shown}: there is no field {name!r}; there are {_FIELDS}. Text to look for with such "
        "characters goes into quotes"
    )


# --- Texts ----------------------------------------------------------------------------------------

_Texts = Callable[[FilteredRecord], Iterable[bytes | None]]


def _texts_of(name: str) -> _Texts:
    if name == "key":
        return lambda record: (record.key,)
    if name == "value":
        return lambda record: (record.value,)
    if name == "text":
        return lambda record: (record.key, record.value, *(each for _, each in record.headers))
    header = name.removeprefix("header.")
    return lambda record: (each for known, each in record.headers if known == header)


def _on_texts(texts: _Texts, sign: str, value: str, shown: str) -> Condition:
    try:
        # An argument of a command line may hold bytes that are no UTF-8.
        wanted = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise FilterError(f"{shown!a}: half a pair of surrogates is no text") from None
    if sign == "=":
        return lambda subject: wanted in tuple(texts(subject.record))
    if sign == "!=":
        return lambda subject: wanted not in tuple(texts(subject.record))
    if sign == "~":
        return lambda subject: any(
            each is not None and wanted in each for each in texts(subject.record)
        )
    if sign == "=~":
        expression = _compiled(value, shown)
        return lambda subject: any(
            each is not None and expression.search(each.decode("utf-8", "replace")) is not None
            for each in texts(subject.record)
        )
    raise FilterError(f"{shown}: texts are compared with =, !=, ~ and =~, not with {sign}")


def _compiled(value: str, shown: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise FilterError(f"{shown}: {value!r} is no regular expression: {error}") from None


# --- Numbers --------------------------------------------------------------------------------------

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _on_number(name: str, sign: str, value: str, shown: str, zone: Zone) -> Condition:
    compare = _ORDERS.get(sign)
    if compare is None:
        raise FilterError(f"{shown}: {name} is compared with {', '.join(_ORDERS)}, not with {sign}")
    if name == "time":
        try:
            wanted = parse_time(value, zone)
        except OffsetError as error:
            raise FilterError(f"{shown}: {error}") from None
        return lambda subject: compare(subject.record.timestamp, wanted)
    if not re.fullmatch(r"\d{1,19}", value):
        raise FilterError(f"{shown}: {value!r} is no number of {name}")
    wanted = int(value)
    return lambda subject: compare(getattr(subject.record, name), wanted)


# --- Paths ----------------------------------------------------------------------------------------

_STEP = re.compile(
    r"\.(?P<name>[^\s.\[\]'\"]+)|\[(?P<index>-?\d{1,9})\]|\[(?P<any>\*)\]"
    r"|\[(?:'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\")\]"
)


@dataclass(frozen=True, slots=True)
class Path:
    """A path into a JSON value: names, indexes, and None for all members."""

    steps: tuple[str | int | None, ...]

    def find(self, value: Any) -> Iterator[Any]:
        """The values at the path."""
        found = [value]
        for step in self.steps:
            found = [inner for each in found for inner in _members(each, step)]
        yield from found


def parse_path(text: str) -> Path:
    """The path: `$.name`, `$.list[0]`, `$.list[*].name`, `$['odd name']`. Raises FilterError."""
    steps: list[str | int | None] = []
    at = 1
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None or not text.startswith("$"):
            raise FilterError(
                f"{text}: {text[at:]!r} is no step of a path; there are .name, ['name'], [0], [-1], "
                "[*] and .*"
            )
        if step["index"] is not None:
            steps.append(int(step["index"]))
        elif step["any"] is not None or step["name"] == "*":
            steps.append(None)
        else:
            steps.append(
                next(s for s in (step["name"], step["single"], step["double"]) if s is not None)
            )
        at = step.end()
    return Path(tuple(steps))


def _members(value: Any, step: str | int | None) -> Iterable[Any]:
    if step is None:
        return (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        )
    if isinstance(step, str):
        return (value[step],) if isinstance(value, dict) and step in value else ()
    inside = isinstance(value, list) and -len(value) <= step < len(value)
    return (value[step],) if inside else ()


def _on_path(path: Path, sign: str, text: str, shown: str) -> Condition:
    if sign == EXISTS:
        return lambda subject: any(True for _ in path.find(subject.value))
    if sign == "!=":
        equal = _on_path(path, "=", text, shown)
        return lambda subject: not equal(subject)
    test = _test_of(sign, text, shown)
    return lambda subject: any(map(test, path.find(subject.value)))


def _test_of(sign: str, text: str, shown: str) -> Callable[[Any], bool]:
    if sign == "~":
        return lambda value: text in _as_words(value)
    if sign == "=~":
        expression = _compiled(text, shown)
        return lambda value: expression.search(_as_words(value)) is not None
    literal = _literal(text)
    if sign == "=":
        return lambda value: (
            value == text
            or (value == literal and isinstance(value, bool) == isinstance(literal, bool))
        )
    compare = _ORDERS[sign]
    if _is_number(literal):
        return lambda value: _is_number(value) and compare(value, literal)
    return lambda value: isinstance(value, str) and compare(value, text)


def _literal(text: str) -> Any:
    """A number, true, false or null of JSON; other text is text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, dict | list | str) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
