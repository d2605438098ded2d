"""The files of a disk with an ordered fault: full or slow."""

from __future__ import annotations

import errno
from pathlib import Path
from threading import Lock

import pytest

from odradek_broker.faults.rules import Action, DiskFaults, Rule, Rules
from odradek_broker.platform.machine import RealFiles


class StandingClock:
    now_ms = 5

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def test_a_full_and_a_slow_disk(tmp_path: Path) -> None:
    rules, slept, clock = Rules(), list[float](), StandingClock()
    disk = DiskFaults(rules, clock, slept.append, Lock())
    file = RealFiles(str(tmp_path)).with_files(disk.wrap).open("f", create=True)
    assert file.append([b"one"]) == 3
    file.sync()
    full = rules.add(Rule(Action.FULL_DISK), 0)
    with pytest.raises(OSError, match="No space left") as caught:
        file.append([b"two"])
    assert caught.value.errno == errno.ENOSPC
    assert (file.size(), file.read_at(0, 9)) == (3, b"one")
    rules.remove(full.number)
    rules.add(Rule(Action.SLOW_DISK, delay_ms=250, until_ms=10), 0)
    assert file.append([b"two"]) == 3
    file.sync()
    clock.now_ms = 10
    file.sync()
    assert slept == [0.25]
    file.truncate(3)
    assert file.size() == 3
    file.close()
