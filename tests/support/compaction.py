"""Compaction of a whole log in a test, by the same steps as in the broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from odradek_broker.platform.seams import Files
from odradek_broker.storage.cleaner.cleaner import clean
from odradek_broker.storage.cleaner.job import (
    CleaningFinished,
    CleaningJob,
    GroupCleaned,
)
from odradek_broker.storage.cleaner.policy import LogToClean, log_to_clean
from odradek_broker.storage.cleaner.producers import last_records
from odradek_broker.storage.log import PartitionLog

DEDUPE_BUFFER_BYTES = 1024 * 1024


def job_for(found: LogToClean, now_ms: int, **changes: Any) -> CleaningJob:
    """The job that the cleaner would do for a log."""
    log = found.log
    bases = [segment.base_offset for segment in log.segments]
    job = CleaningJob(
        directory=log.directory,
        segments=tuple((each.base_offset, each.size_bytes) for each in found.sources),
        later_bases=tuple(base for base in bases if base >= found.upper_bound),
        first_dirty_offset=found.first_dirty_offset,
        upper_bound=found.upper_bound,
        producers_known_from=found.upper_bound,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        segment_bytes=log.config.segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        dedupe_buffer_bytes=DEDUPE_BUFFER_BYTES,
        dedupe_load_factor=0.9,
        io_bytes_per_second=1e300,
        last_records=dict(last_records(log.producers.entries(), found.upper_bound)),
    )
    return replace(job, **changes)


def swap(log: PartitionLog, group: GroupCleaned, now_ms: int) -> None:
    """Do every step of a swap of segments."""
    assert log.trimming.begin_swap(group)
    log.trimming.sync_directory()
    log.trimming.swap_in(group.size_bytes, now_ms)
    while not log.trimming.retire_sources(1):
        pass
    log.trimming.sync_directory()
    log.trimming.end_swap(now_ms)
    log.trimming.sync_directory()


def compact(
    log: PartitionLog,
    files: Files,
    now_ms: int,
    cleaned_to: int | None = None,
    **changes: Any,
) -> int:
    """Clean everything that may be cleaned, whatever the dirty ratio. Returns the new clean
    offset."""
    found = log_to_clean(log, cleaned_to, now_ms)
    if not found.cleanable_bytes:
        return found.first_dirty_offset
    for step in clean(job_for(found, now_ms, **changes), files):
        if isinstance(step, CleaningFinished):
            return step.end_offset
        swap(log, step, now_ms)
    raise AssertionError("the cleaning did not finish")
