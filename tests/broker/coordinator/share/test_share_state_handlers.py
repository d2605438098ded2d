"""The handlers of the requests about stored states of share partitions (H-110)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from acl_rules import Rule, RuleList
from handler_calls import ask, received, send
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_protocol.common_structs import (
    ReadPartition,
    ReadTopic,
    ShareStateBatch,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.schemas.delete_share_group_state import (
    DeletedPartition,
    DeletedTopic,
    DeleteShareGroupStateRequest,
)
from odradek_protocol.schemas.initialize_share_group_state import (
    InitializedPartition,
    InitializedTopic,
    InitializeShareGroupStateRequest,
)
from odradek_protocol.schemas.read_share_group_state import ReadShareGroupStateRequest
from odradek_protocol.schemas.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
)
from odradek_protocol.schemas.write_share_group_state import (
    WriteShareGroupStateRequest,
    WrittenPartition,
    WrittenTopic,
)
from share_state_world import KEY, TOPIC_ID, ShareStateWorld

E = ErrorCode


@pytest.fixture
def world() -> ShareStateWorld:
    return ShareStateWorld()


def initializing(*partitions: int, **more: Any) -> InitializeShareGroupStateRequest:
    parts = [InitializedPartition(partition=each, state_epoch=1, **more) for each in partitions]
    topic = InitializedTopic(topic_id=TOPIC_ID, partitions=parts)
    return InitializeShareGroupStateRequest(group_id="g", topics=[topic])


def reading(*partitions: int, leader_epoch: int = 0) -> ReadShareGroupStateRequest:
    parts = [ReadPartition(partition=each, leader_epoch=leader_epoch) for each in partitions]
    return ReadShareGroupStateRequest(
        group_id="g", topics=[ReadTopic(topic_id=TOPIC_ID, partitions=parts)]
    )


def summarizing(*partitions: int) -> ReadShareGroupStateSummaryRequest:
    parts = [ReadPartition(partition=each) for each in partitions]
    return ReadShareGroupStateSummaryRequest(
        group_id="g", topics=[ReadTopic(topic_id=TOPIC_ID, partitions=parts)]
    )


def writing(
    *partitions: int, batches: Sequence[ShareStateBatch] = (), **more: Any
) -> WriteShareGroupStateRequest:
    parts = [
        WrittenPartition(partition=each, state_epoch=1, state_batches=list(batches), **more)
        for each in partitions
    ]
    return WriteShareGroupStateRequest(
        group_id="g", topics=[WrittenTopic(topic_id=TOPIC_ID, partitions=parts)]
    )


def deleting(*partitions: int) -> DeleteShareGroupStateRequest:
    parts = [DeletedPartition(partition=each) for each in partitions]
    return DeleteShareGroupStateRequest(
        group_id="g", topics=[DeletedTopic(topic_id=TOPIC_ID, partitions=parts)]
    )


ALL: list[tuple[Message, int]] = [
    (initializing(0), 0),
    (reading(0), 0),
    (writing(0), 0),
    (writing(0), 1),
    (deleting(0), 0),
    (summarizing(0), 0),
    (summarizing(0), 1),
]
EVERY = pytest.mark.parametrize(
    ("request_", "version"), ALL, ids=lambda value: getattr(type(value), "__name__", None)
)


def codes(answer: Any) -> dict[int, ErrorCode]:
    (topic,) = answer.results
    assert topic.topic_id == TOPIC_ID
    return {each.partition: ErrorCode(each.error_code) for each in topic.partitions}


def test_h110_every_request_reaches_the_state(world: ShareStateWorld) -> None:
    assert codes(ask(world, initializing(0, start_offset=3), 0)) == {0: E.NONE}
    batch = ShareStateBatch(first_offset=3, last_offset=5, delivery_state=2, delivery_count=1)
    written = writing(0, batches=[batch], start_offset=4, delivery_complete_count=2)
    assert codes(ask(world, written, 1)) == {0: E.NONE}
    (read,) = ask(world, reading(0, leader_epoch=2), 0).results[0].partitions
    assert (read.error_code, read.error_message) == (E.NONE, None)
    assert (read.state_epoch, read.start_offset) == (1, 4)
    (found,) = read.state_batches
    assert (found.first_offset, found.last_offset) == (4, 5)
    assert (found.delivery_state, found.delivery_count) == (2, 1)
    (summary,) = ask(world, summarizing(0), 1).results[0].partitions
    assert (summary.state_epoch, summary.leader_epoch, summary.start_offset) == (1, 2, 4)
    assert summary.delivery_complete_count == 2
    assert codes(ask(world, deleting(0), 0)) == {0: E.NONE}
    assert codes(ask(world, reading(0), 0)) == {0: E.INVALID_REQUEST}


def test_h105_a_request_with_too_many_batches_of_a_partition_is_refused(
    world: ShareStateWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are merged in one piece, which must not hold the loop (N-57)."""
    monkeypatch.setattr("odradek_broker.handlers.write_share_group_state._BATCHES_MAX", 2)
    world.initialize()
    batches = [
        ShareStateBatch(first_offset=n, last_offset=n, delivery_state=2, delivery_count=1)
        for n in (1, 3, 5)
    ]
    assert codes(ask(world, writing(0, batches=batches), 1)) == {0: E.INVALID_REQUEST}
    assert not world.stored().batches
    assert codes(ask(world, writing(0, batches=batches[:2]), 1)) == {0: E.NONE}
    assert len(world.stored().batches) == 2


def test_h110_a_write_of_version_0_stores_no_delivered_count(
    world: ShareStateWorld,
) -> None:
    world.initialize()
    ask(world, writing(0, delivery_complete_count=7), 0)
    assert world.stored().delivery_complete_count == -1


@EVERY
def test_h110_every_request_needs_cluster_action(
    world: ShareStateWorld, request_: Message, version: int
) -> None:
    world.initialize()
    before = list(world.log.records)
    allowed = [Rule(each, CLUSTER[0]) for each in Operation]
    world.authorizer = RuleList(Rule(Operation.CLUSTER_ACTION, *CLUSTER, deny=True), *allowed)
    answer = ask(world, request_, version)
    assert codes(answer) == {0: E.CLUSTER_AUTHORIZATION_FAILED}
    assert answer.results[0].partitions[0].error_message == "Cluster authorization failed."
    assert world.log.records == before


@EVERY
def test_h110_the_topic_of_the_states_is_not_created_by_requests(
    request_: Message, version: int
) -> None:
    world = ShareStateWorld(topic=False)
    answer = ask(world, request_, version)
    assert codes(answer) == {0: E.NOT_COORDINATOR}
    (part,) = answer.results[0].partitions
    assert part.error_message.startswith("Unable to ")
    assert part.error_message.endswith(" state: This is not the correct coordinator.") or (
        part.error_message.endswith(" summary: This is not the correct coordinator.")
    )
    assert world.metadata.partition_count("__share_group_state") == 0


@EVERY
def test_h110_each_partition_has_its_own_error(
    world: ShareStateWorld, request_: Any, version: int
) -> None:
    world.initialize()
    parts = request_.topics[0].partitions
    unknown = type(parts[0])(partition=10)
    negative = type(parts[0])(partition=-1)
    request = type(request_)(
        group_id="g",
        topics=[
            type(request_.topics[0])(topic_id=TOPIC_ID, partitions=[unknown, *parts, negative])
        ],
    )
    uninitialized = isinstance(request_, ReadShareGroupStateRequest | WriteShareGroupStateRequest)
    assert codes(ask(world, request, version)) == {
        -1: E.INVALID_REQUEST,
        0: E.NONE,
        10: E.INVALID_REQUEST if uninitialized else E.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_h110_a_share_partition_named_again_is_answered_once(world: ShareStateWorld) -> None:
    answer = ask(world, initializing(0, 0), 0)
    assert [each.partition for each in answer.results[0].partitions] == [0]
    assert len(world.log.records) == 2, "it was initialized twice"


@EVERY
def test_h110_an_empty_group_id_gets_an_empty_answer(
    world: ShareStateWorld, request_: Any, version: int
) -> None:
    nameless = type(request_)(group_id="", topics=request_.topics)
    assert ask(world, nameless, version).results == []


@EVERY
def test_h110_a_topic_without_partitions_makes_the_answer_empty(
    world: ShareStateWorld, request_: Any, version: int
) -> None:
    empty = type(request_.topics[0])(topic_id=bytes(16))
    request = type(request_)(group_id="g", topics=[*request_.topics, empty])
    results = ask(world, request, version).results
    if isinstance(request_, InitializeShareGroupStateRequest):
        assert [each.topic_id for each in results] == [TOPIC_ID], "as in Kafka, not here"
    else:
        assert results == []


@EVERY
@pytest.mark.parametrize("has_topic", [True, False])
def test_h110_a_repeated_topic_is_answered_once(
    has_topic: bool, request_: Any, version: int
) -> None:
    world = ShareStateWorld(topic=has_topic)
    other = copy.deepcopy(request_.topics[0])
    other.partitions[0].partition = 1
    request = type(request_)(group_id="g", topics=[*request_.topics, other, request_.topics[0]])
    (result,) = ask(world, request, version).results
    assert [each.partition for each in result.partitions] == [0, 1]


@pytest.mark.parametrize("request_", [initializing(0), writing(0), deleting(0)])
def test_h102_a_request_is_answered_when_the_state_is_durable(
    world: ShareStateWorld, request_: Message
) -> None:
    world.initialize()
    world.log.hold = True
    answer = send(world, request_, 0)
    assert not answer.done
    world.log.flush()
    assert codes(received(request_, 0, answer)) == {0: E.NONE}


def test_h110_an_error_of_the_coordinator_is_explained(world: ShareStateWorld) -> None:
    world.initialize(key=KEY)
    world.share.shards.close()
    (part,) = ask(world, summarizing(0), 0).results[0].partitions
    assert part.error_code == E.NOT_COORDINATOR
    assert part.error_message == (
        "Unable to read share group state summary: This is not the correct coordinator."
    )
