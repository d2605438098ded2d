"""The names of `testcontainers.community.kafka`."""

from odradek.testcontainers.container import KafkaContainer, RedpandaContainer, kafka_config

__all__ = ["KafkaContainer", "RedpandaContainer", "kafka_config"]
