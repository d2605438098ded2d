"""From the bytes of a request to the bytes of its answer.

Decides what is not the business of a single API: is the key served, is the version, is the body
well formed, who handles it (rules N-02, N-06, N-07, N-08).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from odradek_broker import too_large
from odradek_broker.context import NO_RESPONSE, AnswerTooLarge, CloseConnection, RequestContext
from odradek_broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_history,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol import codec, frames
from odradek_protocol.codec import Buffer
from odradek_protocol.keys import APIS, Api, ApiKey
from odradek_protocol.message import Message
from odradek_protocol.primitives import DecodeError

log = structlog.get_logger("odradek.dispatch")

#: Topics, partitions, members and so on of one request, all of them together: what decoding and
#: answering it may cost while every other connection waits (architecture, D11).
REQUEST_ELEMENTS_MAX = 100_000

#: What carries records has limits of its own (F-05, F-06), and may be too large to be held for long.
_RECORDS = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})

Handler = Callable[[Node, RequestContext, Any], Any]

HANDLERS: dict[ApiKey, Handler] = {
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.OFFSET_COMMIT: offset_commit.handle,
    ApiKey.OFFSET_FETCH: offset_fetch.handle,
    ApiKey.FIND_COORDINATOR: find_coordinator.handle,
    ApiKey.JOIN_GROUP: join_group.handle,
    ApiKey.HEARTBEAT: heartbeat.handle,
    ApiKey.LEAVE_GROUP: leave_group.handle,
    ApiKey.SYNC_GROUP: sync_group.handle,
    ApiKey.DESCRIBE_GROUPS: describe_groups.handle,
    ApiKey.LIST_GROUPS: list_groups.handle,
    ApiKey.API_VERSIONS: api_versions.handle,
    ApiKey.CREATE_TOPICS: create_topics.handle,
    ApiKey.DELETE_TOPICS: delete_topics.handle,
    ApiKey.DELETE_RECORDS: delete_records.handle,
    ApiKey.INIT_PRODUCER_ID: init_producer_id.handle,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.handle,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn.handle,
    ApiKey.END_TXN: end_txn.handle,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers.handle,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit.handle,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.handle,
    ApiKey.ALTER_CONFIGS: alter_configs.handle,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    ApiKey.CREATE_PARTITIONS: create_partitions.handle,
    ApiKey.DELETE_GROUPS: delete_groups.handle,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    ApiKey.OFFSET_DELETE: offset_delete.handle,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster.handle,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.handle,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions.handle,
    ApiKey.LIST_TRANSACTIONS: list_transactions.handle,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.handle,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.handle,
    ApiKey.DESCRIBE_HISTORY: describe_history.handle,
}


@dataclass(slots=True)
class Peer:
    """The other end of a connection."""

    host: str
    connection_id: int


#: Frames; nothing to send; or the end of the connection, for an answer that came late.
Reply = list[Buffer] | None | CloseConnection


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that is worked on. `request` is None where its answer may have any size."""

    api: Api
    version: int
    correlation_id: int
    started_us: int
    host: str
    request: Message | None


class Dispatcher:
    """One for the broker. `control_bytes_max`: the largest request other than Produce."""

    def __init__(self, node: Node, control_bytes_max: int) -> None:
        self._node = node
        self._control_bytes_max = control_bytes_max

    def answer(self, peer: Peer, frame: memoryview) -> Reply | Later[Reply]:
        """The frame to send back as buffers; None where there is none; or `Later` either.

        CloseConnection if the only answer is to hang up.
        """
        try:
            header, position = frames.decode_request_header(frame)
        except DecodeError as error:
            raise CloseConnection(str(error)) from error
        key, version = header.api_key, header.api_version
        api = APIS.get(key)  # type: ignore[call-overload]
        if api is None:
            raise CloseConnection(f"request of unknown key {key}")
        context = RequestContext(version, header.client_id, peer.host, peer.connection_id)
        if version not in api.versions:
            return self._unsupported(api, context, header.correlation_id)
        if key != ApiKey.PRODUCE and len(frame) > self._control_bytes_max:
            raise CloseConnection(
                f"{api.name} request of {len(frame)} bytes; at most {self._control_bytes_max}"
                " are taken (max.control.request.bytes)"
            )
        try:
            if version in api.request.flexible:
                position = frames.skip_tags(frame, position)
            request = codec.decode(api.request, version, frame, position, REQUEST_ELEMENTS_MAX)
        except DecodeError as error:
            raise CloseConnection(str(error)) from error
        started_us = self._node.metrics.request_started()
        reply = HANDLERS[api.key](self._node, context, request)
        asked = _Asked(
            api,
            version,
            header.correlation_id,
            started_us,
            peer.host,
            None if key in _RECORDS else request,
        )
        if not isinstance(reply, Later):
            return self._encoded(asked, reply)
        if reply.done:
            return self._encoded(asked, reply.result())
        encoded: Later[Reply] = Later()
        encoded.on_abandon = reply.abandon
        reply.then(lambda value: encoded.resolve(self._encoded(asked, value)))
        return encoded

    def _encoded(self, asked: _Asked, reply: Any) -> Reply:
        api, version = asked.api, asked.version
        self._node.metrics.request_finished(api, version, asked.started_us, reply)
        if reply is NO_RESPONSE:
            return None
        if isinstance(reply, CloseConnection):
            return reply
        if asked.request is None:
            return frames.encode_response(api, version, asked.correlation_id, reply)
        bytes_max = self._node.config.fetch_max_bytes
        if isinstance(reply, AnswerTooLarge):
            size = f"more than {reply.least_bytes}"
            return self._refused(asked, asked.request, size, bytes_max)
        try:
            return frames.encode_response(api, version, asked.correlation_id, reply, bytes_max)
        except frames.ResponseTooLarge as problem:
            return self._refused(asked, asked.request, str(problem.size_bytes), bytes_max)

    def _refused(self, asked: _Asked, request: Message, size: str, bytes_max: int) -> Reply:
        text = (
            f"the answer to this {asked.api.name} request would have {size} bytes; at most"
            f" {bytes_max} are sent (fetch.max.bytes): ask for fewer at a time"
        )
        try:
            reply = too_large.instead(asked.api, asked.version, request, text)
        except CloseConnection as closing:
            return closing
        log.warning("refused a request", peer=asked.host, reason=text)
        return frames.encode_response(asked.api, asked.version, asked.correlation_id, reply)

    def _unsupported(self, api: Api, context: RequestContext, correlation_id: int) -> Reply:
        if api.key is not ApiKey.API_VERSIONS:
            raise CloseConnection(
                f"{api.name} request of unsupported version {context.api_version}"
            )
        response: Message = api_versions.handle_unsupported_version(self._node, context)
        return frames.encode_response(api, 0, correlation_id, response)
