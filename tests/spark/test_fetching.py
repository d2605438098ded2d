"""The effect of each possible response to a fetch."""

from __future__ import annotations

import pytest

from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.schemas.fetch import PartitionData
from pyspark_odradek.errors import DataLoss, SourceError
from pyspark_odradek.fetching import RangeReader, Then
from pyspark_odradek.planning import OffsetRange, Partition

P = Partition("t", 0)


def reader(start: int = 10, end: int = 20, *, strict: bool = True) -> RangeReader:
    return RangeReader(
        OffsetRange(P, start, end),
        fail_on_data_loss=strict,
        poll_timeout_ms=1_000,
        gone_answers_max=2,
        progress_ms=0,
    )


def answer(code: ErrorCode = ErrorCode.NONE, records: bytes = b"") -> PartitionData:
    return PartitionData(partition_index=0, error_code=int(code), records=records)


def records(first: int, count: int) -> bytes:
    return bytes(simple_batch([(None, b"v")] * count, 0, base_offset=first))


def test_fetched_records_advance_the_position_and_the_deadline() -> None:
    state = reader()
    assert state.on_answer(answer(records=records(10, 4)), 900) is Then.DECODE
    assert (state.position, state.done) == (14, False)
    assert state.remaining_ms(1_000) == 900
    assert state.on_answer(answer(records=records(14, 9)), 950) is Then.DECODE
    assert state.done


def test_a_range_reader_without_records_fails_after_its_poll_timeout() -> None:
    state = reader()
    assert state.on_answer(answer(), 500) is Then.WAIT
    assert state.remaining_ms(999) == 1
    with pytest.raises(SourceError, match=r"kafkaConsumer\.pollTimeoutMs"):
        state.remaining_ms(1_000)


def test_a_batch_larger_than_the_fetch_limit_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"kafka\.max\.partition\.fetch\.bytes"):
        reader().on_answer(answer(records=records(10, 4)[:50]), 0)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
def test_a_range_reader_waits_for_a_moved_leader(code: ErrorCode) -> None:
    state = reader()
    assert state.on_answer(answer(code), 0) is Then.WAIT
    with pytest.raises(SourceError, match=code.name):
        state.remaining_ms(1_001)


def test_a_permanent_error_fails_the_read_at_once() -> None:
    with pytest.raises(SourceError, match="TOPIC_AUTHORIZATION_FAILED"):
        reader().on_answer(answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 0)


def test_a_log_start_beyond_the_position_is_data_loss() -> None:
    state = reader()
    assert state.on_answer(answer(ErrorCode.OFFSET_OUT_OF_RANGE), 0) is Then.FIND_START
    with pytest.raises(DataLoss, match="offsets 10 to 14 of t-0 are gone"):
        state.log_starts_at(15, 0)


@pytest.mark.parametrize(("log_start", "position"), [(15, 15), (99, 20), (3, 20)])
def test_remaining_records_are_read_without_fail_on_data_loss(
    log_start: int, position: int
) -> None:
    state = reader(strict=False)
    assert "are gone" in state.log_starts_at(log_start, 700)
    assert state.position == position
    assert state.remaining_ms(700) == 1_000


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_topic_that_stays_unknown_is_data_loss(code: ErrorCode) -> None:
    state = reader()
    assert [state.on_answer(answer(code), 0) for _ in range(2)] == [Then.WAIT, Then.WAIT]
    with pytest.raises(DataLoss, match="was deleted"):
        state.on_answer(answer(code), 0)
    lenient = reader(strict=False)
    found = [lenient.on_answer(answer(code), 0) for _ in range(3)]
    assert (found[-1], lenient.done) == (Then.WARN, True)


def test_a_topic_that_is_unknown_for_a_moment_is_read_on() -> None:
    state = reader()
    gone = answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for _ in range(5):
        assert state.on_answer(gone, 0) is Then.WAIT
        assert state.on_answer(gone, 0) is Then.WAIT
        state.on_answer(answer(), 0)
    assert state.position == 10


def test_a_read_of_an_empty_range_is_complete_at_once() -> None:
    assert reader(5, 5).done
