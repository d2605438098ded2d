"""Topics: CreateTopics, DeleteTopics, CreatePartitions, Metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracle.script import (
    Ask,
    Padded,
    Receive,
    Send,
    coordinator,
    scenarios_of,
    topic,
)

#: Fields with a topic's whole configuration; other scenarios test it.
_CONFIGS = ("topics.*.configs",)
#: The fields with the addresses and nodes of a cluster.
_CLUSTER = ("brokers", "cluster_id", "controller_id")


def new_topic(
    name: Any = "@t", partitions: int = 1, replicas: int = 1, **more: Any
) -> dict[str, Any]:
    configs = more.pop("configs", {})
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": [{"name": k, "value": v} for k, v in configs.items()],
        **more,
    }


def create_topics(*topics: dict[str, Any], **more: Any) -> Ask:
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


def metadata(*names: str | None, create: bool = False, **more: Any) -> Ask:
    body = {
        "topics": [{"name": name} for name in names],
        "allow_auto_topic_creation": create,
        **more,
    }
    return Ask("Metadata", body, ignore=_CLUSTER)


_CREATE = scenarios_of(
    {
        ("create-topics", "CreateTopics"): [
            create_topics(new_topic()),
            create_topics(new_topic()),
            create_topics(new_topic("@u", partitions=3), new_topic("@v")),
        ],
        ("create-topics-names", "CreateTopics"): [
            create_topics(
                *(
                    new_topic(name)
                    for name in ("", ".", "..", "@a b", "@a/b", "@a\u00e9", "@a\n", "@a:b", "@A_-")
                )
            ),
            create_topics(new_topic(Padded("@t", 249))),
            create_topics(new_topic(Padded("@t", 250))),
        ],
        ("create-topics-colliding-names", "CreateTopics"): [
            create_topics(new_topic("@a.b")),
            create_topics(new_topic("@a_b")),
            create_topics(new_topic("@c_d"), new_topic("@c.d")),
            create_topics(new_topic("@a_b"), validate_only=True),
        ],
        ("create-topics-partitions", "CreateTopics"): [
            *(
                create_topics(new_topic(f"@p{index}", partitions=count))
                for index, count in enumerate((0, -2, 10_001, (1 << 31) - 1, -(1 << 31)))
            ),
        ],
        ("create-topics-with-the-defaults", "CreateTopics"): [
            create_topics(new_topic("@a", partitions=-1)),
            create_topics(new_topic("@b", replicas=-1)),
            create_topics(new_topic("@c", partitions=-1, replicas=-1)),
        ],
        ("create-topics-replicas", "CreateTopics"): [
            *(
                create_topics(new_topic(f"@r{index}", replicas=count))
                for index, count in enumerate((0, 2, -2, 32_767))
            ),
        ],
        ("create-topics-assigned", "CreateTopics"): [
            create_topics(new_topic("@a", **_assigned([1], [1]))),
            create_topics(new_topic("@b", **_assigned([1, 1]))),
            create_topics(new_topic("@c", **_assigned([7]))),
            create_topics(new_topic("@d", **_assigned([1], first=1))),
            create_topics(new_topic("@e", **_assigned([]))),
            create_topics(new_topic("@f", **{**_assigned([1]), "num_partitions": 1})),
            create_topics(new_topic("@g", **{**_assigned([1]), "replication_factor": 1})),
            create_topics(new_topic("@h", **_assigned([1], [1, 1]))),
            create_topics(
                new_topic(
                    "@i",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        {"partition_index": 0, "broker_ids": [1]},
                        {"partition_index": 0, "broker_ids": [1]},
                    ],
                )
            ),
            create_topics(new_topic("@j", **_assigned([-1]))),
        ],
        ("create-topics-configs", "CreateTopics"): [
            create_topics(
                new_topic("@a", configs={"retention.ms": "1000", "cleanup.policy": "compact"})
            ),
            create_topics(new_topic("@b", configs={"nonesuch": "1"})),
            create_topics(new_topic("@c", configs={"retention.ms": "soon"})),
            create_topics(new_topic("@d", configs={"retention.ms": "-2"})),
            create_topics(new_topic("@e", configs={"cleanup.policy": "compact,delete"})),
            create_topics(new_topic("@f", configs={"cleanup.policy": "shred"})),
            create_topics(new_topic("@g", configs={"retention.ms": None})),
            create_topics(new_topic("@h", configs={"max.message.bytes": "-1"})),
            create_topics(new_topic("@i", configs={"compression.type": "gzip"})),
            create_topics(new_topic("@j", configs={"compression.type": "rar"})),
            create_topics(new_topic("@k", configs={"": "1"})),
            create_topics(new_topic("@l", configs={"segment.bytes": "1"})),
            create_topics(new_topic("@m", configs={"min.insync.replicas": "0"})),
            create_topics(new_topic("@n", configs={"min.insync.replicas": "5"})),
            create_topics(new_topic("@o", configs={"message.timestamp.type": "Whenever"})),
            create_topics(
                new_topic("@p")
                | {
                    "configs": [
                        {"name": "retention.ms", "value": "1"},
                        {"name": "retention.ms", "value": "2"},
                    ]
                }
            ),
        ],
        ("create-topics-validate-only", "CreateTopics"): [
            create_topics(new_topic(partitions=2), validate_only=True),
            create_topics(new_topic(partitions=0), validate_only=True),
            create_topics(new_topic(configs={"nonesuch": "1"}), validate_only=True),
            create_topics(new_topic()),
            create_topics(new_topic(), validate_only=True),
        ],
        ("create-topics-repeated", "CreateTopics"): [
            create_topics(new_topic(), new_topic()),
            create_topics(new_topic(), new_topic(partitions=3), new_topic("@u")),
            create_topics(),
        ],
        ("create-topics-timeouts", "CreateTopics", "7"): [
            Ask(
                "CreateTopics",
                {"timeout_ms": -1, "topics": [new_topic()]},
                ignore=_CONFIGS,
            ),
            create_topics(new_topic()),
        ],
        ("create-topics-internal", "CreateTopics", "5-7"): [
            coordinator("@g"),
            create_topics(new_topic("__consumer_offsets")),
            create_topics(new_topic("__cluster_metadata")),
        ],
        ("create-topics-pipelined", "CreateTopics"): [
            Send(create_topics(new_topic())),
            Send(create_topics(new_topic())),
            Send(create_topics(new_topic("@u"))),
            Receive(),
            Receive(),
            Receive(),
        ],
    }
)


def delete_topics(*names: str, ids: Sequence[Any] = (), **more: Any) -> Ask:
    body = {
        "timeout_ms": 10_000,
        "topic_names": list(names),
        "topics": [*({"name": name} for name in names), *({"topic_id": each} for each in ids)],
        **more,
    }
    return Ask("DeleteTopics", body)


_NO_SUCH_ID = bytes(15) + b"\x09"

_DELETE = scenarios_of(
    {
        ("delete-topics", "DeleteTopics"): [
            *topic(),
            *topic("@u"),
            *topic("@v"),
            delete_topics("@t"),
            _known("@t", "UNKNOWN_TOPIC_OR_PARTITION"),
            delete_topics("@t"),
            delete_topics("@u", "@none", "@v"),
            delete_topics(""),
            delete_topics(),
        ],
        ("delete-topics-repeated", "DeleteTopics"): [
            *topic(),
            delete_topics("@t", "@t"),
            delete_topics("@none", "@none"),
        ],
        ("delete-topics-by-id", "DeleteTopics", "6"): [
            *topic(),
            *topic("@u"),
            delete_topics(ids=["$t"]),
            _known("@t", "UNKNOWN_TOPIC_OR_PARTITION"),
            delete_topics(ids=["$t"]),
            delete_topics(ids=[_NO_SUCH_ID]),
            delete_topics(ids=[bytes(16)]),
            delete_topics("@u", ids=["$u"]),
            Ask(
                "DeleteTopics",
                {"timeout_ms": 10_000, "topics": [{"name": "@u", "topic_id": "$u"}]},
            ),
            delete_topics(ids=["$u", "$u"]),
        ],
        ("delete-topics-repeated-and-given-the-other-way", "DeleteTopics", "6"): [
            *topic(),
            *topic("@u"),
            delete_topics("@u", ids=["$u", "$u"]),
            _known("@u", "NONE"),
            delete_topics("@t", "@t", ids=["$t"]),
            _known("@t", "UNKNOWN_TOPIC_OR_PARTITION"),
        ],
        ("delete-topics-and-create-again", "DeleteTopics"): [
            *topic(),
            delete_topics("@t"),
            Ask(
                "CreateTopics",
                {"timeout_ms": 10_000, "topics": [new_topic(partitions=2)]},
                version=4,
            ),
        ],
    }
)


def partitions_of(
    name: str = "@t", count: int = 2, assignments: Sequence[Sequence[int]] | None = None
) -> dict[str, Any]:
    given = None
    if assignments is not None:
        given = [{"broker_ids": list(ids)} for ids in assignments]
    return {"name": name, "count": count, "assignments": given}


def create_partitions(*topics: dict[str, Any], **more: Any) -> Ask:
    return Ask(
        "CreatePartitions",
        {"topics": list(topics), "timeout_ms": 10_000, "validate_only": False, **more},
    )


_PARTITIONS = scenarios_of(
    {
        ("create-partitions", "CreatePartitions"): [
            *topic(),
            *topic("@u", partitions=2),
            create_partitions(partitions_of(count=3)),
            create_partitions(partitions_of(count=3)),
            create_partitions(partitions_of(count=2)),
            create_partitions(partitions_of(count=0)),
            create_partitions(partitions_of(count=-1)),
            create_partitions(partitions_of("@none"), partitions_of("@u", count=4)),
            create_partitions(partitions_of("")),
            create_partitions(),
        ],
        ("create-partitions-assigned", "CreatePartitions"): [
            *topic(),
            create_partitions(partitions_of(count=2, assignments=[[1]])),
            create_partitions(partitions_of(count=3, assignments=[])),
            create_partitions(partitions_of(count=3, assignments=[[7]])),
            create_partitions(partitions_of(count=3, assignments=[[1], [1]])),
            create_partitions(partitions_of(count=4, assignments=[[1]])),
            create_partitions(partitions_of(count=3, assignments=[[1, 1]])),
            create_partitions(partitions_of(count=3, assignments=[[]])),
            create_partitions(partitions_of(count=3, assignments=[[-1]])),
        ],
        ("create-partitions-repeated", "CreatePartitions"): [
            *topic(),
            *topic("@u"),
            create_partitions(
                partitions_of(count=2), partitions_of(count=3), partitions_of("@u", count=2)
            ),
            create_partitions(partitions_of(count=4)),
        ],
        ("create-partitions-validate-only", "CreatePartitions"): [
            *topic(),
            create_partitions(partitions_of(count=5), validate_only=True),
            create_partitions(partitions_of(count=10_001), validate_only=True),
            create_partitions(partitions_of(count=1), validate_only=True),
            create_partitions(partitions_of("@none"), validate_only=True),
            create_partitions(partitions_of(count=2)),
        ],
        ("create-partitions-too-many", "CreatePartitions", "3"): [
            *topic(),
            create_partitions(partitions_of(count=10_002), validate_only=True),
            create_partitions(partitions_of(count=(1 << 31) - 1), validate_only=True),
        ],
        ("create-partitions-of-internal", "CreatePartitions"): [
            create_partitions(partitions_of("__cluster_metadata", count=2))
        ],
    }
)

_METADATA = scenarios_of(
    {
        ("metadata", "Metadata"): [
            *topic(partitions=2),
            metadata("@t"),
            metadata("@t", "@t"),
            Ask("Metadata", {"topics": [{"name": "@t"}], "allow_auto_topic_creation": False}),
        ],
        ("metadata-of-one-that-is-not-there", "Metadata", "4-13"): [
            *topic(),
            metadata("@t", "@none"),
            metadata("@none", "@none"),
        ],
        ("metadata-creates-at-once", "Metadata", "9"): [metadata("@auto", create=True)],
        ("create-topics-behind-automatic-creation", "CreateTopics"): [
            Ask(
                "Metadata",
                {"topics": [{"name": "@auto"}], "allow_auto_topic_creation": True},
                version=9,
                until={"topics.0.error_code": "NONE"},
                ignore=_CLUSTER,
            ),
            create_topics(new_topic("@auto", partitions=4)),
            create_topics(new_topic("@auto", partitions=4), validate_only=True),
            metadata("@auto"),
        ],
        ("create-topics-pipelined-behind-automatic-creation", "CreateTopics", "7"): [
            Send(
                Ask(
                    "Metadata",
                    {"topics": [{"name": "@auto"}], "allow_auto_topic_creation": True},
                    version=9,
                    ignore=_CLUSTER,
                )
            ),
            Send(create_topics(new_topic("@auto", partitions=4))),
            Receive(),
            Receive(),
            _known("@auto"),
        ],
        ("metadata-without-name-and-id", "Metadata", "13"): [
            Ask(
                "Metadata",
                {"topics": [{"topic_id": bytes(16), "name": None}]},
                ignore=_CLUSTER,
            )
        ],
        ("metadata-names", "Metadata"): [
            metadata(""),
            metadata("@a b"),
            metadata("."),
            metadata("@" + "x" * 250),
        ],
        ("metadata-creates", "Metadata"): [
            Ask(
                "Metadata",
                {"topics": [{"name": "@auto"}], "allow_auto_topic_creation": True},
                until={"topics.0.error_code": "NONE"},
                ignore=_CLUSTER,
            ),
            metadata("@auto", create=True),
            metadata("@bad name", create=True),
            metadata("", create=True),
        ],
        ("metadata-of-everything", "Metadata", "1-13"): [
            *topic(),
            Ask("Metadata", {"topics": None}, mine=True, ignore=_CLUSTER),
        ],
        ("metadata-of-nothing", "Metadata"): [*topic(), Ask("Metadata", {"topics": []}, mine=True)],
        ("metadata-operations", "Metadata", "8-13"): [
            *topic(),
            metadata("@t", include_topic_authorized_operations=True),
            metadata("@none", include_topic_authorized_operations=True),
            metadata("@t", include_cluster_authorized_operations=True),
        ],
        ("metadata-by-id", "Metadata", "10-13"): [
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
    }
)

SCENARIOS = [*_CREATE, *_DELETE, *_PARTITIONS, *_METADATA]
