"""The data directory of an earlier broker version: this broker gives the same answers as that
version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.golden import data_directory

import budget
from cli_runner import Commands

INDEXES = ("*.index", "*.timeindex", "*.txnindex")
#: Files that are caches, or can be computed again if nothing else of the partition is lost.
CACHES = (
    *INDEXES,
    "*.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}
#: Damage that is not noticed: the earlier version's snapshots do not have the sizes of these files,
#: so a file that lost whole entries looks complete. `test_lost_files.py` tests the snapshots of
#: this version.
UNNOTICED = {("*.txnindex", "emptied"), ("*.txnindex", "cut"), ("*.timeindex", "cut")}


def _check_damaged(
    folder: Path, variant: str, patterns: tuple[str, ...], damage: Callable[[Path], object]
) -> None:
    data = data_directory.unpack(folder)[variant]
    damaged = [path for pattern in patterns for path in data.rglob(pattern)]
    assert damaged
    for path in damaged:
        damage(path)
    expected = data_directory.expected()
    with data_directory.broker_on(data) as broker:
        for name, answer in data_directory.ask(broker.bootstrap).items():
            assert answer == expected[name], name


@pytest.mark.full
@pytest.mark.parametrize(
    "variant", budget.of_which(data_directory.VARIANTS, data_directory.VARIANTS[:1])
)
@pytest.mark.parametrize(
    "patterns",
    [
        INDEXES,
        *(
            pytest.param((name,), marks=pytest.mark.full)
            for name in ("*.snapshot", "leader-epoch-checkpoint", "log-start-offset-checkpoint")
        ),
    ],
)
def test_l05_l33_l35_coordinators_and_logs_answer_the_same_without_their_caches(
    variant: str, patterns: tuple[str, ...], tmp_path: Path
) -> None:
    _check_damaged(tmp_path, variant, patterns, Path.unlink)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("variant", data_directory.VARIANTS)
@pytest.mark.parametrize(
    ("pattern", "damage"),
    [(one, other) for one in CACHES for other in DAMAGES if (one, other) not in UNNOTICED],
)
def test_l05_l33_l35_coordinators_and_logs_answer_the_same_with_damaged_caches(
    variant: str, damage: str, pattern: str, tmp_path: Path
) -> None:
    _check_damaged(tmp_path, variant, (pattern,), DAMAGES[damage])


@pytest.mark.parametrize("variant", budget.of_which(data_directory.VARIANTS, ["killed"]))
def test_an_old_data_directory_gives_the_same_answers(variant: str, tmp_path: Path) -> None:
    data = data_directory.unpack(tmp_path)[variant]
    odradek = Commands("")
    odradek.run("log", "verify", str(data), code=0 if variant == "stopped" else 1)
    expected = data_directory.expected()
    for _ in range(2):
        with data_directory.broker_on(data) as broker:
            answers = data_directory.ask(broker.bootstrap)
            assert answers.keys() == expected.keys()
            for name, answer in answers.items():
                assert answer == expected[name], name
    odradek.run("log", "verify", str(data))


def test_the_golden_data_directory_covers_transactions_settings_and_groups() -> None:
    answers = data_directory.expected()
    assert answers["transactions"]["prepared"][0] == "Ongoing"
    settings = answers["settings"]
    assert settings["TOPIC fruit"].keys() >= {"segment.bytes", "max.message.bytes"}
    assert settings["BROKER "] and settings["GROUP modern"]
    committed, everything = (
        sum(len(rows) for name, rows in answers["records"].items() if name.startswith(isolation))
        for isolation in ("read_committed", "read_uncommitted")
    )
    assert 0 < committed < everything
    assert {each["type"] for each in answers["groups"].values()} == {"classic", "consumer"}
    assert answers["offsets"]["trimmed-0"]["earliest"] == [13, -1]
