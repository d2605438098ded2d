"""WriteTxnMarkers (key 27): write the markers that end transactions (rules T-40 to T-44).

Asked by coordinators on other brokers, and by tools that end a hanging transaction. Each marker goes
to the leaders of its partitions just as one of this broker's own coordinator does.
"""

from __future__ import annotations

from odradek_broker.authorizer import may_write_markers
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.transactions.interfaces import MarkerRequest
from odradek_broker.later import Later
from odradek_broker.markers import MarkerResults, write_marker
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(
    node: Node, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Later[WriteTxnMarkersResponse]:
    """One code for each partition of each marker, once all are durable or refused."""
    if not may_write_markers(node.authorizer, context):
        refused = [_result(marker, None) for marker in request.markers]
        return WriteTxnMarkersResponse(markers=refused)
    later: Later[WriteTxnMarkersResponse] = Later()
    results: list[WritableTxnMarkerResult | None] = [None] * len(request.markers)
    missing = len(results)
    if not missing:
        return WriteTxnMarkersResponse()

    def written(number: int, codes: MarkerResults) -> None:
        nonlocal missing
        results[number] = _result(request.markers[number], codes)
        missing -= 1
        if not missing:
            found = [result for result in results if result is not None]
            later.resolve(WriteTxnMarkersResponse(markers=found))

    for number, marker in enumerate(request.markers):
        write_marker(node, _asked(marker)).then(
            lambda codes, number=number: written(number, codes)  # type: ignore[misc]
        )
    return later


def _asked(marker: WritableTxnMarker) -> MarkerRequest:
    return MarkerRequest(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        commit=marker.transaction_result,
        transaction_version=marker.transaction_version,
        partitions=[
            (topic.name, index) for topic in marker.topics for index in topic.partition_indexes
        ],
    )


def _result(marker: WritableTxnMarker, codes: MarkerResults | None) -> WritableTxnMarkerResult:
    """`codes` None: the client may not do this at all (A-08)."""
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index,
                        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                        if codes is None
                        else codes[topic.name, index],
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )
