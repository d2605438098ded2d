"""Members of share groups: they join, get partitions, stay alive and leave (rules H-01 to H-16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_definitions import decode_record
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_protocol.errors import ErrorCode as E
from odradek_protocol.stored.share_group import ShareRecordType
from share_group_world import GROUP, ShareGroupWorld, T

World = Callable[..., ShareGroupWorld]


@pytest.fixture
def world() -> ShareGroupWorld:
    return ShareGroupWorld()


def test_h01_h14_a_member_joins_and_has_partitions_after_the_second_heartbeat(
    world: ShareGroupWorld,
) -> None:
    first = world.beat("m", 0, topics=["topic"])
    assert (first.error_code, first.member_id, first.member_epoch) == (E.NONE, "m", 2)
    assert world.assigned(first) == {}
    assert first.heartbeat_interval_ms == 5_000
    world.wait(1_000)
    second = world.beat("m", 2)
    assert second.member_epoch == 3
    assert world.assigned(second) == {T: list(range(10))}
    third = world.beat("m", 3)
    assert (third.member_epoch, third.assignment) == (3, None)


def test_h02_a_changed_subscription_raises_the_epoch(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    epoch = world.share_group().epoch
    answer = world.beat("m", world.epoch("m"), topics=["other"])
    assert world.share_group().epoch == epoch + 1
    # Partitions that are no longer subscribed are removed immediately; new partitions are assigned
    # only after they have got a share state.
    assert world.assigned(answer) == {}


def test_h02_the_same_subscription_does_not_raise_the_epoch(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    epoch = world.share_group().epoch
    answer = world.beat("m", world.epoch("m"), topics=["topic"])
    assert world.share_group().epoch == epoch
    assert world.assigned(answer) == {T: list(range(10))}


@pytest.mark.parametrize("change", ["created", "deleted", "grown"])
def test_h03_a_changed_topic_raises_the_epoch(world: ShareGroupWorld, change: str) -> None:
    world.share_join("m", ["topic", "late"])
    epoch = world.share_group().epoch
    topics = world.metadata
    if change == "created":
        topics.counts["late"], topics.ids["late"] = 1, b"L" * 16
    elif change == "grown":
        topics.counts["topic"] = 11
    else:
        del topics.counts["topic"], topics.ids["topic"]
    topics.topics_version += 1
    world.wait(1_000)
    world.beat("m", world.epoch("m"))
    assert world.share_group().epoch == epoch + 1
    world.wait(1_000)
    world.beat("m", world.epoch("m"))
    expected = {"created": {T: 10, b"L" * 16: 1}, "grown": {T: 11}, "deleted": {}}[change]
    assigned = world.share_group().members["m"].assigned
    assert {topic_id: len(indexes) for topic_id, indexes in assigned.items()} == expected


def test_h02_records_that_cannot_be_written_leave_the_group_as_it_was(
    world: ShareGroupWorld,
) -> None:
    world.log.refuse = E.MESSAGE_TOO_LARGE
    refused = world.beat("m", 0, topics=["topic"])
    assert (refused.error_code, refused.member_epoch) == (E.UNKNOWN_SERVER_ERROR, 0)
    assert world.groups.share_group(GROUP) is None
    assert not world.share_states.states
    world.log.refuse = E.NONE
    world.share_join("m", ["topic"])
    world.wait(1_000)
    epoch = world.epoch("m")
    world.log.refuse = E.MESSAGE_TOO_LARGE
    world.metadata.counts["topic"] = 11
    world.metadata.topics_version += 1
    assert world.beat("m", epoch).error_code == E.UNKNOWN_SERVER_ERROR
    world.log.refuse = E.NONE
    assert world.beat("m", epoch).member_epoch == epoch + 1


def test_h03_a_change_of_an_unsubscribed_topic_changes_nothing(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    before = len(world.log.records)
    world.metadata.counts["other"] = 20
    world.metadata.topics_version += 1
    world.beat("m", world.epoch("m"))
    assert len(world.log.records) == before


def test_h04_a_restart_brings_the_group_back(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.share_join("n", ["topic"])
    world.wait(1_000)
    world.beat("n", world.epoch("n"))
    world.beat("m", world.epoch("m"))
    before = world.share_group()
    world.restart()
    after = world.share_group()
    assert after is not before
    for name in (
        "epoch",
        "hashed",
        "assignment_epoch",
        "assignment_ms",
        "members",
        "targets",
        "states",
    ):
        assert getattr(after, name) == getattr(before, name), name
    written = len(world.log.records)
    answer = world.beat("m", world.epoch("m"))
    assert (answer.error_code, len(world.log.records)) == (E.NONE, written)


def test_h04_a_join_writes_the_records_that_kafka_writes(world: ShareGroupWorld) -> None:
    world.beat("m", 0, topics=["topic"])
    kinds = [
        ShareRecordType(int.from_bytes((key or b"")[:2], "big")) for key, _ in world.log.records
    ]
    kind = ShareRecordType
    assert kinds == [
        kind.MEMBER,
        kind.GROUP,
        kind.TARGET,
        kind.TARGET_EPOCH,
        kind.CURRENT,
        kind.STATE_PARTITIONS,
        kind.STATE_PARTITIONS,
    ]


def test_h04_every_record_has_kafkas_form(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"], rack="r")
    world.share_states.refuse = E.COORDINATOR_NOT_AVAILABLE
    world.beat("m", -1)
    world.groups.delete_group(GROUP)
    world.share_states.refuse = E.NONE
    world.groups.delete_group(GROUP)
    seen = set()
    for key, value in world.log.records:
        (name, _, _), valued = decode_record(OFFSETS_TOPIC, key, value)
        seen.add((name, valued is None))
        assert valued is None or valued[0] == name.removesuffix("Key") + "Value"
    assert seen == {
        (f"ShareGroup{name}Key", gone)
        for name in (
            "CurrentMemberAssignment",
            "MemberMetadata",
            "Metadata",
            "StatePartitionMetadata",
            "TargetAssignmentMember",
            "TargetAssignmentMetadata",
        )
        for gone in (False, True)
    }


def test_h05_a_group_is_stable_with_members_and_empty_without(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    assert world.described().group_state == "Stable"
    assert [(each.state, each.group_type, each.protocol_type) for each in world.listed()] == [
        ("Stable", "share", "share")
    ]
    world.beat("m", -1)
    described = world.described()
    assert (described.group_state, described.members) == ("Empty", [])
    assert described.assignor_name == "simple"


def test_h05_a_description_has_members_with_their_assignments(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"], rack="r")
    described = world.described()
    [member] = described.members
    assert (member.member_id, member.rack_id, member.client_id) == ("m", "r", "client")
    assert member.subscribed_topic_names == ["topic"]
    [part] = member.assignment.topic_partitions
    assert (part.topic_name, part.topic_id, part.partitions) == ("topic", T, list(range(10)))
    assert (described.group_epoch, described.assignment_epoch) == (3, 3)


def test_h07_partitions_are_assigned_once_they_have_a_share_state(world: ShareGroupWorld) -> None:
    world.share_states.hold = True
    world.beat("m", 0, topics=["topic"])
    for _ in range(3):
        world.wait(1_000)
        assert world.beat("m", 2).member_epoch == 2
    world.share_states.flush()
    assert world.assigned(world.beat("m", 2)) == {T: list(range(10))}


def test_h08_members_share_partitions_if_there_are_more_members(world: ShareGroupWorld) -> None:
    world.metadata.counts["topic"] = 2
    for member_id in "abcd":
        world.share_join(member_id, ["topic"])
    world.wait(1_000)
    for member_id in "abcd":
        world.beat(member_id, world.epoch(member_id))
    assigned = [world.share_group().members[each].assigned[T] for each in "abcd"]
    assert sorted(map(sorted, assigned)) == [[0], [0], [1], [1]]


def test_h09_assignments_are_at_least_the_assignment_interval_apart(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    assigned = world.share_group().assignment_epoch
    world.beat("n", 0, topics=["topic"])
    group = world.share_group()
    assert (group.epoch, group.assignment_epoch) == (assigned + 1, assigned)
    assert group.members["n"].epoch == assigned
    world.wait(999)
    world.beat("n", assigned)
    assert world.share_group().assignment_epoch == assigned
    world.wait(1)
    assert world.beat("n", assigned).member_epoch == assigned + 1


def test_h09_a_clock_that_is_set_back_delays_no_assignment(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.clock.jump(-3_600_000)
    world.beat("n", 0, topics=["topic"])
    assert world.share_group().assignment_epoch == world.share_group().epoch


def test_h09_a_group_may_have_its_own_interval(world: ShareGroupWorld) -> None:
    world.metadata.group_settings[GROUP, "share.assignment.interval.ms"] = 0
    world.share_join("m", ["topic"])
    world.beat("n", 0, topics=["topic"])
    assert world.share_group().assignment_epoch == world.share_group().epoch


@pytest.mark.parametrize(
    "request_",
    [
        {"member_id": ""},
        {"member_id": "  "},
        {"member_id": "x" * 37},
        {"group": ""},
        {"rack": ""},
        {"topics": None},
        {"topics": []},
        {"epoch": -2},
    ],
)
def test_h10_an_invalid_heartbeat_is_refused(
    world: ShareGroupWorld, request_: dict[str, Any]
) -> None:
    asked = {"member_id": "m", "epoch": 0, "topics": ["topic"], **request_}
    answer = world.beat(asked.pop("member_id"), asked.pop("epoch"), **asked)
    assert answer.error_code == E.INVALID_REQUEST
    assert not world.log.records


def test_h11_a_full_group_takes_no_more_members() -> None:
    world = ShareGroupWorld(group_share_max_size=1)
    world.share_join("m", ["topic"])
    assert world.beat("n", 0, topics=["topic"]).error_code == E.GROUP_MAX_SIZE_REACHED
    assert world.beat("m", 0, topics=["topic"]).error_code == E.NONE


def test_h12_an_unknown_member_is_refused(world: ShareGroupWorld) -> None:
    assert world.beat("m", 1).error_code == E.GROUP_ID_NOT_FOUND
    assert world.beat("m", -1).error_code == E.GROUP_ID_NOT_FOUND
    world.share_join("m", ["topic"])
    assert world.beat("n", 1).error_code == E.UNKNOWN_MEMBER_ID
    assert world.beat("n", -1).error_code == E.UNKNOWN_MEMBER_ID


def test_h13_a_heartbeat_with_a_wrong_member_epoch_is_fenced(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    epoch = world.epoch("m")
    assert world.beat("m", epoch + 1).error_code == E.FENCED_MEMBER_EPOCH
    assert world.beat("m", epoch - 1).error_code == E.NONE
    assert world.beat("m", epoch - 2).error_code == E.FENCED_MEMBER_EPOCH
    again = world.beat("m", 0, topics=["topic"])
    assert (again.error_code, again.member_epoch) == (E.NONE, epoch)


def test_h15_a_leaving_member_is_removed_from_the_group(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.share_join("n", ["topic"])
    epoch = world.share_group().epoch
    answer = world.beat("m", -1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (E.NONE, "m", -1)
    assert (list(world.share_group().members), world.share_group().epoch) == (["n"], epoch + 1)
    assert "m" not in world.share_group().targets


def test_h16_a_silent_member_is_removed(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.wait(40_000)
    world.share_join("n", ["topic"])
    world.wait(4_999)
    assert set(world.share_group().members) == {"m", "n"}
    world.wait(1)
    assert set(world.share_group().members) == {"n"}
    assert any("m of client client at 127.0.0.1 was removed" in text for text in world.history())


def test_h16_sessions_restart_with_the_broker(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.wait(40_000)
    world.restart()
    world.wait(44_999)
    assert set(world.share_group().members) == {"m"}
    world.wait(1)
    assert not world.share_group().members


def test_h16_a_refused_join_does_not_extend_the_session_of_another_member(
    world: ShareGroupWorld,
) -> None:
    world.share_join("silent", ["topic"])
    for _ in range(5):
        world.log.refuse = E.MESSAGE_TOO_LARGE
        assert world.beat("refused", 0, topics=["topic"]).error_code != E.NONE
        world.log.refuse = E.NONE
        world.wait(10_000)
    assert not world.share_group().members


def test_h16_a_group_may_have_its_own_session_timeout(world: ShareGroupWorld) -> None:
    world.metadata.group_settings[GROUP, "share.session.timeout.ms"] = 60_000
    world.metadata.group_settings[GROUP, "share.heartbeat.interval.ms"] = 7_000
    world.share_join("m", ["topic"])
    assert world.beat("m", world.epoch("m")).heartbeat_interval_ms == 7_000
    world.wait(59_999)
    assert world.share_group().members


def test_h16_sessions_can_be_ended_at_once(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.share_join("n", ["topic"])
    assert world.groups.expire_sessions(GROUP, "m") == ["m"]
    assert set(world.share_group().members) == {"n"}
    assert world.groups.expire_sessions(GROUP) == ["n"]
    assert world.described().group_state == "Empty"


def test_h16_a_failed_append_removes_no_member(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.log.refuse = E.MESSAGE_TOO_LARGE
    assert world.beat("m", -1).error_code == E.UNKNOWN_SERVER_ERROR
    world.wait(45_000)
    assert set(world.share_group().members) == {"m"}
    world.log.refuse = E.NONE
    world.wait(45_000)
    assert not world.share_group().members


def test_h10_the_history_tells_which_members_joined_and_left(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.beat("m", 99)
    world.beat("m", -1)
    texts = world.history()
    for part in (
        "m of client client at 127.0.0.1 joined; it is subscribed to topic",
        "assignment of epoch 3: m (10 partitions)",
        "10 partitions have a state",
        "m is at epoch 3, with all that it is to have",
        "greater member epoch (99)",
        "m of client client at 127.0.0.1 left",
    ):
        assert any(part in text for text in texts), (part, texts)
