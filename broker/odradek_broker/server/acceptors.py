"""The open listeners of a broker, which accept connections, or pause.

A listener pauses while its own connections, or the connections of all listeners together, have
reached a limit, and after too many connections have arrived in a short time (Q-11, Q-13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from odradek_broker.config.broker import BrokerConfig
from odradek_broker.quotas.connections import ConnectionQuotas
from odradek_broker.server.host import Serving

log = structlog.get_logger("odradek.server")


class _OpenListener:
    """An open listener and the number of its connections."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.connections = 0
        #: True if the limit of this listener's connections, or of all connections, is reached.
        self.full = False


class Acceptors:
    """Pauses and resumes the listeners. `settings` returns the present settings; `connections_max`:
    the maximum number of connections that the limit of open files allows."""

    def __init__(
        self,
        quotas: ConnectionQuotas,
        settings: Callable[[], BrokerConfig],
        connections_max: int,
    ) -> None:
        self._quotas = quotas
        self._settings = settings
        self._connections_max = connections_max
        self._open: dict[str, _OpenListener] = {}
        self._connections = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def add(self, name: str, serving: Serving) -> None:
        """Add a listener, and let it begin to accept connections."""
        self._open[name] = _OpenListener(serving)

    def connected(self, name: str) -> None:
        """Count an accepted connection. The caller calls `disconnected` when the connection
        ends."""
        self._connections += 1
        if name in self._open:
            self._open[name].connections += 1
        self.pace()

    def disconnected(self, name: str) -> None:
        """Count the end of a connection."""
        self._connections -= 1
        if name in self._open:
            self._open[name].connections -= 1
        self.pace()

    @property
    def most(self) -> int:
        """The maximum number of connections of all listeners together."""
        return min(self._connections_max, self._settings().max_connections)

    def excess(self) -> list[tuple[str, int]]:
        """The number of connections above the limits, after a limit was lowered: first for each
        listener, then for all listeners together, under the name ""."""
        found = []
        for name, each in self._open.items():
            over = each.connections - self._most_at(name)
            if over > 0:
                found.append((name, over))
        if self._connections > self.most:
            found.append(("", self._connections - self.most))
        return found

    def pace(self) -> None:
        """Accept connections on each listener, or pause the listener until a connection ends or the
        connection rate allows another connection."""
        if self._closed:
            return
        pauses_ms = []
        for name, each in self._open.items():
            pause_ms = self._quotas.pause_ms(name)
            full = self._connections >= self.most or each.connections >= self._most_at(name)
            if full and not each.full:
                log.warning(
                    "no more connections are accepted until some are closed (max.connections, ulimit -n)",
                    listener=name,
                    connections=self._connections,
                )
            each.full = full
            if full or pause_ms:
                each.serving.pause()
            else:
                each.serving.resume()
            if pause_ms:
                pauses_ms.append(pause_ms)
        if pauses_ms and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(pauses_ms) / 1000, self._pause_is_over)

    def close(self) -> None:
        """Stop accepting connections."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for each in self._open.values():
            each.serving.close()

    def _most_at(self, name: str) -> int:
        return self._settings().listener_int(name, "max.connections")

    def _pause_is_over(self) -> None:
        self._timer = None
        self.pace()
