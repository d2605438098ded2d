"""The identity of a topic in the offsets of a stream. It shows that a topic was deleted and created
again while the query was stopped.

Beside {"flights": {"0": 23}} the JSON has {"flights:<topic id>:<cluster id>": {}}. No topic has a
colon in its name, and Spark's own `kafka` format, for which this is a topic without partitions,
ignores it. The topic id is written as by Kafka's tools. The cluster id is there because a query may
continue in a mirror of its topic, which has another id; identities of two clusters say nothing.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Mapping

from odradek_protocol.primitives import ZERO_UUID, uuid_text

_SEPARATOR = ":"


def identity(topic_id: bytes, cluster_id: str | None) -> str:
    """The identity of a topic; "" if the brokers have no ids."""
    if topic_id == ZERO_UUID or not cluster_id:
        return ""
    return f"{uuid_text(topic_id)}{_SEPARATOR}{cluster_id}"


def is_another(known: str, found: str) -> bool:
    """True if both are identities in the same cluster, of two topics."""
    return _cluster(known) == _cluster(found) != "" and known != found


def planned_id(known: str, found: str) -> bytes | None:
    """The topic id in `known`, an identity from a checkpoint; None if `found` is of another
    cluster."""
    if not known or _cluster(known) != _cluster(found):
        return None
    text = known.partition(_SEPARATOR)[0]
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def key(topic: str, of_topic: str) -> str:
    """The key in the JSON."""
    return f"{topic}{_SEPARATOR}{of_topic}"


def identities(offsets: object) -> dict[str, str]:
    """The identity of each topic in the JSON of offsets that has one."""
    if not isinstance(offsets, Mapping):
        return {}
    parts = (str(name).partition(_SEPARATOR) for name in offsets)
    return {topic: of_topic for topic, separator, of_topic in parts if separator}


def _cluster(of_topic: str) -> str:
    return of_topic.partition(_SEPARATOR)[2]
