"""WriteTxnMarkers (key 27): writes the markers that end transactions (rules T-40 to T-44).

The request is sent by coordinators on other brokers, and by tools that end a hanging transaction.
Markers are written like those of this broker's own coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from odradek_broker.coordinator.transactions.completion import (
    MarkerRequest,
    MarkerResults,
    MarkerWriter,
)
from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import Authorized
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import may_write_markers
from odradek_broker.slices import in_order, paced
from odradek_protocol.common_structs import PartitionError, TopicErrors
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class _Parts(Authorized, Protocol):
    """The parts of the node that this handler needs."""

    @property
    def markers(self) -> MarkerWriter: ...


async def handle(
    node: _Parts, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write the markers; the answer, given when all markers are durable or refused, has a code for
    each partition of each marker."""
    if not may_write_markers(node.authorizer, context):
        return await _response([(marker, None) for marker in request.markers])
    written = [
        (marker, await _write(node, marker))
        async for marker in paced(request.markers, changing=True)
    ]
    return await _response(written)


async def _write(node: _Parts, marker: WritableTxnMarker) -> list[Deferred[MarkerResults]]:
    partitions = [
        (topic.name, index)
        async for topic in paced(marker.topics)
        async for index in paced(topic.partition_indexes)
    ]
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        # A marker without a producer id or epoch belongs to no transaction, so it must not be
        # written.
        return [Deferred.of(dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR))]
    return [
        node.markers.write(_marker_request(marker, batch))
        async for batch in paced(in_order(partitions), changing=True)
    ]


def _marker_request(
    marker: WritableTxnMarker, partitions: Sequence[tuple[str, int]]
) -> MarkerRequest:
    return MarkerRequest(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        commit=marker.transaction_result,
        transaction_version=marker.transaction_version,
        partitions=list(partitions),
    )


async def _response(
    done: Iterable[tuple[WritableTxnMarker, list[Deferred[MarkerResults]] | None]],
) -> WriteTxnMarkersResponse:
    """An error code for each partition of a producer. If a partition has several codes, the answer
    has the last one, as in Kafka, and markers without partitions are left out.

    The results of a marker are None if the client has no right to write the marker (A-08).
    """
    found: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    async for marker, results in paced(done):
        codes: dict[tuple[str, int], ErrorCode] = {}
        async for result in paced(results or ()):
            codes.update(await result)
        topics = found.get(marker.producer_id, {})
        async for topic in paced(marker.topics):
            if not topic.partition_indexes:
                continue
            found[marker.producer_id] = topics
            partitions = topics.setdefault(topic.name, {})
            async for index in paced(topic.partition_indexes):
                partitions[index] = (
                    ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                    if results is None
                    else codes[topic.name, index]
                )
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    TopicErrors(
                        name=name,
                        partitions=[
                            PartitionError(partition_index=index, error_code=code)
                            async for index, code in paced(partitions.items())
                        ],
                    )
                    async for name, partitions in paced(topics.items())
                ],
            )
            async for producer_id, topics in paced(found.items())
        ]
    )
