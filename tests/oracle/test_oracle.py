"""Our broker gives the answers of Apache Kafka, except where a row gives the reason for a
difference."""

from __future__ import annotations

import asyncio

import pytest
from tests.oracle import recordings
from tests.oracle.differences import MOST_RUNS
from tests.oracle.judge import OUR_SETTINGS, Verdict, compare
from tests.oracle.page import PAGE, page
from tests.oracle.play import play
from tests.oracle.scenarios import all_scenarios, chosen

import budget
from broker_process import BrokerProcess
from odradek_broker.metadata.features import FEATURES
from odradek_protocol.keys import APIS, PRIVATE_KEYS


@pytest.fixture(scope="module")
def verdict(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """Our broker's results in all scenarios, with Kafka's shipped settings.

    The short run plays each scenario only in its newest version.
    """
    newest_only = budget.is_short()
    broker = BrokerProcess(tmp_path_factory.mktemp("oracle"), OUR_SETTINGS)
    broker.start()
    try:
        runs = [
            (scenario, version)
            for _, scenario in chosen("*")
            for version in (scenario.runs()[-1:] if newest_only else scenario.runs())
        ]
        played = asyncio.run(play("127.0.0.1", broker.port, runs, "t"))
        broker.assert_alive()
        return compare(played, newest_only=newest_only)
    finally:
        broker.kill()


@pytest.mark.budgeted
def test_the_broker_gives_the_recorded_answers_of_kafka(verdict: Verdict) -> None:
    assert not verdict.lines, "\n".join(verdict.lines)


@pytest.mark.budgeted
def test_the_number_of_runs_with_explained_differences_is_limited(verdict: Verdict) -> None:
    assert verdict.explained_runs <= MOST_RUNS


def test_every_served_version_is_played() -> None:
    played = {(scenario.api, version) for _, scenario in chosen("*") for version in scenario.runs()}
    served = {
        (api.name, version)
        for api in APIS.values()
        if api.key not in PRIVATE_KEYS
        for version in api.versions
    }
    assert not served - played


def test_every_recorded_answer_has_a_scenario() -> None:
    known = {
        recordings.path_of(module, scenario.name)
        for module, group in all_scenarios().items()
        for scenario in group
    }
    assert set(recordings.FOLDER.rglob("*.json")) == known


def test_the_compatibility_page_is_up_to_date() -> None:
    text = PAGE.read_text("utf-8")
    assert text == page(text), "run: python -m tests.oracle page"


def test_n52_features_have_the_levels_of_kafka() -> None:
    (answer,) = (each["answer"] for each in recordings.load("features", "features")[4])
    supported = {
        each["name"]: (each.get("min_version", 0), each["max_version"])
        for each in answer["supported_features"]
    }
    finalized = {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}
    assert {name: supported[name] for name in FEATURES} == FEATURES
    assert {name: each.highest for name, each in FEATURES.items()} == {
        name: finalized[name] for name in FEATURES
    }
    assert set(supported) - set(FEATURES) == {"eligible.leader.replicas.version", "kraft.version"}
