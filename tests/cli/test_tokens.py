"""`odradek token` against a broker in another process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runner import Commands
from odradek.broker import SubprocessBroker
from sasl_brokers import LISTENER
from sasl_clients import plain_users

TOKEN_ID = 22
HMAC = 88


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    settings = {
        **LISTENER,
        **plain_users(alice="secret", bob="geheim"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "delegation.token.secret.key": "a key",
    }
    with SubprocessBroker(data_dir=tmp_path / "data", settings=settings) as broker:
        yield broker.bootstrap


def user(folder: Path, name: str, password: str, mechanism: str = "PLAIN", more: str = "") -> str:
    """A file with the settings of a client."""
    file = folder / f"{name}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.username={name}\nsasl.password={password}\n{more}",
        "utf-8",
    )
    return str(file)


def test_a_token_is_created_used_renewed_and_expired(bootstrap: str, tmp_path: Path) -> None:
    odradek = Commands(bootstrap)
    alice = ("-X", user(tmp_path, "alice", "secret"))
    bob = ("-X", user(tmp_path, "bob", "geheim"))
    odradek.run("token", "describe", *alice)
    assert "there are no delegation tokens" in odradek.stderr
    heading, (token_id, hmac) = odradek.table("token", "create", "--renewer", "User:bob", *alice)
    assert heading == ["TOKEN-ID", "HMAC"] and (len(token_id), len(hmac)) == (TOKEN_ID, HMAC)
    assert "created a token of User:alice" in odradek.stderr and hmac not in odradek.stderr
    (row,) = odradek.rows("token", "describe", "alice", *bob)
    assert [row[name] for name in ("token_id", "owner", "requester", "renewers")] == [
        *(token_id, "User:alice", "User:alice"),
        ["User:bob"],
    ]
    assert row["issued"] < row["expires"] < row["ends"]
    shown = odradek.run("token", "describe", *alice)
    assert token_id in shown and hmac not in shown + json.dumps(row)
    assert odradek.rows("token", "describe", "carol", *alice) == []

    by_token = ("-X", user(tmp_path, token_id, hmac, "SCRAM-SHA-512", "sasl.token.auth=true\n"))
    odradek.run("topic", "create", "t", *by_token)
    odradek.run("token", "create", *by_token, code=1)
    assert "authenticated connection" in odradek.stderr

    odradek.run("token", "renew", token_id, "--for", "2d", *bob)
    (renewed,) = odradek.rows("token", "describe", *alice)
    assert row["expires"] < renewed["expires"] and renewed["expires"] in odradek.run(
        "token", "describe", *alice
    )
    odradek.run("token", "expire", token_id, "--in", "90m", *alice)
    (ending,) = odradek.rows("token", "describe", *alice)
    assert ending["expires"] < row["expires"]
    odradek.run("token", "expire", token_id, *bob)
    assert f"expired token {token_id}" in odradek.stderr and hmac not in odradek.stderr
    odradek.run("topic", "list", *by_token, code=1)
    assert "it refuses delegation token" in odradek.stderr and hmac not in odradek.stderr


@pytest.mark.full
def test_refused_token_commands_name_a_remedy(bootstrap: str, tmp_path: Path) -> None:
    odradek = Commands(bootstrap)
    alice = ("-X", user(tmp_path, "alice", "secret"))
    bob = ("-X", user(tmp_path, "bob", "geheim"))
    (made,) = odradek.rows("token", "create", "--max-lifetime", "PT1H", *alice)
    token_id = made["token_id"]
    assert len(made["hmac"]) == HMAC and made["expires"] == made["ends"]
    for arguments, code, words in (
        (("renew", token_id, *bob), 1, "the delegation token belongs to someone else"),
        (("expire", token_id, *bob), 1, "the delegation token belongs to someone else"),
        (("expire", "nothing", *bob), 1, "see `odradek token describe`"),
        (("renew", "nothing", *alice), 1, "no token 'nothing'"),
        (("renew", token_id, "--for", "0s", *alice), 2, "--for '0s' must be 1 to"),
        (("expire", token_id, "--in", "soon", *alice), 2, "--in: 'soon' is no duration"),
        (("create", "--max-lifetime", f"{10**18}d", *alice), 2, "--max-lifetime '1"),
    ):
        odradek.run("token", *arguments, code=code)
        assert words in odradek.stderr and made["hmac"] not in odradek.stderr


@pytest.mark.full
def test_tokens_of_another_user_are_created(tmp_path: Path) -> None:
    settings = {
        **LISTENER,
        **plain_users(alice="secret"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    }
    alice = ("-X", user(tmp_path, "alice", "secret"))
    with SubprocessBroker(settings=settings) as broker:
        odradek = Commands(broker.bootstrap)
        odradek.run("token", "create", *alice, code=1)
        assert "delegation token" in odradek.stderr.lower()
    with SubprocessBroker(settings={**settings, "delegation.token.secret.key": "k"}) as broker:
        odradek = Commands(broker.bootstrap)
        (made,) = odradek.rows("token", "create", "--owner", "carol", *alice)
        assert (made["owner"], made["requester"]) == ("User:carol", "User:alice")
