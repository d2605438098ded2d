"""Topics made by somebody else's admin client (librdkafka's)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import confluent_kafka.admin

_TIMEOUT_S = 30.0


def create_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    """Returns when it is there. Configs with underscores for Kafka's dots."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    topic = confluent_kafka.admin.NewTopic(  # type: ignore[attr-defined]
        name, partitions, 1, config=settings
    )
    admin.create_topics([topic])[name].result(_TIMEOUT_S)


def topic_maker(bootstrap: str) -> Callable[..., str]:
    """Creates a topic with so many partitions, under a name that it has not given before."""
    numbers = count(1)

    def create(partitions: int = 1, prefix: str = "topic", **configs: str) -> str:
        name = f"{prefix}-{next(numbers)}"
        create_topic(bootstrap, name, partitions, **configs)
        return name

    return create
