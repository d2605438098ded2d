"""Records as the application of a share consumer gets them: those that the broker lent, with the
values of the log, and none of an aborted transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from tests.sim.checkers.share_deliveries import ACCEPT, GAP, Place, ShareDeliveries


class Fate(Enum):
    """The fate of a produced record, as far as its producer knows."""

    PLAIN = "without a transaction"
    OPEN = "in an open transaction"
    COMMITTING = "in a transaction that is committed"
    ABORTED = "in a transaction that is not committed"


class ShareReaders:
    """The records that applications got. `committed`: the group reads committed records only."""

    def __init__(self, deliveries: ShareDeliveries, *, committed: bool) -> None:
        self._deliveries = deliveries
        self._committed = committed
        self.fates: dict[bytes, Fate] = {}
        self._values: dict[tuple[Place, int], bytes] = {}

    def is_lent(self, member: str, place: Place, offset: int) -> bool:
        """True if a member has a record."""
        return self._deliveries.of(place, offset).holder == member

    def handed_out(
        self, member: str, place: Place, offset: int, value: bytes, count: int
    ) -> Iterator[str]:
        """An application got a record."""
        what = f"{place}, offset {offset}"
        lent = self._deliveries.of(place, offset)
        if not any(member in each.members for each in lent.all()):
            yield f"{what} was handed out by {member}, to which it was not lent"
        elif count > max(each.count for each in lent.all()):
            yield f"{what} was handed out as delivery {count} of {lent.count}"
        before = self._values.setdefault((place, offset), value)
        if before != value:
            yield f"{what} is {value!r}, and was {before!r}"
        fate = self.fates.get(value)
        if fate is None:
            yield f"{what} is {value!r}, which nobody has sent"
        elif self._committed and fate in (Fate.OPEN, Fate.ABORTED):
            yield f"{what}, {value!r}, was handed out, and is {fate.value}"

    def accepted(self, member: str, place: Place, offset: int) -> Iterator[str]:
        """An application was told that its acceptance of a record counts."""
        lent = self._deliveries.of(place, offset)
        # What compaction has removed is finished, so that an acceptance of it is passed over.
        tried = any(ACCEPT in each.tried or GAP in each.tried for each in lent.all())
        if not tried and not self._deliveries.is_deleted(place, offset):
            yield f"{place}, offset {offset}: {member} was told that it is accepted: {lent}"

    def check_values(self, place: Place, found: Mapping[int, bytes]) -> Iterator[str]:
        """The records of a log must have the values that were handed out."""
        for offset, value in found.items():
            handed_out = self._values.get((place, offset), value)
            if handed_out != value:
                yield f"{place}, offset {offset} is {value!r}, and was {handed_out!r}"
