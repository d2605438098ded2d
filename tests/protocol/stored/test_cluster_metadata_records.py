"""The records of the cluster metadata that are encoded together."""

from __future__ import annotations

from typing import Any

from odradek_protocol.stored.cluster_metadata import (
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
    encode_record,
    encode_records,
)

ID, OTHER = bytes(15) + b"\x07", bytes(15) + b"\x08"


def _partition(number: int, **other: Any) -> PartitionRecord:
    fields: dict[str, Any] = {
        "topic_id": ID,
        "replicas": [1],
        "isr": [1],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
    }
    return PartitionRecord(partition_id=number, **(fields | other))


def test_records_that_are_encoded_together_are_those_that_are_encoded_alone() -> None:
    changes: list[dict[str, Any]] = [
        {"topic_id": OTHER},
        {"replicas": [1, 2]},
        {"isr": []},
        {"removing_replicas": [2]},
        {"adding_replicas": [2]},
        {"leader": 2},
        {"leader_epoch": 3},
        {"partition_epoch": 4},
        {"leader_recovery_state": 1},
        {"unknown_tags": {9: b"tag"}},
    ]
    records = [
        TopicRecord(name="t", topic_id=ID),
        *(_partition(number) for number in (0, 1, 2, 2**31 - 1, -1)),
        RemoveTopicRecord(topic_id=ID),
        *(_partition(number) for number in (5, 6)),
    ]
    for change in changes:
        records += [_partition(7), _partition(8, **change), _partition(9, **change)]
    values = encode_records(records)
    assert values == [encode_record(record) for record in records]
    assert [decode_record(value) for value in values] == records
    assert encode_records([]) == []
