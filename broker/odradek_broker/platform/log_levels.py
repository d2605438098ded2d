"""The levels of the loggers of this process, which can be changed while it runs; a restart forgets
the changes."""

from __future__ import annotations

import logging
from collections.abc import Collection

import structlog

from odradek_broker.platform.loggers import LEVELS, LOGGERS, ROOT


class ProcessLogLevels:
    """The levels of the loggers of this process. `begin` is called when its log lines are set
    up."""

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
        """Lines that no logger lets through are dropped first, at next to no cost: some are for
        every transaction."""
        numbers = [logging.getLogger().level]
        numbers += [logging.getLogger(name).level or numbers[0] for name in self._names()]
        lowest = max(min(numbers), logging.DEBUG)
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(lowest))


def _name(logger: logging.Logger) -> str:
    number = logger.getEffectiveLevel()
    return max((each, name) for name, each in LEVELS.items() if each <= number or name == "TRACE")[
        1
    ]


#: The levels of all loggers, shared by the process as loggers are.
PROCESS_LOG_LEVELS = ProcessLogLevels()
