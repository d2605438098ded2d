"""Filters of records: conditions on keys, headers, texts, times and paths into JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from many_cases import looped
from odradek_records.record_filter import FilterError, parse_filter, parse_path

ORDER = {
    "id": 7,
    "total": 12.5,
    "paid": True,
    "note": None,
    "who": {"name": "Ada Lovelace", "since": "2024-05-01"},
    "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 20}],
    "odd name": "x=y",
}


@dataclass
class Record:
    key: bytes | None = b"order-7"
    value: bytes | None = json.dumps(ORDER).encode()
    headers: list[tuple[str, bytes | None]] = field(
        default_factory=lambda: [("kind", b"order"), ("trace", b"\xff\x01"), ("gone", None)]
    )
    topic: str = "orders"
    partition: int = 3
    offset: int = 42
    timestamp: int = 1_714_521_600_000  # 2024-05-01T00:00:00Z


@looped(
    "text, holds",
    [
        ("", True),
        ("  ", True),
        ("key=order-7", True),
        ("key=order", False),
        ("key!=order", True),
        ("key~der-", True),
        ("key=~^order-\\d$", True),
        ("key=~^\\d", False),
        ("value~Lovelace", True),
        ("Lovelace", True),
        ("order-7", True),
        ("nothing", False),
        ('"Ada Lovelace"', True),
        ("'Ada Lovelace'", True),
        ('value~"Ada Lovelace"', True),
        ('"Ada  Lovelace"', False),
        ("header.kind=order", True),
        ("header.kind!=order", False),
        ("header.nosuch!=order", True),
        ("header.kind~rde", True),
        ("header.kind", True),
        ("header.gone", True),
        ("header.nosuch", False),
        ("!header.nosuch", True),
        ("!key=order-7", False),
        ("text~order-7", True),
        ("partition=3 offset>=42 offset<43", True),
        ("partition!=3", False),
        ("time>=2024-05-01T00:00:00Z", True),
        ("time<2024-05-01T00:00:00Z", False),
        ("time=1714521600000", True),
        ("$.id=7", True),
        ("$.id=7.0", True),
        ("$.id=8", False),
        ("$.id!=8", True),
        ("$.nosuch!=8", True),
        ("$.nosuch=8", False),
        ("$.total>12", True),
        ("$.total<=12.5", True),
        ("$.total>1e3", False),
        ("$.paid=true", True),
        ("$.paid=1", False),
        ("$.id=true", False),
        ("$.note=null", True),
        ("$.note", True),
        ("$.nosuch", False),
        ("$.who.name~Love", True),
        ("$.who.name='Ada Lovelace'", True),
        ("$.who.name=~^A.*e$", True),
        ("$.who.since>=2024-01", True),
        ("$.who.since>2025", False),
        ("$.who>1", False),
        ("$.lines[0].sku=a", True),
        ("$.lines[-1].sku=b", True),
        ("$.lines[2].sku=b", False),
        ("$.lines[-3].sku=b", False),
        ("$.lines[*].n>10", True),
        ("$.lines[*].n>20", False),
        ("$.lines[*].n!=20", False),
        ("$.who.*=2024-05-01", True),
        ("$['odd name']=x=y", True),
        ('$["odd name"]~=', True),
        ("$.lines~sku", True),
        ("$.id[0]", False),
        ("$~Ada", True),
        ("key=order-7 $.id=7 header.kind=order", True),
        ("key=order-7 $.id=8", False),
    ],
)
def test_every_condition_is_evaluated(text: str, holds: bool) -> None:
    assert parse_filter(text)(Record()) is holds


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"plain", b"[" * 100_000])
def test_a_value_that_is_not_json_matches_no_path(value: bytes | None) -> None:
    record = Record(key=None, value=value)
    for text in ("$.id=7", "$.id", "$.id>1", "$[0]", "key=a", "value=x", "key~a"):
        assert not parse_filter(text)(record), text
    assert parse_filter("$.id!=7")(record)


def test_paths_use_a_decoded_value_that_is_decoded_once() -> None:
    calls = []

    def decoded(record: Any) -> Any:
        calls.append(record.offset)
        return {"a": 1, "b": [2]}

    chosen = parse_filter("$.a=1 $.b[0]=2", value_of=decoded)
    assert chosen(Record(value=b"\0binary"))
    assert calls == [42]


@looped(
    "text, why",
    [
        ("nosuch=1", "there is no field 'nosuch'; there are key, value"),
        ("keys=a b", "keys=a: there is no field 'keys'"),
        ("key<a", "texts are compared with =, !=, ~ and =~, not with <"),
        ("offset~4", "offset is compared with =, !=, <, <=, >, >=, not with ~"),
        ("offset=x", "'x' is no number of offset"),
        ("time>yesterday", "time>yesterday: 'yesterday' is no time; write milliseconds"),
        ("key=~(", "'(' is no regular expression"),
        ("$..id=7", "$..id: '..id' is no step of a path; there are .name"),
        ("$.a[x]=7", "'[x]' is no step of a path"),
        ("$.", "'.' is no step of a path"),
        ('key="a', 'a quote has no end: "a'),
        ("key=\ud800", "half a pair of surrogates is no text"),
        ("x " * 40, "at most 32 conditions"),
        ("x" * 5000, "at most 4096 characters"),
    ],
)
def test_a_wrong_filter_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse_filter(text)
    assert why in str(refused.value)


def test_regular_expressions_can_be_refused() -> None:
    with pytest.raises(FilterError, match="regular expressions are not taken here"):
        parse_filter("!key=~(a+)+$", expressions=False)
    assert parse_filter("key~order", expressions=False)(Record())


@given(st.text(max_size=40))
def test_any_text_is_a_filter_or_an_error(text: str) -> None:
    try:
        chosen = parse_filter(text)
    except FilterError:
        return
    chosen(Record())


@given(st.text(min_size=1, max_size=20).filter(lambda text: "\\" not in text and '"' not in text))
def test_quoted_text_is_found(text: str) -> None:
    assert parse_filter(f'"{text}"')(Record(value=f"a {text} b".encode()))


def test_bytes_that_are_not_utf8_are_found() -> None:
    assert parse_filter("header.trace~\udcff")(Record())


def test_a_path_without_a_root_is_refused() -> None:
    with pytest.raises(FilterError):
        parse_path("a.b")
