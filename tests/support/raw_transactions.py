"""Batches and requests of transactions, for `raw_client`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_protocol.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

PRODUCER = 4000
READ_COMMITTED = 1


def transactional_batch(
    sequence: int,
    *values: bytes,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    transactional: bool = True,
) -> Any:
    builder = BatchBuilder()
    for value in values or (b"%d" % sequence,):
        builder.append(1_700_000_000_000, None, value)
    return builder.build(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def transactional_produce(
    batch: Any,
    *more: Any,
    topic: str = "t",
    transactional_id: str | None = "tx",
    acks: int = -1,
    timeout_ms: int = 20_000,
) -> ProduceRequest:
    """A Produce request with one batch for each partition from 0 on."""
    parts = [
        PartitionProduceData(index=index, records=data) for index, data in enumerate((batch, *more))
    ]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=parts)],
    )


def marker_request(
    *,
    commit: bool = True,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
    topic: str = "t",
    partitions: Iterable[int] = (0,),
) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=commit,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
                coordinator_epoch=coordinator_epoch,
                transaction_version=version,
            )
        ]
    )


def marker_codes(response: Any) -> list[int]:
    """The error codes of all partitions in a WriteTxnMarkers response, in order."""
    return [
        partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    ]


def fetch_request(
    offset: int = 0,
    *,
    topic: str = "t",
    isolation: int = READ_COMMITTED,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 20,
) -> FetchRequest:
    """A Fetch request up to version 12, with topic names."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
