"""`odradek mirror` between two brokers: the plan, both modes, groups, resumption, promotion."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek import Consumer, Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, ConfigResource, NewTopic
from odradek_client.admin.configs import ConfigSource
from odradek_client.structs import OffsetAndMetadata, TopicPartition

TP = TopicPartition("orders", 0)
#: Settings of a group with offsets, and of a group that has only settings.
GROUP_SETTINGS = {
    ConfigResource.group("billing"): {"consumer.session.timeout.ms": "50000"},
    ConfigResource.group("workers"): {"share.auto.offset.reset": "earliest"},
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SubprocessBroker]:
    with SubprocessBroker(data_dir=tmp_path_factory.mktemp("source")) as broker:
        yield broker


def _mirror(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek", "mirror", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def _both(source: SubprocessBroker, target: SubprocessBroker) -> tuple[str, ...]:
    return "--from", source.bootstrap, "--to", target.bootstrap


@pytest.fixture(scope="module")
def filled(source: SubprocessBroker) -> SubprocessBroker:
    """A source with a transactional topic whose log start offset is above 0, and a group."""
    asyncio.run(_fill(source))
    return source


async def _fill(source: SubprocessBroker) -> None:
    async with Admin(bootstrap_servers=source.bootstrap) as admin:
        topic = NewTopic("orders", 2, configs={"retention.ms": "-1", "min.insync.replicas": "2"})
        await admin.create_topics(topic)
        async with Producer(
            bootstrap_servers=source.bootstrap, transactional_id="writer", compression_type="gzip"
        ) as producer:
            await producer.init_transactions()
            for number in range(4):
                await producer.begin_transaction()
                for partition in range(2):
                    await producer.send_and_wait(
                        "orders",
                        b"%d" % number,
                        key=b"key",
                        partition=partition,
                        timestamp_ms=1_700_000_000_000 + number,
                        headers=[("a", b"b")],
                    )
                if number == 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        await admin.delete_records({TP: 2})
        await admin.alter_group_offsets("billing", {TP: OffsetAndMetadata(4, "mine", 0)})
        await admin.alter_configs(GROUP_SETTINGS)


async def _records(bootstrap: str) -> list[tuple[object, ...]]:
    async with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    ) as consumer:
        tps = [TopicPartition("orders", number) for number in range(2)]
        consumer.assign(tps)
        found: list[tuple[object, ...]] = []
        ends = await consumer.end_offsets(*tps)
        while any([await consumer.position(tp) < ends[tp] for tp in tps]):
            found += [
                (r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                for r in await consumer.poll(timeout_ms=500)
            ]
    return sorted(found, key=lambda each: each[:2])


async def _check_group_settings(admin: Admin) -> None:
    for group, settings in GROUP_SETTINGS.items():
        found = (await admin.describe_configs(group))[group]
        own = {e.name: e.value for e in found.values() if e.source is ConfigSource.GROUP}
        assert own == settings


@pytest.mark.full
async def test_a_plan_lists_the_actions_and_changes_nothing(
    filled: SubprocessBroker, odradek_broker: SubprocessBroker
) -> None:
    shown = _mirror(*_both(filled, odradek_broker), "--plan", "--json")
    assert shown.returncode == 0, shown.stderr
    plan = json.loads(shown.stdout)
    assert plan["mode"] == "same-offsets"
    (topic,) = plan["topics"]
    assert (topic["topic"], topic["action"], topic["partitions"]) == ("orders", "create", 2)
    assert topic["settings"]["retention.ms"] == "-1"
    assert plan["groups"] == ["billing"]
    assert plan["group_settings"] == {
        group.name: settings for group, settings in GROUP_SETTINGS.items()
    }
    assert "no record could be produced there" in "".join(plan["notes"])
    async with Admin(bootstrap_servers=odradek_broker.bootstrap) as admin:
        assert await admin.list_topics() == []


async def test_same_offsets_copies_records_and_groups_and_can_be_repeated(
    filled: SubprocessBroker, odradek_broker: SubprocessBroker
) -> None:
    options = _both(filled, odradek_broker)
    done = _mirror(*options)
    assert done.returncode == 0, done.stderr
    target = odradek_broker.bootstrap
    assert await _records(target) == await _records(filled.bootstrap)
    async with Admin(bootstrap_servers=target) as admin:
        assert (await admin.list_offsets({TP: "earliest"}))[TP].offset == 2  # type: ignore[union-attr]
        assert (await admin.list_group_offsets("billing"))[TP] == OffsetAndMetadata(4, "mine", 0)
        await _check_group_settings(admin)
        # After the copy another client commits an offset, which the next run must not overwrite.
        await admin.alter_group_offsets("billing", {TP: 6})
    again = _mirror(*options, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["records"] == 0
    assert "somebody else has committed offset 6" in again.stderr
    async with Admin(bootstrap_servers=target) as admin:
        found = (await admin.list_group_offsets("billing"))[TP]
        assert found is not None
        assert found.offset == 6
    equal = _mirror("check", *options)
    assert equal.returncode == 0, equal.stdout
    assert [line.split() for line in equal.stdout.splitlines()[2:]] == [
        ["0", "3", "equal"],
        ["1", "4", "equal"],
    ]
    assert "'billing' has gone on in orders-0" in equal.stderr
    listed = _mirror("promote", "--to", target)
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout == "orders would become an ordinary topic\n"
    assert "--execute carries it out" in listed.stderr
    async with Admin(bootstrap_servers=target) as admin:
        groups = [each.group_id for each in await admin.list_groups()]
        assert "odradek-mirror-default.billing" in groups
        promoted = _mirror("promote", "--to", target, "--execute")
        assert promoted.returncode == 0, promoted.stderr
        assert "orders is an ordinary topic" in promoted.stdout
        groups = [each.group_id for each in await admin.list_groups()]
        assert "odradek-mirror-default.billing" not in groups
    async with Producer(bootstrap_servers=target) as producer:
        await producer.send_and_wait("orders", b"own", partition=0)
    other = _mirror("check", *options)
    assert other.returncode == 1
    assert "orders-0: extra: target offset" in other.stdout
    refused = _mirror(*options)
    assert refused.returncode == 1
    assert "it exists and is no mirror" in refused.stderr


@pytest.mark.full
async def test_exactly_once_copies_committed_records_and_translates_groups(
    filled: SubprocessBroker, odradek_broker: SubprocessBroker
) -> None:
    done = _mirror(*_both(filled, odradek_broker), "--mode", "exactly-once")
    assert done.returncode == 0, done.stderr

    def without_offsets(records: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        return [(each[0], *each[2:]) for each in records]

    target = odradek_broker.bootstrap
    assert without_offsets(await _records(target)) == without_offsets(
        await _records(filled.bootstrap)
    )
    async with Admin(bootstrap_servers=target) as admin:
        assert (await admin.list_group_offsets("billing"))[TP] is not None
        await _check_group_settings(admin)
    shown = _mirror("status", "--from", filled.bootstrap, "--to", target, "--json")
    assert shown.returncode == 0, shown.stderr
    *rows, last = map(json.loads, shown.stdout.splitlines())
    assert [(row["partition"], row["records"], row["lag"]) for row in rows] == [
        (0, 2, 0),
        (1, 3, 0),
    ]
    assert last["name"] == "default"
    assert last["owner"]["pid"] > 0
    assert last["last_written_ms"] >= last["owner"]["since_ms"]
    text = _mirror("status", "--to", target)
    assert text.stdout.splitlines()[0].split()[-1] == "LAG"
    assert "mirror 'default': written by process" in text.stderr
    missing = _mirror("status", "--to", target, "--name", "other")
    assert missing.returncode == 1
    assert "no mirror with the name 'other'" in missing.stderr


@pytest.mark.full
async def test_a_plan_has_the_problems_that_a_run_would_find(
    filled: SubprocessBroker, odradek_broker: SubprocessBroker
) -> None:
    target = odradek_broker.bootstrap
    options = (*_both(filled, odradek_broker), "--mode", "exactly-once")
    async with Admin(bootstrap_servers=target) as admin:
        await admin.create_topics(NewTopic("orders", 2))
        assert _mirror(*options, "--plan").returncode == 0
        async with Producer(bootstrap_servers=target) as producer:
            await producer.send_and_wait("orders", b"mine", partition=1)
        shown = _mirror(*options, "--plan")
        assert shown.returncode == 1
        assert "orders-1 of the target has records that this mirror has not" in shown.stderr
        assert await admin.list_topics() == ["orders"]
        await admin.create_topics(NewTopic("odradek-mirror-default", 1))
        shown = _mirror(*options, "--plan")
        assert shown.returncode == 1
        assert "has cleanup.policy=delete" in shown.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
def test_a_mirror_that_follows_ends_with_the_code_of_its_signal(
    filled: SubprocessBroker, odradek_broker: SubprocessBroker, number: int, code: int
) -> None:
    command = [sys.executable, "-m", "odradek", "mirror", *_both(filled, odradek_broker)]
    follower = subprocess.Popen([*command, "--follow"], stderr=subprocess.PIPE, text=True)
    try:
        assert follower.stderr is not None
        for line in follower.stderr:
            if " records," in line:
                break
        follower.send_signal(number)
        rest = follower.stderr.read()
        assert follower.wait(30) == code, rest
        assert "Traceback" not in rest
    finally:
        follower.kill()
        follower.wait()
    assert _mirror(*_both(filled, odradek_broker)).returncode == 0


@pytest.mark.full
async def test_an_open_transaction_that_does_not_end_is_named(
    filled: SubprocessBroker, odradek_broker: SubprocessBroker
) -> None:
    async with Admin(bootstrap_servers=filled.bootstrap) as admin:
        await admin.create_topics(NewTopic("open", 1))
    async with Producer(
        bootstrap_servers=filled.bootstrap, transactional_id="slow-writer"
    ) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait("open", b"pending", partition=0)
        options = (*_both(filled, odradek_broker), "--topics", "open", "--timeout", "0.1")
        late = _mirror(*options)
        assert late.returncode == 1
        assert "transactions of 'slow-writer' are still open in open-0" in late.stderr
        await producer.commit_transaction()
    assert _mirror(*options).returncode == 0
    async with Admin(bootstrap_servers=filled.bootstrap) as admin:
        await admin.delete_topics("open")


@pytest.mark.full
def test_a_mirror_needs_two_different_clusters(source: SubprocessBroker, tmp_path: Path) -> None:
    same = _mirror("--from", source.bootstrap, "--to", source.bootstrap)
    assert same.returncode == 1
    assert "the same cluster" in same.stderr
    assert _mirror("--from", source.bootstrap).returncode == 2
