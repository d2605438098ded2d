"""A test world with the leader of share partitions, but without a node.

There is one topic in memory. A test sets the stored states, and moves the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from at_once import at_once
from logs import TOPIC_ID, append, append_marker, make_batch, make_log
from node_world import SoonScheduler
from odradek_broker.deferred import Deferred
from odradek_broker.fetch.parked import ParkedFetches
from odradek_broker.partition import Partition
from odradek_broker.platform.timeouts import Timeouts
from odradek_broker.share.acquisition import AcquisitionLimits
from odradek_broker.share.dead_letter_topics import DeadLetterSettings, DeadLetterTopics
from odradek_broker.share.dead_letter_writer import DeadLetterWriter
from odradek_broker.share.events import ShareEvent
from odradek_broker.share.fetching import Answers, ShareFetch
from odradek_broker.share.in_flight import ShareLimits
from odradek_broker.share.manager import AcknowledgementOutcome, SharePartitions
from odradek_broker.share.offset_reset import OffsetReset
from odradek_broker.share.sessions import AskedPartition, SessionPartition, ShareSessions
from odradek_broker.share.share_partition import ShareAcknowledgementBatch
from odradek_broker.share_state import (
    NO_DEAD_LETTERS,
    ShareKey,
    ShareState,
    StateBatch,
    StateResult,
)
from odradek_broker.slices import Slices
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.clock import SimulatedClock
from odradek_testkit.simulation.disk import MemoryFiles

GROUP = "g"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
ASKED = AskedPartition(TOPIC_ID, 0)
KEY = ShareKey(GROUP, TOPIC_ID, 0)


@dataclass(eq=False)
class Alarm:
    """A timer of `ShareWorld`."""

    at_ms: int
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class States:
    """The stored states. With `hold`, reads and writes wait for `flush`. `error`: the error of
    every read and write."""

    states: dict[ShareKey, ShareState] = field(default_factory=dict)
    writes: list[tuple[int, tuple[StateBatch, ...]]] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE
    hold: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)

    def read(self, key: ShareKey, leader_epoch: int, /) -> Deferred[StateResult]:
        def result() -> StateResult:
            if self.error is not ErrorCode.NONE:
                return StateResult(self.error, "no state")
            return StateResult(state=self.states.get(key, ShareState(0, 0, leader_epoch, -1)))

        return self._end(result)

    def write(self, key: ShareKey, change: ShareState, /) -> Deferred[StateResult]:
        start_offset = change.start_offset

        def result() -> StateResult:
            if self.error is not ErrorCode.NONE:
                return StateResult(self.error, "not written")
            self.writes.append((start_offset, change.batches))
            earlier = self.states[key].batches if key in self.states else ()
            stored = {
                number: each
                for each in (*earlier, *change.batches)
                for number in range(each.first_offset, each.last_offset + 1)
                if number >= start_offset
            }
            merged: list[StateBatch] = []
            for number, each in sorted(stored.items()):
                if merged and merged[-1][1:] == (number - 1, *each[2:]):
                    merged[-1] = merged[-1]._replace(last_offset=number)
                else:
                    merged.append(each._replace(first_offset=number, last_offset=number))
            position = change.dead_letters_from
            if position is None and key in self.states:
                position = self.states[key].dead_letters_from
            self.states[key] = change._replace(
                snapshot_epoch=1,
                batches=tuple(merged),
                dead_letters_from=None if position == NO_DEAD_LETTERS else position,
            )
            return StateResult()

        return self._end(result)

    def _end(self, result: Callable[[], StateResult]) -> Deferred[StateResult]:
        deferred: Deferred[StateResult] = Deferred()
        if self.hold:
            self.held.append(lambda: deferred.resolve(result()))
        else:
            deferred.resolve(result())
        return deferred

    def flush(self) -> None:
        held, self.held = self.held, []
        for end in held:
            end()


class NoTopics:
    """Cluster metadata without a dead letter topic."""

    def topic_id(self, name: str, /) -> bytes:
        return bytes(16)

    def topic_name(self, topic_id: bytes, /) -> str | None:
        return None

    def partition_count(self, name: str, /) -> int:
        return 0

    def takes_dead_letters(self, name: str, /) -> bool:
        return False

    def is_mirror(self, name: str, /) -> bool:
        return False

    def create(self, name: str) -> Deferred[ErrorCode]:
        return Deferred.of(ErrorCode.UNKNOWN_SERVER_ERROR)


class ShareWorld:
    """Share partitions of a topic with one partition, and their sessions."""

    def __init__(self, *, reset: str = "earliest") -> None:
        self.clock = SimulatedClock()
        self.alarms: list[Alarm] = []
        self.states = States()
        self.settings = ShareLimits(30_000, 5, 2000, renew=True)
        self.reset = reset
        self.events: list[ShareEvent] = []
        self.sessions_max = 100
        self.partition: Partition | None = Partition(make_log(MemoryFiles()), 0, lambda _: None)
        self.start()

    def start(self) -> None:
        """Start a new leader, which has to load the stored states."""
        topics = NoTopics()
        self.leader = SharePartitions(
            self.find,
            lambda _: self.settings,
            lambda _: OffsetReset.parsed(self.reset),
            DeadLetterWriter(
                DeadLetterTopics(
                    topics,
                    self.find,
                    lambda: DeadLetterSettings("dlq.", creates=False),
                    topics.create,
                    lambda: Deferred.of(None),
                ),
                self.states,
                self.clock,
                self,
                Slices(lambda: 0, self),
            ),
            self.events.append,
        )
        self.sessions = ShareSessions(
            lambda: self.sessions_max,
            lambda topic_id: "t" if topic_id == TOPIC_ID else None,
            self.leader.release,
            self.leader.forget_group,
            Slices(lambda: 0, SoonScheduler()),
        )
        self.parked = ParkedFetches(Timeouts(self.clock, self))

    def find(self, topic: str, index: int) -> Partition | None:
        return self.partition if (topic, index) == ("t", 0) else None

    # --- Time ---

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Alarm:
        alarm = Alarm(self.clock.now_ms + int(delay_ms), callback)
        self.alarms.append(alarm)
        return alarm

    def pass_time(self, ms: int) -> None:
        """Let time pass, and fire each timer at its time."""
        end_ms = self.clock.now_ms + ms
        while True:
            due = [each for each in self.alarms if each.at_ms <= end_ms and not each.cancelled]
            if not due:
                break
            alarm = min(due, key=lambda each: each.at_ms)
            self.alarms.remove(alarm)
            self.clock.now_ms = max(self.clock.now_ms, alarm.at_ms)
            alarm.callback()
        self.clock.now_ms = end_ms

    # --- The log ---

    @property
    def the_partition(self) -> Partition:
        assert self.partition is not None
        return self.partition

    def produce(self, count: int = 10, **batch: int | bool) -> None:
        append(self.the_partition.log, make_batch(count, **batch))  # type: ignore[arg-type]

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        append_marker(self.the_partition.log, commit, producer_id)

    def delete_records(self, offset: int) -> None:
        self.the_partition.log.trimming.delete_records(offset)

    def delete_topic(self) -> None:
        partition, self.partition = self.the_partition, None
        partition.deleted()

    # --- Members ---

    def fetch(
        self,
        member: str = "a",
        *,
        max_records: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> Deferred[Answers]:
        """Fetch as the handler does, without a session."""
        fetch = ShareFetch(
            self.leader,
            GROUP,
            member,
            [SessionPartition(ASKED, "t")],
            AcquisitionLimits(max_records, 500),
            min_bytes,
            max_bytes,
        )
        if wait_ms <= 0 or fetch.asks_for_nothing or fetch.satisfied():
            return Deferred.of(fetch.read())
        return self.parked.park(fetch, fetch.watched(), wait_ms)

    def acquired(self, member: str = "a", **fetch: int) -> list[tuple[int, int, int]]:
        """The records that a fetch acquires; fails if the fetch returns an error."""
        return acquired(self.fetch(member, **fetch))

    def acknowledge(
        self, first: int, last: int, kind: int, member: str = "a"
    ) -> Deferred[AcknowledgementOutcome]:
        asked = [ShareAcknowledgementBatch(first, last, [kind])]
        return at_once(self.leader.acknowledge(KEY, member, asked))


def acquired(fetch: Deferred[Answers]) -> list[tuple[int, int, int]]:
    """The records that a fetch has acquired; fails if the fetch returned an error."""
    answers = [answer for _, answer in fetch.result()]
    assert all(answer.error is ErrorCode.NONE for answer in answers), answers
    return [(each[0], each[1], each[2]) for answer in answers for each in answer.acquired]


def error_of(fetch: Deferred[Answers]) -> ErrorCode:
    """The error of a fetch with one partition."""
    ((_, answer),) = fetch.result()
    return answer.error
