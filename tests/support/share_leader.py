"""A model of the leader of share partitions, independent of the client: sessions, locks and
deliveries.

The model responds to ShareFetch and ShareAcknowledge as Kafka does, and asserts that the member
obeys the protocol. Tests of the client's share consumer call it directly, or through a
`ScriptedBroker`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from odradek_protocol.common_structs import LeaderIdAndEpoch
from odradek_protocol.common_structs import LeaderIdAndEpoch as AcknowledgeLeader
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import read_header
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.records.record import read_records
from odradek_protocol.schemas.share_acknowledge import (
    AcknowledgedPartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from odradek_protocol.schemas.share_fetch import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchedPartition,
    ShareFetchRequest,
    ShareFetchResponse,
)
from rewritten_batches import rewrite_batch

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = "available", "acquired", "acknowledged", "archived"
LIMIT = 5


@dataclass
class Record:
    """The record at one offset: its state, its delivery count, and the member that has acquired
    it."""

    state: str = AVAILABLE
    deliveries: int = 0
    member: str | None = None
    lock_until_ms: float = 0.0


@dataclass
class Partition:
    """Batches of records; an offset without a value is a gap."""

    records: list[Record] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    batches: list[tuple[int, int]] = field(default_factory=list)

    def append(self, values: list[bytes | None]) -> None:
        first = len(self.values)
        self.values += values
        self.records += [Record() for _ in values]
        self.batches.append((first, len(self.values) - 1))


@dataclass
class Session:
    """A member's share session."""

    epoch: int
    partitions: set[tuple[bytes, int]]


class ShareLeader:
    """The share partitions of one node. `renews`: the group's share.renew.acknowledge.enable."""

    def __init__(self, *, lock_ms: int = 30_000, renews: bool = True) -> None:
        self.lock_ms, self.renews = lock_ms, renews
        self.now_ms = 0.0
        self.partitions: dict[tuple[bytes, int], Partition] = {}
        self.sessions: dict[str, Session] = {}
        #: (topic id, partition) -> the errors of the next responses: (fetch error, acknowledge
        #: error).
        self.errors: dict[tuple[bytes, int], tuple[ErrorCode, ErrorCode]] = {}
        self.leaders: dict[tuple[bytes, int], tuple[int, int]] = {}

    # --- time -------------------------------------------------------------------------------------

    def expire(self) -> None:
        """End the locks whose time has passed."""
        for partition in self.partitions.values():
            for record in partition.records:
                if record.state == ACQUIRED and record.lock_until_ms <= self.now_ms:
                    self._free(record)

    @staticmethod
    def _free(record: Record) -> None:
        record.state = ARCHIVED if record.deliveries >= LIMIT else AVAILABLE
        record.member = None

    def drop_session(self, member: str) -> None:
        """End a session, and release the records of its member."""
        self.sessions.pop(member, None)
        for partition in self.partitions.values():
            for record in partition.records:
                if record.state == ACQUIRED and record.member == member:
                    self._free(record)

    # --- requests ---------------------------------------------------------------------------------

    def answer(self, request: Any, version: int = 2) -> Any:
        """Respond to a ShareFetch or ShareAcknowledge request."""
        self.expire()
        if isinstance(request, ShareFetchRequest):
            return self._fetch(request)
        return self._acknowledge(request)

    def _session_error(self, request: Any, named: set[tuple[bytes, int]]) -> ErrorCode:
        member, epoch = request.member_id, request.share_session_epoch
        session = self.sessions.get(member)
        if epoch == 0:
            self.sessions[member] = Session(1, set(named))
        elif session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        elif epoch == -1:
            return ErrorCode.NONE
        elif session.epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        else:
            session.epoch += 1
        return ErrorCode.NONE

    def _fetch(self, request: ShareFetchRequest) -> ShareFetchResponse:
        named = {(t.topic_id, p.partition_index) for t in request.topics for p in t.partitions}
        batches = {
            (t.topic_id, p.partition_index): p.acknowledgement_batches
            for t in request.topics
            for p in t.partitions
            if p.acknowledgement_batches
        }
        assert not (request.share_session_epoch == 0 and batches), "no answers in a first request"
        assert not request.is_renew_ack or request.max_wait_ms == 0
        if code := self._session_error(request, named):
            return ShareFetchResponse(error_code=code)
        session = self.sessions[request.member_id or ""]
        session.partitions |= named
        session.partitions -= {
            (t.topic_id, p) for t in request.forgotten_topics_data for p in t.partitions
        }
        answers: dict[tuple[bytes, int], ShareFetchedPartition] = {}
        for key, some in batches.items():
            answers[key] = self._fetched(key)
            answers[key].acknowledge_error_code = self._apply(request.member_id or "", key, some)
        room = request.max_records
        for key in sorted(session.partitions):
            answer = answers.setdefault(key, self._fetched(key))
            error = self.errors.get(key, (ErrorCode.NONE, ErrorCode.NONE))[0]
            if error:
                answer.error_code = error
                leader, epoch = self.leaders.get(key, (-1, -1))
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            elif room > 0 and key in self.partitions:
                room -= self._acquire(request, key, answer, room)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self.lock_ms,
            responses=[
                ShareFetchableTopicResponse(topic_id=key[0], partitions=[answer])
                for key, answer in answers.items()
            ],
        )

    @staticmethod
    def _fetched(key: tuple[bytes, int]) -> ShareFetchedPartition:
        none = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
        return ShareFetchedPartition(partition_index=key[1], records=b"", current_leader=none)

    def _acquire(
        self,
        request: ShareFetchRequest,
        key: tuple[bytes, int],
        answer: ShareFetchedPartition,
        room: int,
    ) -> int:
        partition, data, count = self.partitions[key], b"", 0
        for first, last in partition.batches:
            free = [
                offset
                for offset in range(first, last + 1)
                if partition.records[offset].state == AVAILABLE
            ]
            if count >= room or not free:
                continue
            if request.share_acquire_mode == 1:
                free = free[: room - count]
            for offset in free:
                record = partition.records[offset]
                record.state, record.member = ACQUIRED, request.member_id
                record.deliveries += 1
                record.lock_until_ms = self.now_ms + self.lock_ms
                answer.acquired_records.append(
                    AcquiredRecords(
                        first_offset=offset,
                        last_offset=offset,
                        delivery_count=record.deliveries,
                    )
                )
            count += len(free)
            data += encoded(first, partition.values[first : last + 1])
        answer.records = data
        return count

    def _acknowledge(self, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
        assert request.share_session_epoch != 0, "only a fetch opens a session"
        if code := self._session_error(request, set()):
            return ShareAcknowledgeResponse(error_code=code)
        member = request.member_id or ""
        none = AcknowledgeLeader(leader_id=-1, leader_epoch=-1)
        response = ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self.lock_ms,
            responses=[
                ShareAcknowledgeTopicResponse(
                    topic_id=topic.topic_id,
                    partitions=[
                        AcknowledgedPartition(
                            partition_index=each.partition_index,
                            error_code=self._apply(
                                member,
                                (topic.topic_id, each.partition_index),
                                each.acknowledgement_batches,
                                renew=request.is_renew_ack,
                            ),
                            current_leader=none,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )
        if request.share_session_epoch == -1:
            self.drop_session(member)
        return response

    def _apply(
        self, member: str, key: tuple[bytes, int], batches: Any, *, renew: bool = False
    ) -> ErrorCode:
        """Carry out either all acknowledgements of a partition or none.

        Acknowledgements below the start offset are ignored.
        """
        error = self.errors.get(key, (ErrorCode.NONE, ErrorCode.NONE))[1]
        if error:
            return error
        records = self.partitions[key].records
        types: dict[int, int] = {}
        for batch in batches:
            count = batch.last_offset - batch.first_offset + 1
            kinds = batch.acknowledge_types
            assert len(kinds) in (1, count), "one type, or one for each offset"
            kinds = kinds * count if len(kinds) == 1 else kinds
            for offset, kind in zip(
                range(batch.first_offset, batch.last_offset + 1), kinds, strict=True
            ):
                assert offset not in types, "an offset twice"
                types[offset] = kind
        assert renew == (4 in types.values()), "renewals are announced"
        finished = (ACKNOWLEDGED, ARCHIVED)
        start = next(
            (n for n, each in enumerate(records) if each.state not in finished), len(records)
        )
        types = {offset: kind for offset, kind in types.items() if offset >= start}
        for offset, kind in types.items():
            record = records[offset]
            if record.state != ACQUIRED or record.member != member:
                return ErrorCode.INVALID_RECORD_STATE
            if kind == 4 and not self.renews:
                return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in types.items():
            record = records[offset]
            if kind == 1:
                record.state = ACKNOWLEDGED
            elif kind == 2:
                self._free(record)
            elif kind == 4:
                record.lock_until_ms = self.now_ms + self.lock_ms
            else:
                record.state = ARCHIVED
            if kind != 4:
                record.member = None
        return ErrorCode.NONE


def encoded(first: int, values: list[bytes | None]) -> bytes:
    """A batch with a record for each value that is not None."""
    whole = simple_batch([(None, value) for value in values], 0, base_offset=first)
    header = read_header(whole)
    records = [each for each in read_records(whole, 0, header) if each.value is not None]
    return bytes(whole if len(records) == len(values) else rewrite_batch(header, records))
