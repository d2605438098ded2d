"""The group calls of Admin: against this broker, and against brokers that are old, busy or not the
coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from odradek import Admin, Consumer, NewTopic, OffsetAndMetadata, TopicPartition
from odradek_client.errors import (
    CoordinatorUnavailable,
    GroupAuthorizationFailed,
    InvalidGroup,
    Refused,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
)
from odradek_protocol.common_structs import PartitionError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from odradek_protocol.schemas.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from odradek_protocol.schemas.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from odradek_protocol.schemas.find_coordinator import Coordinator, FindCoordinatorResponse
from odradek_protocol.schemas.list_groups import ListedGroup, ListGroupsResponse
from odradek_protocol.schemas.list_transactions import ListTransactionsResponse
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from odradek_protocol.schemas.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from scripted_broker import DEFAULT, HANG_UP, ScriptedBroker

E = ErrorCode


def admin(broker: ScriptedBroker, **settings: Any) -> Admin:
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "reconnect_backoff_ms": 1}
    return Admin(bootstrap_servers=broker.address, **(quick | settings))


# --- Against our broker ---


@pytest.fixture
def bootstrap(live_bootstrap: str) -> str:
    return live_bootstrap


async def test_group_offsets_are_set_listed_and_deleted_with_their_group(
    bootstrap: str, unique_topic: str
) -> None:
    group, first, second = unique_topic, (unique_topic, 0), (unique_topic, 1)
    async with Admin(bootstrap_servers=bootstrap) as running:
        await running.create_topics(NewTopic(unique_topic, 2))
        assert await running.list_group_offsets(group) == {}
        note = OffsetAndMetadata(7, "note")
        assert set(await running.alter_group_offsets(group, {first: 5, second: note})) == {
            first,
            second,
        }
        assert await running.list_group_offsets(group) == {
            first: OffsetAndMetadata(5),
            second: note,
        }
        asked = await running.list_group_offsets(group, [first, (unique_topic, 9)])
        assert asked == {first: OffsetAndMetadata(5), (unique_topic, 9): None}
        (listed,) = [g for g in await running.list_groups(states=["empty"]) if g.group_id == group]
        assert (listed.state, listed.type, listed.protocol_type) == ("Empty", "classic", "")
        described = (await running.describe_groups(group))[group]
        assert (described.state, described.members, described.is_active) == ("Empty", [], False)
        assert described.coordinator == listed.coordinator

        await running.delete_group_offsets(group, [first])
        assert list(await running.list_group_offsets(group)) == [second]
        await running.delete_groups(group)
        assert await running.list_group_offsets(group) == {}
        with pytest.raises(InvalidGroup, match="no such group"):
            await running.delete_groups(group)
        with pytest.raises(InvalidGroup, match="no such group"):
            await running.describe_groups(group)
        with pytest.raises(InvalidGroup, match="no such group"):
            await running.delete_group_offsets(group, [first])


async def test_o14_offsets_of_a_group_with_members_cannot_be_changed(
    bootstrap: str, unique_topic: str
) -> None:
    group, place = unique_topic, TopicPartition(unique_topic, 0)
    async with Admin(bootstrap_servers=bootstrap) as running:
        await running.create_topics(NewTopic(unique_topic, 2))
    async with (
        Admin(bootstrap_servers=bootstrap) as running,
        Consumer(
            unique_topic, bootstrap_servers=bootstrap, group_id=group, client_id="app"
        ) as consumer,
    ):
        while not consumer.assignment():
            await consumer.poll(50)
        described = (await running.describe_groups([group]))[group]
        assert (described.state, described.is_active) == ("Stable", True)
        assert (described.protocol_type, described.assignor) == ("consumer", "range")
        (member,) = described.members
        assert (member.client_id, member.host, member.instance_id) == ("app", "/127.0.0.1", None)
        assert member.topics == [unique_topic]
        assert member.assignment == [place, TopicPartition(unique_topic, 1)]
        for call in (
            running.delete_groups(group),
            running.alter_group_offsets(group, {place: 1}),
        ):
            with pytest.raises(InvalidGroup, match="still has members") as caught:
                await call
            assert caught.value.code is E.NON_EMPTY_GROUP
        with pytest.raises(InvalidGroup, match="subscribed to the topic"):
            await running.delete_group_offsets(group, [place])
        assert group in {each.group_id for each in await running.list_groups(types=["Classic"])}


async def test_kip848_a_consumer_group_is_described_like_any_other(
    bootstrap: str, unique_topic: str
) -> None:
    group = unique_topic
    async with Admin(bootstrap_servers=bootstrap) as running:
        await running.create_topics(NewTopic(unique_topic, 2))
    async with (
        Admin(bootstrap_servers=bootstrap) as running,
        Consumer(
            unique_topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id="app",
            group_protocol="consumer",
        ) as consumer,
    ):
        while len(consumer.assignment()) < 2:
            await consumer.poll(50)
        described = (await running.describe_groups([group, "nobody"], raise_errors=False))[group]
        assert (described.type, described.protocol_type) == ("consumer", "consumer")
        assert described.is_active and described.epoch is not None
        (member,) = described.members
        assert (member.client_id, member.topics) == ("app", [unique_topic])
        assert member.assignment == [(unique_topic, 0), (unique_topic, 1)]
        assert member.target == member.assignment
        assert described.assignment_epoch == described.epoch
        assert group in {each.group_id for each in await running.list_groups(types=["consumer"])}
        with pytest.raises(InvalidGroup, match="still has members"):
            await running.alter_group_offsets(group, {(unique_topic, 0): 1})
    async with Admin(bootstrap_servers=bootstrap) as running:
        assert (await running.describe_groups(group))[group].state == "Empty"
        await running.alter_group_offsets(group, {(unique_topic, 0): 1})
        await running.delete_groups(group)


async def test_o06_offsets_of_missing_partitions_are_refused_by_partition(
    bootstrap: str, unique_topic: str
) -> None:
    place, nowhere = TopicPartition(unique_topic, 0), TopicPartition(unique_topic, 7)
    async with Admin(bootstrap_servers=bootstrap) as running:
        await running.create_topics(NewTopic(unique_topic, 1))
        done = await running.alter_group_offsets(
            unique_topic, {place: 1, nowhere: 2}, raise_errors=False
        )
        assert set(done) == {place} and set(done.errors) == {nowhere}
        assert isinstance(done.errors[nowhere], UnknownTopicOrPartition)
        with pytest.raises(UnknownTopicOrPartition, match=f"{unique_topic}-7"):
            await running.delete_group_offsets(unique_topic, [place, nowhere])


# --- Destinations of requests, and retries --------------------------------------------------------


def listed(*names: str) -> Any:
    return lambda request, version: ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=name,
                protocol_type="consumer",
                group_state="Stable" if version >= 4 else "",
                group_type="Classic" if version >= 5 else "",
            )
            for name in names
        ]
    )


@pytest.mark.parametrize("version", range(6))
async def test_every_broker_is_asked_for_its_groups(version: int) -> None:
    versions: dict[ApiKey, tuple[int, int] | None] = {ApiKey.LIST_GROUPS: (0, version)}
    async with (
        ScriptedBroker(1, versions=versions) as one,
        ScriptedBroker(2, versions=versions) as two,
    ):
        one.peers = two.peers = [one, two]
        one.always(ApiKey.LIST_GROUPS, listed("c", "a"))
        two.always(ApiKey.LIST_GROUPS, listed("b"))
        async with admin(one) as running:
            found = await running.list_groups()
            assert [(g.group_id, g.coordinator) for g in found] == [("a", 1), ("b", 2), ("c", 1)]
            assert {g.state for g in found} == {"Stable" if version >= 4 else None}
            assert {g.type for g in found} == {"classic"}


def deleted(request: Any, version: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name) for name in request.groups_names]
    )


async def test_results_of_one_coordinator_are_kept_when_another_is_lost() -> None:
    async with ScriptedBroker(1) as one, ScriptedBroker(2) as two:
        one.peers = two.peers = [one, two]
        homes = {"a": one, "b": two}

        def coordinators(request: Any, version: int) -> FindCoordinatorResponse:
            return FindCoordinatorResponse(
                coordinators=[
                    Coordinator(
                        key=key, node_id=homes[key].node_id, host="127.0.0.1", port=homes[key].port
                    )
                    for key in request.coordinator_keys
                ]
            )

        for broker in homes.values():
            broker.always(ApiKey.FIND_COORDINATOR, coordinators)
            broker.always(ApiKey.DELETE_GROUPS, deleted)
        two.on(ApiKey.DELETE_GROUPS, HANG_UP)
        async with admin(one) as running:
            results = await running.delete_groups(["a", "b"], raise_errors=False)
        assert (results, results.errors) == ({"a": None, "b": None}, {})
        assert [request.groups_names for request in one.received(ApiKey.DELETE_GROUPS)] == [["a"]]
        assert [request.groups_names for request in two.received(ApiKey.DELETE_GROUPS)] == [
            ["b"],
            ["b"],
        ]


async def test_kip518_state_and_type_filters_are_sent_as_kafka_spells_them() -> None:
    async with ScriptedBroker(versions={ApiKey.LIST_GROUPS: (0, 5)}) as broker:
        broker.always(ApiKey.LIST_GROUPS, listed())
        async with admin(broker) as running:
            await running.list_groups(states=["stable", "PREPARINGREBALANCE"], types=["Consumer"])
            (request,) = broker.received(ApiKey.LIST_GROUPS)
            assert request.states_filter == ["Stable", "PreparingRebalance"]
            assert request.types_filter == ["consumer"]
            with pytest.raises(Refused, match="no group state 'Nonsense'; there are Prep"):
                await running.list_groups(states=["Nonsense"])


@pytest.mark.parametrize(
    ("version", "filters"), [(3, {"states": ["Stable"]}), (4, {"types": ["classic"]})]
)
async def test_kip518_an_old_broker_cannot_filter(version: int, filters: dict[str, Any]) -> None:
    versions: dict[ApiKey, tuple[int, int] | None] = {ApiKey.LIST_GROUPS: (0, version)}
    async with ScriptedBroker(versions=versions) as broker, admin(broker) as running:
        with pytest.raises(UnsupportedByBroker, match="too old"):
            await running.list_groups(**filters)


def described(code: int = E.NONE, state: str = "Stable", **fields: Any) -> Any:
    return lambda request, version: DescribeGroupsResponse(
        groups=[
            DescribedGroup(
                error_code=code,
                group_id=name,
                group_state=state,
                protocol_type="consumer",
                protocol_data="range",
                **fields,
            )
            for name in request.groups
        ]
    )


async def test_a_missing_group_is_an_error_also_without_the_consumer_protocol() -> None:
    """With group.coordinator.rebalance.protocols=classic, the answer is UNSUPPORTED_VERSION for
    each group."""

    def switched_off(request: Any, version: int) -> Any:
        return ConsumerGroupDescribeResponse(
            groups=[
                DescribedConsumerGroup(
                    error_code=E.UNSUPPORTED_VERSION,
                    group_id=name,
                    group_state="",
                    group_epoch=0,
                    assignment_epoch=0,
                    assignor_name="",
                )
                for name in request.group_ids
            ]
        )

    async with ScriptedBroker() as broker, admin(broker) as running:
        broker.always(ApiKey.DESCRIBE_GROUPS, described(E.GROUP_ID_NOT_FOUND, "Dead"))
        broker.always(ApiKey.CONSUMER_GROUP_DESCRIBE, switched_off)
        with pytest.raises(InvalidGroup, match="GROUP_ID_NOT_FOUND"):
            await running.describe_groups("g")


async def test_g07_a_coordinator_that_moved_is_looked_up_again() -> None:
    async with ScriptedBroker(1) as one, ScriptedBroker(2) as two:
        one.peers = two.peers = [one, two]
        one.on(ApiKey.DESCRIBE_GROUPS, described(E.NOT_COORDINATOR, ""), HANG_UP)
        two.always(ApiKey.DESCRIBE_GROUPS, described())
        asked = 0

        def find(request: Any, version: int) -> Any:
            nonlocal asked
            asked += 1
            return (one if asked == 1 else two)._find_coordinator(request, version)

        one.always(ApiKey.FIND_COORDINATOR, find)
        two.always(ApiKey.FIND_COORDINATOR, find)
        async with admin(one) as running:
            found = await running.describe_groups("g")
        assert found["g"].coordinator == 2
        assert len(one.received(ApiKey.DESCRIBE_GROUPS)) == 1


async def test_a_coordinator_unavailable_for_the_whole_timeout_is_an_error() -> None:
    async with ScriptedBroker() as broker:
        broker.always(ApiKey.DESCRIBE_GROUPS, described(E.COORDINATOR_NOT_AVAILABLE, ""))
        async with admin(broker, default_api_timeout_ms=100) as running:
            with pytest.raises(CoordinatorUnavailable):
                await running.describe_groups("g")
        assert len(broker.received(ApiKey.DESCRIBE_GROUPS)) > 3


async def test_each_group_has_its_own_error() -> None:
    def answer(request: Any, version: int) -> DeleteGroupsResponse:
        codes = {"a": E.NONE, "b": E.NON_EMPTY_GROUP, "c": E.GROUP_AUTHORIZATION_FAILED}
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=name, error_code=codes[name])
                for name in request.groups_names
            ]
        )

    async with ScriptedBroker() as broker:
        broker.always(ApiKey.DELETE_GROUPS, answer)
        async with admin(broker) as running:
            done = await running.delete_groups(list("abc"), raise_errors=False)
    assert set(done) == {"a"}
    assert isinstance(done.errors["b"], InvalidGroup)
    assert isinstance(done.errors["c"], GroupAuthorizationFailed)


@pytest.mark.parametrize("version", range(7))
async def test_kip1043_a_dead_group_does_not_exist(version: int) -> None:
    versions: dict[ApiKey, tuple[int, int] | None] = {
        ApiKey.DESCRIBE_GROUPS: (0, version),
        ApiKey.CONSUMER_GROUP_DESCRIBE: None,
    }
    async with ScriptedBroker(versions=versions) as broker:
        broker.always(ApiKey.DESCRIBE_GROUPS, described(state="Dead"))
        async with admin(broker) as running:
            with pytest.raises(InvalidGroup, match="no such group"):
                await running.describe_groups("g")


async def test_g52_undecodable_member_metadata_gives_no_topics_or_assignment() -> None:
    odd = DescribedGroupMember(
        member_id="m",
        client_id="c",
        client_host="/h",
        member_metadata=b"\xff",
        member_assignment=b"\xff",
    )
    async with ScriptedBroker() as broker:
        broker.always(ApiKey.DESCRIBE_GROUPS, described(members=[odd]))
        async with admin(broker) as running:
            (member,) = (await running.describe_groups("g"))["g"].members
    assert (member.member_id, member.topics, member.assignment) == ("m", [], [])


def fetched(code: int, offset: int = 5) -> OffsetFetchResponse:
    part = OffsetFetchResponsePartition(
        partition_index=0, committed_offset=offset, metadata="", error_code=code
    )
    return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[part])])


async def test_o09_list_group_offsets_waits_for_open_transactions() -> None:
    async with ScriptedBroker() as broker:
        broker.on(ApiKey.OFFSET_FETCH, fetched(E.UNSTABLE_OFFSET_COMMIT), fetched(E.NONE))
        async with admin(broker) as running:
            found = await running.list_group_offsets("g", require_stable=True)
        assert found == {("t", 0): OffsetAndMetadata(5)}
        assert [request.require_stable for request in broker.received(ApiKey.OFFSET_FETCH)] == [
            True,
            True,
        ]
        assert broker.received(ApiKey.OFFSET_FETCH)[0].topics is None


async def test_o08_listing_all_offsets_needs_offset_fetch_version_2() -> None:
    async with ScriptedBroker(versions={ApiKey.OFFSET_FETCH: (1, 1)}) as broker:
        broker.always(ApiKey.OFFSET_FETCH, lambda request, version: fetched(E.NONE))
        async with admin(broker) as running:
            assert await running.list_group_offsets("g", [("t", 0)])
            with pytest.raises(UnsupportedByBroker):
                await running.list_group_offsets("g")


async def test_o04_an_admin_commit_names_no_member() -> None:
    def answer(request: Any, version: int) -> OffsetCommitResponse:
        part = PartitionError(partition_index=0, error_code=E.NONE)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[part])])

    async with ScriptedBroker() as broker:
        broker.always(ApiKey.OFFSET_COMMIT, answer)
        async with admin(broker) as running:
            await running.alter_group_offsets("g", {("t", 0): OffsetAndMetadata(4, "m", 2)})
        ((_, version, request),) = [r for r in broker.requests if r[0] is ApiKey.OFFSET_COMMIT]
    assert version == 9
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    (part,) = request.topics[0].partitions
    assert (part.committed_offset, part.committed_metadata, part.committed_leader_epoch) == (
        4,
        "m",
        2,
    )


async def test_alter_group_offsets_waits_until_a_coordinator_is_known() -> None:
    """A new cluster of Apache Kafka has no coordinator until __consumer_offsets exists."""
    unknown = Coordinator(key="g", error_code=E.COORDINATOR_NOT_AVAILABLE, node_id=-1)

    def answer(request: Any, version: int) -> OffsetCommitResponse:
        part = PartitionError(partition_index=0, error_code=E.NONE)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[part])])

    async with ScriptedBroker() as broker:
        no_one = FindCoordinatorResponse(coordinators=[unknown])
        broker.on(ApiKey.FIND_COORDINATOR, no_one, no_one)
        broker.always(ApiKey.OFFSET_COMMIT, answer)
        async with admin(broker) as running:
            await running.alter_group_offsets("g", {("t", 0): 4})
        assert len(broker.received(ApiKey.FIND_COORDINATOR)) == 3


@pytest.mark.parametrize("call", ["list_groups", "list_transactions"])
async def test_list_calls_stop_asking_a_broker_that_left_the_cluster(call: str) -> None:
    """A broker dies, and some time later the metadata of the other brokers does not have it any
    more."""
    async with ScriptedBroker(1) as one:
        two = ScriptedBroker(2)
        await two.start()
        one.peers = [one, two]
        for each in (one, two):
            each.always(ApiKey.LIST_GROUPS, lambda *_: ListGroupsResponse())
            each.always(ApiKey.LIST_TRANSACTIONS, lambda *_: ListTransactionsResponse())
        async with admin(one) as running:
            assert await getattr(running, call)() == []
            await two.stop()
            asked = [0]

            def metadata(request: Any, version: int) -> Any:
                asked[0] += 1
                if asked[0] > 3:
                    one.peers = [one]
                return DEFAULT

            one.always(ApiKey.METADATA, metadata)
            assert await getattr(running, call)() == []


@pytest.mark.parametrize("newest", [7, 8, 9])
async def test_offsets_of_several_groups_take_one_request_if_the_broker_can(newest: int) -> None:
    def answer(request: Any, version: int) -> OffsetFetchResponse:
        if version < 8:
            return fetched(E.NONE)
        part = OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=5, metadata="", error_code=E.NONE
        )
        topics = [OffsetFetchResponseTopics(name="t", partitions=[part])]
        groups = [
            OffsetFetchResponseGroup(group_id=each.group_id, topics=topics, error_code=E.NONE)
            for each in request.groups
        ]
        groups[1].error_code = E.GROUP_AUTHORIZATION_FAILED
        return OffsetFetchResponse(groups=groups)

    async with ScriptedBroker(versions={ApiKey.OFFSET_FETCH: (1, newest)}) as broker:
        broker.always(ApiKey.OFFSET_FETCH, answer)
        async with admin(broker) as running:
            found = await running.list_offsets_of_groups(
                {"a": None, "b": [("t", 0)]}, raise_errors=False
            )
        received = broker.received(ApiKey.OFFSET_FETCH)
    assert found["a"] == {("t", 0): OffsetAndMetadata(5)}
    if newest < 8:
        assert (len(received), found["b"]) == (2, found["a"])
        return
    (request,) = received
    assert [each.topics is None for each in request.groups] == [True, False]
    assert isinstance(found.errors["b"], GroupAuthorizationFailed)
