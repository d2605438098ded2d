"""The `.txnindex` of one segment (L-04, F-09)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import budget
from odradek_broker.platform.machine import RealFile, RealFiles
from odradek_broker.platform.seams import Files
from odradek_broker.storage.transaction_index import (
    ABORTED_ENTRY,
    ENTRY_BYTES,
    AbortedTxn,
    CorruptTransactionIndex,
    TransactionIndex,
)

PATH = "00000000000000000000.txnindex"
# (producer id, first offset, offset of the marker, last stable offset); the second transaction
# began before the first.
ENTRIES = [
    AbortedTxn(1, 10, 20, 5),
    AbortedTxn(2, 5, 30, 15),
    AbortedTxn(3, 15, 31, 32),
    AbortedTxn(4, 40, 50, 51),
]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return RealFiles(str(tmp_path))


@pytest.fixture
def index(files: Files) -> TransactionIndex:
    index = TransactionIndex(files, PATH)
    for entry in ENTRIES:
        index.append(entry)
    return index


def test_l04_entry_is_34_bytes_as_declared(index: TransactionIndex, tmp_path: Path) -> None:
    content = (tmp_path / PATH).read_bytes()
    assert len(content) == 34 * len(ENTRIES) == ENTRY_BYTES * len(ENTRIES)
    assert content[:34] == struct.pack(">hqqqq", 0, 1, 10, 20, 5)
    for number, entry in enumerate(ENTRIES):
        declared = ABORTED_ENTRY.parse(content[number * 34 :])
        assert declared.version == 0
        assert (
            AbortedTxn(
                declared.producer_id,
                declared.first_offset,
                declared.last_offset,
                declared.last_stable_offset,
            )
            == entry
        )


def test_l04_the_file_appears_with_the_first_entry(files: Files) -> None:
    index = TransactionIndex(files, PATH)
    assert (len(index), index.last_offset, index.search(0, 100)) == (0, -1, ([], False))
    index.sync()
    assert not files.exists(PATH)
    index.append(ENTRIES[0])
    assert files.exists(PATH)


def test_l04_a_reopened_index_has_the_same_entries(index: TransactionIndex, files: Files) -> None:
    index.sync()
    index.close()
    index.close()
    again = TransactionIndex(files, PATH)
    assert list(again.entries()) == ENTRIES
    assert (len(again), again.last_offset) == (4, 50)
    again.append(AbortedTxn(9, 60, 61, 62))
    assert list(again.entries())[-1].producer_id == 9


def test_l04_markers_must_be_appended_in_order(index: TransactionIndex) -> None:
    for marker in (50, 49):
        with pytest.raises(ValueError, match="comes after one with 50"):
            index.append(AbortedTxn(9, 45, marker, 51))
    assert list(index.entries()) == ENTRIES


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound_offset", "producers"),
    [
        (0, 100, [1, 2, 3, 4]),
        (0, 5, []),
        (0, 6, [2]),
        (0, 11, [1, 2]),
        (20, 21, [1, 2, 3]),
        (21, 22, [2, 3]),  # both transactions began before the fetch offset
        (31, 40, [3]),
        (32, 40, []),
        (32, 41, [4]),
        (50, 51, [4]),
        (51, 1000, []),
    ],
)
def test_f09_a_search_finds_aborted_transactions_in_a_range(
    index: TransactionIndex, fetch_offset: int, upper_bound_offset: int, producers: list[int]
) -> None:
    found, _ = index.search(fetch_offset, upper_bound_offset)
    assert [entry.producer_id for entry in found] == producers


def test_f09_a_search_tells_that_later_segments_have_no_match(index: TransactionIndex) -> None:
    assert index.search(0, 32) == (
        ENTRIES[:3],
        True,
    )  # The last stable offset of the third entry is 32: no later entry has records before it.
    assert index.search(0, 33)[1] is True
    assert index.search(0, 51)[1] is True
    assert index.search(0, 52)[1] is False
    assert index.search(51, 52)[1] is False


@given(
    transactions=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), max_size=40),
    bounds=st.tuples(st.integers(0, 130), st.integers(0, 130)),
)
@settings(
    max_examples=budget.examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_f09_a_search_agrees_with_a_plain_scan(
    files: Files, transactions: list[tuple[int, int]], bounds: tuple[int, int]
) -> None:
    entries: list[AbortedTxn] = []
    offset = 0
    open_since: dict[int, int] = {}
    for producer_id, step in transactions:
        offset += step
        if producer_id not in open_since:
            open_since[producer_id] = offset
            continue
        first = open_since.pop(producer_id)
        lso = min(open_since.values(), default=offset + 1)
        entries.append(AbortedTxn(producer_id, first, offset, lso))
    index = TransactionIndex.create(files, PATH)
    for entry in entries:
        index.append(entry)
    low, high = sorted(bounds)
    found, complete = index.search(low, high)
    if low < high:
        assert found == [e for e in entries if e.last_offset >= low and e.first_offset < high]
    if complete:
        assert all(first >= high for first in open_since.values())
    index.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content + content[:ENTRY_BYTES],
        lambda content: b"\0\1" + content[2:],
        lambda content: content[:10] + b"\x7f" + content[11:],
    ],
)
def test_l33_a_damaged_transaction_index_is_detected_and_recreated(
    index: TransactionIndex, files: Files, tmp_path: Path, damage: object
) -> None:
    index.close()
    assert callable(damage)
    (tmp_path / PATH).write_bytes(damage((tmp_path / PATH).read_bytes()))
    with pytest.raises(CorruptTransactionIndex, match="txnindex"):
        TransactionIndex(files, PATH)
    assert len(TransactionIndex.create(files, PATH)) == 0
    assert not files.exists(PATH)


def test_l08_failed_append_adds_nothing(
    index: TransactionIndex, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = AbortedTxn(9, 60, 61, 62)
    true_append = RealFile.append

    def torn(self: RealFile, buffers: list[bytes]) -> int:
        true_append(self, [buffers[0][:7]])
        raise OSError("no space left")

    monkeypatch.setattr(RealFile, "append", torn)
    with pytest.raises(OSError, match="no space"):
        index.append(entry)
    monkeypatch.undo()
    assert (len(index), index.last_offset) == (4, 50)
    index.append(entry)
    index.close()
    assert list(TransactionIndex(files, PATH).entries()) == [*ENTRIES, entry]


def test_many_entries_are_read_in_pieces(files: Files) -> None:
    index = TransactionIndex(files, PATH)
    entries = [AbortedTxn(n, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(1500)]
    for entry in entries:
        index.append(entry)
    assert list(index.entries()) == entries
    assert index.search(2000, 2010) == (entries[1000:1005], True)


def test_removing_an_index_deletes_its_file(index: TransactionIndex, files: Files) -> None:
    index.remove()
    assert not files.exists(PATH)
    assert list(index.entries()) == []
