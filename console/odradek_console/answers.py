"""Answers of the console in JSON: refusals with advice, and pages of long lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek_client.errors import (
    AuthenticationFailed,
    ClusterAuthorizationFailed,
    ConfigError,
    ConnectionLost,
    GroupAuthorizationFailed,
    InvalidConfig,
    MetadataTimeout,
    OdradekError,
    Refused,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
)

Json = dict[str, Any]

#: The right that most requests about brokers need.
DESCRIBE_CLUSTER = "DESCRIBE on the cluster"

LIMIT_DEFAULT = 100
LIMIT_MAX = 500
#: The maximum length of a parameter of a view, and of the name of a feed, in characters. Names of
#: topics have at most 249 characters, and filters are shorter than this limit.
TEXT_CHARACTERS_MAX = 10_000
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")


class HttpProblem(Exception):
    """An error for the browser: a status of HTTP, the problem, and the remedy. `to`: the address of
    the page that helps; pages show the remedy as a link to it."""

    def __init__(
        self, status: int, title: str, detail: str = "", what_to_do: str = "", to: str = ""
    ) -> None:
        super().__init__(f"{title}: {detail}" if detail else title)
        self.status = status
        self.title = title
        self.detail = detail
        self.what_to_do = what_to_do
        self.to = to

    def as_json(self) -> Json:
        """The refusal as pages show it. `unreachable`: true if no broker answers."""
        return {
            "error": {
                "title": self.title,
                "detail": self.detail,
                "what_to_do": self.what_to_do,
                "to": self.to,
                "unreachable": self.what_to_do == _ASK_BROKER,
            }
        }


_SIGN_IN = "Sign in again."
_ASK_RIGHT = "Sign in as another user, or ask for the right: see who has it."
_FIND_TOPIC = "Look for it in the list of topics."
_ASK_BROKER = "See whether the broker runs and is reachable from the console: `odradek status`."
#: The addresses of the pages that help.
_PAGES = {_ASK_RIGHT: "/access", _FIND_TOPIC: "/topics"}

#: Kinds of the client's errors, with the HTTP status, title and advice; the first match applies.
_KINDS: tuple[tuple[type[OdradekError], int, str, str], ...] = (
    (AuthenticationFailed, 401, "The broker does not accept this user", _SIGN_IN),
    (TopicAuthorizationFailed, 403, "A right on the topic is missing", _ASK_RIGHT),
    (GroupAuthorizationFailed, 403, "A right on the group is missing", _ASK_RIGHT),
    (
        TransactionalIdAuthorizationFailed,
        403,
        "A right on the transactional id is missing",
        _ASK_RIGHT,
    ),
    (ClusterAuthorizationFailed, 403, "A right on the cluster is missing", _ASK_RIGHT),
    (UnknownTopicOrPartition, 404, "There is no such topic or partition", _FIND_TOPIC),
    (UnsupportedByBroker, 501, "This broker cannot answer that", ""),
    (InvalidConfig, 422, "The broker refuses this setting", ""),
    (ConfigError, 500, "A setting of the console's client is wrong", ""),
    (Refused, 422, "The broker refuses this", ""),
    (ConnectionLost, 502, "The broker cannot be reached", _ASK_BROKER),
    (MetadataTimeout, 504, "The broker did not answer in time", _ASK_BROKER),
    (RequestTimedOut, 504, "The broker did not answer in time", _ASK_BROKER),
    (OdradekError, 502, "The broker did not do it", ""),
)


_LACKS_RIGHT = (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)


def refusal_of(error: OdradekError) -> HttpProblem:
    """An error of the client as an answer."""
    for kind, status, title, what_to_do in _KINDS:
        if isinstance(error, kind):
            return HttpProblem(status, title, str(error), what_to_do, _PAGES.get(what_to_do, ""))
    raise AssertionError(f"{type(error)} has no row")


def why_missing(what: str, error: OdradekError, right: str) -> str:
    """A sentence that says why a part of a page is missing. `right`: the ACL that this part
    needs."""
    if isinstance(error, UnsupportedByBroker):
        return f"{what}: this broker is too old, or has nothing of the kind."
    if isinstance(error, _LACKS_RIGHT):
        return f"{what}: this user lacks the right {right}."
    return f"{what}: {error}"


def failed(error: Exception) -> HttpProblem:
    """The answer if the console has a bug. It lacks the text of the exception, because that text
    may quote values of records."""
    return HttpProblem(
        500,
        "The console failed",
        type(error).__name__,
        "The console's log has the cause; please report it.",
    )


def check_text(what: str, text: str) -> None:
    """Refuse a text that is too long, or that cannot be sent to a broker."""
    if len(text) > TEXT_CHARACTERS_MAX:
        detail = f"{len(text):,} characters of {TEXT_CHARACTERS_MAX:,}"
        raise HttpProblem(400, f"{what} is too long", detail)
    if _HALF_PAIR.search(text):
        raise HttpProblem(400, f"{what} has half of a surrogate pair, which is no character")


class PageQuery:
    """The parameters of a request, which are read with bounds."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str, default: str | None = None) -> str:
        """A text. Refusal if the parameter is missing and has no default."""
        value = self._given.get(name, default)
        if value is None:
            raise HttpProblem(400, f"The parameter {name} is missing")
        check_text(f"The parameter {name}", value)
        return value

    def whole(self, name: str, default: int | None = None, *, least: int = 0, most: int) -> int:
        """A whole number between two bounds. Refusal for any other text."""
        text = self.text(name, None if default is None else str(default))
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise HttpProblem(
                400,
                f"The parameter {name} is wrong",
                f"{text[:100]!r} must be a whole number from {least:,} to {most:,}",
            )
        return value

    def flag(self, name: str) -> bool:
        """True if the parameter is present and is not "false", "0" or empty."""
        return self.text(name, "") not in ("", "0", "false")


@dataclass(frozen=True)
class Column:
    """A column by which rows can be sorted. `key` returns the value of a row, or None if
    unknown.
    """

    key: Callable[[Any], Any]


def page_of(
    rows: Iterable[Any],
    query: PageQuery,
    columns: Mapping[str, Column],
    *,
    name: Callable[[Any], str],
    sort: str,
) -> tuple[Sequence[Any], Json]:
    """The rows of one page, and the fields of the answer with the page's place among all rows.

    The query may have `offset`, `limit`, `filter` (a part of the name, in any case) and `sort` (a
    name of `columns`, with `-` before it for the largest first; `sort` is the default). Unknown
    values come last in both directions, and equal rows in the order of their names.
    """
    offset = query.whole("offset", 0, most=10_000_000)
    limit = query.whole("limit", LIMIT_DEFAULT, least=1, most=LIMIT_MAX)
    wanted = query.text("filter", "").casefold()
    order = query.text("sort", sort)
    column = columns.get(order.removeprefix("-"))
    if column is None:
        raise HttpProblem(
            400,
            "The parameter sort is wrong",
            f"{order[:100]!r} is none of {', '.join(columns)}, or one of them after `-`",
        )
    every = list(rows)
    found = [row for row in every if wanted in name(row).casefold()] if wanted else every
    found.sort(key=name)
    known = [row for row in found if column.key(row) is not None]
    unknown = [row for row in found if column.key(row) is None]
    known.sort(key=column.key, reverse=order.startswith("-"))
    found = known + unknown
    return found[offset : offset + limit], {
        "offset": offset,
        "total": len(found),
        "total_unfiltered": len(every),
        "sort": order,
    }
