"""Malformed batches have the same results on our broker as on Apache Kafka, or a row has the reason
why not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.oracle.batches import recorded
from tests.oracle.batches.cases import CASES
from tests.oracle.batches.differences import DIFFERENCES, MOST_CASES, Verdict, compare

import record_codecs
from odradek_broker.config.broker import parse_config
from odradek_broker.server.server import Server
from odradek_protocol.records import native


@pytest.fixture(params=record_codecs.TWINS)
async def verdict(request: pytest.FixtureRequest, tmp_path: Path) -> Verdict:
    """The comparison of all cases, on a broker in this process."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "log.durability": "page-cache",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "CODEC", record_codecs.twin(request.param))
        server = Server(parse_config(settings)[0])
        host, port = await server.start()
        try:
            return compare(recorded.load(), await recorded.ask_all(host, port))
        finally:
            await server.stop()


async def test_r08_malformed_batches_have_the_results_of_kafka(verdict: Verdict) -> None:
    assert not verdict.lines, "\n".join(verdict.lines)
    assert verdict.used == set(DIFFERENCES), "a row that nothing needs"
    assert verdict.explained <= MOST_CASES


def test_titles_of_batches_are_unique_and_recorded() -> None:
    titles = Counter(case.title for case in CASES)
    assert not [title for title, times in titles.items() if times > 1]
    assert titles.keys() == recorded.load().keys()
