"""A group whose members, of several client libraries, join, leave and are killed at random."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Producer

import helper_process

PARTITIONS = 12
MEMBERS_MAX = 6
DEADLINE_S = 60.0


class Ownership(NamedTuple):
    """A period in which a member owned a partition. `lost`: the group had removed the member before
    the period ended."""

    member: str
    partition: int
    start: float
    end: float
    generation: int
    lost: bool


@dataclass
class Member:
    """A worker process, and its reports."""

    name: str
    process: subprocess.Popen[str]
    cooperative: bool
    values: set[str] = field(default_factory=set)
    past: list[Ownership] = field(default_factory=list)
    now: dict[int, tuple[float, int]] = field(default_factory=dict)
    ended: float | None = None

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kind, *words = line.split()
            if kind == "V":
                self.values.update(words)
            elif kind in ("A", "R", "L"):
                at, generation, *partitions = words
                self._note_event(
                    kind, float(at), int(generation), {int(each) for each in partitions}
                )
        self._release(set(self.now), self.ended or time.monotonic(), lost=False)

    def _note_event(self, kind: str, at: float, generation: int, partitions: set[int]) -> None:
        if kind != "A":
            self._release(partitions, at, lost=kind == "L")
            return
        if not self.cooperative:
            self._release(set(self.now) - partitions, at, lost=False)
        for each in partitions:
            self.now.setdefault(each, (at, generation))

    def _release(self, partitions: set[int], at: float, *, lost: bool) -> None:
        for each in partitions & set(self.now):
            start, generation = self.now.pop(each)
            self.past.append(Ownership(self.name, each, start, at, generation, lost))


class Churn:
    """Runs the group; `violations` returns the partitions that had two owners at
    the same time."""

    def __init__(
        self, address: str, topic: str, strategy: str, kinds: Sequence[str], seed: int
    ) -> None:
        self.address, self.topic, self.strategy = address, topic, strategy
        self.kinds = kinds
        self.group = f"group-{topic}"
        self._rng = random.Random(seed)
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 1, "log_level": 0})
        self._produced = 0
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self._threads: list[threading.Thread] = []

    # --- events -----------------------------------------------------------------------------------

    def run(self, operations: int, pause_max_s: float = 0.4) -> None:
        """Run a number of joins, leaves and kills, with records and a random pause between them.

        At the end one member with our client reads until every record is processed.
        """
        for _ in range(operations):
            self._produce(20)
            self._operate()
            time.sleep(self._rng.uniform(0.05, pause_max_s))
        last = self._join("odradek")
        for member in [each for each in self.members if each is not last]:
            self._leave(member)
        self._producer.flush(DEADLINE_S)
        wanted = {str(n) for n in range(self._produced)}
        self._wait(lambda: wanted <= self.processed(), lambda: wanted - self.processed())
        self._leave(last)

    def _operate(self) -> None:
        members = self.members
        join = not members or (len(members) < MEMBERS_MAX and self._rng.random() < 0.5)
        if join:
            self._join(self._rng.choice(self.kinds))
        elif self._rng.random() < 0.5:
            self._leave(self._rng.choice(members))
        else:
            self._kill(self._rng.choice(members))

    def _join(self, kind: str) -> Member:
        number = len(self.members) + len(self.gone)
        work = (kind, self.address, self.group, self.topic, self.strategy)
        process = subprocess.Popen(
            helper_process.command("churn_worker", *work),
            stdout=subprocess.PIPE,
            text=True,
            env=helper_process.environment(),
        )
        member = Member(f"{kind}-{number}", process, self.strategy != "range")
        thread = threading.Thread(target=member.listen)
        thread.start()
        self._threads.append(thread)
        self.members.append(member)
        return member

    def _leave(self, member: Member) -> None:
        member.process.terminate()
        self.members.remove(member)
        self.gone.append(member)

    def _kill(self, member: Member) -> None:
        member.process.kill()
        member.ended = time.monotonic()
        self.members.remove(member)
        self.gone.append(member)

    def _produce(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(
                self.topic, str(self._produced).encode(), partition=self._produced % PARTITIONS
            )
            self._produced += 1
        self._producer.poll(0)

    def processed(self) -> set[str]:
        """The values that members have reported as processed."""
        return set().union(*(each.values.copy() for each in [*self.members, *self.gone]))

    def _wait(self, condition: Callable[[], bool], rest: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"never processed: {rest()}"
            time.sleep(0.05)

    def close(self) -> None:
        """Stop all members, and read their last reports."""
        for member in [*self.members, *self.gone]:
            try:
                member.process.wait(5 if member in self.gone else 0)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
        for thread in self._threads:
            thread.join()

    # --- checks -----------------------------------------------------------------------------------

    def violations(self) -> list[tuple[Ownership, Ownership]]:
        """Pairs of periods in which two members owned the same partition at the same time.

        A member may learn late that the group has removed it. Its library then reports the
        partition as lost, or continues in an older generation; neither is a violation.
        """
        everything = sorted(
            (each for member in self.gone for each in member.past),
            key=lambda each: (each.partition, each.start),
        )
        found = []
        for index, one in enumerate(everything):
            for other in everything[index + 1 :]:
                if other.partition != one.partition or other.start >= one.end:
                    break
                if one.lost or other.lost:
                    continue
                if self.strategy == "range" and one.generation != other.generation:
                    continue
                found.append((one, other))
        return found
