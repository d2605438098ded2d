"""Arrow rows from the fetcher: the same records, positions and errors as objects (K-01 to K-20)."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_client.consumer.completed_fetch import CompletedFetch, DecodeSettings
from odradek_client.consumer.errors import CorruptRecord, OversizedRecord
from odradek_client.consumer.fetcher import Fetcher, FetchSettings
from odradek_client.consumer.subscription_state import SubscriptionState
from odradek_client.structs import TopicPartition
from odradek_protocol.compression import Codec
from odradek_protocol.records.arrow import (
    COLUMNS,
    ArrowRows,
    PyarrowMissing,
    arrow_schema,
    chosen_columns,
)
from odradek_protocol.records.batch import read_header, update_crc
from odradek_protocol.records.builder import BatchBuilder, control_batch
from odradek_protocol.records.layout import LAST_OFFSET_DELTA_AT
from odradek_protocol.records.record import Record, TimestampType
from odradek_protocol.schemas.fetch import AbortedTransaction
from odradek_protocol.stored.control_marker import ControlType
from rewritten_batches import rewrite_batch

pytestmark = pytest.mark.usefixtures("codec_twin")

P = TopicPartition("t", 3)


def batch(first: int, count: int, codec: Codec = Codec.NONE, **stamped: Any) -> bytes:
    builder = BatchBuilder(codec)
    for n in range(first, first + count):
        headers = [("trace", b"%d" % n), ("none", None)] if n % 3 == 0 else []
        builder.append(1_000 + n, b"k%d" % n if n % 2 else None, b"v%d" % n, headers)
    return bytes(builder.build(base_offset=first, leader_epoch=5, **stamped))


def fetched(data: bytes, offset: int = 0, aborted: Any = None, **settings: Any) -> CompletedFetch:
    return CompletedFetch(P, offset, data, aborted, DecodeSettings(**settings))


def all_rows() -> ArrowRows:
    return ArrowRows(COLUMNS)


def as_objects(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (
            row["topic"],
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            row["key"],
            row["value"],
            tuple((each["key"], each["value"]) for each in row["headers"] or ()),
        )
        for row in rows
    ]


def test_arrow_rows_have_the_same_fields_as_record_objects() -> None:
    data = batch(0, 10) + batch(10, 5, Codec.ZSTD) + batch(15, 5, log_append_time_ms=9_000)
    rows = all_rows()
    assert fetched(data).take_rows(rows, 100) == 20
    taken = rows.take()
    taken.validate(full=True)
    assert taken.schema.equals(arrow_schema(COLUMNS))
    assert as_objects(taken.to_pylist()) == [tuple(each)[:-1] for each in fetched(data).take(100)]


def test_k04_a_limit_within_a_batch_leaves_the_rest_for_the_next_poll() -> None:
    one = fetched(batch(0, 10, Codec.LZ4) + batch(10, 10))
    offsets: list[int] = []
    positions = []
    for limit in (1, 3, 6, 2, 100):
        rows = ArrowRows(("offset",))
        one.take_rows(rows, limit)
        offsets += rows.take().column("offset").to_pylist()
        positions.append(one.next_offset)
    assert offsets == list(range(20))
    assert positions == [1, 4, 10, 12, 20]
    assert one.exhausted


@given(
    limits=st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=1, max_size=12),
    start=st.integers(0, 12),
    codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
    read_committed=st.booleans(),
)
def test_rows_and_objects_taken_by_turns_give_every_record_once(
    limits: list[tuple[bool, int]], start: int, codec: Codec, read_committed: bool
) -> None:
    mine: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    others: dict[str, Any] = {"producer_id": 2, "producer_epoch": 0, "transactional": True}
    compacted = bytearray(batch(20, 3, codec))
    compacted[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = (9).to_bytes(4, "big")
    update_crc(compacted, 0)
    data = b"".join(
        (
            batch(0, 5, codec),
            batch(5, 4, codec, base_sequence=0, **mine),
            batch(9, 4, codec, base_sequence=0, **others),
            bytes(control_batch(ControlType.ABORT, 0, 1, 0, 5, base_offset=13)),
            batch(14, 3, codec, base_sequence=4, **mine),
            bytes(control_batch(ControlType.COMMIT, 0, 2, 0, 5, base_offset=17)),
            bytes(control_batch(ControlType.COMMIT, 0, 1, 0, 5, base_offset=18)),
            batch(19, 1, codec),
            compacted,
            batch(30, 7, codec),
        )
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=5)]
    one = fetched(data, start, aborted, read_committed=read_committed)
    twin = fetched(data, start, aborted, read_committed=read_committed)
    for as_rows, limit in [*limits, (True, 100)]:
        expected = [record.offset for record in twin.take(limit)]
        if as_rows:
            rows = ArrowRows(("offset",))
            assert one.take_rows(rows, limit) == len(expected)
            assert rows.take().column("offset").to_pylist() == expected
        else:
            assert [record.offset for record in one.take(limit)] == expected
        assert one.next_offset == twin.next_offset
        assert one.exhausted == twin.exhausted
        assert not expected or one.leader_epoch == 5


def test_k11_positions_move_and_partitions_share_one_batch() -> None:
    subscription = SubscriptionState()
    partitions = [TopicPartition("t", n) for n in range(3)]
    subscription.assign_by_user(partitions)
    for each in partitions:
        subscription.seek(each, 0)
    fetcher = Fetcher(subscription, FetchSettings())
    state = subscription.state(partitions[0])
    for n, each in enumerate(partitions):
        fetcher._buffer[each] = CompletedFetch(each, 0, batch(0, 4 + n), None, DecodeSettings())
    rows = ArrowRows(("topic", "partition", "offset"))
    collected = fetcher.collect(7, rows=rows)
    assert (collected.count, collected.advanced, collected.records) == (7, True, {})
    assert rows.take().to_pydict() == {
        "topic": ["t"] * 7,
        "partition": [0] * 4 + [1] * 3,
        "offset": [*range(4), *range(3)],
    }
    assert [subscription.state(each).position for each in partitions] == [4, 3, 0]
    assert state.leader_epoch == 5
    # The remaining records come first, even if objects are requested now (K-07).
    later = fetcher.collect(100).records
    assert {each.partition: [r.offset for r in some] for each, some in later.items()} == {
        1: [3, 4],
        2: [*range(6)],
    }


def test_k16_a_damaged_batch_is_raised_after_the_good_batches() -> None:
    bad = bytearray(batch(4, 3))
    bad[-2] ^= 1
    one = fetched(batch(0, 4) + bytes(bad))
    rows = all_rows()
    assert one.take_rows(rows, 100) == 4
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="offset 4"):
            one.take_rows(rows, 100)
    assert rows.take().num_rows == 4
    assert one.next_offset == 4


def test_k16_a_record_with_a_wrong_length_is_found_without_checksums() -> None:
    bad = bytearray(batch(0, 3))
    bad[61] ^= 0x40
    with pytest.raises(CorruptRecord):
        fetched(bytes(bad), check_crcs=False).take_rows(all_rows(), 100)


def test_k17_rows_without_a_complete_batch_are_an_error() -> None:
    with pytest.raises(OversizedRecord):
        fetched(batch(0, 3)[:-1]).take_rows(all_rows(), 100)


def test_a_time_beyond_microseconds_is_an_error_and_the_position_stays() -> None:
    builder = BatchBuilder()
    builder.append(2**62, b"k", b"v")
    one = fetched(bytes(builder.build()))
    with pytest.raises(
        CorruptRecord, match="of the record at offset 0 is beyond what Arrow's microseconds hold"
    ):
        one.take_rows(all_rows(), 1)
    assert one.next_offset == 0
    rows = ArrowRows(("value",))
    assert fetched(bytes(builder.build())).take_rows(rows, 1) == 1
    assert rows.take().column("value").to_pylist() == [b"v"]
    # As an object the record can have this timestamp.
    assert one.take(1)[0].timestamp == 2**62


def test_k15_deserializers_are_not_called_for_arrow_rows() -> None:
    def refuse(data: bytes) -> bytes:
        if data == b"v2":
            raise ValueError("not that one")
        return data.upper()

    for objects in (0, 1, 2):
        one = fetched(batch(0, 4), value=refuse)
        assert [record.value for record in one.take(objects)] == [b"V0", b"V1"][:objects]
        rows = ArrowRows(("value",))
        assert one.take_rows(rows, 100) == 4 - objects
        left = [b"v0", b"v1", b"v2", b"v3"][objects:]
        assert rows.take().column("value").to_pylist() == left
        assert one.exhausted


def test_full_rows_are_not_filled_further() -> None:
    one = fetched(b"".join(batch(10 * n, 10) for n in range(5)))
    rows = ArrowRows(COLUMNS, max_bytes=1)
    for n in range(5):
        assert one.take_rows(rows, 1_000) == 10
        assert one.next_offset == 10 * n + 10
        assert one.take_rows(rows, 1_000) == 0
        assert rows.take().num_rows == 10
    assert one.exhausted


def test_only_the_requested_columns_come_in_their_usual_order() -> None:
    assert chosen_columns(None, False) == COLUMNS[:-1]
    assert chosen_columns(None, True) == COLUMNS
    assert chosen_columns(["value", "key"], True) == ("key", "value", "headers")
    assert chosen_columns("offset", False) == ("offset",)
    for wrong in (["keys"], [], ["offset", "Value"]):
        with pytest.raises(ValueError, match="there are key, value, topic"):
            chosen_columns(wrong, False)
    rows = ArrowRows(chosen_columns(["timestamp", "key"], False))
    fetched(batch(0, 2)).take_rows(rows, 9)
    taken = rows.take()
    assert taken.schema.names == ["key", "timestamp"]
    assert taken.column("key").to_pylist() == [None, b"k1"]
    nothing = rows.take()
    assert nothing.num_rows == 0 and nothing.schema == taken.schema


def test_the_error_without_pyarrow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    arrow_schema.cache_clear()
    with pytest.raises(PyarrowMissing, match=r"pip install 'odradek\[arrow\]'"):
        ArrowRows(COLUMNS)


def test_records_with_equal_offsets_do_not_stop_the_position() -> None:
    twice = Record(5, 0, TimestampType.CREATE_TIME, None, b"v")
    data = rewrite_batch(read_header(batch(5, 2)), [twice, twice])
    one = fetched(bytes(data), 5)
    for _ in range(3):
        one.take_rows(all_rows(), 1)
    assert one.next_offset == 7 and one.exhausted
