"""librdkafka with room for one record in its queue gets an immediate response to each fetch of
available records.

librdkafka's own test 0127 requires each record within 30 ms of `fetch.queue.backoff.ms`. It
measures time, so it fails on a busy machine with any broker. This test counts fetches instead. Here
`fetch.wait.max.ms` is five minutes, so that the reader would time out if the broker held back a
fetch; a response without a complete record would cause an additional fetch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from broker_process import BrokerProcess
from broker_proxy import BrokerProxy
from foreign_clients import CLIENTS, DEADLINE_S, Record, Settings
from foreign_topics import create_topic
from odradek_protocol.keys import ApiKey

RECORDS = 20
READ = 10
#: One record fits into a response; two records do not.
RECORD_BYTES, ANSWER_BYTES = 10_000, 12_000
#: The maximum of librdkafka for `fetch.wait.max.ms`.
WAIT_MS = 300_000


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[BrokerProxy]:
    """A proxy, through which all clients reach the broker."""
    proxy = BrokerProxy()
    settings = [f"advertised.listeners=PLAINTEXT://{proxy.address}", "log.retention.ms=-1"]
    broker = BrokerProcess(tmp_path, settings)
    broker.start()
    proxy.port = broker.port
    yield proxy
    proxy.close()
    broker.stop()


@pytest.mark.full
@pytest.mark.parametrize("backoff_ms", [100, 10, 0])
def test_f01_no_fetch_waits_while_there_are_records(proxy: BrokerProxy, backoff_ms: int) -> None:
    """The scenario is that of librdkafka's test 0127, but the test counts fetches."""
    create_topic(proxy.address, "t")
    records = [Record(None, b"%02d" % n + bytes(RECORD_BYTES - 2)) for n in range(RECORDS)]
    settings = Settings(linger_ms=0, extra={"batch.num.messages": 1})
    CLIENTS[0].produce(proxy.address, "t", records, settings)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": proxy.address,
            "group.id": "g",
            "enable.auto.commit": False,
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": backoff_ms,
            "fetch.message.max.bytes": ANSWER_BYTES,
            "fetch.wait.max.ms": WAIT_MS,
            "socket.timeout.ms": WAIT_MS,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        for number in range(READ):
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"record {number} has not come"
            assert message.error() is None, message.error()
            assert message.offset() == number
        answered = [each.response for each in proxy.of(ApiKey.FETCH) if each.response_frame]
    finally:
        consumer.close()
    assert READ <= len(answered) <= RECORDS
    for response in answered:
        (part,) = response.responses[0].partitions
        assert RECORD_BYTES < len(bytes(part.records)) <= ANSWER_BYTES
