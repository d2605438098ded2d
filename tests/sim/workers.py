"""Worker processes for all cores: each gets one task at a time, over its own pipe.

`concurrent.futures` is not used: its processes share a pipe, and when one is killed in the middle
of a result, the reader waits for the rest as long as any other process lives.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

Task = TypeVar("Task")
Outcome = TypeVar("Outcome")

#: The number of tasks per worker that may begin before the oldest has ended.
_AHEAD = 4


class WorkerEndedError(Exception):
    """A worker process ended before it had finished its task. `task`: the task in progress."""

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        self.task = task

    def __str__(self) -> str:
        return (
            "a worker process ended before its work, as one that is killed or finds no memory;"
            f" it was running {self.task}"
        )


@dataclass
class _Worker(Generic[Task]):
    process: BaseProcess
    pipe: Connection
    number: int = -1
    task: Task | None = None

    def begin(self, number: int, task: Task) -> None:
        self.number, self.task = number, task
        try:
            self.pipe.send(task)
        except OSError as problem:
            raise WorkerEndedError(task) from problem

    def result(self) -> Any:
        try:
            done, outcome = self.pipe.recv()
        except (EOFError, OSError) as problem:
            raise WorkerEndedError(self.task) from problem
        self.task = None
        if not done:
            raise outcome
        return outcome


def in_workers(
    work: Callable[[Task], Outcome], tasks: Iterable[Task]
) -> Iterator[tuple[Task, Outcome]]:
    """Yield each task with the result of `work`, in the order of the tasks.

    Raises the errors of `work`, and WorkerEndedError when a worker is killed from outside. Workers
    ignore Ctrl+C, and end when this process ends.
    """
    workers: list[_Worker[Task]] = []
    try:
        _start(work, workers)
        yield from _distribute(workers, enumerate(tasks))
    finally:
        for worker in workers:
            worker.process.kill()
            worker.pipe.close()
            worker.process.join()


def worker_count() -> int:
    """One process per core."""
    return os.cpu_count() or 1


def _start(work: Callable[[Any], Any], workers: list[_Worker[Any]]) -> None:
    # SIGINT is blocked until all workers exist: an interrupt while they start would be lost.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for _ in range(worker_count()):
            ours, theirs = multiprocessing.Pipe()
            others = [worker.pipe for worker in workers]
            process = multiprocessing.Process(
                target=_serve, args=(work, theirs, [*others, ours]), daemon=True
            )
            process.start()
            # Only the worker keeps this end of the pipe open, so that the pipe is closed when the
            # worker dies.
            theirs.close()
            workers.append(_Worker(process, ours))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _distribute(
    workers: Sequence[_Worker[Task]], tasks: Iterator[tuple[int, Task]]
) -> Iterator[tuple[Task, Any]]:
    ended: dict[int, tuple[Task, Any]] = {}
    wanted = 0
    while True:
        # Results are handed out first, because that makes room for more tasks.
        while wanted in ended:
            yield ended.pop(wanted)
            wanted += 1
        for worker in workers:
            ahead = max((each.number for each in workers), default=-1) - wanted
            if worker.task is None and ahead < _AHEAD * len(workers):
                for number, task in tasks:
                    worker.begin(number, task)
                    break
        busy = {worker.pipe: worker for worker in workers if worker.task is not None}
        if not busy:
            return
        for pipe in wait(list(busy)):
            worker = busy[pipe]  # type: ignore[index]
            begun = worker.task
            assert begun is not None
            ended[worker.number] = (begun, worker.result())


def _serve(work: Callable[[Any], Any], pipe: Connection, others: Iterable[Connection]) -> None:
    """The loop of a worker, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:
        other.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(_outcome(work, pipe.recv()))


def _outcome(work: Callable[[Any], Any], task: Any) -> tuple[bool, Any]:
    try:
        return True, work(task)
    except Exception as problem:  # noqa: BLE001 - the process that gave the task raises it
        problem.add_note(traceback.format_exc())
        return False, problem
