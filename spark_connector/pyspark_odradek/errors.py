"""The connector's exceptions. Spark shows the text and the traceback; the text must be enough.

::

    OptionsError (ValueError)    options that are missing, unknown, impossible or contradictory
    SchemaError (ValueError)     a column that is missing, or has a type that cannot be written
    SourceError (RuntimeError)   the cluster has not got, or does not answer, what was asked for
    └── DataLoss                 records that should be read are gone (`failOnDataLoss`)
    SinkError (RuntimeError)     a row that cannot be written, or was not acknowledged
    ├── Superseded               another run of the query has taken over
    ├── StaleBatch               the checkpoint is older than what was written
    └── TransactionsLost         transactions of a batch were aborted by somebody else
"""

from __future__ import annotations

from collections.abc import Sequence


class OptionsError(ValueError):
    """All that is wrong with the options, at once. `problems`: one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            text = f"odradek: {self.problems[0]}"
        else:
            lines = "".join(f"\n  - {problem}" for problem in self.problems)
            text = f"odradek: {len(self.problems)} options cannot be used:{lines}"
        super().__init__(text)

    def __reduce__(self) -> tuple[type[OptionsError], tuple[tuple[str, ...]]]:
        # It crosses processes, and must not be rebuilt from its text.
        return OptionsError, (self.problems,)


class SchemaError(ValueError):
    """The rows cannot be written, or read, with this schema."""


class SourceError(RuntimeError):
    """The cluster has not got what was asked for, or does not answer in time."""


class DataLoss(SourceError):
    """Records between the planned offsets are no longer there (or never were)."""


class SinkError(RuntimeError):
    """A row cannot be written, or the brokers did not take it."""


class Superseded(SinkError):
    """Another run of the query has taken over: this one may do nothing any more."""


class StaleBatch(SinkError):
    """The batch is not the one that was written under its number, or lies behind it."""


class TransactionsLost(SinkError):
    """Transactions with rows of a batch were aborted, by the clock or by somebody else."""
