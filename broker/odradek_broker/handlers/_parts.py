"""The parts of the node that a handler needs, for handlers that need few of them."""

from __future__ import annotations

from typing import Protocol

from odradek_broker.coordinator.groups.coordinator import GroupCoordinator
from odradek_broker.coordinator.transactions.coordinator import TransactionCoordinator
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.security.authorizer import Authorizer


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


class GroupAndMetadataParts(GroupParts, MetadataParts, Protocol):
    """The authorizer, the groups and the cluster metadata."""


class TransactionAndMetadataParts(TransactionParts, MetadataParts, Protocol):
    """The authorizer, the transactions and the cluster metadata."""
