"""The process for compaction: it starts when needed, ends with its parent, and can be killed
without a loss."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from compaction import job_for, swap
from compaction_history import batches_of
from logs import NOW_MS, append, make_batch, make_log
from odradek_broker.platform.machine import RealFiles
from odradek_broker.server.cleaner_process import CleanerProcess
from odradek_broker.server.cleaner_worker import Throttle
from odradek_broker.storage.cleaner.job import (
    CleaningFinished,
    CleaningJob,
    CleaningStep,
    GroupCleaned,
)
from odradek_broker.storage.cleaner.policy import log_to_clean
from odradek_broker.storage.cleaner.runner import CleaningFailed, CleaningFailure
from odradek_broker.storage.log import PartitionLog
from waiting import until


def filled(tmp_path: Path, batches: int = 60) -> PartitionLog:
    log = make_log(
        RealFiles(),
        directory=str(tmp_path / "t-0"),
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=1_000,
    )
    for number in range(batches):
        append(log, make_batch(key=b"k%d" % (number % 3), value=b"%d" % number))
    log.durability.flush()
    return log


def job_of(log: PartitionLog) -> CleaningJob:
    return job_for(log_to_clean(log, None, NOW_MS), NOW_MS)


async def begin(process: CleanerProcess, job: CleaningJob) -> CleaningStep | CleaningFailed:
    answer: asyncio.Future[CleaningStep | CleaningFailed] = (
        asyncio.get_running_loop().create_future()
    )
    process.begin(job, answer.set_result)
    return await answer


async def go_on(process: CleanerProcess) -> CleaningStep | CleaningFailed:
    answer: asyncio.Future[CleaningStep | CleaningFailed] = (
        asyncio.get_running_loop().create_future()
    )
    process.go_on(answer.set_result)
    return await answer


async def clean_all(process: CleanerProcess, log: PartitionLog) -> CleaningFinished:
    step = await begin(process, job_of(log))
    while isinstance(step, GroupCleaned):
        swap(log, step, NOW_MS)
        step = await go_on(process)
    assert isinstance(step, CleaningFinished), step
    return step


async def test_the_cleaner_process_compacts_a_log(tmp_path: Path) -> None:
    log = filled(tmp_path)
    process = CleanerProcess(asyncio.get_running_loop())
    assert process.pid is None, "started when it is first needed"
    finished = await clean_all(process, log)
    assert finished.records_read > finished.records_kept
    kept = [value for batch in batches_of(log) for _, _, value in batch.records]
    assert kept[-3:] == [b"57", b"58", b"59"] and len(kept) < 30
    process.close()


async def test_a_killed_cleaner_process_is_started_again(tmp_path: Path) -> None:
    log = filled(tmp_path)
    process = CleanerProcess(asyncio.get_running_loop())
    assert isinstance(await begin(process, job_of(log)), GroupCleaned)
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    answer = await go_on(process)
    assert isinstance(answer, CleaningFailed) and answer.failure is CleaningFailure.DIED
    await clean_all(process, log)
    assert process.pid not in (None, first)
    process.close()


async def test_an_idle_cleaner_process_ends(tmp_path: Path) -> None:
    log = filled(tmp_path)
    process = CleanerProcess(asyncio.get_running_loop(), idle_s=0.01)
    await clean_all(process, log)
    await until(lambda: process.pid is None)
    process.close()


async def test_the_cleaner_process_reports_a_damaged_segment(tmp_path: Path) -> None:
    log = filled(tmp_path)
    path = tmp_path / "t-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)
    process = CleanerProcess(asyncio.get_running_loop())
    answer = await begin(process, job_of(log))
    assert isinstance(answer, CleaningFailed) and answer.failure is CleaningFailure.DAMAGED
    process.close()


_PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "odradek_broker.server.cleaner_worker"],
                         stdin=subprocess.PIPE)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
def test_the_cleaner_process_ends_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    while _lives(child):
        pass


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_the_throttle_keeps_to_its_bytes_per_second() -> None:
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    throttle = Throttle(1_000.0, timer=lambda: now_s[0], sleep=sleep)
    for _ in range(100):
        throttle(50)
    assert abs(now_s[0] - 5.0) < 0.2
    unlimited = Throttle(1.7976931348623157e308, timer=lambda: now_s[0], sleep=sleep)
    before = now_s[0]
    unlimited(10**12)
    assert now_s[0] == before
