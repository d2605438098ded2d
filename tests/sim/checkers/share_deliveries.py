"""Deliveries of a share group: each record is delivered to one member at a time, never after its
confirmed acknowledgement, never more often than the limit allows, never before its pause is over,
and no record is left out.

The checker sees requests when the broker receives them and responses when the broker makes them, so
that it knows which member has a record without asking the broker. When an administrator resets a
share partition to an offset, or deletes its state, each record is as if it had never been
delivered.

In this module, `confirmed` means that the broker's response accepted an acknowledgement, and a
reset is an AlterShareGroupOffsets or a deletion of the state.
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
    """A partition of a topic, by topic id: a topic created again under the same name has other
    places."""

    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id.hex()[:6]}-{self.partition}"


@dataclass(slots=True)
class KnownRecord:
    """The known state of a record.

    - `holder`: the member that has acquired the record, at least until `until_ms`.
    - `returning`: the broker may already have released the record, and may deliver it to others.
    - `count`: the delivery count of the last delivery.
    - `stored_count`: the highest delivery count that the broker has confirmed.
    - `confirmed`: the type of the confirmed final acknowledgement.
    - `in_time`: the member certainly had the record at the confirmed acknowledgement; otherwise the
      record may have been finished before, and the acknowledgement may have had no effect.
    - `tried`: the types of all final acknowledgements by members that had the record, confirmed or
      not.
    - `due_ms`: the earliest end of the pause before the next delivery.
    - `counts`: the delivery counts of all deliveries that the broker has begun, even if a response
      never came.
    - `unsure`: there may have been deliveries and acknowledgements that the checker does not know.
    - `earlier`: the state of the record before the last reset of its share partition.
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
    earlier: KnownRecord | None = field(default=None, repr=False)

    def all(self) -> Iterator[KnownRecord]:
        """Yield the state of the record, and its states before each reset of the share
        partition."""
        at: KnownRecord | None = self
        while at is not None:
            yield at
            at = at.earlier


@dataclass(slots=True)
class Life:
    """The time of a share partition from one reset to the next.

    `number`: from 1 on. `sure`: it is certain that the reset at the beginning was carried out.
    `touched`: the offsets that were delivered or acknowledged while that reset had no response.
    """

    number: int = 1
    start_offset: int = 0
    began_ms: float = -1.0
    sure: bool = True
    touched: frozenset[int] = frozenset()


def no_pause(count: int) -> int:
    """The pause in ms after a number of deliveries, for groups without pauses: always 0."""
    return 0


class Asked(NamedTuple):
    """An acknowledgement without a response yet. `held`: the member had the record when it was
    sent."""

    place: Place
    offset: int
    kind: int
    member: str
    deliveries: int
    held: bool
    at_ms: float


class ShareDeliveries:
    """The deliveries of one group. Methods yield violations.

    `limit`: the highest delivery count. `lock_ms`: the duration of an acquisition lock. `pause_ms`:
    gives the pause in ms after a number of deliveries.
    """

    def __init__(self, limit: int, lock_ms: int, pause_ms: Callable[[int], int] = no_pause) -> None:
        self._limit = limit
        self._lock_ms = lock_ms
        self._pause_ms = pause_ms
        self.records: dict[Place, dict[int, KnownRecord]] = {}
        self._lives: dict[Place, Life] = {}
        self._earlier: dict[Place, dict[int, KnownRecord]] = {}
        #: For each share partition: the number of its resets without a response, and the offsets
        #: that were delivered or acknowledged while a reset had no response.
        self._resetting: Counter[Place] = Counter()
        self._touched: dict[Place, set[int]] = {}
        #: The last time at which a leader lost its memory of acquired records.
        self._forgotten_ms: dict[Place, float] = {}
        #: For each share partition: the highest log start that a client has requested, whether or
        #: not the request succeeded.
        self._deleted_before: dict[Place, int] = {}
        #: The time at which the last session of each member ended.
        self._left_ms: dict[str, float] = {}

    def of(self, place: Place, offset: int) -> KnownRecord:
        """The state of a record."""
        records = self.records.setdefault(place, {})
        if offset not in records:
            life = self.life(place)
            unsure = not life.sure or offset in life.touched
            earlier = self._earlier.get(place, {}).get(offset)
            records[offset] = KnownRecord(unsure=unsure, earlier=earlier)
        return records[offset]

    def life(self, place: Place) -> Life:
        """The present `Life` of the share partition, which began with its last reset."""
        return self._lives.get(place) or Life()

    def may_be_deleted(self, place: Place, before: int) -> None:
        """Called when the records before an offset may be deleted."""
        self._deleted_before[place] = max(before, self._deleted_before.get(place, 0))

    def is_deleted(self, place: Place, offset: int) -> bool:
        """True if the record may have been deleted."""
        return offset < self._deleted_before.get(place, 0)

    def may_be_finished(self, place: Place, offset: int) -> bool:
        """True if a member that had the record has sent a final acknowledgement, if the record was
        delivered as often as the limit allows, if it may have been deleted, or if the group was
        reset to a later offset."""
        lives = self.of(place, offset).all()
        finished = any(each.tried or each.count >= self._limit for each in lives)
        passed = offset < self.life(place).start_offset
        return finished or passed or self.is_deleted(place, offset)

    # --- Deliveries ---

    def acquiring(self, place: Place, offsets: Iterable[int], count: int) -> None:
        """Called when the broker has acquired records for a member; the response may have to
        wait."""
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
        """Called when a member got records, at `since_ms` at the earliest and `now_ms` at the
        latest."""
        life = self.life(place)
        judged = not self._resetting[place] and since_ms > life.began_ms
        self.touched(place, offsets)
        for offset in offsets:
            record = self.of(place, offset)
            record.members[member] = None
            others = record.changed_ms > since_ms and record.changed_by != member
            if others and (
                record.confirmed is not None or (record.holder and not record.returning)
            ):
                # The response had to wait, and another member has acquired the record after this
                # member.
                continue
            what = f"{place}, offset {offset}, delivery {count} to {member}"
            if judged:
                if life.sure and offset < life.start_offset:
                    yield f"{what}, and the group begins at offset {life.start_offset}"
                for problem in self._problems(record, count, now_ms):
                    yield f"{what} {problem}"
            else:
                record.unsure, record.confirmed = True, None
            self._note_acquired(place, record, member, count, since_ms)
            record.changed_ms, record.changed_by = now_ms, member

    def _problems(self, record: KnownRecord, count: int, now_ms: float) -> Iterator[str]:
        """Yield the reasons why the record must not be delivered."""
        if record.confirmed is not None:
            yield f"after a confirmed {_NAMES[record.confirmed]}"
        if record.holder and not record.returning and now_ms < record.until_ms:
            yield f"while {record.holder} has it until {record.until_ms:.0f} ms"
        elif now_ms < record.due_ms:
            yield f"at {now_ms:.0f} ms, and its pause ends at {record.due_ms:.0f} ms"
        known = record.deliveries or not record.unsure
        if not 1 <= count <= self._limit:
            yield f"is too many: the limit is {self._limit} deliveries"
        elif known and count > record.count + 1 and count - 1 not in record.counts:
            yield f"follows delivery {record.count}"
        elif count <= record.stored_count:
            yield f"comes after it was stored that there were {record.stored_count}"

    def _note_acquired(
        self, place: Place, record: KnownRecord, member: str, count: int, since_ms: float
    ) -> None:
        record.holder, record.until_ms = member, since_ms + self._lock_ms
        record.count = count
        record.deliveries += 1
        record.due_ms = record.until_ms + self._pause_ms(count)
        # While the response waited, the session may have ended, or the leader may have
        # forgotten the acquired records.
        left_ms = self._left_ms.get(member, -1.0)
        record.returning = left_ms >= since_ms
        if record.returning:
            self._given_back(record, left_ms)
        if self._forgotten_ms.get(place, -1.0) >= since_ms:
            record.returning, record.due_ms = True, 0.0

    def _given_back(self, record: KnownRecord, now_ms: float) -> None:
        """Called when the record is released at `now_ms` at the earliest, unless its lock ends
        earlier."""
        record.returning = True
        record.due_ms = min(record.due_ms, now_ms + self._pause_ms(record.count))

    # --- Acknowledgements ---

    def asked(
        self, place: Place, member: str, first: int, types: Sequence[int], last: int, now_ms: float
    ) -> list[Asked]:
        """Called when a member acknowledges records. `types`: one type for all, or one for each
        offset."""
        asked = []
        self.touched(place, range(first, last + 1))
        for offset in range(first, last + 1):
            kind = types[0] if len(types) == 1 else types[offset - first]
            record = self.of(place, offset)
            held = record.holder == member
            if held and kind == RELEASE:
                self._given_back(record, now_ms)
            perhaps = record.unsure and not record.deliveries
            if (held or perhaps) and kind in _FINAL:
                record.tried[kind] = None
            asked.append(Asked(place, offset, kind, member, record.deliveries, held, now_ms))
        return asked

    def confirmed(self, asked: Iterable[Asked], now_ms: float) -> Iterator[str]:
        """Called when the broker has accepted acknowledgements."""
        for each in asked:
            if each.at_ms <= self.life(each.place).began_ms:
                # The member had acquired the record before the share partition was reset.
                continue
            record = self.of(each.place, each.offset)
            judged = not self._resetting[each.place]
            what = f"{each.place}, offset {each.offset}: {_NAMES[each.kind]} of {each.member}"
            if not each.held or record.deliveries != each.deliveries:
                # If the record is finished or deleted, the broker accepts an acknowledgement, which
                # then has no effect.
                lost = judged and record.holder not in ("", each.member) and not record.returning
                lost = lost and not (each.held and each.kind == RELEASE)
                if lost and not record.tried and not self.is_deleted(each.place, each.offset):
                    yield f"{what} is taken, and {record.holder} has the record"
                continue
            if each.kind == RENEW:
                record.until_ms = max(record.until_ms, each.at_ms + self._lock_ms)
                if not record.returning:
                    record.due_ms = record.until_ms + self._pause_ms(record.count)
                continue
            if each.at_ms >= record.until_ms and record.count >= self._limit:
                # The last lock has ended. If the broker has archived the record and moved the
                # start offset past it, the acknowledgement has no effect, and the state may be
                # not stored yet.
                record.returning = True
                continue
            record.changed_ms, record.changed_by = now_ms, each.member
            record.holder = ""
            if each.kind == RELEASE:
                record.stored_count = max(record.stored_count, record.count)
            elif judged and record.confirmed is not None and record.confirmed != each.kind:
                yield f"{what} is taken after a confirmed {_NAMES[record.confirmed]}"
            else:
                record.confirmed = each.kind
                record.in_time = not record.returning

    def left(self, member: str, places: Iterable[Place], now_ms: float) -> None:
        """Called when a member's session has ended: the broker releases the records that the member
        had."""
        self._left_ms[member] = now_ms
        for place in places:
            for record in self.records.get(place, {}).values():
                if record.holder == member:
                    self._given_back(record, now_ms)

    def restarted(self) -> None:
        """Called when the broker was restarted, and has lost its memory of acquired records."""
        for place in self.records:
            self.forgotten(place, -1.0)

    def forgotten(self, place: Place, now_ms: float) -> None:
        """Called when a leader has lost its memory of acquired records and of pauses: it loads the
        stored state again."""
        self._forgotten_ms[place] = now_ms
        for record in self.records.get(place, {}).values():
            record.returning, record.due_ms = True, 0.0

    # --- Share partitions that are reset ---

    def reset_asked(self, place: Place) -> None:
        """Note a request that resets a share partition or deletes its state. Until `begun_anew` or
        `reset_refused` is called, nobody knows which records are delivered."""
        self._resetting[place] += 1

    def touched(self, place: Place, offsets: Iterable[int]) -> None:
        """Called when these records are delivered or acknowledged, in case a reset has no response
        yet."""
        if self._resetting[place]:
            self._touched.setdefault(place, set()).update(offsets)

    def is_touched(self, place: Place) -> bool:
        """True if a record was delivered or acknowledged after the request for the reset, or if
        another reset has no response yet."""
        return self._resetting[place] > 1 or bool(self._touched.get(place))

    def reset_refused(self, place: Place) -> None:
        """Called when a reset was refused and has changed nothing."""
        self._resetting[place] -= 1
        if not self._resetting[place]:
            self._touched.pop(place, None)

    def begun_anew(
        self, place: Place, start_offset: int, now_ms: float, *, sure: bool = True
    ) -> None:
        """Called when the share partition was reset to an offset. Without `sure`, the reset may
        have failed."""
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

    # --- Stored states, and the final check ---

    def check_stored(self, place: Place, offset: int, accepted: bool) -> Iterator[str]:
        """Check a record that is stored as acknowledged (`accepted`) or as archived."""
        record = self.of(place, offset)
        wrong = (REJECT, GAP) if accepted else (ACCEPT,)
        if record.confirmed is not None and record.confirmed in wrong:
            stored = "acknowledged" if accepted else "archived"
            yield (
                f"{place}, offset {offset} is stored as {stored} after a confirmed"
                f" {_NAMES[record.confirmed]}"
            )

    def check_finished(
        self, place: Place, offsets: Iterable[int], finished: Collection[int]
    ) -> Iterator[str]:
        """Check that these records are finished, because of an acknowledgement or of the delivery
        limit."""
        for offset in offsets:
            record = self.of(place, offset)
            if self.is_deleted(place, offset):
                continue
            if offset not in finished:
                yield f"{place}, offset {offset} is not finished: {record}"
            elif record.unsure or offset < self.life(place).start_offset:
                continue
            elif not record.deliveries:
                yield f"{place}, offset {offset} was never delivered"
            elif not record.tried and max({record.count, *record.counts}) < self._limit:
                yield f"{place}, offset {offset} is finished, and nobody has answered it: {record}"
