"""Readers of a data directory that is not theirs: nothing here writes."""
