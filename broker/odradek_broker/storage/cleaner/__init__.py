"""Compaction of logs: of each key the last record stays (rules L-23 to L-29)."""
