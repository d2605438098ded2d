"""The special codec for the common form of Fetch, compared with the generated codec."""

from __future__ import annotations

from odradek_protocol import codec, frames
from odradek_protocol.fetch_frames import OneFetch, read_one_fetch
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.fetch import (
    TOPIC_IDS_SINCE,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

_API = APIS[ApiKey.FETCH]


def check_one_fetch(frame: memoryview) -> OneFetch | None:
    """Decode a request of the common form, and check that the generated codec reads the same.

    Returns None if the request does not have that form.
    """
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
        header.client_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        *asked,
    )
    return read


def check_fetch_response(
    request: OneFetch, session_id: int, answers: list[tuple[str | bytes, PartitionData]]
) -> None:
    """Check that both codecs encode the same bytes, and that the special one refuses to encode
    errors."""
    response = FetchResponse(session_id=session_id)
    last: str | bytes | None = None
    for topic, answer in answers:
        if topic != last:
            last = topic
            response.responses.append(FetchableTopicResponse())
            if isinstance(topic, bytes):
                response.responses[-1].topic_id = topic
            else:
                response.responses[-1].topic = topic
        response.responses[-1].partitions.append(answer)
    encoded = request.encode_response(session_id, answers)
    if any(each.error_code or each.diverging_epoch.epoch >= 0 for _, each in answers):
        assert encoded is None
        return
    assert encoded is not None
    expected = frames.encode_response(_API, request.version, request.correlation_id, response)
    assert b"".join(encoded) == b"".join(expected)
    for _, answer in answers:
        if len(answer.records or b"") > 4096:
            assert any(part is answer.records for part in encoded), "records are not copied"
