"""Kafka's own tools: the same commands with Apache Kafka and with our broker must print the same
lines.

Parts that always differ between brokers are not compared: ids, times and error messages.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

import kafka_cluster
from broker_process import BrokerProcess
from foreign_programs import run
from kafka_cluster import KafkaCluster
from odradek_protocol.common_structs import StreamsSubtopology
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek_protocol.schemas.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsTopology,
)
from raw_client import PATIENCE_S, RawClient

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker]

TOOLS = Path(__file__).parent / "java" / "Tools.java"
SHARED_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
#: Kafka's shipped settings that differ from our defaults.
OUR_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.durability": "page-cache",
    "log.segment.bytes": "1073741824",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The addresses of an Apache Kafka and of our broker, as "kafka" and "ours"."""
    settings = [f"{key}={value}" for key, value in {**SHARED_SETTINGS, **OUR_SETTINGS}.items()]
    with KafkaCluster(tmp_path_factory.mktemp("kafka"), 1, SHARED_SETTINGS) as cluster:
        broker = BrokerProcess(tmp_path_factory.mktemp("ours"), settings)
        broker.start()
        yield {"kafka": cluster.bootstrap, "ours": broker.address}
        broker.stop()


#: Patterns of output that always differs between brokers, and their replacements. For example, our
#: quorum has no listener for controllers.
OWN = (
    (r"TopicId: \S{22}", "TopicId: ID"),
    (r"(ClusterId:\s+)\S{22}", r"\1ID"),
    (r"((LeaderEpoch|HighWatermark):\s+)\d+", r"\1NUMBER"),
    (r"(A{22}\t)\d+\s+\t0\s+\t\d+\s+\t\d+\s+\t", r"\1END, 0, TIME, TIME "),
    (r', "endpoints": \["CONTROLLER://[^"]*"\]', ""),
    (r'"log_dirs":\["/[^"]*"\]', '"log_dirs":["DIRECTORY"]'),
    (r"(shares-a\s+Error: ).*", r"\1TEXT"),
    (r"(Valid states are: ).*", r"\1STATES"),
)


def comparable(printed: str, address: str) -> list[str]:
    """The printed lines, with ids, addresses, times and paths replaced, and with a topic's settings
    sorted by name."""
    text = printed.replace(address, "HOST:PORT").replace(address.rpartition(":")[2], "PORT")
    for pattern, stands in OWN:
        text = re.sub(pattern, stands, text)
    text = re.sub(
        r"Configs: (\S+)", lambda found: "Configs: " + ",".join(sorted(found[1].split(","))), text
    )
    return text.splitlines()


def test_kafkas_command_line_tools_print_the_same_at_both_brokers(
    brokers: Mapping[str, str], tmp_path: Path
) -> None:
    """These are kafka-topics, kafka-leader-election, kafka-reassign-partitions,
    kafka-client-metrics, kafka-configs, kafka-cluster, kafka-metadata-quorum and kafka-features."""
    printed = {
        name: comparable(
            run(
                *(kafka_cluster.java(), "-cp", kafka_cluster.class_path(), str(TOOLS)),
                *(address, str(tmp_path)),
                folder=tmp_path,
            ),
            address,
        )
        for name, address in brokers.items()
    }
    assert printed["ours"] == printed["kafka"]
    assert {
        "Valid replica already elected for partitions tools-a-0",
        "Successfully started partition reassignments for tools-a-0,tools-a-1",
        "No partition reassignments found.",
        "HighWatermark:          NUMBER",
        "Completed updating config for broker-logger 1.",
        "share.version was upgraded to 1.",
    } <= set(printed["ours"])


async def _share_groups(address: str) -> None:
    """Make two share groups for a topic of two partitions: `shares-m` keeps its member, and the
    member of `shares-e` leaves."""
    host, _, port = address.rpartition(":")
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    try:
        await client.create_topic("shares-a", 2)
        await client.call(FindCoordinatorRequest(coordinator_keys=["shares-m"]))
        for group in ("shares-m", "shares-e"):
            epoch, assigned = 0, False
            async with asyncio.timeout(PATIENCE_S):
                while not assigned:
                    answer = await client.call(
                        ShareGroupHeartbeatRequest(
                            group_id=group,
                            member_id="m",
                            member_epoch=epoch,
                            subscribed_topic_names=["shares-a"],
                        )
                    )
                    if not answer.error_code:
                        epoch = answer.member_epoch
                        assigned = bool(answer.assignment.topic_partitions)
                    await asyncio.sleep(0.1)
        await client.call(
            ShareGroupHeartbeatRequest(group_id="shares-e", member_id="m", member_epoch=-1)
        )
    finally:
        client.close()


def test_kafkas_share_groups_tool_prints_the_same_at_both_brokers(
    brokers: Mapping[str, str], tmp_path: Path
) -> None:
    """The commands are list, describe, reset offsets, delete offsets, and delete."""
    printed = {}
    for name, address in brokers.items():
        asyncio.run(_share_groups(address))
        ran = run(
            *(kafka_cluster.java(), "-cp", kafka_cluster.class_path(), str(TOOLS)),
            *(address, str(tmp_path), "shares"),
            folder=tmp_path,
        )
        # The tool prints groups in the order of a hash table.
        printed[name] = sorted(comparable(ran, address))
    assert printed["ours"] == printed["kafka"]
    assert "These share groups were deleted successfully: 'shares-e'" in printed["ours"]


async def _with_streams_groups(address: str, tool: Callable[[], str]) -> str:
    """Run a tool while there are two streams groups for a topic of two partitions.

    `streams-m` has a member that sends heartbeats; the member of `streams-e` has left.
    """
    host, _, port = address.rpartition(":")
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    try:
        await client.create_topic("streams-a", 2)
        await client.call(FindCoordinatorRequest(coordinator_keys=["streams-m"]))
        epochs: dict[str, int] = {}
        for group in ("streams-m", "streams-e"):
            made = StreamsTopology(
                subtopologies=[StreamsSubtopology(subtopology_id="0", source_topics=["streams-a"])]
            )
            first = StreamsGroupHeartbeatRequest(
                group_id=group,
                member_id="m",
                rebalance_timeout_ms=60_000,
                process_id="p",
                topology=made,
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
            )
            epoch, assigned = 0, False
            async with asyncio.timeout(PATIENCE_S):
                while not assigned:
                    later = StreamsGroupHeartbeatRequest(
                        group_id=group, member_id="m", member_epoch=epoch
                    )
                    answer = await client.call(later if epoch else first)
                    if not answer.error_code:
                        epoch, assigned = answer.member_epoch, bool(answer.active_tasks)
                    await asyncio.sleep(0.1)
            epochs[group] = epoch
        await client.call(
            StreamsGroupHeartbeatRequest(group_id="streams-e", member_id="m", member_epoch=-1)
        )
        # A broker that learns of the topic after the first heartbeat raises the epoch again.
        alive = StreamsGroupHeartbeatRequest(
            group_id="streams-m", member_id="m", member_epoch=epochs["streams-m"]
        )
        running = asyncio.ensure_future(asyncio.to_thread(tool))
        while not running.done():
            assert not (await client.call(alive)).error_code
            await asyncio.wait([running], timeout=5)
        return running.result()
    finally:
        client.close()


def test_kafkas_streams_groups_tool_prints_the_same_at_both_brokers(
    brokers: Mapping[str, str], tmp_path: Path
) -> None:
    """The commands are list, describe, reset offsets, delete offsets, and delete."""
    printed = {}
    for name, address in brokers.items():
        command = [kafka_cluster.java(), "-cp", kafka_cluster.streams_class_path(), str(TOOLS)]
        tool = partial(run, *command, address, str(tmp_path), "streams", folder=tmp_path)
        ran = asyncio.run(_with_streams_groups(address, tool))
        # The tool prints groups in the order of a hash table.
        printed[name] = sorted(comparable(ran, address))
    assert printed["ours"] == printed["kafka"]
    assert "Deletion of requested streams groups ('streams-e') was successful." in printed["ours"]
