"""The transaction that blocks the last stable offset of a partition, in `odradek explain partition`
(T-45)."""

from __future__ import annotations

from typing import Any

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker, StartBroker
from logs import append, make_batch
from odradek_broker.explain.blocking_transaction import BlockedPartition, state_of_blocked
from odradek_broker.explain.sentences import sentence
from odradek_broker.security.authorizer import AllowEverything, Operation, ResourceType
from odradek_client.producer.producer import Producer
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.schemas import describe_history as wire
from raw_client import RawClient, produce_request
from waiting import until


async def last_stable_offset_of(client: RawClient) -> str:
    request = wire.DescribeHistoryRequest(subject_type=wire.PARTITION, subject="t-0", limit=-1)
    return str((await client.call(request)).states[0].text)


async def broker_with_topic(start_broker: StartBroker) -> tuple[RunningBroker, RawClient]:
    """A broker with the topic `t`, and a client that is connected to the broker."""
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    return broker, client


def producer(broker: RunningBroker, transactional_id: str, **settings: Any) -> Producer:
    return Producer(
        bootstrap_servers=f"127.0.0.1:{broker.port}", transactional_id=transactional_id, **settings
    )


async def test_t45_the_blocking_transaction_is_shown_with_its_age_and_the_command(
    start_broker: StartBroker,
) -> None:
    broker, client = await broker_with_topic(start_broker)
    log = broker.node.logs.get("t", 0)
    assert (
        await last_stable_offset_of(client)
        == "consumers with read_committed get everything, up to offset 0"
    )
    async with producer(broker, "pay ments") as first, producer(broker, "second") as second:
        for made in (first, second):
            await made.init_transactions()
            await made.begin_transaction()
            await made.send_and_wait("t", b"x", partition=0)
        (owner, _) = sorted(broker.node.transactions.transactions(), key=lambda it: it.producer_id)
        text = await last_stable_offset_of(client)
        start, _, rest = text.partition(" and has been open for ")
        assert start == (
            "consumers with read_committed stop at offset 0, 2 is the end: a transaction of"
            f" transactional id pay ments (producer id {owner.producer_id}, epoch {owner.epoch}) began there"
        )
        assert rest.partition("; ")[2] == (
            "it ends by itself after 1.0 min; 1 more are open after it; end it with"
            " `odradek txn abort 'pay ments' --execute`"
        )
        await first.commit_transaction()
        await until(lambda: log.last_stable_offset == 1)
        assert "transactional id second" in await last_stable_offset_of(client)
        await second.abort_transaction()
        await until(lambda: log.last_stable_offset == 4)
    assert (
        await last_stable_offset_of(client)
        == "consumers with read_committed get everything, up to offset 4"
    )


async def test_t44_a_hanging_transaction_is_shown_with_the_command_that_aborts_it(
    start_broker: StartBroker,
) -> None:
    broker, client = await broker_with_topic(start_broker)
    log = broker.node.logs.get("t", 0)
    append(log, make_batch(producer_id=7, transactional=True))
    plain = simple_batch([(b"k", b"behind")], 1_700_000_000_000)
    await client.call(produce_request("t", plain), 11)
    assert await last_stable_offset_of(client) == (
        "consumers with read_committed stop at offset 0, 2 is the end: a transaction (producer id 7,"
        " epoch 0) began there; no coordinator knows of it, so it never ends by itself (it hangs);"
        " end it with `odradek txn abort --topic t --partition 0 --start-offset 0 --execute`"
    )


async def test_a18_hidden_producers_and_transactional_ids_are_left_out(
    start_broker: StartBroker,
) -> None:
    broker, client = await broker_with_topic(start_broker)
    async with producer(broker, "secret") as made:
        await made.init_transactions()
        await made.begin_transaction()
        await made.send_and_wait("t", b"x", partition=0)
        node = broker.node
        node.authorizer = RuleList(Rule(Operation.DESCRIBE, ResourceType.TOPIC, "t"))
        text = await last_stable_offset_of(client)
        assert "producer id" not in text and "secret" not in text
        assert text.endswith("only clients that may READ the topic see its producer")
        node.authorizer = RuleList(
            Rule(Operation.DESCRIBE, ResourceType.TOPIC, "t"),
            Rule(Operation.READ, ResourceType.TOPIC, "t"),
        )
        text = await last_stable_offset_of(client)
        assert "(producer id " in text and "secret" not in text
        node.authorizer = AllowEverything()
        assert "transactional id secret" in await last_stable_offset_of(client)
        await made.abort_transaction()


def told(blocked: BlockedPartition, owners: Any = ()) -> str:
    state = state_of_blocked(blocked, owners, may_read=True, may_describe=True, wall_ms=1)
    return sentence(state.kind, state.fields)


def test_t45_a_marker_that_is_not_durable_and_a_loading_coordinator_are_shown() -> None:
    assert told(BlockedPartition(("t", 0), 3, 9, None, None, 0)) == (
        "consumers with read_committed stop at offset 3, 9 is the end: a transaction began there; it"
        " has ended, and the marker of its end is not on disk yet"
    )
    assert told(BlockedPartition(("t", 0), 3, 9, 7, 0, 0), None).endswith(
        "(producer id 7, epoch 0) began there; its coordinator is not ready: run the command again"
    )
