"""The records of the cluster metadata that are encoded together."""

from __future__ import annotations

from odradek_protocol.stored.cluster_metadata import (
    PartitionRecord,
    PartitionRecords,
    TopicRecord,
    decode_record,
    encode_record,
    encode_records,
)

ID, OTHER = bytes(15) + b"\x07", bytes(15) + b"\x08"


def test_records_of_partitions_that_are_encoded_together_are_those_encoded_alone() -> None:
    def partition(number: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=number,
            topic_id=ID,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_epoch=3,
            partition_epoch=4,
        )

    topic = TopicRecord(name="t", topic_id=ID)
    first, together = encode_records([topic, PartitionRecords(partition(7), 300)])
    assert first == [encode_record(topic)]
    assert together == [encode_record(partition(number)) for number in range(7, 307)]
    assert [decode_record(value) for value in together] == [partition(n) for n in range(7, 307)]
    assert encode_records([]) == []
