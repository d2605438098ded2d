"""The small files of storage, each read alone: snapshots of producers, indexes, checkpoints (L-02
to L-04, P-26).

The first byte chooses the file. A snapshot is also read with its checksum corrected. A file that
was read can be written again, with the same content. If a format is also declared with `construct`,
a read through that declaration must give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import construct
from tests.adversity.fuzz.target import Broken, Target

from logs import NOW_MS, append, append_marker, make_batch, make_log
from odradek_broker.explain import group_lags_file
from odradek_broker.explain.group_lags import GroupLags
from odradek_broker.explain.group_lags_file import read_group_lags
from odradek_broker.platform.seams import File
from odradek_broker.storage import checkpoints
from odradek_broker.storage.checkpoints import CorruptCheckpoint
from odradek_broker.storage.errors import DataDirectoryError
from odradek_broker.storage.index import InvalidIndex, OffsetIndex, TimeIndex
from odradek_broker.storage.leader_epochs import LeaderEpochs
from odradek_broker.storage.meta_properties import read_meta_properties
from odradek_broker.storage.producers.snapshot import (
    SNAPSHOT,
    CorruptProducerSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from odradek_broker.storage.transaction_index import (
    ABORTED_ENTRY,
    ENTRY_BYTES,
    CorruptTransactionIndex,
    TransactionIndex,
)
from odradek_protocol.checksums import crc32c
from odradek_testkit.simulation.disk import MemoryFiles

_PATH = "data/file"
_BASE = 1000
_LOG_BYTES = 5000
_OFFSETS = (0, _BASE - 1, _BASE, _BASE + 1, _BASE + 77, _BASE + 2**31 - 1, 2**63 - 1)
_TIMES = (-1, 0, 1, NOW_MS, 2**63 - 1)
_END = 2**40
_LAGS = b"odradek.group-lags 1\n"


def _files(content: bytes) -> MemoryFiles:
    files = MemoryFiles()
    files.put(_PATH, content)
    return files


# --- Snapshots ------------------------------------------------------------------------------------


def _snapshot(content: bytes) -> None:
    try:
        entries = decode_snapshot(content, map_end_offset=_END)
    except CorruptProducerSnapshot:
        return
    again = encode_snapshot(entries)
    if encode_snapshot(decode_snapshot(again, map_end_offset=_END)) != again:
        raise Broken("a snapshot changes when it is read and written")
    declared = SNAPSHOT.parse(content).producer_entries
    if [entry.producer_id for entry in declared] != [entry.producer_id for entry in entries]:
        raise Broken("a snapshot's declaration reads other producers")


def _sealed_snapshot(content: bytes) -> None:
    _snapshot(content[:2] + crc32c(content[6:]).to_bytes(4, "big") + content[6:])


# --- Indexes --------------------------------------------------------------------------------------


def _offset_index(content: bytes) -> None:
    index = OffsetIndex(_files(content), _PATH, _BASE)
    try:
        index.load(_LOG_BYTES)
    except InvalidIndex:
        return
    for position in (0, 1, 100, _LOG_BYTES):
        index.floor_position(position)
    entries = [index.floor_entry(offset) for offset in _OFFSETS]
    # The order of the entries is not checked: readers compare each entry with its batch.
    if any(found > offset for (found, at), offset in zip(entries, _OFFSETS, strict=True) if at):
        raise Broken(f"an offset index leads behind what is looked for: {entries}")
    again = OffsetIndex(_files(b""), _PATH, _BASE)
    again._offsets, again._positions = index._offsets, index._positions
    if again._encode(0) != content:
        raise Broken("an offset index changes when it is read and written")
    index.truncate_to(_BASE + 10)
    if index.last()[0] >= _BASE + 10:
        raise Broken("an offset index keeps what was cut")


def _time_index(content: bytes) -> None:
    index = TimeIndex(_files(content), _PATH, _BASE)
    try:
        index.load(_LOG_BYTES)
    except InvalidIndex:
        return
    floors = [index.floor_entry(timestamp) or (-1, _BASE) for timestamp in _TIMES]
    if floors != sorted(floors) or min(offset for _, offset in floors) < _BASE:
        raise Broken(f"a time index goes back: {floors}")
    if len(index) and index.last_on_disk() != index.last():
        raise Broken("a time index says something else from disk")
    if index._encode(0) != content:
        raise Broken("a time index changes when it is read and written")
    index.truncate_to(_BASE + 10)
    if index.last()[1] >= _BASE + 10:
        raise Broken("a time index keeps what was cut")


def _transaction_index(content: bytes) -> None:
    try:
        index = TransactionIndex(_files(content), _PATH)
    except CorruptTransactionIndex:
        return
    entries = list(index.entries())
    declared = construct.Array(len(content) // ENTRY_BYTES, ABORTED_ENTRY).parse(content)
    if [tuple(entry) for entry in entries] != [
        (each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
        for each in declared
    ]:
        raise Broken("the declaration of a transaction index reads something else")
    for start in (0, 5, _BASE):
        for end in (1, 10, 2**62):
            found, _ = index.search(start, end)
            if any(each.last_offset < start or each.first_offset >= end for each in found):
                raise Broken(f"aborted outside of {start} to {end}: {found}")


# --- Checkpoints ----------------------------------------------------------------------------------


def _text(content: bytes) -> str:
    text = checkpoints.read_small_file(_files(content), _PATH)
    assert text is not None
    return text


def _offset_checkpoint(content: bytes) -> None:
    try:
        offsets = checkpoints.decode_offsets(_text(content))
    except CorruptCheckpoint:
        return
    if checkpoints.decode_offsets(checkpoints.encode_offsets(offsets).decode()) != offsets:
        raise Broken("offsets change when they are read and written")


def _epoch_checkpoint(content: bytes) -> None:
    try:
        epochs = LeaderEpochs(checkpoints.decode_epochs(_text(content)))
    except CorruptCheckpoint:
        return
    again = checkpoints.decode_epochs(checkpoints.encode_epochs(epochs.entries).decode())
    if list(again) != epochs.entries or LeaderEpochs(again).entries != epochs.entries:
        raise Broken("leader epochs change when they are read and written")
    epochs.truncate_end(5)
    epochs.truncate_start(3)
    epochs.end_offset(2, 100)


def _partition_metadata(content: bytes) -> None:
    try:
        topic_id = checkpoints.decode_partition_metadata(_text(content))
    except CorruptCheckpoint:
        return
    again = checkpoints.encode_partition_metadata(topic_id).decode()
    if len(topic_id) != 16 or checkpoints.decode_partition_metadata(again) != topic_id:
        raise Broken("a topic id changes when it is read and written")


def _meta_properties(content: bytes) -> None:
    files = MemoryFiles()
    files.put(f"data/{checkpoints.META_PROPERTIES}", content)
    try:
        found = read_meta_properties(files, "data", None, 1)
    except DataDirectoryError:
        return
    assert found is not None and found.cluster_id
    found = found._replace(directory_id=found.directory_id or bytes(16))
    again = checkpoints.encode_meta_properties(
        found.cluster_id,
        1,
        found.directory_id or b"",
        found.directory_ids,
        found.coordinator_hash,
    )
    files.put(f"data/{checkpoints.META_PROPERTIES}", again)
    if read_meta_properties(files, "data", found.cluster_id, 1) != found:
        raise Broken("a cluster id changes when it is read and written")


def _sealed_group_lags(content: bytes) -> None:
    """A file of lags with its version and a right checksum."""
    with suppress(ValueError):
        lags = GroupLags()
        lags.restore(read_group_lags(_files(_LAGS + _sum(content) + content), _PATH), NOW_MS)
        for group_id, _ in lags.coarse():
            lags.of(group_id)


def _sum(content: bytes) -> bytes:
    return crc32c(content).to_bytes(4, "big")


_KINDS: dict[str, Callable[[bytes], None]] = {
    "snapshot": _snapshot,
    "snapshot sealed": _sealed_snapshot,
    "index": _offset_index,
    "timeindex": _time_index,
    "txnindex": _transaction_index,
    checkpoints.RECOVERY_POINTS: _offset_checkpoint,
    checkpoints.LEADER_EPOCHS: _epoch_checkpoint,
    checkpoints.PARTITION_METADATA: _partition_metadata,
    checkpoints.META_PROPERTIES: _meta_properties,
    group_lags_file.NAME: _sealed_group_lags,
}
_NAMES = list(_KINDS)


def _check(data: bytes) -> None:
    if data:
        _KINDS[_NAMES[data[0] % len(_NAMES)]](data[1:])


def _written() -> Iterator[tuple[str, bytes]]:
    """The files of a log with transactions."""
    files = MemoryFiles(now_ms=NOW_MS)
    log = make_log(files, index_interval_bytes=50, segment_bytes=2000)
    for at in range(30):
        append(log, make_batch(2, timestamp=NOW_MS + at))
        if at % 5 == 0:
            append(log, make_batch(1, producer_id=at, transactional=True))
            append_marker(log, commit=at % 10 == 0, producer_id=at)
    log.close(clean=True)
    for path in files.paths():
        name = path.rpartition("/")[2]
        yield name if name in _NAMES else name.rpartition(".")[2], _content(files.open(path))


def _content(file: File) -> bytes:
    return file.read_at(0, file.size())


def _seeds() -> Iterator[bytes]:
    for name, content in _written():
        for kind in (name, f"{name} sealed"):
            if kind in _NAMES:
                yield bytes([_NAMES.index(kind)]) + content
    texts: dict[str, Any] = {
        checkpoints.RECOVERY_POINTS: checkpoints.encode_offsets({("t", 0): 5, ("u-v", 11): 0}),
        checkpoints.LEADER_EPOCHS: checkpoints.encode_epochs([(0, 0), (3, 7)]),
        checkpoints.PARTITION_METADATA: checkpoints.encode_partition_metadata(bytes(16)),
        checkpoints.META_PROPERTIES: checkpoints.encode_meta_properties(
            "cluster", 1, bytes(16), [bytes(16), bytes(range(16))]
        ),
    }
    for name, content in texts.items():
        yield bytes([_NAMES.index(name)]) + content
    points = b"".join(number.to_bytes(8, "big") for number in (NOW_MS, 5, NOW_MS + 1, 0))
    yield bytes([_NAMES.index(group_lags_file.NAME)]) + b"\0\1\0\2g" + points


TARGET = Target(_check, _seeds)
