"""The share partitions of a group that have a state, or shall have one (rules H-20 to H-27).

Before a partition can be assigned, the share coordinator must have its state. The group coordinator
notes the partition as initializing, has the share coordinator make the state, and notes it as
initialized; to delete states, it notes their topic as deleting, and forgets the topic when the
states are gone. So each step is durable before the next one begins, and a crash between them leaves
a note from which the work is done again. The functions change nothing: they return what to note.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from odradek_broker.coordinator.groups.partitions import (
    Partitions,
    difference,
    intersection,
    partitions_of,
    union,
)
from odradek_broker.coordinator.groups.settings import Topics
from odradek_broker.coordinator.groups.share.group import (
    ShareGroup,
    StatePartitions,
    StateTopic,
    StateTopics,
    partitions_in,
)
from odradek_protocol.lazy_tuple import NamedTuple

#: The time after which states that are still noted as initializing are requested again (H-22).
INITIALIZE_RETRY_MS = 30_000


class Initialization(NamedTuple):
    """States that the share coordinator is to make: (topic id, index) to the start offset, which is
    -1 for one that the leader of the partition shall find out. `asked_at`: the group's `changes`
    before the note."""

    group_id: str
    asked_at: int
    state_epoch: int
    offsets: Mapping[tuple[bytes, int], int]


def without_state(
    group: ShareGroup, names: Collection[str], topics: Topics, monotonic_ms: int
) -> dict[bytes, StateTopic]:
    """The partitions of subscribed topics that have no state and whose state is not being made; a
    state in the making counts for `INITIALIZE_RETRY_MS`, unless it could not be made (H-21 to
    H-23)."""
    states = group.states or StatePartitions()
    known = partitions_in(states.initialized)
    if monotonic_ms - group.states_changed_ms < INITIALIZE_RETRY_MS:
        known = union(known, difference(partitions_in(states.initializing), group.unmade))
    found: dict[bytes, StateTopic] = {}
    for name in sorted(names):
        count = topics.partition_count(name)
        topic_id = topics.topic_id(name) if count else b""
        missing = frozenset(range(count)) - known.get(topic_id, frozenset())
        if missing:
            found[topic_id] = StateTopic(name, missing)
    return found


def is_assignment_pending(group: ShareGroup) -> bool:
    """True if a subscribed topic has partitions with a state that nobody has as a target, or the
    other way round (H-07)."""
    if group.states is None or not group.members:
        return False
    assigned = partitions_of(pair for target in group.targets.values() for pair in target.items())
    names = group.subscribed_names
    return any(
        topic.name in names and assigned.get(topic_id, frozenset()) != topic.partitions
        for topic_id, topic in group.states.initialized.items()
    )


def _combined(first: StateTopics, second: StateTopics) -> dict[bytes, StateTopic]:
    """The topics of both with the partitions of both; names are those of the second."""
    combined = dict(first)
    for topic_id, topic in second.items():
        before = first.get(topic_id)
        both = topic.partitions | (before.partitions if before else frozenset())
        combined[topic_id] = StateTopic(topic.name, both)
    return combined


def _less(topics: StateTopics, partitions: Partitions) -> dict[bytes, StateTopic]:
    """The topics without these partitions; a topic without any partition is left out."""
    left = {
        topic_id: topic._replace(
            partitions=topic.partitions - partitions.get(topic_id, frozenset())
        )
        for topic_id, topic in topics.items()
    }
    return {topic_id: topic for topic_id, topic in left.items() if topic.partitions}


def initializing(before: StatePartitions | None, added: StateTopics) -> StatePartitions:
    """The note that states are being made (H-21). A topic that was being deleted is not any
    more."""
    if before is None:
        return StatePartitions(added)
    merged = _combined(before.initializing, added)
    deleting = {
        topic_id: name for topic_id, name in before.deleting.items() if topic_id not in merged
    }
    return replace(before, initializing=merged, deleting=deleting)


def initialized(before: StatePartitions, partitions: Partitions, topics: Topics) -> StatePartitions:
    """The note that states exist (H-23), except those that are not noted as initializing any more,
    and those of topics that were deleted meanwhile."""
    made = {
        topic_id: StateTopic(name, indexes & before.initializing[topic_id].partitions)
        for topic_id, indexes in partitions.items()
        if topic_id in before.initializing and (name := topics.topic_name(topic_id)) is not None
    }
    return replace(
        before,
        initializing=_less(before.initializing, partitions),
        initialized=_combined(before.initialized, made),
    )


def not_initialized(before: StatePartitions, partitions: Partitions) -> StatePartitions:
    """The note that states could not be made (H-23). They stay noted as initializing, because some
    may exist, except those that existed before."""
    noted = intersection(partitions, partitions_in(before.initialized))
    return replace(before, initializing=_less(before.initializing, noted))


def deleting_all(
    before: StatePartitions, topics: Topics
) -> tuple[StatePartitions, dict[bytes, StateTopic]]:
    """The note that all states of a group are being deleted, and the states (H-26). Topics whose
    earlier deletion did not end are deleted with all their partitions."""
    doomed = _combined(before.initialized, before.initializing)
    for topic_id in before.deleting:
        name = topics.topic_name(topic_id)
        if name is not None:
            whole = StateTopic(name, frozenset(range(topics.partition_count(name))))
            doomed = _combined(doomed, {topic_id: whole})
    return StatePartitions(deleting={each: topic.name for each, topic in doomed.items()}), doomed


def deleting(before: StatePartitions, topic_ids: Collection[bytes]) -> StatePartitions:
    """The note that the states of these topics are being deleted (H-26)."""
    gone = {each: topic.name for each, topic in before.initialized.items() if each in topic_ids}
    left = {each: topic for each, topic in before.initialized.items() if each not in topic_ids}
    return replace(before, initialized=left, deleting={**before.deleting, **gone})


def deleted(before: StatePartitions, topic_ids: Collection[bytes]) -> StatePartitions:
    """The note that the states of these topics are gone (H-26)."""
    left = {each: name for each, name in before.deleting.items() if each not in topic_ids}
    return replace(before, deleting=left)


def without_topics(before: StatePartitions, gone: Collection[bytes]) -> StatePartitions:
    """The note without topics that were deleted (H-27), whose states the share coordinator deletes
    by itself."""
    return StatePartitions(
        {each: topic for each, topic in before.initializing.items() if each not in gone},
        {each: topic for each, topic in before.initialized.items() if each not in gone},
        {each: name for each, name in before.deleting.items() if each not in gone},
    )
