"""Subscriptions to client metrics: the metrics that clients are to push, and the push intervals
(KIP-714).

A subscription is a configured resource of the cluster metadata. A client gets the union of all
subscriptions that match it, with the shortest of their intervals.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_broker.config.client_metrics_settings import (
    DEFAULT_INTERVAL_MS,
    METRICS_SETTINGS,
    read_match,
)
from odradek_broker.patterns import Pattern
from odradek_broker.slices import in_pieces, in_sorted_order, pause
from odradek_protocol.checksums import crc32c
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple

#: The prefix that stands for all metrics.
ALL_METRICS = "*"
#: The maximum length of an attribute that is matched. A longer attribute matches no pattern. There
#: is a limit because clients choose their attributes, and the time of a match grows with the
#: length.
MATCHED_CHARACTERS_MAX = 255


class ClientAttributes(NamedTuple):
    """The attributes of a client that subscriptions match. The names are Kafka's. A missing client
    id is the empty text, as in Kafka."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


@dataclass(frozen=True)
class MetricsSubscription:
    """A subscription to client metrics. `match`: patterns by the name of an attribute."""

    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, Pattern]

    @classmethod
    def read(cls, given: Mapping[str, str]) -> MetricsSubscription:
        """The subscription of a resource with these settings. The caller has checked the settings.
        If a pattern cannot be compiled nevertheless, because the library is gone, the subscription
        asks for nothing.
        """
        values = {
            key: row.read(given[key]) if key in given else row.default
            for key, row in METRICS_SETTINGS.items()
        }
        metrics, interval_ms, match = values["metrics"], values["interval.ms"], values["match"]
        assert isinstance(metrics, tuple) and isinstance(match, tuple)
        assert isinstance(interval_ms, int)
        try:
            return cls(frozenset(metrics), interval_ms, read_match(match))
        except ValueError:
            return cls(frozenset(), DEFAULT_INTERVAL_MS, {})

    async def matches(self, client: ClientAttributes) -> bool:
        """True if each pattern matches its whole attribute."""
        for name, pattern in self.match.items():
            if not _matches(getattr(client, name), pattern):
                return False
            await pause()
        return True


def _matches(value: str, pattern: Pattern) -> bool:
    return len(value) <= MATCHED_CHARACTERS_MAX and pattern.matches(value)


class WantedMetrics(NamedTuple):
    """The metrics that a client should push, as sorted prefixes of their names, and the push
    interval."""

    metrics: tuple[str, ...]
    interval_ms: int

    def subscription_id(self, client_instance_id: bytes) -> int:
        """The subscription id of one client, an int32 that changes with the metrics and the
        interval: a checksum of both, combined with the client's id as Kafka does it."""
        text = f"[{', '.join(self.metrics)}]{self.interval_ms}"
        mixed = crc32c(text.encode())
        for start in range(0, len(client_instance_id), 4):
            mixed ^= int.from_bytes(client_instance_id[start : start + 4])
        return mixed - (1 << 32) if mixed >> 31 else mixed


class MetricsSubscriptions:
    """All subscriptions. `version` rises with each change."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, MetricsSubscription] = {}
        self.version = 0

    def __bool__(self) -> bool:
        return bool(self._subscriptions)

    def update(self, name: str, given: Mapping[str, str]) -> None:
        """Give a subscription these settings; remove the subscription if there are none."""
        if given:
            self._subscriptions[name] = MetricsSubscription.read(given)
        elif self._subscriptions.pop(name, None) is None:
            return
        self.version += 1

    async def of(self, client: ClientAttributes) -> WantedMetrics:
        """The metrics that a client with these attributes should push."""
        metrics: set[str] = set()
        interval_ms = DEFAULT_INTERVAL_MS
        async for some in in_pieces(self._subscriptions.values()):
            for subscription in some:
                # No calls for each of what may be thousands of subscriptions to all clients.
                if not subscription.match or await subscription.matches(client):
                    metrics |= subscription.metrics
                    interval_ms = min(interval_ms, subscription.interval_ms)
        if ALL_METRICS in metrics:
            return WantedMetrics((ALL_METRICS,), interval_ms)
        return WantedMetrics(tuple(await in_sorted_order(metrics)), interval_ms)
