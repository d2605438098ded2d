"""`odradek explain` as a process, with a broker in another process and clients of other
projects."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from typer.testing import CliRunner

from broker_process import BrokerProcess
from cli_runner import Shell
from odradek_cli.cluster import explain
from odradek_client.network.broker_connection import BrokerConnection
from odradek_protocol.keys import ApiKey
from waiting import wait_until

DEADLINE_S = 20.0


def rows(shell: Shell, *asked: str) -> list[dict[str, Any]]:
    """The rows of the output with --json."""
    return [json.loads(line) for line in shell.run("explain", *asked, "--json").splitlines()]


def sentences(shell: Shell, *asked: str) -> list[str]:
    """The sentences about events, without the times. Checks that the times do not decrease."""
    events = [row for row in rows(shell, *asked) if row["type"] == "event"]
    times = [event["time_ms"] for event in events]
    assert times == sorted(times)
    return [event["text"] for event in events]


def joined(output: bytes) -> str:
    """The output for people, with wrapped lines joined; no line is longer than 100 characters."""
    lines = output.decode().splitlines()
    assert max(map(len, lines)) <= 100
    return re.sub(r"\n +", " ", "\n".join(lines))


def transactional(shell: Shell, name: str, client: str) -> confluent_kafka.Producer:
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": shell.environment["ODRADEK_BOOTSTRAP"],
            "transactional.id": name,
            "client.id": client,
            "log_level": 0,
        }
    )


@pytest.mark.own_broker
def test_explain_names_the_producer_that_fenced_another(shell: Shell, unique_topic: str) -> None:
    shell.run("topic", "create", unique_topic)
    zombie = transactional(shell, unique_topic, "zombie")
    zombie.init_transactions(DEADLINE_S)
    zombie.begin_transaction()
    zombie.produce(unique_topic, b"one")
    zombie.flush(DEADLINE_S)
    successor = transactional(shell, unique_topic, "successor")
    successor.init_transactions(DEADLINE_S)
    with pytest.raises(confluent_kafka.KafkaException):
        zombie.commit_transaction(DEADLINE_S)
    successor.begin_transaction()
    successor.produce(unique_topic, b"two")
    successor.commit_transaction(DEADLINE_S)

    output = joined(shell.run("explain", "txn", unique_topic))
    assert output.startswith(f"transactional id {unique_topic}\n(the broker remembers what")
    told = sentences(shell, "txn", unique_topic)
    assert all(text in output for text in told)
    assert told[0].startswith("InitProducerId from client zombie at 127.0.0.1: (unknown) -> Empty;")
    assert told[1] == (
        "AddPartitionsToTxn from client zombie at 127.0.0.1: Empty -> Ongoing; added"
        f" {unique_topic}-0"
    )
    fenced = next(text for text in told if "fences client zombie" in text)
    assert fenced.startswith("InitProducerId from client successor at 127.0.0.1: Ongoing ->")
    assert f"ABORT markers with epoch 1 go to {unique_topic}-0" in told
    assert any("client zombie" in text and "expected epoch 2, got 0" in text for text in told)
    assert any(text.startswith("EndTxn(commit) from client successor") for text in told)
    assert re.search(r"\nnow .*(Prepare|Complete)Commit, producer id \d+, epoch 2;", output)

    found = rows(shell, "txn", unique_topic)
    assert found[0]["type"] == "history" and found[0]["subject"] == unique_topic
    assert found[-1]["type"] == "now" and found[-1]["details"]["epoch"] == "2"
    events = [row for row in found if row["type"] == "event"]
    assert events[0]["name"] == "transaction_step" and events[0]["times"] == 1
    assert len(sentences(shell, "txn", unique_topic, "--limit", "2")) == 2

    # A producer can be named by its transactional id instead of its producer id.
    by_name = joined(shell.run("explain", "producer", unique_topic))
    number = events[0]["details"]["producer_id"]
    assert by_name.startswith(f"producer id {number}, of transactional id {unique_topic}\n")
    told = sentences(shell, "producer", unique_topic)
    assert told == sentences(shell, "producer", number)
    assert f" {unique_topic}-0: epoch 2, last batch:" in by_name
    assert any("fences client zombie" in text for text in told)


@pytest.mark.full
@pytest.mark.own_broker
def test_unknown_names_are_an_error(shell: Shell) -> None:
    shell.run("explain", "txn", "nobody", code=1)
    assert shell.stderr == "odradek: nothing is known of transactional id 'nobody'\n"
    shell.run("explain", "group", "nobody", code=1)
    assert "nothing is known of group 'nobody'" in shell.stderr
    shell.run("explain", "producer", "123456789012", code=1)
    assert "nothing is known of producer id 123456789012" in shell.stderr
    shell.run("explain", "producer", "nobody", code=1)
    assert "no such transactional id" in shell.stderr


# --- A group whose member is killed ---

_MEMBER = """
import sys
import confluent_kafka
consumer = confluent_kafka.Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "client.id": "victim",
    "session.timeout.ms": 2000, "heartbeat.interval.ms": 200,
})
consumer.subscribe([sys.argv[3]])
while True:
    consumer.poll(0.1)
    if consumer.assignment():
        print("assigned", flush=True)
        break
while True:
    consumer.poll(0.1)
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    started = BrokerProcess(
        tmp_path,
        ["group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000"],
    )
    started.start()
    yield started
    started.stop()


@pytest.mark.full
def test_g70_explain_group_tells_of_a_killed_member_and_a_restart(broker: BrokerProcess) -> None:
    shell = Shell(broker.address)
    shell.run("topic", "create", "t", "--partitions", "2")
    victim = subprocess.Popen(
        [sys.executable, "-c", _MEMBER, broker.address, "readers", "t"], stdout=subprocess.PIPE
    )
    survivor: Any = None
    try:
        assert victim.stdout is not None and victim.stdout.readline() == b"assigned\n"
        survivor = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": "readers",
                "client.id": "survivor",
                "session.timeout.ms": 2000,
                "heartbeat.interval.ms": 200,
                "log_level": 0,
            }
        )
        survivor.subscribe(["t"])

        def has(count: int) -> bool:
            survivor.poll(0.05)
            return len(survivor.assignment()) == count

        wait_until(lambda: has(1), "both have a partition")
        victim.kill()
        wait_until(lambda: has(2), "the survivor has all")
        output = joined(shell.run("explain", "group", "readers"))
        told = sentences(shell, "group", "readers")
    finally:
        victim.kill()
        victim.wait(DEADLINE_S)
        if survivor is not None:
            survivor.close()
    assert any(re.match(r"victim-\S+ of client victim at 127.0.0.1 joined;", text) for text in told)
    second = next(text for text in told if re.search(r"because survivor-\S+ is new; wait", text))
    assert re.search(r"waiting for victim-\S+, for at most", second)
    removed = next(text for text in told if "was removed" in text)
    assert removed.startswith("victim-") and "nothing was heard of it for 2.0 s" in removed
    after = told[told.index(removed) + 1 :]
    assert re.match(r"rebalance: Stable -> PreparingRebalance, because victim-\S+ timed", after[0])
    assert any(re.match(r"generation 3 after .*members survivor-\S+$", text) for text in after)
    assert after[-1].endswith("CompletingRebalance -> Stable, generation 3")
    assert re.search(r"\nnow .*Stable for .*, generation 3, .*members: 1;", output)
    assert re.search(r"\nvictim += victim-[0-9a-f-]{36} at 127.0.0.1\n", output)
    assert re.search(r" victim was removed: nothing was heard of it for 2.0 s", output)
    assert re.search(r" because survivor is new; waiting for victim, for at most", output)
    # The full ids are only in the legend.
    assert len(re.findall(r"[0-9a-f]{12}\b", output)) == 2

    broker.stop()
    broker.start()
    shell = Shell(broker.address)
    output = joined(shell.run("explain", "group", "readers"))
    assert sentences(shell, "group", "readers") == []
    assert "earlier events are not known)\n(nothing has happened to it since then)" in output
    assert re.search(r"\nnow +Empty", output)  # the survivor has left the group


@pytest.mark.full
def test_kip848_explain_group_tells_of_assignments_by_the_broker(broker: BrokerProcess) -> None:
    shell = Shell(broker.address)
    shell.run("topic", "create", "t", "--partitions", "2")
    consumers: list[Any] = []

    def join(client: str) -> None:
        settings: Any = {
            "bootstrap.servers": broker.address,
            "group.id": "readers",
            "client.id": client,
            "group.protocol": "consumer",
            "log_level": 0,
        }
        consumers.append(confluent_kafka.Consumer(settings))
        consumers[-1].subscribe(["t"])

    def have(*counts: int) -> bool:
        for consumer in consumers:
            consumer.poll(0.05)
        return tuple(len(consumer.assignment()) for consumer in consumers) == counts

    try:
        join("one")
        wait_until(lambda: have(2), "one has all")
        join("two")
        wait_until(lambda: have(1, 1), "each has a partition")
        consumers.pop().close()
        wait_until(lambda: have(2), "one has all again")
        output = joined(shell.run("explain", "group", "readers"))
        told = sentences(shell, "group", "readers")
    finally:
        for consumer in consumers:
            consumer.close()
    assert re.match(r"\S+ of client one at 127.0.0.1 joined; it is subscribed to t$", told[0])
    expected = [
        r"assignment of epoch \d+: \S+ \(2 partitions\)",
        r"\S+ is at epoch \d+, with all that it is to have; it has t-0, t-1$",
        r"\S+ of client two at 127.0.0.1 joined",
        r"\S+ is at epoch \d+, to give partitions back first; it has t-\d, and gives 1 back$",
        (
            r"\S+ of client two at 127.0.0.1 left \(closed, or did not poll within max.poll.interval.ms"
            r" = 5.0 min: its protocol does not say which\)$"
        ),
        r"\S+ is at epoch \d+, with all that it is to have; it has t-0, t-1$",
    ]
    rest = iter(told)
    for pattern in expected:
        assert any(re.match(pattern, text) for text in rest), (pattern, told)
    assert re.search(r"\nnow .* \w+, group epoch \d+, assignment of epoch \d+; members: 1;", output)
    assert re.search(r" member one, session timeout .*; it has t-0, t-1$", output)
    assert re.search(r"\none += \S{22}, client one at 127.0.0.1\n", output)


# --- A broker that keeps no history ---


@pytest.mark.parametrize(
    ("kind", "instead"),
    [("txn", "txn describe"), ("producer", "txn list"), ("group", "group desc")],
)
def test_a_broker_without_history_is_an_error_with_an_alternative(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, kind: str, instead: str
) -> None:
    """The broker advertises no DescribeHistory, as Apache Kafka does not."""
    handshake = BrokerConnection._handshake

    async def without_history(link: BrokerConnection) -> Any:
        versions = await handshake(link)
        return {key: served for key, served in versions.items() if key != ApiKey.DESCRIBE_HISTORY}

    monkeypatch.setattr(BrokerConnection, "_handshake", without_history)
    bootstrap = shell.environment["ODRADEK_BOOTSTRAP"]
    done = CliRunner().invoke(explain.app, [kind, "7", "--bootstrap", bootstrap])
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.startswith("odradek: this broker keeps no history")
    assert "Apache Kafka has nothing like it" in done.stderr
    # The error must not mention reasons that do not apply.
    assert "too old" not in done.stderr
    assert instead in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("limit", ["-1", "x"])
def test_an_invalid_limit_is_refused_before_any_request(limit: str) -> None:
    result = CliRunner().invoke(explain.app, ["txn", "x", "--limit", limit])
    assert result.exit_code == 2
    assert "--limit" in result.output


# --- Following ---


@pytest.mark.full
def test_follow_waits_for_the_first_event_and_survives_a_restart(
    broker: BrokerProcess,
) -> None:
    shell = Shell(broker.address)
    shell.run("topic", "create", "t")
    follower = subprocess.Popen(
        [sys.executable, "-m", "odradek", "explain", "txn", "tx", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=shell.environment,
        text=True,
    )
    assert follower.stdout is not None and follower.stderr is not None

    def until_line(part: str) -> None:
        assert follower.stdout is not None
        while part not in (line := follower.stdout.readline()):
            assert line, f"the output ended before {part!r}"

    try:
        assert "looking again until Ctrl+C" in follower.stderr.readline()
        shell.run("produce", "t", "--transactional-id", "tx", stdin=b"one\n")
        until_line("CompleteCommit")
        broker.stop()
        broker.start()
        until_line("earlier events are not known")
        shell.run("produce", "t", "--transactional-id", "tx", stdin=b"two\n")
        until_line("InitProducerId")
        follower.send_signal(signal.SIGINT)
        assert follower.wait(DEADLINE_S) == 130
    finally:
        follower.kill()
        follower.communicate()


@pytest.mark.full
@pytest.mark.own_broker
def test_the_transaction_that_delays_read_committed_is_named(
    shell: Shell, unique_topic: str
) -> None:
    shell.run("topic", "create", unique_topic)
    open_one = transactional(shell, unique_topic, "slow")
    open_one.init_transactions(DEADLINE_S)
    open_one.begin_transaction()
    open_one.produce(unique_topic, b"one")
    open_one.flush(DEADLINE_S)
    output = joined(shell.run("explain", "partition", f"{unique_topic}-0"))
    assert f" of transactional id {unique_topic} (producer id " in output
    command = f"txn abort {unique_topic} --execute"
    assert f"end it with `odradek {command}`" in output
    shell.run(*command.split())
    output = joined(shell.run("explain", "partition", f"{unique_topic}-0"))
    assert "consumers with read_committed get everything, up to offset 2" in output


@pytest.mark.full
@pytest.mark.own_broker
def test_explain_mirror_names_the_source_of_a_topic(shell: Shell, unique_topic: str) -> None:
    source = f"mirror.source=kafka:{'A' * 22}"
    shell.run("topic", "create", unique_topic, "--config", source)
    output = joined(shell.run("explain", "mirror", unique_topic))
    assert f"{unique_topic} is a mirror of kafka:{'A' * 22}, with 1 partitions" in output
    assert f"{unique_topic}-0: offsets 0 to 0" in output
    assert f"{unique_topic} is a mirror of" in joined(shell.run("explain", "mirror"))
    told = json.dumps(rows(shell, "mirror", unique_topic))
    assert f"kafka:{'A' * 22}" in told and "NOW_MIRRORED" in told.upper()
