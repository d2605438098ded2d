"""Partition logs: segments, indexes, recovery, retention, durability."""
