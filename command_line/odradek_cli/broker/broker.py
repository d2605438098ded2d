"""`odradek serve|start|stop|status`: a broker in the foreground, or as a daemon."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from odradek_cli.broker import serving
from odradek_cli.broker.pid_file import LOG_FILE
from odradek_cli.broker.serving import (
    DATA_DIR_VARIABLE,
    ServeOptions,
    configure,
    fail_if_running,
    reason,
)
from odradek_cli.commands import fail
from odradek_cli.options import option
from odradek_cli.say import say

EXIT_NOT_RUNNING = 3

_PORT_TIMEOUT_S = 1.0
_POLL_S = 0.02
_READY_LINE_MAX = 4096
_ERROR_PREFIX = "odradek: "

Listen = Annotated[
    str | None,
    option("--listen HOST:PORT", "The address of the PLAINTEXT listener; port 0 is a free port."),
]
DataDir = Annotated[
    Path | None,
    option(
        "--data-dir DIR",
        "The data directories, separated by commas; odradek-data if no setting names one.",
        envvar=DATA_DIR_VARIABLE,
        show_default=False,
    ),
]
ConfigFile = Annotated[Path | None, option("--config FILE", "A file in server.properties syntax.")]
Settings = Annotated[
    list[str] | None, option("--set KEY=VALUE", "A setting, which overrides the file; repeatable.")
]
PortFile = Annotated[
    Path | None,
    option(
        "--port-file FILE",
        "A file that exists while the broker is ready. The first line is its HOST:PORT, the "
        "second that of the HTTP endpoint for faults and clusters.",
    ),
]


@dataclass(frozen=True)
class BrokerStart:
    """The options that `odradek serve` and `odradek start` share."""

    listen: Listen = None
    data_dir: DataDir = None
    config: ConfigFile = None
    settings: Settings = None
    emulate: Annotated[
        str | None,
        option(
            "--emulate NAME",
            "For tests: emulate kafka-3.9, kafka-4.0, redpanda, event-hubs or confluent-cloud.",
        ),
    ] = None
    testing: Annotated[
        bool,
        option(
            "--testing",
            "Let programs on this machine inject faults, over HTTP; see `odradek faults`.",
        ),
    ] = False
    insecure: Annotated[
        bool,
        option(
            "--insecure",
            "Let other machines connect without authentication, as insecure.listeners=true does.",
        ),
    ] = False
    user: Annotated[
        list[str] | None,
        option(
            "--user NAME=env:VARIABLE|file:PATH",
            "A SCRAM user that is created if it has no password yet, and the place of the "
            "password; repeatable.",
        ),
    ] = None
    console: Annotated[
        str | None,
        option(
            "--console [HOST:PORT]",
            "Serve the web console too, at this address or at 127.0.0.1:8080.",
        ),
    ] = None
    console_write: Annotated[
        bool,
        option(
            "--console-write", "Let the console make changes; without it the console is read-only."
        ),
    ] = False

    def to_serve(self) -> ServeOptions:
        """The options for `serving`."""
        emulated = [] if self.emulate is None else [serving.emulated(self.emulate)]
        return ServeOptions(
            self.listen,
            self.data_dir,
            self.config,
            [*(self.settings or []), *emulated],
            testing=self.testing,
            insecure=self.insecure,
            users=self.user or [],
            console=self.console,
            console_write=self.console_write,
        )


# --- In the foreground ----------------------------------------------------------------------------


def serve(
    *,
    options: BrokerStart,
    log_file: Annotated[Path | None, option("--log-file", hidden=True)] = None,
    scratch: Annotated[Path | None, option("--until-stdin-ends", hidden=True)] = None,
    port_file: PortFile = None,
    exit_with_parent: Annotated[
        bool,
        option(
            "--exit-with-parent",
            "Stop when the process that started this one ends, even by SIGKILL.",
        ),
    ] = False,
) -> None:
    """Run a broker in the foreground.

    One line on stdout says that the broker is ready. On SIGTERM, on Ctrl-C and when its terminal is
    closed, the broker answers the requests that it has received, flushes, and exits 0. A bad
    setting exits 2.
    """
    given = options.to_serve()
    given.log_file, given.scratch, given.port_file = log_file, scratch, port_file
    given.exit_with_parent = exit_with_parent
    serving.serve(given)


# --- As a daemon ----------------------------------------------------------------------------------


def start(
    *,
    options: BrokerStart,
    port_file: PortFile = None,
    timeout_s: Annotated[
        float, option("--timeout SECONDS", "Maximum time until the broker is ready.")
    ] = 60.0,
) -> None:
    """Run a broker in the background and wait until it is ready.

    The pid file and the log file are in the data directory; SIGHUP opens the log file again. Exits
    1 if the broker is running already or cannot start, 2 for a bad setting.
    """
    given = options.to_serve()
    parsed, notices = configure(given)
    directory = Path(parsed.data_dir).absolute()
    log_file = directory / LOG_FILE
    fail_if_running(directory)
    for notice in notices:
        if notice.level == "warning":
            say(f"odradek: warning: {notice.text}", err=True)
    data_dirs = ",".join(str(Path(path).absolute()) for path in parsed.log_dirs)
    valued = {
        "--data-dir": data_dirs,
        "--log-file": log_file,
        "--listen": given.listen,
        "--config": given.config,
        "--console": given.console,
        "--port-file": None if port_file is None else port_file.absolute(),
    }
    switches = {
        "--testing": given.testing,
        "--insecure": given.insecure,
        "--console-write": given.console_write,
    }
    command = [sys.executable, "-m", "odradek", "serve"]
    for name, value in valued.items():
        command += [] if value is None else [name, str(value)]
    command += [name for name, is_on in switches.items() if is_on]
    for name, values in (("--set", given.settings), ("--user", given.users)):
        command += [word for value in values for word in (name, value)]
    is_new = not directory.exists()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = log_file.open("ab")
    except OSError as error:
        fail(f"cannot write to the data directory {directory}: {reason(error)}")
    with log:
        logged_bytes = log.tell()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    line = _ready_line(child, timeout_s)
    if line is None:
        _report_failure(child, log_file, logged_bytes, timeout_s, is_new=is_new)
    say(f"{line} [pid {child.pid}, log {log_file}]")


def _ready_line(child: subprocess.Popen[bytes], timeout_s: float) -> str | None:
    """The broker's ready line; None if the broker does not print it within `timeout_s`."""
    assert child.stdout is not None
    deadline = time.monotonic() + timeout_s
    received = b""
    while b"\n" not in received and len(received) < _READY_LINE_MAX:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([child.stdout], [], [], left_s)[0]:
            return None
        chunk = os.read(child.stdout.fileno(), _READY_LINE_MAX)
        if not chunk:
            return None
        received += chunk
    return received.split(b"\n", 1)[0].decode("utf-8", "replace")


def _report_failure(
    child: subprocess.Popen[bytes],
    log_file: Path,
    logged_bytes: int,
    timeout_s: float,
    *,
    is_new: bool,
) -> None:
    """Print the reason why the child is not ready, and end the child. A new directory is removed if
    it has nothing but the reason."""
    try:
        # If the child's output has ended, the child will end soon. If the output is only late, the
        # child continues to run.
        exit_code = child.wait(1.0)
    except subprocess.TimeoutExpired:
        child.terminate()
        try:
            child.wait(10.0)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        fail(f"the broker was not ready within {timeout_s:g} s and was stopped; see {log_file}")
    with log_file.open("rb") as log:
        log.seek(logged_bytes)
        lines = log.read().decode("utf-8", "replace").splitlines()
    said = [line for line in lines if line.startswith(_ERROR_PREFIX)]
    if said:
        if is_new and os.listdir(log_file.parent) == [log_file.name]:
            log_file.unlink()
            log_file.parent.rmdir()
        fail(said[-1].removeprefix(_ERROR_PREFIX), exit_code or 1)
    fail(f"the broker ended with exit code {exit_code} before it was ready; see {log_file}")


def stop(
    data_dir: DataDir = None,
    config: ConfigFile = None,
    settings: Settings = None,
    timeout_s: Annotated[
        float, option("--timeout SECONDS", "Maximum time until the broker has stopped.")
    ] = 60.0,
) -> None:
    """Stop the broker of a data directory and wait until its process has ended.

    Exits 3 if no broker is running, 1 if the broker does not stop in time.
    """
    directory = _directory(data_dir, config, settings)
    running = serving.running(directory)
    if running is None:
        fail(f"no broker is running on {directory}", EXIT_NOT_RUNNING)
    try:
        os.kill(running.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError:
        fail(f"the broker with pid {running.pid} belongs to another user")
    deadline = time.monotonic() + timeout_s
    while serving.running(directory) == running:
        if time.monotonic() > deadline:
            fail(f"the broker with pid {running.pid} has not stopped within {timeout_s:g} s")
        time.sleep(_POLL_S)
    say(f"odradek stopped (pid {running.pid}, data {directory})")


def status(
    data_dir: DataDir = None,
    config: ConfigFile = None,
    settings: Settings = None,
    as_json: Annotated[bool, option("--json", "One JSON object on stdout.")] = False,
) -> None:
    """Say whether a broker serves a data directory. Exits 3 if no broker does."""
    directory = _directory(data_dir, config, settings)
    running = serving.running(directory)
    answers = running is not None and _accepts(running.address)
    if as_json:
        say(
            json.dumps(
                {
                    "running": running is not None,
                    "accepting": answers,
                    "pid": running.pid if running else None,
                    "address": running.address if running else None,
                    "data_dir": str(directory),
                }
            )
        )
    elif running is None:
        say(f"not running (data {directory})")
    else:
        note = "" if answers else ", but its port does not accept connections"
        say(f"running: pid {running.pid}, {running.address}, data {directory}{note}")
    if running is None:
        raise typer.Exit(EXIT_NOT_RUNNING)


def _directory(data_dir: Path | None, config_file: Path | None, settings: list[str] | None) -> Path:
    # `insecure`, because the start of the broker has checked the listeners already.
    options = ServeOptions(None, data_dir, config_file, settings or [], insecure=True)
    parsed, _ = configure(options)
    return Path(parsed.data_dir).absolute()


def reachable(address: str) -> str:
    """The address at which a client on this machine reaches a listener. A broker that listens on
    all addresses also listens on the loopback address."""
    host, _, port = address.rpartition(":")
    return f"{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]'}.get(host, host) }:{port}"


def _accepts(address: str) -> bool:
    host, _, port = reachable(address).rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PORT_TIMEOUT_S):
            return True
    except OSError:
        return False
