"""OffsetDelete in classic groups whose members have unusual subscriptions: the broker reads their
topics, and nothing behind them."""

from __future__ import annotations

from typing import Any

from tests.oracle.group_steps import join_body, rebalancing, stable
from tests.oracle.scenarios.offsets import delete_offsets, fetch_offsets
from tests.oracle.script import Ask, Scenario, Send, Step, Subscribed, scenarios_of, topic


def _commit(*names: str, **member: Any) -> Ask:
    body = {
        "group_id": "@g",
        "generation_id_or_member_epoch": "$gen",
        "member_id": "$m",
        "topics": [
            {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 5}]}
            for name in names
        ],
        **member,
    }
    return Ask("OffsetCommit", body, version=8, quiet=True)


_TOPICS: list[Step] = [*topic("@t"), *topic("@u")]

#: Metadata of the member, by name.
_METADATA: dict[str, Subscribed | bytes] = {
    "version-0": Subscribed(),
    "version-1-without-its-fields": Subscribed(claims=1),
    "version-3-without-its-fields": Subscribed(claims=3),
    "version-99": Subscribed(claims=99),
    "version-minus-1": Subscribed(claims=-1),
    "owned-partitions-cut": Subscribed(owned={"@t": [0, 1]}, claims=1, cut=3),
    "user-data-cut": Subscribed(cut=1),
    "user-data-missing": Subscribed(cut=4),
    "no-topics": Subscribed(topics=()),
    "nothing": b"",
    "half-a-version": b"\x00",
    "a-version-alone": b"\x00\x01",
}

SCENARIOS = [
    *(
        Scenario(
            f"offset-delete-subscribed-with-{name}",
            "OffsetDelete",
            [
                *_TOPICS,
                *stable((("range", metadata),)),
                _commit("@t", "@u"),
                delete_offsets(("@t", (0,)), ("@u", (0,))),
                fetch_offsets(None),
            ],
        )
        for name, metadata in _METADATA.items()
    ),
    *scenarios_of(
        {
            ("offset-delete-while-a-member-joins-with-other-topics", "OffsetDelete"): [
                *_TOPICS,
                *stable((("range", Subscribed(("@t",))),)),
                _commit("@t", "@u"),
                Send(
                    Ask(
                        "JoinGroup",
                        join_body(protocols=[("range", Subscribed(("@u",)))]),
                        on="b",
                        version=3,
                    )
                ),
                rebalancing(),
                delete_offsets(("@t", (0,)), ("@u", (0,))),
                fetch_offsets(None),
            ],
            ("offset-delete-while-the-first-member-joins-again", "OffsetDelete"): [
                *_TOPICS,
                *stable((("range", Subscribed(("@t",))),)),
                _commit("@t", "@u"),
                Send(
                    Ask(
                        "JoinGroup",
                        join_body(protocols=[("range", Subscribed(("@t",)))]),
                        on="b",
                        version=3,
                    )
                ),
                rebalancing(),
                Ask(
                    "LeaveGroup",
                    {"group_id": "@g", "member_id": "$m", "members": [{"member_id": "$m"}]},
                    version=4,
                ),
                delete_offsets(("@t", (0,)), ("@u", (0,))),
            ],
        }
    ),
]
