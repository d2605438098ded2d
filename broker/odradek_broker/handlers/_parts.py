"""Protocols of the node for handlers that need only a few of its parts."""

from __future__ import annotations

from typing import Protocol

from odradek_broker.coordinator.groups.coordinator import GroupCoordinator
from odradek_broker.coordinator.transactions.coordinator import TransactionCoordinator
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.commit import MetadataNode
from odradek_broker.partition import Partition
from odradek_broker.platform.loggers import LogLevels
from odradek_broker.quotas.managers import QuotaManagers
from odradek_broker.replica_manager import ReplicaManager
from odradek_broker.security.authorizer import Authorizer
from odradek_broker.slices import Slices
from odradek_broker.storage.manager import LogManager


class Authorized(Protocol):
    """The authorizer."""

    @property
    def authorizer(self) -> Authorizer: ...


class GroupParts(Authorized, Protocol):
    """The authorizer and the groups."""

    @property
    def groups(self) -> GroupCoordinator: ...


class TransactionParts(Authorized, Protocol):
    """The authorizer and the transactions."""

    @property
    def transactions(self) -> TransactionCoordinator: ...


class MetadataParts(Authorized, Protocol):
    """The authorizer and the cluster metadata."""

    @property
    def metadata(self) -> ClusterMetadata: ...


class PartitionParts(Authorized, Protocol):
    """The authorizer, the partitions and the slices of the loop's time."""

    @property
    def slices(self) -> Slices: ...

    def partition(self, topic: str, index: int, /) -> Partition | None: ...


class LogParts(PartitionParts, Protocol):
    """The authorizer, the partitions and their logs."""

    @property
    def logs(self) -> LogManager: ...


class PartitionAndMetadataParts(PartitionParts, MetadataParts, Protocol):
    """The authorizer, the partitions and the cluster metadata."""


class MetadataChangeParts(MetadataParts, MetadataNode, Protocol):
    """The authorizer, the cluster metadata, and the parts that commit a change of the metadata."""


class ConfigChangeParts(MetadataChangeParts, Protocol):
    """The parts of `MetadataChangeParts`, and the parts that a changed setting affects."""

    @property
    def log_levels(self) -> LogLevels: ...
    @property
    def node_id(self) -> int: ...
    @property
    def replicas(self) -> ReplicaManager: ...


class ClusterParts(Authorized, Protocol):
    """The authorizer and the ids of the cluster and the node."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def node_id(self) -> int: ...


class TopicParts(MetadataChangeParts, Protocol):
    """The parts of `MetadataChangeParts`, and the quotas of changes to topics."""

    @property
    def quotas(self) -> QuotaManagers: ...


class GroupAndMetadataParts(GroupParts, MetadataParts, Protocol):
    """The authorizer, the groups and the cluster metadata."""


class TransactionAndMetadataParts(TransactionParts, MetadataParts, Protocol):
    """The authorizer, the transactions and the cluster metadata."""
