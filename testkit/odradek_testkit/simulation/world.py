"""The world of one seed: a broker, its disk, a network, clients, faults, and the observations of a
run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, TypeVar

from odradek_broker.metadata.cluster import TRANSACTIONS_TOPIC
from odradek_broker.server.host import StartError
from odradek_broker.server.server import Server
from odradek_broker.storage.errors import DataDirectoryError
from odradek_client.consumer.consumer import Consumer
from odradek_client.network.client import NetworkClient
from odradek_testkit.simulation.broker import SimulatedBroker
from odradek_testkit.simulation.network import SimulatedNetwork, Weather
from odradek_testkit.simulation.process import Process, process_of

#: The time after the end of the faults within which clients and broker must have finished.
LIVENESS_MS = 900_000
#: The minimum and maximum duration of an fsync without a fault. A world has a fast disk (twice as
#: likely) or a slow disk.
_SYNC_MS = ((0.0, 2.0), (0.0, 2.0), (5.0, 50.0))
#: The maximum duration of an fsync, including faults that slow the disk down.
_SYNC_MS_MAX = 1_000
#: The time after which a broker that has stopped with an error is started again.
_RESTART_MS = 100
#: The maximum number of consecutive starts that may fail.
_STARTS_MAX = 20
#: The time that a broker runs without clients before its power is cut.
_ALONE_MS = 200
T = TypeVar("T")

_TRACE_LINES_MAX = 20_000


class Violation(Exception):
    """A property that did not hold; the text describes it."""


class World:
    """The common state of workloads, faults and checkers. Create it inside of its own loop.

    `chance(name)` returns a separate random generator for each purpose. So if a fault is left out,
    all other purposes draw the same numbers as with the fault.
    """

    def __init__(
        self, seed: int, network: SimulatedNetwork, settings: Mapping[str, object] | None = None
    ) -> None:
        self.seed = seed
        self.network = network
        self.loop = asyncio.get_running_loop()
        self.trace: list[str] = []
        self.violations: list[str] = []
        self.broker = SimulatedBroker(network, self.chance("broker"), settings)
        self._sync_ms = self.chance("disk").choice(_SYNC_MS)
        self.sync_delay_ms = self._sync_ms
        self.network.weather = Weather((0.1, 2.0))
        #: The running clients, in the order of their start.
        self.clients: dict[str, Process] = {}
        #: All network clients of the broker, in the order of their start, each with its process.
        self._networks: dict[NetworkClient, Process | None] = {}
        self._consumers: dict[Consumer, Process | None] = {}
        self.faults_over = asyncio.Event()
        #: Called with the group and the member id of each member that the coordinator removes.
        self.on_member_removed: Callable[[str, str], None] = lambda *_: None
        #: Called with each server that is ready, before its first request.
        self.on_broker_ready: Callable[[Server], None] = lambda _: None
        self._restarting = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    def chance(self, name: str) -> Random:
        """A random generator for one purpose."""
        return Random(f"{self.seed}/{name}")

    @property
    def now_ms(self) -> int:
        """The virtual time since the beginning."""
        return int(self.loop.time() * 1000)

    @property
    def sync_delay_ms(self) -> tuple[float, float]:
        """The minimum and maximum duration of the broker's fsyncs."""
        return self.broker.sync_delay_ms

    @sync_delay_ms.setter
    def sync_delay_ms(self, delay_ms: tuple[float, float]) -> None:
        self.broker.sync_delay_ms = delay_ms

    @contextmanager
    def slow_disk(self, least_ms: float, most_ms: float) -> Iterator[None]:
        """Let an fsync take between `least_ms` and `most_ms` while the block lasts."""
        self.sync_delay_ms = (least_ms, most_ms)
        try:
            yield
        finally:
            self.sync_delay_ms = self._sync_ms

    async def sleep(self, duration_ms: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(duration_ms / 1000)

    def note(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        if len(self.trace) < _TRACE_LINES_MAX:
            self.trace.append(f"{self.now_ms:>9} ms  {who:<12} {what}")

    def violated(self, checker: str, what: str) -> None:
        """Called when a property does not hold."""
        self.violations.append(f"{checker}: {what}")
        self.note("CHECKER", f"{checker}: {what}")

    # --- Clients ---

    def started(self, client: NetworkClient | Consumer) -> None:
        """Note a started client, for checkers."""
        known: dict[Any, Process | None] = (
            self._networks if isinstance(client, NetworkClient) else self._consumers
        )
        known[client] = process_of()

    def networks(self) -> list[NetworkClient]:
        """The network clients that are not closed and whose process was not killed."""
        return [each for each in _living(self._networks) if not each._closed]

    def consumers(self) -> list[Consumer]:
        """The consumers that are not closed and whose process was not killed."""
        return [each for each in _living(self._consumers) if not each._closed]

    # --- The broker ---

    def order(self, **order: object) -> None:
        """Request a fault of the running broker, as with `odradek.faults`. The fault lasts until
        `heal` or the end of the broker's process."""
        if self.broker.running:
            self.broker.faults.order(order)

    async def start_broker(self) -> None:
        """Start the broker. If it is killed while it starts, or fails to start, try again."""
        why = "it was killed each time"
        left = _STARTS_MAX
        while left:
            # After a power cut a start may need room, so failures are not counted while room is
            # short.
            left -= self.broker.disk.shortage is None
            try:
                if await self.broker.start():
                    self.note("broker", f"is ready (start {self.broker.starts})")
                    self.on_broker_ready(self.broker.server)
                    self._follow(self._supervise(self.broker.server))
                    return
                self.note("broker", "was killed while it started")
            except Exception as problem:  # noqa: BLE001 - a disk that fails, too
                why = repr(problem)
                self.note("broker", f"did not start: {problem}")
                self.broker.process.kill()
            self.broker.disk.crash(self.chance("restart"), keep_page_cache=True)
            await self.sleep(100)
        raise Violation(f"start: the broker does not start any more: {why}")

    async def kill_broker(
        self, *, power_lost: bool, down_ms: int, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Kill the broker, and start it again later. With page-cache durability the power is not
        cut, because nothing is promised for that case. `meanwhile` is called before the start."""
        async with self._restarting:
            power_lost = power_lost and self.broker.survives_power_cuts
            self.note("broker", "loses its power" if power_lost else "is killed")
            self.broker.kill(power_lost=power_lost)
            await self.sleep(down_ms)
            meanwhile()
            await self.start_broker()

    async def switch_durability(self, *, stop: bool) -> None:
        """Stop the broker cleanly or kill it, and start it with the other value of
        `log.durability`."""
        async with self._restarting:
            await self._end(stop=stop)
            durability = "page-cache" if self.broker.survives_power_cuts else "fsync"
            self.broker.configure({"log.durability": durability})
            self.note("broker", f"has log.durability={durability} now")
            await self.start_broker()

    async def cut_power_at_start(self, *, durability: str, stop: bool) -> None:
        """Stop the broker cleanly or kill it, start it with this durability, and cut the power soon
        after it is ready. No client can reach the broker between its start and the power cut, so no
        new record is acknowledged. Does nothing if the present durability does not cover power
        cuts.

        If a start with page-cache durability has completed transactions, the power is
        not cut, and the process is killed. The reason is that page-cache durability does not
        promise that the markers of transactions are on disk before their Complete records.
        """
        async with self._restarting:
            if not self.broker.survives_power_cuts:
                return
            await self._end(stop=stop)
            self.broker.configure({"log.durability": durability})
            ready = went_on = False
            self.network.unreachable.update(self.broker.addresses.values())
            with suppress(StartError, DataDirectoryError, OSError):
                ready = await self.broker.start()
                await self.sleep(_ALONE_MS)
                went_on = ready and durability == "page-cache" and self._has_ended_transactions()
            self.network.unreachable.difference_update(self.broker.addresses.values())
            self.broker.configure({"log.durability": "fsync"})
            what = "is killed" if went_on else "loses its power"
            self.note("broker", f"{what} {'when ready' if ready else 'while it starts'}")
            self.broker.kill(power_lost=not went_on)
            await self.start_broker()

    def _has_ended_transactions(self) -> bool:
        """True if the running broker has appended to the transaction log since its start."""
        return any(
            log.log_end_offset > log.report.log_end_offset
            for log in self.broker.server.node.logs
            if log.topic == TRANSACTIONS_TOPIC and log.loaded
        )

    async def _end(self, *, stop: bool) -> None:
        self.note("broker", "is stopped" if stop else "is killed")
        if stop and self.broker.running:
            await self.broker.stop()
            self.broker.crash(power_lost=False)
        else:
            self.broker.kill()

    async def restart_broker(self, down_ms: int = 0) -> None:
        """Stop the broker cleanly, and start it again."""
        async with self._restarting:
            self.note("broker", "is stopped")
            await self._restart(down_ms)

    async def _restart(self, down_ms: int) -> None:
        await self.broker.stop()
        self.broker.disk.crash(None, keep_page_cache=True)
        await self.sleep(down_ms)
        await self.start_broker()

    async def _supervise(self, server: Server) -> None:
        """Start the broker again after it has stopped with an error, such as one of its metadata
        log."""
        await server.ended.wait()
        async with self._restarting:
            if server is self.broker.server and self.broker.running:
                self.note("broker", f"stops: {server.failure}")
                await self._restart(_RESTART_MS)

    def _follow(self, main: Coroutine[Any, Any, object]) -> None:
        task = self.loop.create_task(main)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- Clients ---

    def start_client(
        self, name: str, main: Callable[[], Coroutine[Any, Any, object]]
    ) -> asyncio.Task[Any]:
        """Run a client as a process of its own; returns the task of its `main`."""
        process = Process(name)
        self.clients[name] = process
        task = process.call(self.loop.create_task, main())
        self._tasks.add(task)

        def ended(done: asyncio.Task[Any] | None) -> None:
            if self.clients.get(name) is process:
                del self.clients[name]
            if done is not None and not done.cancelled() and done.exception() is not None:
                self.note(name, f"ends with {done.exception()!r}")

        task.add_done_callback(ended)
        process.on_killed.append(lambda: ended(None))
        return task

    def kill_client(self, number: int) -> str | None:
        """Kill one of the clients; returns its name, None if there is none."""
        if not self.clients:
            return None
        name = list(self.clients)[number % len(self.clients)]
        self.note(name, "is killed")
        self.clients[name].kill()
        return name

    def _offline(self) -> bool:
        broker = self.broker
        return broker.running and any(log.offline for log in broker.server.node.logs)

    async def heal(self) -> None:
        """End all faults. A restart brings back partitions that a failed fsync took offline."""
        self.network.unreachable.clear()
        self.network.weather = Weather((0.1, 2.0))
        self.network.cut_all()
        if self.broker.running:
            self.broker.faults.clear()
        self.broker.disk.crash_at = None
        self.broker.disk.heal()
        self.broker.clock.set_wrong(0)
        self.sync_delay_ms = self._sync_ms
        if self.broker.disk.failed_syncs and not self._offline():
            # The broker may not have noticed the failed fsync yet.
            await self.sleep(_SYNC_MS_MAX)
        async with self._restarting:
            if not self.broker.running:
                await self.start_broker()
            elif self._offline():
                self.note("broker", "is stopped")
                await self._restart(0)
        self.note("FAULT", "none any more")


def _living(known: dict[T, Process | None]) -> list[T]:
    return [each for each, process in known.items() if process is None or process.alive]
