"""An emulated release answers as that release of Apache Kafka did."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.oracle.differences import differing
from tests.oracle.emulation.recorded import RELEASES, load
from tests.oracle.emulation.scenarios import SCENARIOS
from tests.oracle.judge import OUR_SETTINGS
from tests.oracle.play import play

from broker_process import BrokerProcess


@pytest.mark.parametrize("profile", RELEASES)
def test_an_emulated_release_gives_the_recorded_answers(profile: str, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, [*OUR_SETTINGS, f"odradek.emulate={profile}"])
    broker.start()
    try:
        runs = [(scenario, 3) for scenario in SCENARIOS]
        played = asyncio.run(play("127.0.0.1", broker.port, runs, "t"))
        broker.assert_alive()
    finally:
        broker.kill()
    recorded = load(profile)
    assert recorded.keys() == {scenario.name for scenario in SCENARIOS}
    found = []
    for (name, _), ours in played.items():
        if isinstance(ours, str):
            found.append(f"{name} broke: {ours}")
        else:
            found += [
                f"{name} {path}: Kafka {theirs!r}, ours {answer!r}"
                for path, theirs, answer in differing(recorded[name], ours)
            ]
    assert found == []
