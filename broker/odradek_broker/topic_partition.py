"""One partition of a topic, as everything in the broker names it."""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""A topic's name and the index of one of its partitions."""
