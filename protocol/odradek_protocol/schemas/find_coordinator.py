"""FindCoordinator (key 10): the broker that coordinates a group, a transactional id or the state of
a share partition.

Versions: 1 has the key's type; 3 is flexible; 4 has several keys, and an error for each; 6 has
share partitions.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT8, INT16, INT32, STRING

#: From this version on a request has several keys.
SEVERAL_KEYS_SINCE = 4
#: From this version on a key may name a share partition.
SHARES_SINCE = 6


@api_message(ApiKey.FIND_COORDINATOR)
class FindCoordinatorRequest(Message):
    key: str = field(STRING, "0-3")
    key_type: int = field(INT8, "1+")
    coordinator_keys: list[str] = field(array(STRING), "4+")


class Coordinator(Struct):
    key: str = field(STRING, "4+")
    node_id: int = field(INT32, "4+")
    host: str = field(STRING, "4+")
    port: int = field(INT32, "4+")
    error_code: int = field(INT16, "4+")
    error_message: str | None = field(STRING, "4+", nullable="4+", ignorable=True)


@api_message(ApiKey.FIND_COORDINATOR)
class FindCoordinatorResponse(Message):
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16, "0-3")
    error_message: str | None = field(STRING, "1-3", nullable="1-3", ignorable=True)
    node_id: int = field(INT32, "0-3")
    host: str = field(STRING, "0-3")
    port: int = field(INT32, "0-3")
    coordinators: list[Coordinator] = field(array(Coordinator), "4+")
