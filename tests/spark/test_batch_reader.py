"""A task that reads one range of offsets, while its broker and topic have faults, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from odradek.broker import SubprocessBroker
from pyspark_odradek import blocking
from pyspark_odradek.batch_reader import BatchReader, RangePartition
from pyspark_odradek.errors import DataLoss, SourceError
from pyspark_odradek.options import parse_source
from pyspark_odradek.schema import row_schema

RECORDS = 400


def fill(broker: SubprocessBroker, topic: str) -> None:
    """Write batches of ten records. A fetch of 1000 bytes returns only a few of the records."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "batch.num.messages": 10, "linger.ms": 50}
    )
    for n in range(RECORDS):
        producer.produce(topic, b"%0200d" % n)
    assert producer.flush(20) == 0


def read(broker: SubprocessBroker, topic: str, **options: str) -> Iterator[Any]:
    """Read the only planned range by many small fetches. Yields Arrow batches."""
    given = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.max.partition.fetch.bytes": "1000",
        "subscribe": topic,
    }
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    reader = BatchReader(parse_source(given | dotted), row_schema(False))
    (partition,) = reader.partitions()
    assert isinstance(partition, RangePartition)
    return reader.read(partition)


def offsets(batches: Iterator[Any]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def delete(broker: SubprocessBroker, topic: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(20)


@pytest.mark.full
def test_a_read_survives_a_restart_of_its_broker(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    fill(odradek_broker, unique_topic)
    batches = read(odradek_broker, unique_topic)
    begun = offsets(iter([next(batches)]))
    odradek_broker.kill()
    odradek_broker.start()
    assert begun + offsets(batches) == list(range(RECORDS))


@pytest.mark.full
def test_a_read_fails_in_time_if_its_broker_does_not_return(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    fill(odradek_broker, unique_topic)
    batches = read(odradek_broker, unique_topic, kafkaConsumer__pollTimeoutMs="1000")
    next(batches)
    odradek_broker.kill()
    with pytest.raises(SourceError, match=r"within 1000 ms, up to 400 were planned"):
        offsets(batches)


@pytest.mark.full
def test_a_topic_deleted_during_a_read_is_data_loss(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    fill(odradek_broker, unique_topic)
    strict = read(odradek_broker, unique_topic)
    lenient = read(odradek_broker, unique_topic, failOnDataLoss="false")
    next(strict), next(lenient)
    delete(odradek_broker, unique_topic)
    with pytest.raises(DataLoss, match="was deleted, or its topic was created again"):
        offsets(strict)
    assert len(offsets(lenient)) < RECORDS


def test_a_topic_recreated_during_a_read_is_data_loss(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    fill(odradek_broker, unique_topic)
    batches = read(odradek_broker, unique_topic)
    next(batches)
    delete(odradek_broker, unique_topic)
    fill(odradek_broker, unique_topic)
    with pytest.raises(DataLoss, match="created again"):
        offsets(batches)


def test_an_abandoned_read_does_not_block_the_next_read(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    fill(odradek_broker, unique_topic)
    batches = read(odradek_broker, unique_topic)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert offsets(read(odradek_broker, unique_topic)) == list(range(RECORDS))


def test_clients_are_shared_and_their_number_is_limited(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    fill(odradek_broker, unique_topic)
    here = blocking.shared()
    for number in range(blocking.POOL_CLIENTS_MAX + 2):
        name = {"kafka__client__id": f"c{number % blocking.POOL_CLIENTS_MAX}"}
        before = len(here.networks)
        assert len(offsets(read(odradek_broker, unique_topic, **name))) == RECORDS
        assert len(here.networks) <= blocking.POOL_CLIENTS_MAX
        if number >= blocking.POOL_CLIENTS_MAX:
            assert len(here.networks) == before
    assert blocking.shared() is here
