"""Transactions of the producer over sockets: versions, lost answers, moving coordinators, and the
API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek import Consumer, Producer, sync
from odradek_client.errors import (
    Abortable,
    Closed,
    ConfigError,
    Fatal,
    GroupMovedOn,
    IllegalState,
    InvalidRecord,
    ProducerFenced,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
    TransactionTimeout,
    UnsupportedByBroker,
)
from odradek_client.structs import ConsumerGroupMetadata, PreparedTransaction, TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnResponse
from odradek_protocol.schemas.end_txn import EndTxnResponse
from odradek_protocol.schemas.find_coordinator import FindCoordinatorResponse
from odradek_protocol.schemas.init_producer_id import InitProducerIdResponse
from scripted_broker import HANG_UP, SILENCE
from scripted_transactions import TransactionBroker
from transaction_model import add_partitions_response, offset_commit_response
from waiting import until

V1_ONLY = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN}


@pytest.fixture(params=[-1, 2], ids=["v1", "v2"])
async def broker(request: Any) -> AsyncIterator[TransactionBroker]:
    async with TransactionBroker(topics={"t": 3}, level=request.param) as made:
        yield made


@pytest.fixture
async def v2() -> AsyncIterator[TransactionBroker]:
    async with TransactionBroker(topics={"t": 3}, level=2) as made:
        yield made


def producer(broker: TransactionBroker, **settings: Any) -> Producer:
    given: dict[str, Any] = {
        "bootstrap_servers": broker.address,
        "transactional_id": "id",
        "linger_ms": 0,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 20,
        "reconnect_backoff_ms": 1,
        "max_block_ms": 10_000,
    }
    return Producer(**(given | settings))


def committed(broker: TransactionBroker) -> list[bytes]:
    return sorted(v or b"" for p in range(3) for v in broker.model.committed("t", p))


# --- a run without faults -------------------------------------------------------------------------


async def test_transactions_commit_and_abort_records_and_offsets(broker: TransactionBroker) -> None:
    async with producer(broker) as made:
        await made.init_transactions()
        for number in range(3):
            await made.begin_transaction()
            for index in range(10):
                await made.send("t", b"%d-%d" % (number, index), partition=index % 3)
            await made.send_offsets_to_transaction(
                {TopicPartition("in", 0): 10 * number}, ConsumerGroupMetadata("g")
            )
            if number == 1:
                await made.abort_transaction()
            else:
                await made.commit_transaction()
    assert committed(broker) == sorted(b"%d-%d" % (n, i) for n in (0, 2) for i in range(10))
    assert broker.model.offsets == {("g", "in", 0): 20}
    asked = {key for key, _, _ in broker.requests}
    assert (asked & V1_ONLY) == (V1_ONLY if broker.level < 2 else set()), "T-60"


async def test_t60_request_versions_belong_to_the_transaction_version(
    broker: TransactionBroker,
) -> None:
    async with producer(broker) as made:
        await made.init_transactions()
        async with made.transaction():
            await made.send("t", b"x")
            await made.send_offsets_to_transaction({("in", 0): 1}, "g")
    versions = {key: version for key, version, _ in broker.requests}
    if broker.level == 2:
        assert versions[ApiKey.PRODUCE] == APIS[ApiKey.PRODUCE].versions.last
        assert (versions[ApiKey.END_TXN], versions[ApiKey.TXN_OFFSET_COMMIT]) == (5, 5)
    else:
        assert versions[ApiKey.PRODUCE] == 11
        assert (versions[ApiKey.END_TXN], versions[ApiKey.TXN_OFFSET_COMMIT]) == (4, 4)
        assert versions[ApiKey.ADD_PARTITIONS_TO_TXN] == 3
    keys = [request.key_type for request in broker.received(ApiKey.FIND_COORDINATOR)]
    assert sorted(keys) == [0, 1], "the group's and the transaction's, each once (C-33)"


@pytest.mark.parametrize("version", range(5))
async def test_transactions_work_with_every_request_version(version: int) -> None:
    """An old broker has old versions of all transactional requests."""
    limits: dict[ApiKey, Any] = {
        key: (0, min(version, APIS[key].versions.last))
        for key in (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.INIT_PRODUCER_ID,
        )
    }
    limits[ApiKey.FIND_COORDINATOR] = (0, max(version, 1))
    async with TransactionBroker(topics={"t": 3}, versions=limits) as broker:
        async with producer(broker) as made:
            await made.init_transactions()
            for value in (b"a", b"b"):
                async with made.transaction():
                    await made.send("t", value, partition=0)
                    await made.send_offsets_to_transaction({("in", 0): 1}, "g")
        assert committed(broker) == [b"a", b"b"]


async def test_c70_a_negative_feature_epoch_is_ignored() -> None:
    async with TransactionBroker(topics={"t": 1}, level=2) as broker:
        broker.features_epoch = -1
        async with producer(broker) as made:
            await made.init_transactions()
            async with made.transaction():
                await made.send("t", b"x")
        assert broker.received(ApiKey.ADD_PARTITIONS_TO_TXN)


# --- faults ---------------------------------------------------------------------------------------

ASKED_IN = {
    -1: [
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.PRODUCE,
        ApiKey.END_TXN,
    ],
    2: [ApiKey.INIT_PRODUCER_ID, ApiKey.TXN_OFFSET_COMMIT, ApiKey.PRODUCE, ApiKey.END_TXN],
}


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize(
    ("level", "key"), [(level, key) for level, keys in ASKED_IN.items() for key in keys]
)
async def test_t65_c33_every_lost_answer_is_recovered_from(
    level: int, key: ApiKey, carried_out: bool
) -> None:
    async with TransactionBroker(topics={"t": 3}, level=level) as broker:
        async with producer(broker) as made:
            for _ in range(2):
                if carried_out:
                    broker.after(key, HANG_UP)
                else:
                    broker.on(key, HANG_UP)
            await made.init_transactions()
            for value in (b"a", b"b"):
                async with made.transaction():
                    await made.send("t", value, partition=1)
                    await made.send_offsets_to_transaction({("in", 0): ord(value)}, "g")
        assert committed(broker) == [b"a", b"b"]
        assert broker.model.offsets == {("g", "in", 0): ord("b")}
        assert broker.model.decisions == [("id", True), ("id", True)]


async def test_c33_n16_a_request_to_a_silent_coordinator_is_repeated(v2: TransactionBroker) -> None:
    async with producer(v2, request_timeout_ms=150, delivery_timeout_ms=10_000) as made:
        await made.init_transactions()
        v2.on(ApiKey.END_TXN, SILENCE)
        async with made.transaction():
            await made.send("t", b"x")
    assert committed(v2) == [b"x"]


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
async def test_c33_c68_a_transaction_follows_a_moved_coordinator(
    v2: TransactionBroker, code: ErrorCode
) -> None:
    async with TransactionBroker(2, topics={"t": 3}, level=2) as other:
        other.model = v2.model
        v2.peers = other.peers = [v2, other]
        async with producer(v2) as made:
            await made.init_transactions()
            v2.coordinator = other.coordinator = other
            v2.always(ApiKey.END_TXN, lambda *_: EndTxnResponse(error_code=code))
            async with made.transaction():
                await made.send("t", b"x", partition=0)
        assert len(other.received(ApiKey.END_TXN)) == 1
    assert committed(v2) == [b"x"]


async def test_c68_find_coordinator_is_retried_and_may_be_refused(
    v2: TransactionBroker,
) -> None:
    def refused(code: ErrorCode) -> Any:
        def answer(request: Any, version: int) -> Any:
            found = FindCoordinatorResponse()
            found = TransactionBroker._find_coordinator(v2, request, version)
            for each in found.coordinators:
                each.error_code = code
            return found

        return answer

    v2.on(
        ApiKey.FIND_COORDINATOR,
        refused(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    )
    async with producer(v2) as made:
        with pytest.raises(TransactionalIdAuthorizationFailed):
            await made.init_transactions()
        await made.init_transactions()


async def test_c66_c64_a_producer_works_on_after_aborting_a_refused_record(
    broker: TransactionBroker,
) -> None:
    async with producer(broker) as made:
        await made.init_transactions()
        await made.begin_transaction()
        await made.send_and_wait("t", b"0", partition=0)
        broker.on(
            ApiKey.PRODUCE,
            lambda request, _: broker.produce(request, {0: ErrorCode.INVALID_RECORD}),
        )
        delivery = await made.send("t", b"bad", partition=0)
        with pytest.raises(InvalidRecord):
            await delivery
        with pytest.raises(TransactionAborted, match="abort_transaction"):
            await made.send("t", b"more")
        with pytest.raises(TransactionAborted, match="abort_transaction"):
            made.send_nowait("t", b"more")
        with pytest.raises(TransactionAborted, match="abort_transaction"):
            await made.commit_transaction()
        await made.abort_transaction()
        async with made.transaction():
            await made.send("t", b"good", partition=0)
    assert committed(broker) == [b"good"]
    epochs = {epoch for _, epoch, _, _ in broker.log("t", 0).batches}
    assert epochs == {0, 1}, "v1 bumps by InitProducerId (C-66), v2 by EndTxn (C-65)"


async def test_c51_invalid_producer_epoch_of_produce_is_abortable(
    broker: TransactionBroker,
) -> None:
    async with producer(broker) as made:
        await made.init_transactions()
        broker.on(
            ApiKey.PRODUCE,
            lambda request, _: broker.produce(
                request, dict.fromkeys(range(3), ErrorCode.INVALID_PRODUCER_EPOCH)
            ),
        )
        with pytest.raises(Abortable):
            async with made.transaction():
                await made.send("t", b"x")
        async with made.transaction():
            await made.send("t", b"y")
    assert committed(broker) == [b"y"]


async def test_t56_a_second_instance_fences_the_first(broker: TransactionBroker) -> None:
    async with producer(broker) as first, producer(broker) as second:
        await first.init_transactions()
        await first.begin_transaction()
        await first.send_and_wait("t", b"lost", partition=0)
        await second.init_transactions()
        with pytest.raises(ProducerFenced, match=r"close it and start a new one") as told:
            await first.commit_transaction()
        assert isinstance(told.value, Fatal)
        with pytest.raises(ProducerFenced):
            await first.begin_transaction()
        async with second.transaction():
            await second.send("t", b"kept", partition=0)
    assert committed(broker) == [b"kept"]


async def test_t59_init_transactions_waits_until_the_old_transaction_is_aborted(
    broker: TransactionBroker,
) -> None:
    broker.model.prompt = False
    async with producer(broker) as first:
        await first.init_transactions()
        await first.begin_transaction()
        await first.send_and_wait("t", b"left", partition=0)
        async with producer(broker) as second:
            waiting = asyncio.ensure_future(second.init_transactions())
            await until(lambda: len(broker.received(ApiKey.INIT_PRODUCER_ID)) >= 4)
            assert not waiting.done()
            broker.model.finish()
            await waiting
            broker.model.prompt = True
        broker.hang_up()
    assert broker.model.decisions[0] == ("id", False)


async def test_c68_a_transaction_of_an_older_group_generation_is_aborted(
    broker: TransactionBroker,
) -> None:
    async with producer(broker) as made:
        await made.init_transactions()
        broker.on(
            ApiKey.TXN_OFFSET_COMMIT,
            lambda request, _: offset_commit_response(request, ErrorCode.ILLEGAL_GENERATION),
        )
        with pytest.raises(GroupMovedOn, match="poll again"):
            async with made.transaction():
                await made.send("t", b"x")
                await made.send_offsets_to_transaction(
                    {("in", 0): 1}, ConsumerGroupMetadata("g", 3, "member")
                )
        async with made.transaction():
            await made.send("t", b"y")
    assert committed(broker) == [b"y"]


async def test_a_broker_without_transactions_is_an_error() -> None:
    versions: dict[ApiKey, Any] = {ApiKey.FIND_COORDINATOR: (0, 0)}
    async with TransactionBroker(versions=versions) as broker, producer(broker) as made:
        with pytest.raises(UnsupportedByBroker, match="too old for transactions"):
            await made.init_transactions()


async def test_t60_a_leader_without_v2_gets_no_v1_request_instead() -> None:
    versions: dict[ApiKey, Any] = {ApiKey.PRODUCE: (3, 11)}
    async with TransactionBroker(topics={"t": 1}, level=2, versions=versions) as broker:
        async with producer(broker) as made:
            await made.init_transactions()
            with pytest.raises(UnsupportedByBroker, match="upgrade"):
                async with made.transaction():
                    await made.send("t", b"x")
        assert not broker.received(ApiKey.PRODUCE)


# --- C-67: timeouts -------------------------------------------------------------------------------


@pytest.mark.full
async def test_c67_a_commit_that_times_out_may_be_waited_for_again(v2: TransactionBroker) -> None:
    late: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def slow(request: Any, version: int) -> Any:
        await late
        return v2.model.end(request, version)

    async with producer(v2) as made:
        await made.init_transactions()
        await made.begin_transaction()
        await made.send("t", b"x")
        await made.flush()
        v2.on(ApiKey.END_TXN, slow)
        object.__setattr__(made.config, "max_block_ms", 50)
        with pytest.raises(TransactionTimeout, match=r"call commit_transaction\(\) again"):
            await made.commit_transaction()
        for call in (made.abort_transaction, made.begin_transaction):
            with pytest.raises(IllegalState, match="commit_transaction"):
                await call()
        object.__setattr__(made.config, "max_block_ms", 10_000)
        late.set_result(None)
        await made.commit_transaction()
        async with made.transaction():
            await made.send("t", b"y")
    assert committed(v2) == [b"x", b"y"]


@pytest.mark.full
async def test_c67_the_transaction_block_does_not_abort_a_doubtful_commit(
    v2: TransactionBroker,
) -> None:
    async with producer(v2, max_block_ms=5_000) as made:
        await made.init_transactions()
        v2.on(ApiKey.END_TXN, SILENCE)
        with pytest.raises(TransactionTimeout):
            async with made.transaction():
                await made.send("t", b"x")
                await made.flush()
                object.__setattr__(made.config, "max_block_ms", 50)
        v2.hang_up()
        object.__setattr__(made.config, "max_block_ms", 10_000)
        await made.commit_transaction()
    assert committed(v2) == [b"x"]


async def test_c67_a_cancelled_commit_continues(v2: TransactionBroker) -> None:
    async with producer(v2) as made:
        await made.init_transactions()
        await made.begin_transaction()
        await made.send("t", b"x")
        commit = asyncio.ensure_future(made.commit_transaction())
        await asyncio.sleep(0)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        await made.commit_transaction()
    assert committed(v2) == [b"x"]


# --- the API --------------------------------------------------------------------------------------


async def test_the_transaction_block_aborts_on_an_exception(broker: TransactionBroker) -> None:
    async with producer(broker) as made:
        await made.init_transactions()
        with pytest.raises(ZeroDivisionError):
            async with made.transaction():
                await made.send_and_wait("t", b"x")
                raise ZeroDivisionError
        with pytest.raises(asyncio.CancelledError):
            async with made.transaction():
                await made.send("t", b"y")
                raise asyncio.CancelledError
        async with made.transaction() as same:
            assert same is made
            await made.send("t", b"z")
    assert committed(broker) == [b"z"]


async def test_c34_close_aborts_an_open_transaction(broker: TransactionBroker) -> None:
    async with producer(broker) as made:
        await made.init_transactions()
        await made.begin_transaction()
        delivery = await made.send("t", b"x")
    assert delivery.done()
    assert broker.model.decisions == [("id", False)]


@pytest.mark.full
async def test_c34_close_ends_without_an_answer_of_the_coordinator(v2: TransactionBroker) -> None:
    made = producer(v2, max_block_ms=5_000)
    await made.start()
    await made.init_transactions()
    await made.begin_transaction()
    await made.send_and_wait("t", b"x")
    v2.always(ApiKey.END_TXN, lambda *_: SILENCE)
    object.__setattr__(made.config, "max_block_ms", 50)
    await made.close()
    with pytest.raises(Closed):
        await made.begin_transaction()


async def test_c61_calls_in_the_wrong_order_are_errors(v2: TransactionBroker) -> None:
    async with producer(v2) as made:
        with pytest.raises(IllegalState, match=r"call init_transactions\(\) first"):
            await made.begin_transaction()
        with pytest.raises(IllegalState, match=r"call init_transactions\(\) first"):
            await made.send("t", b"x")
        await made.init_transactions()
        with pytest.raises(IllegalState, match=r"call begin_transaction\(\) first"):
            await made.send("t", b"x")
        with pytest.raises(IllegalState, match=r"call begin_transaction\(\) first"):
            await made.commit_transaction()
        with pytest.raises(IllegalState, match=r"call begin_transaction\(\) first"):
            await made.send_offsets_to_transaction({("t", 0): 1}, "g")
        await made.begin_transaction()
        with pytest.raises(ValueError, match="group"):
            await made.send_offsets_to_transaction({("t", 0): 1}, "")
        with pytest.raises(IllegalState, match="a transaction is open"):
            await made.begin_transaction()
        await made.send_offsets_to_transaction({}, "g")
        await made.abort_transaction()
        with pytest.raises(IllegalState, match=r"call begin_transaction\(\) first"):
            await made.send("t", b"x")


async def test_transaction_calls_need_a_transactional_id(v2: TransactionBroker) -> None:
    async with producer(v2, transactional_id=None) as made:
        for call in (made.init_transactions, made.begin_transaction, made.commit_transaction):
            with pytest.raises(IllegalState, match="set transactional_id"):
                await call()
    with pytest.raises(Closed, match="not started"):
        await producer(v2).init_transactions()


async def test_a_record_that_waited_for_memory_is_not_sent_in_the_next_transaction(
    v2: TransactionBroker,
) -> None:
    async with producer(v2, buffer_memory=20_000, batch_size=16_000) as made:
        await made.init_transactions()
        await made.begin_transaction()
        await made.send_and_wait("t", b"first", partition=0)
        v2.on(ApiKey.PRODUCE, SILENCE)
        await made.send("t", b"x" * 12_000, partition=0)
        waiting = asyncio.ensure_future(made.send("t", b"y" * 12_000, partition=1))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        abort = asyncio.ensure_future(made.abort_transaction())
        await asyncio.sleep(0.01)
        v2.hang_up()
        await abort
        await made.begin_transaction()
        with pytest.raises(IllegalState):
            await waiting
        await made.send("t", b"z", partition=1)
        await made.commit_transaction()
    assert committed(v2) == [b"z"]


def test_c02_wrong_transaction_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="empty"):
        Producer(transactional_id="")
    with pytest.raises(ConfigError, match="needs a transactional_id"):
        Producer(transaction_two_phase_commit_enable=True)
    with pytest.raises(ConfigError, match="leave one of them out"):
        Producer(
            transactional_id="x",
            transaction_two_phase_commit_enable=True,
            transaction_timeout_ms=5,
        )
    with pytest.raises(ConfigError, match="idempotence"):
        Producer(transactional_id="x", acks=1)


async def test_group_metadata_needs_a_group_id(v2: TransactionBroker) -> None:
    async with Consumer(bootstrap_servers=v2.address, group_id="g") as consumer:
        assert consumer.group_metadata() == ConsumerGroupMetadata("g")
    async with Consumer(bootstrap_servers=v2.address) as consumer:
        with pytest.raises(IllegalState, match="group_id"):
            consumer.group_metadata()


async def test_kip939_one_process_prepares_and_another_commits(v2: TransactionBroker) -> None:
    v2._versions[ApiKey.INIT_PRODUCER_ID] = (0, 6)
    two_phase = {"transaction_two_phase_commit_enable": True}
    async with producer(v2, **two_phase) as made:
        await made.init_transactions()
        await made.begin_transaction()
        for index in range(20):
            await made.send("t", b"%d" % index, partition=index % 3)
        prepared = await made.prepare_transaction()
        with pytest.raises(IllegalState, match="prepared"):
            await made.send("t", b"late")
    assert v2.model.decisions == [], "closing leaves it open"
    assert v2.received(ApiKey.INIT_PRODUCER_ID)[-1].enable2_pc
    handed_over = PreparedTransaction._make(tuple(prepared))
    assert (handed_over.transactional_id, handed_over.transaction_version) == ("id", 2)
    for attempt in range(2):
        async with producer(v2, **two_phase) as other:
            await other.resume_transaction(handed_over)
            if attempt == 0:
                v2.after(ApiKey.END_TXN, HANG_UP)
            await other.commit_transaction()
    assert len(committed(v2)) == 20
    assert v2.model.decisions == [("id", True)]


def test_the_blocking_producer_runs_transactions(v2_address: str) -> None:
    with sync.Producer(bootstrap_servers=v2_address, transactional_id="id", linger_ms=0) as made:
        made.init_transactions()
        with made.transaction():
            made.send("t", b"x")
        with pytest.raises(KeyError), made.transaction():
            made.send("t", b"y")
            raise KeyError
        made.begin_transaction()
        made.send("t", b"z")
        made.send_offsets_to_transaction({("in", 0): 4}, "g")
        made.commit_transaction()


@pytest.fixture
def v2_address() -> Any:
    """The address of a scripted broker whose event loop runs in another thread."""
    import threading

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    broker = TransactionBroker(topics={"t": 3}, level=2)
    asyncio.run_coroutine_threadsafe(broker.start(), loop).result(10)
    yield broker.address
    asyncio.run_coroutine_threadsafe(broker.stop(), loop).result(10)
    assert committed(broker) == [b"x", b"z"]
    assert broker.model.offsets == {("g", "in", 0): 4}
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


async def test_c68_a_right_lost_during_a_transaction_is_fatal(broker: TransactionBroker) -> None:
    async with producer(broker) as made:
        await made.init_transactions()
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        broker.on(ApiKey.END_TXN, EndTxnResponse(error_code=refused))
        with pytest.raises(TransactionalIdAuthorizationFailed, match="close it"):
            async with made.transaction():
                await made.send("t", b"x")


async def test_c62_c68_refused_partitions_and_groups_are_abortable_in_v1() -> None:
    async with TransactionBroker(topics={"t": 3}) as broker, producer(broker) as made:
        await made.init_transactions()
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        broker.on(ApiKey.ADD_PARTITIONS_TO_TXN, lambda r, _: add_partitions_response(r, denied))
        with pytest.raises(Abortable, match="t-0"):
            async with made.transaction():
                await made.send("t", b"x", partition=0)
        broker.on(
            ApiKey.ADD_OFFSETS_TO_TXN,
            AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
        )
        with pytest.raises(Abortable, match="group 'g'"):
            async with made.transaction():
                await made.send_offsets_to_transaction({("in", 0): 1}, "g")
        async with made.transaction():
            await made.send("t", b"y", partition=0)
        assert committed(broker) == [b"y"]


async def test_c66_t15_a_producer_is_fenced_during_an_epoch_bump() -> None:
    async with TransactionBroker(topics={"t": 3}) as broker, producer(broker) as made:
        await made.init_transactions()
        broker.on(
            ApiKey.PRODUCE,
            lambda r, _: broker.produce(r, dict.fromkeys(range(3), ErrorCode.INVALID_RECORD)),
        )
        await made.begin_transaction()
        await made.send("t", b"x")
        await made.flush()
        fenced = InitProducerIdResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        broker.on(ApiKey.INIT_PRODUCER_ID, fenced)
        with pytest.raises(ProducerFenced):
            await made.abort_transaction()
