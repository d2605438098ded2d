"""The blocking classes, for programs without an event loop: every call blocks until it is done.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("orders", b"...").result()
    with Consumer("orders", group_id="billing") as consumer:
        for record in consumer:
            ...

All objects share one event loop in a daemon thread. Any thread may call their methods; Ctrl+C
interrupts any call. `odradek.Producer`, `Consumer` and `Admin` describe the methods.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import chain
from queue import SimpleQueue
from re import Pattern
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from odradek_client import admin as _admin
from odradek_client.blocking_calls import Callback, Work, loop_thread
from odradek_client.consumer import consumer as _consumer
from odradek_client.consumer.arguments import Partition
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_client.errors import (
    Closed,
    IllegalState,
    NotStarted,
    OdradekError,
    RequestTimedOut,
)
from odradek_client.producer import arrow as _arrow
from odradek_client.producer import batch as _batch
from odradek_client.producer import producer as _producer
from odradek_client.share import consumer as _share
from odradek_client.share.acknowledgements import AcknowledgeType
from odradek_client.share.errors import Reject, Release
from odradek_client.share.record import Holder, ShareRecord
from odradek_client.structs import ConsumerRecord, TopicPartition
from odradek_client.tasks import OfOneProcess
from odradek_client.timestamps import Time

if TYPE_CHECKING:
    import pyarrow

    from odradek_client.config.keywords import (
        AdminSettings,
        ConsumerSettings,
        ProducerSettings,
        ShareConsumerSettings,
    )

R = TypeVar("R")

__all__ = ["Admin", "ArrowDelivery", "Consumer", "Delivery", "Producer", "ShareConsumer"]

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

#: The time in which further single records are returned without a call to the loop's thread.
_FRESH_S = 0.02


def _waits(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """A blocking method made from a coroutine method."""

    def blocking(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        # The method is looked up by name, because an instrumented client has other methods
        # (odradek.otel).
        found: Callable[P, Coroutine[Any, Any, R]] = getattr(self.inner, method.__name__)
        return _run(self, functools.partial(found, *args, **kwargs))

    return _like(method, blocking)


def _takes(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """A blocking method made from a coroutine method that takes records. If Ctrl+C interrupts the
    caller when they are taken, the records are put back."""

    def blocking(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: Callable[P, Coroutine[Any, Any, R]] = getattr(self.inner, method.__name__)
        taking: _Taking[R] = _Taking(functools.partial(found, *args, **kwargs), self._undo)
        self._refuse_forked()  # first: of a lock that was held at the fork, nobody lets go
        try:
            with self._polling:
                return _run(self, taking)
        except BaseException:
            with suppress(Closed):
                loop_thread().soon(taking.give_up)
            raise

    return _like(method, blocking)


class _Taking(Generic[R]):
    """The work of a call that takes records. `undo_of(result)` is a function that puts them
    back."""

    def __init__(self, work: Work[R], undo_of: Callable[[R], Callback]) -> None:
        self._work, self._undo_of = work, undo_of
        self._undo: list[Callback] = []
        self._is_given_up = False

    async def __call__(self) -> R:
        result = await self._work()
        self._undo.append(self._undo_of(result))
        if self._is_given_up:
            self.give_up()
        return result

    def give_up(self) -> None:
        """Put the records back, also those that are not taken yet. Runs on the loop's thread."""
        self._is_given_up = True
        while self._undo:
            self._undo.pop()()


def _calls(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A blocking method that calls a plain method on the loop's thread, because the object is not
    thread-safe."""

    def blocking(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def on_the_loop() -> R:
            return method(self.inner, *args, **kwargs)

        self._refuse_forked()  # first: of a lock that was held at the fork, nobody lets go
        with self._quick:
            return _run(self, on_the_loop)

    return _like(method, blocking)


def _like(original: Callable[..., Any], blocking: F) -> F:
    """Copy the name, signature and documentation of the original."""
    functools.update_wrapper(blocking, original)
    return blocking


def _run(owner: Any, work: Work[R]) -> R:
    """Wait for `work`, a method call on the inner object. Callbacks run in this thread (see
    `_InThisThread`)."""
    owner._refuse_forked()
    callbacks: SimpleQueue[Callback | None] = SimpleQueue()
    try:
        owner._serving.append(callbacks)
        return loop_thread().run(work, callbacks)
    except NotStarted:
        name = type(owner).__name__.lower()
        raise NotStarted(f'this {name} was not started; use "with" or call start()') from None
    finally:
        if callbacks in owner._serving:  # Ctrl+C may have interrupted `append`
            owner._serving.remove(callbacks)


def _forked(name: str, pid: int | None) -> IllegalState:
    return IllegalState(
        f"this {name} belongs to process {pid}, and its connections do not survive a fork; make a "
        f"client of its own in this process ({os.getpid()})"
    )


class _Blocking(OfOneProcess):
    """The base of the blocking clients: an asynchronous client, with `start` and `close`."""

    def __init__(self, inner: Any) -> None:
        #: The client with asyncio, which belongs to the thread of the event loop.
        self.inner = inner
        #: The id of the process that has connected; None before `start`.
        self._pid: int | None = None
        self._quick = threading.RLock()
        self._polling = threading.RLock()
        self._serving: list[SimpleQueue[Callback | None]] = []

    def start(self, timeout_ms: float | None = None) -> None:
        """Connect, as `with` does. MetadataTimeout if no broker answers within `timeout_ms`."""
        if self._pid is None:
            self._pid = os.getpid()
        _run(self, functools.partial(self.inner.start, timeout_ms))

    def close(self) -> None:
        """Finish all work, and disconnect, as the end of `with` does. May be called again.

        A forked child does nothing, because the connections belong to the parent.
        """
        if not self._is_forked:
            _run(self, self.inner.close)

    @property
    def _is_forked(self) -> bool:
        return self._pid is not None and self._pid != os.getpid()

    def _refuse_forked(self) -> None:
        if self._is_forked:
            raise _forked(type(self).__name__, self._pid)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- Producer -------------------------------------------------------------------------------------


class _Fate(Generic[R]):
    """The common part of `Delivery` and `ArrowDelivery`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self._pid = os.getpid()

    def done(self) -> bool:
        """True if the result is known."""
        return bool(self.inner.done())

    def result(self, timeout_ms: float | None = None) -> R:
        """Wait for the metadata of the written data. Raises the error if the data was not written;
        RequestTimedOut if the result is not known within `timeout_ms`."""

        async def wait() -> R:
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    found: R = await self.inner
                    return found
            except TimeoutError as error:
                if isinstance(error, OdradekError):
                    raise
                raise RequestTimedOut(f"not delivered within {timeout_ms:.0f} ms yet") from None

        if self.inner.done():
            found: R = self.inner.result()
            return found
        if self._pid != os.getpid():
            raise _forked(type(self).__name__, self._pid)
        return loop_thread().run(wait, SimpleQueue())

    def exception(self) -> OdradekError | None:
        """The reason why the data was not written, or None if it was. IllegalState while the result
        is not known."""
        error: OdradekError | None = self.inner.exception()
        return error


class Delivery(_Fate[_batch.RecordMetadata]):
    """The result of sending one record."""


class ArrowDelivery(_Fate[_arrow.ArrowMetadata]):
    """The result of sending a RecordBatch's rows."""

    def outcomes(self) -> list[_arrow.RowsOutcome]:
        """The results by ranges of rows. IllegalState before they are known."""
        found: list[_arrow.RowsOutcome] = self.inner.outcomes()
        return found


class Producer(_Blocking):
    """The blocking counterpart of `odradek.Producer`."""

    def __init__(self, **settings: Unpack[ProducerSettings]) -> None:
        super().__init__(_producer.Producer(**settings))

    _send = _waits(_producer.Producer.send)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Any = (),
        partition: int | None = None,
        timestamp_ms: Time | None = None,
    ) -> Delivery:
        """Send like `odradek.Producer.send`; `result` of the returned delivery waits until the
        record is written."""
        return Delivery(
            self._send(
                topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
        )

    _produce_arrow = _waits(_producer.Producer.produce_arrow)

    def produce_arrow(
        self,
        topic: str,
        batch: pyarrow.RecordBatch,
        *,
        partition: int | None = None,
        timestamp_ms: Time | None = None,
    ) -> ArrowDelivery:
        """Send rows like `odradek.Producer.produce_arrow`; `result` of the returned delivery waits
        until all rows are written."""
        return ArrowDelivery(
            self._produce_arrow(topic, batch, partition=partition, timestamp_ms=timestamp_ms)
        )

    send_and_wait = _waits(_producer.Producer.send_and_wait)
    flush = _waits(_producer.Producer.flush)
    partitions_for = _waits(_producer.Producer.partitions_for)
    metrics = _calls(_producer.Producer.metrics)
    init_transactions = _waits(_producer.Producer.init_transactions)
    begin_transaction = _waits(_producer.Producer.begin_transaction)
    commit_transaction = _waits(_producer.Producer.commit_transaction)
    abort_transaction = _waits(_producer.Producer.abort_transaction)
    send_offsets_to_transaction = _waits(_producer.Producer.send_offsets_to_transaction)
    prepare_transaction = _waits(_producer.Producer.prepare_transaction)
    resume_transaction = _waits(_producer.Producer.resume_transaction)
    _abort_quietly = _waits(_producer.Producer._abort_quietly)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Open a transaction like `odradek.Producer.transaction`."""
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            self._abort_quietly()
            raise


# --- Consumer -------------------------------------------------------------------------------------


class _InThisThread(RebalanceListener):
    """A listener whose methods run in the thread that is waiting in the poll. In that thread, the
    methods may block and call the consumer."""

    def __init__(self, listener: RebalanceListener, owner: Consumer) -> None:
        self._listener, self._owner = listener, owner

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        await self._hand_over(self._listener.on_partitions_revoked, partitions)

    async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        await self._hand_over(self._listener.on_partitions_assigned, partitions)

    async def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        await self._hand_over(self._listener.on_partitions_lost, partitions)

    async def _hand_over(
        self,
        method: Callable[[set[TopicPartition]], Awaitable[None] | None],
        partitions: set[TopicPartition],
    ) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def settle(failure: BaseException | None) -> None:
            if done.done():
                return
            if failure is None:
                done.set_result(None)
            else:
                done.set_exception(failure)

        def callback() -> None:
            failure: Exception | None = None
            try:
                answer = method(partitions)
                if inspect.isawaitable(answer):
                    asyncio.run(_awaited(answer))
            except Exception as error:  # noqa: BLE001 - the poll raises it
                failure = error
            with suppress(RuntimeError):  # the loop is closed, and the caller knows it
                loop.call_soon_threadsafe(settle, failure)

        self._owner._serving[-1].put(callback)
        await done


async def _awaited(answer: Awaitable[None]) -> None:
    await answer


class Consumer(_Blocking):
    """The blocking counterpart of `odradek.Consumer`; iterating yields records without end."""

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        super().__init__(_consumer.Consumer(*topics, **settings))
        self._fresh_until_s = 0.0

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe like `odradek.Consumer.subscribe`; the listener runs in the thread that
        polls."""
        wrapped = None if listener is None else _InThisThread(listener, self)
        self._subscribe(topics, pattern=pattern, listener=wrapped)

    _subscribe = _calls(_consumer.Consumer.subscribe)
    assign = _calls(_consumer.Consumer.assign)
    unsubscribe = _waits(_consumer.Consumer.unsubscribe)
    subscription = _calls(_consumer.Consumer.subscription)
    assignment = _calls(_consumer.Consumer.assignment)
    metrics = _calls(_consumer.Consumer.metrics)
    poll = _takes(_consumer.Consumer.poll)
    getmany = _takes(_consumer.Consumer.getmany)
    _getone = _takes(_consumer.Consumer.getone)
    poll_arrow = _takes(_consumer.Consumer.poll_arrow)
    commit = _waits(_consumer.Consumer.commit)
    _commit_soon = _calls(_consumer.Consumer.commit_soon)
    committed = _waits(_consumer.Consumer.committed)
    position = _waits(_consumer.Consumer.position)
    seek = _calls(_consumer.Consumer.seek)
    _seek_to_beginning = _waits(_consumer.Consumer.seek_to_beginning)
    _seek_to_end = _waits(_consumer.Consumer.seek_to_end)
    pause = _calls(_consumer.Consumer.pause)
    resume = _calls(_consumer.Consumer.resume)
    paused = _calls(_consumer.Consumer.paused)
    partitions_for = _waits(_consumer.Consumer.partitions_for)
    offsets_for_times = _waits(_consumer.Consumer.offsets_for_times)
    beginning_offsets = _waits(_consumer.Consumer.beginning_offsets)
    end_offsets = _waits(_consumer.Consumer.end_offsets)
    lag = _waits(_consumer.Consumer.lag)
    group_metadata = _calls(_consumer.Consumer.group_metadata)

    def getone(self) -> ConsumerRecord:
        """Take a record like `odradek.Consumer.getone`."""
        self._refuse_forked()
        record: ConsumerRecord | None = None
        try:
            with self._polling:
                if time.monotonic() < self._fresh_until_s:
                    # The lock excludes polls, seeks and pauses of other threads.
                    with self._quick:
                        record = self.inner.take_buffered()
                if record is None:
                    record = self._getone()
                    self._fresh_until_s = time.monotonic() + _FRESH_S
                return record
        except BaseException:
            if record is not None:  # Ctrl+C
                with suppress(Closed):
                    loop_thread().soon(self._undo(record))
            raise

    def _undo(self, result: object) -> Callback:
        fetcher = self.inner._fetcher
        if isinstance(result, ConsumerRecord):
            partition = TopicPartition(result.topic, result.partition)
            return functools.partial(fetcher.take_back, {partition: result.offset})
        return functools.partial(fetcher.take_back, fetcher.positions_before)

    def commit_soon(self, offsets: Any = None) -> Future[None]:
        """Commit like `odradek.Consumer.commit_soon`; the returned future's `result` waits."""
        thread = loop_thread()
        done: Future[None] = thread.future()

        def settle(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                done.cancel()
            elif (error := task.exception()) is not None:
                done.set_exception(error)
            else:
                done.set_result(None)

        task = self._commit_soon(offsets)
        thread.soon(task.add_done_callback, settle)
        return done

    @property
    def is_member(self) -> bool:
        """Membership in the group, like `odradek.Consumer.is_member`."""
        return self.inner.is_member  # type: ignore[no-any-return]

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Seek like `odradek.Consumer.seek_to_beginning`."""
        with self._quick:
            self._seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Seek like `odradek.Consumer.seek_to_end`."""
        with self._quick:
            self._seek_to_end(*partitions)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        try:
            return self.getone()
        except Closed:
            if self.inner._started and self.inner._closed:
                raise StopIteration from None
            raise


# --- ShareConsumer --------------------------------------------------------------------------------


class _OnTheLoop:
    """A `Holder` for the records of a blocking program. The holder passes the records' calls on to
    the loop's thread."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def _soon(self, method: Callable[..., None], *args: Any) -> None:
        loop_thread().soon(method, *args)

    def answer(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        self._soon(self._holder.answer, record, kind)

    def begin_handling(self, record: ShareRecord) -> None:
        self._soon(self._holder.begin_handling, record)

    def end_handling(self, record: ShareRecord) -> None:
        self._soon(self._holder.end_handling, record)

    def note_decision(self, record: ShareRecord, decision: Reject | Release) -> None:
        self._holder.note_decision(record, decision)

    def new_waiter(self) -> Any:
        return self._holder.new_waiter()


class ShareConsumer(_Blocking):
    """The blocking counterpart of `odradek.ShareConsumer`. Iterating yields records without end,
    and `with record:` acknowledges or releases the record."""

    def __init__(self, *topics: str, **settings: Unpack[ShareConsumerSettings]) -> None:
        inner = _share.ShareConsumer(*topics, **settings)
        inner.wrap_holder(_OnTheLoop)
        super().__init__(inner)

    subscribe = _calls(_share.ShareConsumer.subscribe)
    unsubscribe = _waits(_share.ShareConsumer.unsubscribe)
    subscription = _calls(_share.ShareConsumer.subscription)
    assignment = _calls(_share.ShareConsumer.assignment)
    metrics = _calls(_share.ShareConsumer.metrics)
    poll = _takes(_share.ShareConsumer.poll)
    getmany = _takes(_share.ShareConsumer.getmany)
    getone = _takes(_share.ShareConsumer.getone)
    commit = _waits(_share.ShareConsumer.commit)
    commit_soon = _calls(_share.ShareConsumer.commit_soon)
    wakeup = _calls(_share.ShareConsumer.wakeup)
    set_acknowledgement_callback = _calls(_share.ShareConsumer.set_acknowledgement_callback)

    def _undo(
        self, result: ShareRecord | list[ShareRecord] | dict[TopicPartition, list[ShareRecord]]
    ) -> Callback:
        if isinstance(result, ShareRecord):
            result = [result]
        elif isinstance(result, dict):
            result = list(chain.from_iterable(result.values()))
        return functools.partial(self.inner._give_back, result)

    def __iter__(self) -> Iterator[ShareRecord]:
        return self

    def __next__(self) -> ShareRecord:
        try:
            return self.getone()
        except Closed:
            if self.inner._started and self.inner._closed:
                raise StopIteration from None
            raise


# --- Admin ----------------------------------------------------------------------------------------


class Admin(_Blocking):
    """The blocking counterpart of `odradek.Admin`."""

    def __init__(self, **settings: Unpack[AdminSettings]) -> None:
        super().__init__(_admin.Admin(**settings))

    create_topics = _waits(_admin.Admin.create_topics)
    delete_topics = _waits(_admin.Admin.delete_topics)
    list_topics = _waits(_admin.Admin.list_topics)
    describe_topics = _waits(_admin.Admin.describe_topics)
    create_partitions = _waits(_admin.Admin.create_partitions)
    describe_configs = _waits(_admin.Admin.describe_configs)
    list_config_resources = _waits(_admin.Admin.list_config_resources)
    alter_configs = _waits(_admin.Admin.alter_configs)
    describe_client_quotas = _waits(_admin.Admin.describe_client_quotas)
    alter_client_quotas = _waits(_admin.Admin.alter_client_quotas)
    describe_user_scram_credentials = _waits(_admin.Admin.describe_user_scram_credentials)
    alter_user_scram_credentials = _waits(_admin.Admin.alter_user_scram_credentials)
    create_delegation_token = _waits(_admin.Admin.create_delegation_token)
    renew_delegation_token = _waits(_admin.Admin.renew_delegation_token)
    expire_delegation_token = _waits(_admin.Admin.expire_delegation_token)
    describe_delegation_token = _waits(_admin.Admin.describe_delegation_token)
    create_acls = _waits(_admin.Admin.create_acls)
    describe_acls = _waits(_admin.Admin.describe_acls)
    delete_acls = _waits(_admin.Admin.delete_acls)
    describe_cluster = _waits(_admin.Admin.describe_cluster)
    describe_broker = _waits(_admin.Admin.describe_broker)
    list_offsets = _waits(_admin.Admin.list_offsets)
    delete_records = _waits(_admin.Admin.delete_records)
    describe_log_dirs = _waits(_admin.Admin.describe_log_dirs)
    list_groups = _waits(_admin.Admin.list_groups)
    describe_groups = _waits(_admin.Admin.describe_groups)
    delete_groups = _waits(_admin.Admin.delete_groups)
    list_group_offsets = _waits(_admin.Admin.list_group_offsets)
    list_offsets_of_groups = _waits(_admin.Admin.list_offsets_of_groups)
    alter_group_offsets = _waits(_admin.Admin.alter_group_offsets)
    delete_group_offsets = _waits(_admin.Admin.delete_group_offsets)
    describe_share_groups = _waits(_admin.Admin.describe_share_groups)
    list_share_group_offsets = _waits(_admin.Admin.list_share_group_offsets)
    alter_share_group_offsets = _waits(_admin.Admin.alter_share_group_offsets)
    delete_share_group_offsets = _waits(_admin.Admin.delete_share_group_offsets)
    describe_streams_groups = _waits(_admin.Admin.describe_streams_groups)
    list_transactions = _waits(_admin.Admin.list_transactions)
    describe_transactions = _waits(_admin.Admin.describe_transactions)
    describe_history = _waits(_admin.Admin.describe_history)
    describe_broker_status = _waits(_admin.Admin.describe_broker_status)
    list_client_metrics = _waits(_admin.Admin.list_client_metrics)
    list_pushing_clients = _waits(_admin.Admin.list_pushing_clients)
    describe_pushing_client = _waits(_admin.Admin.describe_pushing_client)
    describe_producers = _waits(_admin.Admin.describe_producers)
    abort_transaction = _waits(_admin.Admin.abort_transaction)
    fence_producer = _waits(_admin.Admin.fence_producer)
    end_transaction = _waits(_admin.Admin.end_transaction)
    abort_hanging_transaction = _waits(_admin.Admin.abort_hanging_transaction)
