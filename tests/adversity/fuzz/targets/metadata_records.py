"""Invalid records of `__cluster_metadata`: the broker starts with them, or reports the error (D4).

Each record is prefixed by its length in one byte. If the first byte is odd, a node with these
records in its metadata log starts; otherwise the records are only replayed, because that is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from tests.adversity.fuzz.target import Broken, Target

from counting_randomness import CountingRandomness
from logs import NOW_MS
from node_world import NodeWorld
from odradek_broker.config.broker import default_config
from odradek_broker.config.types import BrokerConfigError
from odradek_broker.metadata.cluster import METADATA_TOPIC, ClusterMetadata
from odradek_broker.metadata.errors import MetadataError
from odradek_broker.storage.errors import DataDirectoryError
from odradek_protocol import codec
from odradek_protocol.primitives import DecodeError
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.stored.cluster_metadata import (
    RECORD_TYPES,
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from wire_values import fixed

_ID = b"T" * 16
_RECORDS_MAX = 100


def _records(data: bytes) -> Iterator[bytes]:
    position = 0
    for _ in range(_RECORDS_MAX):
        if position >= len(data):
            return
        size = data[position]
        yield data[position + 1 : position + 1 + size]
        position += 1 + size


class _World(NodeWorld):
    """A node that starts with the given records in its metadata log."""

    def begin(self, values: list[bytes]) -> None:
        path = f"data/{METADATA_TOPIC}-0/{0:020d}.log"
        batch = simple_batch([(None, value) for value in values], NOW_MS)
        self.files.crash(keep_page_cache=True)
        self.files.put(path, batch)
        self.start()


def _check_start(values: list[bytes]) -> None:
    world = _World()
    try:
        world.begin(values)
    except DataDirectoryError:
        return
    world.flush()
    if world.fatal:
        raise Broken(f"the broker would stop: {world.fatal}")
    world.maintain_later()


def _check_replay(values: list[bytes]) -> None:
    metadata = ClusterMetadata(default_config(), CountingRandomness())
    for value in values:
        try:
            record = decode_record(value)
            again = encode_record(record)
            if encode_record(decode_record(again)) != again:
                raise Broken(f"{record} changes when it is read and written")
            metadata.replay(record)
        except (DecodeError, MetadataError):
            return
    for name in metadata.topics:
        with suppress(BrokerConfigError):
            metadata.log_config(name)
    metadata.topic_configs.describe({})


def _check(data: bytes) -> None:
    if not data:
        return
    values = list(_records(data[1:]))
    if data[0] & 1 and values:
        _check_start(values)
    else:
        _check_replay(values)


def _seeds() -> Iterator[bytes]:
    topic = encode_record(TopicRecord(name="t", topic_id=_ID))
    partition = encode_record(
        PartitionRecord(
            partition_id=0, topic_id=_ID, replicas=[1], isr=[1], leader=1, leader_epoch=0
        )
    )
    configs = [
        encode_record(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))
        for kind, name, key, value in (
            (2, "t", "retention.ms", "1000"),
            (2, "t", "cleanup.policy", "compact"),
            (4, "1", "log.retention.ms", "5"),
            (4, "", "max.connections", "5"),
            (32, "g", "consumer.session.timeout.ms", "50000"),
            (2, "t", "retention.ms", None),
        )
    ]
    for start in (b"\0", b"\1"):
        yield start + b"".join(
            bytes([len(value)]) + value for value in (topic, partition, *configs)
        )
        for value in (topic + b"rest", partition, *configs):
            yield start + bytes([len(topic)]) + topic + bytes([len(value)]) + value
        for cls in RECORD_TYPES.values():
            for message in fixed(cls, cls.versions.last):
                if len(codec.encode_bytes(message, cls.versions.last)) < 250:
                    value = encode_record(message)
                    yield start + bytes([len(value)]) + value


TARGET = Target(_check, _seeds)
