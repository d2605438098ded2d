"""The decision log on a cluster: one partition of a compacted topic, read and appended to.

`ledger` decides which record counts. A process keeps the records that it has read of each query,
and later reads only newer records. The first read begins at the end of the log and extends
backwards (S-05).
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field

from odradek_client.admin import EARLIEST, LATEST, Admin, ConfigResource, NewTopic
from odradek_client.errors import (
    OdradekError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from odradek_client.network.client import NetworkClient
from odradek_client.producer.producer import Producer
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.records.batch import BatchError, Buffer, iter_batches
from odradek_protocol.records.record import read_columns
from pyspark_odradek import cluster
from pyspark_odradek.errors import SinkError
from pyspark_odradek.exactly_once import ledger
from pyspark_odradek.exactly_once.ledger import LedgerEntry, LedgerRecord, NewestDecision
from pyspark_odradek.planning import Partition

#: The first read begins this number of offsets before the end of the log.
FIRST_WINDOW = 512
WINDOW_FACTOR = 16
#: The limit of the queries whose records are kept.
VIEWS_MAX = 64
#: The number of kept records of one query above which the records that are no longer needed are
#: dropped.
ENTRIES_MAX = 1000
_BACKOFF_S = 0.1


@dataclass
class _View:
    """The records of one query below the offset `position`, without old records that
    `ledger.newest` does not need."""

    position: int
    entries: list[LedgerEntry] = field(default_factory=list)


class DecisionLog:
    """The decision log in its topic. All coroutines run on one event loop, and only one coroutine
    at a time uses a view."""

    def __init__(
        self, topic: str, network: NetworkClient, admin: Admin, producer: Producer
    ) -> None:
        self.topic = topic
        self._network = network
        self._admin = admin
        self._producer = producer
        self._partition = Partition(topic, 0)
        self._views: OrderedDict[str, _View] = OrderedDict()
        self._lock = asyncio.Lock()

    # --- reading ----------------------------------------------------------------------------------

    async def read(self, query: str) -> NewestDecision:
        """The result of `ledger.newest` for the records of the query. All records that were
        acknowledged before this call are included."""
        async with self._lock:
            view = self._views.get(query)
            if view is None:
                await self._ensure_topic()
                view = await self._first_look(query)
                self._views[query] = view
                while len(self._views) > VIEWS_MAX:
                    self._views.popitem(last=False)
            else:
                found, view.position = await self._entries(view.position, None, query)
                view.entries += found
            self._views.move_to_end(query)
            newest = ledger.newest(view.entries)
            self._prune(view)
            return newest

    def _prune(self, view: _View) -> None:
        if len(view.entries) > ENTRIES_MAX:
            needed = ledger.must_read_from(view.entries) or 0
            view.entries = [entry for entry in view.entries if entry.offset >= needed]

    async def _first_look(self, query: str) -> _View:
        """Read backwards from the end, until the records are sufficient or all are read."""
        start, end = await self._bounds()
        window = FIRST_WINDOW
        while True:
            begin = max(start, end - window)
            entries, position = await self._entries(begin, end, query)
            needed = ledger.must_read_from(entries)
            if begin == start or (needed is not None and needed >= begin):
                break
            if needed is not None:
                # The records from `needed` on are certainly sufficient.
                window = max(end - needed, window)
                begin = max(start, needed)
                entries, position = await self._entries(begin, end, query)
                break
            window *= WINDOW_FACTOR
        later, position = await self._entries(position, None, query)
        return _View(position, entries + later)

    async def _bounds(self) -> tuple[int, int]:
        starts = await self._admin.list_offsets({self._partition: EARLIEST})
        ends = await self._admin.list_offsets({self._partition: LATEST})
        (start,), (end,) = starts.values(), ends.values()
        return (0 if start is None else start.offset), (0 if end is None else end.offset)

    async def _entries(
        self, position: int, end: int | None, query: str
    ) -> tuple[list[LedgerEntry], int]:
        """(the records of the query from `position` to `end`, the offset that was reached). `end`
        None: the high watermark."""
        entries: list[LedgerEntry] = []
        deadline = self._network.now_ms() + self._network.config.default_api_timeout_ms
        while end is None or position < end:
            try:
                answer = await cluster.fetch(
                    self._network,
                    self._partition,
                    ZERO_UUID,
                    position,
                    max(deadline - self._network.now_ms(), 1),
                    wait=False,
                )
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise SinkError(
                        f"odradek: the decision log {self.topic} has lost records that were there "
                        "(it was deleted, or cut short). What was written exactly once so far cannot "
                        "be determined any more; see docs/spark/exactly-once.md"
                    )
                if answer.error_code:
                    raise cluster.error_of(answer, self._partition)
            except OdradekError as error:
                if not error.retriable or self._network.now_ms() >= deadline:
                    raise SinkError(
                        f"odradek: the decision log {self.topic} cannot be read: {error}"
                    ) from error
                self._network.request_metadata_update()
                await asyncio.sleep(_BACKOFF_S)
                continue
            before = position
            position = self._decode(answer.records or b"", position, query, entries)
            if position >= answer.high_watermark:
                break
            if position == before and self._network.now_ms() >= deadline:
                raise SinkError(f"odradek: {self.topic} cannot be read further than {position}")
        if end is not None:
            entries = [entry for entry in entries if entry.offset < end]
        return entries, position if end is None else min(position, end)

    def _decode(self, data: Buffer, position: int, query: str, into: list[LedgerEntry]) -> int:
        try:
            for at, header in iter_batches(data):
                following = header.last_offset + 1
                if following <= position or header.is_control:
                    position = max(position, following)
                    continue
                columns = read_columns(data, at, header)
                for offset, key, value in zip(
                    columns.offsets, columns.keys, columns.values, strict=True
                ):
                    if offset < position or key is None or value is None:
                        continue
                    name = bytes(key).decode(errors="replace")
                    if ledger.query_of(name) == query:
                        where = f"record {offset} of {self.topic}"
                        record = ledger.decode(bytes(value), where=where)
                        into.append(LedgerEntry(offset, name, record))
                position = following
        except BatchError as error:
            raise SinkError(
                f"odradek: the decision log {self.topic} is damaged at {position}: {error}"
            ) from error
        return position

    # --- writing ----------------------------------------------------------------------------------

    async def append(self, query: str, record: LedgerRecord) -> None:
        """Append a record and wait until it is acknowledged. Raises SinkError if it remains unknown
        whether the record will be in the log."""
        key = ledger.key_of(query, uuid.uuid4().hex[:16])
        try:
            await self._producer.send_and_wait(
                self.topic, ledger.encode(record), key.encode(), partition=0
            )
        except OdradekError as error:
            raise SinkError(
                f"odradek: a {record.kind.value} of query {query} could not be written to the "
                f"decision log {self.topic}: {error}. A restart finds out whether it is there"
            ) from error

    async def forget(self, keys: tuple[str, ...]) -> None:
        """Write tombstones for `keys`, so that compaction removes the records. Lost tombstones do
        no harm."""
        for view in self._views.values():
            view.entries = [entry for entry in view.entries if entry.key not in keys]
        for key in keys:
            await self._producer.send(self.topic, None, key.encode(), partition=0)

    # --- the topic --------------------------------------------------------------------------------

    async def _ensure_topic(self) -> None:
        """Make sure that the topic exists with one partition, and that retention deletes none of
        its records."""
        try:
            described = await self._admin.describe_topics(self.topic)
        except UnknownTopicOrPartition:
            await self._create()
            await self._wait_for_leader()
        else:
            count = len(described[self.topic].partitions)
            if count != 1:
                raise SinkError(
                    f"odradek: the decision log {self.topic} has {count} partitions and must have "
                    "one, whose order decides. Name another topic with the option commitLogTopic"
                )
            await self._check_policy()

    async def _create(self) -> None:
        topic = NewTopic(self.topic, partitions=1, configs={"cleanup.policy": "compact"})
        try:
            await self._admin.create_topics(topic)
        except TopicAlreadyExists:
            pass
        except OdradekError as error:
            raise SinkError(
                f"odradek: there is no decision log {self.topic} and it cannot be created: {error}. "
                "Create it with one partition and cleanup.policy=compact, or write with "
                "semantics=at_least_once, which needs none"
            ) from error

    async def _wait_for_leader(self) -> None:
        """Wait until the new topic has a leader. Raises SinkError if that takes too long."""
        deadline = self._network.now_ms() + self._network.config.default_api_timeout_ms
        while True:
            try:
                described = await self._admin.describe_topics(self.topic)
            except OdradekError as error:
                raise SinkError(
                    f"odradek: the decision log {self.topic} was created and is not there: {error}"
                ) from error
            if all(each.leader is not None for each in described[self.topic].partitions):
                return
            if self._network.now_ms() >= deadline:
                raise SinkError(
                    f"odradek: the decision log {self.topic} was created and has no leader"
                )
            await asyncio.sleep(_BACKOFF_S)

    async def _check_policy(self) -> None:
        resource = ConfigResource.topic(self.topic)
        try:
            found = await self._admin.describe_configs(resource, names=["cleanup.policy"])
        except OdradekError:
            return  # not every user may read the settings
        policy = found[resource].get("cleanup.policy")
        if policy is not None and "delete" in (policy.value or ""):
            raise SinkError(
                f"odradek: the decision log {self.topic} has cleanup.policy={policy.value}, by which "
                "decisions would be deleted for their age; set it to compact"
            )
