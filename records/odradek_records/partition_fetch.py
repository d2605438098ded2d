"""Fetch requests for partitions of a node, for readers of whole batches as they are stored.

A `Consumer` leaves out markers of transactions, offsets without a record and the producers of
batches. The console and the mirror need all of them, so they send Fetch requests with this module.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek_client.consumer.fetcher import (
    SESSION_LOST,
    FetchSessionHandler,
    PartitionRequest,
    has_all_topic_ids,
    topics_of,
)
from odradek_client.errors import error_for
from odradek_client.network.client import NetworkClient
from odradek_client.structs import TopicPartition
from odradek_protocol.schemas.fetch import (
    TOPIC_IDS_SINCE,
    FetchRequest,
    FetchResponse,
    PartitionData,
)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of one fetch. The first batch of an answer is returned whole, even if it is
    larger.
    """

    max_bytes: int = 2 * 1024 * 1024
    partition_bytes: int = 1024 * 1024
    wait_ms: int = 0


async def fetch_from(
    network: NetworkClient,
    node_id: int,
    wanted: dict[TopicPartition, PartitionRequest],
    limits: FetchLimits,
    *,
    read_committed: bool,
    session: FetchSessionHandler | None = None,
) -> dict[TopicPartition, PartitionData]:
    """The answer of a node for these partitions, in which partitions may have errors.

    Topics are given by id if all ids are known, else by name. With a `session` the answer has only
    the changed partitions, and is empty if the node no longer has the session. Raises the error of
    the answer as a whole, ConnectionLost, RequestTimedOut.
    """
    request = FetchRequest(
        max_wait_ms=limits.wait_ms,
        min_bytes=1,
        max_bytes=limits.max_bytes,
        isolation_level=int(read_committed),
    )
    if session is None:
        request.topics = topics_of(wanted.items())
    else:
        part = session.request(wanted)
        request.session_id, request.session_epoch = part.session_id, part.session_epoch
        request.topics, request.forgotten_topics_data = part.topics, part.forgotten
    by_id = has_all_topic_ids(wanted)
    names = {want.topic_id: tp.topic for tp, want in wanted.items()} if by_id else {}
    try:
        response: FetchResponse = await network.send(
            node_id,
            request,
            timeout_ms=network.config.request_timeout_ms + limits.wait_ms,
            channel="fetch",
            max_version=None if by_id else TOPIC_IDS_SINCE - 1,
        )
    except BaseException:
        if session is not None:
            session.restart()
        raise
    if session is not None:
        if response.error_code in SESSION_LOST:
            session.lost()
            return {}
        if not response.error_code:
            session.answered(response.session_id)
        else:
            session.restart()
    if response.error_code:
        raise error_for(response.error_code, about=f"node {node_id}")
    return {
        TopicPartition(topic.topic or names.get(topic.topic_id, ""), data.partition_index): data
        for topic in response.responses
        for data in topic.partitions
    }
