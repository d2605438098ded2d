"""The log lines about storage: problems of disks, compaction, the start, maintenance."""

from __future__ import annotations

from dataclasses import asdict

import structlog

from odradek_broker.storage.cleaner.log_cleaner import LogCleaner
from odradek_broker.storage.log_directory import LogDirectory
from odradek_broker.storage.manager import MaintenanceReport
from odradek_broker.storage.startup import StartReport

log = structlog.get_logger("odradek.server")

#: The maximum number of log lines about the problems of the start, and about the problems of one
#: round of maintenance. There is a limit because on a full disk every partition has the same
#: problem.
_PROBLEMS_LOGGED_MAX = 10


def log_disk_problems(directory: LogDirectory) -> None:
    """Log each problem of a data directory or of a partition, and the end of a problem."""
    disk = directory.disk
    disk.on_failing = lambda problem: log.error(
        "the data directory cannot be written: Produce requests are refused until it can",
        data_dir=directory.path,
        problem=problem,
    )
    disk.on_working = lambda problem: log.warning(
        "the data directory can be written again", data_dir=directory.path, was=problem
    )
    disk.on_offline = lambda name, reason: log.error(
        "a partition went offline: check the disk, then restart the broker",
        partition=name,
        reason=reason,
    )
    disk.on_lost = lambda reason: log.error(
        "a data directory failed: its partitions are offline until a start can use it",
        data_dir=directory.path,
        reason=reason,
    )
    disk.on_online = lambda name: log.warning("a partition is online again", partition=name)
    disk.on_unreadable = lambda name, reason: log.error(
        "a partition cannot be read: check the disk", partition=name, reason=reason
    )


def log_cleanings(cleaner: LogCleaner) -> None:
    """Log compactions, and their failures."""
    cleaner.on_cleaned = lambda cleaned: log.info("compacted a log", **asdict(cleaned))
    cleaner.on_problem = lambda name, problem: log.error(
        "the compaction of a log has a problem", partition=name, problem=problem
    )


def log_start(report: StartReport) -> None:
    """Log what a start has found and mended."""
    for recovered in report.recovered:
        if recovered.problem:
            cut = recovered.truncated_bytes > recovered.restored_bytes
            whole = recovered.restored_bytes and not cut and not recovered.removed_segments
            log.warning(
                "restored the torn end of a log" if whole else "cut off the torn end of a log",
                partition=f"{recovered.topic}-{recovered.partition}",
                problem=recovered.problem,
                truncated_bytes=recovered.truncated_bytes,
                restored_bytes=recovered.restored_bytes,
                removed_segments=len(recovered.removed_segments),
                log_end_offset=recovered.log_end_offset,
            )
        if recovered.gaps:
            first, end = recovered.gaps[0]
            log.warning(
                "a compacted log has gaps between segments; the broker assumes that compaction left"
                " them",
                partition=f"{recovered.topic}-{recovered.partition}",
                gaps=len(recovered.gaps),
                first_gap=f"offsets {first} to {end - 1}",
            )
    restored = [each.restored_bytes for each in report.recovered if each.restored_bytes]
    if restored:
        log.warning(
            "restored records from the commit journal", logs=len(restored), bytes=sum(restored)
        )
    for problem in report.problems[:_PROBLEMS_LOGGED_MAX]:
        log.error("a problem was found at the start", problem=problem)
    if len(report.problems) > _PROBLEMS_LOGGED_MAX:
        log.error("more problems were found at the start", problems=len(report.problems))
    if not report.clean and report.logs:
        log.info("recovered after an unclean stop", logs=report.logs)


def log_maintenance(report: MaintenanceReport) -> None:
    """Log what a round of maintenance has deleted, and its problems."""
    for name, count in report.deleted_segments.items():
        log.info("deleted old segments", partition=name, segments=count)
    for problem in report.problems[:_PROBLEMS_LOGGED_MAX]:
        log.error("the maintenance of logs has a problem", problem=problem)
    if len(report.problems) > _PROBLEMS_LOGGED_MAX:
        log.error("the maintenance of logs has more problems", problems=len(report.problems))
