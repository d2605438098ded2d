"""Odradek: a Kafka broker, its asyncio client and a Spark connector.

    async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        await producer.send_and_wait("flights", b"N14228")

Names are imported when they are first used, so `import odradek` is cheap.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek import errors as errors
    from odradek import sync as sync
    from odradek import testing as testing
    from odradek_client.admin import Admin as Admin
    from odradek_client.admin import ConfigResource as ConfigResource
    from odradek_client.admin import NewTopic as NewTopic
    from odradek_client.config.keywords import AdminSettings as AdminSettings
    from odradek_client.config.keywords import ConsumerSettings as ConsumerSettings
    from odradek_client.config.keywords import ProducerSettings as ProducerSettings
    from odradek_client.config.keywords import ShareConsumerSettings as ShareConsumerSettings
    from odradek_client.consumer.assignors import Assignor as Assignor
    from odradek_client.consumer.assignors import GroupMember as GroupMember
    from odradek_client.consumer.consumer import Consumer as Consumer
    from odradek_client.consumer.rebalance_listener import RebalanceListener as RebalanceListener
    from odradek_client.errors import ConfigError as ConfigError
    from odradek_client.errors import OdradekError as OdradekError
    from odradek_client.producer.arrow import ArrowDelivery as ArrowDelivery
    from odradek_client.producer.arrow import ArrowMetadata as ArrowMetadata
    from odradek_client.producer.arrow import RowsOutcome as RowsOutcome
    from odradek_client.producer.batch import Delivery as Delivery
    from odradek_client.producer.batch import RecordMetadata as RecordMetadata
    from odradek_client.producer.producer import Producer as Producer
    from odradek_client.share.acknowledgements import AcknowledgeType as AcknowledgeType
    from odradek_client.share.consumer import ShareConsumer as ShareConsumer
    from odradek_client.share.errors import Reject as Reject
    from odradek_client.share.errors import Release as Release
    from odradek_client.share.record import Acknowledgement as Acknowledgement
    from odradek_client.share.record import ShareRecord as ShareRecord
    from odradek_client.structs import ConsumerGroupMetadata as ConsumerGroupMetadata
    from odradek_client.structs import ConsumerRecord as ConsumerRecord
    from odradek_client.structs import OffsetAndMetadata as OffsetAndMetadata
    from odradek_client.structs import OffsetAndTimestamp as OffsetAndTimestamp
    from odradek_client.structs import PreparedTransaction as PreparedTransaction
    from odradek_client.structs import TopicPartition as TopicPartition
    from odradek_protocol.version import VERSION as __version__
    from odradek_testkit.broker import Broker as Broker

_HOMES = {
    "AcknowledgeType": "odradek_client.share.acknowledgements",
    "Acknowledgement": "odradek_client.share.record",
    "Admin": "odradek_client.admin",
    "AdminSettings": "odradek_client.config.keywords",
    "ArrowDelivery": "odradek_client.producer.arrow",
    "ArrowMetadata": "odradek_client.producer.arrow",
    "Assignor": "odradek_client.consumer.assignors",
    "Broker": "odradek_testkit.broker",
    "ConfigError": "odradek_client.errors",
    "ConfigResource": "odradek_client.admin",
    "Consumer": "odradek_client.consumer.consumer",
    "ConsumerGroupMetadata": "odradek_client.structs",
    "ConsumerRecord": "odradek_client.structs",
    "ConsumerSettings": "odradek_client.config.keywords",
    "Delivery": "odradek_client.producer.batch",
    "GroupMember": "odradek_client.consumer.assignors",
    "NewTopic": "odradek_client.admin",
    "OdradekError": "odradek_client.errors",
    "OffsetAndMetadata": "odradek_client.structs",
    "OffsetAndTimestamp": "odradek_client.structs",
    "PreparedTransaction": "odradek_client.structs",
    "Producer": "odradek_client.producer.producer",
    "ProducerSettings": "odradek_client.config.keywords",
    "RebalanceListener": "odradek_client.consumer.rebalance_listener",
    "RecordMetadata": "odradek_client.producer.batch",
    "Reject": "odradek_client.share.errors",
    "Release": "odradek_client.share.errors",
    "RowsOutcome": "odradek_client.producer.arrow",
    "ShareConsumer": "odradek_client.share.consumer",
    "ShareConsumerSettings": "odradek_client.config.keywords",
    "ShareRecord": "odradek_client.share.record",
    "TopicPartition": "odradek_client.structs",
}
_MODULES = {"errors": "odradek.errors", "sync": "odradek.sync", "testing": "odradek.testing"}

__all__ = [
    "AcknowledgeType",
    "Acknowledgement",
    "Admin",
    "AdminSettings",
    "ArrowDelivery",
    "ArrowMetadata",
    "Assignor",
    "Broker",
    "ConfigError",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "ConsumerSettings",
    "Delivery",
    "GroupMember",
    "NewTopic",
    "OdradekError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PreparedTransaction",
    "Producer",
    "ProducerSettings",
    "RebalanceListener",
    "RecordMetadata",
    "Reject",
    "Release",
    "RowsOutcome",
    "ShareConsumer",
    "ShareConsumerSettings",
    "ShareRecord",
    "TopicPartition",
    "__version__",
    "errors",
    "sync",
    "testing",
]


def __getattr__(name: str) -> Any:
    value: Any
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    elif name == "__version__":
        value = importlib.import_module("odradek_protocol.version").VERSION
    else:
        raise AttributeError(f"module 'odradek' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
