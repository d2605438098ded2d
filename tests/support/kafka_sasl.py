"""Apache Kafka with a SASL listener."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_cluster import KafkaCluster

_MODULES = "org.apache.kafka.common.security"
#: The lifetime of sessions that authenticate by PLAIN.
SESSION_MS = 2_000
#: The password of alice, who uses PLAIN; tests store users of SCRAM themselves.
PASSWORD = "alice=secret,word"
_SCRAM = f"{_MODULES}.scram.ScramLoginModule required;"
#: Tokens are not signed: Kafka accepts those without a configured validator.
_LISTENER = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{_MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
    ),
    "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": str(SESSION_MS),
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": _SCRAM,
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": _SCRAM,
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
        f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="broker";'
    ),
}


@contextmanager
def kafka_of_sasl(folder: Path) -> Iterator[tuple[str, str]]:
    """The addresses of the listeners: PLAINTEXT, SASL_PLAINTEXT."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cluster = KafkaCluster(folder, settings=_LISTENER)
    cluster.nodes[0].add_listener("SASL_PLAINTEXT", port)
    with cluster:
        yield cluster.bootstrap, f"127.0.0.1:{port}"
