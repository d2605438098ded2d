"""The state with which a mirror in the mode exactly-once starts: the positions up to which it has
copied, the partitions to read, and problems that prevent the start.

The positions in the map topic are compared with both clusters. A topic that was deleted, created
again or truncated on either side is a problem, because its positions no longer mean the same
records. A topic of the target with records that the mirror has not written is also a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from odradek_client.admin import Admin
from odradek_client.admin.topics import TopicDescription
from odradek_client.errors import OdradekError, Refused, UnknownTopicOrPartition
from odradek_client.structs import TopicPartition
from odradek_mirror.batches import copy_batches
from odradek_mirror.map_topic import MapTopicUnfit, check_map_topic, read_map
from odradek_mirror.offset_map import MapDamaged, PartitionMap
from odradek_mirror.plan import leaders_of
from odradek_mirror.source import SourceReader

#: The maximum number of problems in the text of an error.
_PROBLEMS_MAX = 10
_POLL_MS = 500.0
#: The maximum number of polls of the target in a row without records. After them, the read fails.
_POLLS_WITHOUT_NEWS_MAX = 60
_NO_ID = UUID(int=0)


class MirrorRefused(Refused):
    """The error of a mirror that cannot start or continue, with the reason and the remedy."""


@dataclass(slots=True)
class StartState:
    """The maps of all copied partitions, and the ends at the source of the partitions to read.

    `problems`: the problems by topic; no partition of these topics is read. `leaderless`:
    partitions that cannot be compared yet.
    """

    maps: dict[TopicPartition, PartitionMap] = field(default_factory=dict)
    to_read: dict[TopicPartition, int] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    leaderless: set[TopicPartition] = field(default_factory=set)

    def add_problem(self, topic: str, text: str) -> None:
        """Note a problem of a topic."""
        self.problems.setdefault(topic, []).append(text)

    def refuse(self) -> None:
        """Raise MirrorRefused if there is a problem."""
        if self.problems:
            texts = [text for some in self.problems.values() for text in some]
            more = len(texts) - _PROBLEMS_MAX
            text = "; ".join(texts[:_PROBLEMS_MAX])
            raise MirrorRefused(f"{text}; and {more} more" if more > 0 else text)


async def find_state(
    source: Admin,
    target: Admin,
    maps: Mapping[TopicPartition, PartitionMap],
    topics: Iterable[str],
    target_topic: Callable[[str], str],
    *,
    skip_deleted: bool,
    given_up: Container[TopicPartition] = (),
    planned: bool = False,
    seen: Mapping[TopicPartition, int] | None = None,
) -> StartState:
    """Compare the maps with both clusters. `topics`: the topics to copy. `given_up`: partitions
    that are skipped. `planned`: topics and partitions that the target lacks are no problem, because
    they will be created, and records of open transactions at the target are ignored. `seen`: if
    another instance may be copying, the ends of the target's partitions before the maps were read.

    Raises transient errors of either cluster.
    """
    state = StartState(dict(maps))
    names = sorted(set(topics))
    there = await source.describe_topics(names, raise_errors=False)
    here = await target.describe_topics(map(target_topic, names), raise_errors=False)
    for error in (*there.errors.values(), *here.errors.values()):
        if error.retriable and not isinstance(error, UnknownTopicOrPartition):
            raise error
    pairs: dict[TopicPartition, TopicPartition] = {}
    for name in names:
        copy = target_topic(name)
        copied = any(tp.topic == name for tp in maps)
        if name not in there:
            why = _reason(there.errors.get(name))
            state.add_problem(name, f"the source has no topic {name!r}{why}")
        elif copy in here:
            pairs |= _pairs(state, there[name], here[copy], given_up, planned=planned)
        elif why := _reason(here.errors.get(copy)):
            state.add_problem(name, f"the target does not describe topic {copy!r}{why}")
        elif copied:
            state.add_problem(
                name,
                f"topic {copy!r} of the target is gone, of which the mirror has positions: it was"
                " deleted. Copy it with another --name",
            )
        elif not planned:
            state.add_problem(name, f"the target has no topic {copy!r}")
    await _compare_offsets(
        source, target, state, pairs, skip_deleted=skip_deleted, planned=planned, seen=seen
    )
    for tp in list(state.to_read):
        if tp.topic in state.problems:
            del state.to_read[tp]
    return state


async def planned_problems(
    source: Admin, target: Admin, name: str, topics: Iterable[str], *, skip_deleted: bool
) -> list[str]:
    """The problems that a start of the mirror would find. Changes nothing."""
    names = sorted(set(topics))
    here = await target.describe_topics(names, raise_errors=False)
    # Another instance may be copying. Records that it writes after these ends are ignored.
    seen = await _offsets(target, leaders_of(here.values()), "latest", read_committed=True)
    try:
        there = await check_map_topic(target, name)
        maps = (await read_map(target, name)).partitions if there else {}
        state = await find_state(
            source, target, maps, names, str, skip_deleted=skip_deleted, planned=True, seen=seen
        )
    except (MapDamaged, MapTopicUnfit, MirrorRefused) as error:
        return [str(error)]
    return [text for some in state.problems.values() for text in some]


def _reason(error: OdradekError | None) -> str:
    return "" if error is None or isinstance(error, UnknownTopicOrPartition) else f" ({error})"


def _pairs(
    state: StartState,
    there: TopicDescription,
    here: TopicDescription,
    given_up: Container[TopicPartition],
    *,
    planned: bool,
) -> dict[TopicPartition, TopicPartition]:
    """The partition of the target for each partition of a topic. Adds an empty map to `state` for
    partitions that have none."""
    count = len(there.partitions)
    if len(here.partitions) < count and not planned:
        state.add_problem(
            there.name,
            f"topic {here.name!r} of the target has {len(here.partitions)} partitions, and the"
            f" source has {count}; add partitions",
        )
        return {}
    led = leaders_of([there]).keys() & {
        TopicPartition(there.name, tp.partition) for tp in leaders_of([here])
    }
    source_id, target_id = UUID(bytes=bytes(there.topic_id)), UUID(bytes=bytes(here.topic_id))
    pairs = {}
    for number in range(min(count, len(here.partitions))):
        tp = TopicPartition(there.name, number)
        if tp in given_up:
            continue
        if tp not in led:
            state.leaderless.add(tp)
            continue
        pairs[tp] = TopicPartition(here.name, number)
        found = state.maps.get(tp)
        if found is None:
            continue
        position = found.position
        for side, was, now in (
            ("source", position.source_topic_id, source_id),
            ("target", position.target_topic_id, target_id),
        ):
            if was != now and _NO_ID not in (was, now):
                state.add_problem(
                    there.name,
                    f"topic {there.name!r} was deleted at the {side} and created again since it was"
                    " copied, so its positions mean other records; delete the copy at the target,"
                    " and copy the topic with another --name",
                )
                return {}
    for tp in pairs:
        if tp not in state.maps:
            # `_compare_offsets` sets the first offset.
            state.maps[tp] = PartitionMap(0, source_id, target_id)
    return pairs


async def _compare_offsets(
    source: Admin,
    target: Admin,
    state: StartState,
    pairs: Mapping[TopicPartition, TopicPartition],
    *,
    skip_deleted: bool,
    planned: bool,
    seen: Mapping[TopicPartition, int] | None,
) -> None:
    starts = await _offsets(source, pairs, "earliest")
    ends = await _offsets(source, pairs, "latest")
    copy_starts = await _offsets(target, pairs.values(), "earliest")
    copy_ends = await _offsets(target, pairs.values(), "latest", read_committed=planned)
    topics = {copy: tp.topic for tp, copy in pairs.items()}
    if seen is None:
        seen = copy_ends
    by_others = {}
    for tp, copy in pairs.items():
        found = state.maps[tp]
        name = f"{tp.topic}-{tp.partition}"
        position = found.position
        state.to_read[tp] = ends[tp]
        if _is_new(found):
            state.maps[tp] = PartitionMap(starts[tp], *position[2:])
            if seen.get(copy, 0) > copy_starts[copy]:
                by_others[copy] = copy_starts[copy], seen[copy]
        elif position.next > ends[tp]:
            state.add_problem(
                tp.topic,
                f"{name} of the source ends at offset {ends[tp]}, and was copied up to"
                f" {position.next}: the source has lost records, and offsets mean other ones",
            )
        elif position.next < starts[tp] and found.run_count and not skip_deleted:
            state.add_problem(
                tp.topic,
                f"{name} of the source begins at offset {starts[tp]}, and was copied up to"
                f" {position.next}: the records in between were deleted before they were copied."
                " To go on without them, order that deleted records are skipped (--skip-deleted)",
            )
        elif position.target_end > copy_ends[copy]:
            state.add_problem(
                tp.topic,
                f"{name} of the target ends at offset {copy_ends[copy]}, and had records up to"
                f" {position.target_end}: the target has lost records",
            )
        elif seen.get(copy, 0) > position.target_end:
            # The records after the map's position. Usually only the marker of the mirror's last
            # transaction is there.
            first = max(position.target_end, copy_starts[copy])
            by_others[copy] = first, seen[copy]
    for copy in await _with_records(target, by_others):
        state.add_problem(
            topics[copy],
            f"{copy.topic}-{copy.partition} of the target has records that this mirror has not"
            " written; delete the topic there, or leave it out with --exclude",
        )


def _is_new(found: PartitionMap) -> bool:
    return found.position.next == 0 and not found.run_count and found.position.target_end == -1


async def _offsets(
    admin: Admin, partitions: Iterable[TopicPartition], where: str, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    wanted = dict.fromkeys(partitions, where)
    if not wanted:
        return {}
    found = await admin.list_offsets(
        wanted,  # type: ignore[arg-type]
        read_committed=read_committed,
    )
    return {tp: place.offset for tp, place in found.items() if place is not None}


async def _with_records(
    target: Admin, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> list[TopicPartition]:
    """The partitions with a committed record in these bounds. Records of aborted transactions are
    ignored, because an instance that was killed before its first commit leaves such records."""
    found = []
    reader = SourceReader(target, read_committed=True)
    for tp, (start, _) in bounds.items():
        reader.assign(tp, start)
    silent = 0
    try:
        while positions := reader.positions:
            for tp, offset in positions.items():
                if offset >= bounds[tp][1]:
                    reader.unassign(tp)
            if not reader.positions:
                break
            fetched = await reader.poll(_POLL_MS)
            silent = 0 if fetched else silent + 1
            if silent > _POLLS_WITHOUT_NEWS_MAX:
                names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in reader.positions)
                raise MirrorRefused(
                    f"{names} of the target cannot be read to the end: another producer has an open"
                    " transaction there, or the target does not answer"
                )
            for piece in fetched:
                if copy_batches(piece.records, piece.fetch_offset, piece.aborted).record_count:
                    found.append(piece.tp)
                    reader.unassign(piece.tp)
    finally:
        await reader.close()
    return found
