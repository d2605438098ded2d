"""A group reads every record at least once: each offset below a committed one was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class ProcessedChecker:
    """Checks the records that members got, and the offsets that the group has committed."""

    def __init__(self) -> None:
        self._read: dict[str, set[int]] = {}
        #: The offsets below which everything was read.
        self._contiguous: dict[str, int] = {}

    def read(self, partition: str, offset: int) -> None:
        """Called when a poll returned this record to a member."""
        self._read.setdefault(partition, set()).add(offset)

    def committed(self, offsets: Mapping[str, int]) -> Iterator[str]:
        """Note the offsets that the group has committed. Yields the offsets below them that no
        member has read."""
        for partition, offset in offsets.items():
            if offset > self._until(partition):
                yield (
                    f"{partition}: {offset} is committed, and nobody has read the record at"
                    f" {self._until(partition)}"
                )

    def _until(self, partition: str) -> int:
        read = self._read.get(partition, set())
        until = self._contiguous.get(partition, 0)
        while until in read:
            read.discard(until)
            until += 1
        self._contiguous[partition] = until
        return until
