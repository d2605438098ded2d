"""The story of single records of share groups, from the events of their leader."""

from __future__ import annotations

from at_once import at_once
from odradek_broker.explain.sentences import sentence
from odradek_broker.explain.share_groups import state_of_share_partition, state_of_share_record
from odradek_broker.explain.share_records import ShareHistory
from odradek_broker.share.acquisition import Acquired
from odradek_broker.share.events import (
    DeadLettered,
    Loaded,
    NotDeadLettered,
    NothingAcquired,
    NothingReason,
    OffsetsReset,
    RecordsAcquired,
    SessionBegan,
)
from odradek_broker.share.in_flight import GivenUpBecause
from odradek_broker.share.share_partition import ShareAcknowledgementBatch
from odradek_broker.share_state import ShareKey, StateBatch
from odradek_protocol.errors import ErrorCode
from share_world import ACCEPT, ASKED, GAP, GROUP, KEY, REJECT, RELEASE, RENEW, ShareWorld

E = ErrorCode
A, B = (f"{member} of client client-{member} at 10.0.0.1" for member in "ab")
LOCK_MS = 30_000


class Told(ShareWorld):
    """A leader whose events are recorded in a history. The log has batches of ten records."""

    def __init__(self, **limits: int) -> None:
        super().__init__()
        self.history = ShareHistory(self.clock.wall_ms, **limits)
        self.produce(10)

    def note(self) -> None:
        """Record the events since the last call."""
        for event in self.events:
            self.history.record(event)
        self.events.clear()

    def began(self, member: str) -> None:
        self.history.record(SessionBegan(GROUP, member, f"client-{member}", "10.0.0.1"))

    def story(self, offset: int) -> list[str]:
        self.note()
        told = self.history.story(KEY, offset)
        for event in told:
            if event.error is not E.NONE:
                event.fields["error"] = event.error.name
        return [sentence(event.kind, event.fields) for event in told]

    def now(self, offset: int) -> str:
        led = self.leader.led(KEY)
        state = at_once(
            state_of_share_record(
                offset,
                self.the_partition.log,
                led,
                self.states.states.get(KEY),
                self.settings,
                self.clock.monotonic_ms(),
            )
        )
        return sentence(state.kind, state.fields)


def test_h243_the_deliveries_of_a_record_are_shown_with_members_and_reasons() -> None:
    world = Told()
    world.began("a")
    world.began("b")
    world.acquired("a")
    world.acknowledge(0, 9, RENEW, "a")
    world.acknowledge(3, 3, RELEASE, "a")
    world.acquired("b")
    world.acknowledge(3, 3, ACCEPT, "b")
    assert world.story(3) == [
        f"{A} acquired it: delivery 1, with a lock for 30.0 s; together with it offsets 0 to 9",
        f"{A} renewed the lock",
        f"{A} released it, so it is available again after delivery 1",
        f"{B} acquired it: delivery 2, again because a released it, with a lock for 30.0 s",
        f"{B} accepted it: it is finished",
    ]
    assert world.now(3) == "it was accepted, delivery 2"
    assert len(world.story(4)) == 2
    assert world.now(4) == "a has it, and its lock lasts 30.0 s more, delivery 1"


def test_h243_an_expired_lock_and_a_late_acknowledgement_are_shown() -> None:
    world = Told()
    world.began("a")
    world.acquired("a")
    world.pass_time(LOCK_MS)
    world.acquired("b")
    world.acknowledge(0, 9, ACCEPT, "a")
    story = world.story(5)
    assert story[1] == (f"the lock of {A} expired, so it is available again after delivery 1")
    assert "b acquired it: delivery 2, again because the lock of a expired," in story[2]
    assert story[3].startswith(
        "an answer of a of client client-a at 10.0.0.1 was refused with INVALID_RECORD_STATE: "
    )


def test_h243_the_end_of_a_members_session_is_shown() -> None:
    world = Told()
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
    story = world.story(0)
    assert story[1] == "a left and closed its session, so it is available again after delivery 1"
    assert "again because a left and closed its session," in story[2]
    assert story[3] == (
        "b lost its connection, which ended its session, so it is available again after delivery 2"
    )
    assert story[4].startswith("the leader forgot who has which record (no member has a session")
    assert (
        world.now(0) == "it is available to the next fetch, delivery 2; no member has a session now"
    )


def test_h243_an_acknowledgement_that_could_not_be_stored_is_shown() -> None:
    world = Told()
    world.acquired()
    world.states.error = E.COORDINATOR_NOT_AVAILABLE
    world.acknowledge(0, 9, ACCEPT)
    assert world.story(2)[1] == (
        "the acceptance by a could not be stored (COORDINATOR_NOT_AVAILABLE), and has had no effect"
    )


def test_h244_archived_records_are_shown_with_the_reason() -> None:
    world = Told()
    world.settings = world.settings._replace(delivery_count_limit=2)
    world.acquired()
    world.acknowledge(0, 0, REJECT)
    world.acknowledge(1, 1, GAP)
    world.acknowledge(2, 3, RELEASE)
    world.acquired("b")
    world.acknowledge(2, 2, RELEASE, "b")
    world.pass_time(LOCK_MS)
    assert world.story(0)[-1] == "a rejected it: it is archived, and is not delivered again"
    assert world.story(1)[-1].startswith("a acknowledged it as a gap: there is no record")
    assert world.story(2)[-1] == (
        "b released it after delivery 2, and share.delivery.count.limit allows no more: it is"
        " archived"
    )
    assert world.story(3)[-1].startswith("the lock of b expired after delivery 2, and share.")
    assert world.now(0) == "the group is done with it: its start offset is 4"


def test_h244_aborted_and_deleted_records_are_shown_as_archived() -> None:
    world = Told()
    world.settings = world.settings._replace(committed=True)
    world.produce(10, producer_id=7, transactional=True)
    world.end_transaction(7, commit=False)
    world.acquired()
    assert world.story(12) == [
        "it is archived: its transaction was aborted, and the group reads committed records"
    ]
    world.acknowledge(0, 1, RELEASE)
    world.delete_records(5)
    world.acquired()
    (removed, moved) = world.story(0)[-2:]
    assert removed == "it is archived: the log begins after it (retention, or deleted records)"
    assert moved == (
        "the group's start offset moved to offset 5, where the log begins: it is not delivered any"
        " more"
    )
    assert world.story(4)[-1].startswith("the group's start offset moved to offset 5,")
    assert world.now(4).endswith("; it is not in the log any more, which begins at 5")


def test_h244_dead_letters_of_a_record_are_shown() -> None:
    world = Told()
    reason = GivenUpBecause.REJECTED
    world.acquired()
    world.acknowledge(4, 6, REJECT)
    world.note()
    world.history.record(DeadLettered(KEY, 4, 5, 1, reason, "dlq", 2, 70))
    world.history.record(NotDeadLettered(KEY, 6, 6, 1, reason, "there is no topic dlq"))
    letter = world.history.story(KEY, 5)[-1]
    assert (letter.partitions, letter.fields) == ((("dlq", 2),), {"offset": 71})
    assert sentence(letter.kind, {**letter.fields, "partitions": ("dlq-2",)}) == (
        "it has a dead letter at offset 71 of dlq-2"
    )
    assert sentence(letter.kind, letter.fields) == "it has a dead letter at offset 71"
    assert world.story(6)[-1] == "it has no dead letter: there is no topic dlq"


def test_h244_a_reset_of_the_groups_offsets_is_shown() -> None:
    world = Told()
    world.acquired()
    world.note()
    world.history.record(OffsetsReset(KEY, 5))
    assert world.story(4)[-1] == (
        "an administrator reset the offsets of the group to offset 5: it is passed over"
    )
    assert world.story(5)[-1].endswith("offset 5: whatever became of it before, it is delivered")
    world.history.record(OffsetsReset(KEY, -1))
    assert world.story(4)[-1] == (
        "an administrator reset the offsets of the group: the group starts again where"
        " share.auto.offset.reset says"
    )
    world.start()
    world.acquired("b")
    again = "b acquired it: delivery 1, again because the offsets of the group were reset,"
    assert world.story(5)[-1].startswith(again)


def test_h244_the_stored_state_of_a_record_is_shown_after_a_load() -> None:
    world = Told()
    world.acquired()
    world.acknowledge(0, 1, ACCEPT)
    world.acknowledge(3, 3, RELEASE)
    world.acknowledge(5, 5, REJECT)
    world.start()
    world.acquired("b")
    loaded = "the leader loaded the stored state: "
    assert world.story(0)[-1] == f"{loaded}it was finished"
    assert world.story(5)[-1] == f"{loaded}it was archived, delivery 1"
    assert world.story(3)[-2:] == [
        f"{loaded}it is available again, delivery 1",
        "b acquired it: delivery 2, again because a released it, with a lock for 30.0 s",
    ]
    (stored, again) = world.story(4)[-2:]
    assert stored == f"{loaded}it is available: no delivery of it had ended"
    assert again == (
        "b acquired it: delivery 1, again because the leader no longer knew which member had it,"
        " with a lock for 30.0 s"
    )


def test_h242_a_full_history_drops_the_oldest_events_and_counts_them() -> None:
    world = Told(partition_events_max=5)
    for _ in range(4):
        world.acquired()
        world.acknowledge(0, 9, RELEASE)
        world.pass_time(1_000)
    assert len(world.story(0)) == 5
    about = world.history.about(KEY)
    assert about.dropped == 4, "the load, and the events of two deliveries but one"
    assert about.since_ms > world.history.started_ms
    assert world.story(0)[0].startswith("a released it")


def test_h242_the_bytes_of_all_share_partitions_events_are_limited() -> None:
    clock = ShareWorld().clock
    history = ShareHistory(clock.wall_ms, bytes_max=100_000)
    runs = [Acquired(2 * number, 2 * number, 1) for number in range(100)]
    for number in range(50):
        key = ShareKey("g", bytes(16), number)
        history.record(RecordsAcquired(key, "a", runs, LOCK_MS))
    assert 0 < history.size_bytes <= 100_000
    assert history.about(ShareKey("g", bytes(16), 0)).events == []
    assert history.about(ShareKey("g", bytes(16), 49)).events != []


def test_h242_a_load_of_many_batches_does_not_drop_other_events() -> None:
    world = Told()
    world.acquired()
    world.note()
    batches = [StateBatch(2 * number, 2 * number, 0, 1) for number in range(50_000)]
    other = ShareKey("other", KEY.topic_id, 0)
    world.history.record(Loaded(other, 0, batches, 5))
    assert len(world.story(0)) == 1
    assert world.history.size_bytes < 1_000_000
    notes = [world.history.story(other, at)[0].fields["note"] for at in (0, 99_998)]
    assert notes == ["it is available again", "what was stored of it is not kept"]


def test_h242_equal_empty_fetches_are_one_event() -> None:
    world = Told()
    for _ in range(3):
        world.history.record(NothingAcquired(KEY, "a", NothingReason.LOCKED))
    (entry,) = world.history.about(KEY).events
    assert entry.times == 3


def test_h242_acknowledge_types_are_kept_in_a_byte_for_each_offset() -> None:
    world = Told()
    world.acquired()
    types = [ACCEPT, REJECT, RELEASE, *[ACCEPT] * 7]
    at_once(world.leader.acknowledge(KEY, "a", [ShareAcknowledgementBatch(0, 9, types)]))
    assert world.story(1)[-1].startswith("a rejected it")
    assert world.story(2)[-1].startswith("a released it")
    assert world.story(9)[-1].startswith("a accepted it")
    kept = world.history.about(KEY).events[-1].event
    assert kept.acknowledgements[0].types == bytes(types)  # type: ignore[union-attr]


def test_h245_an_undelivered_record_is_shown_with_the_reason() -> None:
    world = Told()
    world.settings = world.settings._replace(max_record_locks=10)
    assert world.now(3) == "no member has fetched from this partition yet"
    assert world.now(10) == "there is no such record yet: the next offset is 10"
    world.acquired()
    world.produce(10)
    assert world.now(10) == (
        "it was not delivered yet; fetches bring no new records, because 10 are in flight and"
        " share.partition.max.record.locks allows 10"
    )
    world.settings = world.settings._replace(redelivery_delay_ms=5_000)
    world.acknowledge(0, 0, RELEASE)
    assert world.now(0) == "it is available in 5.0 s, after a pause, delivery 1"


def test_h245_a_share_partition_shows_why_fetches_acquire_no_records() -> None:
    world = Told()
    world.acquired()
    world.acquired("b")
    led = world.leader.led(KEY)
    assert led is not None
    counted = world.leader.statistics.partitions[KEY]
    state = state_of_share_partition(led, world.settings, counted)
    assert state.partitions == (("t", 0),)
    assert sentence(state.kind, {**state.fields, "partitions": ("t-0",)}) == (
        "t-0: start offset 0, end 10; in flight: 10 with members, 0 available again, 0 finished;"
        " fetches without records: 1 locked; fetches bring nothing, because members have all that is"
        " not finished"
    )
