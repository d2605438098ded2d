"""Quix Streams counts words exactly once, in two runs of the application. Arguments: HOST:PORT
NAME."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer
from quixstreams import Application

from checks import check, each_once

COUNT = 200
KEYS = 4


def run(bootstrap: str, name: str) -> None:
    """Run the application until no records have arrived for 15 s."""
    application = Application(
        broker_address=bootstrap,
        consumer_group=f"{name}-group",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=f"state-{name}",
    )
    words = application.topic(f"{name}-words", value_deserializer="str")
    counts = application.topic(f"{name}-counts", value_serializer="str")

    def counted(value: str, state: Any) -> str:
        number = state.get("count", 0) + 1
        state.set("count", number)
        return str(number)

    application.dataframe(words).apply(counted, stateful=True).to_topic(counts)
    application.run(timeout=15)


def produce(bootstrap: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(f"{name}-words", "w", key=f"k{number % KEYS}")
    producer.flush(60)


def read(bootstrap: str, name: str, count: int) -> list[tuple[str, int]]:
    """Read the committed counts."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{name}-reader-{count}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([f"{name}-counts"])
    found: list[tuple[str, int]] = []
    while len(found) < count and (message := consumer.poll(30)) is not None:
        if message.error() is None:
            found.append(((message.key() or b"").decode(), int(message.value() or b"0")))
    consumer.close()
    return found


def main() -> int:
    bootstrap, name = sys.argv[1:]
    for turn in (1, 2):
        produce(bootstrap, name)
        run(bootstrap, name)
        expected = [
            (f"k{key}", number)
            for key in range(KEYS)
            for number in range(1, turn * COUNT // KEYS + 1)
        ]
        found = read(bootstrap, name, len(expected))
        check(f"run {turn}: each count is there once", partial(each_once, found, expected))
    return 0


if __name__ == "__main__":
    sys.exit(main())
