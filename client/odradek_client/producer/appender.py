"""The slow path of sends: checks a record, finds its topic, and waits for memory (C-11, C-12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from odradek_client.config.producer import ProducerConfig
from odradek_client.errors import (
    BufferFull,
    BufferTimeout,
    Closed,
    IllegalState,
    MetadataTimeout,
    RecordTooLarge,
)
from odradek_client.network.client import NetworkClient
from odradek_client.producer.accumulator import Accumulator, Headers, PartitionQueue
from odradek_client.producer.arrow import (
    ArrowDelivery,
    ArrowSending,
    EncodedGroup,
    Lines,
    PartitionedRows,
)
from odradek_client.producer.batch import Delivery, ProducerBatch
from odradek_client.producer.partitioner import Partitioner, TopicQueues
from odradek_client.producer.sender import Sender
from odradek_client.producer.sender_loop import SenderLoop
from odradek_client.producer.transaction_manager import TransactionManager
from odradek_protocol.records.builder import EncodedRecords, record_upper_bound
from odradek_protocol.records.from_arrow import UnwritablePartition
from odradek_protocol.records.layout import HEADER_BYTES

T = TypeVar("T")


class Appender:
    """Appends records to the batches of a started producer. The errors are those of `Producer`."""

    def __init__(
        self,
        config: ProducerConfig,
        network: NetworkClient,
        accumulator: Accumulator,
        partitioner: Partitioner,
        sender: Sender,
        loop: SenderLoop,
        transactions: TransactionManager | None,
    ) -> None:
        self._config = config
        self._network = network
        self._accumulator = accumulator
        self._partitioner = partitioner
        self._sender = sender
        self._loop = loop
        self._transactions = transactions

    async def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        partition: int | None,
        timestamp_ms: int,
    ) -> Delivery:
        """Put a record into a batch; wait for metadata and for memory, at most max_block_ms."""
        number = self.check_transaction()
        headers = check_record(self._config, topic, value, key, headers, partition)
        deadline = self._block_deadline()
        state = await self._topic(topic, partition, number)
        queue = self._partitioner.choose(state, key, value, partition)
        delivery = queue.try_append(timestamp_ms, key, value, headers)
        if delivery is not None:
            return delivery
        if not self._accumulator.waiters:
            delivery = self._begin(queue, timestamp_ms, key, value, headers)
        if delivery is None:

            def attempt() -> Delivery | None:
                found = queue.try_append(timestamp_ms, key, value, headers)
                return found or self._begin(queue, timestamp_ms, key, value, headers)

            return await self._wait_for_memory(attempt, deadline, number)
        # Let the sender run, even during a loop of sends that never have to wait.
        await asyncio.sleep(0)
        return delivery

    def append_nowait(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        partition: int | None,
        timestamp_ms: int,
    ) -> Delivery:
        """Put a record into a batch immediately. BufferFull if there is no memory; MetadataTimeout
        if the topic's metadata is not known yet."""
        self.check_transaction()
        headers = check_record(self._config, topic, value, key, headers, partition)
        state = self._partitioner.known(topic, self._network.now_ms())
        if state is None:
            raise MetadataTimeout(
                f"topic {topic!r} is not known yet; await partitions_for({topic!r}) first"
            )
        queue = self._partitioner.choose(state, key, value, partition)
        delivery = queue.try_append(timestamp_ms, key, value, headers)
        if delivery is None:
            delivery = self._begin(queue, timestamp_ms, key, value, headers)
        if delivery is None:
            raise BufferFull(
                f"buffer_memory={self._config.buffer_memory} is used up; await send() instead, or "
                "wait for deliveries"
            )
        return delivery

    async def append_rows(
        self, rows: PartitionedRows | Lines, partition: int | None, delivery: ArrowDelivery
    ) -> None:
        """Put rows into batches. `partition`: the partition of all rows; None if they have no
        common partition."""
        number = self.check_transaction()
        topic = delivery.topic
        state = await self._topic(topic, partition, number)
        try:
            rows.place(self._partitioner, state)
        except UnwritablePartition:
            # The topic may have got more partitions.
            state = await self._found_topic(topic, number)
            rows.place(self._partitioner, state)
        sending = ArrowSending(rows, self._partitioner, state, self._accumulator, delivery)
        while sending.left:
            if sending.compresses:
                loop = asyncio.get_running_loop()
                chunk = await loop.run_in_executor(None, sending.chunk)
            else:
                chunk = sending.chunk()
            self.check_open()
            self.check_transaction(number)
            for encoded in chunk:
                await self._admit(sending, encoded, number)
            # Let the sender run between two chunks.
            await asyncio.sleep(0)

    async def append_batch(
        self, topic: str, partition: int, records: EncodedRecords
    ) -> ProducerBatch:
        """Put a whole batch at the end of its partition's queue; wait for metadata and for memory,
        at most max_block_ms each."""
        number = self.check_transaction()
        state = await self._topic(topic, partition, number)
        queue = self._partitioner.choose(state, None, None, partition)
        accumulator = self._accumulator

        def attempt() -> ProducerBatch | None:
            if not accumulator.has_room(accumulator.encoded_bytes(records)):
                return None
            return accumulator.add(queue, records, self._network.now_ms())

        added = None if accumulator.waiters else attempt()
        if added is None:
            added = await self._wait_for_memory(attempt, self._block_deadline(), number)
        self._loop.wake()
        return added

    async def _admit(self, sending: ArrowSending, encoded: EncodedGroup, number: int) -> None:
        def attempt() -> bool | None:
            return sending.admit(encoded, self._network.now_ms()) or None

        if self._accumulator.waiters or not attempt():
            try:
                await self._wait_for_memory(attempt, self._block_deadline(), number)
            except BufferTimeout as error:
                raise BufferTimeout(f"{error}; {sending.progress()}") from None
        self._loop.wake()

    def _begin(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> Delivery | None:
        """Begin a batch with this record; None if there is no memory for the batch."""
        accumulator = self._accumulator
        limit, reserved = accumulator.batch_bytes(queue.tp.topic, key, value, headers)
        if not accumulator.has_room(reserved):
            return None
        batch = accumulator.begin(queue, limit, reserved, self._network.now_ms())
        try:
            index = batch.builder.append(timestamp_ms, key, value, headers)
        except Exception:
            accumulator.withdraw(queue, batch)
            raise
        self._loop.wake()
        return Delivery(batch, index)

    # --- waiting ----------------------------------------------------------------------------------

    async def _wait_for_memory(
        self, attempt: Callable[[], T | None], deadline: float, number: int
    ) -> T:
        """Wait for this caller's turn, and call `attempt` until it succeeds or the deadline has
        passed. The first caller that waits has the first turn (C-11)."""
        waiters, new_future = self._accumulator.waiters, self._accumulator.new_future
        waiter = new_future()
        waiters.append(waiter)
        self._loop.wake()
        try:
            while True:
                async with asyncio.timeout_at(deadline):
                    await waiter
                self.check_open()
                self.check_transaction(number)
                found = attempt()
                if found is not None:
                    return found
                at = waiters.index(waiter)
                waiter = waiters[at] = new_future()
        except TimeoutError:
            trouble = self._sender.trouble
            raise BufferTimeout(
                f"no room for a record within max_block_ms={self._config.max_block_ms}: "
                f"buffer_memory={self._config.buffer_memory} is used up, "
                + (
                    "the broker is not keeping up or not reachable"
                    if trouble is None
                    else f"and nothing is acknowledged. The last failure: {trouble}"
                )
            ) from None
        finally:
            waiters.remove(waiter)
            self._accumulator.wake_waiter()

    async def _topic(self, topic: str, partition: int | None, number: int) -> TopicQueues:
        state = self._partitioner.known(topic, self._network.now_ms())
        if state is None or (partition is not None and partition >= len(state.queues)):
            return await self._found_topic(topic, number)
        return state

    async def _found_topic(self, topic: str, number: int) -> TopicQueues:
        await self.find_topic(topic)
        self.check_transaction(number)
        state = self._partitioner.known(topic, self._network.now_ms())
        if state is None:
            raise MetadataTimeout(f"topic {topic!r} is gone again")
        return state

    async def find_topic(self, topic: str) -> None:
        """Wait for the topic's metadata, at most max_block_ms."""
        check_topic(topic)
        until_ms = self._network.now_ms() + self._config.metadata_max_idle_ms
        await self._network.wait_for_metadata([topic], self._config.max_block_ms, until_ms=until_ms)

    def _block_deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._config.max_block_ms / 1000

    # --- checks -----------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise Closed if the producer is closed, or the error with which its sender has failed."""
        failure = self._accumulator.failure
        if failure is not None:
            raise type(failure)(f"{failure}; close this producer and make a new one")
        if self._accumulator.closing:
            raise Closed("this producer was closed; make a new one")

    def check_transaction(self, number: int | None = None) -> int:
        """The number of the open transaction; 0 if the producer is not transactional. Raises
        IllegalState if no transaction is open for records. Also raises IllegalState if another
        transaction than `number` is open (None: any)."""
        if self._transactions is None:
            return 0
        current = self._transactions.check_open("send")
        if number is not None and current != number:
            raise IllegalState("the transaction ended while the record waited to get into it")
        return current


def check_record(
    config: ProducerConfig, topic: Any, value: Any, key: Any, headers: Any, partition: Any
) -> Headers:
    """Check types and size (C-12); returns the headers as a sequence of pairs. TypeError,
    ValueError, RecordTooLarge."""
    check_topic(topic)
    for what, content in (("value", value), ("key", key)):
        if content is not None and not isinstance(content, bytes | bytearray | memoryview):
            _refuse_type(what, content)
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
        raise TypeError(f"a partition is a number, not {partition!r}")
    pairs = _header_pairs(headers)
    size = HEADER_BYTES + record_upper_bound(key, value, pairs)
    for limit in ("max_request_size", "buffer_memory"):
        allowed = getattr(config, limit)
        if size > allowed:
            raise RecordTooLarge(
                f"the record takes {size} bytes, {limit} is {allowed}; send less at once or "
                "raise it"
            )
    return pairs


def check_topic(topic: Any) -> None:
    """Raise TypeError or ValueError if the topic's name is invalid."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic is a name, of type str, not {topic!r}")
    if not topic:
        raise ValueError("a topic is a name, and this one is empty")


def _header_pairs(headers: Any) -> Headers:
    """The headers as a sequence of (str, bytes or None). TypeError names the wrong header and the
    problem."""
    if headers is None:
        return ()
    if isinstance(headers, Mapping):
        headers = list(headers.items())
    if not isinstance(headers, list | tuple):
        raise TypeError(
            f"headers must be (name, bytes) pairs, or a mapping, not {type(headers).__name__}"
        )
    for pair in headers:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise TypeError(f"each of the headers must be a (name, bytes) pair, not {pair!r}")
        name, content = pair
        if not isinstance(name, str):
            raise TypeError(f"the name of header {name!r} is {type(name).__name__}, not str")
        if content is not None and not isinstance(content, bytes | bytearray | memoryview):
            raise TypeError(
                f"the value of header {name!r} is {type(content).__name__},"
                " but must be bytes or None"
            )
    return headers


def _refuse_type(what: str, content: object) -> NoReturn:
    if isinstance(content, str):
        raise TypeError(
            f"the {what} is str, but records are bytes: encode it, as in {what}.encode(), or give "
            f"the producer {what}_serializer=str.encode"
        )
    raise TypeError(
        f"the {what} is {type(content).__name__}, but records are bytes: make bytes of it, or give "
        f"the producer a {what}_serializer"
    )
