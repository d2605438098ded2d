"""Changes of settings and topics at the edges of their fields: empty and unknown names, null
values, operations in any order, timeouts of zero and below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.oracle.scenarios.configs import change_configs, replace_configs
from tests.oracle.scenarios.leaders import elect, reassign
from tests.oracle.scenarios.topics import (
    create_partitions,
    create_topics,
    delete_topics,
    new_topic,
    partitions_of,
)
from tests.oracle.script import NO_SUCH_ID, Ask, Scenario, scenarios_of, topic

_SETTINGS = [
    *scenarios_of(
        {
            ("alter-unknown-topic", "IncrementalAlterConfigs"): [
                change_configs((key, operation, value), name=name)
                for name in ("@none", "", "@a b", ".")
                for key, operation, value in (
                    ("retention.ms", 0, "1"),
                    ("retention.ms", 0, "x"),
                    ("retention.ms", 0, None),
                    ("retention.ms", 1, None),
                    ("retention.ms", 2, "1"),
                    ("retention.ms", 3, "1"),
                    ("cleanup.policy", 2, "compact"),
                    ("cleanup.policy", 2, "x"),
                    ("no.such", 0, "1"),
                    ("no.such", 1, None),
                    ("", 0, "1"),
                )
            ],
            ("replace-settings-of-unknown-topic", "AlterConfigs"): [
                replace_configs({key: value}, name=name)
                for name in ("@none", "", "@a b")
                for key, value in (
                    ("retention.ms", "1"),
                    ("retention.ms", "x"),
                    ("retention.ms", None),
                    ("no.such", "1"),
                    ("", "1"),
                )
            ],
        }
    ),
    *(
        Scenario(
            f"alter-{label}-at-the-edges",
            "IncrementalAlterConfigs",
            [
                change_configs((key, operation, value), kind=kind, name=name, checked_only=True)
                for name in ("@g", "")
                for key in keys
                for operation, value in (
                    (0, "1"),
                    (0, ""),
                    (0, None),
                    (1, None),
                    (1, "1"),
                    (2, "1"),
                    (2, None),
                    (3, "1"),
                    (3, None),
                    (9, None),
                )
            ],
        )
        for label, kind, keys in (
            ("topic", 2, ("retention.ms", "cleanup.policy", "no.such", "")),
            ("group", 32, ("consumer.session.timeout.ms", "share.auto.offset.reset", "no.such")),
            ("client-metrics", 16, ("interval.ms", "metrics", "no.such")),
        )
    ),
]

_UNKNOWN_OPERATIONS = [
    Scenario(
        "alter-by-unknown-operations",
        "IncrementalAlterConfigs",
        [
            change_configs((key, operation, "1"), kind=kind, name=name, checked_only=True)
            for kind, name, key in (
                (2, "@none", "retention.ms"),
                (2, "", "retention.ms"),
                (32, "@g", "consumer.session.timeout.ms"),
                (32, "@g", "no.such"),
                (16, "@s", "interval.ms"),
                (16, "", "interval.ms"),
            )
            for operation in (4, 9, -1)
        ],
        versions="1",
    ),
]


def _timed(ask: Ask, timeout_ms: int) -> Ask:
    return replace(ask, body={**ask.body, "timeout_ms": timeout_ms})


_T: Mapping[str, Any] = {"name": "@t"}
_NONE: Mapping[str, Any] = {"name": "@none"}
_IDS: Sequence[Mapping[str, Any]] = [
    {"name": None, "topic_id": topic_id} for topic_id in ("$t", NO_SUCH_ID, bytes(16))
]
#: API -> lists of topics.
_CHANGES: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]] = {
    "CreateTopics": [
        [],
        [new_topic("@a")],
        [new_topic("")],
        [new_topic()],
        [new_topic("@a"), new_topic("@a")],
        [new_topic("@a"), new_topic("@a"), new_topic("@b")],
        [new_topic("@a", partitions=20_000)],
        [new_topic("@a", partitions=0), new_topic("@b", replicas=7)],
    ],
    "CreatePartitions": [
        [],
        [{**_T, "count": 2, "assignments": None}],
        [{**_T, "count": 1, "assignments": None}],
        [{**_NONE, "count": 2, "assignments": None}],
        [{**_T, "count": 2}] * 2,
        [*[{**_T, "count": 2}] * 2, {**_NONE, "count": 2}],
    ],
    "DeleteTopics": [
        [],
        [_NONE],
        [{"name": ""}],
        [_NONE, _NONE],
        [_NONE, _NONE, _T],
        *([each] for each in _IDS),
        [{**_T, "topic_id": "$t"}],
        [_IDS[1], _IDS[1]],
        [_IDS[2], _T],
        [_T],
    ],
}


def _asked(api: str, timeouts_ms: Sequence[int]) -> list[Ask]:
    return [
        Ask(api, {"topics": topics, "timeout_ms": ms}, ignore=("topics.*.configs",))
        for ms in timeouts_ms
        for topics in _CHANGES[api]
    ]


_TIMEOUTS = [
    *(
        Scenario(
            f"{name}-with-a-negative-timeout",
            api,
            [*topic(), *_asked(api, (-1, -(1 << 31)))],
            versions=versions,
        )
        for name, api, versions in (
            ("create-topics", "CreateTopics", ""),
            ("create-partitions", "CreatePartitions", ""),
            ("delete-topics", "DeleteTopics", "6"),
        )
    ),
    *scenarios_of(
        {
            ("delete-topics-by-name-with-a-negative-timeout", "DeleteTopics", "1-5"): [
                *topic(),
                *(
                    Ask("DeleteTopics", {"topic_names": names, "timeout_ms": -1})
                    for names in (
                        [],
                        ["@none"],
                        [""],
                        ["@none"] * 2,
                        ["@none", "@none", "@t"],
                        ["@t"],
                    )
                ),
            ],
            ("create-topics-checked-only-with-a-negative-timeout", "CreateTopics", "7"): [
                Ask(
                    "CreateTopics",
                    {"topics": [new_topic("@a")], "timeout_ms": -1, "validate_only": True},
                    ignore=("topics.*.configs",),
                )
            ],
            ("timeouts-of-zero", "Metadata", "12"): [
                *topic(),
                *(
                    _timed(ask, 0)
                    for ask in (
                        create_topics(new_topic("@a"), new_topic("")),
                        create_partitions(partitions_of()),
                        elect(("@t", [0])),
                        reassign(("@t", [(0, [1])])),
                    )
                ),
                _timed(elect(("@t", [0])), -1),
                _timed(reassign(("@t", [(0, [1])])), -1),
                _timed(delete_topics("@t"), 0),
            ],
        }
    ),
]

SCENARIOS = [*_SETTINGS, *_UNKNOWN_OPERATIONS, *_TIMEOUTS]
