"""`odradek consume`: records to standard output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.broker.disk_room import full_disks
from odradek_cli.commands import fail
from odradek_cli.common import AsJson, BrokerOptions, RecordCounter, connected, progress, run, tell
from odradek_cli.completion import group_names, topic_names
from odradek_cli.options import argument, option
from odradek_cli.records.consume_topics import NEW_TOPICS_MS, take_new_topics, topics_of
from odradek_cli.records.record_view import View, ViewOptions
from odradek_cli.topic_patterns import is_pattern, pattern_of
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_records.offset_grammar import Bound, OffsetBase, OffsetSpan, parse_span
from odradek_records.record_format import (
    FormatError,
    Printer,
    compile_format,
    to_json_line,
    unescape,
)

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.consumer.consumer import Consumer
    from odradek_client.consumer.errors import CorruptRecord
    from odradek_client.structs import TopicPartition
    from odradek_protocol.records.lines import ValueLines

_POLL_RECORDS = 5000
#: The maximum number of records in one poll if whole batches become lines. A poll also has a limit
#: of bytes.
_POLL_LINES = 1_000_000
_POLL_MS = 500
#: The time limit for the last commit and for leaving the group. It is shorter than the client's
#: default, because a user waits, and the coordinator may be unable to accept commits (full disk).
_CLOSE_MS = 10_000
#: The time after which the brokers' disks are checked, if the member has no assignment yet.
_JOIN_PATIENCE_S = 5.0
#: The maximum number of partitions whose ends a message shows.
_ENDS_SHOWN = 5
_DELIMITER = r"\n"


@dataclass(frozen=True, slots=True)
class ConsumeJob:
    """The records to read. `settings`: those of the consumer. `words`: topics, or expressions for
    their names. `partitions`: empty for all."""

    settings: dict[str, Any]
    words: list[str]
    partitions: list[int]
    span: OffsetSpan
    stop_at_end: bool

    @property
    def has_end(self) -> bool:
        return self.stop_at_end or self.span.stop_ms is not None

    @property
    def is_shared(self) -> bool:
        """True if a group assigns the partitions to read."""
        return self.settings.get("group_id") is not None and not self.partitions


@dataclass(slots=True)
class ConsumeProgress:
    """The progress of one run.

    `ends`: the offset at which the run stops in each partition; None to read on. `line_end`: the
    bytes after each value if only values are printed, so that records need not be decoded; else
    None. `starts`, `read`: the first offset and the current position in each partition. `count`:
    the number of printed records. `own`: this member's partitions in the group; None until they are
    assigned. `view`: the filter of records, and their decoding.
    """

    printer: Printer
    shown: RecordCounter
    records_left: int | None
    group: str | None = None
    ends: dict[TopicPartition, int] | None = None
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    read: dict[TopicPartition, int] = field(default_factory=dict)
    count: int = 0
    finished: set[TopicPartition] = field(default_factory=set)
    in_group: bool = False
    own: set[TopicPartition] | None = None
    line_end: bytes | None = None
    view: View | None = None

    def take_lines(self, lines: ValueLines) -> bytes:
        """The output for the records in `lines`, of all partitions. Counts the records, and marks
        finished partitions, as `take` does."""
        from odradek_client.structs import TopicPartition

        self.count += lines.count
        if self.records_left is not None:
            self.records_left -= lines.count
        for where, position in lines.positions.items():
            partition = TopicPartition(*where)
            self.read[partition] = position
            if self.ends is not None and position >= self.ends.get(partition, position + 1):
                self.finished.add(partition)
        return lines.take()

    def take(self, partition: TopicPartition, records: list[Any]) -> bytes:
        """The output for these records of a partition. Counts the records, and marks the partition
        as finished if they reach its end."""
        end = None if self.ends is None else self.ends.get(partition)
        reaches_end = end is not None and records[-1].offset >= end - 1
        if reaches_end:
            records = [record for record in records if record.offset < end]
        printed, behind = self._chosen(records)
        self.count += len(printed)
        if behind is not None:
            self.read[partition] = behind
        if reaches_end and (not records or behind == records[-1].offset + 1):
            self.finished.add(partition)
        return b"".join([self.printer(record) for record in printed])

    def _chosen(self, records: list[Any]) -> tuple[list[Any], int | None]:
        """The records to print, and the offset after the last examined record."""
        wanted = None if self.view is None else self.view.wanted
        if wanted is None:
            chosen = records if self.records_left is None else records[: self.records_left]
            last = chosen[-1].offset if chosen else None
        else:
            chosen, last = [], None
            for record in records:
                if self.records_left is not None and len(chosen) >= self.records_left:
                    break
                last = record.offset
                if wanted(record):
                    chosen.append(record)
        if self.records_left is not None:
            self.records_left -= len(chosen)
        return chosen, None if last is None else last + 1

    def show(self) -> None:
        """Show the progress: in offsets if the ends are known and the number of records is not
        limited, else in records. With known ends, a count of records would never reach the total,
        because control records have offsets but are not printed."""
        if self.ends is None or self.records_left is not None:
            self.shown.show(self.count)
            return
        total = completed = 0
        for partition, end in self.ends.items():
            start = self.starts.get(partition, 0)
            size = max(end - start, 0)
            read = self.read.get(partition, start) - start
            total += size
            completed += size if partition in self.finished else min(read, size)
        self.shown.show(completed, total)

    @property
    def done(self) -> bool:
        if self.records_left == 0:
            return True
        if self.ends is None:
            return False
        left = self.ends.keys() - self.finished
        # Other members of the group finish the partitions that are assigned to them.
        return not left or (self.in_group and self.own is not None and left.isdisjoint(self.own))


class _Ownership(RebalanceListener):
    """Keeps `Reading.own` up to date."""

    def __init__(self, reading: ConsumeProgress) -> None:
        self._reading = reading

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self._reading.own = (self._reading.own or set()) | partitions

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self._reading.own = (self._reading.own or set()) - partitions


async def _start_offsets(
    consumer: Consumer, partitions: list[TopicPartition], bound: Bound
) -> dict[TopicPartition, int]:
    if bound.place is OffsetBase.OFFSET:
        return dict.fromkeys(partitions, bound.value)
    if bound.place is OffsetBase.BEGINNING:
        return await consumer.beginning_offsets(*partitions)
    ends = await consumer.end_offsets(*partitions)
    if bound.place is OffsetBase.END:
        return ends
    if bound.place is OffsetBase.BEFORE_END:
        starts = await consumer.beginning_offsets(*partitions)
        return {each: max(starts[each], ends[each] - bound.value) for each in partitions}
    found = await consumer.offsets_for_times(dict.fromkeys(partitions, bound.value))
    offsets = {}
    for each in partitions:
        at = found.get(each)
        offsets[each] = ends[each] if at is None else at.offset
    return offsets


async def _stop_offsets(
    consumer: Consumer, partitions: list[TopicPartition], job: ConsumeJob
) -> dict[TopicPartition, int] | None:
    """The offset to stop at in each partition; None to read on."""
    if not job.has_end:
        return None
    ends = await consumer.end_offsets(*partitions)
    if job.span.stop_ms is None:
        return ends
    found = await consumer.offsets_for_times(dict.fromkeys(partitions, job.span.stop_ms))
    return {
        each: ends[each] if (at := found.get(each)) is None else at.offset for each in partitions
    }


async def _find_partitions(
    consumer: Consumer, topics: list[str], wanted: list[int]
) -> list[TopicPartition]:
    from odradek_client.structs import TopicPartition

    found = []
    for topic in topics:
        there = await consumer.partitions_for(topic)
        for partition in wanted:
            if partition not in there:
                fail(f"topic {topic} has no partition {partition}; it has {len(there)}")
        found += [TopicPartition(topic, partition) for partition in wanted or there]
    return found


def _of_any_client(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a consumer that an `Admin` also accepts. Raises ConfigError if any setting of
    the consumer is wrong."""
    from odradek_client.config.admin import AdminConfig
    from odradek_client.config.consumer import ConsumerConfig

    ConsumerConfig.from_settings(settings)
    names = {each.name for each in fields(AdminConfig)} - {"client_id"}
    return {name: value for name, value in settings.items() if name in names}


async def _consume(job: ConsumeJob, reading: ConsumeProgress) -> None:
    from odradek_client.admin import Admin
    from odradek_client.consumer.consumer import Consumer

    goes_on = any(map(is_pattern, job.words)) and not job.has_end
    pattern = pattern_of(job.words) if goes_on and job.is_shared else None

    async def read(topics: list[str], admin: Admin | None) -> None:
        async with connected(Consumer, job.settings) as consumer:
            watch = None
            if admin is not None:
                new_topics = take_new_topics(consumer, admin, job.words, job.partitions)
                watch = asyncio.create_task(new_topics)
            main = asyncio.current_task()
            assert main is not None
            refusal: list[str] = []
            disks = asyncio.create_task(_watch_disks(job.settings, reading, main, refusal))
            try:
                await _read(consumer, job, topics, pattern, reading)
            except asyncio.CancelledError:
                if refusal and not main.uncancel():
                    fail(refusal[0])
                raise
            finally:
                disks.cancel()
                if watch is not None:
                    watch.cancel()
                await consumer.close(timeout_ms=_CLOSE_MS)

    async with connected(Admin, _of_any_client(job.settings)) as admin:
        topics = await topics_of(admin, job.words, wait=goes_on)
        if goes_on and not job.is_shared:
            await read(topics, admin)
            return
    await read(topics, None)


async def _watch_disks(
    settings: dict[str, Any], reading: ConsumeProgress, main: asyncio.Task[Any], refusal: list[str]
) -> None:
    """End the command if a broker's disk is full. Such a broker cannot write a new member to its
    log, and the client would silently retry until there is room."""
    from odradek_client.admin import Admin
    from odradek_client.errors import OdradekError

    group = settings.get("group_id")
    await asyncio.sleep(_JOIN_PATIENCE_S)
    if group is None or not reading.in_group or reading.own is not None:
        return
    with suppress(OdradekError):
        async with connected(Admin, _of_any_client(settings)) as admin:
            full = await full_disks(admin)
        if full and reading.own is None:
            refusal.append(
                f"group {group!r} cannot be joined, because that has to be written down: {full}. Without "
                "--group records can be read all the same"
            )
            main.cancel()


async def _read(
    consumer: Consumer,
    job: ConsumeJob,
    topics: list[str],
    pattern: str | None,
    reading: ConsumeProgress,
) -> None:
    """Read until the run is over. `pattern`: the regular expression to which the group subscribes
    instead of `topics`."""
    if not job.is_shared:
        await _assign(consumer, job, topics, reading)
    else:
        reading.in_group = True
        consumer.subscribe(
            topics if pattern is None else (), pattern=pattern, listener=_Ownership(reading)
        )
        if job.has_end:
            all_of_them = await _find_partitions(consumer, topics, [])
            reading.ends = await _stop_offsets(consumer, all_of_them, job)
            await _skip_finished(consumer, reading)
    await _print(consumer, reading)


async def _assign(
    consumer: Consumer, job: ConsumeJob, topics: list[str], reading: ConsumeProgress
) -> None:
    found = await _find_partitions(consumer, topics, job.partitions)
    reading.ends = await _stop_offsets(consumer, found, job)
    consumer.assign(found)
    bound = job.span.start or Bound(OffsetBase.BEGINNING)
    if bound.place is not OffsetBase.STORED:
        reading.starts = await _start_offsets(consumer, found, bound)
        for each, offset in reading.starts.items():
            consumer.seek(each, offset)
        for each, end in (reading.ends or {}).items():
            if reading.starts[each] >= end:
                reading.finished.add(each)
        if bound.place is OffsetBase.OFFSET:
            _tell_if_behind(bound.value, reading)
    else:
        await _skip_finished(consumer, reading)


def _tell_if_behind(offset: int, reading: ConsumeProgress) -> None:
    """Warn if the start offset is after the end of every partition, so that no record is
    printed."""
    ends = reading.ends or {}
    if ends and all(offset > end for end in ends.values()):
        shown = [f"{each.topic}-{each.partition} at {end}" for each, end in sorted(ends.items())]
        more = f" and {len(shown) - _ENDS_SHOWN} more" if len(shown) > _ENDS_SHOWN else ""
        tell(
            f"there are no records from offset {offset} on; the log ends: "
            f"{', '.join(shown[:_ENDS_SHOWN])}{more}"
        )


async def _skip_finished(consumer: Consumer, reading: ConsumeProgress) -> None:
    """Mark partitions as finished if the group had read all their records before the run began."""
    starts = await consumer.beginning_offsets(*(reading.ends or {}))
    for each, end in (reading.ends or {}).items():
        stored = await consumer.committed(each)
        reading.starts[each] = max(starts[each], stored.offset if stored is not None else 0)
        if reading.starts[each] >= end:
            reading.finished.add(each)


async def _print(consumer: Consumer, reading: ConsumeProgress) -> None:
    from odradek_client.consumer.errors import CorruptRecord

    lines = None
    if reading.line_end is not None:
        from odradek_protocol.records.lines import ValueLines

        lines = ValueLines(reading.line_end, reading.ends or {})
    while not reading.done:
        try:
            if lines is None:
                found = await _print_records(consumer, reading)
            else:
                found = await _print_lines(consumer, reading, lines)
        except CorruptRecord as error:
            fail(_way_past(error, reading.group))
        for partition in found:
            if reading.ends is not None and partition in reading.finished:
                # Records that were appended after `ends` was determined do not belong to the run.
                consumer.seek(partition, reading.ends[partition])
                consumer.pause(partition)
        if found:
            reading.show()
        if reading.ends is not None and not found:
            await _note_positions(consumer, reading)


async def _print_records(
    consumer: Consumer, reading: ConsumeProgress
) -> Collection[TopicPartition]:
    """Print the next records one by one. Returns their partitions."""
    limit = _POLL_RECORDS
    view = reading.view
    if reading.records_left is not None and (view is None or view.wanted is None):
        limit = min(limit, reading.records_left)
    found = await consumer.getmany(timeout_ms=_POLL_MS, max_records=limit)
    firsts = {partition: records[0].offset for partition, records in found.items()}
    with _unprinted_is_uncommitted(consumer, firsts):
        for partition, records in found.items():
            if view is not None and view.blocks:
                # Decoding runs in a thread, because a schema registry may be slow and heartbeats
                # must continue.
                printed = await asyncio.to_thread(reading.take, partition, records)
            else:
                printed = reading.take(partition, records)
            sys.stdout.buffer.write(printed)
        sys.stdout.buffer.flush()
    if reading.records_left == 0 and view is not None and view.wanted is not None:
        # With a filter, more records are read than printed; the positions go back to the last
        # printed record.
        for partition in consumer.assignment() & firsts.keys():
            consumer.seek(partition, reading.read.get(partition, firsts[partition]))
    return found


async def _print_lines(
    consumer: Consumer, reading: ConsumeProgress, lines: ValueLines
) -> Collection[TopicPartition]:
    """Print the next records in whole batches. Returns their partitions."""
    from odradek_client.structs import TopicPartition

    await consumer.poll_rows(
        lines, timeout_ms=_POLL_MS, max_records=reading.records_left or _POLL_LINES
    )
    firsts = {TopicPartition(*where): offset for where, offset in lines.firsts.items()}
    found = {TopicPartition(*where) for where in lines.positions}
    with _unprinted_is_uncommitted(consumer, firsts):
        sys.stdout.buffer.write(reading.take_lines(lines))
        sys.stdout.buffer.flush()
    return found


@contextmanager
def _unprinted_is_uncommitted(
    consumer: Consumer, firsts: dict[TopicPartition, int]
) -> Iterator[None]:
    """Seek back to `firsts` if the work fails: closing the consumer commits its positions, and
    records that were not printed must not be committed."""
    try:
        yield
    except BaseException:
        for partition in consumer.assignment() & firsts.keys():
            consumer.seek(partition, firsts[partition])
        raise


def _way_past(error: CorruptRecord, group: str | None) -> str:
    """The message about an unreadable batch, with the command that continues after it."""
    topic, number = error.partition
    trouble = f"{topic}-{number}, offset {error.offset}: {error.what}"
    behind = "OFFSET" if error.next_offset is None else error.next_offset
    if group is None:
        return f"{trouble}\nGo on behind it: odradek consume {topic} -p {number} -o {behind}"
    return (
        f"{trouble}\nMove the group behind it: odradek group reset-offsets {quote(group)} "
        f"--topic {topic}:{number} --to-offset {behind} --execute"
    )


async def _note_positions(consumer: Consumer, reading: ConsumeProgress) -> None:
    """Mark the partitions whose position has reached the end as finished. The last printed record
    does not show the end, because control records, which no poll returns, may follow it."""
    for partition in consumer.assignment():
        end = (reading.ends or {}).get(partition)
        if (
            end is not None
            and partition not in reading.finished
            and await consumer.position(partition) >= end
        ):
            reading.finished.add(partition)


Topics = Annotated[
    list[str],
    argument(
        "TOPIC|REGEX",
        "Topics to read, or regular expressions for whole names; new topics that match are "
        "read too.",
        topic_names,
    ),
]
Offsets = Annotated[
    list[str] | None,
    option(
        "--offset -o OFFSET",
        "beginning (default), end, stored, N, -N (before the end), 2024-05-01T12:00:00Z or "
        "another time of ISO 8601, s@TIME (also in ms since 1970), e@TIME (stop there).",
    ),
]


@dataclass(frozen=True)
class OutputOptions:
    """The options for the form of printed records."""

    format_: Annotated[
        str | None,
        option(
            "--format -f FORMAT",
            "%s value, %k key, %t topic, %p partition, %o offset, %T timestamp, %h headers, "
            r"%S %K lengths; \n, \t, \xHH.",
        ),
    ] = None
    key_delimiter: Annotated[
        str | None, option("--key-delimiter -K TEXT", "Print the key and this before the value.")
    ] = None
    delimiter: Annotated[
        str, option("--delimiter -D TEXT", "The text that is printed after each record.")
    ] = _DELIMITER
    null_text: Annotated[bool, option("--null -Z", "Print null keys and values as NULL.")] = False
    as_json: AsJson = False

    @property
    def is_plain(self) -> bool:
        """True if no option selects a form."""
        return not (
            self.as_json
            or self.null_text
            or self.format_ is not None
            or self.key_delimiter is not None
        )

    def printer(self) -> Printer:
        """The formatter. Raises FormatError if options contradict each other."""
        text = self.format_
        if self.as_json:
            if text is not None or self.key_delimiter is not None:
                raise FormatError("--json has a form of its own; leave out --format and -K")
            return to_json_line
        null = b"NULL" if self.null_text else b""
        if text is None:
            head = (
                "" if self.key_delimiter is None else f"%k{self.key_delimiter.replace('%', '%%')}"
            )
            text = f"{head}%s{self.delimiter.replace('%', '%%')}"
        elif self.key_delimiter is not None:
            raise FormatError("--format and -K exclude each other; write %k in the format")
        unescape(self.delimiter)
        return compile_format(text, null)


def consume(
    topics: Topics,
    *,
    brokers: BrokerOptions,
    offset: Offsets = None,
    partition: Annotated[
        list[int] | None, option("--partition -p N", "Only this partition; repeatable.", min=0)
    ] = None,
    exit_at_end: Annotated[
        bool,
        option("--exit -e", "Stop at the end of the log as it is at the start of the command."),
    ] = False,
    count: Annotated[
        int | None, option("--count -c N", "Stop after this number of records.", min=1)
    ] = None,
    output: OutputOptions,
    group: Annotated[
        str | None,
        option("--group -g GROUP", "Read as a member of this consumer group.", group_names),
    ] = None,
    read_committed: Annotated[
        bool, option("--read-committed", "Leave out records of open and aborted transactions.")
    ] = False,
    options: ViewOptions,
) -> None:
    """Print records of topics until Ctrl+C, --exit, --count or e@TIME.

    With --json every line is what `odradek produce --json` reads. With --decode, --schema or
    --registry keys and values are decoded; on a terminal each is shown with its place and time.

    \b
    odradek consume greetings -o beginning -e --format '%p/%o %k %s\\n'
    odradek consume orders -o -10 --json
    odradek consume orders -o 2024-05-01T12:00:00Z -c 100
    odradek consume orders payments --group readers
    odradek consume 'orders\\..*' --group readers
    odradek consume orders -e --jsonpath '$.total>=10' --header kind=order
    odradek consume orders --decode key=text --decode value=avro --schema order.avsc
    """
    plain = output.is_plain
    try:
        span = parse_span(offset or [])
        printer = output.printer()
        view = View(options) if options.decodes or options.filters else None
        if view is not None:
            plain = plain and output.delimiter == _DELIMITER
            printer = view.printer(printer, plain=plain, as_json=output.as_json)
    except ValueError as error:
        fail(str(error), 2)
    if span.start is not None and span.start.place is OffsetBase.STORED and group is None:
        fail("-o stored needs --group: a group is what stores offsets", 2)
    if group is not None and not partition and span.start not in (None, Bound(OffsetBase.STORED)):
        fail("a group begins where it stands: leave out -o, or name partitions with -p", 2)
    settings = {
        "allow_auto_create_topics": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed" if read_committed else "read_uncommitted",
        "enable_auto_commit": group is not None,
        **({} if group is None else {"group_id": group}),
        **({"metadata_max_age_ms": NEW_TOPICS_MS} if any(map(is_pattern, topics)) else {}),
        **brokers.settings("consumer"),
    }
    job = ConsumeJob(settings, topics, partition or [], span, exit_at_end)
    with progress("consuming", count, wanted=not sys.stdout.isatty()) as shown:
        reading = ConsumeProgress(printer, shown, count, group, view=view)
        if plain and view is None:
            reading.line_end = unescape(output.delimiter)
        run(_consume(job, reading), close_on_sigterm=True)
