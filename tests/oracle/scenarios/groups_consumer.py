"""Consumer groups (KIP-848), some with classic members, and descriptions of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.oracle.group_steps import (
    described,
    empty,
    group,
    heartbeat,
    join_body,
    joined,
    preparing,
    rebalancing,
    stable,
    sync_body,
)
from tests.oracle.script import (
    Ask,
    Assigned,
    Receive,
    Send,
    Step,
    Subscribed,
    Wait,
    scenarios_of,
    topic,
)

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


def consumer_heartbeat(
    member_id: str = "@m",
    epoch: int | str = 0,
    on: str = "a",
    save: Mapping[str, str] | None = None,
    until: Mapping[str, Any] | None = None,
    **more: Any,
) -> Ask:
    """A heartbeat that is repeated until its answer has the values in `until`.

    A coordinator computes assignments at most once a second, so that sometimes only a later answer
    has the assignment.
    """
    body = _beat_body(member_id, epoch, **more)
    return Ask("ConsumerGroupHeartbeat", body, on=on, save=save or {}, until=until or {})


def _entered(member_id: str = "@m", epoch: str = "e", on: str = "a", **more: Any) -> Ask:
    """Preparing step: a member joins; its epoch is saved."""
    body = _beat_body(member_id, **more)
    saved = {epoch: "member_epoch"}
    return Ask("ConsumerGroupHeartbeat", body, on=on, version=0, quiet=True, save=saved)


def consumer_described(*names: str, version: int | None = None, **more: Any) -> Ask:
    body = {"group_ids": list(names or ("@g",)), **more}
    return Ask("ConsumerGroupDescribe", body, version=version)


def owned(*partitions: int, topic_id: str = "$t") -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, "partitions": list(partitions)}]


#: Wait until the coordinator knows of a new topic.
TOPICS_KNOWN = Wait(300)
#: The time after which the coordinator may compute an assignment again.
_INTERVAL = Wait(1_100)
_LONG_INTERVAL = Ask(
    "IncrementalAlterConfigs",
    {
        "resources": [
            {
                "resource_type": 32,
                "resource_name": "@g",
                "configs": [
                    {
                        "name": "consumer.assignment.interval.ms",
                        "config_operation": 0,
                        "value": "15000",
                    }
                ],
            }
        ],
        "validate_only": False,
    },
    version=1,
    quiet=True,
)
CONSUMER_GROUP: list[Step] = [*topic(partitions=2), *group(), TOPICS_KNOWN]
_MEMBER: list[Step] = [*CONSUMER_GROUP, _entered()]

_HEARTBEAT = scenarios_of(
    {
        ("consumer-changes-its-topics-while-it-revokes", "ConsumerGroupHeartbeat", "1"): [
            *CONSUMER_GROUP,
            *topic("@u", partitions=2),
            TOPICS_KNOWN,
            consumer_heartbeat(save=_EPOCH, subscribed_topic_names=["@t", "@u"]),
            *(
                consumer_heartbeat(
                    epoch="$e",
                    save=_EPOCH,
                    subscribed_topic_names=names,
                    topic_partitions=[*owned(0, 1), *owned(0, 1, topic_id="$u")],
                )
                for names in (["@t"], ["@u"], ["@t", "@u"], ["@t"])
            ),
            consumer_heartbeat(epoch="$e", save=_EPOCH, topic_partitions=owned(0)),
            consumer_heartbeat(epoch="$e", save=_EPOCH, topic_partitions=[]),
            consumer_heartbeat(epoch="$e", save=_EPOCH, topic_partitions=owned(0, 1)),
            consumer_described(version=1),
        ],
        ("consumer-joins", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(save=_EPOCH),
            consumer_heartbeat(epoch="$e"),
            consumer_heartbeat(epoch="$e", topic_partitions=owned(0, 1)),
            consumer_heartbeat(epoch="$e"),
            consumer_described(),
        ],
        ("consumer-assignment-interval", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            _LONG_INTERVAL,
            Wait(2_000),
            consumer_heartbeat(save=_EPOCH),
            consumer_heartbeat("@n"),
            consumer_heartbeat(epoch="$e"),
            consumer_described(),
            consumer_heartbeat(epoch=-1),
            consumer_described(),
        ],
        ("consumer-joins-without-an-id", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(""),
        ],
        ("consumer-refused", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(group_id=""),
            consumer_heartbeat("", epoch=1),
            consumer_heartbeat("", epoch=-1),
            consumer_heartbeat(rebalance_timeout_ms=-1),
            consumer_heartbeat(rebalance_timeout_ms=0),
            consumer_heartbeat(topic_partitions=None),
            consumer_heartbeat(topic_partitions=owned(0)),
            consumer_heartbeat(subscribed_topic_names=None),
            consumer_heartbeat(server_assignor="nonesuch"),
            consumer_heartbeat(server_assignor=""),
            consumer_heartbeat(instance_id=""),
            consumer_heartbeat(rack_id=""),
            consumer_heartbeat(epoch=-3),
            consumer_heartbeat(epoch=-2),
            consumer_heartbeat(epoch=-(1 << 31)),
            consumer_described(),
        ],
        ("consumer-refused-names", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(group_id="   "),
            consumer_heartbeat("   "),
            consumer_heartbeat("x" * 37, group_id="@other"),
        ],
        ("consumer-unknown", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(epoch=1),
            consumer_heartbeat(epoch=-1),
            _entered(),
            consumer_heartbeat("@n", epoch="$e"),
            consumer_heartbeat("@n", epoch=-1),
            consumer_heartbeat("@n", epoch=-2, instance_id="i"),
            consumer_heartbeat("@n", epoch=5, instance_id="i"),
        ],
        ("consumer-epochs", "ConsumerGroupHeartbeat"): [
            *_MEMBER,
            consumer_heartbeat(epoch="$e+1"),
            consumer_heartbeat(epoch="$e+7"),
            consumer_heartbeat(epoch="$e"),
            consumer_heartbeat(epoch="$e-1"),
            consumer_heartbeat(epoch="$e-1", topic_partitions=owned(0)),
            consumer_heartbeat(epoch=(1 << 31) - 1),
        ],
        ("consumer-joins-again", "ConsumerGroupHeartbeat"): [
            *_MEMBER,
            consumer_heartbeat(),
            consumer_heartbeat(
                subscribed_topic_names=["@t", "@u"], save=_EPOCH, until={"member_epoch": 3}
            ),
            consumer_heartbeat(epoch="$e"),
            consumer_described(),
        ],
        ("consumer-leaves", "ConsumerGroupHeartbeat"): [
            *_MEMBER,
            consumer_heartbeat(epoch=-1),
            consumer_described(),
            consumer_heartbeat(epoch=-1),
            consumer_heartbeat(epoch="$e"),
            consumer_heartbeat(until={"member_epoch": 4}),
        ],
        ("consumer-subscribes-to-nothing", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(subscribed_topic_names=[], save=_EPOCH),
            consumer_heartbeat(epoch="$e"),
            consumer_described(),
        ],
        ("consumer-subscribes-to-a-topic-that-is-not-there", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(subscribed_topic_names=["@none"], save=_EPOCH),
            consumer_heartbeat(epoch="$e"),
            consumer_described(),
            *topic("@none"),
            Ask(
                "ConsumerGroupHeartbeat",
                _beat_body(epoch="$e"),
                until={"assignment.topic_partitions.0.partitions": [0]},
            ),
            consumer_described(),
        ],
        ("consumer-subscribes-twice", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(subscribed_topic_names=["@t", "@t", ""]),
            consumer_described(),
        ],
        ("consumer-changes-its-subscription", "ConsumerGroupHeartbeat"): [
            *_MEMBER,
            *topic("@u"),
            TOPICS_KNOWN,
            consumer_heartbeat(epoch="$e", subscribed_topic_names=["@u"], until={"assignment": {}}),
            consumer_heartbeat(epoch="$e", topic_partitions=[], until={"member_epoch": 3}),
            consumer_described(),
        ],
        ("consumer-two-members", "ConsumerGroupHeartbeat"): [
            *_MEMBER,
            consumer_heartbeat(epoch="$e", topic_partitions=owned(0, 1)),
            consumer_heartbeat("@n", on="b", save={"f": "member_epoch"}, until={"member_epoch": 3}),
            consumer_described(),
            consumer_heartbeat(epoch="$e"),
            consumer_heartbeat(epoch="$e", topic_partitions=owned(0), save=_EPOCH),
            consumer_heartbeat("@n", epoch="$f", on="b"),
            consumer_described(),
            consumer_heartbeat("@n", epoch=-1, on="b"),
            consumer_heartbeat(epoch="$e", save=_EPOCH, until={"member_epoch": 4}),
            consumer_described(),
        ],
        ("consumer-static", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(instance_id="i", save=_EPOCH),
            consumer_heartbeat("@n", instance_id="i"),
            consumer_heartbeat(epoch="$e", instance_id="i"),
            consumer_heartbeat(epoch="$e", instance_id="j"),
            consumer_heartbeat("@n", epoch="$e", instance_id="i"),
            consumer_heartbeat(epoch="$e"),
            consumer_heartbeat(epoch=-2, instance_id="i"),
            consumer_described(),
            consumer_heartbeat(epoch="$e", instance_id="i"),
            consumer_heartbeat("@n", instance_id="i", save=_EPOCH),
            consumer_described(),
            consumer_heartbeat("@m", epoch=-2, instance_id="i"),
            consumer_heartbeat("@n", epoch=-1, instance_id="i"),
            consumer_described(),
        ],
        ("consumer-static-leaves-for-good", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(instance_id="i"),
            consumer_heartbeat(epoch=-1, instance_id="j"),
            consumer_heartbeat(epoch=-1, instance_id="i"),
            consumer_described(),
            consumer_heartbeat(epoch=-2),
        ],
        ("consumer-joins-again-with-an-instance-id", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(),
            consumer_heartbeat(instance_id="i", save=_EPOCH),
            consumer_described(),
            consumer_heartbeat(epoch="$e", instance_id="i"),
            consumer_heartbeat(instance_id="j", save=_EPOCH),
            consumer_described(),
            consumer_heartbeat(epoch="$e", instance_id="j"),
        ],
        ("consumer-static-joins-again", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(instance_id="i"),
            consumer_heartbeat(instance_id="i"),
        ],
        ("consumer-not-static-says-back-soon", "ConsumerGroupHeartbeat"): [
            *_MEMBER,
            consumer_heartbeat(epoch=-2),
            consumer_heartbeat(epoch=-2, instance_id="i"),
            consumer_described(),
        ],
        ("consumer-assignors", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(server_assignor="range", save=_EPOCH),
            consumer_described(),
            consumer_heartbeat(epoch="$e", server_assignor="uniform"),
            consumer_described(),
            consumer_heartbeat(epoch="$e", server_assignor="nonesuch"),
        ],
        ("consumer-regex", "ConsumerGroupHeartbeat", "1"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(subscribed_topic_names=None, subscribed_topic_regex="("),
            consumer_heartbeat(subscribed_topic_names=None, subscribed_topic_regex="[a-"),
            consumer_heartbeat(subscribed_topic_names=None, subscribed_topic_regex=""),
            consumer_heartbeat(
                subscribed_topic_names=None,
                subscribed_topic_regex="no-such-topic-.*",
                save=_EPOCH,
            ),
            consumer_described(),
            consumer_heartbeat(epoch="$e", subscribed_topic_regex="("),
        ],
        ("consumer-regex-matches", "ConsumerGroupHeartbeat", "1"): [
            *CONSUMER_GROUP,
            *topic("@u"),
            *topic("@tt", partitions=2),
            TOPICS_KNOWN,
            # The regular expression is resolved in the background.
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
        ("consumer-regex-matches-internal", "ConsumerGroupHeartbeat", "1"): [
            *CONSUMER_GROUP,
            Ask(
                "ConsumerGroupHeartbeat",
                _beat_body(subscribed_topic_names=[], subscribed_topic_regex="__consumer_.ffsets"),
                until={"assignment.topic_partitions.0.partitions": list(range(50))},
                ignore=("member_epoch",),
            ),
        ],
        ("consumer-owns-what-it-was-not-given", "ConsumerGroupHeartbeat"): [
            *_MEMBER,
            consumer_heartbeat(epoch="$e", topic_partitions=owned(0, 1, 7)),
            consumer_heartbeat(
                epoch="$e",
                topic_partitions=[{"topic_id": bytes(15) + b"\x09", "partitions": [0]}],
            ),
            consumer_heartbeat(epoch="$e", topic_partitions=owned(0, 0)),
        ],
        ("consumer-topic-is-deleted", "ConsumerGroupHeartbeat"): [
            *_MEMBER,
            consumer_heartbeat(epoch="$e", topic_partitions=owned(0, 1)),
            Ask("DeleteTopics", {"topic_names": ["@t"], "timeout_ms": 10_000}, version=5),
            consumer_heartbeat(epoch="$e", topic_partitions=[], until={"member_epoch": 3}),
            consumer_described(),
        ],
    }
)

_MIXED = scenarios_of(
    {
        ("consumer-describe", "ConsumerGroupDescribe"): [
            *_MEMBER,
            consumer_described("@g", "@unknown", "", include_authorized_operations=True),
            Ask("ConsumerGroupDescribe", {"group_ids": []}),
        ],
        ("consumer-describe-classic", "ConsumerGroupDescribe"): [*stable(), consumer_described()],
        ("consumer-describe-emptied", "ConsumerGroupDescribe"): [
            *_MEMBER,
            consumer_heartbeat(epoch=-1),
            consumer_described(),
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            consumer_described(),
        ],
        ("describe-groups-of-consumers", "DescribeGroups"): [
            *_MEMBER,
            described(version=None),
            consumer_heartbeat(epoch=-1),
            described(version=None),
        ],
        ("join-in-a-consumer-group", "JoinGroup"): [
            *_MEMBER,
            Ask("JoinGroup", join_body(protocols=(("range", b"\x01"),))),
            Ask("JoinGroup", join_body(protocol_type="connect")),
            Ask("JoinGroup", join_body(protocols=())),
            _INTERVAL,
            Ask("JoinGroup", join_body("nobody", protocols=(("range", Subscribed()),))),
            Ask("JoinGroup", join_body("@m", protocols=(("range", Subscribed()),))),
        ],
        ("join-refused-in-a-consumer-group", "JoinGroup", "5-9"): [
            *CONSUMER_GROUP,
            _entered(instance_id="i"),
            Ask("JoinGroup", join_body("@n", (("range", Subscribed()),), group_instance_id="i")),
            Ask("JoinGroup", join_body("@n", (("range", Subscribed()),), group_instance_id="j")),
            Ask("JoinGroup", join_body("@m", (("sticky", b"\x01"),))),
            Ask("JoinGroup", join_body("@m", protocol_type="connect")),
            Ask("JoinGroup", join_body("@m", session_timeout_ms=1)),
        ],
        ("join-refused-in-an-emptied-consumer-group", "JoinGroup", "5-9"): [
            *_MEMBER,
            consumer_heartbeat(epoch=-1),
            Ask("JoinGroup", join_body(session_timeout_ms=1)),
            Ask("JoinGroup", join_body("nobody", protocols=(("range", Subscribed()),))),
            described(),
            consumer_described(version=0),
        ],
        ("leave-twice-in-a-consumer-group", "LeaveGroup", "3-5"): [
            *_MEMBER,
            _entered("@n", instance_id="i"),
            Ask(
                "LeaveGroup",
                {
                    "group_id": "@g",
                    "members": [
                        {"member_id": "@m"},
                        {"member_id": "@m"},
                        {"member_id": "", "group_instance_id": "i"},
                        {"member_id": "@n", "group_instance_id": "i"},
                    ],
                },
            ),
            Ask("LeaveGroup", {"group_id": "@g", "members": [{"member_id": "@m"}]}),
        ],
        ("sync-in-a-consumer-group", "SyncGroup"): [
            *_MEMBER,
            Ask("SyncGroup", sync_body("@m", generation="$e")),
            Ask("SyncGroup", sync_body("nobody", generation="$e")),
            Ask("SyncGroup", sync_body("@m", generation=7)),
        ],
        ("heartbeat-in-a-consumer-group", "Heartbeat"): [
            *_MEMBER,
            heartbeat("@m", "$e"),
            heartbeat("nobody", "$e"),
            heartbeat("@m", 9),
            heartbeat("", -1),
        ],
        ("leave-a-consumer-group", "LeaveGroup"): [
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
            consumer_described(version=0),
        ],
        ("commit-in-a-consumer-group", "OffsetCommit"): [
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
            consumer_heartbeat(epoch=-1),
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
        ("offset-fetch-in-a-consumer-group", "OffsetFetch", "9-10"): [
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
        ("offset-delete-in-a-consumer-group", "OffsetDelete"): [
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
        ("delete-groups-of-consumers", "DeleteGroups"): [
            *_MEMBER,
            Ask("DeleteGroups", {"groups_names": ["@g"]}),
            consumer_heartbeat(epoch=-1),
            Ask("DeleteGroups", {"groups_names": ["@g"]}),
            described(),
        ],
        ("consumer-joins-an-empty-classic-group", "ConsumerGroupHeartbeat"): [
            *topic(partitions=2),
            *empty(),
            TOPICS_KNOWN,
            consumer_heartbeat(),
            consumer_described(),
            described(),
        ],
        ("consumer-joins-a-classic-group", "ConsumerGroupHeartbeat"): [
            *topic(partitions=2),
            *stable((("range", Subscribed()),)),
            consumer_heartbeat(),
            consumer_described(),
            described(),
            heartbeat(),
        ],
        ("consumer-joins-a-classic-group-with-user-data", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            *joined((("range", Subscribed()),)),
            Ask(
                "SyncGroup",
                sync_body(assignments={"$m": Assigned({"@t": [0]}, user_data=b"x")}),
                version=5,
                quiet=True,
            ),
            consumer_heartbeat(),
            described(),
            Send(
                Ask("JoinGroup", join_body(protocols=(("range", Subscribed()),)), on="b", version=3)
            ),
            rebalancing(),
            consumer_heartbeat(),
        ],
        ("consumer-joins-while-a-member-joins-with-its-id", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            *joined((("range", Subscribed()),)),
            Ask(
                "JoinGroup",
                join_body(protocols=(("range", Subscribed()),)),
                on="b",
                version=9,
                save={"n": "member_id"},
            ),
            Send(Ask("JoinGroup", join_body("$n", (("range", Subscribed()),)), on="b", version=9)),
            Send(
                Ask(
                    "JoinGroup",
                    join_body(protocols=(("range", Subscribed()),), group_instance_id="i"),
                    on="c",
                    version=9,
                )
            ),
            Wait(1_000),
            # The members' ids are in another order in each run, and so are the assignments.
            replace(consumer_heartbeat(), ignore=("assignment",)),
            Receive("b"),
            Receive("c"),
        ],
        ("consumer-joins-a-classic-group-of-rubbish", "ConsumerGroupHeartbeat"): [
            *topic(),
            *stable((("range", b"\x00\x00\x00\x7f"),)),
            consumer_heartbeat(),
            described(),
        ],
        ("consumer-joins-a-group-that-is-no-consumer", "ConsumerGroupHeartbeat"): [
            *topic(),
            *stable(protocol_type="connect"),
            consumer_heartbeat(),
            described(),
        ],
        ("consumer-joins-while-a-classic-group-rebalances", "ConsumerGroupHeartbeat"): [
            *topic(),
            *preparing(),
            consumer_heartbeat(),
        ],
        ("classic-joins-an-emptied-consumer-group", "JoinGroup", "9"): [
            *_MEMBER,
            consumer_heartbeat(epoch=-1),
            *joined((("range", Subscribed()),)),
            described(),
            consumer_described(version=0),
        ],
        ("classic-comes-back-for-the-only-static-member", "JoinGroup", "9"): [
            *CONSUMER_GROUP,
            _entered(instance_id="i"),
            consumer_heartbeat(epoch="$e", instance_id="i", topic_partitions=owned(0, 1)),
            consumer_heartbeat(epoch=-2, instance_id="i"),
            Ask(
                "JoinGroup",
                join_body(protocols=(("range", Subscribed()),), group_instance_id="i"),
                on="b",
                save={"n": "member_id", "gen": "generation_id"},
            ),
            described(),
            consumer_described(version=0),
        ],
        ("classic-comes-back-for-the-last-consumer-member", "JoinGroup", "9"): [
            *CONSUMER_GROUP,
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
            consumer_described(version=0),
        ],
        ("consumer-replaces-a-static-classic-member", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            *joined((("range", Subscribed()),), group_instance_id="i"),
            Ask("SyncGroup", sync_body(group_instance_id="i"), version=5, quiet=True),
            consumer_heartbeat("@n", instance_id="i", save=_EPOCH),
            _INTERVAL,
            consumer_heartbeat("@n", epoch="$e", instance_id="i", topic_partitions=[]),
            _INTERVAL,
            consumer_heartbeat("@n", epoch="$e", instance_id="i", topic_partitions=[]),
            consumer_described(version=0),
        ],
        ("classic-joins-a-consumer-group", "JoinGroup", "2-3"): [
            *CONSUMER_GROUP,
            _entered(),
            consumer_heartbeat(epoch="$e", topic_partitions=owned(0, 1)),
            _INTERVAL,
            Ask(
                "JoinGroup",
                join_body(protocols=(("range", Subscribed()),)),
                on="b",
                save={"n": "member_id", "gen": "generation_id"},
            ),
            Ask("SyncGroup", sync_body("$n"), on="b"),
            consumer_heartbeat(epoch="$e", until={"assignment.topic_partitions.0.partitions": [0]}),
            heartbeat("$n", on="b"),
            consumer_described(version=1),
        ],
    }
)

_TOLD = scenarios_of(
    {
        ("describe-groups", "DescribeGroups"): [
            *stable(),
            described("@g", "@unknown", "", version=None),
            described("@g", version=None),
            Ask("DescribeGroups", {"groups": ["@g"], "include_authorized_operations": True}),
            Ask("DescribeGroups", {"groups": []}),
        ],
        ("describe-groups-in-each-state", "DescribeGroups"): [
            *preparing(),
            described(version=None),
        ],
        ("describe-groups-completing", "DescribeGroups"): [*joined(), described(version=None)],
        ("describe-groups-emptied", "DescribeGroups"): [*empty(), described(version=None)],
        ("describe-groups-static", "DescribeGroups"): [
            *stable(group_instance_id="i"),
            described(version=None),
        ],
    }
)


def _listed(states: Sequence[str] = (), types: Sequence[str] = ()) -> Ask:
    body = {"states_filter": list(states), "types_filter": list(types)}
    return Ask("ListGroups", body, mine=True)


_TOLD += scenarios_of(
    {
        ("list-groups", "ListGroups"): [
            *topic(),
            *stable(),
            *group("@h"),
            _entered(group_id="@h"),
            _listed(),
        ],
        ("list-groups-by-state", "ListGroups", "4-5"): [
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
        ("list-groups-by-type", "ListGroups", "5"): [
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
        ("list-groups-in-each-state", "ListGroups"): [*joined(), _listed()],
    }
)

SCENARIOS = [*_HEARTBEAT, *_MIXED, *_TOLD]
