"""The log cleaner: finds the dirtiest log, has it cleaned, swaps in the result (L-25 to L-29).

The cleaner corresponds to Kafka's LogCleaner. Its code runs on the loop, in short steps: the runner
cleans, and the background waits for the disk. One log is cleaned at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TypeVar

from odradek_broker.platform.seams import Clock
from odradek_broker.storage.cleaner.job import (
    CleaningFinished,
    CleaningJob,
    CleaningStep,
    GroupCleaned,
    LastRecord,
)
from odradek_broker.storage.cleaner.policy import LogToClean, log_to_clean
from odradek_broker.storage.cleaner.producers import last_records
from odradek_broker.storage.cleaner.runner import CleanerRunner, CleaningFailed, CleaningFailure
from odradek_broker.storage.cleaner.statistics import CleanerStatistics, CleanerWatch, LogCleaned
from odradek_broker.storage.errors import (
    IndexesBeingRebuilt,
    LogCorrupt,
    StorageError,
)
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_directory import LogDirectory
from odradek_broker.storage.manager import LogManager
from odradek_broker.storage.producers.state import ProducerEntry
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.lazy_dataclass import dataclass

_Result = TypeVar("_Result")

_LOGS_AT_ONCE = 10
_PRODUCERS_AT_ONCE = 1_000
_SOURCES_AT_ONCE = 10
#: The limit of the times in a row that the cleaner's process dies while it cleans the same log.
_DEATHS_MAX = 3
#: If a step of a swap finds no room on the disk, it is tried again after this time.
_NO_ROOM_PAUSE_MS = 1_000
#: The size from which the active segment of an internal topic is rolled for a cleaning (L-29).
OWN_SEGMENT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The present values of log.cleaner.enable, .backoff.ms, .dedupe.buffer.size,
    .io.buffer.load.factor and .io.max.bytes.per.second."""

    enabled: bool
    backoff_ms: int
    dedupe_buffer_bytes: int
    dedupe_load_factor: float
    io_bytes_per_second: float


@dataclass(slots=True)
class _Run:
    """A log that is being cleaned. `restarts`: how often the log had been started again when the
    cleaning began. `waits_for_room`: a step of its swap has found no room on the disk."""

    key: TopicPartition
    log: PartitionLog
    to_clean: LogToClean
    restarts: int
    began_ms: int
    bytes_before: int
    waits_for_room: bool = False


class LogCleaner:
    """The cleaner of a broker's partition logs. Call `tick` about once a second. The broker sets
    `on_cleaned` and `on_problem` to write log lines.
    """

    def __init__(
        self,
        logs: LogManager,
        clock: Clock,
        runner: CleanerRunner,
        call_later: Callable[[float, Callable[[], None]], object],
        settings: Callable[[], CleanerSettings],
        is_own_topic: Callable[[str], bool],
        watch: CleanerWatch,
    ) -> None:
        """`is_own_topic`: True for the broker's own topics."""
        self._logs = logs
        self._clock = clock
        self._runner = runner
        self._background = logs.run_in_background
        self._call_later = call_later
        self._settings = settings
        self._is_own_topic = is_own_topic
        self._watch = watch
        #: The log that is being cleaned.
        self.at_work: TopicPartition | None = None
        self._busy = self._closed = False
        self._next_look_ms: float | None = None
        self._deaths: dict[TopicPartition, int] = {}
        #: Logs whose cleaning had no result. They are not tried again before the next search is
        #: due.
        self._set_aside: set[TopicPartition] = set()
        self.statistics = CleanerStatistics(looked_at_ms=clock.monotonic_ms())
        self.on_cleaned: Callable[[LogCleaned], None] = lambda _: None
        self.on_problem: Callable[[str, str], None] = lambda name, problem: None

    @property
    def busy(self) -> bool:
        """True while logs are searched or one is cleaned."""
        return self._busy

    def tick(self) -> None:
        """Begin a search, if one is due. The first search is due log.cleaner.backoff.ms after the
        first call."""
        now_ms = self._clock.monotonic_ms()
        settings = self._settings()
        if self._next_look_ms is None:
            self._next_look_ms = now_ms + settings.backoff_ms
        if self._busy or self._closed or not settings.enabled or now_ms < self._next_look_ms:
            return
        self._set_aside.clear()
        self._begin_look()

    def close(self) -> None:
        """Stop cleaning. The next start finishes a swap that was committed."""
        self._closed = True
        self._runner.close()

    # ---- looking

    def _begin_look(self) -> None:
        self._busy = True
        self.at_work = None
        self.statistics.looked_at_ms = self._clock.monotonic_ms()
        # Without a call for each log, of which there may be thousands.
        compacted = [log for log in self._logs if "compact" in log.config.cleanup_policy]
        self._look_on(iter(compacted), [])

    def _look_on(self, logs: Iterator[PartitionLog], found: list[LogToClean]) -> None:
        if self._closed:
            return
        some = list(islice(logs, _LOGS_AT_ONCE))
        for log in some:
            to_clean = self._look_at(log)
            if to_clean is not None and to_clean.clean_bytes + to_clean.cleanable_bytes:
                found.append(to_clean)
        if some:
            self._call_later(0, lambda: self._look_on(logs, found))
        else:
            self._choose(found)

    def _look_at(self, log: PartitionLog) -> LogToClean | None:
        """The part of a log that may be cleaned; None if it cannot be cleaned at present."""
        key = log.topic, log.partition
        if log.offline or key in self.statistics.uncleanable or key in self._set_aside:
            return None
        now_ms = self._clock.wall_ms()
        try:
            if not log.loaded:
                log.load(now_ms)
            if log.trimming.swapping:
                return None
            if self._is_own_topic(log.topic) and log.segments[-1].size_bytes >= OWN_SEGMENT_BYTES:
                log.roll(now_ms)
            found = log_to_clean(log, self._logs.directory_of(log).cleaner_offsets.get(key), now_ms)
            if found.due:
                # An aborted record must not count as the newest of its key.
                log.require_transaction_indexes()
            return found
        except IndexesBeingRebuilt:
            return None
        except LogCorrupt as problem:
            self._leave_alone(key, log, str(problem))
        except (StorageError, OSError) as problem:
            self._met(log, str(problem))
        return None

    def _choose(self, found: list[LogToClean]) -> None:
        """Clean the dirtiest of the logs that are due; search again later if none is."""
        statistics = self.statistics
        statistics.dirtiest = max((each.ratio for each in found), default=0.0)
        statistics.dirty_bytes = sum(each.cleanable_bytes for each in found)
        statistics.delay_ms = max((each.delay_ms for each in found), default=0)
        self._forget_removed()
        due = [each for each in found if each.due]
        if not due:
            self._busy = False
            self._next_look_ms = self._clock.monotonic_ms() + self._settings().backoff_ms
            return
        chosen = max(due, key=lambda each: each.ratio)
        log = chosen.log
        if log.offline or not log.loaded:
            self._look_again()
            return
        run = _Run(
            (log.topic, log.partition),
            log,
            chosen,
            log.durability.restarts,
            self._clock.monotonic_ms(),
            chosen.clean_bytes + chosen.cleanable_bytes,
        )
        self.at_work = run.key
        self._collect_producers(run, iter(list(log.producers.entries())), {})

    def _forget_removed(self) -> None:
        """Drop statistics of removed partitions, and count the uncleanable bytes again."""
        statistics = self.statistics
        for key in [key for key in statistics.uncleanable if self._logs.get(*key) is None]:
            del statistics.uncleanable[key]
        statistics.uncleanable_bytes.clear()
        for log in (self._logs.get(*key) for key in statistics.uncleanable):
            if log is not None and log.loaded and not log.offline:
                path = self._logs.directory_of(log).path
                sizes = statistics.uncleanable_bytes
                sizes[path] = sizes.get(path, 0) + log.size_bytes

    def _look_again(self) -> None:
        if not self._closed:
            self._call_later(0, self._begin_look)

    # ---- cleaning

    def _collect_producers(
        self, run: _Run, entries: Iterator[ProducerEntry], found: dict[int, LastRecord]
    ) -> None:
        """Collect the last records of producers, some at a time. If a producer writes
        between two calls, its last record is after the cleaned part, and an older batch may be kept
        needlessly."""
        if self._closed or self._lost(run):
            return
        some = list(islice(entries, _PRODUCERS_AT_ONCE))
        found.update(last_records(some, run.to_clean.upper_bound))
        if some:
            self._call_later(0, lambda: self._collect_producers(run, entries, found))
        else:
            self._secure(run, found)

    def _secure(self, run: _Run, producers: dict[int, LastRecord]) -> None:
        """Have a producer snapshot behind everything that is to be cleaned, and a recovery point on
        disk that is not below it. Without that snapshot, a start would read the producers from the
        batches that the cleaning leaves (L-55). Without that recovery point, it would treat the
        gaps that a cleaning leaves as records lost in a crash (L-32)."""
        try:
            known = run.log.trimming.producers_known_from(
                run.to_clean.upper_bound, self._clock.wall_ms()
            )
        except (StorageError, OSError) as problem:
            self._met(run.log, str(problem))
            known = None
        if known is None:
            self._give_up(run)
            return
        job, bound = self._job(run, producers, known), known
        directory = self._logs.directory_of(run.log)

        def then() -> None:
            self._runner.begin(job, lambda step: self._came_to(run, step))

        if directory.recovery_point_on_disk(run.key) >= bound:
            then()
            return
        if run.log.durability.synced_offset < bound:
            # Closed segments are flushed without a request, so a later attempt finds the log synced
            # up to `bound`.
            self._give_up(run)
            return
        write, use = directory.recovery_points_for_cleaning()

        def written() -> None:
            if use():
                self._when_done(run, directory.sync_names, then)
            else:
                self._give_up(run)

        self._when_done(run, write, written)

    def _when_done(self, run: _Run, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Run work in the background, then `then`; if the work fails, the cleaning is given up."""

        def done(problem: Exception | None) -> None:
            if self._closed or isinstance(problem, InterruptedError) or self._lost(run):
                return
            try:
                if problem is not None:
                    raise problem
                then()
            except OSError as trouble:
                self._met(run.log, str(trouble))
                self._give_up(run)

        self._background(work, done)

    def _job(self, run: _Run, producers: dict[int, LastRecord], known_from: int) -> CleaningJob:
        to_clean, config, settings = run.to_clean, run.log.config, self._settings()
        return CleaningJob(
            directory=run.log.directory,
            segments=tuple((each.base_offset, each.size_bytes) for each in to_clean.sources),
            later_bases=tuple(
                each.base_offset
                for each in run.log.segments
                if each.base_offset >= to_clean.upper_bound
            ),
            first_dirty_offset=to_clean.first_dirty_offset,
            upper_bound=to_clean.upper_bound,
            producers_known_from=known_from,
            now_ms=self._clock.wall_ms(),
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            dedupe_buffer_bytes=settings.dedupe_buffer_bytes,
            dedupe_load_factor=settings.dedupe_load_factor,
            io_bytes_per_second=settings.io_bytes_per_second,
            last_records=producers,
        )

    def _lost(self, run: _Run) -> bool:
        """Give up the cleaning and return True if the log was removed, taken offline or
        started again; otherwise return False.
        """
        log = run.log
        if (
            log.loaded
            and not log.offline
            and self._logs.get(*run.key) is log
            and log.durability.restarts == run.restarts
        ):
            return False
        self._give_up(run)
        return True

    def _give_up(self, run: _Run) -> None:
        self._runner.give_up()
        self._set_aside.add(run.key)
        self._look_again()

    def _came_to(self, run: _Run, step: CleaningStep | CleaningFailed) -> None:
        if self._closed or self._lost(run):
            return
        if isinstance(step, CleaningFailed):
            self._failed(run, step)
        elif isinstance(step, CleaningFinished):
            self._finished(run, step)
        else:
            self._swap(run, step)

    def _met(self, log: PartitionLog, problem: str) -> None:
        self.statistics.failures += 1
        self.on_problem(log.name, problem)
        self._watch.failed((log.topic, log.partition), problem)

    def _failed(self, run: _Run, problem: CleaningFailed) -> None:
        if problem.failure is CleaningFailure.DAMAGED:
            self._leave_alone(run.key, run.log, str(problem))
        elif problem.failure is CleaningFailure.DIED:
            self.statistics.deaths += 1
            self._deaths[run.key] = self._deaths.get(run.key, 0) + 1
            self._met(run.log, str(problem))
            if self._deaths[run.key] >= _DEATHS_MAX:
                self._leave_alone(run.key, run.log, str(problem))
        else:
            self._met(run.log, str(problem))
            if problem.failure is CleaningFailure.INDEX:
                with suppress(StorageError):
                    # Reading aborted transactions starts the rebuild of a damaged index.
                    run.log.aborted_transactions(run.log.log_start_offset, run.to_clean.upper_bound)
        self._give_up(run)

    def _leave_alone(self, key: TopicPartition, log: PartitionLog, problem: str) -> None:
        self.statistics.failures += 1
        self.statistics.uncleanable[key] = problem
        self.on_problem(log.name, f"it is not compacted any more until the next start: {problem}")
        self._watch.left_alone(key, problem)

    def _finished(self, run: _Run, step: CleaningFinished) -> None:
        took_ms = self._clock.monotonic_ms() - run.began_ms
        self.statistics.finished(step, took_ms)
        self._deaths.pop(run.key, None)
        if step.end_offset <= run.to_clean.first_dirty_offset:
            self._set_aside.add(run.key)
        directory = self._logs.directory_of(run.log)
        directory.cleaner_offsets[run.key] = step.end_offset
        self._runner.give_up()
        cleaned = LogCleaned(
            run.log.name,
            step.end_offset,
            step.bytes_read,
            step.bytes_kept,
            step.records_read,
            step.records_kept,
            step.keyless_records,
            took_ms,
        )
        self.on_cleaned(cleaned)
        self._watch.cleaned(run.key, cleaned, whole=step.end_offset >= run.to_clean.upper_bound)
        self._background(
            directory.cleaner_offsets_writer(), lambda problem: self._written(directory, problem)
        )

    def _written(self, directory: LogDirectory, problem: Exception | None) -> None:
        """Put the written checkpoint in place. If that fails, the logs are cleaned again after the
        next start."""
        if self._closed:
            return
        try:
            if problem is not None:
                raise problem
            directory.use_cleaner_offsets()
        except OSError as trouble:
            self.on_problem("cleaner-offset-checkpoint", str(trouble))
        self._look_again()

    # ---- swapping

    def _swap(self, run: _Run, group: GroupCleaned) -> None:
        """`begin_swap`, sync, `swap_in`, `retire_sources`, sync, `end_swap`, sync (L-27)."""
        try:
            if not run.log.trimming.begin_swap(group):
                self._give_up(run)
                return
        except StorageError as problem:
            self._met(run.log, str(problem))
            self._give_up(run)
            return
        self._sync(run, lambda: self._swap_in(run, group))

    def _swap_in(self, run: _Run, group: GroupCleaned) -> None:
        trimming, now_ms = run.log.trimming, self._clock.wall_ms()
        self._step(
            run,
            lambda: trimming.swap_in(group.size_bytes, now_ms),
            lambda _: self._retire(run),
        )

    def _retire(self, run: _Run) -> None:
        self._step(
            run,
            lambda: run.log.trimming.retire_sources(_SOURCES_AT_ONCE),
            lambda over: self._retired(run, over=over),
        )

    def _retired(self, run: _Run, *, over: bool) -> None:
        if over:
            self._sync(run, lambda: self._end_swap(run))
        else:
            self._call_later(0, lambda: self._retire(run))

    def _end_swap(self, run: _Run) -> None:
        self._step(
            run,
            lambda: run.log.trimming.end_swap(self._clock.wall_ms()),
            lambda _: self._sync(
                run, lambda: self._runner.go_on(lambda step: self._came_to(run, step))
            ),
        )

    def _step(
        self, run: _Run, step: Callable[[], _Result], then: Callable[[_Result], None]
    ) -> None:
        """Take a step of a committed swap, and then continue; while the step finds no room, it is
        tried again at intervals."""
        if self._closed or self._lost(run):
            return
        try:
            result = step()
        except StorageError as problem:
            if run.log.offline:
                self._met(run.log, str(problem))
                self._give_up(run)
                return
            if not run.waits_for_room:
                run.waits_for_room = True
                self._met(run.log, str(problem))
            self._call_later(_NO_ROOM_PAUSE_MS, lambda: self._step(run, step, then))
        else:
            then(result)

    def _sync(self, run: _Run, then: Callable[[], None]) -> None:
        """Sync the steps so far, then continue. If the sync fails, the state on disk is unknown,
        and the partition goes offline (D5)."""

        def synced(problem: Exception | None) -> None:
            if self._closed or isinstance(problem, InterruptedError) or self._lost(run):
                return
            try:
                if problem is not None:
                    raise run.log.trimming.directory_sync_failed(problem)
                then()
            except StorageError as trouble:
                self._met(run.log, str(trouble))
                self._give_up(run)

        self._background(run.log.trimming.sync_directory, synced)
