"""The common code for settings of broker, client and connector."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from odradek_protocol.settings import (
    BadValue,
    Row,
    any_of,
    at_least,
    between,
    did_you_mean,
    one_of,
    read_boolean,
    read_integer,
    read_list,
    read_set,
    table_row,
)


def test_checks_describe_the_values_that_they_accept() -> None:
    assert at_least(1).text == "at least 1" and at_least(1).accepts(1)
    assert between(1, 3).accepts(3) and not between(1, 3).accepts(4)
    assert (between(1, 3).lowest, between(1, 3).highest) == (1, 3)
    assert one_of("a", "b").text == "one of a, b" and not one_of("a").accepts("c")
    assert not any_of("a", "b").accepts(()) and any_of("a", may_be_empty=True).accepts(())


def test_settings_are_declared_as_fields_and_secrets_are_hidden() -> None:
    @dataclass(frozen=True)
    class Both:
        linger_ms: int = Row("", "int", 5, "A wait.", at_least(0)).as_field()
        key_password: str = Row("", "str", "", "A word.", secret=True).as_field()

    rows = Row[str, object].declared_by(Both, ".")
    assert list(rows) == ["linger.ms", "key.password"]
    assert rows["linger.ms"].default == Both().linger_ms == 5
    assert repr(Both(key_password="secret")).endswith("Both(linger_ms=5)")
    assert Row.like(rows["linger.ms"], "other.ms", "Another.").check is rows["linger.ms"].check


def test_texts_are_read_as_booleans_numbers_and_lists() -> None:
    assert read_boolean(" TRUE ") and not read_boolean("off", {"off": False})
    assert read_integer(" -7 ") == -7
    assert read_list("a, ,b,a") == ("a", "b", "a")
    assert read_set("a, ,b,a") == ("a", "b")
    with pytest.raises(BadValue, match="must be true or false"):
        read_boolean("yes")
    with pytest.raises(BadValue, match="is no whole number"):
        read_integer("7.5")


def test_a_misspelt_name_suggests_the_nearest_known_one() -> None:
    assert did_you_mean("lingr", ["linger", "acks"], shown=repr) == "; did you mean 'linger'?"
    assert did_you_mean("zzz", ["linger", "acks"]) == ""


def test_the_cells_of_a_table_row_are_escaped() -> None:
    assert table_row("a|b", "c") == "| a\\|b | c |\n"
