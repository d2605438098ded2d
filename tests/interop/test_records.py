"""Records of one client are read by every client: all of them, in order, with every codec."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from foreign_clients import CLIENTS, CODECS, Client, Record, Settings

NewTopic = Callable[..., str]
EVERY_CLIENT = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
START_MS = 1_700_000_000_000


def _varied(codec: str, refused: frozenset[str]) -> list[Record]:
    """Records that differ in every possible way, except in features that the client does not
    support."""
    headers = (("null", b"" if "null header" in refused else None),)
    text = f"{codec} größe 漢字 ".encode()
    return [
        Record(b"key", text * 100, (), START_MS),
        Record(None, text, (("h", b"\x00\xff"), ("h", b"twice"), ("é", b"")), START_MS + 1),
        Record(b"tombstone", None, headers, START_MS + 2),
        Record(b"", b"", (), START_MS + 3),
        Record(b"" if "neither key nor value" in refused else None, None, (), START_MS + 4),
        Record(bytes(range(256)), random.Random(codec).randbytes(3000), (), START_MS - 5),
    ]


@pytest.fixture(scope="module")
def produced(address: str, new_topic: NewTopic) -> Callable[[Client], tuple[str, list[Record]]]:
    """A topic that a client has filled with every codec, and the records."""
    done: dict[str, tuple[str, list[Record]]] = {}

    def produce(client: Client) -> tuple[str, list[Record]]:
        if client.name not in done:
            topic = new_topic()
            expected: list[Record] = []
            for codec in CODECS:
                records = _varied(codec, client.refuses)
                offsets = client.produce(address, topic, records, Settings(codec))
                assert offsets == list(range(len(expected), len(expected) + len(records)))
                expected += records
            done[client.name] = topic, expected
        return done[client.name]

    return produce


@pytest.mark.parametrize("reader", CLIENTS, ids=lambda client: f"read-by-{client.name}")
@EVERY_CLIENT
def test_every_client_reads_records_of_every_client(
    client: Client,
    reader: Client,
    address: str,
    produced: Callable[[Client], tuple[str, list[Record]]],
) -> None:
    topic, expected = produced(client)
    assert reader.consume(address, topic, len(expected)) == expected


@pytest.mark.full
@EVERY_CLIENT
def test_every_client_writes_and_reads_large_records(
    client: Client, address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    dice = random.Random(900)
    records = [Record(b"%d" % number, dice.randbytes(900_000)) for number in range(4)]
    assert client.produce(address, topic, records, Settings()) == [0, 1, 2, 3]
    for reader in CLIENTS:
        assert reader.consume(address, topic, 4) == records


@pytest.mark.full
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@EVERY_CLIENT
def test_p04_many_batches_in_flight_stay_in_order(
    client: Client, idempotent: bool, address: str, new_topic: NewTopic
) -> None:
    topic = new_topic(4)
    records = [
        Record(None, b"%d" % number, timestamp_ms=START_MS + number, partition=number % 4)
        for number in range(2000)
    ]
    small = {
        "confluent-kafka": {"batch.num.messages": 20},
        "aiokafka": {"max_batch_size": 1000},
        "kafka-python": {"batch_size": 1000},
    }[client.name]
    # Without idempotence, retries could change the order if several requests were in flight.
    settings = Settings(idempotent=idempotent, linger_ms=0, extra=small)
    offsets = client.produce(address, topic, records, settings)
    assert offsets == [number // 4 for number in range(2000)]
    read = CLIENTS[0].consume(address, topic, 2000)
    for partition in range(4):
        mine = [record for record in read if record.partition == partition]
        assert mine == [record for record in records if record.partition == partition]


@pytest.mark.full
@EVERY_CLIENT
def test_every_client_writes_and_reads_many_partitions(
    client: Client, address: str, new_topic: NewTopic
) -> None:
    topic = new_topic(60)
    records = [Record(b"%d" % n, b"v%d" % n, partition=n % 60) for n in range(180)]
    client.produce(address, topic, records, Settings())
    for reader in CLIENTS:
        read = reader.consume(address, topic, 180)
        assert sorted(read, key=lambda record: int(record.key or b"")) == records


@pytest.mark.full
@EVERY_CLIENT
def test_l15_clients_find_offsets_for_times(
    client: Client, address: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    records = [Record(None, b"x", timestamp_ms=START_MS + 1000 * n, partition=1) for n in range(50)]
    client.produce(address, topic, records[:25], Settings("gzip"))
    client.produce(address, topic, records[25:], Settings())
    for asked, expected in (
        (START_MS - 1, 0),
        (START_MS, 0),
        (START_MS + 1, 1),
        (START_MS + 24_500, 25),
        (START_MS + 49_000, 49),
        (START_MS + 49_001, None),
    ):
        assert client.offsets_for_time(address, topic, 1, asked) == expected
    assert client.offsets_for_time(address, topic, 0, START_MS) is None


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_p23_records_are_written_with_every_acks(
    acks: str, address: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    records = [Record(None, b"%d" % number) for number in range(20)]
    settings = Settings(idempotent=False, extra={"acks": acks})
    CLIENTS[0].produce(address, topic, records, settings)
    assert CLIENTS[1].consume(address, topic, 20) == records
