"""The errors for refused entries of admin requests, and for records that contradict the state."""

from __future__ import annotations

from odradek_protocol.errors import CodedError


class AdminError(CodedError):
    """The error for a refused entry of an admin request, with an error code and a message."""


class MetadataError(RuntimeError):
    """The error for a record that contradicts the state: the log is corrupt, or is that of another
    cluster."""
