"""Share groups (KIP-932): members, descriptions, start offsets, deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.group_steps import group, join_body, stable
from tests.oracle.script import Ask, Batch, Scenario, Step, Wait, produced, topic

_EPOCH = {"e": "member_epoch"}


def _beat(
    member_id: str = "m",
    epoch: int | str = 0,
    save: Mapping[str, str] | None = None,
    until: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **more: Any,
) -> Ask:
    """A heartbeat, which is repeated until its answer has the values in `until`.

    Partitions get a state in the background, and a coordinator may compute assignments only once a
    second.
    """
    body: dict[str, Any] = {"group_id": "@g", "member_id": member_id, "member_epoch": epoch}
    if epoch == 0:
        body["subscribed_topic_names"] = ["@t"]
    return Ask(
        "ShareGroupHeartbeat",
        {**body, **more},
        save=save or {},
        until=until or {},
        quiet=quiet,
    )


def _entered(member_id: str = "m", epoch: str = "e", **more: Any) -> Ask:
    """Preparing step: a member joins; its epoch is saved."""
    return _beat(member_id, save={epoch: "member_epoch"}, quiet=True, **more)


def _described(*names: str, **more: Any) -> Ask:
    return Ask("ShareGroupDescribe", {"group_ids": list(names or ("@g",)), **more})


#: The partitions must exist: for others Kafka retries longer than a client waits.
def _offsets(*topics: tuple[str, Sequence[int]], group_id: str = "@g", **more: Any) -> Ask:
    wanted = [{"topic_name": name, "partitions": list(indexes)} for name, indexes in topics]
    body = {"groups": [{"group_id": group_id, "topics": wanted}]}
    return Ask("DescribeShareGroupOffsets", body, **more)


def _all_offsets(group_id: str = "@g", **more: Any) -> Ask:
    return Ask(
        "DescribeShareGroupOffsets", {"groups": [{"group_id": group_id, "topics": None}]}, **more
    )


def _alter(*topics: tuple[str, Mapping[int, int]], group_id: str = "@g", **more: Any) -> Ask:
    wanted = [
        {
            "topic_name": name,
            "partitions": [
                {"partition_index": index, "start_offset": start} for index, start in starts.items()
            ],
        }
        for name, starts in topics
    ]
    return Ask("AlterShareGroupOffsets", {"group_id": group_id, "topics": wanted}, **more)


def _delete(*names: str, group_id: str = "@g", **more: Any) -> Ask:
    topics = [{"topic_name": name} for name in names]
    return Ask("DeleteShareGroupOffsets", {"group_id": group_id, "topics": topics}, **more)


def _listed(states: Sequence[str] = (), types: Sequence[str] = ()) -> Ask:
    body = {"states_filter": list(states), "types_filter": list(types)}
    return Ask("ListGroups", body, version=5, mine=True)


#: Wait until the coordinator knows of a new topic.
_KNOWN = Wait(300)
#: The time after which the coordinator may compute an assignment again.
_INTERVAL = Wait(1_100)
_START: list[Step] = [*topic(), *group(), _KNOWN]
#: The member `m` has joined with epoch 2, and got partition 0 with epoch 3.
_MEMBER: list[Step] = [
    *_START,
    _entered(),
    _beat(epoch="$e", until={"member_epoch": 3}, save=_EPOCH, quiet=True),
]
_LEFT: list[Step] = [*_MEMBER, _beat(epoch=-1, quiet=True)]

_HEARTBEAT = [
    Scenario(
        "share-joins",
        "ShareGroupHeartbeat",
        [
            *_START,
            _beat(save=_EPOCH),
            _beat(epoch="$e", until={"member_epoch": 3}, save=_EPOCH),
            _beat(epoch="$e"),
            _beat(epoch="$e", subscribed_topic_names=["@t"]),
            _beat(epoch="$e", rack_id="r"),
            _beat(epoch="$e"),
            _described(),
        ],
    ),
    Scenario(
        "share-refused",
        "ShareGroupHeartbeat",
        [
            *_START,
            _beat(group_id=""),
            _beat(""),
            _beat("", epoch=1),
            _beat("   "),
            _beat(group_id="   "),
            _beat("x" * 36, group_id="@other"),
            _beat("x" * 37, group_id="@other"),
            _beat(rack_id=""),
            _beat(rack_id="  "),
            _beat(subscribed_topic_names=None),
            _beat(subscribed_topic_names=[]),
            _beat(epoch=-2),
            _beat(epoch=-(1 << 31)),
            _described(),
        ],
    ),
    Scenario(
        "share-unknown",
        "ShareGroupHeartbeat",
        [
            *_START,
            _beat(epoch=1),
            _beat(epoch=-1),
            _entered(),
            _beat("n", epoch="$e"),
            _beat("n", epoch=-1),
        ],
    ),
    Scenario(
        "share-epochs",
        "ShareGroupHeartbeat",
        [
            *_MEMBER,
            _beat(epoch="$e+1"),
            _beat(epoch="$e+7"),
            _beat(epoch="$e-1"),
            _beat(epoch="$e-2"),
            _beat(epoch="$e"),
            _beat(epoch=(1 << 31) - 1),
            _beat(),
            _described(),
        ],
    ),
    Scenario(
        "share-two-members",
        "ShareGroupHeartbeat",
        [
            *_MEMBER,
            _INTERVAL,
            _beat("n"),
            _beat("n", epoch=4),
            _beat(epoch="$e"),
            _beat(epoch=4),
            _beat("n", epoch=-1),
            _INTERVAL,
            _beat(epoch=4),
            _described(),
        ],
    ),
    Scenario(
        "share-joins-too-early",
        "ShareGroupHeartbeat",
        [
            *_MEMBER,
            _beat("n", until={"member_epoch": 4}, quiet=True),
            _beat("n", epoch=4),
            _beat("n", epoch=4, subscribed_topic_names=["@none"]),
            _beat("n", epoch=4, until={"member_epoch": 5}),
            _beat("n", epoch=5),
        ],
    ),
    Scenario(
        "share-leaves-and-returns",
        "ShareGroupHeartbeat",
        [
            *_MEMBER,
            _beat(epoch=-1),
            _described(),
            _beat(epoch="$e"),
            _beat(epoch=-1),
            _INTERVAL,
            _beat(),
            _described(),
        ],
    ),
    Scenario(
        "share-subscribes-to-others",
        "ShareGroupHeartbeat",
        [
            *_MEMBER,
            *topic("@u", partitions=2),
            _KNOWN,
            _INTERVAL,
            _beat(epoch="$e", subscribed_topic_names=["@t", "@u"]),
            _beat(epoch=4, until={"member_epoch": 5}),
            _INTERVAL,
            _beat(epoch=5, subscribed_topic_names=["@u"]),
            _beat(epoch=6, until={"member_epoch": 6}),
            _INTERVAL,
            _beat(epoch=6, subscribed_topic_names=["@none"]),
            _INTERVAL,
            _beat(epoch=7),
            _described(),
        ],
    ),
    Scenario(
        "share-topic-is-created",
        "ShareGroupHeartbeat",
        [
            *group(),
            _entered(),
            _beat(epoch="$e"),
            *topic(),
            _KNOWN,
            _INTERVAL,
            _beat(epoch="$e", until={"member_epoch": 4}),
            _described(),
        ],
    ),
    Scenario(
        "share-topic-grows",
        "ShareGroupHeartbeat",
        [
            *_MEMBER,
            Ask(
                "CreatePartitions",
                {"timeout_ms": 10_000, "topics": [{"name": "@t", "count": 3, "assignments": None}]},
                quiet=True,
            ),
            _KNOWN,
            _INTERVAL,
            _beat(epoch="$e", until={"member_epoch": 5}),
            _described(),
        ],
    ),
    Scenario(
        "share-topic-is-deleted",
        "ShareGroupHeartbeat",
        [
            *_MEMBER,
            Ask(
                "DeleteTopics", {"timeout_ms": 10_000, "topic_names": ["@t"]}, version=5, quiet=True
            ),
            _KNOWN,
            _INTERVAL,
            _beat(epoch="$e", until={"member_epoch": 4}),
            _described(),
            _all_offsets(),
        ],
    ),
    Scenario(
        "share-in-a-group-of-others",
        "ShareGroupHeartbeat",
        [
            *topic(),
            *stable(),
            _beat(),
            _beat(epoch=1),
            _beat(epoch=-1),
            _described(),
            _alter(("@t", {0: 1})),
            _delete("@t"),
            _all_offsets(),
        ],
    ),
    Scenario(
        "others-in-a-share-group",
        "ShareGroupHeartbeat",
        [
            *_MEMBER,
            Ask("JoinGroup", join_body(), version=9),
            Ask("JoinGroup", join_body(member_id="m"), version=9),
            Ask("Heartbeat", {"group_id": "@g", "generation_id": 3, "member_id": "m"}),
            Ask(
                "SyncGroup",
                {"group_id": "@g", "generation_id": 3, "member_id": "m", "assignments": []},
            ),
            Ask("LeaveGroup", {"group_id": "@g", "members": [{"member_id": "m"}]}),
            Ask(
                "ConsumerGroupHeartbeat",
                {
                    "group_id": "@g",
                    "member_id": "n",
                    "member_epoch": 0,
                    "rebalance_timeout_ms": 60_000,
                    "subscribed_topic_names": ["@t"],
                    "topic_partitions": [],
                },
            ),
            Ask(
                "ConsumerGroupHeartbeat",
                {"group_id": "@g", "member_id": "m", "member_epoch": -1},
            ),
            Ask(
                "OffsetCommit",
                {
                    "group_id": "@g",
                    "generation_id_or_member_epoch": -1,
                    "topics": [
                        {
                            "name": "@t",
                            "partitions": [{"partition_index": 0, "committed_offset": 1}],
                        }
                    ],
                },
                version=9,
            ),
            Ask(
                "OffsetFetch",
                {
                    "groups": [
                        {"group_id": "@g", "topics": [{"name": "@t", "partition_indexes": [0]}]}
                    ]
                },
                version=8,
            ),
            Ask(
                "OffsetDelete",
                {
                    "group_id": "@g",
                    "topics": [{"name": "@t", "partitions": [{"partition_index": 0}]}],
                },
            ),
            Ask("DescribeGroups", {"groups": ["@g"]}, version=6),
            Ask("ConsumerGroupDescribe", {"group_ids": ["@g"]}),
            _described(),
        ],
    ),
]

_DESCRIBE = [
    Scenario(
        "share-group-describe",
        "ShareGroupDescribe",
        [
            *_MEMBER,
            _described(),
            _described(include_authorized_operations=True),
            _described("@none"),
            _described(""),
            _beat(epoch=-1),
            _described(),
        ],
    ),
    Scenario(
        "list-share-groups",
        "ListGroups",
        [
            *_MEMBER,
            _listed(),
            _listed(types=["share"]),
            _listed(types=["Share"]),
            _listed(types=["consumer"]),
            _listed(["Stable"], ["share"]),
            _listed(["Empty"], ["share"]),
            _beat(epoch=-1),
            _listed(["Empty"], ["share"]),
            _listed(["Stable"]),
        ],
        versions="5",
    ),
]

_OFFSETS = [
    Scenario(
        "describe-share-offsets",
        "DescribeShareGroupOffsets",
        [
            *topic(partitions=2),
            *group(),
            _KNOWN,
            produced(Batch(["a", "b", "c"])),
            _all_offsets(),
            _offsets(("@t", [0])),
            _offsets(),
            _entered(),
            _beat(epoch="$e", until={"member_epoch": 3}, quiet=True),
            _offsets(("@t", [0, 1])),
            _offsets(("@none", [0]), ("@t", [1])),
            _all_offsets(),
            _beat(epoch=-1, quiet=True),
            _alter(("@t", {0: 1, 1: 5}), quiet=True),
            _offsets(("@t", [0, 1])),
            _all_offsets(),
            _all_offsets(""),
            Ask(
                "DescribeShareGroupOffsets",
                {
                    "groups": [
                        {"group_id": "@g", "topics": None},
                        {"group_id": "@h", "topics": None},
                        {"group_id": "@g", "topics": []},
                    ]
                },
            ),
        ],
    ),
    Scenario(
        "alter-share-offsets",
        "AlterShareGroupOffsets",
        [
            *_MEMBER,
            _alter(("@t", {0: 1})),
            _beat(epoch=-1, quiet=True),
            _alter(("@t", {0: 1})),
            _offsets(("@t", [0])),
            _alter(("@t", {0: 2, 1: 3}), ("@none", {0: 1})),
            _offsets(("@t", [0])),
            _alter(("@t", {0: -1})),
            _offsets(("@t", [0])),
            _alter(("@t", {})),
            _alter(),
            _alter(("@t", {0: 1}), group_id=""),
            _described(),
        ],
    ),
    Scenario(
        "alter-share-offsets-of-a-new-group",
        "AlterShareGroupOffsets",
        [
            *_START,
            _alter(("@t", {0: 1})),
            _described(),
            _all_offsets(),
            _alter(("@none", {0: 1}), group_id="@h"),
            _described("@h"),
            _alter(("@t", {4: 1}), group_id="@i"),
            _described("@i"),
        ],
    ),
    Scenario(
        "altered-share-offsets-are-assigned",
        "AlterShareGroupOffsets",
        [
            *_START,
            _alter(("@t", {0: 1})),
            _offsets(("@t", [0]), until={"groups.0.topics.0.partitions.0.start_offset": 1}),
            _beat(),
            _beat(epoch=2),
        ],
    ),
    Scenario(
        "delete-share-offsets",
        "DeleteShareGroupOffsets",
        [
            *_START,
            _delete("@t"),
            _alter(("@t", {0: 1}), quiet=True),
            _delete("@none"),
            _delete("@none", "@t"),
            _all_offsets(),
            _offsets(("@t", [0])),
            _delete("@t"),
            _delete(),
            _delete("@t", group_id=""),
            _described(),
            _entered(),
            _beat(epoch="$e", until={"member_epoch": 3}, quiet=True),
            _delete("@t"),
        ],
    ),
    Scenario(
        "delete-share-group",
        "DeleteGroups",
        [
            *_MEMBER,
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            _beat(epoch=-1, quiet=True),
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            _described(),
            _offsets(("@t", [0])),
            _all_offsets(),
            _listed(types=["share"]),
            _INTERVAL,
            _beat(),
        ],
        versions="2",
    ),
]

SCENARIOS = [*_HEARTBEAT, *_DESCRIBE, *_OFFSETS]
