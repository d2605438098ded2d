"""Virtual clusters and their processes: creation, kill, restart and deletion.

The host runs no other threads, because a fork has only the thread that forks.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from odradek_broker.config.broker import (
    BrokerConfig,
    BrokerConfigError,
    parse_config,
    require_known,
)
from odradek_testkit.virtual_clusters import forked
from odradek_testkit.virtual_clusters.settings import (
    DEFAULTS,
    BadSettings,
    check_listeners,
    shown,
    with_bound_ports,
)

log = structlog.get_logger("odradek.server")

#: The maximum number of clusters at a time. Each cluster is a process.
CLUSTERS_MAX = 256
#: The number of spare brokers. They are started before an order needs them.
SPARES = 2
_START_S = 30.0
_STOP_S = 10.0
#: The pause before work that must not delay the answer to an order.
_PAUSE_S = 0.005
_TOLD_BYTES_MAX = 64 * 1024
_LOG_TAIL_BYTES = 4096


class NotPossible(Exception):
    """The error of an order that the state or the number of clusters does not allow."""


class StartFailed(Exception):
    """The error of a broker that did not start, with the reason."""


class ClusterState(StrEnum):
    """The state of a cluster."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DELETED = "deleted"


_NEXT = {
    ClusterState.STARTING: {ClusterState.RUNNING, ClusterState.STOPPED},
    ClusterState.RUNNING: {ClusterState.STOPPING, ClusterState.STOPPED},
    ClusterState.STOPPING: {ClusterState.STOPPED},
    ClusterState.STOPPED: {ClusterState.STARTING, ClusterState.DELETED},
    ClusterState.DELETED: set(),
}


class BrokerProcess:
    """A forked broker. `told`: the pipe through which the broker reports that it listens; the pipe
    closes when the process ends."""

    def __init__(self, pid: int, told: int) -> None:
        self._pid = pid
        self._told = told
        self._text = b""
        loop = asyncio.get_running_loop()
        #: The line that the broker has written into the pipe (`forked.py`); empty if the broker has
        #: ended without writing a line.
        self.news: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        os.set_blocking(told, False)
        loop.add_reader(told, self._read)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            found = os.read(self._told, _TOLD_BYTES_MAX)
            self._text += found
            if b"\n" in self._text and not self.news.done():
                self.news.set_result(json.loads(self._text))
            if not found:
                self._close()

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._told)
        os.close(self._told)
        # The pipe closes at the end of the process, so this wait is short.
        os.waitpid(self._pid, 0)
        if not self.news.done():
            self.news.set_result({})
        self.ended.set_result(None)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if not self.ended.done():
            os.kill(self._pid, number)

    async def end(self, number: signal.Signals) -> None:
        """Send a signal, and wait for the end; SIGKILL if that takes too long."""
        self.send(number)
        try:
            async with asyncio.timeout(_STOP_S):
                await asyncio.shield(self.ended)
        except TimeoutError:
            self.send(signal.SIGKILL)
            await asyncio.shield(self.ended)


@dataclass(eq=False)
class HostedCluster:
    """A cluster of one broker. The broker may be stopped, and started again with its data and
    ports.
    """

    number: int
    folder: Path
    #: The host's default settings, overridden by the settings in the order. Settings that the host
    #: makes for each cluster are not included.
    settings: dict[str, str]
    #: The settings of the addresses. The first start uses free ports, and later starts use the same
    #: ports.
    addresses: dict[str, str] = field(default_factory=dict)
    state: ClusterState = ClusterState.STOPPED
    process: BrokerProcess | None = None
    listeners: dict[str, str] = field(default_factory=dict)
    faults: str = ""
    #: Held during each order for this cluster, so that orders for the cluster are carried out one
    #: at a time.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def log_file(self) -> Path:
        """The broker's log."""
        return self.folder / "broker.log"

    @property
    def data_dir(self) -> Path:
        """The broker's data."""
        return self.folder / "data"

    def change(self, state: ClusterState) -> None:
        """Enter a state. Raises RuntimeError for a step that is not in the table."""
        if state not in _NEXT[self.state]:
            raise RuntimeError(f"a cluster cannot go from {self.state} to {state}")
        self.state = state

    def config(self) -> BrokerConfig:
        """The configuration of the broker. Raises ConfigError, BadSettings."""
        given = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **DEFAULTS,
            **self.settings,
            "log.dirs": str(self.data_dir),
            "http.listen": "127.0.0.1:0",
            **self.addresses,
        }
        require_known(self.settings)
        config = parse_config(given)[0]
        check_listeners(config)
        return config

    def last_words(self) -> str:
        """The last lines of the broker's log."""
        try:
            return self.log_file.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return "it logged nothing"

    def described(self) -> dict[str, Any]:
        """The cluster as JSON."""
        return {
            "id": self.number,
            "state": str(self.state),
            "bootstrap": next(iter(self.listeners.values()), ""),
            "listeners": self.listeners,
            "faults": self.faults,
            "data_dir": str(self.data_dir),
            "log": str(self.log_file),
        }


class ClusterHost:
    """The host of clusters, with their data under `root`. `settings`: the settings that an order
    does not override. `after`: the highest number that earlier clusters had."""

    def __init__(
        self, root: Path, settings: Mapping[str, str], after: int = 0, spares: int = SPARES
    ) -> None:
        self._root = root
        self._settings = dict(settings)
        self._spares_wanted = spares
        #: A pipe that stays open until this process ends.
        self._lifeline, self._lifeline_end = os.pipe()
        self._numbers = after
        self._clusters: dict[int, HostedCluster] = {}
        self._spares: list[HostedCluster] = []
        #: The settings of the spares: the last settings that two orders in a row had.
        self._spare_settings = dict(settings)
        self._last_settings = dict(settings)
        self._tasks: set[asyncio.Task[None]] = set()

    # --- Orders ---

    def start_ahead(self) -> None:
        """Begin to start spare brokers for the next orders."""
        while len(self._spares) < self._spares_wanted:
            spare = self._new(self._spare_settings)
            self._spares.append(spare)
            self._begin(self._start_spare(spare))

    async def create(self, settings: Mapping[str, str]) -> HostedCluster:
        """Create a cluster and start it. Raises NotPossible, BadSettings, StartFailed."""
        if len(self._clusters) >= CLUSTERS_MAX:
            raise NotPossible(
                f"{CLUSTERS_MAX} clusters are open: delete those that are no longer needed"
            )
        wanted = self._settings | dict(settings)
        self._choose_spares(wanted)
        cluster = self._take_spare(wanted) or self._new(wanted)
        self._clusters[cluster.number] = cluster
        try:
            async with cluster.lock:
                if cluster.state is ClusterState.STOPPED:
                    await self._start(cluster)
        except BaseException:
            await self.delete(cluster)
            raise
        self._after_the_answer(self.start_ahead)
        return cluster

    def find(self, number: int) -> HostedCluster | None:
        """The cluster of this number."""
        return self._clusters.get(number)

    def all(self) -> list[HostedCluster]:
        """All clusters, in the order of their numbers."""
        return [self._clusters[number] for number in sorted(self._clusters)]

    async def start(self, cluster: HostedCluster) -> None:
        """Start a stopped broker with its data, at its old addresses. Raises NotPossible,
        StartFailed."""
        async with cluster.lock:
            if cluster.state is not ClusterState.STOPPED:
                raise NotPossible(f"cluster {cluster.number} is {cluster.state}")
            await self._start(cluster)

    async def stop(self, cluster: HostedCluster, number: signal.Signals) -> None:
        """End the broker by SIGTERM or SIGKILL; its data stays. A stopped broker is not
        affected.
        """
        async with cluster.lock:
            await self._stop(cluster, number)

    async def delete(self, cluster: HostedCluster) -> None:
        """Kill the broker, and delete its data."""
        async with cluster.lock:
            if cluster.state is ClusterState.DELETED:
                return
            await self._stop(cluster, signal.SIGKILL)
            cluster.change(ClusterState.DELETED)
            self._clusters.pop(cluster.number, None)
        self._after_the_answer(partial(shutil.rmtree, cluster.folder, ignore_errors=True))

    async def close(self) -> None:
        """Kill all brokers, and delete all data."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for cluster in (*self._clusters.values(), *self._spares):
            if cluster.process is not None:
                cluster.process.send(signal.SIGKILL)
        for cluster in (*self._clusters.values(), *self._spares):
            if cluster.process is not None:
                await cluster.process.ended
        shutil.rmtree(self._root, ignore_errors=True)

    # --- Spares ---

    def _choose_spares(self, wanted: dict[str, str]) -> None:
        """Use these settings for the spares if two orders in a row had them."""
        if wanted == self._last_settings != self._spare_settings:
            self._spare_settings = wanted
            self._drop_spares()
        self._last_settings = wanted

    def renew_spares(self) -> None:
        """Replace the spares, because new forks have the modules and codecs that this process has
        loaded since the spares were forked."""
        self._drop_spares()
        self.start_ahead()

    def _drop_spares(self) -> None:
        for spare in self._spares:
            self._begin(self.delete(spare))
        self._spares.clear()

    def _take_spare(self, wanted: dict[str, str]) -> HostedCluster | None:
        if wanted != self._spare_settings or not self._spares:
            return None
        ready = (spare for spare in self._spares if spare.state is ClusterState.RUNNING)
        spare = next(ready, self._spares[0])
        self._spares.remove(spare)
        return spare

    async def _start_spare(self, spare: HostedCluster) -> None:
        async with spare.lock:
            if spare not in self._spares:
                # An order has taken the spare and started it, or the spare is no longer needed.
                return
            # An order that later takes this spare starts it again, and reports the failure.
            with suppress(StartFailed, BadSettings):
                await self._start(spare)

    def _after_the_answer(self, work: Callable[[], None]) -> None:
        """Do work that takes milliseconds, but only after the answer to the present order has been
        sent."""
        asyncio.get_running_loop().call_later(_PAUSE_S, work)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- Processes ---

    def _new(self, settings: dict[str, str]) -> HostedCluster:
        self._numbers += 1
        return HostedCluster(self._numbers, self._root / str(self._numbers), settings)

    async def _start(self, cluster: HostedCluster) -> None:
        try:
            config = cluster.config()
        except BrokerConfigError as error:
            raise BadSettings(str(error)) from error
        try:
            cluster.folder.mkdir(exist_ok=True)
            cluster.process = process = self._fork(config, cluster)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StartFailed(f"the machine has no room for a broker: {reason}") from error
        cluster.change(ClusterState.STARTING)
        news: dict[str, Any] = {}
        try:
            async with asyncio.timeout(_START_S):
                news = await asyncio.shield(process.news)
        except TimeoutError:
            news = {"error": f"the broker was not ready within {_START_S:g} s"}
        finally:
            if "addresses" not in news:
                await process.end(signal.SIGKILL)
                cluster.process = None
                cluster.change(ClusterState.STOPPED)
        if "addresses" not in news:
            reason = news.get("error", "the broker ended during its start")
            # The log may have tracebacks and paths, which are not for clients over HTTP.
            log.error("a cluster did not start", reason=reason, log=cluster.last_words())
            raise StartFailed(reason)
        self._started(cluster, process, news)

    def _started(
        self, cluster: HostedCluster, process: BrokerProcess, news: dict[str, Any]
    ) -> None:
        bound = {name: (host, port) for name, (host, port) in news["addresses"].items()}
        cluster.listeners = {name: shown(*address) for name, address in bound.items()}
        cluster.faults = shown(*news["http"])
        cluster.addresses = {
            "listeners": with_bound_ports(
                cluster.settings.get("listeners", "PLAINTEXT://127.0.0.1:0"), bound
            ),
            "http.listen": cluster.faults,
        }
        cluster.change(ClusterState.RUNNING)
        process.ended.add_done_callback(lambda _: self._has_ended(cluster, process))

    def _has_ended(self, cluster: HostedCluster, process: BrokerProcess) -> None:
        """Called when a broker has ended although no order has stopped it."""
        if cluster.process is process and cluster.state is ClusterState.RUNNING:
            cluster.process = None
            cluster.change(ClusterState.STOPPED)

    async def _stop(self, cluster: HostedCluster, number: signal.Signals) -> None:
        process = cluster.process
        if cluster.state is ClusterState.RUNNING and process is not None:
            cluster.change(ClusterState.STOPPING)
            await process.end(number)
            cluster.process = None
            cluster.change(ClusterState.STOPPED)

    def _fork(self, config: BrokerConfig, cluster: HostedCluster) -> BrokerProcess:
        told_here, told_there = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(told_here)
            os.close(told_there)
            raise
        if pid == 0:
            forked.live(
                config,
                self._root,
                cluster.log_file,
                lifeline=self._lifeline,
                told=told_there,
            )
        os.close(told_there)
        return BrokerProcess(pid, told_here)
