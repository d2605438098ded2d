"""Delegation tokens managed by kafka-delegation-tokens and franz-go, and clients in Java and Go
that authenticate with them.

The tests of franz-go need Go and its module proxy.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafka_cluster
from foreign_programs import run
from odradek import sync
from odradek.broker import SubprocessBroker
from sasl_brokers import ADMIN_PASSWORD, LISTENER, as_admin

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker]

PROGRAM = Path(__file__).parent / "java" / "Tokens.java"
GO_PROGRAM = Path(__file__).parent / "others" / "go_tokens"
GO_MODULES = ("github.com/twmb/franz-go@v1.22.3", "github.com/twmb/franz-go/pkg/kadm@v1.20.0")
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
#: The id and the HMAC in the table that the tool prints.
ROW = re.compile(r"^(\S{22})\s+([A-Za-z0-9+/]{86}==)\s+(\S+)\s+(\S+)\s+(\S+)\s", re.MULTILINE)
#: The lines that the Java program prints, without its log lines.
TOLD = re.compile(r"^(?:nodes|create|produce): .*", re.MULTILINE)


@pytest.fixture
def bootstrap() -> Iterator[str]:
    settings = {**LISTENER, "delegation.token.secret.key": "a key", "log.durability": "page-cache"}
    with SubprocessBroker(settings=settings) as broker:
        yield broker.bootstrap


def java(folder: Path, *words: str) -> str:
    return run(
        *(kafka_cluster.java(), "-cp", kafka_cluster.class_path(), *words),
        folder=folder,
    )


def test_tokens_of_kafkas_tool_authenticate_kafkas_clients(bootstrap: str, tmp_path: Path) -> None:
    admin = tmp_path / "admin.properties"
    admin.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="admin" password="{ADMIN_PASSWORD}";\n',
        "utf-8",
    )

    def tool(*words: str) -> str:
        at = ("--bootstrap-server", bootstrap, "--command-config", str(admin))
        return java(tmp_path, TOOL, *at, *words)

    def by_token(mechanism: str) -> list[str]:
        arguments = (bootstrap, mechanism, token_id, hmac, "t")
        return TOLD.findall(java(tmp_path, str(PROGRAM), *arguments))

    made = ROW.search(
        tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    )
    assert made is not None
    token_id, hmac = made[1], made[2]
    assert made.groups()[2:] == ("User:admin", "User:admin", "[User:bob]")
    assert ROW.findall(tool("--describe", "--owner-principal", "User:admin")) == [made.groups()]
    with sync.Admin(**as_admin(bootstrap)) as ours:
        (before,) = ours.describe_delegation_token()
        assert (before.token_id, before.password) == (token_id, hmac)
        for offset, mechanism in enumerate(("SCRAM-SHA-256", "SCRAM-SHA-512")):
            assert by_token(mechanism) == [
                "nodes: 1",
                "create: UnsupportedByAuthenticationException",
                f"produce: {offset}",
            ]
        renewed = tool("--renew", "--renew-time-period", "172800000", "--hmac", hmac)
        assert "Completed renew operation" in renewed
        (after,) = ours.describe_delegation_token()
        assert after.expiry_timestamp_ms > before.expiry_timestamp_ms
        expired = tool("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
        assert "Completed expire operation" in expired
        assert ROW.findall(tool("--describe")) == []
    assert by_token("SCRAM-SHA-512") == [
        f"{call}: SaslAuthenticationException" for call in ("nodes", "create", "produce")
    ]
    with sync.Consumer("t", **as_admin(bootstrap), auto_offset_reset="earliest") as consumer:
        found = [next(iter(consumer)).value for _ in range(2)]
    assert found == [b"of SCRAM-SHA-256", b"of SCRAM-SHA-512"]


def test_franz_go_creates_uses_renews_and_expires_tokens(bootstrap: str, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go")
    folder = tmp_path / "go"
    shutil.copytree(GO_PROGRAM, folder)
    run(go, "get", *GO_MODULES, folder=folder)
    assert run(go, "run", ".", bootstrap, ADMIN_PASSWORD, folder=folder).splitlines() == [
        "created: of User:admin for 1h0m0s",
        "described: true, renewed by User:bob",
        "SCRAM-SHA-256 produces: true",
        "SCRAM-SHA-512 produces: true",
        "renewed: true",
        "left: 0",
        "SCRAM-SHA-512 produces: false",
    ]
