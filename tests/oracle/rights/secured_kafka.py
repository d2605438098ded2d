"""An Apache Kafka with ACLs, where users authenticate with PLAIN; another listener has no
authentication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from tests.oracle.rights.turns import SUPER_USER, Streams, log_in, open_streams, users

from kafka_cluster import KafkaCluster, free_ports

PASSWORD = "pass"
#: The number of users for each play, and therefore the maximum number of its turns.
_USERS = 1_500
#: Each play has its own users, whose names begin with its salt.
SALTS = ("a", "b")


#: Settings of both brokers.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{SUPER_USER}",
}


def jaas_line(users: Iterable[str]) -> str:
    """The setting with the users that may authenticate: the super user and `users`."""
    names = [SUPER_USER, *users]
    return (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="{SUPER_USER}" password="{PASSWORD}" '
        + " ".join(f'user_{name}="{PASSWORD}"' for name in names)
        + ";"
    )


class SecuredKafka:
    """An Apache Kafka with ACLs, to be used as `with SecuredKafka(folder) as kafka:`."""

    def __init__(self, folder: Path) -> None:
        self._sasl, self._plain, controller = free_ports(3)
        self._cluster = KafkaCluster(folder, settings=self._settings(controller))

    def _settings(self, controller: int) -> Mapping[str, str]:
        jaas = jaas_line(name for salt in SALTS for name in users(_USERS, salt))
        clients = f"CLIENTS://127.0.0.1:{self._sasl},PLAINTEXT://127.0.0.1:{self._plain}"
        return {
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": clients,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "CLIENTS",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.clients.plain.sasl.jaas.config": jaas,
            "listener.name.controller.plain.sasl.jaas.config": jaas,
            **AUTHORIZER,
        }

    async def connect(self, user: str | None) -> Streams:
        if user is None:
            return await open_streams(self._plain)
        return await log_in(await open_streams(self._sasl), user, PASSWORD)

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self._cluster.stop()
