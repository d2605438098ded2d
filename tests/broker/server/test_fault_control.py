"""Brokers with and without fault control: injected faults in place of handlers, over the
network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_in_loop import RunningBroker, StartBroker
from logs import make_batch
from odradek_broker.config.broker import parse_config
from odradek_broker.platform.machine import RealFile
from odradek_broker.server import http_messages
from odradek_broker.server.dispatch import HANDLERS
from odradek_broker.server.host import RealHost
from odradek_broker.server.server import Server
from odradek_broker.storage.validation import AT_ONCE_BYTES
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatRequest
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_testkit.fault_control import control
from odradek_testkit.fault_control.control import FaultControl
from odradek_testkit.fault_control.orders import BadOrder
from raw_client import PATIENCE_S, RawClient, batch_of, produce_request
from waiting import until


@pytest.fixture
async def tested(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    """A broker with fault control and an HTTP endpoint."""
    config, _ = parse_config(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "http.listen": "127.0.0.1:0",
            "log.dirs": str(tmp_path / "data"),
        }
    )
    faults = FaultControl()
    server = Server(config, RealHost(files_of=faults.files), faults)
    broker = RunningBroker(server, *await server.start())
    yield broker
    await broker.stop()


def order(broker: RunningBroker, fault: str, **fields: Any) -> dict[str, Any]:
    faults = broker.server.under_test
    assert isinstance(faults, FaultControl)
    return faults.order({"fault": fault, **fields})


async def ready(broker: RunningBroker) -> RawClient:
    client = await broker.client()
    await client.create_topic("t", 2)
    await client.create_topic("u")
    return client


def end_of(broker: RunningBroker, topic: str, index: int = 0) -> int:
    end: int = broker.node.partition(topic, index).log.log_end_offset
    return end


async def test_a_broker_not_under_test_has_plain_handlers_and_files(
    start_broker: StartBroker,
) -> None:
    """Without fault control, the broker uses the plain table of handlers and the real files."""
    broker = await start_broker()
    client = await ready(broker)
    assert (await client.call(produce_request("t", batch_of(b"1")), 9)).responses
    server: Any = broker.server
    assert server.under_test is None
    assert server._dispatcher._handlers is HANDLERS
    assert server._host.files._file_type is RealFile


async def test_the_fail_fault_answers_an_error_and_handles_nothing(tested: RunningBroker) -> None:
    client = await ready(tested)
    order(tested, "fail", api="Produce", code="NOT_ENOUGH_REPLICAS", topic="t", partition=1)
    data = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=i, records=batch_of(b"1")) for i in indexes],
        )
        for name, indexes in (("t", (0, 1)), ("u", (0,)))
    ]
    answer = await client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data), 9)
    codes = {
        (topic.name, part.index): part.error_code
        for topic in answer.responses
        for part in topic.partition_responses
    }
    refused = ErrorCode.NOT_ENOUGH_REPLICAS
    assert codes == {("t", 0): 0, ("t", 1): refused, ("u", 0): 0}
    assert (end_of(tested, "t"), end_of(tested, "t", 1), end_of(tested, "u")) == (1, 0, 1)
    answer = await client.call(produce_request("t", batch_of(b"1"), partition=1), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def test_the_cut_fault_closes_the_connection_before_or_after_handling(
    tested: RunningBroker,
) -> None:
    client = await ready(tested)
    for handled in (False, True):
        order(tested, "cut", api="Produce", handled=handled)
        other = await tested.client()
        other.send(produce_request("t", batch_of(b"1")), 9)
        assert await other.closed()
        assert end_of(tested, "t") == int(handled)
    order(tested, "cut", api="Metadata", topic="u")
    await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    client.send(MetadataRequest(topics=[MetadataRequestTopic(name="u")]), 9)
    assert await client.closed()


async def test_the_drop_reply_fault_handles_a_request_and_sends_no_answer(
    tested: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "DROPPED_MAX", 1)
    client = await ready(tested)
    order(tested, "drop_reply", api="Produce", times=2)
    client.send(produce_request("t", batch_of(b"1")), 9)
    client.send(HeartbeatRequest(group_id="g"), 3)
    await until(lambda: end_of(tested, "t") == 1)
    faults: Any = tested.server.under_test
    await until(lambda: faults._dropped)
    over_the_limit = await tested.client()
    over_the_limit.send(produce_request("t", batch_of(b"2")), 9)
    assert await over_the_limit.closed()
    assert not client.reader._buffer  # type: ignore[attr-defined]
    faults.clear()
    assert await client.closed()
    assert faults.list() == []


async def test_a_closed_connection_discards_its_dropped_and_delayed_answers(
    tested: RunningBroker,
) -> None:
    await ready(tested)
    order(tested, "drop_reply", api="Produce")
    order(tested, "delay", api="Heartbeat", ms=600_000)
    faults: Any = tested.server.under_test
    delayed, dropped = await tested.client(), await tested.client()
    delayed.send(HeartbeatRequest(group_id="g"), 3)
    dropped.send(produce_request("t", batch_of(b"1")), 9)
    await until(lambda: faults._dropped)
    delayed.close()
    dropped.close()
    await until(lambda: not faults._dropped and len(tested.server.sessions) == 1)


async def test_the_delay_fault_answers_later_and_in_order(tested: RunningBroker) -> None:
    client = await ready(tested)
    order(tested, "delay", api="Heartbeat", ms=20)
    client.send(HeartbeatRequest(group_id="g"), 3)
    client.send(MetadataRequest(topics=[]), 9)
    assert (await client.receive()).error_code
    assert (await client.receive()).brokers


async def test_n03_no_batch_overtakes_a_large_one_whose_answer_is_delayed(
    tested: RunningBroker,
) -> None:
    client = await ready(tested)
    order(tested, "delay", api="Produce", ms=1, times=1)
    large = make_batch(2, value=bytes(AT_ONCE_BYTES), codec=Codec.ZSTD)
    for batch in (large, make_batch(1)):
        client.send(produce_request("t", bytearray(batch)), 9)
    answers = [(await client.receive()).responses[0].partition_responses[0] for _ in range(2)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 2)]


async def test_the_fail_fault_answers_metadata_of_a_topic_with_an_error(
    tested: RunningBroker,
) -> None:
    client = await ready(tested)
    order(tested, "fail", api="Metadata", code="LEADER_NOT_AVAILABLE", topic="u")
    answer = await client.call(MetadataRequest(topics=None), 9)
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "t": 0,
        "u": ErrorCode.LEADER_NOT_AVAILABLE,
    }


async def test_faults_for_unknown_groups_and_transactions_are_refused(
    tested: RunningBroker,
) -> None:
    for fault, fields in (
        ("expire_session", {"group": "g"}),
        ("expire_session", {"group": "g", "member": "m"}),
        ("abort_transaction", {"transactional_id": "x"}),
        ("expire_lock", {"group": "g"}),
        ("expire_lock", {"group": "g", "topic": "t", "partition": 0}),
    ):
        with pytest.raises(BadOrder):
            order(tested, fault, **fields)


# --- Over HTTP ------------------------------------------------------------------------------------


async def http(broker: RunningBroker, text: str, body: bytes = b"") -> tuple[int, bytes]:
    assert broker.server.http_address is not None
    reader, writer = await asyncio.open_connection(*broker.server.http_address)
    first, _, headers = text.partition("\n")
    text = f"{first}\nHost: localhost\n{headers}".strip() + "\n\n"
    writer.write(text.replace("\n", "\r\n").encode() + body)
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    writer.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), content


def post(body: bytes, content_type: str = "application/json") -> tuple[str, bytes]:
    head = "POST /faults HTTP/1.1"
    return f"{head}\nContent-Type: {content_type}\nContent-Length: {len(body)}", body


async def test_faults_are_ordered_listed_and_removed_over_http(tested: RunningBroker) -> None:
    status, body = await http(tested, *post(b'{"fault": "cut", "api": "Fetch", "times": 3}'))
    kept = {"fault": "cut", "api": "Fetch", "times": 3}
    assert (status, json.loads(body)) == (
        200,
        {**kept, "id": 1, "met": 0, "left": 3, "over": False},
    )
    status, body = await http(tested, "GET /faults HTTP/1.1")
    assert (status, [each["id"] for each in json.loads(body)["faults"]]) == (200, [1])
    assert (await http(tested, "DELETE /faults/1 HTTP/1.1"))[0] == 200
    assert (await http(tested, "DELETE /faults/1 HTTP/1.1"))[0] == 404
    assert (await http(tested, "DELETE /faults HTTP/1.1"))[0] == 200
    assert (await http(tested, "GET /healthz HTTP/1.1"))[0] == 200


async def test_invalid_fault_orders_over_http_are_refused(tested: RunningBroker) -> None:
    for body, status in ((b'{"fault": "burn"}', 400), (b"{", 400), (b"[" * 4000, 400)):
        found, text = await http(tested, *post(body))
        assert found == status
        assert json.loads(text)["error"]
    assert (await http(tested, *post(b"{}", "text/plain")))[0] == 415
    too_long = post(b" " * (http_messages.ORDER_BYTES_MAX + 1))
    assert (await http(tested, too_long[0]))[0] == 413
    for line in ("PUT /faults", "GET /faults/1", "GET /faults/x", "OPTIONS /faults"):
        assert (await http(tested, f"{line} HTTP/1.1"))[0] in (404, 405)


@pytest.mark.parametrize(
    ("peer", "status"),
    [
        ("127.0.0.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("192.168.1.9", 403),
        ("::ffff:10.0.0.1", 403),
        ("fe80::1%eth0", 403),
        ("", 403),
    ],
)
def test_fault_orders_are_accepted_from_the_brokers_machine_only(
    peer: str, status: int | None
) -> None:
    request = http_messages.parse_head(b"GET /faults HTTP/1.1\r\nHost: [::1]\r\n\r\n", peer)
    if status is None:
        assert http_messages.check_order(request) == 0
        return
    with pytest.raises(http_messages.HttpError) as refused:
        http_messages.check_order(request)
    assert refused.value.status == status


async def test_a_broker_not_under_test_has_no_http_paths_for_faults(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(http_listen="127.0.0.1:0")
    assert (await http(broker, "GET /faults HTTP/1.1"))[0] == 404
    assert (await http(broker, *post(b'{"fault": "cut", "api": "*"}')))[0] == 405
    assert (await http(broker, "GET /clusters HTTP/1.1"))[0] == 404
    assert (await http(broker, "POST /clusters HTTP/1.1\nContent-Length: 0"))[0] == 405
