"""The command line with SASL: settings from files, the commands for users, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runner import Commands, Shell
from odradek.broker import SubprocessBroker
from sasl_brokers import ADMIN_PASSWORD, LISTENER, scram_line


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with SubprocessBroker(data_dir=tmp_path / "data", settings=LISTENER) as broker:
        yield broker.bootstrap


def test_c71_c78_a_new_scram_user_writes_records(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = tmp_path / "admin.properties"
    admin.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\n"
        "sasl.password=${env:ADMIN_PASSWORD}\n",
        "utf-8",
    )
    alice = tmp_path / "alice.properties"
    line = scram_line("alice", "a secret; or two")
    alice.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={line}\n",
        "utf-8",
    )
    monkeypatch.setenv("ADMIN_PASSWORD", ADMIN_PASSWORD)
    odradek, shell = Commands(bootstrap), Shell(bootstrap)
    as_admin, as_alice = (("--command-config", str(each)) for each in (admin, alice))
    odradek.run("topic", "list", *as_alice, code=1)
    assert "it refuses user 'alice' (SCRAM-SHA-512)" in odradek.stderr
    assert "a secret" not in odradek.stderr
    shell.run("user", "create", "alice", *as_admin, stdin=b"a secret; or two\n")
    odradek.run("topic", "create", "t", *as_alice)
    shell.run("produce", "t", *as_alice, stdin=b"one\ntwo\n")
    read = shell.run("consume", "t", "--exit", "--format", "%s\\n", *as_alice)
    assert read.split() == [b"one", b"two"]
    odradek.run("topic", "list", code=1)
    assert "set security.protocol=SASL_PLAINTEXT and sasl.mechanism" in odradek.stderr
    shell.run("user", "alter", "alice", *as_admin, stdin=b"another\n")
    odradek.run("topic", "list", *as_alice, code=1)
    assert "check username and password in sasl.jaas.config" in odradek.stderr
    odradek.run("topic", "list", *as_alice, "-X", "sasl.mechanism=OAUTHBEARER", code=2)
    assert "wants a OAuthBearerLoginModule" in odradek.stderr


@pytest.mark.full
def test_bench_measures_a_broker_over_sasl(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    admin = tmp_path / "admin.properties"
    admin.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\n"
        f"sasl.password={ADMIN_PASSWORD}\n",
        "utf-8",
    )
    shell = Shell(bootstrap)
    shell.environment["ODRADEK_COMMAND_CONFIG"] = str(admin)
    measured = shell.run("bench", "-n", "100", "--json")
    assert measured.count(b"\n") == 3
    # Without an address `bench` starts a temporary broker, and does not use the settings of the
    # file.
    del shell.environment["ODRADEK_BOOTSTRAP"]
    assert shell.run("bench", "produce", "-n", "100", "--json")
    shell.run("bench", "-X", "client.id=x", code=2)
