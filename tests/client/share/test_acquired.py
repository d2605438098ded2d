"""The acquired records in an answer: returned records, gaps, and unreadable records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_client.share.acknowledgements import GAP, AcknowledgeType, TopicIdPartition
from odradek_client.share.acquired import ACQUIRED_MAX, AcquiredBatch, ReadSettings
from odradek_client.share.errors import UnreadableRecord
from odradek_protocol.records.batch import BatchError
from odradek_protocol.records.builder import control_batch
from odradek_protocol.schemas.share_fetch import AcquiredRecords
from odradek_protocol.stored.control_marker import ControlType
from share_leader import encoded

PLACE = TopicIdPartition(bytes(16), "t", 3)
RELEASE, REJECT = int(AcknowledgeType.RELEASE), int(AcknowledgeType.REJECT)


def ranges(offsets: list[int], count: int = 1) -> list[AcquiredRecords]:
    return [
        AcquiredRecords(first_offset=at, last_offset=at, delivery_count=count) for at in offsets
    ]


def acquired(
    data: bytes, offsets: list[int], settings: ReadSettings | None = None
) -> AcquiredBatch:
    return AcquiredBatch(PLACE, 1, data, ranges(offsets), 1_000, settings or ReadSettings())


def take_all(
    batch: AcquiredBatch, limit: int = 1_000
) -> tuple[dict[int, bytes | None], dict[int, int], list[UnreadableRecord]]:
    """Take the whole batch. Returns (offset -> value, offset -> answer, errors), and checks that no
    offset appears twice."""
    values, answers, errors = dict[int, bytes | None](), dict[int, int](), []
    while not batch.exhausted:
        taken = batch.take(limit)
        assert len(taken.records) <= limit
        for record, _ in taken.records:
            assert record.offset not in values and record.offset not in answers
            values[record.offset] = record.value
        assert not set(taken.answers) & {*values, *answers}
        answers |= taken.answers
        if taken.failure is not None:
            errors.append(taken.failure)
    return values, answers, errors


BATCHES = st.lists(
    st.lists(st.one_of(st.none(), st.binary(max_size=3)), min_size=1, max_size=6), max_size=5
)


@given(BATCHES, st.data(), st.integers(1, 4))
def test_k63_each_acquired_offset_is_a_record_or_a_gap(
    batches: list[list[bytes | None]], data: st.DataObject, limit: int
) -> None:
    values = [value for batch in batches for value in batch]
    sent, first = b"", 0
    for batch in batches:
        sent += encoded(first, batch)
        first += len(batch)
    offsets = data.draw(st.sets(st.integers(0, len(values) + 2)))
    found, answers, errors = take_all(acquired(sent, sorted(offsets)), limit)
    present = {at for at in offsets if at < len(values) and values[at] is not None}
    assert found == {at: values[at] for at in present}
    assert answers == dict.fromkeys(offsets - present, GAP)
    assert errors == []


def test_acquired_records_have_their_delivery_count_and_deadline() -> None:
    batch = AcquiredBatch(
        PLACE,
        4,
        encoded(5, [b"a", b"b"]),
        [AcquiredRecords(first_offset=5, last_offset=6, delivery_count=3), *ranges([6], 1)],
        77,
        ReadSettings(),
    )
    taken = batch.take(9)
    assert [(record.offset, count) for record, count in taken.records] == [(5, 3), (6, 3)]
    assert (batch.deadline_ms, batch.node_id) == (77, 4)
    assert taken.records[0][0].topic == "t" and taken.records[0][0].partition == 3


def test_k63_control_records_are_gaps() -> None:
    data = encoded(0, [b"a"]) + bytes(control_batch(ControlType.COMMIT, 0, 1, 0, 0, base_offset=1))
    values, answers, _ = take_all(acquired(data + encoded(2, [b"b"]), [0, 1, 2]))
    assert values == {0: b"a", 2: b"b"} and answers == {1: GAP}


@pytest.mark.parametrize(
    ("answer", "said"),
    [(AcknowledgeType.RELEASE, "released"), (AcknowledgeType.REJECT, "rejected")],
)
def test_k64_a_record_that_does_not_deserialize_is_never_accepted(
    answer: AcknowledgeType, said: str
) -> None:
    settings = ReadSettings(value=json.loads, unreadable=answer)
    batch = acquired(encoded(0, [b"1", b"no", b"3", None, b"x"]), [0, 1, 2, 3, 4], settings)
    found, answers, errors = take_all(batch)
    values: dict[int, object] = dict(found)
    assert values == {0: 1, 2: 3}
    assert answers == {1: int(answer), 3: GAP, 4: int(answer)}
    assert [error.offsets for error in errors] == [[1], [4]]
    assert isinstance(errors[0].__cause__, json.JSONDecodeError)
    assert "t-3, offset 1: the value does not deserialize" in str(errors[0])
    assert said in str(errors[0])


def test_k64_a_damaged_batch_costs_only_its_own_records() -> None:
    damaged = bytearray(encoded(2, [b"c", b"d"]))
    damaged[-1] ^= 1
    data = encoded(0, [b"a", b"b"]) + bytes(damaged) + encoded(4, [b"e"])
    values, answers, errors = take_all(acquired(data, [1, 2, 3, 4]))
    assert values == {1: b"b", 4: b"e"}
    assert answers == {2: RELEASE, 3: RELEASE}
    assert [error.offsets for error in errors] == [[2, 3]]
    assert "checksum" in str(errors[0])


def test_k64_a_damaged_batch_that_other_members_acquired_is_ignored() -> None:
    damaged = bytearray(encoded(0, [b"a"]))
    damaged[-1] ^= 1
    values, _, errors = take_all(acquired(bytes(damaged) + encoded(1, [b"b"]), [1]))
    assert values == {1: b"b"} and errors == []


def test_k64_records_after_a_damaged_header_are_released() -> None:
    damaged = bytearray(encoded(1, [b"b"]))
    damaged[16] = 9
    data = encoded(0, [b"a"]) + bytes(damaged) + encoded(2, [b"c"])
    values, answers, errors = take_all(acquired(data, [0, 1, 2]))
    assert values == {0: b"a"} and answers == {1: RELEASE, 2: RELEASE}
    assert len(errors) == 1


@pytest.mark.parametrize("size", [1, 8, 20, 65])
def test_k63_a_batch_that_is_cut_off_is_delivered_again(size: int) -> None:
    data = encoded(0, [b"a"]) + encoded(4, [b"b"])[:size]
    values, answers, _ = take_all(acquired(data, [0, 2, 4]))
    assert values == {0: b"a"}
    assert answers[4] == RELEASE
    assert answers[2] == (RELEASE if size < 8 else GAP)


def test_k63_more_acquired_offsets_than_a_broker_can_give_are_refused() -> None:
    endless = [AcquiredRecords(first_offset=0, last_offset=ACQUIRED_MAX, delivery_count=1)]
    with pytest.raises(BatchError, match=str(ACQUIRED_MAX)):
        AcquiredBatch(PLACE, 1, b"", endless, 1, ReadSettings())
