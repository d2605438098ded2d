"""The settings of listeners: where to listen, what clients are told, how connections are protected.

Some of them may be given for one listener alone, behind `listener.name.` and its name in lower case
(`PER_LISTENER`), as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from odradek_broker.config.types import (
    INT32_MAX,
    Kind,
    Setting,
    any_of,
    at_least,
    setting,
    settings_of,
)

PREFIX = "listener.name."


@dataclass(frozen=True, kw_only=True)
class ListenerSettings:
    """Every setting of listeners, parsed and typed."""

    listeners: tuple[str, ...] = setting(
        Kind.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where to listen: NAME://HOST:PORT, several with commas. An empty host means all addresses, "
        "port 0 a free one. Only this machine is served by default, because anybody who reaches a "
        "listener may do everything (insecure.listeners).",
    )
    advertised_listeners: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        "The addresses that clients are told to connect to, by the listener that they asked: "
        "NAME://HOST:PORT. Without one it is the address that is listened on, or the machine's name "
        "where that is all addresses.",
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        Kind.LIST,
        (
            "SASL_SSL:SASL_SSL",
            "PLAINTEXT:PLAINTEXT",
            "SSL:SSL",
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
        ),
        "Which protocol each name of a listener stands for: NAME:PROTOCOL, several with commas. If it "
        "is not set, the names of controller.listener.names are PLAINTEXT.",
    )
    inter_broker_listener_name: str = setting(
        Kind.STRING,
        "",
        "Checked to be the name of an advertised listener, and nothing else: there are no other "
        "brokers to talk to.",
        effective=False,
    )
    security_inter_broker_protocol: str = setting(
        Kind.STRING,
        "",
        "Accepted in the place of inter.broker.listener.name: there are no other brokers.",
        effective=False,
    )
    controller_listener_names: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        "Listeners with these names are left out: this broker is its own controller.",
    )
    process_roles: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        "Accepted for compatibility: this program is broker and controller.",
        any_of("broker", "controller", may_be_empty=True),
        effective=False,
    )
    insecure_listeners: bool = setting(
        Kind.BOOLEAN,
        False,
        "Listen on addresses that other machines reach, though nobody who connects has to say who he "
        "is. `odradek serve --insecure` sets it.",
        ours=True,
    )
    max_connections: int = setting(
        Kind.INT,
        INT32_MAX,
        "Most connections at a time, over all listeners; more wait to be accepted. When it is "
        "lowered, those that were silent for longest are closed. May be set for one listener.",
        at_least(1),
        dynamic=True,
    )
    max_connection_creation_rate: int = setting(
        Kind.INT,
        INT32_MAX,
        "Most new connections per second, over all listeners and over the windows of quotas; more "
        "wait to be accepted. May be set for one listener.",
        at_least(0),
        dynamic=True,
    )


_ROWS = settings_of(ListenerSettings)

#: What may be given for one listener alone, by key.
PER_LISTENER: dict[str, Setting] = {
    name: _ROWS[name] for name in ("max.connections", "max.connection.creation.rate")
}


def listener_key(listener: str, name: str) -> str:
    """The key of a setting for one listener alone."""
    return f"{PREFIX}{listener.lower()}.{name}"


@lru_cache(maxsize=1024)
def listener_setting(key: str) -> Setting | None:
    """The row of a key that is for one listener alone; None if it is none."""
    if not key.startswith(PREFIX) or key != key.lower():
        return None
    for name, row in PER_LISTENER.items():
        if key.endswith("." + name) and len(key) > len(PREFIX) + len(name) + 1:
            return replace(row, name=key, synonyms=())
    return None


def listener_of(key: str) -> str:
    """The listener, in lower case, of a key that is for one alone; empty for any other key."""
    for name in PER_LISTENER:
        if key.startswith(PREFIX) and key.endswith("." + name):
            return key[len(PREFIX) : -len(name) - 1]
    return ""
