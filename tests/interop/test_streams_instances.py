"""Several instances of a Kafka Streams application with the group protocol "streams": a word count
and two joins, exactly once, with our broker and with Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from killable import Killable, killable
from streams_applications import DEADLINE_S, Application, all_run
from waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker, pytest.mark.timeout(900)]

SETTINGS = {
    "group.streams.min.session.timeout.ms": "3000",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.heartbeat.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module", params=["ours", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Killable]:
    with killable(request.param, tmp_path_factory.mktemp("streams"), SETTINGS) as running:
        yield running


def test_two_streams_instances_and_a_restart_count_exactly_once(
    broker: Killable, tmp_path: Path
) -> None:
    application = Application(broker.address, "restarted", tmp_path)
    for _ in range(2):
        application.send(300)
        with application.instance(1) as first, application.instance(2) as second:
            all_run([first, second])
            application.send(300)
            application.check()
            second.close()
            first.close()
    assert application.describe("--state")[-1][-2:] == ["Empty", "0"]


def test_three_streams_instances_with_standbys_survive_kills(
    broker: Killable, tmp_path: Path
) -> None:
    """First an instance is killed and started again, then the broker."""
    application = Application(broker.address, "killed", tmp_path, standbys=1)
    application.send(300)
    with ExitStack() as running:
        instances = [running.enter_context(application.instance(number)) for number in range(3)]
        all_run(instances)
        application.check()
        wait_until(
            lambda: application.describe("--state")[-1][-2:] == ["Stable", "3"],
            "the group is stable",
            DEADLINE_S,
        )
        members = [" ".join(line) for line in application.describe("--members")]
        members = [each for each in members if each.startswith(application.name)]
        assert len(members) == 3
        assert all("ACTIVE:" in each for each in members), members
        assert sum("STANDBY:" in each for each in members) >= 2, members
        application.send(300)
        instances[0].kill()
        application.send(300)
        application.check()
        instances[0] = running.enter_context(application.instance(0))
        all_run(instances)
        application.send(300)
        broker.restart()
        application.send(300)
        application.check()
        for each in instances:
            each.close()
