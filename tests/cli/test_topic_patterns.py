"""Regular expressions by which commands name topics."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cli_runner import Commands, Shell
from odradek_cli.topic_patterns import is_pattern, matching, pattern_of

PATIENCE_S = 60.0


@pytest.fixture
def odradek(live_bootstrap: str) -> Commands:
    return Commands(live_bootstrap)


# --- Words ---


@pytest.mark.parametrize("name", ["orders", "orders.items", "a-b_c", "1", "..a"])
def test_a_word_that_may_be_a_topic_name_is_no_pattern(name: str) -> None:
    assert not is_pattern(name)
    assert matching([name], [name, name.replace(".", "x") + "x", "other"]) == [name]


def test_a_pattern_matches_whole_topic_names() -> None:
    there = ["orders", "orders.eu", "orders.us", "old-orders", "payments"]
    assert matching(["orders.*"], there) == ["orders", "orders.eu", "orders.us"]
    assert matching([r"orders\..*", "payments"], there) == ["orders.eu", "orders.us", "payments"]
    assert matching(["orders|pay.*"], there) == ["orders", "payments"]
    assert re.fullmatch(pattern_of(["a|b", "c"]), "ab") is None


# --- Commands ---


def test_topics_are_described_by_a_pattern(odradek: Commands, unique_topic: str) -> None:
    names = [f"{unique_topic}.{part}" for part in ("a", "b")]
    odradek.run("topic", "create", *names)
    rows = odradek.rows("topic", "describe", f"{unique_topic}\\..*")
    assert [row["topic"] for row in rows] == names
    rows = odradek.rows("topic", "describe", names[1], f"{unique_topic}.+")
    assert [row["topic"] for row in rows] == [names[1], names[0]]
    odradek.run("topic", "describe", names[0], f"{unique_topic}*", code=1)
    assert f"no topic matches '{unique_topic}*'; it is a regular expression:" in odradek.stderr
    odradek.run("topic", "describe", "a[", code=2)
    assert odradek.stderr.startswith("odradek: 'a[' is no regular expression: ")


@pytest.mark.full
def test_topics_that_match_a_pattern_are_read_to_their_end(
    odradek: Commands, unique_topic: str, live_bootstrap: str
) -> None:
    shell = Shell(live_bootstrap)
    odradek.run("topic", "create", f"{unique_topic}.a", f"{unique_topic}.b", f"{unique_topic}x")
    for part in (".a", ".b", "x"):
        shell.run("produce", f"{unique_topic}{part}", stdin=f"{part}\n".encode())
    for group in ([], ["--group", unique_topic]):
        printed = shell.run("consume", f"{unique_topic}\\..*", "--exit", *group)
        assert sorted(printed.splitlines()) == [b".a", b".b"]
    shell.run("consume", f"{unique_topic}-.*", "--exit", code=1)
    assert f"no topic matches '{unique_topic}-.*'; `odradek topic list`" in shell.stderr


@pytest.fixture(
    params=[[], ["--group", "readers"], ["--group", "r", "-X", "group.protocol=consumer"]]
)
def reader(
    request: pytest.FixtureRequest, live_bootstrap: str, unique_topic: str
) -> Iterator[subprocess.Popen[str]]:
    """`odradek consume` of all topics that begin with the name; it runs until it is stopped."""
    group = [
        f"{unique_topic}{each}" if each in ("readers", "r") else each for each in request.param
    ]
    started = subprocess.Popen(
        [sys.executable, "-m", "odradek", "consume", f"{unique_topic}.*", *group],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=Shell(live_bootstrap).environment,
        text=True,
    )
    yield started
    started.kill()
    started.communicate(timeout=PATIENCE_S)


@pytest.mark.full
def test_topics_created_later_are_read_by_a_pattern(
    reader: subprocess.Popen[str], live_bootstrap: str, unique_topic: str
) -> None:
    shell = Shell(live_bootstrap)
    assert reader.stderr is not None and reader.stdout is not None
    assert "yet; waiting for one, until Ctrl+C" in reader.stderr.readline()
    for part in ("a", "b"):
        shell.run("topic", "create", f"{unique_topic}.{part}")
        shell.run("produce", f"{unique_topic}.{part}", stdin=f"{part}\n".encode())
        assert reader.stdout.readline() == f"{part}\n"
