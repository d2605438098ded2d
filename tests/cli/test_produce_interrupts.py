"""Ctrl+C and SIGTERM while `odradek produce` waits for input, on a real terminal and on pipes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from cli_runner import PATIENCE_S, Shell
from odradek import NewTopic, sync

if TYPE_CHECKING:
    from odradek.broker import SubprocessBroker

#: A program that makes its standard input the controlling terminal, so that Ctrl+C sends a signal,
#: and then executes `odradek`.
_ON_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "odradek", *sys.argv[1:]])
"""
CTRL_C = b"\x03"
CTRL_D = b"\x04"


class Terminal:
    """A running command on a pseudo terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self) -> tuple[int, str]:
        """Wait for the end of the command; returns the exit code, and the output that was not read
        before."""
        seen = b""
        # EIO means that the command has closed its side of the terminal.
        try:
            while data := os.read(self._master, 4096):
                seen += data
        except OSError:
            pass
        return self.process.wait(PATIENCE_S), seen.decode().replace("\r\n", "\n")


@contextmanager
def terminal(shell: Shell, *arguments: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _ON_A_TERMINAL, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=shell.environment,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        os.close(master)


def wait_for_records(shell: Shell, topic: str, count: int) -> None:
    """Wait until the topic's only partition has `count` records."""
    bootstrap = shell.environment["ODRADEK_BOOTSTRAP"]
    with sync.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        seen = 0
        while seen < count:
            seen += len(consumer.poll(1_000))


@pytest.fixture
def topic(shell: Shell, unique_topic: str) -> str:
    with sync.Admin(bootstrap_servers=shell.environment["ODRADEK_BOOTSTRAP"]) as admin:
        admin.create_topics(NewTopic(unique_topic, 1))
    return unique_topic


def test_ctrl_c_at_the_prompt_tells_the_number_of_acknowledged_records(
    shell: Shell, topic: str
) -> None:
    with terminal(shell, "produce", topic) as person:
        person.type(b"one\ntwo\n")
        wait_for_records(shell, topic, 2)
        person.type(CTRL_C)
        code, seen = person.end()
    assert code == 130
    assert seen.endswith("of 2 records 2 are acknowledged\n")
    assert "Traceback" not in seen


@pytest.mark.full
def test_ctrl_c_in_the_middle_of_a_line_does_not_send_it(shell: Shell, topic: str) -> None:
    with terminal(shell, "produce", topic) as person:
        person.type(b"whole\n")
        wait_for_records(shell, topic, 1)
        person.type(b"half" + CTRL_C)
        code, seen = person.end()
    assert (code, seen.splitlines()[-1]) == (130, "of 1 record 1 is acknowledged")
    assert shell.run("consume", topic, "-e") == b"whole\n"


@pytest.mark.full
def test_ctrl_d_is_the_end_of_the_input(shell: Shell, topic: str) -> None:
    with terminal(shell, "produce", topic) as person:
        person.type(b"one\n" + CTRL_D)
        code, seen = person.end()
    assert code == 0
    assert "acknowledged" not in seen
    assert shell.run("consume", topic, "-e") == b"one\n"


@pytest.mark.full
def test_ctrl_c_twice_does_not_wait_for_a_broker_that_hangs(
    odradek_broker: SubprocessBroker,
) -> None:
    shell, pid = Shell(odradek_broker.bootstrap), odradek_broker.pid
    assert pid is not None
    shell.run("topic", "create", "t", "--partitions", "1")
    with terminal(shell, "produce", "t") as person:
        person.type(b"one\n")
        wait_for_records(shell, "t", 1)
        os.kill(pid, signal.SIGSTOP)
        try:
            person.type(b"two\n")
            person.type(CTRL_C + CTRL_C)
            code, seen = person.end()
        finally:
            os.kill(pid, signal.SIGCONT)
    assert code == 130
    assert "Traceback" not in seen
    assert "of 2 records 1 is acknowledged, 1 may be written or not" in seen or (
        # Ctrl+C discards a line that the command has not read yet.
        "of 1 record 1 is acknowledged" in seen
    )


@pytest.mark.full
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_idle_pipe_does_not_delay_the_exit_on_a_signal(
    shell: Shell, topic: str, number: signal.Signals, code: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek", "produce", topic],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=shell.environment,
    )
    assert process.stdin is not None
    with process:
        process.stdin.write(b"one\nhal")
        process.stdin.flush()
        wait_for_records(shell, topic, 1)
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == code
        assert process.stderr is not None
        assert process.stderr.read() == b"of 1 record 1 is acknowledged\n"


def test_an_interrupted_transaction_is_not_committed(shell: Shell, topic: str) -> None:
    with terminal(shell, "produce", topic, "--transactional-id", topic) as person:
        person.type(b"one\n")
        wait_for_records(shell, topic, 1)
        person.type(CTRL_C)
        code, seen = person.end()
    assert code == 130
    assert "the transaction was not committed: consumers of committed records see none" in seen
    assert shell.run("consume", topic, "-e", "--read-committed") == b""
    assert "CompleteAbort" in shell.run("txn", "describe", topic).decode()


def test_the_test_terminals_send_a_signal_on_ctrl_c() -> None:
    """If Ctrl+C sent no signal here, the tests above would prove nothing."""
    master, slave = pty.openpty()
    try:
        assert termios.tcgetattr(slave)[3] & termios.ISIG
        assert termios.tcgetattr(slave)[6][termios.VINTR] == CTRL_C
    finally:
        os.close(master)
        os.close(slave)
