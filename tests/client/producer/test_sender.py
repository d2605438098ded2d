"""The sender's decisions without a loop: the error table, and random runs against a model of the
broker.

In `World` the classes that a producer consists of run against `PartitionLog`s in virtual time. One
seed determines losses, refusals, delays and lost connections; invariants are checked at the end.
"""

from __future__ import annotations

from typing import Any

import pytest

from many_cases import looped
from odradek_client.backoff import Backoff
from odradek_client.errors import (
    ClusterAuthorizationFailed,
    ConnectionLost,
    DeliveryTimeout,
    Fatal,
    InvalidTopic,
    MessageTooLarge,
    RequestTimedOut,
    TransactionAborted,
    UnsupportedByBroker,
)
from odradek_client.producer.batch import Delivery
from odradek_client.producer.idempotence import IdempotenceManager
from odradek_client.producer.sender import (
    REACTIONS,
    WITHOUT_IDENTITY,
    ProduceReaction,
    Sender,
)
from odradek_client.producer.transaction_manager import TransactionManager
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.records.batch import read_header, verify_crc
from odradek_protocol.records.record import read_records
from odradek_protocol.schemas.init_producer_id import InitProducerIdResponse
from odradek_protocol.schemas.metadata import MetadataResponse
from odradek_protocol.schemas.produce import (
    TOPIC_IDS_SINCE,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from producer_world import World, check, known, response

RETRIED_INSIDE = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
}


# --- the table ------------------------------------------------------------------------------------


def test_c53_every_error_code_has_a_reaction() -> None:
    assert set(REACTIONS) == set(ErrorCode) == set(WITHOUT_IDENTITY)
    for code, reaction in REACTIONS.items():
        if code.retriable:
            assert reaction is ProduceReaction.RETRY
    assert {c for c, r in REACTIONS.items() if r is ProduceReaction.FATAL} == {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
    assert ProduceReaction.FATAL not in WITHOUT_IDENTITY.values()


@looped("code", [c for c in ErrorCode if c is not ErrorCode.NONE])
def test_c50_c55_the_producer_recovers_from_every_error_code_that_is_not_fatal(
    code: ErrorCode,
) -> None:
    world = World()
    first = world.send()
    world.run()
    behind = world.send()
    failed = world.answer(1, code)
    if REACTIONS[code] is ProduceReaction.FATAL:
        assert failed and isinstance(first.exception(), Fatal)
        world.run()
        assert isinstance(behind.exception(), Fatal), "nothing more goes out"
        return
    if code.retriable or code in RETRIED_INSIDE:
        assert not failed
    else:
        assert first.exception() is not None
    world.settle()
    assert behind.exception() is None, "the next record is not concerned"
    if code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        check(world)
    epochs = {epoch for _, epoch, _, _ in world.logs[0].batches}
    bumped = not code.retriable and code not in {
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
    assert epochs == {1 if bumped else 0}, "C-45: no gap may stay"


@pytest.mark.parametrize("code", [c for c in ErrorCode if c.refreshes_metadata])
def test_c53_metadata_errors_refresh_the_metadata(code: ErrorCode) -> None:
    world = World()
    world.send()
    world.run()
    before = world.refreshes
    world.answer(1, code)
    world.step()
    assert world.refreshes == before + 1


# --- a batch in flight that gets another sequence -------------------------------------------------


def behind_a_refused_batch(world: World) -> tuple[Delivery, Delivery, Any]:
    """Send two batches. The first is refused for good, so the second gets another sequence while it
    is in flight.

    Returns both deliveries, and the bytes of the second batch that the transport still has.
    """
    known(world)
    refused = world.send()
    world.run()
    behind = world.send()
    world.run()
    (batch,) = world.on_wire[1][1][0].batches
    on_wire = batch.encoded
    assert on_wire is not None
    assert bytes(on_wire) == world.on_wire[1][1][1][0]
    world.answer(1, ErrorCode.INVALID_RECORD)
    world.run()
    assert refused.exception() is not None
    assert batch.sequence_was_reset
    assert batch.on_wire
    return refused, behind, on_wire


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_c44_a_restamped_batch_leaves_the_bytes_on_the_wire_unchanged(codec: str) -> None:
    """Bytes that the transport still has must not change, or their checksum would not match."""
    world = World(compression_type=codec)
    _, behind, on_wire = behind_a_refused_batch(world)
    assert bytes(on_wire) == world.on_wire[1][0][1][0]
    world.answer()  # out of order: the broker does not have the refused batch
    world.run(200.0)
    (retried,) = world.on_wire[1][0][0].batches
    assert retried.encoded is not on_wire
    assert (
        read_header(on_wire).producer_epoch + 1
        == read_header(retried.encoded or b"").producer_epoch
    )
    verify_crc(on_wire, 0, read_header(on_wire))
    world.settle()
    assert behind.exception() is None
    check(world)


def test_c44_an_answer_to_the_bytes_before_restamping_completes_the_batch() -> None:
    """A broker that accepts any sequence has written the batch: the batch is not sent again, and
    sending continues."""
    world = World()
    _, behind, _ = behind_a_refused_batch(world)
    produce, data = world.on_wire[1].popleft()
    log = world.logs[0]
    base = len(log.values)
    header = read_header(data[0])
    log.values += [record.value for record in read_records(data[0], 0, header)]
    answer = PartitionProduceResponse(index=0, error_code=0, base_offset=base)
    world.sender.answered(produce, response(answer), world.now_ms)
    assert behind.result().offset == base
    later = [world.send() for _ in range(3)]
    world.settle()
    assert all(each.exception() is None for each in later)
    check(world)


def test_c40_an_expired_batch_restamped_in_flight_may_be_written() -> None:
    world = World()
    _, behind, _ = behind_a_refused_batch(world)
    world.run(world.config.delivery_timeout_ms)
    assert "may be written or not" in str(behind.exception())
    world.lose(written=False)
    later = world.send()
    world.settle()
    assert later.exception() is None


def test_c40_a_delivery_error_names_the_last_failure() -> None:
    world = World(delivery_timeout_ms=40_000)
    storage, gone = world.send(), world.send(partition=0, size=30)
    world.run()
    for _ in range(3):
        world.answer(1, ErrorCode.KAFKA_STORAGE_ERROR)
        world.run(2_000.0)
    world.lose(written=False)
    world.run(40_000.0)
    said = str(storage.exception())
    assert "may be written or not" in said
    assert said.endswith("The last failure: cut")
    assert isinstance(gone.exception().__cause__, ConnectionLost)  # type: ignore[union-attr]


# --- single scenarios -----------------------------------------------------------------------------


def test_c13_records_of_the_linger_time_are_sent_in_one_request() -> None:
    world = World(linger_ms=5)
    deliveries = [world.send() for _ in range(3)]
    assert world.step() == 0
    assert world.run(4.0) == 0
    assert world.run(1.0) == 1
    world.answer()
    assert [d.result().offset for d in deliveries] == [0, 1, 2]
    check(world)


def test_c20_c31_no_batch_is_sent_before_there_is_a_producer_id() -> None:
    world = World()
    world.send()
    world.now_ms = 20.0
    assert world.step(identity=False) == 0
    assert world.transactions is not None
    world.sender.identity_failed(RequestTimedOut("late"), world.now_ms)
    assert world.step(identity=False) == 0, "backoff (C-33)"
    assert isinstance(world.transactions, IdempotenceManager)
    assert world.transactions.needs_identity
    assert world.run(200.0) == 1
    world.settle()
    check(world)


@pytest.mark.parametrize(
    "error", [UnsupportedByBroker("too old"), ClusterAuthorizationFailed("may not")]
)
def test_c55_an_unobtainable_producer_id_is_fatal_and_names_the_setting(error: Fatal) -> None:
    world = World()
    delivery = world.send()
    world.now_ms = 20.0
    world.step(identity=False)
    world.sender.identity_failed(error, world.now_ms)
    world.step()
    assert "enable_idempotence=False" in str(delivery.exception())


def test_a_node_has_at_most_max_in_flight_requests() -> None:
    world = World(batch_size=100)
    known(world)
    for _ in range(20):
        world.send(size=80)
    assert world.run() == 5
    assert world.run() == 0
    world.answer()
    assert world.run() == 1
    world.settle()
    check(world)


def test_c22_c21_order_is_kept_when_the_second_of_five_in_flight_fails() -> None:
    world = World(batch_size=100)
    known(world)
    deliveries = [world.send(size=80) for _ in range(5)]
    assert world.run() == 5
    world.answer(1)
    world.answer(1, ErrorCode.NOT_ENOUGH_REPLICAS)
    for _ in range(3):
        failed = world.answer(1)
        assert not failed, "45 behind a retried one is just retried (C-50)"
    assert [d.done() for d in deliveries] == [True, False, False, False, False]
    for expected in range(4):
        world.run(2000.0)
        assert len(world.on_wire[1]) == 1, "while retrying one at a time (C-21)"
        world.answer(1)
        assert deliveries[expected + 1].done()
    assert [d.result().offset for d in deliveries] == [1, 2, 3, 4, 5]
    assert {epoch for _, epoch, _, _ in world.logs[0].batches} == {0}, "no bump was needed"
    check(world)


def test_c54_p09_a_lost_answer_makes_no_duplicate() -> None:
    world = World(batch_size=100)
    known(world)
    deliveries = [world.send(size=80) for _ in range(5)]
    assert world.run() == 5
    world.lose(1, written=True)
    world.settle()
    assert [d.result().offset for d in deliveries] == [1, 2, 3, 4, 5]
    check(world)


def test_c45_a_retry_that_is_refused_may_have_been_written_before() -> None:
    """The first attempt was written, and its answer is lost. The retry is refused, because the
    topic's settings have changed. The batches after it must not be written twice."""
    world = World(batch_size=100)
    known(world)
    first, *behind = [world.send(size=80) for _ in range(4)]
    assert world.run() == 4
    arrived = [world.arrive(1)[0] for _ in range(4)]
    for produce in arrived:
        lost = ConnectionLost("cut")
        world.sender.unanswered(produce, ErrorCode.NETWORK_EXCEPTION, lost, world.now_ms)
    assert world.run(1_000) > 0
    world.answer(1, ErrorCode.INVALID_TOPIC_EXCEPTION)
    world.settle()
    assert isinstance(first.exception(), InvalidTopic)
    assert [d.result().offset for d in behind] == [2, 3, 4]
    assert len(world.logs[0].values) == 5


def test_a_lost_answer_makes_a_duplicate_without_idempotence() -> None:
    world = World(enable_idempotence=False)
    world.send()
    world.run()
    world.lose(1, written=True)
    world.settle()
    assert len(world.logs[0].values) == 2, "at least once (C-05)"
    check(world, exactly_once=False)


def test_c17_max_in_flight_1_without_idempotence_mutes_the_partition() -> None:
    world = World(enable_idempotence=False, max_in_flight_requests_per_connection=1, batch_size=100)
    for _ in range(6):
        world.send(size=80)
    assert world.run() == 1 and world.run() == 0
    world.lose(1, written=False)
    world.settle()
    check(world)


def test_c26_acks_0_is_complete_when_sent() -> None:
    world = World(acks=0)
    delivery = world.send()
    world.run()
    produce, _ = world.on_wire[1].popleft()
    world.sender.answered(produce, None, world.now_ms)
    assert delivery.result().offset == -1
    check_memory = world.accumulator
    assert check_memory.available_bytes == check_memory.buffer_memory


def test_c25_a_too_large_batch_is_split_until_it_fits_with_its_sequences() -> None:
    world = World(batch_size=4000)
    deliveries = [world.send(size=300) for _ in range(10)]
    assert world.run() == 1
    world.send(size=300)
    world.answer(1, ErrorCode.MESSAGE_TOO_LARGE)
    world.run()
    assert len(world.on_wire[1][0][0].batches[0].builder.records()) < 6
    world.answer(1, ErrorCode.MESSAGE_TOO_LARGE)
    world.settle()
    assert [d.result().offset for d in deliveries] == list(range(10))
    assert {epoch for _, epoch, _, _ in world.logs[0].batches} == {0}
    check(world)


def test_c25_a_single_record_that_is_too_large_fails() -> None:
    world = World()
    delivery, other = world.send(), None
    world.run()
    other = world.send()
    world.answer(1, ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(delivery.exception(), MessageTooLarge)
    world.settle()
    assert other.exception() is None
    check(world)


def test_c40_a_batch_after_a_refused_one_names_the_refusal() -> None:
    """The broker is reachable and answers in time, so the refusal is the cause."""
    world = World(delivery_timeout_ms=40_000)
    refused = world.send()
    world.run()
    behind = world.send(size=30)
    for _ in range(25):
        if world.on_wire[1]:
            world.answer(1, ErrorCode.KAFKA_STORAGE_ERROR)
        world.run(2_000.0)
    assert refused.exception() is not None
    said = str(behind.exception())
    assert "could not be sent: those before them are not acknowledged" in said
    assert "reachable" not in said
    assert "the broker's disk failed or is full" in said


def test_c40_batches_expire_in_the_queue_and_in_flight() -> None:
    world = World(delivery_timeout_ms=1000, request_timeout_ms=500)
    in_flight = world.send()
    world.run()
    world.set_leaders([-1], epoch=2)
    queued = world.send()
    world.run(1100.0)
    for delivery in (in_flight, queued):
        assert isinstance(delivery.exception(), DeliveryTimeout)
    assert "may be written or not" in str(in_flight.exception())
    assert "no known leader" in str(queued.exception())
    assert len(world.failed) == 2
    world.answer(1)
    world.settle()
    check(world)


def test_c41_c42_an_expired_batch_bumps_the_epoch() -> None:
    world = World(delivery_timeout_ms=1000, request_timeout_ms=500)
    world.send()
    world.run()
    world.lose(1, written=True)
    world.run(1100.0)
    later = world.send()
    world.settle()
    assert later.exception() is None
    assert [epoch for _, epoch, _, _ in world.logs[0].batches] == [0, 1]
    check(world)


def test_c53_a_new_leader_named_by_the_answer_is_used_without_backoff() -> None:
    world = World()
    delivery = world.send()
    world.run()
    leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=2)
    world.answer(1, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=leader)
    assert world.step() == 1 and world.on_wire[2]
    world.answer(2)
    assert delivery.result().offset == 0


def test_a_batch_fails_when_its_retries_are_used_up() -> None:
    world = World(retries=2)
    delivery = world.send()
    for _ in range(3):
        world.run(2000.0)
        world.answer(1, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert delivery.exception() is not None
    later = world.send()
    world.settle()
    assert later.exception() is None
    check(world)


def test_c45_a_refused_batch_leaves_no_sequence_gap_for_later_ones() -> None:
    world = World(batch_size=100)
    known(world)
    deliveries = [world.send(size=80) for _ in range(4)]
    assert world.run() == 4
    world.answer(1, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert isinstance(deliveries[0].exception(), InvalidTopic)
    world.settle()
    assert [d.result().offset for d in deliveries[1:]] == [1, 2, 3]
    check(world)


def test_c34_a_forced_close_fails_all_batches() -> None:
    world = World()
    first = world.send()
    world.run()
    second = world.send()
    world.sender.fail_all(ConnectionLost("closed"))
    assert first.exception() is not None and second.exception() is not None
    assert not world.accumulator.incomplete


# --- random runs ----------------------------------------------------------------------------------

TROUBLE = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
]


def is_new(world: World, node: int) -> bool:
    """True if no batch of the request was sent before: a batch does not change, so a broker refuses
    it at the first attempt or never."""
    return all(batch.attempts == 0 for batch in world.on_wire[node][0][0].batches)


def may_split(world: World, node: int) -> bool:
    return is_new(world, node) and all(
        batch.record_count > 1 for batch in world.on_wire[node][0][0].batches
    )


def live(seed: int, *, refusals: bool, expiry: bool) -> World:
    """A run with many faults. The faults stop before the end of the run."""
    world = World(
        seed=seed,
        partitions=3,
        batch_size=300,
        linger_ms=5,
        delivery_timeout_ms=3000 if expiry else 10**8,
        request_timeout_ms=1000,
    )
    rng = world.random
    epoch = 1
    for _ in range(300):
        world.now_ms += rng.choice([0.0, 1.0, 7.0, 60.0, 400.0])
        for _ in range(rng.randrange(4)):
            world.send(rng.randrange(3), rng.randrange(1, 250))
        world.step()
        node = rng.choice([1, 2])
        if not world.on_wire[node]:
            continue
        luck = rng.random()
        if luck < 0.5:
            world.answer(node)
        elif luck < 0.65:
            code = rng.choice(TROUBLE)
            if code is ErrorCode.MESSAGE_TOO_LARGE and not may_split(world, node):
                code = ErrorCode.REQUEST_TIMED_OUT
            world.answer(node, code)
        elif luck < 0.8:
            world.lose(node, written=rng.random() < 0.5)
        elif luck < 0.83:
            epoch += 1
            world.set_leaders([rng.choice([1, 2, -1]) for _ in range(3)], epoch)
        elif luck < 0.86 and refusals and is_new(world, node):
            world.answer(node, ErrorCode.INVALID_RECORD)
    world.set_leaders([1, 2, 1], epoch + 1)
    world.settle()
    return world


@pytest.mark.parametrize("seed", range(30))
def test_c05_random_retries_write_every_record_once_and_in_order(seed: int) -> None:
    world = live(seed, refusals=False, expiry=False)
    assert not world.failed
    for partition, log in enumerate(world.logs):
        assert log.values == [s.value for s in world.sent if s.partition == partition]
    check(world)


@pytest.mark.parametrize("seed", range(30))
def test_c05_random_refusals_and_expiries_keep_order_and_write_no_duplicate(seed: int) -> None:
    world = live(seed, refusals=True, expiry=True)
    check(world)


# --- The first step of a pass (C-30) ---


def transactional_world() -> tuple[World, TransactionManager]:
    """A world whose producer is in a transaction of version 2."""
    world = World()
    manager = TransactionManager(
        "id",
        60_000,
        new_future=None,  # type: ignore[arg-type]
        feature_level=lambda: 2,
        backoff=Backoff(100, 1000, world.random),
    )
    world.transactions = manager
    backoff = Backoff(100, 1000, world.random)
    world.sender = Sender(world.config, world.cluster, world.accumulator, manager, backoff)
    operation = manager.lifecycle.operation("init_transactions", manager.init)
    ask = world.sender.step(world.now_ms, lambda node: True).txn_request
    assert ask is not None
    given = InitProducerIdResponse(producer_id=7, producer_epoch=0)
    world.sender.request_answered(ask, given, 5, world.now_ms)
    manager.lifecycle.seen(operation)
    manager.begin()
    return world, manager


def test_c16_c30_metadata_is_requested_when_a_leader_is_unknown() -> None:
    world = World()
    known(world)
    world.set_leaders([-1], epoch=2)
    world.send()
    assert (world.run(), world.refreshes) == (0, 1)
    assert (world.run(), world.refreshes) == (0, 2), "until there is one"
    world.set_leaders([1], epoch=3)
    assert (world.run(), world.refreshes) == (1, 2)


def test_c30_after_a_fatal_error_every_batch_fails_and_nothing_is_sent() -> None:
    world = World()
    known(world)
    deliveries = [world.send()]
    assert world.run() == 1
    deliveries.append(world.send())
    assert world.transactions is not None
    world.transactions.fail(ClusterAuthorizationFailed("the reason"))
    assert world.run() == 0
    assert not world.accumulator.incomplete
    assert all(isinstance(each.exception(), ClusterAuthorizationFailed) for each in deliveries)


@pytest.mark.parametrize("how", ["abort", "error"])
def test_c30_an_abort_fails_unsent_batches_and_waits_for_sent_ones(how: str) -> None:
    world, manager = transactional_world()
    on_its_way = world.send()
    assert world.run() == 1
    waiting = world.send()
    if how == "abort":
        manager.lifecycle.operation("abort_transaction", manager.abort)
    else:
        manager.batch_failed(InvalidTopic("the reason"))
    assert world.run() == 0
    assert isinstance(waiting.exception(), TransactionAborted)
    assert len(world.accumulator.incomplete) == 1 and not on_its_way.done()
    world.answer()
    assert not world.accumulator.incomplete and on_its_way.exception() is None


def test_c05_an_answer_with_a_topic_id_counts_though_metadata_lost_the_topic() -> None:
    world = World(seed=1)
    known(world)
    delivery = world.send()
    world.now_ms += 20
    (produce,) = world.sender.step(world.now_ms, lambda node: True).produce
    (data,) = world.sender.request(produce, TOPIC_IDS_SINCE).topic_data
    assert data.topic_id == world.cluster.topic_id("t") != ZERO_UUID
    world.cluster.update(MetadataResponse(brokers=[], topics=[]), world.now_ms)
    written = PartitionProduceResponse(index=0, base_offset=7)
    answer = TopicProduceResponse(topic_id=data.topic_id, partition_responses=[written])
    world.sender.answered(produce, ProduceResponse(responses=[answer]), world.now_ms)
    assert delivery.result().offset == 7
