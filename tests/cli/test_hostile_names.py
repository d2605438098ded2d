"""Names and texts that strangers chose reach no terminal as they are: every command, with groups,
members, clients, transactional ids, users and records whose names are escape sequences."""

from __future__ import annotations

import ast
import io
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import typer

from cli_runner import Commands
from odradek import Admin, Consumer, NewTopic, Producer, ShareConsumer
from odradek.broker import SubprocessBroker
from odradek_broker.platform.log_lines import configure_logging
from odradek_cli import build_app
from odradek_client.admin.quotas import QuotaEntity
from odradek_client.admin.users import UserScramCredentialUpsertion
from odradek_client.errors import OdradekError
from odradek_client.loop_thread import LoopThread
from product_modules import MODULES, tree_of
from waiting import DEADLINE_S

HOSTILE = "evil\x1b]0;owned\x07\x1b[2J\u202egnp\u200b\u2028line\nnext\x9b31m\U000e0041"
TOPIC = "t"

#: The commands that show what strangers chose, with their arguments.
SHOWING: dict[str, list[list[str]]] = {
    "client-metrics describe": [[]],
    "client-metrics list": [[]],
    "client-metrics show": [[]],
    "cluster": [[]],
    "config describe": [["group", HOSTILE], ["topic", TOPIC]],
    "consume": [
        [TOPIC, "-o", "beginning", "-e", "--json"],
        [TOPIC, "-o", "beginning", "-e", "--decode", "text", "--json"],
        [TOPIC, "-o", "beginning", "-e", "--decode", "text"],
        [TOPIC, "-o", "beginning", "-e", "--pretty"],
        [TOPIC, "-o", "beginning", "-e", "--pretty", "--decode", "text"],
    ],
    "doctor": [[]],
    "explain client": [[HOSTILE]],
    "explain group": [[HOSTILE]],
    "explain partition": [[f"{TOPIC}-0"]],
    "explain producer": [[HOSTILE]],
    "explain share": [[f"{HOSTILE}share"]],
    "explain txn": [[HOSTILE]],
    "group delete": [[HOSTILE]],
    "group delete-offsets": [[HOSTILE, "--topic", TOPIC]],
    "group describe": [[], ["--members", "-v"], ["--state"], ["-v"]],
    "group list": [[], ["-v"]],
    "group reset-offsets": [[HOSTILE, "--all-topics", "--to-earliest"]],
    "log dump": [["DATA"]],
    "log verify": [["DATA", "--running"]],
    "quota describe": [[]],
    "share delete": [[f"{HOSTILE}share"]],
    "share describe": [[], ["--members", "-v"], ["--state"]],
    "share list": [[]],
    "share offsets": [[f"{HOSTILE}share"]],
    "share consume": [[TOPIC, "-g", f"{HOSTILE}share", "-c", "1", "-e", "--json"]],
    "top": [["--once", "--interval", "0.2"]],
    "topic describe": [[TOPIC]],
    "topic list": [[]],
    "txn abort": [[HOSTILE], [HOSTILE, "--execute"]],
    "txn describe": [[HOSTILE]],
    "txn list": [[]],
    "user list": [[]],
}
#: Commands that show only what their user has typed, names of topics (which have few characters),
#: or nothing of a cluster.
OTHERS = """
acl add, acl delete, acl list, bench, client-metrics alter, client-metrics delete, config delete,
config set, console, demo, explain mirror, mcp, mirror check, mirror checkpoint, mirror offsets,
mirror promote, mirror status, produce, quota delete, quota set, serve, share dead-letters,
share delete-offsets, share redeliver, share reset-offsets, start, status, stop, token create,
token describe, token expire, token renew, topic alter, topic create, topic delete, topic trim,
user alter, user create, user delete, user hash
"""


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if not getattr(command, "commands", None):
        yield " ".join(path)
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, (*path, name))


def test_every_command_is_here() -> None:
    found = {
        each
        for each in leaves(typer.main.get_command(build_app()))
        if not each.startswith(("faults ", "generate "))
    }
    assert found == {*SHOWING, *(each.strip() for each in OTHERS.split(","))}


@asynccontextmanager
async def hostile_clients(bootstrap: str) -> AsyncIterator[None]:
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "client_id": HOSTILE}
    async with Admin(**settings) as admin:
        await admin.create_topics(NewTopic(TOPIC, 1))
    async with (
        Admin(**settings) as admin,
        Producer(**settings) as producer,
        Producer(**settings, transactional_id=HOSTILE) as transactional,
        Consumer(TOPIC, **settings, group_id=HOSTILE, group_instance_id=HOSTILE) as classic,
        Consumer(TOPIC, **settings, group_id=f"{HOSTILE}2", group_protocol="consumer") as consumer,
        ShareConsumer(TOPIC, **settings, group_id=f"{HOSTILE}share") as share,
    ):
        value = HOSTILE.replace("\x1b", "").replace("\x07", "").replace("\x9b", "")
        for each in (HOSTILE, value, f'{{"{value[:4]}": "\u202e"}}'):
            await producer.send_and_wait(TOPIC, each.encode(), HOSTILE.encode(), headers=[
                (HOSTILE, HOSTILE.encode())
            ])  # fmt: skip
        for setting in (
            admin.alter_client_quotas({QuotaEntity(user=HOSTILE): {"producer_byte_rate": 1e9}}),
            admin.alter_user_scram_credentials(UserScramCredentialUpsertion(HOSTILE, "password")),
        ):
            try:
                await setting
            except OdradekError as error:
                assert "name" in str(error) or "character" in str(error), error
        await transactional.init_transactions()
        await transactional.begin_transaction()
        await transactional.send_and_wait(TOPIC, b"open")
        for client in (classic, consumer):
            while not client.assignment():
                await client.poll(50)
            await client.commit({(TOPIC, 0): 1})
        while not share.assignment():
            await share.poll(50)
        yield


def assert_harmless(text: str, about: str) -> None:
    for line in text.split("\n"):
        assert line.isprintable(), f"{about}: {line!r}"
        # Only the values of records have ends of lines.
        own = about.startswith("consume") or not line.startswith("next")
        assert own, f"{about}: a stranger's line"


def test_no_command_shows_a_stranger_s_text_as_it_is(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": 0, "log.durability": "page-cache"}
    thread = LoopThread("strangers")
    with SubprocessBroker(data_dir=tmp_path, settings=settings) as broker:
        strangers = hostile_clients(broker.bootstrap)
        thread.submit(strangers.__aenter__()).result(DEADLINE_S)
        try:
            shell = Commands(broker.bootstrap)
            showed = 0
            for command, choices in SHOWING.items():
                for arguments in choices:
                    words = [str(tmp_path) if each == "DATA" else each for each in arguments]
                    for more in ([], [] if "--json" in words else ["--json"]):
                        line = [*command.split(), *words, *more]
                        out = shell.run(*line, code=(0, 1, 2))
                        assert_harmless(out, " ".join(line))
                        assert_harmless(shell.stderr, " ".join(line))
                        showed += "evil" in out
            assert showed > 30
        finally:
            thread.submit(strangers.__aexit__(None, None, None)).result(DEADLINE_S)
            thread.soon(thread.loop.stop)


def test_only_few_modules_print() -> None:
    """Every other module prints with `say`, `tell` or `fail`, which escape."""
    printing = set[str]()
    for module in MODULES:
        if module.partition(".")[0] not in {"odradek_cli", "odradek_mirror", "odradek_log_tools"}:
            continue
        for node in ast.walk(tree_of(module)):
            text = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if text in ("print", "typer.echo", "typer.secho", "sys.stdout.write") or text.endswith(
                ("stdout.buffer.write", "console.print", "_console.print")
            ):
                printing.add(module.rpartition(".")[2])
    assert printing == {
        "say", "commands", "standard_streams", "serving", "mcp_server",
        # Their lines go through `visible`.
        "dump", "verify", "record_view", "top",
        # Records as they are, if the user asks for that.
        "consume", "share_consume",
    }  # fmt: skip


def test_no_traceback_or_log_line_of_a_command_has_a_stranger_s_text() -> None:
    program = f"""
import logging, sys
import odradek_cli as cli
def command():
    import typer
    app = typer.Typer(pretty_exceptions_enable=False)
    @app.command()
    def run():
        log = logging.getLogger("odradek.client")
        log.warning("the group %s is gone", {HOSTILE!r})
        try:
            raise ValueError({HOSTILE!r})
        except ValueError:
            log.exception({HOSTILE!r})
        raise ValueError({HOSTILE!r})
    app()
cli._command = command
sys.argv[1:] = []
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stderr.count("evil\\x1b") == 4, done.stderr
    for line in done.stderr.split("\n"):
        assert line.isprintable(), repr(line)


def test_no_line_of_the_brokers_log_for_people_has_a_stranger_s_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    try:
        configure_logging("console")
        log = structlog.get_logger("odradek.group")
        log.warning(HOSTILE, group=HOSTILE, members=[HOSTILE], error=ValueError(HOSTILE))
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.exception("failed", group=HOSTILE)
        logging.getLogger("odradek.client").warning("the group %s is gone", HOSTILE)
    finally:
        structlog.reset_defaults()
    for line in stream.getvalue().split("\n"):
        assert line.isprintable(), repr(line)
    assert stream.getvalue().count("evil") >= 6
