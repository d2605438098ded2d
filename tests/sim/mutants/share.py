"""Bugs of share groups: locks, owners, deliveries, stored states, and the offset at which a group
continues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.coordinator.groups.share import heartbeat
from odradek_broker.coordinator.groups.share.groups import ShareGroups
from odradek_broker.coordinator.runtime import CoreOutcome, Runtime
from odradek_broker.coordinator.share import shard
from odradek_broker.coordinator.share.records import snapshot_record as _snapshot_record
from odradek_broker.coordinator.share.shard import ShareShard
from odradek_broker.deferred import Deferred
from odradek_broker.share import dead_letter_writer, fetching, in_flight, share_partition
from odradek_broker.share.dead_letter_writer import DeadLetterWriter, WriteOutcome, _Job
from odradek_broker.share.dead_letters import DeadLetterOrigin
from odradek_broker.share.fetching import read as _read
from odradek_broker.share.in_flight import FINISHED, NOBODY, InFlightRun, RecordState, ShareLimits
from odradek_broker.share.in_flight import add_stored as _add_stored
from odradek_broker.share.manager import SharePartitions
from odradek_broker.share.sessions import ShareSessions
from odradek_broker.share_state import ShareKey, StateResult
from odradek_protocol.errors import ErrorCode

_S = RecordState
_await_disk = Runtime._await_disk
_acquire, _give_back = InFlightRun.acquire, InFlightRun.give_back
_initialize, _delete = ShareShard.initialize, ShareShard.delete


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _acquirable_while_acquired(self: InFlightRun) -> bool:
    return self.state in (_S.AVAILABLE, _S.ACQUIRED) and self.change is None


def _acquired_from_another_member(self: InFlightRun, member_id: str, deadline_ms: int) -> None:
    self.state = _S.AVAILABLE
    _acquire(self, member_id, deadline_ms)


def _acquired_without_counting(self: InFlightRun, member_id: str, deadline_ms: int) -> None:
    count = self.count
    _acquire(self, member_id, deadline_ms)
    self.count = max(count, 1)


def _given_back_without_a_limit(self: InFlightRun, *given: Any) -> None:
    self.step(_S.AVAILABLE)
    self.member_id = NOBODY


def _stored_with_one_delivery_less(stored: Any, run: InFlightRun) -> None:
    run.count -= 1
    try:
        _add_stored(stored, run)
    finally:
        run.count += 1


def _no_records(*_: Any, **__: Any) -> Any:
    return iter(())


def _finished_or_available(self: InFlightRun) -> bool:
    return self.state in (*FINISHED, _S.AVAILABLE) and self.change is None


def _snapshot_without_batches(key: Any, state: Any) -> Any:
    return _snapshot_record(key, state._replace(batches=()))


def _read_uncommitted(*given: Any, **how: Any) -> Any:
    return _read(*given, **{**how, "committed": False})


def _acquirable_during_its_pause(self: InFlightRun) -> bool:
    return self.state is _S.AVAILABLE and self.change is None


def _pause_of_the_first_delivery(self: ShareLimits, delivery_count: int) -> int:
    return self.redelivery_delay_ms


def _initialized_with_earlier_batches(
    self: ShareShard, key: ShareKey, state_epoch: int, start_offset: int, *rest: Any
) -> CoreOutcome:
    outcome = _initialize(self, key, state_epoch, start_offset, *rest)
    stored = self.partitions.get(key)
    if outcome.records and stored is not None:
        state = stored.state._replace(state_epoch=state_epoch, start_offset=start_offset)
        return replace(outcome, records=[_snapshot_record(key, state)])
    return outcome


def _delete_nothing(self: ShareShard, key: ShareKey, deferred: Any) -> CoreOutcome:
    return replace(_delete(self, key, deferred), records=[])


def _no_error(*_: Any) -> ErrorCode:
    return ErrorCode.NONE


def _no_open_letters(*_: Any) -> Any:
    return Deferred.of({})


def _stored_without_its_letters(self: _Job, result: StateResult) -> None:
    decided = result.error is ErrorCode.NONE or self._any_durable
    self._done.resolve(WriteOutcome(result, decided))


def _undone_if_its_state_is_not_written(self: _Job, result: StateResult) -> None:
    self._done.resolve(WriteOutcome(result, result.error is ErrorCode.NONE))


def _answered_before_it_is_durable(self: Runtime[Any], outcome: Any, written: Any) -> None:
    _await_disk(self, outcome, Deferred.of(ErrorCode.NONE))


SHARE = (
    Mutant(
        "a record is delivered to a second member while the first one has it locked",
        "share-groups",
        2,
        {
            (InFlightRun, "acquirable"): property(_acquirable_while_acquired),
            (InFlightRun, "acquire"): _acquired_from_another_member,
        },
        ("deliveries: ",),
    ),
    Mutant(
        "acknowledgements are accepted from members that have not acquired the record",
        "share-groups",
        5,
        {
            (share_partition, "_check_owner_of_batch"): _nothing,
            (share_partition, "_check_owner_of_offset"): _nothing,
        },
    ),
    Mutant(
        "an acknowledgement in a share group is answered before it is durable",
        "share-groups",
        22,
        {(Runtime, "_await_disk"): _answered_before_it_is_durable},
        ("deliveries: ",),
    ),
    Mutant(
        "acquisition locks never expire",
        "share-groups",
        2,
        {(SharePartitions, "watch_locks"): _nothing},
        ("share partitions: ",),
    ),
    Mutant(
        "only the first delivery of a record is counted",
        "share-groups",
        1,
        {(InFlightRun, "acquire"): _acquired_without_counting},
        ("deliveries: ",),
    ),
    Mutant(
        "the number of deliveries of a record has no limit",
        "share-groups",
        2,
        {(InFlightRun, "give_back"): _given_back_without_a_limit},
        ("deliveries: ",),
    ),
    Mutant(
        "the stored delivery count of a record lacks its last delivery",
        "share-groups",
        3,
        {
            (in_flight, "add_stored"): _stored_with_one_delivery_less,
            (share_partition, "add_stored"): _stored_with_one_delivery_less,
        },
        ("deliveries: ",),
    ),
    Mutant(
        "the start offset of a share partition moves past released records",
        "share-groups",
        1,
        {(InFlightRun, "finished"): property(_finished_or_available)},
        ("share-groups: ",),
    ),
    Mutant(
        "a snapshot of a share partition lacks its state batches",
        "share-groups",
        1,
        {(shard, "snapshot_record"): _snapshot_without_batches},
        ("stored: ",),
    ),
    Mutant(
        "a share group that reads committed records gets aborted ones",
        "share-groups",
        1,
        {(fetching, "read"): _read_uncommitted},
        ("readers: ",),
    ),
    Mutant(
        "a share session stays open after its connection has closed",
        "share-groups",
        2,
        {(ShareSessions, "connection_closed"): _nothing},
        ("queues: ",),
    ),
    Mutant(
        "records are redelivered before their redelivery delay is over",
        "share-groups",
        6,
        {(InFlightRun, "acquirable"): property(_acquirable_during_its_pause)},
        ("deliveries: ",),
    ),
    Mutant(
        "the redelivery delay does not grow with the number of deliveries",
        "share-groups",
        14,
        {(ShareLimits, "redelivery_pause_ms"): _pause_of_the_first_delivery},
        ("deliveries: ",),
    ),
    Mutant(
        "altering the start offset of a share partition keeps its earlier state batches",
        "share-groups",
        2,
        {(ShareShard, "initialize"): _initialized_with_earlier_batches},
        ("resets: ", "deliveries: ", "share-groups: "),
    ),
    Mutant(
        "deleting the state of a share partition is acknowledged but not written",
        "share-groups",
        2,
        {(ShareShard, "delete"): _delete_nothing},
        ("resets: ",),
    ),
    Mutant(
        "a share group is deleted although states were requested for it meanwhile",
        "share-groups",
        9,
        {(ShareGroups, "deletion_error"): _no_error},
        ("share states: ",),
    ),
    Mutant(
        "rejected records get no dead letters",
        "share-groups",
        1,
        {(dead_letter_writer, "given_up_records"): _no_records},
        ("share-groups: ",),
    ),
    Mutant(
        "a share group begins at the end of partitions that are added to its topic",
        "share-added",
        1,
        {(heartbeat, "added_partitions"): lambda *_: {}},
        ("added: ",),
    ),
    Mutant(
        "dead letters of a topic do not say which of the topics with its name it is",
        "share-groups",
        1,
        {(DeadLetterOrigin, "id_text"): b"A" * 22},
        ("dead letter",),
    ),
    Mutant(
        "loading a share partition ignores dead letters that its stored state does not mention",
        "share-groups",
        34,
        {(DeadLetterWriter, "open_letters"): _no_open_letters},
        ("dead letter",),
    ),
    Mutant(
        "a written dead letter is forgotten if the state of its record cannot be written",
        "share-groups",
        13,
        {(_Job, "_stored"): _stored_without_its_letters},
        ("dead letter",),
    ),
    Mutant(
        "a record with a written dead letter is delivered again if its state cannot be written",
        "share-groups",
        13,
        {(_Job, "_stored"): _undone_if_its_state_is_not_written},
        ("dead letter",),
    ),
)
