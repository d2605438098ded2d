"""Streams groups (KIP-1071): members, topologies, tasks, descriptions and committed offsets.

By settings of the group, there is no initial rebalance delay, and assignments are computed without
delay. Scenarios about these delays use other settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.group_steps import group, join_body
from tests.oracle.script import Ask, Scenario, Step, Wait, topic

_EPOCH = {"e": "member_epoch"}


def _internal(
    name: str, partitions: int = 0, settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": 0,
        "topic_configs": [{"key": key, "value": value} for key, value in (settings or {}).items()],
    }


def _subtopology(
    subtopology_id: str = "0",
    sources: Sequence[str] = ("@t",),
    changelogs: Sequence[Mapping[str, Any]] = (),
    sinks: Sequence[str] = (),
    repartitioned: Sequence[Mapping[str, Any]] = (),
    together: Sequence[Mapping[str, Any]] = (),
    regex: Sequence[str] = (),
) -> dict[str, Any]:
    return {
        "subtopology_id": subtopology_id,
        "source_topics": list(sources),
        "source_topic_regex": list(regex),
        "state_changelog_topics": list(changelogs),
        "repartition_sink_topics": list(sinks),
        "repartition_source_topics": list(repartitioned),
        "copartition_groups": list(together),
    }


def _together(sources: Sequence[int] = (), repartitioned: Sequence[int] = ()) -> dict[str, Any]:
    return {
        "source_topics": list(sources),
        "source_topic_regex": [],
        "repartition_source_topics": list(repartitioned),
    }


def _topology(*subtopologies: Mapping[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": list(subtopologies or [_subtopology()])}


def _tasks(**partitions: Sequence[int]) -> list[dict[str, Any]]:
    """Tasks by subtopology, from keywords such as `_0=(0, 1)`."""
    return [
        {"subtopology_id": name.removeprefix("_"), "partitions": list(indexes)}
        for name, indexes in partitions.items()
    ]


def _body(member_id: str = "m", epoch: int | str = 0, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"group_id": "@g", "member_id": member_id, "member_epoch": epoch}
    if epoch == 0:
        body |= {
            "rebalance_timeout_ms": 60_000,
            "process_id": "p",
            "topology": _topology(),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
    return {**body, **more}


def _beat(
    member_id: str = "m",
    epoch: int | str = 0,
    save: Mapping[str, str] | None = None,
    quiet: bool = False,
    ignore: Sequence[str] = (),
    **more: Any,
) -> Ask:
    return Ask(
        "StreamsGroupHeartbeat",
        _body(member_id, epoch, **more),
        save=save or {},
        ignore=ignore,
        quiet=quiet,
    )


def _owns(member_id: str, epoch: int | str, save: str = "", **partitions: Sequence[int]) -> Ask:
    """A heartbeat of a member, which reports its tasks."""
    return _beat(
        member_id,
        epoch,
        save={save: "member_epoch"} if save else {},
        active_tasks=_tasks(**partitions),
        standby_tasks=[],
        warmup_tasks=[],
    )


def _described(*names: str, **more: Any) -> Ask:
    return Ask("StreamsGroupDescribe", {"group_ids": list(names or ("@g",)), **more})


def _settings(**values: int) -> Ask:
    """Set settings of the group. The names are those after `streams.`, with underscores for
    dots."""
    return Ask(
        "IncrementalAlterConfigs",
        {
            "resources": [
                {
                    "resource_type": 32,
                    "resource_name": "@g",
                    "configs": [
                        {
                            "name": f"streams.{name.replace('_', '.')}",
                            "config_operation": 0,
                            "value": str(value),
                        }
                        for name, value in values.items()
                    ],
                }
            ],
            "validate_only": False,
        },
        version=1,
        quiet=True,
    )


_AT_ONCE = _settings(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
#: Wait until the coordinator knows of a new topic or setting.
_KNOWN = Wait(2_000)
_START: list[Step] = [*topic(partitions=2), *group(), _AT_ONCE, _KNOWN]
_MEMBER: list[Step] = [*_START, _beat(save=_EPOCH, quiet=True)]

_HEARTBEAT = [
    Scenario(
        "streams-joins",
        "StreamsGroupHeartbeat",
        [
            *_START,
            _beat(save=_EPOCH),
            _beat(epoch="$e"),
            _owns("m", "$e", _0=(0, 1)),
            _described(),
            _beat(epoch=-1),
            _described(),
        ],
    ),
    Scenario(
        "streams-joins-with-everything",
        "StreamsGroupHeartbeat",
        [
            *_START,
            _beat(
                rack_id="r",
                user_endpoint={"host": "h", "port": 9_999},
                client_tags=[{"key": "zone", "value": "z"}],
                endpoint_information_epoch=-1,
                save=_EPOCH,
            ),
            _beat(epoch="$e", endpoint_information_epoch=-1),
            _beat(epoch="$e", endpoint_information_epoch=0),
            _beat(epoch="$e", rebalance_timeout_ms=50_000, endpoint_information_epoch=1),
            _described(),
        ],
    ),
    Scenario(
        "streams-refused",
        "StreamsGroupHeartbeat",
        [
            *_START,
            _beat(group_id=""),
            _beat(group_id="  "),
            _beat(""),
            _beat("  "),
            _beat(rack_id=""),
            _beat(rebalance_timeout_ms=-1),
            _beat(active_tasks=None),
            _beat(active_tasks=_tasks(_0=(0,))),
            _beat(standby_tasks=None),
            _beat(standby_tasks=_tasks(_0=(0,))),
            _beat(topology=None),
            _beat(epoch=-2),
            _beat(epoch=-3),
            _beat(epoch=1, active_tasks=[]),
            _beat(epoch=1, topology=_topology()),
        ],
    ),
    Scenario(
        "streams-not-supported",
        "StreamsGroupHeartbeat",
        [
            *_START,
            _beat(instance_id="i"),
            _beat(instance_id=""),
            _beat(warmup_tasks=_tasks(_0=(0,))),
            _beat(task_offsets=[]),
            _beat(task_end_offsets=[]),
            _beat(topology=_topology(_subtopology(regex=[".*"]))),
        ],
    ),
    Scenario(
        "streams-unknown",
        "StreamsGroupHeartbeat",
        [
            *_START,
            _beat(epoch=1),
            _beat(epoch=-1),
            _beat(save=_EPOCH),
            _beat("n", epoch="$e"),
            _beat("n", epoch=-1),
            _beat(epoch=-1),
            _beat(epoch=-1),
            _beat(epoch="$e"),
        ],
    ),
    Scenario(
        "streams-epochs",
        "StreamsGroupHeartbeat",
        [
            *_MEMBER,
            _beat(epoch=99),
            _beat(epoch=1),
            _owns("m", 1, _0=(0,)),
            _owns("m", 0),
            _beat("n", save={"f": "member_epoch"}, process_id="q"),
            _owns("m", "$e", _0=(0, 1), save="e2"),
            _owns("m", "$e2", _0=(0,), save="e3"),
            _owns("m", "$e2", _0=(0,)),
            _owns("m", "$e2", _0=(0, 1)),
            _beat(epoch="$e2"),
            _described(),
        ],
    ),
    Scenario(
        "streams-invalid-tasks",
        "StreamsGroupHeartbeat",
        [
            *_MEMBER,
            _owns("m", "$e", _0=(2,)),
            _owns("m", "$e", _0=(-1,)),
            _owns("m", "$e", _7=(0,)),
        ],
    ),
    Scenario(
        "streams-shutdown",
        "StreamsGroupHeartbeat",
        [
            *_MEMBER,
            _beat(epoch="$e", shutdown_application=True),
            _beat(epoch="$e"),
            _beat("n", process_id="q", save={"f": "member_epoch"}),
            _beat("n", epoch=-1, shutdown_application=True),
            _beat(epoch=-1),
            _beat(),
        ],
    ),
    Scenario(
        "streams-two-processes",
        "StreamsGroupHeartbeat",
        [
            *_START,
            _beat("m", process_id="p", save=_EPOCH),
            _beat("n", process_id="q", save={"f": "member_epoch"}),
            _described(),
            _owns("m", "$e", _0=(0, 1), save="e2"),
            _beat("n", epoch="$f"),
            _owns("m", "$e2", _0=(0,), save="e3"),
            _described(),
            _beat("n", epoch="$f", save={"f2": "member_epoch"}),
            _owns("n", "$f2", _0=(1,)),
            _described(),
            _beat("n", epoch=-1),
            _beat(epoch="$e3", save={"e4": "member_epoch"}),
            _described(),
        ],
    ),
    Scenario(
        "streams-standby-tasks",
        "StreamsGroupHeartbeat",
        [
            *topic(partitions=2),
            *topic("@c", partitions=2),
            *group(),
            _settings(
                initial_rebalance_delay_ms=0, assignment_interval_ms=0, num_standby_replicas=1
            ),
            _KNOWN,
            _beat(
                "m",
                topology=_topology(_subtopology(changelogs=[_internal("@c")])),
                process_id="p",
                save=_EPOCH,
                user_endpoint={"host": "h", "port": 1},
            ),
            _beat(
                "n",
                topology=_topology(_subtopology(changelogs=[_internal("@c")])),
                process_id="q",
                save={"f": "member_epoch"},
                user_endpoint={"host": "h", "port": 2},
            ),
            _owns("m", "$e", _0=(0, 1), save="e2"),
            _owns("m", "$e2", _0=(0,), save="e3"),
            _beat("n", epoch="$f", save={"f2": "member_epoch"}, endpoint_information_epoch=0),
            _beat("m", epoch="$e3", save={"e4": "member_epoch"}),
            _described(),
        ],
    ),
    Scenario(
        "streams-delayed",
        "StreamsGroupHeartbeat",
        [
            *topic(partitions=2),
            *group(),
            _settings(initial_rebalance_delay_ms=1_500, assignment_interval_ms=0),
            _KNOWN,
            _beat(save=_EPOCH),
            _beat(epoch="$e"),
            _described(),
            Wait(2_500),
            _described(),
            _beat(epoch="$e"),
        ],
    ),
    Scenario(
        "streams-assignment-interval",
        "StreamsGroupHeartbeat",
        [
            *topic(partitions=2),
            *group(),
            _settings(initial_rebalance_delay_ms=0, assignment_interval_ms=15_000),
            _KNOWN,
            _beat(save=_EPOCH),
            _beat("n", process_id="q"),
            _described(),
        ],
    ),
]

_TOPOLOGY = [
    Scenario(
        "streams-topology-stale",
        "StreamsGroupHeartbeat",
        [
            *_START,
            _beat(topology=_topology(epoch=3), save=_EPOCH),
            _beat("n", process_id="q", topology=_topology(epoch=2)),
            _beat("o", process_id="r", topology=_topology(epoch=4)),
            _beat("o", process_id="r", topology=_topology(_subtopology("1"), epoch=3)),
            _beat("o", process_id="r", topology=_topology(_subtopology("1"), epoch=1)),
            _described(),
        ],
    ),
    Scenario(
        "streams-source-topics-missing",
        "StreamsGroupHeartbeat",
        [
            *group(),
            _AT_ONCE,
            _KNOWN,
            _beat(topology=_topology(_subtopology(sources=["@t", "@u"])), save=_EPOCH),
            _described(),
            *topic(),
            _KNOWN,
            _beat(epoch="$e", save={"e2": "member_epoch"}),
            *topic("@u", partitions=3),
            _KNOWN,
            _beat(epoch="$e2"),
            _described(),
        ],
    ),
    Scenario(
        "streams-internal-topics",
        "StreamsGroupHeartbeat",
        [
            *_START,
            _beat(
                topology=_topology(
                    _subtopology("0", sinks=["@r"]),
                    _subtopology(
                        "1",
                        sources=[],
                        repartitioned=[_internal("@r", settings={"retention.ms": "-1"})],
                        changelogs=[_internal("@c", settings={"cleanup.policy": "compact"})],
                        together=[_together(repartitioned=[0])],
                    ),
                ),
                # Kafka lists the topics in the order of a hash map.
                ignore=["status.0.status_detail"],
                save=_EPOCH,
            ),
            Wait(1_500),
            _beat(epoch="$e"),
            _described(),
            Ask(
                "DescribeConfigs",
                {
                    "resources": [
                        {
                            "resource_type": 2,
                            "resource_name": "@c",
                            "configuration_keys": ["cleanup.policy"],
                        }
                    ]
                },
            ),
        ],
    ),
    Scenario(
        "streams-copartitioned",
        "StreamsGroupHeartbeat",
        [
            *topic(partitions=2),
            *topic("@u", partitions=3),
            *topic("@same", partitions=2),
            *group(),
            _AT_ONCE,
            _KNOWN,
            _beat(
                topology=_topology(_subtopology(sources=["@t", "@u"], together=[_together([0, 1])]))
            ),
            _beat(
                group_id="@h",
                topology=_topology(
                    _subtopology(
                        sources=["@t", "@same"],
                        repartitioned=[_internal("@r", 3)],
                        sinks=["@r"],
                        together=[_together([0, 1], [0])],
                    )
                ),
            ),
            _beat(
                group_id="@i",
                topology=_topology(_subtopology(changelogs=[_internal("@u")])),
            ),
            _described("@g", "@h", "@i"),
        ],
    ),
    Scenario(
        "streams-topology-invalid",
        "StreamsGroupHeartbeat",
        [
            *_START,
            _beat(topology=_topology(_subtopology(changelogs=[_internal("@c", 2)]))),
            _beat(topology=_topology(_subtopology(repartitioned=[_internal("@r")]))),
            _beat(
                topology=_topology(
                    _subtopology(sources=[], repartitioned=[_internal("@r")], sinks=["@r"])
                )
            ),
            _beat(topology=_topology(_subtopology(sources=[]))),
            _beat(topology=_topology(_subtopology(sources=["__consumer_offsets"]))),
            _beat(topology=_topology(_subtopology(sources=["a b"]))),
            _beat(topology=_topology(_subtopology(sinks=["__transaction_state"]))),
        ],
    ),
    Scenario(
        "streams-topology-broken",
        "StreamsGroupHeartbeat",
        [
            *_START,
            _beat(topology=_topology(_subtopology(together=[_together([7])]))),
            _beat(topology=_topology(_subtopology(), _subtopology())),
        ],
    ),
    Scenario(
        "streams-topology-empty",
        "StreamsGroupHeartbeat",
        [*_START, _beat(topology={"epoch": 0, "subtopologies": []}, save=_EPOCH), _described()],
    ),
]

_CONSUMER = {
    "group_id": "@g",
    "member_id": "c",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["@t"],
    "topic_partitions": [],
}


def _commit(member_id: str = "", epoch: int | str = -1, version: int = 9, offset: int = 3) -> Ask:
    body = {
        "group_id": "@g",
        "generation_id_or_member_epoch": epoch,
        "member_id": member_id,
        "topics": [
            {
                "name": "@t",
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": offset,
                        "committed_metadata": "",
                    }
                ],
            }
        ],
    }
    return Ask("OffsetCommit", body, version=version)


def _fetched(member_id: str | None = None, epoch: int | str = -1) -> Ask:
    body = {
        "groups": [
            {
                "group_id": "@g",
                "member_id": member_id,
                "member_epoch": epoch,
                "topics": [{"name": "@t", "partition_indexes": [0]}],
            }
        ]
    }
    return Ask("OffsetFetch", body, version=9)


_AROUND = [
    Scenario(
        "streams-and-other-groups",
        "StreamsGroupHeartbeat",
        [
            *_START,
            _commit(),
            _beat(epoch=1),
            _beat(epoch=-1),
            _beat(save=_EPOCH),
            _fetched(),
            Ask("ConsumerGroupHeartbeat", _CONSUMER, version=1),
            Ask("JoinGroup", join_body(), version=9),
            Ask("DescribeGroups", {"groups": ["@g"]}, version=6),
            Ask("ConsumerGroupDescribe", {"group_ids": ["@g"]}),
            Ask("ListGroups", {"types_filter": ["streams"]}, mine=True),
            Ask("DeleteGroups", {"groups_names": ["@g"]}),
            _beat(epoch=-1),
            Ask("ConsumerGroupHeartbeat", _CONSUMER, version=1),
            Ask("JoinGroup", join_body(), version=9, save={"j": "member_id"}),
            _described(),
            _fetched(),
        ],
    ),
    Scenario(
        "streams-and-consumer-groups",
        "StreamsGroupHeartbeat",
        [
            *_START,
            Ask("ConsumerGroupHeartbeat", _CONSUMER, version=1),
            _beat(),
            _beat(epoch=1),
            _described(),
        ],
    ),
    Scenario(
        "streams-deleted",
        "StreamsGroupHeartbeat",
        [
            *_MEMBER,
            _beat(epoch=-1),
            Ask("DeleteGroups", {"groups_names": ["@g"]}),
            _described(),
            _beat(save=_EPOCH),
            _described(),
        ],
    ),
    Scenario(
        "streams-commits",
        "OffsetCommit",
        [
            *_START,
            _commit(),
            _beat(save=_EPOCH, quiet=True),
            _commit(),
            _commit("m", "$e"),
            _commit("m", "$e", version=8),
            _commit("m", 99),
            _commit("m", 1),
            _commit("n", "$e"),
            _fetched(),
            _fetched("m", "$e"),
            _fetched("m", 1),
            _fetched("n", "$e"),
            _beat("n", process_id="q", quiet=True),
            _owns("m", "$e", _0=(0, 1), save="e2"),
            _owns("m", "$e2", _0=(0,), save="e3"),
            _commit("m", "$e", offset=4),
            _fetched(),
            Ask(
                "OffsetDelete",
                {
                    "group_id": "@g",
                    "topics": [{"name": "@t", "partitions": [{"partition_index": 0}]}],
                },
            ),
        ],
        versions="9",
    ),
]

_DESCRIBE = [
    Scenario(
        "streams-described",
        "StreamsGroupDescribe",
        [
            *_MEMBER,
            _described(),
            _described("@none", "@g", include_authorized_operations=True),
            _described(""),
        ],
    )
]

SCENARIOS = [*_HEARTBEAT, *_TOPOLOGY, *_AROUND, *_DESCRIBE]
