"""AddRaftVoter (key 80): adds a voter to the metadata quorum (KIP-853).

Versions: in 1 the request says whether to wait until the change is committed.

Left out: any change of the voters. This node is the only voter, as in a Kafka whose settings fix
the voters.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT16, INT32, STRING, UINT16, UUID


class Listener(Struct):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


@api_message(ApiKey.ADD_RAFT_VOTER)
class AddRaftVoterRequest(Message):
    """The request. `cluster_id` null: the sender accepts any cluster."""

    cluster_id: str | None = field(STRING, nullable="0+")
    timeout_ms: int = field(INT32)
    voter_id: int = field(INT32)
    voter_directory_id: bytes = field(UUID)
    listeners: list[Listener] = field(array(Listener))
    ack_when_committed: bool = field(BOOL, "1+", default=True)


@api_message(ApiKey.ADD_RAFT_VOTER)
class AddRaftVoterResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", ignorable=True)
