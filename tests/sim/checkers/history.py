"""A recorded history of sends and polls, for the checkers of Jepsen's anomalies.

Values must be distinct. Operations are transactions, polls, and groups of sends outside of
transactions; the operations of one client follow one another. Times increase from event to event,
and are 0 or None if unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

#: Topic and partition as one text.
Place = str


class Outcome(Enum):
    """The outcome of an operation. UNKNOWN: its client was killed, or got no answer."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    """A send. `offset`: the acknowledged offset, None without an acknowledgement."""

    place: Place
    value: bytes
    offset: int | None = None


@dataclass(slots=True)
class Poll:
    """A poll. `records`: (partition, offset, value), in the order of arrival. `ended`: the time at
    which the poll returned."""

    records: list[tuple[Place, int, bytes]] = field(default_factory=list)
    ended: int | None = None


@dataclass(slots=True)
class Operation:
    """One operation of a client.

    `transactional`: the operation is atomic, and its records are readable only after its end.
    `sought`: the client set its positions before the operation. `began`, `ended`: times; None for
    an unknown end. `commit_began`: the time of the first request to commit.
    """

    client: str
    steps: list[Send | Poll] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN
    transactional: bool = False
    sought: bool = False
    began: int = 0
    commit_began: int | None = None
    ended: int | None = None

    @property
    def sends(self) -> list[Send]:
        """The sends of the operation, in order."""
        return [step for step in self.steps if isinstance(step, Send)]

    @property
    def never_commits(self) -> bool:
        """True if the operation was aborted, or its client ended before requesting a commit."""
        if self.outcome is Outcome.FAILED:
            return True
        asked = self.commit_began is not None or self.outcome is Outcome.DONE
        return self.transactional and self.began > 0 and not asked

    @property
    def polls(self) -> list[Poll]:
        """The polls of the operation, in order."""
        return [step for step in self.steps if isinstance(step, Poll)]
