"""Records that DeleteRecords has removed do not come back, whatever happens to the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Place = str


class Deletions:
    """Log starts, as they were acknowledged and as they were seen. `problems`: what came back."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        #: The highest that each log start ever was, or may have been moved to.
        self.highest_starts: dict[Place, int] = {}
        self._acknowledged: dict[Place, int] = {}

    def saw_start(self, place: Place, start: int) -> None:
        """A log starts here, or somebody is about to ask for it."""
        self.highest_starts[place] = max(self.highest_starts.get(place, 0), start)

    def deleted(self, place: Place, start: int) -> None:
        """DeleteRecords was answered with this log start."""
        self.saw_start(place, start)
        self._acknowledged[place] = max(self._acknowledged.get(place, 0), start)

    def acknowledged(self) -> Mapping[Place, int]:
        """The log starts acknowledged so far: for a reader that begins now."""
        return dict(self._acknowledged)

    def read(
        self, reader: str, records: Iterable[tuple[Place, int, bytes]], before: Mapping[Place, int]
    ) -> None:
        """A reader that began when `before` was acknowledged was given these records."""
        for place, offset, _ in records:
            start = before.get(place, 0)
            if offset < start:
                self.problems.append(
                    f"{reader} read {place} offset {offset}, and everything below {start} was deleted"
                )
