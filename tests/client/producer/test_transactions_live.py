"""Transactions against real brokers: Odradek (version 2), and the mock cluster of librdkafka
(version 1)."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from odradek import Admin, Consumer, NewTopic, PreparedTransaction, Producer
from odradek.broker import SubprocessBroker
from odradek_client.config.producer import ProducerConfig
from odradek_client.consumer.group.classic_loop import ClassicGroupLoop
from odradek_client.errors import (
    Abortable,
    Fatal,
    GroupMovedOn,
    IllegalState,
    InvalidProducerEpoch,
    OdradekError,
    ProducerFenced,
    Refused,
    TransactionAborted,
    UnsupportedByBroker,
)
from odradek_client.network.client import NetworkClient
from odradek_client.producer.producer import producer_on_network
from odradek_protocol.schemas.leave_group import LeaveGroupRequest
from odradek_protocol.schemas.produce import TRANSACTIONS_V2_SINCE
from waiting import until

_numbers = itertools.count()


@pytest.fixture
def ours(live_bootstrap: str) -> str:
    return live_bootstrap


def producer(bootstrap: str, transactional_id: str = "", **settings: Any) -> Producer:
    name = transactional_id or f"live-{next(_numbers)}"
    return Producer(bootstrap_servers=bootstrap, transactional_id=name, linger_ms=1, **settings)


async def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The values that a consumer of committed records reads, until there are `count` or more."""
    found: list[bytes] = []
    async with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        for _ in range(200):
            found += [record.value for record in await consumer.poll(50)]
            if len(found) >= count:
                break
        found += [record.value for record in await consumer.poll(50)]
    return found


async def test_transactions_v1_work_with_the_mock_cluster_of_librdkafka(mock: str) -> None:
    """The mock checks nothing: the test is that it accepts every request."""
    async with producer(mock) as made:
        await made.init_transactions()
        manager = made.transaction_manager
        assert manager is not None and not manager.is_v2
        for number in range(3):
            async with made.transaction():
                deliveries = [
                    await made.send("mocked", b"%d" % number, partition=p) for p in range(4)
                ]
                await made.send_offsets_to_transaction({("mocked", 0): number}, "g")
            assert all(delivery.result().offset >= 0 for delivery in deliveries)
        with pytest.raises(ZeroDivisionError):
            async with made.transaction():
                await made.send_and_wait("mocked", b"x")
                raise ZeroDivisionError
        epoch = manager.identity.epoch
        async with made.transaction():
            await made.send("mocked", b"y")
        assert manager.identity.epoch == epoch, "C-65"


async def test_c65_v2_transactions_commit_and_abort(ours: str, unique_topic: str) -> None:
    async with producer(ours) as made:
        await made.init_transactions()
        manager = made.transaction_manager
        assert manager is not None and manager.is_v2
        expected = []
        for number in range(12):
            values = [b"%d-%d" % (number, index) for index in range(20)]
            await made.begin_transaction()
            for value in values:
                await made.send(unique_topic, value)
            if number % 3 == 0:
                await made.abort_transaction()
            else:
                await made.commit_transaction()
                expected += values
        assert manager.identity.epoch >= 8, (
            "the next epoch with every end that had something to end"
        )
    assert await read(ours, unique_topic, len(expected)) == expected


async def test_t60_v1_transactions_work_with_odradek(
    ours: str, unique_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that ignores the broker's features uses version 1 of transactions."""
    monkeypatch.setattr("odradek_client.network.client.NetworkClient.feature_level", lambda *_: 0)
    async with producer(ours) as made:
        await made.init_transactions()
        manager = made.transaction_manager
        assert manager is not None and not manager.is_v2
        assert made._sender is not None
        assert made._sender.version_limit([]) == TRANSACTIONS_V2_SINCE - 1
        for number in range(5):
            await made.begin_transaction()
            await made.send(unique_topic, b"%d" % number, partition=0)
            await made.send_offsets_to_transaction({(unique_topic, 0): number}, f"g-{unique_topic}")
            if number % 2:
                await made.abort_transaction()
            else:
                await made.commit_transaction()
        # In version 1 only a failure leads to a new epoch (C-66).
        epoch = manager.identity.epoch
        await made.begin_transaction()
        await made.send_and_wait(unique_topic, b"x", partition=0)
        manager.batch_failed(TransactionAborted("as if"))
        with pytest.raises(Abortable):
            await made.commit_transaction()
        await made.abort_transaction()
        assert manager.identity.epoch > epoch
        async with made.transaction():
            await made.send(unique_topic, b"5", partition=0)
    assert await read(ours, unique_topic, 4) == [b"0", b"2", b"4", b"5"]


async def test_c70_a_producer_changes_between_v1_and_v2_on_a_live_broker(
    ours: str, unique_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = 0
    monkeypatch.setattr(
        "odradek_client.network.client.NetworkClient.feature_level", lambda *_: level
    )
    async with producer(ours) as made:
        await made.init_transactions()
        manager = made.transaction_manager
        assert manager is not None
        for number in range(8):
            if number == 3:
                level = 2
            if number == 6:
                level = 1
            async with made.transaction():
                await made.send(unique_topic, b"%d" % number, partition=0)
                await made.flush()
        assert not manager.is_v2
    assert await read(ours, unique_topic, 8) == [b"%d" % number for number in range(8)]


async def test_t56_an_older_producer_instance_is_fenced(ours: str, unique_topic: str) -> None:
    async with producer(ours, unique_topic) as old, producer(ours, unique_topic) as new:
        await old.init_transactions()
        await old.begin_transaction()
        await old.send_and_wait(unique_topic, b"zombie")
        await new.init_transactions()
        with pytest.raises(OdradekError) as refused:
            await old.send_and_wait(unique_topic, b"zombie")
            await old.commit_transaction()
        if isinstance(refused.value, Abortable):
            with pytest.raises(Fatal):
                await old.abort_transaction()
        with pytest.raises(ProducerFenced):
            await old.begin_transaction()
        async with new.transaction():
            await new.send(unique_topic, b"kept")
    assert await read(ours, unique_topic, 1) == [b"kept"]


async def test_kip447_a_group_consumes_transforms_and_produces_exactly_once(
    ours: str, unique_topic: str
) -> None:
    out = f"{unique_topic}-out"
    async with Admin(bootstrap_servers=ours) as admin:
        await admin.create_topics([NewTopic(unique_topic, 2), NewTopic(out, 2)])
    async with Producer(bootstrap_servers=ours) as plain:
        for index in range(200):
            await plain.send(unique_topic, b"%03d" % index, partition=index % 2)
    group = f"g-{unique_topic}"
    done = 0
    async with producer(ours) as made:
        await made.init_transactions()
        async with Consumer(
            unique_topic,
            bootstrap_servers=ours,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            while done < 200:
                records = await consumer.getmany(timeout_ms=200, max_records=30)
                if not records:
                    continue
                async with made.transaction():
                    for tp, batch in records.items():
                        for record in batch:
                            await made.send(out, record.value, partition=tp.partition)
                    offsets = {tp: batch[-1].offset + 1 for tp, batch in records.items()}
                    await made.send_offsets_to_transaction(offsets, consumer.group_metadata())
                done += sum(map(len, records.values()))
            member = consumer.group_metadata()
            assert member.group_id == group and member.generation_id >= 1 and member.member_id
            with pytest.raises(GroupMovedOn):
                async with made.transaction():
                    await made.send(out, b"not this one")
                    await made.send_offsets_to_transaction(
                        {(unique_topic, 0): 0}, member._replace(generation_id=999)
                    )
            for partition in range(2):
                committed = await consumer.committed((unique_topic, partition))
                assert committed is not None and committed.offset == 100
    assert sorted(await read(ours, out, 200)) == [b"%03d" % index for index in range(200)]


async def test_kip447_a_removed_member_keeps_its_identity(ours: str, unique_topic: str) -> None:
    """Without the identity, the coordinator would take the commit for that of a client outside of
    the group (O-05)."""
    group = f"g-{unique_topic}"
    async with Admin(bootstrap_servers=ours) as admin:
        await admin.create_topics([NewTopic(unique_topic, 1)])
    async with producer(ours) as made:
        await made.init_transactions()
        async with made.transaction():
            await made.send(unique_topic, b"record")
        async with Consumer(
            unique_topic,
            bootstrap_servers=ours,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=20,
        ) as consumer:
            while not await consumer.poll(200):
                pass
            member = consumer.group_metadata()
            network, loop = consumer.network, consumer._group
            assert isinstance(loop, ClassicGroupLoop)
            evict = LeaveGroupRequest(group_id=group, member_id=member.member_id)
            node_id = await network.find_coordinator(group)
            await network.send(node_id, evict, channel="coordinator", max_version=2)
            async with asyncio.timeout(20):
                while loop.membership.member_id:  # noqa: ASYNC110  until a heartbeat is refused
                    await asyncio.sleep(0.005)
            assert consumer.group_metadata() == member
            with pytest.raises(GroupMovedOn):
                async with made.transaction():
                    await made.send_offsets_to_transaction(
                        {(unique_topic, 0): 1}, consumer.group_metadata()
                    )
            assert await consumer.committed((unique_topic, 0)) is None


async def test_an_admin_lists_describes_and_aborts_transactions(
    ours: str, unique_topic: str
) -> None:
    async with producer(ours, unique_topic) as made, Admin(bootstrap_servers=ours) as admin:
        await made.init_transactions()
        long_open = [
            each.transactional_id for each in await admin.list_transactions(longer_than_ms=0)
        ]
        assert unique_topic not in long_open, "an id without a transaction"
        await made.begin_transaction()
        await made.send_and_wait(unique_topic, b"x", partition=0)
        await asyncio.sleep(0.002)
        long_open = [
            each.transactional_id for each in await admin.list_transactions(longer_than_ms=0)
        ]
        assert unique_topic in long_open
        listed = {each.transactional_id: each for each in await admin.list_transactions()}
        assert listed[unique_topic].state == "Ongoing"
        ongoing = await admin.list_transactions(states=["Ongoing"])
        assert unique_topic in {each.transactional_id for each in ongoing}
        described = (await admin.describe_transactions(unique_topic))[unique_topic]
        assert made.transaction_manager is not None
        assert (described.producer_id, described.epoch) == tuple(made.transaction_manager.identity)
        assert described.partitions == [(unique_topic, 0)] and described.start_ms is not None
        ((seen,),) = (await admin.describe_producers([(unique_topic, 0)])).values()
        assert (seen.producer_id, seen.transaction_start_offset) == (described.producer_id, 0)
        assert (await admin.abort_transaction(unique_topic)).is_open
        with pytest.raises(Refused, match="no open transaction"):
            await admin.abort_transaction(unique_topic)
        with pytest.raises(Refused, match="no such transactional id"):
            await admin.abort_transaction("nobody")
        with pytest.raises(Refused, match="Nonsense"):
            await admin.list_transactions(states=["Nonsense"])
        with pytest.raises(ProducerFenced):
            await made.commit_transaction()
        with pytest.raises(Refused, match="no open transaction that began at offset 0"):
            await admin.abort_hanging_transaction((unique_topic, 0), 0)


@pytest.mark.full
async def test_an_admin_fences_a_producer_without_a_transaction(
    ours: str, unique_topic: str
) -> None:
    async with producer(ours, unique_topic) as made, Admin(bootstrap_servers=ours) as admin:
        await made.init_transactions()
        with pytest.raises(Refused, match="no open transaction"):
            await admin.abort_transaction(unique_topic)
        await admin.fence_producer(unique_topic)
        await made.begin_transaction()
        with pytest.raises(InvalidProducerEpoch):
            await made.send_and_wait(unique_topic, b"late", partition=0)
        described = (await admin.describe_transactions(unique_topic))[unique_topic]
        assert described.state == "Empty"


async def test_t44_a_hanging_transaction_is_aborted_at_its_partition(
    ours: str, unique_topic: str
) -> None:
    async with producer(ours) as made, Admin(bootstrap_servers=ours) as admin:
        await made.init_transactions()
        await made.begin_transaction()
        await made.send_and_wait(unique_topic, b"hangs", partition=0)
        async with Producer(bootstrap_servers=ours) as plain:
            await plain.send_and_wait(unique_topic, b"behind", partition=0)
        place = (unique_topic, 0)
        planned = await admin.abort_hanging_transaction(place, 0, validate_only=True)
        aborted = await admin.abort_hanging_transaction(place, 0)
        assert aborted == planned, "the plan has written nothing"
        assert made.transaction_manager is not None
        assert aborted.producer_id == made.transaction_manager.identity.producer_id
        assert await read(ours, unique_topic, 1) == [b"behind"]
        assert await admin.abort_transaction(made.config.transactional_id or "")


async def test_kip939_a_prepared_transaction_is_committed_by_another_producer(
    ours: str, unique_topic: str
) -> None:
    two_phase: dict[str, Any] = {"transaction_two_phase_commit_enable": True}
    async with producer(ours, unique_topic, **two_phase) as made:
        await made.init_transactions()
        await made.begin_transaction()
        for index in range(10):
            await made.send(unique_topic, b"%d" % index, partition=0)
        prepared = tuple(await made.prepare_transaction())
    for _ in range(2):
        async with producer(ours, unique_topic, **two_phase) as other:
            await other.resume_transaction(PreparedTransaction._make(prepared))
            await other.commit_transaction()
    async with producer(ours, unique_topic, **two_phase) as other:
        await other.resume_transaction(PreparedTransaction._make(prepared))
        with pytest.raises(Fatal):
            await other.abort_transaction()
    assert await read(ours, unique_topic, 10) == [b"%d" % index for index in range(10)]


@pytest.mark.own_broker
async def test_kip939_a_broker_may_have_two_phase_commit_switched_off(
    tmp_path: Path, unique_topic: str
) -> None:
    off = {"transaction.two.phase.commit.enable": "false"}
    with SubprocessBroker(data_dir=tmp_path, settings=off) as broker:
        settings: dict[str, Any] = {"transaction_two_phase_commit_enable": True}
        async with producer(broker.bootstrap, unique_topic, **settings) as made:
            with pytest.raises(
                UnsupportedByBroker,
                match=r"InitProducerId up to version 5.*unstable\.api\.versions",
            ):
                await made.init_transactions()
        async with producer(broker.bootstrap, unique_topic) as made:
            await made.init_transactions()


async def test_c69_a_consumer_may_see_a_part_of_a_transaction(ours: str, unique_topic: str) -> None:
    """All records are committed at the same time; a consumer can read any part of them."""
    async with Admin(bootstrap_servers=ours) as admin:
        await admin.create_topics([NewTopic(unique_topic, 2)])
    async with producer(ours) as made:
        await made.init_transactions()
        async with made.transaction():
            for number in range(4):
                await made.send(unique_topic, b"%d" % number, partition=0)
                await made.send(unique_topic, b"elsewhere", partition=1)
    async with Consumer(bootstrap_servers=ours, isolation_level="read_committed") as consumer:
        consumer.assign([(unique_topic, 0)])
        consumer.seek((unique_topic, 0), 2)
        found = [bytes((await consumer.getone()).value) for _ in range(2)]
    assert found == [b"2", b"3"]


@pytest.mark.full
async def test_t50_transactions_survive_a_killed_broker(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    bootstrap = odradek_broker.bootstrap
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(unique_topic, 2)])
    expected: list[bytes] = []
    async with producer(bootstrap, max_block_ms=30_000) as made:
        await made.init_transactions()

        async def work() -> None:
            for number in range(60):
                values = [b"%d-%d" % (number, index) for index in range(10)]
                try:
                    async with made.transaction():
                        for value in values:
                            await made.send(unique_topic, value, partition=number % 2)
                except Abortable:
                    continue
                expected.extend(values)

        working = asyncio.ensure_future(work())
        for stage in (20, 200, 400):

            def reached(stage: int = stage) -> bool:
                return len(expected) >= stage or working.done()

            await until(reached, 60)
            odradek_broker.kill()
            odradek_broker.start()
        await working
    assert len(expected) > 400
    found = await read(bootstrap, unique_topic, len(expected))
    assert sorted(found) == sorted(expected)


async def test_t77_an_admin_ends_prepared_transactions(ours: str, unique_topic: str) -> None:
    """`end_transaction` needs no producer, and can be repeated with the same decision."""
    two_phase: dict[str, Any] = {"transaction_two_phase_commit_enable": True}
    prepared = []
    for name in ("committed", "aborted"):
        async with producer(ours, f"{unique_topic}-{name}", **two_phase) as made:
            await made.init_transactions()
            await made.begin_transaction()
            await made.send(unique_topic, name.encode(), partition=0)
            prepared.append(await made.prepare_transaction())
    async with Admin(bootstrap_servers=ours) as admin:
        for _ in range(2):
            await admin.end_transaction(prepared[0], commit=True)
            await admin.end_transaction(prepared[1], commit=False)
        with pytest.raises((ProducerFenced, TransactionAborted)):
            await admin.end_transaction(prepared[0], commit=False)
        with pytest.raises((ProducerFenced, TransactionAborted)):
            await admin.end_transaction(prepared[1], commit=True)
    assert await read(ours, unique_topic, 1) == [b"committed"]


async def test_a_transaction_with_a_timeout_may_be_prepared_if_allowed(
    ours: str, unique_topic: str
) -> None:
    async with producer(ours, unique_topic) as made:
        await made.init_transactions()
        await made.begin_transaction()
        await made.send(unique_topic, b"x", partition=0)
        with pytest.raises(IllegalState, match="may_time_out=True"):
            await made.prepare_transaction()
        prepared = await made.prepare_transaction(may_time_out=True)
    async with Admin(bootstrap_servers=ours) as admin:
        await admin.end_transaction(prepared, commit=True)
    assert await read(ours, unique_topic, 1) == [b"x"]


async def test_consecutive_producers_share_connections(ours: str, unique_topic: str) -> None:
    network = NetworkClient(ProducerConfig.from_settings({"bootstrap_servers": ours}))
    await network.start()
    try:
        for index in range(3):
            settings: dict[str, Any] = {"bootstrap_servers": ours}
            async with producer_on_network(network, **settings) as made:
                await made.send_and_wait(unique_topic, b"%d" % index, partition=0)
        assert network.metadata._listeners == []
        assert await network.least_loaded_node() >= 0, "it is still open"
    finally:
        await network.close()
    assert await read(ours, unique_topic, 3) == [b"0", b"1", b"2"]
