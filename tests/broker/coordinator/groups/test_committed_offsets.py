"""Committed offsets by the rules of section O."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from group_world import GROUP, GroupWorld, part
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_broker.coordinator.groups.offsets import (
    CommitCall,
    FetchedPart,
    OffsetStore,
    check_commit,
)
from odradek_broker.partition import StoredRecord
from odradek_broker.storage.errors import StorageError
from odradek_protocol.codec import encode_bytes
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored import group_metadata, offset_commit
from odradek_protocol.stored.offset_commit import OffsetCommitValue
from odradek_protocol.stored.subscription import ConsumerSubscription, encode_subscription

E = ErrorCode
S = GroupState
DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


# --- Records ---


def test_o02_an_offset_commit_record_has_kafkas_bytes(world: GroupWorld) -> None:
    """The key is: type 1, group, topic, partition. The value is: version 4, offset, epoch,
    metadata, time, and the topic's id with the tag 0."""
    world.clock.now_ms = 0
    world.metadata.ids["t"] = bytes(range(16))
    id_given = part(258, "t", 3, epoch=7, metadata="m", topic_id=bytes(range(16)))
    world.commit_later(id_given, group="g")
    ((key, value),) = world.log.records
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000003".replace(" ", ""))
    assert value == bytes.fromhex(
        "0004 0000000000000102 00000007 02 6d 0000018bcfe56800 01 00 10".replace(" ", "")
        + "000102030405060708090a0b0c0d0e0f"
    )


def test_o02_a_commit_with_an_expiry_is_version_1(world: GroupWorld) -> None:
    world.clock.now_ms = 0
    world.commit_later(part(258, "t", 3, epoch=7), group="g", retention_ms=1)
    assert world.log.records[0][1] == bytes.fromhex(
        "0001 0000000000000102 0000 0000018bcfe56800 0000018bcfe56801".replace(" ", "")
    )


def test_o02_the_legacy_key_and_every_value_version_are_read(world: GroupWorld) -> None:
    log = world.log
    key = b"\x00\x00\x00\x05group\x00\x05topic\x00\x00\x00\x00"
    value = bytes.fromhex("0000" + "0000000000000009" + "0000" + "0000000000000001")
    log.records = [(key, value)]
    log.durable = 1
    world.restart()
    assert world.committed() == 9
    for version in range(5):
        stored = OffsetCommitValue(offset=version, metadata="m", commit_timestamp=1)
        data = version.to_bytes(2, "big") + encode_bytes(stored, version)
        assert offset_commit.decode_value(data).offset == version


@pytest.mark.parametrize("kind", [9, 18, 24, 30_000, -1])
def test_o02_unknown_key_types_are_skipped(world: GroupWorld, kind: int) -> None:
    world.commit(3)
    world.log.records.insert(0, (kind.to_bytes(2, "big", signed=True) + b"\x00", b"whatever"))
    world.log.records.insert(0, (b"\x00", b"short"))
    world.log.durable = 3
    world.restart()
    assert world.committed() == 3


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (group_metadata.decode_value, b""),
        (group_metadata.decode_value, b"\x00\x09" + bytes(40)),
        (group_metadata.decode_value, b"\x00\x03\x00"),
        (group_metadata.decode_key, b"\x00\x02\x00\x09x"),
        (offset_commit.decode_value, b"\x00"),
        (offset_commit.decode_value, b"\x00\x05" + bytes(40)),
        (offset_commit.decode_key, b"\x00\x01\x00\x01g\x00\x01t"),
    ],
)
def test_o02_broken_records_are_refused(decode: object, data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(data)  # type: ignore[operator]


# --- Committing ---


def test_o03_a_commit_is_answered_when_it_is_durable(world: GroupWorld) -> None:
    world.log.hold = True
    later = world.commit_later(part(5))
    assert not later.done
    fetched = world.groups.fetch_offsets(GROUP, [("topic", 0)], False)
    assert not fetched.done
    world.log.flush()
    assert later.result() == [E.NONE]
    assert fetched.result().parts[0].offset == 5


def test_o03_a_commit_on_a_hanging_disk_is_answered_after_five_seconds(world: GroupWorld) -> None:
    world.log.hold = True
    later = world.commit_later(part(5), part(6, partition=1))
    world.wait(4_999)
    assert not later.done
    world.wait(1)
    assert later.result() == [E.COORDINATOR_NOT_AVAILABLE] * 2


@pytest.mark.parametrize(
    ("storage", "client"),
    [
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.KAFKA_STORAGE_ERROR, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.RECORD_LIST_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_o03_append_errors_become_offset_commit_errors(
    world: GroupWorld, storage: ErrorCode, client: ErrorCode
) -> None:
    world.log.refuse = storage
    assert world.commit_later(part(5), part(6, metadata="x" * 5000)).result() == [
        client,
        E.OFFSET_METADATA_TOO_LARGE,
    ]
    world.log.refuse = E.NONE
    assert world.committed() == -1


@pytest.mark.parametrize("version", range(2, 11))
def test_o04_a_commit_to_a_missing_group_must_have_no_generation(
    world: GroupWorld, version: int
) -> None:
    expected = E.GROUP_ID_NOT_FOUND if version >= 9 else E.ILLEGAL_GENERATION
    assert world.commit(generation=0, member_id="m", version=version) is expected
    assert world.groups.group(GROUP) is None
    assert world.commit(8, version=version) is E.NONE
    assert world.state() is S.EMPTY
    assert world.group().is_simple
    assert world.committed() == 8


def test_o04_an_empty_group_accepts_commits_without_a_generation(
    world: GroupWorld,
) -> None:
    (one,) = world.stable(1)
    world.leave(one)
    assert world.commit(1) is E.NONE
    assert world.commit(2, member_id="anyone") is E.NONE
    assert world.commit(3, member_id=one, generation=1) is E.UNKNOWN_MEMBER_ID
    assert world.committed() == 2


def test_o04_a_group_with_members_takes_commits_of_members_only(world: GroupWorld) -> None:
    one, _ = world.stable(2)
    assert world.commit() is E.UNKNOWN_MEMBER_ID
    assert world.commit(member_id="stranger", generation=2) is E.UNKNOWN_MEMBER_ID
    assert world.commit(member_id=one, generation=1) is E.ILLEGAL_GENERATION
    assert world.commit(member_id=one, generation=-1) is E.ILLEGAL_GENERATION
    assert world.commit(member_id=one, generation=2, instance="i") is E.UNKNOWN_MEMBER_ID
    assert world.committed() == -1
    assert world.commit(4, member_id=one, generation=2) is E.NONE
    assert world.committed() == 4


def test_o04_a_commit_is_refused_in_completing_rebalance_and_dead(world: GroupWorld) -> None:
    one, _ = world.enter()
    assert world.state() is S.COMPLETING_REBALANCE
    assert world.commit(1, member_id=one, generation=1) is E.REBALANCE_IN_PROGRESS
    world.sync(one, 1, {})
    assert world.state() is S.STABLE
    assert world.commit(2, member_id=one, generation=1) is E.NONE
    world.enter()
    assert world.state() is S.PREPARING_REBALANCE
    assert world.commit(3, member_id=one, generation=1) is E.NONE
    assert world.committed() == 3
    world.group().state = S.DEAD
    assert world.commit(4, member_id=one, generation=1) is E.COORDINATOR_NOT_AVAILABLE


def test_o04_a_commit_restarts_the_session_of_its_member(world: GroupWorld) -> None:
    (one,) = world.stable(1, session_ms=10_000)
    for _ in range(5):
        world.wait(9_000)
        assert world.commit(member_id=one, generation=1) is E.NONE


def test_o05_transactional_commits_need_no_member_and_no_stable_group(world: GroupWorld) -> None:
    def call(generation: int = -1, member_id: str = "") -> CommitCall:
        return CommitCall(GROUP, generation, member_id, None, 5, -1, [])

    assert check_commit(None, call(0, "m"), transactional=True) is E.ILLEGAL_GENERATION
    assert check_commit(None, call(), transactional=True) is E.NONE
    one, _ = world.enter()
    group = world.group()
    assert group.state is S.COMPLETING_REBALANCE
    assert check_commit(group, call(), transactional=True) is E.NONE
    assert check_commit(group, call(1, one), transactional=True) is E.NONE
    assert check_commit(group, call(2, one), transactional=True) is E.ILLEGAL_GENERATION
    assert check_commit(group, call(1, "x"), transactional=True) is E.UNKNOWN_MEMBER_ID


def test_o06_an_error_of_one_partition_does_not_stop_the_others(world: GroupWorld) -> None:
    later = world.commit_later(
        part(1, metadata="x" * 4096),
        part(2, partition=1, metadata="x" * 4097),
        part(3, partition=2),
    )
    assert later.result() == [E.NONE, E.OFFSET_METADATA_TOO_LARGE, E.NONE]
    assert [world.committed(partition=at) for at in range(3)] == [1, -1, 3]


def test_o07_negative_offsets_and_unknown_epochs_are_stored_as_they_are(world: GroupWorld) -> None:
    assert world.commit_later(part(-17, epoch=-1)).result() == [E.NONE]
    assert world.fetch(("topic", 0)).parts == [FetchedPart("topic", 0, -17, -1, "")]


# --- Fetching ---


def test_o08_a_fetch_without_a_committed_offset_is_no_error(world: GroupWorld) -> None:
    nothing = [FetchedPart("topic", 0, -1, -1, "", E.NONE)]
    assert world.fetch(("topic", 0)).parts == nothing
    world.commit_later(part(5, "other"))
    assert world.fetch(("topic", 0)).parts == nothing
    assert world.fetch(("topic", 0)).error is E.NONE


def test_o08_a_fetch_without_a_topic_list_returns_all_offsets(world: GroupWorld) -> None:
    assert world.fetch(everything=True).parts == []
    world.commit_later(part(1, epoch=4, metadata="m"), part(2, "other", 3))
    assert world.fetch(everything=True).parts == [
        FetchedPart("topic", 0, 1, 4, "m"),
        FetchedPart("other", 3, 2, -1, ""),
    ]


def _undecided(world: GroupWorld, offset: int, producer_id: int = 9) -> OffsetStore:
    runtime = next(iter(world.groups.shards))
    store = runtime.core.offsets
    value = OffsetCommitValue(
        offset=offset,
        metadata="",
        commit_timestamp=world.clock.wall_ms(),
        topic_id=world.metadata.topic_id("topic"),
    )
    store.replay(GROUP, ("topic", 0), value, producer_id)
    return store


def test_o09_an_undecided_commit_is_unstable_for_a_fetch_that_requires_stable(
    world: GroupWorld,
) -> None:
    world.commit_later(part(5), part(6, partition=1))
    _undecided(world, 50)
    places = (("topic", 0), ("topic", 1))
    assert [found.offset for found in world.fetch(*places).parts] == [5, 6]
    unstable, stable = world.fetch(*places, stable=True).parts
    assert (unstable.error, unstable.offset) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert (stable.error, stable.offset) == (E.NONE, 6)


def test_o10_an_offset_fetch_works_in_every_state_and_extends_no_session(world: GroupWorld) -> None:
    one, _ = world.enter()
    assert world.committed() == -1
    world.sync(one, 1, {})
    world.commit(5, member_id=one, generation=1)
    world.wait(9_000)
    assert world.committed() == 5
    world.wait(1_000)
    assert one not in world.group().members


# --- Expiry ---


def test_o11_offsets_of_a_simple_group_expire_a_week_after_their_commit(world: GroupWorld) -> None:
    world.commit_later(part(1))
    world.wait(DAY_MS)
    world.commit_later(part(2, partition=1))
    world.wait(WEEK_MS - DAY_MS - 600_000)
    assert world.committed() == 1
    world.wait(1_200_000)
    assert world.committed() == -1
    assert world.committed(partition=1) == 2
    world.wait(DAY_MS)
    assert world.groups.group(GROUP) is None
    world.restart()
    assert list(world.groups.groups()) == []


def test_o11_offsets_of_an_empty_group_expire_a_week_after_it_became_empty(
    world: GroupWorld,
) -> None:
    (one,) = world.stable(1, session_ms=1_800_000)
    world.commit(1, member_id=one, generation=1)
    for _ in range(8 * 24 * 4):
        world.wait(900_000)
        assert world.heartbeat(one, 1) is E.NONE
    world.leave(one)
    world.wait(WEEK_MS - 600_000)
    assert world.committed() == 1
    world.wait(1_200_000)
    assert world.committed() == -1
    assert world.groups.group(GROUP) is None
    assert world.states[-1] is S.DEAD
    assert world.log.records[-1] == (group_metadata.encode_key(GROUP), None)
    world.restart()
    assert list(world.groups.groups()) == []


def test_o11_the_time_since_a_group_is_empty_survives_a_restart(world: GroupWorld) -> None:
    (one,) = world.stable(1)
    world.commit(1, member_id=one, generation=1)
    world.leave(one)
    for _ in range(6):
        world.wait(DAY_MS)
        assert world.committed() == 1
        world.restart()
    world.wait(DAY_MS - 600_000)
    assert world.committed() == 1
    world.wait(1_200_000)
    assert world.committed() == -1


def _subscribed(*topics: str) -> list[tuple[str, bytes]]:
    return [("range", encode_subscription(ConsumerSubscription(topics=list(topics)), 1))]


@pytest.mark.parametrize(
    ("protocols", "left"),
    [
        (_subscribed("topic"), [1, -1]),
        (_subscribed("topic", "other"), [1, 2]),
        ([("range", _subscribed("topic")[0][1][:-4])], [1, -1]),
        ([("range", b"\x00\x01\x00\x00\x00")], [1, 2]),
    ],
)
def test_o12_a_stable_group_loses_only_offsets_of_unsubscribed_topics(
    world: GroupWorld, protocols: list[tuple[str, bytes]], left: list[int]
) -> None:
    (one,) = world.stable(1, session_ms=1_800_000, protocols=protocols)
    world.commit_later(part(1), part(2, "other"), member_id=one, generation=1)
    for _ in range(7 * 24 * 4 + 1):
        world.wait(900_000)
        assert world.heartbeat(one, 1) is E.NONE
    assert [world.committed(topic=name) for name in ("topic", "other")] == left


def test_o12_offsets_of_a_stable_non_consumer_group_never_expire(world: GroupWorld) -> None:
    (one,) = world.stable(1, session_ms=1_800_000, protocol_type="connect")
    world.commit(1, member_id=one, generation=1)
    for _ in range(7 * 24 * 4 + 1):
        world.wait(900_000)
        assert world.heartbeat(one, 1) is E.NONE
    assert world.committed() == 1


def test_o11_g25_a_group_with_a_pending_member_id_is_not_removed(world: GroupWorld) -> None:
    (one,) = world.stable(1)
    world.leave(one)
    member = world.new_id(session_ms=1_800_000)
    world.wait(600_000)
    assert world.log.records[-1][1] is not None, "no tombstone"
    assert world.join(member).result().error_code == E.NONE
    world.leave(member)
    world.wait(600_000)
    assert world.log.records[-1] == (group_metadata.encode_key(GROUP), None)
    assert world.groups.group(GROUP) is None


def test_o11_no_offset_expires_while_a_transaction_is_undecided(world: GroupWorld) -> None:
    world.commit(1)
    store = _undecided(world, 50)
    world.wait(WEEK_MS + 600_000)
    assert world.committed() == 1
    store.end_transaction(9, commit=False)
    world.wait(600_000)
    assert world.committed() == -1


def test_o13_the_retention_of_a_commit_overrides_that_of_the_broker(world: GroupWorld) -> None:
    world.commit_later(part(1), version=4, retention_ms=1_000_000)
    world.commit_later(part(2, partition=1), version=4, retention_ms=2 * WEEK_MS)
    world.wait(1_200_000)
    assert world.committed() == -1
    world.restart()
    world.wait(WEEK_MS)
    assert world.committed(partition=1) == 2
    world.wait(WEEK_MS)
    assert world.committed(partition=1) == -1


@pytest.mark.full
def test_o11_many_expired_offsets_are_removed_in_several_batches(world: GroupWorld) -> None:
    for group in range(5):
        world.commit_later(*[part(1, partition=index) for index in range(700)], group=f"g{group}")
    before = len(world.log.append_times_ms)
    world.wait(WEEK_MS + 600_000)
    assert list(world.groups.groups()) == []
    assert len(world.log.append_times_ms) - before >= 3


def test_o15_offsets_of_a_deleted_topic_are_removed(world: GroupWorld) -> None:
    for group in ("a", "b"):
        world.commit_later(part(1), part(2, partition=1), part(3, "other"), group=group)
    assert world.delete_topic().done
    for group in ("a", "b"):
        assert [found.topic for found in world.fetch(group=group, everything=True).parts] == [
            "other"
        ]
    world.restart()
    assert world.committed("a") == -1
    assert world.committed("b", "other") == 3


def test_o15_a_topic_deletion_waits_until_its_offsets_are_durably_removed(
    world: GroupWorld,
) -> None:
    world.commit(5)
    world.log.hold = True
    gone = world.delete_topic()
    assert not gone.done
    world.log.flush()
    assert gone.done
    assert world.delete_topic("nowhere").done


@pytest.mark.parametrize("refused", [True, False])
def test_o15_leftover_offsets_of_a_deleted_topic_are_removed_at_the_start(
    world: GroupWorld, refused: bool
) -> None:
    """The broker was killed after it had deleted the topic, and before it had deleted the
    offsets."""
    world.commit_later(part(1), part(2, "other"), group="both")
    world.commit(3, group="only")
    if refused:
        world.log.refuse = E.KAFKA_STORAGE_ERROR
        assert world.delete_topic().done
        world.log.refuse = E.NONE
    else:
        del world.metadata.counts["topic"], world.metadata.ids["topic"]
    world.restart()
    world.metadata.counts["topic"], world.metadata.ids["topic"] = 10, b"N" * 16
    for _ in range(2):
        assert [held.group_id for held in world.groups.groups()] == ["both"]
        assert (world.committed("both"), world.committed("both", "other")) == (-1, 2)
        world.restart()


def test_o15_offsets_of_a_topic_deleted_while_they_were_unreadable_are_deleted(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit_later(part(1), part(2, "other"), group="both")

    def unreadable() -> Iterator[StoredRecord]:
        raise StorageError(E.KAFKA_STORAGE_ERROR, "the disk does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.log, "read_stored", unreadable)
        patch.setattr(world.log, "read_all", unreadable)
        world.restart()
        assert world.delete_topic().done
    world.wait(60_000)
    world.metadata.counts["topic"], world.metadata.ids["topic"] = 10, b"N" * 16
    assert (world.committed("both"), world.committed("both", "other")) == (-1, 2)


# --- Transactions and reload ---


def test_o17_a_commit_marker_applies_offsets_newer_than_the_stored_ones() -> None:
    store = OffsetStore(lambda name: bytes(16))

    def write(offset: int, producer_id: int = -1, partition: int = 0) -> None:
        value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0)
        store.replay(GROUP, ("topic", partition), value, producer_id)

    write(1)
    write(10, producer_id=7)
    write(20, producer_id=7, partition=1)
    write(2)  # a write after the pending one
    assert store.is_pending(GROUP, ("topic", 0))
    assert store.in_transaction(GROUP)
    store.end_transaction(7, commit=True)
    assert not store.in_transaction(GROUP)
    assert {place: held.offset for place, held in store.of_group(GROUP).items()} == {
        ("topic", 0): 2,
        ("topic", 1): 20,
    }


def test_o15_the_groups_with_offsets_of_a_topic_id_are_those_that_a_walk_finds() -> None:
    ids = [bytes([number]) * 16 for number in range(3)]
    store = OffsetStore(lambda name: ids[0])
    random = Random(57)
    for _ in range(2_000):
        group, place = f"g{random.randrange(4)}", ("topic", random.randrange(3))
        producer_id = random.choice((NO_PRODUCER_ID, 7, 8))
        event = random.randrange(6)
        if event == 0:
            store.replay(group, place, None)
        elif event == 1:
            store.end_transaction(producer_id, random.random() < 0.5)
        else:
            value = OffsetCommitValue(topic_id=random.choice(ids), metadata="")
            store.replay(group, place, value, producer_id)
        for topic_id in ids:
            found = {each[0] for each in store._all() if each[2].value.topic_id == topic_id}
            assert set(store.groups_of(topic_id)) == found


def test_o17_an_abort_marker_drops_pending_offsets() -> None:
    store = OffsetStore(lambda name: bytes(16))
    value = OffsetCommitValue(offset=10, metadata="", commit_timestamp=0)
    store.replay(GROUP, ("topic", 0), value, 7)
    store.replay(GROUP, ("topic", 0), value, 8)
    store.end_transaction(7, commit=False)
    assert store.of_group(GROUP) == {}
    assert store.is_pending(GROUP, ("topic", 0))
    store.end_transaction(8, commit=True)
    assert store.count(GROUP) == 1


def test_o18_offsets_are_the_same_before_and_after_a_restart(world: GroupWorld) -> None:
    (one,) = world.stable(1)
    world.commit_later(part(1, epoch=3, metadata="é"), member_id=one, generation=1)
    world.commit_later(part(2), part(3, "other", 7), member_id=one, generation=1)
    world.commit(9, group="simple")
    before = [world.fetch(group=group, everything=True) for group in (GROUP, "simple")]
    listed = sorted(world.groups.groups(), key=str)
    world.restart()
    assert [world.fetch(group=group, everything=True) for group in (GROUP, "simple")] == before
    assert sorted(world.groups.groups(), key=str) == listed


def test_o18_a_commit_that_was_not_durable_is_gone_after_a_crash(world: GroupWorld) -> None:
    world.commit(1)
    world.log.hold = True
    later = world.commit_later(part(2))
    world.restart()
    assert not later.done
    world.log.hold = False
    assert world.committed() == 1
