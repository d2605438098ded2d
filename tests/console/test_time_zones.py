"""Times without a zone that users write: all of a page are in the zone in which the page shows
times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from odradek_console.answers import HttpProblem, PageQuery
from odradek_console.reading import filter_of, moment, zone_of

if TYPE_CHECKING:
    from playwright.async_api import Page


class Record:
    """A record with only a timestamp."""

    partition = offset = 0
    key = value = None
    headers = ()

    def __init__(self, timestamp: int) -> None:
        self.timestamp = timestamp


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/New_York"])
def server_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of the console's machine, which must not matter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("server_zone")
@pytest.mark.parametrize(
    ("zone", "text", "in_utc"),
    [
        (None, "2026-07-01T12:30", "2026-07-01T12:30Z"),
        ("UTC", "2026-07-01T12:30", "2026-07-01T12:30Z"),
        ("Europe/Berlin", "2026-07-01T12:30", "2026-07-01T10:30Z"),
        ("Europe/Berlin", "2026-12-01 12:30:01.250", "2026-12-01T11:30:01.250Z"),
        ("America/New_York", "2026-07-01", "2026-07-01T04:00Z"),
        ("Europe/Berlin", "2026-07-01T12:30Z", "2026-07-01T12:30Z"),
        ("Europe/Berlin", "2026-07-01T12:30-05:00", "2026-07-01T17:30Z"),
    ],
)
def test_start_and_filter_mean_the_same_time(zone: str | None, text: str, in_utc: str) -> None:
    given = {"filter": f'time>="{text}"', **({} if zone is None else {"zone": zone})}
    query = PageQuery(given)
    at_ms = moment(text, zone_of(query))
    assert at_ms == round(datetime.fromisoformat(in_utc).timestamp() * 1000)
    matches = filter_of(query)
    assert [matches(Record(at_ms + more)) for more in (-1, 0, 1)] == [False, True, True]
    assert not filter_of(PageQuery({**given, "filter": f'!time>="{text}"'}))(Record(at_ms))


@pytest.mark.parametrize(
    "zone",
    ["", "local", "Nowhere/Town", "../../etc/passwd", "/etc/passwd", "Europe", "\0", "x" * 999],
)
def test_an_unknown_zone_is_refused_where_it_matters(zone: str) -> None:
    for words in ("time>=2026-07-01T12:30", "!time=2026-07-01"):
        with pytest.raises(HttpProblem, match="time zone"):
            filter_of(PageQuery({"filter": words, "zone": zone}))
    with pytest.raises(HttpProblem, match="time zone"):
        moment("2026-07-01", zone_of(PageQuery({"zone": zone})))
    filter_of(PageQuery({"filter": "time>=2026-07-01T12:30Z order", "zone": zone}))
    assert moment("5", zone_of(PageQuery({"zone": zone}))) == 5


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01", "10000-01-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    query = PageQuery({"zone": "Europe/Berlin", "filter": f'time="{text}"'})
    with pytest.raises(HttpProblem, match="no time"):
        moment(text, zone_of(query))
    with pytest.raises(HttpProblem, match="no time"):
        filter_of(query)


def test_times_at_the_ends_of_the_calendar_are_read() -> None:
    zone = zone_of(PageQuery({"zone": "Europe/Berlin"}))
    assert moment("0001-01-01", zone) == 0
    with pytest.raises(HttpProblem, match="no time"):
        moment("9" * 40, zone)


@pytest.mark.full
async def test_pages_read_times_in_the_zone_in_which_they_show_them(
    browser_page: Page, console_address: str
) -> None:
    page = browser_page
    for zone, text, in_utc in (
        ("", "2026-07-01 12:30", "2026-07-01T12:30:00Z"),
        ("Europe/Berlin", "2026-07-01 12:30", "2026-07-01T10:30:00Z"),
        ("Europe/Berlin", "2026-12-01T12:30:01.250", "2026-12-01T11:30:01.250Z"),
        ("Europe/Berlin", "2026-07-01T12:30Z", "2026-07-01T12:30:00Z"),
        # On each side of a change of the clocks.
        ("Europe/Berlin", "2026-03-29 01:59", "2026-03-29T00:59:00Z"),
        ("Europe/Berlin", "2026-03-29 03:01", "2026-03-29T01:01:00Z"),
        ("Pacific/Kiritimati", "2026-07-01 00:00", "2026-06-30T10:00:00Z"),
    ):
        await page.goto(f"{console_address}topics?zone={zone}")
        read = f"import('/static/format.mjs').then((m) => m.moment({text!r}))"
        shown = f"import('/static/format.mjs').then((m) => m.time({read_ms(in_utc)}))"
        assert await page.evaluate(read) == read_ms(in_utc), (zone, text)
        if "Z" not in text:
            assert (await page.evaluate(shown)).startswith(text.replace("T", " "))
    for choice in ("scope=time&at=2026-07-01", "filter=time>=2026-07-01"):
        async with page.expect_request(lambda asked: "/api/records" in asked.url) as asked:
            await page.goto(f"{console_address}topic/records?name=t&zone=Europe/Berlin&{choice}")
        assert "zone=Europe%2FBerlin" in (await asked.value).url


def read_ms(in_utc: str) -> int:
    return round(datetime.fromisoformat(in_utc).timestamp() * 1000)
