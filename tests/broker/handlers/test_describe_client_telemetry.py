"""DescribeClientTelemetry: rights, pages, and the description of a client."""

from __future__ import annotations

from typing import Any

import otlp_messages as otlp
from acl_rules import Rule, RuleList
from at_once import at_once
from fake_node import FakeNode
from handler_calls import ask
from odradek_broker.handlers import push_telemetry
from odradek_broker.handlers.describe_client_telemetry import PAGE_MAX
from odradek_broker.request import Peer, RequestContext
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_client_telemetry import DescribeClientTelemetryRequest
from odradek_protocol.schemas.push_telemetry import PushTelemetryRequest

E = ErrorCode


def client_id(number: int) -> bytes:
    return (number + 2).to_bytes(16, "big")


class World:
    def __init__(self) -> None:
        self.node: Any = FakeNode()
        self.node.telemetry.subscriptions.update("s", {"metrics": "a.,b.", "interval.ms": "5000"})
        self.node.peers[1] = Peer("10.0.0.7", 1, software_name="tool", port=99)
        self.context = RequestContext(0, "orders", "10.0.0.7", 1, user="alice")

    def push(self, client: bytes, *metrics: bytes) -> None:
        self.node.clock.advance(5000)
        _, instance = at_once(self.node.telemetry.get(self.context, client))
        request = PushTelemetryRequest(
            client_instance_id=client,
            subscription_id=instance.subscription_id,
            metrics=otlp.metrics_data(metrics),
        )
        response = at_once(push_telemetry.handle(self.node, self.context, request))
        assert response.error_code == E.NONE

    def ask(self, **fields: Any) -> Any:
        return ask(self.node, DescribeClientTelemetryRequest(**fields), 0)


def test_m30_clients_are_answered_in_pages() -> None:
    world = World()
    for number in range(5):
        world.push(client_id(number), otlp.gauge("a", otlp.point(1.0)))
    found, after = [], bytes(16)
    while True:
        page = world.ask(after=after, limit=2)
        found += [each.client_instance_id for each in page.clients]
        assert page.metrics == [] and len(page.clients) <= 2
        if not page.more:
            break
        after = found[-1]
    assert found == [client_id(number) for number in range(5)]
    assert world.ask(limit=0).clients == [] and world.ask(limit=-1).more


def test_m30_the_metrics_of_a_client_are_answered_in_pages() -> None:
    world = World()
    points = [otlp.point(float(number), {"n": f"{number:05}"}) for number in range(PAGE_MAX + 5)]
    world.push(client_id(1), otlp.counter("org.apache.kafka.a", *points))
    first = world.ask(client_instance_id=client_id(1), limit=2**31 - 1)
    assert len(first.metrics) == PAGE_MAX and first.more
    rest = world.ask(client_instance_id=client_id(1), first=PAGE_MAX, limit=2**31 - 1)
    assert len(rest.metrics) == 5 and not rest.more
    metric = rest.metrics[-1]
    assert (metric.name, metric.source) == ("kafka_client_a_total", "org.apache.kafka.a")
    assert (metric.kind, metric.value) == ("counter", PAGE_MAX + 4)
    assert [(each.name, each.value) for each in metric.labels] == [("n", f"{PAGE_MAX + 4:05}")]


def test_m30_attributes_subscription_and_pushes_of_a_client_are_described() -> None:
    world = World()
    world.push(client_id(1), otlp.gauge("a", otlp.point(1.0)), otlp.gauge("", otlp.point(1.0)))
    world.node.clock.advance(700)
    (client,) = world.ask(client_instance_id=client_id(1)).clients
    assert (client.client_id, client.software_name, client.software_version) == (
        "orders",
        "tool",
        "unknown",
    )
    assert (client.host, client.port, client.user) == ("10.0.0.7", "99", "alice")
    assert (client.subscribed, client.push_interval_ms) == (["a.", "b."], 5000)
    assert (client.pushes, client.last_push_age_ms, client.series, client.left_out) == (
        1,
        700,
        1,
        1,
    )
    assert client.last_push_bytes > 0 and not client.gone
    world.node.telemetry.connection_closed(1)
    (client,) = world.ask().clients
    assert client.gone and client.subscribed == [] and client.series == 1


def test_m30_a_client_without_a_push_is_described() -> None:
    world = World()
    at_once(world.node.telemetry.get(world.context, client_id(1)))
    answer = world.ask(client_instance_id=client_id(1))
    assert answer.metrics == [] and answer.clients[0].last_push_age_ms == -1


def test_m30_an_unknown_client_is_not_found() -> None:
    answer = World().ask(client_instance_id=client_id(1))
    assert answer.error_code == E.RESOURCE_NOT_FOUND
    assert "AAAAAAAAAAAAAAAAAAAAAw" in answer.error_message


def test_m30_the_right_to_describe_the_cluster_is_needed() -> None:
    world = World()
    world.push(client_id(1), otlp.gauge("a", otlp.point(1.0)))
    rules = RuleList()
    world.node.authorizer = rules
    for client in (bytes(16), client_id(1)):
        answer = world.ask(client_instance_id=client)
        assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
        assert answer.clients == [] and answer.metrics == []
    rules.rules.append(Rule(Operation.DESCRIBE, ResourceType.CLUSTER))
    assert world.ask().error_code == E.NONE
