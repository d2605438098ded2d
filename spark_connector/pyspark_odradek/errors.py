"""The connector's exceptions. Spark shows the text and the traceback; the text must be enough.

::

    OptionsError (ValueError)    options that are missing, unknown, impossible or contradictory
    SchemaError (ValueError)     a column that is missing, or has a type that cannot be written
    SourceError (RuntimeError)   the cluster lacks what was requested, or does not answer
    └── DataLoss                 records that should be read are gone (`failOnDataLoss`)
    SinkError (RuntimeError)     a row that cannot be written, or was not acknowledged
    ├── Superseded               another run of the query has taken over
    ├── StaleBatch               the checkpoint is older than what was written
    └── TransactionsLost         transactions of a batch were aborted by somebody else
"""

from __future__ import annotations

from collections.abc import Sequence


class OptionsError(ValueError):
    """All problems of the options at once. `problems`: one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            text = f"odradek: {self.problems[0]}"
        else:
            lines = "".join(f"\n  - {problem}" for problem in self.problems)
            text = f"odradek: {len(self.problems)} options cannot be used:{lines}"
        super().__init__(text)

    def __reduce__(self) -> tuple[type[OptionsError], tuple[tuple[str, ...]]]:
        # The exception is sent between processes, and must not be rebuilt from its text.
        return OptionsError, (self.problems,)


class SchemaError(ValueError):
    """The rows cannot be written, or read, with this schema."""


class SourceError(RuntimeError):
    """The cluster does not have the requested data, or does not answer in time."""


class DataLoss(SourceError):
    """Records between the planned offsets do not exist any more (or never did)."""


class SinkError(RuntimeError):
    """A row cannot be written, or the brokers did not accept it."""


class Superseded(SinkError):
    """A newer run of the query has taken over: this run must do nothing more."""


class StaleBatch(SinkError):
    """The batch differs from the one that was written with its number, or is older."""


class TransactionsLost(SinkError):
    """Transactions with rows of a batch were aborted, by a timeout or from outside."""
