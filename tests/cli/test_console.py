"""`odradek console`, and the console that a broker serves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

import budget
from odradek_cli.broker.console_child import ConsoleChild
from odradek_cli.commands import with_value
from odradek_console.command import _log_to_stderr
from waiting import wait_until

_PATIENCE_S = 60.0


@contextmanager
def _program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A running command with text output, which is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"DISPLAY": "", "WAYLAND_DISPLAY": ""},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _about(address: str) -> dict[str, Any]:
    """The console's own description. The answer may take a while, because the console listens
    before it is ready."""
    with urllib.request.urlopen(f"{address}api/console", timeout=_PATIENCE_S) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def _served(tmp_path: Path, *more: str) -> list[str]:
    return ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), *more]


def _addresses(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The addresses of the broker and the console, from the broker's first line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    words = line.split()
    return words[words.index("on") + 1], line.strip().rpartition(" console on ")[2]


def _ended(address: str) -> bool:
    port = int(address.rstrip("/").rpartition(":")[2])
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize(
    ("words", "complete"),
    [
        (["--console"], ["--console=127.0.0.1:8080"]),
        (["--console", "--listen", "a:1"], ["--console=127.0.0.1:8080", "--listen", "a:1"]),
        (["--console", "a:1"], ["--console", "a:1"]),
        (["--console=a:1", "x"], ["--console=a:1", "x"]),
        ([], []),
    ],
)
def test_the_console_option_may_have_no_address(words: list[str], complete: list[str]) -> None:
    assert with_value(words) == complete


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.full
def test_a_broker_serves_a_console_that_ends_with_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    with _program(*_served(tmp_path, "--console", "127.0.0.1:0", "--console-write")) as process:
        broker, console = _addresses(process)
        about = _about(console)
        assert (about["bootstrap"], about["write"], about["open"]) == (broker, True, True)
        # For a broker with a console, `odradek console` without --listen prints the console's
        # address.
        with _program("console", "--bootstrap", broker) as asking:
            assert asking.communicate(timeout=_PATIENCE_S)[1].strip().endswith(console)
        process.send_signal(number)
        process.wait(_PATIENCE_S)
        wait_until(lambda: _ended(console), "the console has ended")


def test_a_console_port_in_use_is_an_error_before_the_broker_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with _program(*_served(tmp_path, "--console", address)) as process:
            out, err = process.communicate(timeout=_PATIENCE_S)
    assert (process.returncode, out) == (1, "")
    assert f"cannot listen on {address}: Address already in use; --console HOST:PORT" in err


_WRONG_ADDRESSES: list[tuple[list[str], str]] = [
    (["serve", "--console", "nothing"], "must be HOST:PORT"),
    (["serve", "--console", "0.0.0.0:0"], "--insecure"),
    (["serve", "--console-write"], "give --console too"),
    (["console", "--listen", "0.0.0.0:0"], "--insecure"),
    (["console", "--listen", "127.0.0.1:99999"], "must be HOST:PORT"),
    (["console", "--behind-proxy", "proxy.example"], "must be an address such as"),
    (["console", "--behind-proxy", "10.0.0.7/24"], "must be an address such as"),
    (["console", "--behind-proxy", "*"], "must be an address such as"),
    (["console", "--behind-proxy", "127.0.0.1"], "--insecure"),
    (["console", "-b", "a:1", "-b", "a:1"], "two clusters a:1"),
    (["console", "-b", "x=a:1", "-b", "x=b:1"], "two clusters x"),
    (["console", "-b", "pr:od=a:1"], "NAME=HOST:PORT"),
    (["console", "-b", "prod="], "NAME=HOST:PORT"),
    (["console", *(f"--bootstrap=a:{port}" for port in range(1, 34))], "32 at most"),
    (["console", "-b", "x=a:1", "-b", "y=b:1", "-X", "z:sasl.mechanism=PLAIN"], "names x, y"),
    (["console", "-b", "a:1", "-b", "b:1", "-X", "bootstrap.servers=c:1"], "of one cluster"),
    (["console", "-b", "x=a:1", "-b", "b:1", "-X", "x:bootstrap.servers=c:1"], "of one cluster"),
    # One of the clusters would be open to everybody.
    (
        [
            *("console", "--listen", "0.0.0.0:0", "-b", "x=a:1", "-b", "y=b:1"),
            *("-X", "x:security.protocol=SASL_PLAINTEXT"),
        ],
        "--insecure",
    ),
    # Everybody who reaches the address would act as the console's user.
    (
        [
            *("console", "--listen", "0.0.0.0:0", "-X", "security.protocol=SASL_PLAINTEXT"),
            *("-X", "sasl.mechanism=PLAIN", "-X", "sasl.jaas.config=x"),
        ],
        "--insecure",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "text"), budget.of_which(_WRONG_ADDRESSES, _WRONG_ADDRESSES[1:4:2])
)
def test_a_wrong_console_address_is_refused(
    tmp_path: Path, arguments: list[str], text: str
) -> None:
    more = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    with _program(*arguments, *(more if arguments[0] == "serve" else [])) as process:
        out, err = process.communicate(timeout=_PATIENCE_S)
    assert (process.returncode, out) == (2, "")
    assert text in err


def _child(tmp_path: Path, script: str, pauses_s: tuple[float, ...] = (0.0, 0.0)) -> ConsoleChild:
    """A console child that runs `script`; each start writes a line to a file."""
    count = f"open({str(tmp_path / 'starts')!r}, 'a').write('x\\n')"
    program = [sys.executable, "-c", f"import sys, time; {count}; {script}"]
    return ConsoleChild("127.0.0.1:0", program=program, pauses_s=pauses_s)


def _starts(tmp_path: Path) -> int:
    path = tmp_path / "starts"
    return path.read_text().count("x") if path.exists() else 0


def test_a_schema_that_the_console_cannot_read_is_named() -> None:
    with _program("console", "--no-open", "--schema", "/no/such.avsc") as process:
        assert process.wait(_PATIENCE_S) == 2
        assert process.stderr is not None
        assert "/no/such.avsc cannot be read" in process.stderr.read()


def test_a_console_that_ends_is_restarted_a_few_times(tmp_path: Path) -> None:
    child = _child(tmp_path, "sys.exit(3)")
    child.begin("127.0.0.1:1")
    assert child._thread is not None
    child._thread.join(_PATIENCE_S)
    assert _starts(tmp_path) == 3
    child.end()


def test_a_stopped_console_is_not_restarted(tmp_path: Path) -> None:
    child = _child(tmp_path, "time.sleep(600)")
    child.begin("127.0.0.1:1")
    wait_until(lambda: _starts(tmp_path) == 1, "it has started")
    child.end()
    assert _starts(tmp_path) == 1
    assert _ended(child.address)


def test_log_lines_are_json_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _log_to_stderr()
    structlog.get_logger("odradek.console.audit").info("done", change="settings")
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["change"], line["level"]) == ("done", "settings", "info")
    assert line["timestamp"]
    structlog.reset_defaults()
