"""A node with share groups that have a dead letter topic.

The test decides about every step towards the disk, and may cut the power between two steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from at_once import at_once
from logs import append, make_batch
from node_world import NodeWorld
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.topics import RequestedTopic, create_topics
from odradek_broker.share.acquisition import Acquired, AcquisitionLimits
from odradek_broker.share.events import ShareEvent
from odradek_broker.share.fetching import ShareFetch
from odradek_broker.share.manager import AcknowledgementOutcome
from odradek_broker.share.sessions import AskedPartition, SessionPartition
from odradek_broker.share.share_partition import ShareAcknowledgementBatch
from odradek_broker.share_state import ShareKey
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_durability import FlushTicket, LogDurability
from odradek_broker.storage.startup import StartReport
from odradek_protocol.constants import RESOURCE_GROUP, RESOURCE_TOPIC
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.record import Record, read_records
from odradek_protocol.stored.cluster_metadata import ConfigRecord
from odradek_testkit.simulation.clock import StoppedTimer

GROUP, OTHERS, SOURCE, LETTERS = "workers", "others", "jobs", "dlq.jobs"
ACCEPT, RELEASE, REJECT = 1, 2, 3


class _Timer(StoppedTimer):
    """A timer of `DeadLetterWorld`."""

    def __init__(self, at_ms: float, callback: Callable[[], None]) -> None:
        self.at_ms, self.callback, self.cancelled = at_ms, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class DeadLetterWorld(NodeWorld):
    """A source topic and a dead letter topic, with one partition each by default."""

    def __init__(
        self,
        durability: str = "fsync",
        *,
        letters: bool = True,
        copy: bool = True,
        partitions: int = 1,
        limit: int = 2,
        **settings: str,
    ) -> None:
        self.timers: list[_Timer] = []
        self.scheduler = self
        super().__init__(
            log_durability=durability,
            share_coordinator_state_topic_num_partitions="1",
            group_share_delivery_count_limit=str(limit),
            **settings,
        )
        self.create(SOURCE)
        if letters:
            self.create_letters(partitions)
        self.node.ensure_internal_topic("__share_group_state")
        for group in (GROUP, OTHERS):
            self.configure(RESOURCE_GROUP, group, "errors.deadletterqueue.topic.name", LETTERS)
            self.configure(RESOURCE_GROUP, group, "share.auto.offset.reset", "earliest")
            copied = "errors.deadletterqueue.copy.record.enable"
            self.configure(RESOURCE_GROUP, group, copied, str(copy).lower())
        self.settle()
        for group in (GROUP, OTHERS):
            self.node.share_state.initialize(self.key_of(group), 1, 0)
        self.settle()

    def create_letters(self, partitions: int = 1, **configs: str) -> None:
        given = {"errors.deadletterqueue.group.enable": "true"}
        given |= {name.replace("_", "."): value for name, value in configs.items()}
        records, _ = create_topics(
            self.node.metadata, [RequestedTopic(LETTERS, partitions, configs=dict(given))]
        )
        self.node.metadata_log.commit(records)
        self.settle()

    def configure(self, kind: int, name: str, key: str, value: str) -> None:
        record = ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        self.node.metadata_log.commit([record])

    def configure_topic(self, key: str, value: str) -> None:
        self.configure(RESOURCE_TOPIC, LETTERS, key, value)
        self.settle()

    def start(self) -> StartReport:
        self.timers.clear()
        self._tickets: list[tuple[LogDurability, FlushTicket, OSError | None]] = []
        self.events: list[ShareEvent] = []
        report = super().start()
        record = self.node.share_history.record

        def observe(event: ShareEvent) -> None:
            self.events.append(event)
            record(event)

        self.node.share_partitions.observer = observe
        return report

    @property
    def key(self) -> ShareKey:
        return self.key_of(GROUP)

    def key_of(self, group: str) -> ShareKey:
        return ShareKey(group, self.node.metadata.topic_id(SOURCE), 0)

    # --- Steps ---

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> _Timer:
        timer = _Timer(self.clock.monotonic_ms() + delay_ms, callback)
        self.timers.append(timer)
        return timer

    def step(self) -> bool:
        """Do one step: run a due timer, or begin or end the flush of one log. Returns False if
        there is no step to do."""
        for timer in self.timers:
            if timer.at_ms <= self.clock.monotonic_ms() or timer.cancelled:
                self.timers.remove(timer)
                if timer.cancelled:
                    return True
                timer.callback()
                return True
        if self._tickets:
            log, ticket, problem = self._tickets.pop(0)
            log.finish_flush(ticket, problem)
            return True
        if self.asked:
            log = next(iter(self.asked))
            del self.asked[log]
            begun = log.begin_flush()
            if begun is not None:
                try:
                    begun.sync()
                except OSError as problem:
                    self._tickets.append((log, begun, problem))
                else:
                    self._tickets.append((log, begun, None))
            return True
        return False

    def settle(self) -> None:
        """Do all steps that can be done at the present time."""
        while self.step():
            pass

    def pass_time(self, ms: int) -> None:
        """Advance the clock by `ms`, and run each timer when it is due."""
        end_ms = self.clock.now_ms + ms
        self.settle()
        while True:
            due = [each.at_ms for each in self.timers if not each.cancelled]
            at_ms = min(due, default=end_ms + 1)
            if at_ms > end_ms:
                break
            self.clock.now_ms = max(self.clock.now_ms, int(at_ms))
            self.settle()
        self.clock.now_ms = end_ms

    def cut_power(self, seed: int, *, keep_page_cache: bool) -> None:
        self.crash(keep_page_cache=keep_page_cache, rng=random.Random(seed))
        self.settle()

    # --- The group ---

    def jobs(self, count: int, value: bytes = b"job") -> None:
        """Produce records, and make them durable."""
        found = self.node.partition(SOURCE, 0)
        assert found is not None
        append(found.log, make_batch(count, value=value))
        found.log.durability.flush()

    def acquired(
        self, member: str = "a", max_records: int = 500, group: str = GROUP
    ) -> list[Acquired]:
        """The records that a fetch acquires."""

        def fetch() -> list[Acquired]:
            asked = SessionPartition(AskedPartition(self.key.topic_id, 0), SOURCE)
            limits = AcquisitionLimits(max_records, 500)
            one = ShareFetch(self.node.share_partitions, group, member, [asked], limits, 1, 1 << 20)
            answers = one.read()
            assert all(answer.error is ErrorCode.NONE for _, answer in answers), answers
            return [each for _, answer in answers for each in answer.acquired]

        found = fetch()
        if not found:
            self.settle()
            found = fetch()
        return found

    def acknowledge(
        self, first: int, last: int, kind: int, member: str = "a", group: str = GROUP
    ) -> Deferred[AcknowledgementOutcome]:
        asked = ShareAcknowledgementBatch(first, last, [kind])
        partitions = self.node.share_partitions
        return at_once(partitions.acknowledge(self.key_of(group), member, [asked]))

    def letters(self, partition: int = 0, topic: str = LETTERS) -> list[Record]:
        """The records of a partition of the dead letter topic."""
        found = self.node.partition(topic, partition)
        return [] if found is None else list(_records(found.log))

    def letter_offsets(self, group: str = GROUP) -> list[int]:
        """The offsets of the records that have dead letters of a group."""
        named = [dict(each.headers) for each in self.letters()]
        return [
            int(each["__dlq.errors.offset"] or b"")
            for each in named
            if each["__dlq.errors.group"] == group.encode()
        ]


def _records(log: PartitionLog) -> Iterator[Record]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_at_once(offset, 1 << 20)
        for position, header in iter_batches(data):
            yield from read_records(data, position, header)
            offset = header.next_offset
