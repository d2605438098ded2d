"""Limits of connections: the number of connections from an address, and the rate of new
connections.

The module only counts and decides (KIP-402, KIP-612). The server that accepts the connections calls
the module.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.config.addresses import parse_counts, plain_address
from odradek_broker.config.broker import BrokerConfig
from odradek_broker.platform.seams import Clock
from odradek_broker.quotas.client_quotas import ANY, CLIENT_ID, ClientQuotas, quota_entity
from odradek_broker.quotas.rates import SampledRate, Windows
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.settings import INT32_MAX

#: The rate for a limit of 0: one window passes between two connections, as in Kafka.
_LEAST_RATE = 1e-9


class ConnectionAdmission(NamedTuple):
    """The decision about a connection. The connection may stay if `reason` is empty.

    `hold_ms`: the delay before a refused connection is closed, so that its peer does not retry
    immediately.
    """

    reason: str = ""
    hold_ms: int = 0


class ConnectionQuotas:
    """The counts and limits of connections. `settings` returns the present settings; `windows`: the
    windows over which all quotas measure rates."""

    def __init__(
        self, clock: Clock, windows: Windows, settings: Callable[[], BrokerConfig]
    ) -> None:
        self._clock = clock
        self._windows = windows
        self._settings = settings
        self._counts: dict[str, int] = {}
        #: The rates of addresses, kept like those of clients, with the address as the client id.
        self._rates = ClientQuotas(lambda: SampledRate(windows))
        self._all = SampledRate(windows)
        self._by_listener: dict[str, SampledRate] = {}
        self._overrides: tuple[str, dict[str, int]] = ("", {})
        #: The earliest time of the next connection, by listener; "" stands for all listeners.
        self._accept_at_ms: dict[str, int] = {}

    def update(self, address: str | None, limit: float | None) -> None:
        """Set the limit of connections per second from an address; a limit of None is no limit. An
        address of None stands for every address without its own limit."""
        name = None if address is None else _address_of(address)
        self._rates.update(quota_entity([(CLIENT_ID, name)]), limit)

    def admit(self, host: str, listener: str = "") -> ConnectionAdmission:
        """Count a new connection, unless a limit refuses it. The caller calls `closed` at the end
        of each connection that was not refused."""
        address = _address_of(host)
        now_ms = self._clock.monotonic_ms()
        self._count_all(now_ms, listener)
        hold_ms = self._throttle_ms(address, now_ms)
        if hold_ms:
            return ConnectionAdmission(
                "its address comes too often (connection_creation_rate)", hold_ms
            )
        count = self._counts.get(address, 0)
        if count >= self._most_of(address):
            return ConnectionAdmission(
                "its address has too many connections (max.connections.per.ip)"
            )
        self._counts[address] = count + 1
        return ConnectionAdmission()

    def closed(self, host: str) -> None:
        """Count the end of an admitted connection."""
        address = _address_of(host)
        count = self._counts.get(address, 0) - 1
        if count > 0:
            self._counts[address] = count
        else:
            self._counts.pop(address, None)

    def pause_ms(self, listener: str = "") -> int:
        """The time for which a listener must not accept connections, because there were too many
        new connections at this listener, or at all listeners together
        (max.connection.creation.rate)."""
        at_ms = max(self._accept_at_ms.get("", 0), self._accept_at_ms.get(listener, 0))
        return max(at_ms - self._clock.monotonic_ms(), 0)

    def _count_all(self, now_ms: int, listener: str) -> None:
        settings = self._settings()
        self._count("", settings.max_connection_creation_rate, self._all, now_ms)
        if listener:
            rate = self._by_listener.setdefault(listener, SampledRate(self._windows))
            limit = settings.listener_int(listener, "max.connection.creation.rate")
            self._count(listener, limit, rate, now_ms)

    def _count(self, listener: str, limit: int, rate: SampledRate, now_ms: int) -> None:
        if limit == INT32_MAX:
            return
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(max(limit, _LEAST_RATE), now_ms)
        self._accept_at_ms[listener] = now_ms + min(throttle_ms, self._windows.size_ms)

    def _throttle_ms(self, address: str, now_ms: int) -> int:
        """The time for which an address must not connect. A refused connection does not raise the
        measured rate."""
        applied = self._rates.find(ANY, address) if self._rates else None
        if applied is None:
            return 0
        rate = self._rates.usage(applied, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(applied.limit, now_ms), self._windows.size_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def _most_of(self, address: str) -> int:
        settings = self._settings()
        text = settings.max_connections_per_ip_overrides
        if text != self._overrides[0]:
            self._overrides = text, parse_counts(text)
        return self._overrides[1].get(address, settings.max_connections_per_ip)


def _address_of(host: str) -> str:
    try:
        return plain_address(host.partition("%")[0])
    except ValueError:
        # The text is a host name, as in a simulated network.
        return host
