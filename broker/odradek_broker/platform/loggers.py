"""The loggers of the broker, the levels that they may have, and who keeps the levels.

Levels have Kafka's names. TRACE lets everything through, as DEBUG does: no line is less important
than that.
"""

from __future__ import annotations

from typing import Protocol

#: The logger above all others, by Kafka's name.
ROOT = "root"
#: The number that the standard library has for each level.
LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
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
        """True if the log lines are this broker's own, and not those of a program that runs the
        broker."""
        ...

    def levels(self) -> dict[str, str]:
        """The level in force of each logger, by name."""
        ...

    def set_level(self, name: str, level: str | None) -> None:
        """Give a logger a level of `LEVELS`; None: that of the logger above. KeyError for an
        unknown one."""
        ...


class OthersLogLevels:
    """The levels of a program that the broker runs in, which are none of its business."""

    changeable = False

    def levels(self) -> dict[str, str]:
        return {}

    def set_level(self, name: str, level: str | None) -> None:
        raise KeyError(name)
