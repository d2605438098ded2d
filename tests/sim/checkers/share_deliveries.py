"""Deliveries of a share group: each record with one member at a time, never after its confirmed
answer, never more often than the limit allows, never before its pause is over, and none left out.

The checker sees requests when the broker receives them and answers when it has made them, so that
it knows who has a record without asking the broker. When an administrator begins a share partition
anew, or deletes its state, all of its records are as if nobody had ever had them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
    record, confirmed or not. `due_ms`: the earliest end of the pause before the next delivery.

    `counts`: the numbers of deliveries that were begun; the answer may come later, or never.

    `unsure`: there may have been deliveries and answers that are not known here. `earlier`: the
    record before its share partition was begun anew.
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
    due_ms: float = 0.0
    counts: set[int] = field(default_factory=set)
    unsure: bool = False
    earlier: Lent | None = field(default=None, repr=False)

    def all(self) -> Iterator[Lent]:
        """The record, and the same one before each time that its share partition was begun
        anew."""
        at: Lent | None = self
        while at is not None:
            yield at
            at = at.earlier


@dataclass(slots=True)
class Life:
    """The time of a share partition since it was begun anew at a start offset. `number`: from 1 on.
    `sure`: it is known that it was. `touched`: the offsets with which something happened while that
    was on its way."""

    number: int = 1
    start_offset: int = 0
    began_ms: float = -1.0
    sure: bool = True
    touched: frozenset[int] = frozenset()


def no_pause(count: int) -> int:
    """The pause in ms after so many deliveries: there is none."""
    return 0


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
    of locks; `pause_ms`: that of the pause after a number of deliveries. Methods yield
    violations."""

    def __init__(self, limit: int, lock_ms: int, pause_ms: Callable[[int], int] = no_pause) -> None:
        self._limit = limit
        self._lock_ms = lock_ms
        self._pause_ms = pause_ms
        self.records: dict[Place, dict[int, Lent]] = {}
        self._lives: dict[Place, Life] = {}
        self._earlier: dict[Place, dict[int, Lent]] = {}
        #: The number of requests that begin a share partition anew and are not answered, and the
        #: offsets with which something happened meanwhile.
        self._resetting: Counter[Place] = Counter()
        self._touched: dict[Place, set[int]] = {}
        #: The last time at which a leader forgot who has what.
        self._forgotten_ms: dict[Place, float] = {}
        #: The highest log start that somebody may have asked for.
        self._deleted_before: dict[Place, int] = {}
        #: The end of the last session of each member.
        self._left_ms: dict[str, float] = {}

    def of(self, place: Place, offset: int) -> Lent:
        """The state of a record."""
        records = self.records.setdefault(place, {})
        if offset not in records:
            life = self.life(place)
            unsure = not life.sure or offset in life.touched
            earlier = self._earlier.get(place, {}).get(offset)
            records[offset] = Lent(unsure=unsure, earlier=earlier)
        return records[offset]

    def life(self, place: Place) -> Life:
        """The present life of a share partition."""
        return self._lives.get(place) or Life()

    def may_be_deleted(self, place: Place, before: int) -> None:
        """Note that the records before an offset may be deleted."""
        self._deleted_before[place] = max(before, self._deleted_before.get(place, 0))

    def is_deleted(self, place: Place, offset: int) -> bool:
        """True if a record may be deleted."""
        return offset < self._deleted_before.get(place, 0)

    # --- Deliveries ---

    def acquiring(self, place: Place, offsets: Iterable[int], count: int) -> None:
        """A delivery of records begins: the answer may have to wait."""
        offsets = list(offsets)
        self.touched(place, offsets)
        for offset in offsets:
            self.of(place, offset).counts.add(count)

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
        life = self.life(place)
        judged = not self._resetting[place] and since_ms > life.began_ms
        self.touched(place, offsets)
        for offset in offsets:
            lent = self.of(place, offset)
            lent.members[member] = None
            others = lent.changed_ms > since_ms and lent.changed_by != member
            if others and (lent.confirmed is not None or (lent.holder and not lent.returning)):
                # The answer had to wait, and others have had the record since it was lent.
                continue
            what = f"{place}, offset {offset}, delivery {count} to {member}"
            if judged:
                if life.sure and offset < life.start_offset:
                    yield f"{what}, and the group begins at offset {life.start_offset}"
                for problem in self._problems(lent, count, now_ms):
                    yield f"{what} {problem}"
            else:
                lent.unsure, lent.confirmed = True, None
            self._lend(place, lent, member, count, since_ms)
            lent.changed_ms, lent.changed_by = now_ms, member

    def _problems(self, lent: Lent, count: int, now_ms: float) -> Iterator[str]:
        """The reasons why a record may not be delivered."""
        if lent.confirmed is not None:
            yield f"after a confirmed {_NAMES[lent.confirmed]}"
        if lent.holder and not lent.returning and now_ms < lent.until_ms:
            yield f"while {lent.holder} has it until {lent.until_ms:.0f} ms"
        elif now_ms < lent.due_ms:
            yield f"at {now_ms:.0f} ms, and its pause ends at {lent.due_ms:.0f} ms"
        known = lent.deliveries or not lent.unsure
        if not 1 <= count <= self._limit:
            yield f"is too many: the limit is {self._limit} deliveries"
        elif known and count > lent.count + 1 and count - 1 not in lent.counts:
            yield f"follows delivery {lent.count}"
        elif count <= lent.stored_count:
            yield f"comes after it was stored that there were {lent.stored_count}"

    def _lend(self, place: Place, lent: Lent, member: str, count: int, since_ms: float) -> None:
        lent.holder, lent.until_ms = member, since_ms + self._lock_ms
        lent.count = count
        lent.deliveries += 1
        lent.due_ms = lent.until_ms + self._pause_ms(count)
        # The session may have ended while the answer had to wait, or the leader forgotten it.
        left_ms = self._left_ms.get(member, -1.0)
        lent.returning = left_ms >= since_ms
        if lent.returning:
            self._given_back(lent, left_ms)
        if self._forgotten_ms.get(place, -1.0) >= since_ms:
            lent.returning, lent.due_ms = True, 0.0

    def _given_back(self, lent: Lent, now_ms: float) -> None:
        """A record comes back at a time at the earliest, unless its lock has ended before."""
        lent.returning = True
        lent.due_ms = min(lent.due_ms, now_ms + self._pause_ms(lent.count))

    # --- Acknowledgements ---

    def asked(
        self, place: Place, member: str, first: int, types: Sequence[int], last: int, now_ms: float
    ) -> list[Asked]:
        """A member acknowledges records: with one type, or one for each."""
        asked = []
        self.touched(place, range(first, last + 1))
        for offset in range(first, last + 1):
            kind = types[0] if len(types) == 1 else types[offset - first]
            lent = self.of(place, offset)
            held = lent.holder == member
            if held and kind == RELEASE:
                self._given_back(lent, now_ms)
            perhaps = lent.unsure and not lent.deliveries
            if (held or perhaps) and kind in _FINAL:
                lent.tried[kind] = None
            asked.append(Asked(place, offset, kind, member, lent.deliveries, held, now_ms))
        return asked

    def confirmed(self, asked: Iterable[Asked], now_ms: float) -> Iterator[str]:
        """The broker has taken acknowledgements."""
        for each in asked:
            if each.at_ms <= self.life(each.place).began_ms:
                # Of a member that had the record before all of them were begun anew.
                continue
            lent = self.of(each.place, each.offset)
            judged = not self._resetting[each.place]
            what = f"{each.place}, offset {each.offset}: {_NAMES[each.kind]} of {each.member}"
            if not each.held or lent.deliveries != each.deliveries:
                # Nothing is done, and nothing refused, if the record is finished or deleted.
                lost = judged and lent.holder not in ("", each.member) and not lent.returning
                lost = lost and not (each.held and each.kind == RELEASE)
                if lost and not lent.tried and not self.is_deleted(each.place, each.offset):
                    yield f"{what} is taken, and {lent.holder} has the record"
                continue
            if each.kind == RENEW:
                lent.until_ms = max(lent.until_ms, each.at_ms + self._lock_ms)
                if not lent.returning:
                    lent.due_ms = lent.until_ms + self._pause_ms(lent.count)
                continue
            lent.changed_ms, lent.changed_by = now_ms, each.member
            lent.holder = ""
            if each.kind == RELEASE:
                lent.stored_count = max(lent.stored_count, lent.count)
            elif judged and lent.confirmed is not None and lent.confirmed != each.kind:
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
                    self._given_back(lent, now_ms)

    def restarted(self) -> None:
        """The broker has forgotten who has what."""
        for place in self.records:
            self.forgotten(place, -1.0)

    def forgotten(self, place: Place, now_ms: float) -> None:
        """The leader of a share partition has forgotten who has what, and which pauses there are:
        it loads the state anew."""
        self._forgotten_ms[place] = now_ms
        for lent in self.records.get(place, {}).values():
            lent.returning, lent.due_ms = True, 0.0

    # --- Share partitions that are begun anew ---

    def reset_asked(self, place: Place) -> None:
        """A request begins a share partition anew, or deletes its state: until `begun_anew` or
        `reset_refused` nobody knows which records are delivered."""
        self._resetting[place] += 1

    def touched(self, place: Place, offsets: Iterable[int]) -> None:
        """Something happens with records, before a reset or after it."""
        if self._resetting[place]:
            self._touched.setdefault(place, set()).update(offsets)

    def is_touched(self, place: Place) -> bool:
        """True if something happened since the reset was asked for, or another one was."""
        return self._resetting[place] > 1 or bool(self._touched.get(place))

    def reset_refused(self, place: Place) -> None:
        """The request has changed nothing."""
        self._resetting[place] -= 1
        if not self._resetting[place]:
            self._touched.pop(place, None)

    def begun_anew(
        self, place: Place, start_offset: int, now_ms: float, *, sure: bool = True
    ) -> None:
        """The share partition was begun anew at an offset; without `sure`, perhaps."""
        touched = frozenset(self._touched.get(place, ()))
        self.reset_refused(place)
        self._lives[place] = Life(
            self.life(place).number + 1,
            start_offset,
            now_ms,
            sure and not self._resetting[place],
            touched,
        )
        self._earlier.setdefault(place, {}).update(self.records.pop(place, {}))

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
            lent = self.of(place, offset)
            if self.is_deleted(place, offset):
                continue
            if offset not in finished:
                yield f"{place}, offset {offset} is not finished: {lent}"
            elif lent.unsure or offset < self.life(place).start_offset:
                continue
            elif not lent.deliveries:
                yield f"{place}, offset {offset} was never delivered"
            elif not lent.tried and lent.count < self._limit:
                yield f"{place}, offset {offset} is finished, and nobody has answered it: {lent}"
