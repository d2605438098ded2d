"""What is read of a Fetch frame at once, beside what its codecs read and write."""

from __future__ import annotations

from odradek_protocol import codec, frames
from odradek_protocol.fetch_frames import FetchedPartition, OneFetch, fetch_answer, read_one_fetch
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.fetch import (
    TOPIC_IDS_SINCE,
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

_API = APIS[ApiKey.FETCH]


def check_one_fetch(frame: memoryview) -> OneFetch | None:
    """What is read of a frame at once, if the codecs read the same."""
    read = read_one_fetch(frame)
    if read is None:
        return None
    header, position = frames.decode_request_header(frame)
    version = header.api_version
    if version in FetchRequest.flexible:
        position = frames.skip_tags(frame, position)
    request = codec.decode(FetchRequest, version, frame, position)
    assert request.replica_id < 0
    assert request.replica_state.replica_id < 0
    assert not request.forgotten_topics_data
    topics = [(topic, one) for topic in request.topics for one in topic.partitions]
    assert len(topics) == len(request.topics) <= 1
    asked: tuple[str | bytes, int, int, int, int, int] = "", -1, -1, -1, -1, 0
    for topic, one in topics:
        asked = (
            topic.topic_id if version >= TOPIC_IDS_SINCE else topic.topic,
            one.partition,
            one.current_leader_epoch,
            one.fetch_offset,
            one.last_fetched_epoch,
            one.partition_max_bytes,
        )
    assert read == OneFetch(
        version,
        header.correlation_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        *asked,
    )
    return read


def check_fetch_answer(
    version: int, correlation_id: int, session_id: int, fetched: list[FetchedPartition]
) -> None:
    """Both ways to write an answer give the same bytes."""
    response = FetchResponse(session_id=session_id)
    for one in fetched:
        topic = FetchableTopicResponse()
        if isinstance(one.topic, bytes):
            topic.topic_id = one.topic
        else:
            topic.topic = one.topic
        last = response.responses[-1] if response.responses else None
        if last is None or (last.topic, last.topic_id) != (topic.topic, topic.topic_id):
            last = topic
            response.responses.append(topic)
        last.partitions.append(
            PartitionData(
                partition_index=one.partition,
                high_watermark=one.high_watermark,
                last_stable_offset=one.last_stable_offset,
                log_start_offset=one.log_start_offset,
                aborted_transactions=None
                if one.aborted is None
                else [
                    AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                    for producer_id, first_offset in one.aborted
                ],
                records=one.records,
            )
        )
    expected = frames.encode_response(_API, version, correlation_id, response)
    packed = fetch_answer(version, correlation_id, session_id, fetched)
    assert b"".join(packed) == b"".join(expected)
    for one in fetched:
        if len(one.records) > 4096:
            assert any(part is one.records for part in packed), "records are not copied"
