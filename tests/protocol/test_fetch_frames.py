"""The special codec for common Fetch requests reads and writes the same as the generated one (D7,
N-06, N-08)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from common_fetch import check_fetch_response, check_one_fetch
from many_cases import looped
from odradek_protocol import frames
from odradek_protocol.fetch_frames import OneFetch, read_one_fetch
from odradek_protocol.schemas.fetch import (
    TOPIC_IDS_SINCE,
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

VERSIONS = range(4, 19)


def frame_of(request: FetchRequest, version: int, client_id: str | None = "c") -> bytearray:
    return bytearray(b"".join(frames.encode_request(request, version, 7, client_id))[4:])


def usual(version: int, count: int = 1, **fields: Any) -> FetchRequest:
    """A request of the common form with `count` partitions."""
    partitions = [
        FetchPartition(
            partition=index,
            current_leader_epoch=3 if version >= 9 else -1,
            fetch_offset=2**40,
            last_fetched_epoch=2 if version >= 12 else -1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        for index in range(count)
    ]
    topics = [FetchTopic(topic="a-topic", topic_id=b"i" * 16, partitions=partitions)]
    session = {"session_id": 9, "session_epoch": 4} if version >= 7 else {}
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=1,
        topics=topics if count else [],
        **{**session, **fields},
    )


@looped(
    "version, client_id, count",
    itertools.product(VERSIONS, [None, "", "rdkafka", "x" * 300], [0, 1]),
)
def test_d7_the_second_codec_reads_common_fetch_requests(
    version: int, client_id: str | None, count: int
) -> None:
    for rack_id in ("", "a rack") if version >= 11 else ("",):
        read = check_one_fetch(
            memoryview(frame_of(usual(version, count, rack_id=rack_id), version, client_id))
        )
        assert read is not None
        assert bool(read.topic) is bool(count)


@looped("version", VERSIONS)
def test_d7_bytes_after_the_fetch_request_are_ignored(version: int) -> None:
    assert check_one_fetch(memoryview(frame_of(usual(version), version) + b"more")) is not None


def uncommon(version: int) -> Iterator[FetchRequest]:
    yield usual(version, 2)
    two = usual(version)
    two.topics *= 2
    yield two
    none = usual(version)
    none.topics[0].partitions = []
    yield none
    if version >= 7:
        yield usual(
            version,
            forgotten_topics_data=[ForgottenTopic(topic="t", topic_id=b"i" * 16, partitions=[1])],
        )
    if version < 15:
        yield usual(version, replica_id=1)
    else:
        yield usual(version, replica_state=ReplicaState(replica_id=1))
    if version < TOPIC_IDS_SINCE:
        long = usual(version)
        long.topics[0].topic = "\u00fc" * 100
        yield long
    if version >= 12:
        yield usual(version, cluster_id="another")
    if version >= 11:
        yield usual(version, rack_id="r\u00fc")
        yield usual(version, rack_id="r" * 200)


@looped("version", VERSIONS)
def test_d7_the_second_codec_leaves_other_fetch_requests_alone(version: int) -> None:
    """The special codec refuses the first three requests. It may read or refuse the others,
    depending on the version; for example, some versions encode a long name differently. If it reads
    a request, the result must be the same as that of the generated codec."""
    for number, request in enumerate(uncommon(version)):
        read = check_one_fetch(memoryview(frame_of(request, version)))
        if number < 3:
            assert read is None


@given(st.sampled_from(VERSIONS), st.integers(0, 1), st.data())
def test_n06_both_fetch_codecs_read_damaged_frames_alike(
    version: int, count: int, data: st.DataObject
) -> None:
    frame = frame_of(usual(version, count), version)
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(2, len(frame) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del frame[data.draw(st.integers(0, len(frame))) :]
    check_one_fetch(memoryview(frame))


@looped("version", VERSIONS)
def test_n06_the_second_codec_leaves_truncated_requests_alone(version: int) -> None:
    frame = frame_of(usual(version), version)
    for size in range(len(frame)):
        assert read_one_fetch(memoryview(frame[:size])) is None


_topic = st.sampled_from(["a", "b", "name" * 40])
_offset = st.integers(-1, 2**62)


_answer = st.builds(
    PartitionData,
    partition_index=st.integers(0, 2**31 - 1),
    error_code=st.sampled_from([0] * 20 + [3]),
    high_watermark=_offset,
    last_stable_offset=_offset,
    log_start_offset=_offset,
    aborted_transactions=st.none()
    | st.lists(
        st.builds(AbortedTransaction, producer_id=_offset, first_offset=_offset), max_size=3
    ),
    diverging_epoch=st.builds(EpochEndOffset, epoch=st.sampled_from([-1] * 20 + [4])),
    records=st.sampled_from([b"", b"r" * 100, b"s" * 4097, b"t" * 70_000]),
)


@given(st.sampled_from(VERSIONS), st.lists(st.tuples(_topic, _answer), max_size=4))
def test_d7_both_fetch_codecs_encode_a_response_alike(
    version: int, answers: list[tuple[str, PartitionData]]
) -> None:
    request = read_one_fetch(memoryview(frame_of(usual(version), version)))
    assert isinstance(request, OneFetch)
    for _, answer in answers:
        if version < 5:
            answer.log_start_offset = -1
        if version < 12:
            answer.diverging_epoch = EpochEndOffset()
    named: list[tuple[str | bytes, PartitionData]] = [
        (topic[0].encode() * 16 if version >= TOPIC_IDS_SINCE else topic, answer)
        for topic, answer in answers
    ]
    check_fetch_response(request, 3 if version >= 7 else 0, named)
