"""Topologies of streams groups, and the tasks and internal topics of each (J-21 to J-25)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from at_once import at_once
from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.streams.topology import (
    ConfiguredTopology,
    StreamsStatusCode,
    TopicProblem,
    configure,
    topology_of,
)
from odradek_protocol.common_structs import CopartitionGroup, StreamsSubtopology
from odradek_protocol.errors import ErrorCode
from streams_group_world import internal, subtopology, topology

S = StreamsStatusCode
TOPICS = {"two": 2, "also-two": 2, "three": 3}


def configured(*parts: StreamsSubtopology, **topics: int) -> ConfiguredTopology:
    made = topology_of(topology(*parts, epoch=5))
    return at_once(configure(made, lambda name: {**TOPICS, **topics}.get(name, 0)))


def counts(made: ConfiguredTopology) -> dict[str, int]:
    return {name: topic.partitions for name, topic in made.missing.items()}


def together(sources: list[int], repartitioned: list[int]) -> CopartitionGroup:
    return CopartitionGroup(source_topics=sources, repartition_source_topics=repartitioned)


def test_j22_missing_source_topics_are_named() -> None:
    made = configured(subtopology(sources=["two", "e", "d", "c", "b", "a"]))
    detail = "Source topics a, b, c and 2 additional topics are missing."
    assert made.problem == TopicProblem(S.MISSING_SOURCE_TOPICS, detail)
    assert not made.is_ready and not made.subtopologies and made.epoch == 5


def test_a_subtopology_has_a_task_for_each_partition_of_its_largest_input() -> None:
    made = configured(subtopology(sources=["two", "three"]))
    assert made.is_ready and made.subtopologies["0"].tasks == 3


def test_j23_internal_topics_get_their_partition_counts_from_the_inputs() -> None:
    made = configured(
        subtopology("0", ["two"], sinks=["r"]),
        subtopology(
            "1", [], repartitioned=[internal("r")], changelogs=[internal("c")], sinks=["s"]
        ),
        subtopology("2", ["three"], repartitioned=[internal("s")], changelogs=[internal("d")]),
    )
    assert counts(made) == {"r": 2, "c": 2, "s": 2, "d": 3}
    assert made.problem is not None
    assert made.problem.status is S.MISSING_INTERNAL_TOPICS
    assert made.problem.detail == "Internal topics are missing: c, d, r and 1 additional topics"


def test_j23_the_first_writer_with_a_known_input_decides_about_a_repartition_topic() -> None:
    made = configured(
        subtopology("0", ["two"], sinks=["r"]),
        subtopology("1", ["three"], sinks=["r"]),
        subtopology("2", [], repartitioned=[internal("r")], sinks=["r"]),
    )
    assert counts(made) == {"r": 2}


def test_j23_an_application_may_set_the_partition_count_of_an_internal_topic() -> None:
    made = configured(
        subtopology("0", ["two"], sinks=["r"]),
        subtopology("1", [], repartitioned=[internal("r", 7)], changelogs=[internal("c")]),
    )
    assert counts(made) == {"r": 7, "c": 7}


def test_j23_copartitioned_repartition_topics_get_the_count_of_the_sources() -> None:
    made = configured(
        subtopology("0", ["two"], sinks=["r"]),
        subtopology("1", ["three"], repartitioned=[internal("r")], together=[together([0], [0])]),
    )
    assert counts(made) == {"r": 3}


def test_j23_copartitioned_repartition_topics_get_the_largest_count() -> None:
    made = configured(
        subtopology("0", ["two"], sinks=["r"]),
        subtopology("1", ["three"], sinks=["s"]),
        subtopology(
            "2", [], repartitioned=[internal("r"), internal("s")], together=[together([], [0, 1])]
        ),
    )
    assert counts(made) == {"r": 3, "s": 3}


@pytest.mark.parametrize(
    ("parts", "detail"),
    [
        (
            [subtopology(sources=["two", "three"], together=[together([0, 1], [])])],
            "Following topics do not have the same number of partitions: [{three=3, two=2}]",
        ),
        (
            [
                subtopology("0", ["two"], sinks=["r"]),
                subtopology(
                    "1", ["two"], repartitioned=[internal("r", 3)], together=[together([0], [0])]
                ),
            ],
            (
                "Number of partitions [3] of repartition topic [r] doesn't match number of"
                " partitions [2] of the source topic."
            ),
        ),
        (
            [
                subtopology(
                    "0",
                    ["two"],
                    sinks=["r", "s"],
                    repartitioned=[internal("r", 3), internal("s", 4)],
                    together=[together([], [0, 1])],
                )
            ],
            "Following topics do not have the same number of partitions: [{r=3, s=4}]",
        ),
        (
            [subtopology(sources=["two"], changelogs=[internal("three")])],
            "Existing topic three has different number of partitions: expected 2, found 3",
        ),
    ],
)
def test_j23_topics_with_different_partition_counts_are_reported(
    parts: list[StreamsSubtopology], detail: str
) -> None:
    made = configured(*parts)
    assert made.problem == TopicProblem(S.INCORRECTLY_PARTITIONED_TOPICS, detail)
    assert not made.missing


def test_existing_internal_topics_are_not_missing() -> None:
    made = configured(subtopology(sources=["two"], changelogs=[internal("also-two")]))
    assert made.is_ready and not made.missing
    assert made.subtopologies["0"].is_stateful


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            [subtopology(sources=["two"], repartitioned=[internal("r")])],
            "a repartition source topic is never used as a sink topic",
        ),
        (
            [subtopology(sources=[], repartitioned=[internal("r")], sinks=["r"])],
            "There may be loops in the topology",
        ),
        ([subtopology("7", sources=[])], "No source topics found for subtopology 7"),
        (
            [subtopology(sources=["two"], together=[together([1], [])])],
            "the topic 1 of 1; the first is 0",
        ),
        (
            [subtopology(sources=["two"], together=[together([], [-1])])],
            "the topic -1 of 0; the first is 0",
        ),
    ],
)
def test_j25_an_inconsistent_topology_is_refused(
    parts: list[StreamsSubtopology], message: str
) -> None:
    with pytest.raises(Refusal) as refusal:
        configured(*parts)
    assert refusal.value.error is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert message in refusal.value.message


@given(st.lists(st.tuples(*[st.sets(st.integers(0, 9), max_size=3)] * 2), max_size=10))
@settings(max_examples=budget.examples(300))
def test_j23_repartition_topics_are_counted_in_the_order_of_passes_over_all_sinks(
    parts: list[tuple[set[int], set[int]]],
) -> None:
    """A sink gets the largest partition count of its inputs. Inputs whose count is not yet known
    are ignored, as in Kafka."""
    sources = {at: [["two"], ["three"], []][at % 3] for at in range(len(parts))}
    made = [
        subtopology(
            str(at),
            sources[at],
            sinks=[f"r{each}" for each in sorted(sinks)],
            repartitioned=[internal(f"r{each}") for each in sorted(inputs)],
        )
        for at, (inputs, sinks) in enumerate(parts)
    ]
    counted: dict[str, int] = {}
    writers = [(f"r{each}", at) for at, (_, sinks) in enumerate(parts) for each in sorted(sinks)]
    written = {sink for sink, _ in writers}
    before = -1
    while len(counted) > before:
        before = len(counted)
        for sink, at in writers:
            known = [counted.get(f"r{each}", 0) for each in parts[at][0]]
            found = max([*known, *(TOPICS[name] for name in sources[at])], default=0)
            if sink not in counted and found:
                counted[sink] = found
    read = {f"r{each}" for inputs, _ in parts for each in inputs}
    sound = (
        counted.keys() == written
        and read <= written
        and all(sources[at] or inputs for at, (inputs, _) in enumerate(parts))
    )
    if sound:
        assert counts(configured(*made)) == {name: counted[name] for name in read}
    else:
        with pytest.raises(Refusal):
            configured(*made)


@pytest.mark.full
def test_j23_a_long_chain_of_repartition_topics_is_counted_in_linear_work() -> None:
    length = 9_000
    chain = [
        subtopology(
            str(at), [] if at else ["two"], sinks=[f"r{at}"], repartitioned=[internal(f"r{at - 1}")]
        )
        for at in reversed(range(1, length))
    ]
    first = subtopology("0", ["two"], sinks=["r0"])
    asked: list[str] = []
    made = topology_of(topology(*chain, first))

    def partition_count(name: str) -> int:
        asked.append(name)
        return TOPICS.get(name, 0)

    assert set(counts(at_once(configure(made, partition_count))).values()) == {2}
    assert len(asked) < 10 * length


def test_j23_many_copartition_groups_are_counted_in_linear_work() -> None:
    names = [f"r{at}" for at in range(2_000)]
    asked: list[str] = []
    made = topology_of(
        topology(
            subtopology(
                "0",
                ["two"],
                sinks=names,
                repartitioned=[internal(name, 2) for name in names],
                together=[together([], [at]) for at in range(len(names))],
            )
        )
    )

    def partition_count(name: str) -> int:
        asked.append(name)
        return TOPICS.get(name, 0)

    assert set(counts(at_once(configure(made, partition_count))).values()) == {2}
    assert len(asked) < 10 * len(names)


def test_j23_many_sinks_of_many_sources_are_counted_in_linear_work() -> None:
    names = [f"r{at}" for at in range(300)]
    asked: list[str] = []
    made = topology_of(
        topology(
            subtopology(
                "0",
                ["two"] * len(names),
                sinks=names,
                repartitioned=[internal(name) for name in names],
            )
        )
    )

    def partition_count(name: str) -> int:
        asked.append(name)
        return TOPICS.get(name, 0)

    assert set(counts(at_once(configure(made, partition_count))).values()) == {2}
    assert len(asked) < 20 * len(names)


def test_j25_a_topology_of_too_many_tasks_is_refused() -> None:
    many = [subtopology(str(at), ["wide"]) for at in range(200)]
    assert configured(*many, wide=100).is_ready
    with pytest.raises(Refusal, match="20002 tasks") as refused:
        configured(*many, subtopology("last", ["two"]), wide=100)
    assert refused.value.error is ErrorCode.STREAMS_INVALID_TOPOLOGY
