"""The topology of a streams group. The internal topics, their numbers of partitions and the tasks
follow from the topology and the cluster's topics (rules J-20 to J-25).

Source topics are created by the users of the application. Repartition topics are written by one
subtopology and read by another. Changelog topics keep the state of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain

from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.slices import in_pieces, paced, pause_in_change
from odradek_protocol.common_structs import InternalTopicInfo, StreamsSubtopology
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.schemas.streams_group_heartbeat import StreamsTopology
from odradek_protocol.stored.streams_group import StreamsGroupTopologyValue


class StreamsStatusCode(IntEnum):
    """The codes of the statuses in answers to heartbeats."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Topology(NamedTuple):
    """The topology of a group, with its subtopologies by id."""

    epoch: int
    subtopologies: Mapping[str, StreamsSubtopology]

    @property
    def required_topics(self) -> frozenset[str]:
        """The source and changelog topics, which the tasks read and write."""
        changelogs = {
            topic.name
            for each in self.subtopologies.values()
            for topic in each.state_changelog_topics
        }
        return self.input_topics | changelogs

    @property
    def input_topics(self) -> frozenset[str]:
        parts = self.subtopologies.values()
        return frozenset(
            [
                *[name for each in parts for name in each.source_topics],
                *[topic.name for each in parts for topic in each.repartition_source_topics],
            ]
        )

    async def is_same(self, other: Topology) -> bool:
        if self.epoch != other.epoch or self.subtopologies.keys() != other.subtopologies.keys():
            return False
        async for some in in_pieces(self.subtopologies.items()):
            for each_id, each in some:
                if each != other.subtopologies[each_id]:
                    return False
        return True

    def source_of(self, topic: str) -> str | None:
        """The id of the subtopology that reads a topic."""
        found = None
        for each_id, each in self.subtopologies.items():
            repartitioned = [source.name for source in each.repartition_source_topics]
            if topic in each.source_topics or topic in repartitioned:
                found = each_id
        return found


def topology_of(value: StreamsGroupTopologyValue | StreamsTopology) -> Topology:
    """The topology in a record or a request."""
    return Topology(value.epoch, {each.subtopology_id: each for each in value.subtopologies})


async def drop_undeclared(topology: StreamsTopology) -> None:
    """Drop the tagged fields that no definition declares: a record would keep them, and a topology
    would differ by them."""
    async for each in paced(topology.subtopologies):
        topics = (*each.state_changelog_topics, *each.repartition_source_topics)
        settings = (setting for topic in topics for setting in topic.topic_configs)
        async for part in paced(chain([each], topics, settings, each.copartition_groups)):
            part.unknown_tags = None


class TopicProblem(NamedTuple):
    """The reason why the tasks of a topology cannot run with the existing topics."""

    status: StreamsStatusCode
    detail: str


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """An internal topic with its number of partitions. `replicas` 0: the broker decides."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology with its number of tasks."""

    tasks: int
    sources: frozenset[str]
    repartition_sinks: frozenset[str]
    repartition_sources: Mapping[str, InternalTopic]
    changelogs: Mapping[str, InternalTopic]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)

    @property
    def inputs(self) -> list[str]:
        """All topics that the tasks read."""
        return sorted({*self.sources, *self.repartition_sources})


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology, configured for the cluster's topics. `missing`: the internal topics that do not
    exist. If the tasks cannot run for another reason, `subtopologies` is empty."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)
    missing: Mapping[str, InternalTopic] = field(default_factory=dict)
    problem: TopicProblem | None = None

    @property
    def is_ready(self) -> bool:
        """True if all tasks can run."""
        return self.problem is None


class _Unusable(Exception):
    """The error for topics that do not match the topology."""

    def __init__(self, status: StreamsStatusCode, detail: str) -> None:
        super().__init__(detail)
        self.problem = TopicProblem(status, detail)


def invalid_topology(message: str) -> Refusal:
    """The refusal of a topology that no topics could satisfy (J-25)."""
    return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


async def configure(
    topology: Topology, partition_count: Callable[[str], int]
) -> ConfiguredTopology:
    """Configure the topology for the topics; `partition_count` is 0 for a missing topic.

    Raises Refusal for a topology that no topics could satisfy.
    """
    copartitioned = [
        group
        async for some in in_pieces(topology.subtopologies.values())
        for each in some
        for group in _copartition_groups(each)
    ]
    try:
        await _check_sources(topology, partition_count)
        counts = _Counts(topology, partition_count)
        await counts.set_repartition_topics()
        async for groups in in_pieces(copartitioned):
            for group in groups:
                counts.enforce_copartitioning(group)
        await counts.set_changelogs()
        await _limit_tasks(topology, counts)
        configured = {
            each_id: await _configured(topology.subtopologies[each_id], counts)
            async for ids in in_pieces(sorted(topology.subtopologies))
            for each_id in ids
        }
        missing = await _missing(configured, partition_count)
    except _Unusable as unusable:
        return ConfiguredTopology(topology.epoch, problem=unusable.problem)
    problem = None
    if missing:
        problem = TopicProblem(
            StreamsStatusCode.MISSING_INTERNAL_TOPICS,
            f"Internal topics are missing: {_summary(sorted(missing))}",
        )
    return ConfiguredTopology(topology.epoch, configured, missing, problem)


#: The most tasks of a group. Every subtopology may read the same partitions, so a small request can
#: ask for tasks by the million, which are assigned and recorded together.
_TASKS_MAX = 20_000


async def _limit_tasks(topology: Topology, counts: _Counts) -> None:
    tasks = sum([counts.tasks(each) async for each in paced(topology.subtopologies.values())])
    if tasks > _TASKS_MAX:
        raise invalid_topology(
            f"The topology has {tasks} tasks; a group of this broker has at most {_TASKS_MAX}."
        )


_SHOWN_MAX = 3


def _summary(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_MAX])
    more = len(names) - _SHOWN_MAX
    return shown if more <= 0 else f"{shown} and {more} additional topics"


async def _check_sources(topology: Topology, partition_count: Callable[[str], int]) -> None:
    names = {name for each in topology.subtopologies.values() for name in each.source_topics}
    missing = sorted(
        [name async for some in in_pieces(names) for name in some if not partition_count(name)]
    )
    if missing:
        raise _Unusable(
            StreamsStatusCode.MISSING_SOURCE_TOPICS,
            f"Source topics {_summary(missing)} are missing.",
        )


def _copartition_groups(subtopology: StreamsSubtopology) -> Iterator[frozenset[str]]:
    repartitioned = [topic.name for topic in subtopology.repartition_source_topics]
    for group in subtopology.copartition_groups:
        names = set()
        for indexes, topics in (
            (group.source_topics, subtopology.source_topics),
            (group.repartition_source_topics, repartitioned),
        ):
            for index in indexes:
                if not 0 <= index < len(topics):
                    raise invalid_topology(
                        f"A copartition group of subtopology {subtopology.subtopology_id} has the"
                        f" topic {index} of {len(topics)}; the first is 0."
                    )
                names.add(topics[index])
        yield frozenset(names)


class _Counts:
    """The numbers of partitions that existing topics have, and that internal topics will have."""

    def __init__(self, topology: Topology, partition_count: Callable[[str], int]) -> None:
        self._subtopologies = topology.subtopologies
        self._partition_count = partition_count
        self._decided: dict[str, int] = {}
        self._fixed = {
            topic.name: topic.partitions
            for each in topology.subtopologies.values()
            for topic in each.repartition_source_topics
            if topic.partitions
        }
        self._flexible = {
            topic.name
            for each in topology.subtopologies.values()
            for topic in each.repartition_source_topics
            if not topic.partitions
        }

    def of(self, name: str) -> int:
        """The number of partitions of a topic."""
        count = self._partition_count(name) or self._decided.get(name, 0)
        if not count:
            raise invalid_topology(f"The number of partitions of topic {name} cannot be found out.")
        return count

    def decided(self, topic: InternalTopicInfo) -> int:
        return topic.partitions or self._decided[topic.name]

    # --- Repartition topics ---

    async def set_repartition_topics(self) -> None:
        """Give every repartition topic as many partitions as the largest input of the subtopology
        that writes it, unless the application asks for a number. Of several writers the first one
        with a known input decides."""
        counts = dict(self._fixed)
        unknown: set[str] = set()
        sinks: list[tuple[str, str]] = []
        places: dict[str, list[int]] = {}
        async for each_id, each in paced(self._subtopologies.items()):
            async for names in in_pieces(each.repartition_sink_topics):
                for name in names:
                    if name not in counts:
                        places.setdefault(each_id, []).append(len(sinks))
                        sinks.append((name, each_id))
                        unknown.add(name)
        #: The largest known input of each writer, and the writers that read a topic.
        largest: dict[str, int] = {}
        readers: dict[str, list[str]] = {}
        async for each_id in paced(places):
            largest[each_id] = await self._largest_input(self._subtopologies[each_id], counts)
            async for sources in in_pieces(self._subtopologies[each_id].repartition_source_topics):
                for source in sources:
                    readers.setdefault(source.name, []).append(each_id)
        # Kafka repeatedly goes through all sinks. The order here is the same, but the sinks of a
        # writer are examined again only when the first of its inputs has become known.
        looks = [(1, place) for place in range(len(sinks))]
        looked = 0
        while looks:
            looked += 1
            if not looked % in_pieces.SIZE:
                await pause_in_change()
            turn, place = heappop(looks)
            sink, writer = sinks[place]
            count = largest[writer]
            if not count or sink in counts:
                continue
            counts[sink] = count
            unknown.discard(sink)
            async for ids in in_pieces(readers.get(sink, ())):
                for each_id in ids:
                    before = largest[each_id]
                    largest[each_id] = max(before, count)
                    if before:
                        continue
                    async for some in in_pieces(places[each_id]):
                        for reader in some:
                            heappush(looks, (turn + (reader <= place), reader))
        if unknown:
            raise invalid_topology(
                "Failed to compute number of partitions for all repartition topics. There may"
                " be loops in the topology that cannot be resolved."
            )
        if not counts.keys() >= self._flexible:
            raise invalid_topology(
                "Failed to compute number of partitions for all repartition topics, because a"
                " repartition source topic is never used as a sink topic."
            )
        self._decided.update(counts)

    async def _largest_input(
        self, subtopology: StreamsSubtopology, counts: Mapping[str, int]
    ) -> int:
        largest = 0
        async for topics in in_pieces(subtopology.repartition_source_topics):
            largest = max(largest, *[counts.get(topic.name, 0) for topic in topics])
        async for names in in_pieces(subtopology.source_topics):
            largest = max(largest, *map(self._partition_count, names))
        return largest

    # --- Copartitioning ---

    def enforce_copartitioning(self, names: frozenset[str]) -> None:
        """Give the repartition topics of a copartition group the number of partitions of its other
        topics, which must all have the same number."""
        if not names:
            return
        counts = {name: self.of(name) for name in sorted(names)}
        repartitioned = {
            name: count
            for name, count in counts.items()
            if name in self._fixed or name in self._flexible
        }
        if len(repartitioned) == len(counts):
            if self._fixed:
                wanted = self._agreed(self._fixed_counts, repartitioned)
            else:
                wanted = max(repartitioned.values())
        else:
            others = {name: count for name, count in counts.items() if name not in repartitioned}
            wanted = self._agreed(set(others.values()), others)
        for name, count in repartitioned.items():
            if name in self._fixed and count != wanted:
                raise _Unusable(
                    StreamsStatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{count}] of repartition topic [{name}] doesn't match"
                    f" number of partitions [{wanted}] of the source topic.",
                )
            self._decided[name] = wanted

    @cached_property
    def _fixed_counts(self) -> set[int]:
        return {self.of(name) for name in self._fixed}

    def _agreed(self, counts: Collection[int], shown: Mapping[str, int]) -> int:
        if len(counts) > 1:
            listed = ", ".join(f"{name}={count}" for name, count in sorted(shown.items()))
            raise _Unusable(
                StreamsStatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Following topics do not have the same number of partitions: [{{{listed}}}]",
            )
        return next(iter(counts))

    # --- Changelogs ---

    async def set_changelogs(self) -> None:
        """Give every changelog topic one partition for each task."""
        async for some in in_pieces(self._subtopologies.values()):
            for each in some:
                tasks = self.tasks(each)
                for topic in each.state_changelog_topics:
                    self._decided[topic.name] = tasks

    def tasks(self, subtopology: StreamsSubtopology) -> int:
        """The number of tasks of a subtopology: the partitions of its largest input."""
        inputs = [
            *subtopology.source_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
        ]
        if not inputs:
            raise invalid_topology(
                f"No source topics found for subtopology {subtopology.subtopology_id}"
            )
        return max(map(self.of, inputs))


async def _configured(subtopology: StreamsSubtopology, counts: _Counts) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        counts.tasks(subtopology),
        frozenset(subtopology.source_topics),
        frozenset(subtopology.repartition_sink_topics),
        await _internal_topics(subtopology.repartition_source_topics, counts),
        await _internal_topics(subtopology.state_changelog_topics, counts),
    )


async def _internal_topics(
    topics: Sequence[InternalTopicInfo], counts: _Counts
) -> dict[str, InternalTopic]:
    return {
        topic.name: InternalTopic(
            topic.name,
            counts.decided(topic),
            topic.replication_factor,
            {each.key: each.value for each in topic.topic_configs},
        )
        async for some in in_pieces(topics)
        for topic in some
    }


async def _missing(
    subtopologies: Mapping[str, ConfiguredSubtopology], partition_count: Callable[[str], int]
) -> dict[str, InternalTopic]:
    """The internal topics that do not exist. Raises _Unusable if an existing topic has another
    number of partitions than it should."""
    wanted = {
        name: topic
        for each in subtopologies.values()
        for name, topic in {**each.repartition_sources, **each.changelogs}.items()
    }
    missing = {}
    async for some in in_pieces(sorted(wanted)):
        for name in some:
            count, expected = partition_count(name), wanted[name].partitions
            if count and count != expected:
                raise _Unusable(
                    StreamsStatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {name} has different number of partitions: expected"
                    f" {expected}, found {count}",
                )
            if not count:
                missing[name] = wanted[name]
    return missing
