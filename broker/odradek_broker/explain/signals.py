"""Problems that show in counters and in recent events: those for which alerts on the metrics fire.

`problems.py` has the problems of single partitions, directories and transactions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from odradek_broker.explain.history import History
from odradek_broker.explain.problems import problem
from odradek_broker.explain.sentences import EventKind, duration_text
from odradek_broker.explain.share_records import ShareHistory
from odradek_broker.metrics.broker import SAMPLED, BrokerMetrics
from odradek_broker.mirror.events import SourceState
from odradek_broker.share.events import DeadLettered, NotDeadLettered
from odradek_broker.storage.log_directory import LogDirectory
from odradek_protocol.schemas import describe_history as wire
from odradek_protocol.schemas.describe_broker import Problem

#: The time over which counters are compared, and the least time for which they are known.
SPAN_MS = 600_000
_SPAN_LEAST_MS = 300_000
#: The share of turns, or flushes, that may take longer than 100 ms.
_LATE_SHARE = 0.01
_CERTIFICATE_MS = 14 * 86_400_000
_JOURNAL_SHARE = 0.9
_REBALANCES_MAX = 10
_MIRROR_SILENT_MS = 120_000
#: The maximum number of events that are looked at in each history.
_EVENTS_MAX = 2_000
_REBALANCES = frozenset({EventKind.GROUP_STABLE, EventKind.CONSUMER_EPOCH})


def find_signals(
    metrics: BrokerMetrics,
    directories: Sequence[LogDirectory],
    groups: History,
    shares: ShareHistory,
    sources: Mapping[str, Iterable[SourceState | None]],
    wall_ms: int,
) -> Generator[None, None, list[Problem]]:
    """The problems, with a pause for each event or partition that was looked at. `sources`: the
    last reports about the partitions of each mirror topic."""
    found = [*_certificates(metrics, wall_ms), *_journals(directories), *_late(metrics, wall_ms)]
    found += yield from _rebalances(groups, wall_ms)
    found += yield from _dead_letters(shares, wall_ms)
    for topic, reports in sources.items():
        told_ms: list[int] = []
        for each in reports:
            yield
            if each is not None:
                told_ms.append(each.told_ms)
        if told_ms and wall_ms - min(told_ms) > _MIRROR_SILENT_MS:
            silent = duration_text(wall_ms - min(told_ms))
            text = f"the mirror of {topic!r} has sent no report for {silent}"
            found.append(problem("mirror_silent", text, wire.MIRROR, topic))
    return found


def _certificates(metrics: BrokerMetrics, wall_ms: int) -> Iterator[Problem]:
    for listener, ends_s in metrics.certificate_ends_s.items():
        left_ms = int(ends_s * 1000) - wall_ms
        if left_ms < _CERTIFICATE_MS:
            when = f"expires in {duration_text(left_ms)}" if left_ms > 0 else "has expired"
            yield problem("certificate_expires", f"the certificate of {listener} {when}")


def _journals(directories: Sequence[LogDirectory]) -> Iterator[Problem]:
    for each in directories:
        if each.journal.used_bytes > each.journal.bytes_max * _JOURNAL_SHARE:
            text = f"the commit journal of {each.path} is nearly full: the disk syncs too slowly"
            yield problem("journal_nearly_full", text)


def _late(metrics: BrokerMetrics, wall_ms: int) -> Iterator[Problem]:
    recent = [each for each in metrics.samples if wall_ms - each.wall_ms <= SPAN_MS]
    if not recent or recent[-1].wall_ms - recent[0].wall_ms < _SPAN_LEAST_MS:
        return
    grown = {
        name: after - before
        for name, before, after in zip(SAMPLED, recent[0].values, recent[-1].values, strict=True)
    }
    if grown["late_turns_total"] > grown["turns_total"] * _LATE_SHARE:
        text = "all requests wait: one turn of the event loop in a hundred takes longer than 100 ms"
        yield problem("event_loop_late", text)
    if grown["slow_flushes_total"] > grown["flushes_total"] * _LATE_SHARE:
        text = "acknowledgements wait: one flush in a hundred takes longer than 100 ms"
        yield problem("flushes_slow", text)
    if grown["storage_errors_total"] > 0:
        count = int(grown["storage_errors_total"])
        text = f"{count} answers were errors of the disk or of damaged records in the last minutes"
        yield problem("storage_errors", text)


def _rebalances(groups: History, wall_ms: int) -> Generator[None, None, list[Problem]]:
    counts: Counter[str] = Counter()
    for _, group_id, event in islice(groups.newest(-1), _EVENTS_MAX):
        yield
        if wall_ms - event.last_ms > SPAN_MS:
            break
        if event.kind in _REBALANCES:
            counts[group_id] += event.times
    return [
        problem(
            "rebalance_storm",
            f"group {group_id!r} has rebalanced {count} times in ten minutes",
            wire.GROUP,
            group_id,
        )
        for group_id, count in counts.items()
        if count > _REBALANCES_MAX
    ]


def _dead_letters(shares: ShareHistory, wall_ms: int) -> Generator[None, None, list[Problem]]:
    given_up: Counter[tuple[str, bool]] = Counter()
    for _, key, entry in islice(shares.newest(-1), _EVENTS_MAX):
        yield
        if wall_ms - entry.last_ms > SPAN_MS:
            break
        event = entry.event
        if isinstance(event, DeadLettered | NotDeadLettered):
            count = (event.last_offset - event.first_offset + 1) * entry.times
            given_up[key.group_id, isinstance(event, DeadLettered)] += count
    return [
        problem(
            "records_given_up" if kept else "dead_letters_missing",
            f"share group {group_id!r} has given up {count} records in ten minutes"
            + ("; they have dead letters" if kept else ", and they have no dead letters"),
            wire.GROUP,
            group_id,
        )
        for (group_id, kept), count in given_up.items()
    ]
