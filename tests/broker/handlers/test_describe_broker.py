"""DescribeBroker and the history of connections, asked by our Admin."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker, StartBroker
from interleaved import InterleavedBroker
from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_broker.explain.problems import EACH_MAX
from odradek_broker.explain.sentences import EventKind
from odradek_broker.handlers.describe_broker import LISTED_MAX
from odradek_broker.security.authorizer import (
    CLUSTER,
    Operation,
    ResourceType,
    topic,
    transactional_id,
)
from odradek_client.admin import Admin
from odradek_client.admin.broker import Section
from odradek_client.admin.history import Subject
from odradek_client.errors import ClusterAuthorizationFailed, NothingKnown
from odradek_client.producer.producer import Producer
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_broker import DescribeBrokerRequest

CLUSTER_RULE = Rule(Operation.DESCRIBE, ResourceType.CLUSTER)


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    return await start_broker()


@pytest.fixture
async def admin(broker: RunningBroker) -> AsyncIterator[Admin]:
    async with Admin(
        bootstrap_servers=f"{broker.host}:{broker.port}", client_id="the-admin"
    ) as admin:
        yield admin


async def test_a22_only_the_requested_sections_are_filled(admin: Admin) -> None:
    nothing = await admin.describe_broker_status()
    assert (nothing.node_id, nothing.console_url) == (1, None)
    assert nothing.started_ms <= nothing.now_ms
    assert not any(
        (nothing.counters, nothing.requests, nothing.connections, nothing.problems, nothing.events)
    )
    assert nothing.samples == []
    everything = await admin.describe_broker_status(*Section)
    assert everything.counters["connections"] >= 1
    assert everything.counters["disk_usable_bytes"] > 0
    assert everything.connections_total == len(everything.connections) >= 1
    assert everything.problems == []
    by_api = {each.name: each for each in everything.requests}
    mine = by_api["DescribeBroker"]
    assert mine.requests == sum(mine.counts) == 1
    assert len(mine.counts) == len(everything.bounds_us) + 1


async def test_a22_error_codes_are_counted_apart_from_steps_of_the_protocol(
    admin: Admin, broker: RunningBroker
) -> None:
    broker.node.metrics.errors = {
        ("Heartbeat", ErrorCode.REBALANCE_IN_PROGRESS): 7,
        ("Heartbeat", ErrorCode.GROUP_AUTHORIZATION_FAILED): 2,
    }
    broker.node.metrics.times["Heartbeat"].observe(1)
    found = await admin.describe_broker_status(Section.REQUESTS, Section.COUNTERS)
    assert found.counters["request_errors_total"] == 2
    (heartbeat,) = (each for each in found.requests if each.name == "Heartbeat")
    assert heartbeat.errors == 2
    assert heartbeat.codes == {"REBALANCE_IN_PROGRESS": 7, "GROUP_AUTHORIZATION_FAILED": 2}


async def test_a22_samples_of_the_last_quarter_of_an_hour_are_kept(
    admin: Admin, broker: RunningBroker
) -> None:
    metrics = broker.node.metrics
    metrics.samples.clear()
    for second in range(2_000):
        metrics.take_sample(10**15 + 1_000 * second, 1_000 * second)
    found = await admin.describe_broker_status(Section.SAMPLES)
    times_ms = [time_ms for time_ms, _ in found.samples]
    assert times_ms == list(range(1_095_000, 2_000_000, 5_000))
    _, last = found.samples[-1]
    now = (await admin.describe_broker_status(Section.COUNTERS)).counters
    assert last.keys() <= now.keys()
    assert 0 < last["requests_total"] <= now["requests_total"]


async def test_a22_the_address_of_the_console_is_described(
    admin: Admin, broker: RunningBroker
) -> None:
    broker.node.console_url = "http://127.0.0.1:8080/"
    assert (await admin.describe_broker_status()).console_url == "http://127.0.0.1:8080/"


async def test_a22_an_unknown_section_is_refused(broker: RunningBroker) -> None:
    client = await broker.client()
    answer = await client.call(DescribeBrokerRequest(sections=[9]))
    assert answer.error_code == 42
    assert answer.error_message == "there is no section 9"


async def test_a22_connections_are_filtered_and_answered_in_pages(
    admin: Admin, broker: RunningBroker
) -> None:
    address = f"{broker.host}:{broker.port}"
    async with (
        Admin(bootstrap_servers=address, client_id="alpha-1"),
        Admin(bootstrap_servers=address, client_id="alpha-2"),
    ):
        found = await admin.describe_broker_status(Section.CONNECTIONS, filter="alpha-")
        ids = {each.client_id for each in found.connections}
        assert ids == {"alpha-1", "alpha-2"}
        assert {each.software.split()[0] for each in found.connections} == {"odradek"}
        total = found.connections_total
        page = await admin.describe_broker_status(
            Section.CONNECTIONS, filter="alpha-", offset=1, limit=1
        )
        assert page.connections_total == total
        assert page.connections == [found.connections[1]]
        none = await admin.describe_broker_status(Section.CONNECTIONS, offset=-5, limit=-1)
        assert none.connections == []
    assert broker.node.connections.peers


async def test_a22_a_page_has_at_most_a_thousand_connections(
    admin: Admin, broker: RunningBroker
) -> None:
    peers = broker.node.connections.peers
    (peer, *_) = peers.values()
    peers.update({1_000_000 + number: peer for number in range(2 * LISTED_MAX)})
    found = await admin.describe_broker_status(Section.CONNECTIONS, limit=2**31 - 1)
    assert len(found.connections) == LISTED_MAX
    assert found.connections_total > 2 * LISTED_MAX
    for number in range(2 * LISTED_MAX):
        del peers[1_000_000 + number]


async def test_a22_events_of_all_subjects_are_ordered_by_number(
    admin: Admin, broker: RunningBroker
) -> None:
    before = (await admin.describe_broker_status(Section.EVENTS)).next_after
    async with Producer(
        bootstrap_servers=f"{broker.host}:{broker.port}",
        client_id="the-producer",
        transactional_id="payments",
    ) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("orders", b"1")
        found = await admin.describe_broker_status(Section.EVENTS, after=before)
    kinds = {each.subject_type for each in found.events}
    assert kinds >= {Subject.TRANSACTIONAL_ID, Subject.PRODUCER_ID, Subject.CLIENT}
    numbers = [each.number for each in found.events]
    assert numbers == sorted(numbers)
    assert numbers[0] > before
    assert found.next_after == numbers[-1]
    later = await admin.describe_broker_status(Section.EVENTS, after=found.next_after)
    assert all(each.number > numbers[-1] for each in later.events)
    newest = await admin.describe_broker_status(Section.EVENTS, limit=2)
    assert len(newest.events) == 2
    assert newest.events[-1].number == newest.next_after


async def test_a22_describe_broker_and_each_event_need_their_rights(
    admin: Admin, broker: RunningBroker
) -> None:
    history = broker.node.transaction_history
    history.record("mine", EventKind.TRANSACTION_NOT_RECORDED, request="EndTxn")
    history.record("yours", EventKind.TRANSACTION_NOT_RECORDED, request="EndTxn")
    broker.node.authorizer = RuleList()
    with pytest.raises(ClusterAuthorizationFailed):
        await admin.describe_broker_status(Section.COUNTERS)
    broker.node.authorizer = RuleList(
        CLUSTER_RULE, Rule(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "mine")
    )
    found = await admin.describe_broker_status(Section.EVENTS)
    assert {
        each.subject for each in found.events if each.subject_type is Subject.TRANSACTIONAL_ID
    } == {"mine"}


async def test_a22_rights_to_producer_events_are_checked_once_per_resource(
    admin: Admin, broker: RunningBroker
) -> None:
    history = broker.node.producer_history
    before = (await admin.describe_broker_status(Section.EVENTS)).next_after
    for number in range(20):
        name = str(7_000 + number)
        history.record(name, EventKind.PRODUCER_GIVEN, client="c", epoch=0)
        history.record(name, EventKind.PRODUCER_EXPIRED, partitions=[("orders", number)])
        history.record(name, EventKind.PRODUCER_OF_TRANSACTION, transactional_id="payments")
    rules = RuleList(
        CLUSTER_RULE,
        Rule(Operation.READ, ResourceType.TOPIC, "orders"),
        Rule(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    )
    broker.node.authorizer = rules
    found = await admin.describe_broker_status(Section.EVENTS, after=before)
    # One of these checks is for the right to use DescribeBroker itself.
    assert rules.asked.count((Operation.DESCRIBE, CLUSTER)) <= 2
    assert rules.asked.count((Operation.READ, topic("orders"))) == 1
    assert rules.asked.count((Operation.DESCRIBE, transactional_id("payments"))) <= 2
    seen = [each for each in found.events if each.subject_type is Subject.PRODUCER_ID]
    assert len(seen) >= 40


async def test_a22_a_transaction_that_is_open_for_long_is_a_problem(
    admin: Admin, broker: RunningBroker
) -> None:
    async with Producer(
        bootstrap_servers=f"{broker.host}:{broker.port}", transactional_id="payments"
    ) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("orders", b"1")
        await producer.flush()
        assert (await admin.describe_broker_status(Section.PROBLEMS)).problems == []
        transaction = broker.node.transactions.transaction("payments")
        assert transaction.state is TransactionState.ONGOING
        object.__setattr__(transaction, "start_ms", transaction.start_ms - 40_000)
        (problem,) = (await admin.describe_broker_status(Section.PROBLEMS)).problems
        assert problem.name == "transaction_open"
        assert (problem.subject_type, problem.subject) == (Subject.TRANSACTIONAL_ID, "payments")
        assert "'payments' has been open for 40" in problem.text
        object.__setattr__(transaction, "start_ms", transaction.start_ms + 40_000)
        await producer.abort_transaction()


async def test_a22_many_problems_of_a_kind_are_summed_up(
    admin: Admin, broker: RunningBroker
) -> None:
    uncleanable = broker.node.cleaner.statistics.uncleanable
    uncleanable.update({("orders", number): "damaged" for number in range(EACH_MAX + 7)})
    found = (await admin.describe_broker_status(Section.PROBLEMS)).problems
    uncleanable.clear()
    assert len(found) == EACH_MAX + 1
    assert found[0].subject == "orders-0"
    assert found[-1].text == "7 more partitions are not compacted"


async def test_a23_the_history_of_a_client_has_its_connects_and_disconnects(
    admin: Admin, broker: RunningBroker
) -> None:
    with pytest.raises(NothingKnown, match="no connection of client id 'worker'"):
        await admin.describe_history(Subject.CLIENT, "worker")
    async with Admin(bootstrap_servers=f"{broker.host}:{broker.port}", client_id="worker"):
        (here,) = await admin.describe_history(Subject.CLIENT, "worker")
        assert {event.name for event in here.events} == {"client_connected"}
        assert "the client is odradek" in here.events[0].text
        assert here.states[0].name == "now_connected"
    (gone,) = await admin.describe_history(Subject.CLIENT, "worker")
    assert gone.events[-1].name == "client_disconnected"
    assert gone.events[-1].text.endswith("requests: the client closed it")
    assert gone.states[0].text == "the client has no open connection"
    broker.node.authorizer = RuleList()
    with pytest.raises(ClusterAuthorizationFailed):
        await admin.describe_history(Subject.CLIENT, "worker")


async def test_a23_the_history_has_the_reason_of_a_close_by_the_broker(
    admin: Admin, broker: RunningBroker
) -> None:
    client = await broker.client()
    await client.call(DescribeBrokerRequest(sections=[]))
    (session,) = [
        each
        for each in broker.server.sessions
        if each.peer.requests == 1 and each.peer.api_name == "DescribeBroker"
    ]
    session.close_if_idle(-1)
    assert await client.closed()
    (found,) = await admin.describe_history(Subject.CLIENT, session.peer.client_id or "")
    assert found.events[-1].text.endswith(
        "requests: nothing was sent for long (connections.max.idle.ms)"
    )


def test_a22_n57_events_that_are_recorded_during_the_answer_do_not_end_it() -> None:
    """The connection was closed, because the answer walked over a history that grew."""
    broker = InterleavedBroker(log_durability="page-cache")
    node = broker.node
    histories = [
        node.group_history,
        node.producer_history,
        node.transaction_history,
        node.connections.history,
    ]

    def record(number: int) -> None:
        for history in histories:
            history.record(f"s{number}", EventKind.MEMBER_LEFT)

    for number in range(500):
        record(number)
    asked = broker.begin(
        DescribeBrokerRequest(sections=[each.value for each in Section], limit=1_000)
    )
    turns = 0
    while not asked.done:
        turns += 1
        record(-turns)
        broker.soon.turn()
    assert turns > 10
    numbers = [event.number for event in asked.answer.events]
    assert len(numbers) == 1_000 and numbers == sorted(set(numbers))
