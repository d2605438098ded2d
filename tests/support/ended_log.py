"""The part of a log that verdicts about groups read, with offsets that a test chooses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode


def ended_log(end: int | None, stable: int | None = None) -> Any:
    """A log that ends at this offset, and whose batches cannot be looked up; None without an end.
    `stable`: the last stable offset, by default the end."""
    if end is None:
        return None

    def unread_batch(offset: int) -> Any:
        raise StorageError(ErrorCode.OFFSET_NOT_AVAILABLE, "no batches")

    return SimpleNamespace(
        high_watermark=end,
        last_stable_offset=end if stable is None else stable,
        log_start_offset=0,
        loaded=True,
        unread_batch=unread_batch,
    )
