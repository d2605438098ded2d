"""Plays random scenarios with Kafka and with our broker, and finds the shortest steps that show a
difference."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.oracle.differences import unexplained
from tests.oracle.judge import OUR_SETTINGS
from tests.oracle.play import Answers, play_once, warm_up
from tests.oracle.random_scenarios.families import random_scenario
from tests.oracle.script import Ask, Receive, Scenario, Send, Step

from broker_process import BrokerProcess
from kafka_cluster import KafkaCluster

Address = tuple[str, int]
#: Settings of both brokers that make all groups compute assignments without delay. Our consumer
#: groups do so with any settings.
_AT_ONCE = {
    f"group.{kind}.assignment.interval.ms": "0" for kind in ("consumer", "share", "streams")
} | {"group.streams.initial.rebalance.delay.ms": "0"}
#: The number of scenarios that are played at the same time.
_PARALLEL = 6
#: Kafka verifies the transactions of several producers with one request. If the requests of these
#: producers have different versions, Kafka may return either of these two codes for a producer.
_SAME = {"TRANSACTION_ABORTABLE": "INVALID_TXN_STATE"}


@dataclass(frozen=True)
class Found:
    """A scenario with different answers. `steps`: the shortened scenario; `lines`: its
    differences."""

    name: str
    steps: Sequence[Step]
    lines: Sequence[str]

    def __str__(self) -> str:
        asked = [line for step in self.steps for line in _shown(step)]
        return "\n".join([self.name, *asked, *(f"  {line}" for line in self.lines)])


def _shown(step: Step) -> Iterator[str]:
    match step:
        case Ask(quiet=False):
            yield f"  {step.api} v{step.version} {dict(step.body)}"
        case Send(ask):
            yield f"  {ask.api} v{ask.version} {dict(ask.body)}, sent on connection {ask.on}"
        case Receive(on):
            yield f"  the answer on connection {on}"


@contextmanager
def both_brokers(folder: Path) -> Iterator[tuple[Address, Address]]:
    """Start an Apache Kafka and our broker for the block. Yields their addresses."""
    ours = [f"{key}={value}" for key, value in _AT_ONCE.items()]
    (folder / "ours").mkdir()
    broker = BrokerProcess(folder / "ours", [*OUR_SETTINGS, *ours])
    with KafkaCluster(folder / "kafka", settings=_AT_ONCE) as cluster:
        broker.start()
        try:
            yield ("127.0.0.1", cluster.nodes[0].port), ("127.0.0.1", broker.port)
        finally:
            broker.kill()


async def compare_seeds(
    kafka: Address, ours: Address, family: str, seeds: Sequence[int], salt: str
) -> list[Found]:
    """The scenarios of these seeds whose answers differ, without the steps that the difference does
    not need."""
    await asyncio.gather(warm_up(*kafka, salt), warm_up(*ours, salt))
    names = (f"{salt}{number}" for number in itertools.count())
    turn = asyncio.Semaphore(_PARALLEL)

    async def lines(scenario: Scenario) -> list[str]:
        name = next(names)
        theirs, own = await asyncio.gather(
            play_once(*kafka, scenario, name), play_once(*ours, scenario, name)
        )
        return _differences(theirs, own)

    async def one(seed: int) -> Found | None:
        scenario = random_scenario(family, seed)
        async with turn:
            found = await lines(scenario)
            if not found:
                return None
            steps = list(scenario.steps)
            for at in reversed(range(len(steps))):
                if _may_be_left_out(steps[at]):
                    shorter = steps[:at] + steps[at + 1 :]
                    of_shorter = await lines(replace(scenario, steps=shorter))
                    if of_shorter:
                        steps, found = shorter, of_shorter
            return Found(scenario.name, steps, found)

    results = await asyncio.gather(*(one(seed) for seed in seeds))
    return [found for found in results if found is not None]


def _may_be_left_out(step: Step) -> bool:
    """True unless the step is a preparing step or a wait, on which other steps depend."""
    return isinstance(step, Ask) and not (step.quiet or step.while_in)


def _differences(theirs: Answers | str, ours: Answers | str) -> list[str]:
    if isinstance(theirs, str) or isinstance(ours, str):
        # A request could not be sent, because an earlier step had not saved its value. This does
        # not count as a difference.
        return []
    return unexplained("random", 4, _unordered(theirs), _unordered(ours), with_reasons=False)[0]


def _unordered(value: Any) -> Any:
    """The value with all lists of numbers, users, members and mechanisms sorted: Kafka keeps them
    in maps."""
    if isinstance(value, dict):
        return {key: _unordered(each) for key, each in value.items()}
    if isinstance(value, list):
        items = [_unordered(each) for each in value]
        if items and all(isinstance(each, int) for each in items):
            return sorted(items)
        for key in ("user", "member_id", "mechanism"):
            if any(isinstance(each, dict) and key in each for each in items):
                return sorted(items, key=lambda each: (str(each.get(key, "")), str(each)))
        return items
    return _SAME.get(value, value) if isinstance(value, str) else value
