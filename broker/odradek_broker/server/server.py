"""The broker as a running program: sockets, timers, start and end.

await serve(config, on_ready)          until SIGTERM or SIGINT, for the command line
server = Server(config); await server.start(); ...; await server.stop()
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from odradek_broker.config.broker import BrokerConfig
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.node import Node
from odradek_broker.platform.fault_injection import injection_from_environment
from odradek_broker.platform.fault_points import UnknownFaultPoint
from odradek_broker.platform.peer_log import PeerLog
from odradek_broker.quotas.connections import ConnectionAdmission
from odradek_broker.server.acceptors import Acceptors
from odradek_broker.server.dispatch import HANDLERS, Dispatcher, Handler
from odradek_broker.server.hangup import handle_hangup
from odradek_broker.server.host import (
    Background,
    BoundListener,
    FileBudget,
    Host,
    LoopScheduler,
    RealHost,
    StartError,
)
from odradek_broker.server.http import HttpServer, names_of
from odradek_broker.server.initial_users import initial_user_records
from odradek_broker.server.session import ConnectionSession
from odradek_broker.server.session_limits import SessionLimits
from odradek_broker.server.storage_log import (
    log_cleanings,
    log_disk_problems,
    log_maintenance,
    log_start,
)
from odradek_broker.server.tls import (
    TlsListener,
    check_changed,
    http_token,
    open_http_tls,
    open_tls,
    with_token_key,
)
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.manager import LogManager
from odradek_protocol.frames import SCRATCH_BYTES, FrameReceiver
from odradek_protocol.keys import ApiKey

if TYPE_CHECKING:
    from odradek_broker.server.sasl_listeners import SaslListener, SaslListeners
    from odradek_broker.server.under_test import UnderTest

log = structlog.get_logger("odradek.server")


#: The time for which a stopping broker waits until clients have received their last responses.
_DRAIN_S = 3.0
_LOOK_S = 0.01
_IDLE_CHECK_S = 30.0
_MAINTENANCE_S = 1.0
_RECOVERY_POINTS_S = 60.0
#: The time between two measurements of the event loop's delay.
_LOOP_WATCH_S = 0.1
#: The name of the HTTP endpoint among the listeners with TLS. No real listener can have this name.
_HTTP_LISTEN = "http.listen"


async def serve(
    config: BrokerConfig,
    on_ready: Callable[[str, int], None],
    *,
    handle_signals: bool = True,
    under_test: UnderTest | None = None,
    reopen_log: Callable[[], None] | None = None,
    on_started: Callable[[Server], None] | None = None,
) -> None:
    """Serve until a signal or cancellation; then drain and stop. Raises StartError if it cannot
    start.

    `reopen_log`: reopens the log file, at SIGHUP; None if the log goes to stderr. `on_started` is
    called with the server when it listens, before `on_ready`.

    A broker kills itself only because of ODRADEK_FAULT_POINT (`fault_points.py`). With `under_test`
    the broker takes orders for faults.
    """
    try:
        injection = injection_from_environment(os.environ)
    except UnknownFaultPoint as error:
        raise StartError(str(error)) from error
    host = RealHost(injection, None if under_test is None else under_test.files)
    server = Server(config, host, under_test)
    if handle_signals:
        # A SIGHUP during the start is handled at the end of the start.
        handle_hangup(server.ended.set, reopen_log)
    address, port = await server.start()
    if on_started is not None:
        on_started(server)
    if handle_signals:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.ended.set)
    try:
        on_ready(address, port)
        await server.ended.wait()
    finally:
        await server.stop()
    if server.failure:
        raise StartError(server.failure)


class Server:
    """A running broker. `start` and `stop` are called once each."""

    def __init__(
        self, config: BrokerConfig, host: Host | None = None, under_test: UnderTest | None = None
    ) -> None:
        """`host`: the machine or its simulation; this machine if None. `under_test`: the additions
        to a broker under test; None for every other broker."""
        self.config = config
        self.under_test = under_test
        #: The address of the HTTP endpoint, once it listens.
        self.http_address: tuple[str, int] | None = None
        self._host = host or RealHost()
        self.metrics = BrokerMetrics(self._host.now_us)
        self.metrics.process_usage = self._host.process_usage
        self.node: Node
        #: The open sessions, in the order in which they came, so that a stop handles them in a
        #: fixed order. The value is the address whose limits include the session, "" if none do.
        self.sessions: dict[ConnectionSession, str] = {}
        #: The receive buffer of all connections; see `FrameReceiver`.
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._all_closed = asyncio.Event()
        self._next_connection_id = 0
        clock = self._host.clock
        self._peer_log = PeerLog(lambda: clock.monotonic_ms() / 1000)
        #: The TLS settings and certificates by listener.
        self._tls: dict[str, TlsListener] = {}
        #: The listeners with SASL; None if there are none.
        self._sasl: SaslListeners | None = None
        #: The threads that read large batches, hash passwords and fetch keys.
        self._beside: list[Background] = []
        #: The bound (host, port) of each listener.
        self.addresses: dict[str, tuple[str, int]] = {}
        self._http: HttpServer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._writing: asyncio.Future[None] | None = None
        self._stopping = False
        #: True if the users in sasl.scram.initial.users could not be created yet.
        self._users_missing = False
        #: Set when the broker is to stop; `failure` is the reason if nobody requested the stop.
        self.ended = asyncio.Event()
        self.failure = ""

    async def start(self) -> tuple[str, int]:
        """Open the data directory, recover, listen; returns the bound address of the first
        listener.

        Raises StartError, DataDirectoryError. No connection is accepted before recovery has ended.
        """
        loop = asyncio.get_running_loop()
        config = self.config
        self._tls = open_tls(config, self._peer_log)
        http_tls, token = open_http_tls(config, self._peer_log), http_token(config)
        if http_tls is not None:
            self._tls[_HTTP_LISTEN] = http_tls
        for listener_with_tls in self._tls.values():
            listener_with_tls.refused = self.metrics.connection_refused
        self._sasl = self._open_sasl(loop)
        bound = self._bind()
        try:
            budget = self._host.open_files()
            self._open(loop, budget)
        except BaseException:
            for listener in bound.values():
                listener.close()
            raise
        self.addresses = {name: listener.address for name, listener in bound.items()}
        node = self.node
        self._advertise()
        try:
            await self._make_first_users()
            if self.failure:
                raise StartError(self.failure)
        except BaseException:
            for listener in bound.values():
                listener.close()
            node.logs.stop_background()
            self.group_commit.close()
            node.logs.close(clean=False)
            raise
        node.metadata.check_config = partial(check_changed, self._tls)
        self._acceptors = Acceptors(
            node.connection_quotas, lambda: node.metadata.config, budget.connections
        )
        self._dispatcher = self._new_dispatcher()
        self.limits = SessionLimits(
            config.max_in_flight_per_connection,
            config.max_in_flight_bytes_per_connection,
            config.queued_max_request_bytes,
        )
        node.answer_room_bytes = self.limits.room_bytes
        try:
            for name, listener in bound.items():
                serving = await listener.serve(partial(self._session, name), self._tls.get(name))
                self._acceptors.add(name, serving)
            if config.http_address is not None:
                self._http = HttpServer(
                    node,
                    self.metrics,
                    self.under_test,
                    token=token,
                    tls=http_tls,
                    names=names_of(config, self._advertised()),
                )
                self.http_address = await self._http.start(*config.http_address)
        except OSError as error:
            for listener in bound.values():
                listener.close()
            await self.stop()
            raise _cannot_listen(config.http_listen, error) from error
        self._begin_tasks(loop)
        return self._log_ready()

    def _advertise(self) -> None:
        advertised = self._advertised()
        self.node.set_advertised(advertised)
        for name, (host, _) in advertised.items():
            if name in self._tls:
                self._tls[name].advertise(host)

    def _begin_tasks(self, loop: asyncio.AbstractEventLoop) -> None:
        idle_s = self.config.connections_max_idle_ms / 1000
        closing_s = min(_IDLE_CHECK_S, max(idle_s / 2, 0.1))
        self._tasks = [
            loop.create_task(self._repeat(every_s, what, step))
            for every_s, what, step in (
                (closing_s, "closing idle connections", self._close_idle),
                (_MAINTENANCE_S, "maintenance", self._maintain),
                (_RECOVERY_POINTS_S, "writing the recovery points", self._keep_recovery_points),
            )
        ]
        if self._http is not None:
            self._tasks.append(loop.create_task(self._watch_loop(loop)))

    async def _watch_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure the delay of the event loop, for the metrics."""
        while True:
            due_s = loop.time() + _LOOP_WATCH_S
            await asyncio.sleep(_LOOP_WATCH_S)
            self.metrics.loop_delays.observe(max(int((loop.time() - due_s) * 1_000_000), 0))

    def _log_ready(self) -> tuple[str, int]:
        """Log all addresses; returns the address of the first listener."""
        node = self.node
        host, port = next(iter(self.addresses.values()))
        others = {
            name: f"{at[0]}:{at[1]}" for name, at in self.addresses.items() if at != (host, port)
        }
        more = {"listeners": others} if others else {}
        log.info(
            "ready", host=host, port=port, node_id=node.node_id, cluster_id=node.cluster_id, **more
        )
        return host, port

    def _bind(self) -> dict[str, BoundListener]:
        """Bind all addresses, or none. Raises StartError."""
        bound: dict[str, BoundListener] = {}
        try:
            for each in self.config.broker_listeners:
                bound[each.name] = self._host.bind(each.host or "0.0.0.0", each.port)
        except BaseException as error:
            for listener in bound.values():
                listener.close()
            if isinstance(error, StartError):
                # The loop ended at the listener that cannot be bound.
                where = f"the setting listeners ({each.name}), or --listen"
                raise StartError(f"{error}; {where}, names another address") from error
            raise
        return bound

    async def _make_first_users(self) -> None:
        """Create the SCRAM users of the settings that have no credentials yet; on a full disk
        `_maintain` tries again. Raises StartError."""
        texts = self.config.sasl_scram_initial_users
        present = self.node.metadata.scram_credentials
        records, names = initial_user_records(texts, present, self._host.randomness)
        missing, self._users_missing = self._users_missing, False
        if records:
            durable = asyncio.Event()
            try:
                self.node.metadata_log.commit(records).then(lambda _: durable.set())
            except StorageError as problem:
                self._users_missing = True
                if not missing:
                    log.error(
                        "SCRAM users cannot be created; the broker tries again",
                        users=names,
                        problem=problem.message,
                    )
                return
            waiting = [asyncio.create_task(event.wait()) for event in (durable, self.ended)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in waiting:
                each.cancel()
            if durable.is_set():
                log.info("created SCRAM users", users=names)

    def _open_sasl(self, loop: asyncio.AbstractEventLoop) -> SaslListeners | None:
        """Open the listeners with SASL. Raises StartError."""
        if not any(each.protocol.is_sasl for each in self.config.broker_listeners):
            return None
        # Imported here, because brokers without SASL start faster.
        from odradek_broker.server.sasl_listeners import SaslListeners

        host = self._host
        # Hashing and fetching have one thread each, so that neither task waits for the other.
        hashing, fetching = host.background(loop), host.background(loop)
        self._beside += [hashing, fetching]
        return SaslListeners(
            self.config,
            credentials=lambda mechanism: self.node.metadata.scram_users[mechanism],
            tokens=lambda: self.node.metadata.delegation_tokens,
            clock=host.clock,
            randomness=host.randomness,
            peer_log=self._peer_log,
            metrics=self.metrics,
            hashing=hashing,
            fetching=fetching,
        )

    def _sasl_of(self, listener: str) -> SaslListener | None:
        return None if self._sasl is None else self._sasl.get(listener)

    def _new_dispatcher(self) -> Dispatcher:
        control_bytes_max = self.config.max_control_request_bytes
        handlers = self._handlers()
        if self.under_test is not None:
            log.warning("this broker is under test: it injects faults on request (--testing)")
            handlers = self.under_test.begin(self.node, handlers)
        return Dispatcher(self.node, control_bytes_max, handlers)

    def _handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers, with the limits of the emulated broker if this broker emulates one."""
        profile = self.node.profile
        if profile is None:
            return HANDLERS
        # Imported only now, because few brokers emulate another broker.
        from odradek_broker.server.emulated_handlers import emulated_handlers

        return emulated_handlers(profile, HANDLERS)

    def _open(self, loop: asyncio.AbstractEventLoop, budget: FileBudget) -> None:
        config = with_token_key(self.config)
        host = self._host
        if host.armed:
            log.warning(
                "a fault point is armed: this broker is under test and will kill itself",
                point=host.armed,
            )
        self._run_in_background, reading = host.background(loop), host.background(loop)
        self._beside.append(reading)
        self.group_commit = host.group_commit(
            loop, self.metrics.flushed, self.metrics.journal_written
        )
        self.group_commit.files_max = max(budget.segments // 2, 1)
        manager = LogManager(
            config.log_dirs,
            host.files,
            host.clock,
            host.randomness,
            config.default_log_config(),
            metadata_dir=config.data_dir,
            node_id=config.node_id,
            cluster_id=config.cluster_id or None,
            max_open_files=budget.segments,
            files_scarce=budget.scarce,
            producer_expiration_ms=config.producer_id_expiration_ms,
            background=self._run_in_background,
            in_parallel=host.in_parallel,
            journal_bytes_max=(
                config.log_journal_max_bytes if config.log_durability == "fsync" else 0
            ),
        )
        for directory in manager.directories:
            log_disk_problems(directory)
        try:
            self.node = Node(
                config,
                clock=host.clock,
                randomness=host.randomness,
                logs=manager,
                scheduler=LoopScheduler(loop),
                request_flush=self.group_commit.request,
                metrics=self.metrics,
                on_fatal=self._fatal,
                fault_points=host.fault_points,
                cleaner=host.cleaner(loop),
                log_levels=host.log_levels,
                peer_log=self._peer_log,
                beside=reading,
            )
            log_cleanings(self.node.cleaner)
            log_start(self.node.load())
            manager.begin_journals(self.group_commit.request)
        except BaseException:
            self._run_in_background.refuse()
            manager.stop_background()
            self._run_in_background.wait()
            manager.close(clean=False)
            raise

    def _fatal(self, reason: str) -> None:
        log.critical("stopping", reason=reason)
        self.failure = reason
        self.ended.set()

    def _advertised(self) -> dict[str, tuple[str, int]]:
        """The addresses for clients (N-12), which are the configured addresses, or else the bound
        addresses.
        """
        configured = self.config.advertised_addresses
        advertised = {}
        for name, (bound_host, bound_port) in self.addresses.items():
            host, port = configured.get(name, (bound_host, 0))
            if host in ("", "0.0.0.0", "::"):
                host = socket.gethostname()
            advertised[name] = host, port or bound_port
        return advertised

    def _session(self, listener: str) -> asyncio.BaseProtocol:
        self._next_connection_id += 1
        session = ConnectionSession(
            self._dispatcher,
            self._next_connection_id,
            FrameReceiver(self.config.socket_request_max_bytes, self._scratch),
            self.limits,
            self.metrics,
            self._closed,
            listener=listener,
            sasl=self._sasl_of(listener),
            peer_log=self._peer_log,
            admit=self._admit,
        )
        self.sessions[session] = ""
        self._acceptors.connected(listener)
        self.metrics.connections.set(len(self.sessions))
        return session

    def _admit(
        self, session: ConnectionSession, transport: asyncio.BaseTransport
    ) -> ConnectionAdmission:
        peer = session.peer
        if self._stopping:
            return ConnectionAdmission("the broker is stopping")
        admission = self.node.connection_quotas.admit(peer.host, peer.listener)
        if not admission.reason:
            self.sessions[session] = peer.host
            self.node.connections.opened(peer)
        self._acceptors.pace()
        tls = self._tls.get(peer.listener)
        if tls is not None and not admission.reason and self._sasl_of(peer.listener) is None:
            try:
                peer.user = tls.user_of(transport.get_extra_info("ssl_object"))
            except ValueError as problem:
                return ConnectionAdmission(str(problem))
        return admission

    def _closed(self, session: ConnectionSession) -> None:
        if session not in self.sessions:
            return
        host = self.sessions.pop(session)
        self.node.connection_closed(session.peer)
        if host:
            self.node.connection_quotas.closed(host)
        if not self.sessions:
            self._all_closed.set()
        self._acceptors.disconnected(session.listener)
        self.metrics.connections.set(len(self.sessions))

    def _close_excess(self) -> None:
        """If a lowered limit is exceeded, close the connections that were idle for longest
        (Q-11)."""
        closed: list[ConnectionSession] = []
        for name, excess in self._acceptors.excess():
            there = [
                each for each in self.sessions if name in ("", each.listener) and each not in closed
            ]
            silent = sorted(there, key=lambda session: session.last_active)
            # The excess of single listeners comes first. Connections that are closed for it also
            # reduce the excess of all listeners together.
            closed += silent[: excess if name else max(excess - len(closed), 0)]
        for session in closed:
            session.peer.end = "there were more connections than allowed (max.connections)"
            session.abort()

    async def stop(self) -> None:
        """Answer the requests in flight, make everything durable, mark the stop as clean (rule
        N-15)."""
        if self._stopping:
            return
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        self._acceptors.close()
        if self._http is not None:
            await self._http.stop()
        if self.under_test is not None:
            await self.under_test.close()
        self.node.parked_fetches.answer_all()
        self.node.close()
        for session in list(self.sessions):
            session.peer.end = "the broker stopped"
            session.close_after_answers()
        await self._drained()
        self.node.slices.stop()
        for thread in self._beside:
            thread.refuse()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        # Another broker may open the directory after the stop, so no thread may use it.
        self._run_in_background.refuse()
        self.node.logs.stop_background()
        await self._host.in_thread(self._run_in_background.wait)
        await self._host.in_thread(self.node.group_lags_file.save)
        self.node.logs.stop_journals()
        # All logs are flushed together: `close` would sync one after another.
        for partition_log in self.node.logs:
            self.group_commit.request(partition_log.durability)
        await self.group_commit.drain()
        self.group_commit.close()
        problems = self.node.logs.close(clean=True)
        if problems:
            log.error(
                "the stop was not clean; the next start will recover the logs",
                problem=problems[0],
                problems=len(problems),
            )
        log.info("stopped")

    async def _drained(self) -> None:
        self._all_closed.clear()
        if self.sessions:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), _DRAIN_S)
        for session in list(self.sessions):
            session.abort()
        await asyncio.sleep(0)
        # Requests of closed connections that have begun to change something.
        for _ in range(round(_DRAIN_S / _LOOK_S)):
            if not self.node.slices.unfinished:
                break
            await asyncio.sleep(_LOOK_S)

    async def _repeat(
        self, every_s: float, what: str, step: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Repeat a step for ever. Errors are logged, because nobody would see the task end."""
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
        for session in list(self.sessions):
            session.close_if_idle(idle_s)

    async def _maintain(self) -> None:
        """Carry out the node's periodic work (retention, deletion of files, expiration of
        producers), and apply changed limits of connections."""
        for name, tls in self._tls.items():
            tls.refresh(self.node.metadata.config)
            if tls.end_s is not None:
                self.metrics.certificate_ends_s[name] = tls.end_s
        if self._sasl is not None:
            self._sasl.refresh()
        self.limits.released()
        stalled = self.limits.stalled(asyncio.get_running_loop().time())
        if isinstance(stalled, ConnectionSession):
            stalled.close_as_stalled()
        self._close_excess()
        self._acceptors.pace()
        log_maintenance(self.node.maintain())
        if self._users_missing and not self.node.logs.metadata_directory.disk.problem:
            await self._make_first_users()

    async def _keep_recovery_points(self) -> None:
        """Write the recovery points, so that a start after a crash has little to scan (L-30)."""
        for directory in self.node.logs.directories:
            if directory.failure:
                continue
            write = directory.recovery_points_writer()
            if write is None:
                continue
            self._writing = asyncio.ensure_future(self._host.in_thread(write))
            try:
                await asyncio.shield(self._writing)
                directory.use_recovery_points()
            except OSError as error:
                directory.disk.doubt(error)
                log.error("the recovery points were not written", error=str(error))


def _cannot_listen(address: str, error: OSError) -> StartError:
    # Python adds the address to the system's text.
    cause = (error.strerror or str(error)).partition(" (while attempting")[0]
    text = f"cannot listen on {address}: {cause}"
    return StartError(f"{text}; the setting http.listen names another address")
