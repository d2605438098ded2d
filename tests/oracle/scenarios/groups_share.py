"""Share groups (KIP-932): members, descriptions, start offsets, deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.group_steps import group, join_body, stable
from tests.oracle.script import Ask, Batch, Step, Wait, produced, scenarios_of, topic

_EPOCH = {"e": "member_epoch"}


def share_heartbeat(
    member_id: str = "m",
    epoch: int | str = 0,
    save: Mapping[str, str] | None = None,
    until: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **more: Any,
) -> Ask:
    """A heartbeat that is repeated until its answer has the values in `until`.

    The first answers may lack these values: share partitions get their state in the background, and
    a coordinator computes assignments at most once a second.
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
    return share_heartbeat(member_id, save={epoch: "member_epoch"}, quiet=True, **more)


def share_described(*names: str, **more: Any) -> Ask:
    return Ask("ShareGroupDescribe", {"group_ids": list(names or ("@g",)), **more})


#: Asks only for partitions that exist: for other partitions, Kafka retries longer than a client
#: waits.
def share_offsets(*topics: tuple[str, Sequence[int]], group_id: str = "@g", **more: Any) -> Ask:
    wanted = [{"topic_name": name, "partitions": list(indexes)} for name, indexes in topics]
    body = {"groups": [{"group_id": group_id, "topics": wanted}]}
    return Ask("DescribeShareGroupOffsets", body, **more)


def all_share_offsets(group_id: str = "@g", **more: Any) -> Ask:
    return Ask(
        "DescribeShareGroupOffsets", {"groups": [{"group_id": group_id, "topics": None}]}, **more
    )


def alter_share_offsets(
    *topics: tuple[str, Mapping[int, int]], group_id: str = "@g", **more: Any
) -> Ask:
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


def delete_share_offsets(*names: str, group_id: str = "@g", **more: Any) -> Ask:
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
    share_heartbeat(epoch="$e", until={"member_epoch": 3}, save=_EPOCH, quiet=True),
]
_LEFT: list[Step] = [*_MEMBER, share_heartbeat(epoch=-1, quiet=True)]

_HEARTBEAT = scenarios_of(
    {
        ("share-joins", "ShareGroupHeartbeat"): [
            *_START,
            share_heartbeat(save=_EPOCH),
            share_heartbeat(epoch="$e", until={"member_epoch": 3}, save=_EPOCH),
            share_heartbeat(epoch="$e"),
            share_heartbeat(epoch="$e", subscribed_topic_names=["@t"]),
            share_heartbeat(epoch="$e", rack_id="r"),
            share_heartbeat(epoch="$e"),
            share_described(),
        ],
        ("share-refused", "ShareGroupHeartbeat"): [
            *_START,
            share_heartbeat(group_id=""),
            share_heartbeat(""),
            share_heartbeat("", epoch=1),
            share_heartbeat("   "),
            share_heartbeat(group_id="   "),
            share_heartbeat("x" * 36, group_id="@other"),
            share_heartbeat("x" * 37, group_id="@other"),
            share_heartbeat(rack_id=""),
            share_heartbeat(rack_id="  "),
            share_heartbeat(subscribed_topic_names=None),
            share_heartbeat(subscribed_topic_names=[]),
            share_heartbeat(epoch=-2),
            share_heartbeat(epoch=-(1 << 31)),
            share_described(),
        ],
        ("share-unknown", "ShareGroupHeartbeat"): [
            *_START,
            share_heartbeat(epoch=1),
            share_heartbeat(epoch=-1),
            _entered(),
            share_heartbeat("n", epoch="$e"),
            share_heartbeat("n", epoch=-1),
        ],
        ("share-epochs", "ShareGroupHeartbeat"): [
            *_MEMBER,
            share_heartbeat(epoch="$e+1"),
            share_heartbeat(epoch="$e+7"),
            share_heartbeat(epoch="$e-1"),
            share_heartbeat(epoch="$e-2"),
            share_heartbeat(epoch="$e"),
            share_heartbeat(epoch=(1 << 31) - 1),
            share_heartbeat(),
            share_described(),
        ],
        ("share-two-members", "ShareGroupHeartbeat"): [
            *_MEMBER,
            _INTERVAL,
            share_heartbeat("n"),
            share_heartbeat("n", epoch=4),
            share_heartbeat(epoch="$e"),
            share_heartbeat(epoch=4),
            share_heartbeat("n", epoch=-1),
            _INTERVAL,
            share_heartbeat(epoch=4),
            share_described(),
        ],
        ("share-joins-too-early", "ShareGroupHeartbeat"): [
            *_MEMBER,
            share_heartbeat("n", until={"member_epoch": 4}, quiet=True),
            share_heartbeat("n", epoch=4),
            share_heartbeat("n", epoch=4, subscribed_topic_names=["@none"]),
            share_heartbeat("n", epoch=4, until={"member_epoch": 5}),
            share_heartbeat("n", epoch=5),
        ],
        ("share-leaves-and-returns", "ShareGroupHeartbeat"): [
            *_MEMBER,
            share_heartbeat(epoch=-1),
            share_described(),
            share_heartbeat(epoch="$e"),
            share_heartbeat(epoch=-1),
            _INTERVAL,
            share_heartbeat(),
            share_described(),
        ],
        ("share-subscribes-to-others", "ShareGroupHeartbeat"): [
            *_MEMBER,
            *topic("@u", partitions=2),
            _KNOWN,
            _INTERVAL,
            share_heartbeat(epoch="$e", subscribed_topic_names=["@t", "@u"]),
            share_heartbeat(epoch=4, until={"member_epoch": 5}),
            _INTERVAL,
            share_heartbeat(epoch=5, subscribed_topic_names=["@u"]),
            share_heartbeat(epoch=6, until={"member_epoch": 6}),
            _INTERVAL,
            share_heartbeat(epoch=6, subscribed_topic_names=["@none"]),
            _INTERVAL,
            share_heartbeat(epoch=7),
            share_described(),
        ],
        ("share-topic-is-created", "ShareGroupHeartbeat"): [
            *group(),
            _entered(),
            share_heartbeat(epoch="$e"),
            *topic(),
            _KNOWN,
            _INTERVAL,
            share_heartbeat(epoch="$e", until={"member_epoch": 4}),
            share_described(),
        ],
        ("share-topic-grows", "ShareGroupHeartbeat"): [
            *_MEMBER,
            Ask(
                "CreatePartitions",
                {"timeout_ms": 10_000, "topics": [{"name": "@t", "count": 3, "assignments": None}]},
                quiet=True,
            ),
            _KNOWN,
            _INTERVAL,
            share_heartbeat(epoch="$e", until={"member_epoch": 5}),
            share_described(),
            all_share_offsets(),
        ],
        ("share-topic-is-deleted", "ShareGroupHeartbeat"): [
            *_MEMBER,
            Ask(
                "DeleteTopics", {"timeout_ms": 10_000, "topic_names": ["@t"]}, version=5, quiet=True
            ),
            _KNOWN,
            _INTERVAL,
            share_heartbeat(epoch="$e", until={"member_epoch": 4}),
            share_described(),
            all_share_offsets(),
        ],
        ("share-in-a-group-of-others", "ShareGroupHeartbeat"): [
            *topic(),
            *stable(),
            share_heartbeat(),
            share_heartbeat(epoch=1),
            share_heartbeat(epoch=-1),
            share_described(),
            alter_share_offsets(("@t", {0: 1})),
            delete_share_offsets("@t"),
            all_share_offsets(),
        ],
        ("others-in-a-share-group", "ShareGroupHeartbeat"): [
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
            share_described(),
        ],
    }
)

_DESCRIBE = scenarios_of(
    {
        ("share-group-describe", "ShareGroupDescribe"): [
            *_MEMBER,
            share_described(),
            share_described(include_authorized_operations=True),
            share_described("@none"),
            share_described(""),
            share_heartbeat(epoch=-1),
            share_described(),
        ],
        ("list-share-groups", "ListGroups", "5"): [
            *_MEMBER,
            _listed(),
            _listed(types=["share"]),
            _listed(types=["Share"]),
            _listed(types=["consumer"]),
            _listed(["Stable"], ["share"]),
            _listed(["Empty"], ["share"]),
            share_heartbeat(epoch=-1),
            _listed(["Empty"], ["share"]),
            _listed(["Stable"]),
        ],
    }
)

_OFFSETS = scenarios_of(
    {
        ("describe-share-offsets", "DescribeShareGroupOffsets"): [
            *topic(partitions=2),
            *group(),
            _KNOWN,
            produced(Batch(["a", "b", "c"])),
            all_share_offsets(),
            share_offsets(("@t", [0])),
            share_offsets(),
            _entered(),
            share_heartbeat(epoch="$e", until={"member_epoch": 3}, quiet=True),
            share_offsets(("@t", [0, 1])),
            share_offsets(("@none", [0]), ("@t", [1])),
            all_share_offsets(),
            share_heartbeat(epoch=-1, quiet=True),
            alter_share_offsets(("@t", {0: 1, 1: 5}), quiet=True),
            share_offsets(("@t", [0, 1])),
            all_share_offsets(),
            all_share_offsets(""),
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
        ("alter-share-offsets", "AlterShareGroupOffsets"): [
            *_MEMBER,
            alter_share_offsets(("@t", {0: 1})),
            share_heartbeat(epoch=-1, quiet=True),
            alter_share_offsets(("@t", {0: 1})),
            share_offsets(("@t", [0])),
            alter_share_offsets(("@t", {0: 2, 1: 3}), ("@none", {0: 1})),
            share_offsets(("@t", [0])),
            alter_share_offsets(("@t", {0: -1})),
            share_offsets(("@t", [0])),
            alter_share_offsets(("@t", {})),
            alter_share_offsets(),
            alter_share_offsets(("@t", {0: 1}), group_id=""),
            share_described(),
        ],
        ("alter-share-offsets-of-a-new-group", "AlterShareGroupOffsets"): [
            *_START,
            alter_share_offsets(("@t", {0: 1})),
            share_described(),
            all_share_offsets(),
            alter_share_offsets(("@none", {0: 1}), group_id="@h"),
            share_described("@h"),
            alter_share_offsets(("@t", {4: 1}), group_id="@i"),
            share_described("@i"),
        ],
        ("altered-share-offsets-are-assigned", "AlterShareGroupOffsets"): [
            *_START,
            alter_share_offsets(("@t", {0: 1})),
            share_offsets(("@t", [0]), until={"groups.0.topics.0.partitions.0.start_offset": 1}),
            share_heartbeat(),
            share_heartbeat(epoch=2),
        ],
        ("delete-share-offsets", "DeleteShareGroupOffsets"): [
            *_START,
            delete_share_offsets("@t"),
            alter_share_offsets(("@t", {0: 1}), quiet=True),
            delete_share_offsets("@none"),
            delete_share_offsets("@none", "@t"),
            all_share_offsets(),
            share_offsets(("@t", [0])),
            delete_share_offsets("@t"),
            delete_share_offsets(),
            delete_share_offsets("@t", group_id=""),
            share_described(),
            _entered(),
            share_heartbeat(epoch="$e", until={"member_epoch": 3}, quiet=True),
            delete_share_offsets("@t"),
        ],
        ("delete-share-group", "DeleteGroups", "2"): [
            *_MEMBER,
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            share_heartbeat(epoch=-1, quiet=True),
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            share_described(),
            share_offsets(("@t", [0])),
            all_share_offsets(),
            _listed(types=["share"]),
            _INTERVAL,
            share_heartbeat(),
        ],
    }
)

SCENARIOS = [*_HEARTBEAT, *_DESCRIBE, *_OFFSETS]
