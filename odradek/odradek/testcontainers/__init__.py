"""Public names of `odradek_testkit.testcontainers`."""

from odradek_testkit.testcontainers import (
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
