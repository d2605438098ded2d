"""`odradek doctor`: look for what will trouble a broker or its clients, and say what to do."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli.broker import doctor_checks as checks
from odradek_cli.broker.broker import ConfigFile, DataDir, Listen, Settings, reachable
from odradek_cli.broker.doctor_checks import CheckResult, Level
from odradek_cli.broker.doctor_cluster import look_at_brokers
from odradek_cli.common import AsJson, ClientSettings, open_admin, run
from odradek_cli.layout import table_lines
from odradek_cli.options import option
from odradek_cli.say import say
from odradek_client.words import counted
from odradek_protocol.visible import json_line

if TYPE_CHECKING:
    from odradek_cli.broker.pid_file import RunningBroker

#: The exit code if something could not be looked at.
_NOT_LOOKED = 2


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
    of a flush, the settings, the clock, the listeners as clients see them, and certificates; of
    running brokers also disks, partitions, groups, and the problems that they report. Exits 0 if
    all is well, 1 if there is an error, 2 if something could not be looked at, or for wrong
    options: fit for cron.
    """
    try:
        if bootstrap is None:
            found = _look_here(listen, data_dir, config, settings or [], command_config)
        else:
            found = run(_look_there(bootstrap, command_config))
    except SystemExit:
        # The error is printed.
        raise typer.Exit(_NOT_LOOKED) from None
    _print(found, as_json=as_json)
    levels = {finding.level for finding in found if finding.looked}
    if Level.ERROR in levels or (strict and Level.WARNING in levels):
        raise typer.Exit(1)
    if not all(finding.looked for finding in found):
        raise typer.Exit(_NOT_LOOKED)


def _look_here(
    listen: str | None,
    data_dir: Path | None,
    config_file: Path | None,
    given: list[str],
    of_client: list[str] | None,
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
    told = listen or config_file or any(each.startswith("listeners=") for each in given)
    # The listeners of a running broker are its own, and not those of a start without options.
    for listener in config.broker_listeners if told or running is None else ():
        found += checks.check_listener(config, listener, running is not None)
        if listener.protocol.is_encrypted:
            found += checks.check_certificate(config, listener)
    if running is not None and not any(each.level is Level.ERROR for each in found):
        found += _look_at_running(running, of_client)
    return found


def _look_at_running(running: RunningBroker, of_client: list[str] | None) -> list[CheckResult]:
    """Findings on the broker of the data directory, as its clients see it."""
    from odradek_client.errors import OdradekError

    try:
        return asyncio.run(_look_there(reachable(running.address), of_client))
    except OdradekError as error:
        text = f"it could not be asked on {running.address}: {error}"
        remedy = "look at the listeners, and give with -X what its clients need to connect"
        return [CheckResult(Level.WARNING, "broker", text, remedy, looked=False)]


async def _look_there(bootstrap: str, given: list[str] | None) -> list[CheckResult]:
    """Findings on brokers. An error of the client ends the program with its remedy."""
    async with open_admin(bootstrap, given) as admin:
        return await look_at_brokers(admin, bootstrap)


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
