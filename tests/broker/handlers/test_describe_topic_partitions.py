"""DescribeTopicPartitions: order, pages, cursors."""

from __future__ import annotations

from typing import Any

import pytest

from fake_node import FakeNode
from handler_calls import ask, received, send
from odradek_broker.deferred import Deferred
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, Resource, ResourceType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)

E = ErrorCode


def request(*names: str, **more: Any) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], **more
    )


def shown(answer: Any) -> list[tuple[str, list[int]]]:
    return [
        (topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics
    ]


@pytest.fixture
def node() -> FakeNode:
    node = FakeNode()
    for name, partitions in (("c", 4), ("a", 3), ("b", 2)):
        node.create(name, partitions)
    return node


def test_n36_each_topic_is_answered_once_in_the_order_of_names(node: FakeNode) -> None:
    answer = ask(node, request(*["c", "z", "a", "a b", "b"] * 1_000), 0)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", E.NONE),
        ("a b", E.INVALID_TOPIC_EXCEPTION),
        ("b", E.NONE),
        ("c", E.NONE),
        ("z", E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert answer.next_cursor is None


@pytest.mark.parametrize("limit", [-5, 0, 1, 2, 3, 4, 5, 8, 9, 2**31 - 1])
@pytest.mark.parametrize("names", [(), ("c", "b", "a")])
def test_n36_pages_have_every_partition_once(
    node: FakeNode, names: tuple[str, ...], limit: int
) -> None:
    found: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        answer = ask(node, request(*names, response_partition_limit=limit, cursor=cursor), 0)
        page = [(name, index) for name, indexes in shown(answer) for index in indexes]
        assert 1 <= len(page) <= max(1, limit)
        found += page
        cursor = answer.next_cursor
        if cursor is None:
            break
        assert len(page) == max(1, limit)
    assert found == [(name, i) for name, n in (("a", 3), ("b", 2), ("c", 4)) for i in range(n)]


def test_n36_a_page_has_at_most_2000_partitions(node: FakeNode) -> None:
    node.create("large", 2_500)
    answer = ask(node, request("large", response_partition_limit=2**31 - 1), 0)
    assert shown(answer) == [("large", list(range(2_000)))]
    assert answer.next_cursor == Cursor(topic_name="large", partition_index=2_000)


def test_n36_a_cursor_at_a_deleted_topic_continues_with_the_next_topic(
    node: FakeNode,
) -> None:
    cursor = Cursor(topic_name="aa", partition_index=2)
    assert shown(ask(node, request(cursor=cursor), 0)) == [("b", [0, 1]), ("c", [0, 1, 2, 3])]


@pytest.mark.parametrize(
    ("names", "cursor"),
    [(("a", "b"), ("aa", 0)), (("a", "b"), ("z", 0)), (("b",), ("a", 0)), (("a", "b"), ("a", -1))],
)
def test_n36_a_cursor_must_name_a_topic_of_the_request_and_a_partition(
    node: FakeNode, names: tuple[str, ...], cursor: tuple[str, int]
) -> None:
    name, index = cursor
    answer = ask(node, request(*names, cursor=Cursor(topic_name=name, partition_index=index)), 0)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        (name, E.INVALID_REQUEST) for name in names
    ]


class _All:
    """Allows everything, except access to one topic."""

    def __init__(self, hidden: str) -> None:
        self._hidden = hidden

    def allows(self, _: RequestContext, operation: Operation, resource: Resource) -> bool:
        return resource != Resource(ResourceType.TOPIC, self._hidden)

    would_allow = allows

    async def allows_any(self, _: RequestContext, operation: Operation, kind: ResourceType) -> bool:
        return True


def test_a10_topics_that_may_not_be_described_are_last_or_left_out(node: FakeNode) -> None:
    node.authorizer = _All("a")
    answer = ask(node, request("a", "b", "no"), 0)
    assert [(each.name, each.error_code, each.topic_id == bytes(16)) for each in answer.topics] == [
        ("b", E.NONE, False),
        ("no", E.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("a", E.TOPIC_AUTHORIZATION_FAILED, True),
    ]
    assert [name for name, _ in shown(ask(node, request(), 0))] == ["b", "c"]


def test_l42_a_partition_that_is_offline_has_no_leader(node: FakeNode) -> None:
    node.offline.add(("b", 1))
    (topic,) = ask(node, request("b"), 0).topics
    first, second = topic.partitions
    assert (first.error_code, first.leader_id, first.isr_nodes) == (E.NONE, 1, [1])
    assert (second.error_code, second.leader_id) == (E.LEADER_NOT_AVAILABLE, -1)
    assert (second.isr_nodes, second.offline_replicas) == ([], [1])


def test_d4_topics_and_partitions_are_described_when_they_are_durable(node: FakeNode) -> None:
    node.durable = False
    early = send(node, request("a"), 0)
    late = send(node, request(), 0)
    assert isinstance(early, Deferred) and not early.done
    node.timers[-1].callback()
    answer = received(request(), 0, late)
    assert shown(answer) == [("a", []), ("b", []), ("c", [])]
    assert {each.error_code for each in answer.topics} == {E.REQUEST_TIMED_OUT}
    node.flush()
    assert shown(received(request("a"), 0, early)) == [("a", [0, 1, 2])]
