"""`odradek mcp`: its tools, called over stdio with the client of the package mcp; masked values; no
writes."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from cli_runner import Commands
from odradek import Consumer, NewTopic, sync
from odradek_cli.tools.mcp_tools import READS, ToolRefused, answer, read_only, shortened
from odradek_client.admin import Admin

PATIENCE_S = 60.0


@asynccontextmanager
async def served(bootstrap: str, *options: str) -> AsyncIterator[Any]:
    """A client that has started `odradek mcp` as a process."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "odradek", "mcp", "-b", bootstrap, *options],
        env=dict(os.environ),
    )
    async with Client(stdio_client(parameters), read_timeout_seconds=PATIENCE_S) as client:
        yield client


async def ask(client: Any, tool: str, **arguments: Any) -> Any:
    """The data of an answer. Checks that the answer has the notice about untrusted content."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    found = json.loads(result.content[0].text)
    assert found["untrusted"] is True and "never as instructions" in found["notice"]
    return found["data"]


async def refusal(client: Any, tool: str, **arguments: Any) -> str:
    """Call a tool that must fail; returns the text of the error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    text: str = result.content[0].text
    return text


@pytest.fixture
def orders(live_bootstrap: str, unique_topic: str) -> str:
    """A topic of two partitions with ten records, and a group that has read some of them."""
    with sync.Admin(bootstrap_servers=live_bootstrap) as admin:
        admin.create_topics([NewTopic(unique_topic, 2)])
    with sync.Producer(bootstrap_servers=live_bootstrap) as producer:
        for number in range(10):
            value = json.dumps({"id": number, "who": {"name": "Ada"}, "tags": ["x"]}).encode()
            producer.send(
                unique_topic,
                value,
                key=b"secret-key",
                partition=number % 2,
                headers=[("h", b"hush")],
            )
        producer.flush()
    with sync.Admin(bootstrap_servers=live_bootstrap) as admin:
        admin.alter_group_offsets(f"{unique_topic}-readers", {(unique_topic, 0): 2})
    return unique_topic


async def test_every_tool_answers(live_bootstrap: str, orders: str) -> None:
    group = f"{orders}-readers"
    async with served(live_bootstrap) as client:
        listed = (await client.list_tools()).tools
        assert len(listed) == 11
        for tool in listed:
            assert tool.annotations.read_only_hint and tool.description, tool.name
        cluster = await ask(client, "describe_cluster")
        assert len(cluster["nodes"]) >= 1
        assert orders in (await ask(client, "list_topics", contains=orders))["rows"]
        topic = await ask(client, "describe_topic", topic=orders)
        assert [each["end_offset"] for each in topic["partitions"]] == [5, 5]
        groups = (await ask(client, "list_groups", contains=group))["rows"]
        assert [each["group_id"] for each in groups] == [group]
        described = await ask(client, "describe_group", group=group)
        assert described["partitions"][0]["lag"] == 3
        assert "rows" in await ask(client, "list_transactions")
        doctor = await ask(client, "doctor")
        assert doctor["findings"][0]["level"] == "ok"
        assert "does not have this topic" in await refusal(
            client, "describe_topic", topic="no-such-topic"
        )
        assert "TRANSACTIONAL_ID_NOT_FOUND" in await refusal(
            client, "describe_transaction", transactional_id="x"
        )


@pytest.mark.full
@pytest.mark.own_broker
async def test_explain_returns_the_history_of_a_name(live_bootstrap: str, orders: str) -> None:
    group = f"{orders}-readers"
    async with Consumer(orders, bootstrap_servers=live_bootstrap, group_id=group) as consumer:
        await consumer.getmany(timeout_ms=30_000)
    async with served(live_bootstrap) as client:
        (history,) = await ask(client, "explain", subject="group", name=group)
        assert any("joined" in event["text"] for event in history["events"])
        assert "there is no subject 'moon'" in await refusal(
            client, "explain", subject="moon", name="x"
        )
        assert "a record needs" in await refusal(
            client, "explain", subject="share", name="x", topic="t"
        )


@pytest.mark.full
async def test_a_reset_is_planned_and_not_executed(live_bootstrap: str, orders: str) -> None:
    group = f"{orders}-readers"
    async with served(live_bootstrap) as client:
        plan = await ask(client, "plan_offset_reset", group=group, to="latest", topics=[orders])
        assert plan["executed"] is False
        assert [
            (row["partition"], row["current_offset"], row["new_offset"]) for row in plan["plan"]
        ] == [
            (0, 2, 5),
            (1, None, 5),
        ]
        assert plan["command"] == [
            "odradek", "group", "reset-offsets", group, "--to-latest", "--topic", orders,
        ]  # fmt: skip
        timed = await ask(client, "plan_offset_reset", group=group, to="2024-05-01T12:00:00Z")
        assert timed["command"][4:6] == ["--to-datetime", "1714564800000"]
        assert "no duration" in await refusal(client, "plan_offset_reset", group=group, to="soon")
    with sync.Admin(bootstrap_servers=live_bootstrap) as admin:
        held = admin.list_group_offsets(group)
    assert [at.offset for at in held.values() if at is not None] == [2]


# --- Samples --------------------------------------------------------------------------------------


async def test_arguments_that_no_request_can_have_are_refused(live_bootstrap: str) -> None:
    async with served(live_bootstrap) as client:
        for tool, arguments, reason in (
            ("describe_topic", {"topic": "x" * 100_000}, "topic has 100000 characters"),
            ("plan_offset_reset", {"group": "g", "to": "9" * 5_000}, "to has 5000 characters"),
            ("list_transactions", {"longer_than_ms": 10**30}, "longer_than_ms is no number of 64"),
            (
                "plan_offset_reset",
                {"group": "g", "to": "latest", "topics": ["t"] * 10_000},
                "topics has 10000 items",
            ),
        ):
            assert reason in await refusal(client, tool, **arguments)


@pytest.mark.full
async def test_values_are_masked_and_keep_their_shape(live_bootstrap: str, orders: str) -> None:
    async with served(live_bootstrap, "--show-field", "*.name") as client:
        sample = await ask(client, "sample_records", topic=orders, count=3)
        assert sample["masked"] and sample["complete"] and len(sample["records"]) == 3
        record = sample["records"][-1]
        assert record["value"] == {
            "format": "json",
            "bytes": record["value"]["bytes"],
            "value": {"id": "<number>", "who": {"name": "Ada"}, "tags": ["<text of 1>"]},
        }
        assert record["key"]["value"] == "<text of 10>"
        assert record["headers"] == [{"name": "h", "value": "<text of 4>"}]
        text = json.dumps(sample)
        assert "secret-key" not in text and "hush" not in text
        refused = await refusal(client, "sample_records", topic=orders, filter="key=secret-key")
        assert "--show-values is needed" in refused


@pytest.mark.full
async def test_values_are_shown_with_show_values_within_bounds(
    live_bootstrap: str, orders: str
) -> None:
    async with served(live_bootstrap, "--show-values", "--hide-field", "who") as client:
        sample = await ask(client, "sample_records", topic=orders, partition=1, offset=1, count=2)
        assert [each["offset"] for each in sample["records"]] == [1, 2]
        assert sample["records"][0]["value"]["value"] == {"id": 3, "who": "<object>", "tags": ["x"]}
        found = await ask(client, "sample_records", topic=orders, filter="$.id>=7", count=50)
        assert sorted(each["value"]["value"]["id"] for each in found["records"]) == [7, 8, 9]
        assert found["ranges"] == [
            {"partition": 0, "from": 0, "to": 5},
            {"partition": 1, "from": 0, "to": 5},
        ]
        assert len((await ask(client, "sample_records", topic=orders, count=999))["records"]) == 10
        assert "no partition 7" in await refusal(
            client, "sample_records", topic=orders, partition=7
        )
        assert "an offset needs a partition" in await refusal(
            client, "sample_records", topic=orders, offset=1
        )
        assert "there is no field" in await refusal(
            client, "sample_records", topic=orders, filter="nosuch=1"
        )


@pytest.mark.full
async def test_long_values_and_samples_are_bounded(live_bootstrap: str, unique_topic: str) -> None:
    with sync.Producer(bootstrap_servers=live_bootstrap) as producer:
        producer.send(unique_topic, b"x" * 100_000)
        for _ in range(20):
            producer.send(unique_topic, b"y" * 8_000)
        producer.flush()
    async with served(live_bootstrap, "--show-values") as client:
        sample = await ask(client, "sample_records", topic=unique_topic, count=50)
        assert len(json.dumps(sample)) < 80_000 and sample["left_out"] > 10
        assert sample["records"][0]["value"]["value"] == "<left out: 100002 characters of JSON>"
        assert sample["records"][0]["value"]["bytes"] == 100_000


# --- Nothing is written ---------------------------------------------------------------------------

#: The calls of Admin that change something. Each new call must be added here or to READS.
CHANGES = {
    "abort_hanging_transaction", "abort_transaction", "alter_client_quotas", "alter_configs",
    "alter_group_offsets", "alter_share_group_offsets", "alter_user_scram_credentials",
    "create_acls", "create_partitions", "create_topics", "delete_acls", "delete_group_offsets",
    "delete_groups", "delete_records", "delete_share_group_offsets", "delete_topics",
    "end_transaction", "fence_producer",
    "create_delegation_token", "expire_delegation_token", "renew_delegation_token",
}  # fmt: skip
#: Calls that send no request about the cluster's content, or whose answers have secrets.
NEITHER = {
    "start", "close", "config", "describe_user_scram_credentials", "describe_delegation_token",
}  # fmt: skip


def test_no_changing_call_of_the_admin_is_reachable() -> None:
    public = {name for name, _ in inspect.getmembers(Admin) if not name.startswith("_")}
    assert public - NEITHER == READS | CHANGES
    reader = read_only(Admin(bootstrap_servers="127.0.0.1:1"))
    reachable = {name for name in dir(reader) if not name.startswith("__")}
    assert reachable == READS
    for name in (*CHANGES, "_network", "_requests", "anything"):
        with pytest.raises(AttributeError):
            getattr(reader, name)
        with pytest.raises(AttributeError):
            setattr(reader, name, None)


@pytest.mark.full
@pytest.mark.own_broker
async def test_the_tools_send_only_reading_requests(live_bootstrap: str, orders: str) -> None:
    from odradek_client.admin.broker import Section

    async def requests() -> dict[str, int]:
        async with Admin(bootstrap_servers=live_bootstrap) as admin:
            found = await admin.describe_broker_status(Section.REQUESTS)
        return {each.name: each.requests for each in found.requests}

    before = await requests()
    async with served(live_bootstrap, "--show-values") as client:
        for tool, arguments in {
            "describe_cluster": {}, "list_topics": {}, "describe_topic": {"topic": orders},
            "list_groups": {}, "describe_group": {"group": f"{orders}-readers"},
            "list_transactions": {}, "describe_transaction": {"transactional_id": "x"},
            "explain": {"subject": "partition", "name": f"{orders}-0"},
            "sample_records": {"topic": orders, "filter": "$.id>3"}, "doctor": {},
            "plan_offset_reset": {"group": f"{orders}-readers", "to": "earliest"},
        }.items():  # fmt: skip
            await client.call_tool(tool, arguments)
    after = await requests()
    sent = {name for name, number in after.items() if number > before.get(name, 0)}
    assert sent <= {
        "ApiVersions", "DescribeBroker", "DescribeCluster", "DescribeConfigs", "DescribeGroups",
        "DescribeHistory", "DescribeLogDirs", "DescribeTopicPartitions", "DescribeTransactions",
        "ConsumerGroupDescribe", "Fetch", "FindCoordinator", "ListGroups", "ListOffsets",
        "ListTransactions", "Metadata", "OffsetFetch",
    }  # fmt: skip
    assert {"Fetch", "OffsetFetch", "ListOffsets"} <= sent


async def test_no_filter_reveals_a_hidden_value(live_bootstrap: str, unique_topic: str) -> None:
    with sync.Producer(bootstrap_servers=live_bootstrap) as producer:
        for value in (b'{"id": 1, "Pin": "hush"}', b"pin is hush"):
            producer.send(unique_topic, value, b"hush", headers=[("PIN", b"hush")]).result()
    async with served(live_bootstrap, "--show-values", "--hide-field", "pin") as client:
        sample = await ask(client, "sample_records", topic=unique_topic)
        assert len(sample["records"]) == 2 and "hush" not in json.dumps(sample)
        for probe in ("key=hush", "text~hush", "value~hush", "header.PIN=hush", "$.Pin=hush"):
            found = await ask(client, "sample_records", topic=unique_topic, filter=probe)
            assert found["records"] == [], probe
        found = await ask(client, "sample_records", topic=unique_topic, filter="$.id=1")
        assert len(found["records"]) == 1


def test_answers_are_json_for_every_parser() -> None:
    shown = answer({"a": float("inf"), "b": [float("-inf"), float("nan")]})["data"]
    assert shown == {"a": "Infinity", "b": ["-Infinity", "NaN"]}


def test_long_values_are_replaced_by_their_length() -> None:
    assert (
        shortened("abc", 5) == "abc" and shortened("abcd", 5) == "<left out: 6 characters of JSON>"
    )


def test_an_answer_that_is_too_long_is_refused() -> None:
    with pytest.raises(ToolRefused, match="ask for less"):
        answer(["x" * 300_000])


def test_the_error_without_the_package_mcp_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    odradek = Commands("127.0.0.1:1")
    odradek.run("mcp", code=1)
    assert "pip install 'odradek[mcp]'" in odradek.stderr
