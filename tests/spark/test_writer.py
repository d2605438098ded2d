"""A task that writes, while its broker has faults, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from odradek import NewTopic, sync
from odradek.broker import SubprocessBroker
from odradek_client.network.metadata import MetadataUpdater
from pyspark_odradek.errors import SinkError
from pyspark_odradek.options import parse_sink
from pyspark_odradek.writer import CHUNKS_MAX, BatchJobWriter, WrittenRows

ROWS = 200
SCHEMA = StructType([StructField("value", BinaryType())])


def writer(broker: SubprocessBroker, topic: str, **options: str) -> BatchJobWriter:
    dotted = {name.replace("__", "."): value for name, value in options.items()}
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    return BatchJobWriter(parse_sink(given | dotted), SCHEMA)


def batch(number: int) -> Any:
    return pa.record_batch({"value": [b"%d" % (number * ROWS + row) for row in range(ROWS)]})


def values(broker: SubprocessBroker, topic: str) -> list[int]:
    """Read all values of partition 0 with librdkafka."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "check", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[int] = []
    try:
        while (message := consumer.poll(20)) is not None and message.error() is None:
            found.append(int(message.value() or b""))
    finally:
        consumer.close()
    return found


def test_all_rows_are_acknowledged_and_counted(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    count = CHUNKS_MAX * 2 + 3
    written = writer(odradek_broker, unique_topic).write(iter([batch(n) for n in range(count)]))
    assert written.rows == count * ROWS
    assert written.value_bytes > 0
    assert values(odradek_broker, unique_topic) == list(range(count * ROWS))


def test_a_write_survives_a_broker_restart_without_loss_or_repetition(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    def batches() -> Iterator[Any]:
        for number in range(20):
            if number == 10:
                odradek_broker.kill()
                odradek_broker.start()
            yield batch(number)

    assert writer(odradek_broker, unique_topic).write(batches()).rows == 20 * ROWS
    assert values(odradek_broker, unique_topic) == list(range(20 * ROWS))


def test_a_task_without_acknowledgements_fails_and_can_be_repeated(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    limits = {
        "kafka__delivery__timeout__ms": "1200",
        "kafka__request__timeout__ms": "1000",
        "kafka__max__block__ms": "1000",
    }
    attempt = writer(odradek_broker, unique_topic, **limits)

    def batches() -> Iterator[Any]:
        yield batch(0)
        odradek_broker.kill()
        yield batch(1)

    with pytest.raises(SinkError, match="could not be written"):
        attempt.write(batches())
    odradek_broker.start()
    assert attempt.write(iter([batch(0), batch(1)])).rows == 2 * ROWS
    assert set(values(odradek_broker, unique_topic)) == set(range(2 * ROWS))


def test_a_write_fails_in_time_if_no_broker_is_reachable(unique_topic: str) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "800"}
    nowhere = BatchJobWriter(parse_sink(options | {"topic": unique_topic}), SCHEMA)
    with pytest.raises(SinkError, match=r"127\.0\.0\.1:1"):
        nowhere.write(iter([batch(0)]))


def test_commit_and_abort_accept_sparks_messages(
    odradek_broker: SubprocessBroker, unique_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark passes None for tasks that did not succeed."""
    made = writer(odradek_broker, unique_topic)
    made.commit([WrittenRows(3, 10), WrittenRows(4, 20)])
    made.abort([WrittenRows(3, 10), None])
    assert "at least 3 records" in caplog.text


def test_an_unwritable_row_is_named_by_number_and_column(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    )
    fields = [StructField("value", BinaryType()), StructField("headers", headers)]
    given = {"kafka.bootstrap.servers": odradek_broker.bootstrap, "topic": unique_topic}
    with_headers = BatchJobWriter(parse_sink(given), StructType(fields))
    column = pa.array([[], [{"key": None, "value": b"1"}]], pa.list_(header))
    rows = pa.record_batch({"value": pa.array([b"a", b"b"]), "headers": column})
    with pytest.raises(SinkError, match="row 1, column headers: a header has no key"):
        with_headers.write(iter([rows]))
    too_large = pa.record_batch({"value": [b"small", b"x" * 5000]})
    with pytest.raises(
        SinkError, match=r"row 1 takes .* by max_request_size.* kafka\.max\.request\.size"
    ):
        writer(odradek_broker, unique_topic, kafka__max__request__size="4000").write(
            iter([too_large])
        )
    with pytest.raises(
        SinkError, match="row 0, column partition: the topic has the partitions 0 to 0, not 7"
    ):
        fields = [StructField("value", BinaryType()), StructField("partition", IntegerType())]
        place = pa.array([7], pa.int32())
        BatchJobWriter(parse_sink(given), StructType(fields)).write(
            iter([pa.record_batch({"value": [b"a"], "partition": place})])
        )
    assert values(odradek_broker, unique_topic) == []


def test_the_topics_of_a_batch_are_requested_together(
    odradek_broker: SubprocessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    ask = MetadataUpdater._ask_metadata

    async def counted(self: MetadataUpdater) -> Any:
        nonlocal asked
        # Requests by clients of other tests, whose brokers have stopped, are not counted.
        asked += ",".join(self._config.bootstrap_servers) == odradek_broker.bootstrap
        return await ask(self)

    names = [f"together-{number}" for number in range(100)]
    with sync.Admin(bootstrap_servers=odradek_broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1) for name in names])
    given = {"kafka.bootstrap.servers": odradek_broker.bootstrap}
    fields = [StructField("topic", StringType()), StructField("value", BinaryType())]
    made = BatchJobWriter(parse_sink(given), StructType(fields))
    monkeypatch.setattr(MetadataUpdater, "_ask_metadata", counted)
    rows = pa.record_batch({"topic": names, "value": [name.encode() for name in names]})
    assert made.write(iter([rows, rows])).rows == 200
    # Metadata are requested once for the topics, and perhaps again for topics missing in the first
    # response.
    assert asked <= 4


@pytest.mark.full
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_all_rows_are_written_in_order_with_every_compression(
    odradek_broker: SubprocessBroker, unique_topic: str, compression: str
) -> None:
    made = writer(odradek_broker, unique_topic, kafka__compression__type=compression)
    assert made.write(iter([batch(n) for n in range(50)])).rows == 50 * ROWS
    assert values(odradek_broker, unique_topic) == list(range(50 * ROWS))
