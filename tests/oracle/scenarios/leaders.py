"""Leaders and replicas of partitions: ElectLeaders and the reassignments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracle.script import Ask, Padded, Receive, Send, scenarios_of, topic

_PREFERRED, _UNCLEAN = 0, 1


def elect(*topics: tuple[Any, Sequence[int]], kind: int = _PREFERRED, **more: Any) -> Ask:
    named = [{"topic": name, "partitions": list(indexes)} for name, indexes in topics]
    body = {
        "election_type": kind,
        "topic_partitions": named,
        "timeout_ms": 10_000,
        **more,
    }
    return Ask("ElectLeaders", body, mine=True)


_ODD_NAMES = ("@absent", "", ".", "@a b", "@a/b", Padded("@t", 250), "__cluster_metadata")
_ELECT = scenarios_of(
    {
        ("elect-leaders", "ElectLeaders"): [
            *topic(partitions=2),
            elect(("@t", [0, 1])),
            elect(("@t", [1])),
        ],
        ("elect-leaders-of-all", "ElectLeaders"): [*topic(), elect(topic_partitions=None)],
        ("elect-leaders-of-nothing", "ElectLeaders"): [
            *topic(),
            elect(),
            elect(("@t", [])),
            elect(("@t", [2])),
            elect(("@t", [-1, (1 << 31) - 1])),
            *(elect((name, [0])) for name in _ODD_NAMES),
        ],
        ("elect-leaders-unclean", "ElectLeaders", "1-2"): [
            *topic(),
            elect(("@t", [0, 3]), ("@absent", [0]), kind=_UNCLEAN),
            elect(kind=_UNCLEAN, topic_partitions=None),
            elect(kind=_UNCLEAN),
        ],
        ("elect-leaders-of-unknown-types", "ElectLeaders", "1-2"): [
            *topic(),
            *(elect(*topics, kind=kind) for kind in (2, -1, 127) for topics in ([("@t", [0])], [])),
            elect(("@t", [0])),
        ],
        ("elect-leaders-named-twice", "ElectLeaders"): [
            *topic(),
            elect(("@t", [0, 0])),
        ],
        ("elect-leaders-pipelined", "ElectLeaders"): [
            *topic(),
            Send(elect(("@t", [0]))),
            Send(elect(topic_partitions=None)),
            Send(elect(("@absent", [0]))),
            Receive(),
            Receive(),
            Receive(),
        ],
    }
)


def _listed(*topics: tuple[Any, Sequence[int]], **more: Any) -> Ask:
    named = [{"name": name, "partition_indexes": list(indexes)} for name, indexes in topics]
    body = {"timeout_ms": 10_000, "topics": named, **more}
    return Ask("ListPartitionReassignments", body)


_LIST = scenarios_of(
    {
        ("list-reassignments", "ListPartitionReassignments"): [
            *topic(partitions=2),
            _listed(topics=None),
            _listed(),
            _listed(("@t", [0, 1])),
            _listed(("@t", [])),
            _listed(("@t", [0, 7, -1])),
            *(_listed((name, [0])) for name in _ODD_NAMES),
        ],
        ("list-reassignments-named-twice", "ListPartitionReassignments"): [
            *topic(),
            _listed(("@t", [0] * 5_000)),
            _listed(*[("@t", [0])] * 5_000),
            Send(_listed(("@t", [0]))),
            Send(_listed(topics=None)),
            Receive(),
            Receive(),
        ],
    }
)


def reassign(*topics: tuple[Any, Sequence[tuple[int, Sequence[int] | None]]], **more: Any) -> Ask:
    named = [
        {
            "name": name,
            "partitions": [
                {"partition_index": index, "replicas": None if ids is None else list(ids)}
                for index, ids in partitions
            ],
        }
        for name, partitions in topics
    ]
    body = {"timeout_ms": 10_000, "topics": named, **more}
    return Ask("AlterPartitionReassignments", body)


_MOVE = scenarios_of(
    {
        ("alter-reassignments", "AlterPartitionReassignments"): [
            *topic(partitions=2),
            reassign(("@t", [(0, [1]), (1, [1])])),
            _listed(topics=None),
            reassign(("@t", [(0, None)])),
            reassign(),
            reassign(("@t", [])),
        ],
        ("alter-reassignments-to-wrong-brokers", "AlterPartitionReassignments"): [
            *topic(),
            *(
                reassign(("@t", [(0, ids)]))
                for ids in ([], [2], [1, 2], [2, 1], [1, 1], [2, 2], [-1], [1, -1], [3, 2, 3])
            ),
            reassign(("@t", [(0, [1] * 5_000)])),
            reassign(("@t", [(0, list(range(1, 5_001)))])),
            reassign(("@t", [(0, list(range(5_000, 0, -1)))])),
            _listed(topics=None),
        ],
        ("alter-reassignments-of-nothing", "AlterPartitionReassignments"): [
            *topic(),
            reassign(("@t", [(1, [1]), (-1, [1]), (0, [1])])),
            reassign(("@t", [(1, None), (1, [2]), (1, [])])),
            *(reassign((name, [(0, ids)])) for name in _ODD_NAMES for ids in ([1], None)),
        ],
        ("alter-reassignments-named-twice", "AlterPartitionReassignments"): [
            *topic(),
            reassign(("@t", [(0, [1]), (0, [1])])),
            reassign(("@t", [(0, [1]), (0, [2])])),
            reassign(("@t", [(0, [1])]), ("@t", [(0, None)])),
            reassign(("@t", [(0, [1])] * 20)),
            reassign(*[("@t", [(0, [1])])] * 20),
        ],
        ("alter-reassignments-without-another-factor", "AlterPartitionReassignments", "1"): [
            *topic(),
            *(
                reassign(("@t", [(0, ids)]), allow_replication_factor_change=False)
                for ids in ([1], None, [], [1, 2], [2], [1, 1])
            ),
            reassign(
                ("@t", [(3, [1])]), ("@absent", [(0, [1])]), allow_replication_factor_change=False
            ),
        ],
        ("alter-reassignments-pipelined", "AlterPartitionReassignments"): [
            *topic(),
            Send(reassign(("@t", [(0, [1])]))),
            Send(reassign(("@t", [(0, [2])]))),
            Send(_listed(topics=None)),
            Receive(),
            Receive(),
            Receive(),
        ],
    }
)

SCENARIOS = [*_ELECT, *_LIST, *_MOVE]
