"""WriteTxnMarkers (key 27): writes the markers that end transactions (rules T-40 to T-44).

The request is sent by coordinators on other brokers, and by tools that end a hanging transaction.
Markers are written like those of this broker's own coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from odradek_broker.coordinator.transactions.completion import (
    MarkerRequest,
    MarkerResults,
    MarkerWriter,
)
from odradek_broker.deferred import Deferred, gather
from odradek_broker.handlers._parts import Authorized
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import may_write_markers
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class _Parts(Authorized, Protocol):
    """The parts of the node that this handler needs."""

    @property
    def markers(self) -> MarkerWriter: ...


def handle(
    node: _Parts, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Deferred[WriteTxnMarkersResponse]:
    """Write the markers; the answer, given when all markers are durable or refused, has a code for
    each partition of each marker."""
    if not may_write_markers(node.authorizer, context):
        return _response((marker, None) for marker in request.markers)
    if not request.markers:
        return WriteTxnMarkersResponse()
    written = [_write(node, marker) for marker in request.markers]
    return gather(written).map(
        lambda results: _response(zip(request.markers, results, strict=True))
    )


def _write(node: _Parts, marker: WritableTxnMarker) -> Deferred[MarkerResults]:
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        # A marker without a producer id or epoch belongs to no transaction, so it must not be
        # written.
        return Deferred.of(
            {
                (topic.name, index): ErrorCode.UNKNOWN_SERVER_ERROR
                for topic in marker.topics
                for index in topic.partition_indexes
            }
        )
    return node.markers.write(_marker_request(marker))


def _marker_request(marker: WritableTxnMarker) -> MarkerRequest:
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


def _response(
    done: Iterable[tuple[WritableTxnMarker, MarkerResults | None]],
) -> WriteTxnMarkersResponse:
    """An error code for each partition of a producer. If a partition has several codes, the answer
    has the last one, as in Kafka.

    The results of a marker are None if the client has no right to write the marker (A-08).
    """
    found: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for marker, codes in done:
        topics = found.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            partitions = topics.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                partitions[index] = (
                    ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                    if codes is None
                    else codes[topic.name, index]
                )
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index, code in partitions.items()
                        ],
                    )
                    for name, partitions in topics.items()
                ],
            )
            for producer_id, topics in found.items()
        ]
    )
