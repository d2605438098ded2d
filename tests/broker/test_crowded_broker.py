"""No small request and no periodic work holds the loop of a broker that has many topics,
partitions, groups, transactional ids, producers, ACLs, users, quotas, tokens, subscriptions and
connections: the steps of the longest callback are counted (rule N-57)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import budget
from crowded_broker import ADMIN, WIDE, crowded_broker, name_of
from large_requests import STEPS_PER_US, CountedBroker
from odradek_broker.coordinator.shards import Shards
from odradek_broker.metrics.exposition import Exposition
from odradek_broker.metrics.families import Family
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.message import Message
from small_requests import requests_about_everything, small_requests

#: The things of each kind.
COUNT = 1_000 if budget.is_short() else 3_000
#: The short run has a slower machine in place of more things.
_STEPS_PER_US = 1 if budget.is_short() else STEPS_PER_US
#: The most steps of one callback: of a request, and of periodic work. A batch of 1,000 records
#: takes some 7,000. The parts of `maintain`, each with a fixed number of logs, files and tokens
#: at a time, take 27,000 together, a third of which is the simulated disk's. The recovery points
#: take five for each partition.
STEPS_MAX = 10_000 if budget.is_short() else 20_000
PERIODIC_STEPS_MAX = 40_000
_NUMBERS = (0, 1, 2) if budget.is_short() else (0, 1, 2, 3, 4, 5, 6, 16, 32, -1)
_DAY_MS = 24 * 3_600_000


class Crowd:
    """The broker, and an empty one that gets each request first: the first use of a schema compiles
    its codec."""

    def __init__(self) -> None:
        self.broker = crowded_broker(COUNT, _STEPS_PER_US)
        self.empty = crowded_broker(1, _STEPS_PER_US)
        metadata = self.broker.world.node.metadata
        self.topic_ids = {name: metadata.topic_id(name) for name in (WIDE, name_of(0))}

    def steps(self, request: Message, version: int, user: str) -> int:
        self.empty.longest_callback(request, version, user)
        return self.broker.longest_callback(request, version, user)[0]


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    return Crowd()


#: APIs whose requests remove what other requests ask about.
_REMOVING = tuple(
    key
    for key, api in APIS.items()
    if api.name.startswith("Delete") or key in (ApiKey.INIT_PRODUCER_ID, ApiKey.OFFSET_DELETE)
)


def _ask(crowd: Crowd, key: ApiKey) -> None:
    versions = APIS[key].versions
    for user in ("nobody", ADMIN):
        for version in sorted({versions.first, versions.last}):
            for request in _different(small_requests(key, version, crowd.topic_ids, _NUMBERS)):
                assert crowd.steps(request, version, user) <= STEPS_MAX, (version, user, request)


def _different(requests: Iterable[Message]) -> Iterable[Message]:
    return {repr(request): request for request in requests}.values()


def _name(key: ApiKey) -> str:
    return APIS[key].name


@pytest.mark.parametrize("key", [key for key in APIS if key not in _REMOVING], ids=_name)
def test_n57_no_small_request_holds_the_loop(crowd: Crowd, key: ApiKey) -> None:
    _ask(crowd, key)


def test_n57_no_request_about_everything_holds_the_loop(crowd: Crowd) -> None:
    for request in requests_about_everything(crowd.broker):
        version = APIS[ApiKey(request.api_key)].versions.last
        assert crowd.steps(request, version, ADMIN) <= STEPS_MAX, request


@pytest.mark.parametrize("key", _REMOVING, ids=_name)
def test_n57_no_small_request_that_removes_holds_the_loop(crowd: Crowd, key: ApiKey) -> None:
    _ask(crowd, key)


def test_n57_no_scrape_holds_the_loop(crowd: Crowd) -> None:
    _scraped(crowd.empty)
    assert _scraped(crowd.broker) <= PERIODIC_STEPS_MAX


def _scraped(broker: CountedBroker) -> int:
    """The most steps of a part of a scrape."""
    node = broker.world.node
    longest = 0

    def each_of(pieces: Iterator[Any]) -> Iterator[Any]:
        nonlocal longest
        end = object()
        while True:
            steps, piece = broker.counter.steps_of(lambda: next(pieces, end))
            longest = max(longest, steps)
            if piece is end:
                return
            yield piece

    for family in each_of(iter(Exposition(node.metrics, node).families())):
        if isinstance(family, Family):
            for _ in each_of(iter(family.parts())):
                pass
    return longest


def test_n57_no_periodic_work_holds_the_loop(crowd: Crowd) -> None:
    world = crowd.broker.world
    node = world.node

    def recovery_points() -> None:
        for directory in node.logs.directories:
            directory.recovery_points_writer()

    def check(work: Callable[[], object]) -> None:
        steps, _ = crowd.broker.longest_of(work)
        assert steps <= PERIODIC_STEPS_MAX, work

    for wait_ms in (0, 60_000, 3_600_000, 10 * _DAY_MS):
        world.clock.now_ms += wait_ms
        for work in (node.maintain, recovery_points, node.maintain):
            check(work)
        for shards in (node.groups.shards, node.share_state.shards, node.transactions.shards):
            check_deadlines(shards, check, world.clock.monotonic_ms)
        check(node.maintain)
    assert not any(group.members for group in node.groups.groups()), "their sessions have ended"


def check_deadlines(
    shards: Shards[Any], check: Callable[[Callable[[], object]], None], now_ms: Callable[[], int]
) -> None:
    """Act on all deadlines of a coordinator that have passed."""
    while (due_ms := shards.next_deadline_ms()) is not None and due_ms <= now_ms():
        check(lambda: shards.run_due(now_ms()))
