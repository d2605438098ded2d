"""Our broker handles delegation tokens like Apache Kafka, except where a row gives the reason for a
difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.oracle.tokens.cases import CASES, OPEN_CASES, PLAINTEXT, SASL, Case, settings
from tests.oracle.tokens.play import play

from odradek_broker.config.broker import parse_config
from odradek_broker.server import sasl_listeners
from odradek_broker.server.server import Server

_FOLDER = Path(__file__).parent
RECORDED = json.loads((_FOLDER / "recorded.json").read_text("utf-8"))
OPEN_RECORDED = json.loads((_FOLDER / "recorded_without_authorizer.json").read_text("utf-8"))
EXPIRED = (
    "Kafka authenticates a client with an expired token that it has not removed yet, and closes its"
    " connection at the next request"
)
UNKNOWN = "an unknown user is refused only after its proof, so that nobody learns which users exist"
_REFUSED = {
    "error": "SASL_AUTHENTICATION_FAILED",
    "message": (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism"
        " SCRAM-SHA-256"
    ),
    "session": "0 min",
}
#: (case, number of an answer) -> (our answer, the reason).
DIFFERENT: dict[tuple[str, int], tuple[Any, str]] = {
    ("logins that fail", 5): (
        {"login": "off", "answers": [{"error": "NONE", "session": "0 min"}, _REFUSED]},
        UNKNOWN,
    ),
    ("login with a token that has ended", 9): (
        {"login": "expired", "answers": [_REFUSED]},
        EXPIRED,
    ),
}


@pytest.mark.own_broker
async def test_a49_a50_a51_a52_a53_token_answers_are_those_of_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After the failed authentications of this test, our broker would delay later connections from
    # the same address.
    monkeypatch.setattr(sasl_listeners, "_FREE_FAILURES", 1000)
    told = await _play(tmp_path, CASES, authorizer=True)
    assert told.keys() == RECORDED.keys() == {case.name for case in CASES}
    for name, answers in RECORDED.items():
        for number, expected in enumerate(answers):
            ours, _ = DIFFERENT.get((name, number), (expected, ""))
            assert told[name][number] == ours, (name, number)
    for (name, number), (ours, _) in DIFFERENT.items():
        assert RECORDED[name][number] != ours, (name, number)


@pytest.mark.own_broker
async def test_a52_every_user_sees_all_tokens_without_an_authorizer(tmp_path: Path) -> None:
    told = await _play(tmp_path, OPEN_CASES, authorizer=False)
    assert told.keys() == OPEN_RECORDED.keys()
    for name, answers in OPEN_RECORDED.items():
        for number, expected in enumerate(answers):
            assert told[name][number] == expected, (name, number)


async def _play(folder: Path, cases: Sequence[Case], *, authorizer: bool) -> dict[str, list[Any]]:
    config, _ = parse_config(
        {
            **settings(authorizer=authorizer),
            "listeners": f"{PLAINTEXT}://127.0.0.1:0,{SASL}://127.0.0.1:0",
            "connection.failed.authentication.delay.ms": "0",
            "log.dirs": str(folder / "data"),
        }
    )
    server = Server(config)
    await server.start()
    try:
        return await play(server.addresses, cases, authorizer=authorizer)
    finally:
        await server.stop()
