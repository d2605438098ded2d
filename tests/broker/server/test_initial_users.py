"""The first SCRAM users: created once, with a password that a reference names."""

from __future__ import annotations

import asyncio
import base64
import errno
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker_in_loop import StartBroker
from cli_runner import Commands
from odradek_broker.config.types import BrokerConfigError
from odradek_broker.platform.machine import RealBlockFile, RealFile, RealRandomness
from odradek_broker.server.host import StartError
from odradek_broker.server.initial_users import initial_user_records
from odradek_protocol.sasl.scram import ScramMechanism
from odradek_protocol.stored.cluster_metadata import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from sasl_clients import LISTENER, scram

MECHANISMS = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
USERS = "sasl.scram.initial.users"


async def test_a48_initial_users_are_created_once(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "password"
    path.write_text("from the file\nanother line\n")
    monkeypatch.setenv("ADMIN_PASSWORD", "from the environment")
    keys = LISTENER | MECHANISMS | {USERS: f"admin=env:ADMIN_PASSWORD,ops=file:{path}"}
    broker = await start_broker(keys=keys)
    for mechanism in ScramMechanism:
        for user, password in (("admin", "from the environment"), ("ops", "from the file")):
            client = await broker.client()
            assert (await scram(client, mechanism, user, password)).error_code == 0
    await broker.stop()
    # An existing user keeps the password; its reference is not read.
    monkeypatch.delenv("ADMIN_PASSWORD")
    path.write_text("another")
    again = await start_broker(keys=keys)
    client = await again.client()
    mechanism = ScramMechanism.SHA_512
    assert (await scram(client, mechanism, "ops", "from the file")).error_code == 0
    removed = [
        RemoveUserScramCredentialRecord(name="admin", mechanism=each.number)
        for each in ScramMechanism
    ]
    again.node.metadata_log.commit(removed)
    await again.stop()
    with pytest.raises(StartError, match="ADMIN_PASSWORD"):
        await start_broker(keys=keys)


async def test_a48_initial_users_are_created_when_a_full_disk_has_room_again(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("P", "secret")
    keys = LISTENER | MECHANISMS
    await (await start_broker(keys=keys)).stop()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, capture_logs() as lines:
        patch.setattr(RealFile, "append", full)
        broker = await start_broker(keys=keys | {USERS: "admin=env:P"})
        for _ in range(3):
            await broker.server._maintain()
        assert broker.node.metadata.scram_credentials == {}
        (told,) = [line for line in lines if "users" in line]
        assert told["users"] == ["admin"]
        assert told["log_level"] == "error"
    await broker.server._maintain()
    client = await broker.client()
    assert (await scram(client, ScramMechanism.SHA_256, "admin", "secret")).error_code == 0


async def test_a48_a_start_fails_if_the_initial_users_cannot_be_flushed(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("P", "secret")
    keys = LISTENER | MECHANISMS
    await (await start_broker(keys=keys)).stop()

    def refused(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(RealFile, "sync", refused)
        patch.setattr(RealBlockFile, "write_at", refused)
        async with asyncio.timeout(20):
            with pytest.raises(StartError, match="metadata log"):
                await start_broker(keys=keys | {USERS: "admin=env:P"})
    assert not [each for each in threading.enumerate() if each.name.startswith("odradek-flush")]


def test_a48_each_initial_credential_has_its_own_salt() -> None:
    environment = {"P": "secret"}
    records, names = initial_user_records(
        ["a=env:P", "b=env:P", "a=env:P", "c=env:P"], ["c"], RealRandomness(), environment
    )
    assert names == ["a", "b"]
    salts = {each.salt for each in records if isinstance(each, UserScramCredentialRecord)}
    assert len(salts) == 4


@pytest.mark.parametrize("text", ["admin", "admin=secret", "=env:P", "admin=env:", "a=file:"])
async def test_a48_initial_users_with_a_password_in_the_setting_are_refused(
    start_broker: StartBroker, text: str
) -> None:
    with pytest.raises(BrokerConfigError, match=r"NAME=env:VARIABLE or NAME=file:PATH"):
        await start_broker(keys=LISTENER | MECHANISMS | {USERS: text})


async def test_a48_a_start_fails_without_a_readable_password_file(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("\nsecond")
    for name, problem in (("none", "cannot read"), ("empty", "is empty")):
        keys = LISTENER | MECHANISMS | {USERS: f"admin=file:{tmp_path / name}"}
        with pytest.raises(StartError, match=problem):
            await start_broker(keys=keys)


async def test_a42_neither_dump_nor_log_shows_a_password_or_its_keys(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADMIN_PASSWORD", "hunter2")
    broker = await start_broker(keys=LISTENER | MECHANISMS | {USERS: "admin=env:ADMIN_PASSWORD"})
    held = broker.node.metadata.scram_credentials["admin"]
    secrets = [
        key for each in held.values() for key in (each.salt, each.stored_key, each.server_key)
    ]
    (directory,) = broker.server.config.log_dirs
    await broker.stop()
    dumped = Commands("127.0.0.1:1").run("log", "dump", "--records", "--json", directory)
    logged = capsys.readouterr()
    assert dumped.count("UserScramCredentialRecord") == 2
    for text in (dumped, logged.out + logged.err):
        assert "hunter2" not in text
        for secret in secrets:
            assert base64.b64encode(secret).decode() not in text
            assert secret.hex() not in text
            assert repr(secret)[2:-1] not in text
    assert "created SCRAM users" in logged.out + logged.err
