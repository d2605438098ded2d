"""Apache Kafka with a SASL listener."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certificates import Authority
from kafka_cluster import KafkaCluster

_MODULES = "org.apache.kafka.common.security"
#: The lifetime in ms of sessions that authenticate with PLAIN.
SESSION_MS = 2_000
#: The password of the user alice for PLAIN; tests store users for SCRAM themselves.
PASSWORD = "alice=secret,word"
_SCRAM = f"{_MODULES}.scram.ScramLoginModule required;"
_PASSWORD_OF_STORE = "changeit"


def _listener(name: str) -> dict[str, str]:
    """The settings of a SASL listener, and the key of delegation tokens.

    Tokens of OAUTHBEARER are not signed: Kafka accepts such tokens if no validator is configured.
    """
    own = f"listener.name.{name.lower()}"
    return {
        "delegation.token.secret.key": "of the tests",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{own}.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
        ),
        f"{own}.plain.connections.max.reauth.ms": str(SESSION_MS),
        f"{own}.scram-sha-256.sasl.jaas.config": _SCRAM,
        f"{own}.scram-sha-512.sasl.jaas.config": _SCRAM,
        f"{own}.oauthbearer.sasl.jaas.config": (
            f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"
            ' unsecuredLoginStringClaim_sub="broker";'
        ),
    }


def login_of_alice(ca: Path | None = None) -> dict[str, str]:
    """The settings of a client that logs in as alice with PLAIN. `ca`: a PEM file to trust; None
    means that the client does not use TLS."""
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    if ca is None:
        return login
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}
    return login | trust | {"security.protocol": "SASL_SSL"}


@contextmanager
def kafka_of_sasl(folder: Path, ca: Authority | None = None) -> Iterator[tuple[str, str]]:
    """Run Kafka with a SASL listener. Yields the addresses of the PLAINTEXT listener and the SASL
    listener.

    `ca`: the authority for the listener's certificate; without it the listener is SASL_PLAINTEXT.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    name = "SASL_PLAINTEXT" if ca is None else "SASL_SSL"
    settings = _listener(name)
    if ca is not None:
        folder.mkdir(exist_ok=True)
        store = folder / "broker.p12"
        store.write_bytes(ca.issue().pkcs12(_PASSWORD_OF_STORE))
        settings |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": _PASSWORD_OF_STORE,
        }
    cluster = KafkaCluster(folder, settings=settings)
    cluster.nodes[0].add_listener(name, port)
    with cluster:
        yield cluster.bootstrap, f"127.0.0.1:{port}"
