"""Reading records, offsets and metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.oracle.rights.cases.words import (
    CLUSTER,
    READY,
    exist,
)
from tests.oracle.rights.cells import (
    Case,
    cluster_right,
    topic_right,
)
from tests.oracle.script import (
    NO_SUCH_ID,
    fetch_body,
    topic,
)

from odradek_protocol.acls import PatternType


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
        before=[*READY, *topic("@hidden")],
        extra={"describes": [topic_right("DESCRIBE")]},
    ),
    Case(
        "list-offsets",
        "ListOffsets",
        _LISTED,
        [topic_right("DESCRIBE")],
        before=[*READY, *topic("@hidden")],
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
        before=[*READY, *topic("@hidden")],
        extra={"acts-for-the-cluster": [cluster_right("CLUSTER_ACTION")]},
    ),
    Case(
        "describe-topic-partitions",
        "DescribeTopicPartitions",
        {"topics": [{"name": name} for name in ("@t", "@hidden", "@absent")]},
        [topic_right("DESCRIBE")],
        before=[*topic(), *topic("@hidden")],
        extra={
            "reads": [topic_right("READ")],
            "alters": [topic_right("ALTER"), topic_right("DELETE")],
        },
    ),
    Case(
        "describe-topic-partitions-of-all",
        "DescribeTopicPartitions",
        {},
        [topic_right("DESCRIBE")],
        before=[*topic(), *topic("@hidden")],
        mine=True,
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
        ignore=CLUSTER,
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
        ignore=CLUSTER,
        mine=True,
        versions="1-13",
    ),
    Case(
        "metadata-by-id",
        "Metadata",
        {"topics": [{"name": None, "topic_id": each} for each in ("$t", "$hidden", NO_SUCH_ID)]},
        [topic_right("DESCRIBE")],
        before=[*topic(), *topic("@hidden")],
        ignore=CLUSTER,
        versions="12-13",
    ),
    Case(
        "metadata-that-creates",
        "Metadata",
        {"topics": [{"name": "@new"}], "allow_auto_topic_creation": True},
        [topic_right("DESCRIBE", "@new"), topic_right("CREATE", "@new")],
        ignore=(*CLUSTER, "topics.0.partitions", "topics.0.topic_id", "topics.0.error_code"),
        after=[exist("@new")],
        versions="4-4",
        extra={"creates-any": [topic_right("DESCRIBE", "@new"), cluster_right("CREATE")]},
    ),
]


CASES: list[Case] = [*_READING]
