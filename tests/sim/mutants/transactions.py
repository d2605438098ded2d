"""Bugs of transactions: visibility, markers, epochs, decisions, offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.coordinator.groups.offsets import OffsetStore
from odradek_broker.coordinator.groups.shard import GroupShard
from odradek_broker.coordinator.runtime import CoreOutcome, Instant
from odradek_broker.coordinator.transactions import decisions, shard
from odradek_broker.coordinator.transactions.completion import (
    MarkerRequest,
    MarkerWriter,
    TransactionTimer,
    TransactionTimerName,
)
from odradek_broker.coordinator.transactions.decisions import (
    VERSION_2,
    AddCall,
    Decision,
    EndCall,
    decide_end,
)
from odradek_broker.coordinator.transactions.shard import TransactionShard
from odradek_broker.coordinator.transactions.transaction import Transaction, TransactionState
from odradek_broker.coordinator.transactions.verification import _ProducerQueue
from odradek_broker.deferred import Deferred
from odradek_broker.handlers import add_offsets_to_txn
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.producers import state as producer_state
from odradek_broker.storage.producers.state import ProducerStateManager
from odradek_broker.topic_partition import TopicPartition
from odradek_client.producer.transaction_manager import TransactionManager
from odradek_protocol.errors import ErrorCode

_write = MarkerWriter._write_to
_prepare_v2 = decisions._prepare_v2
_end_transaction = OffsetStore.end_transaction
_first_unstable_offset: Any = ProducerStateManager.__dict__["first_unstable_offset"].fget


def _loaded_without_resuming(self: TransactionShard, now: Instant) -> CoreOutcome:
    if self._ongoing:
        self._set_scan(now.monotonic_ms)
    self._set_expiry(now, self._expiry_interval_ms)
    return CoreOutcome()


def _end_in_any_epoch(held: Transaction | None, call: EndCall, *rest: Any) -> Decision:
    if held is not None:
        producer_id, epoch = held.identity
        call = call._replace(producer_id=producer_id, epoch=epoch)
    return decide_end(held, call, *rest)


def _fenced_before_the_running_end(held: Transaction | None, call: EndCall, *rest: Any) -> Decision:
    under_way = held is not None and held.state.is_prepared and call.version >= VERSION_2
    if held is not None and under_way and call.epoch != held.last_epoch:
        return Decision(ErrorCode.PRODUCER_FENCED)
    return decide_end(held, call, *rest)


def _verify_nothing(held: Transaction | None, call: AddCall) -> dict[Any, ErrorCode]:
    return dict.fromkeys(call.partitions, ErrorCode.NONE)


_begin_verification = ProducerStateManager.begin_verification


def _begin_in_any_epoch(
    self: ProducerStateManager, producer_id: int, producer_epoch: int, *rest: Any, **more: Any
) -> int:
    entry = self._entries.get(producer_id)
    known = producer_epoch if entry is None else max(producer_epoch, entry.epoch)
    return _begin_verification(self, producer_id, known, *rest, **more)


def _add_nothing(
    name: str, producer_id: int, epoch: int, partitions: frozenset[Any], *rest: Any
) -> AddCall:
    return AddCall(name, producer_id, epoch, frozenset(), *rest)


def _time_out_at_once(self: TransactionShard, name: str, now: Instant) -> bool:
    held = self.transactions.get(name)
    return (
        held is not None
        and held.state is TransactionState.ONGOING
        and self._pending.target(name) is None
        and now.wall_ms > held.start_ms + 500
    )


def _scan_all(self: TransactionShard, now: Instant) -> None:
    if self._ongoing:
        self._set_scan(now.monotonic_ms)
    for name in self._ongoing:
        if self._timed_out(name, now):
            timer = TransactionTimerName(TransactionTimer.TIMED_OUT, name)
            self.timers.set(timer, now.monotonic_ms)


def _write_except_to_partition_1(
    self: MarkerWriter, where: TopicPartition, marker: MarkerRequest
) -> Deferred[ErrorCode]:
    if where[1] == 1:
        return Deferred.of(ErrorCode.NONE)
    return _write(self, where, marker)


def _replay_pending_as_committed(
    self: GroupShard, producer_id: int, key: bytes, value: bytes | None
) -> None:
    self._replay_record(key, value, -1)


def _drop_offsets(self: OffsetStore, producer_id: int, commit: bool) -> None:
    _end_transaction(self, producer_id, False)


def _one_after_the_first_unstable_offset(self: ProducerStateManager) -> int | None:
    first = _first_unstable_offset(self)
    return None if first is None else min(first + 1, self.map_end_offset)


def _prepare_in_the_same_epoch(held: Transaction, call: EndCall, *rest: Any) -> Decision:
    decision = _prepare_v2(held, call, *rest)
    if decision.after is None:
        return decision
    after = replace(decision.after, epoch=held.epoch)
    return replace(decision, after=after, epoch=after.identity[1])


TRANSACTIONS = (
    Mutant(
        "read_committed consumers read up to the high watermark",
        "jepsen",
        1,
        {(PartitionLog, "last_stable_offset"): property(lambda self: self.high_watermark)},
    ),
    Mutant(
        "open transactions do not hold back the last stable offset",
        "transactional-copy",
        1,
        {(ProducerStateManager, "first_unstable_offset"): property(lambda self: None)},
    ),
    Mutant(
        "Fetch answers do not list aborted transactions",
        "transactional-copy",
        1,
        {(PartitionLog, "aborted_transactions"): lambda self, start, end: []},
    ),
    Mutant(
        "a restart forgets transaction markers that are still to be written",
        "transactional-copy",
        6,
        {(TransactionShard, "loaded"): _loaded_without_resuming},
    ),
    Mutant(
        "partition 1 of a topic never gets its transaction markers",
        "transactional-copy",
        1,
        {(MarkerWriter, "_write_to"): _write_except_to_partition_1},
    ),
    Mutant(
        "an EndTxn request of an older producer epoch is not fenced",
        "transactional-copy",
        30,
        {(shard, "decide_end"): _end_in_any_epoch},
    ),
    Mutant(
        "an EndTxn request is fenced because the end of a transaction is still in progress",
        "lone-producers",
        1,
        {
            (shard, "decide_end"): _fenced_before_the_running_end,
            # Without the next three patches the broker would wait until the earlier EndTxn is
            # complete, or our client would retry. Other clients do not retry.
            (TransactionShard, "_park"): lambda *_: False,
            (_ProducerQueue, "_pause"): lambda *_: False,
            (TransactionManager, "_may_be_too_early"): lambda *_: False,
        },
        ("fencing: ",),
    ),
    Mutant(
        "a batch of an older producer epoch is not refused",
        "transactional-copy-v1",
        1,
        {
            (shard, "verify_partitions"): _verify_nothing,
            (ProducerStateManager, "begin_verification"): _begin_in_any_epoch,
            (producer_state, "_VERDICTS"): dict.fromkeys(producer_state._VERDICTS, ErrorCode.NONE),
        },
        ("transactional-copy-v1: ",),
    ),
    Mutant(
        "AddOffsetsToTxn adds nothing to the transaction",
        "transactional-copy-v1",
        1,
        {(add_offsets_to_txn, "AddCall"): _add_nothing},
    ),
    Mutant(
        "offsets take effect before their transaction is committed",
        "transactional-copy",
        1,
        {(GroupShard, "replay_pending"): _replay_pending_as_committed},
    ),
    Mutant(
        "committing a transaction drops its offsets",
        "transactional-copy-v1",
        1,
        {(OffsetStore, "end_transaction"): _drop_offsets},
    ),
    Mutant(
        "a prepared transaction times out",
        "prepared",
        2,
        {
            (TransactionShard, "_timed_out"): _time_out_at_once,
            (TransactionShard, "_scan"): _scan_all,
        },
    ),
    Mutant(
        "the last stable offset is too high by one",
        "transactional-copy",
        1,
        {
            (ProducerStateManager, "first_unstable_offset"): property(
                _one_after_the_first_unstable_offset
            )
        },
        ("not committed", "nobody has committed"),
    ),
    Mutant(
        "EndTxn of transaction version 2 does not raise the producer epoch",
        "lone-producers",
        1,
        {
            (decisions, "_prepare_v2"): _prepare_in_the_same_epoch,
            (ProducerStateManager, "check_marker"): lambda *_, **__: None,
        },
        ("epochs: ",),
    ),
)
