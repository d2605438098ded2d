"""The share fetcher, compared with a model of the leaders: requests, answers, locks, lost
answers."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_client.errors import ConnectionLost, NotLeader, OdradekError, TopicAuthorizationFailed
from odradek_client.network.cluster import ClusterView
from odradek_client.share.acknowledgements import AcknowledgeType, TopicIdPartition
from odradek_client.share.errors import LockExpired, Reject, Release
from odradek_client.share.fetcher import (
    ACKNOWLEDGE_DELAY_MS,
    PlanKind,
    ShareFetcher,
    ShareFetchSettings,
    SharePlan,
)
from odradek_client.share.record import DeliveryState, ShareRecord
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek_protocol.schemas.share_fetch import ShareFetchRequest
from share_leader import ACKNOWLEDGED, ARCHIVED, AVAILABLE, Partition, ShareLeader

TOPIC_ID = bytes(range(16))
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def place(number: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC_ID, "t", number)


class World:
    """A fetcher, its cluster and its leaders, in virtual time; node `leads[n]` leads partition
    n."""

    def __init__(self, leads: list[int], **settings: Any) -> None:
        self.now_ms = 0.0
        self.leaders = {node: ShareLeader() for node in sorted(set(leads))}
        self.leads = leads
        self.cluster = ClusterView(300_000)
        self.learn()
        for number, node in enumerate(leads):
            self.leaders[node].partitions[(TOPIC_ID, number)] = Partition()
        self.fetcher = ShareFetcher("g", "m", ShareFetchSettings(**settings), self)
        self.fetcher.assign([place(number) for number in range(len(leads))], 0)
        self.ended: list[ShareRecord] = []
        self.refusals: list[OdradekError] = []
        self.fetcher.held.on_result = self.ended.append
        self.fetcher.held.on_renewals_refused = self.refusals.append

    def learn(self, epoch: int = 0) -> None:
        self.cluster.update(
            MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=n, host="h", port=1) for n in self.leaders],
                topics=[
                    MetadataResponseTopic(
                        name="t",
                        topic_id=TOPIC_ID,
                        partitions=[
                            MetadataResponsePartition(
                                partition_index=n, leader_id=leader, leader_epoch=epoch
                            )
                            for n, leader in enumerate(self.leads)
                        ],
                    )
                ],
            ),
            self.now_ms,
        )

    def partition(self, number: int = 0) -> Partition:
        return self.leaders[self.leads[number]].partitions[(TOPIC_ID, number)]

    # --- as the holder of records ---

    def answer(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        self.fetcher.acknowledge(record, kind, self.now_ms)

    def begin_handling(self, record: ShareRecord) -> None:
        self.fetcher.held.begin_handling(record, self.now_ms)

    def end_handling(self, record: ShareRecord) -> None:
        self.fetcher.held.end_handling(record)

    def note_decision(self, record: ShareRecord, decision: Reject | Release) -> None:
        pass

    def new_waiter(self) -> Any:
        raise AssertionError("nobody waits here")

    # --- traffic ---

    def plans(self) -> list[SharePlan]:
        self.fetcher.pass_time(self.now_ms)
        return self.fetcher.next_requests(self.cluster, self.now_ms)

    def ask(self, plan: SharePlan) -> Any:
        leader = self.leaders[plan.node_id]
        leader.now_ms = self.now_ms
        return leader.answer(plan.request)

    def go(self) -> list[SharePlan]:
        """Send the requests that are due, and process their answers; returns the requests."""
        plans = self.plans()
        for plan in plans:
            self.fetcher.on_response(plan, self.ask(plan), self.cluster, self.now_ms)
        return plans

    def poll(self, limit: int = 500) -> list[ShareRecord]:
        self.fetcher.wanted_records = limit
        self.go()
        self.fetcher.wanted_records = 0
        return self.fetcher.collect(limit, self.now_ms)

    def flush(self) -> list[SharePlan]:
        self.fetcher.flush()
        return self.go()


def filled(count: int = 4, **settings: Any) -> World:
    world = World([1], **settings)
    world.partition().append([b"%d" % n for n in range(count)])
    return world


# --- requests -------------------------------------------------------------------------------------


def test_k60_no_records_are_fetched_without_a_poll() -> None:
    world = filled()
    assert world.plans() == []


def test_records_come_with_their_delivery_count() -> None:
    records = filled().poll()
    assert [(r.offset, r.value, r.delivery_count) for r in records] == [
        (n, b"%d" % n, 1) for n in range(4)
    ]


def test_k60_a_leader_has_one_request_at_a_time() -> None:
    world = filled()
    world.fetcher.wanted_records = 5
    assert [plan.kind for plan in world.plans()] == [PlanKind.FETCH]
    assert world.plans() == []


def test_k72_acknowledgements_are_sent_with_the_next_fetch() -> None:
    world = filled()
    for record in world.poll():
        record.accept()
    world.fetcher.wanted_records = 5
    (plan,) = world.go()
    assert plan.kind is PlanKind.FETCH
    assert plan.acknowledged == {place(0): dict.fromkeys(range(4), ACCEPT)}
    assert [record.state for record in world.partition().records] == [ACKNOWLEDGED] * 4
    assert [record.state for record in world.ended] == [DeliveryState.DONE] * 4


def test_k72_acknowledgements_without_a_fetch_are_sent_after_a_delay() -> None:
    world = filled()
    world.poll()[0].accept()
    assert world.go() == []
    assert world.fetcher.wake_at_ms(world.now_ms) == ACKNOWLEDGE_DELAY_MS
    world.now_ms += ACKNOWLEDGE_DELAY_MS
    (plan,) = world.go()
    assert plan.kind is PlanKind.ACKNOWLEDGE
    assert world.ended[0].offset == 0


def test_k60_buffered_records_are_returned_before_more_are_fetched() -> None:
    world = filled(10)
    assert len(world.poll(3)) == 3
    world.fetcher.wanted_records = 3
    assert world.plans() == []
    assert [record.offset for record in world.fetcher.collect(3, 0)] == [3, 4, 5]


def test_k61_record_limit_mode_fetches_from_one_leader_at_a_time() -> None:
    world = World([1, 2, 1], record_limit=True)
    for number in range(3):
        world.partition(number).append([b"x"] * 5)
    world.fetcher.wanted_records = 2
    (plan,) = world.plans()
    assert isinstance(plan.request, ShareFetchRequest)
    assert (plan.request.share_acquire_mode, plan.request.max_records) == (1, 2)
    world.fetcher.on_response(plan, world.ask(plan), world.cluster, 0)
    assert len(world.fetcher.collect(10, 0)) == 2
    # the other leader is next
    (after,) = world.plans()
    assert after.node_id != plan.node_id


def test_k66_buffered_records_of_a_revoked_partition_are_released() -> None:
    world = World([1, 1])
    for number in range(2):
        world.partition(number).append([b"x"] * 3)
    assert len(world.poll(1)) == 1
    world.fetcher.assign([place(0)], world.now_ms)
    world.flush()
    assert {record.state for record in world.partition(1).records} == {AVAILABLE}
    while world.poll():
        pass
    assert world.leaders[1].sessions["m"].partitions == {(TOPIC_ID, 0)}


def test_k66_records_that_arrive_for_a_revoked_partition_are_released() -> None:
    world = filled(2)
    world.fetcher.wanted_records = 5
    (plan,) = world.plans()
    world.fetcher.assign([], world.now_ms)
    world.fetcher.on_response(plan, world.ask(plan), world.cluster, world.now_ms)
    assert world.fetcher.collect(5, world.now_ms) == []
    world.flush()
    assert {record.state for record in world.partition().records} == {AVAILABLE}


# --- results --------------------------------------------------------------------------------------


def test_k73_each_record_of_a_refused_batch_has_its_own_result() -> None:
    world = filled(9)
    records = world.poll()
    world.leaders[1]._free(world.partition().records[4])
    for record in records:
        record.accept()
    while world.flush():
        pass
    failed = [record.offset for record in records if record.state is DeliveryState.FAILED]
    assert failed == [4]
    assert records[4].error is not None
    assert records[4].error.code is ErrorCode.INVALID_RECORD_STATE
    assert [r.state for r in world.partition().records].count(ACKNOWLEDGED) == 8


def test_k73_a_retriable_error_is_retried_while_the_lock_is_held() -> None:
    world = filled(2)
    records = world.poll()
    world.leaders[1].errors[(TOPIC_ID, 0)] = (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    records[0].accept()
    world.flush()
    states = [records[0].state]
    world.leaders[1].errors.clear()
    world.now_ms += 100
    world.flush()
    states.append(records[0].state)
    assert states == [DeliveryState.ANSWERED, DeliveryState.DONE]


def test_k74_an_acknowledgement_without_success_fails_when_the_lock_expires() -> None:
    world = filled(1)
    (record,) = world.poll()
    world.leaders[1].errors[(TOPIC_ID, 0)] = (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    record.accept()
    for _ in range(400):
        world.flush()
        world.now_ms += 100
    assert record.state is DeliveryState.FAILED
    assert isinstance(record.error, LockExpired)
    assert world.plans() == []


def test_k65_k73_a_lost_acknowledgement_fails_and_the_session_restarts() -> None:
    world = filled(2)
    records = world.poll()
    records[0].accept()
    world.fetcher.flush()
    (plan,) = world.plans()
    world.fetcher.on_failure(plan, ConnectionLost("gone"), world.now_ms)
    assert isinstance(records[0].error, ConnectionLost)
    assert world.plans() == []
    world.now_ms += 100
    world.fetcher.wanted_records = 5
    (again,) = world.go()
    assert again.request.share_session_epoch == 0


def test_k65_acknowledgements_survive_an_invalid_session_epoch() -> None:
    world = filled(2)
    records = world.poll()
    world.leaders[1].sessions["m"].epoch = 77
    for record in records:
        record.accept()
    for _ in range(3):
        world.flush()
        world.now_ms += 100
    assert [record.state for record in records] == [DeliveryState.DONE] * 2


@pytest.mark.parametrize("answered_before", [True, False])
@pytest.mark.parametrize("connection_lost", [True, False])
def test_k65_records_of_a_lost_session_are_not_reported_as_accepted(
    answered_before: bool, connection_lost: bool
) -> None:
    world = filled(1)
    (record,) = world.poll()
    if answered_before:
        record.accept()
    world.leaders[1].drop_session("m")
    # Another member has finished the record. A leader ignores acknowledgements of finished
    # records.
    world.partition().records[0].state = ARCHIVED
    if connection_lost:
        world.fetcher.wanted_records = 5
        world.fetcher.flush()
        (plan,) = world.plans()
        world.fetcher.on_failure(plan, ConnectionLost("gone"), world.now_ms)
    for _ in range(3):
        world.now_ms += 100
        world.poll()
    if not answered_before:
        record.accept()
    world.flush()
    assert record.state is DeliveryState.FAILED


def test_k73_acknowledgements_to_a_former_leader_fail() -> None:
    world = World([1, 2])
    world.partition(0).append([b"x"])
    (record,) = world.poll()
    world.leads = [2, 2]
    world.learn(epoch=1)
    record.accept()
    world.flush()
    assert isinstance(record.error, NotLeader)
    assert "node 1" in str(record.error)


def test_k66_buffered_records_of_a_former_leader_are_not_returned() -> None:
    world = World([1, 2])
    world.partition(0).append([b"x"] * 3)
    assert len(world.poll(1)) == 1
    world.leads = [2, 2]
    world.learn(epoch=1)
    world.go()
    assert world.fetcher.collect(5, world.now_ms) == []


def test_k66_a_new_leader_named_by_an_answer_is_adopted() -> None:
    world = World([1, 2])
    world.leaders[1].errors[(TOPIC_ID, 0)] = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE)
    world.leaders[1].leaders[(TOPIC_ID, 0)] = (2, 9)
    world.poll()
    assert world.cluster.leader_of("t", 0) == 2
    assert world.fetcher.metadata_wanted


def test_k66_a_refused_partition_is_an_error_of_the_poll() -> None:
    world = filled()
    world.leaders[1].errors[(TOPIC_ID, 0)] = (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NONE,
    )
    with pytest.raises(TopicAuthorizationFailed, match="t-0"):
        world.poll()


# --- locks ----------------------------------------------------------------------------------------


def test_k74_an_expired_lock_frees_its_place_and_ignores_acknowledgements() -> None:
    world = filled(2)
    records = world.poll()
    assert world.fetcher.held.unanswered == 2
    world.now_ms += 30_000
    world.fetcher.pass_time(world.now_ms)
    assert world.fetcher.held.unanswered == 0
    assert isinstance(records[0].accept().exception(), LockExpired)
    assert world.flush() == []


def test_k74_buffered_records_with_expired_locks_are_not_returned() -> None:
    world = filled(4)
    world.poll(1)
    world.now_ms += 30_000
    assert world.fetcher.collect(10, world.now_ms) == []
    again = world.poll()
    assert [(record.offset, record.delivery_count) for record in again] == [
        (n, 2) for n in range(4)
    ]


def test_k75_locks_are_renewed_while_records_are_handled() -> None:
    world = filled(2)
    handled, idle = world.poll()
    with handled:
        for _ in range(10):
            world.now_ms += 10_000
            world.go()
        assert handled.state is DeliveryState.ACQUIRED
        assert isinstance(idle.error, LockExpired)
    world.flush()
    assert handled.state is DeliveryState.DONE
    assert world.partition().records[0].deliveries == 1


def test_k75_locks_are_renewed_while_polls_wait() -> None:
    world = filled(1)
    (record,) = world.poll()
    with record:
        world.fetcher.wanted_records = 5
        for _ in range(100):
            world.now_ms += 1_000
            world.go()
        assert record.state is DeliveryState.ACQUIRED


def test_k75_lock_renewal_ends_after_the_maximum_poll_interval() -> None:
    world = filled(1, handling_max_ms=60_000)
    (record,) = world.poll()
    with record:
        for _ in range(12):
            world.now_ms += 10_000
            world.go()
        assert isinstance(record.error, LockExpired)


def test_k75_a_group_that_refuses_renewals_is_asked_once() -> None:
    world = filled(2)
    world.leaders[1].renews = False
    records = world.poll()
    with records[0], records[1]:
        world.now_ms += 15_000
        while world.go():
            pass
        assert len(world.refusals) == 1
        world.now_ms += 10_000
        assert world.go() == []
    world.flush()
    assert [record.state for record in records] == [DeliveryState.DONE] * 2


# --- closing --------------------------------------------------------------------------------------


def test_k76_close_sends_acknowledgements_and_releases_other_records() -> None:
    world = filled(6)
    records = world.poll(3)
    records[0].accept()
    records[1].reject()
    world.fetcher.begin_close(world.now_ms)
    (plan,) = world.go()
    assert plan.kind is PlanKind.CLOSE and plan.request.share_session_epoch == -1
    assert world.fetcher.is_closed and world.plans() == []
    states = [record.state for record in world.partition().records]
    assert states == [ACKNOWLEDGED, ARCHIVED, *[AVAILABLE] * 4]
    assert world.leaders[1].sessions == {}


def test_k76_close_waits_for_the_request_in_flight() -> None:
    world = filled(2)
    world.fetcher.wanted_records = 5
    (plan,) = world.plans()
    world.fetcher.begin_close(world.now_ms)
    assert world.plans() == [] and not world.fetcher.is_closed
    world.fetcher.on_response(plan, world.ask(plan), world.cluster, world.now_ms)
    world.go()
    assert world.fetcher.is_closed
    assert {record.state for record in world.partition().records} == {AVAILABLE}


# --- everything together --------------------------------------------------------------------------


class Run:
    """Random steps of an application, of the partitions' leaders and of the network."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.world = World([1, 2, 1], record_limit=chance.random() < 0.5)
        self.flying: list[SharePlan] = []
        self.mine: list[ShareRecord] = []
        self.accepted = set[tuple[int, int]]()

    def step(self) -> None:
        world, chance = self.world, self.chance
        number = chance.randrange(3)
        match chance.randrange(9):
            case 0:
                values = [chance.choice([b"x", b"y", None]) for _ in range(chance.randint(1, 5))]
                world.partition(number).append(values)
            case 1:
                world.fetcher.wanted_records = chance.randrange(6)
            case 2 | 3:
                self.flying += world.plans()
            case 4 if self.flying:
                self.arrive(self.flying.pop(chance.randrange(len(self.flying))))
            case 5:
                self.mine += world.fetcher.collect(chance.randint(1, 5), world.now_ms)
            case 6 if self.mine:
                self.decide(self.mine.pop(chance.randrange(len(self.mine))))
            case 7:
                world.now_ms += chance.choice([1, 100, 5_000, 31_000])
            case 8 if chance.random() < 0.2:
                node = chance.choice([1, 2])
                world.leaders[node].drop_session("m")

    def decide(self, record: ShareRecord) -> None:
        kind = self.chance.choice([ACCEPT, RELEASE, REJECT])
        record.acknowledge(kind)
        self.world.fetcher.flush()

    def arrive(self, plan: SharePlan) -> None:
        world = self.world
        if self.chance.random() < 0.1:
            if self.chance.random() < 0.5:
                world.ask(plan)
            world.fetcher.on_failure(plan, ConnectionLost("gone"), world.now_ms)
        else:
            world.fetcher.on_response(plan, world.ask(plan), world.cluster, world.now_ms)
        for record in world.ended:
            stored = world.partition(record.partition).records[record.offset]
            if record.state is DeliveryState.DONE and record.answer is ACCEPT:
                assert stored.state == ACKNOWLEDGED, "accepted, the broker says"
                self.accepted.add((record.partition, record.offset))
        world.ended.clear()

    def finish(self) -> None:
        """Handle all remaining records; then each record is acknowledged or archived."""
        world = self.world
        for plan in self.flying:
            self.arrive(plan)
        for _ in range(200):
            for record in self.mine:
                if record.answer is None:
                    record.accept()
            world.fetcher.wanted_records = 5
            for plan in world.flush():
                assert plan is not None
            self.mine = world.fetcher.collect(50, world.now_ms)
            world.now_ms += 1_000
        for number in range(3):
            for offset, stored in enumerate(world.partition(number).records):
                assert stored.state in (ACKNOWLEDGED, ARCHIVED), (number, offset, stored)
                assert stored.state == ACKNOWLEDGED or (number, offset) not in self.accepted


def a_run(seed: int) -> None:
    run = Run(random.Random(seed))
    for _ in range(150):
        run.step()
        held = run.world.fetcher.held
        assert held.unanswered >= 0
    run.finish()


@given(st.integers(0, 2**32))
def test_k60_k73_random_runs_lose_and_falsely_accept_no_record(seed: int) -> None:
    a_run(seed)


def test_k74_an_acknowledgement_counts_only_for_its_own_delivery() -> None:
    world = filled(2)
    records = world.poll()
    records[0].reject()
    world.leaders[1].drop_session("m")
    # The answer reports the lost session; the next request returns the records again.
    world.poll()
    world.now_ms += 100
    again = world.poll()
    assert [record.offset for record in again] == [0, 1]
    assert isinstance(records[0].error, NotLeader)
    again[0].accept()
    world.flush()
    assert world.partition().records[0].state == ACKNOWLEDGED
