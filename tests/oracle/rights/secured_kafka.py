"""An Apache Kafka with ACLs: users log in with SASL/PLAIN, and nobody in particular comes by a listener without."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.oracle.rights.turns import SUPER_USER, Streams, log_in, open_streams

from kafka_cluster import SHIPPED_SETTINGS, KafkaCluster, free_ports

PASSWORD = "secret"
#: Turns in one play, at most.
_USERS = 1_500
#: The turns of each play have users of their own.
SALTS = ("a", "b")


class SecuredKafka:
    """`with SecuredKafka(folder) as kafka:`."""

    def __init__(self, folder: Path) -> None:
        self._sasl, self._plain, controller = free_ports(3)
        self._cluster = KafkaCluster(folder, settings=self._settings(controller))

    def _settings(self, controller: int) -> Mapping[str, str]:
        names = [SUPER_USER, *(f"{salt}{number}" for salt in SALTS for number in range(_USERS))]
        jaas = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' username="{SUPER_USER}" password="{PASSWORD}" '
            + " ".join(f'user_{name}="{PASSWORD}"' for name in names)
            + ";"
        )
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


#: Of both brokers.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{SUPER_USER}",
}
assert "listeners" not in SHIPPED_SETTINGS
