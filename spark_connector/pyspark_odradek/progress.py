"""The offsets of a stream: their form in Spark's checkpoint, and the end of the next batch.

The JSON is that of Spark's own `kafka` format, {"topic": {"0": 23}}: the next offset to read; and
each topic's identity (see `topic_identity`). A partition that appears while the query runs is added
to the checkpoint with its first offset and no rows, and is read from the next batch on. So both
ends of every range are in the checkpoint, and a repeated batch has the offsets of the first
attempt, even if retention has moved the log's start since then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_odradek.admission import BatchLimits, MinimumGate, grant
from pyspark_odradek.errors import SourceError
from pyspark_odradek.planning import OffsetRange, Partition
from pyspark_odradek.topic_identity import key

#: {topic: {partition: offset}}, the form of Spark.
OffsetJson = dict[str, dict[str, int]]
Offsets = dict[Partition, int]

_SHOWN = 5


def to_json(
    offsets: Mapping[Partition, int], topic_ids: Mapping[str, str] | None = None
) -> OffsetJson:
    """The JSON, in the order of topics and partitions, so that equal offsets are equal texts.
    `topic_ids`: the identities of the topics."""
    found: OffsetJson = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.number)] = offsets[partition]
    ids = {each: topic_ids[each] for each in found if topic_ids.get(each)} if topic_ids else {}
    return found | {key(topic, of_topic): {} for topic, of_topic in ids.items()}


def from_json(text: object) -> Offsets:
    """The offsets. SourceError for JSON of another form, because then another format has
    written the checkpoint."""
    found: Offsets = {}
    try:
        assert isinstance(text, dict)
        for topic, numbers in text.items():
            for number, offset in numbers.items():
                if type(offset) is not int:
                    raise TypeError
                found[Partition(topic, int(number))] = offset
    except (AssertionError, AttributeError, TypeError, ValueError):
        raise SourceError(
            f"odradek: the checkpoint holds {text!r} for this source, which are no offsets of Kafka "
            'like {"topic": {"0": 23}}. It is the checkpoint of another query: give this one an own '
            "checkpointLocation"
        ) from None
    return found


@dataclass(frozen=True)
class Survey:
    """The present state of the cluster. `ends`: the end of every subscribed partition; `first`: the
    log start offsets of new partitions; `recreated`: the partitions whose topic was deleted and
    created again."""

    ends: Mapping[Partition, int]
    first: Mapping[Partition, int] = field(default_factory=dict)
    recreated: frozenset[Partition] = frozenset()


@dataclass(frozen=True)
class NextBatch:
    """The end of the next batch, and sentences about suspected losses of records."""

    end: Offsets
    lost: tuple[str, ...] = ()


def waiting(start: Mapping[Partition, int], survey: Survey) -> Offsets:
    """The number of available offsets in each partition; 0 if the log ends before `start`."""
    return {
        partition: max(end - start.get(partition, survey.first.get(partition, end)), 0)
        for partition, end in survey.ends.items()
    }


def next_step(
    start: Mapping[Partition, int],
    survey: Survey,
    limits: BatchLimits,
    bytes_per_offset: Mapping[Partition, float] | None = None,
) -> NextBatch:
    """The end of the batch that begins at `start`.

    A log that ends before `start` was truncated; the log of a recreated topic is read from its
    beginning.
    """
    known = {each: count for each, count in waiting(start, survey).items() if each in start}
    lost = []
    for partition in sorted(survey.recreated & start.keys()):
        lost.append(f"the topic of {partition} was deleted and created again")
        known.pop(partition, None)
    granted = grant(known, limits, bytes_per_offset)
    end = {}
    for partition, last in survey.ends.items():
        if partition in survey.recreated or partition not in start:
            end[partition] = first = survey.first.get(partition, 0)
            if partition not in start and first > 0:
                lost.append(f"{partition} is new and its log starts at {first}, not at 0")
        elif last < start[partition]:
            end[partition] = last
            lost.append(
                f"{partition} was read up to {start[partition]} already, and now ends at {last}"
            )
        else:
            end[partition] = start[partition] + granted[partition]
    gone = sorted(start.keys() - survey.ends.keys())
    if gone:
        names = ", ".join(map(str, gone[:_SHOWN])) + (", ..." if len(gone) > _SHOWN else "")
        lost.append(f"{names} is not there any more, or not subscribed to")
    return NextBatch(end, tuple(lost))


def must_wait(
    start: Mapping[Partition, int], survey: Survey, gate: MinimumGate, now_ms: float
) -> bool:
    """True if the batch waits for more records (`minOffsetsPerTrigger`).

    A batch that reports a loss is never delayed, because a later survey may not show the loss: the
    topic's new id is known by then, or the truncated log has grown again.
    """
    if next_step(start, survey, BatchLimits()).lost:
        return False
    return gate.holds(sum(waiting(start, survey).values()), now_ms)


def ranges(start: Mapping[Partition, int], end: Mapping[Partition, int]) -> list[OffsetRange]:
    """The ranges that a batch reads, sorted by partition. The result depends only on the arguments.

    A partition whose end is below its start has no range. The next batch reads the partition from
    this lower offset on.
    """
    return [
        OffsetRange(partition, start[partition], last)
        for partition, last in sorted(end.items())
        if partition in start and start[partition] < last
    ]
