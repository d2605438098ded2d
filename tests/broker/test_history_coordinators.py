"""What the coordinators tell of transactional ids and groups (`odradek explain txn|group`)."""

from __future__ import annotations

from typing import Any

import pytest

from acl_rules import Rule, RuleList
from group_world import GROUP, GroupWorld, context
from odradek_broker.authorizer import AllowEverything, Operation, ResourceType
from odradek_broker.coordinator.transactions.deciding import AddCall, EndCall, InitCall
from odradek_broker.coordinator.transactions.states import TransactionState
from odradek_broker.handlers import describe_history
from odradek_broker.history import LIST_MAX, History
from odradek_broker.history_words import What
from odradek_protocol import codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas import describe_history as wire
from odradek_protocol.schemas.leave_group import MemberIdentity
from transaction_world import ID, O0, T0, T1, TransactionWorld

E = ErrorCode
S = TransactionState


def ask(world: Any, kind: int, subject: str, limit: int = -1) -> wire.DescribeHistoryResponse:
    request = wire.DescribeHistoryRequest(subject_type=kind, subject=subject, limit=limit)
    answer = describe_history.handle(world, context(0), request)
    if not isinstance(answer, wire.DescribeHistoryResponse):
        answer = answer.result()
    return answer


def sentences(world: Any, subject: str = "") -> list[str]:
    kind = wire.TRANSACTIONAL_ID if isinstance(world, TransactionWorld) else wire.GROUP
    answer = ask(world, kind, subject or (ID if kind == wire.TRANSACTIONAL_ID else GROUP))
    assert answer.error_code == E.NONE
    return [event.text for event in answer.events]


def now(world: Any, subject: str = "") -> list[str]:
    kind = wire.TRANSACTIONAL_ID if isinstance(world, TransactionWorld) else wire.GROUP
    answer = ask(world, kind, subject or (ID if kind == wire.TRANSACTIONAL_ID else GROUP))
    return [state.text for state in answer.states]


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def init(world: TransactionWorld, client: str, **how: Any) -> tuple[int, int]:
    call = InitCall(ID, 60_000, client=f"client {client} at host", **how)
    answer = world.transactions.init_producer_id(call).result()
    return answer.producer_id, answer.epoch


# --- Transactions ---


def test_a_transaction_is_told_from_its_beginning_to_its_end(world: TransactionWorld) -> None:
    who = init(world, "a")
    world.add(who, T0, T1)
    world.end(who)
    assert sentences(world) == [
        (
            "InitProducerId from client a at host: (unknown) -> Empty; producer id 1001, epoch 0;"
            " transaction timeout 1.0 min"
        ),
        "AddPartitionsToTxn by a partition's leader: Empty -> Ongoing; added topic-0, topic-1",
        "EndTxn(commit): Ongoing -> PrepareCommit",
        "COMMIT markers with epoch 0 go to topic-0, topic-1",
        "all markers are written: PrepareCommit -> CompleteCommit",
    ]
    assert now(world) == ["CompleteCommit, producer id 1001, epoch 0; last change 0 ms ago"]


def test_only_what_was_added_is_told_and_whose_offsets(world: TransactionWorld) -> None:
    who = init(world, "a")
    world.add(who, T0)
    offsets = frozenset({("__consumer_offsets", 3)})
    call = AddCall(ID, *who, offsets, 1, "client a at host", "readers")
    world.transactions.add_partitions(call)
    assert sentences(world)[-1] == (
        "AddPartitionsToTxn from client a at host: Ongoing -> Ongoing; added"
        " __consumer_offsets-3 (offsets of group readers)"
    )
    assert "partitions __consumer_offsets-3, topic-0" in now(world)[0]


def test_t56_who_fenced_whom(world: TransactionWorld) -> None:
    zombie = init(world, "zombie")
    world.add(zombie)
    assert init(world, "successor") == (-1, -1)  # told to ask again
    successor = init(world, "successor")
    world.transactions.end(EndCall(ID, *zombie, True, 1, "client zombie at host"))
    fenced, again, refused = sentences(world)[2], sentences(world)[-2], sentences(world)[-1]
    assert fenced.startswith(
        "InitProducerId from client successor at host: Ongoing -> PrepareAbort; producer id 1001,"
        " epoch 1; fences client zombie at host (producer id 1001, epoch 0); the open transaction"
    )
    # Epoch 1 fenced, and was nobody's: the second InitProducerId fences nobody.
    assert "fences" not in again and "epoch 2" in again
    assert refused == (
        "EndTxn(commit) from client zombie at host with producer id 1001, epoch 0, was refused with"
        f" PRODUCER_FENCED: expected epoch {successor[1]}, got 0"
    )
    init(world, "third")
    assert "fences client successor at host (producer id 1001, epoch 2)" in sentences(world)[-1]


def test_kip360_a_producer_that_goes_on_fences_nobody(world: TransactionWorld) -> None:
    producer_id, epoch = init(world, "a")
    init(world, "a", producer_id=producer_id, epoch=epoch)
    assert sentences(world)[-1] == (
        "InitProducerId from client a at host: Empty -> Empty; producer id 1001, epoch 1; the same"
        " producer goes on, from epoch 0"
    )
    init(world, "a", producer_id=producer_id, epoch=epoch)
    assert "the answer was lost" in sentences(world)[-1]


def test_t55_a_timeout_says_how_long_and_whom(world: TransactionWorld) -> None:
    who = init(world, "slow")
    world.add(who)
    world.wait(75_000)
    told = next(text for text in sentences(world) if text.startswith("timeout"))
    assert told == (
        "timeout: open for 1.2 min, and 1.0 min were allowed: Ongoing -> PrepareAbort; producer id"
        " 1001, epoch 1; fences client slow at host (producer id 1001, epoch 0)"
    )
    assert "ABORT markers with epoch 1 go to topic-0" in sentences(world)


def test_t43_markers_that_are_not_taken(world: TransactionWorld) -> None:
    who = init(world, "a")
    world.add(who, T0, O0)
    world.markers.codes[O0] = E.NOT_LEADER_OR_FOLLOWER
    world.end(who)
    assert sentences(world)[-1].startswith(
        "the marker for other-0 was answered NOT_LEADER_OR_FOLLOWER; it is sent again in"
    )
    world.markers.codes[O0] = E.INVALID_PRODUCER_EPOCH
    world.wait(60_000)
    assert sentences(world)[-1] == (
        "the marker for other-0 was answered INVALID_PRODUCER_EPOCH: a newer coordinator is at work:"
        " leave this transaction to it"
    )
    assert now(world)[0].startswith("PrepareCommit, producer id 1001, epoch 0; open for 1.0 min")


def test_t50e_a_restart_tells_what_it_found_and_forgets_the_rest(world: TransactionWorld) -> None:
    who = init(world, "a")
    world.add(who)
    world.markers.hold = True
    world.end(who)
    world.clock.now_ms += 5_000
    world.restart()
    resumed, sent = sentences(world)
    assert resumed == (
        "the broker started and found PrepareCommit, with producer id 1001, epoch 0: the markers"
        " are written (again) to topic-0"
    )
    assert sent == "COMMIT markers with epoch 0 go to topic-0"
    assert now(world)[0].endswith("(as it was found at the start, in __transaction_state)")
    assert ask(world, wire.TRANSACTIONAL_ID, ID).started_ms == world.clock.wall_ms()


def test_t06_expiry_is_remembered_when_the_id_is_not(world: TransactionWorld) -> None:
    init(world, "a")
    world.wait(8 * 86_400_000)
    assert sentences(world)[-1].startswith("expired, unused for 7.")
    assert now(world) == ["nothing is known of this transactional id any more"]


REFUSALS = [
    # stored state, request (producer id, epoch), error, reason
    (
        {},
        EndCall(ID, 8, 5, True, 1),
        E.INVALID_PRODUCER_ID_MAPPING,
        "expected producer id 7, got 8",
    ),
    ({}, EndCall(ID, 7, 4, True, 1), E.PRODUCER_FENCED, "expected epoch 5, got 4"),
    ({}, EndCall(ID, 7, 5, True, 1), E.INVALID_TXN_STATE, "a commit does not fit state Empty"),
    ({}, AddCall(ID, 7, 6, {T0}, 1), E.PRODUCER_FENCED, "expected epoch 5, got 6"),
    (
        {"state": S.COMPLETE_COMMIT},
        EndCall(ID, 7, 5, False, 1),
        E.INVALID_TXN_STATE,
        "an abort does not fit state CompleteCommit",
    ),
    (
        {"state": S.PREPARE_COMMIT},
        EndCall(ID, 7, 5, True, 1),
        E.CONCURRENT_TRANSACTIONS,
        "the last transaction is being ended (PrepareCommit); ask again",
    ),
    (
        {"state": S.ONGOING},
        InitCall(ID, 1_000, 9, 0),
        E.PRODUCER_FENCED,
        "expected producer id 7, got 9",
    ),
]


@pytest.mark.parametrize(
    ("stored", "call", "error", "reason"),
    REFUSALS,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_says_what_was_expected(
    world: TransactionWorld, stored: dict[str, Any], call: Any, error: ErrorCode, reason: str
) -> None:
    world.markers.hold = True
    world.put(**stored)
    if isinstance(call, InitCall):
        world.transactions.init_producer_id(call)
    elif isinstance(call, AddCall):
        world.transactions.add_partitions(call)
    else:
        world.transactions.end(call)
    assert sentences(world)[-1].endswith(f"was refused with {error.name}: {reason}")
    # And whoever asks about the producer id that was shown is told as well.
    (event,) = world.producer_history.about(str(call.producer_id)).events
    assert (event.error, event.fields["reason"]) == (error, reason)


def test_what_is_not_known_is_said(world: TransactionWorld) -> None:
    world.transactions.end(EndCall(ID, 7, 5, True, 1))
    assert sentences(world)[-1].endswith("never initialised, or expired")
    who = init(world, "a")
    world.add(who, T0)
    world.verify(who, T1)
    assert sentences(world)[-1] == (
        f"verification of a batch with producer id {who[0]}, epoch 0, was refused with"
        " TRANSACTION_ABORTABLE: topic-1 is not part of the transaction, which is Ongoing"
    )
    world.log.hold = True
    world.init_later()
    world.end_later(who)
    world.log.hold = False
    world.log.flush()
    told = sentences(world)
    refused = next(text for text in told if "PRODUCER_FENCED" in text)
    assert refused.endswith("expected epoch 1, got 0")
    assert "Ongoing -> PrepareAbort" in told[told.index(refused) - 1]  # first the cause


def test_a_step_that_cannot_be_recorded_is_told_as_one(world: TransactionWorld) -> None:
    who = init(world, "a")
    world.log.refuse = E.NOT_ENOUGH_REPLICAS
    world.add(who)
    assert sentences(world)[-1].startswith(
        "AddPartitionsToTxn could not be recorded (COORDINATOR_NOT_AVAILABLE)"
    )
    assert now(world)[0].startswith("Empty")


# --- Groups ---


def test_g40_a_rebalance_says_why_it_began_whom_it_waited_for_and_what_came_out() -> None:
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


def test_g70_who_was_removed_and_why() -> None:
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


def test_g42_who_did_not_join_in_time_and_g46_who_did_not_sync() -> None:
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


def test_g80_who_left_g28_who_was_replaced_and_who_was_removed_by_name() -> None:
    world = GroupWorld()
    first, second = world.stable()
    world.leave(second)
    told = sentences(world)
    assert f"{second} of client client at 127.0.0.1 left" in told
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
        f"FENCED_INSTANCE_ID: expected member id {after} for this static member: another one took"
        " its place"
    )
    world.leave_as(MemberIdentity(member_id="", group_instance_id="i"))
    assert any(
        text.endswith("was removed: an administrator removed it by its instance id")
        for text in sentences(world)
    )


def test_joins_and_commits_that_are_refused() -> None:
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


def test_g90_a_restart_tells_which_groups_it_found() -> None:
    world = GroupWorld()
    first, second = world.stable()
    world.restart()
    (found,) = sentences(world)
    assert found == (
        "the broker started and found generation 2, state Stable, protocol range, leader"
        f" {first}, members {first}, {second}"
    )


def test_o11_o15_offsets_that_went_and_a_group_that_is_gone() -> None:
    world = GroupWorld(offsets_retention_minutes=1)
    assert world.commit() is E.NONE
    assert now(world)[0].endswith("partitions with committed offsets: 1")
    world.groups.topic_deleted("topic")
    assert sentences(world) == [
        "committed offsets were deleted (the topic was deleted): topic-0",
        "the group is gone: it has neither members nor offsets",
    ]
    assert now(world) == ["there is no such group"]
    world.commit(group="h")
    world.wait(1_300_000)
    assert sentences(world, "h")[0] == (
        "committed offsets were deleted (unused for offsets.retention.minutes): topic-0"
    )


# --- The handler ---


def test_a12_a20_rights_come_before_anything_else(world: TransactionWorld) -> None:
    groups = GroupWorld()
    for node, kind, error in (
        (world, wire.TRANSACTIONAL_ID, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (groups, wire.GROUP, E.GROUP_AUTHORIZATION_FAILED),
    ):
        node.authorizer = RuleList()
        assert ask(node, kind, "x").error_code == error


def test_a18_partitions_of_topics_that_one_may_not_describe_are_left_out(
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


def test_a18_a_group_that_one_may_not_describe_is_left_out(world: TransactionWorld) -> None:
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


def test_a18_topics_of_a_subscription_that_one_may_not_describe_are_left_out() -> None:
    """ConsumerGroupDescribe does not name them either."""
    world = GroupWorld()
    subscribed = ("open", "secret", "all that match s.*")
    world.groups.history.record(GROUP, What.CONSUMER_JOINED, member="m", topics=subscribed)
    world.groups.history.record(GROUP, What.CONSUMER_JOINED, member="n", topics=("secret",))
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


def test_d11_an_answer_fits_however_large_what_it_tells_of_is(world: TransactionWorld) -> None:
    who = init(world, "a")
    name = "t" * 249
    world.add(who, *((name, index) for index in range(5_000)))
    answer = ask(world, wire.TRANSACTIONAL_ID, ID)
    assert codec.encode_bytes(answer, 0)
    assert answer.states[0].text.count(name) == LIST_MAX
    assert "and 4980 more" in answer.states[0].text
    groups = GroupWorld()
    for number in range(30):
        groups.new_id(client=f"{number}" + "\u2028" * 5_000)
    groups.groups.history.record(
        GROUP, What.GENERATION_BEGAN, members=("\u2028" * 1_000,) * LIST_MAX
    )
    assert codec.encode_bytes(ask(groups, wire.GROUP, GROUP), 0)


def test_what_is_unknown_loading_or_wrong_has_its_code(world: TransactionWorld) -> None:
    groups = GroupWorld()
    assert ask(world, wire.TRANSACTIONAL_ID, "x").error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert ask(groups, wire.GROUP, "x").error_code == E.GROUP_ID_NOT_FOUND
    groups.groups.close()
    world.transactions.close()
    assert ask(world, wire.TRANSACTIONAL_ID, "x").error_code == E.NOT_COORDINATOR
    assert ask(groups, wire.GROUP, "x").error_code == E.NOT_COORDINATOR
    assert ask(world, 4, "x").error_code == E.INVALID_REQUEST
    for name in ("x", "-1", "1" * 20, "\u0663", ""):
        assert ask(world, wire.PRODUCER_ID, name).error_code == E.INVALID_REQUEST


def test_the_newest_events_and_what_was_dropped(world: TransactionWorld) -> None:
    world.transactions.history = History(world.clock.wall_ms, subject_events_max=4)
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
