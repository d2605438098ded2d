"""ListConfigResources: the listed resources, by version."""

from __future__ import annotations

import pytest

from fake_node import FakeNode
from handler_calls import ask
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek_protocol.schemas.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def listed(node: FakeNode, *types: int, version: int = 1) -> list[tuple[int, str]]:
    answer = ask(node, ListConfigResourcesRequest(resource_types=list(types)), version)
    assert answer.error_code == ErrorCode.NONE
    return [(each.resource_type, each.resource_name) for each in answer.config_resources]


@pytest.fixture
def node() -> FakeNode:
    node = FakeNode()
    node.create("t")
    for kind, name, key, value in (
        (METRICS, "m", "interval.ms", "1000"),
        (GROUP, "g", "consumer.session.timeout.ms", "46000"),
    ):
        change = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[AlterableConfig(name=key, config_operation=0, value=value)],
                )
            ]
        )
        assert ask(node, change, 1).responses[0].error_code == ErrorCode.NONE
    return node


def test_a18_resources_with_settings_are_listed_by_type(node: FakeNode) -> None:
    everything = [(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "m"), (GROUP, "g")]
    assert listed(node) == everything
    assert listed(node, GROUP, TOPIC, *[GROUP] * 5_000) == [(TOPIC, "t"), (GROUP, "g")]
    assert listed(node, version=0) == [(METRICS, "m")]


@pytest.mark.parametrize("kinds", [(0,), (3,), (METRICS, 127), (-1,)])
def test_a18_an_unknown_resource_type_is_refused(node: FakeNode, kinds: tuple[int, ...]) -> None:
    answer = ask(node, ListConfigResourcesRequest(resource_types=list(kinds)), 1)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
