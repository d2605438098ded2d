"""DescribeQuorum: leader and followers of the cluster's metadata."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.script import Ask, Receive, Send, scenarios_of

_METADATA = "__cluster_metadata"
#: Values that depend on earlier records and on the number of starts.
_GROWING = (
    *("topics.*.partitions.*.high_watermark", "topics.*.partitions.*.leader_epoch"),
    "topics.*.partitions.*.current_voters.*.log_end_offset",
)


def _describe(*topics: tuple[str, Sequence[int]]) -> Ask:
    named = [
        {"topic_name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in topics
    ]
    return Ask("DescribeQuorum", {"topics": named}, ignore=_GROWING)


SCENARIOS = scenarios_of(
    {
        ("describe-quorum", "DescribeQuorum"): [
            _describe((_METADATA, [0])),
            _describe((_METADATA, [0])),
        ],
        ("describe-quorum-of-nothing", "DescribeQuorum"): [
            _describe(),
            _describe((_METADATA, [])),
            _describe((_METADATA, [1])),
            _describe((_METADATA, [-1])),
            _describe(("@t", [0])),
            _describe(("", [0])),
            _describe(("__consumer_offsets", [0])),
        ],
        ("describe-quorum-of-more", "DescribeQuorum"): [
            _describe((_METADATA, [0, 0])),
            _describe((_METADATA, [0]), (_METADATA, [0])),
            _describe((_METADATA, [0, 1])),
            _describe((_METADATA, [0]), ("@t", [0])),
            _describe(("@t", [0]), (_METADATA, [0])),
            _describe((_METADATA, [0] * 5_000)),
            _describe(*[(_METADATA, [0])] * 5_000),
        ],
        ("describe-quorum-pipelined", "DescribeQuorum", "1"): [
            Send(_describe((_METADATA, [0]))),
            Send(_describe(("@t", [0]))),
            Send(_describe((_METADATA, [0]))),
            *[Receive()] * 3,
        ],
    }
)
