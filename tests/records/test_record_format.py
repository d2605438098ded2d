"""Formats and JSON Lines of the command line."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_records.record_format import (
    FormatError,
    compile_format,
    from_json_line,
    to_json_line,
    unescape,
)


@dataclass
class Printed:
    value: bytes | None = b"v"
    key: bytes | None = b"k"
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    topic: str = "t"
    partition: int = 3
    offset: int = 42
    timestamp: int = 1_700_000_000_000
    timestamp_type: int = 0


def test_every_format_token_is_replaced() -> None:
    record = Printed(b"value", b"key", [("a", b"1"), ("b", None)])
    text = compile_format(r"%t/%p@%o %T %k(%K)=%s(%S) [%h] 100%%\n")(record)
    assert text == b"t/3@42 1700000000000 key(3)=value(5) [a=1,b=NULL] 100%\n"
    assert compile_format("%R")(record) == b"\0\0\0\5"


def test_null_is_empty_or_the_given_text_and_has_length_minus_one() -> None:
    record = Printed(None, None)
    assert compile_format("%k:%s %K %S")(record) == b": -1 -1"
    assert compile_format("%k:%s", b"NULL")(record) == b"NULL:NULL"
    assert compile_format("%R")(record) == b"\xff\xff\xff\xff"


def test_escapes_in_a_format_are_replaced() -> None:
    assert unescape(r"a\tb\n\x1f\\") == b"a\tb\n\x1f\\"
    for bad in (r"\q", r"\x1", r"\xzz", "\\"):
        with pytest.raises(FormatError):
            unescape(bad)


def test_an_unknown_format_token_is_named() -> None:
    with pytest.raises(FormatError, match="%z"):
        compile_format("%z")


maybe = st.none() | st.binary(max_size=30) | st.text(max_size=20).map(str.encode)


@given(maybe, maybe, st.lists(st.tuples(st.text(max_size=8), maybe), max_size=4))
def test_json_lines_round_trip(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = to_json_line(Printed(value, key, headers))
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    record = from_json_line(line)
    assert (record.key, record.value, record.headers) == (key, value, headers)
    assert (record.timestamp_ms, record.partition) == (1_700_000_000_000, 3)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b'{"payload": 1}',
        b'{"value": "typo"}',
        b'{"headers": ["odd"]}',
        b'{"headers": [1, "x"]}',
        b'{"headers": ["n", 1]}',
        b'{"key_base64": "%%%"}',
        b'{"ts": "soon"}',
        b'{"partition": true}',
    ],
)
def test_invalid_json_lines_are_refused(line: bytes) -> None:
    with pytest.raises(FormatError):
        from_json_line(line)
