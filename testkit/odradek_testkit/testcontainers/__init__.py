"""Containers in the shape of the package `testcontainers`, without Docker: the import is the only
change.

    from odradek.testcontainers.kafka import KafkaContainer

    with KafkaContainer() as kafka:
        Producer(bootstrap_servers=kafka.get_bootstrap_server())
"""

from odradek_testkit.testcontainers.container import (
    ContainerIgnores,
    ContainerRefused,
    KafkaContainer,
    RedpandaContainer,
    kafka_config,
)

__all__ = [
    "ContainerIgnores",
    "ContainerRefused",
    "KafkaContainer",
    "RedpandaContainer",
    "kafka_config",
]
