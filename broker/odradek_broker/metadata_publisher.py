"""The metadata publisher: passes changes of the cluster metadata to the parts of the broker that
depend on them.

    records appended --> publish:  replays metadata, makes and drops partitions, changes quotas and
                                   subscriptions to client metrics
    records durable  --> complete: changes the finalized features that clients get, deletes the
                                   files and the offsets of removed topics

A crash undoes changes that are not durable, so actions that cannot be undone wait for durability
(D4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_broker.deferred import Deferred, gather
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.features import FinalizedFeatures
from odradek_broker.quotas.client_quotas import IP, QuotaEntity, QuotaKey, quota_entity
from odradek_broker.quotas.connections import ConnectionQuotas
from odradek_broker.quotas.managers import QuotaManagers
from odradek_broker.replica_manager import ReplicaManager
from odradek_broker.telemetry.subscriptions import MetricsSubscriptions
from odradek_protocol.constants import RESOURCE_CLIENT_METRICS
from odradek_protocol.stored.cluster_metadata import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
)


class MetadataPublisher:
    """Publishes changes of the cluster metadata. `topic_deleted` gets the id of a deleted
    topic, and deletes what the coordinators store about the topic (O-15, H-108)."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        replicas: ReplicaManager,
        quotas: QuotaManagers,
        connection_quotas: ConnectionQuotas,
        topic_deleted: Callable[[bytes], Deferred[None]],
        subscriptions: MetricsSubscriptions,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._quotas = quotas
        self._connection_quotas = connection_quotas
        self._topic_deleted = topic_deleted
        self._subscriptions = subscriptions
        #: The finalized features for answers to clients; a level changes here when its record is
        #: durable.
        self.finalized_features = self._replayed_features(0)

    def loaded(self, log_end_offset: int) -> None:
        """Use the metadata that was replayed at the start. `log_end_offset`: the end of the
        metadata log."""
        self.finalized_features = self._replayed_features(log_end_offset)
        for entity, quotas in self._metadata.client_quotas.items():
            for key, limit in quotas.items():
                self._update_quota(entity, key, limit)
        for name in self._metadata.configured(RESOURCE_CLIENT_METRICS):
            self._update_subscription(name)

    def publish(
        self, records: Sequence[MetadataRecord], log_end_offset: int
    ) -> Callable[[], Deferred[None]]:
        """See `odradek_broker.metadata.log.Publish`."""
        delta = self._replicas.apply(records)
        features = self.finalized_features
        subscriptions: set[str] = set()
        for record in records:
            if isinstance(record, FeatureLevelRecord):
                features = self._replayed_features(log_end_offset)
            if isinstance(record, ClientQuotaRecord):
                entity = quota_entity(
                    (each.entity_type, each.entity_name) for each in record.entity
                )
                self._update_quota(entity, record.key, None if record.remove else record.value)
            if isinstance(record, ConfigRecord) and record.resource_type == RESOURCE_CLIENT_METRICS:
                subscriptions.add(record.resource_name)
        for name in sorted(subscriptions):
            self._update_subscription(name)

        def complete() -> Deferred[None]:
            if features.epoch > self.finalized_features.epoch:
                self.finalized_features = features
            done: Deferred[None] = Deferred()
            completed = self._replicas.complete(delta)
            # A new topic of the same name must not have the offsets of a deleted one (O-15).
            deleted = gather([self._topic_deleted(each) for each in delta.removed_topic_ids])
            deleted.then(lambda _: completed.then(done.resolve))
            return done

        return complete

    def _replayed_features(self, log_end_offset: int) -> FinalizedFeatures:
        """The replayed levels, durable or not. Their epoch is the end of the metadata log, as in
        Kafka."""
        return FinalizedFeatures(log_end_offset, dict(self._metadata.feature_levels))

    def _update_subscription(self, name: str) -> None:
        given = self._metadata.overrides(RESOURCE_CLIENT_METRICS, name)
        self._subscriptions.update(name, given)

    def _update_quota(self, entity: QuotaEntity, key: str, limit: float | None) -> None:
        if key == QuotaKey.CONNECTION_CREATION_RATE:
            self._connection_quotas.update(dict(entity).get(IP), limit)
        else:
            self._quotas.update(entity, key, limit)
