"""A broker as its users run it: a process, a port, a data directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

DEADLINE_S = 20.0
_READY = re.compile(r"127\.0\.0\.1:(\d+)")


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Look again and again until it holds; fails with `what` when the deadline passes."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {deadline_s} s until {what}")
        time.sleep(0.005)


class BrokerProcess:
    """`odradek serve` on a free port, with its data and its output below `folder`."""

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        self._out, self._err = folder / "stdout.txt", folder / "stderr.txt"
        self._command = [sys.executable, "-m", "odradek", "serve", "--listen", "127.0.0.1:0"]
        self._command += ["--data-dir", str(folder / "data")]
        for setting in settings:
            self._command += ["--set", setting]
        self.port = 0

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Returns when it has said that it is ready. `environment` is added to this process's."""
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(environment or {})},
            )
        wait_until(self._is_ready, "the broker is ready")

    def _is_ready(self) -> bool:
        self.assert_alive()
        found = _READY.search(self._out.read_text())
        if found is not None:
            self.port = int(found[1])
        return found is not None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._err.read_text()

    def assert_alive(self) -> None:
        code = self._process.poll()
        if code is not None:
            pytest.fail(f"the broker ended with {code}:\n{self.log}")

    def memory_bytes(self) -> int:
        """Resident memory. Linux only."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def memory_peak_bytes(self) -> int:
        """The most resident memory it ever had. Linux only."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def kill(self) -> None:
        """SIGKILL: where nobody wants what it wrote, and to write it out would take long."""
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def stop(self) -> None:
        """SIGTERM; it must end by itself, with 0."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            code = self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(DEADLINE_S)
            pytest.fail(f"the broker did not end in {DEADLINE_S} s:\n{self.log}")
        assert code == 0, self.log
