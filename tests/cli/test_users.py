"""`odradek user` against a broker in another process; clients' settings from files and from the
terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runner import Commands, Shell
from odradek.broker import SubprocessBroker
from odradek_broker.security.plain_users import parse_users
from odradek_cli import client_config


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with SubprocessBroker(data_dir=tmp_path / "data") as broker:
        yield broker.bootstrap


def test_users_are_created_listed_altered_and_deleted(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odradek = Commands(bootstrap)
    odradek.run("user", "list")
    assert "there are no users" in odradek.stderr
    monkeypatch.setenv("THE_PASSWORD", "secret")
    (tmp_path / "password").write_text("secret\n", "utf-8")
    both = ("-m", "SCRAM-SHA-512", "-m", "scram-sha-256")
    odradek.run("user", "create", "alice", *both, "--password-env", "THE_PASSWORD")
    assert "created the password of alice for SCRAM-SHA-256" in odradek.stderr
    odradek.run(
        "user", "alter", "alice", "--iterations", "8192", "--password-file", f"{tmp_path}/password"
    )
    Shell(bootstrap).run("user", "create", "bob", "--password-file", "-", stdin=b"secret\n")
    assert odradek.table("user", "list") == [
        ["USER", "MECHANISM", "ITERATIONS"],
        ["alice", "SCRAM-SHA-256", "4096"],
        ["alice", "SCRAM-SHA-512", "8192"],
        ["bob", "SCRAM-SHA-512", "4096"],
    ]
    bob = {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 4096}
    assert odradek.rows("user", "list", "bob") == [bob]
    odradek.run("user", "delete", "alice", "-m", "SCRAM-SHA-256")
    odradek.run("user", "delete", "bob")
    assert [row[:2] for row in odradek.table("user", "list")[1:]] == [["alice", "SCRAM-SHA-512"]]
    for arguments, code, words in (
        (("create", "alice", "--password-env", "THE_PASSWORD"), 1, "use `odradek user alter`"),
        (("alter", "bob", "--password-env", "THE_PASSWORD"), 1, "use `odradek user create`"),
        (("delete", "bob"), 1, "has no password"),
        (("delete", "bob", "-m", "SCRAM-SHA-512"), 1, "user 'bob'"),
        (("list", "bob"), 1, "user 'bob'"),
        (("create", "eve", "--password-env", "NONE"), 2, "has no variable NONE"),
        (("create", "eve", "--password-file", "/none"), 2, "cannot read the password in /none"),
        (("create", "eve", "--password-file", "/none", "--password-env", "X"), 2, "leave one out"),
        (("create", "eve", "-m", "PLAIN"), 2, "'PLAIN' must be one of SCRAM-SHA-256"),
        (("create", "eve"), 2, "the password is empty"),
        (
            ("create", "eve", "--password-env", "THE_PASSWORD", "--iterations", "1"),
            2,
            "must be 4096 to 16384",
        ),
    ):
        odradek.run("user", *arguments, code=code)
        assert words in odradek.stderr and "secret" not in odradek.stderr


def test_client_settings_are_read_from_files(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "client.properties"
    shared.write_text(
        "# of all tools\nclient.id=me\nacks=all\ngroup.id=g\nmax.poll.records=7\n", "utf-8"
    )
    odradek = Commands(bootstrap)
    odradek.run("topic", "list", "--command-config", str(shared))
    wrong = tmp_path / "wrong.properties"
    wrong.write_text("sasl.mechansim=PLAIN\n", "utf-8")
    odradek.run("topic", "list", "-X", str(wrong), code=2)
    assert "did you mean sasl_mechanism" in odradek.stderr
    monkeypatch.setenv(client_config.CONFIG_VARIABLE, str(wrong))
    odradek.run("topic", "list", code=2)
    assert "sasl_mechanism" in odradek.stderr
    monkeypatch.delenv(client_config.CONFIG_VARIABLE)
    odradek.run("topic", "list", "-X", "/none.properties", code=2)
    assert "must be KEY=VALUE, or the name of a file" in odradek.stderr


def test_options_override_client_settings_from_files(tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_text("bootstrap.servers=a:1\nclient.id=file\nacks=all\ngroup.id=g\n", "utf-8")
    given = [f"{file}", "client.id=hand"]
    settings = client_config.client_settings(client_config.DEFAULT_BOOTSTRAP, given)
    assert settings == {"bootstrap_servers": "a:1", "client_id": "hand"}
    assert client_config.client_settings("b:1", given)["bootstrap_servers"] == "b:1"
    assert client_config.client_settings("b:1", given, "producer")["acks"] == "all"
    assert client_config.client_settings("b:1", given, "consumer")["group_id"] == "g"


def test_a_missing_password_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def prompt(text: str, *, hide_input: bool, err: bool) -> str:
        assert hide_input and err
        asked.append(text)
        return "secret"

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    given = ["sasl.username=alice"]
    assert client_config.client_settings("b:1", given)["sasl_password"] == "secret"
    client_config.client_settings("b:1", [*given, "sasl.password=x"])
    client_config.client_settings("b:1", ["client.id=x"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert "sasl_password" not in client_config.client_settings("b:1", given)
    assert asked == ["Password of alice"]


def test_user_hash_prints_a_line_of_the_user_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("THE_PASSWORD", "secret")
    odradek = Commands("127.0.0.1:1")
    lines = [
        odradek.run("user", "hash", "al:ice", "--password-env", "THE_PASSWORD") for _ in range(2)
    ]
    assert lines[0] != lines[1], "each has a salt of its own"
    users = parse_users(lines[0])
    assert users["al:ice"].fits("secret")
    assert not users["al:ice"].fits("Secret")
    monkeypatch.setenv("THE_PASSWORD", "")
    odradek.run("user", "hash", "alice", "--password-env", "THE_PASSWORD", code=2)
