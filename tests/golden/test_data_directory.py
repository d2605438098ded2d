"""A data directory that an earlier broker wrote gives the answers that it gave then."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden import data_directory

from command_line import Commands


@pytest.mark.parametrize("variant", data_directory.VARIANTS)
def test_an_old_directory_gives_the_same_answers(variant: str, tmp_path: Path) -> None:
    data = data_directory.unpack(tmp_path)[variant]
    odradek = Commands("")
    odradek.run("log", "verify", str(data), code=0 if variant == "stopped" else 1)
    expected = data_directory.expected()
    for _ in range(2):
        with data_directory.broker_on(data) as broker:
            answers = data_directory.ask(broker.bootstrap)
            assert answers.keys() == expected.keys()
            for name, answer in answers.items():
                assert answer == expected[name], name
    odradek.run("log", "verify", str(data))


def test_the_directory_has_what_it_is_kept_for() -> None:
    answers = data_directory.expected()
    assert answers["transactions"]["prepared"][0] == "Ongoing"
    settings = answers["settings"]
    assert settings["TOPIC fruit"].keys() >= {"segment.bytes", "max.message.bytes"}
    assert settings["BROKER "] and settings["GROUP modern"]
    committed, everything = (
        sum(len(rows) for name, rows in answers["records"].items() if name.startswith(isolation))
        for isolation in ("read_committed", "read_uncommitted")
    )
    assert 0 < committed < everything
    assert {each["type"] for each in answers["groups"].values()} == {"classic", "consumer"}
    assert answers["offsets"]["trimmed-0"]["earliest"] == [13, -1]
