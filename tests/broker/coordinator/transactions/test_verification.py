"""Produce in transactions: the accepted batches, and their order (rules T-25, T-61, T-62, T-68,
P-06..P-16)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker, StartBroker
from fake_verifier import FakeVerifier, Question
from odradek_broker.coordinator.transactions import verification
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_broker.storage.producers import verifications
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest
from raw_client import RawClient
from raw_transactions import (
    PRODUCER,
    fetch_request,
    marker_codes,
    marker_request,
    transactional_batch,
    transactional_produce,
)
from waiting import until

E = ErrorCode


def codes(response: Any) -> list[int]:
    return [part.error_code for part in response.responses[0].partition_responses]


def offsets(response: Any) -> list[int]:
    return [part.base_offset for part in response.responses[0].partition_responses]


@pytest.fixture
async def verifier(broker: RunningBroker, client: RawClient) -> FakeVerifier:
    """A fake of the coordinator, in a broker with a topic `t` of two partitions."""
    await client.create_topic("t", partitions=2)
    fake = FakeVerifier()
    fake.install(broker.node)
    return fake


async def sequences(client: RawClient) -> list[int]:
    """Base sequences in the log of t-0."""
    response = await client.call(fetch_request(isolation=0), 11)
    data = response.responses[0].partitions[0].records
    return [header.base_sequence for _, header in iter_batches(data)]


# --- T-25, P-06: the request as a whole ---


async def test_t25_a01_a_request_without_a_transactional_id_is_refused(
    client: RawClient, verifier: FakeVerifier
) -> None:
    request = transactional_produce(
        transactional_batch(0), transactional_batch(0, transactional=False), transactional_id=None
    )
    response = await client.call(request, 11)
    assert codes(response) == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert verifier.questions == []


async def test_t25_a_request_with_two_producer_ids_is_refused(
    client: RawClient, verifier: FakeVerifier
) -> None:
    request = transactional_produce(
        transactional_batch(0), transactional_batch(0, producer_id=PRODUCER + 1)
    )
    assert codes(await client.call(request, 11)) == [E.INVALID_PRODUCER_ID_MAPPING] * 2
    assert verifier.questions == []


async def test_p06_a_batch_without_the_transactional_bit_is_not_verified(
    client: RawClient, verifier: FakeVerifier
) -> None:
    request = transactional_produce(transactional_batch(0, transactional=False))
    assert codes(await client.call(request, 11)) == [E.NONE]
    assert verifier.questions == []


async def test_p07_a_transactional_batch_needs_a_producer_id(
    client: RawClient, verifier: FakeVerifier
) -> None:
    batch = transactional_batch(0, producer_id=-1)
    assert codes(await client.call(transactional_produce(batch), 11)) == [E.INVALID_RECORD]


async def test_p07_a_damaged_batch_is_refused_without_verification(
    client: RawClient, verifier: FakeVerifier
) -> None:
    batch = transactional_batch(0)
    batch[-1] ^= 1
    assert codes(await client.call(transactional_produce(batch), 12)) == [E.CORRUPT_MESSAGE]
    assert verifier.questions == []


# --- rights ---


async def test_a01_a03_the_right_to_the_id_is_checked_before_the_topic(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    rules = broker.node.authorizer = RuleList()
    request = transactional_produce(transactional_batch(0), topic="absent")
    assert codes(await client.call(request, 11)) == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    rules.rules.append(Rule(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx"))
    assert codes(await client.call(request, 11)) == [E.TOPIC_AUTHORIZATION_FAILED]
    rules.rules.append(Rule(Operation.WRITE, ResourceType.TOPIC, "*"))
    assert codes(await client.call(request, 11)) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert verifier.questions == []


async def test_a02_an_idempotent_batch_needs_only_the_right_to_the_topic(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    broker.node.authorizer = RuleList(Rule(Operation.WRITE, ResourceType.TOPIC, "t"))
    batch = transactional_batch(0, transactional=False)
    assert codes(await client.call(transactional_produce(batch), 11)) == [E.NONE]


async def test_a20_deny_beats_allow(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    broker.node.authorizer = RuleList(
        Rule(Operation.WRITE, ResourceType.TOPIC, "*"),
        Rule(Operation.WRITE, ResourceType.TOPIC, "t", deny=True),
    )
    batch = transactional_batch(0, transactional=False)
    response = await client.call(transactional_produce(batch), 11)
    assert codes(response) == [E.TOPIC_AUTHORIZATION_FAILED]


# --- T-61, T-62: the coordinator's answer ---


@pytest.mark.parametrize(("version", "add"), [(9, False), (11, False), (12, True)])
async def test_t61_t62_only_the_first_batch_of_a_transaction_is_verified(
    client: RawClient, verifier: FakeVerifier, version: int, add: bool
) -> None:
    for sequence in range(3):
        request = transactional_produce(transactional_batch(sequence))
        assert codes(await client.call(request, version)) == [E.NONE]
    assert verifier.questions == [Question("tx", PRODUCER, 0, (("t", 0),), add)]


async def test_t62_the_first_batch_after_a_marker_is_verified_again(
    client: RawClient, verifier: FakeVerifier
) -> None:
    assert codes(await client.call(transactional_produce(transactional_batch(0)), 11)) == [0]
    await client.call(marker_request())
    assert codes(await client.call(transactional_produce(transactional_batch(1)), 11)) == [0]
    assert len(verifier.questions) == 2


@pytest.mark.parametrize("version", [11, 12])
async def test_t61_a_batch_with_an_epoch_below_the_partitions_is_not_verified(
    client: RawClient, verifier: FakeVerifier, version: int
) -> None:
    """The last marker of an exhausted producer id has the epoch 32,767. The coordinator has then
    replaced the producer id, and would answer INVALID_PRODUCER_ID_MAPPING."""
    await client.call(transactional_produce(transactional_batch(0, epoch=32_766)), version)
    await client.call(marker_request(epoch=32_767))
    verifier.error = E.INVALID_PRODUCER_ID_MAPPING
    questions = len(verifier.questions)
    for epoch, told, asked in (
        (32_765, E.INVALID_PRODUCER_EPOCH, 0),
        (32_766, E.INVALID_PRODUCER_EPOCH, 0),
        (32_767, E.INVALID_PRODUCER_ID_MAPPING, 1),
    ):
        late = transactional_produce(transactional_batch(1, epoch=epoch))
        assert codes(await client.call(late, version)) == [told]
        assert len(verifier.questions) == questions + asked


async def test_t68_a_batch_with_another_epoch_is_verified_again(
    client: RawClient, verifier: FakeVerifier
) -> None:
    assert codes(await client.call(transactional_produce(transactional_batch(0)), 12)) == [0]
    next_epoch = transactional_batch(0, epoch=1)
    assert codes(await client.call(transactional_produce(next_epoch), 12)) == [0]
    assert [question.producer_epoch for question in verifier.questions] == [0, 1]


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        (10, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
        (11, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (12, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (12, E.NETWORK_EXCEPTION, E.NOT_ENOUGH_REPLICAS),
        (12, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_ENOUGH_REPLICAS),
        (12, E.COORDINATOR_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS),
        (12, E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS),
        (12, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_t61_t62_errors_of_the_coordinator_become_errors_of_produce(
    client: RawClient, verifier: FakeVerifier, version: int, said: ErrorCode, told: ErrorCode
) -> None:
    verifier.error = said
    request = transactional_produce(transactional_batch(0))
    response = await client.call(request, version)
    assert codes(response) == [told]
    assert offsets(response) == [-1]
    assert await sequences(client) == []


async def test_t68_a_busy_coordinator_is_asked_again_until_it_is_ready(
    client: RawClient, verifier: FakeVerifier
) -> None:
    verifier.error = E.CONCURRENT_TRANSACTIONS
    client.send(transactional_produce(transactional_batch(0)), 12)
    await until(lambda: len(verifier.questions) >= 3)
    verifier.error = E.NONE
    assert codes(await client.receive()) == [E.NONE]


async def test_t61_a_coordinator_that_stays_busy_makes_produce_fail(
    client: RawClient, verifier: FakeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "RETRY_TOTAL_MS", 5)
    verifier.error = E.CONCURRENT_TRANSACTIONS
    response = await client.call(transactional_produce(transactional_batch(0)), 12)
    assert codes(response) == [E.NOT_ENOUGH_REPLICAS]


async def test_t68_a_marker_during_a_verification_makes_it_start_again(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    verifier.holding = True
    client.send(transactional_produce(transactional_batch(0)), 12)
    await until(lambda: verifier.held)
    other = await broker.client()
    assert marker_codes(await other.call(marker_request(commit=False))) == [0]
    verifier.release()
    await until(lambda: verifier.held)
    assert await sequences(other) == [-1], "only the marker"
    verifier.release()
    assert codes(await client.receive()) == [E.NONE]


async def test_d11_the_last_refused_producers_alone_are_remembered(
    client: RawClient,
    broker: RunningBroker,
    verifier: FakeVerifier,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verifications, "REFUSED_MAX", 3)
    producers = broker.node.partition("t", 0).log.producers
    verifier.error = E.INVALID_PRODUCER_ID_MAPPING
    for number in range(10):
        batch = transactional_batch(0, producer_id=PRODUCER + number)
        assert codes(await client.call(transactional_produce(batch), 12)) == [verifier.error]
    assert list(producers.verifications) == [PRODUCER + 7, PRODUCER + 8, PRODUCER + 9]
    assert not len(producers)
    verifier.error = E.NOT_COORDINATOR
    await client.call(transactional_produce(transactional_batch(0)), 12)
    assert len(producers.verifications) == 4, "a batch that is sent again is not refused"


@pytest.mark.parametrize("transactional", [True, False])
async def test_p15_a_batch_after_a_refused_batch_is_out_of_order(
    client: RawClient, verifier: FakeVerifier, transactional: bool
) -> None:
    verifier.error = E.INVALID_TXN_STATE
    first = transactional_produce(transactional_batch(4))
    assert codes(await client.call(first, 11)) == [E.INVALID_TXN_STATE]
    verifier.error = E.NONE
    batch = transactional_batch(5, transactional=transactional)
    later = transactional_produce(batch, transactional_id="tx" if transactional else None)
    assert codes(await client.call(later, 11)) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert codes(await client.call(first, 11)) == [E.NONE]


# --- N-03, P-15: the order ---


async def test_n03_pipelined_batches_wait_in_line_after_the_first(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    verifier.holding = True
    for sequence in range(5):
        client.send(transactional_produce(transactional_batch(sequence)), 12)
    await until(lambda: broker.node.verification.waiting == 5)
    assert verifier.held == 1
    verifier.release()
    answers = [await client.receive() for _ in range(5)]
    assert [offsets(answer) for answer in answers] == [[0], [1], [2], [3], [4]]
    assert await sequences(client) == [0, 1, 2, 3, 4]
    assert len(verifier.questions) == 1
    assert broker.node.verification.waiting == 0


async def test_p15_batches_after_a_refused_batch_are_refused(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    verifier.holding = True
    for sequence in range(3):
        client.send(transactional_produce(transactional_batch(sequence)), 12)
    await until(lambda: broker.node.verification.waiting == 3)
    verifier.release(E.NOT_COORDINATOR)
    verifier.release()
    verifier.release()
    answers = [codes(await client.receive()) for _ in range(3)]
    assert answers == [
        [E.NOT_ENOUGH_REPLICAS],
        [E.OUT_OF_ORDER_SEQUENCE_NUMBER],
        [E.OUT_OF_ORDER_SEQUENCE_NUMBER],
    ]
    verifier.holding = False
    for sequence in range(3):
        again = transactional_produce(transactional_batch(sequence))
        assert codes(await client.call(again, 12)) == [E.NONE]
    assert await sequences(client) == [0, 1, 2]


async def test_p15_v2_the_first_sequence_in_a_partition_must_be_0(
    client: RawClient, verifier: FakeVerifier
) -> None:
    response = await client.call(transactional_produce(transactional_batch(7)), 12)
    assert codes(response) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    response = await client.call(transactional_produce(transactional_batch(7)), 11)
    # The v2 batch began the check of sequences for its producer id. The v1 batch of the other id
    # begins no check.
    assert codes(response) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    other = transactional_batch(7, producer_id=PRODUCER + 1)
    assert codes(await client.call(transactional_produce(other), 11)) == [E.NONE]


@pytest.mark.parametrize("seed", range(8))
async def test_n03_p15_batches_stay_in_order_under_random_coordinator_answers(
    client: RawClient,
    broker: RunningBroker,
    verifier: FakeVerifier,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A producer with five requests in flight retries refused requests in order, while markers end
    its transactions at random times."""
    monkeypatch.setattr(verification, "RETRY_TOTAL_MS", 2)
    dice = random.Random(seed)
    verifier.holding = True
    marker_client = await broker.client()
    passing = [E.CONCURRENT_TRANSACTIONS, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS]
    written, total = 0, 40
    while written < total:
        flight = range(written, min(written + 5, total))
        for sequence in flight:
            client.send(transactional_produce(transactional_batch(sequence)), 12)
        answers: list[int] = []
        for _ in flight:
            answer = asyncio.ensure_future(client.receive())
            while not answer.done():
                if verifier.held:
                    verifier.release(E.NONE if dice.randrange(3) else dice.choice(passing))
                await asyncio.sleep(0.0005)
            answers += codes(answer.result())
        if not dice.randrange(3):
            await marker_client.call(marker_request(commit=bool(dice.randrange(2))))
        written = next((at for at, code in zip(flight, answers, strict=True) if code), flight.stop)
        assert set(answers) <= {E.NONE, E.NOT_ENOUGH_REPLICAS, E.OUT_OF_ORDER_SEQUENCE_NUMBER}
    log = broker.node.partition("t", 0).log
    await until(lambda: log.high_watermark == log.log_end_offset)
    found: list[int] = []
    offset = 0
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, upper_bound=log.log_end_offset, minimum_one=True)
        for _, header in iter_batches(data):
            offset = header.next_offset
            if not header.is_control:
                found.append(header.base_sequence)
    assert found == list(range(total))


async def test_batches_of_different_producers_do_not_wait_for_each_other(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    verifier.holding = True
    client.send(transactional_produce(transactional_batch(0)), 12)
    await until(lambda: verifier.held == 1)
    verifier.holding = False
    other = await broker.client()
    batch = transactional_batch(0, producer_id=PRODUCER + 1)
    assert codes(await other.call(transactional_produce(batch), 12)) == [E.NONE]
    verifier.release()
    assert offsets(await client.receive()) == [1]


async def test_t61_all_partitions_of_a_request_are_verified_in_one_call(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    verifier.holding = True
    client.send(transactional_produce(transactional_batch(0), transactional_batch(0)), 12)
    await until(lambda: verifier.held)
    assert verifier.questions == [Question("tx", PRODUCER, 0, (("t", 0), ("t", 1)), True)]
    client.send(transactional_produce(transactional_batch(1), transactional_batch(1)), 12)
    await until(lambda: broker.node.verification.waiting == 4)
    verifier.release()
    answers = [await client.receive() for _ in range(2)]
    assert [offsets(answer) for answer in answers] == [[0, 0], [1, 1]]
    assert len(verifier.questions) == 1


async def test_each_partition_of_a_request_has_its_own_answer(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    verifier.holding = True
    client.send(transactional_produce(transactional_batch(0), transactional_batch(7)), 12)
    await until(lambda: verifier.held)
    verifier.release()
    assert codes(await client.receive()) == [E.NONE, E.OUT_OF_ORDER_SEQUENCE_NUMBER]


# --- P-09, P-16, P-22, P-23 ---


async def test_p09_a_duplicate_in_an_open_transaction_needs_no_verification(
    client: RawClient, verifier: FakeVerifier
) -> None:
    assert offsets(await client.call(transactional_produce(transactional_batch(0)), 11)) == [0]
    verifier.error = E.TRANSACTION_ABORTABLE
    response = await client.call(transactional_produce(transactional_batch(0)), 11)
    assert (codes(response), offsets(response)) == ([E.NONE], [0])
    assert len(verifier.questions) == 1


async def test_t62_a_duplicate_after_the_end_of_its_transaction_is_refused(
    client: RawClient, verifier: FakeVerifier
) -> None:
    assert offsets(await client.call(transactional_produce(transactional_batch(0)), 11)) == [0]
    await client.call(marker_request())
    verifier.error = E.TRANSACTION_ABORTABLE
    response = await client.call(transactional_produce(transactional_batch(0)), 11)
    assert codes(response) == [E.TRANSACTION_ABORTABLE]
    assert len(verifier.questions) == 2


async def test_p16_a_plain_batch_in_an_open_transaction_is_refused(
    client: RawClient, verifier: FakeVerifier
) -> None:
    assert codes(await client.call(transactional_produce(transactional_batch(0)), 11)) == [0]
    plain = transactional_batch(1, transactional=False)
    response = await client.call(transactional_produce(plain), 11)
    assert codes(response) == [E.INVALID_TXN_STATE]


async def test_p12_a_batch_with_an_older_epoch_is_refused_by_the_log(
    client: RawClient, verifier: FakeVerifier
) -> None:
    newer = transactional_batch(0, epoch=3)
    assert codes(await client.call(transactional_produce(newer), 11)) == [0]
    older = transactional_batch(0, epoch=2)
    response = await client.call(transactional_produce(older), 11)
    assert codes(response) == [E.INVALID_PRODUCER_EPOCH]


async def test_p23_a_timed_out_request_appends_nothing_later(
    client: RawClient, verifier: FakeVerifier
) -> None:
    verifier.holding = True
    request = transactional_produce(transactional_batch(0), timeout_ms=1)
    response = await client.call(request, 12)
    assert codes(response) == [E.REQUEST_TIMED_OUT]
    verifier.release()
    assert await sequences(client) == []


async def test_p23_a_late_refusal_of_acks_0_closes_the_connection(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    verifier.holding = True
    client.send(transactional_produce(transactional_batch(0), acks=0), 12)
    await until(lambda: verifier.held)
    verifier.release(E.PRODUCER_FENCED)
    assert await client.closed()


async def test_p23_a_late_success_of_acks_0_is_not_answered(
    client: RawClient, verifier: FakeVerifier
) -> None:
    verifier.holding = True
    client.send(transactional_produce(transactional_batch(0), acks=0), 12)
    client.expect_no_answer()
    await until(lambda: verifier.held)
    verifier.release()
    response = await client.call(transactional_produce(transactional_batch(1)), 12)
    assert (codes(response), offsets(response)) == ([E.NONE], [1])


@pytest.mark.parametrize(
    ("verdict", "answered"),
    [(E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION), (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE)],
)
async def test_a_topic_deleted_during_a_verification_is_unknown(
    client: RawClient,
    broker: RunningBroker,
    verifier: FakeVerifier,
    verdict: ErrorCode,
    answered: ErrorCode,
) -> None:
    verifier.holding = True
    client.send(transactional_produce(transactional_batch(0)), 12)
    await until(lambda: verifier.held)
    other = await broker.client()
    await other.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
    verifier.release(verdict)
    assert codes(await client.receive()) == [answered]
    assert not broker.node.verification.waiting


# --- transaction.partition.verification.enable ---


async def test_t62_without_verification_only_version_2_calls_the_coordinator(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(transaction_partition_verification_enable="false")
    client = await broker.client()
    await client.create_topic("t")
    await client.create_topic("u")
    verifier = broker.node.verification._verifier = FakeVerifier(error=E.TRANSACTION_ABORTABLE)
    request = transactional_produce(transactional_batch(0))
    assert codes(await client.call(request, 11)) == [E.NONE]
    assert verifier.questions == []
    request = transactional_produce(transactional_batch(0), topic="u")
    assert codes(await client.call(request, 12)) == [E.TRANSACTION_ABORTABLE]
    assert [question.add for question in verifier.questions] == [True]


async def test_t62_verification_can_be_switched_off_while_the_broker_runs(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    verifier = broker.node.verification._verifier = FakeVerifier(error=E.TRANSACTION_ABORTABLE)
    request = transactional_produce(transactional_batch(0))
    assert codes(await client.call(request, 11)) == [E.TRANSACTION_ABORTABLE]
    await client.set_for_brokers(transaction_partition_verification_enable="false")
    assert codes(await client.call(request, 11)) == [E.NONE]
    assert len(verifier.questions) == 1


async def test_t62_with_verification_version_1_calls_the_coordinator(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    verifier = broker.node.verification._verifier = FakeVerifier(error=E.TRANSACTION_ABORTABLE)
    request = transactional_produce(transactional_batch(0))
    assert codes(await client.call(request, 11)) == [E.TRANSACTION_ABORTABLE]
    assert [question.add for question in verifier.questions] == [False]
