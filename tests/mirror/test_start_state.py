"""The state of an exactly-once mirror, as read from descriptions of both clusters."""

from __future__ import annotations

from typing import Any

import pytest

from odradek import Admin, Broker, NewTopic
from odradek_client.admin.results import Results
from odradek_client.errors import (
    OdradekError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from odradek_client.structs import TopicPartition
from odradek_mirror.start_state import find_state


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UnknownTopicOrPartition("gone"), "is gone, of which the mirror has positions"),
        (TopicAuthorizationFailed("no right"), "does not describe topic 'copy' (no right)"),
    ],
)
async def test_i34_a_topic_that_is_not_described_is_deleted_only_if_it_is_unknown(
    monkeypatch: pytest.MonkeyPatch, error: OdradekError, text: str
) -> None:
    async def describe_topics(*_: Any, **__: Any) -> Results[str, Any]:
        found = Results[str, Any]()
        found.errors = {"copy": error}
        return found

    async with (
        Broker() as broker,
        Admin(bootstrap_servers=broker.bootstrap) as source,
        Admin(bootstrap_servers=broker.bootstrap) as target,
    ):
        await source.create_topics(NewTopic("t", 1))
        monkeypatch.setattr(target, "describe_topics", describe_topics)
        maps: Any = {TopicPartition("t", 0): None}
        state = await find_state(source, target, maps, ["t"], lambda _: "copy", skip_deleted=False)
    (problem,) = state.problems["t"]
    assert text in problem
