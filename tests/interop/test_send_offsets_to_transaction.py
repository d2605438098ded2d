"""librdkafka's `send_offsets_to_transaction`, with each of its requests lost or refused once (T-23,
T-24).

After a lost connection librdkafka 2.16 may wait forever in this call, whatever its timeout is, with
any broker (confluentinc/librdkafka#5456, #5511). The broker must then respond to every request, and
to a repeated request in the same way. The next producer with the id must find a consistent state,
so that the offsets are committed once, with the records.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import confluent_kafka
import pytest

import budget
from broker_process import BrokerProcess
from broker_proxy import BrokerProxy, Cut, Exchange
from foreign_topics import create_topic
from foreign_transactions import Confluent, committed_position
from odradek_protocol.common_structs import PartitionError, TopicErrors
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.message import Message
from odradek_protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnResponse
from odradek_protocol.schemas.txn_offset_commit import TxnOffsetCommitResponse
from transactional_clients import transactional
from waiting import wait_until

END = b"end"
POSITION = 3
TIMEOUT_S = 10.0
#: The time in s after which a call is taken to hang.
PATIENCE_S = 12.0
GROUP = 0
#: The requests that the call sends. FindCoordinator is left out, because consumers that end during
#: the call also send it.
OWED = (ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT)
STEPS = (*OWED, ApiKey.FIND_COORDINATOR)


@dataclass
class Setup:
    """A broker that clients reach only through a proxy."""

    broker: BrokerProcess
    proxy: BrokerProxy

    @property
    def address(self) -> str:
        return self.proxy.address

    def kill_broker(self) -> None:
        """Kill the broker and start it again; connections are refused until it is up."""
        self.proxy.refuse()
        self.broker.kill()
        self.broker.start()
        self.proxy.resume()


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    proxy = BrokerProxy()
    broker = BrokerProcess(
        tmp_path_factory.mktemp("behind"), [f"advertised.listeners=PLAINTEXT://{proxy.address}"]
    )
    broker.start()
    proxy.port = broker.port
    yield Setup(broker, proxy)
    proxy.close()
    broker.stop()


@pytest.fixture
def once(setup: Setup) -> Iterator[Once]:
    yield Once(setup)
    setup.proxy.reset()


class Once:
    """Changes the first request of an API or its response, and forwards all other requests."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.times = 0

    def asked(self, key: ApiKey, act: Callable[[Exchange], Message | None]) -> None:
        def hook(exchange: Exchange) -> Message | None:
            return act(exchange) if self._is_first(exchange, key) else None

        self._setup.proxy.asked = hook

    def answered(self, key: ApiKey, act: Callable[[Exchange], bool]) -> None:
        def hook(exchange: Exchange) -> bool:
            return act(exchange) if self._is_first(exchange, key) else True

        self._setup.proxy.answered = hook

    def _is_first(self, exchange: Exchange, key: ApiKey) -> bool:
        if exchange.key is not key or self.times:
            return False
        if key is ApiKey.FIND_COORDINATOR and exchange.request.key_type != GROUP:
            return False
        self.times += 1
        return True


class Attempt(threading.Thread):
    """A thread that writes one record and a position in one transaction, and that may hang."""

    _names = count(1)

    def __init__(self, address: str, job: Job) -> None:
        super().__init__(name=f"attempt {next(self._names)}", daemon=True)
        self._address, self._job = address, job
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001  the test examines the error
            self.error = error

    def _write(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._address,
                "transactional.id": self._job.name,
                "socket.timeout.ms": 2000,
                "reconnect.backoff.max.ms": 200,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._address, "group.id": self._job.name, "log_level": 0}
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(self._job.target, b"one")
        assert producer.flush(TIMEOUT_S) == 0
        self._job.begin()
        producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(self._job.source, 0, POSITION)],
            consumer.consumer_group_metadata(),
            TIMEOUT_S,
        )
        producer.commit_transaction(TIMEOUT_S)
        consumer.close()


@dataclass
class Job:
    """The work to do once. `name`: the group and the transactional id."""

    name: str
    source: str
    target: str
    begin: Callable[[], Any] = lambda: None


_numbers = count(1)


def new_job(setup: Setup) -> Job:
    number = next(_numbers)
    job = Job(f"job-{number}", f"source-{number}", f"target-{number}")
    for topic in (job.source, job.target):
        create_topic(setup.address, topic)
    return job


def attempt(setup: Setup, job: Job) -> Attempt:
    """Start an attempt of the job. Returns when it has ended, or after PATIENCE_S."""
    tried = Attempt(setup.address, job)
    tried.start()
    tried.join(PATIENCE_S)
    return tried


def assert_done_once(setup: Setup, job: Job) -> None:
    """Check that the record and the position are there once, and that the broker has responded to
    every request."""
    wait_until(lambda: not setup.proxy.unanswered(OWED), "every request is answered")
    assert committed_position(setup.address, job.name, job.source) == POSITION
    client = Confluent()
    with transactional(client, setup.address, f"{job.name}-end") as producer:
        producer.begin()
        producer.send(job.target, END)
        producer.commit()
    assert client.read(setup.address, job.target, END) == [b"one", END]


def assert_done_sooner_or_later(setup: Setup, once: Once, job: Job) -> None:
    """Check that the job is done once. If the first call hangs or times out, the next producer with
    the id repeats the job."""
    tried = attempt(setup, job)
    assert once.times == 1
    if tried.is_alive() or tried.error is not None:
        assert tried.is_alive() or may_be_repeated(tried.error), tried.error
        wait_until(lambda: not setup.proxy.unanswered(OWED), "every request is answered")
        again = attempt(setup, job)
        assert not again.is_alive() and again.error is None, again.error
    assert_done_once(setup, job)


def may_be_repeated(error: BaseException | None) -> bool:
    """True if the error says only that no response came in time."""
    if not isinstance(error, confluent_kafka.KafkaException):
        return False
    told = error.args[0]
    return bool(told.retriable()) or told.code() == confluent_kafka.KafkaError._TIMED_OUT


def accepted(setup: Setup, key: ApiKey) -> list[Exchange]:
    """The requests that the broker has accepted. For FindCoordinator, these are all requests about
    groups."""
    found = [each for each in setup.proxy.of(key) if each.response_frame is not None]
    if key is ApiKey.FIND_COORDINATOR:
        return [each for each in found if each.request.key_type == GROUP]
    if key is ApiKey.ADD_OFFSETS_TO_TXN:
        return [each for each in found if not each.response.error_code]
    return [each for each in found if not each.response.topics[0].partitions[0].error_code]


# --- A request is refused or answered too late: the call succeeds in the end ---


def added(error: ErrorCode) -> Callable[[Exchange], Message]:
    return lambda _: AddOffsetsToTxnResponse(error_code=error)


def committed(error: ErrorCode) -> Callable[[Exchange], Message]:
    def answer(exchange: Exchange) -> Message:
        return TxnOffsetCommitResponse(
            topics=[
                TopicErrors(
                    name=topic.name,
                    partitions=[
                        PartitionError(partition_index=part.partition_index, error_code=error)
                        for part in topic.partitions
                    ],
                )
                for topic in exchange.request.topics
            ]
        )

    return answer


REFUSALS = [
    (ApiKey.ADD_OFFSETS_TO_TXN, added, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (ApiKey.ADD_OFFSETS_TO_TXN, added, ErrorCode.NOT_COORDINATOR),
    (ApiKey.ADD_OFFSETS_TO_TXN, added, ErrorCode.CONCURRENT_TRANSACTIONS),
    (ApiKey.TXN_OFFSET_COMMIT, committed, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (ApiKey.TXN_OFFSET_COMMIT, committed, ErrorCode.NOT_COORDINATOR),
]


@pytest.mark.full
@pytest.mark.parametrize(
    ("key", "answer", "error"),
    budget.of_which(REFUSALS, REFUSALS[-2:]),
    ids=[f"{k.name}-{e.name}" for k, _, e in REFUSALS],
)
def test_t23_t24_a_request_refused_once_is_repeated(
    setup: Setup,
    once: Once,
    key: ApiKey,
    answer: Callable[[ErrorCode], Callable[[Exchange], Message]],
    error: ErrorCode,
) -> None:
    job = new_job(setup)
    once.asked(key, answer(error))
    tried = attempt(setup, job)
    assert not tried.is_alive() and tried.error is None, tried.error
    assert once.times == 1
    assert [each.forwarded for each in setup.proxy.of(key)] == [False, True]
    assert_done_once(setup, job)


@pytest.mark.parametrize(
    "key",
    budget.of_which(
        [ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT], [ApiKey.TXN_OFFSET_COMMIT]
    ),
    ids=lambda key: key.name,
)
@pytest.mark.full
def test_t23_t24_a_request_answered_too_late_is_repeated(
    setup: Setup, once: Once, key: ApiKey
) -> None:
    """The client closes the connection after `socket.timeout.ms`, and repeats the request."""
    job = new_job(setup)
    once.answered(key, lambda _: False)
    assert_done_sooner_or_later(setup, once, job)
    assert len(accepted(setup, key)) >= 2


# --- Lost connections: the call may hang, and the broker must stay consistent ---


def cut(_: Exchange) -> Any:
    raise Cut


@pytest.mark.full
@pytest.mark.parametrize(
    "key", budget.of_which(STEPS, [ApiKey.ADD_OFFSETS_TO_TXN]), ids=lambda key: key.name
)
@pytest.mark.parametrize("lost", budget.of_which(["request", "answer"], ["answer"]))
def test_t23_t24_a_lost_connection_leaves_the_offsets_committed_once(
    setup: Setup, once: Once, key: ApiKey, lost: str
) -> None:
    job = new_job(setup)
    job.begin = lambda: once.asked(key, cut) if lost == "request" else once.answered(key, cut)
    assert_done_sooner_or_later(setup, once, job)
    if lost == "answer":
        assert len(accepted(setup, key)) >= 2


@pytest.mark.parametrize(
    "key", budget.of_which(STEPS, [ApiKey.TXN_OFFSET_COMMIT]), ids=lambda key: key.name
)
def test_t23_t24_a_broker_killed_before_its_answer_keeps_its_state(
    setup: Setup, once: Once, key: ApiKey
) -> None:
    job = new_job(setup)

    def die(_: Exchange) -> bool:
        setup.kill_broker()
        raise Cut

    job.begin = lambda: once.answered(key, die)
    assert_done_sooner_or_later(setup, once, job)
    assert len(accepted(setup, key)) >= 2
