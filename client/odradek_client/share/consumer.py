"""ShareConsumer: the public class."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Self, Unpack

from odradek_client.cancellation import short_cancellations
from odradek_client.config.share_consumer import ShareConsumerConfig
from odradek_client.errors import (
    Closed,
    IllegalState,
    NotStarted,
    OdradekError,
    RequestTimedOut,
    error_for,
)
from odradek_client.network.client import NetworkClient
from odradek_client.network.cluster import TOPIC_REFUSALS
from odradek_client.share.acknowledgements import AcknowledgeType, TopicIdPartition
from odradek_client.share.acquired import ReadSettings
from odradek_client.share.errors import Reject, Release
from odradek_client.share.fetcher import ShareFetcher, ShareFetchSettings
from odradek_client.share.group_loop import ShareGroupLoop
from odradek_client.share.record import Acknowledgement, DeliveryState, Holder, ShareRecord
from odradek_client.share.share_loop import ShareLoop
from odradek_client.structs import TopicPartition
from odradek_client.tasks import OfOneProcess, Waiter

if TYPE_CHECKING:
    from odradek_client.config.keywords import ShareConsumerSettings

#: The timeout of each poll in a loop over single records; the loop polls again afterwards.
_ITERATION_POLL_MS = 1_000
#: The minimum time for the brokers to answer the requests that end the sessions, even if the
#: handlers of records have used up the timeout of `close`.
_CLOSE_MIN_MS = 1_000

AcknowledgementCallback = Callable[[ShareRecord, OdradekError | None], None]

log = logging.getLogger("odradek.client.share")


@short_cancellations()
class ShareConsumer(OfOneProcess):
    """Takes records of topics as a member of a share group (KIP-932). Only one member at a time has
    a record, and a record that is not accepted is delivered again.

    ::

        async with ShareConsumer("jobs", bootstrap_servers="host:9092", group_id="work") as jobs:
            async for record in jobs:
                async with record:
                    ...

    Settings are Kafka's, with underscores: see `ShareConsumerConfig`. Raises ConfigError for an
    invalid setting.

    A record is acknowledged with `async with record` or `record.acknowledge`. With
    share_acknowledgement_mode="implicit" (the default) the next poll accepts all other records that
    earlier polls returned. A record that is not acknowledged before its lock expires, or before
    `close`, is delivered again.

    Only one task polls at a time; other tasks that poll wait for it. All other methods may be
    called during a poll.
    """

    def __init__(self, *topics: str, **settings: Unpack[ShareConsumerSettings]) -> None:
        self.config = ShareConsumerConfig.from_settings(settings)
        group_id = self.config.group_id
        assert group_id is not None
        #: The connections to the brokers.
        self.network = NetworkClient(self.config)
        self._implicit = self.config.share_acknowledgement_mode == "implicit"
        self._group = ShareGroupLoop(self.config, group_id, self.network, self._assign, self._wake)
        self._fetcher = ShareFetcher(
            group_id,
            self._group.membership.member_id,
            _share_settings(self.config),
            _DirectHolder(self),
        )
        self._fetcher.held.on_result = self._on_result
        self._fetcher.held.on_renewals_refused = self._on_renewals_refused
        self._loop = ShareLoop(self.config, self.network, self._fetcher, self._signal)
        self._changed = asyncio.Event()
        self._polling = asyncio.Lock()
        self._woken_up = False
        self._warned_full = False
        self._callback: AcknowledgementCallback | None = None
        self._topics: frozenset[str] = frozenset()
        self._started = False
        self._closed = False
        if topics:
            self.subscribe(topics)

    def wrap_holder(self, wrap: Callable[[Holder], Holder]) -> None:
        """Replace the holder, whose methods the records call, by `wrap(holder)`. The method is for
        programs that use records in other threads. Call it before `start`."""
        self._fetcher.holder = wrap(self._fetcher.holder)

    # --- life -------------------------------------------------------------------------------------

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connect to the cluster, as `async with` does.

        MetadataTimeout if no broker answers within `timeout_ms` (default_api_timeout_ms if None).
        """
        if self._closed:
            raise Closed("this consumer was closed; make a new one")
        await self.network.start(timeout_ms)
        if not self._started:
            self._started = True
            self.network.add_listener(lambda _: self._on_metadata())
            self._loop.start()
        self._want_topics()

    async def close(self, timeout_ms: float = 30_000) -> None:
        """Wait for records in `async with`, send the acknowledgements, return all other records to
        the group, leave the group, and close the connections. May be called again.

        Records that are not acknowledged are released, even in implicit mode; to accept them, call
        `commit` before. `timeout_ms` limits the wait for handlers and brokers together. Records
        that are still being handled after `timeout_ms` are released, too. Records whose
        acknowledgement reaches no broker are delivered again when their locks expire.
        """
        if self._closed:
            return
        closed_loop = self.network.require_own_loop()
        self._closed = True
        self._signal()
        try:
            if closed_loop:
                log.warning("the event loop was closed before the consumer; its group was not told")
            elif self._started:
                await self._close_sessions(timeout_ms)
                await self._group.leave()
                await self._loop.stop()
        finally:
            self._fetcher.held.end_all(Closed("the consumer was closed before the record's answer"))
            await self.network.close()
            self._signal()

    async def _close_sessions(self, timeout_ms: float) -> None:
        fetcher, network = self._fetcher, self.network
        fetcher.stop_fetching()
        deadline_ms = network.now_ms() + timeout_ms
        while fetcher.held.handling and (left_ms := deadline_ms - network.now_ms()) > 0:
            await self._wait(left_ms)
        fetcher.begin_close(network.now_ms())
        self._loop.wake()
        # Brokers get at least a short time, even if the handlers have used up the timeout.
        deadline_ms = max(deadline_ms, network.now_ms() + min(timeout_ms, _CLOSE_MIN_MS))
        while not fetcher.is_closed and (left_ms := deadline_ms - network.now_ms()) > 0:
            await self._wait(left_ms)
        if not fetcher.is_closed:
            log.warning(
                "group %s: not every broker has confirmed within %.0f ms that the share session is "
                "closed; its records are delivered again when their locks expire",
                self.config.group_id,
                timeout_ms,
            )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("this consumer was closed; make a new one")
        if not self._started:
            raise NotStarted('this consumer was not started; use "async with" or call start()')
        self.network.require_loop()

    # --- what to read -----------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to exactly these topics; an earlier subscription ends."""
        names = [topics] if isinstance(topics, str) else list(topics)
        for topic in names:
            if not isinstance(topic, str) or not topic:
                raise TypeError(f"a topic is a name, of type str, not {topic!r}")
        if not names:
            raise ValueError("name at least one topic, or call unsubscribe")
        self._topics = frozenset(names)
        self._group.subscribe(self._topics)
        if self._started:
            self._want_topics()

    async def unsubscribe(self) -> None:
        """End the subscription and leave the group. Records that were returned can still be
        acknowledged."""
        self._topics = frozenset()
        self._group.subscribe(self._topics)
        if self._started and not self._closed:
            await self._group.leave()

    def subscription(self) -> set[str]:
        """The subscribed topics."""
        return set(self._topics)

    def assignment(self) -> set[TopicPartition]:
        """The partitions assigned to this member; other members may have the same
        partitions."""
        return {TopicPartition(each.topic, each.partition) for each in self._fetcher.assigned}

    def _want_topics(self) -> None:
        cluster = self.network.cluster
        if cluster.set_wanted(self._topics) or cluster.needs_update:
            self.network.request_metadata_update()
        self._wake()

    def _assign(self, partitions: list[TopicIdPartition]) -> None:
        self._fetcher.assign(partitions, self.network.now_ms())
        self._wake()

    def _on_metadata(self) -> None:
        self._group.take_over()
        self._wake()

    # --- records ----------------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: float = 1_000, max_records: int | None = None
    ) -> list[ShareRecord]:
        """The next records: at most `max_records` (max_poll_records if None).

        Waits up to `timeout_ms` for the first record, and returns the records that are available
        then, perhaps none. In implicit mode accepts the records that earlier polls returned. Raises
        UnreadableRecord for records that cannot be returned (they are released or rejected
        already), refusals of brokers, and IllegalState without a subscription.
        """
        self._require_open()
        limit = self._limit(max_records)
        async with self._polling:
            return await self._poll(limit, timeout_ms)

    async def getmany(
        self, *, timeout_ms: float = 1_000, max_records: int | None = None
    ) -> dict[TopicPartition, list[ShareRecord]]:
        """Poll like `poll`, and return the records by partition."""
        found: dict[TopicPartition, list[ShareRecord]] = {}
        for record in await self.poll(timeout_ms, max_records):
            found.setdefault(record.topic_partition, []).append(record)
        return found

    def _limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self.config.max_poll_records
        if max_records < 1:
            raise ValueError(f"max_records={max_records} must be at least 1")
        return max_records

    async def _poll(self, limit: int, timeout_ms: float) -> list[ShareRecord]:
        fetcher, network = self._fetcher, self.network
        deadline_ms = network.now_ms() + timeout_ms
        # Other tasks get a turn, so that answers are handled even if many records are buffered.
        await asyncio.sleep(0)
        if self._implicit:
            self._accept_unhandled()
        try:
            while True:
                self._require_open()
                self._require_topics()
                self._changed.clear()
                self._raise_for_topics()
                self._group.poll()
                room = min(limit, self.config.max_in_flight - fetcher.held.unanswered)
                collects = room > 0 and fetcher.buffered
                if room > 0:
                    records = fetcher.collect(room, network.now_ms())
                    if records:
                        self._warned_full = False
                        return records
                left_ms = deadline_ms - network.now_ms()
                if left_ms <= 0 or self._woken_up:
                    self._warn_full(room)
                    return []
                if collects or fetcher.wanted_records != max(room, 0):
                    # The share loop is woken only if it has something to do, because each of its
                    # passes wakes this poll again.
                    fetcher.wanted_records = max(room, 0)
                    self._loop.wake()
                await self._wait(left_ms)
        finally:
            fetcher.wanted_records = 0
            self._woken_up = False

    def _warn_full(self, room: int) -> None:
        if room <= 0 and not self._warned_full:
            self._warned_full = True
            log.warning(
                "group %s: no records are returned, because max_in_flight=%d records are not "
                "acknowledged; acknowledge some, or raise max_in_flight",
                self.config.group_id,
                self.config.max_in_flight,
            )

    def _require_topics(self) -> None:
        if not self._topics:
            raise IllegalState("this consumer has no topics; call subscribe before poll")

    def _raise_for_topics(self) -> None:
        for topic, code in self.network.cluster.topic_errors.items():
            if code in TOPIC_REFUSALS and topic in self._topics:
                raise error_for(code, about=f"topic {topic!r}")

    def _give_back(self, records: Iterable[ShareRecord]) -> None:
        """Release records that a poll has returned, but that did not reach the application."""
        for record in records:
            if record.state is DeliveryState.ACQUIRED:
                record.release()

    async def getone(self) -> ShareRecord:
        """The next record, without a time limit. Errors as in `poll`; Closed after `close`."""
        while True:
            records = await self.poll(_ITERATION_POLL_MS, 1)
            if records:
                return records[0]

    def __aiter__(self) -> AsyncIterator[ShareRecord]:
        """Records without end, as from `getone`; ends when the consumer is closed."""
        return self

    async def __anext__(self) -> ShareRecord:
        try:
            return await self.getone()
        except Closed:
            if self._started and self._closed:
                raise StopAsyncIteration from None
            raise
        except asyncio.CancelledError as error:
            raise error.with_traceback(None) from None

    def wakeup(self) -> None:
        """End the wait of the present poll or, if no poll is in progress, of the next poll. That
        poll returns the records that are available.
        """
        self._woken_up = True
        self._signal()

    # --- answers ----------------------------------------------------------------------------------

    async def commit(
        self, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OdradekError | None]:
        """Send all acknowledgements, and wait for the results. Returns for each partition the first
        error, or None.

        In implicit mode, first accepts the records that polls have returned. RequestTimedOut if the
        results are not known within `timeout_ms` (default_api_timeout_ms if None).
        """
        self._require_open()
        if self._implicit:
            self._accept_unhandled()
        return await self._results(
            self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        )

    def commit_soon(self) -> None:
        """Send all acknowledgements as `commit` does, without waiting; the results go to the
        callback of `set_acknowledgement_callback`."""
        self._require_open()
        if self._implicit:
            self._accept_unhandled()
        self._flush()

    async def _results(self, timeout_ms: float) -> dict[TopicPartition, OdradekError | None]:
        results: dict[TopicPartition, OdradekError | None] = {}
        waiting = [Acknowledgement(record) for record in self._fetcher.held.answers_on_their_way()]
        self._flush()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                for each in waiting:
                    while not each.done():
                        await each.record.wait()
                    partition = each.record.topic_partition
                    results[partition] = results.get(partition) or each.exception()
        except TimeoutError:
            raise RequestTimedOut(
                f"group {self.config.group_id!r}: the results of {len(waiting)} acknowledgements "
                f"were not known within {timeout_ms:.0f} ms"
            ) from None
        return results

    def _flush(self) -> None:
        self._fetcher.flush()
        self._loop.wake()

    def _accept_unhandled(self) -> None:
        for record in self._fetcher.held.unhandled():
            record.accept()

    def set_acknowledgement_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Let `callback(record, error)` be called with the result of every acknowledgement, and for
        every record whose lock expires. `error` is None for success. The callback must not
        block."""
        self._callback = callback

    def _on_result(self, record: ShareRecord) -> None:
        if record.error is not None:
            log.info("%s", record.error)
        if self._callback is not None:
            try:
                self._callback(record, record.error)
            except Exception:
                log.exception("the acknowledgement callback failed")

    def _on_renewals_refused(self, error: OdradekError) -> None:
        log.warning(
            "group %s: locks are not renewed (%s); set share.renew.acknowledge.enable=true for the "
            "group, or handle each record within its lock",
            self.config.group_id,
            error,
        )

    def metrics(self) -> dict[str, float]:
        """Metrics with the names of Kafka's client: totals, and `fetch-throttle-time-avg` and
        `fetch-throttle-time-max` in milliseconds over the last minute; NaN without an answer."""
        counts = self._fetcher.counts
        return {
            "fetch-total": counts.fetches,
            "records-consumed-total": counts.records,
            "bytes-consumed-total": counts.bytes,
            "acknowledgements-send-total": counts.acknowledgements,
            "acknowledgements-error-total": counts.failed_acknowledgements,
            **self.network.throttle_metrics("fetch"),
        }

    # --- waiting ----------------------------------------------------------------------------------

    def _signal(self) -> None:
        self._changed.set()

    def _wake(self) -> None:
        self._loop.wake()
        self._signal()

    async def _wait(self, timeout_ms: float = 1_000) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()


class _DirectHolder:
    """A holder for programs whose tasks run in the consumer's event loop: it calls the consumer
    directly."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self._consumer = consumer

    def answer(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        consumer = self._consumer
        consumer._fetcher.acknowledge(record, kind, consumer.network.now_ms())
        if kind is AcknowledgeType.RENEW:
            consumer._fetcher.flush()
        consumer._wake()

    def begin_handling(self, record: ShareRecord) -> None:
        consumer = self._consumer
        consumer._fetcher.held.begin_handling(record, consumer.network.now_ms())
        consumer._loop.wake()

    def end_handling(self, record: ShareRecord) -> None:
        self._consumer._fetcher.held.end_handling(record)
        self._consumer._signal()

    def note_decision(self, record: ShareRecord, decision: Reject | Release) -> None:
        outcome = "rejected" if isinstance(decision, Reject) else "released"
        log.debug("%r: %s by the application: %s", record, outcome, decision)

    def new_waiter(self) -> Waiter:
        return Waiter(loop=self._consumer.network.loop)


def _share_settings(config: ShareConsumerConfig) -> ShareFetchSettings:
    return ShareFetchSettings(
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        record_limit=config.share_acquire_mode == "record_limit",
        retry_backoff_ms=config.retry_backoff_ms,
        renew_locks=config.renew_locks,
        handling_max_ms=config.max_poll_interval_ms,
        answer_grace_ms=config.request_timeout_ms,
        read=ReadSettings(
            check_crcs=config.check_crcs,
            key=config.key_deserializer,
            value=config.value_deserializer,
            unreadable=AcknowledgeType.REJECT
            if config.unreadable_records == "reject"
            else AcknowledgeType.RELEASE,
        ),
    )
