"""The lag of a stream behind the ends of its logs, computed from Spark's progress reports.

Spark (4.3) reports no metrics and no useful description for sources in Python: `sources[].metrics`
is empty, and the description is that of a Java object. This module computes the metrics of Spark's
own `kafka` format from the offsets, with the same names.

    from pyspark_odradek.lag import LagListener, lag_of

    spark.streams.addListener(LagListener())     # a line for each batch, in the log "odradek.spark"
    lag_of(query.lastProgress)                   # a SourceLag for each source
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pyspark_odradek.errors import SourceError
from pyspark_odradek.planning import Partition
from pyspark_odradek.progress import Offsets, from_json

log = logging.getLogger("odradek.spark")

_TOPICS_SHOWN = 5


@dataclass(frozen=True)
class SourceLag:
    """The lag of one source of a query. `behind`: the number of offsets in each partition after the
    end of the last batch.
    """

    behind: Mapping[Partition, int]

    @property
    def description(self) -> str:
        """The topics, such as "odradek[flights, orders]"."""
        topics = sorted({partition.topic for partition in self.behind})
        more = ", ..." if len(topics) > _TOPICS_SHOWN else ""
        return f"odradek[{', '.join(topics[:_TOPICS_SHOWN])}{more}]"

    @property
    def metrics(self) -> dict[str, str]:
        """`minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`, as
        text."""
        counts = self.behind.values()
        return {
            "minOffsetsBehindLatest": str(min(counts)),
            "maxOffsetsBehindLatest": str(max(counts)),
            "avgOffsetsBehindLatest": str(sum(counts) / len(counts)),
        }


def lag_of(progress: Mapping[str, Any] | None) -> list[SourceLag]:
    """The lag of each source that reads Kafka's topics, in the order of `progress`.

    `progress`: a StreamingQueryProgress, or its JSON as a dict, or None (before the first batch),
    for which the result is []. The ends of the logs are those at the time when the batch was
    planned. Offsets without records (after compaction, or of transaction markers) are included.
    """
    if progress is None:
        return []
    found = []
    for source in progress.get("sources") or []:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        behind = {each: max(latest[each] - end[each], 0) for each in sorted(end.keys() & latest)}
        if behind:
            found.append(SourceLag(behind))
    return found


Report = Callable[[StreamingQueryProgress, Sequence[SourceLag]], None]


def log_lag(progress: StreamingQueryProgress, lags: Sequence[SourceLag]) -> None:
    """Log a line for each source, at INFO."""
    for lag in lags:
        log.info(
            "odradek: query %s, batch %d: %s %s",
            progress.name or progress.id,
            progress.batchId,
            lag.description,
            " ".join(f"{name}={value}" for name, value in lag.metrics.items()),
        )


class LagListener(StreamingQueryListener):
    """A listener that calls `report` with the progress and the lag of each batch, for queries that
    read Kafka's topics.

    The listener runs in the program, in a thread of Spark. Spark only logs an exception in
    `report`.
    """

    def __init__(self, report: Report = log_lag) -> None:
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        lags = lag_of(event.progress)
        if lags:
            self._report(event.progress, lags)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last progress has been reported."""


def _offsets(value: object) -> Offsets:
    """The offsets in the text; {} if there are none, or if the source has another format."""
    try:
        return from_json(json.loads(value) if isinstance(value, str) else value)
    except (ValueError, SourceError):
        return {}
