"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracle.group_steps import (
    described,
    empty,
    group,
    join_body,
    joined,
    preparing,
    rebalancing,
    stable,
)
from tests.oracle.scenarios.transactions import add_offsets, end_transaction
from tests.oracle.script import (
    Ask,
    Receive,
    Send,
    Step,
    Subscribed,
    coordinator,
    producer,
    scenarios_of,
    topic,
)

Position = tuple[int, int] | tuple[int, int, str | None]


def _topics(*given: tuple[str, Sequence[Position]], epoch: int = -1) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "topic_id": "$" + name.lstrip("@") if name in ("@t", "@u") else bytes(15) + b"\x09",
            "partitions": [
                {
                    "partition_index": position[0],
                    "committed_offset": position[1],
                    "committed_leader_epoch": epoch,
                    "committed_metadata": position[2] if len(position) > 2 else "",
                }
                for position in positions
            ],
        }
        for name, positions in given
    ]


def _commit_body(
    *given: tuple[str, Sequence[Position]],
    member_id: str = "",
    generation: int | str = -1,
    epoch: int = -1,
    **more: Any,
) -> dict[str, Any]:
    return {
        "group_id": "@g",
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": _topics(*given, epoch=epoch),
        **more,
    }


_SYNCED = Ask(
    "SyncGroup",
    {"group_id": "@g", "generation_id": "$gen", "member_id": "$m"},
    version=3,
    quiet=True,
)


def _committed_in_transaction(*topics: str) -> list[Ask]:
    """Offset 9 of the first partition of each topic, in a transaction that is open."""
    body = {
        "transactional_id": "@id",
        "group_id": "@g",
        "producer_id": "$pid",
        "producer_epoch": "$pid_epoch",
        "topics": [
            {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 9}]}
            for name in topics
        ],
    }
    return [
        add_offsets(version=3, quiet=True),
        Ask("TxnOffsetCommit", body, version=3, quiet=True),
    ]


def commit_offsets(*given: tuple[str, Sequence[Position]], **more: Any) -> Ask:
    return Ask("OffsetCommit", _commit_body(*given, **more))


def _committed(*given: tuple[str, Sequence[Position]], **more: Any) -> Ask:
    return Ask("OffsetCommit", _commit_body(*given, **more), version=8, quiet=True)


def fetch_offsets(
    topics: Sequence[tuple[str, Sequence[int]]] | None = (("@t", (0,)),),
    group_id: str = "@g",
    **more: Any,
) -> Ask:
    wanted = None
    if topics is not None:
        wanted = [
            {
                "name": name,
                "topic_id": "$" + name.lstrip("@") if name in ("@t", "@u") else bytes(15) + b"\x09",
                "partition_indexes": list(partitions),
            }
            for name, partitions in topics
        ]
    groups = [{"group_id": group_id, "topics": wanted, **more.pop("of_group", {})}]
    named = None
    if topics is not None:
        named = [{"name": name, "partition_indexes": list(found)} for name, found in topics]
    return Ask("OffsetFetch", {"group_id": group_id, "topics": named, "groups": groups, **more})


_START: list[Step] = [*topic(partitions=2), *group()]
_LONG = "m" * 4_096

_COMMIT = scenarios_of(
    {
        ("commit-from-outside", "OffsetCommit"): [
            *_START,
            commit_offsets(("@t", [(0, 5, "note"), (1, 7, None)])),
            fetch_offsets([("@t", (0, 1))]),
            commit_offsets(("@t", [(0, 3)]), epoch=4),
            fetch_offsets([("@t", (0, 1))]),
            described(),
        ],
        ("commit-odd-values", "OffsetCommit"): [
            *_START,
            commit_offsets(("@t", [(0, -1), (1, -9)])),
            fetch_offsets(None),
            commit_offsets(("@t", [(0, (1 << 63) - 1)])),
            commit_offsets(("@t", [(0, 1)]), epoch=-7),
            fetch_offsets([("@t", (0, 1))]),
        ],
        ("commit-unknown", "OffsetCommit"): [
            *_START,
            commit_offsets(("@unknown", [(0, 1)])),
            commit_offsets(("@t", [(2, 1), (-1, 1), (0, 4)])),
            commit_offsets(("@unknown", [(0, 1)]), ("@t", [(0, 5)])),
            commit_offsets(("", [(0, 1)])),
            fetch_offsets(None),
        ],
        ("commit-metadata-at-the-limit", "OffsetCommit"): [
            *_START,
            commit_offsets(("@t", [(0, 1, _LONG), (1, 1, _LONG + "m")])),
            commit_offsets(("@t", [(0, 2, "é" * 2_048), (1, 1, "é" * 4_096)])),
            commit_offsets(("@unknown", [(0, 1, _LONG + "m")])),
            Ask(
                "OffsetFetch",
                {
                    "groups": [
                        {
                            "group_id": "@g",
                            "topics": [{"name": "@t", "partition_indexes": [0, 1]}],
                        }
                    ]
                },
                version=8,
                ignore=["groups.0.topics.0.partitions.*.metadata"],
            ),
        ],
        ("commit-repeated", "OffsetCommit"): [
            *_START,
            commit_offsets(("@t", [(0, 1), (0, 2)])),
            fetch_offsets(),
            commit_offsets(("@t", [(0, 3)]), ("@t", [(0, 4), (1, 5)])),
            fetch_offsets([("@t", (0, 1))]),
        ],
        ("commit-repeated-and-unknown", "OffsetCommit"): [
            *_START,
            commit_offsets(("@t", [(0, 1)]), ("@t", [(7, 2)]), ("@t", [(1, 3)])),
            commit_offsets(("@none", [(0, 1)]), ("@none", [(1, 2)])),
            fetch_offsets([("@t", (0, 1))]),
        ],
        ("commit-nothing", "OffsetCommit"): [
            *_START,
            commit_offsets(),
            described(),
            commit_offsets(("@t", [])),
            described(),
            commit_offsets(group_id=""),
        ],
        ("commit-with-a-retention", "OffsetCommit", "2-4"): [
            *_START,
            commit_offsets(("@t", [(0, 5)]), retention_time_ms=0),
            commit_offsets(("@t", [(1, 5)]), retention_time_ms=86_400_000),
            fetch_offsets(None),
        ],
        ("commit-of-a-member", "OffsetCommit"): [
            *topic(),
            *stable(),
            commit_offsets(("@t", [(0, 1)]), member_id="$m", generation="$gen"),
            commit_offsets(("@t", [(0, 2)]), member_id="$m", generation=7),
            commit_offsets(("@t", [(0, 2)]), member_id="$m", generation=0),
            commit_offsets(("@t", [(0, 2)]), member_id="$m", generation=-1),
            commit_offsets(("@t", [(0, 2)]), member_id="nobody", generation="$gen"),
            commit_offsets(("@t", [(0, 2)]), member_id="", generation="$gen"),
            commit_offsets(("@t", [(0, 2)])),
            commit_offsets(("@t", [(0, 2)]), member_id="nobody"),
            commit_offsets(("@unknown", [(0, 2)]), member_id="nobody", generation="$gen"),
            commit_offsets(("@t", [(0, 2, _LONG + "m")]), member_id="nobody", generation="$gen"),
            fetch_offsets(),
        ],
        ("commit-while-completing", "OffsetCommit"): [
            *topic(),
            *joined(),
            commit_offsets(("@t", [(0, 1)]), member_id="$m", generation="$gen"),
            commit_offsets(("@t", [(0, 1)])),
            fetch_offsets(),
        ],
        ("commit-while-preparing", "OffsetCommit"): [
            *topic(),
            *preparing(),
            commit_offsets(("@t", [(0, 1)]), member_id="$m", generation="$gen"),
            commit_offsets(("@t", [(0, 2)]), member_id="$m", generation=2),
            fetch_offsets(),
        ],
        ("commit-empty-and-dead", "OffsetCommit"): [
            *topic(),
            *empty(),
            commit_offsets(("@t", [(0, 1)]), member_id="$m", generation="$gen"),
            commit_offsets(("@t", [(0, 1)])),
            fetch_offsets(),
            Ask("DeleteGroups", {"groups_names": ["@g"]}, version=2),
            commit_offsets(("@t", [(0, 1)]), member_id="$m", generation="$gen"),
            commit_offsets(("@t", [(0, 1)]), member_id="$m"),
            commit_offsets(("@t", [(0, 1)]), member_id="", generation=3),
            fetch_offsets(),
            described(),
        ],
        ("commit-of-a-static-member", "OffsetCommit", "7-10"): [
            *topic(),
            *stable(group_instance_id="i"),
            commit_offsets(
                ("@t", [(0, 1)]), member_id="$m", generation="$gen", group_instance_id="i"
            ),
            commit_offsets(
                ("@t", [(0, 2)]), member_id="no", generation="$gen", group_instance_id="i"
            ),
            commit_offsets(
                ("@t", [(0, 2)]), member_id="$m", generation="$gen", group_instance_id="j"
            ),
            commit_offsets(("@t", [(0, 2)]), member_id="$m", generation=9, group_instance_id="i"),
            commit_offsets(("@t", [(0, 2)]), member_id="", generation=-1, group_instance_id="i"),
            fetch_offsets(),
        ],
        ("commit-pipelined", "OffsetCommit"): [
            *_START,
            Send(commit_offsets(("@t", [(0, 1)]))),
            Send(commit_offsets(("@t", [(0, 2)]))),
            Send(fetch_offsets()),
            Send(commit_offsets(("@t", [(0, 3)]))),
            Receive(),
            Receive(),
            Receive(),
            Receive(),
            fetch_offsets(),
        ],
        ("commit-of-a-deleted-topic", "OffsetCommit"): [
            *_START,
            _committed(("@t", [(0, 5)])),
            Ask("DeleteTopics", {"topic_names": ["@t"], "timeout_ms": 10_000}, version=5),
            Ask(
                "Metadata",
                {"topics": [{"name": "@t"}], "allow_auto_topic_creation": False},
                version=9,
                until={"topics.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
                ignore=["brokers", "cluster_id", "controller_id"],
            ),
            commit_offsets(("@t", [(0, 6)])),
        ],
    }
)

_MEMBER: dict[str, Any] = {"member_id": "$m", "generation": "$gen"}

_FETCH = scenarios_of(
    {
        ("offset-fetch", "OffsetFetch"): [
            *_START,
            _committed(("@t", [(0, 5, "note")]), epoch=3),
            fetch_offsets(),
            fetch_offsets([("@t", (1,))]),
            fetch_offsets([("@t", (0, 1, 2, -1))]),
            fetch_offsets([("@unknown", (0,))]),
            fetch_offsets([("@t", ())]),
            fetch_offsets([]),
            fetch_offsets([("", (0,))]),
        ],
        ("offset-fetch-named-twice", "OffsetFetch", "8"): [
            *_START,
            _committed(("@t", [(0, 5, "note")]), epoch=3),
            fetch_offsets([("@t", (0, 0))]),
            fetch_offsets([("@t", (0,)), ("@t", (1, 0))]),
        ],
        ("offset-fetch-everything", "OffsetFetch", "2-10"): [
            *_START,
            *topic("@u"),
            fetch_offsets(None),
            _committed(("@t", [(0, 5), (1, 6)])),
            _committed(("@u", [(0, 7)])),
            fetch_offsets(None),
        ],
        ("offset-fetch-unknown-group", "OffsetFetch"): [
            *_START,
            fetch_offsets(group_id="@unknown"),
            fetch_offsets(group_id=""),
            fetch_offsets([("@unknown", (0,))], group_id="@unknown"),
        ],
        ("offset-fetch-everything-of-an-unknown-group", "OffsetFetch", "2-10"): [
            *_START,
            fetch_offsets(None, group_id="@unknown"),
            fetch_offsets(None, group_id=""),
        ],
        ("offset-fetch-in-each-state", "OffsetFetch"): [
            *topic(),
            *joined(),
            fetch_offsets(),
            _SYNCED,
            _committed(("@t", [(0, 5)]), **_MEMBER),
            fetch_offsets(),
            Send(Ask("JoinGroup", join_body(), on="b", version=3)),
            rebalancing(),
            fetch_offsets(),
        ],
        ("offset-fetch-several-groups", "OffsetFetch", "8-10"): [
            *_START,
            _committed(("@t", [(0, 5)])),
            Ask(
                "OffsetFetch",
                {
                    "groups": [
                        {
                            "group_id": name,
                            "topics": [{"name": "@t", "topic_id": "$t", "partition_indexes": [0]}],
                        }
                        for name in ("@g", "@unknown", "")
                    ]
                },
            ),
            Ask("OffsetFetch", {"groups": []}),
            Ask(
                "OffsetFetch",
                {"groups": [{"group_id": "@g", "topics": None}, {"group_id": "@h", "topics": []}]},
            ),
        ],
        ("offset-fetch-as-a-member", "OffsetFetch", "9-10"): [
            *topic(),
            *stable(),
            _committed(("@t", [(0, 5)]), **_MEMBER),
            fetch_offsets(of_group={"member_id": "$m", "member_epoch": "$gen"}),
            fetch_offsets(of_group={"member_id": "$m", "member_epoch": 9}),
            fetch_offsets(of_group={"member_id": "nobody", "member_epoch": 1}),
            fetch_offsets(of_group={"member_id": None, "member_epoch": 1}),
            fetch_offsets(of_group={"member_id": "", "member_epoch": -1}),
        ],
        ("offset-fetch-stable", "OffsetFetch", "7-10"): [
            *_START,
            *topic("@u"),
            _committed(("@t", [(0, 5), (1, 6)])),
            *producer(),
            *_committed_in_transaction("@t", "@u"),
            fetch_offsets([("@t", (0, 1)), ("@u", (0,))]),
            fetch_offsets([("@t", (0, 1)), ("@u", (0,))], require_stable=True),
            fetch_offsets(None, require_stable=True),
            fetch_offsets(None),
            end_transaction(True, version=3, quiet=True),
            Ask(
                "OffsetFetch",
                {
                    "group_id": "@g",
                    "topics": [{"name": "@t", "partition_indexes": [0]}],
                    "require_stable": True,
                },
                version=7,
                until={"topics.0.partitions.0.error_code": "NONE"},
            ),
            fetch_offsets([("@t", (0, 1)), ("@u", (0,))], require_stable=True),
        ],
    }
)


def delete_offsets(*given: tuple[str, Sequence[int]], group_id: str = "@g") -> Ask:
    return Ask(
        "OffsetDelete",
        {
            "group_id": group_id,
            "topics": [
                {"name": name, "partitions": [{"partition_index": p} for p in partitions]}
                for name, partitions in given
            ],
        },
    )


def delete_groups(*names: str) -> Ask:
    return Ask("DeleteGroups", {"groups_names": list(names)})


_DELETE = scenarios_of(
    {
        ("offset-delete", "OffsetDelete"): [
            *_START,
            _committed(("@t", [(0, 5), (1, 6)])),
            delete_offsets(("@t", (1,))),
            fetch_offsets(None),
            delete_offsets(("@t", (1,))),
            delete_offsets(("@t", (0, 0)), ("@t", (7,)), ("@unknown", (0,)), ("", (0,))),
            delete_offsets(),
            delete_offsets(("@t", ())),
            delete_offsets(("@t", (0,)), group_id="@unknown"),
            delete_offsets(("@t", (0,)), group_id=""),
            fetch_offsets(None),
            described(),
        ],
        ("offset-delete-of-a-group-with-members", "OffsetDelete"): [
            *topic(),
            *topic("@u"),
            *stable((("range", Subscribed(("@t",))),)),
            _committed(("@t", [(0, 5)]), **_MEMBER),
            _committed(("@u", [(0, 5)]), **_MEMBER),
            delete_offsets(("@t", (0,)), ("@u", (0,))),
            fetch_offsets(None),
        ],
        ("offset-delete-of-a-group-that-is-no-consumer", "OffsetDelete"): [
            *topic(),
            *stable(protocol_type="connect"),
            _committed(("@t", [(0, 5)]), **_MEMBER),
            delete_offsets(("@t", (0,))),
        ],
        ("offset-delete-with-rubbish-metadata", "OffsetDelete"): [
            *topic(),
            *stable((("range", b"\x00\x00\x00\x7f"),)),
            _committed(("@t", [(0, 5)]), **_MEMBER),
            delete_offsets(("@t", (0,))),
        ],
        ("offset-delete-while-completing", "OffsetDelete"): [
            *topic(),
            *joined((("range", Subscribed(("@u",))),)),
            delete_offsets(("@t", (0,))),
        ],
        ("offset-delete-in-an-empty-group", "OffsetDelete"): [
            *topic(),
            *empty(),
            _committed(("@t", [(0, 5)])),
            delete_offsets(("@t", (0,))),
            described(),
        ],
        ("delete-groups", "DeleteGroups"): [
            *_START,
            delete_groups("@g"),
            _committed(("@t", [(0, 5)])),
            delete_groups("@g", "@unknown", ""),
            delete_groups("@g"),
            described(),
            fetch_offsets(),
            delete_groups(),
        ],
        ("delete-groups-named-twice", "DeleteGroups"): [
            *_START,
            _committed(("@t", [(0, 5)])),
            delete_groups("@g", "@g"),
            described(),
        ],
        ("delete-groups-in-each-state", "DeleteGroups"): [
            *joined(),
            delete_groups("@g"),
            _SYNCED,
            delete_groups("@g"),
            Send(Ask("JoinGroup", join_body(), on="b", version=3)),
            rebalancing(),
            delete_groups("@g"),
            described(),
        ],
        ("delete-groups-emptied", "DeleteGroups"): [
            *empty(),
            delete_groups("@g"),
            described(),
            *joined(),
            described(),
        ],
        ("delete-groups-with-a-transaction", "DeleteGroups"): [
            *_START,
            *producer(),
            coordinator("@g"),
            *_committed_in_transaction("@t"),
            delete_groups("@g"),
            described(),
            end_transaction(True, version=3, quiet=True),
        ],
    }
)

SCENARIOS = [*_COMMIT, *_FETCH, *_DELETE]
