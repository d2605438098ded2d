"""The crash table T-50: state that is not durable is lost, everything else is loaded again.

The rows about partition logs, producer state and offsets (T-50d, T-50j, T-50k) are tested with
those parts of the broker.
"""

from __future__ import annotations

import pytest

from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_protocol.errors import ErrorCode
from transaction_world import T0, T1, TransactionWorld

E = ErrorCode
S = TransactionState

VERSIONS = pytest.mark.parametrize("version", [1, 2])
RESULTS = pytest.mark.parametrize("commit", [True, False])


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def open_transaction(world: TransactionWorld, version: int) -> tuple[int, int]:
    who = world.begin()
    if version == 2:
        assert world.verify(who, T0, T1, add=True).result() == {T0: E.NONE, T1: E.NONE}
    else:
        assert world.add(who, T0, T1) is E.NONE
    return who


def test_t50a_an_init_after_a_lost_answer_gets_a_new_epoch(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    world.restart()
    assert world.begin() == (who[0], who[1] + 1)


def test_t50a_a_recovery_after_a_lost_answer_gets_the_same_identity(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    raised = world.begin(producer_id=who[0], epoch=who[1])
    world.restart()
    assert world.begin(producer_id=who[0], epoch=who[1]) == raised


def test_t50a_an_identity_that_was_not_durable_was_never_answered(world: TransactionWorld) -> None:
    world.log.hold = True
    lost = world.init_later()
    world.restart()
    assert not lost.done
    assert world.transactions.transaction("id") is None


def test_t50b_a_producer_id_lost_in_a_crash_is_skipped(world: TransactionWorld) -> None:
    world.log.hold = True
    world.init_later()
    world.log.hold = False
    world.restart()
    assert world.begin() == (1_002, 0)


@VERSIONS
def test_t50c_a_transaction_without_data_is_aborted_at_its_timeout(
    world: TransactionWorld, version: int
) -> None:
    who = open_transaction(world, version)
    world.restart()
    assert world.state() is S.ONGOING
    world.wait(80_000)
    assert world.state() is S.COMPLETE_ABORT
    for part in (T0, T1):
        assert [(mark.commit, mark.epoch) for mark in world.markers.written[part]] == [
            (False, who[1] + 1)
        ]


def test_t50c_partitions_that_were_not_durable_are_not_in_the_transaction(
    world: TransactionWorld,
) -> None:
    who = world.begin()
    world.log.hold = True
    lost = world.add_later(who)
    world.log.hold = False
    world.restart()
    assert not lost.done
    assert world.state() is S.EMPTY
    assert world.verify(who, T0).result() == {T0: E.TRANSACTION_ABORTABLE}


@VERSIONS
@RESULTS
def test_t50e_t50f_a_decided_transaction_is_completed_after_a_crash(
    world: TransactionWorld, version: int, commit: bool
) -> None:
    """PrepareCommit (T-50e) or PrepareAbort (T-50f) is durable, no marker is."""
    who = open_transaction(world, version)
    world.markers.hold = True
    decided = world.end(who, commit, version=version)
    world.restart()
    assert world.state() is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    assert world.end(who, commit, version=version).error is E.CONCURRENT_TRANSACTIONS
    assert world.init().error is E.CONCURRENT_TRANSACTIONS
    world.markers.release()
    assert world.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    for part in (T0, T1):
        (marker,) = world.markers.written[part]
        assert (marker.commit, marker.epoch) == (commit, decided.epoch)
        assert marker.coordinator_epoch == 1, "T-57"
    assert world.end(who, commit, version=version) == decided, "the client's retry"


@RESULTS
def test_t50e_a_restart_writes_the_missing_markers(world: TransactionWorld, commit: bool) -> None:
    who = open_transaction(world, 2)
    world.markers.codes[T1] = E.NOT_LEADER_OR_FOLLOWER
    world.end(who, commit, version=2)
    assert set(world.markers.written) == {T0}
    world.markers.codes.clear()
    world.restart()
    assert world.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert len(world.markers.written[T0]) == 2, "again: markers are at least once"
    assert len(world.markers.written[T1]) == 1
    assert len({mark.epoch for mark in world.markers.written[T0]}) == 1


@VERSIONS
@RESULTS
def test_t50g_a_restart_repeats_markers_without_a_complete_record(
    world: TransactionWorld, version: int, commit: bool
) -> None:
    who = open_transaction(world, version)
    world.markers.hold = True
    world.end(who, commit, version=version)
    world.log.hold = True
    world.markers.release()
    world.log.hold = world.markers.hold = False
    world.restart()
    assert world.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert [mark.coordinator_epoch for mark in world.markers.written[T0]] == [0, 1]
    assert {mark.commit for mark in world.markers.written[T0]} == {commit}


@VERSIONS
@RESULTS
def test_t50h_t50i_an_end_that_was_not_durable_is_forgotten(
    world: TransactionWorld, version: int, commit: bool
) -> None:
    """The Prepare record was not written (T-50h), or is torn and truncated by recovery (T-50i)."""
    who = open_transaction(world, version)
    world.log.hold = True
    lost = world.end_later(who, commit, version=version)
    world.log.hold = False
    world.restart()
    assert not lost.done
    assert world.state() is S.ONGOING
    assert world.markers.written == {}
    assert world.end(who, commit, version=version).error is E.NONE
    assert {mark.commit for mark in world.markers.written[T0]} == {commit}


def test_t50h_a_lost_commit_without_a_retry_is_aborted_at_the_timeout(
    world: TransactionWorld,
) -> None:
    who = open_transaction(world, 1)
    world.log.hold = True
    world.end_later(who)
    world.log.hold = False
    world.restart()
    world.wait(100_000)
    assert {mark.commit for mark in world.markers.written[T0]} == {False}


@pytest.mark.parametrize("point", ["prepare", "markers", "complete"])
def test_t50_an_end_at_the_last_epoch_survives_a_crash_at_every_point(
    world: TransactionWorld, point: str
) -> None:
    world.put(state=S.ONGOING, epoch=32_766, client_version=2)
    world.markers.hold = True
    decided = world.end((7, 32_766), version=2)
    if point == "complete":
        world.log.hold = True
    if point != "prepare":
        world.markers.release()
    world.log.hold = world.markers.hold = False
    world.restart()
    assert world.state() is S.COMPLETE_COMMIT
    assert world.end((7, 32_766), version=2) == decided
    assert {mark.epoch for mark in world.markers.written[T0]} == {32_767}
    assert world.verify((decided.producer_id, 0), T0, add=True).result() == {T0: E.NONE}


def test_t58_decided_transactions_of_all_partitions_complete_after_a_crash() -> None:
    world = TransactionWorld(partitions=5)
    world.markers.hold = True
    names = [f"id-{number}" for number in range(40)]
    for name in names:
        who = world.begin(name=name)
        world.add(who, name=name)
        world.end(who, name=name)
    world.markers.hold = False
    world.restart()
    assert {world.state(name) for name in names} == {S.COMPLETE_COMMIT}
