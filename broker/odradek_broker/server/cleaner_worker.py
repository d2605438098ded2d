"""The child process in which logs are compacted: it reads jobs from stdin and writes steps to
stdout.

    python -m odradek_broker.server.cleaner_worker

A job has several lines, "go on" is one line. An answer is a line of JSON with the type of a step
and its fields, or with the type of a failure and its text. The process ends when its parent ends,
even in the middle of a job.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import chain

from odradek_broker.platform.machine import RealFiles
from odradek_broker.storage.checkpoints import CLEANER_LOCK
from odradek_broker.storage.cleaner.cleaner import clean
from odradek_broker.storage.cleaner.job import Cleaning, CleaningJob, GroupCleaned
from odradek_broker.storage.cleaner.runner import failed

GO_ON = "go on"
_NICE = 10
_LOOK_AT_PARENT_S = 1.0
_READ_BYTES = 1024 * 1024
#: The time in which the child of a killed broker has to end.
_LOCK_WAIT_S = 30.0
_LOCK_PAUSE_S = 0.05
_THROTTLE_PAUSE_S = 0.1


class Throttle:
    """Kafka's throttler: sleeps so that the bytes per second stay below the limit."""

    def __init__(
        self,
        bytes_per_second: float,
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._timer = timer
        self._sleep = sleep
        self._began_s = timer()
        self._size_bytes = 0

    def __call__(self, size_bytes: int) -> None:
        """Count bytes, and sleep until the rate is within the limit."""
        self._size_bytes += size_bytes
        if self._size_bytes < self._bytes_per_second * _THROTTLE_PAUSE_S:
            return
        due_s = self._began_s + self._size_bytes / self._bytes_per_second
        wait_s = due_s - self._timer()
        if wait_s > 0:
            self._sleep(wait_s)
        self._began_s = self._timer()
        self._size_bytes = 0


def _read_lines(lines: queue.SimpleQueue[str]) -> None:
    """Pass lines on until the parent has ended; then end this process, even in the middle of a
    job."""
    parent = os.getppid()
    rest = b""
    while True:
        ready, _, _ = select.select([0], [], [], _LOOK_AT_PARENT_S)
        if os.getppid() != parent:
            os._exit(0)
        if not ready:
            continue
        content = os.read(0, _READ_BYTES)
        if not content:
            os._exit(0)
        *whole, rest = (rest + content).split(b"\n")
        for line in whole:
            lines.put(line.decode())


def _take_lock(data_dir: str) -> int:
    """Lock the data directory, since the cleaner of a killed broker may still run. Raises
    OSError."""
    fd = os.open(f"{data_dir}/{CLEANER_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline_s = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                os.close(fd)
                raise
            time.sleep(_LOCK_PAUSE_S)


def _answer(cleaning: Cleaning) -> str:
    try:
        step = next(cleaning)
    except Exception as problem:  # noqa: BLE001 - reported to the broker
        failure = failed(problem)
        return json.dumps({"failure": failure.failure.name, "text": str(failure)})
    kind = "group" if isinstance(step, GroupCleaned) else "finished"
    return json.dumps({kind: asdict(step)})


def main() -> None:
    """Clean logs as requested, one at a time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    files = RealFiles()
    locks: dict[str, int] = {}
    cleaning: Cleaning = iter(())
    while True:
        line = lines.get()
        if line != GO_ON:
            job = CleaningJob.from_lines(chain([line], iter(lines.get, None)))
            data_dir = os.path.dirname(job.directory)
            try:
                if data_dir not in locks:
                    locks[data_dir] = _take_lock(data_dir)
            except OSError as problem:
                print(json.dumps({"failure": "DISK", "text": str(problem)}), flush=True)
                continue
            cleaning = clean(job, files, Throttle(job.io_bytes_per_second))
        sys.stdout.write(_answer(cleaning) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
