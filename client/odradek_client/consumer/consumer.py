"""Consumer: the public class."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Self, Unpack

from odradek_client.cancellation import short_cancellations
from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.arguments import (
    Offset,
    Partition,
    as_offset,
    as_offsets,
    as_partition,
)
from odradek_client.consumer.completed_fetch import Rows
from odradek_client.consumer.errors import IllegalState
from odradek_client.consumer.fetcher import Fetcher, FetchSettings
from odradek_client.consumer.group.classic_loop import ClassicGroupLoop
from odradek_client.consumer.group.consumer_loop import ConsumerGroupLoop
from odradek_client.consumer.group.group_loop import GroupLoop
from odradek_client.consumer.offset_reset import parse_reset
from odradek_client.consumer.poll_loop import PollLoop
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_client.consumer.subscription_state import SubscriptionState
from odradek_client.errors import Closed, NotStarted
from odradek_client.network.client import NetworkClient
from odradek_client.structs import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from odradek_client.tasks import OfOneProcess
from odradek_client.timestamps import Time, as_ms
from odradek_protocol.constants import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from odradek_protocol.records.arrow import ArrowRows, chosen_columns

if TYPE_CHECKING:
    import pyarrow

    from odradek_client.config.keywords import ConsumerSettings

#: For this time after a poll, `getone` takes records from the buffer without another poll.
_SKIP_POLL_MS = 20
#: The timeout of each poll in a loop over single records; the loop polls again afterwards.
_ITERATION_POLL_MS = 1_000
#: The timeout of `poll_arrow` once partitions are assigned, if the caller gives none.
_POLL_MS = 1_000

log = logging.getLogger("odradek.client.consumer")


@short_cancellations()
class Consumer(OfOneProcess):
    """Reads records of topics, alone or as a member of a group that shares the partitions.

    ::

        async with Consumer("orders", bootstrap_servers="host:9092", group_id="bills") as consumer:
            async for record in consumer:
                ...

    Without `group_id` all partitions are read, and no offsets are committed. Settings are Kafka's,
    with underscores: see `ConsumerConfig`. Raises ConfigError for an invalid setting.

    With `enable_auto_commit` (the default) each poll assumes that all records of earlier polls have
    been processed. If they are processed before the next poll, each record is delivered at least
    once (K-39).

    Only one task polls at a time; other tasks that poll wait for it. All other methods may be
    called during a poll.
    """

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        self.config = ConsumerConfig.from_settings(settings)
        #: The connections to the brokers.
        self.network = NetworkClient(self.config)
        self._subscription = SubscriptionState()
        reset = parse_reset(self.config.auto_offset_reset)
        self._fetcher = Fetcher(
            self._subscription, FetchSettings.from_config(self.config, reset.timestamp)
        )
        self._group = self._make_group_loop()
        self._loop = PollLoop(
            self.config,
            self.network,
            self._subscription,
            self._fetcher,
            self._group,
            reset,
        )
        if self._group is not None:
            self._group.on_topics = self._loop.want_topics
        self._polling = asyncio.Lock()
        self._commits: set[asyncio.Task[None]] = set()
        self._skip_poll_until_ms = 0.0
        self._started = False
        self._closed = False
        self._disconnected = False
        if topics:
            self.subscribe(topics)

    def _make_group_loop(self) -> GroupLoop | None:
        config = self.config
        if config.group_id is None:
            return None
        shared = (self.network, self._subscription, self._fetcher, self._signal)
        if config.group_protocol == "consumer":
            return ConsumerGroupLoop(config, config.group_id, *shared)
        return ClassicGroupLoop(config, config.group_id, *shared)

    def _signal(self) -> None:
        self._skip_poll_until_ms = 0.0
        self._loop.signal()

    # --- life -------------------------------------------------------------------------------------

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connect to the cluster, as `async with` does.

        MetadataTimeout if no broker answers within `timeout_ms` (default_api_timeout_ms if None).
        """
        if self._closed:
            raise Closed("this consumer was closed; make a new one")
        await self.network.start(timeout_ms)
        self._started = True
        self._loop.want_topics()

    async def close(self, timeout_ms: float = 30_000) -> None:
        """Commit if commits are automatic, call the listener, leave the group, and close the
        connections, as the end of `async with` does. May be called again.

        The listener may still commit. `timeout_ms` limits each wait for commits.
        """
        if self._closed:
            return
        closed_loop = self.network.require_own_loop()
        self._closed = True
        try:
            if closed_loop:
                log.warning("the event loop was closed before the consumer; its group was not told")
            elif self._started:
                await self._loop.close()
                if self._commits:
                    await asyncio.wait(self._commits, timeout=timeout_ms / 1000)
                if self._group is not None:
                    await self._group.leave("the consumer is being closed", timeout_ms)
        finally:
            self._disconnected = True
            self._subscription.unsubscribe()
            await self.network.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("this consumer was closed; make a new one")
        self._require_connected()

    def _require_connected(self) -> None:
        """Raise Closed if the connections are closed, NotStarted before `start`. While the consumer
        is being closed, a listener can still use the connections."""
        if self._disconnected:
            raise Closed("this consumer was closed; make a new one")
        if not self._started:
            raise NotStarted('this consumer was not started; use "async with" or call start()')
        self.network.require_loop()

    # --- what to read -----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to these topics, or to all topics whose whole name matches `pattern`; replaces
        the earlier subscription.

        `listener` is called when the group moves partitions. IllegalState if partitions are
        assigned manually, or if the subscription changes from topics to a pattern or back; call
        `unsubscribe` first.
        """
        topics = [topics] if isinstance(topics, str) else list(topics)
        for topic in topics:
            if not isinstance(topic, str) or not topic:
                raise TypeError(f"a topic is a name, of type str, not {topic!r}")
        if bool(topics) == (pattern is not None):
            raise ValueError("subscribe to topics or to a pattern: give one of them")
        if pattern is not None:
            self._subscription.subscribe_pattern(pattern)
        else:
            self._subscription.subscribe_topics(topics)
        if self._group is not None:
            self._group.listener = listener
        elif listener is not None:
            raise IllegalState("a listener is called by a group; set group_id")
        self._on_subscription_changed()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read exactly these partitions, without assignment by a group; replaces the earlier
        assignment.

        IllegalState if topics are subscribed.
        """
        self._subscription.assign_by_user(as_partition(each) for each in partitions)
        self._on_subscription_changed()

    def _on_subscription_changed(self) -> None:
        self._skip_poll_until_ms = 0.0
        if self._started:
            self._loop.want_topics()
            self._loop.signal()

    async def unsubscribe(self) -> None:
        """End the subscription or assignment; leaves the group, if the consumer is in a group."""
        if self._group is not None and self._started and not self._closed:
            await self._group.leave("the consumer unsubscribed", self.config.default_api_timeout_ms)
        self._subscription.unsubscribe()
        self._on_subscription_changed()

    def subscription(self) -> set[str]:
        """The subscribed topics. With a pattern, the topics that match it at present."""
        return set(self._subscription.topics)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are being read."""
        return self._subscription.assigned()

    def metrics(self) -> dict[str, float]:
        """Metrics with the names of Kafka's client: `fetch-throttle-time-avg` and
        `fetch-throttle-time-max`, the time that quotas made this consumer wait, in milliseconds,
        over the last minute; NaN without an answer."""
        return self.network.throttle_metrics("fetch")

    # --- records ----------------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: float = 1_000, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records: at most `max_records` (max_poll_records if None).

        Waits up to `timeout_ms` for the first record, and returns the records that are available
        then, perhaps none. Records of one partition are in offset order. Joins the group,
        commits, and calls listeners as needed. Raises the exception of a listener, RecordError for
        records that cannot be returned, NoOffset, PositionOutOfRange, and refusals of brokers.
        """
        collected = await self.getmany(timeout_ms=timeout_ms, max_records=max_records)
        if len(collected) == 1:
            return next(iter(collected.values()))
        return [record for records in collected.values() for record in records]

    async def getmany(
        self, *partitions: Partition, timeout_ms: float = 1_000, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Poll like `poll` and return the records by partition; with `partitions`, only their
        records."""
        self._require_open()
        limit = self._limit(max_records)
        only = frozenset(as_partition(each) for each in partitions)
        async with self._polling:
            collected = await self._loop.poll(limit, only, timeout_ms)
        return collected.records

    async def poll_arrow(
        self,
        timeout_ms: float | None = None,
        max_records: int | None = None,
        *,
        include_headers: bool = False,
        columns: Collection[str] | None = None,
    ) -> pyarrow.RecordBatch:
        """Poll like `poll`, and return a `pyarrow.RecordBatch` instead of an object per record.

        Its rows are those of Spark's `kafka` format: key and value (binary; deserializers are not
        called), topic, partition, offset, timestamp (microseconds, UTC), timestampType, and with
        `include_headers` also headers (null for a record without headers). `columns`: the names of
        the wanted columns; other columns cost nothing. The batch may be empty, and is limited to
        about 256 MiB. `timeout_ms` limits the whole poll. Without `timeout_ms` the poll first waits
        up to default_api_timeout_ms for the group's first assignment, and then up to a second for
        records. Errors as in `poll`; PyarrowMissing without the extra `arrow`, ValueError for an
        unknown column.
        """
        self._require_open()
        rows = ArrowRows(chosen_columns(columns, include_headers))
        limit = self._limit(max_records)
        joining_ms = self.config.default_api_timeout_ms if timeout_ms is None else 0
        wait_ms = _POLL_MS if timeout_ms is None else timeout_ms
        async with self._polling:
            await self._loop.poll(limit, frozenset(), wait_ms, rows, joining_ms)
        return rows.take()

    async def poll_rows(
        self, rows: Rows, timeout_ms: float = 1_000, max_records: int | None = None
    ) -> None:
        """Poll like `poll`, and add whole batches to `rows` instead of returning records;
        deserializers are not called."""
        self._require_open()
        limit = self._limit(max_records)
        async with self._polling:
            await self._loop.poll(limit, frozenset(), timeout_ms, rows)

    def _limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self.config.max_poll_records
        if max_records < 1:
            raise ValueError(f"max_records={max_records} must be at least 1")
        return max_records

    async def getone(self) -> ConsumerRecord:
        """The next record, without a time limit. Errors as in `poll`; Closed after `close`."""
        record = self.next_buffered()
        while record is None:
            self._require_open()
            found = await self.getmany(timeout_ms=_ITERATION_POLL_MS, max_records=1)
            self._skip_poll_until_ms = self.network.now_ms() + _SKIP_POLL_MS
            for records in found.values():
                record = records[0]
        return record

    def next_buffered(self) -> ConsumerRecord | None:
        """The next record in the buffer; None if a poll is needed."""
        if self._closed or not self._started or self._polling.locked():
            return None
        if self.network.now_ms() >= self._skip_poll_until_ms:
            return None
        return self._fetcher.take_one()

    def take_buffered(self) -> ConsumerRecord | None:
        """The next record in the buffer; None if a poll is needed. The method is for the blocking
        consumer, which itself measures the time since the last poll."""
        return None if self._skip_poll_until_ms == 0.0 else self._fetcher.take_one()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Records without end, as from `getone`; ends when the consumer is closed."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        record = self.next_buffered()
        if record is not None:
            return record
        try:
            return await self.getone()
        except Closed:
            if self._started and self._closed:
                raise StopAsyncIteration from None
            raise
        except asyncio.CancelledError as error:
            raise error.with_traceback(None) from None

    # --- offsets ----------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Mapping[Partition, Offset] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit offsets to the group: `offsets` (the next to read, K-40), or all positions if
        None.

        Raises CommitFailed if the group has assigned the partitions to other members,
        RebalanceInProgress if the next poll rejoins the group, RequestTimedOut, IllegalState
        without a group_id.
        """
        self._require_connected()
        group = self._require_group("commit")
        await group.offsets.commit(as_offsets(offsets), self._timeout_ms(timeout_ms))

    def commit_soon(self, offsets: Mapping[Partition, Offset] | None = None) -> asyncio.Task[None]:
        """Begin `commit` in a task, and return the task. If a commit is still waiting to be sent, a
        newer commit replaces its offsets for the partitions that both contain. `close` waits for
        commits that have begun."""
        self._require_connected()
        group = self._require_group("commit_soon")
        task = group.offsets.commit_soon(as_offsets(offsets), self._timeout_ms(None))
        self._commits.add(task)
        task.add_done_callback(self._on_commit_done)
        return task

    def _on_commit_done(self, task: asyncio.Task[None]) -> None:
        self._commits.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("a commit in the background failed: %s", error)

    async def committed(self, partition: Partition) -> OffsetAndMetadata | None:
        """The group's committed offset of a partition; None if the group has committed none."""
        self._require_connected()
        each = as_partition(partition)
        group = self._require_group("committed")
        return (await group.offsets.committed([each], self._timeout_ms(None)))[each]

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer's identity in its group, for `Producer.send_offsets_to_transaction`
        (KIP-447).

        Call this method again for every transaction. IllegalState without a group_id.
        """
        return self._require_group("group_metadata").metadata()

    @property
    def is_member(self) -> bool:
        """True if this consumer is still in its group, as far as it knows: it has joined, was not
        removed or replaced, has polled within max_poll_interval_ms, and has received an answer from
        the group's coordinator within session_timeout_ms. False if the consumer has no group.

        While this property is False, the partitions may already belong to other members, and
        commits are refused.
        """
        return self._group is not None and self._group.assigns and self._group.in_group

    @property
    def membership_lost(self) -> asyncio.Event:
        """An event that is set while `is_member` is False. A task that processes records can wait
        for the event, and then stop. IllegalState without a group_id."""
        return self._require_group("membership_lost").membership_lost

    def _require_group(self, what: str) -> GroupLoop:
        if self._group is None:
            raise IllegalState(f"{what}() needs a group to keep offsets for; set group_id")
        return self._group

    def _timeout_ms(self, timeout_ms: float | None) -> float:
        return self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms

    async def position(self, partition: Partition) -> int:
        """The offset of the next record to return. Raises NotAssigned, NoOffset,
        RequestTimedOut."""
        self._require_connected()
        state = self._subscription.state(as_partition(partition))
        if state.position is None:
            self._require_open()
            await self._loop.offsets.find_positions(self._timeout_ms(None))
            state = self._subscription.state(as_partition(partition))
        if state.position is None:
            raise IllegalState(f"{partition} was reset or revoked while its position was requested")
        return state.position

    def seek(self, partition: Partition, offset: int | OffsetAndMetadata) -> None:
        """Continue from `offset`. NotAssigned, or ValueError for a negative offset."""
        at = as_offset(offset)
        self._subscription.seek(as_partition(partition), at.offset, at.leader_epoch)
        self._on_position_changed()

    async def seek_to_beginning(self, *partitions: Partition) -> None:
        """Continue from the first available record of these partitions, or of all assigned
        partitions if none is given."""
        await self._seek_to(EARLIEST_TIMESTAMP, partitions)

    async def seek_to_end(self, *partitions: Partition) -> None:
        """Continue with records that are written after this call, in these partitions, or in all
        assigned partitions if none is given."""
        await self._seek_to(LATEST_TIMESTAMP, partitions)

    async def _seek_to(self, timestamp: int, partitions: Iterable[Partition]) -> None:
        self._require_open()
        chosen = [as_partition(each) for each in partitions] or list(self.assignment())
        for partition in chosen:
            self._subscription.state(partition)
        for partition in chosen:
            self._subscription.reset(partition, timestamp)
        self._on_position_changed()
        await self._loop.offsets.find_positions(self._timeout_ms(None))

    def _on_position_changed(self) -> None:
        self._skip_poll_until_ms = 0.0
        if self._started:
            self._loop.signal()

    def pause(self, *partitions: Partition) -> None:
        """Return no records of these partitions until `resume`; fetched data is kept. Raises
        NotAssigned."""
        self._subscription.pause(as_partition(each) for each in partitions)

    def resume(self, *partitions: Partition) -> None:
        """Undo `pause`. Raises NotAssigned."""
        self._subscription.resume(as_partition(each) for each in partitions)
        self._on_position_changed()

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return self._subscription.paused()

    # --- about partitions -------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic. MetadataTimeout if the topic is not found."""
        self._require_connected()
        until_ms = self.network.now_ms() + self.config.metadata_max_age_ms
        await self.network.wait_for_metadata([topic], self._timeout_ms(None), until_ms=until_ms)
        return self.network.cluster.partitions_of(topic) or []

    async def offsets_for_times(
        self, timestamps: Mapping[Partition, Time]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The offset of the first record at or after a time (a datetime, or ms since 1970), by
        partition; None without such a record."""
        asked = {
            as_partition(each): as_ms(at, f"the time for {each}") for each, at in timestamps.items()
        }
        for partition, timestamp in asked.items():
            if timestamp < 0:
                raise ValueError(
                    f"{partition}: {timestamp} ms is before 1970; it must not be negative"
                )
        self._require_connected()
        return await self._loop.offsets.list_offsets(asked, self._timeout_ms(None))

    async def beginning_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """The first readable offset of each of these partitions, or of all assigned partitions if
        none is given."""
        return await self._list_ends(EARLIEST_TIMESTAMP, partitions)

    async def end_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """The end offset of each of these partitions, or of all assigned partitions if none is
        given: the next offset to be written, or with read_committed the last stable offset
        (K-19)."""
        return await self._list_ends(LATEST_TIMESTAMP, partitions)

    async def _list_ends(
        self, timestamp: int, partitions: Iterable[Partition]
    ) -> dict[TopicPartition, int]:
        self._require_connected()
        chosen = [as_partition(each) for each in partitions] or list(self.assignment())
        found = await self._loop.offsets.list_offsets(
            dict.fromkeys(chosen, timestamp), self._timeout_ms(None)
        )
        return {partition: at.offset if at is not None else 0 for partition, at in found.items()}

    async def lag(self, partition: Partition) -> int:
        """The number of offsets from the position to the end of the partition at the last fetch.
        Before the first fetch, the end is requested from the broker."""
        each = as_partition(partition)
        position = await self.position(each)
        state = self._subscription.state(each)
        committed_only = self.config.isolation_level == "read_committed"
        end = state.last_stable_offset if committed_only else state.high_watermark
        if end is None or end < 0:
            end = (await self.end_offsets(each))[each]
        return max(0, end - position)
