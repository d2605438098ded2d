"""The brokers that can be emulated (`odradek.emulate`): one table for each kind of difference.

Every row names its source: a recorded answer, or published text. Behaviour without a source is not
emulated (docs/use/emulation.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from functools import cache

from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.message import Versions

#: The versions in answers to ApiVersions; "-" stands for an API that is not in the answer.
#: Sources by column:
#: kafka-3.9, kafka-4.0: answers of Apache Kafka 3.9.1 and 4.0.1, recorded in
#: tests/oracle/emulation/.
#: redpanda: github.com/redpanda-data/redpanda, tag v24.3.2-rc5, src/v/kafka/server/handlers/*.h.
#: event-hubs: keys 0 to 13 from github.com/oliveigah/klife/issues/13; keys 24 to 44 from
#: github.com/Azure/azure-event-hubs-for-kafka/issues/209, without transactions, ACLs and changes of
#: settings; keys 14 to 23 from issue 69 of the same repository. The sources of three rows differ.
#: ApiVersions is from github.com/twmb/franz-go/pull/1022. SaslHandshake is listed because
#: SaslAuthenticate needs it (KIP-152). InitProducerId, whose version is not published, is listed
#: because the service's FAQ promises idempotent producers.
_VERSIONS = """
                                kafka-3.9  kafka-4.0  redpanda  event-hubs
Produce                         0-11       0-12       0-7       0-7
Fetch                           0-17       4-17       4-11      4-6
ListOffsets                     0-9        1-10       0-4       0-8
Metadata                        0-12       0-13       0-8       0-5
OffsetCommit                    0-9        2-9        1-8       0-8
OffsetFetch                     0-9        1-9        1-7       0-8
FindCoordinator                 0-6        0-6        0-3       0-4
JoinGroup                       0-9        0-9        0-6       0-9
Heartbeat                       0-4        0-4        0-4       0-4
LeaveGroup                      0-5        0-5        0-4       0-5
SyncGroup                       0-5        0-5        0-4       0-1
DescribeGroups                  0-5        0-6        0-5       0-1
ListGroups                      0-5        0-5        0-4       0-1
SaslHandshake                   0-1        0-1        0-1       0-1
ApiVersions                     0-4        0-4        0-3       0-3
CreateTopics                    0-7        2-7        0-6       0-2
DeleteTopics                    0-6        1-6        0-5       0-2
DeleteRecords                   0-2        0-2        0-2       -
InitProducerId                  0-5        0-5        0-3       0
OffsetForLeaderEpoch            0-4        2-4        0-4       0
AddPartitionsToTxn              0-5        0-5        0-3       -
AddOffsetsToTxn                 0-4        0-4        0-1       -
EndTxn                          0-4        0-5        0-3       -
WriteTxnMarkers                 0-1        1          -         -
TxnOffsetCommit                 0-4        0-5        0-3       -
DescribeAcls                    0-3        1-3        0-2       -
CreateAcls                      0-3        1-3        0-2       -
DeleteAcls                      0-3        1-3        0-2       -
DescribeConfigs                 0-4        1-4        0-4       0-2
AlterConfigs                    0-2        0-2        0-2       -
AlterReplicaLogDirs             0-2        1-2        -         -
DescribeLogDirs                 0-4        1-4        0-2       -
SaslAuthenticate                0-2        0-2        0-2       0-1
CreatePartitions                0-3        0-3        0-3       0-1
CreateDelegationToken           0-3        1-3        -         -
RenewDelegationToken            0-2        1-2        -         -
ExpireDelegationToken           0-2        1-2        -         -
DescribeDelegationToken         0-3        1-3        -         -
DeleteGroups                    0-2        0-2        0-2       0
ElectLeaders                    0-2        0-2        -         -
IncrementalAlterConfigs         0-1        0-1        0-1       -
AlterPartitionReassignments     0          0          0         -
ListPartitionReassignments      0          0          0         -
OffsetDelete                    0          0          0         -
DescribeClientQuotas            0-1        0-1        0-1       -
AlterClientQuotas               0-1        0-1        0-1       -
DescribeUserScramCredentials    0          0          -         -
AlterUserScramCredentials       0          0          -         -
DescribeQuorum                  0-2        0-2        -         -
UpdateFeatures                  0-1        0-2        -         -
DescribeCluster                 0-1        0-2        -         -
DescribeProducers               0          0          0         -
UnregisterBroker                0          0          -         -
DescribeTransactions            0          0          0         -
ListTransactions                0-1        0-1        0         -
ConsumerGroupHeartbeat          0          0-1        -         -
ConsumerGroupDescribe           0          0-1        -         -
ListConfigResources             0          0          -         -
DescribeTopicPartitions         0          0          -         -
AddRaftVoter                    0          0          -         -
RemoveRaftVoter                 0          0          -         -
"""


@cache
def _versions_of(name: str) -> dict[ApiKey, Versions]:
    """The column of a broker in the table of versions."""
    head, *rows = _VERSIONS.strip().splitlines()
    column = head.split().index(name)
    keys = {api.name: key for key, api in APIS.items()}
    found = {}
    for row in rows:
        api_name, *columns = row.split()
        if columns[column] != "-":
            found[keys[api_name]] = Versions.parse(columns[column])
    return found


@dataclass(frozen=True)
class Feature:
    """The supported levels of a feature, and its finalized level; a finalized level of 0 means
    none."""

    lowest: int
    highest: int
    finalized: int = 0


class NewerVersions(StrEnum):
    """The answer to an ApiVersions request in a version that the emulated broker does not have."""

    #: An answer in version 0 with only the version range of ApiVersions itself, as in Kafka
    #: (KIP-511).
    RANGE = "range"
    #: An answer in version 0 with all APIs.
    ALL = "all"
    #: The connection is closed.
    CLOSE = "close"


@dataclass(frozen=True)
class TopicRule:
    """A limit of topics. `name`: replication_factor, num_partitions or a setting of topics.

    A value that is not accepted is answered with the error and the text, in which `{}` is the
    value. `source`: the publication of the limit.
    """

    name: str
    accepts: Callable[[int], bool]
    error: ErrorCode
    text: str
    source: str


REPLICATION_FACTOR, NUM_PARTITIONS = "replication_factor", "num_partitions"


@dataclass(frozen=True)
class Profile:
    """An emulated broker.

    `has_versions`: true if `_VERSIONS` has a column for the broker; otherwise the broker has all of
    Kafka's APIs. `unadvertised`: APIs that are answered although ApiVersions does not list them.
    With `separate_updates` UpdateFeatures has a result for each feature, instead of making all
    updates or none. `settings`: the defaults that differ from those of this broker. `topic_rules`:
    limits of topics. `ignored_settings`: settings of topics that are accepted and have no effect.
    `codecs`: the accepted codecs of produced batches; `produce_bytes_max`: a larger Produce closes
    the connection.
    """

    name: str
    title: str
    has_versions: bool = True
    unadvertised: frozenset[ApiKey] = frozenset()
    features: Mapping[str, Feature] = field(default_factory=dict)
    separate_updates: bool = False
    newer_versions: NewerVersions = NewerVersions.RANGE
    settings: Mapping[str, str] = field(default_factory=dict)
    topic_rules: tuple[TopicRule, ...] = ()
    ignored_settings: frozenset[str] = frozenset()
    codecs: frozenset[Codec] = frozenset(Codec)
    produce_bytes_max: int | None = None

    @property
    def versions(self) -> Mapping[ApiKey, Versions] | None:
        """The versions in answers to ApiVersions; None if the answers have all of Kafka's APIs, in
        the versions of this broker."""
        return _versions_of(self.name) if self.has_versions else None


_TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})

_REDPANDA = "github.com/redpanda-data/redpanda, tag v24.3.2-rc5, src/v/"
_EVENT_HUBS = "github.com/MicrosoftDocs/azure-docs, articles/event-hubs/"

_PROFILES = (
    Profile(
        "kafka-3.9",
        "Apache Kafka 3.9.1",
        # Kafka lists the telemetry APIs in ApiVersions only if it has a plugin for metrics of
        # clients, but answers their requests even without a plugin.
        unadvertised=_TELEMETRY,
        features={"kraft.version": Feature(0, 1), "metadata.version": Feature(1, 21, 21)},
        separate_updates=True,
    ),
    Profile(
        "kafka-4.0",
        "Apache Kafka 4.0.1",
        unadvertised=_TELEMETRY,
        features={
            "eligible.leader.replicas.version": Feature(0, 1),
            "group.version": Feature(0, 1, 1),
            "kraft.version": Feature(0, 1),
            "metadata.version": Feature(7, 25, 25),
            "transaction.version": Feature(0, 2, 2),
        },
    ),
    Profile(
        "redpanda",
        "Redpanda 24.3",
        # src/v/kafka/server/handlers/api_versions.cc
        newer_versions=NewerVersions.ALL,
        # src/v/config/configuration.cc: auto_create_topics_enabled, kafka_batch_max_bytes,
        # group_min_session_timeout_ms, group_max_session_timeout_ms
        settings={
            "auto.create.topics.enable": "false",
            "message.max.bytes": "1048576",
            "group.min.session.timeout.ms": "6000",
            "group.max.session.timeout.ms": "300000",
        },
        topic_rules=(
            TopicRule(
                REPLICATION_FACTOR,
                lambda factor: factor % 2 == 1,
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "the replication factor {} is not odd, which Redpanda requires",
                f"{_REDPANDA}kafka/server/handlers/topics/validators.h",
            ),
        ),
        # src/v/kafka/server/handlers/topics/types.h: allowlist_topic_noop_confs
        ignored_settings=frozenset(
            {
                "unclean.leader.election.enable",
                "message.downconversion.enable",
                "segment.index.bytes",
                "segment.jitter.ms",
                "min.insync.replicas",
                "min.compaction.lag.ms",
                "min.cleanable.dirty.ratio",
                "message.timestamp.difference.max.ms",
                "message.format.version",
                "max.compaction.lag.ms",
                "leader.replication.throttled.replicas",
                "index.interval.bytes",
                "follower.replication.throttled.replicas",
                "flush.messages",
                "file.delete.delay.ms",
                "preallocate",
            }
        ),
    ),
    Profile(
        "event-hubs",
        "Azure Event Hubs, standard tier",
        # github.com/twmb/franz-go/pull/1022, github.com/dpkp/kafka-python/issues/2602
        newer_versions=NewerVersions.CLOSE,
        settings={
            # apache-kafka-configurations.md: idle connections, the range of session timeouts
            "connections.max.idle.ms": "240000",
            "group.min.session.timeout.ms": "6000",
            "group.max.session.timeout.ms": "300000",
            # apache-kafka-troubleshooting-guide.md
            "offset.metadata.max.bytes": "1024",
        },
        topic_rules=(
            TopicRule(
                NUM_PARTITIONS,
                lambda count: count <= 32,
                # The limit is published; the error code is not.
                ErrorCode.INVALID_PARTITIONS,
                "{} partitions are more than the 32 of an event hub in the standard tier",
                f"{_EVENT_HUBS}includes/event-hubs-tier-limits.md",
            ),
        ),
        # azure-event-hubs-apache-kafka-overview.md: gzip in the premium and dedicated tiers, none
        # in the standard tier
        codecs=frozenset({Codec.NONE}),
        # apache-kafka-configurations.md: max.request.size
        produce_bytes_max=1_046_528,
    ),
    Profile(
        "confluent-cloud",
        "Confluent Cloud, basic cluster",
        has_versions=False,
        features={
            "group.version": Feature(0, 1, 1),
            "metadata.version": Feature(7, 30, 30),
            "share.version": Feature(0, 1, 1),
            "streams.version": Feature(0, 1, 1),
            "transaction.version": Feature(0, 2, 2),
        },
        settings={
            # riferrei.com/?p=708
            "auto.create.topics.enable": "false",
            # docs.confluent.io/cloud/current/clusters/cluster-types.html: 2 MB for a message, 55 MB
            # for a fetch
            "message.max.bytes": "2097164",
            "fetch.max.bytes": "57671680",
            # A topic of this broker has one replica, whatever replication factor is requested.
            "replication.factor.policy": "accept",
        },
        topic_rules=(
            TopicRule(
                REPLICATION_FACTOR,
                lambda factor: factor == 3,
                ErrorCode.POLICY_VIOLATION,
                "Topic replication factor must be 3",
                "github.com/confluentinc/kafka-tutorials/issues/929",
            ),
            TopicRule(
                "segment.bytes",
                lambda size: size >= 52_428_800,
                ErrorCode.POLICY_VIOLATION,
                "Config property 'segment.bytes' with value '{}' is lower than the minimum allowed"
                " value of 52428800.",
                "github.com/thingsboard/thingsboard/pull/10757",
            ),
            TopicRule(
                "max.message.bytes",
                lambda size: size <= 8_388_608,
                ErrorCode.POLICY_VIOLATION,
                "Config property 'max.message.bytes' with value '{}' exceeded max limit of"
                " 8388608.",
                "github.com/confluentinc/ccloud-tools/issues/5",
            ),
        ),
        # github.com/michelin/ns4kafka/issues/377
        ignored_settings=frozenset({"min.cleanable.dirty.ratio"}),
    ),
)

PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in _PROFILES}
