"""The records of new partitions."""

from __future__ import annotations

from odradek_protocol.stored.cluster_metadata import (
    MetadataRecord,
    PartitionRecord,
    PartitionRecords,
)

#: The most new partitions of a topic that have an object each before they are encoded.
_ONE_BY_ONE_MAX = 100


def new_partitions(topic_id: bytes, assignments: dict[int, list[int]]) -> list[MetadataRecord]:
    """The records of new partitions; the first replica is the leader, in leader epoch 0.
    `assignments`: node ids by partition."""

    def record(index: int, replicas: list[int]) -> PartitionRecord:
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=list(replicas),
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
        )

    count = len(assignments)
    if count > _ONE_BY_ONE_MAX:
        start, replicas = next(iter(assignments.items()))
        alike = all(each == replicas for each in assignments.values())
        if alike and list(assignments) == list(range(start, start + count)):
            return [PartitionRecords(record(start, replicas), count)]
    return [record(*each) for each in assignments.items()]
