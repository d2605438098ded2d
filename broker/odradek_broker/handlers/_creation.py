"""The common part of CreateTopics and CreatePartitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import TopicParts
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.commit import committed, refuse_if_late
from odradek_broker.metadata.topics import CreatedSoFar, TopicResult
from odradek_broker.quotas.managers import TakeQuota
from odradek_broker.slices import batches, paced
from odradek_protocol.stored.cluster_metadata import MetadataRecord


class _Request(Protocol):
    timeout_ms: int
    validate_only: bool


class _Wanted(Protocol):
    @property
    def name(self) -> str: ...


W = TypeVar("W", bound=_Wanted)
#: `create_topics` or `create_partitions` of the cluster metadata.
Create = Callable[
    [ClusterMetadata, Sequence[W], TakeQuota, CreatedSoFar],
    tuple[list[MetadataRecord], list[TopicResult]],
]


async def create_in_batches(
    node: TopicParts, request: _Request, wanted: Sequence[W], create: Create[W], quota: TakeQuota
) -> list[TopicResult]:
    """Create topics or partitions; returns an answer for each topic name when all is durable."""
    created = CreatedSoFar(node.metadata)
    found: dict[str, TopicResult] = {}
    recorded: list[Deferred[bool]] = []
    async for batch in paced(await batches(wanted, lambda topic: topic.name), changing=True):
        records, made = create(node.metadata, batch, quota, created)
        found.update((result.name, result) for result in made)
        if records and not request.validate_only:
            recorded.append(committed(node, records, request.timeout_ms))
            created.recorded()
    results = list(found.values())
    if not recorded and not request.validate_only:
        recorded.append(committed(node, (), request.timeout_ms))
    await refuse_if_late(results, recorded)
    return results
