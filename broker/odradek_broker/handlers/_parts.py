"""The parts of the node that a handler needs, for handlers that need few of them."""

from __future__ import annotations

from typing import Protocol

from odradek_broker.coordinator.groups.coordinator import GroupCoordinator
from odradek_broker.coordinator.transactions.coordinator import TransactionCoordinator
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.security.authorizer import Authorizer


class Authorized(Protocol):
    """The rights of clients."""

    @property
    def authorizer(self) -> Authorizer: ...


class GroupParts(Authorized, Protocol):
    """The rights and the groups."""

    @property
    def groups(self) -> GroupCoordinator: ...


class TransactionParts(Authorized, Protocol):
    """The rights and the transactions."""

    @property
    def transactions(self) -> TransactionCoordinator: ...


class MetadataParts(Authorized, Protocol):
    """The rights and the cluster metadata."""

    @property
    def metadata(self) -> ClusterMetadata: ...


class GroupAndMetadataParts(GroupParts, MetadataParts, Protocol):
    """The rights, the groups and the cluster metadata."""


class TransactionAndMetadataParts(TransactionParts, MetadataParts, Protocol):
    """The rights, the transactions and the cluster metadata."""
