"""The broker as a running program: sockets, timers, start and end.

    await serve(config, on_ready)          until SIGTERM or SIGINT, for the command line
    server = Server(config); await server.start(); ...; await server.stop()

uvloop is chosen here and nowhere else (`run`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import structlog

from odradek_broker.config import BrokerConfig
from odradek_broker.dispatch import Dispatcher
from odradek_broker.dying import Mortality, from_environment, immortal
from odradek_broker.fault_points import UnknownFaultPoint
from odradek_broker.http import HttpServer
from odradek_broker.metrics import BrokerMetrics
from odradek_broker.node import Node
from odradek_broker.real import RealClock, RealRandomness
from odradek_broker.session import Session, SessionLimits
from odradek_broker.storage.flush import GroupCommit
from odradek_broker.storage.manager import LogManager, StartReport
from odradek_protocol.connection import SCRATCH_BYTES, FrameReceiver

log = structlog.get_logger("odradek.server")

T = TypeVar("T")
#: How long a stopping broker waits for connections to take their last answers.
_DRAIN_S = 3.0
_IDLE_CHECK_S = 30.0
_HOUSEKEEPING_S = 1.0
_RECOVERY_POINTS_S = 60.0
#: On a full disk every partition has the same one.
_PROBLEMS_TOLD_MAX = 10
_BACKLOG = 1024
_OPEN_FILES_MAX = 10_240
_SEGMENT_FILES_MAX = 512
#: Indexes, checkpoints, directories being synced, the loop's own.
_OTHER_FILES = 128


class StartError(Exception):
    """The broker cannot start, or cannot go on; the text is one line that says why and what to do."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on uvloop, or on asyncio where uvloop is missing."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def serve(
    config: BrokerConfig,
    on_ready: Callable[[str, int], None],
    *,
    handle_signals: bool = True,
) -> None:
    """Serve until a signal or cancellation; then drain and stop. StartError if it cannot start.

    The only way to a broker that kills itself: ODRADEK_FAULT_POINT (`fault_points.py`).
    """
    try:
        mortality = from_environment(os.environ)
    except UnknownFaultPoint as error:
        raise StartError(str(error)) from error
    server = Server(config, mortality)
    host, port = await server.start()
    if handle_signals:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.ended.set)
    try:
        on_ready(host, port)
        await server.ended.wait()
    finally:
        await server.stop()
    if server.failure:
        raise StartError(server.failure)


class _FileBudget(NamedTuple):
    """Who may have how many of the open files. Should connections take the last one, no log could
    be opened or made durable any more."""

    segments: int
    connections: int


def _divide_files(open_files_max: int) -> _FileBudget:
    segments = min(_SEGMENT_FILES_MAX, open_files_max // 4)
    others = min(_OTHER_FILES, open_files_max // 4)
    return _FileBudget(segments, max(open_files_max - segments - others, 1))


def _raise_open_files_limit() -> int:
    """As many open files as this user may have: segments and connections both need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS says "unlimited" and then refuses more than this.
    wanted = _OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft


class _Scheduler:
    """Timers of the running loop, in milliseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Any:
        return self._loop.call_later(delay_ms / 1000, callback)


def _interrupted() -> InterruptedError:
    return InterruptedError("the broker is stopping")


class _Aside:
    """Work for one thread beside the loop's. Its end is told on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, "odradek-aside")
        self._stopping = False

    def __call__(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """After `refuse` the work is not begun: `done` is told of an InterruptedError."""
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
        except Exception as error:  # noqa: BLE001 - told to whom it concerns
            problem = error
        # The loop may be closed by now; there is nobody left to tell then.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(done, problem)

    def refuse(self) -> None:
        """Begin nothing more, not even what waits."""
        self._stopping = True

    def wait(self) -> None:
        """Until what had begun before `refuse` has ended."""
        self._executor.shutdown()


class Server:
    """One broker. `start` and `stop` are called once each."""

    def __init__(self, config: BrokerConfig, mortality: Mortality | None = None) -> None:
        self.config = config
        self._mortality = mortality or immortal()
        self.metrics = BrokerMetrics(lambda: time.perf_counter_ns() // 1000)
        self.node: Node
        self._sessions: set[Session] = set()
        #: Where all connections receive; see `FrameReceiver`.
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._all_closed = asyncio.Event()
        self._next_connection_id = 0
        self._server: asyncio.Server | None = None
        self._http: HttpServer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._writing: asyncio.Future[None] | None = None
        self._stopping = False
        #: Set when it is time to stop; `failure` says why, unless somebody asked for it.
        self.ended = asyncio.Event()
        self.failure = ""

    async def start(self) -> tuple[str, int]:
        """Open the data directory, recover, listen; the address that was bound.

        StartError, DataDirectoryError. Nothing accepts connections before recovery is over.
        """
        loop = asyncio.get_running_loop()
        config = self.config
        listener = self._bind(config.listen_host, config.listen_port)
        try:
            budget = _divide_files(_raise_open_files_limit())
            self._connections_max = budget.connections
            self._open(loop, budget.segments)
        except BaseException:
            listener.close()
            raise
        host, port = listener.getsockname()[:2]
        node = self.node
        node.set_advertised(*self._advertised(host, port))
        self._dispatcher = Dispatcher(node, config.max_control_request_bytes)
        self._limits = SessionLimits(
            config.max_in_flight_per_connection,
            config.max_in_flight_bytes_per_connection,
            config.queued_max_request_bytes,
        )
        node.answer_room_bytes = lambda: self._limits.room_bytes
        try:
            self._server = await loop.create_server(self._session, sock=listener, backlog=_BACKLOG)
            if config.http_address is not None:
                self._http = HttpServer(node, self.metrics)
                await self._http.start(*config.http_address)
        except OSError as error:
            listener.close()
            await self.stop()
            raise StartError(f"cannot listen: {error}") from error
        idle_s = config.connections_max_idle_ms / 1000
        closing_s = min(_IDLE_CHECK_S, max(idle_s / 2, 0.1))
        self._tasks = [
            loop.create_task(self._repeat(every_s, what, step))
            for every_s, what, step in (
                (closing_s, "closing idle connections", self._close_idle),
                (_HOUSEKEEPING_S, "housekeeping", self._keep_house),
                (_RECOVERY_POINTS_S, "writing the recovery points", self._keep_recovery_points),
            )
        ]
        log.info("ready", host=host, port=port, node_id=node.node_id, cluster_id=node.cluster_id)
        return host, port

    def _bind(self, host: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # With its protocol named, or asyncio leaves Nagle's algorithm on for accepted connections, and
        # the kernel holds small answers back until the ones before are acknowledged.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
        return listener

    def _open(self, loop: asyncio.AbstractEventLoop, segment_files_max: int) -> None:
        config = self.config
        clock, randomness = RealClock(), RealRandomness()
        if self._mortality.armed:
            log.warning(
                "a fault point is armed: this broker is under test and will kill itself",
                point=self._mortality.armed,
            )
        self._aside = _Aside(loop)
        self._commit = GroupCommit(loop, on_synced=self.metrics.flushed)
        manager = LogManager(
            config.data_dir,
            self._mortality.files,
            clock,
            randomness,
            config.default_log_config(),
            node_id=config.node_id,
            cluster_id=config.cluster_id or None,
            max_open_files=segment_files_max,
            producer_expiration_ms=config.producer_id_expiration_ms,
            aside=self._aside,
        )
        self._tell_of_disk(manager)
        try:
            self.node = Node(
                config,
                clock=clock,
                randomness=randomness,
                logs=manager,
                scheduler=_Scheduler(loop),
                request_flush=self._commit.request,
                metrics=self.metrics,
                on_fatal=self._fatal,
                faults=self._mortality.faults,
            )
            self._report(self.node.load())
        except BaseException:
            self._aside.refuse()
            manager.halt_aside()
            self._aside.wait()
            manager.close(clean=False)
            raise

    def _tell_of_disk(self, manager: LogManager) -> None:
        """One line when writes begin to fail, and one when they work again."""
        disk = manager.disk
        disk.on_failing = lambda problem: log.error(
            "the data directory takes no writes: producers are refused until it does",
            data_dir=manager.data_dir,
            problem=problem,
        )
        disk.on_working = lambda problem: log.warning(
            "the data directory takes writes again", data_dir=manager.data_dir, was=problem
        )
        disk.on_offline = lambda name, reason: log.error(
            "a partition went offline: check the disk, then restart the broker",
            partition=name,
            reason=reason,
        )

    def _report(self, report: StartReport) -> None:
        for recovered in report.recovered:
            if recovered.problem:
                log.warning(
                    "cut a torn log",
                    partition=f"{recovered.topic}-{recovered.partition}",
                    problem=recovered.problem,
                    truncated_bytes=recovered.truncated_bytes,
                    removed_segments=len(recovered.removed_segments),
                    log_end_offset=recovered.log_end_offset,
                )
        for problem in report.problems[:_PROBLEMS_TOLD_MAX]:
            log.error("found at start", problem=problem)
        if len(report.problems) > _PROBLEMS_TOLD_MAX:
            log.error("found more at start", problems=len(report.problems))
        if not report.clean and report.logs:
            log.info("recovered after an unclean stop", logs=report.logs)

    def _fatal(self, reason: str) -> None:
        log.critical("stopping", reason=reason)
        self.failure = reason
        self.ended.set()

    def _advertised(self, host: str, port: int) -> tuple[str, int]:
        """What clients are told (rule N-12): as configured, or where we listen."""
        told = self.config.advertised
        if told is not None:
            return told[0], told[1] or port
        if host in ("0.0.0.0", "::"):
            return socket.gethostname(), port
        return host, port

    def _session(self) -> asyncio.BaseProtocol:
        self._next_connection_id += 1
        session = Session(
            self._dispatcher,
            self._next_connection_id,
            FrameReceiver(self.config.socket_request_max_bytes, self._scratch),
            self._limits,
            self.metrics,
            self._closed,
            refuse=self._stopping
            or len(self._sessions)
            >= min(self._connections_max, self.node.metadata.config.max_connections),
        )
        self._sessions.add(session)
        self.metrics.connections.set(len(self._sessions))
        return session

    def _closed(self, session: Session) -> None:
        self._sessions.discard(session)
        if not self._sessions:
            self._all_closed.set()
        self.metrics.connections.set(len(self._sessions))

    async def stop(self) -> None:
        """Answer what was asked, make everything durable, mark the stop as clean (rule N-15)."""
        if self._stopping:
            return
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            self._server.close()
        if self._http is not None:
            await self._http.stop()
        self.node.release_parked()
        self.node.close()
        for session in list(self._sessions):
            session.close_after_answers()
        await self._drained()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        # Whoever opens the directory next must not find another's thread in it.
        self._aside.refuse()
        self.node.logs.halt_aside()
        await asyncio.to_thread(self._aside.wait)
        # All at once, where closing the logs would sync them one after another.
        for partition_log in self.node.logs:
            self._commit.request(partition_log)
        await self._commit.drain()
        self._commit.close()
        problems = self.node.logs.close(clean=True)
        if problems:
            log.error(
                "the stop was not clean; the next start will recover",
                problem=problems[0],
                problems=len(problems),
            )
        log.info("stopped")

    async def _drained(self) -> None:
        self._all_closed.clear()
        if self._sessions:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), _DRAIN_S)
        for session in list(self._sessions):
            session.abort()
        await asyncio.sleep(0)

    async def _repeat(
        self, every_s: float, what: str, step: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Whatever a step raises goes to the log, and the next one comes in its time: nobody would
        notice the end of what only this does."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await step()
            except Exception:
                log.exception(f"{what} failed")

    async def _close_idle(self) -> None:
        """Close connections that were silent for connections.max.idle.ms (rule N-04)."""
        idle_s = self.config.connections_max_idle_ms / 1000
        if idle_s < 0:
            return
        for session in list(self._sessions):
            session.close_if_idle(idle_s)

    async def _keep_house(self) -> None:
        """Retention, deleted files, expired producers, at the pace the node decides."""
        report = self.node.keep_house()
        for name, count in report.deleted_segments.items():
            log.info("deleted old segments", partition=name, segments=count)
        for problem in report.problems:
            log.error("housekeeping met a problem", problem=problem)

    async def _keep_recovery_points(self) -> None:
        """Note what is on disk, so that a start after a crash scans little (L-30)."""
        write = self.node.logs.recovery_points_writer()
        if write is not None:
            self._writing = asyncio.ensure_future(asyncio.to_thread(write))
            try:
                await asyncio.shield(self._writing)
                self.node.logs.use_recovery_points()
            except OSError as error:
                log.error("the recovery points were not written", error=str(error))
