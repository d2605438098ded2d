"""The history of resets and deletions of committed offsets (O-25)."""

from __future__ import annotations

import pytest

from group_world import GROUP, GroupWorld, part
from odradek_broker.explain.sentences import sentence
from odradek_protocol.errors import ErrorCode

TOOL = "client tool at 10.0.0.7 as User:ann"


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def told(world: GroupWorld) -> list[str]:
    """The sentences about offsets, with the partitions."""
    return [
        f"{sentence(each.kind, each.fields)} {[*each.partitions]}"
        for each in world.group_history.about(GROUP).events
        if each.kind.name.startswith("OFFSETS_")
    ]


def test_o25_an_offset_that_goes_back_is_a_reset_with_its_author(world: GroupWorld) -> None:
    world.commit_later(part(100), part(50, partition=1)).result()
    world.commit_later(part(10), part(50, partition=1), part(7, partition=2), origin=TOOL).result()
    (event,) = told(world)
    assert event.startswith(f"committed offsets were set by {TOOL}, which is no member")
    assert "90 records back" in event and "ahead" not in event
    assert event.endswith("[('topic', 0)]")


def test_o25_a_client_without_members_that_goes_on_leaves_no_event(world: GroupWorld) -> None:
    for offset in range(1, 100):
        world.commit(offset, origin="client alone at 10.0.0.7")
    assert told(world) == []


def test_o25_a_commit_from_outside_of_a_group_that_had_members_is_a_reset(
    world: GroupWorld,
) -> None:
    (member,) = world.stable(1)
    world.commit(5, member_id=member, generation=1)
    world.leave(member)
    world.commit(1_005, origin=TOOL)
    (event,) = told(world)
    assert "1000 records ahead" in event


def test_o25_an_offset_of_a_deleted_topic_of_the_same_name_is_not_the_former_one(
    world: GroupWorld,
) -> None:
    world.commit(1_000)
    world.metadata.ids["topic"] = b"N" * 16
    world.commit_later(part(1, topic_id=b"N" * 16), origin=TOOL).result()
    assert world.committed() == 1
    assert told(world) == []


def test_o25_an_offset_that_is_refused_is_not_moved(world: GroupWorld) -> None:
    world.commit_later(part(100), part(50, partition=1)).result()
    refused = part(1, metadata="x" * 5_000)
    world.commit_later(refused, part(10, partition=1), origin=TOOL).result()
    (event,) = told(world)
    assert "40 records back" in event and event.endswith("[('topic', 1)]")


def test_o25_a_refused_reset_leaves_no_event(world: GroupWorld) -> None:
    (member,) = world.stable(1)
    world.commit(5, member_id=member, generation=1)
    assert world.commit(1, origin=TOOL) is ErrorCode.UNKNOWN_MEMBER_ID
    assert told(world) == []


def test_o25_deletions_name_the_client_that_asked(world: GroupWorld) -> None:
    world.commit_later(part(1), part(1, partition=1)).result()
    world.groups.delete_offsets(GROUP, [("topic", 0)], TOOL).result()
    world.groups.delete_group(GROUP, TOOL).result()
    deleted, removed = told(world)
    assert f"(their deletion was requested, by {TOOL})" in deleted
    assert f"(the group was deleted, by {TOOL})" in removed
