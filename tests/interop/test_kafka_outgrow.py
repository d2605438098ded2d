"""The steps of docs/use/outgrow.md, in both directions between our broker and three nodes of Apache
Kafka.

Programs of all kinds continue in the new cluster, and are then moved back.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from cli_runner import Commands
from connect_worker import CopiedFile, Worker
from foreign_topics import create_topic
from kafka_cluster import KafkaCluster
from moved_programs import Invoices, Orders, numbers_in
from odradek.broker import SubprocessBroker
from streams_applications import Application, Instance, all_run
from waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker, pytest.mark.timeout(900)]

DEADLINE_S = 120.0
ORDERS, LINES, WORDS = 120, 40, 60
#: The interval in ms at which Kafka Streams deletes records of repartition topics that it has read.
PURGE_MS = 3000
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
#: Six Java programs run at the same time, but none of them for long.
HEAP = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.heartbeat.interval.ms": "300",
}


@contextlib.contextmanager
def running_odradek() -> Iterator[str]:
    with SubprocessBroker(settings={**AUTHORIZER, **GROUPS}) as running:
        yield running.bootstrap


@contextlib.contextmanager
def three_nodes(folder: Path) -> Iterator[str]:
    with KafkaCluster(folder, 3, {**AUTHORIZER, **GROUPS}, HEAP) as cluster:
        yield cluster.bootstrap


class Programs:
    """The programs that move from cluster to cluster."""

    def __init__(self, address: str, folder: Path, protocol: str) -> None:
        self._folder = folder
        create_topic(address, Orders.topic, 3)
        create_topic(address, Invoices.topic, 3)
        create_topic(address, "connect-lines", 1)
        settings = {"group.protocol": protocol, "repartition.purge.interval.ms": str(PURGE_MS)}
        self._words = Application(address, "words", folder, settings=settings)
        self._orders, self._invoices, self._file = Orders(), Invoices(), CopiedFile(folder)
        self._stack = contextlib.ExitStack()
        self._instance: Instance | None = None
        self._worker: Worker | None = None
        self._address = address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, address: str) -> None:
        """Start all programs, the consumers first."""
        self._address = self._words.address = address
        first = self._worker is None
        self._instance = self._stack.enter_context(self._words.instance(1))
        worker = self._stack.enter_context(Worker(address, self._folder / "connect"))
        self._worker = worker
        worker.wait_until_up()
        if first:
            self._file.add_connectors(worker)
        else:
            wait_until(
                lambda: sorted(worker.connectors() or []) == ["file-sink", "file-source"],
                "Connect has its connectors",
                DEADLINE_S,
            )
        all_run([self._instance])

    def work(self) -> None:
        """Produce and consume. Some orders stay unread until after the move."""
        self._words.send(WORDS)
        self._file.write(LINES)
        self._orders.produce(self._address, ORDERS)
        self._orders.bill(self._address, left=ORDERS // 3)
        self._invoices.process(self._address, self._orders.sent - ORDERS // 4)

    def stop(self) -> None:
        """Stop all programs cleanly. Then write more records, which Streams and Connect can read
        only after the move."""
        assert self._instance is not None
        assert self._worker is not None
        self._instance.close()
        self._worker.close()
        self._words.send(WORDS)
        self._file.write(LINES)

    def delete_local_state(self) -> None:
        shutil.rmtree(self._words.folder(1) / "state")

    def check(self) -> None:
        """Check that each record was read once, and that each result is there once."""
        assert self._worker is not None
        self._orders.bill(self._address)
        self._invoices.process(self._address, self._orders.sent)
        self._orders.check()
        self._invoices.check(self._address)
        self._words.check()
        self._file.check(self._worker)


def odradek(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command of `odradek`, which must have this exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *words],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


class Follower:
    """A process `odradek mirror --follow`, which is killed at the end of the block."""

    def __init__(self, log: Path, *words: str) -> None:
        self._log, self._words = log, words
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "odradek", "mirror", *self._words, "--follow"],
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        print(self._log.read_text())

    def kill(self) -> None:
        """Send SIGKILL, even if the process has ended."""
        self._process.kill()
        self._process.wait()

    def interrupt(self) -> None:
        """Interrupt the process, as Ctrl+C does."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(DEADLINE_S) == 130


def move(
    source: str, target: str, programs: Programs, folder: Path, mode: str, *, killed: bool = False
) -> None:
    """Do the steps of docs/use/outgrow.md, from the plan to the switch. `killed`: the mirror is
    killed once and started again."""
    both = ("--from", source, "--to", target)
    also = ("--acls", "--quotas", *(["--skip-deleted"] if mode == "exactly-once" else []))
    looked = odradek("mirror", *both, *also, "--plan")
    assert looked.stdout.startswith(mode), looked.stdout
    with Follower(folder / f"follow-{mode}.log", *both, *also) as follower:
        programs.work()
        rehearse(target)
        if killed:
            follower.kill()
            programs.work()
            time.sleep(2 * PURGE_MS / 1000)
            follower.start()
        programs.stop()
        assert not Commands(source).rows("txn", "list", "--state", "Ongoing")
        follower.interrupt()
    drained = odradek("mirror", *both, *also)
    assert "left as it is" not in drained.stderr, drained.stderr
    assert "5 ACLs of topics, groups and transactional ids are at the target" in drained.stderr
    odradek("mirror", "check", *both)
    assert rights(target) == rights(source)
    if mode == "same-offsets":
        odradek("mirror", "promote", "--to", target, "--execute")
    else:
        programs.delete_local_state()


def rehearse(target: str) -> None:
    """Read in the new cluster with a new group."""
    found = numbers_in(target, Orders.topic, ORDERS)
    assert set(found.values()) == {1}


def allow_alice(address: str) -> None:
    """Set ACLs by name and by prefix, and quotas."""
    acl = Commands(address)
    named = ("--topic", Orders.topic, "--group", Orders.group)
    acl.run("acl", "add", "--allow-principal", "alice", "--consumer", *named)
    prefix = ("--topic", "inv", "--resource-pattern-type", "prefixed")
    acl.run(
        *("acl", "add", "--allow-principal", "alice", "--operation", "write"),
        "--transactional-id",
        "a",
    )
    acl.run("quota", "set", "--user", "alice", "producer_byte_rate=1e9")
    acl.run("quota", "set", "--client-defaults", "consumer_byte_rate=1e9")
    acl.run("acl", "add", "--deny-principal", "mallory", "--operation", "all", *prefix)


def rights(address: str) -> list[str]:
    """All ACLs and quotas, as sorted texts."""
    rows = Commands(address).rows("acl", "list") + Commands(address).rows("quota", "describe")
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def test_programs_move_from_odradek_to_three_nodes_and_back(tmp_path: Path) -> None:
    with (
        running_odradek() as old,
        three_nodes(tmp_path / "kafka") as new,
        running_odradek() as empty,
        Programs(old, tmp_path, "classic") as programs,
    ):
        allow_alice(old)
        programs.start(old)
        programs.work()
        move(old, new, programs, tmp_path, "exactly-once")
        programs.start(new)
        programs.check()
        programs.work()
        move(new, empty, programs, tmp_path, "same-offsets")
        programs.start(empty)
        programs.check()


def test_programs_move_from_three_nodes_to_odradek_and_back(tmp_path: Path) -> None:
    with (
        three_nodes(tmp_path / "kafka") as old,
        running_odradek() as new,
        Programs(old, tmp_path, "streams") as programs,
    ):
        allow_alice(old)
        programs.start(old)
        programs.work()
        move(old, new, programs, tmp_path, "same-offsets", killed=True)
        programs.start(new)
        programs.check()
        programs.work()
        delete_topics(old)
        move(new, old, programs, tmp_path, "exactly-once", killed=True)
        programs.start(old)
        programs.check()


def delete_topics(address: str) -> None:
    topics = [row["topic"] for row in Commands(address).rows("topic", "list")]
    odradek("topic", "delete", "--bootstrap", address, *topics)


def test_a_move_that_was_given_up_can_be_repeated(tmp_path: Path) -> None:
    """A consumer and a writer have used the new cluster; then all its topics are deleted."""
    orders, invoices = Orders(), Invoices()
    with running_odradek() as old, three_nodes(tmp_path / "kafka") as new:
        create_topic(old, orders.topic, 3)
        create_topic(old, invoices.topic, 3)
        orders.produce(old, ORDERS)
        orders.bill(old, left=ORDERS // 2)
        invoices.process(old, ORDERS // 2)
        both = ("mirror", "--from", old, "--to", new)
        odradek(*both)
        Invoices().process(new, ORDERS // 2)
        billed = orders.billed.copy()
        orders.bill(new, left=ORDERS // 4)
        orders.billed = billed
        orders.produce(old, ORDERS)
        orders.bill(old, left=ORDERS // 2)
        invoices.process(old, ORDERS)
        refused = odradek(*both, code=1)
        assert "invoices" in refused.stderr
        delete_topics(new)
        odradek("group", "delete", "--bootstrap", new, orders.group, invoices.group)
        drained = odradek(*both)
        assert "left as it is" not in drained.stderr
        odradek("mirror", "check", "--from", old, "--to", new)
        orders.produce(new, ORDERS)
        orders.bill(new)
        invoices.process(new, orders.sent)
        orders.check()
        invoices.check(new)
