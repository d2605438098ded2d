"""The options of `format("odradek")`, parsed into a frozen object. An error lists all problems of
the options.

Names, meanings and defaults are those of Spark's own `kafka` format. Spark passes the names of
options in lower case. An unknown option is refused, and the error names the nearest known option,
because a mistyped option that is silently ignored leads to wrong data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from odradek_protocol.records.arrow import COLUMNS
from odradek_protocol.settings import INT64_MAX, did_you_mean, read_boolean, read_integer, read_set
from pyspark_odradek import kafka_settings
from pyspark_odradek.admission import MAX_TRIGGER_DELAY_MS, BatchLimits
from pyspark_odradek.errors import OptionsError
from pyspark_odradek.offsets import (
    EARLIEST,
    LATEST,
    AtEdge,
    AtOffsets,
    Bound,
    parse_assignment,
    parse_offsets,
    parse_time,
    parse_times,
)
from pyspark_odradek.planning import Partition

T = TypeVar("T")

POLL_TIMEOUT_MS = 120_000
NUM_RETRIES = 3
RETRY_INTERVAL_MS = 10

#: The options in their usual spelling, for error messages.
SOURCE_OPTIONS = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "groupId",
    "includeHeaders",
    "columns",
)
SINK_OPTIONS = (
    "topic",
    "includeHeaders",
    "semantics",
    "queryId",
    "commitId",
    "commitVersion",
    "commitLogTopic",
    "failOnDataLoss",
)
SEMANTICS = ("exactly_once", "at_least_once")
#: The default topic of the decisions of exactly-once writes.
COMMIT_LOG_TOPIC = "__odradek_spark_commits"
_IDENTITY_CHARS_MAX = 200
#: Options for Spark itself, which Spark also passes to the source or sink.
_SPARKS_OWN = frozenset({"path", "paths", "checkpointlocation", "queryname"})
_KNOWN = {name.lower(): name for name in SOURCE_OPTIONS + SINK_OPTIONS}
_SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")

ClientSettings = tuple[tuple[str, str], ...]

_DURATION = re.compile(r"(\d+)\s*([a-z]*)")
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?")
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class QueryKind(Enum):
    """The kind of query that the options are for. EITHER is used when Spark requests the schema,
    because the kind is not known then."""

    BATCH = "batch"
    STREAM = "stream"
    EITHER = "either"


@dataclass(frozen=True)
class Subscription:
    """The topics to read. Exactly one of the three fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True)
class SourceOptions:
    """The options of a read. `start_option`, `end_option`: the names of the options that gave
    `start` and `end`. `columns`: the columns of the rows, in the order of the schema. `group`: the
    consumer group for which a stream's progress is committed."""

    subscription: Subscription
    start: Bound
    end: Bound
    start_option: str
    end_option: str
    latest_if_no_record: bool
    fail_on_data_loss: bool
    poll_timeout_ms: int
    num_retries: int
    retry_interval_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    columns: tuple[str, ...]
    limits: BatchLimits
    group: str | None
    client: ClientSettings = field(repr=False)


@dataclass(frozen=True)
class SinkOptions:
    """The options of a write. `topic`: the topic of all rows; None if the rows have a column with
    the topic.

    `query_id`: the name that identifies a stream in the decision log, instead of Spark's id.
    `commit_id`, with `commit_version`: the identity with which a repeated batch job writes only
    once. `lenient`: true if `failOnDataLoss=false`.
    """

    topic: str | None
    client: ClientSettings = field(repr=False)
    exactly_once: bool = True
    query_id: str | None = None
    commit_id: str | None = None
    commit_version: int = 0
    log_topic: str = COMMIT_LOG_TOPIC
    lenient: bool = False


class _Reader:
    """Reads options one by one and collects the problems."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = {name.lower(): value for name, value in options.items()}
        self.problems: list[str] = []

    def text(self, name: str) -> str | None:
        return self.options.get(name.lower())

    def has(self, name: str) -> bool:
        return name.lower() in self.options

    def parsed(self, name: str, parse: Callable[[str, str], T], default: T) -> T:
        """The result of `parse(text, name)`; the default if the option is missing or invalid."""
        text = self.text(name)
        if text is None:
            return default
        try:
            return parse(text, name)
        except ValueError as error:
            self.problems.append(str(error))
            return default

    def flag(self, name: str, default: bool) -> bool:
        return self.parsed(name, _parse_flag, default)

    def number(self, name: str, default: int, at_least: int) -> int:
        return self.parsed(name, _parse_number(at_least), default)

    def optional_number(self, name: str, at_least: int) -> int | None:
        return self.number(name, 0, at_least) if self.has(name) else None

    def refuse_unknown(self) -> None:
        for name in self.options:
            if name in _KNOWN or name in _SPARKS_OWN or name.startswith(kafka_settings.PREFIX):
                continue
            known = [*_KNOWN, "kafka.bootstrap.servers"]
            hint = did_you_mean(name, known, shown=lambda near: _KNOWN.get(near, near))
            if "." in name and not hint:
                hint = f"; settings of the client are written kafka.{name}"
            self.problems.append(f"there is no option {name}{hint}")

    def finish(self) -> None:
        if self.problems:
            raise OptionsError(self.problems)


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a read, from `columns` and `includeHeaders`, on which the schema depends."""
    reader = _Reader(options)
    found = _columns(reader)
    reader.finish()
    return found


def parse_source(options: Mapping[str, str], query: QueryKind = QueryKind.BATCH) -> SourceOptions:
    """The options of a read. OptionsError with all problems.

    For EITHER, problems of only one kind of query are ignored, and the defaults are those of a
    batch.
    """
    reader = _Reader(options)
    reader.refuse_unknown()
    client = kafka_settings.for_source(reader.options)
    reader.problems += client.problems
    subscription = _subscription(reader)
    default_start = LATEST if query is QueryKind.STREAM else EARLIEST
    start_option, start = _bound(reader, "starting", AtEdge(default_start))
    end_option, end = _bound(reader, "ending", AtEdge(LATEST))
    if query is QueryKind.BATCH:
        _check_batch_bounds(reader, start_option, start, end_option, end)
    elif query is QueryKind.STREAM:
        _check_stream(reader)
    strategy = reader.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy.strip().lower() not in ("error", "latest"):
        reader.problems.append(
            f"startingOffsetsByTimestampStrategy={strategy!r} must be error or latest"
        )
    parsed = SourceOptions(
        subscription=subscription,
        start=start,
        end=end,
        start_option=start_option,
        end_option=end_option,
        latest_if_no_record=strategy.strip().lower() == "latest",
        fail_on_data_loss=reader.flag("failOnDataLoss", True),
        poll_timeout_ms=reader.number("kafkaConsumer.pollTimeoutMs", POLL_TIMEOUT_MS, 1),
        num_retries=reader.number("fetchOffset.numRetries", NUM_RETRIES, 0),
        retry_interval_ms=reader.number("fetchOffset.retryIntervalMs", RETRY_INTERVAL_MS, 0),
        min_partitions=reader.optional_number("minPartitions", 1),
        max_records_per_partition=reader.optional_number("maxRecordsPerPartition", 1),
        columns=_columns(reader),
        limits=_limits(reader),
        group=reader.parsed("groupId", _parse_group, None),
        client=tuple(sorted(client.settings.items())),
    )
    reader.finish()
    return parsed


def parse_sink(options: Mapping[str, str], *, streaming: bool = False) -> SinkOptions:
    """The options of a write. OptionsError with all problems."""
    reader = _Reader(options)
    reader.refuse_unknown()
    client = kafka_settings.for_sink(reader.options)
    reader.problems += client.problems
    topic = reader.text("topic")
    if topic is not None and not topic.strip():
        reader.problems.append(
            "topic is empty; name one, or leave it out and give a column `topic`"
        )
    reader.flag("includeHeaders", False)
    exactly_once = reader.parsed("semantics", _parse_semantics, True)
    if reader.has("commitVersion") and not reader.has("commitId"):
        reader.problems.append("commitVersion counts the commits of a commitId; give that too")
    wrong_here = "commitId" if streaming else "queryId"
    if reader.has(wrong_here):
        reader.problems.append(
            "commitId is for batch writes; a stream is known by its checkpoint, or by queryId"
            if streaming
            else "queryId is for streams; a batch write is known by its commitId"
        )
    if not exactly_once:
        without = [name for name in ("commitId", "queryId") if reader.has(name)]
        if without:
            reader.problems.append(
                f"{' and '.join(without)} cannot be obeyed with semantics=at_least_once"
            )
    if exactly_once and not client.problems:
        reader.problems += kafka_settings.problems_with_transactions(client.settings)
    parsed = SinkOptions(
        topic=None if topic is None else topic.strip(),
        client=tuple(sorted(client.settings.items())),
        exactly_once=exactly_once,
        query_id=reader.parsed("queryId", _parse_identity, None),
        commit_id=reader.parsed("commitId", _parse_identity, None),
        commit_version=reader.number("commitVersion", 0, 0),
        log_topic=reader.parsed("commitLogTopic", _parse_identity, COMMIT_LOG_TOPIC),
        lenient=not reader.flag("failOnDataLoss", True),
    )
    reader.finish()
    return parsed


def _subscription(reader: _Reader) -> Subscription:
    given = [name for name in _SUBSCRIPTIONS if reader.has(name)]
    if len(given) != 1:
        what = f"{' and '.join(given)} exclude each other" if given else "nothing says what to read"
        reader.problems.append(f"{what}; give exactly one of {', '.join(_SUBSCRIPTIONS)}")
        return Subscription()
    if given == ["assign"]:
        return Subscription(partitions=reader.parsed("assign", parse_assignment, ()))
    if given == ["subscribe"]:
        return Subscription(topics=reader.parsed("subscribe", _parse_topics, ()))
    return Subscription(pattern=reader.parsed("subscribePattern", _parse_pattern, ""))


def _bound(reader: _Reader, which: str, default: Bound) -> tuple[str, Bound]:
    """(the name of the option that gives a bound, its value). If several of the three options are
    given, a single time is preferred to times, and times to offsets, as in Spark."""
    time, times, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if reader.has(time):
        return time, reader.parsed(time, parse_time, default)
    if reader.has(times):
        return times, reader.parsed(times, parse_times, default)
    return offsets, reader.parsed(offsets, parse_offsets, default)


def _check_batch_bounds(
    reader: _Reader, start_option: str, start: Bound, end_option: str, end: Bound
) -> None:
    if start == AtEdge(LATEST):
        reader.problems.append(f"{start_option}=latest would read nothing in a batch query")
    if end == AtEdge(EARLIEST):
        reader.problems.append(f"{end_option}=earliest would read nothing in a batch query")
    for option, bound, edge in ((start_option, start, LATEST), (end_option, end, EARLIEST)):
        if isinstance(bound, AtOffsets) and edge in bound.offsets.values():
            word = "latest" if edge == LATEST else "earliest"
            reader.problems.append(
                f"{option} says {edge} ({word}) of a partition, which a batch query cannot use there"
            )


def _parse_semantics(text: str, name: str) -> bool:
    word = text.strip().lower().replace("-", "_")
    if word not in SEMANTICS:
        raise ValueError(f"{name}={text!r} must be {' or '.join(SEMANTICS)}")
    return word == "exactly_once"


def _parse_identity(text: str, name: str) -> str:
    found = text.strip()
    if not found or len(found) > _IDENTITY_CHARS_MAX:
        raise ValueError(f"{name} must have 1 to {_IDENTITY_CHARS_MAX} characters")
    return found


def _check_stream(reader: _Reader) -> None:
    for option in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
        if reader.has(option):
            reader.problems.append(
                f"{option} is for batch queries; a stream has no end (trigger(availableNow=True) reads "
                "what is there and stops)"
            )


def _columns(reader: _Reader) -> tuple[str, ...]:
    with_headers = reader.flag("includeHeaders", False)
    usual = tuple(name for name in COLUMNS if with_headers or name != "headers")
    return reader.parsed("columns", _parse_columns, usual)


def _limits(reader: _Reader) -> BatchLimits:
    limits = BatchLimits(
        max_offsets=reader.optional_number("maxOffsetsPerTrigger", 1),
        max_bytes=reader.parsed("maxBytesPerTrigger", _parse_bytes, None),
        min_offsets=reader.optional_number("minOffsetsPerTrigger", 1),
        max_delay_ms=reader.parsed("maxTriggerDelay", _parse_duration, MAX_TRIGGER_DELAY_MS),
    )
    if limits.min_offsets and limits.max_offsets and limits.min_offsets > limits.max_offsets:
        reader.problems.append(
            f"minOffsetsPerTrigger={limits.min_offsets} is above maxOffsetsPerTrigger="
            f"{limits.max_offsets}"
        )
    return limits


def _parse_columns(text: str, name: str) -> tuple[str, ...]:
    asked = read_set(text)
    known = {column.lower(): column for column in COLUMNS}
    wrong = [column for column in asked if column.lower() not in known]
    if wrong or not asked:
        raise ValueError(
            f"{name}={text!r} must name some of {', '.join(COLUMNS)}, with commas between them"
        )
    chosen = {known[column.lower()] for column in asked}
    return tuple(column for column in COLUMNS if column in chosen)


def _parse_group(text: str, name: str) -> str | None:
    if not text.strip():
        raise ValueError(f"{name} is empty; name a consumer group, or leave it out")
    return text.strip()


def _parse_duration(text: str, name: str) -> int:
    """Parse a duration like Spark's time strings: "15m", "30s", "500ms"; without a unit,
    milliseconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError(f"{name}={text!r} must be a time such as 30s, 15m, 1h or 500ms")
    return int(match[1]) * _UNITS_MS[match[2]]


def _parse_bytes(text: str, name: str) -> int | None:
    """Parse a size like Spark's: "64m", "1g", "100kb"; without a unit, bytes."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or not int(match[1]):
        raise ValueError(f"{name}={text!r} must be a size such as 64m, 1g or 1000000")
    return int(match[1]) << _SHIFTS[match[2]]


def _parse_flag(text: str, name: str) -> bool:
    try:
        return read_boolean(text)
    except ValueError as problem:
        raise ValueError(f"{name}={text!r} {problem}") from None


def _parse_number(at_least: int) -> Callable[[str, str], int]:
    def parse(text: str, name: str) -> int:
        try:
            number = read_integer(text)
        except ValueError as problem:
            raise ValueError(f"{name}={text!r} {problem}") from None
        if not at_least <= number <= INT64_MAX:
            raise ValueError(f"{name}={number} is out of range; it must be {at_least} or more")
        return number

    return parse


def _parse_topics(text: str, name: str) -> tuple[str, ...]:
    topics = read_set(text)
    if not topics:
        raise ValueError(f"{name} names no topic; write one, or several with commas between them")
    return topics


def _parse_pattern(text: str, name: str) -> str:
    if not text.strip():
        raise ValueError(f"{name} is empty")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(
            f"{name}={text!r} is no regular expression that Python understands: {error}"
        ) from None
    return text
