"""Streams groups (KIP-1071): members, topologies, tasks, descriptions and committed offsets.

The settings of the groups disable the initial rebalance delay, and the delay of assignments.
Scenarios about these delays use other settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.group_steps import group, join_body
from tests.oracle.script import Ask, Scenario, Step, Wait, scenarios_of, topic

_EPOCH = {"e": "member_epoch"}


def internal_topic(
    name: str, partitions: int = 0, settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": 0,
        "topic_configs": [{"key": key, "value": value} for key, value in (settings or {}).items()],
    }


def subtopology(
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


def topology_of(*subtopologies: Mapping[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": list(subtopologies or [subtopology()])}


def tasks(**partitions: Sequence[int]) -> list[dict[str, Any]]:
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
            "topology": topology_of(),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
    return {**body, **more}


def streams_heartbeat(
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
    """A heartbeat in which a member reports the tasks that it owns."""
    return streams_heartbeat(
        member_id,
        epoch,
        save={save: "member_epoch"} if save else {},
        active_tasks=tasks(**partitions),
        standby_tasks=[],
        warmup_tasks=[],
    )


def streams_described(*names: str, **more: Any) -> Ask:
    return Ask("StreamsGroupDescribe", {"group_ids": list(names or ("@g",)), **more})


def _settings(**values: int) -> Ask:
    """Set settings of the group. The keywords lack the prefix `streams.`, and have underscores for
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
STREAMS_START: list[Step] = [*topic(partitions=2), *group(), _AT_ONCE, _KNOWN]
_MEMBER: list[Step] = [*STREAMS_START, streams_heartbeat(save=_EPOCH, quiet=True)]

_HEARTBEAT = scenarios_of(
    {
        ("streams-joins", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(save=_EPOCH),
            streams_heartbeat(epoch="$e"),
            _owns("m", "$e", _0=(0, 1)),
            streams_described(),
            streams_heartbeat(epoch=-1),
            streams_described(),
        ],
        ("streams-joins-with-everything", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(
                rack_id="r",
                user_endpoint={"host": "h", "port": 9_999},
                client_tags=[{"key": "zone", "value": "z"}],
                endpoint_information_epoch=-1,
                save=_EPOCH,
            ),
            streams_heartbeat(epoch="$e", endpoint_information_epoch=-1),
            streams_heartbeat(epoch="$e", endpoint_information_epoch=0),
            streams_heartbeat(
                epoch="$e", rebalance_timeout_ms=50_000, endpoint_information_epoch=1
            ),
            streams_described(),
        ],
        ("streams-refused", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(group_id=""),
            streams_heartbeat(group_id="  "),
            streams_heartbeat(""),
            streams_heartbeat("  "),
            streams_heartbeat(rack_id=""),
            streams_heartbeat(rebalance_timeout_ms=-1),
            streams_heartbeat(active_tasks=None),
            streams_heartbeat(active_tasks=tasks(_0=(0,))),
            streams_heartbeat(standby_tasks=None),
            streams_heartbeat(standby_tasks=tasks(_0=(0,))),
            streams_heartbeat(topology=None),
            streams_heartbeat(epoch=-2),
            streams_heartbeat(epoch=-3),
            streams_heartbeat(epoch=1, active_tasks=[]),
            streams_heartbeat(epoch=1, topology=topology_of()),
        ],
        ("streams-not-supported", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(instance_id="i"),
            streams_heartbeat(instance_id=""),
            streams_heartbeat(warmup_tasks=tasks(_0=(0,))),
            streams_heartbeat(task_offsets=[]),
            streams_heartbeat(task_end_offsets=[]),
            streams_heartbeat(topology=topology_of(subtopology(regex=[".*"]))),
        ],
        ("streams-unknown", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(epoch=1),
            streams_heartbeat(epoch=-1),
            streams_heartbeat(save=_EPOCH),
            streams_heartbeat("n", epoch="$e"),
            streams_heartbeat("n", epoch=-1),
            streams_heartbeat(epoch=-1),
            streams_heartbeat(epoch=-1),
            streams_heartbeat(epoch="$e"),
        ],
        ("streams-epochs", "StreamsGroupHeartbeat"): [
            *_MEMBER,
            streams_heartbeat(epoch=99),
            streams_heartbeat(epoch=1),
            _owns("m", 1, _0=(0,)),
            _owns("m", 0),
            streams_heartbeat("n", save={"f": "member_epoch"}, process_id="q"),
            _owns("m", "$e", _0=(0, 1), save="e2"),
            _owns("m", "$e2", _0=(0,), save="e3"),
            _owns("m", "$e2", _0=(0,)),
            _owns("m", "$e2", _0=(0, 1)),
            streams_heartbeat(epoch="$e2"),
            streams_described(),
        ],
        ("streams-invalid-tasks", "StreamsGroupHeartbeat"): [
            *_MEMBER,
            _owns("m", "$e", _0=(2,)),
            _owns("m", "$e", _0=(-1,)),
            _owns("m", "$e", _7=(0,)),
        ],
        ("streams-shutdown", "StreamsGroupHeartbeat"): [
            *_MEMBER,
            streams_heartbeat(epoch="$e", shutdown_application=True),
            streams_heartbeat(epoch="$e"),
            streams_heartbeat("n", process_id="q", save={"f": "member_epoch"}),
            streams_heartbeat("n", epoch=-1, shutdown_application=True),
            streams_heartbeat(epoch=-1),
            streams_heartbeat(),
        ],
        ("streams-two-processes", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat("m", process_id="p", save=_EPOCH),
            streams_heartbeat("n", process_id="q", save={"f": "member_epoch"}),
            streams_described(),
            _owns("m", "$e", _0=(0, 1), save="e2"),
            streams_heartbeat("n", epoch="$f"),
            _owns("m", "$e2", _0=(0,), save="e3"),
            streams_described(),
            streams_heartbeat("n", epoch="$f", save={"f2": "member_epoch"}),
            _owns("n", "$f2", _0=(1,)),
            streams_described(),
            streams_heartbeat("n", epoch=-1),
            streams_heartbeat(epoch="$e3", save={"e4": "member_epoch"}),
            streams_described(),
        ],
        ("streams-standby-tasks", "StreamsGroupHeartbeat"): [
            *topic(partitions=2),
            *topic("@c", partitions=2),
            *group(),
            _settings(
                initial_rebalance_delay_ms=0, assignment_interval_ms=0, num_standby_replicas=1
            ),
            _KNOWN,
            streams_heartbeat(
                "m",
                topology=topology_of(subtopology(changelogs=[internal_topic("@c")])),
                process_id="p",
                save=_EPOCH,
                user_endpoint={"host": "h", "port": 1},
            ),
            streams_heartbeat(
                "n",
                topology=topology_of(subtopology(changelogs=[internal_topic("@c")])),
                process_id="q",
                save={"f": "member_epoch"},
                user_endpoint={"host": "h", "port": 2},
            ),
            _owns("m", "$e", _0=(0, 1), save="e2"),
            _owns("m", "$e2", _0=(0,), save="e3"),
            streams_heartbeat(
                "n", epoch="$f", save={"f2": "member_epoch"}, endpoint_information_epoch=0
            ),
            streams_heartbeat("m", epoch="$e3", save={"e4": "member_epoch"}),
            streams_described(),
        ],
        ("streams-delayed", "StreamsGroupHeartbeat"): [
            *topic(partitions=2),
            *group(),
            _settings(initial_rebalance_delay_ms=1_500, assignment_interval_ms=0),
            _KNOWN,
            streams_heartbeat(save=_EPOCH),
            streams_heartbeat(epoch="$e"),
            streams_described(),
            Wait(2_500),
            streams_described(),
            streams_heartbeat(epoch="$e"),
        ],
        ("streams-assignment-interval", "StreamsGroupHeartbeat"): [
            *topic(partitions=2),
            *group(),
            _settings(initial_rebalance_delay_ms=0, assignment_interval_ms=15_000),
            _KNOWN,
            streams_heartbeat(save=_EPOCH),
            streams_heartbeat("n", process_id="q"),
            streams_described(),
        ],
    }
)

_TOPOLOGY = scenarios_of(
    {
        ("streams-topology-stale", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(topology=topology_of(epoch=3), save=_EPOCH),
            streams_heartbeat("n", process_id="q", topology=topology_of(epoch=2)),
            streams_heartbeat("o", process_id="r", topology=topology_of(epoch=4)),
            streams_heartbeat("o", process_id="r", topology=topology_of(subtopology("1"), epoch=3)),
            streams_heartbeat("o", process_id="r", topology=topology_of(subtopology("1"), epoch=1)),
            streams_described(),
        ],
        ("streams-source-topics-missing", "StreamsGroupHeartbeat"): [
            *group(),
            _AT_ONCE,
            _KNOWN,
            streams_heartbeat(topology=topology_of(subtopology(sources=["@t", "@u"])), save=_EPOCH),
            streams_described(),
            *topic(),
            _KNOWN,
            streams_heartbeat(epoch="$e", save={"e2": "member_epoch"}),
            *topic("@u", partitions=3),
            _KNOWN,
            streams_heartbeat(epoch="$e2"),
            streams_described(),
        ],
        ("streams-internal-topics", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(
                topology=topology_of(
                    subtopology("0", sinks=["@r"]),
                    subtopology(
                        "1",
                        sources=[],
                        repartitioned=[internal_topic("@r", settings={"retention.ms": "-1"})],
                        changelogs=[internal_topic("@c", settings={"cleanup.policy": "compact"})],
                        together=[_together(repartitioned=[0])],
                    ),
                ),
                # Kafka lists the topics in the order of a hash map.
                ignore=["status.0.status_detail"],
                save=_EPOCH,
            ),
            Wait(1_500),
            streams_heartbeat(epoch="$e"),
            streams_described(),
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
        ("streams-several-internal-topics", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(
                topology=topology_of(
                    subtopology(
                        changelogs=[internal_topic(f"@c{number}") for number in range(5)],
                    ),
                ),
                # Kafka lists the topics in the order of a hash map.
                ignore=["status.0.status_detail"],
                save=_EPOCH,
            ),
            Wait(1_500),
            streams_heartbeat(epoch="$e", save={"e2": "member_epoch"}),
            streams_heartbeat(epoch="$e2", save={"e3": "member_epoch"}),
            streams_heartbeat(epoch="$e3"),
            streams_described(),
        ],
        ("streams-repartition-topic-of-two-writers", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(
                topology=topology_of(
                    subtopology("0", sinks=["@r"]),
                    subtopology(
                        "1",
                        sources=[],
                        repartitioned=[internal_topic("@r")],
                        sinks=["@r"],
                    ),
                ),
                ignore=["status.0.status_detail"],
                save=_EPOCH,
            ),
            Wait(1_500),
            streams_heartbeat(epoch="$e"),
            streams_described(),
        ],
        ("streams-copartitioned", "StreamsGroupHeartbeat"): [
            *topic(partitions=2),
            *topic("@u", partitions=3),
            *topic("@same", partitions=2),
            *group(),
            _AT_ONCE,
            _KNOWN,
            streams_heartbeat(
                topology=topology_of(
                    subtopology(sources=["@t", "@u"], together=[_together([0, 1])])
                )
            ),
            streams_heartbeat(
                group_id="@h",
                topology=topology_of(
                    subtopology(
                        sources=["@t", "@same"],
                        repartitioned=[internal_topic("@r", 3)],
                        sinks=["@r"],
                        together=[_together([0, 1], [0])],
                    )
                ),
            ),
            streams_heartbeat(
                group_id="@i",
                topology=topology_of(subtopology(changelogs=[internal_topic("@u")])),
            ),
            streams_described("@g", "@h", "@i"),
        ],
        ("streams-topology-invalid", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(
                topology=topology_of(subtopology(changelogs=[internal_topic("@c", 2)]))
            ),
            streams_heartbeat(
                topology=topology_of(subtopology(repartitioned=[internal_topic("@r")]))
            ),
            streams_heartbeat(
                topology=topology_of(
                    subtopology(sources=[], repartitioned=[internal_topic("@r")], sinks=["@r"])
                )
            ),
            streams_heartbeat(topology=topology_of(subtopology(sources=[]))),
            streams_heartbeat(topology=topology_of(subtopology(sources=["__consumer_offsets"]))),
            streams_heartbeat(topology=topology_of(subtopology(sources=["a b"]))),
            streams_heartbeat(topology=topology_of(subtopology(sinks=["__transaction_state"]))),
        ],
        ("streams-topology-broken", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(topology=topology_of(subtopology(together=[_together([7])]))),
            streams_heartbeat(topology=topology_of(subtopology(), subtopology())),
        ],
        ("streams-topology-empty", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            streams_heartbeat(topology={"epoch": 0, "subtopologies": []}, save=_EPOCH),
            streams_described(),
        ],
    }
)

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


_AROUND = scenarios_of(
    {
        ("streams-and-other-groups", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            _commit(),
            streams_heartbeat(epoch=1),
            streams_heartbeat(epoch=-1),
            streams_heartbeat(save=_EPOCH),
            _fetched(),
            Ask("ConsumerGroupHeartbeat", _CONSUMER, version=1),
            Ask("JoinGroup", join_body(), version=9),
            Ask("DescribeGroups", {"groups": ["@g"]}, version=6),
            Ask("ConsumerGroupDescribe", {"group_ids": ["@g"]}),
            Ask("ListGroups", {"types_filter": ["streams"]}, mine=True),
            Ask("DeleteGroups", {"groups_names": ["@g"]}),
            streams_heartbeat(epoch=-1),
            Ask("ConsumerGroupHeartbeat", _CONSUMER, version=1),
            Ask("JoinGroup", join_body(), version=9, save={"j": "member_id"}),
            streams_described(),
            _fetched(),
        ],
        ("streams-and-consumer-groups", "StreamsGroupHeartbeat"): [
            *STREAMS_START,
            Ask("ConsumerGroupHeartbeat", _CONSUMER, version=1),
            streams_heartbeat(),
            streams_heartbeat(epoch=1),
            streams_described(),
        ],
        ("streams-deleted", "StreamsGroupHeartbeat"): [
            *_MEMBER,
            streams_heartbeat(epoch=-1),
            Ask("DeleteGroups", {"groups_names": ["@g"]}),
            streams_described(),
            streams_heartbeat(save=_EPOCH),
            streams_described(),
        ],
        ("streams-commits", "OffsetCommit", "9"): [
            *STREAMS_START,
            _commit(),
            streams_heartbeat(save=_EPOCH, quiet=True),
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
            streams_heartbeat("n", process_id="q", quiet=True),
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
    }
)

_DESCRIBE = [
    Scenario(
        "streams-described",
        "StreamsGroupDescribe",
        [
            *_MEMBER,
            streams_described(),
            streams_described("@none", "@g", include_authorized_operations=True),
            streams_described(""),
        ],
    )
]

SCENARIOS = [*_HEARTBEAT, *_TOPOLOGY, *_AROUND, *_DESCRIBE]
