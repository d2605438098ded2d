"""The connector's exceptions. Spark shows the text and the traceback of an exception; the text
alone must explain the problem.

::

    OptionsError (ValueError)    options that are missing, unknown, impossible or contradictory
    SchemaError (ValueError)     a column that is missing, or has a type that cannot be written
    SourceError (RuntimeError)   the cluster lacks what was requested, or does not answer
    └── DataLoss                 records that should be read do not exist (`failOnDataLoss`)
    SinkError (RuntimeError)     a row that cannot be written, or was not acknowledged
    ├── Superseded               another run of the query has taken over
    ├── StaleBatch               the checkpoint is older than what was written
    ├── TooLate                  a task attempt after the end of its batch
    └── TransactionsLost         transactions of a batch were aborted by somebody else
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_client.errors import OdradekError, RecordTooLarge


class OptionsError(ValueError):
    """The error that lists all problems of the options together. `problems`: one sentence for each
    problem.
    """

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
    """The error for rows that cannot be written or read with this schema."""


class SourceError(RuntimeError):
    """The error if the cluster does not have the requested data, or does not answer in time."""


class DataLoss(SourceError):
    """The error if records between the planned offsets no longer exist (or never did)."""


class SinkError(RuntimeError):
    """The error for a row that cannot be written, or that the brokers did not accept."""

    @classmethod
    def of_rows(cls, error: OdradekError) -> SinkError:
        """The error of rows that could not be sent."""
        hint = ""
        if isinstance(error, RecordTooLarge):
            hint = " (the options kafka.max.request.size and kafka.buffer.memory)"
        return cls(f"odradek: rows could not be written: {error}{hint}")


class Superseded(SinkError):
    """The error if a newer run of the query has taken over, so that this run must do nothing
    more."""


class StaleBatch(SinkError):
    """The error for a batch that is older than the last decided batch, or that differs from the
    written batch with the same number.
    """


class TooLate(SinkError):
    """The error of a task attempt, such as the slower of two, whose batch is over before the
    attempt has written a row."""


class TransactionsLost(SinkError):
    """The error if transactions with rows of a batch were aborted, by a timeout or by somebody
    else."""
