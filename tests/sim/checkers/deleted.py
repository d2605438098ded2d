"""Records that DeleteRecords has removed never reappear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Place = str


class Deletions:
    """Log starts that were acknowledged or seen. `problems`: the records that reappeared."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        #: For each partition: the highest log start that was seen, or that a client has requested.
        self.highest_starts: dict[Place, int] = {}
        self._acknowledged: dict[Place, int] = {}

    def saw_start(self, place: Place, start: int) -> None:
        """Note a log start that was seen, or that a client is about to request."""
        self.highest_starts[place] = max(self.highest_starts.get(place, 0), start)

    def deleted(self, place: Place, start: int) -> None:
        """Called when DeleteRecords was answered with this log start."""
        self.saw_start(place, start)
        self._acknowledged[place] = max(self._acknowledged.get(place, 0), start)

    def acknowledged(self) -> Mapping[Place, int]:
        """The log starts acknowledged so far, for a reader that begins now."""
        return dict(self._acknowledged)

    def read(
        self, reader: str, records: Iterable[tuple[Place, int, bytes]], before: Mapping[Place, int]
    ) -> None:
        """Check the records of a reader.

        `before`: the log starts that were acknowledged when the reader began.
        """
        for place, offset, _ in records:
            start = before.get(place, 0)
            if offset < start:
                self.problems.append(
                    f"{reader} read {place} offset {offset}, and everything below {start} was deleted"
                )
