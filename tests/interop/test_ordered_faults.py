"""Injected faults of a broker under test, with our client and with confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

import budget
from odradek import sync
from odradek.broker import SubprocessBroker
from odradek.errors import IllegalState, OdradekError
from odradek.faults import Fault, FaultRefused, Faults
from waiting import wait_until

TIMEOUT_S = 20.0
pytestmark = pytest.mark.own_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[SubprocessBroker]:
    with SubprocessBroker(testing=True, settings={"log.durability": "fsync"}) as broker:
        yield broker


@pytest.fixture
def faults(broker: SubprocessBroker) -> Iterator[Faults]:
    yield broker.faults
    broker.faults.clear()


def met(faults: Faults, fault: Fault) -> int:
    return next(each.met for each in faults.list() if each.id == fault.id)


Send = Callable[[str, bytes], object]


def odradek_send(bootstrap: str) -> Iterator[Send]:
    with sync.Producer(bootstrap_servers=bootstrap, request_timeout_ms=1000) as producer:
        yield producer.send_and_wait


def confluent_send(bootstrap: str) -> Iterator[Send]:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "request.timeout.ms": 1000,
            "socket.timeout.ms": 1000,
            "linger.ms": 0,
        }
    )

    def send(topic: str, value: bytes) -> None:
        outcomes: list[Any] = []
        producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(TIMEOUT_S)
        assert outcomes, "no delivery report"
        if outcomes[0] is not None:
            raise confluent_kafka.KafkaException(outcomes[0])

    yield send


@pytest.fixture(
    params=budget.of_which([odradek_send, confluent_send], [odradek_send]),
    ids=["odradek", "confluent"],
)
def send(request: pytest.FixtureRequest, broker: SubprocessBroker) -> Iterator[Send]:
    yield from request.param(broker.bootstrap)


def values_in(broker: SubprocessBroker, topic: str, last: bytes) -> list[bytes]:
    """Read the values of a topic up to `last`."""
    found: list[bytes] = []
    with sync.Consumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        wait_until(
            lambda: last in found,
            "the last record comes",
            meanwhile=lambda: found.extend(
                record.value for record in consumer.poll(timeout_ms=500)
            ),
        )
    return found


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(lambda f, t: f.fail("Produce", "NOT_ENOUGH_REPLICAS", topic=t), id="fail"),
        pytest.param(lambda f, t: f.delay("Produce", 50, topic=t), id="delay"),
        pytest.param(lambda f, t: f.drop_reply("Produce", topic=t), id="drop_reply"),
        pytest.param(lambda f, t: f.cut("Produce", topic=t), id="cut"),
        pytest.param(lambda f, t: f.cut("Produce", handled=True, topic=t), id="cut-handled"),
        pytest.param(lambda f, t: f.lose_leader(t, 0), id="lose_leader"),
    ],
)
def test_a_producer_survives_passing_faults_and_writes_each_record_once(
    broker: SubprocessBroker,
    faults: Faults,
    unique_topic: str,
    send: Send,
    order: Callable[[Faults, str], Fault],
) -> None:
    send(unique_topic, b"before")
    fault = order(faults, unique_topic)
    send(unique_topic, b"during")
    assert met(faults, fault) == 1
    send(unique_topic, b"after")
    assert values_in(broker, unique_topic, b"after") == [b"before", b"during", b"after"]


@pytest.mark.parametrize("order", ["fail", "cut"])
@pytest.mark.parametrize("library", budget.of_which(["odradek", "confluent"], ["confluent"]))
def test_p05_order_is_kept_when_the_second_of_five_in_flight_fails(
    broker: SubprocessBroker, faults: Faults, unique_topic: str, library: str, order: str
) -> None:
    """Responses are slow, so that all five batches are in flight when the second one is refused or
    lost."""
    values = [b"%d" % number for number in range(25)]
    faults_of: dict[str, dict[str, object]] = {
        "fail": {"code": "NOT_ENOUGH_REPLICAS"},
        "cut": {"handled": True},
    }
    send_one = confluent_send if library == "confluent" else odradek_send
    for send in send_one(broker.bootstrap):
        send(unique_topic, b"before")
    faults.order(order, api="Produce", topic=unique_topic, skip=1, **faults_of[order])
    faults.delay("Produce", 100, topic=unique_topic, times=4)
    if library == "confluent":
        theirs = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "linger.ms": 0,
            }
        )
        for value in values:
            theirs.produce(unique_topic, value)
        assert theirs.flush(TIMEOUT_S) == 0
    else:
        with sync.Producer(bootstrap_servers=broker.bootstrap, batch_size=1, linger_ms=0) as ours:
            for value in values:
                ours.send(unique_topic, value)
    assert [each.met for each in faults.list()] == [1, 4]
    assert values_in(broker, unique_topic, values[-1]) == [b"before", *values]


def test_a_producer_gets_an_error_that_is_not_retriable(
    faults: Faults, unique_topic: str, send: Send
) -> None:
    send(unique_topic, b"before")
    faults.fail("Produce", "INVALID_RECORD", topic=unique_topic)
    with pytest.raises((OdradekError, confluent_kafka.KafkaException), match="INVALID_RECORD"):
        send(unique_topic, b"during")


@pytest.mark.parametrize("order", ["full_disk", "slow_disk"])
def test_a_producer_waits_for_a_slow_or_full_disk(
    broker: SubprocessBroker, faults: Faults, unique_topic: str, send: Send, order: str
) -> None:
    send(unique_topic, b"before")
    faults.order(order, for_ms=300, **({"ms": 100} if order == "slow_disk" else {}))
    send(unique_topic, b"during")
    assert values_in(broker, unique_topic, b"during") == [b"before", b"during"]


def test_a_consumer_survives_a_lost_leader(
    broker: SubprocessBroker, faults: Faults, unique_topic: str, send: Send
) -> None:
    send(unique_topic, b"one")
    fault = faults.lose_leader(unique_topic, 0, times=2)
    assert values_in(broker, unique_topic, b"one") == [b"one"]
    assert met(faults, fault) == 2


def confluent_member(bootstrap: str, group: str, topic: str) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "worker",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 100,
        }
    )
    consumer.subscribe([topic])
    return consumer


def test_confluent_kafka_survives_a_moved_coordinator_and_an_expired_session(
    broker: SubprocessBroker, faults: Faults, unique_topic: str
) -> None:
    with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send_and_wait(unique_topic, b"one")
    consumer = confluent_member(broker.bootstrap, unique_topic, unique_topic)
    try:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        # A heartbeat must meet the fault, because a synchronous commit would return only after the
        # session has expired.
        moved = faults.move_coordinator(unique_topic)
        wait_until(
            lambda: met(faults, moved) == 1,
            "a heartbeat has met it",
            meanwhile=lambda: consumer.poll(0.05),
        )
        consumer.commit(message=message, asynchronous=False)
        assert len(faults.expire_session(unique_topic, "worker")) == 1
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            consumer.commit(message=message, asynchronous=False)
        assert caught.value.args[0].name() in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_our_client_survives_a_moved_coordinator_and_an_expired_session(
    broker: SubprocessBroker, faults: Faults, unique_topic: str, protocol: Any
) -> None:
    with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send_and_wait(unique_topic, b"one")
    with sync.Consumer(
        unique_topic,
        bootstrap_servers=broker.bootstrap,
        group_id=unique_topic,
        client_id="worker",
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        found: list[object] = []
        wait_until(
            lambda: bool(found),
            "the record comes",
            meanwhile=lambda: found.extend(consumer.poll(timeout_ms=500)),
        )
        moved = faults.move_coordinator(unique_topic)
        consumer.commit()
        assert met(faults, moved) == 1
        assert len(faults.expire_session(unique_topic, "worker")) == 1
        with pytest.raises(OdradekError, match="UNKNOWN_MEMBER_ID"):
            consumer.commit()


def test_an_aborted_transaction_fences_its_producer(
    broker: SubprocessBroker, faults: Faults, unique_topic: str
) -> None:
    ours, theirs = f"{unique_topic}-ours", f"{unique_topic}-theirs"
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": theirs}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(unique_topic, b"one")
    producer.flush(TIMEOUT_S)
    faults.abort_transaction(theirs)
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    with sync.Producer(bootstrap_servers=broker.bootstrap, transactional_id=ours) as own:
        own.init_transactions()
        own.begin_transaction()
        own.send_and_wait(unique_topic, b"two")
        moved = faults.move_coordinator(transactional_id=ours)
        own.commit_transaction()
        assert met(faults, moved) == 1
        own.begin_transaction()
        own.send_and_wait(unique_topic, b"three")
        faults.abort_transaction(ours)
        with pytest.raises(OdradekError):
            own.commit_transaction()
    with sync.Consumer(
        unique_topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        assert [record.value for record in consumer.poll(timeout_ms=10_000)] == [b"two"]


def test_a_broker_that_is_not_under_test_refuses_orders(
    odradek_broker_session: SubprocessBroker,
) -> None:
    with pytest.raises(IllegalState, match="testing=True"):
        odradek_broker_session.faults.list()
    with pytest.raises(FaultRefused, match="cannot reach"):
        Faults.at("127.0.0.1:1").list()
