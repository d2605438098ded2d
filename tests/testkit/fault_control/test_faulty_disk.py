"""The files of a disk with an injected fault: full or slow."""

from __future__ import annotations

import errno
from pathlib import Path
from threading import Lock

import pytest

from odradek_broker.platform.machine import RealFiles
from odradek_broker.platform.seams import BLOCK_BYTES
from odradek_testkit.fault_control.rules import DiskFaults, FaultEffect, FaultRule, FaultRules


class StandingClock:
    now_ms = 5

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def test_full_and_slow_disk_faults_affect_files(tmp_path: Path) -> None:
    rules, slept, clock = FaultRules(), list[float](), StandingClock()
    disk = DiskFaults(rules, clock, slept.append, Lock())
    file = RealFiles(str(tmp_path)).with_files(disk.wrap, disk.wrap_blocks).open("f", create=True)
    assert file.append([b"one"]) == 3
    file.sync()
    full = rules.add(FaultRule(FaultEffect.FULL_DISK), 0)
    with pytest.raises(OSError, match="No space left") as caught:
        file.append([b"two"])
    assert caught.value.errno == errno.ENOSPC
    assert (file.size(), file.read_at(0, 9)) == (3, b"one")
    rules.remove(full.number)
    rules.add(FaultRule(FaultEffect.SLOW_DISK, delay_ms=250, until_ms=10), 0)
    assert file.append([b"two"]) == 3
    file.sync()
    clock.now_ms = 10
    file.sync()
    assert slept == [0.25]
    file.truncate(3)
    assert file.size() == 3
    file.close()


def test_a_slow_disk_fault_delays_block_writes_and_a_full_disk_fault_does_not(
    tmp_path: Path,
) -> None:
    rules, slept = FaultRules(), list[float]()
    disk = DiskFaults(rules, StandingClock(), slept.append, Lock())
    files = RealFiles(str(tmp_path)).with_files(disk.wrap, disk.wrap_blocks)
    (tmp_path / "blocks").write_bytes(bytes(2 * BLOCK_BYTES))
    file = files.open_blocks("blocks")
    rules.add(FaultRule(FaultEffect.FULL_DISK), 0)
    file.write_at(BLOCK_BYTES, [b"one"])
    slow = rules.add(FaultRule(FaultEffect.SLOW_DISK, delay_ms=250), 0)
    file.write_at(0, [b"two"])
    assert (slow.met, slept) == (1, [0.25])
    file.close()
    written = (tmp_path / "blocks").read_bytes()
    assert written[:3] + written[BLOCK_BYTES : BLOCK_BYTES + 3] == b"twoone"
