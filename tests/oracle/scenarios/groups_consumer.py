"""Consumer groups (KIP-848), groups with classic members as well, and descriptions of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.group_steps import (
    described,
    empty,
    group,
    heartbeat,
    join_body,
    joined,
    preparing,
    stable,
    sync_body,
)
from tests.oracle.script import Ask, Scenario, Step, Subscribed, Wait, topic

_EPOCH = {"e": "member_epoch"}


def _beat_body(member_id: str = "@m", epoch: int | str = 0, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"group_id": "@g", "member_id": member_id, "member_epoch": epoch}
    if epoch == 0:
        body |= {
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["@t"],
            "topic_partitions": [],
        }
    return {**body, **more}


def _beat(
    member_id: str = "@m",
    epoch: int | str = 0,
    on: str = "a",
    save: Mapping[str, str] | None = None,
    until: Mapping[str, Any] | None = None,
    **more: Any,
) -> Ask:
    """A heartbeat, repeated with `until`: a coordinator may assign at most once a second, and a
    later heartbeat's answer has the result."""
    body = _beat_body(member_id, epoch, **more)
    return Ask("ConsumerGroupHeartbeat", body, on=on, save=save or {}, until=until or {})


def _entered(member_id: str = "@m", epoch: str = "e", on: str = "a", **more: Any) -> Ask:
    """Preparation: the member has joined; its epoch is saved."""
    body = _beat_body(member_id, **more)
    saved = {epoch: "member_epoch"}
    return Ask("ConsumerGroupHeartbeat", body, on=on, version=0, quiet=True, save=saved)


def _described(*names: str, version: int | None = None, **more: Any) -> Ask:
    body = {"group_ids": list(names or ("@g",)), **more}
    return Ask("ConsumerGroupDescribe", body, version=version)


def _owned(*partitions: int, topic_id: str = "$t") -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, "partitions": list(partitions)}]


#: Wait until the coordinator, too, knows a topic.
_KNOWN = Wait(300)
#: The time until the coordinator may assign again.
_INTERVAL = Wait(1_100)
_START: list[Step] = [*topic(partitions=2), *group(), _KNOWN]
_MEMBER: list[Step] = [*_START, _entered()]

_HEARTBEAT = [
    Scenario(
        "consumer-joins",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            _beat(save=_EPOCH),
            _beat(epoch="$e"),
            _beat(epoch="$e", topic_partitions=_owned(0, 1)),
            _beat(epoch="$e"),
            _described(),
        ],
    ),
    Scenario(
        "consumer-joins-without-an-id",
        "ConsumerGroupHeartbeat",
        [*_START, _beat("")],
    ),
    Scenario(
        "consumer-refused",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            _beat(group_id=""),
            _beat("", epoch=1),
            _beat("", epoch=-1),
            _beat(rebalance_timeout_ms=-1),
            _beat(rebalance_timeout_ms=0),
            _beat(topic_partitions=None),
            _beat(topic_partitions=_owned(0)),
            _beat(subscribed_topic_names=None),
            _beat(server_assignor="nonesuch"),
            _beat(server_assignor=""),
            _beat(instance_id=""),
            _beat(rack_id=""),
            _beat(epoch=-3),
            _beat(epoch=-2),
            _beat(epoch=-(1 << 31)),
            _described(),
        ],
    ),
    Scenario(
        "consumer-refused-names",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            _beat(group_id="   "),
            _beat("   "),
            _beat("x" * 37, group_id="@other"),
        ],
    ),
    Scenario(
        "consumer-unknown",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            _beat(epoch=1),
            _beat(epoch=-1),
            _entered(),
            _beat("@n", epoch="$e"),
            _beat("@n", epoch=-1),
            _beat("@n", epoch=-2, instance_id="i"),
            _beat("@n", epoch=5, instance_id="i"),
        ],
    ),
    Scenario(
        "consumer-epochs",
        "ConsumerGroupHeartbeat",
        [
            *_MEMBER,
            _beat(epoch="$e+1"),
            _beat(epoch="$e+7"),
            _beat(epoch="$e"),
            _beat(epoch="$e-1"),
            _beat(epoch="$e-1", topic_partitions=_owned(0)),
            _beat(epoch=(1 << 31) - 1),
        ],
    ),
    Scenario(
        "consumer-joins-again",
        "ConsumerGroupHeartbeat",
        [
            *_MEMBER,
            _beat(),
            _beat(subscribed_topic_names=["@t", "@u"], save=_EPOCH, until={"member_epoch": 3}),
            _beat(epoch="$e"),
            _described(),
        ],
    ),
    Scenario(
        "consumer-leaves",
        "ConsumerGroupHeartbeat",
        [
            *_MEMBER,
            _beat(epoch=-1),
            _described(),
            _beat(epoch=-1),
            _beat(epoch="$e"),
            _beat(until={"member_epoch": 4}),
        ],
    ),
    Scenario(
        "consumer-subscribes-to-nothing",
        "ConsumerGroupHeartbeat",
        [*_START, _beat(subscribed_topic_names=[], save=_EPOCH), _beat(epoch="$e"), _described()],
    ),
    Scenario(
        "consumer-subscribes-to-a-topic-that-is-not-there",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            _beat(subscribed_topic_names=["@none"], save=_EPOCH),
            _beat(epoch="$e"),
            _described(),
            *topic("@none"),
            Ask(
                "ConsumerGroupHeartbeat",
                _beat_body(epoch="$e"),
                until={"assignment.topic_partitions.0.partitions": [0]},
            ),
            _described(),
        ],
    ),
    Scenario(
        "consumer-subscribes-twice",
        "ConsumerGroupHeartbeat",
        [*_START, _beat(subscribed_topic_names=["@t", "@t", ""]), _described()],
    ),
    Scenario(
        "consumer-changes-its-subscription",
        "ConsumerGroupHeartbeat",
        [
            *_MEMBER,
            *topic("@u"),
            _KNOWN,
            _beat(epoch="$e", subscribed_topic_names=["@u"], until={"assignment": {}}),
            _beat(epoch="$e", topic_partitions=[], until={"member_epoch": 3}),
            _described(),
        ],
    ),
    Scenario(
        "consumer-two-members",
        "ConsumerGroupHeartbeat",
        [
            *_MEMBER,
            _beat(epoch="$e", topic_partitions=_owned(0, 1)),
            _beat("@n", on="b", save={"f": "member_epoch"}, until={"member_epoch": 3}),
            _described(),
            _beat(epoch="$e"),
            _beat(epoch="$e", topic_partitions=_owned(0), save=_EPOCH),
            _beat("@n", epoch="$f", on="b"),
            _described(),
            _beat("@n", epoch=-1, on="b"),
            _beat(epoch="$e", save=_EPOCH, until={"member_epoch": 4}),
            _described(),
        ],
    ),
    Scenario(
        "consumer-static",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            _beat(instance_id="i", save=_EPOCH),
            _beat("@n", instance_id="i"),
            _beat(epoch="$e", instance_id="i"),
            _beat(epoch="$e", instance_id="j"),
            _beat("@n", epoch="$e", instance_id="i"),
            _beat(epoch="$e"),
            _beat(epoch=-2, instance_id="i"),
            _described(),
            _beat(epoch="$e", instance_id="i"),
            _beat("@n", instance_id="i", save=_EPOCH),
            _described(),
            _beat("@m", epoch=-2, instance_id="i"),
            _beat("@n", epoch=-1, instance_id="i"),
            _described(),
        ],
    ),
    Scenario(
        "consumer-static-leaves-for-good",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            _beat(instance_id="i"),
            _beat(epoch=-1, instance_id="j"),
            _beat(epoch=-1, instance_id="i"),
            _described(),
            _beat(epoch=-2),
        ],
    ),
    Scenario(
        "consumer-joins-again-with-an-instance-id",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            _beat(),
            _beat(instance_id="i", save=_EPOCH),
            _described(),
            _beat(epoch="$e", instance_id="i"),
            _beat(instance_id="j", save=_EPOCH),
            _described(),
            _beat(epoch="$e", instance_id="j"),
        ],
    ),
    Scenario(
        "consumer-static-joins-again",
        "ConsumerGroupHeartbeat",
        [*_START, _beat(instance_id="i"), _beat(instance_id="i")],
    ),
    Scenario(
        "consumer-not-static-says-back-soon",
        "ConsumerGroupHeartbeat",
        [*_MEMBER, _beat(epoch=-2), _beat(epoch=-2, instance_id="i"), _described()],
    ),
    Scenario(
        "consumer-assignors",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            _beat(server_assignor="range", save=_EPOCH),
            _described(),
            _beat(epoch="$e", server_assignor="uniform"),
            _described(),
            _beat(epoch="$e", server_assignor="nonesuch"),
        ],
    ),
    Scenario(
        "consumer-regex",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            _beat(subscribed_topic_names=None, subscribed_topic_regex="("),
            _beat(subscribed_topic_names=None, subscribed_topic_regex="[a-"),
            _beat(subscribed_topic_names=None, subscribed_topic_regex=""),
            _beat(
                subscribed_topic_names=None,
                subscribed_topic_regex="no-such-topic-.*",
                save=_EPOCH,
            ),
            _described(),
            _beat(epoch="$e", subscribed_topic_regex="("),
        ],
        versions="1",
    ),
    Scenario(
        "consumer-regex-matches",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            *topic("@u"),
            *topic("@tt", partitions=2),
            _KNOWN,
            # An expression is resolved in the background.
            Ask(
                "ConsumerGroupHeartbeat",
                _beat_body(subscribed_topic_names=[], subscribed_topic_regex="@t+"),
                until={"assignment.topic_partitions.1.partitions": [0, 1]},
                ignore=("member_epoch",),
            ),
            Ask(
                "ConsumerGroupDescribe",
                {"group_ids": ["@g"]},
                version=1,
                until={"groups.0.group_state": "Stable"},
                ignore=(
                    *("groups.0.group_epoch", "groups.0.assignment_epoch"),
                    "groups.0.members.0.member_epoch",
                ),
            ),
        ],
        versions="1",
    ),
    Scenario(
        "consumer-regex-matches-internal",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            Ask(
                "ConsumerGroupHeartbeat",
                _beat_body(subscribed_topic_names=[], subscribed_topic_regex="__consumer_.ffsets"),
                until={"assignment.topic_partitions.0.partitions": list(range(50))},
                ignore=("member_epoch",),
            ),
        ],
        versions="1",
    ),
    Scenario(
        "consumer-owns-what-it-was-not-given",
        "ConsumerGroupHeartbeat",
        [
            *_MEMBER,
            _beat(epoch="$e", topic_partitions=_owned(0, 1, 7)),
            _beat(
                epoch="$e",
                topic_partitions=[{"topic_id": bytes(15) + b"\x09", "partitions": [0]}],
            ),
            _beat(epoch="$e", topic_partitions=_owned(0, 0)),
        ],
    ),
    Scenario(
        "consumer-topic-is-deleted",
        "ConsumerGroupHeartbeat",
        [
            *_MEMBER,
            _beat(epoch="$e", topic_partitions=_owned(0, 1)),
            Ask("DeleteTopics", {"topic_names": ["@t"], "timeout_ms": 10_000}, version=5),
            _beat(epoch="$e", topic_partitions=[], until={"member_epoch": 3}),
            _described(),
        ],
    ),
]

_MIXED = [
    Scenario(
        "consumer-describe",
        "ConsumerGroupDescribe",
        [
            *_MEMBER,
            _described("@g", "@unknown", "", include_authorized_operations=True),
            Ask("ConsumerGroupDescribe", {"group_ids": []}),
        ],
    ),
    Scenario(
        "consumer-describe-classic",
        "ConsumerGroupDescribe",
        [*stable(), _described()],
    ),
    Scenario(
        "consumer-describe-emptied",
        "ConsumerGroupDescribe",
        [
            *_MEMBER,
            _beat(epoch=-1),
            _described(),
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            _described(),
        ],
    ),
    Scenario(
        "describe-groups-of-consumers",
        "DescribeGroups",
        [
            *_MEMBER,
            described(version=None),
            _beat(epoch=-1),
            described(version=None),
        ],
    ),
    Scenario(
        "join-in-a-consumer-group",
        "JoinGroup",
        [
            *_MEMBER,
            Ask("JoinGroup", join_body(protocols=(("range", b"\x01"),))),
            Ask("JoinGroup", join_body(protocol_type="connect")),
            Ask("JoinGroup", join_body(protocols=())),
            _INTERVAL,
            Ask("JoinGroup", join_body("nobody", protocols=(("range", Subscribed()),))),
            Ask("JoinGroup", join_body("@m", protocols=(("range", Subscribed()),))),
        ],
    ),
    Scenario(
        "sync-in-a-consumer-group",
        "SyncGroup",
        [
            *_MEMBER,
            Ask("SyncGroup", sync_body("@m", generation="$e")),
            Ask("SyncGroup", sync_body("nobody", generation="$e")),
            Ask("SyncGroup", sync_body("@m", generation=7)),
        ],
    ),
    Scenario(
        "heartbeat-in-a-consumer-group",
        "Heartbeat",
        [
            *_MEMBER,
            heartbeat("@m", "$e"),
            heartbeat("nobody", "$e"),
            heartbeat("@m", 9),
            heartbeat("", -1),
        ],
    ),
    Scenario(
        "leave-a-consumer-group",
        "LeaveGroup",
        [
            *_MEMBER,
            Ask(
                "LeaveGroup",
                {"group_id": "@g", "member_id": "nobody", "members": [{"member_id": "nobody"}]},
            ),
            Ask(
                "LeaveGroup",
                {
                    "group_id": "@g",
                    "member_id": "@m",
                    "members": [
                        {"member_id": "@m"},
                        {"member_id": "", "group_instance_id": "i"},
                    ],
                },
            ),
            _described(version=0),
        ],
    ),
    Scenario(
        "commit-in-a-consumer-group",
        "OffsetCommit",
        [
            *_MEMBER,
            *(
                Ask(
                    "OffsetCommit",
                    {
                        "group_id": "@g",
                        "generation_id_or_member_epoch": epoch,
                        "member_id": member,
                        "topics": [
                            {
                                "name": "@t",
                                "topic_id": "$t",
                                "partitions": [{"partition_index": 0, "committed_offset": 1}],
                            }
                        ],
                    },
                )
                for member, epoch in (
                    ("@m", "$e"),
                    ("@m", "$e-1"),
                    ("@m", "$e+1"),
                    ("@m", -1),
                    ("nobody", "$e"),
                    ("nobody", -1),
                    ("", -1),
                    ("", "$e"),
                )
            ),
            _beat(epoch=-1),
            Ask(
                "OffsetCommit",
                {
                    "group_id": "@g",
                    "topics": [
                        {
                            "name": "@t",
                            "topic_id": "$t",
                            "partitions": [{"partition_index": 0, "committed_offset": 7}],
                        }
                    ],
                },
            ),
        ],
    ),
    Scenario(
        "offset-fetch-in-a-consumer-group",
        "OffsetFetch",
        [
            *_MEMBER,
            *(
                Ask(
                    "OffsetFetch",
                    {
                        "groups": [
                            {
                                "group_id": "@g",
                                "member_id": member,
                                "member_epoch": epoch,
                                "topics": [
                                    {"name": "@t", "topic_id": "$t", "partition_indexes": [0]}
                                ],
                            }
                        ]
                    },
                )
                for member, epoch in (
                    ("@m", "$e"),
                    ("@m", "$e-1"),
                    ("@m", "$e+1"),
                    ("nobody", "$e"),
                    (None, -1),
                    ("", -1),
                )
            ),
        ],
        versions="9-10",
    ),
    Scenario(
        "offset-delete-in-a-consumer-group",
        "OffsetDelete",
        [
            *_MEMBER,
            *topic("@u"),
            Ask(
                "OffsetDelete",
                {
                    "group_id": "@g",
                    "topics": [
                        {"name": name, "partitions": [{"partition_index": 0}]}
                        for name in ("@t", "@u")
                    ],
                },
            ),
        ],
    ),
    Scenario(
        "delete-groups-of-consumers",
        "DeleteGroups",
        [
            *_MEMBER,
            Ask("DeleteGroups", {"groups_names": ["@g"]}),
            _beat(epoch=-1),
            Ask("DeleteGroups", {"groups_names": ["@g"]}),
            described(),
        ],
    ),
    Scenario(
        "consumer-joins-an-empty-classic-group",
        "ConsumerGroupHeartbeat",
        [*topic(partitions=2), *empty(), _KNOWN, _beat(), _described(), described()],
    ),
    Scenario(
        "consumer-joins-a-classic-group",
        "ConsumerGroupHeartbeat",
        [
            *topic(partitions=2),
            *stable((("range", Subscribed()),)),
            _beat(),
            _described(),
            described(),
            heartbeat(),
        ],
    ),
    Scenario(
        "consumer-joins-a-classic-group-of-rubbish",
        "ConsumerGroupHeartbeat",
        [*topic(), *stable((("range", b"\x00\x00\x00\x7f"),)), _beat(), described()],
    ),
    Scenario(
        "consumer-joins-a-group-that-is-no-consumer",
        "ConsumerGroupHeartbeat",
        [*topic(), *stable(protocol_type="connect"), _beat(), described()],
    ),
    Scenario(
        "consumer-joins-while-a-classic-group-rebalances",
        "ConsumerGroupHeartbeat",
        [*topic(), *preparing(), _beat()],
    ),
    Scenario(
        "classic-joins-an-emptied-consumer-group",
        "JoinGroup",
        [
            *_MEMBER,
            _beat(epoch=-1),
            *joined((("range", Subscribed()),)),
            described(),
            _described(version=0),
        ],
        versions="9",
    ),
    Scenario(
        "classic-comes-back-for-the-only-static-member",
        "JoinGroup",
        [
            *_START,
            _entered(instance_id="i"),
            _beat(epoch="$e", instance_id="i", topic_partitions=_owned(0, 1)),
            _beat(epoch=-2, instance_id="i"),
            Ask(
                "JoinGroup",
                join_body(protocols=(("range", Subscribed()),), group_instance_id="i"),
                on="b",
                save={"n": "member_id", "gen": "generation_id"},
            ),
            described(),
            _described(version=0),
        ],
        versions="9",
    ),
    Scenario(
        "classic-comes-back-for-the-last-consumer-member",
        "JoinGroup",
        [
            *_START,
            *joined((("range", Subscribed()),)),
            Ask("SyncGroup", sync_body(), version=5, quiet=True),
            _entered("@n", instance_id="i"),
            Ask(
                "JoinGroup",
                join_body(protocols=(("range", Subscribed()),), group_instance_id="i"),
                on="b",
                save={"n": "member_id", "gen2": "generation_id"},
            ),
            heartbeat("$n", "$gen2", on="b", group_instance_id="i"),
            Ask(
                "SyncGroup",
                sync_body("$n", "$gen2", group_instance_id="i"),
                on="b",
                version=5,
            ),
            heartbeat(),
            _described(version=0),
        ],
        versions="9",
    ),
    Scenario(
        "consumer-replaces-a-static-classic-member",
        "ConsumerGroupHeartbeat",
        [
            *_START,
            *joined((("range", Subscribed()),), group_instance_id="i"),
            Ask("SyncGroup", sync_body(group_instance_id="i"), version=5, quiet=True),
            _beat("@n", instance_id="i", save=_EPOCH),
            _INTERVAL,
            _beat("@n", epoch="$e", instance_id="i", topic_partitions=[]),
            _INTERVAL,
            _beat("@n", epoch="$e", instance_id="i", topic_partitions=[]),
            _described(version=0),
        ],
    ),
    Scenario(
        "classic-joins-a-consumer-group",
        "JoinGroup",
        [
            *_START,
            _entered(),
            _beat(epoch="$e", topic_partitions=_owned(0, 1)),
            _INTERVAL,
            Ask(
                "JoinGroup",
                join_body(protocols=(("range", Subscribed()),)),
                on="b",
                save={"n": "member_id", "gen": "generation_id"},
            ),
            Ask("SyncGroup", sync_body("$n"), on="b"),
            _beat(epoch="$e", until={"assignment.topic_partitions.0.partitions": [0]}),
            heartbeat("$n", on="b"),
            _described(version=1),
        ],
        versions="2-3",
    ),
]

_TOLD = [
    Scenario(
        "describe-groups",
        "DescribeGroups",
        [
            *stable(),
            described("@g", "@unknown", "", version=None),
            described("@g", version=None),
            Ask("DescribeGroups", {"groups": ["@g"], "include_authorized_operations": True}),
            Ask("DescribeGroups", {"groups": []}),
        ],
    ),
    Scenario(
        "describe-groups-in-each-state",
        "DescribeGroups",
        [*preparing(), described(version=None)],
    ),
    Scenario("describe-groups-completing", "DescribeGroups", [*joined(), described(version=None)]),
    Scenario("describe-groups-emptied", "DescribeGroups", [*empty(), described(version=None)]),
    Scenario(
        "describe-groups-static",
        "DescribeGroups",
        [*stable(group_instance_id="i"), described(version=None)],
    ),
]


def _listed(states: Sequence[str] = (), types: Sequence[str] = ()) -> Ask:
    body = {"states_filter": list(states), "types_filter": list(types)}
    return Ask("ListGroups", body, mine=True)


_TOLD += [
    Scenario(
        "list-groups",
        "ListGroups",
        [
            *topic(),
            *stable(),
            *group("@h"),
            _entered(group_id="@h"),
            _listed(),
        ],
    ),
    Scenario(
        "list-groups-by-state",
        "ListGroups",
        [
            *topic(),
            *stable(),
            *group("@h"),
            _entered(group_id="@h"),
            _listed(["Stable"]),
            _listed(["stable"]),
            _listed(["STABLE", "Empty"]),
            _listed(["Empty"]),
            _listed(["Dead"]),
            _listed(["nonesuch"]),
            _listed([""]),
            _listed(["Stable", "Stable"]),
            _listed(["PreparingRebalance"]),
            _listed(["Assigning", "Reconciling"]),
        ],
        versions="4-5",
    ),
    Scenario(
        "list-groups-by-type",
        "ListGroups",
        [
            *topic(),
            *stable(),
            *group("@h"),
            _entered(group_id="@h"),
            _listed(types=["classic"]),
            _listed(types=["Classic"]),
            _listed(types=["CONSUMER"]),
            _listed(types=["consumer", "classic"]),
            _listed(types=["nonesuch"]),
            _listed(types=["share"]),
            _listed(types=["streams"]),
            _listed(types=[""]),
            _listed(["Stable"], ["classic"]),
            _listed(["Empty"], ["consumer"]),
        ],
        versions="5",
    ),
    Scenario(
        "list-groups-in-each-state",
        "ListGroups",
        [*joined(), _listed()],
    ),
]

SCENARIOS = [*_HEARTBEAT, *_MIXED, *_TOLD]
