"""The names of queries, runs and transactions, which identify writers (S-01, S-02).

A transactional id is ``odradek-spark.<query>.<run>.<name>``, and the name is unique within its run.
So a list of a cluster's transactions shows the query and run of each transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

PREFIX = "odradek-spark"
_SEPARATOR = "."


@dataclass(frozen=True)
class Writer:
    """A run of a query. After a restart `query` is unchanged, and `run` is new.

    `checkpoint`: Spark's id of the checkpoint, which counts the batches, if the option `queryId`
    gives the query another name; otherwise None. `commit_id`: the `commitId` of a batch job.
    """

    query: str
    run: str
    checkpoint: str | None = None
    commit_id: str | None = None

    def transactional_id(self, name: str) -> str:
        """The transactional id of one of the run's transactions."""
        return transactional_id(self.query, self.run, name)

    def write(self, batch: int) -> str:
        """The write of a batch, as an error calls it."""
        if self.commit_id is not None:
            return f"commitVersion {batch} of commitId {self.commit_id}"
        return f"batch {batch} of query {self.query}"


def transactional_id(query: str, run: str, name: str) -> str:
    """The transactional id (S-02)."""
    return _SEPARATOR.join((PREFIX, _quoted(query), _quoted(run), name))


def query_prefix(query: str) -> str:
    """The prefix of the ids of all runs of a query."""
    return _SEPARATOR.join((PREFIX, _quoted(query), ""))


def commit_query(commit_id: str, topic: str | None) -> str:
    """The query of a batch job with a `commitId` that writes to `topic` (S-16).

    The result never equals the id of a stream, whatever name the user chooses. Topic names contain
    no colon, so the queries of two different jobs are never equal. If the rows name their topics,
    the query has only the `commitId`.
    """
    return f"commit:{commit_id}" if topic is None else f"commit-to:{topic}:{commit_id}"


def split_id(query: str, found: str) -> tuple[str, str] | None:
    """(run, name) of a transactional id of this query, None for any other id."""
    prefix = query_prefix(query)
    if not found.startswith(prefix):
        return None
    run, separator, name = found[len(prefix) :].partition(_SEPARATOR)
    return (_unquoted(run), name) if separator and name else None


class Inherited(Protocol):
    """Names of processes that have ended; see `inheritance`."""

    def take(self) -> tuple[str, int] | None:
        """Take a name, which belongs to this process from now on. Returns (the name, the batch for
        which it was last used); None if there is no name."""

    def used(self, name: str, batch: int) -> bool:
        """Called when a name will be used for a batch. False if the name must not be used."""


class TransactionNames:
    """The transaction names of one process for one run (S-02, S-13).

    No other process uses these names, and a process runs one task at a time. So a task that is
    late, or that runs twice, cannot affect the prepared transaction of another task. Names are
    reused, because brokers keep every transactional id for days.
    """

    def __init__(
        self,
        owner: str,
        last: Mapping[str, int] | None = None,
        inherited: Inherited | None = None,
    ) -> None:
        self._owner = owner
        self._inherited = inherited
        #: The last batch for which each name was used.
        self.last = dict(last or {})

    def take(self, batch: int, over: int) -> str:
        """A name for a transaction of `batch`. `over`: the newest finished batch. A name whose last
        batch is not newer than `over` may be reused."""
        for name in self._candidates():
            last = self.last[name]
            if not (last <= over and last < batch):
                continue
            self.last[name] = batch
            if self._inherited is None or self._inherited.used(name, batch):
                return name
        name = f"{self._owner}-{len(self.last)}"
        self.last[name] = batch
        return name

    def _candidates(self) -> Iterator[str]:
        yield from list(self.last)
        while self._inherited is not None:
            found = self._inherited.take()
            if found is None:
                break
            name, last = found
            self.last[name] = last
            yield name


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace(_SEPARATOR, "%2E")


def _unquoted(text: str) -> str:
    return text.replace("%2E", _SEPARATOR).replace("%25", "%")
