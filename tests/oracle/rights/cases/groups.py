"""Groups of both protocols, and their committed offsets."""

from __future__ import annotations

from typing import Any

from tests.oracle.group_steps import group, join_body
from tests.oracle.rights.cells import (
    USER,
    Case,
    cluster_right,
    group_right,
    id_right,
    topic_right,
)
from tests.oracle.script import (
    NO_SUCH_ID,
    Ask,
    Step,
    Wait,
    coordinator,
    topic,
)


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
_STREAMS_ON = Ask(
    "UpdateFeatures",
    {
        "timeout_ms": 10_000,
        "feature_updates": [
            {"feature": "streams.version", "max_version_level": 1, "upgrade_type": 1}
        ],
    },
    version=1,
    quiet=True,
)


def _streams_beat(*changelogs: str) -> dict[str, Any]:
    """The first heartbeat of a member whose topology reads `@t`."""
    return {
        "group_id": "@g",
        "member_id": "m",
        "member_epoch": 0,
        "process_id": "p",
        "rebalance_timeout_ms": 60_000,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "topology": {
            "epoch": 0,
            "subtopologies": [
                {
                    "subtopology_id": "0",
                    "source_topics": ["@t"],
                    "source_topic_regex": [],
                    "state_changelog_topics": [
                        {
                            "name": name,
                            "partitions": 0,
                            "replication_factor": 0,
                            "topic_configs": [],
                        }
                        for name in changelogs
                    ],
                    "repartition_sink_topics": [],
                    "repartition_source_topics": [],
                    "copartition_groups": [],
                }
            ],
        },
    }


_STREAMS_GROUPS = [
    Case(
        "streams-heartbeat",
        "StreamsGroupHeartbeat",
        _streams_beat(),
        [group_right("READ"), topic_right("DESCRIBE")],
        before=[_STREAMS_ON, *topic(), *group(), Wait(500)],
    ),
    Case(
        "streams-heartbeat-with-a-topic-to-create",
        "StreamsGroupHeartbeat",
        _streams_beat("@c"),
        [
            group_right("READ"),
            topic_right("DESCRIBE"),
            topic_right("DESCRIBE", "@c"),
            topic_right("CREATE", "@c"),
        ],
        before=[_STREAMS_ON, *topic(), *group(), Wait(500)],
    ),
    Case(
        "describe-streams-groups",
        "StreamsGroupDescribe",
        {"group_ids": ["@g", "@other"], "include_authorized_operations": True},
        [group_right("DESCRIBE"), topic_right("DESCRIBE")],
        before=[
            _STREAMS_ON,
            *topic(),
            *group(),
            Wait(500),
            Ask("StreamsGroupHeartbeat", _streams_beat(), quiet=True),
        ],
    ),
]
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
            # Regular expressions are resolved in the background, and the matching topics are
            # assigned later.
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


CASES: list[Case] = [*_GROUPS, *_CONSUMER_GROUPS, *_STREAMS_GROUPS]
