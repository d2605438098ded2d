"""The host of a broker: its clocks, files, threads, event loop and sockets, as one value (D3).

`RealHost` is the machine; a simulation has another one, and the broker is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import ssl
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import structlog

from odradek_broker.platform.fault_injection import FaultInjection, no_injection
from odradek_broker.platform.fault_points import FaultPoints
from odradek_broker.platform.log_lines import PROCESS_LOG_LEVELS
from odradek_broker.platform.loggers import LogLevels
from odradek_broker.platform.machine import RealClock, RealRandomness
from odradek_broker.platform.seams import Clock, Files, Randomness, Timer
from odradek_broker.server.cleaner_process import CleanerProcess
from odradek_broker.storage.cleaner.runner import CleanerRunner
from odradek_broker.storage.group_commit import GroupCommit
from odradek_broker.storage.startup import attempt, one_by_one
from odradek_protocol.tls.handshake import telling

if TYPE_CHECKING:
    from odradek_broker.faults.rules import Rules

T = TypeVar("T")
ProtocolFactory = Callable[[], asyncio.BaseProtocol]
_BACKLOG = 1024
_ACCEPT_PAUSE_S = 1.0
_PARALLEL_THREADS = 8
_WORTH_THREADS = 4

#: How long a peer may take to answer the end of a TLS connection.
_TLS_GOODBYE_S = 5.0
_MADE_ROOM = "there are too many handshakes"

log = structlog.get_logger("odradek.server")


class Serving(Protocol):
    """A listening server, like `asyncio.Server`."""

    def close(self) -> None:
        """Take no more."""
        ...

    def pause(self) -> None:
        """Let those who connect wait."""
        ...

    def resume(self) -> None:
        """Take those who wait."""
        ...


class Handshakes(Protocol):
    """The limits of TLS handshakes; see `odradek_broker.server.tls.TlsListener`."""

    @property
    def context(self) -> ssl.SSLContext:
        """For the next handshake."""
        ...

    @property
    def timeout_s(self) -> float:
        """The longest duration of a handshake, in seconds."""
        ...

    @property
    def most(self) -> int:
        """The largest number of handshakes under way at a time."""
        ...

    def begin(self, host: str) -> bool:
        """Count a handshake with this address; False if the address has too many under way."""
        ...

    def ended(self, host: str, problem: BaseException | None) -> None:
        """Note the end of a handshake that had begun, and the problem if it failed."""
        ...


class MadeRoom(Exception):
    """A handshake was ended in favour of later ones."""


class Listener(Protocol):
    """A bound address at which no connection is accepted yet."""

    @property
    def address(self) -> tuple[str, int]:
        """(host, port) as bound."""
        ...

    async def serve(self, factory: ProtocolFactory, tls: Handshakes | None = None) -> Serving:
        """Take connections from now on, with TLS if `tls` is given. OSError."""
        ...

    def close(self) -> None:
        """Give the address back."""
        ...


class Background(Protocol):
    """See `BackgroundThread`."""

    def __call__(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Do the work beside the loop, and call `done` on it with what ended the work."""
        ...

    def refuse(self) -> None:
        """Begin nothing more."""
        ...

    def wait(self) -> None:
        """Wait for what had begun before `refuse`."""
        ...


class Host(Protocol):
    """All that a broker touches."""

    clock: Clock
    randomness: Randomness
    files: Files
    faults: FaultPoints
    #: The armed fault point in words; empty if none is.
    armed: str
    log_levels: LogLevels

    def now_us(self) -> int:
        """For durations; microseconds."""
        ...

    def open_files(self) -> FileBudget:
        """The limit of open files, raised as far as the user may."""
        ...

    def bind(self, host: str, port: int) -> Listener:
        """Take an address; port 0 is a free one. StartError."""
        ...

    def background(self, loop: asyncio.AbstractEventLoop) -> Background:
        """Beside which thread of the loop's work is done that would hold it up."""
        ...

    def group_commit(
        self, loop: asyncio.AbstractEventLoop, on_synced: Callable[[float], None]
    ) -> GroupCommit:
        """The part that makes logs durable."""
        ...

    def cleaner(self, loop: asyncio.AbstractEventLoop) -> CleanerRunner | None:
        """Where logs are compacted; None: in the background."""
        ...

    def in_parallel(self, works: Sequence[Callable[[], None]]) -> list[OSError | None]:
        """Call all of them, wait, and return what each raised."""
        ...

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Call in a thread beside the loop; returns its result or raises its error."""
        ...


class _Socket:
    """A `Listener` of the kernel's."""

    def __init__(self, listener: socket.socket) -> None:
        self._socket = listener

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return host, port

    async def serve(self, factory: ProtocolFactory, tls: Handshakes | None = None) -> Serving:
        self._socket.listen(_BACKLOG)
        return Acceptor(self._socket, factory, tls)

    def close(self) -> None:
        self._socket.close()


class Acceptor:
    """Accepts connections one by one, so that none is taken that is too many.

    `asyncio.Server` cannot be told to wait. Those who do are in the kernel's queue.
    """

    def __init__(
        self, listener: socket.socket, factory: ProtocolFactory, tls: Handshakes | None = None
    ) -> None:
        self._socket = listener
        self._factory = factory
        self._tls = tls
        #: Handshakes that are under way, the oldest first.
        self._shaking: dict[asyncio.Task[None], None] = {}
        self._loop = asyncio.get_running_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._task = self._loop.create_task(self._accept())

    def pause(self) -> None:
        """Let those who connect wait."""
        self._open.clear()

    def resume(self) -> None:
        """Take those who wait."""
        self._open.set()

    def close(self) -> None:
        """Take no more."""
        self._task.cancel()
        for handshake in self._shaking:
            handshake.cancel()
        # Behind the task, which stops to watch the socket first.
        self._loop.call_soon(self._socket.close)

    async def _accept(self) -> None:
        while True:
            await self._open.wait()
            try:
                accepted, address = await self._loop.sock_accept(self._socket)
            except OSError as error:
                # Out of files or memory: they may come back.
                log.error("cannot accept connections", error=str(error))
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            try:
                # Nagle's algorithm would hold small answers back until those before are
                # acknowledged.
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is None:
                    await self._loop.connect_accepted_socket(self._factory, accepted)
                elif self._tls.begin(address[0]):
                    self._make_room(self._tls.most)
                    # Beside the next ones: a handshake takes as long as its peer wants.
                    shaking = self._loop.create_task(
                        self._shake_hands(self._tls, accepted, address[0])
                    )
                    self._shaking[shaking] = None
                    shaking.add_done_callback(lambda task: self._shaking.pop(task, None))
                else:
                    accepted.close()
            except OSError:
                # It was cut before it began.
                accepted.close()

    def _make_room(self, most: int) -> None:
        """Give up the oldest handshakes, which honest peers would have finished (N-23)."""
        while len(self._shaking) >= most:
            oldest = next(iter(self._shaking))
            del self._shaking[oldest]
            oldest.cancel(_MADE_ROOM)

    async def _shake_hands(self, tls: Handshakes, accepted: socket.socket, host: str) -> None:
        protocol = self._factory()
        problem: BaseException | None = None
        try:
            async with asyncio.timeout(tls.timeout_s):
                await telling(
                    self._loop.connect_accepted_socket(
                        lambda: protocol,
                        accepted,
                        ssl=tls.context,
                        ssl_handshake_timeout=2 * tls.timeout_s,
                        ssl_shutdown_timeout=_TLS_GOODBYE_S,
                    )
                )
        except (OSError, asyncio.CancelledError) as error:
            problem = MadeRoom() if error.args == (_MADE_ROOM,) else error
            accepted.close()
            protocol.connection_lost(None)
            if isinstance(problem, asyncio.CancelledError):
                raise
        finally:
            tls.ended(host, problem)


class RealHost:
    """This machine. `injection`: the fault point that may end the process. `ordered`: the faults
    that users order, in a broker that was started for tests; they wrap its files.
    """

    def __init__(
        self, injection: FaultInjection | None = None, ordered: Rules | None = None
    ) -> None:
        injection = injection or no_injection()
        self.clock: Clock = RealClock()
        self.randomness: Randomness = RealRandomness()
        self.files: Files = injection.files
        if ordered is not None:
            # Few brokers are under test, and all must start fast.
            from odradek_broker.faults.rules import DiskFaults

            disk = DiskFaults(ordered, self.clock, time.sleep, Lock())
            self.files = injection.files.with_files(disk.wrap)
        self.faults = injection.faults
        self.armed = injection.armed
        self.log_levels: LogLevels = PROCESS_LOG_LEVELS

    def now_us(self) -> int:
        """Of the processor's clock."""
        return time.perf_counter_ns() // 1000

    def open_files(self) -> FileBudget:
        """Of this process; its soft limit is raised."""
        return divide_files(raise_open_files_limit())

    def bind(self, host: str, port: int) -> Listener:
        """A socket. StartError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                raise StartError(
                    f"{host}:{port} is in use by another program; stop it or choose another"
                    " --listen"
                ) from error
            raise StartError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        return _Socket(listener)

    def background(self, loop: asyncio.AbstractEventLoop) -> Background:
        """A new thread for background work, which reports to the loop."""
        return BackgroundThread(loop)

    def group_commit(
        self, loop: asyncio.AbstractEventLoop, on_synced: Callable[[float], None]
    ) -> GroupCommit:
        """fdatasync on a few threads."""
        return GroupCommit(loop, on_synced=on_synced)

    def cleaner(self, loop: asyncio.AbstractEventLoop) -> CleanerRunner | None:
        """A child process, where there is an interpreter to start."""
        return CleanerProcess(loop) if sys.executable else None

    def in_parallel(self, works: Sequence[Callable[[], None]]) -> list[OSError | None]:
        """In a few threads, for a disk that does more at a time."""
        if len(works) < _WORTH_THREADS:
            return one_by_one(works)
        with ThreadPoolExecutor(_PARALLEL_THREADS) as pool:
            return list(pool.map(attempt, works))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """In a thread of asyncio's pool."""
        return await asyncio.to_thread(work)


class StartError(Exception):
    """The broker cannot start, or cannot go on; the text is one line that says why and what to
    do."""


_OPEN_FILES_MAX = 10_240
_SEGMENT_FILES_MAX = 2_560

#: Indexes, checkpoints, directories being synced, the loop's own.
_OTHER_FILES = 128


class FileBudget(NamedTuple):
    """Open files for segments, and for connections.

    Should connections take the last one, no log could be opened or made durable any more.
    """

    segments: int
    connections: int


def divide_files(open_files_max: int) -> FileBudget:
    """Shares of the open files of one process."""
    segments = min(_SEGMENT_FILES_MAX, open_files_max // 4)
    others = min(_OTHER_FILES, open_files_max // 4)
    return FileBudget(segments, max(open_files_max - segments - others, 1))


def raise_open_files_limit() -> int:
    """Raise the limit of this process as far as its user may; the limit, at most
    _OPEN_FILES_MAX."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS says "unlimited" and then refuses more than this.
    wanted = _OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on uvloop, or on asyncio where uvloop is missing."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class LoopScheduler:
    """Timers of the running loop, in milliseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Timer:
        """Call once, in so many milliseconds."""
        return self._loop.call_later(delay_ms / 1000, callback)


def _interrupted() -> InterruptedError:
    return InterruptedError("the broker is stopping")


class BackgroundThread:
    """A second thread for work that would hold up the loop.

    The callbacks of the work, `done`, are called on the loop, with the exception that ended it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, "odradek-background")
        self._stopping = False

    def __call__(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Do the work; after `refuse` it is not begun, and ends with an InterruptedError."""
        if self._stopping:
            self._loop.call_soon(done, _interrupted())
        else:
            self._executor.submit(self._run, work, done)

    def _run(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        problem: Exception | None = None
        try:
            if self._stopping:
                raise _interrupted()
            work()
        except Exception as error:  # noqa: BLE001 - handed to `done`
            problem = error
        # The loop may be closed by now; there is nobody left to tell then.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(done, problem)

    def refuse(self) -> None:
        """Begin nothing more, not even what waits."""
        self._stopping = True

    def wait(self) -> None:
        """Wait for what had begun before `refuse`."""
        self._executor.shutdown()
