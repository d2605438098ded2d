"""A small model of the brokers' transactions, independent of the broker's code.

`TransactionModel` is coordinator, partition leaders and group coordinator in one, by the rules
T-12, T-20, T-30 and T-63 to T-68. `finish` writes the markers of decided transactions; until then a
new transaction gets CONCURRENT_TRANSACTIONS. With `prompt`, every decision calls `finish`.
`committed` returns the records that a read_committed consumer reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from odradek_protocol.common_structs import PartitionError, TopicErrors
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import read_header
from odradek_protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnResponse
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek_protocol.schemas.end_txn import EndTxnResponse
from odradek_protocol.schemas.init_producer_id import InitProducerIdResponse
from odradek_protocol.schemas.txn_offset_commit import TxnOffsetCommitResponse
from scripted_broker import PartitionLog

_E = ErrorCode
EMPTY, ONGOING, PREPARE, COMPLETE = "Empty", "Ongoing", "Prepare", "Complete"
#: The last epoch of a producer id: the next identity has a new producer id (T-13).
EXHAUSTED = 32766


@dataclass
class Id:
    """The state of a transactional id."""

    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    previous: tuple[int, int] = (-1, -1)
    state: str = EMPTY
    committed: bool | None = None  # The last decision: True to commit, False to abort.
    v2: bool = False
    partitions: set[tuple[str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


class TransactionModel:
    """All transactions of one cluster."""

    def __init__(self, log: Any, *, prompt: bool = True) -> None:
        self._log = log  # A function (topic, partition) -> PartitionLog.
        self.prompt = prompt
        self.ids: dict[str, Id] = {}
        self.next_producer_id = 100
        #: (topic, partition) -> the records in open transactions: offset -> producer id.
        self.open: dict[tuple[str, int], dict[int, int]] = {}
        self.aborted: set[tuple[str, int, int]] = set()
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.pending_offsets: dict[int, dict[tuple[str, str, int], int]] = {}
        self.decisions: list[tuple[str, bool]] = []
        self._markers: dict[str, tuple[int, int]] = {}

    # --- coordinator ------------------------------------------------------------------------------

    def init_producer_id(self, request: Any, version: int = 5) -> InitProducerIdResponse:
        """Respond to InitProducerId (T-11, T-12)."""
        name = request.transactional_id
        held = self.ids.get(name)
        if held is None:
            held = self.ids[name] = Id(self._new_id())
        given = (request.producer_id, request.producer_epoch)
        if held.state == PREPARE:
            return InitProducerIdResponse(error_code=_E.CONCURRENT_TRANSACTIONS)
        if given != (-1, -1) and held.epoch != -1:
            if given[0] != held.producer_id and given != held.previous:
                return InitProducerIdResponse(error_code=_E.PRODUCER_FENCED)
            if given[1] == held.last_epoch and held.state != ONGOING:
                return InitProducerIdResponse(
                    producer_id=held.producer_id, producer_epoch=held.epoch
                )
            if given[1] != held.epoch:
                return InitProducerIdResponse(error_code=_E.PRODUCER_FENCED)
        if held.state == ONGOING:
            held.epoch += 1
            held.last_epoch = -1
            self._decide(name, held, committed=False)
            return InitProducerIdResponse(error_code=_E.CONCURRENT_TRANSACTIONS)
        old = held.epoch
        if old >= EXHAUSTED:
            held.previous = (held.producer_id, old)
            held.producer_id, held.epoch = self._new_id(), 0
        else:
            held.epoch += 1
        held.last_epoch = old if given != (-1, -1) else -1
        held.state, held.committed = EMPTY, None
        return InitProducerIdResponse(producer_id=held.producer_id, producer_epoch=held.epoch)

    def _new_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def _check(self, name: str, producer_id: int, epoch: int) -> ErrorCode:
        """Check producer id and epoch (T-20)."""
        held = self.ids.get(name)
        if held is None:
            return _E.INVALID_PRODUCER_ID_MAPPING
        if held.state == PREPARE:
            return _E.CONCURRENT_TRANSACTIONS
        if held.producer_id != producer_id:
            return _E.INVALID_PRODUCER_ID_MAPPING
        if held.epoch != epoch:
            return _E.PRODUCER_FENCED
        return _E.NONE

    def _join(self, name: str, partitions: set[tuple[str, int]], groups: set[str]) -> None:
        held = self.ids[name]
        if held.state != ONGOING:
            held.state, held.partitions, held.groups = ONGOING, set(), set()
        held.partitions |= partitions
        held.groups |= groups

    def add_partitions(self, request: Any, version: int = 3) -> AddPartitionsToTxnResponse:
        name = request.v3_and_below_transactional_id
        code = self._check(
            name, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        topics = request.v3_and_below_topics
        if code is _E.NONE:
            self._join(name, {(t.name, p) for t in topics for p in t.partitions}, set())
        return add_partitions_response(request, code)

    def add_offsets(self, request: Any, version: int = 3) -> AddOffsetsToTxnResponse:
        code = self._check(request.transactional_id, request.producer_id, request.producer_epoch)
        if code is _E.NONE:
            self._join(request.transactional_id, set(), {request.group_id})
        return AddOffsetsToTxnResponse(error_code=code)

    def commit_offsets(self, request: Any, version: int) -> TxnOffsetCommitResponse:
        """Respond to TxnOffsetCommit (T-24). From version 5 on the request also adds the group to
        the transaction (T-60)."""
        name = request.transactional_id
        code = self._check(name, request.producer_id, request.producer_epoch)
        if code is _E.NONE:
            held = self.ids[name]
            if version >= 5:
                self._join(name, set(), {request.group_id})
            elif held.state != ONGOING or request.group_id not in held.groups:
                code = _E.INVALID_TXN_STATE
        if code is _E.NONE:
            pending = self.pending_offsets.setdefault(request.producer_id, {})
            for topic in request.topics:
                for each in topic.partitions:
                    key = (request.group_id, topic.name, each.partition_index)
                    pending[key] = each.committed_offset
        return offset_commit_response(request, code)

    def end(self, request: Any, version: int) -> EndTxnResponse:
        """Respond to EndTxn (T-30, T-63 to T-66)."""
        held = self.ids.get(request.transactional_id)
        if held is None:
            return EndTxnResponse(error_code=_E.INVALID_PRODUCER_ID_MAPPING)
        given = (request.producer_id, request.producer_epoch)
        if version < 5:
            return EndTxnResponse(error_code=self._end_v1(held, given, request))
        overflow = given == held.previous and held.epoch == 0
        if given[0] != held.producer_id and not overflow:
            return EndTxnResponse(error_code=_E.INVALID_PRODUCER_ID_MAPPING)
        retry = overflow or given[1] + 1 == held.epoch
        code = self._end_v2(held, retry, given[1] == held.epoch, request)
        if code is not _E.NONE:
            return EndTxnResponse(error_code=code)
        return EndTxnResponse(producer_id=held.producer_id, producer_epoch=held.epoch)

    def _end_v1(self, held: Id, given: tuple[int, int], request: Any) -> ErrorCode:
        if given[0] != held.producer_id:
            return _E.INVALID_PRODUCER_ID_MAPPING
        if given[1] != held.epoch:
            return _E.PRODUCER_FENCED
        same = held.committed == request.committed
        if held.state == PREPARE:
            return _E.CONCURRENT_TRANSACTIONS if same else _E.INVALID_TXN_STATE
        if held.state == COMPLETE:
            return _E.NONE if same else _E.INVALID_TXN_STATE
        if held.state == EMPTY:
            return _E.INVALID_TXN_STATE
        held.v2 = False
        self._decide(request.transactional_id, held, committed=request.committed)
        return _E.NONE

    def _end_v2(self, held: Id, retry: bool, current: bool, request: Any) -> ErrorCode:
        """Decide about EndTxn version 5 by the table of T-65."""
        if not retry and not current:
            return _E.PRODUCER_FENCED
        same = held.committed == request.committed
        if held.state == PREPARE:
            if not retry:
                return _E.PRODUCER_FENCED
            return _E.CONCURRENT_TRANSACTIONS if same else _E.INVALID_TXN_STATE
        if retry:
            if held.state != COMPLETE:
                return _E.PRODUCER_FENCED
            return _E.NONE if same else _E.INVALID_TXN_STATE
        if held.state != ONGOING and request.committed:
            return _E.INVALID_TXN_STATE
        held.v2 = True
        old_id = held.producer_id
        if held.epoch >= EXHAUSTED:
            held.previous = (old_id, held.epoch)
            held.producer_id, held.epoch, held.last_epoch = self._new_id(), 0, EXHAUSTED
            marker_epoch = 32767
        else:
            held.last_epoch, held.epoch = held.epoch, held.epoch + 1
            marker_epoch = held.epoch
        self._decide(
            request.transactional_id,
            held,
            committed=request.committed,
            marker=(old_id, marker_epoch),
        )
        return _E.NONE

    def _decide(
        self, name: str, held: Id, *, committed: bool, marker: tuple[int, int] | None = None
    ) -> None:
        self.decisions.append((name, committed))
        held.state, held.committed = PREPARE, committed
        held_marker = marker or (held.producer_id, held.epoch)
        self._markers[name] = held_marker
        if self.prompt:
            self.finish()

    def finish(self) -> None:
        """Write the markers of all decided transactions."""
        for name, (producer_id, epoch) in self._markers.items():
            held = self.ids[name]
            for key in held.partitions:
                log: PartitionLog = self._log(*key)
                entry = log._producers.get(producer_id)
                if entry is not None and entry.epoch != epoch:
                    entry.epoch = epoch
                    entry.batches.clear()
                offsets = self.open.get(key, {})
                for offset in [o for o, owner in offsets.items() if owner == producer_id]:
                    del offsets[offset]
                    if not held.committed:
                        self.aborted.add((*key, offset))
            pending = self.pending_offsets.pop(producer_id, {})
            if held.committed:
                self.offsets.update(pending)
            held.state, held.partitions, held.groups = COMPLETE, set(), set()
        self._markers = {}

    # --- partitions -------------------------------------------------------------------------------

    def append(
        self, topic: str, partition: int, name: str, records: Any, version: int
    ) -> tuple[ErrorCode, int]:
        """Append a transactional batch.

        The partition must be in the transaction, or is added to it (T-61, T-62). Then the batch is
        checked like any other.
        """
        header = read_header(records)
        assert header.is_transactional
        key = (topic, partition)
        log: PartitionLog = self._log(topic, partition)
        code, offset = log._check(header)
        if code is _E.NONE and offset >= 0:
            return code, offset  # Duplicates are answered before all other checks (P-09).
        verdict = self._check(name, header.producer_id, header.producer_epoch)
        if verdict is _E.CONCURRENT_TRANSACTIONS:
            return _E.NOT_ENOUGH_REPLICAS, -1
        if verdict is _E.PRODUCER_FENCED:
            return _E.INVALID_PRODUCER_EPOCH, -1
        if verdict is not _E.NONE:
            return verdict, -1
        held = self.ids[name]
        inside = held.state == ONGOING and key in held.partitions
        if version >= 12:
            if header.producer_id not in log._producers and header.base_sequence:
                return _E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1  # P-15
            if code is _E.NONE:
                self._join(name, {key}, set())
        elif not inside:
            return _E.INVALID_TXN_STATE, -1
        code, offset = log.append(records)
        if code is _E.NONE:
            owned = self.open.setdefault(key, {})
            owned.update({offset + i: header.producer_id for i in range(header.record_count)})
        return code, offset

    def committed(self, topic: str, partition: int) -> list[bytes | None]:
        """The records that a read_committed consumer reads; fails if a transaction is open."""
        key = (topic, partition)
        log: PartitionLog = self._log(topic, partition)
        assert not self.open.get(key), "something is not decided"
        return [v for o, v in enumerate(log.values) if (*key, o) not in self.aborted]


def add_partitions_response(request: Any, *codes: ErrorCode) -> AddPartitionsToTxnResponse:
    """A response with one error code for all partitions, or one for each."""
    left = list(codes)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=left.pop(0) if len(left) > 1 else left[0],
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def offset_commit_response(request: Any, *codes: ErrorCode) -> TxnOffsetCommitResponse:
    """A response with one error code for all partitions, or one for each."""
    left = list(codes)
    return TxnOffsetCommitResponse(
        topics=[
            TopicErrors(
                name=topic.name,
                partitions=[
                    PartitionError(
                        partition_index=each.partition_index,
                        error_code=left.pop(0) if len(left) > 1 else left[0],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
