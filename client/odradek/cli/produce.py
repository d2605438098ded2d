"""`odradek produce`: records from standard input or from files, one a line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from odradek.cli import fail
from odradek.cli.common import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientSettings,
    Progress,
    client_settings,
    progress,
    run,
)
from odradek.cli.record_format import FormatError, InputRecord, from_json_line, unescape

if TYPE_CHECKING:
    from odradek_client.producer.producer import Producer

_READ_BYTES = 256 * 1024
#: One record may not be longer than this; a broker would refuse it anyway.
_RECORD_BYTES_MAX = 128 * 1024 * 1024
#: Deliveries looked at only later; older ones are awaited first.
_UNCHECKED_MAX = 50_000


#: A pipe is read as fast as it can be: larger batches, and a little longer to fill them.
_FOR_FILES = {"batch_size": 256 * 1024, "linger_ms": 20}


class InputError(Exception):
    """A record that cannot be read; the text names its source and line."""


@dataclass(frozen=True)
class LineFormat:
    """How a line becomes a record."""

    key_delimiter: bytes | None
    fixed_key: bytes | None
    headers: list[tuple[str, bytes | None]]
    empty_is_null: bool
    json: bool
    keep_partition: bool

    def parse(self, line: bytes) -> InputRecord:
        """FormatError for a line that is no record."""
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


async def read_lines(file: BinaryIO, delimiter: bytes) -> AsyncIterator[list[bytes]]:
    """The records of a file, as many at a time as have arrived; a delimiter at the end is no record.

    InputError for one longer than _RECORD_BYTES_MAX.
    """
    rest = b""
    loop = asyncio.get_running_loop()
    descriptor = file.fileno()
    while data := await loop.run_in_executor(None, os.read, descriptor, _READ_BYTES):
        *lines, rest = (rest + data).split(delimiter)
        if len(rest) > _RECORD_BYTES_MAX:
            raise InputError(f"a record of more than {_RECORD_BYTES_MAX} bytes")
        if lines:
            yield lines
    if rest:
        yield [rest]


class _Run:
    """One command: what was sent, what became of it."""

    def __init__(self, producer: Producer, topic: str, shown: Progress) -> None:
        self._producer = producer
        self._topic = topic
        self._shown = shown
        self._unchecked: deque[Any] = deque()

    async def send(self, record: InputRecord, partition: int | None) -> None:
        delivery = await self._producer.send(
            self._topic,
            record.value,
            record.key,
            headers=record.headers,
            partition=partition if record.partition is None else record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        self._unchecked.append(delivery)
        self._shown.add(1, len(record.value or b""))
        if len(self._unchecked) >= _UNCHECKED_MAX:
            await self._unchecked.popleft()

    async def finish(self) -> None:
        """Raise what went wrong with any record."""
        await self._producer.flush()
        while self._unchecked:
            await self._unchecked.popleft()


async def _produce(
    settings: dict[str, Any],
    topic: str,
    sources: list[Path],
    delimiter: bytes,
    line_format: LineFormat,
    partition: int | None,
) -> int:
    from odradek_client.producer.producer import Producer

    interactive = sys.stdin.isatty() and not sources
    with progress("producing", wanted=not interactive) as shown:
        async with Producer(**settings) as producer, _transaction(producer):
            work = _Run(producer, topic, shown)
            for source in sources or [Path("-")]:
                await _produce_file(work, source, delimiter, line_format, partition)
            await work.finish()
        return shown.records


@asynccontextmanager
async def _transaction(producer: Producer) -> AsyncIterator[None]:
    """One for everything, if there is a transactional id."""
    if producer.config.transactional_id is None:
        yield
        return
    await producer.init_transactions()
    async with producer.transaction():
        yield


async def _produce_file(
    work: _Run, source: Path, delimiter: bytes, line_format: LineFormat, partition: int | None
) -> None:
    name = "standard input" if str(source) == "-" else str(source)
    number = 0
    file = sys.stdin.buffer if str(source) == "-" else source.open("rb")
    with file:
        try:
            async for lines in read_lines(file, delimiter):
                for line in lines:
                    number += 1
                    if line_format.json and not line.strip():
                        continue
                    await work.send(line_format.parse(line), partition)
        except (FormatError, InputError) as error:
            await work.finish()
            raise InputError(f"{name}, record {number}: {error}") from error


def _parse_headers(texts: list[str]) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name:
            fail(f"header {text!r} must be NAME=VALUE, or NAME alone for null", 2)
        headers.append((name, value.encode() if equals else None))
    return headers


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files to read; standard input without any."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    key_delimiter: Annotated[
        str | None,
        typer.Option(
            "--key-delimiter",
            "-K",
            metavar="TEXT",
            help="What stands between key and value in a line.",
        ),
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", "-D", metavar="TEXT", help="What stands between records.")
    ] = r"\n",
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="One key for all records.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="For all records; repeatable."),
    ] = None,
    empty_is_null: Annotated[
        bool, typer.Option("--null", "-Z", help="Empty keys and values are null (tombstones).")
    ] = False,
    compression: Annotated[
        str,
        typer.Option(
            "--compression", "-z", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd."
        ),
    ] = "none",
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="All records go here."),
    ] = None,
    transactional_id: Annotated[
        str | None,
        typer.Option(
            "--transactional-id",
            metavar="ID",
            help="All records in one transaction: consumers of committed records see all or none.",
        ),
    ] = None,
    as_json: AsJson = False,
    keep_partition: Annotated[
        bool, typer.Option("--keep-partition", help="With --json: to the partition of the line.")
    ] = False,
    setting: ClientSettings = None,
) -> None:
    """Write records to a topic: a line each, or with --json what `odradek consume --json` prints.

    Exits with 0 when every record is acknowledged, and with --transactional-id committed. Input that
    takes longer than the transaction may needs -X transaction.timeout.ms=MS.
    """
    try:
        line_format = LineFormat(
            None if key_delimiter is None else unescape(key_delimiter),
            None if key is None else key.encode(),
            _parse_headers(header or []),
            empty_is_null,
            as_json,
            keep_partition,
        )
        separator = unescape(delimiter)
    except FormatError as error:
        fail(str(error), 2)
    if not separator or line_format.key_delimiter == b"":
        fail("a delimiter must not be empty", 2)
    settings = {"compression_type": compression, **client_settings(bootstrap, setting)}
    if transactional_id is not None:
        settings["transactional_id"] = transactional_id
    if not sys.stdin.isatty() or files:
        settings = {**_FOR_FILES, **settings}
    try:
        run(_produce(settings, topic, files or [], separator, line_format, partition))
    except (InputError, OSError) as error:
        fail(str(error))
