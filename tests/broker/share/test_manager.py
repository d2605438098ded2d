"""Share partitions of a leader: loading, storing, fencing, waiting fetches, expiring locks."""

from __future__ import annotations

import pytest

from logs import append, make_batch
from many_cases import looped
from odradek_broker import slices
from odradek_broker.share.manager import AcknowledgementOutcome
from odradek_broker.share_state import ShareState, StateBatch
from odradek_broker.storage.log_config import AppendOrigin
from odradek_broker.storage.validation import AT_ONCE_BYTES
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from share_world import ACCEPT, KEY, REJECT, RELEASE, RENEW, ShareWorld, acquired, error_of

E = ErrorCode
LOCK_MS = 30_000


def test_h168_a_group_begins_at_the_offset_of_its_reset_setting() -> None:
    for reset, first in (("latest", 20), ("earliest", 10)):
        world = ShareWorld(reset=reset)
        world.produce(10)
        world.produce(10)
        world.delete_records(10)
        assert world.acquired() == ([] if reset == "latest" else [(10, 19, 1)])
        world.produce(5)
        assert world.acquired("b") == [(20, 24, 1)], (reset, first)


def test_h168_a_group_begins_with_the_records_of_a_duration() -> None:
    now_ms = ShareWorld().clock.wall_ms()
    for ago_ms, expected in ((3_600_000, [(10, 19, 1)]), (60_000, [])):
        world = ShareWorld(reset="by_duration:PT1H" if ago_ms > 60_000 else "by_duration:PT1M")
        world.produce(10, timestamp=now_ms - 7_200_000)
        world.produce(10, timestamp=now_ms - 1_800_000)
        assert world.acquired() == expected


def test_h168_a_stored_start_offset_overrides_the_reset_setting() -> None:
    world = ShareWorld(reset="latest")
    world.states.states[KEY] = ShareState(1, 3, 0, 4, 0, (StateBatch(6, 7, 2, 1),))
    world.produce(10)
    assert world.acquired() == [(4, 5, 1), (8, 9, 1)]


def test_h170_a_fetch_waits_for_the_load_of_the_share_state() -> None:
    world = ShareWorld()
    world.produce(10)
    world.states.hold = True
    first, second = world.fetch(wait_ms=500), world.fetch("b", wait_ms=500)
    assert not first.done
    world.states.flush()
    assert acquired(first) == [(0, 9, 1)]
    world.pass_time(500)
    assert acquired(second) == []
    assert len(world.leader) == 1


def test_h170_a_load_that_finds_the_thread_busy_is_tried_again_by_the_next_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Java's share consumer fails at the error that producers get."""
    world = ShareWorld(reset="by_duration:PT1H")
    batch = make_batch(
        2, value=bytes(AT_ONCE_BYTES), codec=Codec.ZSTD, timestamp=world.clock.wall_ms()
    )
    append(world.the_partition.log, batch, origin=AppendOrigin.COORDINATOR)
    with monkeypatch.context() as busy:
        busy.setattr(slices, "BESIDE_MAX", 0)
        assert error_of(world.fetch()) is E.OFFSET_NOT_AVAILABLE
    assert world.acquired() == [(0, 1, 1)]


@looped(
    "stored, told",
    [
        (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE),
        (E.GROUP_ID_NOT_FOUND, E.GROUP_ID_NOT_FOUND),
        (E.FENCED_LEADER_EPOCH, E.NOT_LEADER_OR_FOLLOWER),
        (E.CORRUPT_MESSAGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_h170_a_load_that_fails_is_tried_again_by_the_next_fetch(
    stored: ErrorCode, told: ErrorCode
) -> None:
    world = ShareWorld()
    world.produce(10)
    world.states.error, world.states.hold = stored, True
    waiting = world.fetch(wait_ms=500)
    world.states.flush()
    assert error_of(waiting) is told
    world.states.error, world.states.hold = E.NONE, False
    assert world.acquired() == [(0, 9, 1)]


def test_h170_an_impossible_stored_state_makes_a_fetch_fail() -> None:
    world = ShareWorld()
    world.states.states[KEY] = ShareState(1, 3, 0, 9, 0, (StateBatch(6, 7, 2, 1),))
    assert error_of(world.fetch()) is E.UNKNOWN_SERVER_ERROR


def test_h171_a_deleted_topic_answers_waiting_fetches() -> None:
    world = ShareWorld()
    waiting = world.fetch(wait_ms=500)
    world.delete_topic()
    assert error_of(waiting) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert world.acknowledge(0, 9, ACCEPT).result().error is E.UNKNOWN_TOPIC_OR_PARTITION
    assert len(world.leader) == 0


def test_h171_a_failed_disk_answers_waiting_fetches() -> None:
    world = ShareWorld()
    waiting = world.fetch(wait_ms=500)
    world.the_partition.log.take_offline("broken")
    assert error_of(waiting) is E.KAFKA_STORAGE_ERROR
    assert error_of(world.fetch()) is E.KAFKA_STORAGE_ERROR


def test_h171_another_leader_epoch_loads_the_state_again() -> None:
    world = ShareWorld()
    world.produce(10)
    world.acquired()
    world.the_partition.leader_epoch = 1
    assert world.acquired("b") == [(0, 9, 1)], "acquired is forgotten, like after a restart"
    assert world.acknowledge(0, 9, ACCEPT).result().error is E.INVALID_RECORD_STATE


def test_h172_an_acknowledgement_is_answered_when_it_is_durable() -> None:
    world = ShareWorld()
    world.produce(10)
    world.acquired()
    world.states.hold = True
    answer = world.acknowledge(0, 9, REJECT)
    assert not answer.done
    world.states.flush()
    assert answer.result() == AcknowledgementOutcome()
    assert world.states.writes == [(0, (StateBatch(0, 9, 4, 1),))]


def test_h159_an_acknowledgement_that_cannot_be_stored_is_an_error() -> None:
    world = ShareWorld()
    world.produce(10)
    world.acquired()
    world.states.error = E.COORDINATOR_NOT_AVAILABLE
    told = AcknowledgementOutcome(E.COORDINATOR_NOT_AVAILABLE, "not written")
    assert world.acknowledge(0, 9, ACCEPT).result() == told
    world.states.error = E.NONE
    assert world.acquired("b") == []
    assert world.acknowledge(0, 9, ACCEPT).result() == AcknowledgementOutcome()


def test_h171_a_fenced_write_loads_the_state_again() -> None:
    world = ShareWorld()
    world.produce(10)
    world.acquired()
    world.states.error = E.FENCED_STATE_EPOCH
    assert world.acknowledge(0, 9, ACCEPT).result().error is E.NOT_LEADER_OR_FOLLOWER
    world.states.error = E.NONE
    assert world.acquired("b") == [(0, 9, 1)]


def test_h172_a_restart_serves_only_stored_acknowledgements() -> None:
    world = ShareWorld()
    world.produce(10)
    world.produce(10)
    world.acquired()
    world.acknowledge(0, 4, ACCEPT)
    world.acknowledge(5, 7, RELEASE)
    world.states.hold = True
    lost = world.acknowledge(10, 19, ACCEPT)
    assert not lost.done
    world.states.hold = False
    world.start()
    # The member that accepted 10 to 19 got no answer before the restart.
    assert world.acquired("b") == [(5, 7, 2), (8, 19, 1)]


def test_h173_a_fetch_waits_for_records() -> None:
    world = ShareWorld()
    waiting = world.fetch(wait_ms=500)
    assert not waiting.done
    world.produce(10)
    assert acquired(waiting) == [(0, 9, 1)]


def test_h173_a_fetch_waits_if_the_log_ends_before_the_start_offset() -> None:
    """With page-cache durability, a power cut can remove records although their share state is
    stored."""
    world = ShareWorld()
    world.states.states[KEY] = ShareState(1, 3, 0, 15, 0)
    world.produce(10)
    waiting = world.fetch(wait_ms=500)
    assert not waiting.done, "an answer without records would be asked for again at once"
    world.pass_time(500)
    assert acquired(waiting) == []
    world.produce(10)
    assert world.acquired() == [(15, 19, 1)]


def test_h173_a_fetch_waits_for_min_bytes() -> None:
    world = ShareWorld()
    world.produce(1)
    one = len(world.fetch("x").result()[0][1].records)
    world.acknowledge(0, 0, RELEASE, "x")
    waiting = world.fetch(wait_ms=500, min_bytes=one + 1)
    assert not waiting.done
    world.produce(1)
    assert acquired(waiting) == [(0, 0, 2), (1, 1, 1)]


def test_h173_a_fetch_ends_with_its_wait_time() -> None:
    world = ShareWorld()
    world.produce(1)
    waiting = world.fetch(wait_ms=500, min_bytes=100_000)
    world.pass_time(499)
    assert not waiting.done
    world.pass_time(1)
    assert acquired(waiting) == [(0, 0, 1)]


def test_h173_released_records_wake_a_fetch() -> None:
    world = ShareWorld()
    world.produce(10)
    world.acquired()
    waiting = world.fetch("b", wait_ms=500)
    world.states.hold = True
    world.acknowledge(3, 5, RELEASE)
    assert not waiting.done, "the release is not durable"
    world.states.flush()
    assert acquired(waiting) == [(3, 5, 2)]


def test_h160_expired_locks_wake_a_fetch_before_they_are_stored() -> None:
    world = ShareWorld()
    world.produce(10)
    world.acquired()
    waiting = world.fetch("b", wait_ms=LOCK_MS * 2)
    world.states.hold = True
    world.pass_time(LOCK_MS - 1)
    assert not waiting.done
    world.pass_time(1)
    assert acquired(waiting) == [(0, 9, 2)]
    world.states.flush()
    assert world.states.writes == [(0, (StateBatch(0, 9, 0, 1),))]


def test_h160_the_timer_follows_a_renewed_lock() -> None:
    world = ShareWorld()
    world.produce(10)
    world.acquired()
    world.pass_time(LOCK_MS - 1)
    assert world.acknowledge(0, 9, RENEW).result() == AcknowledgementOutcome()
    world.pass_time(LOCK_MS - 1)
    assert world.acquired("b") == []
    world.pass_time(1)
    assert world.acquired("b") == [(0, 9, 2)]


def test_h160_a_record_archived_by_its_last_lock_makes_room_for_others() -> None:
    world = ShareWorld()
    world.settings = world.settings._replace(delivery_count_limit=2, max_record_locks=10)
    world.produce(10)
    world.produce(10)
    assert world.acquired(max_records=10) == [(0, 9, 1)]
    world.pass_time(LOCK_MS)
    assert world.acquired(max_records=10) == [(0, 9, 2)]
    waiting = world.fetch("b", wait_ms=LOCK_MS * 2, max_records=10)
    world.pass_time(LOCK_MS)
    assert acquired(waiting) == [(10, 19, 1)]


def test_h159_a_lock_that_a_failed_write_restores_still_expires() -> None:
    world = ShareWorld()
    world.produce(10)
    world.produce(10)
    world.acquired(max_records=10)
    world.pass_time(1_000)
    assert world.acquired() == [(10, 19, 1)]
    world.states.hold = True
    answer = world.acknowledge(10, 19, ACCEPT)
    world.pass_time(LOCK_MS - 1_000)  # the lock on the first ten records expires
    world.states.error = E.COORDINATOR_NOT_AVAILABLE
    world.states.flush()
    assert answer.result().error is E.COORDINATOR_NOT_AVAILABLE
    world.states.error, world.states.hold = E.NONE, False
    assert world.acquired("b") == [(0, 9, 2)]
    world.acknowledge(0, 9, ACCEPT, "b")
    waiting = world.fetch("b", wait_ms=LOCK_MS)
    world.pass_time(1_000)
    assert acquired(waiting) == [(10, 19, 2)]


def test_h154_a_fetch_at_the_limit_of_locks_waits() -> None:
    world = ShareWorld()
    world.settings = world.settings._replace(max_record_locks=10)
    world.produce(10)
    world.produce(10)
    world.acquired(max_records=10)
    waiting = world.fetch("b", wait_ms=500)
    assert not waiting.done
    world.acknowledge(0, 9, ACCEPT)
    assert acquired(waiting) == [(10, 19, 1)]


def test_h174_changed_settings_apply_to_later_fetches() -> None:
    world = ShareWorld()
    world.produce(10)
    world.produce(10)
    world.settings = world.settings._replace(record_lock_duration_ms=5_000)
    assert world.acquired(max_records=10) == [(0, 9, 1)]
    world.settings = world.settings._replace(record_lock_duration_ms=1_000, renew=False)
    assert world.acquired("b") == [(10, 19, 1)]
    assert world.acknowledge(0, 9, RENEW).result().error is E.INVALID_RECORD_STATE
    world.pass_time(1_000)
    assert world.acquired("c") == [(10, 19, 2)]


def test_h175_a_fetch_is_limited_by_bytes_and_records() -> None:
    world = ShareWorld()
    world.produce(10)
    world.produce(10)
    assert world.acquired(max_bytes=1) == [(0, 9, 1)], "the first batch is never too large"
    assert world.acquired(max_bytes=0) == []
    assert world.acquired(max_records=0) == []


def test_h175_the_answer_has_only_the_batches_of_acquired_records() -> None:
    world = ShareWorld()
    for _ in range(4):
        world.produce(10)
    ((_, whole),) = world.fetch().result()
    world.acknowledge(10, 29, RELEASE)
    ((_, part),) = world.fetch("b").result()
    assert whole.records[len(whole.records) // 4 : len(whole.records) // 4 * 3] == part.records
    assert [tuple(each) for each in part.acquired] == [(10, 29, 2)]


def test_h176_a_fetch_below_the_log_start_continues_at_the_log_start() -> None:
    world = ShareWorld()
    world.produce(10)
    world.produce(10)
    world.acquired(max_records=10)
    world.acknowledge(0, 9, RELEASE)
    world.delete_records(10)
    assert world.acquired() == [], "the answer is empty, without an error"
    assert world.acquired() == [(10, 19, 1)]


def test_h167_an_open_transaction_holds_back_a_read_committed_group() -> None:
    world = ShareWorld()
    world.settings = world.settings._replace(committed=True)
    world.produce(10)
    world.produce(10, producer_id=7, transactional=True)
    world.produce(10)
    assert world.acquired() == [(0, 9, 1)]
    waiting = world.fetch("b", wait_ms=500)
    assert not waiting.done
    world.end_transaction(7, commit=False)
    # The aborted records are not acquired. The marker is acquired, and the client passes over it.
    assert acquired(waiting) == [(20, 30, 1)]


def test_h167_a_read_uncommitted_group_does_not_wait_for_transactions() -> None:
    world = ShareWorld()
    world.produce(10, producer_id=7, transactional=True)
    assert world.acquired() == [(0, 9, 1)]


def test_n10_an_abandoned_fetch_acquires_nothing() -> None:
    world = ShareWorld()
    waiting = world.fetch(wait_ms=500)
    waiting.abandon()
    world.produce(10)
    assert not waiting.done
    assert not world.the_partition.data_waiters
    assert world.acquired("b") == [(0, 9, 1)]
