"""All records of a topic, as a reader finds them at the end."""

from __future__ import annotations

from odradek_client.consumer.consumer import Consumer
from odradek_client.structs import TopicPartition


async def read_all(
    bootstrap: str, topic: str, partitions: int, *, committed: bool = False
) -> dict[str, list[tuple[int, bytes]]]:
    """(offset, value) of every record, by `topic-partition`, oldest first.

    `committed`: read_committed, up to the last stable offset.
    """
    found: dict[str, list[tuple[int, bytes]]] = {}
    async with Consumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed" if committed else "read_uncommitted",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        places = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(*places)
        for place in places:
            found[f"{place.topic}-{place.partition}"] = []
        while any([await consumer.position(place) < ends[place] for place in places]):
            for record in await consumer.poll(timeout_ms=1_000):
                value = record.value or b""
                found[f"{record.topic}-{record.partition}"].append((record.offset, value))
    return found
