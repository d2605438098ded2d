"""The listeners of a broker, from its settings: names, addresses, protocols, advertised addresses.

Combinations that Apache Kafka refuses are refused (N-17). The module opens no sockets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address

from odradek_broker.config.listener_settings import ListenerSettings
from odradek_broker.config.types import BrokerConfigError, write_value
from odradek_protocol.lazy_dataclass import dataclass

_PORT_MAX = 65_535
_MAP = "listener.security.protocol.map"
_ADVERTISED = "advertised.listeners"
_INTER_BROKER = "inter.broker.listener.name"
_INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"
_NAME = re.compile(r"[A-Za-z0-9_-]+")


class SecurityProtocol(StrEnum):
    """The protection of a listener's connections: encryption, authentication, both or none."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        """True if connections begin with a TLS handshake."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        """True if clients authenticate by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True)
class Listener:
    """An address of `listeners`. An empty host means every address of the machine."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def address(self) -> str:
        """HOST:PORT, with brackets around an IPv6 host."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def every_address(self) -> bool:
        """True if the listener accepts connections on all addresses of the machine."""
        return self.host in ("", "0.0.0.0", "::")

    @property
    def this_machine_only(self) -> bool:
        """True if only programs of this machine can reach the listener."""
        return is_this_machine(self.host)


def is_this_machine(host: str) -> bool:
    """True if only programs of this machine can reach an address."""
    if host == "localhost":
        return True
    address = _ip_address(host)
    return address is not None and address.is_loopback


def parse_address(key: str, text: str) -> tuple[str, int]:
    """(host, port) of "HOST:PORT" or "[IPv6]:PORT". Raises ConfigError, which names `key`, for
    another text."""
    host, colon, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    legal_port = port.isascii() and port.isdigit() and int(port) <= _PORT_MAX
    if not colon or not legal_port or (":" in host and not bracketed) or " " in host:
        raise BrokerConfigError(key, text, "HOST:PORT or [IPv6]:PORT, with a port up to 65535")
    return host, int(port)


def with_plaintext_address(listeners: str | None, address: str) -> str:
    """`listeners` as text, with "HOST:PORT" as the address of PLAINTEXT; PLAINTEXT alone if
    `listeners` is not set.

    Raises ConfigError for an invalid address, or if there is no listener PLAINTEXT.
    """
    parse_address("--listen", address)
    own = f"PLAINTEXT://{address}"
    if listeners is None:
        return own
    names = [text.partition("://")[0].strip().upper() for text in listeners.split(",")]
    if "PLAINTEXT" not in names:
        raise BrokerConfigError(
            "--listen",
            address,
            f"left out: it moves the listener PLAINTEXT, and listeners has {', '.join(names)}",
        )
    texts = zip(names, listeners.split(","), strict=True)
    return ",".join(own if name == "PLAINTEXT" else text for name, text in texts)


def broker_listeners(settings: ListenerSettings, *, map_is_given: bool) -> tuple[Listener, ...]:
    """The listeners to open, in the order of `listeners`, without the controller's listeners.

    `map_is_given`: true if listener.security.protocol.map is set explicitly. Raises ConfigError.
    """
    found = _parse("listeners", settings.listeners, _protocols(settings, map_is_given))
    _check_names_and_ports(settings, found)
    return _without_controllers(settings, found)


def advertised_addresses(
    settings: ListenerSettings, *, map_is_given: bool
) -> dict[str, tuple[str, int]]:
    """The advertised (host, port) by listener name. An empty host stands for the machine's name,
    and port 0 for the bound port (N-12). Raises ConfigError.

    A listener that advertised.listeners does not name is left out.
    """
    protocols = _protocols(settings, map_is_given)
    found = _parse(_ADVERTISED, settings.advertised_listeners, protocols)
    _check_unique_names(_ADVERTISED, settings.advertised_listeners, found)
    return {each.name: (each.host, each.port) for each in _without_controllers(settings, found)}


def check_listeners(settings: ListenerSettings, *, map_is_given: bool) -> None:
    """Check that listeners and advertised addresses are consistent. Raises ConfigError, which names
    the setting to change."""
    listeners = broker_listeners(settings, map_is_given=map_is_given)
    shown = write_value(settings.listeners)
    if not listeners:
        raise BrokerConfigError(
            "listeners", shown, "at least one address that is not of controller.listener.names"
        )
    if settings.process_roles and "broker" not in settings.process_roles:
        raise BrokerConfigError(
            "process.roles", write_value(settings.process_roles), "a list with broker"
        )
    _check_advertised(settings, listeners, map_is_given)


def check_reach(
    settings: ListenerSettings, listeners: Iterable[Listener], authenticated: frozenset[str]
) -> None:
    """Refuse listeners that serve other machines without authentication, unless a setting allows it
    (N-18).

    `authenticated`: the names of the listeners at which every client has to authenticate.
    """
    if settings.insecure_listeners:
        return
    for each in listeners:
        if not each.this_machine_only and each.name not in authenticated:
            raise BrokerConfigError(
                "listeners",
                write_value(settings.listeners),
                f"on this machine only, as {each.name}://127.0.0.1:{each.port} is: everybody who"
                f" reaches {each.name} may read and change everything, because nobody has to"
                " authenticate there (as at listeners of SASL_SSL and SASL_PLAINTEXT, and of SSL with"
                " ssl.client.auth=required). To allow that,"
                " use --insecure or insecure.listeners=true",
            )


def _check_advertised(
    settings: ListenerSettings, listeners: tuple[Listener, ...], map_is_given: bool
) -> None:
    advertised = advertised_addresses(settings, map_is_given=map_is_given)
    shown = write_value(settings.advertised_listeners)
    names = [listener.name for listener in listeners]
    unknown = [name for name in advertised if name not in names]
    if unknown:
        raise BrokerConfigError(
            _ADVERTISED,
            shown,
            f"of listeners that there are ({', '.join(names)}), not {unknown[0]}",
        )
    for name, (host, _) in advertised.items():
        if host in ("0.0.0.0", "::"):
            raise BrokerConfigError(
                _ADVERTISED, shown, f"addresses that clients can connect to, not {host} ({name})"
            )
    inner = settings.inter_broker_listener_name
    if not inner:
        return
    if settings.security_inter_broker_protocol:
        raise BrokerConfigError(
            _INTER_BROKER, inner, f"left out where {_INTER_BROKER_PROTOCOL} is set"
        )
    candidates = list(advertised) or names
    if inner.upper() not in candidates:
        raise BrokerConfigError(
            _INTER_BROKER, inner, f"one of the advertised listeners: {', '.join(candidates)}"
        )


def _without_controllers(
    settings: ListenerSettings, found: Iterable[Listener]
) -> tuple[Listener, ...]:
    left_out = {name.upper() for name in settings.controller_listener_names}
    return tuple(listener for listener in found if listener.name not in left_out)


def _protocols(settings: ListenerSettings, map_is_given: bool) -> dict[str, SecurityProtocol]:
    """The security protocol of each listener name; if a name is given twice, the last protocol, as
    in Kafka."""
    found = {}
    for entry in settings.listener_security_protocol_map:
        name, colon, protocol = (part.strip() for part in entry.partition(":"))
        if not colon or not name or protocol.upper() not in SecurityProtocol.__members__:
            raise BrokerConfigError(
                _MAP,
                write_value(settings.listener_security_protocol_map),
                f"NAME:PROTOCOL with one of {', '.join(SecurityProtocol)}, not {entry!r}",
            )
        found[name.upper()] = SecurityProtocol(protocol.upper())
    names = [name.upper() for name in settings.controller_listener_names]
    used = names + [text.partition("://")[0].strip().upper() for text in settings.listeners]
    if not map_is_given and not any(_is_protected(name) for name in used):
        found |= dict.fromkeys(names, SecurityProtocol.PLAINTEXT)
    return found


def _is_protected(name: str) -> bool:
    """True if a listener's name is that of a security protocol other than PLAINTEXT. Kafka then
    requires that the protocol of every other name is given."""
    return name == "SSL" or name.startswith("SASL_")


def _parse(
    key: str, texts: Iterable[str], protocols: dict[str, SecurityProtocol]
) -> list[Listener]:
    found = []
    for text in texts:
        name, separator, address = text.partition("://")
        name = name.strip().upper()
        if not separator or not _NAME.fullmatch(name):
            raise BrokerConfigError(
                key, text, "NAME://HOST:PORT, for example PLAINTEXT://127.0.0.1:9092"
            )
        host, port = parse_address(key, address)
        if name not in protocols:
            raise BrokerConfigError(
                key, text, f"of a name that {_MAP} has ({', '.join(protocols) or 'none'})"
            )
        found.append(Listener(name, host, port, protocols[name]))
    return found


def _check_unique_names(key: str, texts: tuple[str, ...], found: list[Listener]) -> None:
    names = [listener.name for listener in found]
    for name in names:
        if names.count(name) > 1:
            raise BrokerConfigError(
                key, write_value(texts), f"a list in which each name is there once; {name} is not"
            )


def _check_names_and_ports(settings: ListenerSettings, found: list[Listener]) -> None:
    """Check that no name and no port is used twice. An IPv4 and an IPv6 address may share a
    port."""
    _check_unique_names("listeners", settings.listeners, found)
    by_port: dict[int, list[Listener]] = {}
    for listener in found:
        if listener.port:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        kinds = [type(_ip_address(listener.host)) for listener in sharing]
        if len(sharing) > 1 and sorted(kinds, key=str) != [IPv4Address, IPv6Address]:
            names = ", ".join(listener.name for listener in sharing)
            raise BrokerConfigError(
                "listeners",
                write_value(settings.listeners),
                f"a list in which each listener has a port of its own; {names} share {port}",
            )


def _ip_address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
