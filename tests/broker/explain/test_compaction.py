"""The description of the compaction of a partition (`odradek explain partition`, L-25, L-28)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker, StartBroker
from logs import append, make_batch
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.schemas import describe_history as wire
from raw_client import RawClient, produce_request
from waiting import until

E = ErrorCode
NOW_MS = 1_700_000_000_000


async def ask(client: RawClient, partition: str) -> Any:
    return await client.call(
        wire.DescribeHistoryRequest(subject_type=wire.PARTITION, subject=partition, limit=-1)
    )


async def now(client: RawClient, partition: str = "t-0") -> str:
    _, state = (await ask(client, partition)).states
    return str(state.text)


async def fill(client: RawClient, batches: int = 60, topic: str = "t", **more: Any) -> None:
    for number in range(batches):
        batch = simple_batch([(b"k%d" % (number % 3), bytes(20))], NOW_MS, **more)
        answer = await client.call(produce_request(topic, batch), 11)
        assert answer.responses[0].partition_responses[0].error_code == E.NONE


async def clean(broker: RunningBroker) -> None:
    cleaner = broker.node.cleaner
    cleaner._next_look_ms = 0
    cleaner.tick()
    await until(lambda: not cleaner.busy)


async def test_l25_a_partition_shows_its_clean_offset_and_its_last_compaction(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(log_cleaner_backoff_ms="3600000")
    client = await broker.client()
    await client.create_topic("t", cleanup_policy="compact", segment_bytes="1000")
    assert (await now(client)) == (
        "clean up to offset 0 of 0; of 0 bytes in closed segments 0 are new (0.000); nothing is new"
    )
    await fill(client)
    text = await now(client)
    assert text.startswith("clean up to offset 0 of 60; of ") and text.endswith(
        "are new (1.000); it is cleaned next, for the cleaner looks every 1.0 h"
    )
    await clean(broker)
    answer = await ask(client, "t-0")
    (event,) = answer.events
    active = broker.node.logs.get("t", 0).segments[-1].base_offset
    assert event.name == "log_cleaned"
    assert event.text.startswith(f"compacted up to offset {active} in ")
    assert f": {active} records, " in event.text and " -> 3 records, " in event.text
    _, state = answer.states
    assert state.text.startswith(f"clean up to offset {active} of 60; ") and state.text.endswith(
        f"are new (0.000); the active segment, from offset {active}, is left out until it has 1,000"
        " bytes (segment.bytes) or is 7.0 d old (segment.ms)"
    )


async def test_l25_a_partition_shows_the_reason_why_it_is_not_compacted_yet(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(log_cleaner_backoff_ms="3600000")
    client = await broker.client()
    small: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": "1000"}
    await client.create_topic("t", min_cleanable_dirty_ratio="1.0", **small)
    await fill(client)
    assert (
        "(1.000); it is cleaned when that is more than 1.0 (min.cleanable.dirty.ratio); the active"
        in (await now(client))
    )
    await client.create_topic("young", min_compaction_lag_ms=str(2**62), **small)
    await fill(client, topic="young")
    assert (await now(client, "young-0")).endswith(
        "from offset 0 on there are records younger than 53375995583.7 d (min.compaction.lag.ms)"
    )
    await client.create_topic("held", **small)
    held = broker.node.logs.get("held", 0)
    append(held, make_batch(producer_id=7, transactional=True))
    await fill(client, topic="held")
    assert (await now(client, "held-0")).endswith(
        "; a transaction that is open since offset 0 keeps what follows it"
    )


async def test_a_partition_without_compaction_says_so(start_broker: StartBroker) -> None:
    broker = await start_broker(log_cleaner_enable="false")
    client = await broker.client()
    await client.create_topic("t", cleanup_policy="compact")
    await client.create_topic("plain")
    assert await now(client) == "nothing is compacted: log.cleaner.enable is false"
    assert await now(client, "plain-0") == "it is not compacted: cleanup.policy is delete"


async def test_l25_a_log_that_cannot_be_compacted_is_shown_with_its_error(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(log_cleaner_backoff_ms="3600000")
    client = await broker.client()
    await client.create_topic("t", cleanup_policy="compact", segment_bytes="1000")
    await fill(client)
    path = Path(broker.node.logs.get("t", 0).directory) / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)
    await clean(broker)
    answer = await ask(client, "t-0")
    (event,) = answer.events
    why = event.text.removeprefix("it is not compacted any more until the next start: ")
    assert event.name == "cleaning_stopped" and "checksum" in why
    assert await now(client) == event.text


async def test_a18_the_compaction_of_a_partition_needs_describe_on_the_topic(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t", cleanup_policy="compact")
    assert (await ask(client, "t-0")).error_code == E.NONE
    assert (await ask(client, "t-1")).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await ask(client, "t")).error_code == E.INVALID_REQUEST
    broker.node.authorizer = RuleList(Rule(Operation.DESCRIBE, ResourceType.TOPIC, "t"))
    assert (await ask(client, "t-0")).error_code == E.NONE
    broker.node.authorizer = RuleList(Rule(Operation.DESCRIBE, ResourceType.TOPIC, "other"))
    assert (await ask(client, "t-0")).error_code == E.TOPIC_AUTHORIZATION_FAILED
