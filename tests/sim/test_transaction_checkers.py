"""Checkers of transactions: no violation on a good history, and one on each bad history."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.sim.checkers.atomicity import check_atomicity
from tests.sim.checkers.attempts import Attempt
from tests.sim.checkers.committed_reads import check_committed_reads
from tests.sim.checkers.exactly_once import check_copied
from tests.sim.checkers.isolation import check_isolation
from tests.sim.checkers.open_transactions import check_all_ended

from odradek_broker.coordinator.transactions.transaction import Transaction, TransactionState

DONE = Attempt("done", [b"a", b"b"], may_commit=True, committed=True)
UNKNOWN = Attempt("unknown", [b"c", b"d"], may_commit=True)
ABORTED = Attempt("aborted", [b"e"])
ATTEMPTS = [DONE, UNKNOWN, ABORTED]
GOOD = {"sink-0": [(0, b"a"), (3, b"c")], "sink-1": [(0, b"b"), (2, b"d")]}


def test_readable_aborted_or_unsent_records_are_violations() -> None:
    assert list(check_isolation(ATTEMPTS, GOOD)) == []
    (problem,) = check_isolation(ATTEMPTS, {"sink-0": [*GOOD["sink-0"], (9, b"e")]})
    assert "transaction aborted, which nobody has committed" in problem
    (problem,) = check_isolation(ATTEMPTS, {"sink-0": [(0, b"x")]})
    assert "never sent" in problem


def test_partial_and_duplicate_transactions_are_violations() -> None:
    assert list(check_atomicity(ATTEMPTS, GOOD)) == []
    without_unknown = {"sink-0": [(0, b"a")], "sink-1": [(0, b"b")]}
    assert list(check_atomicity(ATTEMPTS, without_unknown)) == []
    (problem,) = check_atomicity(ATTEMPTS, {**GOOD, "sink-1": [(0, b"b")]})
    assert problem.startswith("of transaction unknown b'c' is there")
    (problem,) = check_atomicity([DONE], {"sink-0": [(0, b"a")]})
    assert problem == "transaction done was committed, and b'b' is nowhere"
    (problem,) = check_atomicity([DONE], {**GOOD, "sink-2": [(5, b"a")]})
    assert "more than once" in problem


def test_readers_that_see_or_skip_the_wrong_records_are_violations() -> None:
    assert list(check_committed_reads({"r": {"sink-0": [(0, b"a")]}, "s": GOOD}, GOOD)) == []
    (problem,) = check_committed_reads({"r": {"sink-0": [(0, b"a"), (1, b"e")]}}, GOOD)
    assert "r saw b'e' at sink-0 offset 1" in problem
    (problem,) = check_committed_reads({"r": {"sink-0": [(3, b"c")]}}, GOOD)
    assert "r passed over b'a' at sink-0 offset 0" in problem
    (problem,) = check_committed_reads({"r": {"sink-0": [*GOOD["sink-0"], (9, b"e")]}}, GOOD)
    assert "r saw b'e' at sink-0 offset 9" in problem


def test_missing_and_duplicate_copies_are_violations() -> None:
    source = {"orders-0": [(0, b"0"), (1, b"1")]}
    assert list(check_copied(source, [b"1", b"0"], {"orders-0": 2})) == []
    (problem,) = check_copied(source, [b"0"], {"orders-0": 2})
    assert problem == "b'1' of orders-0 offset 1 was copied 0 times"
    (problem,) = check_copied(source, [b"0", b"1", b"1"], {"orders-0": 2})
    assert "was copied 2 times" in problem
    (problem,) = check_copied(source, [b"0", b"1"], {"orders-0": 1})
    assert "offset of orders-0 is 1" in problem
    (problem,) = check_copied(source, [b"0", b"1", b"7"], {"orders-0": 2})
    assert "nowhere in the source" in problem


def broker_with(state: TransactionState, lso: int, pending: bool, waiting: int) -> Any:
    """The parts of a node that the checkers read."""
    held = Transaction("copy", 1, 0, 60_000, state)
    log = SimpleNamespace(
        name="sink-0", loaded=True, offline=False, last_stable_offset=lso, high_watermark=5
    )
    offsets = SimpleNamespace(in_transaction=lambda _: pending)
    return SimpleNamespace(
        transactions=SimpleNamespace(transactions=lambda: [held]),
        logs=[log],
        groups=SimpleNamespace(shards=SimpleNamespace(cores=[SimpleNamespace(offsets=offsets)])),
        verification=SimpleNamespace(waiting=waiting),
    )


def test_an_open_transaction_is_a_violation() -> None:
    idle = broker_with(TransactionState.COMPLETE_COMMIT, 5, False, 0)
    assert list(check_all_ended(idle, ["copiers"])) == []
    assert list(
        check_all_ended(broker_with(TransactionState.ONGOING, 3, True, 2), ["copiers"])
    ) == [
        "transactional id 'copy' is Ongoing",
        "sink-0: the last stable offset is 3, and the high watermark 5",
        "group 'copiers' has offsets of an open transaction",
        "2 batches wait for the word of the coordinator",
    ]
