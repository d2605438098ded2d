"""Requests of every API with values at the borders of their fields: 0, negative and largest
numbers, empty and unknown names, null, empty arrays, repeated entries; some of them pipelined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from tests.oracle.group_steps import group, join_body
from tests.oracle.scenarios.share_state import STATES_TOPIC, initialize_state
from tests.oracle.script import (
    APIS_BY_NAME,
    NO_SUCH_ID,
    THEN_MS,
    Ask,
    Batch,
    Padded,
    Receive,
    Send,
    Step,
    Wait,
    coordinator,
    produced,
    producer,
    topic,
)

from odradek_protocol.message import ArrayOf, FieldSpec, Struct
from odradek_protocol.primitives import WireType

_TOPIC: Mapping[str, Any] = {"name": "@t", "topic": "@t", "topic_name": "@t", "topic_id": "$t"}
_PRODUCER: Mapping[str, Any] = {
    "transactional_id": "@id",
    "producer_id": "$pid",
    "producer_epoch": "$pid_epoch",
}
_MEMBER: Mapping[str, Any] = {"group_id": "@g", "member_id": "@m"}


def _of(*names: str) -> dict[str, Any]:
    """The fields with these names of a topic."""
    return {name: _TOPIC[name] for name in names}


def _in(field: str, partitions: str, *items: Any, name: str = "name") -> dict[str, Any]:
    """A field with two topics, each with these partitions."""
    other = {"name": "@u", "topic": "@u", "topic_name": "@u", "topic_id": "$u"}
    known = ("topic_id",) if "topic_id" in name else (name,)
    named = [{key: each[key] for key in known} for each in (_TOPIC, other)]
    return {field: [{**each, partitions: list(items)} for each in named]}


#: A retention time that no record reaches: the brokers do not look at retention at the same moment.
_LONG_MS = str(1 << 60)
_OFFSET = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
_STATE = {"partition": 0, "state_epoch": 1, "leader_epoch": 0, "start_offset": 0}
_WITH_IDS = ("name", "topic_id")


def _both(field: str, partitions: str, *items: Any, name: str = "name") -> dict[str, Any]:
    """Like `_in`, with the topics' names and ids."""
    others = {"name": "@u", "topic": "@u", "topic_id": "$u"}
    return {
        field: [
            {name: each[name], "topic_id": each["topic_id"], partitions: list(items)}
            for each in (_TOPIC, others)
        ]
    }


#: API -> a valid request.
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "Produce": {
        "acks": -1,
        "timeout_ms": 10_000,
        **_both("topic_data", "partition_data", {"index": 0, "records": Batch(["a"])}),
    },
    "Fetch": {
        "max_wait_ms": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        **_both(
            "topics", "partitions", {"partition": 0, "partition_max_bytes": 9_999}, name="topic"
        ),
    },
    "ListOffsets": {
        "replica_id": -1,
        "timeout_ms": 10_000,
        **_in("topics", "partitions", {"partition_index": 0, "timestamp": -1}),
    },
    "Metadata": {
        "topics": [_of("name"), {"name": "@u"}],
        "allow_auto_topic_creation": False,
    },
    "OffsetCommit": {
        "group_id": "@g",
        "generation_id_or_member_epoch": -1,
        **_both("topics", "partitions", _OFFSET),
    },
    "OffsetFetch": {
        "group_id": "@g",
        **_in("topics", "partition_indexes", 0, 1),
        "groups": [{"group_id": "@g", **_both("topics", "partition_indexes", 0, 1)}],
    },
    "FindCoordinator": {"key": "@g", "key_type": 0, "coordinator_keys": ["@g", "@h"]},
    "Heartbeat": {**_MEMBER, "generation_id": 1},
    "LeaveGroup": {**_MEMBER, "members": [{"member_id": "@m"}]},
    "SyncGroup": {
        **_MEMBER,
        "generation_id": 1,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "@m", "assignment": b"a"}],
    },
    "JoinGroup": {**join_body("@m"), "rebalance_timeout_ms": 100},
    "DescribeGroups": {"groups": ["@g", "@h"]},
    "ListGroups": {"states_filter": ["Empty"], "types_filter": ["classic"]},
    "CreateTopics": {
        "timeout_ms": 10_000,
        "validate_only": True,
        "topics": [
            {
                "name": "@n",
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": [{"name": "retention.ms", "value": _LONG_MS}],
            },
            {
                "name": "@o",
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": [1]}],
            },
        ],
    },
    "DeleteTopics": {
        "timeout_ms": 10_000,
        "topic_names": ["@n", "@o"],
        "topics": [{"name": "@n"}, {"name": None, "topic_id": NO_SUCH_ID}],
    },
    "DeleteRecords": {
        "timeout_ms": 10_000,
        **_in("topics", "partitions", {"partition_index": 0, "offset": 0}),
    },
    "OffsetForLeaderEpoch": {
        "replica_id": -2,
        **_in("topics", "partitions", {"partition": 0, "leader_epoch": 0}, name="topic"),
    },
    "InitProducerId": {"transactional_id": "@id", "transaction_timeout_ms": 60_000},
    "AddPartitionsToTxn": {
        **{f"v3_and_below_{key}": value for key, value in _PRODUCER.items()},
        **_in("v3_and_below_topics", "partitions", 0),
        "transactions": [{**_PRODUCER, "verify_only": True, **_in("topics", "partitions", 0)}],
    },
    "AddOffsetsToTxn": {**_PRODUCER, "group_id": "@g"},
    "EndTxn": {**_PRODUCER, "committed": True},
    "TxnOffsetCommit": {
        **_PRODUCER,
        "group_id": "@g",
        "generation_id": -1,
        **_in("topics", "partitions", _OFFSET),
    },
    "DescribeConfigs": {
        "resources": [
            {"resource_type": 2, "resource_name": "@t", "configuration_keys": ["retention.ms"]},
            {"resource_type": 32, "resource_name": "@g", "configuration_keys": []},
        ]
    },
    "AlterConfigs": {
        "validate_only": True,
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "@t",
                "configs": [{"name": "retention.ms", "value": _LONG_MS}],
            }
        ],
    },
    "IncrementalAlterConfigs": {
        "validate_only": True,
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [
                    {"name": key, "config_operation": operation, "value": value}
                    for key, operation, value in changes
                ],
            }
            for kind, name, changes in (
                (2, "@t", [("retention.ms", 0, _LONG_MS), ("cleanup.policy", 2, "compact")]),
                (32, "@g", [("consumer.session.timeout.ms", 0, "50000")]),
                (16, "@s", [("interval.ms", 0, "100")]),
            )
        ],
    },
    "CreatePartitions": {
        "timeout_ms": 10_000,
        "validate_only": True,
        "topics": [
            {"name": "@t", "count": 3, "assignments": None},
            {"name": "@u", "count": 2, "assignments": [{"broker_ids": [1]}]},
        ],
    },
    "DeleteGroups": {"groups_names": ["@h", "@i"]},
    "OffsetDelete": {"group_id": "@g", **_in("topics", "partitions", {"partition_index": 1})},
    "DescribeLogDirs": _in("topics", "partitions", 0, 1, name="topic"),
    "ElectLeaders": {
        "timeout_ms": 10_000,
        **_in("topic_partitions", "partitions", 0, name="topic"),
    },
    "AlterPartitionReassignments": {
        "timeout_ms": 10_000,
        **_in("topics", "partitions", {"partition_index": 0, "replicas": [1]}),
    },
    "ListPartitionReassignments": {
        "timeout_ms": 10_000,
        **_in("topics", "partition_indexes", 0, 1),
    },
    "DescribeQuorum": _in("topics", "partitions", {"partition_index": 0}, name="topic_name"),
    "DescribeCluster": {"endpoint_type": 1},
    "DescribeProducers": _in("topics", "partition_indexes", 0, 1),
    "DescribeTransactions": {"transactional_ids": ["@id", "@none"]},
    "ListTransactions": {"state_filters": [], "producer_id_filters": ["$pid"]},
    "DescribeTopicPartitions": {
        "topics": [_of("name"), {"name": "@u"}],
        "response_partition_limit": 5,
        "cursor": {"topic_name": "@t", "partition_index": 0},
    },
    "ListConfigResources": {"resource_types": [16, 2]},
    "ConsumerGroupHeartbeat": {
        "group_id": "@c",
        "member_id": "@m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["@u"],
        "topic_partitions": [],
    },
    "ConsumerGroupDescribe": {"group_ids": ["@c", "@g"]},
    "ShareGroupHeartbeat": {
        "group_id": "@s",
        "member_id": "@m",
        "member_epoch": 0,
        "subscribed_topic_names": ["@none"],
    },
    "ShareGroupDescribe": {"group_ids": ["@s", "@g"]},
    "ShareFetch": {
        "group_id": "@s",
        "member_id": "m",
        "max_wait_ms": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 10,
        "batch_size": 10,
        **_in("topics", "partitions", {"partition_index": 0}, name="topic_id"),
    },
    "ShareAcknowledge": {
        "group_id": "@s",
        "member_id": "m",
        "share_session_epoch": 1,
        **_in(
            "topics",
            "partitions",
            {
                "partition_index": 0,
                "acknowledgement_batches": [
                    {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
                ],
            },
            name="topic_id",
        ),
    },
    "InitializeShareGroupState": {
        "group_id": "@s",
        **_in("topics", "partitions", dict(list(_STATE.items())[:2]), name="topic_id"),
    },
    "ReadShareGroupState": {
        "group_id": "@s",
        **_in("topics", "partitions", {"partition": 0, "leader_epoch": 0}, name="topic_id"),
    },
    "ReadShareGroupStateSummary": {
        "group_id": "@s",
        **_in("topics", "partitions", {"partition": 0, "leader_epoch": 0}, name="topic_id"),
    },
    "WriteShareGroupState": {
        "group_id": "@s",
        **_in("topics", "partitions", _STATE, name="topic_id"),
    },
    "DeleteShareGroupState": {
        "group_id": "@s",
        **_in("topics", "partitions", {"partition": 0}, name="topic_id"),
    },
    "StreamsGroupHeartbeat": {
        "group_id": "@st",
        "member_id": "@m",
        "rebalance_timeout_ms": 60_000,
        "topology": {
            "epoch": 0,
            "subtopologies": [{"subtopology_id": "s", "source_topics": ["@u"]}],
        },
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "p",
    },
    "StreamsGroupDescribe": {"group_ids": ["@st", "@g"]},
    "DescribeShareGroupOffsets": {
        "groups": [{"group_id": "@s", **_in("topics", "partitions", 0, name="topic_name")}]
    },
    "AlterShareGroupOffsets": {
        "group_id": "@sa",
        **_in("topics", "partitions", {"partition_index": 0, "start_offset": 0}, name="topic_name"),
    },
    "DeleteShareGroupOffsets": {"group_id": "@sa", "topics": [{"topic_name": "@t"}]},
    "AlterClientQuotas": {
        "validate_only": True,
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": "@u"}],
                "ops": [{"key": "producer_byte_rate", "value": 1.0}],
            }
        ],
    },
    "DescribeClientQuotas": {
        "components": [{"entity_type": "user", "match_type": 0, "match": "@u"}]
    },
    "DescribeUserScramCredentials": {"users": [{"name": "@u"}, {"name": "@v"}]},
    "AlterUserScramCredentials": {"deletions": [{"name": "@u", "mechanism": 1}]},
    "AlterReplicaLogDirs": {
        "dirs": [{"path": "/none", "topics": [{"name": "@t", "partitions": [0]}]}]
    },
    "WriteTxnMarkers": {
        "markers": [
            {
                "producer_id": "$pid",
                "producer_epoch": "$pid_epoch",
                "transaction_result": True,
                **_in("topics", "partition_indexes", 0),
            }
        ]
    },
    "DescribeAcls": {
        "resource_type_filter": 2,
        "resource_name_filter": "@t",
        "pattern_type_filter": 3,
        "operation": 1,
        "permission_type": 1,
    },
    "DescribeDelegationToken": {"owners": [{"principal_type": "User", "principal_name": "@u"}]},
    "AddRaftVoter": {"cluster_id": "another", "timeout_ms": 1_000, "voter_id": 3},
    "RemoveRaftVoter": {"cluster_id": "another", "voter_id": 3},
}
_MINE = frozenset({"ListGroups", "Metadata", "DescribeLogDirs", "ListTransactions"})
_MINE |= {"ListConfigResources", "ElectLeaders", "DescribeTopicPartitions"}
_IGNORED: Mapping[str, Sequence[str]] = {
    "CreateTopics": ("topics.*.configs",),
    "DescribeConfigs": ("results.*.configs.*.documentation",),
    "DescribeLogDirs": ("results.*.log_dir", "results.*.total_bytes", "results.*.usable_bytes"),
    "DescribeTransactions": ("transaction_states.*.transaction_start_time_ms",),
    "DescribeProducers": ("topics.*.partitions.*.active_producers.*.last_timestamp",),
    "DescribeCluster": ("controller_id",),
}
_NEWEST = {"InitProducerId": 5}
#: APIs whose answers have a repeated name once here, and in Kafka as often as it is asked for.
_ONCE = frozenset(
    {
        *("DescribeGroups", "DescribeTransactions", "DescribeConfigs", "DescribeProducers"),
        *("ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe", "OffsetFetch"),
    }
)
#: Requests in which no entry is repeated: Kafka does not answer them, or answers
#: UNKNOWN_SERVER_ERROR, or its brokers never send them.
_NOT_REPEATED = (
    *(f"{api}." for api in sorted(_ONCE)),
    *(
        "AddPartitionsToTxn.transactions",
        "AlterConfigs.",
        "WriteTxnMarkers.",
        "ShareFetch.",
    ),
    *("DescribeShareGroupOffsets.groups.topics.partitions", "AlterClientQuotas.entries"),
)
_WIDTH = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
#: API -> the first version of random requests. Metadata creates topics before version 4.
_FROM = {"Produce": 3, "Metadata": 4}
#: Fields that stay as they are: topics are not created by Metadata, and ElectLeaders and
#: AlterPartitionReassignments ignore their timeouts.
_KEPT = frozenset(
    {
        *("Metadata.allow_auto_topic_creation", "ElectLeaders.timeout_ms"),
        *("AlterPartitionReassignments.timeout_ms", "DescribeClientQuotas.components"),
        *("ConsumerGroupHeartbeat.subscribed_topic_regex", "Metadata.topics.name"),
        *("Produce.topic_data.partition_data.records", "ConsumerGroupHeartbeat.instance_id"),
        *("EndTxn.producer_id", "EndTxn.producer_epoch", "DescribeTopicPartitions.topics.name"),
        *("ShareFetch.topics.topic_id", "ShareAcknowledge.topics.topic_id"),
        "DescribeShareGroupOffsets.groups.group_id",
    }
)
#: Arrays that are not empty: Kafka does not answer, or the answer has all topics.
_NEVER_EMPTY = frozenset(
    {
        *("AddPartitionsToTxn.transactions", "DescribeTopicPartitions.topics"),
        "DescribeShareGroupOffsets.groups.topics.partitions",
    }
)
#: Field -> its values, without those that have other answers on purpose.
_NUMBERS: Mapping[str, Sequence[int]] = {
    "Produce.acks": (-2, -1, 1, 2),
    "Fetch.max_bytes": (0, 1, 2, (1 << 31) - 1),
    "Fetch.topics.partitions.partition_max_bytes": (0, 1, 2, (1 << 31) - 1),
    "Fetch.session_id": (-1, 0, 1, 2),
    "IncrementalAlterConfigs.resources.configs.config_operation": (0, 1, 2, 3),
    "DescribeTopicPartitions.cursor.partition_index": (-2, -1, 0, 1, 2),
    "AlterShareGroupOffsets.topics.partitions.partition_index": (0, 1, 2, 3),
    "DescribeShareGroupOffsets.groups.topics.partitions": (0,),
    "OffsetDelete.topics.partitions.partition_index": (-2, -1, 1, 2, 3),
    "StreamsGroupHeartbeat.topology.epoch": (0, 1, 2, (1 << 31) - 1),
    "WriteTxnMarkers.markers.producer_id": (1 << 40,),
    "WriteTxnMarkers.markers.producer_epoch": (0, 1, (1 << 15) - 1),
    "CreatePartitions.topics.count": (-2, -1, 0, 1, 2, 3, 10_000),
    "WriteTxnMarkers.markers.transaction_version": (0, 1, 2),
    "ShareFetch.share_acquire_mode": (0, 1),
    "ShareFetch.max_bytes": (0, 1, (1 << 31) - 1),
    "ShareFetch.max_wait_ms": (100, 300),
    "ShareFetch.batch_size": (1, 2, (1 << 31) - 1),
}
#: Fields that say how long an answer may take, or where time passes.
_WAITS = frozenset({"max_wait_ms", "session_timeout_ms", "rebalance_timeout_ms"})


def _start() -> list[Step]:
    committed = {
        "group_id": "@g",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": "@t", "partitions": [_OFFSET]}],
    }
    return [
        *topic(partitions=2),
        *topic("@u"),
        produced(Batch(["a", "b"])),
        produced(Batch(["c"], timestamp_ms=THEN_MS + 100)),
        *group(),
        *group("@h"),
        *group("@c"),
        Ask("OffsetCommit", committed, version=8, quiet=True),
        *producer(),
        coordinator("@s"),
        STATES_TOPIC,
        initialize_state(quiet=True),
        # The coordinators of share groups learn of topics later.
        Wait(300),
    ]


def borders(random: Random) -> list[Step]:
    """Requests of three APIs, each request with one or two fields at a border."""
    apis = random.sample(list(REQUESTS), k=3)
    steps = _start()
    for _ in range(10):
        if random.random() < 0.3:
            asks = [_request(random, random.choice(apis)) for _ in range(2)]
            steps += [*map(Send, asks), *(Receive() for _ in asks)]
        else:
            steps.append(_request(random, random.choice(apis)))
    return steps


def _request(random: Random, name: str) -> Ask:
    api = APIS_BY_NAME[name]
    last = _NEWEST.get(name, api.versions.last)
    version = last if random.random() < 0.5 else random.randint(api.versions.first, last)
    if name in _FROM:
        version = max(version, _FROM[name])
    body: Mapping[str, Any] = REQUESTS[name]
    for _ in range(random.choice([1, 1, 2])):
        body = _changed(random, api.request, body, version, name)
    mine = name in _MINE
    return Ask(name, body, version=version, mine=mine, ignore=_IGNORED.get(name, ()))


def _changed(
    random: Random, cls: type[Struct], body: Mapping[str, Any], version: int, path: str
) -> Mapping[str, Any]:
    """The body with one field at a border, maybe in an element of an array."""
    fields = [
        spec
        for spec in cls.fields
        if version in spec.versions and f"{path}.{spec.name}" not in _KEPT
    ]
    if not fields:
        return body
    spec = random.choice(fields)
    value = body.get(spec.name, spec.fresh_default())
    inner = spec.type.element if isinstance(spec.type, ArrayOf) else spec.type
    if isinstance(value, Struct):
        return body
    if not isinstance(inner, WireType) and value and random.random() < 0.75:
        if not isinstance(spec.type, ArrayOf):
            return {
                **body,
                spec.name: _changed(random, inner, value, version, f"{path}.{spec.name}"),
            }
        items = list(value)
        at = random.randrange(len(items))
        items[at] = _changed(random, inner, items[at], version, f"{path}.{spec.name}")
        return {**body, spec.name: items}
    return {**body, spec.name: _border(random, spec, value, version, f"{path}.{spec.name}")}


def _border(random: Random, spec: FieldSpec, value: Any, version: int, path: str) -> Any:
    nullable = version in spec.nullable
    if isinstance(spec.type, ArrayOf):
        choices: list[Any] = [] if path in _NEVER_EMPTY else [[]]
        if value and not path.startswith(_NOT_REPEATED):
            choices += [[*value, random.choice(value)], [*value, *value], value[:1]]
        if isinstance(spec.type.element, WireType):
            one = _primitive(random, spec.type.element.name, path)
            choices += [[one]] if one in (value or []) else [[one], [*(value or []), one]]
        if nullable:
            choices.append(None)
        return random.choice(choices) if choices else value
    if not isinstance(spec.type, WireType):
        return None if nullable else value
    if nullable and random.random() < 0.3:
        return None
    return _primitive(random, spec.type.name, path)


def _primitive(random: Random, kind: str, path: str) -> Any:
    if kind in _WIDTH:
        most = (1 << (_WIDTH[kind] - 1)) - 1
        numbers = [-2, -1, 0, 1, 2, 3, most, -most - 1]
        if path.endswith(".timeout_ms"):
            numbers = [-2, -1, -most - 1, 10_000, most]
        if path.rpartition(".")[2] in _WAITS:
            numbers = [-2, -1, 0, 1, 100]
        if path in _NUMBERS:
            numbers = list(_NUMBERS[path])
        return random.choice(numbers)
    if kind == "string":
        names = ["", "@none", "@g", "@a b", "@.", Padded("@p", 250)]
        return random.choice(names if path.partition(".")[0] in _ONCE else [*names, "@t"])
    if kind == "bool":
        return random.random() < 0.5
    if kind == "uuid":
        return random.choice([bytes(16), NO_SUCH_ID, "$t", bytes(15) + b"\1"])
    if kind == "records":
        return random.choice([Batch(["b"], timestamp_ms=-1), Batch(["b"], producer_id=0)])
    if kind == "float64":
        return random.choice([0.0, -1.0, 1e300])
    if kind == "uint16":
        return random.choice([0, 1, 65_535])
    return random.choice([b"", b"\0", b"abc"])
