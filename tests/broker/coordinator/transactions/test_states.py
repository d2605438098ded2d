"""Every state x every request x (same, older, newer epoch; another producer id), as one table.

The stored state is producer id 7 at epoch 5, with one partition if the state has any. The expected
results are written out row by row, independently of the coordinator's tables.
"""

from __future__ import annotations

import itertools
from itertools import product

import pytest

from many_cases import looped
from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_protocol.errors import ErrorCode
from transaction_world import T0, T1, TransactionWorld

E = ErrorCode
S = TransactionState

OK, FENCED, UNMAPPED = E.NONE, E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING
BUSY, BAD_STATE, NOT_IN = E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE

STATES = {
    "Empty": S.EMPTY,
    "Ongoing": S.ONGOING,
    "PrepareCommit": S.PREPARE_COMMIT,
    "PrepareAbort": S.PREPARE_ABORT,
    "CompleteCommit": S.COMPLETE_COMMIT,
    "CompleteAbort": S.COMPLETE_ABORT,
}
IDENTITIES = {"same": (7, 5), "older": (7, 4), "oldest": (7, 3), "newer": (7, 6), "other": (8, 5)}

Row = dict[str, ErrorCode]


def row(
    same: ErrorCode, older: ErrorCode, oldest: ErrorCode, newer: ErrorCode, other: ErrorCode
) -> Row:
    return {"same": same, "older": older, "oldest": oldest, "newer": newer, "other": other}


#: InitProducerId with a producer id and epoch (KIP-360); the stored state has no last epoch.
INIT = {
    "Empty": row(OK, FENCED, FENCED, FENCED, FENCED),
    "Ongoing": row(BUSY, FENCED, FENCED, FENCED, FENCED),
    "PrepareCommit": row(BUSY, BUSY, BUSY, BUSY, BUSY),
    "PrepareAbort": row(BUSY, BUSY, BUSY, BUSY, BUSY),
    "CompleteCommit": row(OK, FENCED, FENCED, FENCED, FENCED),
    "CompleteAbort": row(OK, FENCED, FENCED, FENCED, FENCED),
}
#: InitProducerId without a producer id, as a new instance sends it.
INIT_NEW = {
    "Empty": OK,
    "Ongoing": BUSY,
    "PrepareCommit": BUSY,
    "PrepareAbort": BUSY,
    "CompleteCommit": OK,
    "CompleteAbort": OK,
}
ADD = {
    "Empty": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
    "Ongoing": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
    "PrepareCommit": row(BUSY, BUSY, BUSY, BUSY, BUSY),
    "PrepareAbort": row(BUSY, BUSY, BUSY, BUSY, BUSY),
    "CompleteCommit": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
    "CompleteAbort": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
}
#: Verification of a partition. The partition is in the transaction if the state is one with
#: partitions.
VERIFY = {
    "Empty": row(NOT_IN, FENCED, FENCED, FENCED, UNMAPPED),
    "Ongoing": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
    "PrepareCommit": row(BUSY, FENCED, FENCED, FENCED, UNMAPPED),
    "PrepareAbort": row(BUSY, FENCED, FENCED, FENCED, UNMAPPED),
    "CompleteCommit": row(NOT_IN, FENCED, FENCED, FENCED, UNMAPPED),
    "CompleteAbort": row(NOT_IN, FENCED, FENCED, FENCED, UNMAPPED),
}
COMMIT_V1 = {
    "Empty": row(BAD_STATE, FENCED, FENCED, FENCED, UNMAPPED),
    "Ongoing": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
    "PrepareCommit": row(BUSY, FENCED, FENCED, FENCED, UNMAPPED),
    "PrepareAbort": row(BUSY, FENCED, FENCED, FENCED, UNMAPPED),
    "CompleteCommit": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
    "CompleteAbort": row(BAD_STATE, FENCED, FENCED, FENCED, UNMAPPED),
}
ABORT_V1 = {
    "Empty": row(BAD_STATE, FENCED, FENCED, FENCED, UNMAPPED),
    "Ongoing": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
    "PrepareCommit": row(BUSY, FENCED, FENCED, FENCED, UNMAPPED),
    "PrepareAbort": row(BUSY, FENCED, FENCED, FENCED, UNMAPPED),
    "CompleteCommit": row(BAD_STATE, FENCED, FENCED, FENCED, UNMAPPED),
    "CompleteAbort": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
}
#: In version 2 a request with the older epoch is a retry. While a decided transaction is
#: incomplete, requests are refused before the identity is checked (T-65).
COMMIT_V2 = {
    "Empty": row(BAD_STATE, FENCED, FENCED, FENCED, UNMAPPED),
    "Ongoing": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
    "PrepareCommit": row(BUSY, BUSY, BUSY, BUSY, BUSY),
    "PrepareAbort": row(BUSY, BUSY, BUSY, BUSY, BUSY),
    "CompleteCommit": row(BAD_STATE, OK, FENCED, FENCED, UNMAPPED),
    "CompleteAbort": row(BAD_STATE, BAD_STATE, FENCED, FENCED, UNMAPPED),
}
ABORT_V2 = {
    "Empty": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
    "Ongoing": row(OK, FENCED, FENCED, FENCED, UNMAPPED),
    "PrepareCommit": row(BUSY, BUSY, BUSY, BUSY, BUSY),
    "PrepareAbort": row(BUSY, BUSY, BUSY, BUSY, BUSY),
    "CompleteCommit": row(OK, BAD_STATE, FENCED, FENCED, UNMAPPED),
    "CompleteAbort": row(OK, OK, FENCED, FENCED, UNMAPPED),
}
TABLES = {
    "init": INIT,
    "add": ADD,
    "add implicitly": ADD,
    "verify": VERIFY,
    "commit v1": COMMIT_V1,
    "abort v1": ABORT_V1,
    "commit v2": COMMIT_V2,
    "abort v2": ABORT_V2,
}
#: Requests that succeed without a change of the stored state.
NO_RECORD = {
    ("commit v1", "CompleteCommit", "same"),
    ("abort v1", "CompleteAbort", "same"),
    ("commit v2", "CompleteCommit", "older"),
    ("abort v2", "CompleteAbort", "older"),
}


def in_state(state: str, version: int = 1) -> TransactionWorld:
    world = TransactionWorld()
    world.markers.hold = True
    world.put(state=STATES[state], client_version=version)
    return world


def ask(world: TransactionWorld, request: str, who: tuple[int, int]) -> ErrorCode:
    if request == "init":
        return world.init(*who).error
    if request == "add":
        later = world.add_later(who, T1)
    elif request == "verify":
        return ErrorCode(world.verify(who, T0).result()[T0])
    elif request == "add implicitly":
        codes = world.verify(who, T1, add=True)
        world.wait(5_000)
        return ErrorCode(codes.result()[T1])
    else:
        verb, version = request.split()
        return world.end(who, verb == "commit", version=int(version[1])).error
    world.wait(5_000)
    return later.result()


@looped(
    "request_, state, identity",
    itertools.product(TABLES, STATES, IDENTITIES),
    by=lambda request_, state, identity: request_,
)
def test_every_state_answers_every_request_as_the_table_says(
    request_: str, state: str, identity: str
) -> None:
    world = in_state(state, 2 if request_.endswith("v2") else 1)
    before, count = world.held(), len(world.log.records)
    expected = TABLES[request_][state][identity]
    assert ask(world, request_, IDENTITIES[identity]) is expected
    changes = expected is OK and request_ != "verify"
    changes = changes and (request_, state, identity) not in NO_RECORD
    # This request gets CONCURRENT_TRANSACTIONS (51), and aborts the transaction nevertheless.
    changes = changes or (request_, state, identity) == ("init", "Ongoing", "same")
    if changes:
        assert len(world.log.records) > count
        assert world.held() != before
    else:
        assert len(world.log.records) == count
        assert world.held() == before


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", [name for name in STATES if not name.startswith("Prepare")])
def test_t65_an_older_epoch_is_no_retry_after_version_1(state: str, commit: bool) -> None:
    """Version 1 does not raise the epoch at the end of a transaction, so the older epoch was
    fenced."""
    world = in_state(state, 1)
    before = world.held()
    assert world.end((7, 4), commit, version=2).error is FENCED
    assert world.held() == before


@pytest.mark.parametrize("state", STATES)
def test_t12_every_state_answers_a_new_instance(state: str) -> None:
    world = in_state(state)
    answer = world.init()
    assert answer.error is INIT_NEW[state]
    if answer.error is OK:
        assert (answer.producer_id, answer.epoch) == (7, 6)
        assert world.state() is S.EMPTY
    if state == "Ongoing":
        assert world.state() is S.PREPARE_ABORT
        assert world.held().epoch == 6


@pytest.mark.parametrize(("version", "commit"), list(product((1, 2), (True, False))))
def test_t30_t65_an_open_transaction_is_committed_or_aborted_as_requested(
    version: int, commit: bool
) -> None:
    world = in_state("Ongoing")
    answer = world.end((7, 5), commit, version=version)
    assert (answer.producer_id, answer.epoch) == (7, 5 + version - 1)
    assert world.state() is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    world.markers.release()
    assert world.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert [marker.commit for marker in world.markers.written[T0]] == [commit]


@pytest.mark.parametrize("request_", sorted(set(TABLES) - {"init"}))
def test_requests_for_an_unknown_id_get_invalid_producer_id_mapping(request_: str) -> None:
    world = TransactionWorld()
    assert ask(world, request_, (7, 5)) is UNMAPPED
    assert world.log.records == []


@pytest.mark.parametrize(
    ("state", "identity"), list(product(("Empty", "CompleteCommit", "CompleteAbort"), IDENTITIES))
)
def test_t12_an_init_with_the_last_epoch_is_a_retry(state: str, identity: str) -> None:
    """A request with the stored last epoch gets the lost answer again."""
    world = TransactionWorld()
    world.put(state=STATES[state], last_epoch=4)
    answer = world.init(*IDENTITIES[identity])
    if identity == "same":
        assert (answer.error, answer.epoch) == (OK, 6)
    elif identity == "older":
        assert (answer.error, answer.epoch) == (OK, 5)
    else:
        assert answer.error is FENCED
