"""`odradek mirror check` between two brokers: equal, different, and incomparable topics and
groups."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from mirrored import fill, make_topic, mirror
from odradek import Admin, Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import ConfigResource
from odradek_client.structs import OffsetAndMetadata, TopicPartition
from odradek_mirror.commands.check import check

SETTINGS = {"log.durability": "page-cache"}
ROWS = [(b"k%d" % n, b"v%d" % n) for n in range(6)]


@pytest.fixture(scope="module")
def source() -> Iterator[str]:
    with SubprocessBroker(settings=SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with SubprocessBroker(settings=SETTINGS) as running:
        yield running.bootstrap


def _check(*words: str, code: int) -> tuple[str, str]:
    """Run the command; returns (stdout, stderr)."""
    app = typer.Typer()
    app.command()(check)
    done = CliRunner().invoke(app, [*words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, (done.exit_code, done.stdout, done.stderr)
    return done.stdout, done.stderr


def _write(bootstrap: str, topic: str, rows: list[tuple[bytes, bytes]]) -> None:
    """Write a plain topic, with one batch for each record."""

    async def write() -> None:
        await make_topic(bootstrap, topic, 1)
        async with Producer(bootstrap_servers=bootstrap, enable_idempotence=False) as producer:
            for number, (key, value) in enumerate(rows):
                await producer.send_and_wait(
                    topic, value, key=key, partition=0, timestamp_ms=1000 + number
                )

    asyncio.run(write())


def _commit(bootstrap: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    async def commit() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await admin.alter_group_offsets(
                group, dict[tuple[str, int], int | OffsetAndMetadata](offsets.items())
            )

    asyncio.run(commit())


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (ROWS, ""),
        ([*ROWS[:3], (b"k3", b"other"), *ROWS[4:]], "value: source offset 3, target offset 3"),
        (ROWS[:4], "missing: source offset 4 and 1 more"),
        ([*ROWS, (b"k", b"v")], "extra: target offset 6"),
        (
            [ROWS[1], ROWS[0], *ROWS[2:]],
            "key, value: source offset 0, target offset 0 and 1 more",
        ),
    ],
)
def test_plain_topics_are_compared_record_by_record(
    source: str, target: str, unique_topic: str, rows: list[tuple[bytes, bytes]], found: str
) -> None:
    _write(source, unique_topic, ROWS)
    _write(target, unique_topic, rows)
    sides = "--from", source, "--to", target, "--topics", unique_topic
    out, told = _check(*sides, code=1 if found else 0)
    lines = out.splitlines()
    assert lines[:2] == [unique_topic, "PARTITION  RECORDS  RESULT"] or found
    assert lines[3:] == ([f"{unique_topic}-0: {found}"] if found else [])
    assert ("different" if found else "equal") in lines[2]
    assert "same-offsets" in told


def test_a_group_offset_at_the_target_may_be_ahead_but_not_behind(
    source: str, target: str, unique_topic: str
) -> None:
    tp = TopicPartition(unique_topic, 0)
    for bootstrap in (source, target):
        _write(bootstrap, unique_topic, ROWS)
    sides = "--from", source, "--to", target, "--topics", unique_topic
    group = f"group-of-{unique_topic}"
    _commit(source, group, {tp: 3})
    out, _ = _check(*sides, code=1)
    assert f"group '{group}', {unique_topic}-0" in out
    assert out.endswith("should be 3 at the target, and is none\n")
    _check(*sides, "--groups", "no-such-.*", code=0)
    _commit(target, group, {tp: 2})
    assert _check(*sides, code=1)[0].endswith("should be 3 at the target, and is 2\n")
    _commit(target, group, {tp: 3})
    _check(*sides, code=0)
    _commit(target, group, {tp: 5})
    out, _ = _check(*sides, "--groups", group, "--json", code=0)
    rows: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert [(row["type"], row["result"]) for row in rows] == [
        ("partition", "equal"),
        ("group", "ahead"),
    ]


def _configure(bootstrap: str, group: str, **values: str | None) -> None:
    async def configure() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            changes = {name.replace("_", "."): value for name, value in values.items()}
            await admin.alter_configs({ConfigResource.group(group): changes})

    asyncio.run(configure())


def test_settings_of_groups_are_compared(source: str, target: str, unique_topic: str) -> None:
    """The group has only settings, neither members nor offsets."""
    for bootstrap in (source, target):
        _write(bootstrap, unique_topic, ROWS)
    group = f"group-of-{unique_topic}"
    sides = "--from", source, "--to", target, "--topics", unique_topic, "--groups", group
    _configure(source, group, share_auto_offset_reset="earliest")
    out, told = _check(*sides, code=1)
    difference = (
        f"group '{group}': the setting share.auto.offset.reset is earliest at the source, and the"
        " target has latest\n"
    )
    assert out.endswith(difference)
    assert "different" in told
    out, _ = _check(*sides, "--json", code=1)
    assert json.loads(out.splitlines()[-1]) == {
        "type": "group setting",
        "group": group,
        "name": "share.auto.offset.reset",
        "source_value": "earliest",
        "target_value": "latest",
        "result": "different",
    }
    _check(*sides[:-1], "no-such-.*", code=0)
    _configure(target, group, share_auto_offset_reset="earliest")
    assert "share." not in _check(*sides, code=0)[0]
    _configure(target, group, consumer_session_timeout_ms="50000")
    _, told = _check(*sides, code=0)
    assert f"group '{group}' has the setting consumer.session.timeout.ms at the target only" in told
    # A setting that equals the default of the target's brokers is no difference.
    _configure(source, group, share_auto_offset_reset="latest")
    _configure(target, group, share_auto_offset_reset=None)
    _check(*sides, code=0)
    # Remove the setting, because other tests compare all groups of these brokers.
    _configure(source, group, share_auto_offset_reset=None)


@pytest.mark.full
def test_exactly_once_copies_are_compared_by_their_offset_map(
    source: str, target: str, unique_topic: str
) -> None:
    asyncio.run(_fill(source, unique_topic))
    words = (
        *("--from", source, "--to", target, "--topics", unique_topic),
        *("--mode", "exactly-once", "--name", unique_topic),
    )
    assert "nothing was copied there" in _check(*words, code=2)[1]
    asyncio.run(_copy(source, target, unique_topic))
    out, _ = _check(*words, "--json", code=0)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["type"] for row in rows] == ["partition", "partition", "group"]
    assert rows[0]["source_records"] == rows[0]["target_records"] > 0
    foreign = asyncio.run(_write_one(target, unique_topic, 0))
    late = asyncio.run(_write_one(source, unique_topic, 1))
    out, _ = _check(*words, code=1)
    assert f"{unique_topic}-0: extra: target offset {foreign}\n" in out
    assert f"{unique_topic}-1: missing: source offset {late}\n" in out


async def _fill(bootstrap: str, topic: str) -> None:
    await make_topic(bootstrap, topic)
    await fill(bootstrap, topic)


async def _copy(source: str, target: str, topic: str) -> None:
    """Copy a topic and the offset of a group."""
    async with mirror(source, target, topic) as made:
        copier = await made.drain()
        tp = TopicPartition(topic, 1)
        there = copier.translate(tp, 7)
        assert there is not None
        await made.source.alter_group_offsets(topic, {tp: 7})
        await made.target.alter_group_offsets(topic, {tp: there})


async def _write_one(bootstrap: str, topic: str, partition: int) -> int:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        written = await producer.send_and_wait(topic, b"more", partition=partition)
    return written.offset


@pytest.mark.full
def test_a_comparison_that_is_not_possible_exits_2(
    source: str, target: str, unique_topic: str
) -> None:
    sides = "--from", source, "--to", target
    assert "no topic of the source" in _check(*sides, "--topics", unique_topic, code=2)[1]
    _check(*sides, "--mode", "other", code=2)
    dead = "127.0.0.1:1"
    assert "could not compare" in _check("--from", source, "--to", dead, code=2)[1]
    _write(source, unique_topic, ROWS)
    out, _ = _check(*sides, "--topics", unique_topic, code=1)
    assert f"{unique_topic}-0: the target has no such topic" in out
