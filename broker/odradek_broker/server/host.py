"""The host of a broker: its clocks, files, threads, event loop and sockets, as one value (D3).

`RealHost` is the machine; the simulator has another host for the same broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import ssl
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from odradek_broker.metrics.broker import ProcessUsage
from odradek_broker.platform.fault_injection import FaultInjection, no_injection
from odradek_broker.platform.fault_points import FaultPoints
from odradek_broker.platform.log_lines import PROCESS_LOG_LEVELS
from odradek_broker.platform.loggers import LogLevels
from odradek_broker.platform.machine import RealClock, RealFiles, RealRandomness
from odradek_broker.platform.seams import Clock, Files, Randomness, Timer
from odradek_broker.server.cleaner_process import CleanerProcess
from odradek_broker.storage.cleaner.runner import CleanerRunner
from odradek_broker.storage.group_commit import GroupCommit
from odradek_broker.storage.startup import attempt, one_by_one
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.tls.handshake import telling
from odradek_protocol.waiting_peers import Close

T = TypeVar("T")
ProtocolFactory = Callable[[], asyncio.BaseProtocol]
_BACKLOG = 1024
_ACCEPT_PAUSE_S = 1.0
_PARALLEL_THREADS = 8
_WORTH_THREADS = 4

#: The time in which a peer has to answer the closing message of TLS.
_TLS_GOODBYE_S = 5.0
_MADE_ROOM = "there are too many handshakes"

log = structlog.get_logger("odradek.server")


class Serving(Protocol):
    """A listening server, like `asyncio.Server`."""

    def close(self) -> None:
        """Stop accepting connections."""
        ...

    def pause(self) -> None:
        """Pause: new connections wait in the kernel's queue."""
        ...

    def resume(self) -> None:
        """Accept connections again."""
        ...


class Handshakes(Protocol):
    """The limits of TLS handshakes; see `odradek_broker.server.tls.TlsListener`."""

    @property
    def context(self) -> ssl.SSLContext: ...

    @property
    def timeout_s(self) -> float:
        """The maximum duration of a handshake, in seconds."""
        ...

    def begin(self, host: str, close: Close) -> None:
        """Count a handshake with this address. `close` is called if it has to make room for a later
        one."""
        ...

    def ended(self, host: str, close: Close, problem: BaseException | None) -> None:
        """Note the end of a handshake, and the problem if it failed."""
        ...


class MadeRoom(Exception):
    """The error of a handshake that was ended to make room for later handshakes."""


class BoundListener(Protocol):
    """A bound address at which no connection is accepted yet."""

    @property
    def address(self) -> tuple[str, int]:
        """The bound (host, port)."""
        ...

    async def serve(self, factory: ProtocolFactory, tls: Handshakes | None = None) -> Serving:
        """Begin to accept connections, with TLS if `tls` is given. Raises OSError."""
        ...

    def close(self) -> None: ...


class Background(Protocol):
    """A thread for background work; see `BackgroundThread`."""

    def __call__(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Do the work in the thread, and then call `done` on the loop, with the exception that
        ended the work or with None."""
        ...

    def refuse(self) -> None:
        """Begin no more work."""
        ...

    def wait(self) -> None:
        """Wait until the work that began before `refuse` has ended."""
        ...


class Host(Protocol):
    """The services of the machine that a broker uses."""

    clock: Clock
    randomness: Randomness
    files: Files
    fault_points: FaultPoints
    #: The armed fault point as text; empty if none is armed.
    armed: str
    log_levels: LogLevels

    def now_us(self) -> int:
        """The time of a clock for measuring durations, in microseconds."""
        ...

    def process_usage(self) -> ProcessUsage:
        """The memory and the processor time that the broker has used."""
        ...

    def open_files(self) -> FileBudget:
        """Raise the limit of open files as far as the user's permissions allow, and return the
        limit.
        """
        ...

    def bind(self, host: str, port: int) -> BoundListener:
        """Bind an address; port 0 stands for any free port. Raises StartError."""
        ...

    def background(self, loop: asyncio.AbstractEventLoop) -> Background:
        """A new thread for work that would block the loop."""
        ...

    def group_commit(
        self,
        loop: asyncio.AbstractEventLoop,
        on_synced: Callable[[float], None],
        on_written: Callable[[float], None],
    ) -> GroupCommit:
        """The object that makes appends to logs durable."""
        ...

    def cleaner(self, loop: asyncio.AbstractEventLoop) -> CleanerRunner | None:
        """The runner of log compactions; None: compactions run in the background thread."""
        ...

    def in_parallel(self, works: Sequence[Callable[[], None]]) -> list[OSError | None]:
        """Make all calls in threads and wait for them. Returns, for each call, its exception or
        None."""
        ...

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Call `work` in another thread. Returns the result or raises the error."""
        ...


class _Socket:
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
    """Accepts connections one by one, so that no connection above the limit is accepted.

    Unlike `asyncio.Server`, an acceptor can pause; waiting connections then stay in the kernel's
    queue.
    """

    def __init__(
        self, listener: socket.socket, factory: ProtocolFactory, tls: Handshakes | None = None
    ) -> None:
        self._socket = listener
        self._factory = factory
        self._tls = tls
        #: The unfinished handshakes.
        self._shaking: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._task = self._loop.create_task(self._accept())

    def pause(self) -> None:
        """Pause: new connections wait in the kernel's queue."""
        self._open.clear()

    def resume(self) -> None:
        """Accept connections again."""
        self._open.set()

    def close(self) -> None:
        """Stop accepting connections."""
        self._task.cancel()
        for handshake in self._shaking:
            handshake.cancel()
        # The socket is closed after the task has run, because the task first stops watching the
        # socket.
        self._loop.call_soon(self._socket.close)

    async def _accept(self) -> None:
        while True:
            await self._open.wait()
            try:
                accepted, address = await self._loop.sock_accept(self._socket)
            except OSError as error:
                # A temporary lack of file descriptors or memory.
                log.error("cannot accept connections", error=str(error))
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            try:
                # Nagle's algorithm would delay a small answer until the peer's TCP acknowledges
                # earlier answers.
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is None:
                    await self._loop.connect_accepted_socket(self._factory, accepted)
                else:
                    # Handshakes run at the same time, so that a slow peer delays only its own
                    # handshake.
                    shaking = self._loop.create_task(
                        self._shake_hands(self._tls, accepted, address[0])
                    )
                    self._shaking.add(shaking)
                    shaking.add_done_callback(self._shaking.discard)
            except OSError:
                # The handshake was cancelled before it began.
                accepted.close()

    async def _shake_hands(self, tls: Handshakes, accepted: socket.socket, host: str) -> None:
        protocol = self._factory()
        problem: BaseException | None = None
        task = asyncio.current_task()
        assert task is not None
        make_room = partial(task.cancel, _MADE_ROOM)
        tls.begin(host, make_room)
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
            tls.ended(host, make_room, problem)


class RealHost:
    """The host on this machine. `injection`: the fault point at which the process may kill itself.
    `files_of`: makes the files that a broker under test uses instead."""

    def __init__(
        self,
        injection: FaultInjection | None = None,
        files_of: Callable[[RealFiles, Clock], Files] | None = None,
    ) -> None:
        injection = injection or no_injection()
        self.clock: Clock = RealClock()
        self.randomness: Randomness = RealRandomness()
        files = injection.files
        self.files: Files = files if files_of is None else files_of(files, self.clock)
        self.fault_points = injection.fault_points
        self.armed = injection.armed
        self.log_levels: LogLevels = PROCESS_LOG_LEVELS

    def now_us(self) -> int:
        """The time of the machine's performance counter."""
        return time.perf_counter_ns() // 1000

    def process_usage(self) -> ProcessUsage:
        used = resource.getrusage(resource.RUSAGE_SELF)
        # Kilobytes on Linux, bytes on macOS.
        unit_bytes = 1 if sys.platform == "darwin" else 1024
        return ProcessUsage(
            used.ru_maxrss * unit_bytes, int(1000 * (used.ru_utime + used.ru_stime))
        )

    def open_files(self) -> FileBudget:
        """Raise this process's soft limit of open files, and divide the limit."""
        return divide_files(raise_open_files_limit())

    def bind(self, host: str, port: int) -> BoundListener:
        """Bind a socket. Raises StartError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                raise StartError(f"{host}:{port} is in use by another program") from error
            raise StartError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        return _Socket(listener)

    def background(self, loop: asyncio.AbstractEventLoop) -> Background:
        """A new thread for background work, whose results are delivered on the loop."""
        return BackgroundThread(loop)

    def group_commit(
        self,
        loop: asyncio.AbstractEventLoop,
        on_synced: Callable[[float], None],
        on_written: Callable[[float], None],
    ) -> GroupCommit:
        """A group commit that calls fdatasync in a few threads."""
        return GroupCommit(loop, on_synced=on_synced, on_written=on_written)

    def cleaner(self, loop: asyncio.AbstractEventLoop) -> CleanerRunner | None:
        """A child process; None if there is no interpreter to start."""
        return CleanerProcess(loop) if sys.executable else None

    def in_parallel(self, works: Sequence[Callable[[], None]]) -> list[OSError | None]:
        """Do the work in a few threads, because disks do several operations at a time."""
        if len(works) < _WORTH_THREADS:
            return one_by_one(works)
        with ThreadPoolExecutor(_PARALLEL_THREADS) as pool:
            return list(pool.map(attempt, works))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Call `work` in a thread of asyncio's pool."""
        return await asyncio.to_thread(work)


class StartError(Exception):
    """The error of a broker that cannot start or cannot continue; the text is one line with the
    reason and the remedy."""


_OPEN_FILES_MAX = 10_240
_SEGMENT_FILES_MAX = 2_560

#: Open files for indexes, checkpoints, directories that are being synced, and the event loop
#: itself.
_OTHER_FILES = 128


class FileBudget(NamedTuple):
    """The numbers of open files for segments and for connections.

    If connections used the last open file, no log could be opened or made durable any more.
    `scarce`: called before a segment beyond its number is opened; True if the rest is needed for
    making logs durable.
    """

    segments: int
    connections: int
    scarce: Callable[[], bool] = lambda: False


def divide_files(open_files_max: int) -> FileBudget:
    """Divide the maximum number of open files of a process between segments, connections and other
    files."""
    segments = min(_SEGMENT_FILES_MAX, open_files_max // 4)
    others = min(_OTHER_FILES, open_files_max // 4)
    connections = max(open_files_max - segments - others, 1)
    return FileBudget(segments, connections, partial(_is_scarce, open_files_max - others // 2))


def _is_scarce(most: int) -> bool:
    """True if `most` files are open. The system gives each file the lowest free number."""
    try:
        number = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    os.close(number)
    return number >= most


def raise_open_files_limit() -> int:
    """Raise the process's soft limit of open files as far as its user is allowed to. Returns the
    limit, at most _OPEN_FILES_MAX."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS reports "unlimited", but refuses a limit above _OPEN_FILES_MAX.
    wanted = _OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run until `main` ends, on uvloop or, if uvloop is missing, on asyncio's loop."""
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
        """Call `callback` once, after `delay_ms`."""
        return self._loop.call_later(delay_ms / 1000, callback)


def _interrupted() -> InterruptedError:
    return InterruptedError("the broker is stopping")


class BackgroundThread:
    """A second thread for work that would block the loop.

    When a piece of work has ended, its callback `done` is called on the loop, with the exception
    that ended the work or with None.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, "odradek-background")
        self._stopping = False

    def __call__(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Do the work in the thread. After `refuse`, the work is not begun, and `done` gets an
        InterruptedError."""
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
        # If the loop is closed already, `done` is not called.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(done, problem)
        # Else this frame, which the traceback of the error has, would keep the error, and with it
        # what the work had in memory, until a collection of garbage.
        problem = None

    def refuse(self) -> None:
        """Begin no more work, not even work that is already waiting."""
        self._stopping = True

    def wait(self) -> None:
        """Wait until the work that began before `refuse` has ended."""
        self._executor.shutdown()
