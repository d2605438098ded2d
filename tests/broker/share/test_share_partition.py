"""The records of a share partition: acquired, acknowledged, released and passed over."""

from __future__ import annotations

import pytest

from handler_calls import finished
from many_cases import looped
from odradek_broker.share.acquisition import AcquisitionLimits, LogBatch, acquire
from odradek_broker.share.in_flight import (
    FINISHED,
    NEXT,
    IllegalStep,
    InFlightRun,
    RecordState,
    ShareLimits,
    StateChange,
)
from odradek_broker.share.share_partition import (
    AcknowledgementRefused,
    InvalidState,
    ShareAcknowledgementBatch,
    SharePartition,
)
from odradek_broker.share_state import StateBatch
from odradek_protocol.errors import ErrorCode

E, S = ErrorCode, RecordState
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOCK_MS = 30_000
SETTINGS = ShareLimits(LOCK_MS, 5, 2000, renew=True)
NOT_ACQUIRED = "The batch cannot be acknowledged. The batch is not in the acquired state."


class World:
    """A share partition over a log, with a clock that the test controls."""

    def __init__(
        self,
        *batches: tuple[int, int],
        start: int = 0,
        settings: ShareLimits = SETTINGS,
        stored: list[StateBatch] | None = None,
    ) -> None:
        self.log = [LogBatch(first, last) for first, last in batches]
        self.aborted: list[LogBatch] = []
        self.settings = settings
        self.now_ms = 0
        self.partition = finished(SharePartition.restored(start, 0, stored or []))

    def fetch(
        self,
        member: str = "a",
        max_records: int = 500,
        *,
        batch_size: int = 500,
        strict: bool = False,
        batches_max: int = 100,
    ) -> list[tuple[int, int, int]]:
        """Fetch from the next offset on, like a broker; returns (first offset, last offset,
        delivery count)."""
        if not self.partition.may_acquire(self.settings):
            return []
        offset = self.partition.next_fetch_offset()
        read = [batch for batch in self.log if batch.last_offset >= offset][:batches_max]
        acquired: list[tuple[int, int, int]] = []
        acquired += acquire(
            self.partition,
            member,
            AcquisitionLimits(max_records, batch_size, strict),
            offset,
            read,
            [batch for batch in read if batch in self.aborted],
            self.now_ms,
            self.settings,
        )
        return acquired

    def begin(self, *acks: tuple[int, int, int | list[int]], member: str = "a") -> StateChange:
        """Acknowledge, but do not finish the write of the change."""
        return self.partition.acknowledge(
            member,
            [
                ShareAcknowledgementBatch(first, last, [types] if isinstance(types, int) else types)
                for first, last, types in acks
            ],
            self.now_ms,
            self.settings,
        )

    def acknowledge(
        self, *acks: tuple[int, int, int | list[int]], member: str = "a", durable: bool = True
    ) -> list[StateBatch]:
        """Acknowledge, and finish the write; returns the stored batches."""
        change = self.begin(*acks, member=member)
        self.partition.finish(change, durable=durable, now_ms=self.now_ms)
        return change.stored

    def release(self, member: str = "a") -> list[StateBatch]:
        change = self.partition.release(member, self.now_ms, self.settings)
        self.partition.finish(change, durable=True, now_ms=self.now_ms)
        return change.stored

    def expire(self, after_ms: int = LOCK_MS) -> list[StateBatch]:
        self.now_ms += after_ms
        stored = self.partition.apply_lock_expiry(self.now_ms, self.settings)
        self.partition.settle()
        return stored

    @property
    def offsets(self) -> tuple[int, int]:
        return self.partition.start_offset, self.partition.end_offset

    def refusal(
        self, *acks: tuple[int, int, int | list[int]], member: str = "a"
    ) -> tuple[ErrorCode, str]:
        """The error and the message of refused acknowledgements."""
        with pytest.raises(AcknowledgementRefused) as caught:
            self.begin(*acks, member=member)
        return caught.value.error, caught.value.message


def test_h150_a_record_takes_the_steps_of_the_table_only() -> None:
    assert {S.ACKNOWLEDGED, S.ARCHIVED} == FINISHED
    for before in S:
        for after in S:
            run = InFlightRun(0, 9, before, 1)
            if after in NEXT[before]:
                run.step(after)
                assert run.state is after
            else:
                with pytest.raises(IllegalStep):
                    run.step(after)


def test_h151_a_restart_makes_acquired_records_available_with_the_stored_count() -> None:
    world = World((0, 9), (10, 19), (20, 29))
    assert world.fetch() == [(0, 29, 1)]
    stored = world.acknowledge((0, 9, RELEASE), (20, 29, ACCEPT))
    assert stored == [StateBatch(0, 9, 0, 1), StateBatch(20, 29, 2, 1)]
    world.fetch()
    again = World((0, 9), (10, 19), (20, 29), stored=stored)
    # Nothing was stored for 10 to 19, so the delivery of these records is not counted.
    assert again.fetch() == [(0, 9, 2), (10, 19, 1)]
    assert again.offsets == (0, 29)
    again.acknowledge((0, 19, ACCEPT))
    assert again.offsets == (30, 30)


def test_h151_an_impossible_stored_state_is_refused() -> None:
    for stored in (
        [StateBatch(4, 9, 0, 1)],
        [StateBatch(9, 8, 0, 1)],
        [StateBatch(5, 9, 0, 1), StateBatch(9, 12, 0, 1)],
        [StateBatch(5, 9, 1, 1)],
    ):
        with pytest.raises(InvalidState):
            finished(SharePartition.restored(5, 0, stored))


def test_h152_a_fetch_acquires_whole_batches_up_to_the_record_limit() -> None:
    world = World((0, 9), (10, 19), (20, 29))
    assert world.fetch(max_records=12) == [(0, 19, 1)]
    assert world.fetch(max_records=1) == [(20, 29, 1)]
    assert world.fetch() == []
    assert world.offsets == (0, 29)


def test_h152_released_records_are_delivered_again_in_their_runs() -> None:
    world = World((0, 9), (10, 19))
    world.fetch()
    world.acknowledge((0, 19, [ACCEPT] * 3 + [RELEASE] * 7 + [ACCEPT] * 5 + [RELEASE] * 5))
    assert world.fetch("b") == [(3, 9, 2), (15, 19, 2)]


def test_h153_a_strict_record_limit_is_exact() -> None:
    world = World((0, 9), (10, 19))
    assert world.fetch(max_records=4, strict=True) == [(0, 3, 1)]
    # The limit holds for records that an earlier fetch has read, and for these and newly read
    # records together.
    assert world.fetch("b", max_records=4, strict=True) == [(4, 7, 1)]
    assert world.fetch("b", max_records=4, strict=True) == [(8, 9, 1), (10, 11, 1)]
    world.acknowledge((0, 3, ACCEPT))
    assert world.offsets == (4, 19)


def test_h154_no_new_records_are_acquired_at_the_limit_of_locks() -> None:
    world = World((0, 9), (10, 19), (20, 29), settings=SETTINGS._replace(max_record_locks=15))
    assert world.fetch() == [(0, 19, 1)]
    assert not world.partition.may_acquire(world.settings)
    world.acknowledge((5, 6, RELEASE))
    assert world.fetch() == [(5, 6, 2)]
    assert world.fetch() == []
    world.acknowledge((0, 19, ACCEPT))
    assert world.fetch() == [(20, 29, 1)]


def test_h155_new_records_are_cut_between_batches_of_the_log() -> None:
    world = World((0, 3), (4, 5), (6, 13), (14, 14))
    assert world.fetch(batch_size=5) == [(0, 5, 1), (6, 13, 1), (14, 14, 1)]
    world = World((0, 3), (4, 5), (6, 13))
    assert world.fetch(batch_size=0) == [(0, 3, 1), (4, 5, 1), (6, 13, 1)]


def test_h156_records_delivered_often_are_acquired_in_smaller_parts() -> None:
    world = World((0, 15), (16, 31), settings=SETTINGS._replace(delivery_count_limit=6))
    deliveries = []
    for _ in range(3):
        deliveries.append(world.fetch(batches_max=1))
        world.release()
    assert deliveries == [[(0, 15, 1)], [(0, 15, 2)], [(0, 15, 3)]]
    assert world.fetch() == [(0, 7, 4)]
    world.release()
    assert world.fetch() == [(0, 3, 5)]
    assert world.fetch("b") == [(4, 7, 5)], "a quarter, of those delivered four times"
    world.release()
    assert world.fetch() == [(0, 0, 6)], "the last delivery is alone"
    assert world.fetch() == [(1, 1, 6)]


def test_h156_a_limit_of_two_deliveries_never_splits_batches() -> None:
    world = World((0, 9), settings=SETTINGS._replace(delivery_count_limit=2))
    world.fetch()
    world.release()
    assert world.fetch() == [(0, 9, 2)]


def test_h156_a_batch_delivered_often_is_acquired_by_its_own_fetch() -> None:
    stored = [StateBatch(0, 9, 0, 1), StateBatch(10, 19, 0, 3)]
    world = World((0, 9), (10, 19), (20, 29), stored=stored)
    assert world.fetch() == [(0, 9, 2)]
    assert world.fetch() == [(10, 14, 4)]
    assert world.fetch() == [(15, 19, 4)]
    assert world.fetch() == [(20, 29, 1)]


def test_h157_a_release_at_the_delivery_limit_archives_the_record() -> None:
    world = World((0, 0), settings=SETTINGS._replace(delivery_count_limit=2))
    world.fetch()
    assert world.acknowledge((0, 0, RELEASE)) == [StateBatch(0, 0, 0, 1)]
    world.fetch()
    assert world.acknowledge((0, 0, RELEASE)) == [StateBatch(0, 0, 4, 2)]
    assert world.offsets == (1, 1)


def test_h157_a_lower_limit_allows_one_more_delivery() -> None:
    world = World((0, 0))
    for _ in range(3):
        world.fetch()
        world.release()
    world.settings = SETTINGS._replace(delivery_count_limit=2)
    assert world.fetch() == [(0, 0, 4)]
    assert world.expire() == [StateBatch(0, 0, 4, 4)]
    assert world.fetch() == []


@looped(
    "acks, expected",
    [
        (((0, 9, 5),), (E.INVALID_REQUEST, "Invalid acknowledge type: [5]")),
        (
            ((3, 4, ACCEPT),),
            (
                E.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            ),
        ),
        (
            ((30, 31, ACCEPT),),
            (
                E.INVALID_REQUEST,
                "Batch record not found. The first offset in request is past acquired records.",
            ),
        ),
        (
            ((10, 31, ACCEPT),),
            (
                E.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            ),
        ),
        (((20, 29, ACCEPT),), (E.INVALID_RECORD_STATE, "Member is not the owner of batch record")),
        (((15, 15, ACCEPT),), (E.INVALID_RECORD_STATE, NOT_ACQUIRED)),
        (
            ((11, 11, ACCEPT), (11, 11, ACCEPT)),
            (
                E.INVALID_RECORD_STATE,
                "The offset cannot be acknowledged. The offset is not acquired.",
            ),
        ),
    ],
)
def test_h158_an_invalid_acknowledgement_is_refused_with_its_reason(
    acks: tuple[tuple[int, int, int], ...], expected: tuple[ErrorCode, str]
) -> None:
    world = World((10, 14), (15, 19), (20, 29), start=10)
    world.fetch(batches_max=1)
    world.fetch("b", batches_max=1)
    world.fetch("c")
    world.acknowledge((15, 19, ACCEPT), member="b")
    if acks[0][0] < 10:
        world.partition.start_offset = 3
    assert world.refusal(*acks) == expected


def test_h158_each_offset_of_a_split_batch_needs_its_own_member() -> None:
    world = World((0, 9))
    world.fetch()
    world.acknowledge((0, 4, RELEASE))
    world.fetch("b")
    assert world.refusal((0, 4, ACCEPT)) == (
        E.INVALID_RECORD_STATE,
        "Member is not the owner of offset",
    )
    assert world.acknowledge((5, 9, ACCEPT)) == [StateBatch(5, 9, 2, 1)]


def test_h159_acknowledgements_of_a_partition_succeed_or_fail_together() -> None:
    world = World((0, 9), (10, 19))
    world.fetch()
    assert world.refusal((0, 4, ACCEPT), (5, 9, RELEASE), (20, 29, ACCEPT))[0] is E.INVALID_REQUEST
    assert world.fetch("b") == [], "nothing was released"
    assert world.acknowledge((0, 19, ACCEPT)) == [StateBatch(0, 19, 2, 1)]


def test_h159_records_cannot_be_acquired_or_acknowledged_during_a_write() -> None:
    world = World((0, 9), (10, 19))
    world.fetch(batches_max=1)
    change = world.begin((0, 9, RELEASE))
    assert world.refusal((0, 9, ACCEPT)) == (E.INVALID_RECORD_STATE, NOT_ACQUIRED)
    assert world.fetch("b") == [(10, 19, 1)]
    world.partition.finish(change, durable=True, now_ms=0)
    assert world.fetch("b") == [(0, 9, 2)]


def test_h159_a_failed_write_gives_the_records_back_to_their_member() -> None:
    world = World((0, 9))
    world.fetch()
    world.acknowledge((0, 4, ACCEPT), (5, 9, REJECT), durable=False)
    assert world.partition.completed == 0
    assert world.fetch("b") == []
    assert world.acknowledge((0, 9, ACCEPT)) == [StateBatch(0, 9, 2, 1)]


def test_h159_a_failed_write_after_the_lock_makes_the_records_available() -> None:
    world = World((0, 9))
    world.fetch()
    change = world.begin((0, 9, ACCEPT))
    assert world.expire() == [], "the write decides"
    world.partition.finish(change, durable=False, now_ms=world.now_ms)
    assert world.fetch("b") == [(0, 9, 2)]


def test_h160_a_lock_expires_after_its_duration_and_not_before() -> None:
    world = World((0, 9), (10, 19))
    world.fetch(batches_max=1)
    world.now_ms = 10
    world.fetch("b")
    assert world.expire(LOCK_MS - 11) == []
    assert world.expire(1) == [StateBatch(0, 9, 0, 1)]
    assert world.partition.next_deadline_ms == LOCK_MS + 10
    assert world.fetch("c") == [(0, 9, 2)]
    assert world.refusal((0, 9, ACCEPT))[1] == "Member is not the owner of batch record"
    assert world.expire(10) == [StateBatch(10, 19, 0, 1)]


def test_h161_a_renewal_restarts_the_lock() -> None:
    world = World((0, 9))
    world.fetch()
    world.now_ms = LOCK_MS - 1
    assert world.acknowledge((0, 4, RENEW)) == []
    assert world.expire(1) == [StateBatch(5, 9, 0, 1)]
    assert world.expire(LOCK_MS - 1) == [StateBatch(0, 4, 0, 1)]


def test_h161_a_renewal_must_be_enabled_for_the_group() -> None:
    world = World((0, 9), settings=SETTINGS._replace(renew=False))
    world.fetch()
    assert world.refusal((0, 9, RENEW)) == (
        E.INVALID_RECORD_STATE,
        "Renewing acquisition locks is not enabled for the group.",
    )


def test_h162_the_end_of_a_session_releases_its_records_as_delivered_once() -> None:
    world = World((0, 9), (10, 19))
    world.fetch(batches_max=1)
    world.fetch("b")
    assert world.release() == [StateBatch(0, 9, 0, 1)]
    assert world.fetch("b") == [(0, 9, 2)]
    assert world.acknowledge((0, 19, ACCEPT), member="b") == [
        StateBatch(0, 9, 2, 2),
        StateBatch(10, 19, 2, 1),
    ]


def test_h163_the_start_offset_passes_finished_records() -> None:
    world = World((0, 9), (10, 19))
    world.fetch(batch_size=10)
    world.acknowledge((10, 19, REJECT))
    assert (world.offsets, world.partition.completed) == ((0, 19), 10)
    world.acknowledge((0, 4, ACCEPT))
    assert (world.offsets, world.partition.completed) == ((5, 19), 10)
    world.acknowledge((5, 9, GAP))
    assert (world.offsets, world.partition.completed) == ((20, 20), 0)


def test_h164_gaps_after_a_restart_are_delivered_again() -> None:
    stored = [StateBatch(10, 14, 2, 1), StateBatch(20, 24, 4, 2)]
    world = World((5, 12), (13, 22), (23, 30), start=5, stored=stored)
    assert world.partition.next_fetch_offset() == 5
    assert world.fetch(max_records=1) == [(5, 9, 1)]
    assert world.fetch(max_records=1) == [(15, 19, 1)]
    assert world.fetch() == [(25, 30, 1)]
    world.acknowledge((5, 9, ACCEPT), (15, 19, ACCEPT))
    assert world.offsets == (25, 30)


def test_h164_a_gap_without_records_is_passed_over() -> None:
    stored = [StateBatch(10, 14, 2, 1), StateBatch(20, 24, 0, 2)]
    world = World((10, 14), (20, 24), start=5, stored=stored)
    # The log has no records from 15 to 19. The client will acknowledge these offsets as a gap.
    assert world.fetch() == [(15, 19, 1), (20, 24, 3)]
    assert world.offsets == (15, 24)
    world = World((10, 14), start=5, stored=[StateBatch(10, 14, 2, 1)])
    assert world.partition.next_fetch_offset() == 5
    assert world.fetch() == []
    assert world.offsets == (15, 15)


def test_h164_a_gap_at_the_limit_of_locks_is_passed_over() -> None:
    """The limit of locks is reached, and compaction has removed all records in flight."""
    stored = [StateBatch(0, 0, 0, 1), StateBatch(3, 9, 0, 1)]
    settings = SETTINGS._replace(max_record_locks=8)
    world = World((10, 10), stored=stored, settings=settings)
    assert world.fetch() == []
    assert world.fetch() == [(10, 10, 1)]


def test_h164_finished_records_after_a_gap_are_not_read_again() -> None:
    """A fetch that has room for only the finished records would return nothing, every time."""
    stored = [StateBatch(1, 2, 2, 1), StateBatch(3, 3, 0, 1)]
    world = World((0, 0), (1, 2), (3, 3), stored=stored)
    assert world.fetch(batches_max=1) == [(0, 0, 1)]
    world.acknowledge((0, 0, ACCEPT))
    assert world.offsets == (3, 3)
    assert world.partition.next_fetch_offset() == 3
    assert world.fetch(batches_max=1) == [(3, 3, 2)]


def test_h165_compacted_records_are_archived() -> None:
    world = World((0, 9), (10, 19), (20, 29))
    world.fetch(batch_size=10)
    world.release()
    del world.log[:2]
    assert world.fetch() == [(20, 29, 2)]
    assert world.offsets == (20, 29)


def test_h166_records_below_the_log_start_are_archived() -> None:
    world = World((0, 9), (10, 19), (20, 29))
    world.fetch(batch_size=10)
    change = world.begin((0, 9, RELEASE))
    world.partition.move_log_start(15)
    assert world.offsets == (15, 29)
    # After a failed change, records that the log no longer has do not become available.
    world.partition.finish(change, durable=False, now_ms=0)
    assert world.partition.next_fetch_offset() == 30
    assert world.acknowledge((0, 9, ACCEPT)) == []
    assert world.acknowledge((10, 16, ACCEPT)) == [StateBatch(15, 16, 2, 1)]
    assert world.expire() == [StateBatch(10, 14, 4, 1), StateBatch(17, 29, 0, 1)]
    assert world.offsets == (17, 29)


def test_h166_a_log_start_above_all_records_moves_both_offsets() -> None:
    world = World((0, 9))
    world.fetch()
    world.partition.move_log_start(50)
    assert world.offsets == (50, 50)
    world.expire()
    assert (world.offsets, world.partition.next_fetch_offset()) == ((50, 50), 50)
    world.partition.move_log_start(40)
    assert world.offsets == (50, 50)


def test_h167_aborted_records_are_archived() -> None:
    world = World((0, 9), (10, 19), (20, 20), (21, 25))
    world.aborted = [world.log[0], world.log[3]]
    assert world.fetch() == [(10, 20, 1)]
    assert world.offsets == (10, 25)
    world.acknowledge((10, 19, ACCEPT), (20, 20, GAP))
    assert world.offsets == (26, 26)


def test_h167_a_fetch_of_only_aborted_records_acquires_none_and_moves_on() -> None:
    world = World((0, 9))
    world.aborted = list(world.log)
    assert world.fetch() == []
    assert world.offsets == (10, 10)


def test_ten_thousand_records_in_flight_take_few_objects() -> None:
    """A batch is one run until a part of it changes, and equal neighbouring runs are merged
    again."""
    world = World((0, 9_999), settings=SETTINGS._replace(max_record_locks=20_000))
    world.fetch()
    (batch,) = world.partition.in_flight
    assert len(batch.runs) == 1
    for offset in range(1, 10_000, 2):
        world.acknowledge((offset, offset, ACCEPT))
    assert len(batch.runs) == 10_000
    for offset in range(0, 9_998, 2):
        world.acknowledge((offset, offset, ACCEPT))
    assert [(run.first, run.last) for run in batch.runs] == [
        (0, 9_997),
        (9_998, 9_998),
        (9_999, 9_999),
    ]
    world.acknowledge((9_998, 9_998, REJECT))
    assert world.offsets == (10_000, 10_000)
