"""`odradek top`: frames from given samples, the text of a frame, and frames from a broker."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from rich.console import Console

from cli_runner import PATIENCE_S, Commands
from odradek import NewTopic, Producer, sync
from odradek_cli.cluster.top_frame import (
    ClusterSample,
    Frame,
    GroupSample,
    OpenTransaction,
    SlowRequests,
    make_frame,
)
from odradek_cli.cluster.top_view import duration, render
from odradek_client.admin.broker import BrokerDescription, Problem, RequestCounts
from odradek_client.structs import TopicPartition
from odradek_records.lag import LagPoint

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def broker(
    now_ms: int,
    *,
    started_ms: int = 0,
    requests: list[RequestCounts] | None = None,
    **counters: float,
) -> BrokerDescription:
    return BrokerDescription(
        1, "1", now_ms, started_ms, None, counters, [1_000, 10_000, 100_000], requests or []
    )


def fetches(*counts: int, sum_us: int) -> RequestCounts:
    return RequestCounts("Fetch", sum(counts), 0, sum_us, list(counts))


BEFORE = ClusterSample(
    at_ms=1_000,
    cluster_id="c",
    nodes=1,
    brokers={
        1: broker(
            1_000,
            requests=[fetches(10, 0, 0, 0, sum_us=5_000)],
            received_bytes_total=1_000,
            sent_bytes_total=0,
            requests_total=10,
            request_errors_total=0,
            connections=3,
        )
    },
    ends={A0: 100, A1: 50, B0: 7},
)
NOW = replace(
    BEFORE,
    at_ms=3_000,
    brokers={
        1: broker(
            3_500,
            requests=[
                fetches(10, 98, 1, 1, sum_us=505_000),
                RequestCounts("Produce", 1, 0, 9_000_000, [0, 0, 0, 1]),
            ],
            received_bytes_total=6_000,
            sent_bytes_total=2_500,
            requests_total=111,
            request_errors_total=5,
            connections=4,
        )
    },
    ends={A0: 110, A1: 50, B0: 3},
    groups=[
        GroupSample("idle", "classic", "Empty"),
        GroupSample(
            "slow",
            "consumer",
            "Stable",
            LagPoint(3_000, 1_500, 65_000, True),
            "WARNING",
            "WARNING: it falls behind",
        ),
        GroupSample("moving", "consumer", "Reconciling", LagPoint(3_000, 0, 0, False)),
    ],
    transactions=[
        OpenTransaction("late", 2, 2_900),
        OpenTransaction("unknown", 3, None),
        OpenTransaction("early", 1, 1_000),
    ],
    missing=["topics: 5,000 of 6,000 partitions are watched"] * 2,
)


def test_rates_are_differences_between_two_samples() -> None:
    frame = make_frame(BEFORE, NOW)
    # By the broker's clock, 2.5 s have passed.
    assert frame.throughput == {
        "received_bytes": 2_000, "sent_bytes": 1_000, "requests": 40.4, "errors": 2,
    }  # fmt: skip
    assert frame.levels == {"connections": 4}
    # A partition whose end offset went back counts no records.
    assert [(each.topic, each.partitions, each.records_per_s) for each in frame.topics] == [
        ("a", 2, 5.0),
        ("b", 1, 0.0),
    ]
    assert frame.records_per_s == 5.0 and frame.rates_known


def test_the_first_sample_has_no_rates() -> None:
    frame = make_frame(None, NOW)
    assert (frame.throughput, frame.slow, frame.records_per_s) == ({}, [], None)
    assert not frame.rates_known and frame.levels == {"connections": 4}
    assert [each.records_per_s for each in frame.topics] == [None, None]
    assert make_frame(NOW, NOW).records_per_s is None


def test_a_restarted_broker_has_no_rates_until_the_next_sample() -> None:
    restarted = replace(NOW, brokers={1: broker(3_500, started_ms=3_000, received_bytes_total=1)})
    assert make_frame(BEFORE, restarted).throughput == {}
    assert make_frame(BEFORE, replace(NOW, brokers={})).throughput == {}


def test_groups_are_sorted_by_lag_and_transactions_by_age() -> None:
    frame = make_frame(BEFORE, NOW)
    assert [each.group for each in frame.groups] == ["slow", "moving", "idle"]
    assert frame.groups[0].age_at_least and frame.groups[2].lag is None
    assert frame.rebalancing == ["moving"]
    assert frame.states == {"Empty": 1, "Reconciling": 1, "Stable": 1}
    assert [each.transactional_id for each in frame.transactions] == ["early", "late", "unknown"]


def test_slow_requests_are_counted_between_two_samples() -> None:
    assert make_frame(BEFORE, NOW).slow == [
        # slower than the largest bucket
        SlowRequests("Produce", 1, 9_000.0, None),
        # 99 of 100 requests took less than 100 ms
        SlowRequests("Fetch", 100, 5.0, 100.0),
    ]


def test_a_frame_as_json_has_the_age_of_open_transactions() -> None:
    shown = json.loads(json.dumps(make_frame(BEFORE, NOW).as_json()))
    assert [each["open_ms"] for each in shown["transactions"]] == [2_000, 100, None]
    assert shown["missing"] == ["topics: 5,000 of 6,000 partitions are watched"]
    assert shown["groups"][0] == {
        "group": "slow", "kind": "consumer", "state": "Stable", "lag": 1_500, "age_ms": 65_000,
        "age_at_least": True, "verdict": "WARNING", "sentence": "WARNING: it falls behind",
    }  # fmt: skip


# --- Text -----------------------------------------------------------------------------------------


def text_of(frame: Frame, height: int = 40, width: int = 100, sort: str = "rate") -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(render(frame, height=height, sort=sort))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_frame_is_printed_as_text() -> None:
    problem = Problem("x", "Partition a-0 is offline.", None, "")
    described = replace(NOW.brokers[1], problems=[problem])
    lines = text_of(make_frame(BEFORE, replace(NOW, brokers={1: described})))
    assert lines[0] == "odradek top  cluster c  1 node  1970-01-01T00:00:03Z"
    assert lines[1].startswith(
        "in 2.0 KiB/s  out 1000 B/s  requests 40/s  errors 2.0/s  records in 5.0/s"
    )
    words = [line.split() for line in lines]
    assert ["!", "Partition", "a-0", "is", "offline."] in words
    assert ["a", "2", "5.0"] in words and ["b", "1", "0"] in words
    assert ["slow", "consumer", "Stable", "WARNING", "1,500", ">", "1", "min"] in words
    assert ["idle", "classic", "Empty", "-", "-", "-"] in words
    assert ["Produce", "1", "9,000.0", "ms", "more"] in words
    assert ["early", "1", "2.0", "s"] in words
    assert lines[-1] == "missing: topics: 5,000 of 6,000 partitions are watched"


def test_a_frame_can_be_sorted_by_name() -> None:
    by_name = [line.split()[:1] for line in text_of(make_frame(BEFORE, NOW), sort="name")]
    assert by_name.index(["idle"]) < by_name.index(["moving"]) < by_name.index(["slow"])
    assert any("TOPIC v" in line for line in text_of(make_frame(BEFORE, NOW), sort="name"))


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_names_fill_the_lines_and_figures_stay_whole(columns: int) -> None:
    name = "spark-" + "x" * 60 + "-000017"
    sample = replace(
        NOW,
        ends={TopicPartition(name, 0): 2**63 - 1},
        groups=[GroupSample(name, "consumer", "Stable", LagPoint(3_000, 2**60, 65_000, False))],
        transactions=[OpenTransaction(name, 2**62, 0)],
    )
    lines = text_of(make_frame(BEFORE, sample), width=columns)
    assert max(map(len, lines)) <= columns
    (group,) = (line for line in lines if f"{2**60:,}" in line)
    assert len(group) == columns and group.startswith("spark-x") and "000017 " in group
    assert any(str(2**62) in line for line in lines)
    figures = "  ".join(lines[1:4])
    assert "open transactions 1" in figures and "records in" in figures


@pytest.mark.parametrize("height", [10, 24, 50])
def test_a_frame_fits_into_the_terminal(height: int) -> None:
    many = replace(
        NOW,
        ends={TopicPartition(f"t{number:04}", 0): number for number in range(500)},
        groups=[GroupSample(f"g{number:04}", "classic", "Empty") for number in range(500)],
    )
    lines = text_of(make_frame(BEFORE, many), height=height)
    assert len(lines) <= max(height, 27)
    assert any("topics more" in line for line in lines)
    assert any("groups more" in line for line in lines)


def test_control_characters_in_names_do_not_reach_the_terminal() -> None:
    sample = replace(NOW, groups=[GroupSample("[red]x\x1b[2J", "classic", "Empty")])
    assert any(r"[red]x\x1b[2J" in line for line in text_of(make_frame(BEFORE, sample)))


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [(None, "-"), (0, "0 s"), (900, "0.9 s"), (12_345, "12 s"), (65_000, "1 min"), (7_300_000, "2 h"), (200_000_000, "2 d")],
)  # fmt: skip
def test_durations_are_shown_in_readable_units(duration_ms: int | None, shown: str) -> None:
    assert duration(duration_ms) == shown


# --- A broker -------------------------------------------------------------------------------------


@pytest.fixture
def group(live_bootstrap: str, unique_topic: str) -> str:
    """A group with a lag of three records in a topic."""
    with sync.Admin(bootstrap_servers=live_bootstrap) as admin:
        admin.create_topics([NewTopic(unique_topic, 1)])
        with sync.Producer(bootstrap_servers=live_bootstrap) as producer:
            for _ in range(3):
                producer.send(unique_topic, b"x")
            producer.flush()
        admin.alter_group_offsets(f"{unique_topic}-readers", {(unique_topic, 0): 0})
    return f"{unique_topic}-readers"


def test_a_single_frame_of_a_broker_is_printed(
    live_bootstrap: str, unique_topic: str, group: str
) -> None:
    odradek = Commands(live_bootstrap)
    shown = json.loads(odradek.run("top", "--json", "--interval", "0.2"))
    assert unique_topic in [each["topic"] for each in shown["topics"]]
    (found,) = [each for each in shown["groups"] if each["group"] == group]
    assert found["lag"] == 3
    text = odradek.run("top", "--once", "--interval", "0.2")
    assert "odradek top  cluster" in text and "TOPIC" in text


@pytest.mark.own_broker
@pytest.mark.full
def test_the_lag_of_a_share_group_is_that_of_the_broker(
    live_bootstrap: str, unique_topic: str, group: str
) -> None:
    odradek = Commands(live_bootstrap)
    odradek.run("config", "set", "group", unique_topic, "share.auto.offset.reset=earliest")
    odradek.run("share", "consume", unique_topic, "--group", unique_topic, "--count", "1")
    shown = json.loads(odradek.run("top", "--json", "--interval", "0.2"))
    (found,) = [each for each in shown["groups"] if each["group"] == unique_topic]
    assert (found["kind"].lower(), found["lag"], found["age_ms"]) == ("share", 2, None)


@pytest.mark.own_broker
async def test_a_frame_of_odradek_has_bytes_connections_and_transactions(
    live_bootstrap: str, unique_topic: str
) -> None:
    from odradek_cli.cluster.top import Watch
    from odradek_client.admin import Admin

    async with (
        Admin(bootstrap_servers=live_bootstrap) as admin,
        Producer(bootstrap_servers=live_bootstrap, transactional_id=unique_topic) as producer,
    ):
        await admin.create_topics([NewTopic(unique_topic, 1)])
        watch = Watch(1.0)
        await watch.frame(admin)
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait(unique_topic, b"x" * 10_000)
        frame = await watch.frame(admin)
        await producer.abort_transaction()
    assert frame.throughput["received_bytes"] > 0 and frame.levels["connections"] >= 2
    assert frame.missing == []
    (mine,) = [each for each in frame.transactions if each.transactional_id == unique_topic]
    assert mine.start_ms is not None
    assert {"Produce"} <= {each.name for each in frame.slow}
    assert [each.records_per_s for each in frame.topics if each.topic == unique_topic] != [0]


def test_keys_sort_and_quit_top_on_a_terminal(
    live_bootstrap: str, unique_topic: str, group: str
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek", "top", "-b", live_bootstrap, "--interval", "0.3"],
        stdin=theirs, stdout=theirs, stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
    )  # fmt: skip
    os.close(theirs)
    seen = b""

    def until(wanted: bytes) -> None:
        nonlocal seen
        deadline_s = time.monotonic() + PATIENCE_S
        while wanted not in seen:
            assert time.monotonic() < deadline_s, seen
            if select.select([ours], [], [], 0.5)[0]:
                seen += os.read(ours, 65_536)

    try:
        until(b"RECORDS/S v")
        os.write(ours, b"s")
        until(b"TOPIC v")
        os.write(ours, b"q")
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
