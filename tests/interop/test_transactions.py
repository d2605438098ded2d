"""Transactions of foreign clients: commit, abort, isolation, fencing, timeout, offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import budget
from broker_process import BrokerProcess
from foreign_topics import create_topic
from foreign_transactions import CLIENTS, end_of_committed
from transactional_clients import TransactionalClient, transactional
from waiting import wait_until

NewTopic = Callable[..., str]
EVERY_CLIENT = pytest.mark.parametrize(
    "client", budget.of_which(CLIENTS, CLIENTS[:1]), ids=lambda client: client.name
)
END = b"end"


@EVERY_CLIENT
def test_t30_committed_records_are_read_and_aborted_ones_are_not(
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
def test_t40_a_transaction_commits_several_partitions_and_topics(
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
def test_t45_read_committed_waits_for_an_open_transaction(
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
        assert end_of_committed(address, topic) == 0
        slow.commit()
    assert client.read(address, topic, END) == [b"slow", END]


@EVERY_CLIENT
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_o17_t24_offsets_are_committed_with_the_records_or_not_at_all(
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


# --- Tests with a separate broker ---


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that only one test uses and may kill. Its acknowledged writes are durable, and it
    often checks for timed-out transactions."""
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


@pytest.mark.full
@EVERY_CLIENT
def test_t55_a_transaction_of_a_client_is_aborted_after_its_timeout(
    client: TransactionalClient, own_broker: BrokerProcess
) -> None:
    address = own_broker.address
    create_topic(address, "t")
    with transactional(client, address, "slow", timeout_ms=1_000) as slow:
        slow.begin()
        slow.send("t", b"too slow")
        wait_until(lambda: end_of_committed(address, "t") == 2, "it is aborted")
        with pytest.raises(Exception):  # noqa: B017  each library raises a different exception
            slow.send("t", b"too late")
            slow.commit()
    with transactional(client, address, "slow") as again:
        again.begin()
        again.send("t", END)
        again.commit()
    assert client.read(address, "t", END) == [END]
