"""The names of topics and partitions."""

from __future__ import annotations

import re

TopicPartition = tuple[str, int]
"""A topic's name and the index of one of its partitions."""

#: The limit of the length of a topic's name.
TOPIC_NAME_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str:
    """The reason why a text cannot be the name of a topic; "" if it can."""
    if not name:
        return "the name is empty"
    if name in (".", ".."):
        return "it cannot be '.' or '..'"
    if len(name) > TOPIC_NAME_MAX:
        return f"it is longer than {TOPIC_NAME_MAX} characters"
    if not _LEGAL_NAME.fullmatch(name):
        return "only ASCII letters, digits, '.', '_' and '-' may be used"
    return ""
