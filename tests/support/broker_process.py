"""A broker in a process of its own, with a port and a data directory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from waiting import DEADLINE_S, wait_until

_READY = re.compile(r"127\.0\.0\.1:(\d+)")


class BrokerProcess:
    """`odradek serve` on a free port, with its data and its output below `folder`.

    A restarted broker keeps its port.
    """

    _process: subprocess.Popen[bytes]

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        self._out, self._err = folder / "stdout.txt", folder / "stderr.txt"
        self._settings = [word for setting in settings for word in ("--set", setting)]
        self.data_dir = folder / "data"
        self.port = 0

    def start(
        self,
        environment: Mapping[str, str] | None = None,
        meanwhile: Callable[[], object] = lambda: None,
        open_files_max: int | None = None,
    ) -> None:
        """Start the broker and return when it is ready.

        `environment`: variables in addition to those of this process. `open_files_max`: the limit
        of its open files; None: that of this process.
        """
        command = [sys.executable, "-m", "odradek", "serve", "--listen", self.address]
        command += ["--data-dir", str(self.data_dir), *self._settings]
        if open_files_max is not None:
            command = ["sh", "-c", f'ulimit -n {open_files_max}; exec "$@"', "sh", *command]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(environment or {})},
            )
        wait_until(self._is_ready, "the broker is ready", meanwhile=meanwhile)

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
        """The log so far."""
        return self._err.read_text()

    def assert_alive(self) -> None:
        code = self._process.poll()
        if code is not None:
            pytest.fail(f"the broker ended with {code}:\n{self.log}")

    def memory_bytes(self) -> int:
        """The resident memory in bytes. Linux only."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def memory_peak_bytes(self) -> int:
        """The highest resident memory so far, in bytes. Linux only."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def kill(self) -> None:
        """Send SIGKILL; fails if the broker is not running."""
        self._process.kill()
        assert self._process.wait(DEADLINE_S) == -signal.SIGKILL, self.log

    def clean_up(self) -> None:
        """Clean up after a failed test: send SIGKILL if the broker is running or starting."""
        if hasattr(self, "_process") and self._process.poll() is None:
            self._process.kill()
            self._process.wait(DEADLINE_S)

    def stop(self) -> None:
        """Send SIGTERM; fails unless the broker exits with 0."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            code = self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(DEADLINE_S)
            pytest.fail(f"the broker did not end in {DEADLINE_S} s:\n{self.log}")
        assert code == 0, self.log
