"""Pages of rows, query parameters, and errors as JSON."""

from __future__ import annotations

import pytest

from odradek_client import errors
from odradek_console.answers import Column, HttpProblem, PageQuery, page_of, refusal_of

_ROWS = [("b", 2), ("a", 2), ("C", None), ("d", 1)]
_COLUMNS = {"name": Column(lambda row: row[0]), "size": Column(lambda row: row[1])}


def _names(**query: str) -> list[str]:
    rows, _ = page_of(_ROWS, PageQuery(query), _COLUMNS, name=lambda row: str(row[0]), sort="name")
    return [row[0] for row in rows]


def test_rows_are_sorted_by_a_column_and_then_by_name() -> None:
    assert _names() == ["C", "a", "b", "d"]
    assert _names(sort="size") == ["d", "a", "b", "C"]
    assert _names(sort="-size") == ["a", "b", "d", "C"]


def test_a_page_of_rows_has_the_totals() -> None:
    query = PageQuery({"offset": "1", "limit": "1", "filter": "c"})
    rows, about = page_of(_ROWS, query, _COLUMNS, name=lambda row: str(row[0]), sort="name")
    assert (list(rows), about["total"], about["total_unfiltered"]) == ([], 1, 4)
    assert _names(filter="c") == ["C"]
    assert _names(offset="1", limit="2") == ["a", "b"]


@pytest.mark.parametrize(
    "given",
    [{"sort": "colour"}, {"limit": "0"}, {"limit": "501"}, {"offset": "-1"}, {"offset": "x"}],
)
def test_a_wrong_parameter_is_named_in_the_refusal(given: dict[str, str]) -> None:
    with pytest.raises(HttpProblem) as refused:
        _names(**given)
    assert refused.value.status == 400
    assert next(iter(given)) in refused.value.title


def test_a_text_parameter_needs_a_value_or_a_default_and_has_a_limit() -> None:
    with pytest.raises(HttpProblem, match="name is missing"):
        PageQuery({}).text("name")
    assert PageQuery({}).text("name", "") == ""
    with pytest.raises(HttpProblem, match="too long"):
        PageQuery({"name": "x" * 10_001}).text("name")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.TopicAuthorizationFailed("topic 'a'"), 403),
        (errors.AuthenticationFailed("no"), 401),
        (errors.TlsFailed("certificate"), 502),
        (errors.UnsupportedByBroker("old"), 501),
        (errors.Closed("closed"), 502),
    ],
)
def test_a_client_error_has_an_http_status_and_its_text(
    error: errors.OdradekError, status: int
) -> None:
    refusal = refusal_of(error)
    assert (refusal.status, refusal.detail) == (status, str(error))


def test_pages_learn_that_no_broker_answers() -> None:
    for error in (
        errors.ConnectionLost("x"),
        errors.MetadataTimeout("x"),
        errors.RequestTimedOut("x"),
    ):
        assert refusal_of(error).as_json()["error"]["unreachable"]
    refused = refusal_of(errors.TopicAuthorizationFailed("x"))
    assert not refused.as_json()["error"]["unreachable"]


@pytest.mark.parametrize(
    ("error", "to"),
    [
        (errors.TopicAuthorizationFailed("t"), "/access"),
        (errors.ClusterAuthorizationFailed("c"), "/access"),
        (errors.UnknownTopicOrPartition("t"), "/topics"),
        # No page of the console reaches a broker that the console does not reach.
        (errors.ConnectionLost("c"), ""),
    ],
)
def test_an_error_names_the_page_that_helps_and_no_command_then(
    error: errors.OdradekError, to: str
) -> None:
    told = refusal_of(error).as_json()["error"]
    assert told["to"] == to and told["what_to_do"]
    assert ("`" in told["what_to_do"]) == (not to)
