"""Commits of members of consumer groups with an epoch before the present one (KIP-1251)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.oracle.scenarios.groups_consumer import CONSUMER_GROUP, consumer_heartbeat, owned
from tests.oracle.scenarios.transactions import add_offsets, commit_in_transaction
from tests.oracle.script import Ask, Padded, Step, producer, scenarios_of


def _commit(
    epoch: int | str, *partitions: int, member_id: str = "@m", metadata: Any = "", **more: Any
) -> Ask:
    """Commit offset 3 of these partitions, the last one with the metadata."""
    body = {
        "group_id": "@g",
        "generation_id_or_member_epoch": epoch,
        "member_id": member_id,
        "topics": [
            {
                "name": "@t",
                "topic_id": "$t",
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": 3,
                        "committed_metadata": metadata if index == partitions[-1] else "",
                    }
                    for index in partitions
                ],
            }
        ],
    }
    return Ask("OffsetCommit", body, **more)


def _beat(epoch: int | str, save: str, *partitions: int, **more: Any) -> Ask:
    """A heartbeat of member @m, which owns these partitions."""
    return consumer_heartbeat(
        epoch=epoch, topic_partitions=owned(*partitions), save={save: "member_epoch"}, **more
    )


#: @m has both partitions, at epoch `$e`; then @n joins, and @m is asked to revoke partition 1.
_SHARED: list[Step] = [
    *CONSUMER_GROUP,
    consumer_heartbeat(save={"e": "member_epoch"}),
    _beat("$e", "e", 0, 1),
    # Whether the first answer already counts the new assignment depends on the time.
    replace(consumer_heartbeat("@n", on="b"), ignore=("member_epoch",)),
    _beat("$e", "e", 0, 1, until={"assignment.topic_partitions.0.partitions": [0]}),
]
#: Then @m has only partition 0, at epoch `$e2`, and @n has partition 1.
_REVOKED: list[Step] = [
    *_SHARED,
    _beat("$e", "e2", 0),
    consumer_heartbeat(
        "@n",
        on="b",
        save={"n": "member_epoch"},
        until={"assignment.topic_partitions.0.partitions": [1]},
    ),
]

SCENARIOS = scenarios_of(
    {
        ("consumer-commits-while-it-revokes", "OffsetCommit", "9-10"): [
            *_SHARED,
            _commit("$e", 0, 1),
            _commit("$e+1", 0),
            _commit("$e-1", 0),
            _commit("$e-1", 1),
            _commit(0, 0),
            _commit(-1, 0),
            _commit(-2, 0),
        ],
        ("consumer-commits-with-an-older-epoch", "OffsetCommit", "9-10"): [
            *_REVOKED,
            _commit("$e", 0),
            _commit("$e2", 0),
            _commit("$e2", 1),
            _commit("$e", 1),
            _commit("$e", 0, 1),
            _commit("$e", 0, 1, metadata=Padded("@x", 5000)),
            _commit("$e", 1, metadata=Padded("@x", 5000)),
            _commit("$e-1", 0),
            _commit("$e2+1", 0),
            _commit("$e2+1", 1),
            _commit("$e", 1, member_id="@n"),
            _commit("$e", 0, 7),
            _commit("$e2", 7),
            _commit("$e"),
            _commit("$e2+1"),
        ],
        ("consumer-commits-with-an-older-epoch-without-it", "OffsetCommit", "5-8"): [
            *_REVOKED,
            _commit("$e", 0),
            _commit("$e2", 0),
        ],
        ("consumer-commits-after-the-return-of-a-partition", "OffsetCommit", "9"): [
            *_REVOKED,
            consumer_heartbeat("@n", epoch=-1, on="b"),
            _beat("$e2", "e3", 0, until={"assignment.topic_partitions.0.partitions": [0, 1]}),
            _beat("$e3", "e3", 0, 1),
            _commit("$e2", 0),
            _commit("$e", 0),
            _commit("$e2", 1),
            _commit("$e2", 0, 1),
            _commit("$e3", 0, 1),
        ],
        ("consumer-commits-after-its-static-return", "OffsetCommit", "9"): [
            *CONSUMER_GROUP,
            consumer_heartbeat(instance_id="i", save={"e": "member_epoch"}),
            _beat("$e", "e", 0, 1, instance_id="i"),
            consumer_heartbeat(epoch=-2, instance_id="i"),
            _commit("$e", 0),
            _commit(-2, 0),
            _commit(-1, 0),
            _commit(0, 0),
            consumer_heartbeat("@n", instance_id="i", save={"e2": "member_epoch"}),
            _commit("$e2", 0, member_id="@n"),
            _commit("$e2-1", 0, member_id="@n"),
            _commit(0, 0, member_id="@n"),
            _commit(-1, 0, member_id="@n"),
            _commit("$e2", 0),
        ],
        ("consumer-commits-in-a-transaction-with-an-older-epoch", "TxnOffsetCommit", "3-4"): [
            *_REVOKED,
            *producer(),
            add_offsets(quiet=True, version=3),
            commit_in_transaction(member="@m", generation="$e"),
            commit_in_transaction(member="@m", generation="$e2"),
            commit_in_transaction(member="@m", generation="$e", partition=1),
            commit_in_transaction(member="@m", generation="$e2", partition=1),
            commit_in_transaction(member="@m", generation="$e-1"),
            commit_in_transaction(member="@m", generation="$e2+1"),
        ],
    }
)
