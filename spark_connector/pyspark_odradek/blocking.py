"""The bridge from Spark's synchronous calls to the asyncio client.

Each Python process has one thread with one event loop, and keeps its clients for later tasks,
because Spark reuses its Python workers, and connecting takes longer than a small read. A forked
process does not use its parent's thread and clients.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import threading
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any, Generic, TypeVar

from odradek_client import loop_thread
from odradek_client.config.consumer import ConsumerConfig
from odradek_client.errors import OdradekError
from odradek_client.network.client import NetworkClient
from odradek_client.producer.producer import Producer
from pyspark_odradek.errors import SinkError, SourceError
from pyspark_odradek.exactly_once.brokers import Brokers
from pyspark_odradek.exactly_once.identity import TransactionNames, Writer
from pyspark_odradek.exactly_once.inheritance import Inheritance, default_place
from pyspark_odradek.options import ClientSettings

T = TypeVar("T")

#: The limit of the clients of a process. Beyond this limit, the least recently used client is
#: closed.
POOL_CLIENTS_MAX = 8
#: The limit of the runs for which a process keeps the names of transactions. A dropped name is not
#: used again.
_RUNS_MAX = 64
_CLOSE_TIMEOUT_S = 5.0
#: A process excludes newly imported modules from garbage collection at most this number of times.
_SPARED_MAX = 16


class SparkLoopThread(loop_thread.LoopThread):
    """An event loop in a separate thread, until the process ends."""

    def __init__(self) -> None:
        super().__init__("odradek-spark")

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine and return its result. After `timeout_s`, cancel the coroutine and raise
        TimeoutError."""
        future = self.submit(coroutine)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise


class Pool(Generic[T]):
    """Started clients by their settings, the most recently used last."""

    def __init__(
        self,
        start: Callable[[dict[str, str]], Awaitable[T]],
        close: Callable[[T], Awaitable[None]],
        clients_max: int = POOL_CLIENTS_MAX,
    ) -> None:
        self._start = start
        self._close = close
        self._clients_max = clients_max
        self._clients: OrderedDict[ClientSettings, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clients)

    def take(self, thread: SparkLoopThread, settings: ClientSettings) -> T:
        """The client for these settings, started if there is none."""
        client = self._clients.get(settings)
        if client is None:
            client = thread.run(_awaited(self._start(dict(settings))))
            self._clients[settings] = client
        self._clients.move_to_end(settings)
        while len(self._clients) > self._clients_max:
            self.discard(thread, next(iter(self._clients)))
        return client

    def discard(self, thread: SparkLoopThread, settings: ClientSettings) -> None:
        """Close and remove a client. The client is removed even if closing it fails."""
        client = self._clients.pop(settings, None)
        if client is None:
            return
        with contextlib.suppress(OdradekError, TimeoutError, OSError):
            thread.run(_awaited(self._close(client)), _CLOSE_TIMEOUT_S)


class Shared:
    """The loop thread and the pools of a process. `pid`: the process that made the object; in a
    forked process, it shows that the object is a copy."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.thread = SparkLoopThread()
        _quieten_client()
        self.networks: Pool[NetworkClient] = Pool(_start_network, NetworkClient.close)
        self.producers: Pool[Producer] = Pool(_start_producer, Producer.close)
        self.brokers: Pool[Brokers] = Pool(_start_brokers, Brokers.close)
        self.names: OrderedDict[Writer, tuple[TransactionNames, Inheritance | None]] = OrderedDict()
        self.nonce = uuid.uuid4().hex[:12]
        self.numbers = count()
        self._told: set[str] = set()

    def first_time(self, what: str) -> bool:
        """True for the first call with this `what` in this process."""
        if what in self._told:
            return False
        self._told.add(what)
        return True


class Imports:
    """Excludes imported modules from the garbage collections of Spark's workers.

    A worker collects all garbage after every task (`pyspark.daemon`). The collection visits all
    imported modules (of Spark, pandas, this package and the user), and takes tens of milliseconds,
    while a small task takes one millisecond. In processes that are not workers, this class changes
    nothing.
    """

    def __init__(self, is_worker: bool) -> None:
        self._left = _SPARED_MAX if is_worker else 0
        self._modules = 0

    def spare(self) -> None:
        """Exclude from garbage collection the modules that were imported since the last call. Each
        task calls this method.
        """
        if self._left == 0 or len(sys.modules) == self._modules:
            return
        self._left -= 1
        self._modules = len(sys.modules)
        # Garbage must be collected first, because excluded objects are never visited again.
        gc.collect()
        gc.freeze()


def _is_worker() -> bool:
    specification = sys.modules["__main__"].__spec__
    return specification is not None and specification.name == "pyspark.daemon"


imports = Imports(_is_worker())

_lock = threading.Lock()
_shared: Shared | None = None


def shared() -> Shared:
    """The `Shared` of this process, made at the first call."""
    global _shared
    imports.spare()
    with _lock:
        if _shared is None or not _shared.thread.is_running:
            _shared = Shared()
        return _shared


def network(settings: ClientSettings) -> NetworkClient:
    """A started network client. Raises SourceError if no broker is reached."""
    here = shared()
    try:
        return here.networks.take(here.thread, settings)
    except OdradekError as error:
        raise SourceError(f"odradek: {error}") from error


def producer(settings: ClientSettings) -> Producer:
    """A started producer. Raises SinkError if no broker is reached."""
    here = shared()
    try:
        return here.producers.take(here.thread, settings)
    except OdradekError as error:
        raise SinkError(f"odradek: {error}") from error


def brokers(settings: ClientSettings) -> Brokers:
    """The connections for exactly-once writes, after a check that the cluster supports such writes.
    Raises SinkError if no broker is reached."""
    here = shared()
    try:
        return here.brokers.take(here.thread, settings)
    except OdradekError as error:
        raise SinkError(f"odradek: {error}") from error


def names(writer: Writer, *, lasting: bool = False) -> TransactionNames:
    """The transaction names of this process for a run. `lasting`: true for a stream, whose run has
    many batches."""
    here = shared()
    if writer not in here.names:
        place = default_place() if lasting else None
        inherited = None if place is None else Inheritance(place, writer)
        # If a run occurs again after its names were dropped, it must not get the same names.
        made = TransactionNames(f"{here.nonce}-{next(here.numbers)}", inherited=inherited)
        here.names[writer] = made, inherited
    found, _ = here.names[writer]
    here.names.move_to_end(writer)
    while len(here.names) > _RUNS_MAX:
        _, (_, forgotten) = here.names.popitem(last=False)
        if forgotten is not None:
            forgotten.close()
    return found


async def _start_brokers(settings: dict[str, str]) -> Brokers:
    started = Brokers(settings)
    try:
        await started.start()
    except BaseException:
        await started.close()
        raise
    return started


async def _start_network(settings: dict[str, str]) -> NetworkClient:
    started = NetworkClient(ConsumerConfig.from_settings(settings))
    await started.start()
    return started


async def _start_producer(settings: dict[str, str]) -> Producer:
    values: dict[str, Any] = dict(settings)
    started = Producer(**values)
    await started.start()
    return started


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _quieten_client() -> None:
    """Silence the client's log. While a worker waits for its next task, lost and new connections to
    brokers would be logged to the user's console. Errors that matter to a task are raised."""
    client_log = logging.getLogger("odradek.client")
    if client_log.level == logging.NOTSET:
        client_log.setLevel(logging.ERROR)
