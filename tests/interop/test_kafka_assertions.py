"""Assertions about topics and groups of Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_cluster import KafkaCluster
from odradek import NewTopic, sync
from odradek.assertions import Assertions

pytestmark = pytest.mark.kafka


def test_assertions_work_with_apache_kafka(
    kafka: KafkaCluster, unique_topic: str, tmp_path: Path
) -> None:
    check, topic, group = Assertions(kafka.bootstrap), unique_topic, f"{unique_topic}-group"
    check.assert_nothing_produced(topic, 0.1)
    with (
        sync.Admin(bootstrap_servers=kafka.bootstrap) as admin,
        sync.Producer(bootstrap_servers=kafka.bootstrap, transactional_id=topic) as producer,
    ):
        assert topic not in admin.list_topics()
        admin.create_topics(NewTopic(topic, 2))
        producer.init_transactions()
        for ending in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.send_and_wait(topic, b"4 apples", key=b"ada", partition=1)
            ending()
        check.assert_produced(topic, {"key": "ada"}, count=1)
        assert check.assert_no_duplicates(topic) == 1
        admin.alter_group_offsets(group, {(topic, 1): 1})
        check.assert_committed(group, topic, 1, 1)
        check.assert_lag_zero(group)
        admin.alter_group_offsets(group, {(topic, 1): 0})
        with pytest.raises(AssertionError, match=r"committed 0, 4 behind the end, 4"):
            check.assert_lag_zero(group, 0.2)
    path = tmp_path / "orders.jsonl"
    check.snapshot(topic, path, count=1)
    assert path.read_text() == '{"partition": 1, "key": "ada", "payload": "4 apples"}\n'
    check.assert_topic_equals(topic, path)
    with pytest.raises(AssertionError, match=r"in transactions that are open or were aborted"):
        check.assert_produced(topic, count=2, within_s=0.2)
