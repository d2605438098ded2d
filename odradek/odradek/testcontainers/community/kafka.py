"""The names of `testcontainers.community.kafka`."""

from odradek_testkit.testcontainers import KafkaContainer, RedpandaContainer, kafka_config

__all__ = ["KafkaContainer", "RedpandaContainer", "kafka_config"]
