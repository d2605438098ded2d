"""The broker's side of the cleaner's child process. The first cleaning starts the process; after
its death, the next cleaning starts it again.

A thread waits for the answers of the process, so that the event loop never waits for them.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import subprocess
import sys
from contextlib import suppress
from threading import Thread
from typing import Any

from odradek_broker.server.cleaner_worker import GO_ON
from odradek_broker.storage.cleaner.job import (
    CleaningFinished,
    CleaningJob,
    CleaningStep,
    GroupCleaned,
)
from odradek_broker.storage.cleaner.runner import CleaningDone, CleaningFailed, CleaningFailure

#: A process without work is ended after this time, to free its memory.
_IDLE_S = 60.0
_END_S = 10.0


class CleanerProcess:
    """A `CleanerRunner` with a child process. All methods but `_work` run on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, idle_s: float = _IDLE_S) -> None:
        self._loop = loop
        self._idle_s = idle_s
        self._requests: queue.SimpleQueue[tuple[int, CleaningJob | None, CleaningDone] | None] = (
            queue.SimpleQueue()
        )
        self._thread: Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        #: The number of the present request. It grows with each request, and when a request is
        #: abandoned. An answer to a request with another number is dropped.
        self._number = 0
        self._waiting = False
        self._closed = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def begin(self, job: CleaningJob, done: CleaningDone) -> None:
        self._ask(job, done)

    def go_on(self, done: CleaningDone) -> None:
        self._ask(None, done)

    def _ask(self, job: CleaningJob | None, done: CleaningDone) -> None:
        if self._closed:
            return
        if self._thread is None:
            self._thread = Thread(target=self._work, name="odradek-cleaner", daemon=True)
            self._thread.start()
        self._number += 1
        self._waiting = True
        self._requests.put((self._number, job, done))

    def give_up(self) -> None:
        """Abandon the job, see `CleanerRunner`. A process that is at work is killed: the files that
        it leaves do not affect a later cleaning."""
        self._number += 1
        if self._waiting:
            self._waiting = False
            self._kill()

    def close(self) -> None:
        self._closed = True
        self.give_up()
        self._kill()
        self._requests.put(None)

    def _kill(self) -> None:
        process = self._process
        if process is not None:
            with suppress(OSError):
                process.kill()

    def _answered(
        self, number: int, answer: CleaningStep | CleaningFailed, done: CleaningDone
    ) -> None:
        if number == self._number and not self._closed:
            self._waiting = False
            done(answer)

    # ---- in the thread

    def _work(self) -> None:
        answer: CleaningStep | CleaningFailed | None = None
        while True:
            # The limit for a process without work does not apply between the steps of a cleaning.
            idle = self._process is not None and not isinstance(answer, GroupCleaned)
            try:
                request = self._requests.get(timeout=self._idle_s if idle else None)
            except queue.Empty:
                self._end()
                continue
            if request is None:
                self._end()
                return
            number, job, done = request
            answer = self._exchange(job)
            try:
                self._loop.call_soon_threadsafe(self._answered, number, answer, done)
            except RuntimeError:
                # The loop is closed, so there is no receiver for the result.
                self._end()
                return

    def _exchange(self, job: CleaningJob | None) -> CleaningStep | CleaningFailed:
        """Send a job, or the line that continues the present job, and wait for the answer."""
        try:
            process = self._process
            if process is None or process.poll() is not None:
                self._end()
                if job is None:
                    return CleaningFailed(CleaningFailure.DIED, "the cleaner's process ended")
                process = self._start()
            if self._closed:
                process.kill()
            assert process.stdin is not None and process.stdout is not None
            for line in [GO_ON] if job is None else job.to_lines():
                process.stdin.write(line + "\n")
                # Each line is flushed separately, so that other threads can run between two lines.
                process.stdin.flush()
            answer = process.stdout.readline()
        except OSError as problem:
            self._end()
            return CleaningFailed(
                CleaningFailure.DIED, f"the cleaner's process cannot be used: {problem}"
            )
        if not answer.endswith("\n"):
            status = process.wait()
            self._end()
            return CleaningFailed(
                CleaningFailure.DIED, f"the cleaner's process ended with status {status}"
            )
        return _step(json.loads(answer))

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "odradek_broker.server.cleaner_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The child needs the module path of this process, which an inherited environment might
            # lack.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            text=True,
        )
        return self._process

    def _end(self) -> None:
        """Close the pipes, so that the process ends; kill it if it does not."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _step(answer: dict[str, Any]) -> CleaningStep | CleaningFailed:
    if "group" in answer:
        fields = answer["group"]
        return GroupCleaned(tuple(fields["sources"]), fields["size_bytes"])
    if "finished" in answer:
        return CleaningFinished(**answer["finished"])
    return CleaningFailed(CleaningFailure[answer["failure"]], answer["text"])
