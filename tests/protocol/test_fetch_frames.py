"""The common Fetch read and answered at once is what the codecs read and write (D7, N-06, N-08)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from many_cases import looped
from odradek_protocol import frames
from odradek_protocol.fetch_frames import FetchedPartition, read_one_fetch
from odradek_protocol.schemas.fetch import (
    TOPIC_IDS_SINCE,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from one_fetch import check_fetch_answer, check_one_fetch

VERSIONS = range(4, 19)


def frame_of(request: FetchRequest, version: int, client_id: str | None = "c") -> bytearray:
    return bytearray(b"".join(frames.encode_request(request, version, 7, client_id))[4:])


def usual(version: int, count: int = 1, **fields: Any) -> FetchRequest:
    """A request with so many partitions."""
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
def test_d7_the_common_request_is_read_at_once(
    version: int, client_id: str | None, count: int
) -> None:
    for rack_id in ("", "a rack") if version >= 11 else ("",):
        read = check_one_fetch(
            memoryview(frame_of(usual(version, count, rack_id=rack_id), version, client_id))
        )
        assert read is not None
        assert bool(read.topic) is bool(count)


@looped("version", VERSIONS)
def test_d7_bytes_behind_the_request_are_ignored(version: int) -> None:
    """N-08"""
    assert check_one_fetch(memoryview(frame_of(usual(version), version) + b"more")) is not None


def unusual(version: int) -> Iterator[FetchRequest]:
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
def test_d7_anything_else_is_left_to_the_codecs(version: int) -> None:
    """Or read as they read it: long names have one form in some versions and another in others."""
    for number, request in enumerate(unusual(version)):
        read = check_one_fetch(memoryview(frame_of(request, version)))
        if number < 3:
            assert read is None


@given(st.sampled_from(VERSIONS), st.integers(0, 1), st.data())
def test_n06_damaged_frames_are_read_as_the_codecs_read_them(
    version: int, count: int, data: st.DataObject
) -> None:
    frame = frame_of(usual(version, count), version)
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(2, len(frame) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del frame[data.draw(st.integers(0, len(frame))) :]
    check_one_fetch(memoryview(frame))


@looped("version", VERSIONS)
def test_n06_every_cut_is_left_to_the_codecs(version: int) -> None:
    frame = frame_of(usual(version), version)
    for size in range(len(frame)):
        assert read_one_fetch(memoryview(frame[:size])) is None


_topic = st.sampled_from(["a", "b", "name" * 40])
_offset = st.integers(-1, 2**62)


@given(
    st.sampled_from(VERSIONS),
    st.lists(
        st.builds(
            FetchedPartition,
            _topic,
            st.integers(0, 2**31 - 1),
            _offset,
            _offset,
            _offset,
            st.none() | st.lists(st.tuples(_offset, _offset), max_size=3),
            st.sampled_from([b"", b"r" * 100, b"s" * 4097, b"t" * 70_000]),
        ),
        max_size=4,
    ),
)
def test_d7_answers_have_the_bytes_that_the_codecs_write(
    version: int, fetched: list[FetchedPartition]
) -> None:
    if version >= TOPIC_IDS_SINCE:
        fetched = [one._replace(topic=str(one.topic)[0].encode() * 16) for one in fetched]
    if version < 5:
        fetched = [one._replace(log_start_offset=-1) for one in fetched]
    check_fetch_answer(version, 7, 3 if version >= 7 else 0, fetched)
