"""A broker that has many of everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from large_requests import CountedBroker
from logs import append, make_batch
from odradek_broker.config.topic_settings import MIRROR_SOURCE
from odradek_broker.metadata.cluster import INTERNAL_TOPICS
from odradek_broker.metadata.topics import RequestedTopic, create_topics
from odradek_broker.request import Peer
from odradek_protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek_protocol.common_structs import QuotaEntityPart, StreamsSubtopology
from odradek_protocol.constants import (
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek_protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek_protocol.schemas.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsTopology,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek_protocol.stored.cluster_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    MetadataRecord,
    UserScramCredentialRecord,
)
from odradek_protocol.stored.subscription import ConsumerSubscription, encode_subscription

ADMIN = "admin"
#: A topic, a group and a transactional id with many partitions.
WIDE = "wide"
_AT_ONCE = 100
_SOURCE = f"source:{'A' * 22}"


def name_of(number: int) -> str:
    """The name of a topic, a group, a user and so on."""
    return f"name-{number:05}"


def crowded_broker(count: int, steps_per_us: int) -> CountedBroker:
    """A broker with an authorizer that has `count` things of each kind."""
    broker = CountedBroker(
        steps_per_us=steps_per_us,
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users=f"User:{ADMIN}",
        delegation_token_secret_key="secret",
        fetch_max_bytes="1000000000",
        group_initial_rebalance_delay_ms="0",
        max_partitions="1000000",
        # Few shards, so that each has many ids.
        offsets_topic_num_partitions="5",
        share_coordinator_state_topic_num_partitions="5",
        transaction_state_log_num_partitions="5",
    )
    _Crowd(broker, count).fill()
    broker.world.soon.run()
    broker.world.flush()
    broker.world.logs._options.handles.background = broker.in_background
    return broker


class _Crowd:
    def __init__(self, broker: CountedBroker, count: int) -> None:
        self._broker = broker
        self._world = broker.world
        self._node = broker.world.node
        self._count = count
        self._names = [name_of(number) for number in range(count)]

    def fill(self) -> None:
        """Make topics, metadata of all kinds, groups of all kinds, transactional ids, producers and
        connections."""
        self._make_topics()
        self._make_metadata()
        self._make_groups()
        self._make_transactions()
        self._make_producers()
        self._make_connections()

    def _commit(self, records: Sequence[MetadataRecord]) -> None:
        for start in range(0, len(records), _AT_ONCE):
            self._node.metadata_log.commit(records[start : start + _AT_ONCE])
            self._world.soon.run()
            self._world.flush()

    def _make_topics(self) -> None:
        for internal in sorted(INTERNAL_TOPICS):
            self._node.ensure_internal_topic(internal)
            self._world.soon.run()
            self._world.flush()
        names = self._names + [f"mirror-{name}" for name in self._names[::4]]
        wanted = [RequestedTopic(name, 1) for name in names] + [RequestedTopic(WIDE, self._count)]
        for start in range(0, len(wanted), _AT_ONCE):
            made, results = create_topics(self._node.metadata, wanted[start : start + _AT_ONCE])
            assert all(each.error is ErrorCode.NONE for each in results), results
            self._node.metadata_log.commit(made)
            self._world.soon.run()
            self._world.flush()

    def _make_metadata(self) -> None:
        names = self._names
        self._commit(
            [
                AccessControlEntryRecord(
                    id=(number + 1).to_bytes(16, "little"),
                    resource_type=AclResourceType.TOPIC,
                    resource_name=f"{name}-acl",
                    pattern_type=PatternType.LITERAL,
                    principal=f"User:{name}",
                    host="*",
                    operation=AclOperation.READ,
                    permission_type=AclPermission.ALLOW,
                )
                for number, name in enumerate(names)
            ]
        )
        self._commit(
            [
                UserScramCredentialRecord(
                    name=name,
                    mechanism=1,
                    salt=bytes(16),
                    stored_key=bytes(32),
                    server_key=bytes(32),
                    iterations=4096,
                )
                for name in names
            ]
        )
        self._commit(
            [
                ClientQuotaRecord(
                    entity=[QuotaEntityPart(entity_type=kind, entity_name=name)],
                    key="producer_byte_rate",
                    value=1e9,
                )
                for name in names
                for kind in ("user", "client-id")
            ]
        )
        later_ms = self._world.clock.wall_ms() + 10_000
        self._commit(
            [
                DelegationTokenRecord(
                    owner=f"User:{name}",
                    requester="User:admin",
                    renewers=["User:nobody"],
                    issue_timestamp=0,
                    max_timestamp=later_ms,
                    expiration_timestamp=later_ms,
                    token_id=f"token-{name}",
                )
                for name in names
            ]
        )
        for kind, key, value in (
            (RESOURCE_CLIENT_METRICS, "interval.ms", "1000"),
            (RESOURCE_CLIENT_METRICS, "metrics", "*"),
            (RESOURCE_CLIENT_METRICS, "match", "client_id=.*"),
            (RESOURCE_GROUP, "consumer.session.timeout.ms", "50000"),
            (RESOURCE_TOPIC, "retention.ms", "5000"),
        ):
            self._commit(
                [
                    ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
                    for name in names
                ]
            )
        self._commit(
            [
                ConfigRecord(
                    resource_type=RESOURCE_TOPIC,
                    resource_name=f"mirror-{name}",
                    name=MIRROR_SOURCE,
                    value=_SOURCE,
                )
                for name in names[::4]
            ]
        )

    # --- Groups ---

    def _make_groups(self) -> None:
        for number, name in enumerate(self._names):
            self._commit_offsets(name, name, 1)
            self._join_classic(f"classic-{name}")
            self._beat(
                ConsumerGroupHeartbeatRequest(
                    group_id=f"consumer-{name}",
                    member_id=f"member-{number}",
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_names=[name],
                    topic_partitions=[],
                )
            )
            self._beat(
                ShareGroupHeartbeatRequest(
                    group_id=f"share-{name}",
                    member_id=f"member-{number}",
                    subscribed_topic_names=[name],
                )
            )
            self._beat(
                StreamsGroupHeartbeatRequest(
                    group_id=f"streams-{name}",
                    member_id=f"member-{number}",
                    rebalance_timeout_ms=60_000,
                    process_id="process",
                    topology=StreamsTopology(
                        subtopologies=[
                            StreamsSubtopology(subtopology_id="words", source_topics=[name])
                        ]
                    ),
                    active_tasks=[],
                    standby_tasks=[],
                    warmup_tasks=[],
                )
            )
        self._commit_offsets(WIDE, WIDE, self._count)
        self._beat(
            ShareGroupHeartbeatRequest(
                group_id=f"share-{WIDE}", member_id="member", subscribed_topic_names=[WIDE]
            )
        )
        self._beat(
            ShareGroupHeartbeatRequest(
                group_id=f"share-{WIDE}", member_id="member", member_epoch=-1
            )
        )

    def _beat(self, request: Any) -> None:
        answer = self._broker.ask(request)
        assert answer.error_code == ErrorCode.NONE, answer

    def _commit_offsets(self, group: str, topic: str, partitions: int) -> None:
        parts = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=0)
            for index in range(partitions)
        ]
        topic_id = self._node.metadata.topic_id(topic)
        answer = self._broker.ask(
            OffsetCommitRequest(
                group_id=group,
                topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=parts)],
            )
        )
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE, answer

    def _join_classic(self, group: str) -> None:
        topics = encode_subscription(ConsumerSubscription(topics=[WIDE]))
        joined = self._broker.ask(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=topics)],
            ),
            version=3,
        )
        assert joined.error_code == ErrorCode.NONE, joined
        self._beat(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id=joined.member_id)],
            )
        )

    # --- Producers ---

    def _make_transactions(self) -> None:
        for name in self._names:
            self._begin_transaction(name, name, 1)
        self._begin_transaction(WIDE, WIDE, self._count)

    def _begin_transaction(self, transactional_id: str, topic: str, partitions: int) -> None:
        made = self._broker.ask(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        )
        assert made.error_code == ErrorCode.NONE, made
        added = self._broker.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=made.producer_id,
                v3_and_below_producer_epoch=made.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=list(range(partitions)))
                ],
            ),
            version=3,
        )
        (of_topic,) = added.results_by_topic_v3_and_below
        assert {each.partition_error_code for each in of_topic.results_by_partition} == {0}

    def _make_producers(self) -> None:
        partition = self._node.partition(WIDE, 0)
        assert partition is not None
        for number in range(self._count):
            append(partition.log, make_batch(1, producer_id=1_000_000 + number))
        partition.log.durability.flush()

    def _make_connections(self) -> None:
        for number, name in enumerate(self._names):
            peer = Peer("127.0.0.1", 1_000 + number, "PLAINTEXT", name, client_id=name)
            self._node.connections.opened(peer)
            self._node.connections.first_request(peer)
