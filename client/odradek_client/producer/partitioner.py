"""The choice of a record's partition (C-18), and the queues of each topic's partitions.

The partition of a record with a key is chosen by murmur2, as in the Java client, so that clients of
all languages agree. Records without a key are sent to one partition until they have the size of a
batch, then to another partition. Partitions with shorter queues are chosen more often (KIP-794).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from odradek_client.backoff import Random
from odradek_client.config.producer import ProducerConfig
from odradek_client.network.cluster import ClusterView
from odradek_client.producer.accumulator import Accumulator, PartitionQueue
from odradek_client.structs import TopicPartition
from odradek_protocol.murmur2 import positive_murmur2

_CACHED_KEYS = 8192
_CACHED_KEY_BYTES = 64


@lru_cache(maxsize=_CACHED_KEYS)
def _hash_of_short_key(key: bytes) -> int:
    return positive_murmur2(key)


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`."""
    if len(key) > _CACHED_KEY_BYTES:
        return positive_murmur2(key) % partitions
    return _hash_of_short_key(key) % partitions


def next_sticky(candidates: Sequence[int], queue_lengths: Sequence[int], random: Random) -> int:
    """Choose a partition at random out of `candidates`; a longer queue makes the choice of its
    partition less likely.

    `queue_lengths`: the numbers of waiting batches, in the order of `candidates`. Even the
    partition with the longest queue may be chosen.
    """
    if len(candidates) == 1:
        return candidates[0]
    longest = max(queue_lengths) + 1
    point = random.random() * sum(longest - length for length in queue_lengths)
    for candidate, length in zip(candidates, queue_lengths, strict=True):
        point -= longest - length
        if point < 0:
            return candidate
    return candidates[-1]


class TopicQueues:
    """The queues of a topic's partitions, with the partition of the next record without a key."""

    __slots__ = ("available", "name", "next_partition", "queues", "sticky", "sticky_from")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.available: list[int] = []
        self.sticky: PartitionQueue | None = None
        self.sticky_from = 0
        self.next_partition = 0


class Partitioner:
    """Chooses the partitions of records. `topics` has the queues of all topics with records; the
    producer reads it directly."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: ClusterView,
        accumulator: Accumulator,
        topics: dict[str, TopicQueues],
        random: Random,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._topics = topics
        self._random = random
        self._choice = config.partitioner

    def known(self, topic: str, now_ms: float) -> TopicQueues | None:
        """The queues of a topic, created from its metadata; None if the metadata is not known.
        Known metadata is kept fresh for metadata_max_idle_ms."""
        state = self._topics.get(topic)
        cluster = self._cluster
        if topic in cluster.topics:
            until_ms = now_ms + self._config.metadata_max_idle_ms
            cluster.want([topic], until_ms=until_ms)
            if state is None:
                state = TopicQueues(topic)
                self._refresh(state)
                self._topics[topic] = state
        return state

    @property
    def decides_by_itself(self) -> bool:
        """True if the default partitioner is used, in which the hash of a key alone determines the
        partition."""
        return self._choice == "default"

    def choose(
        self, state: TopicQueues, key: bytes | None, value: bytes | None, partition: int | None
    ) -> PartitionQueue:
        """The queue of a record for which the fast path of `send` has found no open batch with
        room."""
        queues = state.queues
        if partition is not None:
            if not 0 <= partition < len(queues):
                raise ValueError(
                    f"topic {state.name!r} has the partitions 0 to {len(queues) - 1}, not {partition!r}"
                )
            return queues[partition]
        if callable(self._choice):
            chosen = self._choice(state.name, key, len(queues))
            if not isinstance(chosen, int) or not 0 <= chosen < len(queues):
                raise ValueError(
                    f"the partitioner chose {chosen!r}; topic {state.name!r} has the partitions 0 "
                    f"to {len(queues) - 1}"
                )
            return queues[chosen]
        if self._choice == "round_robin":
            candidates = state.available or range(len(queues))
            chosen = candidates[state.next_partition % len(candidates)]
            state.next_partition += 1
            return queues[chosen]
        if key is not None:
            return queues[partition_for_key(bytes(key), len(queues))]
        return self._choose_sticky(state)

    def metadata_changed(self) -> None:
        """Follow the partitions and leaders of the topics; drop deleted topics."""
        for name, state in list(self._topics.items()):
            if name in self._cluster.topics:
                self._refresh(state)
            else:
                del self._topics[name]

    def _choose_sticky(self, state: TopicQueues) -> PartitionQueue:
        """Keep the sticky partition until its records have the size of a batch, then choose another
        partition (C-18)."""
        sticky = state.sticky
        # If the open batch has no room for this record, it counts as a full batch.
        if (
            sticky is not None
            and sticky.open is None
            and sticky.closed_bytes - state.sticky_from < self._config.batch_size
        ):
            return sticky
        candidates = state.available or list(range(len(state.queues)))
        lengths = self._accumulator.queue_lengths(state.queues[c].tp for c in candidates)
        chosen = state.queues[next_sticky(candidates, lengths, self._random)]
        state.sticky = chosen
        state.sticky_from = chosen.closed_bytes
        return chosen

    def _refresh(self, state: TopicQueues) -> None:
        info = self._cluster.topics[state.name]
        count = max(info.partitions, default=-1) + 1
        state.queues = [
            self._accumulator.queue(TopicPartition(state.name, index)) for index in range(count)
        ]
        state.available = [
            index for index, part in sorted(info.partitions.items()) if part.leader is not None
        ]
        sticky = state.sticky
        if sticky is not None and sticky.tp.partition not in state.available:
            state.sticky = None
