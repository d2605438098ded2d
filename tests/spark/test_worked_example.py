"""The programs in docs/spark/example.md run as they are printed there, and give the right
results."""

from __future__ import annotations

import json
import re
import runpy
import sys
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odradek import NewTopic, sync
from odradek.broker import SubprocessBroker
from odradek_demo.flights import read_flights

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark" / "example.md"
#: The number of flights in about a week.
FLIGHTS = 6000
WATERMARK = timedelta(hours=6)
Day = tuple[str, str]


def program(name: str) -> str:
    """The code on the page for the program of this name."""
    text = DOCUMENT.read_text().partition(f"`{name}`, run as")[2]
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None, name
    return found[1]


def computed(flights: list[dict[str, str]]) -> dict[Day, tuple[int, float]]:
    """(number of flights, mean delay) for each airport and each day that is over, computed in plain
    Python."""
    times = [datetime.fromisoformat(flight["time_hour"]) for flight in flights]
    over = max(times) - WATERMARK
    days: dict[Day, list[str]] = {}
    for time, flight in zip(times, flights, strict=True):
        midnight = time.replace(hour=0, minute=0, second=0)
        if midnight + timedelta(days=1) <= over:
            day = (flight["origin"], midnight.date().isoformat())
            days.setdefault(day, []).append(flight["dep_delay"])
    result = {}
    for day, texts in days.items():
        delays = [int(text) for text in texts if text not in ("", "NA")]
        result[day] = (len(texts), sum(delays) / len(delays))
    return result


def written(bootstrap: str) -> list[dict[str, Any]]:
    """The committed rows of the topic with the results."""
    place = ("flights-by-day", 0)
    with sync.Consumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        (end,) = consumer.end_offsets(place).values()
        consumer.assign([place])
        rows = []
        while consumer.position(place) < end:
            rows += [json.loads(record.value) for record in consumer.poll(1000)]
    return rows


@pytest.mark.full
def test_the_example_counts_each_flight_once(
    spark: SparkSession,
    odradek_broker: SubprocessBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bootstrap, checkpoint = odradek_broker.bootstrap, tmp_path / "checkpoint"
    with sync.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("flights", 3), NewTopic("flights-by-day", 1)])

    def run(name: str, *arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", [name, bootstrap, *map(str, arguments)])
        path = tmp_path / name
        path.write_text(program(name))
        runpy.run_path(str(path), run_name="__main__")

    half = FLIGHTS // 2
    run("feed.py", 0, half)
    run("flights_by_day.py", checkpoint)
    first = written(bootstrap)
    # This is the state after Spark has died before it recorded the last batch. The next start runs
    # that batch again.
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    run("feed.py", half, FLIGHTS)
    run("flights_by_day.py", checkpoint)

    flights = sorted(read_flights(), key=lambda flight: flight["time_hour"])
    expected = computed(list(islice(flights, FLIGHTS)))
    rows = written(bootstrap)
    assert 0 < len(first) < len(rows) == len(expected)
    found = {(row["origin"], row["day"]): (row["flights"], row["mean_dep_delay"]) for row in rows}
    assert found.keys() == expected.keys()
    for day, (count, delay) in expected.items():
        assert found[day] == (count, pytest.approx(delay)), day
