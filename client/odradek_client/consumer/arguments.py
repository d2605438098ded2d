"""Partitions and offsets in the forms that the methods of the consumer accept."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_client.structs import OffsetAndMetadata, TopicPartition

Partition = TopicPartition | tuple[str, int]
Offset = OffsetAndMetadata | int


def as_partition(given: Partition) -> TopicPartition:
    """The partition in an argument. Raises TypeError for any other argument."""
    try:
        topic, number = given
    except (TypeError, ValueError):
        topic = number = None  # type: ignore[assignment]
    if not isinstance(topic, str) or not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(
            f'a partition is a (topic, number) pair, as in ("orders", 0), not {given!r}'
        )
    return TopicPartition(topic, number)


def as_offset(given: Offset) -> OffsetAndMetadata:
    """The offset in an argument. Raises TypeError for any other argument."""
    at = OffsetAndMetadata(given) if isinstance(given, int) else given
    if not isinstance(at, OffsetAndMetadata):
        raise TypeError(f"an offset is a number or an OffsetAndMetadata, not {given!r}")
    return at


def as_offsets(
    offsets: Mapping[Partition, Offset] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """The offsets by partition, with the errors of `as_partition` and `as_offset`; None stays
    None."""
    if offsets is None:
        return None
    return {as_partition(partition): as_offset(at) for partition, at in offsets.items()}
