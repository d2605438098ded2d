"""The pause before a redelivery: its length, its end, and the fetches that its end wakes."""

from __future__ import annotations

from odradek_broker.share.events import SessionEnd
from odradek_broker.share.in_flight import ShareLimits
from odradek_broker.share_state import StateBatch
from odradek_protocol.errors import ErrorCode
from share_world import ACCEPT, RELEASE, ShareWorld, acquired

LOCK_MS = 30_000


def _world(delay_ms: int = 1_000, most_ms: int = 60_000) -> ShareWorld:
    world = ShareWorld()
    world.settings = world.settings._replace(
        redelivery_delay_ms=delay_ms, redelivery_delay_max_ms=most_ms
    )
    world.produce(10)
    assert world.acquired() == [(0, 9, 1)]
    return world


def test_h200_the_redelivery_pause_doubles_up_to_its_maximum() -> None:
    settings = ShareLimits(30_000, 10, 2000, True, False, 1_000, 5_000)
    pauses = [settings.redelivery_pause_ms(count) for count in range(1, 6)]
    assert pauses == [1_000, 2_000, 4_000, 5_000, 5_000]
    assert settings._replace(redelivery_delay_max_ms=10).redelivery_pause_ms(3) == 1_000
    assert settings._replace(redelivery_delay_ms=0).redelivery_pause_ms(3) == 0


def test_h200_a_released_record_waits_for_its_pause_and_wakes_a_fetch() -> None:
    world = _world()
    world.acknowledge(3, 5, RELEASE)
    assert world.states.writes == [(0, (StateBatch(3, 5, 0, 1),))]
    waiting = world.fetch("b", wait_ms=5_000)
    world.pass_time(999)
    assert not waiting.done
    world.pass_time(1)
    assert acquired(waiting) == [(3, 5, 2)]
    world.acknowledge(3, 3, RELEASE, "b")
    world.pass_time(1_999)
    assert world.acquired() == [], "the pause has doubled"
    world.pass_time(1)
    assert world.acquired() == [(3, 3, 3)]


def test_h200_records_without_a_pause_do_not_wait() -> None:
    world = _world()
    world.acknowledge(0, 9, RELEASE)
    world.produce(5)
    assert world.acquired("b") == [(10, 14, 1)]
    world.acknowledge(10, 14, ACCEPT, "b")
    world.pass_time(1_000)
    assert world.acquired("b") == [(0, 9, 2)]


def test_h200_the_pause_of_an_expired_record_begins_when_its_lock_ends() -> None:
    world = _world()
    waiting = world.fetch("b", wait_ms=LOCK_MS * 2)
    world.pass_time(LOCK_MS + 999)
    assert not waiting.done
    world.pass_time(1)
    assert acquired(waiting) == [(0, 9, 2)]


def test_h200_records_of_an_ended_session_wait_for_their_pause() -> None:
    world = _world()
    world.leader.release("a", list(world.leader._keys_of["g"]), SessionEnd.CLOSED)
    assert world.acquired("b") == []
    world.pass_time(1_000)
    assert world.acquired("b") == [(0, 9, 2)]


def test_h200_a_pause_begins_only_if_the_release_is_stored() -> None:
    world = _world()
    world.states.hold = True
    world.states.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.acknowledge(0, 9, RELEASE)
    world.states.flush()
    world.states.hold, world.states.error = False, ErrorCode.NONE
    assert world.acknowledge(0, 9, ACCEPT).result().error is ErrorCode.NONE, "the member has it"


def test_h200_a_release_that_is_stored_late_is_due_at_once() -> None:
    world = _world()
    world.states.hold = True
    world.acknowledge(0, 9, RELEASE)
    waiting = world.fetch("b", wait_ms=5_000)
    world.pass_time(2_000)
    assert not waiting.done
    world.states.flush()
    world.pass_time(0)
    assert acquired(waiting) == [(0, 9, 2)]


def test_h201_a_restart_forgets_pauses() -> None:
    world = _world(3_600_000)
    world.acknowledge(0, 9, RELEASE)
    assert world.acquired("b") == []
    world.start()
    assert world.acquired("b") == [(0, 9, 2)]
