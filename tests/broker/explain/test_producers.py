"""The history and the states of producer ids, as requests of a client (`odradek explain producer`,
rules P)."""

from __future__ import annotations

import time
from typing import Any

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker, StartBroker
from handler_calls import finished
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas import describe_history as wire
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from raw_client import RawClient, batch_of, produce_request

E = ErrorCode


async def ask(client: RawClient, producer_id: int) -> Any:
    request = wire.DescribeHistoryRequest(
        subject_type=wire.PRODUCER_ID, subject=str(producer_id), limit=-1
    )
    return await client.call(request)


async def new_id(client: RawClient) -> int:
    answer = await client.call(InitProducerIdRequest(transactional_id=None))
    return int(answer.producer_id)


async def produce(
    client: RawClient, who: int, epoch: int, sequence: int, records: int = 1, *, old: bool = False
) -> int:
    """Produce to t-0; returns the error. The producer of an old batch expires at the next check."""
    batch = batch_of(
        *[b"x"] * records,
        timestamp_ms=1_700_000_000_000 if old else time.time_ns() // 1_000_000,
        producer_id=who,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    response = await client.call(produce_request("t", batch), 11)
    return int(response.responses[0].partition_responses[0].error_code)


async def test_p13_a_refused_batch_is_shown_with_expected_and_received_sequence(
    client: RawClient,
) -> None:
    await client.create_topic("t")
    who = await new_id(client)
    assert await produce(client, who, 0, 0, 3) == E.NONE
    assert await produce(client, who, 0, 3, 2) == E.NONE
    assert await produce(client, who, 0, 9, 2) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await produce(client, who, 0, 9, 2) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await produce(client, who, 0, 3, 2) == E.NONE  # a retry (P-10)
    answer = await ask(client, who)
    given, first, refused, duplicate = answer.events
    assert given.text == "given out to client raw at 127.0.0.1: no transactional id, epoch 0"
    assert first.text == (
        "t-0: the first batch of this producer id, with epoch 0, sequences 0 to 2, at offset 0"
    )
    # Later accepted batches are not recorded; the two refusals are one event.
    assert refused.text == (
        "t-0: a batch with epoch 0, sequences 9 to 10, was refused with"
        f" OUT_OF_ORDER_SEQUENCE_NUMBER: producer id {who} epoch 0 came with sequence 9, expected 5"
        " (the epoch is the same)"
    )
    assert refused.times == 2 and refused.last_time_ms >= refused.time_ms
    assert duplicate.text == (
        "t-0: a batch with epoch 0, sequences 3 to 4, came again; it is at offsets 3 to 4 already,"
        " and was answered with these"
    )
    (now,) = answer.states
    assert now.text.startswith(
        "t-0: epoch 0, last batch: sequence 4 at offset 4, the next sequence is 5; last written"
    )


async def test_p12_new_and_fenced_epochs_of_a_producer_are_shown(client: RawClient) -> None:
    await client.create_topic("t")
    who = await new_id(client)
    for epoch in (0, 1):
        assert await produce(client, who, epoch, 0) == E.NONE
    assert await produce(client, who, 0, 1) == E.INVALID_PRODUCER_EPOCH
    texts = [event.text for event in (await ask(client, who)).events]
    assert texts[2] == "t-0: epoch 0 -> 1 by a batch with sequence 0, at offset 1"
    assert texts[3].endswith("expected at least 1: a newer producer has taken its place")


async def test_accepted_batches_leave_no_event(broker: RunningBroker, client: RawClient) -> None:
    await client.create_topic("t")
    who = await new_id(client)
    await produce(client, who, 0, 0)
    before = len(broker.node.producer_history)
    for sequence in range(1, 50):
        assert await produce(client, who, 0, sequence) == E.NONE
    assert len(broker.node.producer_history) == before


async def test_p24_the_expiry_of_a_producer_id_is_in_the_history(start_broker: StartBroker) -> None:
    broker = await start_broker(producer_id_expiration_ms="1000")
    client = await broker.client()
    await client.create_topic("t")
    who = await new_id(client)
    await produce(client, who, 0, 0, old=True)
    finished(broker.node.logs.remove_expired_producers(broker.node.clock.wall_ms()))
    answer = await ask(client, who)
    assert answer.events[-1].text == (
        "t-0: removed, because it has written nothing for 1.0 s (producer.id.expiration.ms)"
    )
    assert [state.text for state in answer.states] == [
        "no partition has its state: it has written nothing here, or its state has expired"
    ]


async def test_p24_the_expiration_of_producer_ids_may_be_changed_at_run_time(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(producer_id_expiration_check_interval_ms="1")
    client = await broker.client()
    await client.create_topic("t")
    who = await new_id(client)
    await produce(client, who, 0, 0, old=True)
    log = broker.node.logs.get("t", 0)
    assert log is not None and log.producers.expiration_ms == 86_400_000
    await client.set_for_brokers(producer_id_expiration_ms="60000")
    broker.node.maintain()
    assert log.producers.expiration_ms == 60_000
    await broker.stop()
    again = await start_broker()
    log = again.node.logs.get("t", 0)
    log.load(0)
    assert log.producers.expiration_ms == 60_000, (
        "not that of its file, by which it would forget more"
    )


async def test_p28_the_state_of_a_producer_is_shown_after_a_restart(
    start_broker: StartBroker,
) -> None:
    first = await start_broker()
    client = await first.client()
    await client.create_topic("t")
    who = await new_id(client)
    now_ms = first.node.clock.wall_ms()
    batch = batch_of(b"x", timestamp_ms=now_ms, producer_id=who, producer_epoch=0, base_sequence=0)
    await client.call(produce_request("t", batch), 11)
    await first.stop()
    second = await start_broker()
    client = await second.client()
    answer = await ask(client, who)
    assert answer.error_code == E.NONE and answer.events == []
    (now,) = answer.states
    assert now.text.startswith("t-0: epoch 0, last batch: sequence 0 at offset 0, the next")
    assert now.text.endswith("(rebuilt at the start from its snapshot and the log)")
    assert await produce(client, who, 0, 1) == E.NONE
    assert "rebuilt" not in (await ask(client, who)).states[0].text


async def test_a18_only_readable_topics_are_in_the_history(
    broker: RunningBroker, client: RawClient
) -> None:
    await client.create_topic("t")
    who = await new_id(client)
    await produce(client, who, 0, 0)
    read = Rule(Operation.READ, ResourceType.TOPIC, "t")
    broker.node.authorizer = RuleList(read)
    answer = await ask(client, who)
    assert len(answer.events) == 1 and len(answer.states) == 1
    # Only users with DESCRIBE on the cluster see which client got the id.
    broker.node.authorizer = RuleList(Rule(Operation.DESCRIBE, ResourceType.CLUSTER))
    answer = await ask(client, who)
    assert [event.name for event in answer.events] == ["producer_given"]
    assert "t-0" not in repr(answer)
    broker.node.authorizer = RuleList()
    assert (await ask(client, who)).error_code == E.UNKNOWN_PRODUCER_ID


async def test_the_transactional_id_of_a_producer_id_is_shown(client: RawClient) -> None:
    # creates the topic of the coordinator
    await client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["payments"]))
    request = InitProducerIdRequest(transactional_id="payments", transaction_timeout_ms=60_000)
    answer = await client.call(request)
    assert answer.error_code == E.NONE
    told = await ask(client, answer.producer_id)
    assert told.events[-1].text == (
        "InitProducerId from client raw at 127.0.0.1 for transactional id payments: epoch 0"
    )
    assert told.states[0].text == (
        f"transactional id payments has it: Empty, producer id {answer.producer_id}, epoch 0"
    )


async def test_an_unknown_producer_id_is_refused_and_describe_history_is_advertised(
    client: RawClient,
) -> None:
    answer = await ask(client, 10**15)
    assert answer.error_code == E.UNKNOWN_PRODUCER_ID
    assert "nothing is known of producer id" in answer.error_message
    versions = await client.call(
        ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    )
    row = {each.api_key: (each.min_version, each.max_version) for each in versions.api_keys}
    assert row[ApiKey.DESCRIBE_HISTORY] == (0, 0)
