"""The share partitions of a group whose states exist, are being made or are being deleted (rules
H-20 to H-27).

Before a partition can be assigned, the share coordinator must have its state. The group coordinator
records the partition as initializing, has the share coordinator make the state, and records the
partition as initialized. To delete states, the group coordinator records their topic as deleting,
and removes the topic from the record when the states are deleted. Each step is durable before the
next one begins, so that after a crash the record shows which work has to be done again. The
functions change no state: they return the `StatePartitions` to record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from odradek_broker.coordinator.groups.partitions import (
    Partitions,
    difference,
    intersection,
    union,
)
from odradek_broker.coordinator.groups.settings import CoordinatorMetadata
from odradek_broker.coordinator.groups.share.group import (
    ShareGroup,
    StatePartitions,
    StateTopic,
    StateTopics,
    partitions_in,
)
from odradek_broker.coordinator.groups.uses import Uses
from odradek_broker.slices import in_pieces, in_sorted_order
from odradek_protocol.lazy_tuple import NamedTuple

#: The time after which states that are still recorded as initializing are requested again (H-22).
INITIALIZE_RETRY_MS = 30_000


class Initialization(NamedTuple):
    """States that the share coordinator is to make. `offsets`: (topic id, index) -> start offset,
    -1 if the leader of the partition has to determine it. `asked_at`: the group's `changes` before
    the states are recorded as initializing."""

    group_id: str
    asked_at: int
    state_epoch: int
    offsets: Mapping[tuple[bytes, int], int]


async def without_state(
    group: ShareGroup, names: Collection[str], topics: CoordinatorMetadata, monotonic_ms: int
) -> dict[bytes, StateTopic]:
    """The partitions of subscribed topics whose states neither exist nor are being made, and the
    partitions for which a request to make the state has failed or has lasted for
    `INITIALIZE_RETRY_MS` (H-21 to H-23)."""
    states = group.states or StatePartitions()
    known = partitions_in(states.initialized)
    if monotonic_ms - group.states_changed_ms < INITIALIZE_RETRY_MS:
        known = union(known, difference(partitions_in(states.initializing), group.unmade))
    found: dict[bytes, StateTopic] = {}
    async for some in in_pieces(await in_sorted_order(names)):
        for name in some:
            count = topics.partition_count(name)
            topic_id = topics.topic_id(name) if count else b""
            missing = frozenset(range(count)) - known.get(topic_id, frozenset())
            if missing:
                found[topic_id] = StateTopic(name, missing)
    return found


def added_partitions(before: StatePartitions | None, missing: StateTopics) -> Partitions:
    """The partitions in `missing` that were added to a topic after the group had noted others of
    its partitions. What is written before their first fetch belongs to the group (KAFKA-20742)."""
    if before is None:
        return {}
    # If the first request for a topic failed, its partitions are requested again as before.
    first = {
        topic_id: topic.partitions
        for topic_id, topic in before.initializing.items()
        if topic_id not in before.initialized
    }
    known = before.initialized.keys() | before.initializing.keys()
    return difference(
        {each: topic.partitions for each, topic in missing.items() if each in known}, first
    )


def is_assignment_pending(group: ShareGroup) -> bool:
    """True if, for a subscribed topic, the partitions in the targets of the members are not exactly
    the partitions with a state (H-07)."""
    if group.states is None or not group.members:
        return False
    nobody: Uses[int] = Uses()
    return any(
        topic.name in group.subscribers
        and group.assigned.get(topic_id, nobody).keys() != topic.partitions
        for topic_id, topic in group.states.initialized.items()
    )


def _combined(first: StateTopics, second: StateTopics) -> dict[bytes, StateTopic]:
    """The topics of `first` and `second` with the partitions of both. The name of a topic that is
    in both is taken from `second`."""
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
    """`before` with these states recorded as initializing (H-21). Their topics are no longer
    recorded as deleting."""
    if before is None:
        return StatePartitions(added)
    merged = _combined(before.initializing, added)
    deleting = {
        topic_id: name for topic_id, name in before.deleting.items() if topic_id not in merged
    }
    return replace(before, initializing=merged, deleting=deleting)


def initialized(
    before: StatePartitions, partitions: Partitions, topics: CoordinatorMetadata
) -> StatePartitions:
    """`before` with the states of these partitions recorded as initialized (H-23). States that are
    no longer recorded as initializing, or whose topics no longer exist, are ignored."""
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
    """The states to record when the states of these partitions could not be made (H-23). A
    partition whose state existed before the request is no longer recorded as initializing. Any
    other partition still is, because its state perhaps exists."""
    noted = intersection(partitions, partitions_in(before.initialized))
    return replace(before, initializing=_less(before.initializing, noted))


def deleting_all(
    before: StatePartitions, topics: CoordinatorMetadata
) -> tuple[StatePartitions, dict[bytes, StateTopic]]:
    """The `StatePartitions` in which all states of a group are being deleted, and the partitions
    whose states are to be deleted (H-26). If an earlier deletion of a topic's states was not
    completed, the states of all its partitions are to be deleted."""
    doomed = _combined(before.initialized, before.initializing)
    for topic_id in before.deleting:
        name = topics.topic_name(topic_id)
        if name is not None:
            whole = StateTopic(name, frozenset(range(topics.partition_count(name))))
            doomed = _combined(doomed, {topic_id: whole})
    return StatePartitions(deleting={each: topic.name for each, topic in doomed.items()}), doomed


def deleting(before: StatePartitions, topic_ids: Collection[bytes]) -> StatePartitions:
    """`before` with the initialized states of these topics recorded as deleting (H-26)."""
    gone = {each: topic.name for each, topic in before.initialized.items() if each in topic_ids}
    left = {each: topic for each, topic in before.initialized.items() if each not in topic_ids}
    return replace(before, initialized=left, deleting={**before.deleting, **gone})


def deleted(before: StatePartitions, topic_ids: Collection[bytes]) -> StatePartitions:
    """`before` without the topics whose states were being deleted and are deleted now (H-26)."""
    left = {each: name for each, name in before.deleting.items() if each not in topic_ids}
    return replace(before, deleting=left)


def without_topics(before: StatePartitions, gone: Collection[bytes]) -> StatePartitions:
    """`before` without topics that were deleted (H-27). The share coordinator deletes their states
    without a request."""
    return StatePartitions(
        {each: topic for each, topic in before.initializing.items() if each not in gone},
        {each: topic for each, topic in before.initialized.items() if each not in gone},
        {each: name for each, name in before.deleting.items() if each not in gone},
    )
