"""The configuration of log lines, for people or for machines.

All lines go through the handlers of the standard library, so that warnings of asyncio and of other
libraries look like the broker's lines, and a log file can be rotated.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Collection, Mapping, MutableMapping
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from typing import Any

import structlog

from odradek_broker.platform.loggers import LEVELS, LOGGERS, ROOT
from odradek_protocol.foreign_lines import limit_lines_of
from odradek_protocol.visible import visible

#: The size at which a log file is rotated, and the number of older files that are kept.
LOG_FILE_MAX_BYTES = 10 * 1024 * 1024
LOG_FILES_KEPT = 3


class _LogFile(RotatingFileHandler):
    """A log file that is rotated by its size, and that another program may move.

    If stderr is the same file, stderr is also reopened. Otherwise the output of other libraries and
    of the interpreter would go to a file that was moved or deleted.
    """

    _stderr_follows = False

    def reopen(self) -> None:
        """Continue in a file of the same name. Raises OSError if it cannot be opened; the old file
        then stays in use."""
        self.acquire()
        try:
            opened = self._open()
            old, self.stream = self.stream, opened
            if old is not None:
                old.close()
        finally:
            self.release()

    def _open(self) -> io.TextIOWrapper:
        opened = super()._open()
        with suppress(OSError, ValueError):
            fd = opened.fileno()
            stderr_fd = sys.stderr.fileno()
            if self._stderr_follows:
                os.dup2(fd, stderr_fd)
            else:
                self._stderr_follows = os.path.sameopenfile(fd, stderr_fd)
        return opened


def reopen_log_file() -> None:
    """Reopen the log file by its configured name, or create it if it is missing. Raises OSError."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _LogFile):
            handler.reopen()


def configure_logging(
    format_name: str = "auto", level: str = "info", log_file: str | None = None
) -> None:
    """Send log lines of `level` and above to stderr, or to a file that is rotated.

    `format_name`: "console", "json", or "auto" (console if stderr is a terminal, otherwise json). A
    later call replaces the configuration. Raises OSError if the file cannot be opened.
    """
    handler: logging.Handler
    if log_file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        handler = _LogFile(
            log_file, maxBytes=LOG_FILE_MAX_BYTES, backupCount=LOG_FILES_KEPT, encoding="utf-8"
        )
    terminal = log_file is None and sys.stderr.isatty()
    as_json = format_name == "json" or (format_name == "auto" and not terminal)
    shared = _shared_processors()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(as_json, colors=terminal),
            ],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    limit_lines_of("asyncio", structlog.get_logger("odradek.asyncio"))
    PROCESS_LOG_LEVELS.begin(logging.getLevelNamesMapping()[level.upper()])


def _shared_processors() -> list[Any]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _rendering(as_json: bool, *, colors: bool) -> list[Any]:
    if as_json:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [
        structlog.processors.format_exc_info,
        _visible_texts,
        structlog.dev.ConsoleRenderer(
            colors=colors,
            pad_event_to=0,
            exception_formatter=structlog.dev.plain_traceback,
        ),
    ]


def _visible_texts(_: object, __: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Escape what a terminal would act on, because clients choose names, and the texts of
    errors."""
    return {
        name: visible(value, keep="\n" if name == "exception" else "")
        if isinstance(value, str)
        else value
        if isinstance(value, int | float | None)
        else visible(repr(value))
        for name, value in fields.items()
    }


class ProcessLogLevels:
    """The levels of the loggers of this process. `begin` is called when the log lines are
    configured."""

    def __init__(self) -> None:
        self.changeable = False

    def begin(self, level: int) -> None:
        """Set every logger to the level of the root."""
        self.changeable = True
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.NOTSET)
        logging.getLogger().setLevel(level)
        self._filter()

    def levels(self) -> dict[str, str]:
        return {
            ROOT: _name(logging.getLogger()),
            **{name: _name(logging.getLogger(name)) for name in self._names()},
        }

    def set_level(self, name: str, level: str | None) -> None:
        if name != ROOT and name not in self._names():
            raise KeyError(name)
        logger = logging.getLogger(None if name == ROOT else name)
        logger.setLevel(logging.NOTSET if level is None else LEVELS[level])
        self._filter()

    @staticmethod
    def _names() -> Collection[str]:
        known = logging.Logger.manager.loggerDict
        return [name for name in known if isinstance(known[name], logging.Logger)]

    def _filter(self) -> None:
        """Make structlog drop a line before any processing if the line is below the levels of all
        loggers, because some lines are made for every transaction."""
        numbers = [logging.getLogger().level]
        numbers += [logging.getLogger(name).level or numbers[0] for name in self._names()]
        lowest = max(min(numbers), logging.DEBUG)
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(lowest))


def _name(logger: logging.Logger) -> str:
    number = logger.getEffectiveLevel()
    return max((each, name) for name, each in LEVELS.items() if each <= number or name == "TRACE")[
        1
    ]


#: The levels of all loggers of the process.
PROCESS_LOG_LEVELS = ProcessLogLevels()
