"""Kill -9 while logs are compacted: the newest acknowledged record of each key is kept, and no
record is duplicated.

Processes are real. The page cache survives a killed process, so both values of `log.durability`
are tested. tests/broker/storage/cleaner and the simulator test the loss of unsynced data.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import budget
from broker_process import BrokerProcess
from cli_runner import Commands
from compacted_writers import PARTITIONS, TOPIC, CompactedWorld
from waiting import DEADLINE_S, wait_until

SETTINGS = [
    "auto.create.topics.enable=false",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "log.cleaner.backoff.ms=50",
    "log.cleaner.delete.retention.ms=1000",
    "log.segment.delete.delay.ms=500",
    # The limit makes cleanings slow, so that most kills happen during a cleaning.
    "log.cleaner.io.max.bytes.per.second=40000000",
]
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
}
CLEANED = "compacted a log"
#: Moments of a kill: any, or while a file with this suffix exists.
MOMENTS = ("any", ".cleaned", ".cleaned", ".swap", ".compacted.deleted")
_LIFE_S = 5.0


@pytest.fixture(params=budget.of_which(["fsync", "page-cache"], ["page-cache"]))
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path, [*SETTINGS, f"log.durability={request.param}"])
    yield made
    made.clean_up()


class KillLoop:
    """A broker that is killed repeatedly, and the findings after each kill."""

    def __init__(
        self,
        broker: BrokerProcess,
        seed: int,
        moments: Sequence[str] = MOMENTS,
        life_s: float = _LIFE_S,
    ) -> None:
        self.broker = broker
        self.life_s = life_s
        self.moments = moments
        self.random = random.Random(seed)
        self.found_at_kill: Counter[str] = Counter()
        self.ready_s: list[float] = []
        self.cleanings = 0
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        topics = [NewTopic(TOPIC, PARTITIONS, 1, config=CONFIG), NewTopic("source", 1, 1)]
        for future in admin.create_topics(topics, operation_timeout=10).values():
            future.result(DEADLINE_S)
        self.world = CompactedWorld(broker.address, seed)

    def run(self, kills: int) -> None:
        for number in range(kills):
            self.write_until_the_moment()
            self.kill()
            assert self.world.problems() == [], f"after kill {number + 1}"
            # At this time no client writes, but the cleaner continues.
            self.verify("--running")
        wait_until(lambda: CLEANED in self.broker.log, "a cleaning comes to its end")
        assert self.world.problems() == [], "after a whole cleaning"
        self.world.close()
        self.broker.stop()
        self.verify()

    def write_until_the_moment(self) -> None:
        """Write until some writes are acknowledged and the chosen moment has come, or the time
        limit is reached."""
        moment = self.random.choice(self.moments)
        enough = self.world.acknowledged + self.random.choice((1, 100, 300))
        end_s = time.monotonic() + self.life_s * (self.random.random() if moment == "any" else 1)

        def come() -> bool:
            if self.world.acknowledged < enough:
                return False
            return time.monotonic() > end_s or moment in self.endings()

        self.world.write_until(come, "the moment has come")
        time.sleep(self.random.choice((0, 0, 0.01, 0.1)))

    def endings(self) -> set[str]:
        """The suffixes of the cleaner's files that exist now."""
        names = [path.name for path in self.broker.data_dir.glob("*/0*")]
        wanted = (".cleaned", ".swap", ".compacted.deleted")
        return {ending for ending in wanted if any(name.endswith(ending) for name in names)}

    def kill(self) -> None:
        self.broker.kill()
        self.found_at_kill.update(self.endings() or {"nothing"})
        self.cleanings += self.broker.log.count(CLEANED)
        if self.random.random() < 0.3:
            self.verify(sound=False)
        began_s = time.monotonic()
        self.broker.start()
        self.ready_s.append(time.monotonic() - began_s)

    def verify(self, *options: str, sound: bool = True) -> None:
        """Run `odradek log verify`. `sound=False`: after a kill the next start may have something
        to repair."""
        commands = Commands("127.0.0.1:1")
        directory = str(self.broker.data_dir)
        commands.run("log", "verify", directory, *options, code=0 if sound else (0, 1))

    def summary(self) -> str:
        ready = sorted(self.ready_s)
        return (
            f"{len(ready)} kills, {self.world.acknowledged} writes acknowledged, {self.cleanings} cleanings;"
            f" found at a kill: {dict(self.found_at_kill)}; ready after"
            f" {statistics.median(ready):.2f} s, at most {ready[-1]:.2f} s"
        )


@pytest.mark.full
@pytest.mark.timeout(120)
def test_l27_a_broker_killed_during_compaction_keeps_the_newest_of_each_key(
    broker: BrokerProcess,
) -> None:
    # On a busy machine the first cleaning may begin late.
    loop = KillLoop(broker, seed=1, moments=[".cleaned"], life_s=60)
    loop.run(kills=1)
    assert loop.found_at_kill[".cleaned"], loop.summary()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_l27_a_broker_killed_200_times_keeps_the_newest_of_each_key(
    broker: BrokerProcess,
) -> None:
    loop = KillLoop(broker, seed=2)
    try:
        loop.run(kills=200)
    finally:
        print(loop.summary())
    assert loop.found_at_kill[".cleaned"] > 20 and loop.found_at_kill[".swap"]
