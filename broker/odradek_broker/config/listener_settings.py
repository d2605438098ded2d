"""The settings of listeners: addresses, advertised addresses, protection of connections.

Some of them (`PER_LISTENER`) may be given for one listener as `listener.name.NAME.KEY`, with its
name in lower case, as in Kafka.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from odradek_broker.config.principal_mapping import parse_rules
from odradek_broker.config.sasl_settings import (
    MECHANISMS,
    PER_MECHANISM,
    SaslSettings,
    is_of_listeners,
)
from odradek_broker.config.types import Kind, Setting, setting
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import INT32_MAX, Check, any_of, at_least, between, one_of
from odradek_protocol.tls.settings import PROTOCOLS, STORE_TYPES

PREFIX = "listener.name."
_OF_ONE = " May be set for one listener."


def _secret(doc: str) -> Any:
    """A setting whose value is never shown."""
    return setting(Kind.PASSWORD, "", doc, dynamic=True, secret=True)


def _store_type(what: str) -> Any:
    return setting(
        Kind.STRING,
        "JKS",
        f"The kind of store with the {what}: PEM, PKCS12 or JKS, which is taken for PKCS12."
        + _OF_ONE,
        Check(f"one of {', '.join(STORE_TYPES)}", lambda text: text.upper() in STORE_TYPES),
        dynamic=True,
    )


def _are_rules(text: str) -> bool:
    try:
        parse_rules(text)
    except ValueError:
        return False
    return True


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

    # --- TLS ---

    ssl_keystore_type: str = _store_type("certificate")
    ssl_keystore_location: str = setting(
        Kind.STRING,
        "",
        "The file with the key and the certificates of TLS listeners. It is read again when it changes."
        + _OF_ONE,
        dynamic=True,
    )
    ssl_keystore_password: str = _secret("The password of that file." + _OF_ONE)
    ssl_key_password: str = _secret("The password of an encrypted private key." + _OF_ONE)
    ssl_keystore_key: str = _secret(
        "The private key, as PEM text in the place of a file." + _OF_ONE
    )
    ssl_keystore_certificate_chain: str = _secret(
        "The certificate of that key, and those that lead to its authority, as PEM text." + _OF_ONE
    )
    ssl_truststore_type: str = _store_type("authorities")
    ssl_truststore_location: str = setting(
        Kind.STRING,
        "",
        "The file with the authorities whose client certificates are taken; without one those that the "
        "system trusts. It is read again when it changes." + _OF_ONE,
        dynamic=True,
    )
    ssl_truststore_password: str = _secret("The password of that file." + _OF_ONE)
    ssl_truststore_certificates: str = _secret(
        "The authorities, as PEM text in the place of a file." + _OF_ONE
    )
    ssl_client_auth: str = setting(
        Kind.STRING,
        "none",
        "Whether clients show a certificate. Who has to is known by it." + _OF_ONE,
        one_of("required", "requested", "none"),
    )
    ssl_principal_mapping_rules: str = setting(
        Kind.STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes the name of its user: DEFAULT, or "
        "RULE:pattern/replacement/ with L or U behind it for lower or upper case, several with commas."
        + _OF_ONE,
        Check("DEFAULT or RULE:pattern/replacement/[LU], separated by commas", _are_rules),
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        Kind.LIST, PROTOCOLS, "The versions of TLS that are spoken." + _OF_ONE, any_of(*PROTOCOLS)
    )
    ssl_protocol: str = setting(
        Kind.STRING,
        "TLSv1.3",
        "Accepted for compatibility: ssl.enabled.protocols says which versions are spoken.",
        one_of("TLS", *PROTOCOLS),
        effective=False,
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        "The cipher suites that are used, by the names of the standards or of OpenSSL; empty: those of "
        "OpenSSL." + _OF_ONE,
    )
    ssl_handshake_timeout_ms: int = setting(
        Kind.INT,
        10_000,
        "How long a TLS handshake may take before its connection is closed.",
        between(1, 600_000),
        ours=True,
    )
    max_ssl_handshakes: int = setting(
        Kind.INT,
        1_000,
        "Most unfinished TLS handshakes of one listener; for one more, the oldest is closed.",
        at_least(1),
        ours=True,
    )
    max_ssl_handshakes_per_ip: int = setting(
        Kind.INT,
        100,
        "Most unfinished TLS handshakes of one IP address; more are closed.",
        at_least(1),
        ours=True,
    )


_ROWS = {
    name: row
    for each in (ListenerSettings, SaslSettings)
    for name, row in Setting.declared_by(each, ".").items()
}

#: The settings that may be given for one listener alone, by key.
PER_LISTENER: dict[str, Setting] = {
    name: row
    for name, row in _ROWS.items()
    if name in ("max.connections", "max.connection.creation.rate")
    or (name.startswith("ssl.") and row.effective and not row.ours)
    or is_of_listeners(name, effective=row.effective)
}
_MECHANISMS = frozenset(name.lower() for name in MECHANISMS)


def listener_key(listener: str, name: str, mechanism: str = "") -> str:
    """The key of a setting for one listener alone, or for one mechanism of it."""
    own = f"{mechanism.lower()}.{name}" if mechanism else name
    return f"{PREFIX}{listener.lower()}.{own}"


def _parts(key: str) -> tuple[str, str]:
    """(listener, setting) of a key that is for one listener or one of its mechanisms; empty for any
    other."""
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
