"""The public producer: batches records, and gives a `Delivery` for each.

    async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        delivery = await producer.send("flights", b"N14228", key=b"EWR")
        metadata = await delivery

With `transactional_id` records are written in transactions:

    async with Producer(transactional_id="billing-1") as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("invoices", b"...")

`send` puts the record into a batch, and the sender loop sends the batch. The fast path of a record
into an open batch is `_append` and `BatchWriter.append`; they run for every record and are written
for speed. The slow path is `Appender`.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import random as random_module
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, Unpack

from odradek_client.backoff import Backoff
from odradek_client.cancellation import short_cancellations
from odradek_client.config.producer import ProducerConfig
from odradek_client.errors import Closed, IllegalState, InternalError, NotStarted, OdradekError
from odradek_client.network.client import NetworkClient
from odradek_client.producer.accumulator import Accumulator, Headers
from odradek_client.producer.appender import Appender, check_topic
from odradek_client.producer.arrow import ArrowDelivery, Lines, PartitionedRows
from odradek_client.producer.batch import Delivery, ProducerBatch, RecordMetadata
from odradek_client.producer.idempotence import IdempotenceManager
from odradek_client.producer.partitioner import Partitioner, TopicQueues, partition_for_key
from odradek_client.producer.sender import Sender, codec_of
from odradek_client.producer.sender_loop import SenderLoop
from odradek_client.producer.transaction_calls import Partition, TransactionCalls
from odradek_client.producer.transaction_manager import TransactionManager
from odradek_client.structs import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
)
from odradek_client.tasks import OfOneProcess, Waiter, require_running
from odradek_client.timestamps import Time, as_ms
from odradek_client.words import counted
from odradek_protocol.records.builder import EncodedRecords
from odradek_protocol.records.lines import LineRecords

if TYPE_CHECKING:
    import pyarrow

    from odradek_client.config.keywords import ProducerSettings

log = logging.getLogger("odradek.client.producer")

new_delivery = Delivery.at

#: The started producers that are not closed.
_open: weakref.WeakSet[Producer] = weakref.WeakSet()


@short_cancellations(but="send")
class Producer(OfOneProcess):
    """Sends records. Settings are the rows of `ProducerConfig`, e.g. `linger_ms=20`.

    Use it with `async with`, or call `start` and `close`. Raises ConfigError for an invalid
    setting. A producer belongs to one event loop; all methods must be called from that loop."""

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        self._set_up(ProducerConfig.from_settings(settings), None)

    def _set_up(self, config: ProducerConfig, network: NetworkClient | None) -> None:
        self.config = config
        # A simulation replaces the attribute `random.Random`, so the class is not imported
        # directly.
        self._random = random_module.Random()
        self._wall_clock = time.time
        self._owns_network = network is None
        #: The connections to the brokers.
        self.network = network or NetworkClient(config, random=self._random)
        self._key_serializer = self.config.key_serializer
        self._value_serializer = self.config.value_serializer
        self._serializes = bool(self._key_serializer or self._value_serializer)
        self._default_partitioner = self.config.partitioner == "default"
        self._topics: dict[str, TopicQueues] = {}
        #: The topics for the fast path of `send`; empty while no transaction accepts records.
        self._open_topics = self._topics if self.config.transactional_id is None else {}
        #: The state of the transactions; None without a transactional id, and before `start`.
        self.transaction_manager: TransactionManager | None = None
        self._transaction_calls: TransactionCalls | None = None
        self.accumulator: Accumulator | None = None
        self._partitioner: Partitioner | None = None
        self._appender: Appender | None = None
        self._sender: Sender | None = None
        self._loop: SenderLoop | None = None
        self._event_loop: asyncio.AbstractEventLoop
        self._closing = False
        self._pid = -1

    # --- life -------------------------------------------------------------------------------------

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connect. MetadataTimeout if no broker is reached within `timeout_ms` (max_block_ms if
        None)."""
        if self._closing:
            raise Closed("this producer was closed; make a new one")
        if self._loop is not None:
            return
        await self.network.start(timeout_ms)
        config = self.config
        loop = self._event_loop = asyncio.get_running_loop()

        def new_future() -> Waiter:
            require_running(loop)
            return Waiter(loop=loop)

        accumulator = self.accumulator = Accumulator(
            batch_size=config.batch_size,
            linger_ms=config.linger_ms,
            buffer_memory=config.buffer_memory,
            codec=codec_of(config),
            delivery_timeout_ms=config.delivery_timeout_ms,
            new_future=new_future,
        )
        self._partitioner = Partitioner(
            config, self.network.cluster, accumulator, self._topics, self._random
        )
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._random)
        identity: IdempotenceManager | TransactionManager | None = None
        if config.transactional_id is not None:
            identity = self.transaction_manager = TransactionManager(
                config.transactional_id,
                config.transaction_timeout_ms,
                new_future=new_future,
                feature_level=lambda: self.network.feature_level("transaction.version"),
                backoff=backoff,
                two_phase=config.transaction_two_phase_commit_enable,
            )
        elif config.enable_idempotence:
            identity = IdempotenceManager()
        self._sender = Sender(config, self.network.cluster, accumulator, identity, backoff)
        self._loop = SenderLoop(self._sender, self.network, accumulator.wake_waiter, self._give_up)
        self._appender = Appender(
            config,
            self.network,
            accumulator,
            self._partitioner,
            self._sender,
            self._loop,
            self.transaction_manager,
        )
        if self.transaction_manager is not None:
            self._transaction_calls = TransactionCalls(
                self.transaction_manager,
                accumulator,
                self._loop,
                config.max_block_ms,
                self._take_no_records,
            )
        self.network.add_listener(self._metadata_changed)
        self._loop.wake()
        self._pid = os.getpid()
        _open.add(self)

    async def close(self, timeout_ms: float | None = None) -> None:
        """Send what is buffered, then close. May be called again.

        Records that are not delivered within `timeout_ms` fail with Closed; None waits for all of
        them, up to delivery_timeout_ms (C-34). An open transaction is aborted, unless it is
        prepared.
        """
        if self._closing:
            return
        self.network.require_own_loop()
        self._closing = True
        _open.discard(self)
        self._topics.clear()  # closes the fast path
        try:
            if self.accumulator is not None:
                self.accumulator.closing = True
                limit_s = None if timeout_ms is None else timeout_ms / 1000
                try:
                    async with asyncio.timeout(limit_s):
                        await self.flush()
                        if self._transaction_calls is not None:
                            await self._transaction_calls.close()
                except TimeoutError:
                    pass
        finally:
            if self.transaction_manager is not None:
                self.transaction_manager.fail(Closed("the producer was closed"))
            if self._sender is not None:
                self._sender.fail_all(
                    Closed("the producer was closed before the record was sent"),
                    Closed(
                        "the producer was closed before the record was acknowledged; it may be "
                        "written or not"
                    ),
                )
            if self._loop is not None:
                self._loop.stop()
            if self.accumulator is not None:
                self.accumulator.wake_all_waiters()
            if self._owns_network:
                await self.network.close()
            elif self._loop is not None:
                self.network.remove_listener(self._metadata_changed)

    def _give_up(self, failure: OdradekError) -> None:
        """End this producer, because its sender has failed: every call and delivery fails."""
        accumulator, sender, loop = self.accumulator, self._sender, self._loop
        assert accumulator is not None and sender is not None and loop is not None
        accumulator.failure = failure
        self._topics.clear()  # closes the fast path
        if self.transaction_manager is not None:
            self.transaction_manager.fail(failure)
        sender.fail_all(
            failure,
            InternalError(f"{failure}; the record may be written or not", code=failure.code),
        )
        loop.stop()
        accumulator.wake_all_waiters()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        # The attribute is missing if __init__ raised.
        if not getattr(self, "_closing", True):
            self._warn_of_lost_records()

    def _warn_of_lost_records(self) -> None:
        """Log the loss, and warn. A log line is needed because Python hides a ResourceWarning by
        default."""
        accumulator = self.accumulator
        if accumulator is None or self._pid != os.getpid():
            return  # never started; or the copy of a producer in a forked child
        self._closing = True
        count = sum(batch.builder.record_count for batch in list(accumulator.incomplete))
        if count:
            text = (
                f"{counted(count, 'record')} {'is' if count == 1 else 'are'} lost or unacknowledged, "
                "because their producer was never closed; "
                "use `async with` (or `with`), or call close()"
            )
            log.error("%s", text)
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    # --- sending ----------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers | Mapping[str, bytes | None] | None = (),
        partition: int | None = None,
        timestamp_ms: Time | None = None,
    ) -> Delivery:
        """Buffer a record; await the returned `Delivery` to know that it is written.

        `value` and `key` are bytes or None, unless there is a serializer. `headers` are (name,
        bytes) pairs, or a mapping. `timestamp_ms` is in ms since 1970, or a datetime; None: the
        present time. Waits for metadata and for memory, at most max_block_ms (C-11). Raises
        MetadataTimeout, BufferTimeout, RecordTooLarge (C-12), InvalidTopic,
        TopicAuthorizationFailed, Closed, TypeError, ValueError.
        """
        if self._serializes:
            key, value = self._serialize(key, value)
        delivery = self._append(topic, value, key, headers, partition, timestamp_ms)
        if delivery is not None:
            return delivery
        appender, stamp = self._checked_appender(), self._timestamp(timestamp_ms)
        try:
            return await appender.append(topic, value, key, headers, partition, stamp)
        except asyncio.CancelledError as error:
            raise error.with_traceback(None) from None

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers | Mapping[str, bytes | None] | None = (),
        partition: int | None = None,
        timestamp_ms: Time | None = None,
    ) -> RecordMetadata:
        """Buffer a record like `send`, and wait until it is written."""
        delivery = await self.send(
            topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return await delivery

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers | Mapping[str, bytes | None] | None = (),
        partition: int | None = None,
        timestamp_ms: Time | None = None,
    ) -> Delivery:
        """Buffer a record like `send`, without waiting. BufferFull if there is no memory,
        MetadataTimeout if the topic's metadata is not known yet (await `partitions_for` first).
        Nothing is sent until the event loop runs, so a loop over this method must await at
        times."""
        if self._serializes:
            key, value = self._serialize(key, value)
        delivery = self._append(topic, value, key, headers, partition, timestamp_ms)
        if delivery is not None:
            return delivery
        appender, stamp = self._checked_appender(), self._timestamp(timestamp_ms)
        return appender.append_nowait(topic, value, key, headers, partition, stamp)

    async def produce_arrow(
        self,
        topic: str,
        batch: pyarrow.RecordBatch,
        *,
        partition: int | None = None,
        timestamp_ms: Time | None = None,
    ) -> ArrowDelivery:
        """Buffer the rows of a `pyarrow.RecordBatch`, without an object per record; await the
        returned `ArrowDelivery` to know that they are written.

        The columns are: `value`, and optionally `key`, `headers`, `partition` and `timestamp`
        (docs/use/arrow.md). The arguments `partition` and `timestamp_ms` apply to all rows, instead
        of those columns. All rows are checked before the first is buffered: TypeError, ValueError
        and RecordTooLarge name the row and the column. Otherwise raises like `send`; the text of
        BufferTimeout has the number of rows that were buffered. Serializers are not called.
        """
        appender = self._checked_appender()
        appender.check_transaction()
        check_topic(topic)
        rows = PartitionedRows(self.config, batch, partition, self._timestamp(timestamp_ms))
        delivery = ArrowDelivery(topic, rows.count)
        await appender.append_rows(rows, partition, delivery)
        return delivery

    async def produce_lines(
        self, lines: LineRecords, delivery: ArrowDelivery, *, partition: int | None = None
    ) -> None:
        """Buffer lines as the values of records of the delivery's topic, without an object per
        record, up to the first line that is too large; await `delivery` to know that they are
        written. The timestamp of all records is the present time.

        Raises like `send`; `delivery.buffered` is the number of lines that were buffered. Neither
        serializers nor a custom partitioner are called.
        """
        appender = self._checked_appender()
        rows = Lines(self.config, lines, partition, self._timestamp(None))
        await appender.append_rows(rows, partition, delivery)

    async def produce_batch(
        self, topic: str, partition: int, records: EncodedRecords
    ) -> ProducerBatch:
        """Buffer a whole batch, whose bytes stay as they are; wait for the returned batch to know
        its offsets.

        The method is for programs that copy batches. A call may return without a turn of the event
        loop, so a loop over this method must wait at times (`asyncio.sleep(0)`), or nothing is
        sent. Raises like `send`; raises ValueError for a partition that the topic does not have.
        """
        return await self._checked_appender().append_batch(topic, partition, records)

    async def flush(self) -> None:
        """Send all buffered records, and wait until the result of each is known, even if it is an
        error."""
        accumulator, loop = self.accumulator, self._loop
        if accumulator is None or loop is None:
            raise NotStarted('this producer was not started; use "async with" or call start()')
        batches = list(accumulator.incomplete)
        if not batches:
            return
        accumulator.flushes += 1
        loop.wake()
        try:
            for batch in batches:
                while not batch.done:
                    await batch.wait()
        finally:
            accumulator.flushes -= 1

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions, sorted. Raises like `send`."""
        await self._checked_appender().find_topic(topic)
        return self.network.cluster.partitions_of(topic) or []

    def metrics(self) -> dict[str, float]:
        """Metrics with the names of Kafka's client: `produce-throttle-time-avg` and
        `produce-throttle-time-max`, the time that quotas made this producer wait, in milliseconds,
        over the last minute; NaN without an answer."""
        return self.network.throttle_metrics("produce")

    # --- transactions -----------------------------------------------------------------------------

    async def init_transactions(self) -> None:
        """Get a producer id and epoch. To be called once, before the first transaction.

        Older producers of the same transactional_id are fenced; their open transaction is aborted
        or, if it was being committed, completed (T-59). The call may be repeated after
        TransactionalIdAuthorizationFailed or ClusterAuthorizationFailed. Also raises Fatal,
        TransactionTimeout, IllegalState.
        """
        await self._transactional().init()

    async def begin_transaction(self) -> None:
        """Open a transaction. No request is sent (C-60). Raises IllegalState, Abortable, Fatal."""
        self._check_open()
        self._transactional().begin()
        self._open_topics = self._topics

    async def commit_transaction(self) -> None:
        """Commit everything that was sent since `begin_transaction`, all or nothing.

        Returns when the coordinator has decided; consumers see the records a moment later (T-31).
        Raises an Abortable if a record was not written: then call `abort_transaction`. Raises
        Fatal, for example if this producer is fenced. Raises TransactionTimeout after max_block_ms:
        the result is then unknown, and another call of `commit_transaction` continues to wait for
        the result (C-67).
        """
        await self._transactional().commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction, with everything that was sent since `begin_transaction`. Resolves
        every Abortable.

        Records that were not sent yet fail with TransactionAborted. Raises like
        `commit_transaction`.
        """
        await self._transactional().abort()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A transaction around a block: committed at the end of the block, aborted if the block
        raises.

        Exceptions of the block and of the commit are raised; after an Abortable the block may be
        tried again. After a TransactionTimeout of the commit, call `commit_transaction` again.
        """
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            await self._abort_quietly()
            raise

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[Partition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit offsets of a group with the transaction. `offsets`: for each partition, the offset
        of the next record to read (K-40).

        `group` is the result of `consumer.group_metadata()`, called again for each transaction
        (KIP-447), or a group id if partitions are assigned manually. Automatic commits of the
        consumer must be disabled. Raises GroupMovedOn and other Abortables, Fatal,
        TransactionTimeout, IllegalState.
        """
        calls = self._transactional()
        self._check_open()
        await calls.send_offsets(offsets, group)

    async def prepare_transaction(self, *, may_time_out: bool = False) -> PreparedTransaction:
        """Prepare the transaction, so that any producer can end it (KIP-939); no more records can
        be added.

        Waits until every record is written. The result has everything that `resume_transaction`
        needs, even in another process. When the producer is closed, the transaction stays open.
        Needs transaction_two_phase_commit_enable=True, or `may_time_out`; with `may_time_out`, the
        broker aborts the transaction after transaction_timeout_ms. Raises Abortable, Fatal,
        IllegalState.
        """
        return await self._transactional().prepare(self.flush, may_time_out=may_time_out)

    async def resume_transaction(self, prepared: PreparedTransaction) -> None:
        """Take over a prepared transaction, in place of `init_transactions`, to commit or abort it.

        No request is sent. If the result of an earlier attempt to end the transaction is unknown, a
        new producer may resume the same `prepared` (T-65). Raises IllegalState.
        """
        self._check_open()
        self._transactional().resume(PreparedTransaction(*prepared))

    async def _abort_quietly(self) -> None:
        """Abort the transaction after an exception. An error of the abort is only logged, so that
        it does not replace the exception."""
        calls = self._transactional()
        if not self._closing:
            await calls.abort_quietly()

    def _transactional(self) -> TransactionCalls:
        if self._transaction_calls is None:
            if self.config.transactional_id is not None:
                raise NotStarted('this producer was not started; use "async with" or call start()')
            raise IllegalState(
                "transactions need a name that outlives restarts: set transactional_id"
            )
        return self._transaction_calls

    def _take_no_records(self) -> None:
        """Close the fast path of `send`, because the transaction accepts no more records."""
        self._open_topics = {}

    # --- the fast path ----------------------------------------------------------------------------

    def _append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        partition: int | None,
        timestamp_ms: Any,
    ) -> Delivery | None:
        """Append a record to an open batch with room; None if the record needs the slow path."""
        if timestamp_ms is None:
            timestamp_ms = int(self._wall_clock() * 1000)
        try:
            state = self._open_topics.get(topic)
            if state is None:
                return None
            if partition is None:
                if not self._default_partitioner:
                    return None
                if key is None:
                    queue = state.sticky
                    if queue is None:
                        return None
                else:
                    queues = state.queues
                    queue = queues[partition_for_key(key, len(queues))]
            elif 0 <= partition < len(state.queues):
                queue = state.queues[partition]
            else:
                return None
            # Like PartitionQueue.try_append, without the call.
            batch = queue.open
            if batch is None or self._event_loop.is_closed():
                return None
            if not headers:
                index = batch.put(timestamp_ms, key, value, None, batch.limit_bytes)
            elif headers.__class__ is list or headers.__class__ is tuple:
                index = batch.builder.append(timestamp_ms, key, value, headers, batch.limit_bytes)
            else:
                return None
            return new_delivery(batch, index) if index >= 0 else None
        except (TypeError, ValueError):
            return None  # `Appender` raises the error

    # --- checks -----------------------------------------------------------------------------------

    def _metadata_changed(self, _: object) -> None:
        assert self._partitioner is not None
        self._partitioner.metadata_changed()
        if self._loop is not None:
            self._loop.wake()

    def _check_open(self) -> None:
        if self._closing:
            raise Closed("this producer was closed; make a new one")
        if self._loop is None:
            raise NotStarted('this producer was not started; use "async with" or call start()')
        self.network.require_loop()

    def _checked_appender(self) -> Appender:
        self._check_open()
        assert self._appender is not None
        self._appender.check_open()
        return self._appender

    def _timestamp(self, timestamp_ms: Time | None) -> int:
        if timestamp_ms is None:
            return int(self._wall_clock() * 1000)
        return as_ms(timestamp_ms, "timestamp_ms")

    def _serialize(self, key: Any, value: Any) -> tuple[Any, Any]:
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        return key, value


def producer_on_network(network: NetworkClient, **settings: Unpack[ProducerSettings]) -> Producer:
    """A producer that uses existing connections and does not close them. Raises ConfigError for an
    invalid setting.

    The function is for programs that create many producers in succession.
    """
    made = Producer.__new__(Producer)
    made._set_up(ProducerConfig.from_settings(settings), network)
    return made


@atexit.register
def _warn_at_exit() -> None:
    for producer in list(_open):
        producer._warn_of_lost_records()
