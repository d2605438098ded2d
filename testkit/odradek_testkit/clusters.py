"""Virtual clusters: a broker for each test, in milliseconds.

    with Clusters() as clusters:                       # a process that makes clusters
        with clusters.create() as cluster:             # topics, groups, ACLs, faults of its own
            Producer(bootstrap_servers=cluster.bootstrap)

Each cluster is a broker in a process of its own, with its own port and directory. `Clusters.at`
uses a process that runs already, or a broker of `odradek serve --testing`; in pytest the fixture
`odradek_cluster` is a cluster for one test.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from odradek_client.errors import IllegalState, OdradekError
from odradek_testkit.broker import can_be_read
from odradek_testkit.faults import Faults
from odradek_testkit.http_orders import HttpOrders

if TYPE_CHECKING:
    from odradek_testkit.assertions import Assertions

#: The environment variable with the address of a process that makes clusters, for `shared`.
CLUSTERS_VARIABLE = "ODRADEK_CLUSTERS"
#: The environment variable with the address of an `AddressServer`, for `shared`.
ASK_VARIABLE = "ODRADEK_CLUSTERS_ASK"
_START_S = 30.0
_ORDER_S = 110.0
_END_S = 10.0
_ACCEPT_PAUSE_S = 0.05
_LOG_BYTES_MAX = 64 * 1024


class ClusterRefused(OdradekError):
    """The error if a request about a cluster is refused or a broker does not start, with the
    reason."""


class Cluster:
    """A cluster of one broker, until `close`. `with` closes it.

    `bootstrap`: HOST:PORT for clients. `data_dir`: the broker's data. A broker that is started
    again after a kill or a stop has the same port and data.
    """

    def __init__(self, orders: HttpOrders, described: dict[str, Any]) -> None:
        self._orders = orders
        self.id: int = described["id"]
        self.bootstrap: str = described["bootstrap"]
        #: HOST:PORT of each listener, by its name.
        self.listeners: dict[str, str] = described["listeners"]
        self.data_dir = Path(described["data_dir"])
        self._log = Path(described["log"])
        #: HOST:PORT at which the broker accepts orders for faults over HTTP.
        self.http: str = described["faults"]
        #: The object that injects faults into only this cluster.
        self.faults = Faults.at(self.http)

    def kill(self) -> None:
        """End the broker by SIGKILL: clients get no answer. Its data stays."""
        self._order("kill")

    def stop(self) -> None:
        """Stop the broker cleanly. Its data stays."""
        self._order("stop")

    def start(self) -> None:
        """Start the stopped or killed broker, at the same port and with the same data."""
        self._order("start")

    def restart(self) -> None:
        """Stop the broker if it runs, and start it again. All faults are removed."""
        self._order("restart")

    def _order(self, change: str) -> None:
        self._orders.send("POST", f"/{self.id}/{change}", None)

    @property
    def assertions(self) -> Assertions:
        """Assertions about topics and groups of this cluster."""
        from odradek_testkit.assertions import Assertions

        return Assertions(self.bootstrap)

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the broker's log; empty if there are none."""
        try:
            with self._log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - _LOG_BYTES_MAX))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def close(self) -> None:
        """Delete the cluster and its data. A second call does nothing."""
        try:
            self._orders.send("DELETE", f"/{self.id}", None)
        except ClusterRefused as refused:
            if "there is no cluster" not in str(refused):
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Clusters:
    """Virtual clusters: in a process of their own, from `start` to `close`, or in a running one
    (`at`).

    `settings`: the settings of all clusters, by Kafka's names; `create` can override them. The
    process and all its clusters end with the program that started it, even if that program is
    killed.
    """

    def __init__(self, *, settings: Mapping[str, object] | None = None) -> None:
        self._settings = _texts(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: HttpOrders | None = None

    @classmethod
    def at(cls, http: str) -> Self:
        """The clusters of the process, or broker under test, whose HTTP endpoint is at
        HOST:PORT."""
        clusters = cls()
        clusters._orders = _orders_at(http)
        return clusters

    @property
    def address(self) -> str:
        """The HOST:PORT of the process, as the argument for `at`. IllegalState before `start`."""
        return self._running().address

    def start(self) -> None:
        """Start the process. Raises ClusterRefused if the process does not start."""
        if self._orders is not None:
            raise IllegalState("the process that makes clusters was started already")
        self._process = process = subprocess.Popen(
            [sys.executable, "-P", "-m", "odradek_testkit.virtual_clusters"],
            # When this program ends, the pipe closes, and the process then ends.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl+C goes to the tests, which then close the clusters.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps({"settings": self._settings}).encode() + b"\n")
            process.stdin.flush()
            readable = can_be_read(process.stdout, _START_S)
            address = json.loads(process.stdout.readline())["http"] if readable else None
        except (OSError, ValueError):
            address = None
        if address is None:
            self.close()
            raise ClusterRefused("the process that makes clusters did not start; see its messages")
        self._orders = _orders_at(address)

    def create(self, settings: Mapping[str, object] | None = None) -> Cluster:
        """Create a cluster and start it. `settings`: by Kafka's names; they override those of all
        clusters.

        Raises ClusterRefused for a bad setting, or if 256 clusters are open already.
        """
        orders = self._running()
        order = {"settings": _texts(settings)} if settings else None
        return Cluster(orders, orders.send("POST", "", order))

    def list(self) -> list[Cluster]:
        """All open clusters."""
        orders = self._running()
        return [Cluster(orders, each) for each in orders.send("GET", "", None)["clusters"]]

    def _running(self) -> HttpOrders:
        if self._orders is None:
            raise IllegalState("the process that makes clusters was not started; use `with`")
        return self._orders

    def close(self) -> None:
        """End the process and all its clusters. A process at the address given to `at`
        continues."""
        process, self._process = self._process, None
        started = self._orders is not None
        self._orders = None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        if started:
            # Closing the pipe may not suffice, because a forked child of this program may keep it
            # open.
            process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def __enter__(self) -> Self:
        if self._orders is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Shared:
    """The clusters of this program, started at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clusters: Clusters | None = None

    def get(self) -> Clusters:
        with self._lock:
            if self._clusters is None:
                address = os.environ.get(CLUSTERS_VARIABLE) or _ask()
                clusters = Clusters.at(address) if address else Clusters()
                if not address:
                    clusters.start()
                self._clusters = clusters
            return self._clusters

    def close(self) -> None:
        with self._lock:
            clusters, self._clusters = self._clusters, None
            if clusters is not None:
                clusters.close()


def _ask() -> str:
    """The address that the `AddressServer` of another process returns; empty if there is no
    server."""
    server = os.environ.get(ASK_VARIABLE)
    if not server:
        return ""
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), _START_S) as connection:
            connection.settimeout(_START_S)
            with connection.makefile("rb") as lines:
                found = json.loads(lines.readline())
    except (OSError, ValueError) as problem:
        raise ClusterRefused(f"no answer from {server}, which starts clusters") from problem
    if "error" in found:
        raise ClusterRefused(found["error"])
    address: str = found["address"]
    return address


class AddressServer:
    """The server that sends the address of this program's clusters to other processes. The first
    request starts the process that makes the clusters.

    `address`, HOST:PORT, is the value for ODRADEK_CLUSTERS_ASK in the other processes.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        self.address = f"{host}:{port}"
        self._closed = False
        threading.Thread(target=self._serve, name="odradek-clusters", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                # The process may have no free file descriptor for a while.
                time.sleep(_ACCEPT_PAUSE_S)
                continue
            with connection, suppress(OSError):
                try:
                    answer = {"address": shared().address}
                except OdradekError as error:
                    answer = {"error": str(error)}
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        # A close alone does not wake the accepting thread.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


_shared = _Shared()


def shared() -> Clusters:
    """The clusters of this program. One process makes them for all tests; the first test starts it.

    If the environment variable ODRADEK_CLUSTERS has an address, such as that of a broker of
    `odradek serve --testing`, the clusters are created there instead.
    """
    return _shared.get()


def close_shared() -> None:
    """End the process of `shared` before the end of the program."""
    _shared.close()


def _orders_at(http: str) -> HttpOrders:
    return HttpOrders(
        http,
        "/clusters",
        ClusterRefused,
        "makes no clusters: start the broker with --testing",
        answer_s=_ORDER_S,
    )


def _texts(settings: Mapping[str, object] | None) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (settings or {}).items()
    }
