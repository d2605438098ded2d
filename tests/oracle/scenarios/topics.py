"""Topics: CreateTopics, DeleteTopics, CreatePartitions, Metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracle.script import Ask, Padded, Receive, Scenario, Send, coordinator, topic

#: Fields with a topic's whole configuration; other scenarios test it.
_CONFIGS = ("topics.*.configs",)
#: The fields with the addresses and nodes of a cluster.
_CLUSTER = ("brokers", "cluster_id", "controller_id")


def _topic(name: Any = "@t", partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    configs = more.pop("configs", {})
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": [{"name": k, "value": v} for k, v in configs.items()],
        **more,
    }


def _create(*topics: dict[str, Any], **more: Any) -> Ask:
    body = {"timeout_ms": 10_000, "topics": list(topics), **more}
    return Ask("CreateTopics", body, ignore=_CONFIGS)


def _assigned(*replicas: Sequence[int], first: int = 0) -> dict[str, Any]:
    return {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": first + index, "broker_ids": list(ids)}
            for index, ids in enumerate(replicas)
        ],
    }


def _known(name: str = "@t", until: str = "NONE") -> Ask:
    """Wait until the broker knows that a topic exists, or that it was deleted."""
    return Ask(
        "Metadata",
        {"topics": [{"name": name}], "allow_auto_topic_creation": False},
        version=9,
        until={"topics.0.error_code": until},
        ignore=_CLUSTER,
    )


def _metadata(*names: str | None, create: bool = False, **more: Any) -> Ask:
    body = {
        "topics": [{"name": name} for name in names],
        "allow_auto_topic_creation": create,
        **more,
    }
    return Ask("Metadata", body, ignore=_CLUSTER)


_CREATE = [
    Scenario(
        "create-topics",
        "CreateTopics",
        [
            _create(_topic()),
            _create(_topic()),
            _create(_topic("@u", partitions=3), _topic("@v")),
        ],
    ),
    Scenario(
        "create-topics-names",
        "CreateTopics",
        [
            _create(
                *(
                    _topic(name)
                    for name in ("", ".", "..", "@a b", "@a/b", "@a\u00e9", "@a\n", "@a:b", "@A_-")
                )
            ),
            _create(_topic(Padded("@t", 249))),
            _create(_topic(Padded("@t", 250))),
        ],
    ),
    Scenario(
        "create-topics-colliding-names",
        "CreateTopics",
        [
            _create(_topic("@a.b")),
            _create(_topic("@a_b")),
            _create(_topic("@c_d"), _topic("@c.d")),
            _create(_topic("@a_b"), validate_only=True),
        ],
    ),
    Scenario(
        "create-topics-partitions",
        "CreateTopics",
        [
            *(
                _create(_topic(f"@p{index}", partitions=count))
                for index, count in enumerate((0, -2, 10_001, (1 << 31) - 1, -(1 << 31)))
            ),
        ],
    ),
    Scenario(
        "create-topics-with-the-defaults",
        "CreateTopics",
        [
            _create(_topic("@a", partitions=-1)),
            _create(_topic("@b", replicas=-1)),
            _create(_topic("@c", partitions=-1, replicas=-1)),
        ],
    ),
    Scenario(
        "create-topics-replicas",
        "CreateTopics",
        [
            *(
                _create(_topic(f"@r{index}", replicas=count))
                for index, count in enumerate((0, 2, -2, 32_767))
            ),
        ],
    ),
    Scenario(
        "create-topics-assigned",
        "CreateTopics",
        [
            _create(_topic("@a", **_assigned([1], [1]))),
            _create(_topic("@b", **_assigned([1, 1]))),
            _create(_topic("@c", **_assigned([7]))),
            _create(_topic("@d", **_assigned([1], first=1))),
            _create(_topic("@e", **_assigned([]))),
            _create(_topic("@f", **{**_assigned([1]), "num_partitions": 1})),
            _create(_topic("@g", **{**_assigned([1]), "replication_factor": 1})),
            _create(_topic("@h", **_assigned([1], [1, 1]))),
            _create(
                _topic(
                    "@i",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        {"partition_index": 0, "broker_ids": [1]},
                        {"partition_index": 0, "broker_ids": [1]},
                    ],
                )
            ),
            _create(_topic("@j", **_assigned([-1]))),
        ],
    ),
    Scenario(
        "create-topics-configs",
        "CreateTopics",
        [
            _create(_topic("@a", configs={"retention.ms": "1000", "cleanup.policy": "compact"})),
            _create(_topic("@b", configs={"nonesuch": "1"})),
            _create(_topic("@c", configs={"retention.ms": "soon"})),
            _create(_topic("@d", configs={"retention.ms": "-2"})),
            _create(_topic("@e", configs={"cleanup.policy": "compact,delete"})),
            _create(_topic("@f", configs={"cleanup.policy": "shred"})),
            _create(_topic("@g", configs={"retention.ms": None})),
            _create(_topic("@h", configs={"max.message.bytes": "-1"})),
            _create(_topic("@i", configs={"compression.type": "gzip"})),
            _create(_topic("@j", configs={"compression.type": "rar"})),
            _create(_topic("@k", configs={"": "1"})),
            _create(_topic("@l", configs={"segment.bytes": "1"})),
            _create(_topic("@m", configs={"min.insync.replicas": "0"})),
            _create(_topic("@n", configs={"min.insync.replicas": "5"})),
            _create(_topic("@o", configs={"message.timestamp.type": "Whenever"})),
            _create(
                _topic("@p")
                | {
                    "configs": [
                        {"name": "retention.ms", "value": "1"},
                        {"name": "retention.ms", "value": "2"},
                    ]
                }
            ),
        ],
    ),
    Scenario(
        "create-topics-validate-only",
        "CreateTopics",
        [
            _create(_topic(partitions=2), validate_only=True),
            _create(_topic(partitions=0), validate_only=True),
            _create(_topic(configs={"nonesuch": "1"}), validate_only=True),
            _create(_topic()),
            _create(_topic(), validate_only=True),
        ],
    ),
    Scenario(
        "create-topics-repeated",
        "CreateTopics",
        [
            _create(_topic(), _topic()),
            _create(_topic(), _topic(partitions=3), _topic("@u")),
            _create(),
        ],
    ),
    Scenario(
        "create-topics-timeouts",
        "CreateTopics",
        [
            Ask(
                "CreateTopics",
                {"timeout_ms": -1, "topics": [_topic()]},
                ignore=_CONFIGS,
            ),
            _create(_topic()),
        ],
        versions="7",
    ),
    Scenario(
        "create-topics-internal",
        "CreateTopics",
        [
            coordinator("@g"),
            _create(_topic("__consumer_offsets")),
            _create(_topic("__cluster_metadata")),
        ],
        versions="5-7",
    ),
    Scenario(
        "create-topics-pipelined",
        "CreateTopics",
        [
            Send(_create(_topic())),
            Send(_create(_topic())),
            Send(_create(_topic("@u"))),
            Receive(),
            Receive(),
            Receive(),
        ],
    ),
]


def _delete(*names: str, ids: Sequence[Any] = (), **more: Any) -> Ask:
    body = {
        "timeout_ms": 10_000,
        "topic_names": list(names),
        "topics": [*({"name": name} for name in names), *({"topic_id": each} for each in ids)],
        **more,
    }
    return Ask("DeleteTopics", body)


_NO_SUCH_ID = bytes(15) + b"\x09"

_DELETE = [
    Scenario(
        "delete-topics",
        "DeleteTopics",
        [
            *topic(),
            *topic("@u"),
            *topic("@v"),
            _delete("@t"),
            _known("@t", "UNKNOWN_TOPIC_OR_PARTITION"),
            _delete("@t"),
            _delete("@u", "@none", "@v"),
            _delete(""),
            _delete(),
        ],
    ),
    Scenario(
        "delete-topics-repeated",
        "DeleteTopics",
        [*topic(), _delete("@t", "@t"), _delete("@none", "@none")],
    ),
    Scenario(
        "delete-topics-by-id",
        "DeleteTopics",
        [
            *topic(),
            *topic("@u"),
            _delete(ids=["$t"]),
            _known("@t", "UNKNOWN_TOPIC_OR_PARTITION"),
            _delete(ids=["$t"]),
            _delete(ids=[_NO_SUCH_ID]),
            _delete(ids=[bytes(16)]),
            _delete("@u", ids=["$u"]),
            Ask(
                "DeleteTopics",
                {"timeout_ms": 10_000, "topics": [{"name": "@u", "topic_id": "$u"}]},
            ),
            _delete(ids=["$u", "$u"]),
        ],
        versions="6",
    ),
    Scenario(
        "delete-topics-repeated-and-given-the-other-way",
        "DeleteTopics",
        [
            *topic(),
            *topic("@u"),
            _delete("@u", ids=["$u", "$u"]),
            _known("@u", "NONE"),
            _delete("@t", "@t", ids=["$t"]),
            _known("@t", "UNKNOWN_TOPIC_OR_PARTITION"),
        ],
        versions="6",
    ),
    Scenario(
        "delete-topics-and-create-again",
        "DeleteTopics",
        [
            *topic(),
            _delete("@t"),
            Ask(
                "CreateTopics",
                {"timeout_ms": 10_000, "topics": [_topic(partitions=2)]},
                version=4,
            ),
        ],
    ),
]


def _partitions(
    name: str = "@t", count: int = 2, assignments: Sequence[Sequence[int]] | None = None
) -> dict[str, Any]:
    given = None
    if assignments is not None:
        given = [{"broker_ids": list(ids)} for ids in assignments]
    return {"name": name, "count": count, "assignments": given}


def _grow(*topics: dict[str, Any], **more: Any) -> Ask:
    return Ask(
        "CreatePartitions",
        {"topics": list(topics), "timeout_ms": 10_000, "validate_only": False, **more},
    )


_PARTITIONS = [
    Scenario(
        "create-partitions",
        "CreatePartitions",
        [
            *topic(),
            *topic("@u", partitions=2),
            _grow(_partitions(count=3)),
            _grow(_partitions(count=3)),
            _grow(_partitions(count=2)),
            _grow(_partitions(count=0)),
            _grow(_partitions(count=-1)),
            _grow(_partitions("@none"), _partitions("@u", count=4)),
            _grow(_partitions("")),
            _grow(),
        ],
    ),
    Scenario(
        "create-partitions-assigned",
        "CreatePartitions",
        [
            *topic(),
            _grow(_partitions(count=2, assignments=[[1]])),
            _grow(_partitions(count=3, assignments=[])),
            _grow(_partitions(count=3, assignments=[[7]])),
            _grow(_partitions(count=3, assignments=[[1], [1]])),
            _grow(_partitions(count=4, assignments=[[1]])),
            _grow(_partitions(count=3, assignments=[[1, 1]])),
            _grow(_partitions(count=3, assignments=[[]])),
            _grow(_partitions(count=3, assignments=[[-1]])),
        ],
    ),
    Scenario(
        "create-partitions-repeated",
        "CreatePartitions",
        [
            *topic(),
            *topic("@u"),
            _grow(_partitions(count=2), _partitions(count=3), _partitions("@u", count=2)),
            _grow(_partitions(count=4)),
        ],
    ),
    Scenario(
        "create-partitions-validate-only",
        "CreatePartitions",
        [
            *topic(),
            _grow(_partitions(count=5), validate_only=True),
            _grow(_partitions(count=10_001), validate_only=True),
            _grow(_partitions(count=1), validate_only=True),
            _grow(_partitions("@none"), validate_only=True),
            _grow(_partitions(count=2)),
        ],
    ),
    Scenario(
        "create-partitions-too-many",
        "CreatePartitions",
        [
            *topic(),
            _grow(_partitions(count=10_002), validate_only=True),
            _grow(_partitions(count=(1 << 31) - 1), validate_only=True),
        ],
        versions="3",
    ),
    Scenario(
        "create-partitions-of-internal",
        "CreatePartitions",
        [_grow(_partitions("__cluster_metadata", count=2))],
    ),
]

_METADATA = [
    Scenario(
        "metadata",
        "Metadata",
        [
            *topic(partitions=2),
            _metadata("@t"),
            _metadata("@t", "@t"),
            Ask("Metadata", {"topics": [{"name": "@t"}], "allow_auto_topic_creation": False}),
        ],
    ),
    Scenario(
        "metadata-of-one-that-is-not-there",
        "Metadata",
        [*topic(), _metadata("@t", "@none"), _metadata("@none", "@none")],
        versions="4-13",
    ),
    Scenario(
        "metadata-creates-at-once",
        "Metadata",
        [_metadata("@auto", create=True)],
        versions="9",
    ),
    Scenario(
        "create-topics-behind-automatic-creation",
        "CreateTopics",
        [
            Ask(
                "Metadata",
                {"topics": [{"name": "@auto"}], "allow_auto_topic_creation": True},
                version=9,
                until={"topics.0.error_code": "NONE"},
                ignore=_CLUSTER,
            ),
            _create(_topic("@auto", partitions=4)),
            _create(_topic("@auto", partitions=4), validate_only=True),
            _metadata("@auto"),
        ],
    ),
    Scenario(
        "create-topics-pipelined-behind-automatic-creation",
        "CreateTopics",
        [
            Send(
                Ask(
                    "Metadata",
                    {"topics": [{"name": "@auto"}], "allow_auto_topic_creation": True},
                    version=9,
                    ignore=_CLUSTER,
                )
            ),
            Send(_create(_topic("@auto", partitions=4))),
            Receive(),
            Receive(),
            _known("@auto"),
        ],
        versions="7",
    ),
    Scenario(
        "metadata-without-name-and-id",
        "Metadata",
        [
            Ask(
                "Metadata",
                {"topics": [{"topic_id": bytes(16), "name": None}]},
                ignore=_CLUSTER,
            )
        ],
        versions="13",
    ),
    Scenario(
        "metadata-names",
        "Metadata",
        [_metadata(""), _metadata("@a b"), _metadata("."), _metadata("@" + "x" * 250)],
    ),
    Scenario(
        "metadata-creates",
        "Metadata",
        [
            Ask(
                "Metadata",
                {"topics": [{"name": "@auto"}], "allow_auto_topic_creation": True},
                until={"topics.0.error_code": "NONE"},
                ignore=_CLUSTER,
            ),
            _metadata("@auto", create=True),
            _metadata("@bad name", create=True),
            _metadata("", create=True),
        ],
    ),
    Scenario(
        "metadata-of-everything",
        "Metadata",
        [
            *topic(),
            Ask("Metadata", {"topics": None}, mine=True, ignore=_CLUSTER),
        ],
        versions="1-13",
    ),
    Scenario(
        "metadata-of-nothing",
        "Metadata",
        [*topic(), Ask("Metadata", {"topics": []}, mine=True)],
    ),
    Scenario(
        "metadata-operations",
        "Metadata",
        [
            *topic(),
            _metadata("@t", include_topic_authorized_operations=True),
            _metadata("@none", include_topic_authorized_operations=True),
            _metadata("@t", include_cluster_authorized_operations=True),
        ],
        versions="8-13",
    ),
    Scenario(
        "metadata-by-id",
        "Metadata",
        [
            *topic(),
            *(
                Ask(
                    "Metadata",
                    {"topics": [asked], "allow_auto_topic_creation": True},
                    ignore=_CLUSTER,
                )
                for asked in (
                    {"topic_id": "$t", "name": None},
                    {"topic_id": _NO_SUCH_ID, "name": None},
                    {"topic_id": "$t", "name": "@t"},
                    {"topic_id": "$t", "name": "@other"},
                    {"topic_id": _NO_SUCH_ID, "name": "@t"},
                )
            ),
            Ask(
                "Metadata",
                {
                    "topics": [
                        {"topic_id": "$t", "name": None},
                        {"topic_id": "$t", "name": None},
                        {"topic_id": _NO_SUCH_ID, "name": None},
                    ],
                    "allow_auto_topic_creation": False,
                },
                ignore=_CLUSTER,
            ),
            Ask(
                "Metadata",
                {
                    "topics": [{"topic_id": "$t", "name": None}, {"name": "@t"}],
                    "allow_auto_topic_creation": False,
                },
                ignore=_CLUSTER,
            ),
        ],
        versions="10-13",
    ),
]

SCENARIOS = [*_CREATE, *_DELETE, *_PARTITIONS, *_METADATA]
