"""A broker of another project: the mock cluster of librdkafka."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest


@pytest.fixture(scope="module")
def mock() -> Iterator[str]:
    """The addresses of the mock cluster's three nodes."""
    held = confluent_kafka.Producer(
        {"test.mock.num.brokers": 3, "log_level": 0, "bootstrap.servers": ""}
    )
    yield ",".join(f"{b.host}:{b.port}" for b in held.list_topics(timeout=10).brokers.values())
    held.flush(1)
