"""`odradek doctor`: look for what will trouble a broker or its clients, and say what to do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli.broker import doctor_checks as checks
from odradek_cli.broker.broker import ConfigFile, DataDir, Listen, Settings
from odradek_cli.broker.doctor_checks import CheckResult, Findings, Level
from odradek_cli.common import AsJson, ClientSettings, open_admin, run
from odradek_cli.layout import table_lines
from odradek_cli.options import option
from odradek_cli.say import say
from odradek_client.words import counted
from odradek_protocol.visible import json_line

if TYPE_CHECKING:
    from odradek_client.admin import Admin


def doctor(
    listen: Listen = None,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    settings: Settings = None,
    bootstrap: Annotated[
        str | None,
        option(
            "--bootstrap -b HOST:PORT,...",
            "Check these brokers instead (any Kafka), as a client on this machine sees them.",
            show_default=False,
        ),
    ] = None,
    command_config: ClientSettings = None,
    strict: Annotated[
        bool, option("--strict", "Exit with 1 after warnings too, not only after errors.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look for what will trouble a broker, and say what to do.

    Takes the options of `serve`; the broker may be running. Checks the machine, the disk, the time
    of a flush, the settings, the clock, the listeners as clients see them, and certificates. Exits
    1 if there is an error, 2 for wrong options.
    """
    if bootstrap is None:
        found = _look_here(listen, data_dir, config, settings or [])
    else:
        found = run(_look_there(bootstrap, command_config))
    _print(found, as_json=as_json)
    levels = {finding.level for finding in found}
    if Level.ERROR in levels or (strict and Level.WARNING in levels):
        raise typer.Exit(1)


def _look_here(
    listen: str | None, data_dir: Path | None, config_file: Path | None, given: list[str]
) -> list[CheckResult]:
    from odradek_broker.config.broker import BrokerConfigError
    from odradek_cli.broker.serving import ServeOptions, read_settings

    found = [*checks.check_python(), *checks.check_memory()]
    try:
        options = ServeOptions(listen, data_dir, config_file, given)
        config, notices = read_settings(options)
    except BrokerConfigError as error:
        remedy = "change it: nothing that depends on the settings was looked at"
        return [*found, CheckResult(Level.ERROR, "settings", str(error), remedy)]
    found += checks.check_settings(config, notices)
    directories = [Path(path) for path in dict.fromkeys((*config.log_dirs, config.data_dir))]
    stored = [checks.look_into(directory) for directory in directories]
    found += checks.check_open_files(sum(each.partitions for each in stored))
    times_s = [each.newest_s for each in stored if each.newest_s is not None]
    found += checks.check_clock(max(times_s, default=None))
    for directory in directories:
        found += checks.check_directory(directory)
    running, said = checks.check_broker(Path(config.data_dir))
    found += said
    for listener in config.broker_listeners:
        found += checks.check_listener(config, listener, running is not None)
        if listener.protocol.is_encrypted:
            found += checks.check_certificate(config, listener)
    return found


async def _look_there(bootstrap: str, given: list[str] | None) -> list[CheckResult]:
    """Findings on other brokers. An error of the client ends the program with its remedy."""
    async with open_admin(bootstrap, given) as admin:
        return await look_at_brokers(admin, bootstrap)


async def look_at_brokers(admin: Admin, bootstrap: str) -> list[CheckResult]:
    """Findings on the brokers of a cluster, as a client here sees them."""
    cluster = await admin.describe_cluster()
    found = [CheckResult(Level.OK, "cluster", f"{bootstrap} answers, cluster {cluster.cluster_id}")]
    for node in cluster.brokers:
        found += _look_at_node(node.node_id, node.host, node.port)
    return found


def _look_at_node(node_id: int, host: str, port: int) -> Findings:
    problem = checks.connect(host, port)
    name = f"broker {node_id}"
    if problem:
        yield CheckResult(
            Level.ERROR,
            name,
            f"it advertises {host}:{port}, where nobody answers from here: {problem}",
            "set advertised.listeners of the broker to an address that clients reach",
        )
    else:
        yield CheckResult(Level.OK, name, f"answers on {host}:{port}, which it advertises")


def _print(found: list[CheckResult], *, as_json: bool) -> None:
    if as_json:
        for each in found:
            fields = {"level": each.level, "check": each.check, "text": each.text}
            say(json_line({**fields, "remedy": each.remedy}))
        return
    rows = []
    for each in found:
        rows.append([each.level.value, each.check, each.text])
        if each.remedy:
            rows.append(["", "", f"-> {each.remedy}"])
    say(*table_lines([["LEVEL", "CHECK", "FOUND"], *rows], folds="FOUND"))
    counts = Counter(each.level for each in found)
    say(
        f"{counted(counts[Level.ERROR], 'error')}, {counted(counts[Level.WARNING], 'warning')},"
        f" {counts[Level.OK]} ok"
    )
