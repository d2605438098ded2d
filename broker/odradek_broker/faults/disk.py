"""The files of a disk that can be ordered to be slow or full."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from odradek_broker.faults.rules import Action, Rule, Rules
from odradek_broker.platform.seams import Buffer, Clock, File


class DiskFaults:
    """Asked before every write and every sync, from several threads. `sleep`: seconds. `lock`: of
    these threads."""

    def __init__(
        self,
        rules: Rules,
        clock: Clock,
        sleep: Callable[[float], None],
        lock: AbstractContextManager[Any],
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._sleep = sleep
        self._lock = lock

    def before_write(self) -> None:
        """OSError (ENOSPC) while the disk is full."""
        if self._meet(Action.FULL_DISK) is not None:
            raise OSError(errno.ENOSPC, "No space left on device (ordered)")

    def before_sync(self) -> None:
        """Takes as long as a slow disk does."""
        slow = self._meet(Action.SLOW_DISK)
        if slow is not None:
            self._sleep(slow.delay_ms / 1000)

    def _meet(self, action: Action) -> Rule | None:
        with self._lock:
            return self._rules.meet_disk(action, self._clock.monotonic_ms())

    def wrap(self, file: File) -> File:
        """The same file, on this disk."""
        return _FaultyFile(file, self)


class _FaultyFile:
    """A `File`. A write that meets a full disk writes nothing."""

    __slots__ = ("_disk", "_file", "close", "read_at", "size", "truncate")

    def __init__(self, file: File, disk: DiskFaults) -> None:
        self._file = file
        self._disk = disk
        self.read_at = file.read_at
        self.size = file.size
        self.truncate = file.truncate
        self.close = file.close

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._disk.before_write()
        return self._file.append(buffers)

    def sync(self) -> None:
        self._disk.before_sync()
        self._file.sync()
