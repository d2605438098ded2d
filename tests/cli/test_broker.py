"""`odradek serve|start|stop|status` as processes, as users and scripts run them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import gc
import json
import os
import pty
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import budget
from odradek.faults import Faults
from odradek_broker.config.broker import parse_config
from odradek_cli import build_app
from odradek_cli.broker import serving
from odradek_cli.broker.pid_file import PidFile, PidFileBusyError, RunningBroker
from odradek_cli.broker.serving import ServeOptions, parse_plain
from odradek_cli.broker.starter import PortFile
from odradek_cli.commands import COMMANDS
from odradek_protocol import frames
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from waiting import wait_until

PATIENCE_S = 60.0
SBIN = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
ODRADEK = [sys.executable, "-m", "odradek"]


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **more}
    return subprocess.run(
        [*ODRADEK, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment,
        check=False,
    )


class Served:
    """A broker that runs in the foreground."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*ODRADEK, "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.address = self.line.split()[3] if self.line else ""

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; returns (exit code, rest of stdout, stderr)."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start brokers on a free port and a temporary directory, with further arguments."""
    running: list[Served] = []

    def start(*arguments: str, data_dir: Path = tmp_path / "data") -> Served:
        given = ["--listen", "127.0.0.1:0"] if "--listen" not in arguments else []
        served = Served(*given, "--data-dir", str(data_dir), *arguments)
        running.append(served)
        return served

    yield start
    for served in running:
        served.end(signal.SIGKILL)


def ask_versions(address: str) -> ApiVersionsResponse:
    """Send one request over a new connection; fails unless the broker answers."""
    host, _, port = address.rpartition(":")
    api = APIS[ApiKey.API_VERSIONS]
    with socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S) as connection:
        connection.sendall(b"".join(frames.encode_request(ApiVersionsRequest(), 0, 7, "test")))
        stream = connection.makefile("rb")
        frame = stream.read(int.from_bytes(stream.read(4), "big"))
        answer = frames.decode_response(api, 0, frame)
    assert isinstance(answer, ApiVersionsResponse)
    return answer


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


# --- serve ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", budget.of_which([signal.SIGTERM, signal.SIGINT], [signal.SIGTERM])
)
def test_serve_prints_one_ready_line_and_stops_cleanly(
    serve: Serve, tmp_path: Path, number: signal.Signals
) -> None:
    served = serve()
    data = tmp_path / "data"
    assert served.line == f"odradek ready on {served.address} (data {data}, durability fsync)\n"
    assert not served.address.endswith(":0")
    assert ask_versions(served.address).error_code == 0
    code, out, _ = served.end(number)
    assert (code, out) == (0, "")
    assert not (data / "odradek.pid").exists()
    assert serve().line, "a clean stop leaves a directory that starts again"


@pytest.mark.full
def test_serve_listens_on_ipv6(serve: Serve) -> None:
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM).bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    served = serve("--listen", "[::1]:0")
    assert served.address.startswith("[::1]:")
    assert ask_versions(served.address).error_code == 0


def test_options_and_set_override_the_settings_file(serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "log.durability=fsync\nlisteners=PLAINTEXT://127.0.0.1:1\nnum.partitons=2\nlog.dirs=/no\n"
    )
    served = serve("--config", str(config), "--set", "log.durability=page-cache")
    assert "durability page-cache" in served.line
    code, _, err = served.end()
    assert code == 0
    assert "num.partitons" in err and "did you mean num.partitions?" in err


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--set", "num.partitions"], "--set"),
        (["--listen", "nowhere"], "--listen"),
        (["--listen", "127.0.0.1:99999"], "--listen"),
        (["--set", "listeners=SSL://:1"], "listeners"),
        (["--config", "/no/such/file"], "/no/such/file"),
    ],
)
@pytest.mark.parametrize("command", budget.of_which(["serve", "start"], ["serve"]))
def test_a_bad_setting_exits_2_and_is_named(
    tmp_path: Path, command: str, arguments: list[str], key: str
) -> None:
    data = tmp_path / "data"
    done = run(command, "--data-dir", str(data), *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = lines(done.stderr)
    assert line.startswith("odradek: ") and key in line
    assert not data.exists(), "nothing is touched"


def test_an_occupied_port_is_one_line_on_stderr(serve: Serve, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        served = serve("--listen", f"127.0.0.1:{port}")
        code, out, err = served.end()
    assert (code, served.line, out) == (1, "", "")
    assert [line for line in lines(err) if line.startswith("odradek: ") and str(port) in line]
    assert "Traceback" not in err


@pytest.mark.full
def test_a_second_broker_on_a_data_directory_exits_and_changes_nothing(
    serve: Serve, tmp_path: Path
) -> None:
    first = serve()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")}
    second = serve()
    code, out, err = second.end()
    assert (code, second.line, out) == (1, "", "")
    assert [line for line in lines(err) if line.startswith("odradek: ")]
    assert "Traceback" not in err
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")}
    assert after == before, "the data is untouched"
    assert ask_versions(first.address).error_code == 0


@pytest.mark.full
def test_a_data_directory_that_is_a_file_is_an_error(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    for command in ("serve", "start"):
        done = run(command, "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
        assert (done.returncode, done.stdout) == (1, "")
        assert [line for line in lines(done.stderr) if line.startswith("odradek: ")]
        assert "Traceback" not in done.stderr
    assert (tmp_path / "data").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_an_unwritable_data_directory_is_an_error(serve: Serve, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        code, out, err = serve().end()
    finally:
        tmp_path.chmod(0o700)
    assert (code, out) == (1, "")
    assert [line for line in lines(err) if line.startswith("odradek: ")]


# --- start, stop, status --------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "data"
    yield directory
    running = PidFile(directory).read()
    if running is not None:
        os.kill(running.pid, signal.SIGKILL)


def start(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("start", "--listen", "127.0.0.1:0", "--data-dir", str(data), *arguments)


def status(data: Path) -> tuple[int, dict[str, object]]:
    done = run("status", "--data-dir", str(data), "--json")
    return done.returncode, json.loads(done.stdout)


def test_a_daemon_is_started_shown_and_stopped(data: Path) -> None:
    assert status(data) == (
        3,
        {
            "running": False,
            "accepting": False,
            "pid": None,
            "address": None,
            "data_dir": str(data),
        },
    )
    done = start(data, "--set", "num.partition=3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("odradek ready on ")
    ignored = "unknown setting num.partition is ignored; did you mean num.partitions?"
    assert done.stderr == f"odradek: warning: {ignored}\n"
    code, told = status(data)
    assert (code, told["running"], told["accepting"]) == (0, True, True)
    assert f"pid {told['pid']}" in done.stdout
    assert ask_versions(str(told["address"])).error_code == 0
    again = start(data)
    assert (again.returncode, again.stdout) == (1, "")
    assert f"running already: pid {told['pid']}" in again.stderr
    served = run("serve", "--data-dir", str(data))
    assert (served.returncode, served.stdout) == (1, "")
    assert f"running already: pid {told['pid']}, {told['address']}" in served.stderr
    elsewhere = run("start", "--data-dir", str(data / "new"), "--listen", str(told["address"]))
    assert elsewhere.returncode == 1
    assert "is in use by another program; the setting listeners" in elsewhere.stderr
    assert not (data / "new").exists()
    assert '"event": "ready"' in (data / "odradek.log").read_text()
    stopped = run("stop", "--data-dir", str(data))
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert status(data)[0] == 3
    assert not (data / "odradek.pid").exists()
    nobody = run("stop", "--data-dir", str(data))
    assert nobody.returncode == 3
    assert "no broker is running" in nobody.stderr


@pytest.mark.parametrize("by", budget.of_which(["option", "file"], ["file"]))
@pytest.mark.full
def test_a_daemon_runs_on_several_data_directories(tmp_path: Path, by: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    where = ["--data-dir", f"{first},{second}"]
    if by == "file":
        settings = tmp_path / "server.properties"
        settings.write_text(f"log.dirs={first},{second}\nmetadata.log.dir={second}\n")
        where = ["--config", str(settings)]
    home = first if by == "option" else second
    started = run("start", "--listen", "127.0.0.1:0", *where)
    try:
        assert started.returncode == 0, started.stderr
        assert run("status", *where).returncode == 0
        assert (first / "meta.properties").exists() and (second / "meta.properties").exists()
        assert (home / "__cluster_metadata-0").exists() and (home / "odradek.pid").exists()
    finally:
        assert run("stop", *where).returncode == 0
    assert (first / ".kafka_cleanshutdown").exists() and (second / ".kafka_cleanshutdown").exists()


@pytest.mark.full
def test_a_stale_pid_file_is_not_taken_for_a_broker(data: Path) -> None:
    data.mkdir()
    # A process with this number exists, and must not be mistaken for the broker.
    (data / "odradek.pid").write_text(f"{os.getpid()}\n127.0.0.1:1\n")
    assert status(data)[0] == 3
    assert run("stop", "--data-dir", str(data)).returncode == 3
    done = start(data)
    assert done.returncode == 0, done.stderr
    assert status(data)[0] == 0
    assert run("stop", "--data-dir", str(data)).returncode == 0


@pytest.mark.full
def test_a_killed_broker_is_seen_as_gone_and_starts_again(data: Path) -> None:
    assert start(data).returncode == 0
    pid = status(data)[1]["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while status(data)[0] == 0:
        assert time.monotonic() < deadline
    assert (data / "odradek.pid").exists()
    done = start(data)
    assert done.returncode == 0, done.stderr
    assert run("stop", "--data-dir", str(data)).returncode == 0


def test_a_failed_start_tells_its_reason(data: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("start", "--listen", f"127.0.0.1:{port}", "--data-dir", str(data))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = lines(done.stderr)
    assert line.startswith("odradek: ") and str(port) in line
    assert status(data)[0] == 3


@pytest.mark.full
def test_a_foreground_broker_is_shown_and_stopped_too(serve: Serve, tmp_path: Path) -> None:
    served = serve()
    code, told = status(tmp_path / "data")
    assert (code, told["pid"], told["address"]) == (0, served.process.pid, served.address)
    assert run("stop", "--data-dir", str(tmp_path / "data")).returncode == 0
    assert served.process.wait(PATIENCE_S) == 0


# --- SIGHUP, and other users' access to the directory ---------------------------------------------


def wait_for_event(log_file: Path, event: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not log_file.exists() or event not in log_file.read_text():
        assert time.monotonic() < deadline, f"{event!r} is not in {log_file}"
        time.sleep(0.01)


@pytest.mark.full
def test_n37_sighup_has_a_daemon_open_its_log_again(data: Path) -> None:
    assert start(data).returncode == 0
    told = status(data)[1]
    (data / "odradek.log").rename(data / "odradek.log-yesterday")
    assert isinstance(told["pid"], int)
    os.kill(told["pid"], signal.SIGHUP)
    wait_for_event(data / "odradek.log", "the log file was opened again")
    # The new file also gets text that is written to stderr without logging.
    assert os.path.samefile(f"/proc/{told['pid']}/fd/2", data / "odradek.log")
    assert ask_versions(str(told["address"])).error_code == 0
    assert status(data)[1]["pid"] == told["pid"]
    assert run("stop", "--data-dir", str(data)).returncode == 0
    assert "stopped" not in (data / "odradek.log-yesterday").read_text()


@pytest.mark.skipif(not shutil.which("logrotate", path=SBIN), reason="logrotate is not installed")
def test_n37_the_logrotate_block_of_the_documents_works(data: Path, tmp_path: Path) -> None:
    assert start(data).returncode == 0
    page = Path(__file__).parents[2] / "docs" / "operate" / "service.md"
    (block,) = [each for each in page.read_text().split("```") if each.startswith("text\n/var/lib")]
    rotate = tmp_path / "rotate.conf"
    rotate.write_text(block.removeprefix("text\n").replace("/var/lib/odradek", str(data)))
    rotate.chmod(0o644)
    state = ["--state", str(tmp_path / "state")]
    subprocess.run(
        ["logrotate", "--force", *state, str(rotate)],
        check=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PATH": SBIN},
    )
    wait_for_event(data / "odradek.log", "the log file was opened again")
    (rotated,) = data.glob("odradek.log-*")
    assert '"event": "ready"' in rotated.read_text()
    assert run("stop", "--data-dir", str(data)).returncode == 0


def test_n37_sighup_without_a_log_file_and_a_terminal_changes_nothing(tmp_path: Path) -> None:
    command = [*ODRADEK, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # SIGHUP gets its default action, as under systemd and in a shell: nohup would let it be
        # ignored.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        address = process.stdout.readline().split()[3]
        process.send_signal(signal.SIGHUP)
        while "SIGHUP changes nothing" not in (line := process.stderr.readline()):
            assert line
        assert ask_versions(address).error_code == 0
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.full
@pytest.mark.parametrize(
    "where",
    budget.of_which(
        ["closed terminal", "closed", "full", "pipe without a reader"], ["closed terminal", "full"]
    ),
)
def test_n37_a_broker_serves_though_its_ready_line_cannot_be_printed(
    tmp_path: Path, where: str
) -> None:
    data = tmp_path / "data"
    command = [*ODRADEK, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(data)]
    if where == "closed terminal":
        reader, output = pty.openpty()
    elif where == "pipe without a reader":
        reader, output = os.pipe()
    else:
        reader, output = -1, os.open("/dev/full", os.O_WRONLY)
    if reader >= 0:
        os.close(reader)
    with subprocess.Popen(
        ["bash", "-c", 'exec "$@" >&-', "bash", *command] if where == "closed" else command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(output)
        assert process.stderr is not None
        while "standard output cannot be written" not in (line := process.stderr.readline()):
            assert line
        running = PidFile(data).read()
        assert running is not None and f"odradek ready on {running.address}" in line
        assert ask_versions(running.address).error_code == 0
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert (data / ".kafka_cleanshutdown").exists()
    assert not (data / "odradek.pid").exists()


@pytest.mark.full
@pytest.mark.parametrize("ignored", [False, True], ids=["closed", "closed under nohup"])
def test_n37_a_closed_terminal_stops_a_foreground_broker_cleanly(
    tmp_path: Path, ignored: bool
) -> None:
    data = tmp_path / "data"
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(data)]
        os.execv(sys.executable, [*ODRADEK, *arguments])
    try:
        shown = b""
        while b"odradek ready on" not in shown:
            shown += os.read(terminal, 4096)
        os.close(terminal)
        if ignored:
            running = PidFile(data).read()
            assert running is not None
            assert ask_versions(running.address).error_code == 0
            os.kill(pid, signal.SIGTERM)
        _, ended = os.waitpid(pid, 0)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    assert os.waitstatus_to_exitcode(ended) == 0
    assert (data / ".kafka_cleanshutdown").exists()
    assert not (data / "odradek.pid").exists()


@pytest.mark.full
@pytest.mark.parametrize("command", budget.of_which(["serve", "start"], ["start"]))
def test_l59_a_new_data_directory_is_accessible_to_its_user_alone(
    serve: Serve, data: Path, command: str
) -> None:
    if command == "serve":
        served = serve(data_dir=data)
        assert served.line
        _, _, err = served.end()
    else:
        assert start(data).returncode == 0
        assert run("stop", "--data-dir", str(data)).returncode == 0
        err = (data / "odradek.log").read_text()
    directories = [data, *(path for path in data.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directories} == {0o700}
    assert "may look into" not in err


@pytest.mark.parametrize(
    ("mode", "warned"),
    budget.of_which([(0o755, True), (0o751, True), (0o750, False)], [(0o751, True)]),
)
def test_l59_a_data_directory_open_to_others_is_kept_with_a_warning(
    serve: Serve, data: Path, mode: int, warned: bool
) -> None:
    data.mkdir()
    data.chmod(mode)
    served = serve(data_dir=data)
    assert served.line
    _, _, err = served.end()
    assert ("can read the data directory" in err) is warned
    assert (f"chmod o-rwx {data}" in err) is warned
    assert stat.S_IMODE(data.stat().st_mode) == mode


def test_the_data_directory_may_come_from_the_environment(tmp_path: Path) -> None:
    done = run("status", ODRADEK_DATA_DIR=str(tmp_path / "elsewhere"))
    assert (done.returncode, str(tmp_path / "elsewhere") in done.stdout) == (3, True)


# --- The pid file ---------------------------------------------------------------------------------


def test_a_full_disk_is_one_line_on_stderr_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pid_file = PidFile(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def full_at_its_start(main: Coroutine[Any, Any, None]) -> None:
        main.close()
        pid_file.claim(1, "127.0.0.1:9092")

    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr(os, "symlink", full)
    monkeypatch.setattr("odradek_broker.server.host.run", full_at_its_start)
    config, _ = parse_config({"log.dirs": str(tmp_path)})
    with pytest.raises(SystemExit) as caught:
        serving._run(config, lambda _, __: None)
    assert caught.value.code == 1
    path = tmp_path / "odradek.pid"
    assert capsys.readouterr().err == (
        f"odradek: cannot serve: {path}: No space left on device; make room on its disk\n"
    )
    assert not path.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"0\n127.0.0.1:1\n",  # a signal to process 0 ends the whole process group
        b"-1\n127.0.0.1:1\n",
        b"99999999999999999999\n127.0.0.1:1\n",
        "\u00b2\n127.0.0.1:1\n".encode(),
        b"4711\nno address\n",
        b"4711\n127.0.0.1:99999\n",
        b"4711\n\x1b]0;owned\x07:1\n",
    ],
)
def test_a_pid_file_with_other_lines_names_no_broker(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odradek.pid"
    path.write_bytes(content)
    with path.open("rb") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        assert PidFile(tmp_path).read() is None


def test_a_pipe_in_place_of_the_pid_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "odradek.pid")
    assert PidFile(tmp_path).read() is None


def test_a_pid_file_is_written_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pid file is empty, and its content is in a symbolic link: neither needs a free block."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    pid_file = PidFile(tmp_path)
    pid_file.claim(4711, "127.0.0.1:9092")
    assert PidFile(tmp_path).read() == RunningBroker(4711, "127.0.0.1:9092")
    pid_file.release()
    assert list(tmp_path.iterdir()) == []
    pid_file.claim(4711, "127.0.0.1:9092")
    monkeypatch.undo()
    # The symbolic link remains, as after a kill of the broker.
    assert pid_file._fd is not None
    os.close(pid_file._fd)
    assert PidFile(tmp_path).read() is None
    after = PidFile(tmp_path)
    after.claim(4712, "127.0.0.1:9093")
    assert PidFile(tmp_path).read() == RunningBroker(4712, "127.0.0.1:9093")
    after.release()
    assert list(tmp_path.iterdir()) == []


def test_a_pid_file_is_claimed_by_one_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek_cli.broker.pid_file._CLAIM_TIMEOUT_S", 0.0)
    first, second = PidFile(tmp_path), PidFile(tmp_path)
    assert first.read() is None
    first.claim(17, "h:1")
    assert second.read() == RunningBroker(17, "h:1")
    with pytest.raises(PidFileBusyError):
        second.claim(18, "h:2")
    first.release()
    first.release()
    assert second.read() is None
    second.claim(18, "h:2")
    assert first.read() == RunningBroker(18, "h:2")
    second.release()


# --- The table of subcommands ---------------------------------------------------------------------


def imported_by(*arguments: str) -> set[str]:
    """The modules that a command of the command line has imported when it ends."""
    code = (
        "import sys\n"
        f"sys.argv = ['odradek', *{list(arguments)!r}]\n"
        "from odradek_cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_neither_broker_nor_client(arguments: list[str]) -> None:
    roots = {name.split(".")[0] for name in imported_by(*arguments)}
    assert not roots & {"odradek_broker", "odradek_client", "pyspark", "pyspark_odradek", "pyarrow"}


def test_a_broker_imports_neither_client_nor_spark(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        imported = imported_by("serve", "--listen", address, "--data-dir", str(tmp_path))
    roots = {name.split(".")[0] for name in imported}
    assert "odradek_broker.node" in imported
    assert not roots & {"odradek_client", "pyspark", "pyspark_odradek", "pyarrow"}
    # These modules import slowly, and are not needed before the first client or scrape.
    assert not imported & {"email", "importlib.metadata", "odradek_broker.handlers.join_group"}


def test_every_subcommand_loads_and_has_help() -> None:
    from typer.testing import CliRunner

    for row in COMMANDS:
        result = CliRunner().invoke(build_app([row.name]), [row.name, "--help"])
        assert result.exit_code == 0, (row.name, result.output)
        assert "Usage:" in result.output


# --- For the program that started the broker ------------------------------------------------------


def test_the_port_file_exists_while_the_broker_is_ready(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "port"
    path.write_text("what a killed broker has left\n")
    served = serve("--port-file", str(path))
    assert path.read_text() == f"{served.address}\n\n"
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("port")] == ["port"]
    assert served.end()[0] == 0
    assert not path.exists()


def test_the_second_line_of_a_port_file_is_the_address_for_faults(
    serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "port"
    served = serve("--testing", "--port-file", str(path))
    address, http = path.read_text().splitlines()
    assert served.line.endswith(f", faults on {http}\n")
    ask_versions(address)
    Faults.at(http).clear()
    served.end(signal.SIGKILL)
    path.write_text("of another broker\n")
    other = PortFile(path)
    other.write("127.0.0.1:1", "")
    path.write_text("of a third one\n")
    other.remove()
    assert path.exists()


def test_a_port_file_that_cannot_be_written_is_an_error(data: Path, tmp_path: Path) -> None:
    done = run("serve", "--data-dir", str(data), "--port-file", str(tmp_path / "no" / "port"))
    assert done.returncode == 2
    (line,) = lines(done.stderr)
    assert "cannot write the port file" in line and "no such folder" in line


def test_a_daemon_writes_and_removes_its_port_file(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "port"
    listen = ("--listen", "127.0.0.1:0", "--data-dir", str(data), "--port-file", str(path))
    started = run("start", *listen)
    try:
        assert f"odradek ready on {path.read_text().splitlines()[0]} " in started.stdout
    finally:
        run("stop", "--data-dir", str(data))
    assert not path.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_broker_ends_with_the_process_that_started_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "port"
    arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    command = [*ODRADEK, "serve", *arguments, "--port-file", str(path), "--exit-with-parent"]
    program = (
        "import subprocess, sys; child = subprocess.Popen(sys.argv[1:]); print(child.pid, flush=True);"
        " child.wait()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, *command], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    try:
        wait_until(path.exists, "the broker is ready")
        parent.send_signal(number)
        parent.wait(PATIENCE_S)
        wait_until(lambda: not path.exists(), "a clean stop removes the port file")
        wait_until(lambda: not is_running(pid), "the broker has ended")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        parent.kill()
        parent.communicate()


def is_running(pid: int) -> bool:
    """True if the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.strip()[:1] not in ("", "Z")


# --- The small parser of serve's options ----------------------------------------------------------


def plain(*arguments: str, **environment: str) -> ServeOptions | None:
    return parse_plain(arguments, environment)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--listen", "127.0.0.1:0"],
        ["--listen=127.0.0.1:0", "--data-dir=/d"],
        ["--set", "a=b", "--set=c=d=e", "--config", "/f"],
        ["--data-dir", "/d", "--data-dir", "/e", "--log-file", "/l"],
        ["--testing", "--listen", "127.0.0.1:0"],
        ["--port-file", "/p", "--exit-with-parent"],
        ["--set", "a=b", "--emulate", "kafka-3.9"],
    ],
)
@pytest.mark.parametrize("environment", [{}, {"ODRADEK_DATA_DIR": "/env"}])
def test_the_small_option_parser_reads_options_like_typer(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str]
) -> None:
    from typer.testing import CliRunner

    served: list[ServeOptions] = []
    monkeypatch.setattr("odradek_cli.broker.serving.serve", served.append)
    monkeypatch.delenv("ODRADEK_DATA_DIR", raising=False)
    result = CliRunner().invoke(build_app(["serve"]), ["serve", *arguments], env=environment)
    assert result.exit_code == 0, result.output
    assert served == [plain(*arguments, **environment)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-h"],
        ["x"],
        ["--listen"],
        ["--listen", "--set"],
        ["--liste", "a:1"],
        ["a=b"],
        ["--testing=1"],
        ["--exit-with-parent=1"],
    ],
)
def test_the_small_option_parser_leaves_other_options_to_typer(arguments: list[str]) -> None:
    assert plain(*arguments) is None


def test_imports_run_without_garbage_collection_and_are_frozen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[str] = []
    for name in ("disable", "freeze", "enable"):
        monkeypatch.setattr(gc, name, partial(calls.append, name))

    async def serves(*_: object, **__: object) -> None:
        calls.append("serves")

    monkeypatch.setattr("odradek_broker.server.server.serve", serves)
    monkeypatch.setattr("odradek_broker.server.host.run", asyncio.run)
    monkeypatch.setattr("odradek_broker.platform.log_lines.configure_logging", lambda *_: None)
    serving.serve(ServeOptions(data_dir=tmp_path / "data"))
    assert calls == ["disable", "freeze", "enable", "serves"]


def test_serve_does_not_import_modules_of_other_subcommands(tmp_path: Path) -> None:
    found = imported_by("serve", "--listen", "256.0.0.1:0", "--data-dir", str(tmp_path))
    roots = {name.split(".")[0] for name in found}
    assert "odradek_broker" in roots
    assert not roots & {"typer", "rich", "pydantic", "prometheus_client"}
    assert not any(name.startswith("odradek_testkit.fault_control") for name in found)
