"""ListGroups (key 16): all groups of a broker.

Versions: 3 is flexible; 4 has states, and can select groups by state (KIP-518); 5 has types, and
can select groups by type (KIP-848).
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, STRING

#: From this version on groups can be selected by state, and the answer has their states (KIP-518).
STATES_SINCE = 4
#: From this version on groups can be selected by type, and the answer has their types (KIP-848).
TYPES_SINCE = 5


@api_message(ApiKey.LIST_GROUPS)
class ListGroupsRequest(Message):
    states_filter: list[str] = field(array(STRING), "4+")
    types_filter: list[str] = field(array(STRING), "5+")


class ListedGroup(Struct):
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, "4+", ignorable=True)
    group_type: str = field(STRING, "5+", ignorable=True)


@api_message(ApiKey.LIST_GROUPS)
class ListGroupsResponse(Message):
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16)
    groups: list[ListedGroup] = field(array(ListedGroup))
