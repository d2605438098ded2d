"""The settings of listeners: addresses, advertised addresses, protection of connections.

The settings in `PER_LISTENER` may be given for one listener as `listener.name.NAME.KEY`, with NAME
in lower case, as in Kafka.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from odradek_broker.config.principal_mapping import parse_rules
from odradek_broker.config.sasl_settings import (
    MECHANISMS,
    PER_MECHANISM,
    BrokerSaslSettings,
    is_of_listeners,
)
from odradek_broker.config.types import ConfigType, Setting, setting
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import INT32_MAX, Check, any_of, at_least, between, one_of
from odradek_protocol.tls.settings import PROTOCOLS, STORE_TYPES

PREFIX = "listener.name."
_OF_ONE = " May be set for one listener."


def _secret(doc: str) -> Any:
    """A setting whose value is never shown."""
    return setting(ConfigType.PASSWORD, "", doc, dynamic=True, secret=True)


def _store_type(what: str) -> Any:
    return setting(
        ConfigType.STRING,
        "JKS",
        f"The type of the store with the {what}: PEM, PKCS12 or JKS, which is read as PKCS12."
        + _OF_ONE,
        Check(f"one of {', '.join(STORE_TYPES)}", lambda text: text.upper() in STORE_TYPES),
        dynamic=True,
    )


def _are_rules(text: str) -> bool:
    parse_rules(text)
    return True


@dataclass(frozen=True, kw_only=True)
class ListenerSettings:
    """Every setting of listeners, parsed and typed."""

    listeners: tuple[str, ...] = setting(
        ConfigType.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "The addresses to listen on: NAME://HOST:PORT, separated by commas. An empty host "
        "means all addresses, port 0 a free port. By default only clients on this machine can "
        "connect, because a client that can connect may do everything (insecure.listeners).",
    )
    advertised_listeners: tuple[str, ...] = setting(
        ConfigType.LIST,
        (),
        "The addresses that the broker gives to clients, one for each listener: "
        "NAME://HOST:PORT. Without one, the broker gives the address on which it listens, or "
        "the name of the machine if it listens on all addresses.",
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        ConfigType.LIST,
        (
            "SASL_SSL:SASL_SSL",
            "PLAINTEXT:PLAINTEXT",
            "SSL:SSL",
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
        ),
        "The security protocol of each listener name: NAME:PROTOCOL, separated by commas. If "
        "it is not set, the protocol of the names in controller.listener.names is PLAINTEXT.",
    )
    inter_broker_listener_name: str = setting(
        ConfigType.STRING,
        "",
        "The name of an advertised listener. It is checked, but has no effect, because there "
        "are no other brokers.",
        effective=False,
    )
    security_inter_broker_protocol: str = setting(
        ConfigType.STRING,
        "",
        "Accepted instead of inter.broker.listener.name; it has no effect, because there are "
        "no other brokers.",
        effective=False,
    )
    controller_listener_names: tuple[str, ...] = setting(
        ConfigType.LIST,
        (),
        "Listeners with these names are not opened, because this broker is its own controller.",
    )
    process_roles: tuple[str, ...] = setting(
        ConfigType.LIST,
        (),
        "Accepted for compatibility: this program is broker and controller.",
        any_of("broker", "controller", may_be_empty=True),
        effective=False,
    )
    insecure_listeners: bool = setting(
        ConfigType.BOOLEAN,
        False,
        "Allow listeners without authentication on addresses that other machines can reach. "
        "`odradek serve --insecure` sets it.",
        ours=True,
    )
    max_connections: int = setting(
        ConfigType.INT,
        INT32_MAX,
        "Maximum number of connections of all listeners; further ones wait to be accepted. If "
        "the limit is lowered, the connections that have been idle longest are closed. May be "
        "set for one listener.",
        at_least(1),
        dynamic=True,
    )
    max_connection_creation_rate: int = setting(
        ConfigType.INT,
        INT32_MAX,
        "Maximum number of new connections per second of all listeners, measured over the time "
        "windows of quotas; further ones wait to be accepted. May be set for one listener.",
        at_least(0),
        dynamic=True,
    )

    # --- TLS ---

    ssl_keystore_type: str = _store_type("certificate")
    ssl_keystore_location: str = setting(
        ConfigType.STRING,
        "",
        "The file with the key and the certificates of TLS listeners. It is read again when it changes."
        + _OF_ONE,
        dynamic=True,
    )
    ssl_keystore_password: str = _secret("The password of ssl.keystore.location." + _OF_ONE)
    ssl_key_password: str = _secret("The password of an encrypted private key." + _OF_ONE)
    ssl_keystore_key: str = _secret("The private key as PEM text, instead of a file." + _OF_ONE)
    ssl_keystore_certificate_chain: str = _secret(
        "The certificate of ssl.keystore.key and the chain of its issuers, as PEM text." + _OF_ONE
    )
    ssl_truststore_type: str = _store_type("authorities")
    ssl_truststore_location: str = setting(
        ConfigType.STRING,
        "",
        "The file with the certificate authorities that may issue client certificates; empty: "
        "those that the system trusts. It is read again when it changes." + _OF_ONE,
        dynamic=True,
    )
    ssl_truststore_password: str = _secret("The password of ssl.truststore.location." + _OF_ONE)
    ssl_truststore_certificates: str = _secret(
        "The certificate authorities as PEM text, instead of a file." + _OF_ONE
    )
    ssl_client_auth: str = setting(
        ConfigType.STRING,
        "none",
        "Whether clients have to present a certificate, whose name is then the principal of "
        "the client." + _OF_ONE,
        one_of("required", "requested", "none"),
    )
    ssl_principal_mapping_rules: str = setting(
        ConfigType.STRING,
        "DEFAULT",
        "Rules that turn the name in a client's certificate into the name of its user: "
        "DEFAULT, or RULE:pattern/replacement/ followed by L or U for lower or upper case, "
        "separated by commas." + _OF_ONE,
        Check("DEFAULT or RULE:pattern/replacement/[LU], separated by commas", _are_rules),
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        ConfigType.LIST,
        PROTOCOLS,
        "The versions of TLS that clients may use." + _OF_ONE,
        any_of(*PROTOCOLS),
    )
    ssl_protocol: str = setting(
        ConfigType.STRING,
        "TLSv1.3",
        "Accepted for compatibility: ssl.enabled.protocols has the versions of TLS.",
        one_of("TLS", *PROTOCOLS),
        effective=False,
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        ConfigType.LIST,
        (),
        "The cipher suites that may be used, by their names in the standards or in OpenSSL; "
        "empty: OpenSSL's default." + _OF_ONE,
    )
    ssl_handshake_timeout_ms: int = setting(
        ConfigType.INT,
        10_000,
        "Maximum time of a TLS handshake, after which its connection is closed.",
        between(1, 600_000),
        ours=True,
    )
    max_ssl_handshakes: int = setting(
        ConfigType.INT,
        1_000,
        "Maximum number of unfinished TLS handshakes of one listener; for a further one, the "
        "oldest is closed.",
        at_least(1),
        ours=True,
    )
    max_ssl_handshakes_per_ip: int = setting(
        ConfigType.INT,
        100,
        "Maximum number of unfinished TLS handshakes of one IP address at one listener; for a "
        "further one, its oldest is closed.",
        at_least(1),
        ours=True,
    )


_ROWS = {
    name: row
    for each in (ListenerSettings, BrokerSaslSettings)
    for name, row in Setting.declared_by(each, ".").items()
}

#: The settings that may be given for a single listener, by key.
PER_LISTENER: dict[str, Setting] = {
    name: row
    for name, row in _ROWS.items()
    if name in ("max.connections", "max.connection.creation.rate")
    or (name.startswith("ssl.") and row.effective and not row.ours)
    or is_of_listeners(name, effective=row.effective)
}
_MECHANISMS = frozenset(name.lower() for name in MECHANISMS)


def listener_key(listener: str, name: str, mechanism: str = "") -> str:
    """The key of a setting for a single listener, or for a single mechanism of the listener."""
    own = f"{mechanism.lower()}.{name}" if mechanism else name
    return f"{PREFIX}{listener.lower()}.{own}"


def _parts(key: str) -> tuple[str, str]:
    """(listener, setting) of a key that is for one listener or one of its mechanisms; two empty
    texts for any other key."""
    if not key.startswith(PREFIX) or key != key.lower():
        return "", ""
    # A listener's name has no dots.
    listener, _, name = key.removeprefix(PREFIX).partition(".")
    mechanism, _, of_mechanism = name.partition(".")
    if mechanism in _MECHANISMS and of_mechanism in PER_MECHANISM:
        return listener, of_mechanism
    return (listener, name) if listener and name in PER_LISTENER else ("", "")


@lru_cache(maxsize=1024)
def listener_setting(key: str) -> Setting | None:
    """The row of a key for one listener or one of its mechanisms; None for any other key."""
    _, name = _parts(key)
    return replace(PER_LISTENER[name], name=key, synonyms=()) if name else None


def listener_of(key: str) -> str:
    """The listener, in lower case, of a key for one listener; empty for any other key."""
    return _parts(key)[0]
