"""Verdicts about consumer groups without thresholds, after the rules of Burrow: OK, WARNING,
STALLED or STOPPED.

Every ten seconds a sample of each committed offset is compared with the end of its partition. A
group is behind in a partition if its committed offset is below the end that the partition had at
the previous sample, so records that were added after that sample do not count. For each
partition in which a group is behind, a window keeps the last ten commits that samples found. The
verdict about the partition is the first in this list whose condition is true:

- OK: at least one of the last ten samples found that the group was not behind.
- STOPPED: no sample of the last ten found a new commit, and the time since the last commit is
  longer than the time between the first and the last commit of the window. If the window has only
  one commit, a group with members is STOPPED only after ten minutes without another commit.
- STALLED: the window is full, and all of its commits have the same offset.
- WARNING: the window is full, and the lag did not fall from any commit to the next.
- OK otherwise.

The verdict about a group is the worst of its partitions.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import field
from enum import IntEnum
from typing import Protocol

from odradek_broker.explain.history import LIST_MAX, SubjectState
from odradek_broker.explain.sentences import EventKind, duration_text
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.lazy_dataclass import dataclass

SAMPLE_INTERVAL_MS = 10_000
#: The limit of the commits of a window. It is also the number of consecutive samples at which a
#: group has to be behind for a verdict other than OK.
WINDOW = 10
#: A group with members is STOPPED after this many samples without a new commit, if its window has
#: only one commit, and therefore no interval.
SLOW_SAMPLES = 60
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
    """The last commits of a group in a partition where the group is behind, each as (time, offset,
    lag in records). `behind`: the number of consecutive samples at which the group was behind;
    `quiet`: the number of samples since the last new commit.
    """

    __slots__ = ("_commits", "behind", "lag", "quiet")

    def __init__(self) -> None:
        self._commits = array("q")
        self.behind = 0
        self.quiet = 0
        #: The lag in records at the last sample.
        self.lag = 0

    def __len__(self) -> int:
        return len(self._commits) // _NUMBERS

    def sample(self, commit_ms: int, offset: int, lag: int) -> None:
        """Add a sample at which the group is behind."""
        commits = self._commits
        if commits and offset < commits[-2]:
            # The group was reset to an older offset, so its earlier commits are dropped.
            del commits[:]
            self.behind = 0
        self.behind += 1
        self.quiet += 1
        self.lag = lag
        if commits and commits[-3] == commit_ms:
            return
        self.quiet = 0
        commits.extend((commit_ms, offset, lag))
        if len(commits) > WINDOW * _NUMBERS:
            del commits[:_NUMBERS]

    @property
    def times(self) -> array[int]:
        return self._commits[0::_NUMBERS]

    @property
    def offsets(self) -> array[int]:
        return self._commits[1::_NUMBERS]

    @property
    def lags(self) -> array[int]:
        return self._commits[2::_NUMBERS]

    def verdict(self, now_ms: int, members: int) -> Verdict:
        """The verdict about the partition. `now_ms`: wall time, like the timestamps of commits."""
        if self.behind < WINDOW:
            return Verdict.OK
        times = self.times
        patience = SLOW_SAMPLES if members and len(times) == 1 else WINDOW
        if self.quiet >= patience and now_ms - times[-1] > times[-1] - times[0]:
            return Verdict.STOPPED
        if len(times) < WINDOW:
            return Verdict.OK
        offsets, lags = self.offsets, self.lags
        if offsets[0] == offsets[-1]:
            return Verdict.STALLED
        if all(lags[at] <= lags[at + 1] for at in range(len(lags) - 1)):
            return Verdict.WARNING
        return Verdict.OK


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """The verdict about a group. `worst`: the partitions with this verdict, the largest lag first;
    `window`: the window of the first of these partitions.
    """

    verdict: Verdict
    behind: int = 0
    worst: list[TopicPartition] = field(default_factory=list)
    window: Window | None = None


class GroupVerdicts:
    """The windows of all groups. The owner calls `step` about once a second.

    `group_ids` returns the groups that have committed offsets; `commits` returns the commits of a
    group; `end_offset` returns the end of a partition for consumers, None if there is no such
    partition.
    """

    def __init__(
        self,
        group_ids: Callable[[], Iterable[str]],
        commits: Callable[[str], Mapping[TopicPartition, CommittedOffset]],
        end_offset: Callable[[str, int], int | None],
    ) -> None:
        self._group_ids = group_ids
        self._commits = commits
        self._end_offset = end_offset
        self._windows: dict[str, dict[TopicPartition, Window]] = {}
        self._next: dict[str, dict[TopicPartition, Window]] = {}
        self._count = 0
        self._ends_before: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._round: Iterator[None] | None = None
        self._next_round_ms = 0
        #: The number of partitions that got no window in the last round, because of WINDOWS_MAX.
        self.unwatched = 0

    def step(self, monotonic_ms: int) -> Generator[None, None, None]:
        """Take the next samples of the present round, with a pause before each. If no round is
        under way, begin one when it is due."""
        if self._round is None:
            if monotonic_ms < self._next_round_ms:
                return
            self._next_round_ms = monotonic_ms + SAMPLE_INTERVAL_MS
            self._round = self._sample_all()
        for _ in range(STEP_OFFSETS):
            yield
            if next(self._round, self) is self:
                self._round = None
                return

    def _sample_all(self) -> Iterator[None]:
        self._next, self._count, unwatched = {}, 0, 0
        self._ends_before, self._ends = self._ends, {}
        for group_id in self._group_ids():
            known = self._windows.get(group_id, {})
            commits = list(self._commits(group_id).items())
            if not commits:
                yield
            for partition, commit in commits:
                window = self._sample(partition, commit, known.get(partition))
                if window is not None and self._count < WINDOWS_MAX:
                    self._count += 1
                    self._next.setdefault(group_id, {})[partition] = window
                elif window is not None:
                    unwatched += 1
                yield
        self._windows, self._next, self.unwatched = self._next, {}, unwatched

    def _sample(
        self, partition: TopicPartition, commit: CommittedOffset, window: Window | None
    ) -> Window | None:
        """The partition's window including this sample; None if the group is not behind."""
        end = self._ends.get(partition)
        if end is None:
            end = self._end_offset(*partition)
            if end is None:
                return None
            self._ends[partition] = end
        if self._ends_before.get(partition, 0) <= commit.offset:
            return None
        window = window or Window()
        window.sample(commit.commit_timestamp, commit.offset, end - commit.offset)
        return window

    def verdict(self, group_id: str, now_ms: int, members: int) -> GroupVerdict:
        """The verdict about a group that has `members` members, at the wall time `now_ms`."""
        windows = self._windows.get(group_id)
        if not windows:
            return GroupVerdict(Verdict.OK)
        judged = [
            (window.verdict(now_ms, members), window.lag, partition, window)
            for partition, window in windows.items()
        ]
        verdict = max(each[0] for each in judged)
        worst = sorted(
            (each for each in judged if each[0] is verdict), key=lambda each: (-each[1], each[2])
        )
        return GroupVerdict(verdict, len(judged), [each[2] for each in worst], worst[0][3])


def state_of_verdict(found: GroupVerdict, offsets: int, now_ms: int, members: int) -> SubjectState:
    """The verdict and a sentence about it, for people. `offsets`: the number of committed
    offsets."""
    return SubjectState.of(
        EventKind.NOW_VERDICT,
        partitions=found.worst[:LIST_MAX],
        verdict=found.verdict.name,
        reason=_reason(found, offsets, now_ms, members),
        more=max(len(found.worst) - LIST_MAX, 0) or None,
    )


def _reason(found: GroupVerdict, offsets: int, now_ms: int, members: int) -> str:
    window = found.window
    if window is None:
        return f"it keeps up in all {offsets} partitions" if offsets != 1 else "it keeps up"
    wait = f"{window.lag} records wait"
    if found.verdict is Verdict.OK:
        return f"it is behind in {found.behind} of {offsets} partitions, but not for long, or moves"
    if found.verdict is Verdict.STOPPED:
        who = f"{members} members" if members > 1 else "one member" if members else "no members"
        since = duration_text(max(now_ms - window.times[-1], 0))
        return f"it has committed nothing for {since}, and {wait}; it has {who}"
    times = window.times
    during = f"its last {WINDOW} commits, of {duration_text(max(times[-1] - times[0], 0))},"
    if found.verdict is Verdict.STALLED:
        return f"{during} are all of offset {window.offsets[-1]}, and {wait}"
    return (
        f"with {during} it never came nearer to the end: {window.lags[0]} records were left,"
        f" {window.lags[-1]} are now"
    )
