"""WriteTxnMarkers (key 27): writes the markers that end transactions on partitions.

Versions: 1 is flexible; 2 carries the transaction version of each marker (KIP-1228).
"""

from __future__ import annotations

from odradek_protocol.common_structs import TopicErrors
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT8, INT16, INT32, INT64, STRING


class WritableTxnMarkerTopic(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class WritableTxnMarker(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    transaction_result: bool = field(BOOL)
    topics: list[WritableTxnMarkerTopic] = field(array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(INT32)
    transaction_version: int = field(INT8, "2+", ignorable=True)


@api_message(ApiKey.WRITE_TXN_MARKERS)
class WriteTxnMarkersRequest(Message):
    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker))


class WritableTxnMarkerResult(Struct):
    producer_id: int = field(INT64)
    topics: list[TopicErrors] = field(array(TopicErrors))


@api_message(ApiKey.WRITE_TXN_MARKERS)
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult] = field(array(WritableTxnMarkerResult))
