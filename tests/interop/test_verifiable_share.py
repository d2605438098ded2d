"""VerifiableShareConsumer and VerifiableProducer of Apache Kafka's system tests, with our broker
and with Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest

import kafka_cluster
from foreign_topics import create_topic
from killable import Killable, killable
from odradek.sync import Admin
from waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker, pytest.mark.timeout(900)]

DEADLINE_S = 90
PARTITIONS = 2
SETTINGS = {
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "group.share.min.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
}
_NUMBERS = count(1)
Place = tuple[int, int]


class Tool:
    """A process of one of Kafka's verifiable programs, and the events that it has printed as lines
    of JSON."""

    def __init__(self, name: str, address: str, folder: Path, *options: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.errors = folder / f"{name}-{next(_NUMBERS)}.txt"
        main = f"org.apache.kafka.tools.{name}"
        with self.errors.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(kafka_cluster.java(), "-cp", kafka_cluster.class_path(), main),
                    *("--bootstrap-server", address, *options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL if the program still runs."""
        self.process.kill()
        self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)

    def end(self) -> None:
        """Wait until the program has ended without an error."""
        code = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert code == 0, self.errors.read_text()[-4000:]

    def close(self) -> None:
        """Send SIGTERM, so that the program closes its client and ends."""
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert self.events[-1]["name"] == "shutdown_complete"

    def of(self, name: str) -> list[dict[str, Any]]:
        """The events of this name."""
        return [event for event in list(self.events) if event["name"] == name]

    def consumed(self) -> Counter[Place]:
        """The number of deliveries of each record, by its partition and offset."""
        return _places(self.of("records_consumed"))

    def acknowledged(self, success: bool = True) -> Counter[Place]:
        """The number of acknowledgements of each record."""
        events = self.of("offsets_acknowledged")
        return _places([event for event in events if event["success"] is success])


def _places(events: list[dict[str, Any]]) -> Counter[Place]:
    return Counter(
        (each["partition"], offset)
        for event in events
        for each in event["partitions"]
        for offset in each["offsets"]
    )


@pytest.fixture(scope="module", params=["ours", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Killable]:
    with killable(request.param, tmp_path_factory.mktemp("verifiable"), SETTINGS) as running:
        yield running


def producer(broker: Killable, folder: Path, topic: str, records: int, per_second: int) -> Tool:
    return Tool(
        *("VerifiableProducer", broker.address, folder, "--topic", topic),
        *("--max-messages", str(records), "--throughput", str(per_second)),
    )


def member(broker: Killable, folder: Path, name: str, *options: str) -> Tool:
    """A member of the group with the topic's name."""
    return Tool(
        *("VerifiableShareConsumer", broker.address, folder, "--topic", name, "--group-id", name),
        *("--offset-reset-strategy", "earliest", *options),
    )


def produced(tool: Tool) -> set[Place]:
    """The records whose writes were acknowledged."""
    return {(each["partition"], each["offset"]) for each in tool.of("producer_send_success")}


def lag(broker: Killable, group: str) -> int:
    """The number of unfinished records of a group, in partitions with a known lag; 1 if no lag is
    known yet."""
    with Admin(bootstrap_servers=broker.address) as admin:
        offsets = admin.list_share_group_offsets(group).values()
    known = [each.lag for each in offsets if each is not None and each.lag is not None]
    return sum(known) if known else 1


@pytest.mark.parametrize("mode", ["auto", "async", "sync"])
def test_each_record_is_acknowledged_once(broker: Killable, tmp_path: Path, mode: str) -> None:
    name = f"verified-{mode}"
    create_topic(broker.address, name, PARTITIONS)
    with producer(broker, tmp_path, name, 1_000, -1) as writer:
        writer.end()
        records = produced(writer)
    assert len(records) == 1_000
    options = ("--acknowledgement-mode", mode, "--max-messages", "1000")
    with member(broker, tmp_path, name, *options) as reader:
        reader.end()
        names = [event["name"] for event in reader.events]
        assert names[:2] == ["startup_complete", "offset_reset_strategy_set"]
        assert names[-1] == "shutdown_complete"
        assert set(names[2:-1]) == {"records_consumed", "offsets_acknowledged"}
        assert reader.consumed() == reader.acknowledged() == Counter(records)
        assert not reader.acknowledged(success=False)
    wait_until(lambda: lag(broker, name) == 0, "all have ended", DEADLINE_S)


def test_killing_a_member_and_the_broker_loses_no_record(broker: Killable, tmp_path: Path) -> None:
    """Three members read while a producer writes; first a member is killed, then the broker."""
    name, records = "verified-kills", 2_000
    create_topic(broker.address, name, PARTITIONS)
    with ExitStack() as running:
        options = ("--acknowledgement-mode", "sync")
        members = [
            running.enter_context(member(broker, tmp_path, name, *options)) for _ in range(3)
        ]
        writer = running.enter_context(producer(broker, tmp_path, name, records, 60))
        for each in members:
            wait_until(lambda each=each: bool(each.acknowledged()), "all work", DEADLINE_S)  # type: ignore[misc]
        members[0].kill()
        before = sum(len(each.acknowledged()) for each in members[1:])
        wait_until(
            lambda: sum(len(each.acknowledged()) for each in members[1:]) > before + 100,
            "the others go on",
            DEADLINE_S,
        )
        broker.restart()
        writer.end()
        wait_until(lambda: lag(broker, name) == 0, "all have ended", DEADLINE_S)
        for each in members[1:]:
            each.close()
    accepted = sum((each.acknowledged() for each in members), Counter())
    assert set(accepted.values()) == {1}, "a record was acknowledged twice"
    # A kill may lose the response to an acknowledgement or to a record that the broker has stored.
    # The producer does not retry the record.
    doubtful = sum((each.consumed() for each in members), Counter()).keys() - accepted.keys()
    read, written = accepted.keys() | doubtful, produced(writer)
    assert written <= read
    assert len(read) <= len(written) + len(writer.of("producer_send_error")) <= records
    assert len(written) > records // 4
    assert len(doubtful) <= 500, "more than the killed ones can have had in flight"
