"""DescribeCluster (key 60): the brokers and the controller.

Versions: in 1 the request asks for brokers or for controllers; in 2 it can ask for fenced brokers.

Left out: controllers (the answer is MISMATCHED_ENDPOINT_TYPE, as on any broker's listener); fenced
brokers, because a single broker is never fenced.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT8, INT16, INT32, STRING


@api_message(ApiKey.DESCRIBE_CLUSTER)
class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool = field(BOOL)
    endpoint_type: int = field(INT8, "1+", default=1)
    include_fenced_brokers: bool = field(BOOL, "2+")


class DescribeClusterBroker(Struct):
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)
    is_fenced: bool = field(BOOL, "2+")


@api_message(ApiKey.DESCRIBE_CLUSTER)
class DescribeClusterResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    endpoint_type: int = field(INT8, "1+", default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=-2147483648)
