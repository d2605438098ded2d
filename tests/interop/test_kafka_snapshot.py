"""Apache Kafka's own tool reads the snapshots of our metadata log (KIP-630)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafka_cluster import class_path, java
from odradek_broker.metadata.snapshots import MetadataSnapshotId, encode_snapshot
from odradek_protocol.stored.cluster_metadata import (
    AccessControlEntryRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    TopicRecord,
    encode_record,
)

pytestmark = pytest.mark.kafka
TOPIC_ID = bytes(range(16))


def test_l39_kafkas_tool_reads_our_metadata_snapshot(tmp_path: Path) -> None:
    records = [
        TopicRecord(name="orders", topic_id=TOPIC_ID),
        PartitionRecord(topic_id=TOPIC_ID, partition_id=0, replicas=[1], isr=[1], leader=1),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"),
        ProducerIdsRecord(broker_id=1, next_producer_id=1000),
        AccessControlEntryRecord(
            id=TOPIC_ID,
            resource_type=2,
            resource_name="orders",
            pattern_type=3,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        ),
        RemoveAccessControlEntryRecord(id=TOPIC_ID),
    ]
    snapshot = MetadataSnapshotId(10, 1)
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    path = directory / snapshot.file_name
    path.write_bytes(
        b"".join(encode_snapshot(map(encode_record, records), 1, 1_700_000_000_000, 5))
    )
    tool = ("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files")
    done = subprocess.run(
        [java(), "-cp", class_path(), *tool, str(path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Snapshot end offset: 10, epoch: 1" in done.stdout
    assert 'SnapshotHeader {"version":0,"lastContainedLogTimestamp":1700000000000}' in done.stdout
    assert 'SnapshotFooter {"version":0}' in done.stdout
    for kind in (
        *("TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "PRODUCER_IDS_RECORD"),
        *("ACCESS_CONTROL_ENTRY_RECORD", "REMOVE_ACCESS_CONTROL_ENTRY_RECORD"),
    ):
        assert f'"type":"{kind}","version":0' in done.stdout
    assert '"resourceName":"orders","patternType":3,"principal":"User:alice"' in done.stdout
    assert done.stdout.count("isvalid: true") == 3
