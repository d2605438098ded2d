"""The plans of scans, and the decoding of fetched pieces, without a broker."""

from __future__ import annotations

import base64
import zlib

import pytest

from odradek_client.structs import TopicPartition
from odradek_console.partition_log import read_piece
from odradek_console.reading import merged
from odradek_console.scan import CursorError, Scan, last_records
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.schemas.fetch import AbortedTransaction, PartitionData
from odradek_protocol.stored.control_marker import ControlType, encode_key, encode_marker

_TP = TopicPartition("orders", 3)


def _drained(scan: Scan) -> dict[int, list[tuple[int, int]]]:
    """Partition -> the offset ranges that a scan requests, in order."""
    found: dict[int, list[tuple[int, int]]] = {}
    while not scan.done:
        for part, (first, end) in scan.wanted().items():
            found.setdefault(part, []).append((first, end))
            scan.took(part, end)
    return found


def test_a_backward_scan_reads_windows_from_the_end() -> None:
    scan = Scan.backward({0: (5, 12), 1: (0, 2), 2: (7, 7)}, 3)
    assert scan.left == 9
    assert _drained(scan) == {0: [(9, 12), (6, 9), (5, 6)], 1: [(0, 2)]}


def test_a_forward_scan_reads_from_the_start() -> None:
    assert _drained(Scan.forward({0: (5, 12), 1: (3, 3)})) == {0: [(5, 12)]}


def test_a_scan_resumes_at_its_cursor_inside_a_window() -> None:
    scan = Scan.backward({0: (0, 100), 1: (0, 10)}, 10)
    scan.took(0, 95)
    again = Scan.resume(scan.cursor())
    assert again.wanted() == {0: (95, 100), 1: (0, 10)}
    assert (again.left, again.window) == (scan.left, 10)
    again.took(0, 100)
    assert again.wanted()[0] == (80, 90)


def test_the_partition_read_last_is_scanned_last() -> None:
    scan = Scan.forward({0: (0, 10), 1: (0, 10)})
    scan.took(0, 5)
    assert list(scan.wanted()) == [1, 0]
    scan.give_up(1)
    assert scan.wanted() == {0: (5, 10)}


def _packed(text: bytes) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        _packed(b"[]"),
        _packed(b"[1,[[0,0,0,0]]]"),
        _packed(b"[1,[[0,0,0,0,-1]]]"),
        _packed(b'[1,[["a",0,0,0,0]]]'),
        _packed(b"[1e9,[]]"),
        _packed(b"[" * 50_000),
        _packed(b"[1,[" + b",".join(b"[%d,0,0,0,9]" % part for part in range(300)) + b"]]"),
        _packed(b"[0,[{}]]"),
        _packed(b"{}"),
        _packed(b"[1,{}]"),
        _packed(b"[NaN,[]]"),
        _packed(b"[1,[[[],0,0,0,0]]]"),
        _packed(b"[1,[[0,0,0,0,true]]]"),
        _packed(b"[1,[[0,0,0,0,9223372036854775808]]]"),
        _packed(b"[1,[[2147483648,0,0,0,9]]]"),
        # the same partition twice
        _packed(b"[1,[[0,0,0,0,9],[0,0,0,0,9]]]"),
        # offsets in the wrong order
        _packed(b"[1,[[0,0,9,3,9]]]"),
        _packed(b"[1,[[0,5,3,9,9]]]"),
        # without windows (0), the scan never reads the offsets below 9, and would not end
        _packed(b"[0,[[0,0,9,9,9]]]"),
        _packed(b"[" + b"9" * 5_000 + b",[]]"),
        "\ud800",
        # a megabyte, compressed to a thousand characters
        _packed(b"[1,[" + b" " * 1_000_000 + b"]]"),
    ],
)
def test_an_invalid_cursor_is_refused(text: str) -> None:
    with pytest.raises(CursorError):
        Scan.resume(text)


def test_the_last_records_are_divided_among_partitions() -> None:
    ranges = {0: (0, 1000), 1: (0, 1000), 2: (50, 60), 3: (4, 4)}
    found = last_records(ranges, 500)
    assert sum(end - first for first, end in found.values()) == 500
    assert found == {0: (755, 1000), 1: (755, 1000), 2: (50, 60), 3: (4, 4)}
    assert last_records({0: (0, 3)}, 500) == {0: (0, 3)}


def test_overlapping_offset_ranges_are_merged() -> None:
    assert merged([(5, 9), (0, 3), (3, 5), (20, 30), (22, 25)]) == [(0, 9), (20, 30)]


# --- Pieces ---------------------------------------------------------------------------------------


def _batch(offset: int, *values: bytes, **fields: object) -> bytes:
    builder = BatchBuilder()
    for value in values:
        assert builder.append(1_000, None, value, []) is not None
    return bytes(builder.build(base_offset=offset, **fields))  # type: ignore[arg-type]


def _marker(offset: int, kind: ControlType, producer_id: int) -> bytes:
    builder = BatchBuilder()
    builder.append(1_000, encode_key(kind), encode_marker(0), [])
    return bytes(
        builder.build(
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    )


def _data(*batches: bytes, aborted: list[AbortedTransaction] | None = None) -> PartitionData:
    return PartitionData(
        partition_index=3,
        error_code=0,
        high_watermark=100,
        aborted_transactions=aborted,
        records=b"".join(batches),
    )


def test_a_piece_has_records_markers_and_hidden_and_missing_offsets() -> None:
    data = _data(
        _batch(10, b"a", b"b"),
        # Offsets 12 to 14 were removed by compaction.
        _batch(
            15, b"x", b"y", producer_id=7, producer_epoch=0, base_sequence=4, transactional=True
        ),
        _marker(17, ControlType.ABORT, 7),
        _batch(18, b"c"),
        aborted=[AbortedTransaction(producer_id=7, first_offset=15)],
    )
    committed = read_piece(_TP, 11, 19, data, read_committed=True)
    assert [record.value for record in committed.records] == [b"b", b"c"]
    assert committed.hidden == [15, 16]
    assert [(marker.offset, marker.kind) for marker in committed.markers] == [(17, "abort")]
    assert (committed.next_offset, committed.missing) == (19, 3)

    everything = read_piece(_TP, 11, 19, data, read_committed=False)
    assert [record.value for record in everything.records] == [b"b", b"x", b"y", b"c"]
    assert [record.sequence for record in everything.records] == [None, 4, 5, None]
    assert (everything.hidden, everything.missing) == ([], 3)


def test_a_piece_ends_at_the_requested_offset() -> None:
    data = _data(_batch(10, b"a", b"b", b"c"), _batch(20, b"d"))
    piece = read_piece(_TP, 10, 12, data, read_committed=False)
    assert ([record.offset for record in piece.records], piece.next_offset) == ([10, 11], 12)
    piece = read_piece(_TP, 10, 15, data, read_committed=False)
    assert (piece.next_offset, piece.missing) == (15, 2)
    piece.cut(12)
    assert ([record.offset for record in piece.records], piece.next_offset) == ([10, 11], 12)


def test_a_damaged_batch_ends_a_piece_with_the_reason() -> None:
    second = bytearray(_batch(11, b"b"))
    second[-1] ^= 0xFF
    piece = read_piece(_TP, 10, 50, _data(_batch(10, b"a"), bytes(second)), read_committed=False)
    assert ([record.value for record in piece.records], piece.next_offset) == ([b"a"], 11)
    assert piece.damage is not None and "checksum" in piece.damage


def test_a_piece_without_fetched_data_is_empty() -> None:
    piece = read_piece(_TP, 10, 50, _data(), read_committed=False)
    assert (piece.next_offset, piece.missing, piece.records) == (10, 0, [])
