"""The events that a leader of share partitions reports to its observer, and their counters."""

from __future__ import annotations

from typing import TypeVar

from odradek_broker.share import statistics
from odradek_broker.share.acquisition import Acquired
from odradek_broker.share.events import (
    AcknowledgementsRefused,
    Dropped,
    Loaded,
    LocksExpired,
    LogStartMoved,
    NothingAcquired,
    NothingReason,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsRemoved,
    RecordsReturned,
    SessionEnd,
    archived_by,
)
from odradek_broker.share.in_flight import ArchiveReason, Removed
from odradek_broker.share.share_partition import AcknowledgeType, ShareAcknowledgementBatch
from odradek_broker.share.statistics import ShareStatistics
from odradek_broker.share_state import ShareKey, StateBatch
from odradek_protocol.errors import ErrorCode
from share_world import ACCEPT, ASKED, GAP, GROUP, KEY, REJECT, RELEASE, RENEW, ShareWorld

E = ErrorCode
LOCK_MS = 30_000
T = TypeVar("T")


def told(world: ShareWorld, kind: type[T]) -> list[T]:
    """The events of a kind, oldest first."""
    return [each for each in world.events if isinstance(each, kind)]


def archived(world: ShareWorld) -> dict[str, int]:
    return dict(world.leader.statistics.partitions[KEY].archived)


def test_h240_each_acquisition_and_acknowledgement_has_one_event() -> None:
    world = ShareWorld()
    world.produce(500)
    world.acquired()
    world.acknowledge(0, 499, ACCEPT)
    loaded, acquired, accepted = world.events
    assert isinstance(loaded, Loaded) and loaded.start_offset == 0
    assert acquired == RecordsAcquired(KEY, "a", [Acquired(0, 499, 1)], LOCK_MS)
    assert accepted == RecordsAcknowledged(
        KEY, "a", [ShareAcknowledgementBatch(0, 499, [ACCEPT])], [StateBatch(0, 499, 2, 1)], E.NONE
    )


def test_h240_an_acknowledgement_has_its_event_when_it_is_stored() -> None:
    world = ShareWorld()
    world.produce(10)
    world.acquired()
    world.states.hold = True
    world.acknowledge(0, 4, RELEASE)
    assert told(world, RecordsAcknowledged) == []
    world.states.error = E.COORDINATOR_NOT_AVAILABLE
    world.states.flush()
    (event,) = told(world, RecordsAcknowledged)
    assert event.error is E.COORDINATOR_NOT_AVAILABLE
    assert sum(world.leader.statistics.acknowledged) == 0


def test_h240_a_renewal_has_an_event_without_a_stored_state() -> None:
    world = ShareWorld()
    world.produce(10)
    world.acquired()
    world.acknowledge(0, 9, RENEW)
    (event,) = told(world, RecordsAcknowledged)
    assert (event.stored, event.acknowledgements[0].types) == ([], [RENEW])
    assert world.leader.statistics.acknowledged[AcknowledgeType.RENEW] == 10


def test_h240_a_late_acknowledgement_has_an_event_with_the_reason() -> None:
    world = ShareWorld()
    world.produce(10)
    world.acquired()
    world.pass_time(LOCK_MS)
    world.acknowledge(0, 9, ACCEPT)
    (expired,) = told(world, LocksExpired)
    assert expired.stored == [StateBatch(0, 9, 0, 1)]
    (refused,) = told(world, AcknowledgementsRefused)
    assert refused.error is E.INVALID_RECORD_STATE and "acquired state" in refused.message
    assert world.leader.statistics.partitions[KEY].locks_expired == 10


def test_h240_the_end_of_a_session_has_an_event_with_its_cause() -> None:
    world = ShareWorld()
    world.produce(10)
    for member, connection in (("a", 1), ("b", 2)):
        world.sessions.plan(
            GROUP,
            member,
            0,
            {ASKED: world.sessions.named(ASKED, 0)},
            [],
            connection,
            acknowledges=False,
        )
    world.acquired("a")
    world.sessions.close(GROUP, "a")
    world.acquired("b")
    world.sessions.connection_closed(2)
    returned = [(each.member_id, each.end) for each in told(world, RecordsReturned)]
    assert returned == [("a", SessionEnd.CLOSED), ("b", SessionEnd.DISCONNECTED)]
    (dropped,) = told(world, Dropped)
    assert dropped.key == KEY


def test_h240_the_end_of_a_session_without_records_has_no_event() -> None:
    world = ShareWorld()
    world.produce(10)
    world.sessions.plan(
        GROUP, "a", 0, {ASKED: world.sessions.named(ASKED, 0)}, [], 1, acknowledges=False
    )
    world.sessions.plan(
        GROUP, "b", 0, {ASKED: world.sessions.named(ASKED, 0)}, [], 1, acknowledges=False
    )
    world.acquired("a")
    world.sessions.close(GROUP, "b")
    assert told(world, RecordsReturned) == []


def test_h240_aborted_and_deleted_records_have_events() -> None:
    world = ShareWorld()
    world.settings = world.settings._replace(committed=True)
    world.produce(10)
    world.produce(5, producer_id=7, transactional=True)
    world.end_transaction(7, commit=False)
    world.acquired()
    assert [each.removed for each in told(world, RecordsRemoved)] == [
        Removed(10, 14, ArchiveReason.ABORTED)
    ]
    world.acknowledge(0, 4, RELEASE)
    world.delete_records(3)
    world.acquired()
    assert told(world, LogStartMoved) == [LogStartMoved(KEY, 0, 3)]
    assert told(world, RecordsRemoved)[1].removed == Removed(0, 2, ArchiveReason.LOG_START)
    assert archived(world) == {"aborted": 5, "log_start": 3}


def test_h241_an_empty_fetch_at_the_limit_of_locks_has_its_reason() -> None:
    world = ShareWorld()
    world.settings = world.settings._replace(max_record_locks=10)
    world.produce(10)
    world.acquired()
    assert world.acquired("b") == []
    world.produce(10)
    assert world.acquired("b") == []
    assert told(world, NothingAcquired) == [
        NothingAcquired(KEY, "b", NothingReason.LOCKED),
        NothingAcquired(KEY, "b", NothingReason.LOCKS_USED_UP),
    ]
    counted = world.leader.statistics.partitions[KEY].empty_fetches
    assert counted == {NothingReason.LOCKED: 1, NothingReason.LOCKS_USED_UP: 1}


def test_h241_an_empty_fetch_of_paused_records_has_its_reason() -> None:
    world = ShareWorld()
    world.settings = world.settings._replace(redelivery_delay_ms=1_000)
    world.produce(10)
    world.acquired()
    world.acknowledge(0, 4, RELEASE)
    assert world.acquired("b") == []
    assert told(world, NothingAcquired) == [NothingAcquired(KEY, "b", NothingReason.DELAYED)]


def test_h241_an_empty_fetch_without_records_has_no_event() -> None:
    world = ShareWorld()
    assert world.acquired() == []
    world.produce(10)
    world.acquired()
    world.acknowledge(0, 9, ACCEPT)
    assert world.acquired() == []
    assert world.acquired(max_records=0) == []
    assert told(world, NothingAcquired) == []


def test_h250_fetches_are_counted_with_their_fetchable_share_and_wait() -> None:
    world = ShareWorld()
    world.settings = world.settings._replace(max_record_locks=10)
    waiting = world.fetch(wait_ms=500)
    world.pass_time(200)
    world.produce(10)
    assert waiting.done
    counted = world.leader.statistics.groups[GROUP]
    assert (counted.fetches, counted.fetchable_percent, counted.waited_ms) == (1, 100, 200)
    world.fetch("b", wait_ms=500)
    world.pass_time(500)
    assert (counted.fetches, counted.fetchable_percent, counted.waited_ms) == (2, 100, 700)
    world.acquired(max_records=0)
    assert counted.fetches == 2


def test_h253_archived_records_are_counted_by_their_reason() -> None:
    world = ShareWorld()
    world.settings = world.settings._replace(delivery_count_limit=2)
    world.produce(10)
    world.acquired()
    world.acknowledge(0, 2, REJECT)
    world.acknowledge(3, 3, GAP)
    world.acknowledge(4, 9, RELEASE)
    world.acquired()
    world.acknowledge(4, 5, RELEASE)
    world.pass_time(LOCK_MS)
    assert archived(world) == {"rejected": 3, "gap": 1, "delivery_count": 6}
    counts = world.leader.statistics.acknowledged
    assert (counts[AcknowledgeType.REJECT], counts[AcknowledgeType.RELEASE]) == (3, 8)


def test_h253_each_offset_of_a_mixed_acknowledgement_has_its_reason() -> None:
    types = [ACCEPT, REJECT, REJECT, RELEASE, RELEASE, GAP]
    stored = [StateBatch(10, 10, 2, 5), StateBatch(11, 15, 4, 5)]
    found = archived_by([ShareAcknowledgementBatch(10, 15, types)], stored)
    assert found == {REJECT: 2, RELEASE: 2, GAP: 1}
    # Nothing is stored for the first three offsets, which are before the start offset.
    found = archived_by([ShareAcknowledgementBatch(10, 15, types)], [StateBatch(13, 15, 4, 5)])
    assert found == {RELEASE: 2, GAP: 1}


def test_h253_the_counters_of_the_oldest_share_partitions_are_dropped() -> None:
    counters = ShareStatistics()
    most = statistics.PARTITIONS_MAX
    keys = [ShareKey("g", bytes(16), number) for number in range(most + 1)]
    for key in (*keys[:most], keys[0], keys[most]):
        counters.count(NothingAcquired(key, "a", NothingReason.LOCKED))
    assert len(counters.partitions) == most
    assert keys[0] in counters.partitions and keys[1] not in counters.partitions
