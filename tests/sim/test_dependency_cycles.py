"""The checker of dependency cycles accepts the cycles that Kafka allows, and reports all others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.sim.checkers.anomalies import check_anomalies
from tests.sim.checkers.dependency_cycles import Edge, components, find_cycles
from tests.sim.checkers.history import Operation, Outcome, Poll, Send

Records = Sequence[tuple[str, int, bytes]]


def transaction(client: str, reads: Records = (), sends: Sequence[Send] = ()) -> Operation:
    return Operation(client, [Poll(list(reads)), *sends], Outcome.DONE, transactional=True)


def reader(*records: tuple[str, int, bytes]) -> Operation:
    return Operation("reader", [Poll(list(records))], Outcome.DONE, sought=True)


P_A, P_B, Q_A, Q_B = ("p", 0, b"pa"), ("p", 1, b"pb"), ("q", 1, b"qa"), ("q", 0, b"qb")
ALL = reader(P_A, P_B, Q_B, Q_A)

#: In partition p, transaction a's record comes first; in partition q, transaction b's record.
INTERLEAVED = [
    transaction("a", [], [Send("p", b"pa", 0), Send("q", b"qa", 1)]),
    transaction("b", [], [Send("p", b"pb", 1), Send("q", b"qb", 0)]),
    ALL,
]
#: In partition p, transaction b read a's record. In partition q, a's record comes after b's.
READ_AND_OVERTAKEN = [
    transaction("a", [], [Send("p", b"pa", 0), Send("q", b"qa", 1)]),
    transaction("b", [P_A], [Send("q", b"qb", 0)]),
    reader(P_A, Q_B, Q_A),
]
#: Transaction a read partition p only up to the record before b's record. Transaction b read
#: partition q only up to the record before a's record.
WRITE_SKEW = [
    Operation("setup", [Send("p", b"pa", 0), Send("q", b"qb", 0)], Outcome.DONE),
    transaction("a", [P_A], [Send("q", b"qa", 1)]),
    transaction("b", [Q_B], [Send("p", b"pb", 1)]),
    ALL,
]
#: Transaction b read a's record in partition p, but read partition q only up to the record before
#: a's record.
HALF_SEEN = [
    Operation("setup", [Send("q", b"qb", 0)], Outcome.DONE),
    transaction("a", [], [Send("p", b"pa", 0), Send("q", b"qa", 1)]),
    transaction("b", [P_A, Q_B]),
    reader(P_A, Q_B, Q_A),
]


@pytest.mark.parametrize(
    ("history", "kinds"),
    [
        (INTERLEAVED, (Edge.WW,)),
        (READ_AND_OVERTAKEN, (Edge.WW, Edge.WR)),
        (WRITE_SKEW, (Edge.RW,)),
        (HALF_SEEN, (Edge.WR, Edge.RW)),
    ],
)
def test_dependency_cycles_that_kafka_allows_are_no_violation(
    history: list[Operation], kinds: tuple[Edge, ...]
) -> None:
    """Each history has one cycle of exactly the given edges, and the checker does not report it."""
    assert len(find_cycles(history, kinds)) == 1
    for kind in kinds if len(kinds) > 1 else ():
        assert find_cycles(history, (kind,)) == []
    assert list(check_anomalies(history)) == []


def test_two_transactions_that_read_each_other_are_a_violation() -> None:
    history = [
        transaction("a", [("q", 0, b"qb")], [Send("p", b"pa", 0)]),
        transaction("b", [("p", 0, b"pa")], [Send("q", b"qb", 0)]),
        reader(P_A, Q_B),
    ]
    (problem,) = check_anomalies(history)
    assert problem == (
        "dependency cycle: of the operations number 0 by a, number 1 by b each has read what came"
        " after it"
    )


def test_a_reader_of_an_operation_that_began_later_is_a_violation() -> None:
    def history(ended: int) -> list[Operation]:
        early = reader(P_A)
        early.began, early.ended = 1, ended
        late = Operation("late", [Send("p", b"pa", 0)], Outcome.DONE, began=3)
        return [early, late]

    assert list(check_anomalies(history(ended=4))) == []
    (problem,) = check_anomalies(history(ended=2))
    assert problem.startswith("dependency cycle")


def test_a_chain_of_dependencies_is_no_cycle() -> None:
    history = [
        transaction("a", [], [Send("p", b"pa", 0)]),
        transaction("b", [P_A], [Send("p", b"pb", 1)]),
        transaction("c", [P_A, P_B]),
    ]
    assert find_cycles(history) == []
    assert list(check_anomalies(history)) == []


def test_strongly_connected_components_are_found() -> None:
    graph = {0: [1], 1: [2], 2: [0, 3], 3: [4], 4: [3], 5: [0]}
    assert sorted(sorted(found) for found in components(graph)) == [[0, 1, 2], [3, 4], [5]]
