"""The acquired records with their locks: those that the application has, and those whose
acknowledgements are in flight.

The lock of a record in `async with record` is renewed when half of its time has passed. The
renewals end when the record has been handled for max.poll.interval.ms, so that a handler that hangs
does not keep a record for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek_client.errors import OdradekError
from odradek_client.share.acknowledgements import AcknowledgeType, TopicIdPartition, Types
from odradek_client.share.errors import LockExpired
from odradek_client.share.record import DeliveryState, ShareRecord
from odradek_protocol.errors import ErrorCode

_NEVER = float("inf")

Place = tuple[TopicIdPartition, int]


class HeldRecords:
    """The records that were returned to the application and have no final result.

    `on_result(record)` is called for each record with a result. `on_renewals_refused(error)` is
    called once, if the group does not renew locks.
    """

    def __init__(self, renew_locks: bool, handling_max_ms: float, answer_grace_ms: float) -> None:
        self._records: dict[Place, ShareRecord] = {}
        self._renew_locks = renew_locks
        self._handling_max_ms = handling_max_ms
        self._answer_grace_ms = answer_grace_ms
        self._handled: dict[Place, ShareRecord] = {}
        self._ever_renewed = False
        #: The earliest time at which a lock may expire; no check is needed before.
        self._next_expiry_ms = _NEVER
        #: The number of records that the application has not acknowledged, and whose locks have not
        #: expired.
        self.unanswered = 0
        self.on_result: Callable[[ShareRecord], None] = lambda record: None
        self.on_renewals_refused: Callable[[OdradekError], None] = lambda error: None

    def add(self, record: ShareRecord) -> None:
        self.lent_again(record.place, record.offset)
        self._records[(record.place, record.offset)] = record
        self._next_expiry_ms = min(self._next_expiry_ms, record.deadline_ms)
        self.unanswered += 1

    def lent_again(self, partition: TopicIdPartition, offset: int) -> None:
        """Called when a record was acquired again, which means that its lock from an earlier
        acquisition has expired."""
        before = self._records.get((partition, offset))
        if before is not None:
            self._end(before, LockExpired(before.topic_partition, offset))

    def unhandled(self) -> Iterator[ShareRecord]:
        """The records that the application has not acknowledged, except those that it is handling
        in `async with`."""
        for record in list(self._records.values()):
            if record.state is DeliveryState.ACQUIRED and not record.is_handled:
                yield record

    @property
    def handling(self) -> bool:
        """True while the application handles a record in `async with`."""
        return bool(self._handled)

    def end_all(self, error: OdradekError) -> None:
        """End all records, because the consumer is closed."""
        for record in list(self._records.values()):
            self._end(record, error)

    def end_lent_by(
        self, node_id: int, error_for: Callable[[TopicIdPartition], OdradekError]
    ) -> None:
        """End all records that were acquired from a node."""
        for record in list(self._records.values()):
            if record.node_id == node_id:
                self._end(record, error_for(record.place))

    def answers_on_their_way(self) -> list[ShareRecord]:
        """The acknowledged records whose result is not known yet."""
        return [each for each in self._records.values() if each.state is DeliveryState.ANSWERED]

    # --- results ----------------------------------------------------------------------------------

    def answered(self, record: ShareRecord) -> None:
        """Called when the application has acknowledged a record."""
        if record.state is DeliveryState.ACQUIRED:
            self.unanswered -= 1
            self._handled.pop((record.place, record.offset), None)
            record.step(DeliveryState.ANSWERED)

    def finish(self, partition: TopicIdPartition, offset: int, error: OdradekError | None) -> None:
        """Note the result of an acknowledgement. If no record with this offset is held, the offset
        is a gap, or the record was never returned to the application."""
        record = self._records.get((partition, offset))
        if record is not None and record.state is DeliveryState.ANSWERED:
            self._end(record, error)

    def _end(self, record: ShareRecord, error: OdradekError | None) -> None:
        if record.state is DeliveryState.ACQUIRED:
            self.unanswered -= 1
        self._records.pop((record.place, record.offset), None)
        self._handled.pop((record.place, record.offset), None)
        record.step(DeliveryState.DONE if error is None else DeliveryState.FAILED, error)
        self.on_result(record)

    def expire(self, now_ms: float) -> list[ShareRecord]:
        """End and return the records whose locks have expired. A record that the application has
        not acknowledged ends immediately. An acknowledged record ends after a further request
        timeout without an answer of the broker."""
        if now_ms < self._next_expiry_ms:
            return []
        expired = [each for each in self._records.values() if self._expires_at_ms(each) <= now_ms]
        for record in expired:
            self._end(record, LockExpired(record.topic_partition, record.offset))
        self._next_expiry_ms = min(map(self._expires_at_ms, self._records.values()), default=_NEVER)
        return expired

    def _expires_at_ms(self, record: ShareRecord) -> float:
        grace_ms = 0.0 if record.state is DeliveryState.ACQUIRED else self._answer_grace_ms
        return record.deadline_ms + grace_ms

    def still_locked(self, partition: TopicIdPartition, types: Types, now_ms: float) -> Types:
        """The acknowledgements that may be sent again, because the locks of their records have not
        expired. Records with an expired lock end."""
        kept: Types = {}
        for offset, kind in types.items():
            record = self._records.get((partition, offset))
            if record is None:
                continue
            if record.deadline_ms > now_ms:
                kept[offset] = kind
            elif kind != AcknowledgeType.RENEW:
                self.finish(partition, offset, LockExpired(record.topic_partition, offset))
        return kept

    # --- renewal ----------------------------------------------------------------------------------

    def begin_handling(self, record: ShareRecord, now_ms: float) -> None:
        """Renew the lock of a record from now on, until `end_handling`."""
        if record.state is DeliveryState.ACQUIRED:
            record.handled_since_ms = now_ms
            record.renew_at_ms = now_ms + (record.deadline_ms - now_ms) / 2
            self._handled[(record.place, record.offset)] = record

    def end_handling(self, record: ShareRecord) -> None:
        """Undo `begin_handling`."""
        self._handled.pop((record.place, record.offset), None)

    def to_renew(self, now_ms: float) -> list[ShareRecord]:
        """The records whose locks must be renewed now. A record is not returned again until its
        renewal has a result."""
        if not self._renew_locks:
            return []
        found = [
            record
            for record in self._handled.values()
            if record.renew_at_ms <= now_ms
            and now_ms - (record.handled_since_ms or 0) < self._handling_max_ms
        ]
        for record in found:
            # At most one renewal of a record is in flight.
            record.renew_at_ms = _NEVER
        return found

    def renewed(
        self, partition: TopicIdPartition, offset: int, now_ms: float, deadline_ms: float
    ) -> None:
        """Called when a lock was renewed."""
        self._ever_renewed = True
        record = self._records.get((partition, offset))
        if record is not None and record.state is DeliveryState.ACQUIRED:
            record.deadline_ms = deadline_ms
            record.renew_at_ms = now_ms + (deadline_ms - now_ms) / 2

    def not_renewed(
        self, partition: TopicIdPartition, offset: int, error: OdradekError, now_ms: float
    ) -> None:
        """Called when a renewal has failed. The renewal is repeated until the lock expires, unless
        the broker has refused it. If the broker does not renew locks at all, no more renewals are
        sent for any record."""
        record = self._records.get((partition, offset))
        if record is None or record.state is not DeliveryState.ACQUIRED:
            return
        if error.code is not ErrorCode.INVALID_RECORD_STATE:
            record.renew_at_ms = now_ms + (record.deadline_ms - now_ms) / 2
        elif not self._ever_renewed and self._renew_locks:
            self._renew_locks = False
            self.on_renewals_refused(error)

    def wake_at_ms(self) -> float | None:
        """The time of the next renewal or expiry; None if there is none."""
        times = [self._next_expiry_ms] if self._records else []
        if self._renew_locks:
            times += [
                record.renew_at_ms
                for record in self._handled.values()
                if record.renew_at_ms < (record.handled_since_ms or 0) + self._handling_max_ms
            ]
        return min(times, default=None)
