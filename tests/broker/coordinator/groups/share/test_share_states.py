"""Share partitions get and lose their state (rules H-20 to H-31)."""

from __future__ import annotations

import pytest

from at_once import at_once
from group_world import part
from handler_calls import handled
from odradek_broker.coordinator.groups.offsets import CommitCall
from odradek_broker.coordinator.groups.share.group import StatePartitions, StateTopic
from odradek_broker.coordinator.groups.share.requests import DescribedOffset
from odradek_broker.share_state import ShareKey, ShareState
from odradek_protocol.errors import ErrorCode as E
from odradek_protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from share_group_world import GROUP, O, ShareGroupWorld, T

ALL = frozenset(range(10))


@pytest.fixture
def world() -> ShareGroupWorld:
    return ShareGroupWorld()


def states(world: ShareGroupWorld) -> StatePartitions:
    found = world.share_group().states
    assert found is not None
    return found


def stored(world: ShareGroupWorld) -> set[tuple[bytes, int]]:
    return {(key.topic_id, key.partition) for key in world.share_states.states}


def test_h20_h21_subscribed_partitions_get_an_initial_share_state(
    world: ShareGroupWorld,
) -> None:
    world.share_states.hold = True
    world.beat("m", 0, topics=["topic"])
    assert states(world) == StatePartitions(initializing={T: StateTopic("topic", ALL)})
    assert not world.share_states.states
    world.share_states.flush()
    assert states(world) == StatePartitions(initialized={T: StateTopic("topic", ALL)})
    assert world.share_states.states == {
        ShareKey(GROUP, T, index): ShareState(0, 2, 0, -1) for index in ALL
    }


def test_h21_a_heartbeat_is_answered_before_the_states_are_initialized(
    world: ShareGroupWorld,
) -> None:
    world.share_states.hold = True
    assert world.beat("m", 0, topics=["topic"]).error_code == E.NONE


def test_h21_no_state_is_requested_before_its_initializing_record_is_durable(
    world: ShareGroupWorld,
) -> None:
    world.log.hold = True
    waiting = world.ask("m", 0, topics=["topic"])
    assert (waiting.done, stored(world)) == (False, set())
    world.log.flush()
    assert (waiting.done, len(stored(world))) == (True, 10)


def test_h21_only_new_partitions_of_a_topic_get_a_state(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.share_states.states.clear()
    world.metadata.counts["topic"] = 12
    world.metadata.topics_version += 1
    world.beat("m", world.epoch("m"))
    assert stored(world) == {(T, 10), (T, 11)}


def start_offsets(world: ShareGroupWorld) -> dict[int, int]:
    return {key.partition: each.start_offset for key, each in world.share_states.states.items()}


def test_h21_partitions_that_are_added_to_a_topic_begin_at_the_first_offset(
    world: ShareGroupWorld,
) -> None:
    world.share_join("m", ["topic"])
    world.restart()
    world.metadata.counts["topic"] = 11
    world.metadata.topics_version += 1
    world.beat("m", world.epoch("m"))
    assert start_offsets(world) == {**dict.fromkeys(range(10), -1), 10: 0}


def test_h21_h22_first_states_are_requested_again_with_no_start_offset(
    world: ShareGroupWorld,
) -> None:
    world.share_states.hold = True
    world.beat("m", 0, topics=["topic"])
    world.share_states.waiting.clear()
    world.metadata.counts["topic"] = 11
    world.metadata.topics_version += 1
    world.wait(30_000)
    world.beat("m", 2)
    world.share_states.flush()
    assert start_offsets(world) == {**dict.fromkeys(range(10), -1), 10: 0}


def test_h22_states_that_stay_uninitialized_are_requested_again_after_30_seconds(
    world: ShareGroupWorld,
) -> None:
    world.share_states.hold = True
    world.beat("m", 0, topics=["topic"])
    world.wait(29_999)
    world.beat("m", 2)
    assert len(world.share_states.waiting) == 10
    world.wait(1)
    world.beat("m", 2)
    assert len(world.share_states.waiting) == 20


def test_h22_a_restart_restarts_the_wait_for_uninitialized_states(world: ShareGroupWorld) -> None:
    world.share_states.hold = True
    world.beat("m", 0, topics=["topic"])
    world.restart()
    world.wait(29_999)
    world.beat("m", 2)
    assert len(world.share_states.waiting) == 10
    world.wait(1)
    world.beat("m", 2)
    assert len(world.share_states.waiting) == 20


def test_h23_the_next_heartbeat_after_an_error_requests_the_states_again(
    world: ShareGroupWorld,
) -> None:
    world.share_states.refuse = E.COORDINATOR_NOT_AVAILABLE
    world.beat("m", 0, topics=["topic"])
    assert states(world) == StatePartitions(initializing={T: StateTopic("topic", ALL)})
    world.share_states.hold, world.share_states.refuse = True, E.NONE
    for _ in range(2):
        world.beat("m", 2)
        assert len(world.share_states.waiting) == 10
    world.share_states.flush()
    assert states(world) == StatePartitions(initialized={T: StateTopic("topic", ALL)})


def test_h23_a_state_that_an_administrator_requests_is_not_requested_by_a_heartbeat_too(
    world: ShareGroupWorld,
) -> None:
    world.share_states.refuse = E.COORDINATOR_NOT_AVAILABLE
    world.beat("m", 0, topics=["topic"])
    world.beat("m", -1)
    world.share_states.hold, world.share_states.refuse = True, E.NONE
    altered = world.groups.share.alter_offsets(GROUP, {"topic": {3: 7}})
    world.beat("n", 0, topics=["topic"])
    assert len(world.share_states.waiting) == 1 + 9
    world.share_states.flush()
    assert altered.result().error is E.NONE
    assert states(world) == StatePartitions(initialized={T: StateTopic("topic", ALL)})
    assert world.share_states.states[ShareKey(GROUP, T, 3)].start_offset == 7


def test_h23_an_error_of_a_state_that_exists_leaves_no_request_open(
    world: ShareGroupWorld,
) -> None:
    world.share_join("m", ["topic"])
    world.beat("m", -1)
    world.share_states.refused = {ShareKey(GROUP, T, 3)}
    world.groups.share.alter_offsets(GROUP, {"topic": {2: 7, 3: 7}})
    assert states(world) == StatePartitions(initialized={T: StateTopic("topic", ALL)})


def test_h23_states_of_a_deleted_group_are_not_recorded(world: ShareGroupWorld) -> None:
    world.share_states.hold = True
    world.beat("m", 0, topics=["topic"])
    world.beat("m", -1)
    world.share_states.hold = False
    assert world.groups.delete_group(GROUP).result() is E.NONE
    assert world.groups.share_group(GROUP) is None
    assert stored(world) == set()


def test_h23_states_that_are_already_being_deleted_are_not_recorded(
    world: ShareGroupWorld,
) -> None:
    world.share_states.hold = True
    world.beat("m", 0, topics=["topic"])
    world.beat("m", -1)
    deletion = world.groups.delete_group(GROUP)
    world.share_states.flush(10)
    assert states(world) == StatePartitions(deleting={T: "topic"})
    world.share_states.flush()
    assert deletion.result() is E.NONE


@pytest.mark.parametrize("refuse", [E.NONE, E.COORDINATOR_NOT_AVAILABLE])
def test_h23_an_answer_from_before_a_deletion_does_not_affect_states_requested_since(
    world: ShareGroupWorld, refuse: E
) -> None:
    world.share_states.hold = True
    world.beat("m", 0, topics=["topic"])
    world.beat("m", -1)
    deletion = world.groups.delete_group(GROUP)
    world.beat("m", 0, topics=["topic"])
    world.share_states.refuse = refuse
    world.share_states.flush(10)
    assert states(world) == StatePartitions(initializing={T: StateTopic("topic", ALL)})
    world.share_states.refuse = E.NONE
    world.share_states.flush()
    assert deletion.result() is E.NON_EMPTY_GROUP
    assert states(world) == StatePartitions(initialized={T: StateTopic("topic", ALL)})
    assert len(stored(world)) == 10


def test_h24_offsets_of_share_partitions_are_described(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.share_states.states[ShareKey(GROUP, T, 1)] = ShareState(0, 2, 7, 40, 3)
    world.share_states.states[ShareKey(GROUP, T, 2)] = ShareState(0, 2, 7, 40, -1)
    world.end_offsets["topic", 1] = 50
    wanted = [(T, 0), (T, 1), (T, 2), (O, 0)]
    found = handled(world.groups.share.describe_offsets(GROUP, wanted))
    assert found == {
        (T, 0): DescribedOffset(-1, 0, -1),
        (T, 1): DescribedOffset(40, 7, 7),
        (T, 2): DescribedOffset(40, 7, -1),
        (O, 0): DescribedOffset(-1, 0, -1),
    }
    assert world.groups.share.initialized_partitions(GROUP).result() == (E.NONE, {T: ALL})
    assert world.groups.share.initialized_partitions("none").result() == (E.NONE, {})


def test_h24_a_partition_without_a_readable_end_offset_has_its_error(
    world: ShareGroupWorld,
) -> None:
    world.share_states.states[ShareKey(GROUP, T, 0)] = ShareState(0, 2, 7, 40, 3)
    world.end_offsets["topic", 0] = E.KAFKA_STORAGE_ERROR
    found = handled(world.groups.share.describe_offsets(GROUP, [(T, 0)]))
    assert found[T, 0].error is E.KAFKA_STORAGE_ERROR


def test_h25_start_offsets_of_a_group_without_members_are_altered(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    wanted = {"topic": {0: 5, 3: 7, 10: 9, -1: 9}}
    refused = world.groups.share.alter_offsets(GROUP, wanted).result()
    assert (refused.error, refused.results) == (E.NON_EMPTY_GROUP, {})
    world.beat("m", -1)
    altered = world.groups.share.alter_offsets(GROUP, wanted).result()
    assert altered.error is E.NONE
    assert set(altered.results) == {(T, 0), (T, 3)}
    start = {key: state.start_offset for key, state in world.share_states.states.items()}
    assert start[ShareKey(GROUP, T, 0)] == 5
    assert start[ShareKey(GROUP, T, 3)] == 7
    assert start[ShareKey(GROUP, T, 1)] == -1
    assert states(world) == StatePartitions(initialized={T: StateTopic("topic", ALL)})


def test_h25_altering_offsets_creates_the_group(world: ShareGroupWorld) -> None:
    assert world.groups.share.alter_offsets(GROUP, {"topic": {0: 5}}).result().error is E.NONE
    assert world.described().group_state == "Empty"
    assert states(world).initialized == {T: StateTopic("topic", frozenset({0}))}


def test_h25_partitions_that_cannot_be_altered_have_an_error(world: ShareGroupWorld) -> None:
    world.share_states.refuse = E.COORDINATOR_NOT_AVAILABLE
    altered = world.groups.share.alter_offsets(GROUP, {"topic": {0: 5}}).result()
    assert altered.results[T, 0].error is E.COORDINATOR_NOT_AVAILABLE
    assert states(world) == StatePartitions(initializing={T: StateTopic("topic", frozenset({0}))})


def test_h25_an_error_of_one_partition_does_not_affect_the_others(
    world: ShareGroupWorld,
) -> None:
    world.share_states.refused.add(ShareKey(GROUP, T, 1))
    altered = world.groups.share.alter_offsets(GROUP, {"topic": {0: 5, 1: 6}}).result()
    assert altered.results[T, 0].error is E.NONE
    assert altered.results[T, 1].error is E.COORDINATOR_NOT_AVAILABLE
    assert states(world) == StatePartitions(
        initializing={T: StateTopic("topic", frozenset({1}))},
        initialized={T: StateTopic("topic", frozenset({0}))},
    )
    world.share_states.refused.clear()
    world.share_join("m", ["topic"])
    start = {key: state.start_offset for key, state in world.share_states.states.items()}
    assert (start[ShareKey(GROUP, T, 0)], start[ShareKey(GROUP, T, 1)]) == (5, 0)


def test_h26_offsets_of_topics_are_deleted(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic", "other"])
    assert world.groups.share.delete_offsets(GROUP, ["topic"]).result().error is E.NON_EMPTY_GROUP
    world.beat("m", -1)
    deleted = world.groups.share.delete_offsets(GROUP, ["topic", "nonesuch"]).result()
    assert deleted.codes == {"topic": E.NONE, "nonesuch": E.UNKNOWN_TOPIC_OR_PARTITION}
    assert states(world) == StatePartitions(initialized={O: StateTopic("other", ALL)})
    assert {topic_id for topic_id, _ in stored(world)} == {O}
    again = world.groups.share.delete_offsets(GROUP, ["topic"]).result()
    assert again.codes == {"topic": E.UNKNOWN_TOPIC_OR_PARTITION}


def test_h26_a_deletion_that_failed_can_be_requested_again(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.beat("m", -1)
    world.share_states.refuse = E.COORDINATOR_NOT_AVAILABLE
    failed = world.groups.share.delete_offsets(GROUP, ["topic"]).result()
    assert failed.codes == {"topic": E.COORDINATOR_NOT_AVAILABLE}
    assert states(world) == StatePartitions(deleting={T: "topic"})
    world.restart()
    world.share_states.refuse = E.NONE
    assert world.groups.share.delete_offsets(GROUP, ["topic"]).result().codes == {"topic": E.NONE}
    assert (states(world), stored(world)) == (StatePartitions(), set())


def test_h26_a_topic_that_is_subscribed_again_keeps_its_share_state(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.beat("m", -1)
    world.share_states.refuse = E.COORDINATOR_NOT_AVAILABLE
    world.groups.share.delete_offsets(GROUP, ["topic"])
    world.share_states.refuse = E.NONE
    world.share_join("m", ["topic"])
    assert states(world) == StatePartitions(initialized={T: StateTopic("topic", ALL)})


def test_h26_deleting_offsets_of_a_missing_group_is_an_error(world: ShareGroupWorld) -> None:
    missing = world.groups.share.delete_offsets(GROUP, ["topic"]).result()
    assert missing.error is E.GROUP_ID_NOT_FOUND


def test_h26_a_deletion_that_ends_late_leaves_a_later_one_noted(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.beat("m", -1)
    world.share_states.hold = True
    world.groups.share.delete_offsets(GROUP, ["topic"])
    world.beat("n", 0, topics=["topic"])
    world.beat("n", -1)
    deletion = world.groups.delete_group(GROUP)
    world.share_states.flush(20)
    assert states(world) == StatePartitions(deleting={T: "topic"})
    world.share_states.refuse = E.COORDINATOR_NOT_AVAILABLE
    world.share_states.flush()
    assert deletion.result() is E.COORDINATOR_NOT_AVAILABLE
    world.share_states.hold, world.share_states.refuse = False, E.NONE
    assert world.groups.delete_group(GROUP).result() is E.NONE
    assert (world.listed(), stored(world)) == ([], set())


def test_h27_a_deleted_topic_is_removed_from_the_share_group(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic", "other"])
    world.log.hold = True
    forgotten = world.delete_topic()
    assert not forgotten.done
    world.log.flush()
    assert forgotten.done
    assert states(world) == StatePartitions(initialized={O: StateTopic("other", ALL)})


def test_h27_a_topic_deleted_during_initialization_is_not_recorded_again(
    world: ShareGroupWorld,
) -> None:
    world.share_states.hold = True
    world.beat("m", 0, topics=["topic", "other"])
    assert world.delete_topic().done
    world.share_states.flush()
    assert states(world) == StatePartitions(initialized={O: StateTopic("other", ALL)})


def test_h27_a_topic_deleted_before_a_crash_is_removed_at_the_start(
    world: ShareGroupWorld,
) -> None:
    world.share_join("m", ["topic", "other"])
    del world.metadata.counts["topic"], world.metadata.ids["topic"]
    world.restart()
    assert states(world) == StatePartitions(initialized={O: StateTopic("other", ALL)})


def test_h28_deleting_a_group_deletes_its_share_states(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    assert world.groups.delete_group(GROUP).result() is E.NON_EMPTY_GROUP
    assert len(stored(world)) == 10
    world.beat("m", -1)
    assert world.groups.delete_group(GROUP).result() is E.NONE
    assert stored(world) == set()
    assert world.listed() == []
    world.restart()
    assert world.listed() == []


def test_h28_a_group_stays_while_its_states_cannot_be_deleted(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.beat("m", -1)
    world.share_states.refuse = E.COORDINATOR_NOT_AVAILABLE
    assert world.groups.delete_group(GROUP).result() is E.COORDINATOR_NOT_AVAILABLE
    assert states(world) == StatePartitions(deleting={T: "topic"})
    world.share_states.refuse = E.NONE
    assert world.groups.delete_group(GROUP).result() is E.NONE
    assert (world.listed(), stored(world)) == ([], set())


def test_h28_a_member_that_leaves_during_a_deletion_leaves_no_states_behind(
    world: ShareGroupWorld,
) -> None:
    world.share_join("m", ["topic"])
    world.log.hold = True
    world.ask("m", world.epoch("m"), topics=["topic", "other"])
    deletion = world.groups.delete_group(GROUP)
    world.ask("m", -1)
    for _ in range(3):
        world.log.flush()
    world.log.hold = False
    assert deletion.result() is E.NON_EMPTY_GROUP
    assert [each.group_id for each in world.listed()] == [GROUP]
    assert world.groups.delete_group(GROUP).result() is E.NONE
    assert (world.listed(), stored(world)) == ([], set())


@pytest.mark.parametrize("topic", ["topic", "other"])
@pytest.mark.parametrize("answered_first", [0, 10, 20])
def test_h28_states_requested_during_a_deletion_keep_the_group(
    world: ShareGroupWorld, topic: str, answered_first: int
) -> None:
    world.share_join("m", ["topic"])
    world.beat("m", -1)
    world.share_states.hold = True
    deletion = world.groups.delete_group(GROUP)
    world.beat("n", 0, topics=[topic])
    world.share_states.flush(answered_first)
    world.beat("n", -1)
    world.share_states.flush()
    world.share_states.hold = False
    assert deletion.result() is E.NON_EMPTY_GROUP
    assert [each.group_id for each in world.listed()] == [GROUP]
    assert len(stored(world)) == 10
    assert world.groups.delete_group(GROUP).result() is E.NONE
    assert (world.listed(), stored(world)) == ([], set())


@pytest.mark.parametrize("restarts", [False, True])
def test_h28_states_initialized_despite_an_error_are_deleted_with_the_group(
    world: ShareGroupWorld, restarts: bool
) -> None:
    world.share_states.refused = {ShareKey(GROUP, T, 3)}
    world.beat("m", 0, topics=["topic"])
    assert len(stored(world)) == 9
    world.beat("m", -1)
    if restarts:
        world.restart()
    world.share_states.refused = set()
    assert world.groups.delete_group(GROUP).result() is E.NONE
    assert (world.listed(), stored(world)) == ([], set())


def test_h28_start_offsets_altered_during_a_deletion_keep_the_group(
    world: ShareGroupWorld,
) -> None:
    world.share_join("m", ["topic"])
    world.beat("m", -1)
    world.share_states.hold = True
    deletion = world.groups.delete_group(GROUP)
    altered = world.groups.share.alter_offsets(GROUP, {"topic": {3: 7}})
    world.share_states.flush()
    assert (deletion.result(), altered.result().error) == (E.NON_EMPTY_GROUP, E.NONE)
    assert stored(world) == {(T, 3)}


def test_h28_states_deleted_a_second_time_during_a_deletion_keep_the_group(
    world: ShareGroupWorld,
) -> None:
    world.share_join("m", ["topic"])
    world.beat("m", -1)
    world.share_states.hold = True
    deletion = world.groups.delete_group(GROUP)
    world.beat("n", 0, topics=["topic"])
    world.beat("n", -1)
    second = world.groups.delete_group(GROUP)
    world.share_states.flush(20)
    assert deletion.result() is E.NON_EMPTY_GROUP
    world.share_states.flush()
    assert second.result() is E.NONE
    assert (world.listed(), stored(world)) == ([], set())


def test_h28_of_two_deletions_at_the_same_time_one_finds_no_group(
    world: ShareGroupWorld,
) -> None:
    world.share_join("m", ["topic"])
    world.beat("m", -1)
    world.share_states.hold = True
    deletions = [world.groups.delete_group(GROUP) for _ in range(2)]
    world.share_states.flush()
    assert [each.result() for each in deletions] == [E.NONE, E.GROUP_ID_NOT_FOUND]


def test_h29_an_empty_share_group_never_expires(world: ShareGroupWorld) -> None:
    world.share_join("m", ["topic"])
    world.beat("m", -1)
    world.wait(2 * 10_080 * 60_000)
    assert [each.group_id for each in world.listed()] == [GROUP]


def test_h30_a_share_group_cannot_have_the_id_of_a_classic_group(world: ShareGroupWorld) -> None:
    world.enter(group="classic")
    assert world.beat("m", 0, group="classic", topics=["topic"]).error_code == E.GROUP_ID_NOT_FOUND
    assert world.beat("m", -1, group="classic").error_code == E.GROUP_ID_NOT_FOUND
    assert world.described("classic").error_message == "Group classic is not a share group."
    altered = world.groups.share.alter_offsets("classic", {"topic": {0: 1}}).result()
    assert altered.error is E.GROUP_ID_NOT_FOUND
    deleted = world.groups.share.delete_offsets("classic", ["topic"]).result()
    assert deleted.error is E.GROUP_ID_NOT_FOUND


def test_h30_a_share_group_refuses_members_and_offsets_of_other_protocols(
    world: ShareGroupWorld,
) -> None:
    world.share_join("m", ["topic"])
    assert world.join("x").result().error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert world.heartbeat("m", 3) is E.UNKNOWN_MEMBER_ID
    assert world.sync("m", 3).result().error_code == E.UNKNOWN_MEMBER_ID
    assert world.leave("m") == [E.UNKNOWN_MEMBER_ID]
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="n",
        rebalance_timeout_ms=1,
        subscribed_topic_names=["topic"],
        topic_partitions=[],
    )
    answer = at_once(world.groups.consumer_heartbeat(request, 1, "client", "host"))
    assert answer.error_code == E.GROUP_ID_NOT_FOUND
    call = CommitCall(GROUP, -1, "", None, 9, -1, [part(6)])
    assert world.groups.commit_offsets(call).result() == [E.GROUP_ID_NOT_FOUND]
    assert world.groups.delete_offsets(GROUP, [("topic", 0)]).result().error is E.GROUP_ID_NOT_FOUND
    assert world.groups.describe_group(GROUP).result().error_code == E.GROUP_ID_NOT_FOUND
    described = world.groups.describe_consumer_group(GROUP).result()
    assert described.error_message == f"Group {GROUP} is not a consumer group."
    assert set(world.share_group().members) == {"m"}
