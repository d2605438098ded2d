"""DeleteTopics (key 20): deletes topics.

Versions: 5 has an error message; in 6 topics are given by name or id.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, STRING, UUID

#: Before this version a broker with topic deletion disabled answers INVALID_REQUEST.
TOPIC_DELETION_DISABLED_SINCE = 3
#: From this version on the error of a topic may be THROTTLING_QUOTA_EXCEEDED (KIP-599).
QUOTA_ERROR_SINCE = 5
#: From this version on the field `topics` has the topics, each with a name or an id.
TOPIC_STATES_SINCE = 6


class DeleteTopicState(Struct):
    name: str | None = field(STRING, "6+", nullable="6+", default=None)
    topic_id: bytes = field(UUID, "6+")


@api_message(ApiKey.DELETE_TOPICS)
class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState] = field(array(DeleteTopicState), "6+")
    topic_names: list[str] = field(array(STRING), "0-5", ignorable=True)
    timeout_ms: int = field(INT32)


class DeletableTopicResult(Struct):
    name: str | None = field(STRING, nullable="6+")
    topic_id: bytes = field(UUID, "6+", ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)


@api_message(ApiKey.DELETE_TOPICS)
class DeleteTopicsResponse(Message):
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))
