"""Problems that show in counters and recent events; and what covers each alert."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from odradek_broker.explain.history import History
from odradek_broker.explain.sentences import EventKind
from odradek_broker.explain.share_records import ShareHistory
from odradek_broker.explain.signals import SPAN_MS, find_signals
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.mirror.events import SourceState
from odradek_broker.share.events import DeadLettered, NotDeadLettered
from odradek_broker.share.in_flight import GivenUpBecause
from odradek_broker.share_state import ShareKey
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_broker import Problem

_ROOT = Path(__file__).parents[3]
_MINUTE_MS = 60_000
NOW_MS = 1_000 * _MINUTE_MS


class World:
    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.metrics = BrokerMetrics(lambda: 0)
        self.groups = History(lambda: self.now_ms)
        self.shares = ShareHistory(lambda: self.now_ms)
        self.directories: list[Any] = []
        self.sources: dict[str, list[SourceState | None]] = {}

    def problems(self) -> list[Problem]:
        search = find_signals(
            self.metrics, self.directories, self.groups, self.shares, self.sources, NOW_MS
        )
        while True:
            try:
                next(search)
            except StopIteration as end:
                return cast("list[Problem]", end.value)

    def found(self) -> dict[str, str]:
        return {each.name: each.text for each in self.problems()}


@pytest.fixture
def world() -> World:
    return World()


def test_a_sound_broker_has_no_signals(world: World) -> None:
    world.directories = [
        SimpleNamespace(path="/d", journal=SimpleNamespace(used_bytes=0, bytes_max=0))
    ]
    world.sources = {"orders": [SourceState(1, 0, 0, NOW_MS), None]}
    world.metrics.certificate_ends_s = {"SSL": (NOW_MS + 15 * 86_400_000) / 1000}
    assert world.problems() == []


def test_certificates_journals_and_mirrors_are_looked_at(world: World) -> None:
    world.metrics.certificate_ends_s = {"SSL": NOW_MS / 1000 + 86_400, "OLD": NOW_MS / 1000 - 1}
    world.directories = [
        SimpleNamespace(path="/d", journal=SimpleNamespace(used_bytes=95, bytes_max=100))
    ]
    world.sources = {
        "orders": [SourceState(1, 0, 0, NOW_MS), SourceState(1, 0, 0, NOW_MS - 180_000)]
    }
    assert [each.text for each in world.problems()] == [
        "the certificate of SSL expires in 1.0 d",
        "the certificate of OLD has expired",
        "the commit journal of /d is nearly full: the disk syncs too slowly",
        "the mirror of 'orders' has sent no report for 3.0 min",
    ]


def sampled(world: World, minutes: int, before: int) -> None:
    """Take a sample, then count late turns, slow flushes and errors, and take another sample."""
    metrics = world.metrics
    metrics.take_sample(0, NOW_MS - (minutes + before) * _MINUTE_MS)
    for _ in range(97):
        metrics.loop_delays.observe(10)
        metrics.flushed(0.001)
    for _ in range(3):
        metrics.loop_delays.observe(150_000)
        metrics.flushed(0.2)
    metrics.errors["Fetch", int(ErrorCode.CORRUPT_MESSAGE)] = 2
    metrics.errors["Fetch", int(ErrorCode.NOT_LEADER_OR_FOLLOWER)] = 7
    metrics.take_sample(10**9, NOW_MS - before * _MINUTE_MS)


def test_late_turns_slow_flushes_and_errors_of_the_disk_are_found(world: World) -> None:
    sampled(world, minutes=6, before=0)
    assert world.found() == {
        "event_loop_late": "all requests wait: one turn of the event loop in a hundred takes longer"
        " than 100 ms",
        "flushes_slow": "acknowledgements wait: one flush in a hundred takes longer than 100 ms",
        "storage_errors": "2 answers were errors of the disk or of damaged records in the last minutes",
    }


@pytest.mark.parametrize(("minutes", "before"), [(3, 0), (6, 11)])
def test_counters_of_a_short_time_or_long_ago_say_nothing(
    world: World, minutes: int, before: int
) -> None:
    sampled(world, minutes, before)
    assert world.problems() == []


def test_a_group_that_rebalances_all_the_time_is_named(world: World) -> None:
    world.now_ms = NOW_MS - SPAN_MS - 1
    for number in range(30):
        world.groups.record("calm", EventKind.GROUP_STABLE, generation=number)
    world.now_ms = NOW_MS - 1
    for number in range(11):
        world.groups.record("storm", EventKind.GROUP_STABLE, generation=number)
        world.groups.record("joins", EventKind.CONSUMER_JOINED, member=f"m{number}")
    for number in range(10):
        world.groups.record("calm", EventKind.CONSUMER_EPOCH, epoch=number)
    (problem,) = world.problems()
    assert (problem.name, problem.subject) == ("rebalance_storm", "storm")
    assert problem.text == "group 'storm' has rebalanced 11 times in ten minutes"


def test_records_that_share_groups_give_up_are_counted(world: World) -> None:
    key, why = ShareKey("workers", bytes(16), 0), next(iter(GivenUpBecause))
    world.shares.record(DeadLettered(key, 5, 9, 5, why, "dlq", 0, 3))
    world.shares.record(NotDeadLettered(key, 11, 11, 5, why, "there is no topic dlq"))
    assert world.found() == {
        "records_given_up": "share group 'workers' has given up 5 records in ten minutes; they have"
        " dead letters",
        "dead_letters_missing": "share group 'workers' has given up 1 records in ten minutes, and"
        " they have no dead letters",
    }


# --- Alerts ---------------------------------------------------------------------------------------

#: For each alert, what names its cause on the overview of the console and in `odradek doctor`: the
#: name of a problem, or a check of both; or the reason why nothing does.
COVERED = {
    "OdradekDown": "the connection itself",
    "OdradekDiskTakesNoWrites": "log_directory_not_writable",
    "OdradekDirectoryFailed": "log_directory_failed",
    "OdradekPartitionOffline": "partition_offline",
    "OdradekDiskFullSoon": "no: the broker keeps no history of six hours",
    "OdradekDiskNearlyFull": "both ask for the room of disks",
    "OdradekJournalNearlyFull": "journal_nearly_full",
    "OdradekLoopLate": "event_loop_late",
    "OdradekCertificateExpires": "certificate_expires",
    "OdradekFlushesSlow": "flushes_slow",
    "OdradekStorageErrors": "storage_errors",
    "OdradekConsumerGroupBehind": "the verdict about the group",
    "OdradekConsumerGroupStopped": "the verdict about the group",
    "OdradekConsumerGroupStalled": "the verdict about the group",
    "OdradekConsumerGroupLate": "doctor asks each group; the console has a column of the ages",
    "OdradekRebalanceStorm": "rebalance_storm",
    "OdradekReadCommittedHeldBack": "transaction_open",
    "OdradekShareGroupBehind": "no: nobody judges how much lag of a share group is too much",
    "OdradekShareGroupGivesUp": "records_given_up",
    "OdradekDeadLettersGrow": "records_given_up",
    "OdradekDeadLettersMissing": "dead_letters_missing",
    "OdradekShareGroupLocksUsedUp": "no: a busy group may use all of its locks",
    "OdradekMirrorSilent": "mirror_silent",
    "OdradekTransactionHangs": "transaction_open",
    "OdradekPreparedTransactionWaits": "transaction_open",
    "OdradekUncleanablePartitions": "compaction_stopped",
}


def test_every_alert_has_a_problem_with_the_same_cause() -> None:
    rules = yaml.safe_load(
        (_ROOT / "command_line/odradek_cli/tools/prometheus-alerts.yml").read_text("utf-8")
    )["groups"][0]["rules"]
    assert {rule["alert"] for rule in rules} == COVERED.keys()
    texts = [
        (_ROOT / f"broker/odradek_broker/explain/{name}.py").read_text("utf-8")
        for name in ("problems", "signals")
    ]
    known = set(re.findall(r'"([a-z]+(?:_[a-z]+)+)"', "".join(texts)))
    assert {each for each in COVERED.values() if " " not in each} <= known
