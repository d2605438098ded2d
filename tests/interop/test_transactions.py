"""Transactions of foreign clients: commit, abort, isolation, fencing, timeout, offsets, kill -9."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

import dying_broker
from dying_broker import POINTS, DyingBroker
from foreign_clients import CLIENTS as PLAIN_CLIENTS
from foreign_clients import Record, Settings
from foreign_transactions import CLIENTS, TransactionalClient, transactional
from running_broker import BrokerProcess, wait_until

NewTopic = Callable[..., str]
EVERY_CLIENT = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
END = b"end"


@EVERY_CLIENT
def test_t30_what_is_committed_is_read_and_what_is_aborted_is_not(
    client: TransactionalClient, address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with transactional(client, address, f"both-{topic}") as producer:
        for number in range(6):
            producer.begin()
            producer.send(topic, b"%d" % number)
            producer.send(topic, b"%d again" % number)
            if number % 2:
                producer.abort()
            else:
                producer.commit()
        producer.begin()
        producer.send(topic, END)
        producer.commit()
    committed = [b"0", b"0 again", b"2", b"2 again", b"4", b"4 again", END]
    for reader in CLIENTS:
        assert reader.read(address, topic, END) == committed, reader.name
    everything = [b"%d%s" % (n, again) for n in range(6) for again in (b"", b" again")] + [END]
    for reader in CLIENTS:
        assert reader.read(address, topic, END, committed=False) == everything, reader.name


@EVERY_CLIENT
def test_t40_a_transaction_over_several_partitions_and_topics(
    client: TransactionalClient, address: str, new_topic: NewTopic
) -> None:
    topics = [new_topic(3), new_topic()]
    with transactional(client, address, f"several-{topics[0]}") as producer:
        for value in (b"one", END):
            producer.begin()
            for partition in range(3):
                producer.send(topics[0], value, partition)
            producer.send(topics[1], value)
            producer.commit()
    for topic in topics:
        assert client.read(address, topic, END) == [b"one", END]


@EVERY_CLIENT
def test_t45_readers_of_committed_records_wait_for_an_open_transaction(
    client: TransactionalClient, address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with (
        transactional(client, address, f"slow-{topic}") as slow,
        transactional(client, address, f"fast-{topic}") as fast,
    ):
        slow.begin()
        slow.send(topic, b"slow")
        fast.begin()
        fast.send(topic, END)
        fast.commit()
        assert client.read(address, topic, END, committed=False) == [b"slow", END]
        assert _end_of_committed(address, topic) == 0
        slow.commit()
    assert client.read(address, topic, END) == [b"slow", END]


def _end_of_committed(address: str, topic: str) -> int:
    """The last stable offset, as ListOffsets tells it."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "watcher", "isolation.level": "read_committed"}
    )
    try:
        part = confluent_kafka.TopicPartition(topic, 0)
        return int(consumer.get_watermark_offsets(part, timeout=20)[1])
    finally:
        consumer.close()


@EVERY_CLIENT
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_o17_t24_positions_move_with_the_records_or_not_at_all(
    client: TransactionalClient, address: str, new_topic: NewTopic, commit: bool
) -> None:
    source, target = new_topic(), new_topic()
    with transactional(client, address, f"fill-{source}") as producer:
        producer.begin()
        for number in range(6):
            producer.send(source, b"%d" % number)
        producer.commit()
    group = f"transform-{source}"
    first = client.transform(address, source, target, group, 3, commit=commit)
    assert first == [b"0", b"1", b"2"]
    second = client.transform(address, source, target, group, 3, commit=True)
    assert second == ([b"3", b"4", b"5"] if commit else first)
    with transactional(client, address, f"fill-{source}") as producer:
        producer.begin()
        producer.send(target, END)
        producer.commit()
    written = first + second if commit else second
    assert client.read(address, target, END) == [*written, END]


@EVERY_CLIENT
def test_t56_t59_a_new_producer_of_the_id_fences_the_old_one(
    client: TransactionalClient, address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    with transactional(client, address, f"zombie-{topic}") as zombie:
        zombie.begin()
        zombie.send(topic, b"of the zombie")
        with transactional(client, address, f"zombie-{topic}") as producer:
            with pytest.raises(client.fenced):
                zombie.send(topic, b"too late")
                zombie.commit()
            producer.begin()
            producer.send(topic, END)
            producer.commit()
    assert client.read(address, topic, END) == [END]


# --- Brokers of their own ---


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that may be killed, durable, and looks for late transactions often."""
    broker = BrokerProcess(
        tmp_path,
        [
            "group.initial.rebalance.delay.ms=0",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms=100",
        ],
    )
    broker.start()
    yield broker
    broker.stop()


def _create(address: str, topic: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address, "log_level": 0})
    new: Any = confluent_kafka.admin.NewTopic(topic, 1, 1)  # type: ignore[attr-defined]
    admin.create_topics([new])[topic].result(20)


@EVERY_CLIENT
def test_t55_a_transaction_that_takes_too_long_is_aborted(
    client: TransactionalClient, own_broker: BrokerProcess
) -> None:
    address = own_broker.address
    _create(address, "t")
    with transactional(client, address, "slow", timeout_ms=1_000) as slow:
        slow.begin()
        slow.send("t", b"too slow")
        wait_until(lambda: _end_of_committed(address, "t") == 2, "it is aborted")
        with pytest.raises(Exception):  # noqa: B017  each library has its own word for it
            slow.send("t", b"too late")
            slow.commit()
    with transactional(client, address, "slow") as again:
        again.begin()
        again.send("t", END)
        again.commit()
    assert client.read(address, "t", END) == [END]


def _position(address: str, group: str, topic: str) -> int | None:
    """What a group has committed; asks again while a transaction on it is undecided (O-09)."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group})
    try:
        part = confluent_kafka.TopicPartition(topic, 0)
        (found,) = consumer.committed([part], timeout=20)
    finally:
        consumer.close()
    return None if found.offset == confluent_kafka.OFFSET_INVALID else int(found.offset)


@EVERY_CLIENT
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("point", POINTS)
def test_t50_killed_between_the_decision_and_its_end(
    client: TransactionalClient,
    commit: bool,
    point: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client, which is still asking, and all readers see the transaction end as it was decided:
    the records, and the positions that went with them (T-50e to T-50g)."""
    support = str(Path(dying_broker.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([support, os.environ.get("PYTHONPATH", "")]))
    broker = DyingBroker(tmp_path, point, ["group.initial.rebalance.delay.ms=0"])
    broker.start()
    try:
        for topic in ("source", "target"):
            _create(broker.address, topic)
        records = [Record(None, b"%d" % number) for number in range(6)]
        PLAIN_CLIENTS[0].produce(broker.address, "source", records, Settings())
        values = client.transform(broker.address, "source", "target", "g", 3, commit=commit)
        assert values == [b"0", b"1", b"2"]
        assert broker.has_come_back()
        PLAIN_CLIENTS[0].produce(broker.address, "target", [Record(None, END)], Settings())
        assert client.read(broker.address, "target", END) == [*(values if commit else ()), END]
        assert _position(broker.address, "g", "source") == (3 if commit else None)
    finally:
        broker.stop()
