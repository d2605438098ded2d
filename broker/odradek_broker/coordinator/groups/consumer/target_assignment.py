"""The target assignment of a group, computed by its assignor (rules G-102, G-142)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from odradek_broker.coordinator.groups.consumer.assignors import ASSIGNORS, Subscriber
from odradek_broker.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    TopicMetadata,
)
from odradek_broker.coordinator.groups.consumer.partitions import Partitions
from odradek_broker.coordinator.groups.consumer.settings import ConsumerGroupSettings


def choose_assignor(members: Mapping[str, ConsumerMember], config: ConsumerGroupSettings) -> str:
    """The assignor that most members ask for; if none does, the first that the broker offers (G-142)."""
    offered = assignor_names(config)
    votes = Counter(member.assignor for member in members.values() if member.assignor in offered)
    best = min(votes, key=lambda name: (-votes[name], offered.index(str(name))), default=None)
    return best or offered[0]


def assignor_names(config: ConsumerGroupSettings) -> list[str]:
    """The names in `group.consumer.assignors`, where Kafka's class names may stand too."""
    return [assignor_name(text) for text in config.group_consumer_assignors]


def assignor_name(text: str) -> str:
    """`org.apache...UniformAssignor` is `uniform`."""
    return text.rpartition(".")[2].removesuffix("Assignor").lower()


def compute_target_assignment(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    current: Mapping[str, Partitions],
    topics: Mapping[str, TopicMetadata],
    patterns: Mapping[str, frozenset[str]],
    config: ConsumerGroupSettings,
) -> dict[str, Partitions]:
    """A target for each of `members`, which are those that the group will have.

    `current`: their targets so far. `topics` and `patterns`: what they are subscribed to.
    """
    subscribers = [
        Subscriber(
            member_id=member_id,
            instance_id=member.instance_id,
            topics=frozenset(
                topics[name].topic_id for name in group.names_of(member, patterns) if name in topics
            ),
            current=current[member_id],
        )
        for member_id, member in members.items()
    ]
    assignor = ASSIGNORS[choose_assignor(members, config)]
    return assignor(subscribers, {topic.topic_id: topic.partitions for topic in topics.values()})
