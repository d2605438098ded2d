"""The broker on a simulated machine, which can be started, stopped, killed and powered off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from odradek_broker.config.broker import parse_config
from odradek_broker.metrics.broker import ProcessUsage
from odradek_broker.platform.fault_points import NO_FAULT_POINTS, FaultPoints
from odradek_broker.platform.loggers import LogLevels, OthersLogLevels
from odradek_broker.server.host import Background, BoundListener, FileBudget, Handshakes, StartError
from odradek_broker.server.server import Server
from odradek_broker.storage.group_commit import GroupCommit
from odradek_broker.storage.startup import one_by_one
from odradek_testkit.fault_control.control import FaultControl
from odradek_testkit.simulation.clock import LoopClock
from odradek_testkit.simulation.disk import MemoryFiles
from odradek_testkit.simulation.network import (
    Address,
    ProtocolFactory,
    SimulatedNetwork,
    SimulatedServer,
)
from odradek_testkit.simulation.process import Process

T = TypeVar("T")

#: The host of a listener without a host.
_EVERYWHERE = "0.0.0.0"
_OPEN_FILES = FileBudget(segments=512, connections=1_000)
#: The default settings of the broker: small values, so that a short run reaches all limits.
SETTINGS: Mapping[str, object] = {
    # A small journal, whose parts are reused often.
    "log.journal.max.bytes": 256 * 1024,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "log.segment.bytes": 16_384,
    "log.index.interval.bytes": 512,
}


class SeededRandomness:
    """`Randomness` from a seed (`odradek_broker.platform.seams`)."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def uuid(self) -> bytes:
        """16 bytes with the version bits of a version 4 UUID."""
        drawn = bytearray(self._random.randbytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        return bytes(drawn)

    def below(self, bound: int) -> int:
        """A random integer in [0, bound)."""
        return self._random.randrange(bound)


class _Listener:
    """An address of the simulated network."""

    def __init__(self, network: SimulatedNetwork, address: Address) -> None:
        self._network = network
        self.address = address

    async def serve(
        self, factory: ProtocolFactory, tls: Handshakes | None = None
    ) -> SimulatedServer:
        if tls is not None:
            raise StartError(
                "the simulated network has no TLS; give its brokers listeners of PLAINTEXT and"
                " SASL_PLAINTEXT"
            )
        return self._network.listen(factory, *self.address)

    def close(self) -> None:
        self._network.stop_listening(self.address)


class _DelayedCalls:
    """A proxy of the event loop for group commit: the result of a sync arrives after the disk's
    delay, and only then is the data durable."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: Callable[[], float]) -> None:
        self._loop = loop
        self._delay_s = delay_s

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
        if not args:
            # A callback without arguments starts a flush. The start is not delayed; only the result
            # of a sync is delayed.
            return self._loop.call_soon(callback)
        return self._loop.call_later(self._delay_s(), callback, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class _DelayedWork:
    """`Background` without a thread: the work runs on the loop after a delay of the disk."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: Callable[[], float]) -> None:
        self._loop = loop
        self._delay_s = delay_s
        self._stopping = False

    def __call__(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self._loop.call_later(self._delay_s(), self._run, work, done)

    def _run(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        problem: Exception | None = None
        try:
            if self._stopping:
                raise InterruptedError("the broker is stopping")
            work()
        except Exception as error:  # noqa: BLE001 - handed to `done`
            problem = error
        done(problem)

    def refuse(self) -> None:
        self._stopping = True

    def wait(self) -> None:
        pass


class SimulatedHost:
    """`odradek_broker.server.host.Host` on one loop, network and disk; all random choices depend on
    a seed.

    `sync_delay_ms`: returns the shortest and the longest duration of an fsync.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        files: MemoryFiles,
        random: Random,
        clock: LoopClock,
        sync_delay_ms: Callable[[], tuple[float, float]],
    ) -> None:
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._random = random
        self.clock = clock
        self.randomness = SeededRandomness(random)
        self.files = files
        self.fault_points: FaultPoints = NO_FAULT_POINTS
        self.armed = ""
        self.log_levels: LogLevels = OthersLogLevels()
        self._sync_delay_ms = sync_delay_ms

    def _disk_delay_s(self) -> float:
        return self._random.uniform(*self._sync_delay_ms()) / 1000

    def now_us(self) -> int:
        """The loop's virtual time."""
        return int(self._loop.time() * 1_000_000)

    def process_usage(self) -> ProcessUsage:
        """Always zero, because a simulated broker has no process of its own."""
        return ProcessUsage(0, 0)

    def open_files(self) -> FileBudget:
        """The budget of open files, which is constant in the simulation."""
        return _OPEN_FILES

    def bind(self, host: str, port: int) -> BoundListener:
        """Bind an address of the network. StartError without a host or a port."""
        if not port or host == _EVERYWHERE:
            raise StartError(
                "the simulated network chooses no addresses; give each listener a host and a port"
            )
        return _Listener(self._network, (host, port))

    def background(self, loop: asyncio.AbstractEventLoop) -> Background:
        """The object that runs background work on the loop, after a delay of the disk."""
        return _DelayedWork(loop, self._disk_delay_s)

    def group_commit(
        self,
        loop: asyncio.AbstractEventLoop,
        on_synced: Callable[[float], None],
        on_written: Callable[[float], None],
    ) -> GroupCommit:
        """The group commit, which flushes without threads and takes virtual time."""
        delayed: Any = _DelayedCalls(loop, self._disk_delay_s)
        return GroupCommit(
            delayed, workers=0, on_synced=on_synced, on_written=on_written, timer=loop.time
        )

    def cleaner(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop of the cleaner: None, because the cleaner uses the broker's loop."""

    def in_parallel(self, works: Sequence[Callable[[], None]]) -> list[OSError | None]:
        """Run the works one after the other, because the simulation has no threads."""
        return one_by_one(works)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Call `work` on the loop, after a delay of the disk."""
        await asyncio.sleep(self._disk_delay_s())
        return work()


class SimulatedBroker:
    """A broker and its disk. `server` is the running server, or the last one that ran.

    `address`: the address of the broker's listener. If `settings` has `listeners`, with PLAINTEXT
    and SASL_PLAINTEXT and a port for each, the addresses of these listeners are used instead.
    """

    server: Server
    process: Process

    def __init__(
        self,
        network: SimulatedNetwork,
        random: Random,
        settings: Mapping[str, object] | None = None,
        address: Address = ("broker", 9092),
    ) -> None:
        self._network = network
        self._random = random
        host, port = address
        self._given: dict[str, object] = {
            "log.dirs": "data",
            "listeners": f"PLAINTEXT://{host}:{port}",
            **SETTINGS,
            **(settings or {}),
        }
        # Listeners may be insecure, because the network has only machines of the simulation.
        self._given["insecure.listeners"] = True
        self.configure({})
        self.clock = LoopClock(asyncio.get_running_loop())
        self.disk = MemoryFiles(now_ms=self.clock.wall_ms())
        self.starts = 0
        #: The topics of logs that have lost records while the broker was down, on purpose.
        self.cut_topics: set[str] = set()
        #: The minimum and maximum duration of an fsync.
        self.sync_delay_ms = (0.0, 2.0)

    @property
    def addresses(self) -> dict[str, Address]:
        """The addresses of the listeners, by name."""
        return {each.name: (each.host, each.port) for each in self.config.broker_listeners}

    @property
    def listeners(self) -> dict[str, str]:
        """The addresses of the listeners for clients, by name."""
        return {name: f"{host}:{port}" for name, (host, port) in self.addresses.items()}

    @property
    def bootstrap(self) -> str:
        """The address of the first listener, for clients."""
        return next(iter(self.listeners.values()))

    def configure(self, settings: Mapping[str, object]) -> None:
        """Add settings that apply from the next start on."""
        self._given |= settings
        given = {name: str(value) for name, value in self._given.items()}
        self.config, _ = parse_config(given)

    @property
    def survives_power_cuts(self) -> bool:
        """True if the setting `log.durability` promises that acknowledged records survive a power
        cut."""
        return self.config.log_durability == "fsync"

    @property
    def running(self) -> bool:
        """True if the broker was started, and not killed or stopped since."""
        return self.starts > 0 and self.process.alive

    async def start(self) -> bool:
        """Start the broker with the data of its disk; False if it was killed before it was ready.

        Raises StartError, DataDirectoryError like the broker itself.
        """
        self.starts += 1
        self.disk.now_ms = self.clock.wall_ms()
        process = self.process = Process(f"broker, start {self.starts}")
        self.disk.on_crash = process.kill
        host = SimulatedHost(
            self._network, self.disk, self._random, self.clock, lambda: self.sync_delay_ms
        )
        self.faults = FaultControl()
        self.server = process.call(Server, self.config, host, self.faults)
        starting = process.call(_task, self.server.start)
        return await _until_killed(process, starting)

    async def stop(self) -> bool:
        """Stop the broker cleanly. Returns False if the broker was killed while it was stopping."""
        process = self.process
        stopped = await _until_killed(process, process.call(_task, self.server.stop))
        process.alive = False
        return stopped

    def kill(self, *, power_lost: bool = False) -> None:
        """Kill the broker; `power_lost`: a random part of the unsynced data is also lost."""
        self.process.kill()
        self.crash(power_lost=power_lost)

    def crash(self, *, power_lost: bool) -> None:
        """Put the disk of a killed broker into the state that its next start finds."""
        self.disk.crash(self._random, keep_page_cache=not power_lost)


def _task(start: Callable[[], Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(start())


async def _until_killed(process: Process, task: asyncio.Task[Any]) -> bool:
    """Wait for a task of a process; False if the process is killed first. Raises the exceptions of
    the task."""
    killed = asyncio.Event()
    process.on_killed.append(killed.set)
    if not process.alive:
        return False
    waiting = asyncio.ensure_future(killed.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not process.alive:
        return False
    await task
    return True
