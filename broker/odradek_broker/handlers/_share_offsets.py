"""The common parts of changes and descriptions of start offsets of share groups: the messages of
errors, and the event of a change (H-244)."""

from __future__ import annotations

from typing import Protocol

from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.share.events import OffsetsReset
from odradek_broker.share.manager import SharePartitions
from odradek_broker.share_state import ShareKey
from odradek_protocol.errors import ErrorCode

_TEXTS = {
    ErrorCode.UNSUPPORTED_VERSION: "Share groups are switched off: the feature share.version is"
    " at level 0.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Not authorized to use this group.",
    ErrorCode.INVALID_GROUP_ID: "The group id must not be empty.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Not authorized to use this topic.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such topic or partition, or the group has"
    " no start offset of it.",
}


def error_text(error: int, message: str | None = None) -> str | None:
    """The message of an answer: the given message, or else a text for the error; None for
    success."""
    if message is not None or not error:
        return message
    code = ErrorCode.of(error)
    return _TEXTS.get(code, f"The request failed with {code.name}.")


class ShareOffsetParts(GroupAndMetadataParts, Protocol):
    """The groups, and the leader of their share partitions."""

    @property
    def share_partitions(self) -> SharePartitions: ...


def tell_reset(
    node: ShareOffsetParts, group_id: str, topic_id: bytes, partition: int, start_offset: int
) -> None:
    """Report that the start offset of a share partition was set, or deleted (-1)."""
    key = ShareKey(group_id, topic_id, partition)
    node.share_partitions.tell(OffsetsReset(key, start_offset))
