"""Foreign clients and our own with a broker that emulates another broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

import budget
from broker_process import BrokerProcess
from foreign_clients import CLIENTS, Client, Record, Settings
from foreign_transactions import CLIENTS as TRANSACTIONAL
from odradek import Admin, Broker, Consumer, NewTopic, Producer
from odradek.errors import OdradekError
from odradek_broker.emulation.profiles import PROFILES
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_testkit.simulation.cluster import SimulatedCluster
from raw_client import RawClient
from transactional_clients import TransactionalClient, transactional

RECORDS = [Record(b"k", b"v%d" % number) for number in range(20)]


@pytest.fixture(scope="module", params=PROFILES)
def emulated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The name of a profile, and the address of a broker that uses it."""
    broker = BrokerProcess(
        tmp_path_factory.mktemp("emulated"),
        [
            f"odradek.emulate={request.param}",
            "group.initial.rebalance.delay.ms=0",
            "log.durability=page-cache",
            "auto.create.topics.enable=true",
        ],
    )
    broker.start()
    yield request.param, broker.address
    broker.assert_alive()
    broker.stop()


@pytest.mark.parametrize(
    "client", budget.of_which(CLIENTS, CLIENTS[:3]), ids=lambda client: client.name
)
def test_clients_work_with_every_emulated_broker(client: Client, emulated: tuple[str, str]) -> None:
    name, address = emulated
    if (name, client.name) == ("event-hubs", "kafka-python"):
        pytest.skip("kafka-python 3 begins with a version at which Event Hubs closes")
    topic = f"of-{client.name}"
    client.produce(address, topic, RECORDS, Settings())
    assert [each.value for each in client.consume(address, topic, len(RECORDS))] == [
        each.value for each in RECORDS
    ]
    read = client.consume_and_commit(address, topic, f"group-of-{client.name}", 7)
    assert len(read) == 7


def test_our_client_works_with_every_emulated_broker(emulated: tuple[str, str]) -> None:
    _, address = emulated

    async def run() -> list[bytes | None]:
        async with Producer(bootstrap_servers=address) as producer:
            for number in range(5):
                await producer.send_and_wait("ours", b"%d" % number)
        read: list[bytes | None] = []
        async with Consumer(
            "ours", bootstrap_servers=address, group_id="ours", auto_offset_reset="earliest"
        ) as consumer:
            while len(read) < 5:
                read += [record.value for record in await consumer.poll()]
            await consumer.commit()
        return read

    assert asyncio.run(run()) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.full
@pytest.mark.parametrize("client", TRANSACTIONAL, ids=lambda client: client.name)
def test_transactions_work_with_emulated_brokers_that_have_them(
    client: TransactionalClient, emulated: tuple[str, str]
) -> None:
    name, address = emulated
    if name == "event-hubs":
        pytest.skip("it has no transactions")
    topic = f"transactions-of-{client.name}"
    with transactional(client, address, f"id-of-{client.name}") as producer:
        producer.begin()
        producer.send(topic, b"aborted")
        producer.abort()
        producer.begin()
        producer.send(topic, b"committed")
        producer.commit()
    assert client.read(address, topic, b"committed") == [b"committed"]


def test_our_admin_names_apis_that_the_emulated_broker_lacks(emulated: tuple[str, str]) -> None:
    name, address = emulated

    async def refused(call: str, *arguments: Any) -> str:
        async with Admin(bootstrap_servers=address) as admin:
            try:
                await getattr(admin, call)(*arguments)
            except OdradekError as error:
                return str(error)
        return ""

    text = asyncio.run(refused("list_share_group_offsets", "g"))
    assert ("DescribeShareGroupOffsets" in text) == (name != "confluent-cloud"), text
    text = asyncio.run(refused("describe_acls"))
    assert ("DescribeAcls" in text) == (name == "event-hubs"), text


# --- Limits of single brokers ---------------------------------------------------------------------


@asynccontextmanager
async def _raw(name: str) -> AsyncIterator[RawClient]:
    async with Broker(emulate=name) as broker:
        host, port = broker.bootstrap.split(":")
        client = RawClient(*await asyncio.open_connection(host, int(port)))
        try:
            yield client
        finally:
            client.close()


def _newer() -> bytes:
    """An ApiVersions request of version 99, as from a client newer than the broker."""
    frame = b"\0\x12\0\x63\0\0\0\x01\0\x01x\0"
    return len(frame).to_bytes(4, "big") + frame


async def test_redpanda_answers_a_newer_version_with_all_apis() -> None:
    async with _raw("redpanda") as client:
        asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        known = await client.call(asked, 3)
        assert known.supported_features == known.finalized_features == []
        assert known.finalized_features_epoch == -1
        client.writer.write(_newer())
        answer = await client.receive_frame()
        assert answer[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
        assert int.from_bytes(answer[6:10], "big") == len(known.api_keys)


async def test_event_hubs_closes_the_connection_at_a_newer_version() -> None:
    async with _raw("event-hubs") as client:
        client.writer.write(_newer())
        assert await client.closed()


async def _created(address: str, *topics: NewTopic) -> list[str]:
    """The error for each topic; an empty text if the topic was created."""
    errors = []
    async with Admin(bootstrap_servers=address) as admin:
        for topic in topics:
            try:
                await admin.create_topics(topic)
            except OdradekError as error:
                errors.append(str(error))
            else:
                errors.append("")
    return errors


@pytest.mark.parametrize(
    ("name", "good", "bad", "words"),
    [
        ("confluent-cloud", NewTopic("a", 1, 3), NewTopic("b", 1, 1), "replication factor must"),
        ("redpanda", NewTopic("a", 1, 1), NewTopic("b", 1, 2), "not odd"),
        ("event-hubs", NewTopic("a", 32, 1), NewTopic("b", 33, 1), "32 of an event hub"),
    ],
)
async def test_emulated_brokers_have_limits_of_topics(
    name: str, good: NewTopic, bad: NewTopic, words: str
) -> None:
    async with Broker(emulate=name) as broker:
        created, refused = await _created(broker.bootstrap, good, bad)
        assert created == ""
        assert words in refused


async def test_confluent_cloud_has_limits_and_ignores_a_setting() -> None:
    def topic(name: str, **configs: object) -> NewTopic:
        given = {key.replace("_", "."): str(value) for key, value in configs.items()}
        return NewTopic(name, 1, 3, configs=given)

    async with Broker(emulate="confluent-cloud") as broker:
        errors = await _created(
            broker.bootstrap,
            topic("a", segment_bytes=26_214_400),
            topic("b", max_message_bytes=10_485_760),
            topic("c", min_cleanable_dirty_ratio=0.1, segment_bytes=52_428_800),
        )
        assert "lower than the minimum" in errors[0]
        assert "exceeded max limit of 8388608" in errors[1]
        assert errors[2] == ""
        found = await asyncio.to_thread(_described, broker.bootstrap, "c")
        assert float(found["min.cleanable.dirty.ratio"].value) == 0.5
        assert found["segment.bytes"].value == "52428800"


def _described(address: str, topic: str) -> Any:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    resource = confluent_kafka.admin.ConfigResource("topic", topic)  # type: ignore[attr-defined]
    return admin.describe_configs([resource])[resource].result(20)


@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_event_hubs_refuses_compressed_batches(codec: str) -> None:
    async with Broker(emulate="event-hubs") as broker:
        (error,) = await asyncio.to_thread(_deliver, broker.bootstrap, codec)
        if codec == "none":
            assert error is None
        else:
            assert error.code() == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def _deliver(address: str, codec: str) -> Sequence[Any]:
    reports: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "compression.type": codec, "log_level": 0}
    )
    producer.produce("orders", b"x" * 100, on_delivery=lambda error, _: reports.append(error))
    producer.flush(30)
    return reports


@pytest.mark.simulated(seeds=1, settings={"odradek.emulate": "kafka-3.9"})
async def test_a_simulated_cluster_emulates_another_broker(
    simulated_cluster: SimulatedCluster,
) -> None:
    async with Admin(bootstrap_servers=simulated_cluster.bootstrap) as admin:
        (node,) = (await admin.describe_cluster()).brokers
        broker = await admin.describe_broker(node.node_id)
    assert broker.apis["Produce"] == (0, 11)
    assert broker.finalized_features == {"metadata.version": 21}
