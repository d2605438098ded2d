"""Committed offsets never decrease, unless an administrator resets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Beginning:
    """The state of the checker when an observation begins.

    `least`: the least offset that each partition may have, with its source. `resets`: for each
    partition, the number of resets that have begun.
    """

    least: Mapping[str, tuple[int, str]]
    resets: Mapping[str, int]


class CommittedChecker:
    """Checks that acknowledged commits stay committed, by offsets that an observer fetches
    repeatedly.

    An observation must show at least the offsets that were acknowledged or observed before it
    began, even if the broker restarted in between. A partition that was reset during the
    observation is not checked: the observation may show the offset from before or after the reset.
    """

    def __init__(self) -> None:
        #: Partition -> the lowest offset that a later observation may show, with the source of that
        #: offset.
        self._least: dict[str, tuple[int, str]] = {}
        #: Partitions with a reset that is not acknowledged yet: their offsets are unknown.
        self._unknown: dict[str, None] = {}
        self._resets: dict[str, int] = {}

    def acknowledged(self, partition: str, offset: int, by: str) -> None:
        """Called when a commit of this offset was answered without an error."""
        self._raise(partition, offset, f"acknowledged to {by}")

    def begin(self) -> Beginning:
        """Begin an observation. Returns the object to pass with its result."""
        return Beginning(dict(self._least), dict(self._resets))

    def observed(self, offsets: Mapping[str, int], beginning: Beginning) -> Iterator[str]:
        """Check the offsets that an OffsetFetch returned, -1 for none.

        `beginning`: the result of `begin` from before the request.
        """
        for partition, (offset, known) in beginning.least.items():
            seen = offsets.get(partition, -1)
            if seen < offset and not self._was_reset_since(partition, beginning):
                yield f"{partition}: {seen} is committed, after {offset} was {known}"
        for partition, offset in offsets.items():
            if not self._was_reset_since(partition, beginning):
                self._raise(partition, offset, "observed")

    def _was_reset_since(self, partition: str, beginning: Beginning) -> bool:
        resets = beginning.resets.get(partition, 0)
        return partition in self._unknown or self._resets.get(partition, 0) != resets

    def least(self, partition: str) -> int:
        """The lowest offset that an observation may show if it begins now."""
        return self._least.get(partition, (0, ""))[0]

    def reset(self, partition: str, offset: int) -> None:
        """Called when an administrator's reset to this offset was acknowledged."""
        self._unknown.pop(partition, None)
        self._least[partition] = (offset, "set by an administrator")

    def reset_may_come(self, partition: str) -> None:
        """Called when an administrator's reset has begun: until its answer, any offset may be
        seen."""
        self._least.pop(partition, None)
        self._unknown[partition] = None
        self._resets[partition] = self._resets.get(partition, 0) + 1

    def not_reset(self, partition: str) -> None:
        """Called when a reset was refused; an earlier attempt at it may have been carried out."""
        self._unknown.pop(partition, None)

    def _raise(self, partition: str, offset: int, how: str) -> None:
        if partition not in self._unknown and offset > self._least.get(partition, (-1, ""))[0]:
            self._least[partition] = (offset, how)
