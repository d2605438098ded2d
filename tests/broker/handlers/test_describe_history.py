"""DescribeHistory: rights, limits, and unknown subjects."""

from __future__ import annotations

import pytest

from acl_rules import Rule, RuleList
from group_world import GROUP, GroupWorld, part
from handler_calls import finished
from history_questions import ask, init, sentences
from many_cases import looped
from odradek_broker.coordinator.transactions.decisions import AddCall
from odradek_broker.explain.history import LIST_MAX
from odradek_broker.explain.sentences import EventKind
from odradek_broker.explain.verdicts import SAMPLE_INTERVAL_MS
from odradek_broker.security.authorizer import AllowEverything, Operation, ResourceType
from odradek_protocol import codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas import describe_history as wire
from share_group_world import ShareGroupWorld
from transaction_world import ID, O0, T0, TransactionWorld

E = ErrorCode


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def test_a12_a20_a_history_is_refused_without_the_right_to_its_subject(
    world: TransactionWorld,
) -> None:
    groups = GroupWorld()
    for node, kind, error in (
        (world, wire.TRANSACTIONAL_ID, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (groups, wire.GROUP, E.GROUP_AUTHORIZATION_FAILED),
    ):
        node.authorizer = RuleList()
        assert ask(node, kind, "x").error_code == error


def test_h246_a_record_of_a_share_group_needs_rights_on_the_group_and_the_topic() -> None:
    world = ShareGroupWorld()
    subject = f"topic-0:5:{GROUP}"
    world.authorizer = RuleList()
    assert ask(world, wire.SHARE_RECORD, subject).error_code == E.GROUP_AUTHORIZATION_FAILED
    world.authorizer = RuleList(Rule(Operation.DESCRIBE, ResourceType.GROUP))
    assert ask(world, wire.SHARE_RECORD, subject).error_code == E.TOPIC_AUTHORIZATION_FAILED


@looped("subject", ["topic-0", "topic-0:5", "topic-0:x:g", "topic:5:g", "topic-0:5:", ":5:g", ""])
def test_h246_an_incomplete_name_of_a_share_record_is_refused(subject: str) -> None:
    answer = ask(ShareGroupWorld(), wire.SHARE_RECORD, subject)
    assert answer.error_code == E.INVALID_REQUEST
    assert "TOPIC-NUMBER:OFFSET:GROUP" in (answer.error_message or "")


def test_a18_partitions_of_topics_without_describe_are_left_out(
    world: TransactionWorld,
) -> None:
    who = init(world, "a")
    world.add(who, T0, O0)
    assert sentences(world)[-1].endswith("added other-0, topic-0")
    describe = Operation.DESCRIBE
    world.authorizer = RuleList(
        Rule(describe, ResourceType.TRANSACTIONAL_ID), Rule(describe, ResourceType.TOPIC, "topic")
    )
    assert sentences(world)[-1].endswith("added topic-0")
    assert "other" not in repr(ask(world, wire.TRANSACTIONAL_ID, ID))
    world.authorizer = AllowEverything()


def test_a18_a_group_without_describe_is_left_out(world: TransactionWorld) -> None:
    who = init(world, "a")
    offsets = frozenset({("__consumer_offsets", 3)})
    world.transactions.add_partitions(AddCall(ID, *who, offsets, 1, "client a at host", "secret"))
    assert sentences(world)[-1].endswith("added __consumer_offsets-3 (offsets of group secret)")
    describe = Operation.DESCRIBE
    world.authorizer = RuleList(
        Rule(describe, ResourceType.TRANSACTIONAL_ID), Rule(describe, ResourceType.TOPIC)
    )
    assert sentences(world)[-1].endswith("added __consumer_offsets-3")
    assert "secret" not in repr(ask(world, wire.TRANSACTIONAL_ID, ID))
    world.authorizer = AllowEverything()


def test_a18_subscribed_topics_without_describe_are_left_out() -> None:
    """Topics that the client may not describe are not named, as in ConsumerGroupDescribe."""
    world = GroupWorld()
    subscribed = ("open", "secret", "all that match s.*")
    world.group_history.record(GROUP, EventKind.CONSUMER_JOINED, member="m", topics=subscribed)
    world.group_history.record(GROUP, EventKind.CONSUMER_JOINED, member="n", topics=("secret",))
    assert "secret" in sentences(world)[0]
    describe = Operation.DESCRIBE
    world.authorizer = RuleList(
        Rule(describe, ResourceType.GROUP), Rule(describe, ResourceType.TOPIC, "open")
    )
    assert sentences(world) == [
        "m joined; it is subscribed to open, all that match s.*",
        "n joined",
    ]
    assert "secret" not in repr(ask(world, wire.GROUP, GROUP))


def test_h05_the_state_of_a_share_group_is_described() -> None:
    world = ShareGroupWorld()
    world.share_join("m", ["topic"])
    world.share_states.hold = True
    world.beat("m", world.epoch("m"), topics=["topic", "other"])
    answer = ask(world, wire.GROUP, GROUP)
    group, member = (state.text for state in answer.states)
    assert group == (
        "Stable, group epoch 4, assignment of epoch 3; members: 1; partitions with a state: 10;"
        " 10 are to get one"
    )
    assert member.startswith(
        "member m of client client at 127.0.0.1, session timeout 45.0 s: epoch 3, until there is a"
        " new assignment; it has topic-0, topic-1"
    )


def test_d11_a_history_of_large_transactions_and_groups_fits_its_answer(
    world: TransactionWorld,
) -> None:
    who = init(world, "a")
    name = "t" * 249
    added = world.add_later(who, *((name, index) for index in range(5_000)))
    while not added.done:
        # The record is made in pieces.
        _, go_on = world.timers.pop(0)
        go_on()
    assert added.result() is E.NONE
    answer = ask(world, wire.TRANSACTIONAL_ID, ID)
    assert codec.encode_bytes(answer, 0)
    assert answer.states[0].text.count(name) == LIST_MAX
    assert "and 4980 more" in answer.states[0].text
    groups = GroupWorld()
    for number in range(30):
        groups.new_id(client=f"{number}" + "\u2028" * 5_000)
    groups.group_history.record(
        GROUP, EventKind.GENERATION_BEGAN, members=("\u2028" * 1_000,) * LIST_MAX
    )
    assert codec.encode_bytes(ask(groups, wire.GROUP, GROUP), 0)


def test_unknown_unloaded_and_invalid_subjects_have_their_error_codes(
    world: TransactionWorld,
) -> None:
    groups = GroupWorld()
    assert ask(world, wire.TRANSACTIONAL_ID, "x").error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert ask(groups, wire.GROUP, "x").error_code == E.GROUP_ID_NOT_FOUND
    groups.groups.shards.close()
    world.transactions.shards.close()
    assert ask(world, wire.TRANSACTIONAL_ID, "x").error_code == E.NOT_COORDINATOR
    assert ask(groups, wire.GROUP, "x").error_code == E.NOT_COORDINATOR
    assert ask(world, 4, "x").error_code == E.INVALID_REQUEST
    for name in ("x", "-1", "1" * 20, "\u0663", ""):
        assert ask(world, wire.PRODUCER_ID, name).error_code == E.INVALID_REQUEST


def test_the_newest_events_and_the_number_of_dropped_ones_are_answered(
    world: TransactionWorld,
) -> None:
    world.transaction_history.subject_events_max = 4
    who = init(world, "a")
    for _ in range(3):
        world.clock.now_ms += 1_000
        world.add(who)
        world.end(who)
    answer = ask(world, wire.TRANSACTIONAL_ID, ID)
    assert len(answer.events) == 4 and answer.dropped == 9
    assert answer.complete_since_ms > answer.started_ms
    newest = ask(world, wire.TRANSACTIONAL_ID, ID, 1).events
    assert newest == answer.events[-1:]
    assert newest[0].name == "transaction_complete"
    assert {detail.name: detail.value for detail in newest[0].details} == {
        "before": "PrepareCommit",
        "after": "CompleteCommit",
    }
    assert ask(world, wire.TRANSACTIONAL_ID, ID, 0).events == []


def test_g165_the_verdict_about_a_group_names_partitions_with_describe_only() -> None:
    world = GroupWorld()
    world.authorizer = AllowEverything()
    world.commit_later(part(5, partition=1)).result()
    world.commit_later(part(5, topic="other")).result()
    world.end_offsets = {("topic", 1): 105, ("other", 0): 1_005}
    for number in range(15):
        finished(world.verdicts.step(number * SAMPLE_INTERVAL_MS, world.clock.wall_ms()))
    world.clock.advance(15 * SAMPLE_INTERVAL_MS)
    stopped = (
        "STOPPED: 1100 records wait in 2 of 2 partitions, and its last commit there was 2.5 min ago:"
        " it has no members"
    )
    *_, state = ask(world, wire.GROUP, GROUP).states
    assert state.text == f"{stopped}; in other-0, topic-1"
    assert state.name == "now_verdict"
    lag = ask(world, wire.GROUP, GROUP).lag
    assert {point.records for point in lag} == {1_100}
    describe = Operation.DESCRIBE
    world.authorizer = RuleList(
        Rule(describe, ResourceType.GROUP), Rule(describe, ResourceType.TOPIC, "topic")
    )
    *_, state = ask(world, wire.GROUP, GROUP).states
    assert state.text == f"{stopped}; in topic-1"
