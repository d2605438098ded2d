"""`odradek group` and `odradek consume --group` as processes, with a broker in another process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import budget
from cli_runner import PATIENCE_S, Commands, Shell
from odradek import Consumer, NewTopic, sync
from odradek.broker import SubprocessBroker
from odradek_cli.groups.groups import app
from odradek_client.admin import Admin
from odradek_client.errors import UnsupportedByBroker


@pytest.fixture
def topic(shell: Shell, unique_topic: str) -> str:
    """A topic with 100 records in partition 0 and 10 in partition 1, all of which the group of the
    same name has read."""
    bootstrap = shell.environment["ODRADEK_BOOTSTRAP"]
    counts = {0: 100, 1: 10}
    with sync.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(NewTopic(unique_topic, len(counts)))
        with sync.Producer(bootstrap_servers=bootstrap) as producer:
            for partition, count in counts.items():
                for number in range(count):
                    producer.send(unique_topic, b"%d" % number, partition=partition)
        admin.alter_group_offsets(
            unique_topic, {(unique_topic, partition): count for partition, count in counts.items()}
        )
    return unique_topic


def table(out: bytes) -> list[list[str]]:
    return [line.split() for line in out.decode().splitlines()]


def positions(shell: Shell, group: str) -> dict[int, tuple[int, int]]:
    """Partition -> (current offset, lag)."""
    (row,) = rows(shell.run("group", "describe", group, "--json"))
    return {each["partition"]: (each["current_offset"], each["lag"]) for each in row["partitions"]}


def rows(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.full
def test_groups_are_listed_by_state_and_type(shell: Shell, topic: str) -> None:
    assert topic in shell.run("group", "list").decode().split()
    (head, *lines) = table(shell.run("group", "list", "-v", "--state", "empty"))
    assert head == ["GROUP", "TYPE", "PROTOCOL", "STATE", "COORDINATOR-ID"]
    assert [topic, "classic", "-", "Empty", "1"] in lines
    found = rows(shell.run("group", "list", "--type", "classic", "--json"))
    assert {"group": topic, "type": "classic", "protocol_type": "", "state": "Empty",
            "coordinator_id": 1} in found  # fmt: skip
    assert topic not in shell.run("group", "list", "--state", "Stable").decode().split()
    shell.run("group", "list", "--state", "Nonsense", code=1)
    assert "no group state 'Nonsense'" in shell.stderr


@pytest.mark.full
def test_group_describe_shows_offsets_and_lag_without_members(shell: Shell, topic: str) -> None:
    out = shell.run("group", "describe", topic)
    assert table(out) == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID",
         "HOST", "CLIENT-ID"],
        [topic, topic, "0", "100", "100", "0", "-", "-", "-"],
        [topic, topic, "1", "10", "10", "0", "-", "-", "-"],
    ]  # fmt: skip
    assert shell.stderr.startswith(f"group '{topic}' has no active members\n")
    assert shell.run("group", "describe", topic, "--members") == b""
    shell.run("group", "describe", topic, "nobody", code=1)
    assert "group 'nobody': no such group" in shell.stderr
    shell.run("group", "describe", topic, "--members", "--state", code=2)


@pytest.mark.own_broker
def test_group_describe_shows_the_verdict_of_the_broker(shell: Shell, topic: str) -> None:
    shell.run("group", "describe", topic)
    assert shell.stderr.endswith(f"group '{topic}' is OK: it keeps up in all 2 partitions\n")
    (row,) = rows(shell.run("group", "describe", topic, "--json"))
    assert row["verdict"] == {
        "status": "OK",
        "cause": None,
        "text": "OK: it keeps up in all 2 partitions",
    }


def test_group_describe_shows_no_verdict_of_other_brokers(
    shell: Shell, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka does not know the request for verdicts."""

    async def refuse(*_: Any, **__: Any) -> None:
        raise UnsupportedByBroker("this broker keeps no history for people")

    monkeypatch.setattr(Admin, "describe_history", refuse)
    done = CliRunner().invoke(
        app, ["describe", topic, "--json", "-b", shell.environment["ODRADEK_BOOTSTRAP"]]
    )
    assert (done.exit_code, rows(done.stdout_bytes)[0]["verdict"]) == (0, None)


@pytest.mark.full
async def test_group_describe_shows_members_and_assignments(shell: Shell, topic: str) -> None:
    bootstrap = shell.environment["ODRADEK_BOOTSTRAP"]
    async with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, client_id="app", group_instance_id="one"
    ) as consumer:
        while len(consumer.assignment()) < 2:
            await consumer.poll(50)
        lines = table(shell.run("group", "describe", topic, "-v"))
        assert lines[0][3] == "LEADER-EPOCH"
        assert [line[-2:] for line in lines[1:]] == [["/127.0.0.1", "app"]] * 2
        head, line = table(shell.run("group", "describe", topic, "--members", "--verbose"))
        assert head == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID",
                        "#PARTITIONS", "ASSIGNMENT"]  # fmt: skip
        assert line[2:] == ["one", "/127.0.0.1", "app", "2", f"{topic}(0,1)"]
        out = shell.run("group", "describe", topic, "--state").decode().splitlines()
        assert out[0].split() == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE",
                                  "#MEMBERS"]  # fmt: skip
        assert out[1].split() == [topic, bootstrap, "(1)", "range", "Stable", "1"]
        (row,) = rows(shell.run("group", "describe", topic, "--json"))
        assert row["members"][0]["topics"] == [topic]
        for command in (("reset-offsets", topic, "--all-topics", "--to-earliest", "--execute"),
                        ("delete", topic), ("delete-offsets", topic, "--all-topics")):  # fmt: skip
            assert shell.run("group", *command, code=1) == b""
        assert "subscribed to the topic" in shell.stderr
    assert positions(shell, topic) == {0: (100, 0), 1: (10, 0)}


@pytest.mark.full
def test_a_reset_is_a_plan_until_it_is_executed(shell: Shell, topic: str) -> None:
    reset = ("group", "reset-offsets", topic)
    out = shell.run(*reset, "--topic", f"{topic}:0", "--shift-by", "-30")
    assert table(out) == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"],
        [topic, topic, "0", "100", "70"],
    ]
    assert "nothing was changed" in shell.stderr
    assert positions(shell, topic) == {0: (100, 0), 1: (10, 0)}
    shell.run(*reset, "--topic", f"{topic}:0", "--shift-by", "-30", "--execute")
    assert shell.stderr == ""
    assert positions(shell, topic) == {0: (70, 30), 1: (10, 0)}
    assert len(shell.run("consume", topic, "-g", topic, "-e").splitlines()) == 30
    shell.run(*reset, "--all-topics", "--to-offset", "50", "--execute")
    assert f"group '{topic}', {topic}-1: 50 is above the last offset; 10 is taken" in shell.stderr
    assert positions(shell, topic) == {0: (50, 50), 1: (10, 0)}


@pytest.mark.full
def test_offsets_are_reset_by_time(shell: Shell, topic: str) -> None:
    reset = ("group", "reset-offsets", topic, "--all-topics", "--execute", "--json")
    found = rows(shell.run(*reset, "--to-datetime", "2020-01-01T00:00:00Z"))
    assert [each["new_offset"] for each in found] == [0, 0]
    assert "to the first record at 2020-01-01T00:00:00.000Z or later" in shell.stderr
    found = rows(shell.run(*reset, "--by-duration", "0s"))
    assert [each["new_offset"] for each in found] == [100, 10]
    assert "the end is taken" in shell.stderr


@pytest.mark.full
def test_exported_offsets_are_restored_from_a_file(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    plan = shell.run("group", "reset-offsets", topic, "--all-topics", "--to-current", "--export")
    assert plan.decode() == f"{topic},0,100\n{topic},1,10\n"
    shell.run("group", "reset-offsets", topic, "--all-topics", "--to-earliest", "--execute")
    assert positions(shell, topic) == {0: (0, 100), 1: (0, 10)}
    file = tmp_path / "plan.csv"
    file.write_bytes(plan)
    shell.run("group", "reset-offsets", topic, "--from-file", str(file), "--execute")
    assert positions(shell, topic) == {0: (100, 0), 1: (10, 0)}
    shell.run("group", "reset-offsets", topic, "--from-file", "-", "--execute", stdin=plan)
    shell.run("group", "reset-offsets", topic, "--from-file", str(tmp_path / "none"), code=1)
    shell.run("group", "reset-offsets", topic, "--from-file", "-", stdin=b"nonsense", code=2)
    assert "line 1" in shell.stderr


def test_reset_offsets_creates_a_group_and_delete_removes_it(shell: Shell, topic: str) -> None:
    group = f"{topic}-new"
    reset = ("group", "reset-offsets", group, "--topic", topic)
    shell.run(*reset, "--shift-by", "1", code=1)
    assert "no position there to shift from" in shell.stderr
    shell.run(*reset, "--to-latest", "--execute")
    assert "does not exist so far" in shell.stderr
    assert positions(shell, group) == {0: (100, 0), 1: (10, 0)}
    shell.run("group", "delete-offsets", group, "--topic", f"{topic}:1")
    assert positions(shell, group) == {0: (100, 0)}
    shell.run("group", "delete", group)
    assert shell.stderr == f"deleted {group}\n"
    shell.run("group", "delete", group, code=1)
    shell.run("group", "delete", group, "--if-exists")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to-latest",), "say what to reset"),
        (("--topic", "t", "--all-topics", "--to-latest"), "say what to reset"),
        (("--topic", "t"), "say where to, once"),
        (("--topic", "t", "--to-latest", "--to-earliest"), "say where to, once"),
        (("--topic", "t:x", "--to-latest"), "write TOPIC or TOPIC:0,1,2"),
        (("--topic", "t", "--by-duration", "soon"), "no duration"),
        (("--topic", "t", "--to-datetime", "soon"), "no time"),
        (("--topic", "t", "--to-latest", "--json", "--export"), "choose one"),
    ],
)
def test_wrong_reset_options_are_refused_before_any_request(
    arguments: tuple[str, ...], said: str
) -> None:
    done = CliRunner().invoke(app, ["reset-offsets", "g", *arguments])
    assert (done.exit_code, said in done.stderr) == (2, True)


def test_offsets_of_a_group_that_does_not_exist_are_not_deleted(shell: Shell) -> None:
    shell.run("group", "delete-offsets", "no-such-group", "--all-topics", code=1)
    assert "no-such-group" in shell.stderr and "GROUP_ID_NOT_FOUND" in shell.stderr


def test_resets_and_deletions_without_offsets_are_errors(
    odradek_broker_session: SubprocessBroker, topic: str, tmp_path: Path
) -> None:
    odradek = Commands(odradek_broker_session.bootstrap)
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    other = tmp_path / "other.csv"
    other.write_text(f"{topic},{topic},0,1\n")
    odradek.run("group", "reset-offsets", topic, "--from-file", str(empty), code=1)
    assert odradek.stderr == f"odradek: {empty} has no offsets of group {topic!r}\n"
    reset = ("group", "reset-offsets", topic, "second", "--from-file", str(other))
    odradek.run(*reset, code=1)
    assert odradek.stderr == f"odradek: {other} has no offsets of group 'second'\n"
    odradek.run("group", "reset-offsets", "nobody", "--all-topics", "--to-latest", code=1)
    assert "there is nothing to reset" in odradek.stderr

    delete = ("group", "delete-offsets", topic, "-t")
    odradek.run(*delete, "nowhere", code=1)
    assert odradek.stderr == f"odradek: group {topic!r} has no position in nowhere\n"
    odradek.run(*delete, f"{topic}:0,7", code=1)
    assert odradek.stderr.splitlines() == [
        f"deleted the offset of {topic} for {topic}-0",
        f"odradek: group {topic!r} has no position in {topic}-7",
    ]
    odradek.run("group", "delete-offsets", topic, "--all-topics")
    assert odradek.stderr == f"deleted the offset of {topic} for {topic}-1\n"


@pytest.mark.full
def test_missing_topics_and_partitions_are_errors(shell: Shell, topic: str) -> None:
    reset = ("group", "reset-offsets", topic, "--to-latest", "--topic")
    assert shell.run(*reset, f"{topic}-nowhere", code=1) == b""
    assert "does not have this topic" in shell.stderr
    shell.run(*reset, f"{topic}:7", code=1)
    assert f"topic '{topic}' has no partition 7; it has 2" in shell.stderr


@pytest.mark.parametrize(
    ("sent", "code"),
    budget.of_which([(signal.SIGTERM, 143), (signal.SIGINT, 130)], [(signal.SIGTERM, 143)]),
)
def test_consume_commits_and_leaves_on_a_signal(
    shell: Shell, topic: str, sent: signal.Signals, code: int
) -> None:
    group = f"{topic}-{code}"
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek", "consume", topic, "--group", group],
        stdout=subprocess.PIPE,
        env=shell.environment,
    )
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(110)]
    process.send_signal(sent)
    assert process.wait(PATIENCE_S) == code
    process.stdout.close()
    assert len(set(printed)) == 100
    # A member that does not leave stays in the group until its session times out.
    (row,) = rows(shell.run("group", "describe", group, "--json"))
    assert (row["state"], row["members"]) == ("Empty", [])
    assert positions(shell, group) == {0: (100, 0), 1: (10, 0)}


@pytest.mark.full
def test_consume_on_a_full_disk_ends_and_tells_of_the_failed_commit(
    tmp_path: Path, unique_topic: str
) -> None:
    with SubprocessBroker(data_dir=tmp_path / "data", testing=True) as broker:
        with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send_and_wait(unique_topic, b"one")
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "odradek", "consume", unique_topic, "--group", "g"),
                *("-X", "auto_commit_interval_ms=600000"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=Shell(broker.bootstrap).environment,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        broker.faults.full_disk()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
        assert b"automatic commit at the end" in told
        assert b"within 10000 ms" in told


@pytest.mark.full
def test_k40_records_that_were_not_printed_are_not_committed(shell: Shell, topic: str) -> None:
    """A poll returns more records than are printed: records after the end offset, or above the
    count."""
    between_ms = int(time.time() * 1000) + 1
    shell.run("produce", topic, "-p", "1", stdin=b"later\n" * 5)
    shell.run("group", "reset-offsets", topic, "--all-topics", "--to-earliest", "--execute")
    shell.run("consume", topic, "-g", topic, "-c", "30")
    assert sum(offset for offset, _ in positions(shell, topic).values()) == 30
    read = shell.run("consume", topic, "-g", topic, "-o", f"e@{between_ms}")
    assert len(read.splitlines()) == 80 and b"later" not in read
    assert positions(shell, topic) == {0: (100, 0), 1: (10, 5)}
    assert shell.run("consume", topic, "-g", topic, "-e") == b"later\n" * 5
