"""The last records of unexpired producers; a cleaner must keep these records (L-24)."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

from odradek_broker.platform.seams import Files
from odradek_broker.storage.cleaner.job import LastRecord
from odradek_broker.storage.producers.producer_files import has_snapshot, snapshot_name
from odradek_broker.storage.producers.state import ProducerEntry


def last_records(
    entries: Iterable[ProducerEntry], upper_bound: int
) -> Iterator[tuple[int, LastRecord]]:
    """(producer id, its last record) of producers whose last batch of data is below an offset, and
    of producers that have only a marker, at any offset."""
    for entry in entries:
        offset = entry.last_offset
        if offset < upper_bound:
            yield entry.producer_id, LastRecord(offset, entry.epoch)


def remove_old_snapshots(files: Files, directory: str, upper_bound: int, known_from: int) -> None:
    """Remove the snapshots below an offset, before the cleaner removes batches and markers below
    it. A load from an old snapshot would find a marker's transaction open and never find the
    marker. Producers are then read from the snapshot at `known_from`, which is checked and synced
    first (L-55). The removal is durable with the first cleaned segment. Raises OSError."""
    newer = f"{directory}/{snapshot_name(known_from)}"
    if not has_snapshot(files, directory, known_from):
        files.remove(newer)
        raise OSError(errno.EIO, "a producer snapshot is damaged", newer)
    file = files.open(newer)
    try:
        file.sync()
    finally:
        file.close()
    files.sync_dir(directory)
    for name in files.list(directory):
        stem, _, suffix = name.partition(".")
        if suffix == "snapshot" and stem.isdigit() and int(stem) < upper_bound:
            files.remove(f"{directory}/{name}")
