"""The loggers of the broker and their levels, which can be changed while it runs; a restart forgets the changes.

Levels have Kafka's names. TRACE lets everything through, as DEBUG does: no line is less important than that.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

import structlog

#: As in Kafka, the logger above all others.
ROOT = "root"
#: The level of Python's that a level of Kafka's stands for.
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
#: The loggers of the broker. They are there before they have written a line.
LOGGERS = (
    "odradek",
    *(
        f"odradek.{name}"
        for name in (
            *("admin", "authorizer", "config", "dispatch", "faults", "groups", "http"),
            *("peers", "sasl", "server", "session", "tls", "transactions"),
        )
    ),
)


class LogLevels(Protocol):
    """The levels of loggers."""

    @property
    def changeable(self) -> bool:
        """Whether the log lines are this broker's own, and not those of a program that it runs in."""
        ...

    def levels(self) -> dict[str, str]:
        """The level in force of each logger, by name."""
        ...

    def set_level(self, name: str, level: str | None) -> None:
        """Give a logger a level of `LEVELS`; None: that of the logger above. KeyError for an unknown one."""
        ...


class ProcessLogLevels:
    """The levels of the loggers of this process. `begin` is called when its log lines are set up."""

    def __init__(self) -> None:
        self.changeable = False

    def begin(self, level: int) -> None:
        """Every logger at the level of the root."""
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
        """Lines that no logger lets through are dropped first, at next to no cost: some are for every transaction."""
        numbers = [logging.getLogger().level]
        numbers += [logging.getLogger(name).level or numbers[0] for name in self._names()]
        lowest = max(min(numbers), logging.DEBUG)
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(lowest))


def _name(logger: logging.Logger) -> str:
    number = logger.getEffectiveLevel()
    return max((each, name) for name, each in LEVELS.items() if each <= number or name == "TRACE")[
        1
    ]


#: Those of the process that the broker runs in.
PROCESS_LOG_LEVELS = ProcessLogLevels()
