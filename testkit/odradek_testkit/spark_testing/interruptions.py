"""Injected interruptions of a running query, with times from a seed, and their effects inside a
task.

A `Gate` is called for every row that a query writes. In the first task of the chosen batch it
reports that it was reached, waits as long as required, and then lets the rows pass or fails. It
communicates with the test through files in a directory of the run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: All kinds, by name.
INTERRUPTIONS = {
    "stop": "the query is stopped in the middle of a batch",
    "task": "one task fails, and may be tried again",
    "batch": "one task fails however often it is tried, after others of its batch have written",
    "commit": "Spark ends when the sink has committed a batch, and Spark has not noted it",
    "broker": "the broker is killed and comes back",
}
#: The kinds that stop a task until the test has carried out the interruption.
_HELD = frozenset({"stop", "broker"})
_HELD_S_MAX = 60.0
_OTHERS_S_MAX = 10.0
_STEP_S = 0.05
BATCHES_PER_RUN = 2


class InjectedFailure(RuntimeError):
    """The failure of a task that a test has injected."""


@dataclass(frozen=True)
class Interruption:
    """A failure that the test will cause. `batch`: the number of the batch in its run, from 0.
    `after_others`: wait until the output topic contains rows that other tasks of the batch have
    written."""

    kind: str
    batch: int
    after_others: bool

    def __str__(self) -> str:
        when = ", others having written" if self.after_others else ""
        return f"{self.kind} (batch {self.batch} of its run{when})"


def plan(seed: int, kinds: Sequence[str]) -> list[Interruption]:
    """Each kind once, in an order and at times that depend on the seed. Raises ValueError for an
    unknown kind."""
    unknown = sorted(set(kinds) - INTERRUPTIONS.keys())
    if unknown:
        raise ValueError(
            f"there is no interruption {', '.join(unknown)}; there are {', '.join(INTERRUPTIONS)}"
        )
    chance = random.Random(seed)
    planned = []
    for kind in chance.sample(list(kinds), len(kinds)):
        after_others = kind == "batch" or chance.random() < 0.5
        # The number of rows that were written before a batch is known only for the first batch.
        batch = 0 if after_others else chance.randrange(BATCHES_PER_RUN)
        if kind == "commit":
            after_others, batch = False, BATCHES_PER_RUN - 1
        planned.append(Interruption(kind, batch, after_others))
    return planned


@dataclass
class Gate:
    """The part of an interruption that runs in Spark tasks. It is pickled into the tasks of one
    run.

    `folder`: a folder for only this run. `first_batch`: the id of the run's first batch. `written`:
    the number of records in the output topic before the run.
    """

    what: Interruption
    folder: Path
    first_batch: int
    bootstrap: str
    topic: str
    written: int
    _seen_attempt: int | None = field(default=None, repr=False)

    def __call__(self, value: Any) -> Any:
        """Return the value; InjectedFailure if the task is chosen to fail."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.taskAttemptId() != self._seen_attempt:
            self._seen_attempt = context.taskAttemptId()
            batch = context.getLocalProperty("streaming.sql.batchId")
            self._at_first_row(int(batch or 0), context.partitionId())
        return value

    @property
    def claim(self) -> Path:
        """A file that the first task creates, with its batch and partition."""
        return self.folder / "claim"

    @property
    def reached(self) -> Path:
        """A file that exists once the chosen task is at its interruption."""
        return self.folder / "reached"

    @property
    def go(self) -> Path:
        """A file that lets the stopped task continue."""
        return self.folder / "go"

    def _at_first_row(self, batch: int, partition: int) -> None:
        if batch < self.first_batch + self.what.batch:
            return
        name = f"{batch} {partition}"
        if not self._claim(name):
            if self.what.kind == "batch" and self.claim.read_text() == name:
                self._fail(name)
            return
        if self.what.after_others:
            self._wait_for_others()
        self.reached.touch()
        if self.what.kind in _HELD:
            _wait(self.go.exists, _HELD_S_MAX)
        else:
            self._fail(name)

    def _claim(self, name: str) -> bool:
        """True if this task is chosen for the interruption, because it is the first task of the run
        that calls `_claim`."""
        if self.claim.exists():
            return False
        own = self.folder / f"claim-{os.getpid()}"
        own.write_text(name)
        try:
            # The file appears with its whole content.
            os.link(own, self.claim)
        except FileExistsError:
            return False
        return True

    def _fail(self, name: str) -> None:
        raise InjectedFailure(f"task {name.split()[1]} of batch {name.split()[0]} fails on purpose")

    def _wait_for_others(self) -> None:
        """Wait until the topic has more records than before the run. The wait is limited, because
        this may be the only task."""
        _wait(lambda: end_of(self.bootstrap, self.topic) > self.written, _OTHERS_S_MAX)


def end_of(bootstrap: str, topic: str) -> int:
    """The number of offsets of a topic, in all of its partitions, committed or not."""
    from odradek_client import sync

    with sync.Consumer(bootstrap_servers=bootstrap) as consumer:
        partitions = [(topic, number) for number in consumer.partitions_for(topic)]
        return sum(consumer.end_offsets(*partitions).values())


def _wait(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(_STEP_S)
