"""Members of streams groups: heartbeats, delays, sessions, restarts (J-02 to J-26, J-51, J-52)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from group_world import part
from odradek_broker.coordinator.groups.modern.group import ModernGroupState
from odradek_broker.coordinator.groups.offsets import FetchingMember
from odradek_broker.coordinator.groups.streams.topology import StreamsStatusCode
from odradek_broker.explain.history import RecordedEvent
from odradek_broker.explain.modern_groups import states_of_modern_group
from odradek_broker.explain.sentences import EventKind, sentence
from odradek_protocol.common_structs import CopartitionGroup, StreamsProperty, UserEndpoint
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.streams_group_heartbeat import StreamsTopology
from streams_group_world import GROUP, StreamsGroupWorld, internal, subtopology, tasks, topology

E = ErrorCode
ALL = list(range(10))


@pytest.fixture
def world() -> StreamsGroupWorld:
    return StreamsGroupWorld()


def error(world: StreamsGroupWorld, member_id: str = "a", epoch: int = 0, **more: Any) -> E:
    return E(world.beat(member_id, epoch, **more).error_code)


def test_j03_j20_the_first_member_gets_every_task(world: StreamsGroupWorld) -> None:
    answer = world.beat("a")
    assert (answer.member_epoch, world.active(answer)) == (2, {"0": ALL})
    assert (answer.standby_tasks, answer.warmup_tasks, answer.status) == ([], [], [])
    assert answer.heartbeat_interval_ms == 5_000
    group = world.streams_group()
    assert (group.epoch, group.assignment_epoch) == (2, 2)
    assert group.state is ModernGroupState.STABLE
    assert world.beat("a", 2).active_tasks is None


def test_j30_tasks_move_to_a_new_member_after_their_owner_revokes_them(
    world: StreamsGroupWorld,
) -> None:
    world.beat("a")
    assert world.active(world.beat("b")) == {}
    assert world.streams_group().state is ModernGroupState.RECONCILING
    left = world.active(world.beat("a", 2))["0"]
    assert len(left) == 5
    assert world.report("a", 2, _0=ALL) == 2
    assert world.beat("b", 3).active_tasks is None
    assert world.report("a", 2, _0=left) == 3
    got = world.active(world.beat("b", 3))["0"]
    assert sorted(got + left) == ALL
    assert world.streams_group().state is ModernGroupState.STABLE


def test_j02_a_restart_finds_the_group_as_it_was(world: StreamsGroupWorld) -> None:
    endpoint = UserEndpoint(host="h", port=1)
    world.beat("a", user_endpoint=endpoint, rack_id="r")
    world.beat("b")
    world.beat("a", 2)
    before = world.streams_group()
    world.restart()
    after = world.streams_group()
    assert after is not before
    assert (after.members, after.targets) == (before.members, before.targets)
    assert (after.topology, after.epoch) == (before.topology, before.epoch)
    assert (after.hashed, after.validated_epoch) == (before.hashed, before.validated_epoch)
    assert after.assignment_epoch == before.assignment_epoch
    assert after.assignor_settings == before.assignor_settings
    kept = after.members["a"].assigned.tasks.active["0"]
    assert world.report("a", 2, _0=kept) == 3


def test_j06_the_first_assignment_waits_for_more_members() -> None:
    world = StreamsGroupWorld(delay_ms=3_000)
    for member_id in "ab":
        answer = world.beat(member_id)
        assert (answer.member_epoch, world.active(answer)) == (1, {})
        assert world.statuses(answer) == [StreamsStatusCode.ASSIGNMENT_DELAYED]
    world.wait(2_999)
    assert world.streams_group().assignment_epoch == 1
    world.wait(1)
    assert world.streams_group().assignment_epoch == 3
    assert len(world.active(world.beat("a", 1))["0"]) == 5


def test_j06_nothing_is_assigned_when_the_members_are_gone() -> None:
    world = StreamsGroupWorld(delay_ms=3_000)
    world.beat("a")
    world.beat("a", -1)
    world.wait(3_000)
    assert world.streams_group().targets == {}


def test_j07_assignments_are_at_least_the_assignment_interval_apart() -> None:
    world = StreamsGroupWorld(interval_ms=1_000)
    world.beat("a")
    answer = world.beat("b")
    assert world.statuses(answer) == [StreamsStatusCode.ASSIGNMENT_DELAYED]
    assert world.streams_group().state is ModernGroupState.ASSIGNING
    world.wait(1_000)
    world.beat("b", answer.member_epoch)
    assert world.streams_group().assignment_epoch == 3


def test_j07_a_clock_that_is_set_back_delays_no_assignment() -> None:
    world = StreamsGroupWorld(interval_ms=1_000)
    world.beat("a")
    world.clock.jump(-3_600_000)
    assert world.statuses(world.beat("b")) == []


def test_j14_the_previous_epoch_is_accepted_if_the_answer_was_lost(
    world: StreamsGroupWorld,
) -> None:
    world.beat("a")
    world.beat("b")
    kept = world.active(world.beat("a", 2))["0"]
    assert world.report("a", 2, _0=kept) == 3
    assert error(world, "a", 2) is E.FENCED_MEMBER_EPOCH
    assert world.report("a", 2, _0=kept) == 3
    assert error(world, "a", 4) is E.FENCED_MEMBER_EPOCH


def test_j15_a_full_group_refuses_members() -> None:
    world = StreamsGroupWorld(group_streams_max_size=1)
    world.beat("a")
    assert error(world, "b") is E.GROUP_MAX_SIZE_REACHED
    assert error(world, "a", 2) is E.NONE


def test_j19_a_silent_member_is_removed(world: StreamsGroupWorld) -> None:
    world.beat("a")
    world.beat("b")
    world.wait(30_000)
    world.beat("a", 2)
    world.wait(15_000)
    group = world.streams_group()
    assert list(group.members) == ["a"]
    assert error(world, "b", 3) is E.UNKNOWN_MEMBER_ID


def test_j19_a_member_that_does_not_revoke_its_tasks_in_time_is_removed(
    world: StreamsGroupWorld,
) -> None:
    world.beat("a", rebalance_timeout_ms=20_000)
    world.beat("b")
    world.beat("a", 2)
    for _ in range(2):
        world.wait(10_000)
        world.beat("b", 3)
        if "a" in world.streams_group().members:
            world.report("a", 2, _0=ALL)
    assert "a" not in world.streams_group().members
    assert world.streams_group().members["b"].assigned.tasks.active == {"0": frozenset(ALL)}


def test_j05_j22_tasks_are_assigned_when_their_source_topics_exist(
    world: StreamsGroupWorld,
) -> None:
    answer = world.beat("a", topology=topology(subtopology(sources=["topic", "new"])))
    assert world.statuses(answer) == [StreamsStatusCode.MISSING_SOURCE_TOPICS]
    assert (world.active(answer), answer.member_epoch) == ({}, 2)
    assert world.streams_group().state is ModernGroupState.NOT_READY
    world.create("new", 12)
    answer = world.beat("a", 2)
    assert world.active(answer) == {"0": list(range(12))}
    assert world.streams_group().state is ModernGroupState.STABLE


def test_j24_the_answer_names_the_internal_topics_to_create(world: StreamsGroupWorld) -> None:
    made = topology(subtopology(changelogs=[internal("c")]))
    answer = world.ask("a", topology=made)
    assert {name: each.partitions for name, each in answer.missing.items()} == {"c": 10}
    assert world.statuses(answer.response) == [StreamsStatusCode.MISSING_INTERNAL_TOPICS]
    world.create("c", 10)
    after = world.ask("a", 2)
    assert not after.missing and world.active(after.response) == {"0": ALL}


def test_j18_user_endpoints_are_sent_when_they_change(world: StreamsGroupWorld) -> None:
    first = world.beat("a", user_endpoint=UserEndpoint(host="a", port=1))
    assert first.partitions_by_user_endpoint is not None
    (only,) = first.partitions_by_user_endpoint
    assert (only.user_endpoint.host, only.active_partitions[0].partitions) == ("a", ALL)
    epoch = world.beat("a", 2, endpoint_information_epoch=0).endpoint_information_epoch
    assert world.beat("a", 2, endpoint_information_epoch=epoch).partitions_by_user_endpoint is None
    world.beat("b", user_endpoint=UserEndpoint(host="b", port=1))
    told = world.beat("a", 2, endpoint_information_epoch=epoch).partitions_by_user_endpoint
    assert told is not None and [each.user_endpoint.host for each in told] == ["b", "a"]


def test_j26_a_shutdown_request_reaches_all_members_until_the_group_is_empty(
    world: StreamsGroupWorld,
) -> None:
    world.beat("a")
    world.beat("b")
    world.beat("a", 2, shutdown_application=True)
    answer = world.beat("b", 3)
    assert world.statuses(answer) == [StreamsStatusCode.SHUTDOWN_APPLICATION]
    world.beat("a", -1)
    world.beat("b", -1)
    assert world.statuses(world.beat("b")) == []


def test_j16_j51_a_group_without_members_may_change_its_type(world: StreamsGroupWorld) -> None:
    assert world.commit(7) is E.NONE
    world.beat("a")
    assert world.join().result().error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert world.groups.delete_group(GROUP).result() is E.NON_EMPTY_GROUP
    world.beat("a", -1)
    member_id, joined = world.enter()
    assert joined.result().error_code == E.NONE
    assert world.groups.streams_group(GROUP) is None
    assert error(world, "a") is E.GROUP_ID_NOT_FOUND
    assert world.fetch(("topic", 0)).parts[0].offset == 7
    assert world.leave(member_id) == [E.NONE]
    assert error(world, "a") is E.NONE
    world.restart()
    assert list(world.streams_group().members) == ["a"]
    assert world.fetch(("topic", 0)).parts[0].offset == 7


def _conversions(world: StreamsGroupWorld) -> list[RecordedEvent]:
    events = [event for _, _, event in world.group_history.newest(-1)]
    return [event for event in events if event.kind is EventKind.GROUP_CONVERTED]


def test_j16_a_refused_join_converts_no_group(world: StreamsGroupWorld) -> None:
    assert world.commit(7) is E.NONE
    wrong = CopartitionGroup(source_topics=[5])
    invalid = topology(subtopology(sources=["topic"], together=[wrong]))
    assert error(world, "a", topology=invalid) is E.STREAMS_INVALID_TOPOLOGY
    assert not _conversions(world)
    assert error(world, "a") is E.NONE
    assert len(_conversions(world)) == 1


def test_j51_a_deleted_group_is_gone_with_its_offsets(world: StreamsGroupWorld) -> None:
    world.commit(7)
    world.beat("a")
    world.beat("a", -1)
    assert world.groups.delete_group(GROUP).result() is E.NONE
    for _ in range(2):
        assert world.groups.streams_group(GROUP) is None
        assert world.fetch(("topic", 0)).parts[0].offset == -1
        world.restart()


def test_j52_a_commit_needs_the_epoch_of_its_task(world: StreamsGroupWorld) -> None:
    world.beat("a")
    assert world.commit(member_id="a", generation=2) is E.NONE
    assert world.commit(member_id="a", generation=3) is E.STALE_MEMBER_EPOCH
    assert world.commit(member_id="b", generation=2) is E.UNKNOWN_MEMBER_ID
    assert world.commit(member_id="a", generation=2, version=8) is E.UNSUPPORTED_VERSION
    assert world.commit() is E.UNKNOWN_MEMBER_ID
    world.beat("b")
    kept = world.active(world.beat("a", 2))["0"]
    assert world.report("a", 2, _0=kept) == 3
    gone = min(set(ALL) - set(kept))
    for partition, expected in ((min(kept), E.NONE), (gone, E.STALE_MEMBER_EPOCH)):
        sent = world.commit_later(part(5, "topic", partition), member_id="a", generation=2)
        assert sent.result() == [expected]
    world.report("a", 3, _0=kept)
    got = world.active(world.beat("b", 3))["0"]
    early = world.commit_later(part(5, "topic", got[0]), member_id="b", generation=2)
    assert early.result() == [E.STALE_MEMBER_EPOCH]


def test_j52_a_fetch_with_a_member_needs_its_epoch(world: StreamsGroupWorld) -> None:
    world.beat("a")
    for member, expected in (
        (FetchingMember(), E.NONE),
        (FetchingMember("a", 2), E.NONE),
        (FetchingMember("a", 1), E.STALE_MEMBER_EPOCH),
        (FetchingMember("b", 2), E.UNKNOWN_MEMBER_ID),
    ):
        found = world.groups.fetch_offsets(GROUP, [("topic", 0)], False, member).result()
        assert found.error is expected


def test_j25_equal_subtopology_ids_are_refused(world: StreamsGroupWorld) -> None:
    twice = topology(subtopology("0"), subtopology("0", ["other"]))
    assert error(world, topology=twice) is E.STREAMS_INVALID_TOPOLOGY
    assert world.groups.streams_group(GROUP) is None


def test_refused_records_leave_the_group_as_it_was(world: StreamsGroupWorld) -> None:
    world.beat("a")
    before = dict(world.streams_group().members)
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    assert error(world, "b") is E.NOT_COORDINATOR
    world.log.refuse = E.NONE
    assert world.streams_group().members == before
    assert world.active(world.beat("b")) == {}


def test_tasks_outside_of_the_topology_are_refused(world: StreamsGroupWorld) -> None:
    world.beat("a")
    sent: dict[str, Any] = {"standby_tasks": [], "warmup_tasks": []}
    assert error(world, "a", 2, active_tasks=tasks(_0=[10]), **sent) is E.INVALID_REQUEST
    assert error(world, "a", 2, active_tasks=tasks(_7=[0]), **sent) is E.INVALID_REQUEST


def message(
    world: StreamsGroupWorld, epoch: int = 0, fields: Mapping[str, Any] | None = None, **more: Any
) -> str:
    answer = world.beat("a", epoch, **more, **(fields or {}))
    assert answer.error_code == E.INVALID_REQUEST
    return answer.error_message or ""


def test_j10_an_invalid_heartbeat_is_refused_with_its_reason(world: StreamsGroupWorld) -> None:
    assert message(world, group="") == "GroupId can't be empty."
    assert message(world, rack_id=" ") == "RackId can't be empty."
    assert "RebalanceTimeoutMs" in message(world, rebalance_timeout_ms=-1)
    for kind in ("active_tasks", "standby_tasks"):
        for given in (None, tasks(_0=[0])):
            assert "must be empty" in message(world, fields={kind: given})
    assert "Topology must be non-null" in message(world, topology=None)
    assert "InstanceId" in message(world, -2)
    assert message(world, -3) == "MemberEpoch is -3, but must be greater than or equal to -2."
    assert "all must be non-null" in message(world, 1, active_tasks=[])
    assert "only be provided when" in message(world, 1, topology=topology())
    assert not world.log.records


def test_j11_fields_that_are_not_supported_are_refused(world: StreamsGroupWorld) -> None:
    expression = subtopology()
    expression.source_topic_regex = [".*"]
    for name, value in (
        ("instance_id", "i"),
        ("task_offsets", []),
        ("task_end_offsets", []),
        ("warmup_tasks", tasks(_0=[0])),
        ("topology", topology(expression)),
    ):
        told = message(world, fields={name: value})
        assert "not supported yet" in told or "not yet supported" in told


def test_j12_j13_j17_heartbeats_of_missing_groups_and_members_are_refused(
    world: StreamsGroupWorld,
) -> None:
    for epoch in (1, -1):
        assert error(world, "a", epoch) is E.GROUP_ID_NOT_FOUND
    world.beat("a")
    for epoch in (2, -1):
        assert error(world, "b", epoch) is E.UNKNOWN_MEMBER_ID
    assert error(world, "a", -1) is E.NONE
    assert world.streams_group().state is ModernGroupState.EMPTY
    assert error(world, "a", -1) is E.UNKNOWN_MEMBER_ID


def test_j21_a_group_keeps_the_topology_of_its_first_member(world: StreamsGroupWorld) -> None:
    world.beat("a", topology=topology(epoch=3))
    answer = world.beat("b", topology=topology(subtopology("1"), epoch=2))
    assert world.statuses(answer) == [StreamsStatusCode.STALE_TOPOLOGY]
    for other in (topology(subtopology("1"), epoch=3), topology(epoch=4)):
        assert "Topology updates" in message(world, topology=other)
    assert error(world, "c", topology=topology(epoch=3)) is E.NONE


def test_j21_undeclared_tagged_fields_are_not_part_of_a_topology(world: StreamsGroupWorld) -> None:
    def made(tags: dict[int, bytes] | None) -> StreamsTopology:
        setting = StreamsProperty(key="k", value="v", unknown_tags=tags)
        changelog = internal("c")
        changelog.topic_configs, changelog.unknown_tags = [setting], tags
        together = CopartitionGroup(unknown_tags=tags)
        part = subtopology(changelogs=[changelog], together=[together])
        part.unknown_tags = tags
        return topology(part)

    assert error(world, "a", topology=made({99: bytes(1000)})) is E.NONE
    assert error(world, "b", topology=made(None)) is E.NONE
    world.restart()
    assert error(world, "c", topology=made(None)) is E.NONE


def test_the_history_of_a_group_tells_of_members_and_tasks(world: StreamsGroupWorld) -> None:
    world.beat("a", topology=topology(subtopology(sources=["two"])))
    world.create("two", 2)
    world.beat("a", 2)
    world.beat("b", topology=topology(subtopology(sources=["two"])))
    world.beat("a", 3)
    world.beat("a", -1)
    events = world.group_history.about(GROUP).events
    told = "\n".join(sentence(event.kind, event.fields) for event in events)
    for part_of_it in (
        "a of client client at 127.0.0.1 joined",
        "assignment of epoch 3: a (2 active tasks)",
        "a is at epoch 3, with all that it is to have",
        "assignment of epoch 4: a (1 active tasks), b (1 active tasks)",
        "a is at epoch 3, to give tasks back first",
        "a of client client at 127.0.0.1 left",
    ):
        assert part_of_it in told, told
    now = states_of_modern_group(world.streams_group(), world.metadata, 0, 45_000)
    texts = [sentence(each.kind, each.fields) for each in now]
    assert texts[0].startswith("Assigning, group epoch 5"), texts
    assert "epoch 4, waiting for tasks that others still hold" in texts[1], texts
