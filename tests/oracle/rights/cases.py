"""Every API that is served, with the rights that Kafka asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.oracle.group_steps import group, join_body
from tests.oracle.rights.cells import (
    USER,
    Case,
    Right,
    cluster_right,
    group_right,
    id_right,
    topic_right,
)
from tests.oracle.script import (
    NO_SUCH_ID,
    Ask,
    Batch,
    Step,
    Wait,
    coordinator,
    fetch_body,
    produce_body,
    produced,
    producer,
    topic,
)

from odradek_protocol.acls import PatternType

_TOPIC, _BROKER, _METRICS, _GROUP = 2, 4, 16, 32
#: What a cluster says of itself.
_CLUSTER = ("brokers", "cluster_id", "controller_id")
_READY: list[Step] = [*topic(), produced(Batch(["a", "b"]))]


def _new(*names: str) -> dict[str, Any]:
    return {
        "timeout_ms": 10_000,
        "topics": [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names],
    }


def _log_ends(name: str = "@t") -> Ask:
    partition = {"partition_index": 0, "timestamp": -1}
    topics = [{"name": name, "partitions": [partition]}]
    return Ask("ListOffsets", {"replica_id": -1, "topics": topics}, version=6)


def _exist(*names: str) -> Ask:
    """Which of these topics there are."""
    body = {**_new(*names), "validate_only": True}
    return Ask("CreateTopics", body, version=5, ignore=("topics.*.configs",))


# --- Producing ------------------------------------------------------------------------------------

_WRITTEN = Batch(
    producer_id="$pid", producer_epoch="$pid_epoch", base_sequence=0, transactional=True
)


def _to_write(name: str, prefixed: bool = False, deny: bool = False, **more: Any) -> Right:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return replace(topic_right("WRITE", name), pattern=pattern, deny=deny, **more)


#: What is asked without a topic: may it write to any?
_SOME_TOPIC = {
    "prefix": [_to_write("@a", prefixed=True)],
    "denied-by-name": [_to_write("@a"), _to_write("@a", deny=True)],
    "denied-by-prefix": [_to_write("@ab"), _to_write("@a", prefixed=True, deny=True)],
    "prefix-denied-by-prefix": [
        _to_write("@ab", prefixed=True),
        _to_write("@a", prefixed=True, deny=True),
    ],
    "prefix-with-a-hole": [
        _to_write("@a", prefixed=True),
        _to_write("@ab", prefixed=True, deny=True),
    ],
    "prefix-and-the-same-name-denied": [
        _to_write("@a", prefixed=True),
        _to_write("@a", deny=True),
    ],
    "all-denied": [_to_write("@a"), _to_write("*", deny=True)],
    "all-but-one": [_to_write("*"), _to_write("@a", deny=True)],
    "from-elsewhere": [_to_write("@a", host="192.0.2.1")],
    "hardcode-denied": [_to_write("@a"), _to_write("hardcode", deny=True)],
}
_PRODUCE = [
    Case(
        "produce",
        "Produce",
        produce_body(Batch(["c"])),
        [topic_right("WRITE")],
        before=_READY,
        after=[_log_ends()],
        versions="3-13",
        extra={"only-reads": [topic_right("READ")], "may-all": [topic_right("ALL")]},
    ),
    Case(
        "produce-to-no-topic",
        "Produce",
        produce_body(Batch(["c"]), "@absent", topic_id=NO_SUCH_ID),
        [topic_right("WRITE", "@absent")],
        versions="3-13",
    ),
    Case(
        "produce-in-a-transaction",
        "Produce",
        produce_body(_WRITTEN, transactional_id="@id"),
        [id_right("WRITE"), topic_right("WRITE")],
        before=[*_READY, *producer()],
        after=[_log_ends()],
        versions="12-13",
    ),
    *(
        Case(
            f"init-producer-id-{name}",
            "InitProducerId",
            {"transactional_id": None, "transaction_timeout_ms": 60_000},
            [],
            versions="5-5",
            extra={"asks": rights},
            only=["asks"],
        )
        for name, rights in _SOME_TOPIC.items()
    ),
    Case(
        "init-producer-id",
        "InitProducerId",
        {"transactional_id": None, "transaction_timeout_ms": 60_000},
        [cluster_right("IDEMPOTENT_WRITE")],
        versions="0-5",
        extra={
            "writes-some-topic": [topic_right("WRITE", "@any")],
            "reads-some-topic": [topic_right("READ", "@any")],
        },
    ),
    Case(
        "init-transactional-id",
        "InitProducerId",
        {"transactional_id": "@id", "transaction_timeout_ms": 60_000},
        [id_right("WRITE")],
        before=[coordinator("@id", 1)],
        after=[Ask("DescribeTransactions", {"transactional_ids": ["@id"]})],
        versions="0-5",
        extra={"describes": [id_right("DESCRIBE")]},
    ),
]


# --- Transactions ---------------------------------------------------------------------------------

_PRODUCER = {
    "transactional_id": "@id",
    "producer_id": "$pid",
    "producer_epoch": "$pid_epoch",
}
_TRANSACTION_STATE = Ask(
    "DescribeTransactions",
    {"transactional_ids": ["@id"]},
    ignore=("transaction_states.0.transaction_start_time_ms",),
    either={"transaction_states.0.transaction_state": ("PrepareAbort", "CompleteAbort")},
)


def _added(version: int | None = None, **more: Any) -> Ask:
    topics = [{"name": "@t", "partitions": [0]}]
    return Ask("AddPartitionsToTxn", _add_body(topics), version=version, **more)


def _add_body(topics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": "@id",
        "v3_and_below_producer_id": "$pid",
        "v3_and_below_producer_epoch": "$pid_epoch",
        "v3_and_below_topics": topics,
        "transactions": [{**_PRODUCER, "verify_only": False, "topics": topics}],
    }


_TWO_TOPICS = [{"name": name, "partitions": [0]} for name in ("@t", "@u")]
_TRANSACTIONS = [
    Case(
        "add-partitions",
        "AddPartitionsToTxn",
        _add_body(_TWO_TOPICS),
        [id_right("WRITE"), topic_right("WRITE"), topic_right("WRITE", "@u")],
        before=[*topic(), *topic("@u"), *producer()],
        after=[_TRANSACTION_STATE],
        versions="0-3",
    ),
    Case(
        "add-partitions-as-a-broker",
        "AddPartitionsToTxn",
        _add_body(_TWO_TOPICS),
        [cluster_right("CLUSTER_ACTION")],
        before=[*topic(), *topic("@u"), *producer()],
        after=[_TRANSACTION_STATE],
        versions="4-5",
    ),
    Case(
        "add-offsets",
        "AddOffsetsToTxn",
        {**_PRODUCER, "group_id": "@g"},
        [id_right("WRITE"), group_right("READ")],
        before=[*group(), *producer()],
        after=[_TRANSACTION_STATE],
    ),
    Case(
        "end-transaction",
        "EndTxn",
        {**_PRODUCER, "committed": False},
        [id_right("WRITE")],
        before=[*_READY, *producer(), _added(3, quiet=True)],
        # Markers are on their way, or have arrived.
        after=[
            replace(
                _TRANSACTION_STATE,
                ignore=(*_TRANSACTION_STATE.ignore, "transaction_states.0.topics"),
            )
        ],
        versions="0-4",
    ),
    Case(
        "commit-offsets-in-a-transaction",
        "TxnOffsetCommit",
        {
            **_PRODUCER,
            "group_id": "@g",
            "generation_id": -1,
            "topics": [
                {
                    "name": name,
                    "partitions": [{"partition_index": 0, "committed_offset": 1}],
                }
                for name in ("@t", "@absent")
            ],
        },
        [id_right("WRITE"), group_right("READ"), topic_right("READ")],
        before=[
            *topic(),
            *group(),
            *producer(),
            Ask("AddOffsetsToTxn", {**_PRODUCER, "group_id": "@g"}, version=3, quiet=True),
        ],
        versions="0-4",
    ),
    Case(
        "write-markers",
        "WriteTxnMarkers",
        {
            "markers": [
                {
                    "producer_id": "$pid",
                    "producer_epoch": "$pid_epoch",
                    "transaction_result": False,
                    "coordinator_epoch": 0,
                    "topics": [{"name": "@t", "partition_indexes": [0]}],
                }
            ]
        },
        [cluster_right("CLUSTER_ACTION")],
        before=[*topic(), *producer(), _added(3, quiet=True)],
        extra={"alters-the-cluster": [cluster_right("ALTER")]},
    ),
    Case(
        "describe-producers",
        "DescribeProducers",
        {
            "topics": [
                {"name": name, "partition_indexes": [0]} for name in ("@t", "@hidden", "@absent")
            ]
        },
        [topic_right("READ")],
        before=[*topic(), *topic("@hidden")],
        extra={"describes": [topic_right("DESCRIBE")]},
    ),
    Case(
        "describe-transactions",
        "DescribeTransactions",
        {"transactional_ids": ["@id", "@absent"]},
        [id_right("DESCRIBE"), topic_right("DESCRIBE")],
        before=[*topic(), *producer(), _added(3, quiet=True)],
        ignore=("transaction_states.*.transaction_start_time_ms",),
    ),
    Case(
        "list-transactions",
        "ListTransactions",
        {},
        [id_right("DESCRIBE")],
        before=producer(),
        mine=True,
    ),
]


# --- Reading --------------------------------------------------------------------------------------


def _fetch_of(*names: str) -> dict[str, Any]:
    body = fetch_body()
    (one,) = body["topics"]
    ids = {"@t": "$t", "@hidden": "$hidden"}
    body["topics"] = [
        {**one, "topic": name, "topic_id": ids.get(name, NO_SUCH_ID)} for name in names
    ]
    return body


_LISTED = {
    "replica_id": -1,
    "topics": [
        {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}
        for name in ("@t", "@hidden", "@absent")
    ],
}
_PREFIXED = PatternType.PREFIXED
_PATTERNS = {
    "prefix": [replace(topic_right("DESCRIBE", "@ab"), pattern=_PREFIXED)],
    "all": [topic_right("READ", "*")],
    "all-but-a-prefix": [
        topic_right("READ", "*"),
        replace(topic_right("DESCRIBE", "@ab"), pattern=_PREFIXED, deny=True),
    ],
    "prefix-but-one": [
        replace(topic_right("ALL", "@a"), pattern=_PREFIXED),
        replace(topic_right("ALL", "@ab"), deny=True),
    ],
    "denied-read-implies-nothing": [
        topic_right("WRITE", "@a"),
        replace(topic_right("READ", "@a"), deny=True),
    ],
    "prefixed-asterisk": [replace(topic_right("READ", "*"), pattern=_PREFIXED)],
    "from-here": [replace(topic_right("READ", "@a"), host="127.0.0.1")],
    "from-elsewhere": [
        replace(topic_right("READ", "@a"), host="192.0.2.1"),
        topic_right("READ", "@b"),
        replace(topic_right("READ", "@b"), host="192.0.2.1", deny=True),
    ],
    "everybody": [
        replace(topic_right("READ", "@a"), principal="User:*"),
        replace(topic_right("READ", "@b"), principal="Group:*"),
    ],
    "nobody-denied": [
        topic_right("READ", "@a"),
        replace(topic_right("READ", "@a"), principal="User:*", deny=True),
    ],
}
_READING = [
    Case(
        "fetch",
        "Fetch",
        _fetch_of("@t", "@hidden", "@absent"),
        [topic_right("READ")],
        before=[*_READY, *topic("@hidden")],
        extra={"describes": [topic_right("DESCRIBE")]},
    ),
    Case(
        "list-offsets",
        "ListOffsets",
        _LISTED,
        [topic_right("DESCRIBE")],
        before=[*_READY, *topic("@hidden")],
        extra={"reads": [topic_right("READ")], "creates": [topic_right("CREATE")]},
        versions="1-10",
    ),
    Case(
        "patterns",
        "ListOffsets",
        {
            "replica_id": -1,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}
                for name in ("@a", "@ab", "@abc", "@b")
            ],
        },
        [],
        before=[step for name in ("@a", "@ab", "@abc", "@b") for step in topic(name)],
        versions="10-10",
        extra=_PATTERNS,
        only=list(_PATTERNS),
    ),
    Case(
        "offset-for-leader-epoch",
        "OffsetForLeaderEpoch",
        {
            "replica_id": -1,
            "topics": [
                {
                    "topic": name,
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
                for name in ("@t", "@hidden", "@absent")
            ],
        },
        [topic_right("DESCRIBE")],
        before=[*_READY, *topic("@hidden")],
    ),
    Case(
        "metadata",
        "Metadata",
        {
            "topics": [{"name": name} for name in ("@t", "@hidden", "@absent")],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        },
        [topic_right("DESCRIBE")],
        before=[*topic(), *topic("@hidden")],
        ignore=_CLUSTER,
        extra={
            "writes": [topic_right("WRITE")],
            "alters-the-cluster": [cluster_right("ALTER"), topic_right("ALTER_CONFIGS")],
            "describes-configs": [topic_right("DESCRIBE_CONFIGS")],
            "describes-what-is-not-there": [topic_right("DESCRIBE", "@absent")],
        },
    ),
    Case(
        "metadata-of-all",
        "Metadata",
        {"topics": None},
        [topic_right("DESCRIBE")],
        before=[*topic(), *topic("@hidden")],
        ignore=_CLUSTER,
        mine=True,
        versions="1-13",
    ),
    Case(
        "metadata-by-id",
        "Metadata",
        {"topics": [{"name": None, "topic_id": each} for each in ("$t", "$hidden", NO_SUCH_ID)]},
        [topic_right("DESCRIBE")],
        before=[*topic(), *topic("@hidden")],
        ignore=_CLUSTER,
        versions="12-13",
    ),
    Case(
        "metadata-that-creates",
        "Metadata",
        {"topics": [{"name": "@new"}], "allow_auto_topic_creation": True},
        [topic_right("DESCRIBE", "@new"), topic_right("CREATE", "@new")],
        ignore=(*_CLUSTER, "topics.0.partitions", "topics.0.topic_id", "topics.0.error_code"),
        after=[_exist("@new")],
        versions="4-4",
        extra={"creates-any": [topic_right("DESCRIBE", "@new"), cluster_right("CREATE")]},
    ),
]


# --- Groups ---------------------------------------------------------------------------------------


def _offsets_of(*names: str) -> list[dict[str, Any]]:
    ids = {"@t": "$t", "@hidden": "$hidden"}
    return [
        {
            "name": name,
            "topic_id": ids.get(name, NO_SUCH_ID),
            "partitions": [{"partition_index": 0, "committed_offset": 1}],
        }
        for name in names
    ]


def _positions_of(*names: str) -> list[dict[str, Any]]:
    return [
        {"name": each["name"], "topic_id": each["topic_id"], "partition_indexes": [0]}
        for each in _offsets_of(*names)
    ]


_COMMITTED = Ask(
    "OffsetCommit",
    {"group_id": "@g", "topics": _offsets_of("@t", "@hidden")},
    version=8,
    quiet=True,
)
_ALL_OFFSETS = Ask("OffsetFetch", {"groups": [{"group_id": "@g", "topics": None}]}, version=8)
_WITH_GROUP: list[Step] = [*topic(), *topic("@hidden"), *group()]
_MEMBER = {"group_id": "@g", "generation_id": 1, "member_id": "no-such-member"}
_STATE = Ask("DescribeGroups", {"groups": ["@g"]}, version=6)
_GROUPS = [
    Case(
        "find-group",
        "FindCoordinator",
        {"key": "@g", "key_type": 0, "coordinator_keys": ["@g", "@h"]},
        [group_right("DESCRIBE")],
        before=[coordinator("@g")],
        extra={"reads": [group_right("READ")]},
        versions="0-6",
    ),
    Case(
        "find-transactional-id",
        "FindCoordinator",
        {"key": "@id", "key_type": 1, "coordinator_keys": ["@id", "@other"]},
        [id_right("DESCRIBE")],
        before=[coordinator("@id", 1)],
        versions="1-6",
    ),
    Case(
        "join",
        "JoinGroup",
        join_body("no-such-member"),
        [group_right("READ")],
        before=group(),
        extra={"describes": [group_right("DESCRIBE")]},
    ),
    Case(
        "sync",
        "SyncGroup",
        {**_MEMBER, "protocol_type": "consumer", "protocol_name": "range"},
        [group_right("READ")],
        before=group(),
    ),
    Case("heartbeat", "Heartbeat", _MEMBER, [group_right("READ")], before=group()),
    Case(
        "leave",
        "LeaveGroup",
        {"group_id": "@g", "member_id": "x", "members": [{"member_id": "x"}]},
        [group_right("READ")],
        before=group(),
    ),
    Case(
        "commit",
        "OffsetCommit",
        {"group_id": "@g", "topics": _offsets_of("@t", "@hidden", "@absent")},
        [group_right("READ"), topic_right("READ")],
        before=_WITH_GROUP,
        after=[_ALL_OFFSETS],
    ),
    Case(
        "fetch-offsets",
        "OffsetFetch",
        {
            "group_id": "@g",
            "topics": [
                {"name": name, "partition_indexes": [0]} for name in ("@t", "@hidden", "@absent")
            ],
            "groups": [
                {"group_id": name, "topics": _positions_of("@t", "@hidden", "@absent")}
                for name in ("@g", "@other")
            ],
        },
        [group_right("DESCRIBE"), topic_right("DESCRIBE")],
        before=[*_WITH_GROUP, _COMMITTED],
        extra={"reads": [group_right("READ"), topic_right("READ")]},
    ),
    Case(
        "fetch-all-offsets",
        "OffsetFetch",
        {"group_id": "@g", "topics": None, "groups": [{"group_id": "@g", "topics": None}]},
        [group_right("DESCRIBE"), topic_right("DESCRIBE")],
        before=[*_WITH_GROUP, _COMMITTED],
        versions="2-10",
    ),
    Case(
        "describe-groups",
        "DescribeGroups",
        {"groups": ["@g", "@other"], "include_authorized_operations": True},
        [group_right("DESCRIBE")],
        before=[*_WITH_GROUP, _COMMITTED],
        extra={"deletes": [group_right("DELETE")], "may-all": [group_right("ALL")]},
    ),
    Case(
        "list-groups",
        "ListGroups",
        {},
        [group_right("DESCRIBE")],
        before=[*_WITH_GROUP, _COMMITTED],
        mine=True,
        extra={"describes-the-cluster": [cluster_right("DESCRIBE")]},
    ),
    Case(
        "delete-groups",
        "DeleteGroups",
        {"groups_names": ["@g", "@other"]},
        [group_right("DELETE")],
        before=[*_WITH_GROUP, _COMMITTED],
        after=[_STATE],
    ),
    Case(
        "delete-offsets",
        "OffsetDelete",
        {
            "group_id": "@g",
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0}]}
                for name in ("@t", "@hidden", "@absent")
            ],
        },
        [group_right("DELETE"), topic_right("READ")],
        before=[*_WITH_GROUP, _COMMITTED],
        after=[_ALL_OFFSETS],
    ),
    Case(
        "delete-offsets-of-no-group",
        "OffsetDelete",
        {
            "group_id": "@absent",
            "topics": [{"name": "@t", "partitions": [{"partition_index": 0}]}],
        },
        [group_right("DELETE", "@absent")],
        before=[*topic(), *group("@absent")],
    ),
]
_BEAT = {
    "group_id": "@g",
    "member_id": "@m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "topic_partitions": [],
}
_BY_EXPRESSION = {**_BEAT, "subscribed_topic_regex": "@(t|hidden)"}
_SUBSCRIBED = {**_BEAT, "subscribed_topic_names": ["@t"]}
_CONSUMER_GROUPS = [
    Case(
        "consumer-heartbeat",
        "ConsumerGroupHeartbeat",
        _SUBSCRIBED,
        [group_right("READ"), topic_right("DESCRIBE")],
        before=[*topic(), *group()],
        ignore=("assignment",),
        after=[
            Ask(
                "ConsumerGroupDescribe",
                {"group_ids": ["@g"]},
                ignore=(
                    "groups.*.group_state",
                    "groups.*.assignment_epoch",
                    "groups.*.members.*.assignment",
                    "groups.*.members.*.target_assignment",
                ),
            )
        ],
    ),
    Case(
        "consumer-heartbeat-for-what-is-not-there",
        "ConsumerGroupHeartbeat",
        {**_BEAT, "subscribed_topic_names": ["@absent"]},
        [group_right("READ"), topic_right("DESCRIBE", "@absent")],
        before=group(),
        ignore=("assignment",),
    ),
    Case(
        "consumer-heartbeat-by-expression",
        "ConsumerGroupHeartbeat",
        _BY_EXPRESSION,
        [group_right("READ"), topic_right("DESCRIBE")],
        before=[*topic(), *topic("@hidden"), *group()],
        ignore=("assignment", "member_epoch"),
        after=[
            # Expressions are resolved beside the requests, and what comes of it is assigned later.
            Wait(1_500),
            Ask(
                "ConsumerGroupHeartbeat",
                _BY_EXPRESSION,
                on=USER,
                ignore=("assignment", "member_epoch"),
            ),
            Wait(1_500),
            Ask("ConsumerGroupHeartbeat", _BY_EXPRESSION, on=USER, ignore=("member_epoch",)),
        ],
        versions="1-1",
        extra={
            "sees-both": [
                group_right("READ"),
                topic_right("DESCRIBE"),
                topic_right("READ", "@hidden"),
            ]
        },
    ),
    Case(
        "describe-consumer-groups",
        "ConsumerGroupDescribe",
        {"group_ids": ["@g", "@other"], "include_authorized_operations": True},
        [group_right("DESCRIBE"), topic_right("DESCRIBE")],
        before=[
            *topic(),
            *group(),
            Ask(
                "ConsumerGroupHeartbeat",
                _SUBSCRIBED,
                version=0,
                quiet=True,
                until={"assignment.topic_partitions.0.partitions": [0]},
            ),
        ],
        ignore=(
            "groups.*.group_state",
            "groups.*.group_epoch",
            "groups.*.assignment_epoch",
            "groups.*.members.*.assignment",
            "groups.*.members.*.target_assignment",
        ),
    ),
]


# --- Administration -------------------------------------------------------------------------------


_TOPICS = [
    Case(
        "create-topics",
        "CreateTopics",
        _new("@new", "@t"),
        [topic_right("CREATE", "@new")],
        before=topic(),
        after=[_exist("@new")],
        ignore=("topics.*.configs",),
        extra={
            "creates-any": [cluster_right("CREATE")],
            "sees-configs": [cluster_right("CREATE"), topic_right("DESCRIBE_CONFIGS", "@new")],
        },
    ),
    Case(
        "delete-topics",
        "DeleteTopics",
        {
            "timeout_ms": 10_000,
            "topic_names": ["@t", "@hidden", "@absent"],
            "topics": [{"name": name} for name in ("@t", "@hidden", "@absent")],
        },
        [topic_right("DELETE")],
        before=[*topic(), *topic("@hidden")],
        after=[_exist("@t", "@hidden")],
        extra={"describes": [topic_right("DESCRIBE"), topic_right("DESCRIBE", "@absent")]},
    ),
    Case(
        "delete-topics-by-id",
        "DeleteTopics",
        {
            "timeout_ms": 10_000,
            "topics": [{"topic_id": each} for each in ("$t", "$hidden", NO_SUCH_ID)],
        },
        [topic_right("DELETE")],
        before=[*topic(), *topic("@hidden")],
        extra={"describes": [topic_right("DESCRIBE")]},
        versions="6-6",
    ),
    Case(
        "delete-records",
        "DeleteRecords",
        {
            "timeout_ms": 10_000,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "offset": 1}]}
                for name in ("@t", "@hidden", "@absent")
            ],
        },
        [topic_right("DELETE")],
        before=[*_READY, *topic("@hidden")],
    ),
    Case(
        "create-partitions",
        "CreatePartitions",
        {
            "timeout_ms": 10_000,
            "topics": [
                {"name": name, "count": 2, "assignments": None}
                for name in ("@t", "@hidden", "@absent")
            ],
        },
        [topic_right("ALTER")],
        before=[*topic(), *topic("@hidden")],
    ),
]


def _asked(kind: int, name: str, keys: Sequence[str]) -> dict[str, Any]:
    return {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
    }


def _set_to(kind: int, name: str, key: str, value: str, **more: Any) -> dict[str, Any]:
    return {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": key, "value": value, **more}],
            }
        ],
        "validate_only": True,
    }


_DOCUMENTATION = ("results.*.configs.*.documentation",)
#: Type of resource, its name, one of its settings, a value, and how its rights are made.
_CONFIGURED: list[tuple[str, int, str, str, str, Any]] = [
    ("topic", _TOPIC, "@t", "retention.ms", "5", topic_right),
    ("group", _GROUP, "@g", "consumer.session.timeout.ms", "46000", group_right),
    ("broker", _BROKER, "1", "log.cleaner.threads", "1", cluster_right),
    ("client-metrics", _METRICS, "@m", "interval.ms", "1000", cluster_right),
]
_CONFIGS = [
    case
    for what, kind, name, key, value, right in _CONFIGURED
    for case in (
        Case(
            f"describe-configs-of-a-{what}",
            "DescribeConfigs",
            _asked(kind, name, [key]),
            [right("DESCRIBE_CONFIGS")],
            before=topic(),
            ignore=_DOCUMENTATION,
            extra={"describes": [right("DESCRIBE")]},
        ),
        Case(
            f"alter-configs-of-a-{what}",
            "IncrementalAlterConfigs",
            _set_to(kind, name, key, value, config_operation=0),
            [right("ALTER_CONFIGS")],
            before=topic(),
            extra={"alters": [right("ALTER")]} if what == "topic" else {},
        ),
        Case(
            f"replace-configs-of-a-{what}",
            "AlterConfigs",
            _set_to(kind, name, key, value),
            [right("ALTER_CONFIGS")],
            before=topic(),
        ),
    )
] + [
    Case(
        "describe-configs-of-no-topic",
        "DescribeConfigs",
        _asked(_TOPIC, "@absent", ["retention.ms"]),
        [topic_right("DESCRIBE_CONFIGS", "@absent")],
    ),
    Case(
        "alter-configs-of-no-topic",
        "IncrementalAlterConfigs",
        _set_to(_TOPIC, "@absent", "retention.ms", "5", config_operation=0),
        [topic_right("ALTER_CONFIGS", "@absent")],
    ),
]


def _quota(value: float) -> dict[str, Any]:
    return {
        "entries": [
            {
                "entity": [{"entity_type": "client-id", "entity_name": "@c"}],
                "ops": [{"key": "producer_byte_rate", "value": value, "remove": False}],
            }
        ],
        "validate_only": True,
    }


_CLUSTER_CASES = [
    Case(
        "describe-cluster",
        "DescribeCluster",
        {"include_cluster_authorized_operations": True},
        [cluster_right("DESCRIBE")],
        ignore=_CLUSTER,
        extra={
            "alters": [cluster_right("ALTER"), cluster_right("ALTER_CONFIGS")],
            "acts": [cluster_right("CLUSTER_ACTION")],
            "may-all": [cluster_right("ALL")],
        },
    ),
    Case(
        "describe-log-dirs",
        "DescribeLogDirs",
        {"topics": [{"topic": "@t", "partitions": [0]}]},
        [cluster_right("DESCRIBE")],
        before=topic(),
        ignore=(
            "results.*.log_dir",
            "results.*.total_bytes",
            "results.*.usable_bytes",
            "results.*.topics.*.partitions.*.partition_size",
        ),
    ),
    Case(
        "alter-log-dirs",
        "AlterReplicaLogDirs",
        {"dirs": [{"path": "/nowhere", "topics": [{"name": "@t", "partitions": [0]}]}]},
        [cluster_right("ALTER")],
        before=topic(),
    ),
    Case(
        "describe-quotas",
        "DescribeClientQuotas",
        {
            "components": [{"entity_type": "client-id", "match_type": 0, "match": "@c"}],
            "strict": True,
        },
        [cluster_right("DESCRIBE_CONFIGS")],
    ),
    Case(
        "describe-credentials",
        "DescribeUserScramCredentials",
        {"users": [{"name": "@u"}]},
        [cluster_right("DESCRIBE")],
    ),
    Case(
        "alter-credentials",
        "AlterUserScramCredentials",
        {
            "deletions": [],
            "upsertions": [{"name": "@v", "mechanism": 1, "iterations": 1, "salt": b"salt"}],
        },
        [cluster_right("ALTER")],
        extra={"describes": [cluster_right("DESCRIBE")]},
    ),
    Case(
        "alter-quotas",
        "AlterClientQuotas",
        _quota(1000.0),
        [cluster_right("ALTER_CONFIGS")],
    ),
]


# --- ACLs -----------------------------------------------------------------------------------------

_ANY_ACL_OF_T = {
    "resource_type_filter": 1,
    "resource_name_filter": "@t",
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_ACL_OF_T = {
    "resource_type": 2,
    "resource_name": "@t",
    "resource_pattern_type": 4,
    "principal": "User:somebody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_ONE_ACL: list[Step] = [
    Ask("CreateAcls", {"creations": [_ACL_OF_T]}, version=3, quiet=True),
    Ask(
        "DescribeAcls",
        _ANY_ACL_OF_T,
        version=3,
        quiet=True,
        until={"resources.0.acls.0.operation": 3},
    ),
]
_ACLS_OF_T = Ask("DescribeAcls", _ANY_ACL_OF_T, version=3)
_CHANGED: dict[str, dict[str, Any]] = {
    "of-another-cluster": {"resource_type": 4, "resource_pattern_type": 3},
    "of-the-cluster": {
        "resource_type": 4,
        "resource_pattern_type": 3,
        "resource_name": "kafka-cluster",
        "operation": 12,
    },
    "of-a-cluster-by-prefix": {"resource_type": 4, "resource_name": "kafka-cluster"},
    "without-a-name": {"resource_name": ""},
    "of-any-type": {"resource_type": 1},
    "of-an-unknown-type": {"resource_type": 0},
    "of-a-strange-type": {"resource_type": 77},
    "of-a-user": {"resource_type": 7, "operation": 13},
    "of-a-token": {"resource_type": 6, "operation": 14},
    "of-any-pattern": {"resource_pattern_type": 1},
    "of-a-match": {"resource_pattern_type": 2},
    "of-an-unknown-pattern": {"resource_pattern_type": 0},
    "of-a-strange-pattern": {"resource_pattern_type": 77},
    "for-any-operation": {"operation": 1},
    "for-an-unknown-operation": {"operation": 0},
    "for-a-strange-operation": {"operation": 77},
    "for-two-phases": {"operation": 15},
    "for-what-topics-have-not": {"operation": 12},
    "with-any-permission": {"permission_type": 1},
    "with-an-unknown-permission": {"permission_type": 0},
    "with-a-strange-permission": {"permission_type": 77},
    "for-a-name-alone": {"principal": "somebody"},
    "for-nobody": {"principal": ""},
    "for-a-type-alone": {"principal": "User:"},
    "for-no-type": {"principal": ":somebody"},
    "for-a-group": {"principal": "Group:somebody"},
    "from-nowhere": {"host": ""},
    "from-a-name": {"host": "localhost"},
    "twice": {},
    "for-everything": {"resource_name": "*", "principal": "User:nobody-at-all"},
    "for-a-slash": {"resource_name": "a/b"},
}
#: In the middle of two that are as they should be.
_CREATIONS = {
    name: [_ACL_OF_T, {**_ACL_OF_T, **changed}, {**_ACL_OF_T, "host": "10.0.0.1"}]
    for name, changed in _CHANGED.items()
}
_FILTERS: dict[str, dict[str, Any]] = {
    "of-a-type": {"resource_type_filter": 2},
    "of-another-type": {"resource_type_filter": 3},
    "of-an-unknown-type": {"resource_type_filter": 0},
    "of-a-strange-type": {"resource_type_filter": 77},
    "by-prefix": {"pattern_type_filter": 4},
    "literally": {"pattern_type_filter": 3},
    "of-an-unknown-pattern": {"pattern_type_filter": 0},
    "of-a-strange-pattern": {"pattern_type_filter": 77},
    "of-somebody": {"principal_filter": "User:somebody"},
    "of-somebody-else": {"principal_filter": "User:else"},
    "of-a-name-alone": {"principal_filter": "somebody"},
    "of-a-host": {"host_filter": "*"},
    "of-another-host": {"host_filter": "10.0.0.1"},
    "to-read": {"operation": 3},
    "to-write": {"operation": 4},
    "to-something-unknown": {"operation": 0},
    "to-something-strange": {"operation": 77},
    "that-allow": {"permission_type": 3},
    "that-deny": {"permission_type": 2},
    "with-an-unknown-permission": {"permission_type": 0},
    "with-a-strange-permission": {"permission_type": 77},
}
_ACLS = [
    Case(
        "describe-acls",
        "DescribeAcls",
        _ANY_ACL_OF_T,
        [cluster_right("DESCRIBE")],
        before=_ONE_ACL,
        extra={"alters": [cluster_right("ALTER")]},
    ),
    Case(
        "create-acls",
        "CreateAcls",
        {"creations": [_ACL_OF_T, {**_ACL_OF_T, "host": "10.0.0.1"}]},
        [cluster_right("ALTER")],
        after=[],
        extra={"describes": [cluster_right("DESCRIBE")]},
    ),
    *(
        Case(
            f"create-acls-{name}",
            "CreateAcls",
            {"creations": creations},
            versions="3-3",
            only=["super"],
        )
        for name, creations in _CREATIONS.items()
    ),
    *(
        Case(
            f"describe-acls-{name}",
            "DescribeAcls",
            {**_ANY_ACL_OF_T, **changed},
            before=_ONE_ACL,
            versions="3-3",
            only=["super"],
        )
        for name, changed in _FILTERS.items()
    ),
    *(
        Case(
            f"delete-acls-{name}",
            "DeleteAcls",
            {"filters": [{**_ANY_ACL_OF_T, **changed}, _ANY_ACL_OF_T]},
            before=_ONE_ACL,
            versions="3-3",
            only=["super"],
        )
        for name, changed in _FILTERS.items()
    ),
    Case(
        "delete-acls",
        "DeleteAcls",
        {"filters": [_ANY_ACL_OF_T, {**_ANY_ACL_OF_T, "resource_name_filter": "@none"}]},
        [cluster_right("ALTER")],
        before=_ONE_ACL,
    ),
]

CASES: list[Case] = [
    *_PRODUCE,
    *_TRANSACTIONS,
    *_READING,
    *_GROUPS,
    *_CONSUMER_GROUPS,
    *_TOPICS,
    *_CONFIGS,
    *_CLUSTER_CASES,
    *_ACLS,
]
