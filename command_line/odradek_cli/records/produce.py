"""`odradek produce`: records from standard input or from files, one per line."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from odradek_cli.commands import fail
from odradek_cli.common import (
    AsJson,
    BrokerOptions,
    Compression,
    RecordCounter,
    connected,
    progress,
    run,
    tell,
)
from odradek_cli.completion import topic_names
from odradek_cli.options import argument, option
from odradek_client.words import counted
from odradek_records.record_format import FormatError, InputRecord, from_json_line, unescape

if TYPE_CHECKING:
    from odradek_client.errors import OdradekError
    from odradek_client.producer.arrow import ArrowDelivery
    from odradek_client.producer.batch import Delivery
    from odradek_client.producer.producer import Producer
    from odradek_protocol.records.lines import LineRecords

    _Fate = tuple[int, bool, OdradekError | None]

_READ_BYTES = 1024 * 1024
#: Input of at least this size is sent as a block of lines. Smaller input is sent line by line,
#: because it may come from a program that writes a line now and then.
_WHOLE_BYTES = 32 * 1024
#: The maximum size of a record; a broker would refuse a larger record anyway.
_RECORD_BYTES_MAX = 128 * 1024 * 1024
#: The maximum number of deliveries that were not awaited yet. At this number, the oldest delivery
#: is awaited before the next send.
_UNCHECKED_MAX = 50_000
#: The time to wait for deliveries after the first Ctrl+C. A second Ctrl+C ends the wait.
_LAST_CHANCE_S = 5.0
_FIND_TOPIC_S = 10.0
_STANDARD_INPUT = Path("-")

#: Settings for reading a pipe as fast as possible: larger batches, and more time to fill them.
_FOR_FILES = {"batch_size": 256 * 1024, "linger_ms": 20}


async def _is_there(producer: Producer, topic: str) -> bool:
    """False if a broker answers that the topic does not exist."""
    from odradek_client.errors import OdradekError
    from odradek_protocol.errors import ErrorCode
    from odradek_protocol.primitives import WireError
    from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic

    network = producer.network
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    try:
        answer = await network.send(min(network.cluster.brokers), request)
    except (OdradekError, WireError):
        return True
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return not any(each.error_code == code for each in answer.topics)


class InputError(Exception):
    """The error of an unreadable record, with its source and line."""


@dataclass(frozen=True)
class InputJob:
    """The input, and the way to read it. `whole`: send many lines as a block, if no line needs
    parsing."""

    sources: list[Path]
    delimiter: bytes
    line_format: LineFormat
    partition: int | None
    shown: RecordCounter
    whole: bool = False


@dataclass(frozen=True)
class LineFormat:
    """The rules by which a line becomes a record."""

    key_delimiter: bytes | None
    fixed_key: bytes | None
    headers: list[tuple[str, bytes | None]]
    empty_is_null: bool
    json: bool
    keep_partition: bool

    @property
    def is_plain(self) -> bool:
        """True if a line is the value of its record, and the record has no key and no headers."""
        return not (
            self.json
            or self.empty_is_null
            or self.headers
            or self.key_delimiter is not None
            or self.fixed_key is not None
        )

    def parse(self, line: bytes) -> InputRecord:
        """The record in a line. Raises FormatError if the line has another form."""
        if self.json:
            record = from_json_line(line)
            record.headers = record.headers + self.headers
            if not self.keep_partition:
                record.partition = None
        else:
            key, value = self.fixed_key, line
            if self.key_delimiter is not None:
                head, found, tail = line.partition(self.key_delimiter)
                if found:
                    key, value = head, tail
            record = InputRecord(value, key, list(self.headers))
        if record.key is None:
            record.key = self.fixed_key
        if self.empty_is_null:
            record.key = record.key or None
            record.value = record.value or None
        return record


async def read_lines(
    file: BinaryIO, delimiter: bytes, *, whole: bool = False
) -> AsyncIterator[list[bytes] | LineRecords]:
    """The records of a file, as many at a time as have arrived. A delimiter at the end of the file
    does not begin another record.

    Raises InputError for a record larger than _RECORD_BYTES_MAX. `whole`: yield large input as
    `LineRecords`, without an object for each record.
    """
    from odradek_protocol.records.lines import LineRecords

    descriptor = file.fileno()
    # `pieces`: the beginning of a record whose end has not arrived yet. `tail`: the last bytes
    # of these pieces, in which the delimiter may begin.
    pieces: list[bytes] = []
    pieces_bytes = 0
    tail = b""
    lines: list[bytes] | LineRecords | None
    while data := await _read(descriptor):
        if pieces and delimiter not in tail + data:
            # The pieces of a long record are joined only once, at its end.
            pieces.append(data)
            pieces_bytes += len(data)
            if pieces_bytes > _RECORD_BYTES_MAX:
                raise InputError(f"a record of more than {_RECORD_BYTES_MAX} bytes")
            tail = _end_of(tail + data, delimiter)
            continue
        data = b"".join([*pieces, data])
        if whole and len(data) >= _WHOLE_BYTES:
            records = LineRecords(data, delimiter)
            rest = data[records.used_bytes :]
            lines = records if records.count else None
        else:
            *lines, rest = data.split(delimiter)
        if len(rest) > _RECORD_BYTES_MAX:
            raise InputError(f"a record of more than {_RECORD_BYTES_MAX} bytes")
        if lines:
            yield lines
        pieces, pieces_bytes, tail = ([rest] if rest else []), len(rest), _end_of(rest, delimiter)
    if pieces:
        yield [b"".join(pieces)]


def _end_of(data: bytes, delimiter: bytes) -> bytes:
    """The last bytes of `data`, which may be the beginning of a delimiter."""
    return data[-(len(delimiter) - 1) :] if len(delimiter) > 1 else b""


async def _read(descriptor: int) -> bytes:
    """Wait for input and return it; empty at its end. Raises OSError.

    The thread that reads is never joined, so that the program can end while a terminal or a pipe is
    silent. (The threads of the loop's executor would be joined at the end.)
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[bytes] = loop.create_future()

    def settle(data: bytes, failure: OSError | None) -> None:
        if arrived.done():
            return
        if failure is None:
            arrived.set_result(data)
        else:
            arrived.set_exception(failure)

    def wait() -> None:
        data, failure = b"", None
        try:
            data = os.read(descriptor, _READ_BYTES)
        except OSError as error:
            failure = error
        # RuntimeError means that the loop is closed because the program ends.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, data, failure)

    threading.Thread(target=wait, daemon=True, name="odradek-input").start()
    return await arrived


@dataclass(frozen=True, slots=True)
class _Whole:
    """Lines that were sent as a block."""

    delivery: ArrowDelivery

    @property
    def count(self) -> int:
        return self.delivery.buffered

    async def wait(self) -> None:
        """Wait for the delivery, and raise the error of the first line that was not written."""
        from odradek_client.errors import OdradekError

        with suppress(OdradekError):
            await self.delivery
        for outcome in self.delivery.outcomes():
            if outcome.error is not None:
                raise outcome.error

    def fates(self) -> list[_Fate]:
        found: list[_Fate] = [
            (len(outcome.rows), True, outcome.error)
            for outcome in self.delivery.outcomes(known=True)
        ]
        return [*found, (self.count - sum(count for count, _, _ in found), False, None)]


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"


class _Run:
    """A run of the command: the records sent, and their deliveries."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._unchecked: deque[Delivery | _Whole] = deque()
        self.sent = 0
        self.acknowledged = 0
        self.is_committing = False
        self.open_since_s = 0.0

    async def send(self, producer: Producer, record: InputRecord, partition: int | None) -> None:
        if not self.sent:
            await self._find_topic(producer)
        delivery = await producer.send(
            self._topic,
            record.value,
            record.key,
            headers=record.headers,
            partition=partition if record.partition is None else record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        self._unchecked.append(delivery)
        self.sent += 1
        await self._check_oldest()

    async def send_lines(
        self, producer: Producer, lines: LineRecords, partition: int | None
    ) -> int:
        """Send the lines up to the first that is too large for a record. Returns the number of sent
        lines."""
        if not self.sent:
            await self._find_topic(producer)
        from odradek_client.producer.arrow import ArrowDelivery

        delivery = ArrowDelivery(self._topic, lines.count)
        self._unchecked.append(_Whole(delivery))
        try:
            await producer.produce_lines(lines, delivery, partition=partition)
        finally:
            self.sent += delivery.buffered
        await self._check_oldest()
        return delivery.buffered

    async def _find_topic(self, producer: Producer) -> None:
        """Fail soon if the topic neither exists nor is created by the broker."""
        from odradek_client.errors import MetadataTimeout

        try:
            async with asyncio.timeout(_FIND_TOPIC_S):
                was_there = await _is_there(producer, self._topic)
                partitions = await producer.partitions_for(self._topic)
            if not was_there:
                tell(
                    f"topic {self._topic!r} was not there; the broker has made it, with "
                    f"{counted(len(partitions), 'partition')}"
                )
        except TimeoutError as error:
            if isinstance(error, MetadataTimeout):
                raise
            raise InputError(
                f"topic {self._topic!r} is not there after {_FIND_TOPIC_S:.0f} s; "
                f"`odradek topic create {self._topic}` makes it"
            ) from error

    async def _check_oldest(self) -> None:
        while self.sent - self.acknowledged >= _UNCHECKED_MAX:
            await self._check()

    async def _check(self) -> None:
        """Wait for the oldest delivery, of a record or a block of lines. Raise its error if it
        failed."""
        oldest = self._unchecked[0]
        count = 1
        if isinstance(oldest, _Whole):
            await oldest.wait()
            count = oldest.count
        else:
            await oldest
        self._unchecked.popleft()
        self.acknowledged += count

    async def finish(self, producer: Producer) -> None:
        """Wait for all deliveries; raise the error of any record."""
        await producer.flush()
        while self._unchecked:
            await self._check()

    def settle(self) -> str:
        """A text with the numbers of records, after an interruption: acknowledged, refused, and
        those whose outcome is unknown."""
        from odradek_client.errors import Closed, DeliveryTimeout

        refused = 0
        unknown = 0
        for each in self._unchecked:
            if isinstance(each, _Whole):
                fates = each.fates()
            else:
                known = each.done()
                fates = [(1, known, each.exception() if known else None)]
            for count, known, error in fates:
                if not known or isinstance(error, Closed | DeliveryTimeout):
                    unknown += count
                elif error is None:
                    self.acknowledged += count
                else:
                    refused += count
        self._unchecked.clear()
        parts = [f"of {counted(self.sent, 'record')} {_are(self.acknowledged)} acknowledged"]
        if refused:
            parts.append(f"{refused} {'was' if refused == 1 else 'were'} refused")
        if unknown:
            parts.append(f"{unknown} may be written or not")
        return ", ".join(parts)


async def _produce(settings: dict[str, Any], job: InputJob, work: _Run) -> None:
    from odradek_client.producer.producer import Producer

    loop = asyncio.get_running_loop()
    async with connected(Producer, settings) as producer, asyncio.timeout(None) as limit:
        try:
            async with _transaction(producer, work):
                try:
                    for source in job.sources:
                        await _produce_file(producer, work, source, job)
                    await work.finish(producer)
                except asyncio.CancelledError:
                    # Records in flight get a short time to be acknowledged or aborted.
                    limit.reschedule(loop.time() + _LAST_CHANCE_S)
                    raise
        except asyncio.CancelledError:
            await producer.close()
            raise


@asynccontextmanager
async def _transaction(producer: Producer, work: _Run) -> AsyncIterator[None]:
    """Run the block in one transaction, if there is a transactional id."""
    if producer.config.transactional_id is None:
        yield
        return
    from odradek_client.errors import Abortable, Fatal, Refused

    await producer.init_transactions()
    work.open_since_s = time.monotonic()
    timeout_s = producer.config.transaction_timeout_ms / 1000
    try:
        async with producer.transaction():
            yield
            work.is_committing = True
    except (Abortable, Fatal, Refused):
        # The broker has answered, so no commit is in flight.
        work.is_committing = False
        open_s = time.monotonic() - work.open_since_s
        if open_s >= timeout_s:
            tell(
                f"the transaction was open for {open_s:.0f} s, longer than its {timeout_s:.0f} s: "
                "the broker aborts it then; -X transaction.timeout.ms=MS allows more"
            )
        raise


async def _produce_file(producer: Producer, work: _Run, source: Path, job: InputJob) -> None:
    from odradek_client.errors import OdradekError, RecordTooLarge

    name = "standard input" if source == _STANDARD_INPUT else str(source)
    number = 0
    with _open(source, name) as file:
        try:
            async for lines in read_lines(file, job.delimiter, whole=job.whole):
                left: Iterable[bytes] = ()
                if isinstance(lines, list):
                    left = lines
                else:
                    number += 1  # an error of the block names its first line
                    sent = await work.send_lines(producer, lines, job.partition)
                    number += sent - 1
                    # If not all lines were sent, the first unsent line is too large for a record.
                    left = map(lines.line, range(sent, lines.count))
                for line in left:
                    number += 1
                    if job.line_format.json and not line.strip():
                        continue
                    await work.send(producer, job.line_format.parse(line), job.partition)
                job.shown.show(work.sent)
        except (ValueError, RecordTooLarge, InputError) as error:
            await work.finish(producer)
            raise InputError(f"{name}, record {number}: {error}") from error
        except OdradekError:
            raise  # timeouts of the client are OSErrors too
        except OSError as error:
            raise InputError(f"{name} cannot be read: {error.strerror}") from error


def _open(source: Path, name: str) -> BinaryIO:
    """Open an input. Raises InputError if that is impossible."""
    if source == _STANDARD_INPUT:
        return sys.stdin.buffer
    try:
        return source.open("rb")
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}") from error


def _parse_headers(texts: list[str]) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name:
            fail(f"header {text!r} must be NAME=VALUE, or NAME alone for null", 2)
        headers.append((name, value.encode() if equals else None))
    return headers


@dataclass(frozen=True)
class InputOptions:
    """The options for the form of the input, and for what is written."""

    key_delimiter: Annotated[
        str | None, option("--key-delimiter -K TEXT", "The separator of key and value in a line.")
    ] = None
    delimiter: Annotated[str, option("--delimiter -D TEXT", "The separator of records.")] = r"\n"
    key: Annotated[str | None, option("--key -k KEY", "The key of all records.")] = None
    header: Annotated[
        list[str] | None, option("--header -H NAME=VALUE", "A header of all records; repeatable.")
    ] = None
    empty_is_null: Annotated[
        bool, option("--null -Z", "Write empty keys and values as null (tombstones).")
    ] = False
    compression: Compression = "none"
    partition: Annotated[
        int | None, option("--partition -p N", "The partition of all records.", min=0)
    ] = None
    transactional_id: Annotated[
        str | None,
        option(
            "--transactional-id ID",
            "Write all records in one transaction, so that consumers of committed records get all "
            "or none.",
        ),
    ] = None
    as_json: AsJson = False
    keep_partition: Annotated[
        bool,
        option("--keep-partition", "With --json: write each record to the partition in its line."),
    ] = False

    def line_format(self) -> LineFormat:
        """The form of a line. Raises FormatError for a wrong delimiter."""
        return LineFormat(
            None if self.key_delimiter is None else unescape(self.key_delimiter),
            None if self.key is None else self.key.encode(),
            _parse_headers(self.header or []),
            self.empty_is_null,
            self.as_json,
            self.keep_partition,
        )


def produce(
    topic: Annotated[str, argument("TOPIC", "The topic to write to.", topic_names)],
    files: Annotated[
        list[Path] | None, argument("FILE", "Files to read. [default: standard input]")
    ] = None,
    *,
    brokers: BrokerOptions,
    options: InputOptions,
) -> None:
    """Write records to a topic: a line each, or with --json what `odradek consume --json` prints.

    Exits with 0 when every record is acknowledged. With --transactional-id, the records are then
    also committed. Ctrl+C waits for records in flight and says what was acknowledged; a second
    Ctrl+C does not wait. Input that takes longer than the transaction's timeout needs
    -X transaction.timeout.ms=MS.

    \b
    printf 'en:hello\\nes:hola\\n' | odradek produce greetings --key-delimiter :
    odradek produce orders orders.jsonl --json
    odradek produce payments payments.txt --transactional-id import-1
    """
    try:
        line_format = options.line_format()
        separator = unescape(options.delimiter)
    except FormatError as error:
        fail(str(error), 2)
    if not separator or line_format.key_delimiter == b"":
        fail("a delimiter must not be empty", 2)
    settings = {"compression_type": options.compression, **brokers.settings("producer")}
    if options.transactional_id is not None:
        settings["transactional_id"] = options.transactional_id
    if not sys.stdin.isatty() or files:
        settings = {**_FOR_FILES, **settings}
    interactive = sys.stdin.isatty() and not files
    from odradek_protocol.records import native

    # The pure-Python record codec is faster with single records than with blocks.
    whole = (
        line_format.is_plain
        and settings.get("partitioner", "default") == "default"
        and native.IN_USE
    )
    work = _Run(topic)
    with progress("producing", wanted=not interactive) as shown:
        job = InputJob(
            files or [_STANDARD_INPUT], separator, line_format, options.partition, shown, whole
        )
        try:
            run(_produce(settings, job, work), close_on_sigterm=True)
        except InputError as error:
            _tell_end(work, options.transactional_id)
            fail(str(error))
        except (SystemExit, typer.Exit):
            _tell_end(work, options.transactional_id)
            raise


def _tell_end(work: _Run, transactional_id: str | None) -> None:
    if sys.stderr.isatty():
        tell("")  # ends the line of ^C
    if not work.sent:
        return
    if transactional_id is None:
        tell(work.settle())
    elif work.is_committing:
        tell(
            "the transaction may be committed or not; "
            f"`odradek txn describe {transactional_id}` shows its state"
        )
    else:
        tell(
            f"the transaction was not committed: consumers of committed records see none of its "
            f"{counted(work.sent, 'record')}"
        )
