"""Our broker authenticates like Apache Kafka, except where a row gives the reason for a
difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.oracle.sasl.cases import CASES, PLAINTEXT, SASL, SETTINGS, SHORT
from tests.oracle.sasl.play import CLOSED, play, set_credentials

from odradek_broker.config.broker import parse_config
from odradek_broker.server import sasl_listeners
from odradek_broker.server.server import Server

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text("utf-8"))
NOT_DECODED = "of whoever is not authenticated, nothing else is decoded, not even to be refused"
IN_ORDER = (
    "behind a user that is refused, Kafka answers the next request as the old user, and first"
)
_REFUSED = {
    "api": "SaslAuthenticate",
    "error": "SASL_AUTHENTICATION_FAILED",
    "error_message": (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    ),
    "session_lifetime_ms": 0,
    "token": "",
}
SMALL = "messages are bounded, of whoever is not authenticated"
STRICT = "a message that can be read in two ways authenticates nobody"


def _failed(mechanism: str) -> dict[str, Any]:
    return {
        "error": "SASL_AUTHENTICATION_FAILED",
        "error_message": (
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {mechanism}"
        ),
        "session_lifetime_ms": 0,
        "token": "",
    }


#: Case -> (number of the first answer that differs from Kafka's, our answers from there on, the
#: reason).
DIFFERENT: dict[str, tuple[int, list[Any], str]] = {
    "Metadata behind the handshake": (1, [CLOSED], NOT_DECODED),
    "produce in place of the token": (1, [CLOSED], NOT_DECODED),
    "session, a request in between": (3, [CLOSED], NOT_DECODED),
    "session, a request in the middle of all": (4, [CLOSED], NOT_DECODED),
    "SCRAM, a nonce of 12000 characters": (2, [CLOSED], NOT_DECODED),
    "SCRAM, a nonce of 20000 characters": (1, [_failed("SCRAM-SHA-256"), CLOSED], SMALL),
    "token behind 100 attributes": (1, [_failed("OAUTHBEARER"), CLOSED], SMALL),
    "token behind an attribute of 140 KB": (1, [_failed("OAUTHBEARER"), CLOSED], SMALL),
    "token behind an attribute twice": (1, [_failed("OAUTHBEARER"), CLOSED], STRICT),
    "token of half a surrogate pair": (
        1,
        [
            {
                **_failed("OAUTHBEARER"),
                "error": "NONE",
                "error_message": "",
                "token": '{"status":"invalid_token"}',
            },
            CLOSED,
        ],
        STRICT,
    ),
    "session of another user behind a request that waits": (5, [_REFUSED, CLOSED], IN_ORDER),
}


def _comparable(answers: list[Any]) -> list[Any]:
    """The answers with the lists of mechanisms sorted: Kafka's order is arbitrary."""
    return [
        {**each, "mechanisms": sorted(each["mechanisms"])}
        if isinstance(each, dict) and "mechanisms" in each
        else each
        for each in answers
    ]


@pytest.mark.own_broker
async def test_n13_n25_n26_n28_sasl_answers_are_those_of_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After the failed authentications of this test, our broker would delay later connections from
    # the same address.
    monkeypatch.setattr(sasl_listeners, "_FREE_FAILURES", 1000)
    listeners = (PLAINTEXT, SASL, SHORT)
    config, _ = parse_config(
        {
            **SETTINGS,
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in listeners),
            "listener.security.protocol.map": f"{PLAINTEXT}:{PLAINTEXT},{SASL}:{SASL},{SHORT}:{SASL}",
            "connection.failed.authentication.delay.ms": "0",
            "log.dirs": str(tmp_path / "data"),
            "max.sasl.authentications.per.ip": "1000",
        }
    )
    server = Server(config)
    await server.start()
    try:
        await set_credentials(server.addresses[PLAINTEXT])
        told = await play(server.addresses)
    finally:
        await server.stop()
    assert told.keys() == RECORDED.keys() == {case.name for case in CASES}
    for name, answers in RECORDED.items():
        expected = _comparable(answers)
        if name in DIFFERENT:
            at, ours, _ = DIFFERENT[name]
            assert expected[at] != ours[0]
            expected = expected[:at] + ours
        assert _comparable(told[name]) == expected, name
