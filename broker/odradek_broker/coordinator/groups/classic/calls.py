"""A JoinGroup request with what its connection says, and the limits of what it may bring."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_broker.coordinator.groups.consumer.settings import Visible, every_topic
from odradek_broker.coordinator.groups.settings import GroupSettings
from odradek_broker.deferred import Deferred
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupResponse

#: Protocols that one member may offer.
PROTOCOLS_MAX = 100
#: Names and metadata of all of them. More would hardly fit into the group's record.
PROTOCOLS_MAX_BYTES = 1_048_576
#: Of instance ids, protocol types and names: in UTF-8, and with a UUID behind them, they must fit
#: into the strings of a record, which have 16 bits for their length.
TEXT_MAX_CHARS = 8_000
#: How much of a client id goes into the record and into the ids of members.
CLIENT_ID_MAX_CHARS = 255


@dataclass(frozen=True, slots=True)
class JoinCall:
    """A JoinGroup request, what its connection says about the member, and what its user may see."""

    request: JoinGroupRequest
    deferred: Deferred[JoinGroupResponse]
    api_version: int
    client_id: str
    client_host: str
    visible: Visible = every_topic

    @property
    def rebalance_timeout_ms(self) -> int:
        """Version 0 has none: the session timeout stands for it (G-41)."""
        request = self.request
        if self.api_version == 0 or request.rebalance_timeout_ms < 0:
            return request.session_timeout_ms
        return request.rebalance_timeout_ms

    @property
    def protocols(self) -> list[tuple[str, bytes]]:
        """(name, metadata) of each protocol that the member offers, the most wanted first."""
        return [(protocol.name, protocol.metadata) for protocol in self.request.protocols]

    def error(self, config: GroupSettings) -> ErrorCode:
        """The error of a request that no group takes: INVALID_SESSION_TIMEOUT (G-20), or
        INVALID_REQUEST for more than can be kept (D11); NONE if nothing is."""
        shortest_ms = config.group_min_session_timeout_ms
        longest_ms = config.group_max_session_timeout_ms
        if not shortest_ms <= self.request.session_timeout_ms <= longest_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE if self._is_within_limits else ErrorCode.INVALID_REQUEST

    @property
    def _is_within_limits(self) -> bool:
        request = self.request
        if len(request.protocols) > PROTOCOLS_MAX:
            return False
        texts = [request.protocol_type, request.group_instance_id or ""]
        texts += [protocol.name for protocol in request.protocols]
        return (
            max(map(len, texts)) <= TEXT_MAX_CHARS
            and sum(len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
            <= PROTOCOLS_MAX_BYTES
        )
