"""Dead letters: the records that get one, the contents of a dead letter, and the reasons for which
a record gets none."""

from __future__ import annotations

import errno
from base64 import urlsafe_b64encode
from dataclasses import replace

import pytest

from at_once import at_once
from dead_letter_world import ACCEPT, LETTERS, REJECT, RELEASE, SOURCE, DeadLetterWorld
from held_thread import HeldThread
from logs import append, make_batch
from odradek_broker import slices
from odradek_broker.explain.sentences import sentence
from odradek_broker.share.dead_letter_topics import LogReading, given_up_records
from odradek_broker.share.dead_letters import DeadLetter, DeadLetterOrigin, letters_in
from odradek_broker.share.events import DeadLettered, NotDeadLettered, SessionEnd
from odradek_broker.share.in_flight import GivenUp, GivenUpBecause
from odradek_broker.share.manager import AcknowledgementOutcome
from odradek_broker.share.share_partition import ShareAcknowledgementBatch
from odradek_broker.share_state import DeadLetterPosition
from odradek_broker.storage.log_config import AppendOrigin
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import read_header, set_create_time
from odradek_protocol.records.builder import BatchBuilder
from odradek_testkit.simulation.disk import DiskFailure

LOCK_MS = 30_000


def _rejected(world: DeadLetterWorld, first: int = 0, last: int = 0) -> AcknowledgementOutcome:
    answer = world.acknowledge(first, last, REJECT)
    world.settle()
    return answer.result()


def test_h202_a_rejected_record_is_dead_lettered_with_its_contents() -> None:
    world = DeadLetterWorld()
    world.jobs(3)
    world.acquired()
    assert _rejected(world, 1, 1) == AcknowledgementOutcome()
    (letter,) = world.letters()
    source = world.letters(topic=SOURCE)[1]
    assert (letter.key, letter.value) == (source.key, source.value)
    assert dict(letter.headers) == {
        "__dlq.errors.topic": b"jobs",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.group": b"workers",
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Offset rejected by client.",
        "__dlq.odradek.topic.id": urlsafe_b64encode(world.key.topic_id).rstrip(b"="),
        "__dlq.odradek.timestamp": str(source.timestamp).encode(),
    }


def test_h202_the_letter_of_a_redelivered_letter_has_only_its_own_names() -> None:
    world = DeadLetterWorld()
    world.jobs(1)
    (job,) = world.letters(topic=SOURCE)
    copied = job._replace(headers=(("__dlq.odradek.topic.id", b"x"),))
    letter = DeadLetter(0, 1, GivenUpBecause.REJECTED, 5, copied)
    headers = letter.headers(DeadLetterOrigin("workers", SOURCE, bytes(16), 0))
    assert len(headers) == len(dict(headers)) == 8


def test_h202_a_dead_letter_without_a_copy_has_only_the_position() -> None:
    world = DeadLetterWorld(copy=False)
    world.jobs(1)
    world.acquired()
    _rejected(world)
    (letter,) = world.letters()
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers)["__dlq.errors.offset"] == b"0"


def test_h202_a_record_that_is_released_too_often_is_dead_lettered() -> None:
    world = DeadLetterWorld(limit=2)
    world.jobs(1)
    for count in (1, 2):
        assert world.acquired() == [(0, 0, count)]
        world.acknowledge(0, 0, RELEASE)
        world.settle()
    (letter,) = world.letters()
    named = dict(letter.headers)
    assert named["__dlq.errors.delivery.count"] == b"2"
    assert named["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."
    assert world.acquired() == []


def test_h202_a_lock_that_expires_for_the_last_time_makes_a_dead_letter() -> None:
    world = DeadLetterWorld(limit=2)
    world.jobs(2)
    assert world.acquired() == [(0, 1, 1)]
    world.pass_time(LOCK_MS)
    assert world.letters() == []
    assert world.acquired(max_records=1) != []
    world.pass_time(LOCK_MS)
    world.acquired()
    world.pass_time(LOCK_MS)
    assert sorted(world.letter_offsets()) == [0, 1]


def test_h202_the_end_of_the_last_session_dead_letters_the_last_delivery() -> None:
    world = DeadLetterWorld(limit=2)
    world.jobs(1)
    for _ in range(2):
        world.acquired()
        leader = world.node.share_partitions
        leader.release("a", [world.key], SessionEnd.CLOSED)
        at_once(leader.forget_group("workers", lambda: False))
        world.settle()
    assert world.letter_offsets() == [0]
    assert world.acquired() == []
    assert len(world.node.share_partitions) == 1


def test_h202_accepted_records_and_gaps_have_no_dead_letter() -> None:
    world = DeadLetterWorld()
    world.jobs(3)
    world.acquired()
    world.acknowledge(0, 0, ACCEPT)
    world.acknowledge(1, 2, 0)
    world.settle()
    assert world.letters() == []


def test_h202_offsets_without_a_record_have_no_dead_letter() -> None:
    world = DeadLetterWorld()
    world.jobs(1)
    partition = world.node.partition(SOURCE, 0)
    assert partition is not None
    partition.append_marker(7, 0, 0, commit=True, transaction_version=1, now_ms=0)
    world.settle()
    world.jobs(1)
    world.acquired()
    assert _rejected(world, 0, 2) == AcknowledgementOutcome()
    assert world.letter_offsets() == [0, 2]


def test_h203_the_dead_letter_partition_is_the_source_modulo_the_count() -> None:
    world = DeadLetterWorld(partitions=3)
    topics = world.node.share_partitions.dead_letters.topics
    numbers = []
    for number in range(5):
        target = topics.target_for(LETTERS, SOURCE, number).result()
        numbers.append(getattr(target, "number", None))
    assert numbers == [0, 1, 2, 0, 1]


def _without_letters(world: DeadLetterWorld) -> str:
    """Reject a record that gets no dead letter; returns the reason."""
    world.jobs(1)
    world.acquired()
    assert _rejected(world) == AcknowledgementOutcome()
    assert world.acquired() == [], "the record is archived all the same"
    (event,) = [each for each in world.events if isinstance(each, NotDeadLettered)]
    assert (event.first_offset, event.last_offset) == (0, 0)
    counted = world.node.share_partitions.statistics.partitions[world.key]
    assert (counted.dead_letters, counted.missing_dead_letters) == (0, 1)
    return event.problem


def test_h203_a_record_without_a_dead_letter_topic_is_only_archived() -> None:
    assert "does not exist" in _without_letters(DeadLetterWorld(letters=False))


def test_h203_a_topic_that_does_not_allow_dead_letters_gets_none() -> None:
    world = DeadLetterWorld()
    world.configure_topic("errors.deadletterqueue.group.enable", "false")
    assert "group.enable=true" in _without_letters(world)
    assert world.letters() == []


def test_h203_a_dead_letter_topic_needs_the_prefix_and_is_not_the_source() -> None:
    world = DeadLetterWorld(errors_deadletterqueue_topic_name_prefix="dead.")
    assert "prefix (dead.)" in _without_letters(world)
    topics = world.node.share_partitions.dead_letters.topics
    same = topics.target_for("dead.jobs", "dead.jobs", 0).result()
    assert "come from" in getattr(same, "reason", "")


def test_h203_the_dead_letter_topic_is_created_if_it_is_allowed() -> None:
    world = DeadLetterWorld(letters=False, errors_deadletterqueue_auto_create_topics_enable="true")
    world.jobs(1)
    world.acquired()
    assert _rejected(world) == AcknowledgementOutcome()
    assert world.letter_offsets() == [0]
    assert world.node.metadata.takes_dead_letters(LETTERS)


def test_h204_a_copy_that_is_too_large_is_left_out_of_the_dead_letter() -> None:
    world = DeadLetterWorld(letters=False)
    world.create_letters(max_message_bytes="400")
    world.jobs(1, bytes(1_000))
    world.acquired()
    assert _rejected(world) == AcknowledgementOutcome()
    (letter,) = world.letters()
    assert letter.value is None
    assert dict(letter.headers)["__dlq.errors.offset"] == b"0"


def test_h204_a_dead_letter_too_large_without_a_copy_is_not_written() -> None:
    world = DeadLetterWorld(letters=False)
    world.create_letters(max_message_bytes="50")
    assert "max.message.bytes" in _without_letters(world)


def test_h204_deleted_records_have_dead_letters_without_a_copy() -> None:
    world = DeadLetterWorld()
    world.jobs(2)
    world.acquired()
    partition = world.node.partition(SOURCE, 0)
    assert partition is not None
    partition.log.trimming.delete_records(2)
    assert _rejected(world, 0, 1) == AcknowledgementOutcome()
    assert [each.value for each in world.letters()] == [None, None]


def test_h204_many_dead_letters_are_split_into_batches_that_fit() -> None:
    world = DeadLetterWorld(letters=False)
    world.create_letters(max_message_bytes="2000")
    world.jobs(50, bytes(100))
    world.acquired()
    assert _rejected(world, 0, 49) == AcknowledgementOutcome()
    assert world.letter_offsets() == list(range(50))
    told = [each for each in world.events if isinstance(each, DeadLettered)]
    assert len(told) > 1
    assert (told[0].first_offset, told[0].letter_offset) == (0, 0)
    assert told[0].reason is GivenUpBecause.REJECTED
    assert told[1].letter_offset == told[1].first_offset == told[0].last_offset + 1
    assert world.node.share_partitions.statistics.partitions[world.key].dead_letters == 50


def test_h204_records_that_are_rejected_one_by_one_are_read_together() -> None:
    world = DeadLetterWorld()
    world.jobs(300)
    world.acquired()
    partition = world.node.partition(SOURCE, 0)
    assert partition is not None
    given_up = [GivenUp(offset, offset, 1, GivenUpBecause.REJECTED) for offset in range(0, 300, 2)]
    reads = 0
    found = []
    for each in given_up_records(partition.log, given_up, copy=True):
        if isinstance(each, LogReading):
            reads += 1
            each.read()
        else:
            found.append(each.offset)
    assert reads == 1
    assert found == list(range(0, 300, 2))
    types = [REJECT if offset % 2 == 0 else ACCEPT for offset in range(300)]
    leader = world.node.share_partitions
    answer = at_once(leader.acknowledge(world.key, "a", [ShareAcknowledgementBatch(0, 299, types)]))
    world.settle()
    assert answer.result() == AcknowledgementOutcome()
    assert world.letter_offsets() == list(range(0, 300, 2))


def test_h203_two_partitions_that_need_the_topic_at_once_create_it_once() -> None:
    world = DeadLetterWorld(letters=False, errors_deadletterqueue_auto_create_topics_enable="true")
    topics = world.node.share_partitions.dead_letters.topics
    asked = [topics.target_for(LETTERS, SOURCE, number) for number in range(2)]
    assert not any(each.done for each in asked), "the creation is not durable"
    world.settle()
    assert [getattr(each.result(), "topic", None) for each in asked] == [LETTERS, LETTERS]


def test_h205_a_deleted_dead_letter_topic_leaves_records_only_archived() -> None:
    world = DeadLetterWorld()
    world.jobs(1)
    world.acquired()
    answer = world.acknowledge(0, 0, REJECT)
    while not world.letters():
        assert world.step()
    world.delete(LETTERS)
    world.settle()
    assert answer.result() == AcknowledgementOutcome()
    assert world.acquired() == []


def _full(path_part: str) -> DiskFailure:
    return DiskFailure("append", code=errno.ENOSPC, path_part=path_part, for_ever=True)


def test_h205_a_full_disk_refuses_the_acknowledgement_and_keeps_the_record() -> None:
    world = DeadLetterWorld()
    world.jobs(1)
    world.acquired()
    world.files.fail(_full(LETTERS))
    answer = world.acknowledge(0, 0, REJECT)
    world.settle()
    assert answer.result().error is ErrorCode.KAFKA_STORAGE_ERROR
    world.files.heal()
    assert _rejected(world) == AcknowledgementOutcome(), "the member still has the record"
    assert world.letter_offsets() == [0]


def test_h205_the_dead_letter_of_an_expired_lock_is_repeated_after_a_full_disk() -> None:
    world = DeadLetterWorld(limit=2)
    world.jobs(1)
    world.acquired()
    world.pass_time(LOCK_MS)
    assert world.acquired() == [(0, 0, 2)]
    world.files.fail(_full(LETTERS))
    world.pass_time(LOCK_MS + 5_000)
    assert world.letters() == [] and world.acquired("b") == []
    world.files.heal()
    world.pass_time(1_000)
    assert world.letter_offsets() == [0]


def test_h205_a_dead_lettered_record_does_not_return_if_its_state_is_not_stored() -> None:
    world = DeadLetterWorld()
    world.jobs(3)
    world.acquired()
    answer = world.acknowledge(1, 1, REJECT)
    while not world.letters():
        assert world.step()
    world.files.fail(_full("__share_group_state"))
    world.settle()
    assert answer.result().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = world.acknowledge(1, 1, REJECT).result()
    assert again.error is ErrorCode.INVALID_RECORD_STATE, "the record is given up"
    world.files.heal()
    answers = [world.acknowledge(offset, offset, ACCEPT) for offset in (0, 2)]
    world.settle()
    assert [each.result() for each in answers] == [
        AcknowledgementOutcome(),
        AcknowledgementOutcome(),
    ]
    world.cut_power(0, keep_page_cache=False)
    assert world.acquired() == []
    assert world.letter_offsets() == [1]


def test_h205_a_repeated_acceptance_is_confirmed_when_the_state_is_stored() -> None:
    """A request accepts a record and rejects another, and the write of the state fails. Only
    the rejected record is known to be finished, by its dead letter: the other record can be
    accepted again."""
    world = DeadLetterWorld()
    world.jobs(2)
    world.acquired()
    leader = world.node.share_partitions
    asked = [ShareAcknowledgementBatch(0, 1, [ACCEPT, REJECT])]
    both = at_once(leader.acknowledge(world.key, "a", asked))
    while not world.letters():
        assert world.step()
    world.files.fail(_full("__share_group_state"))
    world.settle()
    assert both.result().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = world.acknowledge(0, 0, ACCEPT)
    world.settle()
    assert again.result().error is ErrorCode.COORDINATOR_NOT_AVAILABLE, "nothing is durable"
    world.files.heal()
    again = world.acknowledge(0, 0, ACCEPT)
    assert not again.done
    world.settle()
    assert again.result() == AcknowledgementOutcome()
    world.cut_power(0, keep_page_cache=False)
    assert world.acquired() == []


def test_h205_a_failed_disk_leaves_a_dead_letter_undecided_until_the_start() -> None:
    world = DeadLetterWorld()
    world.jobs(2)
    world.acquired()
    answer = world.acknowledge(0, 0, REJECT)
    while not world.letters():
        assert world.step()
    world.files.fail(DiskFailure("sync", path_part=LETTERS, for_ever=True))
    world.settle()
    assert answer.result().error is ErrorCode.KAFKA_STORAGE_ERROR
    world.pass_time(LOCK_MS)
    assert world.acquired("b") == [(1, 1, 2)], "of the other one nobody knows"
    world.cut_power(3, keep_page_cache=False)
    again = {first for first, _, _ in world.acquired()}
    assert (0 in again) is not bool(world.letter_offsets()), "delivered again, or dead"


def test_h205_a_broker_that_stops_writes_no_more_dead_letters() -> None:
    """While the broker runs, failed dead letters are tried again every second."""
    world = DeadLetterWorld(letters=False)
    world.create_letters(max_message_bytes="400")
    world.jobs(20)
    world.acquired()
    answer = world.acknowledge(0, 19, REJECT)
    while not world.letters():
        assert world.step()
    written = len(world.letters())
    assert written < 20
    world.files.fail(_full(LETTERS))
    world.settle()
    world.node.close()
    world.files.heal()
    world.pass_time(60_000)
    assert len(world.letters()) == written
    assert answer.result().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not [each for each in world.timers if not each.cancelled]
    world.cut_power(0, keep_page_cache=True)
    assert [first for first, _, _ in world.acquired()] == [written]
    world.acknowledge(written, 19, REJECT)
    world.settle()
    assert world.letter_offsets() == list(range(20))


def test_h207_the_history_of_a_record_names_its_dead_letter_or_the_problem() -> None:
    world = DeadLetterWorld()
    world.jobs(3)
    world.acquired()
    _rejected(world, 0, 1)
    world.configure_topic("errors.deadletterqueue.group.enable", "false")
    _rejected(world, 2, 2)

    def told(offset: int) -> list[str]:
        story = world.node.share_history.story(world.key, offset)
        return [
            sentence(each.kind, {**each.fields, "partitions": f"{topic}-{number}"})
            for each in story
            if "DEAD_LETTERED" in each.kind.name
            for topic, number in (each.partitions or [("?", 0)])
        ]

    assert told(1) == ["it has a dead letter at offset 1 of dlq.jobs-0"]
    (problem,) = told(2)
    assert problem.endswith("does not have errors.deadletterqueue.group.enable=true")


def test_h206_dead_letters_of_other_groups_do_not_finish_a_record() -> None:
    """A dead letter finishes a record if it names the group and the partition of the record, and
    has no producer id."""
    source = DeadLetterOrigin("workers", SOURCE, bytes(16), 0)
    letter = DeadLetter(0, 1, GivenUpBecause.REJECTED)
    builder = BatchBuilder()
    builder.append(0, None, None, letter.headers(source))
    data = builder.build(producer_id=7, producer_epoch=0, base_sequence=0)
    assert letters_in(data, read_header(data), source, 0) == []
    data = builder.build()
    header = read_header(data)
    assert letters_in(data, header, source, 0) == [(0, 1, 0)]
    assert letters_in(data, header, source._replace(group_id="other"), 0) == []
    again = source._replace(topic_id=bytes(range(16)))
    assert letters_in(data, header, again, 0) == []


def test_h203_each_record_of_a_damaged_batch_has_one_dead_letter() -> None:
    """The batch is damaged after the records that are read together."""
    world = DeadLetterWorld()
    partition = world.node.partition(SOURCE, 0)
    assert partition is not None
    partition.log.config = replace(partition.log.config, record_validation="header")
    batch = make_batch(10_020, value=b"", key=None)
    batch[-5:] = b"\xff" * 5
    set_create_time(batch, 0, read_header(batch).max_timestamp)
    append(partition.log, make_batch(5))
    append(partition.log, batch)
    partition.log.durability.flush()
    found = []
    given_up = [GivenUp(0, 10_024, 1, GivenUpBecause.REJECTED)]
    for each in given_up_records(partition.log, given_up, copy=True):
        if isinstance(each, LogReading):
            each.read()
        else:
            found.append(each)
    assert [each.offset for each in found] == list(range(10_025))
    assert [each.offset for each in found if each.copied] == list(range(10_005))


# --- Batches that inflate to much ---


class HeldWorld(DeadLetterWorld):
    """A broker with a thread that the test runs."""

    def __init__(self) -> None:
        self.thread = HeldThread()
        self.beside = self.thread
        super().__init__()

    def let(self) -> int:
        """Let everything go on to its end; returns the number of works of the thread."""
        works = 0
        self.settle()
        while self.thread.works:
            self.thread.run()
            self.settle()
            works += 1
        return works


def test_n57_records_of_dead_letters_are_read_in_the_thread() -> None:
    """Three of 50,000 records are given up."""
    world = HeldWorld()
    found = world.node.partition(SOURCE, 0)
    assert found is not None
    for _ in range(5):
        append(found.log, make_batch(10_000, value=bytes(100), codec=Codec.ZSTD))
    found.log.durability.flush()
    world.acquired()
    answer = world.acknowledge(3, 5, REJECT)
    world.settle()
    assert not answer.done
    assert world.letters() == []
    assert world.let() == 1
    assert answer.result() == AcknowledgementOutcome()
    assert world.letter_offsets() == [3, 4, 5]
    assert [each.value for each in world.letters()] == [bytes(100)] * 3


def test_n57_the_search_for_open_dead_letters_is_work_for_the_thread() -> None:
    """The topic of dead letters has records of somebody else, which inflate to much."""
    world = HeldWorld()
    world.jobs(2)
    world.acquired()
    answer = world.acknowledge(0, 0, REJECT)
    while not world.letters():
        if not world.step():
            world.thread.run()
    letters = world.node.partition(LETTERS, 0)
    assert letters is not None
    batch = make_batch(10, value=bytes(1 << 20), codec=Codec.ZSTD)
    append(letters.log, batch, origin=AppendOrigin.COORDINATOR)
    letters.log.durability.flush()
    assert not answer.done
    world.cut_power(1, keep_page_cache=True)
    world.acquired()
    assert len(world.thread.works) == 1
    assert world.let() == 2, "a batch at a time"
    assert [each.first_offset for each in world.acquired()] == [1]


def test_h170_a_search_that_finds_the_thread_busy_is_tried_again_by_the_next_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Java's share consumer fails at the error that producers get."""
    world = DeadLetterWorld()
    world.jobs(1)
    world.acquired()
    assert _rejected(world) == AcknowledgementOutcome()
    leader = world.node.share_partitions
    (led,) = leader.loaded()
    position = DeadLetterPosition(world.node.metadata.topic_id(LETTERS), 0, 0)
    with monkeypatch.context() as busy:
        busy.setattr(slices, "BESIDE_MAX", 0)
        found = leader.dead_letters.open_letters(led, position)
    assert found.result() is ErrorCode.OFFSET_NOT_AVAILABLE
    assert leader.dead_letters.open_letters(led, position).result() == {0: 1}


# --- States that are begun anew -------------------------------------------------------------------


def test_h171_a_deleted_share_state_does_not_affect_the_next_one() -> None:
    """A share state is deleted, and initialized again with an epoch that does not fence the leader.
    The share session ends while the deletion is not durable yet."""
    world = DeadLetterWorld()
    world.jobs(2)
    assert world.acquired() == [(0, 1, 1)]
    states, leader = world.node.share_state, world.node.share_partitions
    states.delete_all([world.key])
    states.initialize_all(1, {world.key: 0})
    leader.release("a", [world.key], SessionEnd.CLOSED)
    world.settle()
    assert world.acquired("b") == [(0, 1, 1)]
