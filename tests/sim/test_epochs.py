"""The checker of epochs: no violation as long as each transaction has its own epoch."""

from __future__ import annotations

from tests.sim.checkers.epochs import EpochChecker


def test_d10_two_transactions_in_one_epoch_are_a_violation() -> None:
    checker = EpochChecker()
    assert list(checker.commits("a", (1, 0))) == []
    assert list(checker.commits("a", (1, 1))) == []
    assert list(checker.commits("b", (2, 1))) == []
    assert list(checker.commits("a", (1, 1))) == [
        "a commits a transaction in epoch 1 of producer id 1, as a has before"
    ]
