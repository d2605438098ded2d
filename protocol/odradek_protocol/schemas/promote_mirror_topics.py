"""PromoteMirrorTopics (key 10004): makes mirror topics ordinary topics.

Versions: only 0.

Of note: this API is Odradek's own, for `odradek mirror promote`. A topic that is not a
mirror topic is answered without an error.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, STRING


@api_message(ApiKey.PROMOTE_MIRROR_TOPICS)
class PromoteMirrorTopicsRequest(Message):
    timeout_ms: int = field(INT32)
    topics: list[str] = field(array(STRING))


class PromotedTopic(Struct):
    """The result for one topic. `aborted_transactions`: the number of open transactions that were
    aborted in its partitions."""

    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    aborted_transactions: int = field(INT32)


@api_message(ApiKey.PROMOTE_MIRROR_TOPICS)
class PromoteMirrorTopicsResponse(Message):
    """The response. It is sent once the topics without an error accept records of producers."""

    throttle_time_ms: int = field(INT32)
    topics: list[PromotedTopic] = field(array(PromotedTopic))
