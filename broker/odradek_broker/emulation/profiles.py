"""The brokers that can be emulated (`odradek.emulate`): one table for each kind of difference.

Every row names its source: an answer that was recorded, or published text. What no source says is
not emulated (docs/use/emulation.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from functools import cache

from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.message import Versions

#: The versions in answers to ApiVersions; - for an API that the answer does not have.
#: Sources by column:
#: kafka-3.9, kafka-4.0: answers of Apache Kafka 3.9.1 and 4.0.1, recorded in
#: tests/oracle/emulation/.
#: redpanda: github.com/redpanda-data/redpanda, tag v24.3.2-rc5, src/v/kafka/server/handlers/*.h.
#: event-hubs: keys 0 to 13 of github.com/oliveigah/klife/issues/13; keys 24 to 44 of
#: github.com/Azure/azure-event-hubs-for-kafka/issues/209, which has no transactions, ACLs and
#: changes of settings; keys 14 to 23 of issue 69 there, but ApiVersions of
#: github.com/twmb/franz-go/pull/1022, SaslHandshake as SaslAuthenticate needs it (KIP-152), and
#: InitProducerId as the service's FAQ has idempotent producers (its version is not published).
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
    """The supported levels of a feature, and the finalized one; 0 for none."""

    lowest: int
    highest: int
    finalized: int = 0


class NewerVersions(StrEnum):
    """The answer to ApiVersions in a newer version than the broker has."""

    #: In version 0, with the range of ApiVersions alone, as Kafka (KIP-511).
    RANGE = "range"
    #: In version 0, with all APIs.
    ALL = "all"
    #: The connection is closed.
    CLOSE = "close"


@dataclass(frozen=True)
class Profile:
    """An emulated broker.

    `has_versions`: the table of versions has a column for it; otherwise it has all of Kafka's APIs.
    `unadvertised`: APIs that are answered though ApiVersions does not have them. With
    `separate_updates` UpdateFeatures has a result for each feature, and is not all or none.
    `settings`: the broker's defaults, where they are not ours.
    """

    name: str
    title: str
    has_versions: bool = True
    unadvertised: frozenset[ApiKey] = frozenset()
    features: Mapping[str, Feature] = field(default_factory=dict)
    separate_updates: bool = False
    newer_versions: NewerVersions = NewerVersions.RANGE
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def versions(self) -> Mapping[ApiKey, Versions] | None:
        """The versions that ApiVersions names; None for all of Kafka's APIs in ours."""
        return _versions_of(self.name) if self.has_versions else None


_TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})

_PROFILES = (
    Profile(
        "kafka-3.9",
        "Apache Kafka 3.9.1",
        # ApiVersions has them only with a plugin, and requests are answered without one.
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
)

PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in _PROFILES}
