"""Limits of the log lines of libraries."""

from __future__ import annotations

import logging
import time
from typing import Any

from odradek_protocol.repeated_lines import RepeatedLines

#: The limit of lines in an interval that a library logs.
_LINES_MAX = 60


class _ForeignLines(logging.Filter):
    """Writes the lines of a library's logger to `log`, within limits."""

    def __init__(self, log: Any) -> None:
        super().__init__()
        self._lines = RepeatedLines(log, _LINES_MAX, time.monotonic)

    def filter(self, record: logging.LogRecord) -> bool:
        """Write the record, and let nobody else write it."""
        event = record.getMessage().strip()
        details = {"exc_info": record.exc_info} if record.exc_info else {}
        self._lines.say(record.levelname.lower(), event, (event,), details)
        return False


def limit_lines_of(name: str, log: Any) -> None:
    """Let `log`, a logger of structlog, write the lines of a library's logger, within limits:
    peers cause lines of asyncio. A second call for the library changes nothing."""
    logger = logging.getLogger(name)
    if not any(isinstance(each, _ForeignLines) for each in logger.filters):
        logger.addFilter(_ForeignLines(log))
