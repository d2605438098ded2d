"""A recorded history of sends and polls, for the checkers of Jepsen's anomalies.

Values must differ. Transactions are operations, and so is each poll or group of sends outside of
them; the operations of one client follow one another. Times are numbers that grow from event to
event, 0 or None where they were not noted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

#: Topic and partition as one text.
Place = str


class Outcome(Enum):
    """How an operation ended. UNKNOWN: its client died, or heard no answer."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    """`offset`: as acknowledged, None if it was not."""

    place: Place
    value: bytes
    offset: int | None = None


@dataclass(slots=True)
class Poll:
    """`records`: (place, offset, value), in the order in which they came. `ended`: when."""

    records: list[tuple[Place, int, bytes]] = field(default_factory=list)
    ended: int | None = None


@dataclass(slots=True)
class Operation:
    """One operation of a client, in order or all together. `sought`: its positions were set anew
    before it.

    `transactional`: all of it happens, or nothing; what it sends is readable after its end only.
    `began`, `ended`: when, None if it was never known to end. `commit_began`: when somebody first
    asked to commit it.
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
        """Its sends, in order."""
        return [step for step in self.steps if isinstance(step, Send)]

    @property
    def never_commits(self) -> bool:
        """It was aborted, or its client ended before it asked for a commit."""
        if self.outcome is Outcome.FAILED:
            return True
        asked = self.commit_began is not None or self.outcome is Outcome.DONE
        return self.transactional and self.began > 0 and not asked

    @property
    def polls(self) -> list[Poll]:
        """Its polls, in order."""
        return [step for step in self.steps if isinstance(step, Poll)]
