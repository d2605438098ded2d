"""SASL requests at a listener without SASL, and SCRAM credentials.

`tests/oracle/sasl` has the requests before authentication.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracle.script import Ask, Scenario

_SHA_256, _SHA_512 = 1, 2
_KEY_BYTES = {_SHA_256: 32, _SHA_512: 64}


def _set(user: str, mechanism: int = _SHA_256, iterations: int = 4096) -> dict[str, Any]:
    return {
        "name": user,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"0123456789",
        "salted_password": bytes(_KEY_BYTES.get(mechanism, 32)),
    }


def _remove(user: str, mechanism: int = _SHA_256) -> dict[str, Any]:
    return {"name": user, "mechanism": mechanism}


def _alter(*upsertions: dict[str, Any], deletions: Sequence[Any] = (), **more: Any) -> Ask:
    body = {"deletions": list(deletions), "upsertions": list(upsertions)}
    return Ask("AlterUserScramCredentials", body, **more)


def _describe(*users: str, **more: Any) -> Ask:
    body = {"users": [{"name": user} for user in users]}
    return Ask("DescribeUserScramCredentials", body, **more)


def _seen(user: str, iterations: int, **more: Any) -> Ask:
    """Wait until the user's first credential has this number of iterations."""
    until = {"results.0.credential_infos.0.iterations": iterations}
    return _describe(user, until=until, **more)


SCENARIOS = [
    Scenario(
        "handshake-without-sasl",
        "SaslHandshake",
        [
            Ask("SaslHandshake", {"mechanism": "PLAIN"}),
            Ask("SaslHandshake", {"mechanism": ""}),
            Ask("ApiVersions", version=0, ignore=("api_keys",)),
        ],
    ),
    Scenario(
        "authenticate-without-sasl",
        "SaslAuthenticate",
        [Ask("SaslAuthenticate", {"auth_bytes": b"\0u\0p"}), Ask("SaslAuthenticate", {})],
    ),
    Scenario(
        "scram-credentials",
        "AlterUserScramCredentials",
        [
            _alter(_set("@u")),
            _seen("@u", 4096),
            _alter(_set("@u", iterations=16384)),
            _seen("@u", 16384),
            _alter(_set("@u", _SHA_512, 5000)),
            _describe("@u", until={"results.0.credential_infos.1.iterations": 5000}),
            _alter(deletions=[_remove("@u")]),
            _seen("@u", 5000),
            _alter(deletions=[_remove("@u")]),
            _alter(deletions=[_remove("@u", _SHA_512)]),
            _describe("@u", until={"results.0.error_code": "RESOURCE_NOT_FOUND"}),
            _alter(),
        ],
    ),
    Scenario(
        "scram-credentials-refused",
        "AlterUserScramCredentials",
        [
            _alter(_set("")),
            _alter(_set("@a", 0)),
            _alter(_set("@a", 3)),
            _alter(_set("@a", iterations=4095)),
            _alter(_set("@a", iterations=16385)),
            _alter(_set("@a", iterations=-1)),
            _alter(_set("@a"), _set("@a", _SHA_512)),
            _alter(_set("@a"), _set("@a")),
            _alter(_set("@a", 3), _set("@a")),
            _alter(_set("@a"), deletions=[_remove("@a")]),
            _alter(deletions=[_remove("@nobody")]),
            _alter(deletions=[_remove("@nobody", 7)]),
            _alter(deletions=[_remove("")]),
            _alter(deletions=[_remove("@nobody"), _remove("@nobody")]),
        ],
    ),
    Scenario(
        "scram-credentials-of-another-length",
        "AlterUserScramCredentials",
        [
            _alter(_set("@short") | {"salted_password": b"x"}),
            _alter(deletions=[_remove("@short")]),
        ],
    ),
    Scenario(
        "scram-credentials-described",
        "DescribeUserScramCredentials",
        [
            _alter(_set("@u"), _set("@v", _SHA_512), quiet=True),
            _seen("@u", 4096, quiet=True),
            _seen("@v", 4096),
            _alter(deletions=[_remove("@v", _SHA_512)], quiet=True),
            _describe("@v", until={"results.0.error_code": "RESOURCE_NOT_FOUND"}),
            _describe("@u", "@u"),
            _describe("@nobody"),
            _describe("@nobody", "@nobody"),
            _describe(""),
            _alter(deletions=[_remove("@u")], quiet=True),
        ],
    ),
    # Requests by a client without authentication; tests/oracle/tokens has those of users.
    *(
        Scenario(
            f"{name}-delegation-token",
            f"{name.capitalize()}DelegationToken",
            [Ask(f"{name.capitalize()}DelegationToken", body)],
        )
        for name, body in (
            ("create", {"renewers": [], "max_lifetime_ms": -1}),
            ("renew", {"hmac": b"x", "renew_period_ms": 1}),
            ("expire", {"hmac": b"x", "expiry_time_period_ms": -1}),
            ("describe", {"owners": None}),
        )
    ),
]
