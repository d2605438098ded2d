"""A disk that fills up at any operation of a log, and is full for a while: append, new file, rename
or truncation (L-08)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import budget
from filling_files import NEED_ROOM, FillingFiles
from logs import NOW_MS, append, make_batch, make_log, read_all, records, reopen
from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.log import PartitionLog
from odradek_protocol.errors import ErrorCode

SETTINGS: dict[str, Any] = {
    "segment_bytes": 500,
    "durability": "fsync",
    "index_interval_bytes": 100,
    "retention_bytes": 1_500,
}
DAY_MS = 86_400_000


def work(log: PartitionLog) -> list[bytes]:
    """Append, flush, roll, and delete by size, without retries. Returns the accepted values."""
    taken: list[bytes] = []
    for number in range(40):
        value = b"%d" % number
        try:
            append(log, make_batch(2, value=value, producer_id=1, sequence=2 * len(taken)))
        except AppendRejected as refusal:
            assert refusal.error is ErrorCode.KAFKA_STORAGE_ERROR
        else:
            taken.append(value)
        if number % 3 == 0:
            log.durability.flush()
        if number % 10 == 9:
            with suppress(OSError):
                log.trimming.apply_retention(NOW_MS)
    return taken


def values(log: PartitionLog) -> list[bytes | None]:
    found = records(read_all(log))
    offsets = [record.offset for record in found]
    assert offsets == list(range(offsets[0], log.log_end_offset))
    return [record.value for record in found if record.offset % 2 == 0]


@pytest.mark.full
@pytest.mark.parametrize("lasts", budget.of_which([1, 2, 15], [2]))
def test_l08_a_disk_that_fills_up_at_any_operation_loses_only_refused_batches(lasts: int) -> None:
    probe = FillingFiles()
    work(make_log(probe, **SETTINGS))
    created, total = 10, probe.operations
    assert total > 100
    refused = set()
    for begins in range(created, total):
        files = FillingFiles()
        log = make_log(files, **SETTINGS)
        files.full = range(begins, begins + lasts)
        taken = work(log)
        refused.update(files.refused)
        files.full = range(0)
        assert not log.offline, begins
        assert append(log, make_batch(2, value=b"there is room again")).base_offset == 2 * len(
            taken
        )
        expected = [*taken, b"there is room again"]
        log.durability.flush()
        first = log.log_start_offset // 2
        assert values(log) == expected[first:]
        for clean in (False, True):
            log = reopen(log, files, clean=clean, **SETTINGS)
            assert values(log) == expected[log.log_start_offset // 2 :], begins
    # A truncation comes after a refused write, so it is never the only refused operation.
    assert refused == NEED_ROOM - ({"truncate"} if lasts == 1 else set())
