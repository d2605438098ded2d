"""Random requests get the same answers from our broker as from Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.oracle.random_scenarios.comparison import Address, both_brokers, compare_seeds
from tests.oracle.random_scenarios.families import FAMILIES, random_scenario
from tests.oracle.script import APIS_BY_NAME, Ask, Send

_SEEDS = range(1, 41)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Address, Address]]:
    """The addresses of an Apache Kafka and of our broker."""
    with both_brokers(tmp_path_factory.mktemp("random")) as addresses:
        yield addresses


@pytest.mark.kafka
@pytest.mark.own_broker
@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", FAMILIES)
def test_random_scenarios_have_the_answers_of_kafka(
    family: str, brokers: tuple[Address, Address]
) -> None:
    found = asyncio.run(compare_seeds(*brokers, family, _SEEDS, f"t{family}"))
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_makes_the_same_scenario_each_time(family: str) -> None:
    for seed in range(1, 4):
        assert repr(random_scenario(family, seed)) == repr(random_scenario(family, seed))
    assert repr(random_scenario(family, 1)) != repr(random_scenario(family, 2))


@pytest.mark.parametrize("family", FAMILIES)
def test_random_requests_have_a_version_of_their_api(family: str) -> None:
    asks = [
        each.ask if isinstance(each, Send) else each
        for seed in range(1, 30)
        for each in random_scenario(family, seed).steps
        if isinstance(each, Ask | Send)
    ]
    assert asks
    for ask in asks:
        assert ask.version is None or ask.version in APIS_BY_NAME[ask.api].versions, ask
