"""Requests at the edges of their fields: special offsets and epochs, limits below zero, long
names, rights of groups that do not exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.group_steps import group, join_body
from tests.oracle.scenarios.fetch import delete_records, list_offset, offset_for_epoch
from tests.oracle.scenarios.groups_consumer import CONSUMER_GROUP, consumer_heartbeat
from tests.oracle.scenarios.groups_share import alter_share_offsets
from tests.oracle.scenarios.transactions import add_partitions, end_transaction
from tests.oracle.script import (
    Ask,
    Batch,
    Padded,
    Scenario,
    Step,
    coordinator,
    fetch_body,
    produce_body,
    produced,
    producer,
    scenarios_of,
    topic,
)

_OPEN = Batch(
    ["in", "open"],
    timestamp_ms=1_700_000_009_000,
    producer_id="$pid",
    producer_epoch="$pid_epoch",
    base_sequence=0,
    transactional=True,
)


def _opened(committed: bool | None = None) -> list[Step]:
    """Two records, then two newer ones in a transaction, and a record behind them."""
    steps: list[Step] = [
        *topic(),
        produced(Batch(["a", "b"])),
        *producer(),
        add_partitions(version=3, quiet=True),
        Ask("Produce", produce_body(_OPEN, transactional_id="@id"), version=11, quiet=True),
    ]
    if committed is not None:
        state = "CompleteCommit" if committed else "CompleteAbort"
        described = Ask(
            "DescribeTransactions",
            {"transactional_ids": ["@id"]},
            until={"transaction_states.0.transaction_state": state},
            ignore=("transaction_states",),
        )
        steps += [end_transaction(committed, version=4, quiet=True), described]
    return [*steps, produced(Batch(["c"], timestamp_ms=1_700_000_001_000))]


def _untimed(*values: str) -> list[Step]:
    return [produced(Batch([value], timestamp_ms=-1)) for value in values]


_ALL_TIMES = (-1, -2, -3, -4, -5, -6, -7, -8, -100, 0, 1, -(1 << 63), (1 << 63) - 1)

_OFFSETS = [
    *scenarios_of(
        {
            ("offsets-of-records-without-timestamps", "ListOffsets"): [
                *topic(),
                *_untimed("a", "b", "c"),
                *(list_offset(time) for time in _ALL_TIMES),
                list_offset(-3, isolation=1),
                delete_records(1),
                list_offset(-3),
                list_offset(0),
            ],
            ("offsets-of-some-records-without-timestamps", "ListOffsets", "7-11"): [
                *topic(),
                *_untimed("a", "b"),
                produced(Batch(["c"], timestamp_ms=0)),
                list_offset(-3),
                list_offset(0),
                produced(Batch(["d"], timestamp_ms=5)),
                *_untimed("e"),
                list_offset(-3),
                list_offset(0),
                list_offset(1),
            ],
            ("offsets-of-records-with-equal-timestamps", "ListOffsets", "7-11"): [
                *topic(),
                *(produced(Batch([each], timestamp_ms=1_700_000_000_000)) for each in "abc"),
                list_offset(-3),
                list_offset(1_700_000_000_000),
                delete_records(1),
                list_offset(-3),
                list_offset(1_700_000_000_000),
            ],
        }
    ),
    *(
        Scenario(
            f"offsets-of-{name}",
            "ListOffsets",
            [
                *_opened(committed),
                *(list_offset(time, isolation=level) for time in (-1, -2, -3) for level in (0, 1)),
                *(
                    list_offset(1_700_000_000_000 + ms, isolation=level)
                    for ms in (0, 1, 1_000, 2_000, 9_001, 9_002)
                    for level in (0, 1)
                ),
                list_offset(-3, isolation=2),
            ],
            versions="2-11",
        )
        for name, committed in (
            ("an-open-transaction", None),
            ("a-committed-transaction", True),
            ("an-aborted-transaction", False),
        )
    ),
    *scenarios_of(
        {
            ("offsets-of-an-open-transaction-alone", "ListOffsets", "7-11"): [
                *topic(),
                *producer(),
                add_partitions(version=3, quiet=True),
                Ask("Produce", produce_body(_OPEN, transactional_id="@id"), version=11, quiet=True),
                *(
                    list_offset(time, isolation=level)
                    for time in (-1, -2, -3, 0)
                    for level in (0, 1)
                ),
            ],
            ("offsets-with-odd-epochs", "ListOffsets", "4-11"): [
                *topic(),
                produced(Batch(["a"])),
                *(list_offset(-1, epoch=epoch) for epoch in (-3, -2, -1, 0, 1, (1 << 31) - 1)),
            ],
            ("epoch-ends-at-the-edges", "OffsetForLeaderEpoch"): [
                *topic(),
                produced(Batch(["a", "b"])),
                *(
                    offset_for_epoch(epoch)
                    for epoch in (-3, -2, -1, 0, 1, (1 << 31) - 1, -(1 << 31))
                ),
                *(
                    offset_for_epoch(0, current=epoch)
                    for epoch in (-3, -2, -1, 0, 1, (1 << 31) - 1)
                ),
                *(offset_for_epoch(-1, current=epoch) for epoch in (-2, 0, 1)),
                *(offset_for_epoch(0, replica=replica) for replica in (-3, -2, -1, 0, 1, 7)),
                offset_for_epoch(0, partition=-1),
            ],
        }
    ),
]


def _fetched(offset: int = 0, epoch: int = -1, part_bytes: int = 1 << 20, **body: Any) -> Ask:
    made = fetch_body(offset=offset, current_leader_epoch=epoch, partition_max_bytes=part_bytes)
    return Ask("Fetch", {**made, **body})


_BYTES = scenarios_of(
    {
        ("fetch-with-limits-below-zero", "Fetch"): [
            *topic(),
            produced(Batch(["a", "b"])),
            produced(Batch(["c"])),
            _fetched(max_bytes=-1),
            _fetched(max_bytes=0),
            _fetched(part_bytes=-1),
            _fetched(part_bytes=0),
            _fetched(part_bytes=-1, max_bytes=-1),
            _fetched(min_bytes=-1),
            _fetched(min_bytes=0),
            _fetched(max_wait_ms=-1),
            _fetched(max_wait_ms=-1, offset=3),
            _fetched(offset=-1),
            _fetched(offset=-2),
            _fetched(offset=4),
            _fetched(isolation_level=2),
            _fetched(isolation_level=-1),
            _fetched(epoch=-2),
        ],
        ("produce-with-acks-at-the-edges", "Produce"): [
            *topic(),
            *(Ask("Produce", produce_body(Batch(["a"]), acks=acks)) for acks in (2, -2, 1, 127)),
            *(Ask("Produce", {**produce_body(Batch(["a"])), "timeout_ms": ms}) for ms in (0, -1)),
            Ask("Produce", produce_body(Batch(["a"]), partition=-1)),
        ],
        ("fetch-nothing-of-a-topic", "Fetch"): [
            *topic(),
            Ask("Fetch", {**fetch_body(), "topics": []}),
            Ask("Fetch", {**fetch_body(), "topics": [{"topic": "@t", "topic_id": "$t"}]}),
        ],
    }
)


def _commit(name: Any, **more: Any) -> dict[str, Any]:
    return {
        "group_id": name,
        "generation_id_or_member_epoch": -1,
        "topics": [
            {
                "name": "@t",
                "partitions": [
                    {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
                ],
            }
        ],
        **more,
    }


def _rights(api: str, field: str, *names: str) -> Ask:
    return Ask(api, {field: list(names), "include_authorized_operations": True})


_RIGHTS = [
    Scenario(
        "describe-unknown-groups-with-rights",
        "DescribeGroups",
        [
            *topic(),
            *group(),
            _rights("DescribeGroups", "groups", "@none"),
            _rights("DescribeGroups", "groups", ""),
            Ask("OffsetCommit", _commit("@g"), version=8, quiet=True),
            _rights("DescribeGroups", "groups", "@g", "@none", ""),
        ],
        versions="3-6",
    ),
    *(
        Scenario(
            f"{name}-unknown-with-rights",
            api,
            [*group(), _rights(api, "group_ids", "@none"), _rights(api, "group_ids", "")],
        )
        for name, api in (
            ("consumer-group", "ConsumerGroupDescribe"),
            ("share-group", "ShareGroupDescribe"),
            ("streams-group", "StreamsGroupDescribe"),
        )
    ),
]


def _of_long_ids(length: int) -> Sequence[Step]:
    long = Padded("@g", length)
    member = {"group_id": long, "member_id": "m", "member_epoch": 0}
    names = {"subscribed_topic_names": ["@t"]}
    offsets = {
        "group_id": long,
        "topics": [{"name": "@t", "partitions": [{"partition_index": 0}]}],
    }
    return [
        *topic(),
        coordinator("@g"),
        Ask("FindCoordinator", {"key": long}, version=3),
        Ask("OffsetCommit", _commit(long), version=8),
        Ask("OffsetFetch", {**_fetch(long)}, version=7),
        Ask("OffsetDelete", offsets),
        Ask(
            "JoinGroup",
            join_body(group_id=long),
            version=3,
            ignore=("member_id", "leader", "members"),
        ),
        Ask("Heartbeat", {"group_id": long, "generation_id": 1, "member_id": "m"}),
        Ask("LeaveGroup", {"group_id": long, "members": [{"member_id": "m"}]}, version=4),
        Ask("SyncGroup", {"group_id": long, "generation_id": 1, "member_id": "m"}, version=4),
        Ask(
            "ConsumerGroupHeartbeat",
            {**member, **names, "rebalance_timeout_ms": 60_000, "topic_partitions": []},
            ignore=("assignment", "member_epoch"),
        ),
        Ask("ShareGroupHeartbeat", {**member, **names}, ignore=("assignment", "member_epoch")),
        Ask("DescribeGroups", {"groups": [long]}, version=5, ignore=("groups.0.group_id",)),
        Ask("DeleteGroups", {"groups_names": [long]}, ignore=("results.0.group_id",)),
    ]


def _fetch(name: Any) -> dict[str, Any]:
    return {"group_id": name, "topics": [{"name": "@t", "partition_indexes": [0]}]}


_LENGTHS = [
    Scenario(f"group-id-of-{length}", "OffsetFetch", _of_long_ids(length), versions="7")
    for length in (8_000, 8_001)
]

_EMPTY_TOPICS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("Produce", {"acks": -1, "timeout_ms": 10_000}),
    ("ListOffsets", {"replica_id": -1}),
    ("DeleteRecords", {"timeout_ms": 10_000}),
    ("OffsetForLeaderEpoch", {"replica_id": -2}),
)


def _of_topics(api: str, body: Mapping[str, Any], *topics: tuple[str, int]) -> Ask:
    """A request that names topics, each with the first partitions of this number."""
    field, name, partitions, index = {
        "Produce": ("topic_data", "name", "partition_data", "index"),
        "ListOffsets": ("topics", "name", "partitions", "partition_index"),
        "DeleteRecords": ("topics", "name", "partitions", "partition_index"),
        "OffsetForLeaderEpoch": ("topics", "topic", "partitions", "partition"),
    }[api]
    more: dict[str, Any] = {"records": Batch(["a"])} if api == "Produce" else {}
    more |= {"timestamp": -1} if api == "ListOffsets" else {}
    named = [
        {
            name: each,
            **({"topic_id": "$" + each[1:]} if api == "Produce" else {}),
            partitions: [{index: at, **more} for at in range(count)],
        }
        for each, count in topics
    ]
    return Ask(api, {**body, field: named})


_WITHOUT_PARTITIONS = [
    Scenario(
        f"topics-without-partitions-{api.lower()}",
        api,
        [
            *topic(),
            *topic("@u"),
            *(
                _of_topics(api, body, *topics)
                for topics in (
                    [],
                    [("@t", 0)],
                    [("@t", 0), ("@u", 1)],
                    [("@u", 1), ("@t", 0)],
                    [("@t", 0), ("@t", 1)],
                    [("@t", 1), ("@t", 0)],
                    [("@t", 0), ("@t", 0)],
                )
            ),
        ],
    )
    for api, body in _EMPTY_TOPICS
]

_GROUP_EDGES = scenarios_of(
    {
        ("alter-share-offsets-at-the-edges", "AlterShareGroupOffsets"): [
            *topic(),
            *group(),
            *(
                alter_share_offsets(("@t", starts))
                for starts in (
                    {},
                    {-1: 0},
                    {0: 0, -1: 0},
                    {-2: 0},
                    {0: -1},
                    {0: -2},
                    {0: 99},
                    {1: 0},
                )
            ),
            alter_share_offsets(("@t", {0: 0}), ("@none", {-1: 0})),
            alter_share_offsets(("@none", {-1: 0})),
            alter_share_offsets(("", {0: 0})),
            alter_share_offsets(),
        ],
        ("consumer-rebalance-timeouts-at-the-edges", "ConsumerGroupHeartbeat"): [
            *CONSUMER_GROUP,
            *(
                consumer_heartbeat(f"@{at}", rebalance_timeout_ms=timeout_ms)
                for at, timeout_ms in enumerate((-(1 << 31), -2, -1, 0, 1, (1 << 31) - 1))
            ),
        ],
    }
)

_SESSION_EDGES = scenarios_of(
    {
        ("fetch-session-epochs-at-the-edges", "Fetch"): [
            *topic(),
            produced(Batch(["a"])),
            *(
                Ask("Fetch", {**fetch_body(), "session_id": session, "session_epoch": epoch})
                for session in (0, 77, -1)
                for epoch in (-(1 << 31), -2, -1, 0, 1, (1 << 31) - 1)
            ),
        ],
        ("fetch-session-closed-by-odd-epochs", "Fetch", "7-18"): [
            *topic(),
            produced(Batch(["a"])),
            Ask("Fetch", {**fetch_body(), "session_epoch": 0}, save={"s": "session_id"}),
            *(
                Ask("Fetch", {**fetch_body(), "session_id": "$s", "session_epoch": epoch})
                for epoch in (-2, -(1 << 31), 1, 2, (1 << 31) - 1, -2, 3, -1, 4)
            ),
        ],
    }
)

SCENARIOS = [
    *_OFFSETS,
    *_BYTES,
    *_RIGHTS,
    *_LENGTHS,
    *_WITHOUT_PARTITIONS,
    *_GROUP_EDGES,
    *_SESSION_EDGES,
]
