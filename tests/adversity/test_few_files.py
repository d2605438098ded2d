"""A broker with fewer file descriptors than partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_process import BrokerProcess
from odradek import NewTopic
from odradek.sync import Admin, Producer

PARTITIONS = 400


@pytest.mark.full
@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
def test_n15_a_broker_with_fewer_descriptors_than_partitions_stops_cleanly(
    tmp_path: Path, durability: str
) -> None:
    """Before, the flushes of all logs opened all files together, and each waited for the others;
    and with fsync, the logs that waited for a flush kept all files open, so that it could open no
    directory."""
    broker = BrokerProcess(tmp_path, [f"log.durability={durability}"])
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
