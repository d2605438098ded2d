"""Partition logs for tests, over files in memory or any other `Files`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from odradek_broker.platform.machine import RealRandomness
from odradek_broker.platform.seams import Files
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.handles import INDEX_BYTES_MAX, HandleCache
from odradek_broker.storage.log import AppendResult, PartitionLog
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_broker.storage.log_options import LogOptions, LogStart
from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import BatchHeader, iter_batches
from odradek_protocol.records.builder import BatchBuilder, control_batch
from odradek_protocol.records.record import Record, read_records
from odradek_protocol.stored.control_marker import ControlType

NOW_MS = 1_700_000_000_000
EVERYTHING = 2**62
DIRECTORY = "data/t-0"
TOPIC_ID = bytes(range(16))


def make_batch(
    count: int = 1,
    *,
    timestamp: int = NOW_MS,
    value: bytes | None = b"value",
    key: bytes | None = b"key",
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
    **build: Any,
) -> memoryview:
    """A batch of `count` records, one millisecond apart. The buffer is writable, as from the
    network."""
    builder = BatchBuilder(codec)
    for index in range(count):
        builder.append(timestamp + index, key, value)
    if producer_id >= 0:
        build.update(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return memoryview(builder.build(transactional=transactional, **build))


def make_marker(
    commit: bool, producer_id: int, *, epoch: int = 0, coordinator_epoch: int = 0
) -> memoryview:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return memoryview(control_batch(kind, coordinator_epoch, producer_id, epoch, NOW_MS))


def make_log(
    files: Files,
    *,
    start: LogStart | None = None,
    open_files: int = 64,
    index_bytes_max: int = INDEX_BYTES_MAX,
    directory: str = DIRECTORY,
    deleted: DeletedFiles | None = None,
    **config: Any,
) -> PartitionLog:
    """A log in page-cache mode unless `durability` says otherwise; created if it does not exist."""
    config.setdefault("durability", "page-cache")
    handles = HandleCache(files, open_files, index_bytes_max)
    log = PartitionLog(
        "t",
        0,
        TOPIC_ID,
        directory,
        LogConfig(**config),
        LogOptions(files, handles, RealRandomness(), deleted or DeletedFiles(handles)),
        start or LogStart(),
    )
    if files.exists(directory):
        log.load(NOW_MS)
        return log
    parent = directory.rpartition("/")[0]
    files.make_dirs(parent)
    files.sync_dir(parent.rpartition("/")[0] or ".")
    log.create_files(NOW_MS)
    return log


def reopen(log: PartitionLog, files: Files, *, clean: bool, **config: Any) -> PartitionLog:
    """Close the log, as by a clean stop (`clean`) or by a kill, and open it again."""
    log.close(clean=clean)
    start = LogStart(
        log.log_start_offset,
        log.log_end_offset,
        log.durability.durable_offset if clean else 0,
        clean,
    )
    return make_log(files, start=start, **config)


def append(
    log: PartitionLog,
    batch: memoryview | None = None,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    now_ms: int = NOW_MS,
    leader_epoch: int = 0,
    transaction_version: int = 1,
) -> AppendResult:
    return log.append(
        make_batch() if batch is None else batch,
        origin=origin,
        now_ms=now_ms,
        leader_epoch=leader_epoch,
        transaction_version=transaction_version,
    )


def append_marker(log: PartitionLog, commit: bool, producer_id: int, **more: int) -> AppendResult:
    return append(log, make_marker(commit, producer_id, **more), origin=AppendOrigin.COORDINATOR)


def read_all(log: PartitionLog, *, upper_bound: int = EVERYTHING) -> bytes:
    """The bytes of all batches from the log start on, read in small pieces."""
    offset, parts = log.log_start_offset, []
    while data := log.read(offset, 700, upper_bound=upper_bound, minimum_one=True):
        parts.append(data)
        offset = headers(data)[-1].next_offset
    return b"".join(parts)


def small_file(content: bytes) -> str:
    """The text of a checkpoint or partition.metadata as Kafka writes it, without the checksums of
    its entries."""
    text = re.sub(r"[ \t]+$", "", content.decode(), flags=re.MULTILINE)
    return re.sub(r"^(topic_id:)[ \t]+", r"\1 ", text, flags=re.MULTILINE)


def headers(data: bytes) -> list[BatchHeader]:
    """The headers of whole batches; fails if the last batch is cut."""
    found = [header for _, header in iter_batches(data)]
    assert sum(header.size_bytes for header in found) == len(data)
    return found


def records(data: bytes) -> list[Record]:
    return [
        record
        for position, header in iter_batches(data)
        for record in read_records(data, position, header)
    ]


class Workers:
    """Background work, which runs when a test says so."""

    def __init__(self, log: PartitionLog) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []
        log.options.handles.background = lambda work, done: self.jobs.append((work, done))

    def run(self) -> None:
        self.work()()

    def work(self) -> Callable[[], None]:
        """Run the oldest job. Returns a function that reports its end."""
        work, done = self.jobs.pop(0)
        problem: Exception | None = None
        try:
            work()
        except Exception as error:  # noqa: BLE001 - passed to `done`
            problem = error
        return lambda: done(problem)
