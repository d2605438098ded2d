"""The settings of a virtual cluster. The settings of the test override those of the host, and the
host's settings override the defaults for tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from odradek_broker.config.broker import BrokerConfig, ConfigSource

#: Defaults for tests. Retention is off, so that records with old timestamps stay. Nothing is
#: flushed to disk, because writes survive SIGKILL, and tests have no power cuts. Internal topics
#: have one partition, because the first group or transaction of each test waits for their creation.
#: Members of groups get new assignments soon.
DEFAULTS = {
    "log.retention.ms": "-1",
    "log.durability": "page-cache",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "200",
    "group.streams.heartbeat.interval.ms": "200",
    "group.streams.assignment.interval.ms": "0",
}
#: Settings that the host sets for each cluster; a request for a cluster cannot set them, and
#: clusters do not inherit them.
_MADE_HERE = re.compile(r"(log\.dirs?|metadata\.log\.dir|advertised\.listeners|http\..*)")
_ADDRESS = re.compile(r"://[^,]*")


class BadSettings(ValueError):
    """The error for settings that a cluster cannot have; the text names the settings."""


def inherited(config: BrokerConfig) -> dict[str, str]:
    """The settings of a broker under test that its virtual clusters inherit."""
    given = {
        key: text
        for key, text in dict(config.layers).get(ConfigSource.STATIC_BROKER, {}).items()
        if not _MADE_HERE.fullmatch(key)
    }
    if "listeners" in given:
        given["listeners"] = _ADDRESS.sub("://127.0.0.1:0", given["listeners"])
    return given


def read_settings(body: object) -> dict[str, str]:
    """The settings in the body of a request for a cluster: `{"settings": {NAME: VALUE}}`, or no
    body. Raises BadSettings."""
    if body is None:
        return {}
    if not isinstance(body, dict) or not body.keys() <= {"settings"}:
        raise BadSettings('the order is {"settings": {NAME: VALUE, ...}}, or has no body')
    settings = body.get("settings", {})
    if not isinstance(settings, dict):
        raise BadSettings("settings is an object of names and values")
    texts = {}
    for name, value in settings.items():
        if _MADE_HERE.fullmatch(name):
            raise BadSettings(f"{name} cannot be chosen: each cluster has its own")
        if not isinstance(value, str | int | float):
            raise BadSettings(f"the value of {name} is a text, a number or a boolean")
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def check_listeners(config: BrokerConfig) -> None:
    """Refuse listeners that other machines can reach, whatever insecure.listeners says: no order
    over HTTP may open this machine to them. Raises BadSettings."""
    for each in config.broker_listeners:
        if not each.this_machine_only:
            raise BadSettings(
                f"listeners: a cluster listens on this machine only, as"
                f" {each.name}://127.0.0.1:0 does, and not on {each.address}"
            )


def with_bound_ports(listeners: str, addresses: Mapping[str, tuple[str, int]]) -> str:
    """`listeners` with the ports that a running broker has bound, so that the broker can later be
    started again with these ports.
    """
    parts = []
    for part in filter(str.strip, listeners.split(",")):
        # Kafka ignores the case of listener names.
        name = part.partition("://")[0].strip().upper()
        # A controller's address is not bound.
        parts.append(f"{name}://{shown(*addresses[name])}" if name in addresses else part)
    return ",".join(parts)


def shown(host: str, port: int) -> str:
    """The address as HOST:PORT."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
