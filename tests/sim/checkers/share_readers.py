"""Records that applications get from share consumers: only records that the broker has delivered to
them, with the values of the log, and none of an aborted transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from tests.sim.checkers.share_deliveries import Place, ShareDeliveries


class Fate(Enum):
    """The fate of a produced record, as far as its producer knows."""

    PLAIN = "without a transaction"
    OPEN = "in an open transaction"
    COMMITTING = "in a transaction that is committed"
    ABORTED = "in a transaction that is not committed"


class ShareReaders:
    """The records that applications got. `committed`: the group reads only committed records."""

    def __init__(self, deliveries: ShareDeliveries, *, committed: bool) -> None:
        self._deliveries = deliveries
        self._committed = committed
        self.fates: dict[bytes, Fate] = {}
        self._values: dict[tuple[Place, int], bytes] = {}

    def is_held(self, member: str, place: Place, offset: int) -> bool:
        return self._deliveries.of(place, offset).holder == member

    def handed_out(
        self, member: str, place: Place, offset: int, value: bytes, count: int
    ) -> Iterator[str]:
        """Check a record that an application got."""
        what = f"{place}, offset {offset}"
        record = self._deliveries.of(place, offset)
        if not any(member in each.members for each in record.all()):
            yield f"{what} was handed out by {member}, which had not acquired it"
        elif count > max(each.count for each in record.all()):
            yield f"{what} was handed out as delivery {count} of {record.count}"
        before = self._values.setdefault((place, offset), value)
        if before != value:
            yield f"{what} is {value!r}, and was {before!r}"
        fate = self.fates.get(value)
        if fate is None:
            yield f"{what} is {value!r}, which nobody has sent"
        elif self._committed and fate in (Fate.OPEN, Fate.ABORTED):
            yield f"{what}, {value!r}, was handed out, and is {fate.value}"

    def accepted(self, member: str, place: Place, offset: int) -> Iterator[str]:
        """Check a record whose acceptance was confirmed to an application."""
        record = self._deliveries.of(place, offset)
        # A record may be finished without its member: by compaction, by another member after its
        # lock has expired, or by the delivery limit. The broker passes over an acknowledgement of a
        # finished record before the start offset (H-158).
        if not self._deliveries.may_be_finished(place, offset):
            yield f"{place}, offset {offset}: {member} was told that it is accepted: {record}"

    def check_values(self, place: Place, found: Mapping[int, bytes]) -> Iterator[str]:
        """Check that the records of a log have the values that applications got."""
        for offset, value in found.items():
            handed_out = self._values.get((place, offset), value)
            if handed_out != value:
                yield f"{place}, offset {offset} is {value!r}, and was {handed_out!r}"
