"""The levels of loggers, described and changed."""

from __future__ import annotations

from typing import Any

import pytest

from fake_node import FakeNode
from handler_calls import ask
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.alter_configs import (
    AlterableConfig as ReplacedConfig,
)
from odradek_protocol.schemas.alter_configs import (
    AlterConfigsRequest,
)
from odradek_protocol.schemas.alter_configs import (
    AlterConfigsResource as ReplacedResource,
)
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

E = ErrorCode
LOGGERS = 8
SET, DELETE, APPEND, SUBTRACT = range(4)


def _described(node: FakeNode, name: str = "1", keys: list[str] | None = None) -> Any:
    resource = DescribeConfigsResource(
        resource_type=LOGGERS, resource_name=name, configuration_keys=keys
    )
    (result,) = ask(node, DescribeConfigsRequest(resources=[resource]), 4).results
    return result


def _levels(node: FakeNode) -> dict[str, str]:
    return {each.name: each.value for each in _described(node).configs}


def _alter(
    node: FakeNode,
    *changes: tuple[str, int, str | None],
    name: str = "1",
    times: int = 1,
    validate_only: bool = False,
) -> Any:
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = AlterConfigsResource(resource_type=LOGGERS, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(
        resources=[resource] * times, validate_only=validate_only
    )
    return ask(node, request, 1).responses[0]


def test_a79_every_logger_is_described_with_its_level() -> None:
    node = FakeNode()
    node.log_levels.own["odradek.groups"] = "DEBUG"
    answer = _described(node)
    assert {each.name: each.value for each in answer.configs} == {
        "root": "INFO",
        "odradek": "INFO",
        "odradek.groups": "DEBUG",
    }
    assert {each.config_source for each in answer.configs} == {6}
    assert not any(each.read_only or each.is_sensitive or each.synonyms for each in answer.configs)
    (one,) = _described(node, keys=["odradek.groups", "no.such"]).configs
    assert one.name == "odradek.groups"


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
def test_a79_a_log_level_is_set_and_reset(level: str) -> None:
    node = FakeNode()
    assert _alter(node, ("odradek.groups", SET, level)).error_code == E.NONE
    assert _levels(node)["odradek.groups"] == level
    assert _alter(node, ("odradek.groups", DELETE, "x")).error_code == E.NONE
    assert _levels(node)["odradek.groups"] == "INFO"
    assert node.recorded == [], "a restart forgets it"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("odradek", SET, "debug"), E.INVALID_CONFIG),
        (("odradek", SET, "OFF"), E.INVALID_CONFIG),
        (("odradek", SET, ""), E.INVALID_CONFIG),
        (("odradek", SET, None), E.INVALID_REQUEST),
        (("root", DELETE, None), E.INVALID_REQUEST),
        (("no.such", SET, "INFO"), E.INVALID_CONFIG),
        (("no.such", DELETE, None), E.INVALID_CONFIG),
        (("odradek", APPEND, "INFO"), E.INVALID_REQUEST),
        (("odradek", SUBTRACT, "INFO"), E.INVALID_REQUEST),
        (("odradek", 9, "INFO"), E.INVALID_REQUEST),
        (("odradek.groups", SET, "ERROR"), E.INVALID_REQUEST),
    ],
)
def test_a79_an_invalid_change_keeps_all_log_levels(
    change: tuple[str, int, str | None], error: ErrorCode
) -> None:
    node = FakeNode()
    before = _levels(node)
    answer = _alter(node, ("odradek.groups", SET, "DEBUG"), change)
    assert answer.error_code == error and change[0] in answer.error_message
    assert _levels(node) == before


@pytest.mark.parametrize("name", ["", "0", "x", "-1", " 1", "99999999999"])
def test_a79_loggers_of_another_broker_are_refused(name: str) -> None:
    node = FakeNode()
    assert _described(node, name).error_code == E.INVALID_REQUEST
    assert _alter(node, ("odradek", SET, "DEBUG"), name=name).error_code == E.INVALID_REQUEST
    assert _levels(node)["odradek"] == "INFO"


def test_a79_validate_only_and_repeated_resources_change_no_log_level() -> None:
    node = FakeNode()
    change = ("odradek", SET, "DEBUG")
    assert _alter(node, change, validate_only=True).error_code == E.NONE
    assert _alter(node, change, times=5_000).error_code == E.INVALID_REQUEST
    assert _levels(node)["odradek"] == "INFO"


def test_a79_alter_configs_of_loggers_is_refused() -> None:
    node = FakeNode()
    resource = ReplacedResource(
        resource_type=LOGGERS,
        resource_name="1",
        configs=[ReplacedConfig(name="odradek", value="DEBUG")],
    )
    (answer,) = ask(node, AlterConfigsRequest(resources=[resource]), 2).responses
    assert answer.error_code == E.INVALID_REQUEST
    assert _levels(node)["odradek"] == "INFO"


def test_a79_a_broker_inside_another_program_refuses_log_level_changes() -> None:
    node = FakeNode()
    node.log_levels.changeable = False
    assert "program" in _described(node).error_message
    assert _alter(node, ("odradek", SET, "DEBUG")).error_code == E.INVALID_REQUEST
