"""`odradek log verify` on records of coordinators, each of which the next start must be able to
load."""

from __future__ import annotations

import pytest

from node_world import NodeWorld
from odradek_broker.coordinator.share.records import snapshot_record, tombstone_record
from odradek_broker.metadata.cluster import SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from odradek_broker.share_state import ShareKey, ShareState
from odradek_log_tools.verify.findings import Finding, Findings, Severity
from odradek_log_tools.verify.partition import Expected, PartitionCheck
from odradek_protocol.stored import transaction_log

KEY, VALUE = snapshot_record(ShareKey("g", bytes(16), 0), ShareState(0, 1, 0, 5))
ID = transaction_log.encode_key("id")


def damages(topic: str, *records: tuple[bytes | None, bytes | None]) -> list[str]:
    """The damage that is found in a partition with these records."""
    world = NodeWorld(
        share_coordinator_state_topic_num_partitions="1",
        transaction_state_log_num_partitions="1",
    )
    world.node.ensure_internal_topic(topic)
    world.flush()
    partition = world.node.partition(topic, 0)
    assert partition is not None
    for record in records:
        partition.append_internal([record], 0)
    world.flush()
    found: list[Finding] = []
    PartitionCheck(
        world.files,
        f"data/{topic}-0",
        Expected(clean=False, live=False),
        Findings(found.append),
        lambda read_bytes: None,
    ).run()
    return [each.problem for each in found if each.severity is Severity.DAMAGED]


def test_verify_accepts_records_that_coordinators_can_load() -> None:
    sound = [(KEY, VALUE), tombstone_record(ShareKey("g", bytes(16), 0)), (b"\0\x07new", b"type")]
    assert damages(SHARE_STATE_TOPIC, *sound, (None, b"without a key")) == []
    assert damages(TRANSACTIONS_TOPIC, (ID, None), (b"\0\x07new", b"type")) == []


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        (SHARE_STATE_TOPIC, KEY, VALUE[:-3] if VALUE else b""),
        (SHARE_STATE_TOPIC, KEY[:-2], VALUE),
        (SHARE_STATE_TOPIC, KEY, b"\0\x07" + (VALUE or b"")[2:]),
        (TRANSACTIONS_TOPIC, ID, b"\0\x01short"),
    ],
)
def test_verify_reports_the_first_record_that_cannot_be_loaded(
    topic: str, key: bytes, value: bytes
) -> None:
    (problem,) = damages(topic, (None, b"sound"), (key, value), (key, value))
    assert problem.startswith("the record at offset 1 cannot be read: ")
