"""SASL requests at a listener without SASL, and SCRAM credentials.

`tests/oracle/sasl` has the requests before authentication.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracle.script import Ask, Scenario, scenarios_of

_SHA_256, _SHA_512 = 1, 2
_KEY_BYTES = {_SHA_256: 32, _SHA_512: 64}


def credential(user: str, mechanism: int = _SHA_256, iterations: int = 4096) -> dict[str, Any]:
    return {
        "name": user,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"0123456789",
        "salted_password": bytes(_KEY_BYTES.get(mechanism, 32)),
    }


def no_credential(user: str, mechanism: int = _SHA_256) -> dict[str, Any]:
    return {"name": user, "mechanism": mechanism}


def alter_credentials(
    *upsertions: dict[str, Any], deletions: Sequence[Any] = (), **more: Any
) -> Ask:
    body = {"deletions": list(deletions), "upsertions": list(upsertions)}
    return Ask("AlterUserScramCredentials", body, **more)


def describe_credentials(*users: str, **more: Any) -> Ask:
    body = {"users": [{"name": user} for user in users]}
    return Ask("DescribeUserScramCredentials", body, **more)


def _seen(user: str, iterations: int, **more: Any) -> Ask:
    """Wait until the user's first credential has this number of iterations."""
    until = {"results.0.credential_infos.0.iterations": iterations}
    return describe_credentials(user, until=until, **more)


SCENARIOS = [
    *scenarios_of(
        {
            ("handshake-without-sasl", "SaslHandshake"): [
                Ask("SaslHandshake", {"mechanism": "PLAIN"}),
                Ask("SaslHandshake", {"mechanism": ""}),
                Ask("ApiVersions", version=0, ignore=("api_keys",)),
            ],
            ("authenticate-without-sasl", "SaslAuthenticate"): [
                Ask("SaslAuthenticate", {"auth_bytes": b"\0u\0p"}),
                Ask("SaslAuthenticate", {}),
            ],
            ("scram-credentials", "AlterUserScramCredentials"): [
                alter_credentials(credential("@u")),
                _seen("@u", 4096),
                alter_credentials(credential("@u", iterations=16384)),
                _seen("@u", 16384),
                alter_credentials(credential("@u", _SHA_512, 5000)),
                describe_credentials("@u", until={"results.0.credential_infos.1.iterations": 5000}),
                alter_credentials(deletions=[no_credential("@u")]),
                _seen("@u", 5000),
                alter_credentials(deletions=[no_credential("@u")]),
                alter_credentials(deletions=[no_credential("@u", _SHA_512)]),
                describe_credentials("@u", until={"results.0.error_code": "RESOURCE_NOT_FOUND"}),
                alter_credentials(),
            ],
            ("scram-credentials-refused", "AlterUserScramCredentials"): [
                alter_credentials(credential("")),
                alter_credentials(credential("@a", 0)),
                alter_credentials(credential("@a", 3)),
                alter_credentials(credential("@a", iterations=4095)),
                alter_credentials(credential("@a", iterations=16385)),
                alter_credentials(credential("@a", iterations=-1)),
                alter_credentials(credential("@a"), credential("@a", _SHA_512)),
                alter_credentials(credential("@a"), credential("@a")),
                alter_credentials(credential("@a", 3), credential("@a")),
                alter_credentials(credential("@a"), deletions=[no_credential("@a")]),
                alter_credentials(deletions=[no_credential("@nobody")]),
                alter_credentials(deletions=[no_credential("@nobody", 7)]),
                alter_credentials(deletions=[no_credential("")]),
                alter_credentials(deletions=[no_credential("@nobody"), no_credential("@nobody")]),
            ],
            ("scram-credentials-of-another-length", "AlterUserScramCredentials"): [
                alter_credentials(credential("@short") | {"salted_password": b"x"}),
                alter_credentials(deletions=[no_credential("@short")]),
            ],
            ("scram-credentials-unusual", "AlterUserScramCredentials"): [
                alter_credentials(credential("@none") | {"salt": b""}),
                alter_credentials(credential("@one") | {"salt": b"x"}),
                alter_credentials(credential("@nul\0")),
                _seen("@nul\0", 4096),
                *(
                    alter_credentials(deletions=[no_credential(user)])
                    for user in ("@none", "@one", "@nul\0")
                ),
            ],
            ("scram-credentials-with-long-salts", "AlterUserScramCredentials"): [
                alter_credentials(credential("@long") | {"salt": bytes(1025)}),
                alter_credentials(deletions=[no_credential("@long")]),
            ],
            ("scram-credentials-described", "DescribeUserScramCredentials"): [
                alter_credentials(credential("@u"), credential("@v", _SHA_512), quiet=True),
                _seen("@u", 4096, quiet=True),
                _seen("@v", 4096),
                alter_credentials(deletions=[no_credential("@v", _SHA_512)], quiet=True),
                describe_credentials("@v", until={"results.0.error_code": "RESOURCE_NOT_FOUND"}),
                describe_credentials("@u", "@u"),
                describe_credentials("@nobody"),
                describe_credentials("@nobody", "@nobody"),
                describe_credentials(""),
                alter_credentials(deletions=[no_credential("@u")], quiet=True),
            ],
        }
    ),
    # These requests are sent without authentication; tests/oracle/tokens sends them as users.
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
