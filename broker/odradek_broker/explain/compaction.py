"""The events of compaction, and the reasons why a log is not compacted yet (`odradek explain
partition`)."""

from __future__ import annotations

from odradek_broker.explain.history import History, SubjectState, remark
from odradek_broker.explain.sentences import EventKind, duration_text
from odradek_broker.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner
from odradek_broker.storage.cleaner.policy import LogToClean, log_to_clean
from odradek_broker.storage.cleaner.statistics import LogCleaned
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.topic_partition import TopicPartition


class CompactionRecorder:
    """A `CleanerWatch` that records the cleanings of each partition in a history."""

    def __init__(self, history: History) -> None:
        self._history = history

    def cleaned(self, where: TopicPartition, cleaned: LogCleaned, *, whole: bool) -> None:
        """Record a cleaning; `whole`: the cleaning reached all records that were due."""
        self._history.record(
            cleaned.name,
            EventKind.LOG_CLEANED,
            partitions=(where,),
            offset=cleaned.end_offset,
            before=f"{cleaned.records_before:,} records, {cleaned.bytes_before:,} bytes",
            after=f"{cleaned.records_after:,} records, {cleaned.bytes_after:,} bytes",
            keyless=f"{cleaned.keyless_records:,}" if cleaned.keyless_records else None,
            note=None if whole else "there was no room for more keys: the rest comes next",
            took=duration_text(cleaned.took_ms),
        )

    def failed(self, where: TopicPartition, problem: str) -> None:
        self._history.record(
            f"{where[0]}-{where[1]}", EventKind.CLEANING_FAILED, partitions=(where,), reason=problem
        )

    def left_alone(self, where: TopicPartition, problem: str) -> None:
        """Record that a log is not cleaned any more until the next start."""
        self._history.record(
            f"{where[0]}-{where[1]}",
            EventKind.CLEANING_STOPPED,
            partitions=(where,),
            reason=problem,
        )


def state_of_compaction(
    log: PartitionLog,
    cleaner: LogCleaner,
    settings: CleanerSettings,
    cleaned_to: int | None,
    now_ms: int,
) -> SubjectState:
    """The compaction of a log: its clean part, and the reasons why the other records are not
    compacted. Opens the log if necessary."""
    where = (log.topic, log.partition)
    problem = cleaner.statistics.uncleanable.get(where)
    if not log.config.compacted:
        return remark(f"it is not compacted: cleanup.policy is {_policy(log)}")
    if not settings.enabled:
        return remark("nothing is compacted: log.cleaner.enable is false")
    if problem is not None:
        return remark(f"it is not compacted any more until the next start: {problem}")
    try:
        if not log.loaded:
            log.load(now_ms)
        found = log_to_clean(log, cleaned_to, now_ms)
    except (StorageError, OSError) as trouble:
        return remark(f"its state of compaction cannot be determined: {trouble}")
    return SubjectState.of(
        EventKind.NOW_COMPACTION,
        partitions=(where,),
        offset=found.first_dirty_offset,
        end=log.log_end_offset,
        dirty=f"{found.cleanable_bytes:,}",
        total=f"{found.clean_bytes + found.cleanable_bytes:,}",
        share=f"{found.ratio:.3f}",
        reason="; ".join(_reasons(log, cleaner, settings, found)),
    )


def _reasons(
    log: PartitionLog, cleaner: LogCleaner, settings: CleanerSettings, found: LogToClean
) -> list[str]:
    """The reasons why the dirty part of the log is not compacted."""
    config, active = log.config, log.segments[-1]
    if cleaner.at_work == (log.topic, log.partition):
        return ["it is being cleaned"]
    if found.due:
        return [
            f"it is cleaned next, for the cleaner looks every {duration_text(settings.backoff_ms)}"
        ]
    reasons = []
    if found.cleanable_bytes:
        ratio = config.min_cleanable_dirty_ratio
        reasons.append(f"it is cleaned when that is more than {ratio} (min.cleanable.dirty.ratio)")
    if found.upper_bound < active.base_offset:
        if log.last_stable_offset < active.base_offset:
            reasons.append(
                f"a transaction that is open since offset {log.last_stable_offset} keeps what follows it"
            )
        elif config.min_compaction_lag_ms:
            lag = duration_text(config.min_compaction_lag_ms)
            reasons.append(
                f"from offset {found.upper_bound} on there are records younger than {lag}"
                " (min.compaction.lag.ms)"
            )
    elif active.size_bytes:
        reasons.append(
            f"the active segment, from offset {active.base_offset}, is left out until it has"
            f" {config.segment_bytes:,} bytes (segment.bytes) or is"
            f" {duration_text(config.longest_segment_ms)} old (segment.ms)"
        )
    return reasons or ["nothing is new"]


def _policy(log: PartitionLog) -> str:
    return ",".join(sorted(log.config.cleanup_policy)) or "empty"
