"""The history and the states of groups (`odradek explain group`)."""

from __future__ import annotations

import pytest

from group_world import GroupWorld, Settings
from history_questions import now, sentences
from odradek_broker.coordinator.groups.events import (
    ConversionReason,
    MemberRemovalReason,
    OffsetDeletion,
    RebalanceCause,
    RebalanceReason,
    Removal,
)
from odradek_broker.explain.groups import (
    CONVERSIONS,
    LEAVES,
    OFFSET_DELETIONS,
    why_rebalanced,
    why_removed,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.leave_group import MemberIdentity

E = ErrorCode
_LEFT = "left (closed, or did not poll within max.poll.interval.ms = 1.0 min: it did not say which)"


def test_g40_a_rebalance_is_shown_with_its_cause_its_waits_and_its_result() -> None:
    world = GroupWorld()
    first, _ = world.enter(client="one")
    world.complete([first])
    world.clock.now_ms += 1_000
    second, _ = world.enter(client="two")
    world.clock.now_ms += 2_500
    world.join(first, client="one")
    world.complete([first, second])
    told = sentences(world)
    began = next(text for text in told if f"because {second} is new" in text)
    assert began == (
        f"rebalance: Stable -> PreparingRebalance, because {second} is new; waiting for {first}, for"
        " at most 1.0 min"
    )
    assert f"{first} joined again, after 2.5 s" in told
    generation = next(text for text in told if text.startswith("generation 2"))
    assert generation == (
        "generation 2 after 2.5 s: PreparingRebalance -> CompletingRebalance, leader"
        f" {first}, protocol range, members {first}, {second}; the last to join was {first}, 2.5 s"
        " after the rebalance had begun"
    )
    assert told[-1] == (
        f"the assignment by the leader {first} is stored: CompletingRebalance -> Stable, generation 2"
    )
    assert f"client two at 127.0.0.1 was given the id {second}, and is to join with it" in told
    assert f"{second} of client two at 127.0.0.1 joined; it speaks range" in told
    assert now(world) == [
        (
            f"Stable for 0 ms, generation 2, protocol range, leader {first}; members: 2;"
            " partitions with committed offsets: 0"
        ),
        f"member {first} of client one at 127.0.0.1, session timeout 10.0 s",
        f"member {second} of client two at 127.0.0.1, session timeout 10.0 s",
    ]


def test_g70_a_removed_member_is_shown_with_the_reason() -> None:
    world = GroupWorld()
    first, second = world.stable()
    world.wait(6_000)
    world.heartbeat(first, world.group().generation)
    world.wait(6_000)
    told = sentences(world)
    assert (
        f"{second} of client client at 127.0.0.1 was removed: nothing was heard of it for 10.0 s"
        " (session timeout)" in told
    )
    assert f"because {second} timed out; waiting for {first}" in told[-1]
    assert now(world)[1].endswith("session timeout 10.0 s: has not joined again yet")
    world.heartbeat(second, 2)
    assert sentences(world)[-1] == (
        f"Heartbeat of {second} was refused with UNKNOWN_MEMBER_ID: it is not a member: it never"
        " joined, left, or was removed"
    )
    world.heartbeat(first, 1)
    assert sentences(world)[-1].endswith("ILLEGAL_GENERATION: expected generation 2, got 1")


def test_g42_members_removed_for_a_missing_join_or_sync_are_shown() -> None:
    world = GroupWorld()
    first, second = world.stable(session_ms=100_000)
    third, _ = world.enter(session_ms=100_000)
    world.join(first, session_ms=100_000)
    world.wait(60_000)
    told = sentences(world)
    assert any(
        text.startswith(second) and text.endswith("removed: it did not join again within 1.0 min")
        for text in told
    )
    assert any(text.startswith("generation 3 after 1.0 min") for text in told)
    world.sync(first, 3, {})
    world.wait(60_000)
    told = sentences(world)
    assert any(text.endswith("removed: it sent no SyncGroup within 1.0 min") for text in told)
    assert f"because {third} did not fetch the assignment of generation 3" in told[-1]


def test_g80_members_that_left_or_were_replaced_or_removed_are_shown() -> None:
    world = GroupWorld()
    first, second = world.stable()
    world.leave(second)
    told = sentences(world)
    assert f"{second} of client client at 127.0.0.1 {_LEFT}" in told
    assert f"because {second} left; waiting for {first}" in told[-1]
    world.leave(first)
    assert sentences(world)[-1] == "nobody is left: PreparingRebalance -> Empty, generation 3"

    world = GroupWorld()
    before = world.join(instance="i").result().member_id
    world.complete([before])
    after = world.join(instance="i", client="new").result().member_id
    assert sentences(world)[-1] == (
        f"client new at 127.0.0.1 joined as static member i: it is {after} now, and {before} is"
        " fenced"
    )
    world.heartbeat(before, 1, instance="i")
    assert sentences(world)[-1].endswith(
        f"FENCED_INSTANCE_ID: expected member id {after} for this static member: another one replaced"
        " it"
    )
    world.leave_as(MemberIdentity(member_id="", group_instance_id="i"))
    assert any(
        text.endswith("was removed: an administrator removed it by its instance id")
        for text in sentences(world)
    )


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        (
            "consumer poll timeout has expired.",
            (
                "left: its application did not poll within max.poll.interval.ms = 1.0 min, in its words:"
                " consumer poll timeout has expired."
            ),
        ),
        (
            "the application has not polled for max.poll.interval.ms",
            (
                "left: its application did not poll within max.poll.interval.ms = 1.0 min, in its words:"
                " the application has not polled for max.poll.interval.ms"
            ),
        ),
        ("the consumer is being closed", "left, in its words: the consumer is being closed"),
        ("", _LEFT),
        (None, _LEFT),
    ],
)
def test_g72_g81_a_member_that_left_is_shown_with_its_reason(stated: str | None, told: str) -> None:
    world = GroupWorld()
    _, second = world.stable()
    world.leave_as(MemberIdentity(member_id=second, reason=stated))
    assert f"{second} of client client at 127.0.0.1 {told}" in sentences(world)


def test_g80_the_reason_of_an_administrator_is_shown() -> None:
    world = GroupWorld()
    world.complete([world.join(instance="i").result().member_id])
    world.leave_as(MemberIdentity(member_id="", group_instance_id="i", reason="moving house"))
    assert any(
        text.endswith("by its instance id, whose words are: moving house")
        for text in sentences(world)
    )


def test_refused_joins_and_commits_are_shown_with_the_reason() -> None:
    world = GroupWorld(group_max_size=1)
    world.join(session_ms=1)
    assert "its session timeout is 1 ms; from 6000 to 1800000 are taken" in sentences(world)[-1]
    (first,) = world.stable(1)
    world.join(protocols=[("sticky", b"")])
    assert sentences(world)[-1].endswith("refused with GROUP_MAX_SIZE_REACHED: group.max.size=1")
    world.commit(member_id=first, generation=9)
    assert sentences(world)[-1].endswith("ILLEGAL_GENERATION: expected generation 1, got 9")
    world = GroupWorld()
    world.stable(1)
    world.join(protocols=[("sticky", b"")])
    assert sentences(world)[-1].endswith("it speaks sticky; all members of the group speak range")


def test_g90_a_group_found_at_the_start_is_shown() -> None:
    world = GroupWorld()
    first, second = world.stable()
    world.restart()
    (found,) = sentences(world)
    assert found == (
        "the broker started and found generation 2, state Stable, protocol range, leader"
        f" {first}, members {first}, {second}"
    )


def test_o11_o15_deleted_offsets_and_a_deleted_group_are_shown() -> None:
    world = GroupWorld(offsets_retention_minutes=1)
    assert world.commit() is E.NONE
    # The group has never had another state.
    assert now(world)[0] == "Empty, generation 0; members: 0; partitions with committed offsets: 1"
    world.delete_topic()
    assert sentences(world) == [
        "committed offsets were deleted (the topic was deleted): topic-0",
        "the group is gone: it has neither members nor offsets",
    ]
    assert now(world) == ["there is no such group"]
    world.metadata.counts["topic"], world.metadata.ids["topic"] = 10, b"T" * 16
    world.commit(group="h")
    world.wait(1_300_000)
    assert sentences(world, "h")[0] == (
        "committed offsets were deleted (unused for offsets.retention.minutes): topic-0"
    )


@pytest.mark.parametrize(
    "reason", [reason for reason in MemberRemovalReason if reason not in LEAVES]
)
def test_every_removal_has_a_reason_in_words(reason: MemberRemovalReason) -> None:
    for removal in (Removal(reason), Removal(reason, 1_000)):
        words = why_removed(removal, Settings())
        assert words and not set("{}") & set(words)


@pytest.mark.parametrize("reason", list(RebalanceReason))
def test_every_rebalance_has_a_reason_in_words(reason: RebalanceReason) -> None:
    words = why_rebalanced(RebalanceCause(reason, ["m"], "i", 3, E.NOT_COORDINATOR))
    assert words and not set("{}") & set(words)


def test_every_conversion_and_deletion_has_a_reason_in_words() -> None:
    assert set(CONVERSIONS) == set(ConversionReason)
    assert set(OFFSET_DELETIONS) == set(OffsetDeletion)
