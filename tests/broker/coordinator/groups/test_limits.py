"""Requests of hostile or broken members, and the codes that they get (D11, G-20)."""

from __future__ import annotations

from typing import Any

import pytest

from group_world import GROUP, GroupWorld, part
from odradek_broker.coordinator.groups import shard
from odradek_broker.coordinator.groups.classic.group import (
    CLIENT_ID_MAX_CHARS,
    PROTOCOLS_MAX,
    PROTOCOLS_MAX_BYTES,
    TEXT_MAX_CHARS,
    GroupState,
)
from odradek_broker.coordinator.groups.offsets import METADATA_MAX_CHARS
from odradek_broker.coordinator.shards import GROUP_ID_MAX_CHARS
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.leave_group import LeaveGroupRequest

E = ErrorCode
#: A character of four bytes in UTF-8.
WIDE = "\U0001f600"


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_d11_texts_of_the_maximum_length_are_stored_and_loaded(world: GroupWorld) -> None:
    group = WIDE * GROUP_ID_MAX_CHARS
    text = WIDE * TEXT_MAX_CHARS
    answer = world.join(
        group=group,
        instance=text,
        protocol_type=text,
        protocols=[(text, b"metadata")],
        client=WIDE * 30_000,
    ).result()
    assert answer.error_code == E.NONE
    member_id = answer.member_id
    assert world.sync(member_id, 1, {member_id: b"mine"}, group=group, instance=text).done
    how: dict[str, Any] = {
        "group": group,
        "member_id": member_id,
        "generation": 1,
        "instance": text,
    }
    assert world.commit_later(part(metadata=WIDE * 4096), **how).result() == [E.NONE]
    world.restart()
    assert world.committed(group) == 5
    synced = world.sync(member_id, 1, group=group, instance=text).result()
    assert (synced.assignment, synced.protocol_name) == (b"mine", text)


def test_d11_a_group_id_that_is_too_long_is_invalid(world: GroupWorld) -> None:
    group = "g" * (GROUP_ID_MAX_CHARS + 1)
    assert world.join(group=group).result().error_code == E.INVALID_GROUP_ID
    assert world.sync("m", 1, group=group).result().error_code == E.INVALID_GROUP_ID
    assert world.heartbeat("m", 1, group=group) is E.INVALID_GROUP_ID
    leaving = world.groups.leave(LeaveGroupRequest(group_id=group), 5)
    assert leaving.result().error_code == E.INVALID_GROUP_ID
    assert world.commit(group=group) is E.INVALID_GROUP_ID
    assert world.fetch(("topic", 0), group=group).error is E.INVALID_GROUP_ID
    assert world.log.records == []


@pytest.mark.parametrize(
    "how",
    [
        {"instance": "i" * (TEXT_MAX_CHARS + 1)},
        {"protocol_type": "t" * (TEXT_MAX_CHARS + 1)},
        {"protocols": [("p" * (TEXT_MAX_CHARS + 1), b"")]},
        {"protocols": [(str(number), b"") for number in range(PROTOCOLS_MAX + 1)]},
        {"protocols": [("range", bytes(PROTOCOLS_MAX_BYTES))]},
        {"protocols": [("range", bytes(600_000)), ("sticky", bytes(600_000))]},
    ],
    ids=["instance", "type", "name", "too many", "metadata", "metadata of all"],
)
@pytest.mark.parametrize("version", [3, 9])
def test_d11_a_join_too_large_for_a_record_is_an_invalid_request(
    world: GroupWorld, version: int, how: dict[str, Any]
) -> None:
    assert world.join(version=version, **how).result().error_code == E.INVALID_REQUEST
    assert list(world.groups.groups()) == []
    members = world.stable(2)
    assert world.join(members[1], version=version, **how).result().error_code == E.INVALID_REQUEST
    assert world.state() is GroupState.STABLE
    assert list(world.group().members) == members


def test_d11_a_join_of_the_maximum_size_is_accepted(world: GroupWorld) -> None:
    protocols = [(f"{number:03}", bytes(10_000)) for number in range(PROTOCOLS_MAX)]
    assert world.join(protocols=protocols, version=3).result().protocol_name == "000"


def test_d11_long_client_ids_are_truncated(world: GroupWorld) -> None:
    member_id = world.new_id(client="c" * 30_000)
    assert len(member_id) == CLIENT_ID_MAX_CHARS + 37
    world.join(member_id, client="c" * 30_000)
    assert world.group().members[member_id].client_id == "c" * CLIENT_ID_MAX_CHARS


def test_g50_the_first_metadata_of_a_protocol_named_twice_counts(world: GroupWorld) -> None:
    twice = [("range", b"first"), ("range", b"second")]
    answer = world.join(protocols=twice, version=3).result()
    assert (answer.error_code, answer.protocol_name) == (E.NONE, "range")
    assert answer.members[0].metadata == b"first"


def test_g50_a_protocol_name_may_be_empty(world: GroupWorld) -> None:
    assert world.join(protocols=[("", b"")], version=3).result().protocol_name == ""


@pytest.mark.parametrize(("rebalance_ms", "in_time"), [(0, False), (1, False), (2**31 - 1, True)])
def test_g41_any_rebalance_timeout_is_taken(
    world: GroupWorld, rebalance_ms: int, in_time: bool
) -> None:
    (member,) = world.stable(1, rebalance_ms=rebalance_ms)
    late = world.join(version=3, rebalance_ms=rebalance_ms)
    world.wait(1)
    assert late.done is not in_time
    again = world.join(member, rebalance_ms=rebalance_ms).result()
    assert again.error_code == (E.NONE if in_time else E.UNKNOWN_MEMBER_ID)
    assert late.result().error_code == E.NONE


def test_d11_the_number_of_groups_without_members_is_limited(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "UNRECORDED_GROUPS_MAX", 2)
    kept = world.new_id(group="a")
    world.new_id(group="b", session_ms=20_000)
    assert world.join(group="c").result().error_code == E.COORDINATOR_NOT_AVAILABLE
    # Group a gets a member, and the pending member id of group b expires: another group can be
    # created.
    assert world.join(kept, group="a").result().error_code == E.NONE
    world.new_id(group="c", session_ms=30_000)
    assert world.join(group="d").result().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert world.commit(group="d") is E.NONE
    world.wait(20_000)
    world.new_id(group="e")
    assert sorted(listing.group_id for listing in world.groups.groups()) == ["a", "c", "d", "e"]


def test_d11_offset_metadata_is_limited_even_if_the_setting_allows_more() -> None:
    world = GroupWorld(offset_metadata_max_bytes=2**31 - 1)
    errors = world.commit_later(
        part(1, metadata=WIDE * METADATA_MAX_CHARS),
        part(2, partition=1, metadata="m" * (METADATA_MAX_CHARS + 1)),
    ).result()
    assert errors == [E.NONE, E.OFFSET_METADATA_TOO_LARGE]
    assert world.committed() == 1


def test_g91_an_assignment_too_large_for_a_record_gets_an_error_and_a_rebalance(
    world: GroupWorld,
) -> None:
    leader, follower = world.stable(2)
    world.join(leader)
    world.join(follower)
    parked = world.sync(follower, 3)
    world.log.refuse = E.MESSAGE_TOO_LARGE
    refused = world.sync(leader, 3, {leader: bytes(2_000_000)}).result()
    assert refused.error_code == parked.result().error_code == E.UNKNOWN_SERVER_ERROR
    world.log.refuse = E.NONE
    world.join(leader)
    world.join(follower)
    world.complete([leader, follower])


def test_g20_a_group_with_an_empty_id_accepts_offsets_but_no_members(world: GroupWorld) -> None:
    """Kafka accepts commits for the empty id, because consumers without a group used to send
    them."""
    assert world.commit(group="") is E.NONE
    assert world.committed(group="") == 5
    assert world.join(group="").result().error_code == E.INVALID_GROUP_ID
    assert world.groups.group(GROUP) is None
