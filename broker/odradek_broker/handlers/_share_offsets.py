"""The words for errors in changes and descriptions of start offsets of share groups."""

from __future__ import annotations

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
    """The message of an answer: the given one, or the one for the error; None for success."""
    if message is not None or not error:
        return message
    code = ErrorCode.of(error)
    return _TEXTS.get(code, f"The request failed with {code.name}.")
