"""A broker with fewer file descriptors than partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_process import BrokerProcess
from odradek import NewTopic
from odradek.sync import Admin, Producer

PARTITIONS = 400


@pytest.mark.full
def test_n15_a_broker_with_fewer_descriptors_than_partitions_stops_cleanly(tmp_path: Path) -> None:
    """Before, the flushes of all logs opened all files together, and each waited for the others."""
    broker = BrokerProcess(tmp_path, ["log.durability=page-cache"])
    broker.start(open_files_max=160)
    try:
        with Admin(bootstrap_servers=broker.address) as admin:
            admin.create_topics(NewTopic("t", PARTITIONS))
        with Producer(bootstrap_servers=broker.address) as producer:
            for partition in range(PARTITIONS):
                producer.send("t", b"x", partition=partition)
            producer.flush()
        broker.stop()
        assert "not clean" not in broker.log
        assert "Too many open files" not in broker.log
    finally:
        broker.clean_up()
