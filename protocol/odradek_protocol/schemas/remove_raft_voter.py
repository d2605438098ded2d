"""RemoveRaftVoter (key 81): removes a voter from the metadata quorum (KIP-853).

Versions: only 0.

Left out: any change of the voters. This node is the only voter, as in a Kafka whose settings fix
the voters.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, field
from odradek_protocol.primitives import INT16, INT32, STRING, UUID


@api_message(ApiKey.REMOVE_RAFT_VOTER)
class RemoveRaftVoterRequest(Message):
    """The request. `cluster_id` null: the sender accepts any cluster."""

    cluster_id: str | None = field(STRING, nullable="0+")
    voter_id: int = field(INT32)
    voter_directory_id: bytes = field(UUID)


@api_message(ApiKey.REMOVE_RAFT_VOTER)
class RemoveRaftVoterResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", ignorable=True)
