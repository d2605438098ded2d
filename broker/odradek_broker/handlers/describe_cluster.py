"""DescribeCluster (key 60): the only broker, and the client's operations on the cluster."""

from __future__ import annotations

from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import UNKNOWN_OPERATIONS, cluster_operations
from odradek_protocol.constants import BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


def handle(
    node: Node, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """The brokers; a request for controllers is an error, as on any broker's listener (KIP-919)."""
    if request.endpoint_type == CONTROLLER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an"
            " endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    host, port = node.advertised(context.listener)
    operations = UNKNOWN_OPERATIONS
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(node.authorizer, context)
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node.node_id,
                host=host,
                port=port,
                rack=node.config.broker_rack or None,
            )
        ],
        cluster_authorized_operations=operations,
    )
