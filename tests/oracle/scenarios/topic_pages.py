"""DescribeTopicPartitions: pages of topics, their limit and their cursor."""

from __future__ import annotations

from typing import Any

from tests.oracle.script import Ask, Padded, Receive, Send, scenarios_of, topic


def _pages(*names: Any, **more: Any) -> Ask:
    return Ask("DescribeTopicPartitions", {"topics": [{"name": name} for name in names], **more})


def _all(**more: Any) -> Ask:
    ends = () if "response_partition_limit" in more else ("next_cursor",)
    return Ask("DescribeTopicPartitions", more, mine=True, ignore=ends)


def _cursor(name: Any, partition: int) -> dict[str, Any]:
    return {"topic_name": name, "partition_index": partition}


_READY = [*topic("@a", 3), *topic("@b", 2), *topic("@c", 4)]

SCENARIOS = scenarios_of(
    {
        ("describe-topic-partitions", "DescribeTopicPartitions"): [
            *_READY,
            _pages("@b"),
            _pages("@c", "@a", "@b"),
            _pages("@a", "@no", "@b"),
            _pages("@no"),
            _pages("__consumer_offsets_no"),
            _pages("@b", "@0", "@bb"),
        ],
        ("describe-topic-partitions-bad-names", "DescribeTopicPartitions"): [
            *topic("@b", 2),
            *(_pages(name, "@b") for name in (".", "..", "@a b", "@a/b", Padded("@t", 250))),
        ],
        ("describe-topic-partitions-of-the-empty-name", "DescribeTopicPartitions"): [
            *topic("@b", 2),
            _pages("", "@b"),
            _pages("@b"),
        ],
        ("describe-topic-partitions-all", "DescribeTopicPartitions"): [
            *_READY,
            # The answer includes topics of other runs; their number determines where a page ends.
            _all(),
            _all(cursor=_cursor("@b", 1)),
            _all(cursor=_cursor("@aa", 1)),
            _all(cursor=_cursor("@a", -1)),
            _all(cursor=_cursor("@a", 1), response_partition_limit=3),
        ],
        ("describe-topic-partitions-repeated", "DescribeTopicPartitions"): [
            *_READY,
            _pages("@a", "@a", "@b", "@a"),
            _pages("@no", "@no"),
        ],
        ("describe-topic-partitions-limit", "DescribeTopicPartitions"): [
            *_READY,
            *(
                _pages("@c", "@a", "@b", response_partition_limit=limit)
                for limit in (1, 2, 3, 4, 5, 8, 9, 10, 2_000, 2_001, (1 << 31) - 1)
            ),
            *(
                _pages("@c", "@a", "@b", response_partition_limit=limit)
                for limit in (0, -1, -(1 << 31))
            ),
            _pages("@a", "@aa", "@b", response_partition_limit=3),
            _pages("@a", "@aa", "@ab", response_partition_limit=3),
            _pages("@no", "@nono", response_partition_limit=1),
        ],
        ("describe-topic-partitions-cursor", "DescribeTopicPartitions"): [
            *_READY,
            *(
                _pages(
                    "@a", "@b", "@c", response_partition_limit=2, cursor=_cursor(name, partition)
                )
                for name, partition in (
                    *(("@a", 0), ("@a", 2), ("@b", 1), ("@c", 0), ("@c", 3)),
                    *(("@a", 3), ("@a", 100), ("@b", 2), ("@c", 4)),
                )
            ),
            _pages("@a", "@b", "@c", cursor=_cursor("@aa", 1)),
            _pages("@a", "@b", "@c", cursor=_cursor("@aa", 0)),
            _pages("@a", "@no", "@b", cursor=_cursor("@no", 0)),
            _pages("@a", "@no", "@zz", cursor=_cursor("@no", 5)),
            _pages("@a", "@b", cursor=_cursor("@c", 1)),
            _pages("@a", "@b", cursor=_cursor("@zz", 0)),
            _pages("@b", "@c", cursor=_cursor("@a", 1)),
            _pages("@c", "@a", "@b", "@c", cursor=_cursor("@aa", 0)),
            _pages("@a", "@b", cursor=_cursor("", 0)),
            _pages("@a", "@b", cursor=_cursor("@a", -1)),
            _pages("@a", "@b", cursor=_cursor("@b", -(1 << 31))),
            _pages("@no", cursor=_cursor("@no", -1)),
        ],
        ("describe-topic-partitions-internal", "DescribeTopicPartitions"): [
            Ask("FindCoordinator", {"key": "@g", "key_type": 0}, version=3, quiet=True),
            Ask(
                "DescribeTopicPartitions",
                {"topics": [{"name": "__consumer_offsets"}], "response_partition_limit": 1},
                ignore=("topics.*.topic_id",),
            ),
        ],
        ("describe-topic-partitions-pipelined", "DescribeTopicPartitions"): [
            *_READY,
            Send(_pages("@a")),
            Send(_pages("@no")),
            Send(_pages("@b", response_partition_limit=0)),
            Send(_pages("@b")),
            *[Receive()] * 4,
        ],
    }
)
