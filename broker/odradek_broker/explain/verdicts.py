"""Verdicts about consumer groups without thresholds: OK, WARNING, STALLED or STOPPED.

Every ten seconds a sample of each committed offset is compared with the end of its partition, which
is the last stable offset, or the high watermark if the offset is above the last stable one. Offsets
without a record for consumers (markers, compacted records, records before the log start) do not
count. A group is behind in a partition if its committed offset is below the end that the partition
had at the previous sample. It is held back if it has read everything up to the last stable offset,
which has not moved since the previous sample although there were records after it. For each
partition in which a group is behind or held back, a window keeps the last ten commits with another
offset than the commit before. The verdict about the partition is the first in this list whose
condition is true:

- STALLED: the group has been held back for a minute at the same offset.
- For a minute no sample found another offset, and the time since the last commit of the window is
  more than twice the longest time between two of its commits: STALLED if the group has committed
  the same offset again within a minute, otherwise STOPPED.
- WARNING: the window is full, and the lag did not fall from any commit to the next.
- OK otherwise.

The verdict about a group is the worst of its partitions. The rules are Burrow's, with a shorter
patience, because a broker sees both offsets at the same time. `causes.py` makes a sentence of a
verdict, and names the cause.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import field
from enum import IntEnum
from heapq import nsmallest
from itertools import pairwise
from operator import itemgetter
from typing import Protocol

from odradek_broker.explain.group_lags import GroupLags
from odradek_broker.explain.history import LIST_MAX
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple

SAMPLE_INTERVAL_MS = 10_000
#: The limit of the commits of a window.
WINDOW = 10
#: A group is STOPPED after this many further samples without progress. Records have waited for a
#: minute then, because a group is behind only at the second sample.
PATIENCE = 5
#: The first record after a new commit is looked up if the lag is no larger than this; after a
#: commit that the sample before found too, it is looked up in any case.
NEAR_RECORDS = 10
#: The number of committed offsets that are sampled in one step.
STEP_OFFSETS = 1_000
#: The limit of the windows of all groups. Each group has a window for each partition in which it is
#: behind.
WINDOWS_MAX = 50_000
_NUMBERS = 3


class Verdict(IntEnum):
    """Verdicts about a group or a partition, from the best to the worst."""

    OK = 0
    WARNING = 1
    STALLED = 2
    STOPPED = 3


class CommittedOffset(Protocol):
    """A committed offset."""

    offset: int
    commit_timestamp: int


class Window:
    """The last commits of a group in a partition where the group is behind or held back, each as
    (time, offset, lag in records). `quiet`: the number of samples since the last of them;
    `committed_ms`: the time of the last commit, perhaps of the same offset; `held`: the number of
    consecutive samples at which the group was held back.
    """

    __slots__ = ("_commits", "committed_ms", "held", "lag", "position", "quiet")

    def __init__(self) -> None:
        self._commits = array("q")
        self.quiet = 0
        self.committed_ms = 0
        self.held = 0
        #: The lag in records at the last sample.
        self.lag = 0
        #: The offset of the first record at or after that of the last commit; -1 if not known.
        self.position = -1

    def __len__(self) -> int:
        return len(self._commits) // _NUMBERS

    def sample(self, commit_ms: int, offset: int, lag: int, *, held: bool = False) -> None:
        """Add a sample at which the group is behind, or `held` back."""
        commits = self._commits
        if commits and offset < commits[-2]:
            # The group was reset to an older offset, so its earlier commits are dropped.
            del commits[:]
        self.quiet += 1
        self.held = self.held + 1 if held else 0
        self.lag = lag
        self.committed_ms = commit_ms
        if commits and commits[-2] == offset:
            return
        self.quiet = 0
        commits.extend((commit_ms, offset, lag))
        if len(commits) > WINDOW * _NUMBERS:
            del commits[:_NUMBERS]

    @property
    def offset(self) -> int:
        """The offset of the last commit."""
        return self._commits[-2]

    @property
    def times(self) -> array[int]:
        return self._commits[0::_NUMBERS]

    @property
    def lags(self) -> array[int]:
        return self._commits[2::_NUMBERS]

    def verdict(self, now_ms: int) -> Verdict:
        """The verdict about the partition. `now_ms`: wall time, like the timestamps of commits."""
        if self.held > PATIENCE:
            return Verdict.STALLED
        times = self.times
        if not self.held and self.quiet >= PATIENCE:
            longest_ms = max((after - before for before, after in pairwise(times)), default=0)
            if now_ms - times[-1] > 2 * longest_ms:
                since_ms = max(times[-1] + 1, now_ms - (PATIENCE + 1) * SAMPLE_INTERVAL_MS)
                return Verdict.STALLED if self.committed_ms >= since_ms else Verdict.STOPPED
        if len(times) == WINDOW and all(before <= after for before, after in pairwise(self.lags)):
            return Verdict.WARNING
        return Verdict.OK


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """The verdict about a group. `worst`: the first partitions with this verdict, the largest lag
    first; `window`: the window of the first one. `count`: the number of partitions with this
    verdict; `lag`: the records that wait in them. A group that is not behind anywhere has no
    window.
    """

    verdict: Verdict
    worst: list[TopicPartition] = field(default_factory=list)
    window: Window | None = None
    count: int = 0
    lag: int = 0


class _Ends(NamedTuple):
    """The offsets of a partition at a sample."""

    start: int = 0
    stable: int = 0
    high: int = 0


class GroupVerdicts:
    """The windows of all groups. The owner calls `step` about once a second.

    `group_ids` returns the groups that have committed offsets; `commits` returns the commits of a
    group; `log_of` returns the log of a partition, None if there is no such partition.
    """

    def __init__(
        self,
        group_ids: Callable[[], Iterable[str]],
        commits: Callable[[str], Iterable[tuple[TopicPartition, CommittedOffset]]],
        log_of: Callable[[TopicPartition], PartitionLog | None],
    ) -> None:
        self._group_ids = group_ids
        self._commits = commits
        self._log_of = log_of
        self._windows: dict[str, dict[TopicPartition, Window]] = {}
        self._next: dict[str, dict[TopicPartition, Window]] = {}
        self._count = 0
        self._ends_before: dict[TopicPartition, _Ends] = {}
        self._ends: dict[TopicPartition, _Ends] = {}
        self._round: Iterator[None] | None = None
        self._next_round_ms = 0
        self.group_lags = GroupLags()
        #: The number of partitions that got no window in the last round, because of WINDOWS_MAX.
        self.unwatched = 0

    def step(self, monotonic_ms: int, wall_ms: int) -> Generator[None, None, None]:
        """Take the next samples of the present round, with a pause before each. If no round is
        under way, begin one when it is due."""
        if self._round is None:
            if monotonic_ms < self._next_round_ms:
                return
            self._next_round_ms = monotonic_ms + SAMPLE_INTERVAL_MS
            self._round = self._sample_all(wall_ms)
        for _ in range(STEP_OFFSETS):
            yield
            if next(self._round, self) is self:
                self._round = None
                return

    def _sample_all(self, wall_ms: int) -> Iterator[None]:
        self.group_lags.begin_round()
        self._next, self._count, unwatched = {}, 0, 0
        self._ends_before, self._ends = self._ends, {}
        for group_id in self._group_ids():
            known = self._windows.get(group_id, {})
            has_commits, lag = False, 0
            for partition, commit in self._commits(group_id):
                has_commits = True
                window = self._sample(partition, commit, known.get(partition))
                if window is not None and self._count < WINDOWS_MAX:
                    self._count += 1
                    self._next.setdefault(group_id, {})[partition] = window
                elif window is not None:
                    unwatched += 1
                end = self._ends.get(partition, _Ends())
                lag += max(end.high - max(commit.offset, end.start), 0)
                yield
            if has_commits:
                self.group_lags.add(group_id, wall_ms, lag)
            else:
                yield
        self._windows, self._next, self.unwatched = self._next, {}, unwatched

    def _sample(
        self, partition: TopicPartition, commit: CommittedOffset, window: Window | None
    ) -> Window | None:
        """The partition's window including this sample; None if the group is neither behind nor
        held back."""
        log = self._log_of(partition)
        if log is None:
            return None
        now = self._ends.get(partition)
        if now is None:
            # Reading the last stable offset of a log that is not open would open it.
            stable = log.last_stable_offset if log.loaded else log.high_watermark
            now = self._ends[partition] = _Ends(log.log_start_offset, stable, log.high_watermark)
        before = self._ends_before.get(partition, _Ends())
        stays = window is not None and window.offset == commit.offset
        position = window.position if window is not None and stays else -1
        offset = max(commit.offset, now.start, position)
        is_near = now.stable - offset <= NEAR_RECORDS or now.stable < now.high
        if position < 0 and offset < now.stable and (stays or is_near):
            offset = position = _next_record(log, offset, now.high)
        held = offset == now.stable == before.stable < min(before.high, now.high)
        end = before.stable if offset < now.stable else before.high
        if not held and (offset == now.stable or end <= offset <= now.high):
            return None
        lag = (now.stable if offset < now.stable else now.high) - offset
        window = window or Window()
        window.sample(commit.commit_timestamp, commit.offset, max(lag, 0), held=held)
        window.position = position
        return window

    def behind(self) -> list[str]:
        """The groups that were behind or held back in a partition at the last sample."""
        return list(self._windows)

    def verdict(self, group_id: str, now_ms: int) -> Generator[None, None, GroupVerdict]:
        """The verdict about a group at the wall time `now_ms`, with a pause for each partition."""
        judged: defaultdict[Verdict, list[tuple[int, TopicPartition, Window]]] = defaultdict(list)
        for partition, window in list(self._windows.get(group_id, {}).items()):
            yield
            judged[window.verdict(now_ms)].append((-window.lag, partition, window))
        if not judged:
            return GroupVerdict(Verdict.OK)
        verdict = max(judged)
        every = judged[verdict]
        worst = nsmallest(LIST_MAX, every, key=itemgetter(0, 1))
        lag = -sum(each[0] for each in every)
        return GroupVerdict(verdict, [each[1] for each in worst], worst[0][2], len(every), lag)


def _next_record(log: PartitionLog, offset: int, end: int) -> int:
    """The offset of the first record for consumers at or after `offset`; `end` if there is none,
    and `offset` if it is not known."""
    try:
        batch = log.unread_batch(offset)
    except StorageError:
        return offset
    return end if batch is None else max(batch.header.base_offset, offset)
