"""Listing, describing and deleting groups, and deleting offsets (rules O-14, A-16; KIP-496,
518)."""

from __future__ import annotations

from typing import Any

import pytest

from acl_rules import Rule, RuleList
from counting_randomness import CountingRandomness
from group_world import GROUP, GroupWorld, part
from handler_calls import ask, send
from odradek_broker.config.broker import parse_config
from odradek_broker.config.broker_settings import SETTING_OF_KEY
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_broker.coordinator.groups.offsets import CommitCall
from odradek_broker.coordinator.runtime import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    ProducerIdentity,
    in_batches,
)
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.config_changes import ResourceChanges, SettingChange, alter_configs
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_protocol.constants import RESOURCE_BROKER
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.schemas.delete_groups import DeleteGroupsRequest
from odradek_protocol.schemas.describe_groups import DescribeGroupsRequest
from odradek_protocol.schemas.incremental_alter_configs import ConfigOperation
from odradek_protocol.schemas.list_groups import ListGroupsRequest
from odradek_protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek_protocol.stored.subscription import ConsumerSubscription, encode_subscription

E = ErrorCode
S = GroupState
PRODUCER = 77
UNKNOWN_OPERATIONS = -(2**31)


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def subscribed(*topics: str) -> list[tuple[str, bytes]]:
    return [("range", subscribed_to(*topics))]


def subscribed_to(*topics: str, version: int = 3) -> bytes:
    return encode_subscription(ConsumerSubscription(topics=list(topics)), version)


def describe(world: GroupWorld, group: str = GROUP, version: int = 6, **fields: Any) -> Any:
    (found,) = ask(world, DescribeGroupsRequest(groups=[group], **fields), version).groups
    return found


def listed(world: GroupWorld, version: int = 5, **filters: Any) -> dict[str, Any]:
    answer = ask(world, ListGroupsRequest(**filters), version)
    assert answer.error_code == E.NONE
    return {group.group_id: group for group in answer.groups}


def delete(world: GroupWorld, *groups: str, version: int = 2) -> dict[str, int]:
    answer = ask(world, DeleteGroupsRequest(groups_names=list(groups)), version)
    return {result.group_id: result.error_code for result in answer.results}


def offset_delete_request(group: str = GROUP, **places: list[int]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=at) for at in indexes],
            )
            for topic, indexes in places.items()
        ],
    )


def delete_offsets(
    world: GroupWorld, group: str = GROUP, **places: list[int]
) -> tuple[int, dict[tuple[str, int], int]]:
    answer = ask(world, offset_delete_request(group, **places), 0)
    return answer.error_code, {
        (topic.name, part.partition_index): part.error_code
        for topic in answer.topics
        for part in topic.partitions
    }


def commit_pending(world: GroupWorld, offset: int, partition: int = 0) -> None:
    """Commit an offset in an open transaction."""
    call = CommitCall(GROUP, -1, "", None, 5, -1, [part(offset, partition=partition)])
    assert world.groups.commit_offsets(call, ProducerIdentity(PRODUCER, 0)).result() == [E.NONE]


def end_transaction(world: GroupWorld, *, committed: bool) -> None:
    written = world.log.append_marker(PRODUCER, committed)
    world.groups.marker_written(0, PRODUCER, committed, written)


# --- DescribeGroups ---


@pytest.mark.parametrize("version", range(7))
def test_g01_a_stable_group_is_described_with_subscriptions_and_assignments(
    world: GroupWorld, version: int
) -> None:
    members = world.stable(2, protocols=subscribed("topic"))
    found = describe(world, version=version)
    assert (found.error_code, found.group_state) == (E.NONE, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    assert [member.member_id for member in found.members] == members
    for member in found.members:
        assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
        assert member.member_metadata == subscribed("topic")[0][1]
        assert member.member_assignment == member.member_id.encode()
    if version >= 3:
        assert found.authorized_operations == UNKNOWN_OPERATIONS


def test_kip345_a_static_member_is_shown_with_its_instance_id(world: GroupWorld) -> None:
    answer = world.join(instance="one").result()
    world.sync(answer.member_id, 1, {answer.member_id: b"a"}, instance="one")
    assert describe(world, version=4).members[0].group_instance_id == "one"
    assert describe(world, version=3).members[0].group_instance_id is None


def test_g01_a_rebalancing_group_is_described_with_its_member_ids_only(
    world: GroupWorld,
) -> None:
    member, _ = world.enter(protocols=subscribed("topic"))
    found = describe(world)
    assert (found.group_state, found.protocol_data) == ("CompletingRebalance", "")
    (shown,) = found.members
    assert (shown.member_id, shown.member_metadata, shown.member_assignment) == (member, b"", b"")
    world.sync(member, 1, {member: b"a"})
    world.enter(protocols=subscribed("topic"))
    assert describe(world).group_state == "PreparingRebalance"


def test_g04_a_group_without_members_is_described_as_empty(world: GroupWorld) -> None:
    (member,) = world.stable(1)
    world.leave(member)
    world.commit(5, group="simple")
    assert (describe(world).group_state, describe(world).protocol_type) == ("Empty", "consumer")
    simple = describe(world, "simple")
    assert (simple.group_state, simple.protocol_type, simple.members) == ("Empty", "", [])


@pytest.mark.parametrize("version", range(7))
def test_kip1043_a_group_that_does_not_exist_is_dead_and_since_version_6_an_error(
    world: GroupWorld, version: int
) -> None:
    found = describe(world, "nobody", version)
    assert (found.group_id, found.group_state, found.members) == ("nobody", "Dead", [])
    assert found.error_code == (E.GROUP_ID_NOT_FOUND if version >= 6 else E.NONE)
    if version >= 6:
        assert found.error_message == "Group nobody not found."


def test_a16_describe_groups_needs_the_right_to_each_group(world: GroupWorld) -> None:
    world.stable(1)
    world.authorizer = RuleList(Rule(Operation.READ, ResourceType.GROUP, GROUP))
    answer = ask(world, DescribeGroupsRequest(groups=[GROUP, "hidden"]), 6)
    mine, hidden = answer.groups
    assert (mine.error_code, mine.group_state) == (E.NONE, "Stable")
    assert (hidden.error_code, hidden.group_state) == (E.GROUP_AUTHORIZATION_FAILED, "")


def test_kip430_authorized_operations_are_those_that_the_authorizer_allows(
    world: GroupWorld,
) -> None:
    world.stable(1)
    every = describe(world, include_authorized_operations=True).authorized_operations
    assert every == sum(1 << code for code in (3, 6, 8, 10, 11))
    world.authorizer = RuleList(Rule(Operation.DELETE, ResourceType.GROUP, GROUP))
    some = describe(world, include_authorized_operations=True).authorized_operations
    assert some == sum(1 << code for code in (6, 8)), "DELETE implies DESCRIBE"


@pytest.mark.parametrize(("version", "shown"), [(5, 3400), (6, UNKNOWN_OPERATIONS)])
def test_g160_a_missing_group_without_an_error_has_authorized_operations(
    world: GroupWorld, version: int, shown: int
) -> None:
    found = describe(world, "nobody", version, include_authorized_operations=True)
    assert found.authorized_operations == shown


def test_n15_a_closed_coordinator_answers_not_coordinator_for_each_group(world: GroupWorld) -> None:
    world.stable(1)
    world.groups.shards.close()
    found = describe(world)
    assert (found.error_code, found.group_state) == (E.NOT_COORDINATOR, "")


def test_d4_a_group_is_listed_and_described_only_when_it_is_durable(world: GroupWorld) -> None:
    world.log.hold = True
    world.commit_later(part(5))
    described = send(world, DescribeGroupsRequest(groups=[GROUP]), 6)
    all_groups = send(world, ListGroupsRequest(), 5)
    assert not described.done
    assert not all_groups.done
    world.log.flush()
    assert described.result().groups[0].group_state == "Empty"
    assert [group.group_id for group in all_groups.result().groups] == [GROUP]


# --- ListGroups ---


@pytest.mark.parametrize("version", range(6))
def test_a16_list_groups_answers_in_every_version(version: int) -> None:
    world = GroupWorld(partitions=5)
    world.stable(1)
    world.commit(5, group="simple")
    found = listed(world, version)
    assert set(found) == {GROUP, "simple"}
    assert (found[GROUP].protocol_type, found["simple"].protocol_type) == ("consumer", "")
    if version >= 4:
        assert (found[GROUP].group_state, found["simple"].group_state) == ("Stable", "Empty")
    if version >= 5:
        assert found[GROUP].group_type == "classic"


def test_kip518_groups_are_filtered_by_state_in_any_letter_case(world: GroupWorld) -> None:
    world.stable(1)
    world.commit(5, group="simple")
    assert set(listed(world, states_filter=["stable"])) == {GROUP}
    assert set(listed(world, states_filter=["EMPTY", "Dead"])) == {"simple"}
    assert set(listed(world, states_filter=["Stable", "Empty"])) == {GROUP, "simple"}
    assert listed(world, states_filter=["Nonsense"]) == {}


def test_kip848_groups_are_filtered_by_type_in_any_letter_case(world: GroupWorld) -> None:
    world.stable(1)
    assert set(listed(world, types_filter=["Classic"])) == {GROUP}
    assert listed(world, types_filter=["consumer"]) == {}
    assert listed(world, types_filter=["nonsense"]) == {}
    assert listed(world, types_filter=["classic"], states_filter=["Empty"]) == {}


def test_a16_list_groups_shows_only_groups_that_may_be_described(world: GroupWorld) -> None:
    for group in ("a", "b", "c"):
        world.commit(5, group=group)
    world.authorizer = RuleList(Rule(Operation.DELETE, ResourceType.GROUP, "b"))
    assert set(listed(world)) == {"b"}
    world.authorizer = RuleList(Rule(Operation.DESCRIBE, ResourceType.CLUSTER))
    assert set(listed(world)) == {"a", "b", "c"}


def test_a16_list_groups_is_empty_without_groups_or_offsets_topic() -> None:
    assert listed(GroupWorld(topic=False)) == {}
    assert listed(GroupWorld()) == {}


def test_a16_an_incomplete_group_list_is_answered_with_an_error(world: GroupWorld) -> None:
    world.commit(5)
    world.log.hold = True
    world.commit_later(part(6))
    deferred = send(world, ListGroupsRequest(), 5)
    world.log.flush(E.KAFKA_STORAGE_ERROR)
    assert (deferred.result().error_code, deferred.result().groups) == (E.NOT_COORDINATOR, [])
    answer = ask(world, ListGroupsRequest(), 5)
    assert (answer.error_code, answer.groups) == (E.NOT_COORDINATOR, [])


# --- DeleteGroups ---


@pytest.mark.parametrize("version", range(3))
def test_o14_deleting_an_empty_group_deletes_its_offsets(world: GroupWorld, version: int) -> None:
    (member,) = world.stable(1)
    world.commit_later(part(5), part(6, "other", 3), member_id=member, generation=1)
    world.leave(member)
    world.commit(7, group="another")
    assert delete(world, GROUP, version=version) == {GROUP: E.NONE}
    assert world.groups.group(GROUP) is None
    assert world.fetch(everything=True).parts == []
    assert world.states[-1] is S.DEAD
    world.restart()
    assert set(listed(world)) == {"another"}
    assert world.committed("another") == 7
    assert world.committed() == -1


def test_o14_a_group_with_members_cannot_be_deleted(world: GroupWorld) -> None:
    member, _ = world.enter(protocols=subscribed("topic"))
    for _ in (S.COMPLETING_REBALANCE, S.STABLE):
        assert delete(world, GROUP) == {GROUP: E.NON_EMPTY_GROUP}
        world.sync(member, 1, {member: b"a"})
    world.enter(protocols=subscribed("topic"))
    assert world.state() is S.PREPARING_REBALANCE
    assert delete(world, GROUP) == {GROUP: E.NON_EMPTY_GROUP}
    assert member in world.group().members


def test_o14_delete_groups_answers_each_group_once(world: GroupWorld) -> None:
    world.stable(1)
    world.commit(5, group="simple")
    answer = ask(world, DeleteGroupsRequest(groups_names=[GROUP, "nobody", "simple", "simple"]), 2)
    assert [(result.group_id, result.error_code) for result in answer.results] == [
        (GROUP, E.NON_EMPTY_GROUP),
        ("nobody", E.GROUP_ID_NOT_FOUND),
        ("simple", E.NONE),
    ]
    assert delete(world, "simple") == {"simple": E.GROUP_ID_NOT_FOUND}


def test_a16_delete_groups_needs_the_right_to_each_group(world: GroupWorld) -> None:
    for group in ("a", "b"):
        world.commit(5, group=group)
    world.authorizer = RuleList(Rule(Operation.DELETE, ResourceType.GROUP, "a"))
    assert delete(world, "a", "b", "hidden") == {
        "a": E.NONE,
        "b": E.GROUP_AUTHORIZATION_FAILED,
        "hidden": E.GROUP_AUTHORIZATION_FAILED,
    }


@pytest.mark.parametrize("committed", [True, False])
def test_o14_o17_deleting_a_group_drops_offsets_of_open_transactions(
    world: GroupWorld, committed: bool
) -> None:
    world.commit(3)
    commit_pending(world, 9)
    commit_pending(world, 8, partition=1)
    assert delete(world, GROUP) == {GROUP: E.NONE}
    assert world.fetch(("topic", 0), ("topic", 1), stable=True).parts == (
        world.fetch(("topic", 0), ("topic", 1)).parts
    )
    end_transaction(world, committed=committed)
    for _ in range(2):
        assert world.groups.group(GROUP) is None
        assert (world.committed(), world.committed(partition=1)) == (-1, -1)
        world.restart()


def test_d5_a_deletion_is_answered_when_it_is_durable(world: GroupWorld) -> None:
    world.commit(5)
    world.log.hold = True
    deferred = send(world, DeleteGroupsRequest(groups_names=[GROUP]), 2)
    assert not deferred.done
    world.restart()
    assert world.committed() == 5, "the crash came first"


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (DeleteGroupsRequest(groups_names=[GROUP]), 2),
        (offset_delete_request(topic=[0]), 0),
    ],
    ids=["DeleteGroups", "OffsetDelete"],
)
def test_o03_a_deletion_on_a_hanging_disk_is_answered_after_five_seconds(
    world: GroupWorld, request_: Message, version: int
) -> None:
    world.commit(5)
    world.log.hold = True
    deferred = send(world, request_, version)
    assert world.timers[-1][0] == world.clock.now_ms + 5_000, "someone wakes it"
    assert not deferred.done
    world.wait(5_000)
    assert deferred.done


def test_g91_a_deletion_that_cannot_be_written_changes_nothing(world: GroupWorld) -> None:
    world.commit(5)
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    assert delete(world, GROUP) == {GROUP: E.NOT_COORDINATOR}
    world.log.refuse = E.NONE
    assert world.committed() == 5
    assert delete(world, GROUP) == {GROUP: E.NONE}


@pytest.mark.parametrize("committed", [True, False])
def test_o14_g25_deleting_a_group_removes_its_pending_member_ids(
    world: GroupWorld, committed: bool
) -> None:
    """A group that has only pending member ids can be deleted; clients with a pending member id
    then request a new id."""
    if committed:
        world.commit(5)
    member = world.new_id()
    assert delete(world, GROUP) == {GROUP: E.NONE}
    assert delete(world, GROUP) == {GROUP: E.GROUP_ID_NOT_FOUND}
    assert world.join(member).result().error_code == E.UNKNOWN_MEMBER_ID
    assert world.committed() == -1
    assert world.join(world.new_id()).result().error_code == E.NONE
    world.wait(60_000)
    assert len(world.group().members) == 0, "no deadline of the old id is left"


def test_d11_a_group_with_many_offsets_is_deleted_in_several_batches(world: GroupWorld) -> None:
    count = 2 * BATCH_RECORDS_MAX + 5
    world.commit_later(*(part(1, partition=index) for index in range(count)))
    before = len(world.log.append_times_ms)
    assert delete(world, GROUP) == {GROUP: E.NONE}
    assert len(world.log.append_times_ms) - before == -(-count // BATCH_RECORDS_MAX)
    assert world.groups.group(GROUP) is None


def test_d11_batches_are_limited_in_records_and_bytes() -> None:
    small = [(bytes([at % 250]), None) for at in range(BATCH_RECORDS_MAX + 1)]
    assert [len(batch) for batch in in_batches(small)] == [BATCH_RECORDS_MAX, 1]
    large = [(bytes(BATCH_BYTES_MAX // 2), bytes(1)) for _ in range(3)]
    assert [len(batch) for batch in in_batches(large)] == [1, 1, 1]
    assert [len(batch) for batch in in_batches([(bytes(2 * BATCH_BYTES_MAX), None)])] == [1]
    assert list(in_batches([])) == []


# --- OffsetDelete ---


def test_o14_offsets_of_an_empty_group_are_deleted(world: GroupWorld) -> None:
    world.commit_later(part(5), part(6, partition=1), part(7, "other", 2))
    assert delete_offsets(world, topic=[0, 4], other=[2]) == (
        E.NONE,
        {("topic", 0): E.NONE, ("topic", 4): E.NONE, ("other", 2): E.NONE},
    )
    for _ in range(2):
        (left,) = world.fetch(everything=True).parts
        assert (left.topic, left.partition, left.offset) == ("topic", 1, 6)
        world.restart()


def test_o14_a_simple_group_without_offsets_is_removed(world: GroupWorld) -> None:
    world.commit(5)
    assert delete_offsets(world, topic=[0])[0] == E.NONE
    assert listed(world) == {}


def test_o14_offsets_of_a_subscribed_topic_are_not_deleted(world: GroupWorld) -> None:
    (member,) = world.stable(1, protocols=subscribed("topic"))
    world.commit_later(part(5), part(6, "other"), member_id=member, generation=1)
    assert delete_offsets(world, topic=[0], other=[0]) == (
        E.NONE,
        {("topic", 0): E.GROUP_SUBSCRIBED_TO_TOPIC, ("other", 0): E.NONE},
    )
    assert (world.committed(), world.committed(topic="other")) == (5, -1)


@pytest.mark.parametrize("version", [-1, 1, 3, 99])
def test_o12_o14_only_the_topics_of_a_subscription_are_read(
    world: GroupWorld, version: int
) -> None:
    """The fields of the later version are missing."""
    data = version.to_bytes(2, "big", signed=True) + subscribed_to("topic", version=0)[2:]
    (member,) = world.stable(1, protocols=[("range", data)])
    world.commit_later(part(5), part(6, "other"), member_id=member, generation=1)
    assert delete_offsets(world, topic=[0], other=[0])[1] == {
        ("topic", 0): E.GROUP_SUBSCRIBED_TO_TOPIC,
        ("other", 0): E.NONE,
    }


def test_o12_o14_the_subscriptions_of_the_current_generation_count(world: GroupWorld) -> None:
    """The topics of a member that joins the next generation do not count yet."""
    (member,) = world.stable(1, protocols=subscribed("topic"))
    world.commit_later(part(5), part(6, "other"), member_id=member, generation=1)
    world.enter(protocols=subscribed("other"))
    assert describe(world).group_state == "PreparingRebalance"
    assert delete_offsets(world, topic=[0], other=[0])[1] == {
        ("topic", 0): E.GROUP_SUBSCRIBED_TO_TOPIC,
        ("other", 0): E.NONE,
    }


def test_o14_an_unreadable_subscription_counts_for_every_topic(world: GroupWorld) -> None:
    (member,) = world.stable(1, protocols=[("range", b"\xff")])
    world.commit(5, member_id=member, generation=1)
    assert delete_offsets(world, topic=[0])[1] == {("topic", 0): E.GROUP_SUBSCRIBED_TO_TOPIC}


def test_o14_offsets_of_a_non_consumer_group_are_deleted_only_if_it_is_empty(
    world: GroupWorld,
) -> None:
    (member,) = world.stable(1, protocol_type="connect")
    world.commit(5, member_id=member, generation=1)
    assert delete_offsets(world, topic=[0]) == (E.NON_EMPTY_GROUP, {})
    world.leave(member)
    assert delete_offsets(world, topic=[0]) == (E.NONE, {("topic", 0): E.NONE})


def test_o14_deleting_offsets_of_a_missing_group_is_an_error(world: GroupWorld) -> None:
    assert delete_offsets(world, "nobody", topic=[0]) == (E.GROUP_ID_NOT_FOUND, {})
    assert delete_offsets(world, "nobody") == (E.GROUP_ID_NOT_FOUND, {})


def test_o14_an_empty_group_id_is_invalid_for_offset_delete(world: GroupWorld) -> None:
    assert delete_offsets(world, "") == (E.INVALID_GROUP_ID, {})


def test_o14_offset_delete_joins_a_topic_named_twice_if_a_partition_is_missing(
    world: GroupWorld,
) -> None:
    world.commit_later(part(5), part(6, partition=1))
    request = offset_delete_request(topic=[0])
    request.topics += offset_delete_request(other=[0], topic=[1]).topics

    def answered() -> list[tuple[str, list[int]]]:
        topics = ask(world, request, 0).topics
        return [(each.name, [one.partition_index for one in each.partitions]) for each in topics]

    assert answered() == [("topic", [0]), ("other", [0]), ("topic", [1])]
    world.commit_later(part(5))
    request.topics += offset_delete_request(topic=[99]).topics
    assert answered() == [("topic", [0, 1, 99]), ("other", [0])]


def test_o06_offset_delete_has_an_error_for_each_missing_partition(world: GroupWorld) -> None:
    world.commit(5)
    assert delete_offsets(world, topic=[0, 99], nowhere=[0])[1] == {
        ("topic", 0): E.NONE,
        ("topic", 99): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert world.committed() == -1


def test_a16_offset_delete_needs_the_rights_to_group_and_topics(world: GroupWorld) -> None:
    world.commit_later(part(5), part(6, "other"))
    world.authorizer = RuleList(Rule(Operation.READ, ResourceType.GROUP, GROUP))
    assert delete_offsets(world, topic=[0]) == (E.GROUP_AUTHORIZATION_FAILED, {})
    world.authorizer = RuleList(
        Rule(Operation.DELETE, ResourceType.GROUP, GROUP),
        Rule(Operation.READ, ResourceType.TOPIC, "other"),
    )
    assert delete_offsets(world, topic=[0], nowhere=[0], other=[0])[1] == {
        ("topic", 0): E.TOPIC_AUTHORIZATION_FAILED,
        ("nowhere", 0): E.TOPIC_AUTHORIZATION_FAILED,
        ("other", 0): E.NONE,
    }


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_o14_o17_a_deleted_pending_offset_does_not_return_at_the_commit(
    world: GroupWorld, stored: bool, restart: bool
) -> None:
    if stored:
        world.commit(3)
    commit_pending(world, 9)
    commit_pending(world, 8, partition=1)
    assert delete_offsets(world, topic=[0]) == (E.NONE, {("topic", 0): E.NONE})
    if restart:
        world.restart()
    assert world.fetch(("topic", 0), stable=True).parts[0].error is E.NONE
    end_transaction(world, committed=True)
    assert (world.committed(), world.committed(partition=1)) == (-1, 8)


def test_o17_an_offset_committed_after_a_deletion_in_a_transaction_is_kept(
    world: GroupWorld,
) -> None:
    commit_pending(world, 9)
    delete_offsets(world, topic=[0])
    commit_pending(world, 10)
    end_transaction(world, committed=True)
    assert world.committed() == 10
    world.restart()
    assert world.committed() == 10


def test_d11_many_offsets_are_deleted_in_several_batches_with_one_answer(
    world: GroupWorld,
) -> None:
    count = BATCH_RECORDS_MAX + 5
    world.metadata.counts["topic"] = count
    world.commit_later(*(part(1, partition=index) for index in range(count)))
    world.log.hold = True
    deferred = send(world, offset_delete_request(topic=list(range(count))), 0)
    world.turns.run()
    assert not deferred.done
    world.log.flush()
    world.turns.run()
    assert {part.error_code for part in deferred.result().topics[0].partitions} == {E.NONE}
    assert world.groups.group(GROUP) is None


def test_g91_an_offset_delete_that_cannot_be_written_gets_an_error(world: GroupWorld) -> None:
    world.commit(5)
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    assert delete_offsets(world, topic=[0]) == (E.NOT_COORDINATOR, {})
    assert world.committed() == 5


# --- Settings ---


@pytest.mark.parametrize(
    "key",
    [
        "group.min.session.timeout.ms",
        "group.max.session.timeout.ms",
        "group.initial.rebalance.delay.ms",
        "group.max.size",
        "offset.metadata.max.bytes",
        "offsets.retention.minutes",
        "offsets.retention.check.interval.ms",
    ],
)
def test_g05_settings_of_groups_are_read_only_as_in_kafka(key: str) -> None:
    """A client could believe that it changed a setting, although the coordinator reads the setting
    only once."""
    assert not SETTING_OF_KEY[key].dynamic
    config, _ = parse_config({})
    metadata = ClusterMetadata(config, CountingRandomness())
    change = SettingChange(key, ConfigOperation.SET, "100000")
    records, (result,) = alter_configs(metadata, [ResourceChanges(RESOURCE_BROKER, "1", [change])])
    assert (records, result.error) == ([], E.INVALID_REQUEST)
    assert result.message is not None and key in result.message
