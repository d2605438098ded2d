"""The loggers of the broker, their possible levels, and the protocol of the object that keeps the
levels.

Levels have Kafka's names. TRACE writes no more lines than DEBUG, because no line has a level below
DEBUG.
"""

from __future__ import annotations

from typing import Protocol

#: The root logger, by Kafka's name.
ROOT = "root"
#: The number of each level in the standard library.
LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
#: The loggers of the broker. All of them exist from the start.
LOGGERS = (
    "odradek",
    *(
        f"odradek.{name}"
        for name in (
            *("admin", "asyncio", "authorizer", "config", "dispatch", "faults", "groups", "http"),
            *("peers", "sasl", "server", "session", "share", "telemetry", "tls"),
            "transactions",
        )
    ),
)


class LogLevels(Protocol):
    """The levels of loggers."""

    @property
    def changeable(self) -> bool:
        """True if the log lines are the broker's own, and not those of a program that contains the
        broker."""
        ...

    def levels(self) -> dict[str, str]:
        """The effective level of each logger, by name."""
        ...

    def set_level(self, name: str, level: str | None) -> None:
        """Set the level of a logger to one of `LEVELS`; None: to the level of its parent. Raises
        KeyError for an unknown logger."""
        ...


class OthersLogLevels:
    """The levels of a program that contains the broker; the broker does not change them."""

    changeable = False

    def levels(self) -> dict[str, str]:
        return {}

    def set_level(self, name: str, level: str | None) -> None:
        raise KeyError(name)
