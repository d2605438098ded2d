"""Every tool says the broker's sentence about a group, word for word."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from rich.console import Console as Terminal

import group_scenes as scenes
from console_process import options_for
from odradek_broker.metrics.exposition import Exposition
from odradek_cli import layout
from odradek_cli.broker import doctor_checks
from odradek_cli.broker.doctor_cluster import look_at_brokers
from odradek_cli.cluster.top import Watch
from odradek_cli.cluster.top_view import render
from odradek_cli.groups.groups import group_rows
from odradek_cli.tools.mcp_tools import Tools
from odradek_console.server import Console
from odradek_records.decoders import Decoders
from odradek_records.masking import Masks
from odradek_testkit.simulation.simulate import simulate
from odradek_testkit.simulation.world import World


async def _outputs(scene: scenes.Scene) -> dict[str, str]:
    """What each tool says about the group, in one line."""
    admin: Any = scene.admin
    (row,), _ = await group_rows(admin, [scenes.GROUP])
    frame = await Watch(1.0).frame(admin)
    terminal = Terminal(width=80, record=True)
    terminal.print(render(frame, height=50))
    tools = Tools(admin, lambda: pytest.fail("no consumer"), "broker:9092", Masks(), Decoders())
    found = {
        "group describe": row["verdict"]["text"],
        "top": terminal.export_text(),
        "top --json": str(frame.as_json()["groups"]),
        "doctor": str(await look_at_brokers(admin, "broker:9092")),
        "mcp describe_group": str(await tools.describe_group(scenes.GROUP)),
        "mcp doctor": str(await tools.doctor()),
        "mcp describe_cluster": str(await tools.describe_cluster()),
        "explain": await scene.sentence(),
    }
    app: Any = Console(options_for(scene.bootstrap)).app()
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client,
    ):
        for page, params in (("overview", {}), ("groups", {}), ("group", {"id": scenes.GROUP})):
            answer = await client.get(f"/api/{page}", params=params)
            found[f"console {page}"] = answer.text.replace('\\"', '"')
    return found


def _plain(text: str) -> str:
    return scenes.DURATION.sub("T", re.sub(r"\s+!?\s*", " ", text))


#: The tools that name only groups that are not OK.
_OF_PROBLEMS = {"top", "doctor", "mcp doctor", "mcp describe_cluster", "console overview"}


@pytest.mark.parametrize("situation", scenes.SITUATIONS, ids=lambda each: each.build.__name__)
def test_g164_g165_every_tool_says_the_sentence_that_names_the_cause(
    situation: scenes.Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_checks, "connect", lambda *_: "")
    monkeypatch.setattr(layout, "columns", lambda: 80)
    said: dict[str, str] = {}

    async def story(world: World) -> None:
        await world.start_broker()
        scene = scenes.Scene(world)
        async with scene.admin:
            await situation.build(scene)
            said.update(await _outputs(scene))
            said["metrics"] = Exposition(scene.node.metrics, scene.node).render().decode()
        await world.broker.stop()

    simulate(situation.build.__name__, 1, story, situation.settings)
    assert said["explain"] == situation.sentence
    status, _, sentence = _plain(situation.sentence).partition(": ")
    labels = f'consumergroup="billing",status="{status}",cause="{situation.cause}"'
    assert labels in said.pop("metrics")
    silent = {name for name, text in said.items() if sentence not in _plain(text)}
    assert silent == (_OF_PROBLEMS if status == "OK" else set())
