"""Compaction of logs: the last record of each key stays (rules L-23 to L-29)."""
