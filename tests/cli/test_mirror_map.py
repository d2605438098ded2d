"""`odradek mirror offsets` and `checkpoint` translate positions of the source to the target."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek import Producer
from odradek.broker import SubprocessBroker


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SubprocessBroker]:
    """A broker with an exactly-once copy of five transactions of one record each.

    At the source a marker follows each record; the target has one marker after all records.
    """
    with (
        SubprocessBroker(data_dir=tmp_path_factory.mktemp("source")) as source,
        SubprocessBroker(data_dir=tmp_path_factory.mktemp("target")) as target,
    ):
        asyncio.run(_fill(source.bootstrap))
        both = ("--from", source.bootstrap, "--to", target.bootstrap)
        done = _mirror(*both, "--mode", "exactly-once")
        assert done.returncode == 0, done.stderr
        yield target


async def _fill(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id="writer") as producer:
        await producer.init_transactions()
        for number in range(5):
            await producer.begin_transaction()
            await producer.send_and_wait("flights", b"%d" % number, partition=0)
            await producer.commit_transaction()


def _mirror(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek", "mirror", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_translated_offsets_are_those_of_the_same_records(target: SubprocessBroker) -> None:
    wanted = [f"flights-0:{offset}" for offset in range(11)]
    done = _mirror("offsets", *wanted, "--to", target.bootstrap, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    # Offsets 1, 3, ... of the source are markers, and are translated to the next record.
    assert [row["target"] for row in rows] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


@pytest.mark.full
def test_an_offset_that_is_not_copied_is_an_error(target: SubprocessBroker) -> None:
    done = _mirror("offsets", "flights-0:2", "flights-0:99", "--to", target.bootstrap)
    assert done.returncode == 1
    assert "offset 99 is not copied yet" in done.stderr
    assert "flights" in done.stdout
    other = _mirror("offsets", "other-0:2", "--to", target.bootstrap)
    assert "other-0: the partition is not mirrored" in other.stderr
    wrong = _mirror("offsets", "flights:2", "--to", target.bootstrap)
    assert wrong.returncode == 2 and "TOPIC-PARTITION:OFFSET" in wrong.stderr
    unknown = _mirror("offsets", "flights-0:2", "--to", target.bootstrap, "--name", "other")
    assert unknown.returncode == 1 and "no mirror with the name 'other'" in unknown.stderr


@pytest.mark.full
def test_a_checkpoint_gets_the_offsets_of_the_target(
    target: SubprocessBroker, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for name in ("offsets", "commits"):
        (old / name).mkdir(parents=True)
    (old / "metadata").write_text('{"id":"cc61e73d"}')
    (old / "offsets/0").write_text('v1\n{"conf":{}}\n{"flights":{"0":6}}')
    (old / "commits/0").write_text("v1\n{}")

    done = _mirror("checkpoint", str(old), str(new), "--to", target.bootstrap)

    assert done.returncode == 0, done.stderr
    assert "continues after batch 0" in done.stderr
    assert (new / "offsets/0").read_text().endswith('{"flights": {"0": 3}}')
    again = _mirror("checkpoint", str(old), str(new), "--to", target.bootstrap)
    assert again.returncode == 1 and "exists already" in again.stderr
