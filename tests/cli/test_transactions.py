"""`odradek txn` and `odradek produce --transactional-id` run as processes, against a broker in
another process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from cli_runner import PATIENCE_S, Shell
from odradek import Producer, sync
from odradek.broker import SubprocessBroker
from odradek_client.errors import Fatal
from waiting import wait_until


@pytest.mark.full
def test_all_lines_are_produced_in_one_transaction(shell: Shell, unique_topic: str) -> None:
    shell.run(
        "produce", unique_topic, "--transactional-id", unique_topic, stdin=b"one\ntwo\nthree\n"
    )
    committed = ["-X", "isolation.level=read_committed"]
    assert shell.run("consume", unique_topic, "-e", *committed) == b"one\ntwo\nthree\n"
    # The second line is no record, so the whole transaction is aborted.
    good_and_bad = b'{"payload": "four"}\nnonsense\n'
    shell.run(
        "produce", unique_topic, "--transactional-id", unique_topic, "--json",
        stdin=good_and_bad, code=1,
    )  # fmt: skip
    assert "record 2" in shell.stderr
    assert shell.run("consume", unique_topic, "-e", *committed) == b"one\ntwo\nthree\n"
    row = json.loads(shell.run("txn", "describe", unique_topic, "--json"))
    assert row["state"] in {"CompleteAbort", "PrepareAbort"} and row["age_ms"] in {None, 0}


async def test_transactions_are_listed_described_and_aborted(
    shell: Shell, unique_topic: str
) -> None:
    bootstrap = shell.environment["ODRADEK_BOOTSTRAP"]
    async with Producer(bootstrap_servers=bootstrap, transactional_id=unique_topic) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait(unique_topic, b"x", partition=0)
        lines = shell.run("txn", "list", "--state", "Ongoing").decode().splitlines()
        assert lines[0].split() == [
            "TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "EPOCH", "STATE", "AGE-MS",
            "CLIENT-GONE",
        ]  # fmt: skip
        (mine,) = [line.split() for line in lines if unique_topic in line]
        assert mine[4] == "Ongoing" and int(mine[5]) >= 0 and mine[6] == "-"
        rows = [json.loads(line) for line in shell.run("txn", "list", "--json").splitlines()]
        (row,) = [row for row in rows if row["transactional_id"] == unique_topic]
        assert row["partitions"] == [f"{unique_topic}-0"]
        text = shell.run("txn", "describe", unique_topic).decode()
        assert "state: Ongoing\n" in text and f"partitions: {unique_topic}-0\n" in text
        planned = shell.run("txn", "abort", unique_topic).decode().splitlines()
        assert planned[0].split() == [
            "TRANSACTIONAL-ID", "PRODUCER-ID", "EPOCH", "STATE", "AGE-MS", "TIMEOUT-MS",
            "CLIENT-GONE", "PARTITIONS",
        ]  # fmt: skip
        assert planned[1].split()[-3:] == ["60000", "-", f"{unique_topic}-0"]
        assert shell.stderr == "nothing was aborted: this is the plan; --execute carries it out\n"
        (row,) = map(json.loads, shell.run("txn", "abort", unique_topic, "--json").splitlines())
        assert (row["state"], row["partitions"]) == ("Ongoing", [f"{unique_topic}-0"])
        shell.run("txn", "abort", unique_topic, unique_topic, "nobody", "--execute", code=1)
        told = shell.stderr.splitlines()
        assert told[0] == f"aborted {unique_topic}" and "nobody" in told[1] and len(told) == 2
        for execute in ([], ["--execute"]):
            shell.run("txn", "abort", unique_topic, *execute, code=1)
            assert "no open transaction" in shell.stderr
        with pytest.raises(Fatal):
            await producer.commit_transaction()


async def test_a_hanging_transaction_is_planned_then_aborted(
    shell: Shell, unique_topic: str
) -> None:
    bootstrap = shell.environment["ODRADEK_BOOTSTRAP"]
    place = ["--topic", unique_topic, "--partition", "0", "--start-offset", "0"]
    async with Producer(bootstrap_servers=bootstrap, transactional_id=unique_topic) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait(unique_topic, b"x", partition=0)
        (row,) = map(json.loads, shell.run("txn", "abort", *place, "--json").splitlines())
        assert row["transactional_id"] == unique_topic, "a coordinator knows it"
        assert "nothing was aborted" in shell.stderr
        assert shell.run("txn", "abort", *place) != b""
        shell.run("txn", "abort", *place, "--execute")
        assert f"aborted the transaction of producer id {row['producer_id']}" in shell.stderr
        shell.run("txn", "abort", *place, code=1)
        assert "no open transaction" in shell.stderr
        await producer.abort_transaction()


async def test_the_timeout_of_a_transaction_of_two_phases_is_none(
    shell: Shell, unique_topic: str
) -> None:
    bootstrap = shell.environment["ODRADEK_BOOTSTRAP"]
    settings: Any = {"transactional_id": unique_topic, "transaction_two_phase_commit_enable": True}
    async with Producer(bootstrap_servers=bootstrap, **settings) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait(unique_topic, b"x", partition=0)
        assert "none (two-phase commit)" in shell.run("txn", "abort", unique_topic).decode()
        assert "another program may have been told to commit" in shell.stderr
        text = shell.run("txn", "describe", unique_topic).decode()
        shell.run("txn", "abort", unique_topic, "--execute")
    assert "timeout-ms: none, it waits for its client's decision (two-phase commit)\n" in text


@pytest.mark.own_broker  # Only Odradek tells whether a client is connected.
@pytest.mark.parametrize("killed", [True, False])
def test_an_open_transaction_says_whether_its_client_is_gone(
    shell: Shell, unique_topic: str, killed: bool
) -> None:
    words = ["produce", unique_topic, "--transactional-id", unique_topic]
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek", *words, "-X", f"client.id={unique_topic}"],
        stdin=subprocess.PIPE,
        env=shell.environment,
    )
    with process:
        assert process.stdin is not None

        def row() -> dict[str, Any]:
            found = map(json.loads, shell.run("txn", "list", "--json").splitlines())
            return next((each for each in found if each["transactional_id"] == unique_topic), {})

        try:
            process.stdin.write(b"one\n")
            process.stdin.flush()
            wait_until(lambda: row().get("state") == "Ongoing", "it is open", PATIENCE_S)
            assert row()["client_gone"] is None
            if killed:
                process.kill()
                wait_until(lambda: row()["client_gone"], "it is gone", PATIENCE_S)
                told = shell.run("explain", "txn", unique_topic).decode()
                assert "its client is gone: its last connection ended" in " ".join(told.split())
                described = shell.run("txn", "describe", unique_topic).decode()
                assert re.search(r"^client-gone: \d.* ago$", described, re.MULTILINE)
                assert re.search(r"\d \w+ ago ", shell.run("txn", "abort", unique_topic).decode())
        finally:
            process.kill()
    shell.run("txn", "abort", unique_topic, "--execute")
    assert row()["client_gone"] is None


def test_wrong_transaction_arguments_are_explained(shell: Shell) -> None:
    shell.run("txn", "describe", "nobody", code=1)
    assert "no such transactional id" in shell.stderr
    shell.run("txn", "abort", code=2)
    shell.run("txn", "abort", "x", "--topic", "t", code=2)
    assert "all three" in shell.stderr
    shell.run("txn", "list", "--state", "Nonsense", code=1)
    assert "Nonsense" in shell.stderr


@pytest.mark.full
def test_a_transaction_timeout_is_named_in_the_error() -> None:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
    with SubprocessBroker(settings=settings) as broker:
        shell = Shell(broker.bootstrap)
        process = subprocess.Popen(
            [sys.executable, "-m", "odradek", "produce", "t", "--transactional-id", "slow",
             "-X", "transaction.timeout.ms=200"],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=shell.environment,
        )  # fmt: skip
        with process, sync.Admin(bootstrap_servers=broker.bootstrap) as admin:
            assert process.stdin is not None and process.stderr is not None
            process.stdin.write(b"one\n")
            process.stdin.flush()

            def state() -> str | None:
                found = admin.describe_transactions("slow", raise_errors=False)
                return found["slow"].state if "slow" in found else None

            wait_until(lambda: state() == "CompleteAbort", "the broker aborts it", PATIENCE_S)
            process.stdin.close()
            said = process.stderr.read().decode()
            assert process.wait(PATIENCE_S) == 1
    assert "the transaction was open for" in said
    assert "-X transaction.timeout.ms=MS allows more" in said
    assert "consumers of committed records see none of its 1 record" in said
    assert "may be committed" not in said
