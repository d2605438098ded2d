"""Values of sasl.jaas.config: what is parsed from them, and the errors for wrong values."""

from __future__ import annotations

import pytest

from odradek_protocol.sasl.jaas import JaasError, LoginModule, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="alice" password="se;c=r et";', {"password": "se;c=r et"}),
        (
            f"{PLAIN} REQUIRED\n  username='alice' // a name\n  password='it\"s';",
            {"password": 'it"s'},
        ),
        (
            f'{PLAIN} optional username=alice password="a\\"b\\\\c\\101\\n";',
            {"password": 'a"b\\cA\n'},
        ),
        (f'/* ours\n */ {PLAIN} sufficient username="alice" password="//x";', {"password": "//x"}),
        (f'{PLAIN} required username="alice" password="";', {"password": ""}),
        (f'{PLAIN} required username="alice" password="\\9\\q\\400";', {"password": "9q 0"}),
    ],
)
def test_jaas_options_are_read_as_by_java(text: str, options: dict[str, str]) -> None:
    expected = {"username": "alice", **options}
    assert parse_jaas(text) == [LoginModule(PLAIN, expected)]
    assert parse_jaas(text)[0].short_name == "PlainLoginModule"


def test_several_login_modules_are_read() -> None:
    assert [each.name for each in parse_jaas("A required; B required x=y;")] == ["A", "B"]
    assert parse_jaas(" // nothing") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'{PLAIN} required password="secret"', 'must end with ";"'),
        (f'{PLAIN} required password="secret;', "not closed"),
        (f'{PLAIN} password="secret";', "must come one of required"),
        (f"{PLAIN} required password=;", 'must be key="value"'),
        (f'{PLAIN} required password "secret";', 'must be key="value"'),
        ('"secret" required;', "name of a login module"),
        (PLAIN, "must come one of required"),
    ],
)
def test_the_error_for_an_invalid_jaas_line_hides_its_values(text: str, words: str) -> None:
    with pytest.raises(JaasError, match=words) as caught:
        parse_jaas(text)
    assert "secret" not in str(caught.value)


def test_a_login_module_hides_its_option_values() -> None:
    assert "secret" not in repr(parse_jaas(f'{PLAIN} required password="secret";'))
