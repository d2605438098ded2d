"""Readers of a broker's data directory, for `odradek log`. Nothing here writes."""
