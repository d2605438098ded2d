"""The name of a partition, as everything in the broker uses it."""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""A topic's name and the index of one of its partitions."""
