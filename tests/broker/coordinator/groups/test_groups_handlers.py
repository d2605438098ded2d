"""The handlers of the group APIs: each answer can be encoded in every version, and has the same
content in all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from group_world import GROUP, GroupWorld, part
from handler_calls import ask, context, handled
from odradek_broker.coordinator.shards import partition_for
from odradek_broker.deferred import Deferred
from odradek_broker.handlers import (
    find_coordinator,
    join_group,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.heartbeat import HeartbeatRequest
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek_protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

E = ErrorCode


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def _join(version: int, member_id: str = "", group: str = GROUP) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )


# --- FindCoordinator ---


@pytest.mark.parametrize("version", range(7))
def test_g07_find_coordinator_returns_this_broker_for_every_group(version: int) -> None:
    world = GroupWorld(topic=False, partitions=50)
    request = FindCoordinatorRequest(key_type=0)
    if version < 4:
        request.key = GROUP
        found = ask(world, request, version)
    else:
        request.coordinator_keys = [GROUP, "other"]
        found, other = ask(world, request, version).coordinators
        assert (found.key, other.key) == (GROUP, "other")
        assert other.error_code == E.NONE
    assert (found.node_id, found.host, found.port) == (1, "host", 9092)
    assert found.error_code == E.NONE
    assert world.metadata.partition_count("__consumer_offsets") == 50
    assert 0 <= partition_for(GROUP, 50) < 50


@pytest.mark.parametrize("version", range(7))
def test_g07_the_coordinator_is_not_available_without_a_partition_leader(version: int) -> None:
    world = GroupWorld()
    world.metadata.leader = 2
    request = FindCoordinatorRequest(key_type=0)
    if version < 4:
        request.key = GROUP
        found = ask(world, request, version)
    else:
        request.coordinator_keys = [GROUP]
        (found,) = ask(world, request, version).coordinators
    assert found.error_code == E.COORDINATOR_NOT_AVAILABLE
    assert (found.node_id, found.host, found.port) == (-1, "", -1)
    if version >= 1:
        assert GROUP in found.error_message


def test_g07_find_coordinator_waits_until_the_offsets_topic_is_created(world: GroupWorld) -> None:
    made: Deferred[None] = Deferred()
    slow = SimpleNamespace(
        ensure_internal_topic=lambda name: made,
        authorizer=world.authorizer,
        metadata=world.metadata,
        groups=world.groups,
        replicas=world,
        node_id=1,
        advertised=lambda listener: ("h", 1),
    )
    asked = FindCoordinatorRequest(key=GROUP)
    answer = handled(find_coordinator.handle(slow, context(3), asked))  # type: ignore[arg-type]
    assert not answer.done
    made.resolve(None)
    assert answer.result().error_code == E.NONE


@pytest.mark.parametrize("key_type", [3, -1])
def test_g07_an_unknown_type_of_coordinator_key_is_refused(
    world: GroupWorld, key_type: int
) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k"])
    (found,) = ask(world, request, 6).coordinators
    assert found.error_code == E.INVALID_REQUEST
    assert str(key_type) in found.error_message


# --- Membership ---


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
@pytest.mark.parametrize("group", [GROUP, "nobody"])
def test_g61_sync_group_must_name_the_protocol_since_version_5(
    world: GroupWorld, version: int, missing: str, group: str
) -> None:
    (member,) = world.stable(1)
    request = SyncGroupRequest(group_id=group, generation_id=1, member_id=member)
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
        setattr(request, missing, None)
    expected = E.NONE if group == GROUP else E.UNKNOWN_MEMBER_ID
    if version >= 5:
        expected = E.INCONSISTENT_GROUP_PROTOCOL
    assert ask(world, request, version).error_code == expected


@pytest.mark.parametrize("version", range(10))
def test_membership_requests_work_in_every_version(world: GroupWorld, version: int) -> None:
    answer = ask(world, _join(version), version)
    if version >= 4:
        assert answer.error_code == E.MEMBER_ID_REQUIRED
        assert answer.generation_id == -1
        assert answer.protocol_name == ("" if version < 7 else None)
        answer = ask(world, _join(version, answer.member_id), version)
    assert (answer.error_code, answer.generation_id) == (E.NONE, 1)
    assert (answer.protocol_name, answer.leader) == ("range", answer.member_id)
    if version >= 7:
        assert answer.protocol_type == "consumer"
    assert [(m.member_id, m.metadata) for m in answer.members] == [(answer.member_id, b"m")]
    member_id = answer.member_id

    sync = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    sync.assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"a")]
    sync_version = min(version, 5)
    if sync_version >= 5:
        sync.protocol_type, sync.protocol_name = "consumer", "range"
    synced = ask(world, sync, sync_version)
    assert (synced.error_code, synced.assignment) == (E.NONE, b"a")
    if sync_version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")

    beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    assert ask(world, beat, min(version, 4)).error_code == E.NONE
    beat.generation_id = 9
    assert ask(world, beat, min(version, 4)).error_code == E.ILLEGAL_GENERATION

    leave_version = min(version, 5)
    leave = LeaveGroupRequest(group_id=GROUP)
    if leave_version < 3:
        leave.member_id = member_id
        assert ask(world, leave, leave_version).error_code == E.NONE
        assert ask(world, leave, leave_version).error_code == E.UNKNOWN_MEMBER_ID
    else:
        leave.members = [MemberIdentity(member_id=member_id), MemberIdentity(member_id="x")]
        left = ask(world, leave, leave_version)
        assert left.error_code == E.NONE
        assert [m.error_code for m in left.members] == [E.NONE, E.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", range(10))
def test_a_join_error_has_the_same_content_in_every_version(
    world: GroupWorld, version: int
) -> None:
    request = _join(version, "stranger")
    answer = ask(world, request, version)
    assert (answer.error_code, answer.member_id) == (E.UNKNOWN_MEMBER_ID, "stranger")
    assert (answer.generation_id, answer.members) == (-1, [])


def test_n10_an_abandoned_join_of_an_old_client_reaches_the_coordinator(world: GroupWorld) -> None:
    world.stable(1)
    answer = handled(join_group.handle(world, context(3), _join(3)))
    answer.abandon()
    parked = [member.parked_join for member in world.group().members.values()]
    assert [deferred.abandoned for deferred in parked if deferred is not None] == [True]


def test_a_client_without_a_client_id_gets_a_member_id(world: GroupWorld) -> None:
    nameless = context(9)
    nameless.client_id = None
    answer = handled(join_group.handle(world, nameless, _join(9)))
    assert answer.member_id == "-00000000-0000-0000-0000-000000000001"


# --- Offsets ---


def _commit(version: int, *topics: tuple[str, bytes, int]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=40 + index,
                        committed_leader_epoch=3,
                        committed_metadata=None,
                    )
                ],
            )
            for name, topic_id, index in topics
        ],
    )


@pytest.mark.parametrize("version", range(2, 11))
def test_o06_a_commit_has_an_error_for_each_missing_partition(
    world: GroupWorld, version: int
) -> None:
    request = _commit(
        version, ("topic", b"T" * 16, 1), ("topic", b"T" * 16, 99), ("nowhere", b"N" * 16, 0)
    )
    answer = ask(world, request, version)
    unknown = E.UNKNOWN_TOPIC_ID if version >= 10 else E.UNKNOWN_TOPIC_OR_PARTITION
    # The answer has a single entry for a topic that the request names twice. Kafka does the same if
    # it refuses a partition.
    assert [[each.error_code for each in topic.partitions] for topic in answer.topics] == [
        [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION],
        [unknown],
    ]
    if version >= 10:
        assert [topic.topic_id for topic in answer.topics] == [b"T" * 16, b"N" * 16]
    else:
        assert [topic.name for topic in answer.topics] == ["topic", "nowhere"]
    (found,) = world.fetch(everything=True).parts
    assert (found.topic, found.partition, found.offset) == ("topic", 1, 41)
    assert found.leader_epoch == (3 if version >= 6 else -1)
    assert found.metadata == ""


@pytest.mark.parametrize("version", range(2, 11))
def test_o06_a_commit_for_missing_topics_only_creates_no_group(
    world: GroupWorld, version: int
) -> None:
    ask(world, _commit(version, ("nowhere", b"N" * 16, 0)), version)
    assert world.groups.group(GROUP) is None


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("retention_ms", "offset"), [(1_000, -1), (0, -1), (-2, -1), (-(2**63), -1), (2**63 - 1, 40)]
)
def test_o13_the_retention_of_old_versions_is_kept(
    world: GroupWorld, version: int, retention_ms: int, offset: int
) -> None:
    request = _commit(version, ("topic", b"", 0))
    request.topics[0].topic_id = bytes(16)
    request.retention_time_ms = retention_ms
    ask(world, request, version)
    world.wait(600_000)
    assert world.committed() == offset


def _positions(answer: Any, version: int) -> dict[str, dict[int, tuple[int, int, int]]]:
    names = {b"T" * 16: "topic", b"O" * 16: "other", b"N" * 16: "nowhere"}
    topics = answer.topics if version < 8 else answer.groups[0].topics
    return {
        (names[topic.topic_id] if version >= 10 else topic.name): {
            one.partition_index: (
                one.committed_offset,
                one.committed_leader_epoch if version >= 5 else 0,
                one.error_code,
            )
            for one in topic.partitions
        }
        for topic in topics
    }


def _fetch(version: int, *topics: tuple[str, bytes, list[int]]) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(
            group_id=GROUP,
            topics=[OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, _, p in topics],
        )
    asked = [
        OffsetFetchRequestTopics(name=n, topic_id=i, partition_indexes=p) for n, i, p in topics
    ]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=asked)])


@pytest.mark.parametrize("version", range(1, 11))
def test_o08_offset_fetch_answers_in_every_version(world: GroupWorld, version: int) -> None:
    world.commit_later(part(5, epoch=2, metadata="note"), part(6, "other", 2))
    request = _fetch(version, ("topic", b"T" * 16, [0, 1]), ("other", b"O" * 16, [2]))
    answer = ask(world, request, version)
    epoch, none = (2, -1) if version >= 5 else (0, 0)
    assert _positions(answer, version) == {
        "topic": {0: (5, epoch, 0), 1: (-1, none, 0)},
        "other": {2: (6, none, 0)},
    }
    first = (answer.topics if version < 8 else answer.groups[0].topics)[0].partitions
    assert [one.metadata for one in first] == ["note", ""]


@pytest.mark.parametrize("version", range(1, 11))
def test_o08_offset_fetch_answers_a_topic_without_partitions(
    world: GroupWorld, version: int
) -> None:
    world.commit_later(part(5))
    request = _fetch(version, ("topic", b"T" * 16, []), ("other", b"O" * 16, [2]))
    answer = ask(world, request, version)
    assert _positions(answer, version) == {
        "topic": {},
        "other": {2: (-1, -1 if version >= 5 else 0, 0)},
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_o06_offset_commit_omits_a_topic_without_partitions(
    world: GroupWorld, version: int
) -> None:
    request = _commit(version, ("topic", b"T" * 16, 1))
    request.topics.append(
        OffsetCommitRequestTopic(
            name="" if version >= 10 else "other",
            topic_id=b"O" * 16 if version >= 10 else bytes(16),
        )
    )
    assert len(ask(world, request, version).topics) == 1


@pytest.mark.parametrize("version", range(2, 11))
def test_o08_offset_fetch_without_a_topic_list_returns_all_topics(
    world: GroupWorld, version: int
) -> None:
    world.commit_later(part(5), part(6, "other", 2))
    request = _fetch(version)
    if version < 8:
        request.topics = None
    else:
        request.groups[0].topics = None
    assert set(_positions(ask(world, request, version), version)) == {"topic", "other"}


@pytest.mark.parametrize("version", range(1, 11))
def test_o08_an_unknown_group_has_no_offsets_and_no_error(world: GroupWorld, version: int) -> None:
    answer = ask(world, _fetch(version, ("topic", b"T" * 16, [0])), version)
    assert _positions(answer, version)["topic"][0][0] == -1


@pytest.mark.parametrize("version", range(1, 11))
def test_o08_a_group_error_is_at_its_place_in_every_version(version: int) -> None:
    world = GroupWorld(topic=False)
    answer = ask(world, _fetch(version, ("topic", b"T" * 16, [0])), version)
    if version == 1:
        assert _positions(answer, version) == {"topic": {0: (-1, 0, 15)}}
    elif version < 8:
        assert (answer.error_code, answer.topics) == (E.COORDINATOR_NOT_AVAILABLE, [])
    else:
        (group,) = answer.groups
        assert (group.error_code, group.topics) == (E.COORDINATOR_NOT_AVAILABLE, [])


def test_o08_one_offset_fetch_may_ask_for_many_groups() -> None:
    world = GroupWorld(partitions=5)
    names = [f"g{at}" for at in range(8)]
    for at, name in enumerate(names):
        world.commit(at, group=name)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    )
    answer = ask(world, request, 9)
    assert [group.group_id for group in answer.groups] == names
    assert [group.topics[0].partitions[0].committed_offset for group in answer.groups] == list(
        range(8)
    )
    assert ask(world, OffsetFetchRequest(groups=[]), 9).groups == []


def test_o08_offset_fetch_version_10_uses_topic_ids(world: GroupWorld) -> None:
    world.commit_later(part(5), part(6, "gone", 0))
    request = _fetch(10, ("", b"T" * 16, [0]), ("", b"N" * 16, [4]))
    assert _positions(ask(world, request, 10), 10) == {
        "topic": {0: (5, -1, 0)},
        "nowhere": {4: (-1, -1, E.UNKNOWN_TOPIC_ID)},
    }
    request.groups[0].topics = None
    assert set(_positions(ask(world, request, 10), 10)) == {"topic"}
