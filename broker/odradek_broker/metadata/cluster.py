"""Cluster metadata: topics, partitions, settings, quotas, credentials, tokens, ACLs and producer
ids, replayed from their own log.

Only `replay` changes the state, both at the start and later (D4). The records are made in
`topics.py`, `config_changes.py`, `client_quotas.py`, `acls.py`, `scram.py` and
`delegation_tokens.py`, which read this state and return records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field

from odradek_broker.config.broker import (
    CONSUMER_GROUPS_OFF,
    BrokerConfig,
    settings_of_every_broker,
    with_dynamic,
)
from odradek_broker.config.effective import TopicConfigs
from odradek_broker.config.group_settings import GROUP_SETTINGS
from odradek_broker.config.topic_settings import DEAD_LETTERS_ALLOWED, MIRROR_SOURCE
from odradek_broker.config.types import BrokerConfigError
from odradek_broker.metadata.errors import MetadataError
from odradek_broker.metadata.features import (
    GROUP_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    first_levels,
    supported_features,
)
from odradek_broker.metadata.new_partitions import new_partitions
from odradek_broker.metadata.record_checks import acl_of, check_record, scram_mechanism
from odradek_broker.platform.seams import Randomness
from odradek_broker.quotas.client_quotas import QuotaEntity, quota_entity
from odradek_broker.security.acls import Acl, AclIndex
from odradek_broker.security.delegation_tokens import DelegationTokens, TokenInformation
from odradek_broker.share.in_flight import ShareLimits
from odradek_broker.share.offset_reset import OffsetReset
from odradek_broker.storage.log_config import LogConfig
from odradek_protocol.constants import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.message import Message
from odradek_protocol.primitives import ZERO_UUID, uuid_text
from odradek_protocol.sasl.scram import ScramCredential, ScramMechanism
from odradek_protocol.stored.cluster_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    PartitionRecords,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
METADATA_TOPIC = "__cluster_metadata"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})

#: The ids in one block (rule P-29).
PRODUCER_ID_BLOCK = 1000
#: Kafka's reserved ids, which no topic, token or ACL gets.
_RESERVED_IDS = (ZERO_UUID, bytes(15) + b"\x01")
#: The base64 digit "-". As in Kafka, no topic id begins with it, because the id would look like an
#: option of a command.
_BASE64_DASH = 62
_ID_TRIES_MAX = 1000


@dataclass(slots=True)
class PartitionState:
    """The state of a partition. `replicas` and `isr` are lists of node ids, which several
    partitions may share."""

    index: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: list[int]
    isr: list[int]


@dataclass(slots=True)
class Topic:
    """A topic. `topic_id`: 16 bytes; a topic with the name of a deleted one gets a new id
    (F-14). `made_ms`: the wall time at which it was made, 0 for a topic of a snapshot."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionState] = field(default_factory=dict)
    made_ms: int = 0

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


def metric_name(name: str) -> str:
    """The name of a topic in metrics, which do not distinguish '.' and '_'."""
    return name.replace(".", "_")


class ClusterMetadata:
    """Topics, partitions and settings. `config`: the broker's settings, including the dynamic
    settings.
    """

    def __init__(self, config: BrokerConfig, randomness: Randomness) -> None:
        self.config = config
        self.node_id = config.node_id
        self.topics: dict[str, Topic] = {}
        #: The number of partitions of all topics.
        self.total_partitions = 0
        #: The topics by their names in metrics.
        self._names_by_metric_name: dict[str, list[str]] = {}
        #: A number that grows when a topic or a partition is created or removed, or when an ACL
        #: changes which users may see a topic. Not stored.
        self.topics_version = 0
        self._static = config
        #: Called with settings before they are recorded. Raises ConfigError for well-formed
        #: settings that cannot be used.
        self.check_config: Callable[[BrokerConfig], None] = lambda _: None
        #: The reason why the dynamic settings of the broker are not used; empty if they are used.
        self.config_problem = ""
        self._random = randomness
        self._names_by_id: dict[bytes, str] = {}
        #: The settings of resources by type, then by name.
        self._configs: dict[int, dict[str, dict[str, str]]] = {}
        #: The quotas of each entity by key. Only `replay` changes them.
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        #: The SCRAM credentials of each user. Only `replay` changes them.
        self.scram_credentials: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        #: The same credentials by mechanism, then by user.
        self.scram_users: dict[ScramMechanism, dict[str, ScramCredential]] = {
            each: {} for each in ScramMechanism
        }
        #: The delegation tokens. Only `replay` changes them.
        self.delegation_tokens = DelegationTokens(config.delegation_token_secret_key)
        #: The ACLs, for an authorizer that uses them. Only `replay` changes them.
        self.acls = AclIndex()
        #: The finalized level of each feature. Only `replay` changes the levels.
        self.feature_levels = first_levels(config.profile)
        #: The levels of features that ApiVersions shows, and that clients may finalize.
        self.supported_features = supported_features(config.profile)
        #: The source of each mirror topic, CLUSTER_ID:TOPIC_ID. Only `replay` changes it.
        self.mirror_sources: dict[str, str] = {}
        #: The mirror topics that are being promoted. Not stored: a promotion ends when its records
        #: are durable, and a crash before that leaves a mirror topic (I-12).
        self.promoting: set[str] = set()
        self._log_configs: dict[str, LogConfig] = {}
        self._next_producer_id = 0
        #: The lowest producer id that no other cluster can have assigned.
        self._first_own_producer_id = 0
        # The producer ids that are left in the present block. They are not stored, so a restart
        # skips them.
        self._block = range(0)
        # The next block, while its record is being made durable. A restart skips this block too.
        self._coming_block = range(0)

    # --- Questions ---

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names_by_id.get(topic_id)

    def has_topic(self, name: str) -> bool:
        return name in self.topics

    def acl(self, acl_id: bytes) -> Acl | None:
        return self.acls.by_id.get(acl_id)

    def has_acl(self, acl: Acl) -> bool:
        return acl in self.acls

    def has_token(self, token_id: str) -> bool:
        """True if there is a delegation token with this id, expired or not."""
        return self.delegation_tokens.get(token_id) is not None

    def has_credential(self, user: str, mechanism: ScramMechanism) -> bool:
        return mechanism in self.scram_credentials.get(user, ())

    def topic_names(self) -> list[str]:
        """The names of all topics. Internal topics are included, because regular expressions match
        them, as in Kafka."""
        return list(self.topics)

    def topic_id(self, name: str) -> bytes:
        """The id of a topic; zeros if it does not exist."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def topic_made_ms(self, name: str) -> int:
        """The wall time at which a topic was made; 0 if it is not known."""
        topic = self.topics.get(name)
        return 0 if topic is None else topic.made_ms

    def is_mirror(self, name: str) -> bool:
        """True for a mirror topic: only the mirror adds records to it (I-02)."""
        return name in self.mirror_sources or name in self.promoting

    def mirror_refusal(self, name: str) -> str:
        """The error message for a client that tries to write to a mirror topic."""
        source = self.mirror_sources.get(name, "another cluster")
        return f"{name} is a mirror of {source}: read-only until `odradek mirror promote`"

    def is_internal(self, name: str) -> bool:
        """True if a topic is internal; clients may not write to internal topics."""
        return name in INTERNAL_TOPICS

    def takes_records(self, name: str) -> bool:
        """True if clients may write to a topic: it is neither internal nor a mirror topic."""
        return not (
            name in INTERNAL_TOPICS or name in self.mirror_sources or name in self.promoting
        )

    def partition_count(self, name: str) -> int:
        """The number of partitions; 0 for a topic that does not exist."""
        topic = self.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def topic_with_metric_name_of(self, name: str, own: int = 0) -> str | None:
        """A topic of this name in metrics; None if there are at most `own` of them."""
        alike = self._names_by_metric_name.get(metric_name(name), [])
        return alike[-1] if len(alike) > own else None

    def leader_of(self, name: str, partition: int) -> int | None:
        """The node that leads a partition; None if there is no such partition (D8)."""
        topic = self.topics.get(name)
        state = None if topic is None else topic.partitions.get(partition)
        return None if state is None else state.leader

    def leader_epoch_of(self, name: str, partition: int) -> int:
        """The epoch of a partition's leader; -1 if there is no such partition."""
        topic = self.topics.get(name)
        state = None if topic is None else topic.partitions.get(partition)
        return -1 if state is None else state.leader_epoch

    def overrides(self, resource_type: int, name: str) -> dict[str, str]:
        """A resource's own settings, as texts."""
        given = self._configs.get(resource_type, {}).get(name, {})
        if resource_type == RESOURCE_BROKER and not name:
            return settings_of_every_broker(self._static, given)
        return dict(given)

    def configured(self, resource_type: int) -> Collection[str]:
        """The resources of a type that have settings of their own, by name."""
        return self._configs.get(resource_type, {}).keys()

    def topic_overrides(self, name: str) -> dict[str, str]:
        """A topic's own settings, as texts."""
        return self.overrides(RESOURCE_TOPIC, name)

    def broker_overrides(self, name: str) -> dict[str, str]:
        """The dynamic settings of the broker with the id `name`, such as "1"; "" for those of all
        brokers."""
        return self.overrides(RESOURCE_BROKER, name)

    def group_setting_ms(self, group_id: str, name: str) -> int | None:
        """A group's own value of a numeric setting, mostly in milliseconds, within the broker's
        bounds; None if the group has none."""
        text = self._configs.get(RESOURCE_GROUP, {}).get(group_id, {}).get(name)
        if text is None:
            return None
        # The broker's bounds may have changed since the setting was made.
        row, value = GROUP_SETTINGS[name], int(text)
        for bound, closer in ((row.least, max), (row.most, min)):
            if bound is not None:
                limit = self.config.value_of(bound)
                assert isinstance(limit, int)
                value = closer(value, limit)
        return value

    def share_settings(self, group_id: str) -> ShareLimits:
        """The settings of a group for its records in flight: its own, or the broker's."""
        config = self.config
        own = self._configs.get(RESOURCE_GROUP, {}).get(group_id)
        if own is None:
            return ShareLimits(
                config.group_share_record_lock_duration_ms,
                config.group_share_delivery_count_limit,
                config.group_share_partition_max_record_locks,
                renew=True,
            )
        lock_ms = self.group_setting_ms(group_id, "share.record.lock.duration.ms")
        limit = self.group_setting_ms(group_id, "share.delivery.count.limit")
        locks_max = self.group_setting_ms(group_id, "share.partition.max.record.locks")
        return ShareLimits(
            config.group_share_record_lock_duration_ms if lock_ms is None else lock_ms,
            config.group_share_delivery_count_limit if limit is None else limit,
            config.group_share_partition_max_record_locks if locks_max is None else locks_max,
            renew=own.get("share.renew.acknowledge.enable", "true") == "true",
            committed=own.get("share.isolation.level") == "read_committed",
            redelivery_delay_ms=int(own.get("share.redelivery.delay.ms", "0")),
            redelivery_delay_max_ms=int(own.get("share.redelivery.delay.max.ms", "60000")),
            dead_letter_topic=own.get("errors.deadletterqueue.topic.name", ""),
            copy_record=own.get("errors.deadletterqueue.copy.record.enable") == "true",
        )

    def takes_dead_letters(self, name: str) -> bool:
        """True if the topic's own settings let share groups write dead letters to it."""
        own = self._configs.get(RESOURCE_TOPIC, {}).get(name, {})
        return own.get(DEAD_LETTERS_ALLOWED) == "true"

    def share_offset_reset(self, group_id: str) -> OffsetReset:
        """The strategy by which a share group chooses its first offset in a partition."""
        own = self._configs.get(RESOURCE_GROUP, {}).get(group_id, {})
        return OffsetReset.parsed(own.get("share.auto.offset.reset", "latest"))

    @property
    def consumer_groups_off(self) -> str:
        """The reason why groups of the consumer protocol (KIP-848) are not served; empty if they
        are served."""
        if not self.config.serves_consumer_groups:
            return CONSUMER_GROUPS_OFF
        if not self.feature_levels[GROUP_VERSION]:
            return f"The consumer group protocol is switched off: the feature {GROUP_VERSION} is at level 0."
        return ""

    @property
    def broker_rack(self) -> str:
        """The rack of this broker, and so of all partitions; empty if the broker has no rack."""
        return self._static.broker_rack

    def assignment_interval_ms(self, group_type: str) -> int:
        """The minimum interval between two assignments of a group without its own. `group_type`:
        consumer, share, streams."""
        interval_ms: int = getattr(self.config, f"group_{group_type}_assignment_interval_ms")
        return interval_ms

    @property
    def share_groups_off(self) -> str:
        """The reason why share groups (KIP-932) are not served; empty if they are served."""
        if not self.feature_levels[SHARE_VERSION]:
            return f"Share groups are switched off: the feature {SHARE_VERSION} is at level 0."
        return ""

    @property
    def streams_groups_off(self) -> str:
        """The reason why streams groups (KIP-1071) are not served; empty if they are served."""
        if not self.feature_levels[STREAMS_VERSION]:
            return f"Streams groups are switched off: the feature {STREAMS_VERSION} is at level 0."
        return ""

    @property
    def topic_configs(self) -> TopicConfigs:
        """The settings of topics, with the broker's present settings as defaults."""
        return TopicConfigs(self.config)

    def log_config(self, name: str) -> LogConfig:
        """The settings of a topic's partition logs."""
        found = self._log_configs.get(name)
        if found is None:
            found = self.topic_configs.to_log_config(self.topic_overrides(name))
            self._log_configs[name] = found
        return found

    def new_topic_id(self) -> bytes:
        for _ in range(_ID_TRIES_MAX):
            topic_id = self._random.uuid()
            taken = topic_id in self._names_by_id or topic_id in _RESERVED_IDS
            if not taken and topic_id[0] >> 2 != _BASE64_DASH:
                return topic_id
        raise MetadataError("the source of randomness gives no usable topic id")

    def new_token_id(self) -> str:
        for _ in range(_ID_TRIES_MAX):
            raw = self._random.uuid()
            token_id = uuid_text(raw)
            taken = self.delegation_tokens.get(token_id) is not None or raw in _RESERVED_IDS
            if not taken and not token_id.startswith("-"):
                return token_id
        raise MetadataError("the source of randomness gives no usable id for a token")

    def new_acl_id(self) -> bytes:
        for _ in range(_ID_TRIES_MAX):
            acl_id = self._random.uuid()
            if not self.acls.has_id(acl_id) and acl_id not in _RESERVED_IDS:
                return acl_id
        raise MetadataError("the source of randomness gives no usable id for an ACL")

    # --- Decisions that need no admin request ---

    def topic_records(
        self, name: str, assignments: dict[int, list[int]], configs: dict[str, str]
    ) -> list[MetadataRecord]:
        """The records of a new topic. `assignments`: node ids by partition."""
        topic_id = self.new_topic_id()
        records: list[MetadataRecord] = [TopicRecord(name=name, topic_id=topic_id)]
        records += [
            ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=name, name=key, value=value)
            for key, value in configs.items()
        ]
        records += self.partition_records(topic_id, assignments)
        return records

    def partition_records(
        self, topic_id: bytes, assignments: dict[int, list[int]]
    ) -> list[MetadataRecord]:
        """See `new_partitions`."""
        return new_partitions(topic_id, assignments)

    def internal_topic_records(self, name: str) -> list[MetadataRecord]:
        """The records that create an internal topic; empty if it exists (O-01, T-01, H-101).

        Raises KeyError for a topic that is not internal.
        """
        if name in self.topics:
            return []
        config = self._static
        counts = {
            OFFSETS_TOPIC: config.offsets_topic_num_partitions,
            TRANSACTIONS_TOPIC: config.transaction_state_log_num_partitions,
            SHARE_STATE_TOPIC: config.share_coordinator_state_topic_num_partitions,
        }
        configs = {
            OFFSETS_TOPIC: {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
            TRANSACTIONS_TOPIC: {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
            SHARE_STATE_TOPIC: {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            },
        }
        assignments = {index: [self.node_id] for index in range(counts[name])}
        return self.topic_records(name, assignments, configs[name])

    def new_leader_epochs(self, name: str) -> list[MetadataRecord]:
        """Records that raise the leader epochs of this node's partitions of a topic (T-57)."""
        topic = self.topics.get(name)
        states = [] if topic is None else topic.partitions.values()
        epochs = {
            state.index: state.leader_epoch + 1 for state in states if state.leader == self.node_id
        }
        return self.leader_epoch_records(name, epochs) if epochs else []

    def leader_epoch_records(self, name: str, epochs: Mapping[int, int]) -> list[MetadataRecord]:
        """Records that give partitions of a topic these leader epochs. Raises KeyError for a topic
        or a partition that does not exist."""
        topic = self.topics[name]
        return [
            PartitionRecord(
                partition_id=state.index,
                topic_id=topic.topic_id,
                replicas=list(state.replicas),
                isr=list(state.isr),
                leader=state.leader,
                leader_epoch=epoch,
                partition_epoch=state.partition_epoch + 1,
            )
            for state, epoch in ((topic.partitions[index], epochs[index]) for index in epochs)
        ]

    # --- Producer ids (rule P-29) ---

    def take_producer_id(self) -> int | None:
        """The next producer id of the present block; None if a new block is needed."""
        if not self._block:
            return None
        producer_id = self._block[0]
        self._block = self._block[1:]
        return producer_id

    def producer_id_block(self) -> list[MetadataRecord]:
        """The record that reserves the next block; the record must be durable before the block is
        used."""
        first = max(self._next_producer_id, self._first_own_producer_id)
        self._coming_block = range(first, first + PRODUCER_ID_BLOCK)
        return [
            ProducerIdsRecord(broker_id=self.node_id, next_producer_id=first + PRODUCER_ID_BLOCK)
        ]

    def use_producer_id_block(self) -> None:
        """Use the next block, because its record is durable."""
        self._block = self._own_ids(self._coming_block)
        self._coming_block = range(0)

    @property
    def producer_ids_end(self) -> int:
        """The first producer id that is in no reserved block."""
        return self._next_producer_id

    def leave_producer_ids_to_others(self, highest: int) -> list[MetadataRecord]:
        """Assign no producer id up to `highest`, because another cluster may have assigned it, or
        this one, in a record that is lost. Returns the record that makes this durable, if one is
        needed."""
        self._first_own_producer_id = max(self._first_own_producer_id, highest + 1)
        self._block = self._own_ids(self._block)
        if highest < self._next_producer_id:
            return []
        blocks = highest // PRODUCER_ID_BLOCK + 1
        return [
            ProducerIdsRecord(broker_id=self.node_id, next_producer_id=blocks * PRODUCER_ID_BLOCK)
        ]

    def _own_ids(self, block: range) -> range:
        return range(max(block.start, self._first_own_producer_id), block.stop)

    # --- Replay: the only place where state changes ---

    def replay(self, record: Message | PartitionRecords) -> None:
        """Apply one record to the state. Raises MetadataError if the record contradicts the
        state."""
        check_record(record, self)
        match record:
            case PartitionRecord():
                self._replay_partition(record)
            case PartitionRecords():
                self._replay_partitions(record)
            case TopicRecord():
                self.topics_version += 1
                self.topics[record.name] = Topic(record.name, record.topic_id)
                self._names_by_id[record.topic_id] = record.name
                alike = self._names_by_metric_name.setdefault(metric_name(record.name), [])
                alike.append(record.name)
            case RemoveTopicRecord():
                self._replay_remove_topic(record)
            case ConfigRecord():
                self._replay_config(record)
            case ClientQuotaRecord():
                self._replay_client_quota(record)
            case UserScramCredentialRecord():
                self._replay_scram_credential(record)
            case RemoveUserScramCredentialRecord():
                self._replay_remove_scram_credential(record)
            case AccessControlEntryRecord():
                self.acls.add(record.id, acl_of(record))
                # The ACL may change which topics the regular expressions of groups match.
                self.topics_version += 1
            case RemoveAccessControlEntryRecord():
                self.acls.remove(record.id)
                self.topics_version += 1
            case DelegationTokenRecord():
                self._replay_token(record)
            case RemoveDelegationTokenRecord():
                self.delegation_tokens.remove(record.token_id)
            case FeatureLevelRecord():
                self.feature_levels[record.name] = record.feature_level
            case ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case _:
                raise TypeError(f"no metadata record: {record!r}")

    def _replay_partition(self, record: PartitionRecord) -> None:
        name = self._names_by_id[record.topic_id]
        self.topics_version += 1
        partitions = self.topics[name].partitions
        self.total_partitions += record.partition_id not in partitions
        partitions[record.partition_id] = PartitionState(
            record.partition_id,
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            list(record.replicas),
            list(record.isr),
        )

    def _replay_partitions(self, records: PartitionRecords) -> None:
        first = records.first
        topic = self.topics[self._names_by_id[first.topic_id]]
        self.topics_version += 1
        before = len(topic.partitions)
        same = first.leader, first.leader_epoch, first.partition_epoch, first.replicas, first.isr
        states = {index: PartitionState(index, *same) for index in records.indexes}
        topic.partitions.update(states)
        self.total_partitions += len(topic.partitions) - before

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self._names_by_id.pop(record.topic_id)
        self.topics_version += 1
        self.total_partitions -= len(self.topics.pop(name).partitions)
        alike = self._names_by_metric_name[metric_name(name)]
        alike.remove(name)
        if not alike:
            del self._names_by_metric_name[metric_name(name)]
        self._configs.get(RESOURCE_TOPIC, {}).pop(name, None)
        self._log_configs.pop(name, None)
        self.mirror_sources.pop(name, None)

    def _replay_config(self, record: ConfigRecord) -> None:
        configs = self._configs.setdefault(record.resource_type, {})
        values = configs.setdefault(record.resource_name, {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del configs[record.resource_name]
        if record.resource_type == RESOURCE_TOPIC:
            self._log_configs.pop(record.resource_name, None)
            if record.name == MIRROR_SOURCE:
                self.mirror_sources.pop(record.resource_name, None)
                if record.value:
                    self.mirror_sources[record.resource_name] = record.value
        elif record.resource_type == RESOURCE_BROKER:
            self._use_dynamic_settings()
            self._log_configs.clear()

    def _replay_client_quota(self, record: ClientQuotaRecord) -> None:
        entity = quota_entity((each.entity_type, each.entity_name) for each in record.entity)
        quotas = self.client_quotas.setdefault(entity, {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if not quotas:
            del self.client_quotas[entity]

    def _replay_scram_credential(self, record: UserScramCredentialRecord) -> None:
        salt, *keys = map(bytes, (record.salt, record.stored_key, record.server_key))
        credential = ScramCredential(salt, keys[0], keys[1], record.iterations)
        mechanism = scram_mechanism(record.mechanism)
        self.scram_credentials.setdefault(record.name, {})[mechanism] = credential
        self.scram_users[mechanism][record.name] = credential

    def _replay_remove_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        credentials = self.scram_credentials[record.name]
        mechanism = scram_mechanism(record.mechanism)
        del credentials[mechanism], self.scram_users[mechanism][record.name]
        if not credentials:
            del self.scram_credentials[record.name]

    def _replay_token(self, record: DelegationTokenRecord) -> None:
        self.delegation_tokens.put(
            TokenInformation(
                record.token_id,
                record.owner,
                record.requester,
                tuple(record.renewers),
                record.issue_timestamp,
                record.max_timestamp,
                record.expiration_timestamp,
            )
        )

    def _use_dynamic_settings(self) -> None:
        """Combine static and dynamic settings. If the combination is inconsistent, `config` stays
        unchanged.

        The combination may be inconsistent if only some changes of a request are replayed yet, or
        if the static settings have changed since the dynamic settings were checked.
        """
        try:
            self.config = with_dynamic(
                self._static,
                self.broker_overrides(str(self.node_id)),
                self.broker_overrides(""),
            )
        except BrokerConfigError as problem:
            self.config_problem = str(problem)
        else:
            self.config_problem = ""
