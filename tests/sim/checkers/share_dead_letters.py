"""Dead letters of a share group: a rejected record has one, an accepted record has none, and any
other record has at most one."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.sim.checkers.share_deliveries import ACCEPT, REJECT, Place, ShareDeliveries

from odradek_client.consumer.consumer import Consumer
from odradek_client.structs import TopicPartition

#: The topic id, the partition and the offset of a record that has a dead letter.
Named = tuple[bytes, int, int]

_HEADERS = "__dlq.odradek.topic.id", "__dlq.errors.partition", "__dlq.errors.offset"


async def read_dead_letters(bootstrap: str, topic: str, partitions: int) -> list[Named]:
    """The records named by the dead letters of a topic, in the order of the dead letters."""
    found: list[Named] = []
    async with Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        places = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(*places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for record in await consumer.poll(timeout_ms=1_000):
                of = dict(record.headers)
                topic_id, index, offset = (of[each] or b"" for each in _HEADERS)
                found.append((urlsafe_b64decode(topic_id + b"=="), int(index), int(offset)))
    return found


def check_dead_letters(
    letters: Iterable[Named],
    place: Place,
    offsets: Iterable[int],
    deliveries: ShareDeliveries,
) -> Iterator[str]:
    """Check the dead letters of a partition of a topic.

    After each reset of a share partition, a record may get one more dead letter. `offsets`: the
    offsets of the records that are still in the partition's log.
    """
    counts = Counter(
        offset for topic_id, index, offset in letters if (topic_id, index) == tuple(place)
    )
    lives = deliveries.life(place).number
    for offset, count in counts.items():
        if count > lives:
            yield f"{place}, offset {offset} has {count} dead letters"
        record = deliveries.of(place, offset)
        if lives == 1 and record.confirmed == ACCEPT and record.in_time:
            yield f"{place}, offset {offset} has a dead letter after a confirmed accept"
    for offset in offsets:
        record = deliveries.of(place, offset)
        if record.confirmed == REJECT and record.in_time and not counts[offset]:
            yield f"{place}, offset {offset} has no dead letter after a confirmed reject"
