"""Share groups, and their start offsets."""

from __future__ import annotations

from tests.oracle.group_steps import group
from tests.oracle.rights.cells import Case, cluster_right, group_right, topic_right
from tests.oracle.script import Ask, Batch, Step, Wait, coordinator, produced, topic

#: Enable share groups. In a new cluster they are enabled already.
_ON = Ask(
    "UpdateFeatures",
    {
        "timeout_ms": 10_000,
        "feature_updates": [
            {"feature": "share.version", "max_version_level": 1, "upgrade_type": 1}
        ],
    },
    version=2,
    quiet=True,
)
_WITH_GROUP: list[Step] = [_ON, *topic(), *topic("@hidden"), *group(), Wait(300)]
_BEAT = {"group_id": "@g", "member_id": "m", "member_epoch": 0}
_BOTH = {**_BEAT, "subscribed_topic_names": ["@t", "@hidden"]}
_DESCRIBED = Ask("ShareGroupDescribe", {"group_ids": ["@g"]})


def _altered(*names: str) -> dict[str, object]:
    partitions = [{"partition_index": 0, "start_offset": 1}]
    topics = [{"topic_name": name, "partitions": partitions} for name in names]
    return {"group_id": "@g", "topics": topics}


_STATES = Ask("AlterShareGroupOffsets", _altered("@t", "@hidden"), quiet=True)
_OFFSETS = Ask("DescribeShareGroupOffsets", {"groups": [{"group_id": "@g", "topics": None}]})
_WITH_STATES: list[Step] = [
    *_WITH_GROUP,
    _STATES,
    Ask(
        "DescribeShareGroupOffsets",
        {"groups": [{"group_id": "@g", "topics": None}]},
        quiet=True,
        until={"groups.0.topics.1.partitions.0.start_offset": 1},
    ),
]

_FETCHED = {
    "group_id": "@g",
    "member_id": "m",
    "share_session_epoch": 0,
    "max_wait_ms": 5_000,
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "max_records": 100,
    "batch_size": 100,
    "topics": [{"topic_id": "$t", "partitions": [{"partition_index": 0}]}],
}
_ACKNOWLEDGED = {
    "first_offset": 1,
    "last_offset": 1,
    "acknowledge_types": [1],
}
#: Two records, of which the second is after the start offset.
_WITH_RECORDS: list[Step] = [*_WITH_STATES, produced(Batch(["a", "b"]))]

CASES = [
    Case(
        "share-fetch",
        "ShareFetch",
        _FETCHED,
        [group_right("READ"), topic_right("READ")],
        before=_WITH_RECORDS,
    ),
    Case(
        "share-fetch-acknowledges",
        "ShareFetch",
        {
            **_FETCHED,
            "share_session_epoch": 1,
            "max_records": 0,
            "topics": [
                {
                    "topic_id": "$t",
                    "partitions": [
                        {"partition_index": 0, "acknowledgement_batches": [_ACKNOWLEDGED]}
                    ],
                }
            ],
        },
        [group_right("READ"), topic_right("READ")],
        before=[*_WITH_RECORDS, Ask("ShareFetch", _FETCHED, quiet=True)],
    ),
    Case(
        "share-acknowledge",
        "ShareAcknowledge",
        {
            "group_id": "@g",
            "member_id": "m",
            "share_session_epoch": 1,
            "topics": [
                {
                    "topic_id": "$t",
                    "partitions": [
                        {"partition_index": 0, "acknowledgement_batches": [_ACKNOWLEDGED]}
                    ],
                }
            ],
        },
        [group_right("READ"), topic_right("READ")],
        before=[*_WITH_RECORDS, Ask("ShareFetch", _FETCHED, quiet=True)],
    ),
    Case(
        "share-heartbeat",
        "ShareGroupHeartbeat",
        {**_BEAT, "subscribed_topic_names": ["@t"]},
        [group_right("READ"), topic_right("DESCRIBE")],
        before=_WITH_GROUP,
        after=[_DESCRIBED],
    ),
    Case(
        "share-heartbeat-for-what-is-not-there",
        "ShareGroupHeartbeat",
        {**_BEAT, "subscribed_topic_names": ["@absent"]},
        [group_right("READ"), topic_right("DESCRIBE", "@absent")],
        before=_WITH_GROUP,
    ),
    Case(
        "share-heartbeat-leaves",
        "ShareGroupHeartbeat",
        {**_BEAT, "member_epoch": -1},
        [group_right("READ")],
        before=[*_WITH_GROUP, Ask("ShareGroupHeartbeat", _BOTH, quiet=True)],
        after=[_DESCRIBED],
    ),
    Case(
        "describe-share-groups",
        "ShareGroupDescribe",
        {"group_ids": ["@g", "@other"], "include_authorized_operations": True},
        [group_right("DESCRIBE"), topic_right("DESCRIBE")],
        before=[
            *_WITH_STATES,
            Ask("ShareGroupHeartbeat", {**_BEAT, "subscribed_topic_names": ["@t"]}, quiet=True),
        ],
        extra={"reads": [group_right("READ"), topic_right("READ")]},
    ),
    Case(
        "describe-share-offsets",
        "DescribeShareGroupOffsets",
        {
            "groups": [
                {
                    "group_id": name,
                    "topics": [
                        {"topic_name": each, "partitions": [0]}
                        for each in ("@t", "@hidden", "@absent")
                    ],
                }
                for name in ("@g", "@other")
            ]
        },
        [group_right("DESCRIBE"), topic_right("DESCRIBE")],
        before=_WITH_STATES,
        extra={"reads": [group_right("READ"), topic_right("READ")]},
    ),
    Case(
        "describe-all-share-offsets",
        "DescribeShareGroupOffsets",
        {"groups": [{"group_id": "@g", "topics": None}]},
        [group_right("DESCRIBE"), topic_right("DESCRIBE")],
        before=_WITH_STATES,
    ),
    Case(
        "alter-share-offsets",
        "AlterShareGroupOffsets",
        _altered("@t", "@hidden", "@absent"),
        [group_right("READ"), topic_right("READ")],
        before=_WITH_GROUP,
        after=[Wait(300), _OFFSETS],
        extra={"describes": [group_right("DESCRIBE"), topic_right("READ")]},
    ),
    Case(
        "delete-share-offsets",
        "DeleteShareGroupOffsets",
        {
            "group_id": "@g",
            "topics": [{"topic_name": name} for name in ("@t", "@hidden", "@absent")],
        },
        [group_right("DELETE"), topic_right("READ")],
        before=_WITH_STATES,
        after=[Wait(300), _OFFSETS],
    ),
    Case(
        "delete-a-share-group",
        "DeleteGroups",
        {"groups_names": ["@g"]},
        [group_right("DELETE")],
        before=_WITH_STATES,
        after=[_DESCRIBED],
        versions="2-2",
    ),
    Case(
        "find-the-coordinator-of-a-share",
        "FindCoordinator",
        {"key_type": 2, "coordinator_keys": ["@g:AAAAAAAAAAAAAAAAAAAACQ:0", "x"]},
        [cluster_right("CLUSTER_ACTION")],
        before=[*_WITH_STATES, coordinator("@g")],
        versions="6-6",
    ),
]
