"""The aborted transactions of one log, from the transaction indexes of its segments.

A file that is not trusted is neither read nor extended: reads fail with a retriable error until a
worker has written a new file, which then replaces the old one (L-05, L-33). If an entry cannot be
written, as on a full disk, the file is removed. So at any moment the file on disk is whole or known
to be damaged, and no reader gets aborted records (F-09).

A file is trusted if it has the entries that the snapshot at the end of its segment names (P-26).
Where no snapshot names entries, as in a directory of Kafka's, any file is trusted. A missing file
was removed or never written, and is rebuilt once from the batches.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress

from odradek_broker.platform.seams import Files
from odradek_broker.storage.errors import IndexesBeingRebuilt, LogCorrupt, no_room
from odradek_broker.storage.handles import BackgroundRunner, HandleCache
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.segment_state import SegmentState
from odradek_broker.storage.transaction_index import (
    AbortedTxn,
    CorruptTransactionIndex,
    TransactionIndex,
    cut_behind,
)

_OPEN_MAX = 4
#: The limit of indexes of one log that `require` rebuilds at the same time.
_REBUILDS_MAX = 8
#: The limit of aborts during a rebuild. If there are more, the rebuild is given up, and the next
#: reader starts another.
_LATE_MAX = 100_000
# No two attempts write the same file, even if a log was closed and opened between them.
_attempts = itertools.count()

Fill = Callable[[Segment, Sequence[Segment], TransactionIndex], None]
"""Writes the index of a segment, given the segments before it, in any thread. OSError; any other
exception means that batches are damaged."""


class _Broken:
    """A transaction index that is not trusted. `late`: transactions that were aborted after a
    worker began to rebuild the index; their batches come after those that the worker reads.
    `damage`: the reason why a rebuild is impossible; empty if none is known. `failure`: the error
    of the last rebuild, which the next reader gets."""

    __slots__ = ("damage", "failure", "late", "under_way")

    def __init__(self) -> None:
        self.under_way = False
        self.late: list[AbortedTxn] = []
        self.damage = ""
        self.failure: OSError | None = None


def _at_once(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
    try:
        work()
    except Exception as problem:  # noqa: BLE001 - passed to `done`
        done(problem)
    else:
        done(None)


class AbortedTransactions:
    """The transaction indexes of one log, of which at most _OPEN_MAX have an open file. `unsynced`
    gets the paths that were written. `state_at` returns the state of a segment from the snapshot at
    its end offset. `first_open_at` returns the first offset of the transactions that are open at an
    offset; -1 if unknown. Methods raise OSError."""

    __slots__ = (
        "_believed",
        "_broken",
        "_expected",
        "_files",
        "_first_open_at",
        "_first_open_offsets",
        "_open",
        "_state_at",
        "_unsynced",
    )

    def __init__(
        self,
        files: Files,
        unsynced: set[str],
        state_at: Callable[[int], SegmentState | None],
        first_open_at: Callable[[int], int],
    ) -> None:
        self._files = files
        self._unsynced = unsynced
        self._state_at = state_at
        self._first_open_at = first_open_at
        self._first_open_offsets: dict[int, int] = {}
        # Base offsets of segments whose file was checked, or written from the first batch on.
        self._believed: set[int] = set()
        # The state of the active segment when the log was opened.
        self._expected: dict[int, SegmentState] = {}
        self._open: OrderedDict[int, TransactionIndex] = OrderedDict()
        self._broken: dict[int, _Broken] = {}

    @property
    def broken(self) -> bool:
        """True if any index is known not to be trusted."""
        return bool(self._broken)

    def begin(self, segment: Segment) -> None:
        """Trust the index of a segment that has no batch yet, or that is scanned from its first
        batch on.
        """
        self._believed.add(segment.base_offset)

    def expect(self, segment: Segment) -> None:
        """Expect the index of an active segment to match the snapshot at the segment's end. Raises
        OSError."""
        if not segment.size_bytes:
            self.begin(segment)
            return
        state = self._state_of(segment)
        if state is not None:
            self._expected[segment.base_offset] = state

    def _state_of(self, segment: Segment) -> SegmentState | None:
        """The state of a segment in the snapshot at its end; None if there is no snapshot, or if
        the segment was compacted later."""
        state = self._state_at(segment.next_offset)
        extent = segment.base_offset, segment.size_bytes
        return None if state is None or (state.base_offset, state.size_bytes) != extent else state

    def append(self, segment: Segment, entry: AbortedTxn) -> None:
        """Add an aborted transaction. Its marker is in the log already, so a rebuild that begins
        later finds the marker. Raises OSError if the entry cannot be written and the file cannot be
        removed either."""
        broken = self._broken.get(segment.base_offset)
        if broken is None:
            try:
                self._opened(segment).append(entry)
            except CorruptTransactionIndex:
                self._broken[segment.base_offset] = _Broken()
            except OSError:
                # The next start rebuilds a missing file, but might trust a file without this entry.
                self.remove(segment)
                self._broken[segment.base_offset] = _Broken()
            else:
                self._unsynced.add(segment.path_of("txnindex"))
        elif broken.under_way:
            broken.late.append(entry)
            if len(broken.late) >= _LATE_MAX:
                self._broken[segment.base_offset] = _Broken()

    def search(
        self,
        segments: Sequence[Segment],
        start_offset: int,
        end_offset: int,
        earlier: Sequence[Segment],
        fill: Fill,
        background: BackgroundRunner | None,
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of the transactions that were aborted in [start, end) (F-09).
        `earlier` must contain, for each of `segments`, all segments before it. Raises
        IndexesBeingRebuilt, LogCorrupt."""
        found: list[tuple[int, int]] = []
        for segment in segments:
            if self._none_open(segment, end_offset):
                break
            entries, complete = self._search(
                segment,
                start_offset,
                end_offset,
                lambda broken, segment=segment: self._repair(  # type: ignore[misc]
                    segment, broken, earlier, fill, background or _at_once
                ),
            )
            found += [(entry.producer_id, entry.first_offset) for entry in entries]
            if complete:
                break
        return found

    def require(
        self, segments: Sequence[Segment], fill: Fill, background: BackgroundRunner | None
    ) -> None:
        """Check the index of every segment. Raises LogCorrupt; IndexesBeingRebuilt while indexes
        are rebuilt, at most _REBUILDS_MAX at a time."""
        rebuilds: list[IndexesBeingRebuilt] = []
        for segment in segments:
            if segment.base_offset in self._believed and segment.base_offset not in self._broken:
                continue
            try:
                self._search(
                    segment,
                    0,
                    0,
                    lambda broken, segment=segment: self._repair(  # type: ignore[misc]
                        segment, broken, segments, fill, background or _at_once
                    ),
                )
            except IndexesBeingRebuilt as problem:
                rebuilds.append(problem)
                if len(rebuilds) == _REBUILDS_MAX:
                    break
        if rebuilds:
            raise rebuilds[0]

    def _none_open(self, segment: Segment, end_offset: int) -> bool:
        """True if the snapshot at the start of a segment shows that no transaction that began
        before `end_offset` is still open there; then the indexes of this segment and of all later
        segments need not be rebuilt. False for a segment with a checked index, because the index is
        faster to read than the snapshot."""
        base = segment.base_offset
        if base < end_offset or base in self._believed:
            return False
        if base not in self._first_open_offsets:
            self._first_open_offsets[base] = self._first_open_at(base)
        return self._first_open_offsets[base] >= end_offset

    def _search(
        self,
        segment: Segment,
        start_offset: int,
        end_offset: int,
        repair: Callable[[_Broken], None],
    ) -> tuple[list[AbortedTxn], bool]:
        base = segment.base_offset
        broken = self._broken.get(base)
        if broken is None:
            try:
                return self._opened(segment).search(start_offset, end_offset)
            except CorruptTransactionIndex:
                self.close_index(segment)
                broken = self._broken[base] = _Broken()
        repair(broken)
        if base in self._broken:
            raise IndexesBeingRebuilt(segment.path)
        return self._opened(segment).search(start_offset, end_offset)

    def _opened(self, segment: Segment) -> TransactionIndex:
        index = self._open.get(segment.base_offset)
        if index is not None:
            self._open.move_to_end(segment.base_offset)
            return index
        index = TransactionIndex(self._files, segment.path_of("txnindex"))
        if segment.base_offset not in self._believed:
            try:
                self._check(segment, index)
            except BaseException:
                index.close()
                raise
        self._keep(segment, index)
        return index

    def _check(self, segment: Segment, index: TransactionIndex) -> None:
        """Raise CorruptTransactionIndex if a file has lost entries, or is missing and no snapshot
        says that it was empty."""
        base = segment.base_offset
        state = self._expected.get(base) or self._state_of(segment)
        if state is None:
            if segment.size_bytes and not index.was_there:
                raise CorruptTransactionIndex(f"{index.path} is missing")
        elif (len(index), index.checksum()) != (state.aborted_entries, state.aborted_crc):
            raise CorruptTransactionIndex(
                f"{index.path} does not have its {state.aborted_entries} entries"
            )
        self._believed.add(base)

    def _keep(self, segment: Segment, index: TransactionIndex) -> None:
        while len(self._open) >= _OPEN_MAX:
            self._open.popitem(last=False)[1].close()
        self._open[segment.base_offset] = index

    # ---- rebuilding an index

    def _repair(
        self,
        segment: Segment,
        broken: _Broken,
        all_segments: Sequence[Segment],
        fill: Fill,
        background: BackgroundRunner,
    ) -> None:
        """Start a rebuild, unless one is under way or impossible. Raises LogCorrupt; raises OSError
        if the last attempt failed with an OSError other than that of a full disk."""
        if not (broken.under_way or broken.damage or broken.failure):
            self._begin(segment, broken, all_segments, fill, background)
        if broken.damage:
            raise LogCorrupt(broken.damage)
        failure, broken.failure = broken.failure, None
        # A full disk can still be read, so the rebuild is tried again after this failure.
        if failure is not None and not no_room(failure):
            raise failure

    def _begin(
        self,
        segment: Segment,
        broken: _Broken,
        all_segments: Sequence[Segment],
        fill: Fill,
        background: BackgroundRunner,
    ) -> None:
        path = f"{segment.path_of('txnindex')}.{next(_attempts)}.tmp"
        index = TransactionIndex.create(self._files, path)
        earlier = [other for other in all_segments if other.base_offset < segment.base_offset]
        handles = HandleCache(self._files, limit=1)
        copies = [other.detached(handles) for other in (*earlier, segment)]

        def work() -> None:
            try:
                fill(copies[-1], copies[:-1], index)
                index.sync()
            finally:
                for copy in copies:
                    copy.drop_handle()

        def done(problem: Exception | None) -> None:
            broken.under_way = False
            if problem is not None and any(one.closing for one in earlier):
                # Retention or compaction has removed or replaced the files that the worker read.
                broken.late.clear()
            else:
                self._filled(segment, broken, index, problem)

        broken.under_way = True
        background(work, done)

    def _filled(
        self, segment: Segment, broken: _Broken, index: TransactionIndex, problem: Exception | None
    ) -> None:
        """Use the index that a worker has written, unless its segment was removed."""
        wanted = self._broken.get(segment.base_offset) is broken
        if wanted and problem is None:
            try:
                for entry in broken.late:
                    index.append(entry)
                if broken.late:
                    # A crash must not leave a file that looks whole without the late entries.
                    index.sync()
                index.take_place(segment.path_of("txnindex"))
            except OSError as failure:
                problem = failure
            else:
                del self._broken[segment.base_offset]
                self.begin(segment)
                self._keep(segment, index)
                self._unsynced.add(index.path)
                return
        broken.late.clear()
        if isinstance(problem, OSError):
            broken.failure = problem
        elif problem is not None:
            broken.damage = f"{segment.path} does not say what was aborted in it: {problem}"
        with suppress(OSError):
            index.remove()

    # ---- segments that change

    def remove(self, segment: Segment) -> None:
        """Remove the index of a segment; a scan of the segment writes it again. Raises OSError."""
        self.forget(segment)
        self._files.remove(segment.path_of("txnindex"))
        self.begin(segment)

    def state(self, segment: Segment) -> tuple[int, int] | None:
        """The number of entries in a segment's index, and their CRC-32C; None where the index is
        not trusted. Raises OSError."""
        if segment.base_offset in self._broken:
            return None
        try:
            index = self._opened(segment)
            return len(index), index.checksum()
        except CorruptTransactionIndex:
            self.close_index(segment)
            return None

    def cut_behind(self, segment: Segment, entries: int, crc: int) -> None:
        """Cut a segment's index after a number of entries. Raises CorruptTransactionIndex if the
        index does not begin with entries of this number and CRC; raises OSError."""
        self.forget(segment)
        cut_behind(self._files, segment.path_of("txnindex"), entries, crc)
        self.begin(segment)

    def forget(self, segment: Segment) -> None:
        """Drop all state of a segment that is removed."""
        base = segment.base_offset
        self._broken.pop(base, None)
        self._believed.discard(base)
        self._expected.pop(base, None)
        self._first_open_offsets.pop(base, None)
        self.close_index(segment)

    def close_index(self, segment: Segment) -> None:
        index = self._open.pop(segment.base_offset, None)
        if index is not None:
            index.close()

    def close(self) -> None:
        self._broken.clear()
        while self._open:
            self._open.popitem()[1].close()
        # They refer to what has this object.
        with suppress(AttributeError):
            del self._state_at, self._first_open_at
