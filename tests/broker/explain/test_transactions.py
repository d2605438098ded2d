"""The history and the states of transactional ids (`odradek explain txn`)."""

from __future__ import annotations

from typing import Any

import pytest

from history_questions import ask, init, now, sentences
from odradek_broker.coordinator.transactions.decisions import AddCall, EndCall, InitCall
from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas import describe_history as wire
from transaction_world import ID, O0, T0, T1, TransactionWorld

E = ErrorCode
S = TransactionState


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def test_the_history_has_a_transaction_from_beginning_to_end(world: TransactionWorld) -> None:
    who = init(world, "a")
    world.add(who, T0, T1)
    world.end(who)
    assert sentences(world) == [
        (
            "InitProducerId from client a at host: (unknown) -> Empty; producer id 1001, epoch 0;"
            " transaction timeout 1.0 min"
        ),
        "AddPartitionsToTxn by a partition's leader: Empty -> Ongoing; added topic-0, topic-1",
        "EndTxn(commit): Ongoing -> PrepareCommit",
        "COMMIT markers with epoch 0 go to topic-0, topic-1",
        "all markers are written: PrepareCommit -> CompleteCommit",
    ]
    assert now(world) == ["CompleteCommit, producer id 1001, epoch 0; last change 0 ms ago"]


def test_newly_added_partitions_and_the_group_of_offsets_are_shown(world: TransactionWorld) -> None:
    who = init(world, "a")
    world.add(who, T0)
    offsets = frozenset({("__consumer_offsets", 3)})
    call = AddCall(ID, *who, offsets, 1, "client a at host", "readers")
    world.transactions.add_partitions(call)
    assert sentences(world)[-1] == (
        "AddPartitionsToTxn from client a at host: Ongoing -> Ongoing; added"
        " __consumer_offsets-3 (offsets of group readers)"
    )
    assert "partitions __consumer_offsets-3, topic-0" in now(world)[0]


def test_t56_a_fenced_producer_is_shown_with_the_producer_that_fenced_it(
    world: TransactionWorld,
) -> None:
    zombie = init(world, "zombie")
    world.add(zombie)
    assert init(world, "successor") == (-1, -1)  # the client has to retry
    successor = init(world, "successor")
    world.transactions.end(EndCall(ID, *zombie, True, 1, "client zombie at host"))
    fenced, again, refused = sentences(world)[2], sentences(world)[-2], sentences(world)[-1]
    assert fenced.startswith(
        "InitProducerId from client successor at host: Ongoing -> PrepareAbort; producer id 1001,"
        " epoch 1; fences client zombie at host (producer id 1001, epoch 0); the open transaction"
    )
    # No client ever had epoch 1, so the second InitProducerId fences no client.
    assert "fences" not in again and "epoch 2" in again
    assert refused == (
        "EndTxn(commit) from client zombie at host with producer id 1001, epoch 0, was refused with"
        f" PRODUCER_FENCED: expected epoch {successor[1]}, got 0"
    )
    init(world, "third")
    assert "fences client successor at host (producer id 1001, epoch 2)" in sentences(world)[-1]


def test_kip360_a_producer_that_bumps_its_epoch_is_not_shown_as_fencing(
    world: TransactionWorld,
) -> None:
    producer_id, epoch = init(world, "a")
    init(world, "a", producer_id=producer_id, epoch=epoch)
    assert sentences(world)[-1] == (
        "InitProducerId from client a at host: Empty -> Empty; producer id 1001, epoch 1; the same"
        " producer continues, from epoch 0"
    )
    init(world, "a", producer_id=producer_id, epoch=epoch)
    assert "the response was lost" in sentences(world)[-1]


def test_t55_a_timeout_is_shown_with_its_duration_and_the_fenced_client(
    world: TransactionWorld,
) -> None:
    who = init(world, "slow")
    world.add(who)
    world.wait(75_000)
    told = next(text for text in sentences(world) if text.startswith("timeout"))
    assert told == (
        "timeout: open for 1.2 min, and 1.0 min were allowed: Ongoing -> PrepareAbort; producer id"
        " 1001, epoch 1; fences client slow at host (producer id 1001, epoch 0)"
    )
    assert "ABORT markers with epoch 1 go to topic-0" in sentences(world)


def test_t43_a_refused_transaction_marker_is_shown_with_its_error(world: TransactionWorld) -> None:
    who = init(world, "a")
    world.add(who, T0, O0)
    world.markers.codes[O0] = E.NOT_LEADER_OR_FOLLOWER
    world.end(who)
    assert sentences(world)[-1].startswith(
        "the marker for other-0 was answered NOT_LEADER_OR_FOLLOWER; it is sent again in"
    )
    world.markers.codes[O0] = E.INVALID_PRODUCER_EPOCH
    world.wait(60_000)
    assert sentences(world)[-1] == (
        "the marker for other-0 was answered INVALID_PRODUCER_EPOCH: a newer coordinator is at work:"
        " leave this transaction to it"
    )
    assert now(world)[0].startswith("PrepareCommit, producer id 1001, epoch 0; open for 1.0 min")


def test_t50e_a_transaction_found_at_the_start_is_shown(world: TransactionWorld) -> None:
    who = init(world, "a")
    world.add(who)
    world.markers.hold = True
    world.end(who)
    world.clock.now_ms += 5_000
    world.restart()
    resumed, sent = sentences(world)
    assert resumed == (
        "the broker started and found PrepareCommit, with producer id 1001, epoch 0: the markers"
        " are written (again) to topic-0"
    )
    assert sent == "COMMIT markers with epoch 0 go to topic-0"
    assert now(world)[0].endswith("(as it was found at the start, in __transaction_state)")
    assert ask(world, wire.TRANSACTIONAL_ID, ID).started_ms == world.clock.wall_ms()


def test_t06_the_expiry_of_a_transactional_id_is_shown(world: TransactionWorld) -> None:
    init(world, "a")
    world.wait(8 * 86_400_000)
    assert sentences(world)[-1].startswith("expired, unused for 7.")
    assert now(world) == ["nothing is known of this transactional id any more"]


REFUSALS = [
    # stored state, request (producer id, epoch), error, reason
    (
        {},
        EndCall(ID, 8, 5, True, 1),
        E.INVALID_PRODUCER_ID_MAPPING,
        "expected producer id 7, got 8",
    ),
    ({}, EndCall(ID, 7, 4, True, 1), E.PRODUCER_FENCED, "expected epoch 5, got 4"),
    ({}, EndCall(ID, 7, 5, True, 1), E.INVALID_TXN_STATE, "a commit does not fit state Empty"),
    ({}, AddCall(ID, 7, 6, {T0}, 1), E.PRODUCER_FENCED, "expected epoch 5, got 6"),
    (
        {"state": S.COMPLETE_COMMIT},
        EndCall(ID, 7, 5, False, 1),
        E.INVALID_TXN_STATE,
        "an abort does not fit state CompleteCommit",
    ),
    (
        {"state": S.PREPARE_COMMIT},
        EndCall(ID, 7, 5, True, 1),
        E.CONCURRENT_TRANSACTIONS,
        "the last transaction is being ended (PrepareCommit); ask again",
    ),
    (
        {"state": S.ONGOING},
        InitCall(ID, 1_000, 9, 0),
        E.PRODUCER_FENCED,
        "expected producer id 7, got 9",
    ),
]


@pytest.mark.parametrize(
    ("stored", "call", "error", "reason"),
    REFUSALS,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refused_request_is_shown_with_expected_and_received_values(
    world: TransactionWorld, stored: dict[str, Any], call: Any, error: ErrorCode, reason: str
) -> None:
    world.markers.hold = True
    world.put(**stored)
    if isinstance(call, InitCall):
        world.transactions.init_producer_id(call)
    elif isinstance(call, AddCall):
        world.transactions.add_partitions(call)
    else:
        world.transactions.end(call)
    assert sentences(world)[-1].endswith(f"was refused with {error.name}: {reason}")
    # The history of the producer id has the same refusal.
    (event,) = world.producer_history.about(str(call.producer_id)).events
    assert (event.error, event.fields["reason"]) == (error, reason)


def test_refusals_of_unknown_ids_and_missing_partitions_are_shown(world: TransactionWorld) -> None:
    world.transactions.end(EndCall(ID, 7, 5, True, 1))
    assert sentences(world)[-1].endswith("never initialised, or expired")
    who = init(world, "a")
    world.add(who, T0)
    world.verify(who, T1)
    assert sentences(world)[-1] == (
        f"verification of a batch with producer id {who[0]}, epoch 0, was refused with"
        " TRANSACTION_ABORTABLE: topic-1 is not part of the transaction, which is Ongoing"
    )
    world.log.hold = True
    world.init_later()
    world.end_later(who)
    world.log.hold = False
    world.log.flush()
    told = sentences(world)
    refused = next(text for text in told if "PRODUCER_FENCED" in text)
    assert refused.endswith("expected epoch 1, got 0")
    # the event before the refusal is its cause
    assert "Ongoing -> PrepareAbort" in told[told.index(refused) - 1]


def test_a_step_whose_record_is_refused_is_recorded_in_the_history(world: TransactionWorld) -> None:
    who = init(world, "a")
    world.log.refuse = E.NOT_ENOUGH_REPLICAS
    world.add(who)
    assert sentences(world)[-1].startswith(
        "AddPartitionsToTxn could not be recorded (COORDINATOR_NOT_AVAILABLE)"
    )
    assert now(world)[0].startswith("Empty")
