"""The leader of a partition, in the form of Metadata and DescribeTopicPartitions."""

from __future__ import annotations

from odradek_broker.handlers._parts import PartitionAndMetadataParts
from odradek_broker.metadata.cluster import Topic
from odradek_protocol.constants import NO_NODE_ID
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple


class Leadership(NamedTuple):
    """The leader of a partition and the ids of its nodes. `error` is NONE if there is a leader."""

    error: ErrorCode
    leader: int
    isr: list[int]
    offline: list[int]


def partition_leadership(node: PartitionAndMetadataParts, topic: Topic, index: int) -> Leadership:
    """The leader of an existing partition. After an error of its disk a partition has no leader
    (D5), because there is no other replica."""
    state = topic.partitions[index]
    partition = node.partition(topic.name, index)
    if partition is None or partition.log.offline:
        return Leadership(ErrorCode.LEADER_NOT_AVAILABLE, NO_NODE_ID, [], list(state.replicas))
    return Leadership(ErrorCode.NONE, state.leader, list(state.isr), [])


def missing_partition(node: PartitionAndMetadataParts, name: str, index: int) -> str | None:
    """The message about a partition that does not exist; None if the partition exists.

    The message does not repeat the topic's name, because a request may have many partitions of a
    topic with a long name.
    """
    if name not in node.metadata.topics:
        return "There is no such topic."
    if node.metadata.leader_of(name, index) is None:
        return f"The topic has no partition {index}."
    return None
