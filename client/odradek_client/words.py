"""Numbers with their nouns, in messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """The number with its noun: "1 record", "2 records"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
