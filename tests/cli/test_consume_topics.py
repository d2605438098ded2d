"""`odradek consume` of a topic that is still unknown to some nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek_cli.records import consume_topics
from odradek_client.errors import UnknownTopicOrPartition


class FakeAdmin:
    """An admin client of a cluster with `nodes` nodes; from request `known_at` on, the topic is
    known."""

    def __init__(self, nodes: int, known_at: int) -> None:
        self.network = SimpleNamespace(cluster=SimpleNamespace(brokers=range(nodes)))
        self._known_at = known_at
        self.questions = 0

    async def describe_topics(self, topics: list[str]) -> None:
        self.questions += 1
        if self.questions < self._known_at:
            raise UnknownTopicOrPartition("no such topic")

    async def list_topics(self, internal: bool) -> list[str]:
        return ["orders"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume_topics, "_NEW_TOPIC_PAUSE_S", 0.001)


async def test_a_topic_unknown_to_one_of_several_nodes_is_looked_up_again() -> None:
    admin: Any = FakeAdmin(nodes=3, known_at=4)
    await consume_topics._require_topics(admin, ["orders"])
    assert admin.questions == 4


async def test_a_topic_missing_at_a_single_node_is_an_error_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin: Any = FakeAdmin(nodes=1, known_at=4)
    with pytest.raises(SystemExit):
        await consume_topics._require_topics(admin, ["order"])
    assert admin.questions == 1
    assert "is it 'orders'?" in capsys.readouterr().err
