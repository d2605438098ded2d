"""A client changes the level of a logger, and the running broker logs by the new level (A-79)."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_process import BrokerProcess
from odradek import ConfigResource, NewTopic, sync

LINE = "group changed its state"
SETTINGS = ("group.initial.rebalance.delay.ms=0", "log.format=json", "log.durability=page-cache")


def _join(address: str, group_id: str) -> None:
    with sync.Producer(bootstrap_servers=address) as producer:
        producer.send("t", b"x")
    with sync.Consumer(
        "t",
        bootstrap_servers=address,
        group_id=group_id,
        group_protocol="classic",
        auto_offset_reset="earliest",
    ) as consumer:
        assert next(iter(consumer)).value == b"x"


@pytest.mark.full
def test_a79_a_logger_level_holds_at_once_and_until_the_broker_stops(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    loggers = ConfigResource.broker_logger(1)
    try:
        with sync.Admin(bootstrap_servers=broker.address) as admin:
            admin.create_topics(NewTopic("t"))
            _join(broker.address, "before")
            admin.alter_configs({loggers: {"odradek.groups": "DEBUG"}})
            _join(broker.address, "while")
            admin.alter_configs({loggers: {"odradek.groups": None}})
            _join(broker.address, "after")
        named = {
            name for name in ("before", "while", "after") if f'"group": "{name}"' in broker.log
        }
        assert LINE in broker.log and named == {"while"}
        with sync.Admin(bootstrap_servers=broker.address) as admin:
            admin.alter_configs({loggers: {"root": "FATAL"}})
        broker.stop()
        broker.start()
        with sync.Admin(bootstrap_servers=broker.address) as admin:
            described = admin.describe_configs(loggers)[loggers]
            assert described["root"].value == "INFO"
    finally:
        broker.clean_up()
