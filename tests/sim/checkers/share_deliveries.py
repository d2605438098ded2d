"""Deliveries of a share group: each record with one member at a time, never after its confirmed
answer, never more often than the limit allows, and none left out.

The checker sees requests when the broker receives them and answers when it has made them, so that
it knows who has a record without asking the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_NAMES = ("gap", "accept", "release", "reject", "renew")
_FINAL = (GAP, ACCEPT, REJECT)


class Place(NamedTuple):
    """A partition of a topic, which another topic of the same name does not have."""

    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id.hex()[:6]}-{self.partition}"


@dataclass(slots=True)
class Lent:
    """The known state of a record.

    `holder`: the member that has it, until `until_ms` at least, unless the record is `returning`:
    then the broker may give it to others at any time. `count`: that of the last delivery, and
    `stored_count` the largest one that the broker has confirmed. `confirmed`: the confirmed answer;
    `in_time` says that the member had the record for sure, else the record may have been finished
    before, and the answer without effect. `tried`: all final answers of members that had the
    record, confirmed or not.
    """

    holder: str = ""
    until_ms: float = 0.0
    returning: bool = False
    changed_ms: float = -1.0
    changed_by: str = ""
    deliveries: int = 0
    count: int = 0
    stored_count: int = 0
    confirmed: int | None = None
    in_time: bool = False
    tried: dict[int, None] = field(default_factory=dict)
    members: dict[str, None] = field(default_factory=dict)


class Asked(NamedTuple):
    """An acknowledgement on its way to its answer. `held`: the member had the record then."""

    place: Place
    offset: int
    kind: int
    member: str
    deliveries: int
    held: bool
    at_ms: float


class ShareDeliveries:
    """The records of one group. `limit`: the largest number of deliveries; `lock_ms`: the duration
    of locks. Methods yield violations."""

    def __init__(self, limit: int, lock_ms: int) -> None:
        self._limit = limit
        self._lock_ms = lock_ms
        self.records: dict[Place, dict[int, Lent]] = {}
        #: The highest log start that somebody may have asked for.
        self._deleted_before: dict[Place, int] = {}
        #: The end of the last session of each member.
        self._left_ms: dict[str, float] = {}

    def of(self, place: Place, offset: int) -> Lent:
        """The state of a record."""
        records = self.records.setdefault(place, {})
        if offset not in records:
            records[offset] = Lent()
        return records[offset]

    def may_be_deleted(self, place: Place, before: int) -> None:
        """Note that the records before an offset may be deleted."""
        self._deleted_before[place] = max(before, self._deleted_before.get(place, 0))

    def is_deleted(self, place: Place, offset: int) -> bool:
        """True if a record may be deleted."""
        return offset < self._deleted_before.get(place, 0)

    # --- Deliveries ---

    def acquired(
        self,
        place: Place,
        member: str,
        offsets: range,
        count: int,
        since_ms: float,
        now_ms: float,
    ) -> Iterator[str]:
        """A member got records, at `since_ms` at the earliest and `now_ms` at the latest."""
        for offset in offsets:
            lent = self.of(place, offset)
            lent.members[member] = None
            others = lent.changed_ms > since_ms and lent.changed_by != member
            if others and (lent.confirmed is not None or (lent.holder and not lent.returning)):
                # The answer had to wait, and others have had the record since it was lent.
                continue
            what = f"{place}, offset {offset}, delivery {count}"
            if lent.confirmed is not None:
                yield f"{what} to {member} after a confirmed {_NAMES[lent.confirmed]}"
            if lent.holder and not lent.returning and now_ms < lent.until_ms:
                yield f"{what} to {member}, while {lent.holder} has it until {lent.until_ms:.0f} ms"
            if not 1 <= count <= self._limit:
                yield f"{what} to {member}: the limit is {self._limit} deliveries"
            elif count > lent.count + 1:
                yield f"{what} to {member} follows delivery {lent.count}"
            elif count <= lent.stored_count:
                yield f"{what} to {member}: it was stored that there were {lent.stored_count}"
            lent.holder, lent.until_ms = member, since_ms + self._lock_ms
            # The session may have ended while the answer had to wait.
            lent.returning = self._left_ms.get(member, -1.0) >= since_ms
            lent.changed_ms, lent.changed_by = now_ms, member
            lent.count = count
            lent.deliveries += 1

    # --- Acknowledgements ---

    def asked(
        self, place: Place, member: str, first: int, types: Sequence[int], last: int, now_ms: float
    ) -> list[Asked]:
        """A member acknowledges records: with one type, or one for each."""
        asked = []
        for offset in range(first, last + 1):
            kind = types[0] if len(types) == 1 else types[offset - first]
            lent = self.of(place, offset)
            held = lent.holder == member
            if held and kind == RELEASE:
                lent.returning = True
            if held and kind in _FINAL:
                lent.tried[kind] = None
            asked.append(Asked(place, offset, kind, member, lent.deliveries, held, now_ms))
        return asked

    def confirmed(self, asked: Iterable[Asked], now_ms: float) -> Iterator[str]:
        """The broker has taken acknowledgements."""
        for each in asked:
            lent = self.of(each.place, each.offset)
            what = f"{each.place}, offset {each.offset}: {_NAMES[each.kind]} of {each.member}"
            if not each.held or lent.deliveries != each.deliveries:
                # Nothing is done, and nothing refused, if the record is finished or deleted.
                lost = lent.holder not in ("", each.member) and not lent.returning
                lost = lost and not (each.held and each.kind == RELEASE)
                if lost and not lent.tried and not self.is_deleted(each.place, each.offset):
                    yield f"{what} is taken, and {lent.holder} has the record"
                continue
            if each.kind == RENEW:
                lent.until_ms = max(lent.until_ms, each.at_ms + self._lock_ms)
                continue
            lent.changed_ms, lent.changed_by = now_ms, each.member
            lent.holder = ""
            if each.kind == RELEASE:
                lent.stored_count = max(lent.stored_count, lent.count)
            elif lent.confirmed is not None and lent.confirmed != each.kind:
                yield f"{what} is taken after a confirmed {_NAMES[lent.confirmed]}"
            else:
                lent.confirmed = each.kind
                lent.in_time = not lent.returning

    def left(self, member: str, places: Iterable[Place], now_ms: float) -> None:
        """The session of a member is over, which gives back what it has."""
        self._left_ms[member] = now_ms
        for place in places:
            for lent in self.records.get(place, {}).values():
                if lent.holder == member:
                    lent.returning = True

    def restarted(self) -> None:
        """The broker has forgotten who has what."""
        for records in self.records.values():
            for lent in records.values():
                lent.returning = True

    # --- What is stored, and the end ---

    def check_stored(self, place: Place, offset: int, accepted: bool) -> Iterator[str]:
        """A record is stored as acknowledged, or as archived."""
        lent = self.of(place, offset)
        wrong = (REJECT, GAP) if accepted else (ACCEPT,)
        if lent.confirmed is not None and lent.confirmed in wrong:
            stored = "acknowledged" if accepted else "archived"
            yield (
                f"{place}, offset {offset} is stored as {stored} after a confirmed"
                f" {_NAMES[lent.confirmed]}"
            )

    def check_finished(
        self, place: Place, offsets: Iterable[int], finished: Collection[int]
    ) -> Iterator[str]:
        """All of these records must be among the finished ones, each for a reason."""
        for offset in offsets:
            lent = self.records.get(place, {}).get(offset) or Lent()
            if self.is_deleted(place, offset):
                continue
            if offset not in finished:
                yield f"{place}, offset {offset} is not finished: {lent}"
            elif not lent.deliveries:
                yield f"{place}, offset {offset} was never delivered"
            elif not lent.tried and lent.count < self._limit:
                yield f"{place}, offset {offset} is finished, and nobody has answered it: {lent}"
