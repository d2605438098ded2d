"""The share consumer as programs use it, against a scripted broker."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

import odradek.sync
from interrupts import interrupted_at_line
from odradek import Reject, ShareConsumer, TopicPartition
from odradek_client.errors import Closed, ConfigError, IllegalState, UnsupportedByBroker
from odradek_client.share.errors import LockExpired, UnreadableRecord
from odradek_client.share.record import ShareRecord
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatResponse
from scripted_broker import topic_id
from share_broker import ShareBroker
from share_leader import ACKNOWLEDGED, ARCHIVED, AVAILABLE

DEADLINE_S = 30.0


@pytest.fixture
async def broker() -> AsyncIterator[ShareBroker]:
    async with ShareBroker() as broker, asyncio.timeout(DEADLINE_S):
        yield broker


def consumer(broker: ShareBroker, **settings: Any) -> ShareConsumer:
    given: dict[str, Any] = {"group_id": "g", "fetch_max_wait_ms": 50, **settings}
    return ShareConsumer("t", bootstrap_servers=broker.address, **given)


def explicit(broker: ShareBroker, **settings: Any) -> ShareConsumer:
    return consumer(broker, share_acknowledgement_mode="explicit", **settings)


async def test_k71_a_loop_over_records_accepts_and_rejects(broker: ShareBroker) -> None:
    broker.append(b"good", b"poison", b"late")
    seen = []
    async with explicit(broker) as members:
        async for record in members:
            seen.append((record.value, record.delivery_count))
            async with record:
                if record.value == b"poison":
                    raise Reject("it cannot be worked on")
            if len(seen) == 3:
                break
        results = await members.commit()
    assert seen == [(b"good", 1), (b"poison", 1), (b"late", 1)]
    assert results == {("t", 0): None}
    assert broker.states() == [ACKNOWLEDGED, ARCHIVED, ACKNOWLEDGED]


async def test_k71_an_exception_returns_the_record_to_the_group(broker: ShareBroker) -> None:
    broker.append(b"x")
    async with explicit(broker) as members:
        record = await members.getone()
        with pytest.raises(RuntimeError):
            async with record:
                raise RuntimeError
        again = await members.getone()
        assert (again.offset, again.delivery_count) == (0, 2)
        await again.accept()
    assert broker.states() == [ACKNOWLEDGED]


async def test_a_poll_without_topics_is_refused_until_there_are_some(broker: ShareBroker) -> None:
    broker.append(b"x")
    async with ShareConsumer(bootstrap_servers=broker.address, group_id="g") as members:
        with pytest.raises(IllegalState, match="call subscribe"):
            await members.poll(0)
        members.subscribe(["t"])
        assert (await members.getone()).value == b"x"
        await members.unsubscribe()
        with pytest.raises(IllegalState, match="call subscribe"):
            await members.poll(0)
    joins = [
        request.subscribed_topic_names for request in broker.received(ApiKey.SHARE_GROUP_HEARTBEAT)
    ]
    assert [] not in joins


async def test_k70_the_next_poll_accepts_records_in_implicit_mode(broker: ShareBroker) -> None:
    broker.append(b"a", b"b", b"c")
    async with consumer(broker) as members:
        first = await members.poll(5_000)
        assert len(first) == 3
        first[1].reject()
        await members.poll(0)
        await members.commit()
        assert broker.states() == [ACKNOWLEDGED, ARCHIVED, ACKNOWLEDGED]


async def test_k70_a_record_being_handled_is_not_accepted_in_implicit_mode(
    broker: ShareBroker,
) -> None:
    broker.append(b"a", b"b")
    async with consumer(broker) as members:
        first, second = await members.poll(5_000)
        async with first:
            await members.poll(0)
            assert first.answer is None and second.answer is not None
    assert broker.states() == [ACKNOWLEDGED] * 2


async def test_k76_close_releases_records_that_were_not_handled(broker: ShareBroker) -> None:
    broker.append(b"a", b"b", b"c")
    async with consumer(broker) as members:
        records = await members.poll(5_000)
    assert broker.states() == [AVAILABLE] * 3
    assert isinstance(records[0].accept().exception(), Closed)
    assert broker.leader.sessions == {}
    assert broker.received(ApiKey.SHARE_GROUP_HEARTBEAT)[-1].member_epoch == -1


async def test_k76_close_waits_for_handlers(broker: ShareBroker) -> None:
    broker.append(b"a")
    members = explicit(broker)
    await members.start()
    record = await members.getone()
    handling, finish = asyncio.Event(), asyncio.Event()

    async def handle() -> None:
        async with record:
            handling.set()
            await finish.wait()

    task = asyncio.create_task(handle())
    await handling.wait()
    closing = asyncio.create_task(members.close())
    await asyncio.sleep(0)
    assert not closing.done()
    finish.set()
    await closing
    await task
    assert broker.states() == [ACKNOWLEDGED]


async def test_k76_close_ends_a_poll_and_a_loop(broker: ShareBroker) -> None:
    members = explicit(broker)
    await members.start()

    async def read() -> int:
        return len([record async for record in members])

    reading = asyncio.create_task(read())
    polling = asyncio.create_task(members.poll(60_000))
    await asyncio.sleep(0)
    await members.close()
    assert await reading == 0
    with pytest.raises(Closed):
        await polling
    with pytest.raises(Closed):
        await members.poll()


async def test_k62_wakeup_ends_a_waiting_poll(broker: ShareBroker) -> None:
    async with explicit(broker) as members:
        polling = asyncio.create_task(members.poll(60_000))
        await asyncio.sleep(0.01)
        members.wakeup()
        assert await polling == []
        broker.append(b"a")
        assert len(await members.poll(5_000)) == 1


async def test_waiting_for_records_does_not_keep_the_processor_busy(broker: ShareBroker) -> None:
    async with explicit(broker, fetch_max_wait_ms=500) as members:
        await members.poll(0)
        looks, next_requests = 0, members._fetcher.next_requests

        def counted(*given: Any) -> Any:
            nonlocal looks
            looks += 1
            return next_requests(*given)

        members._fetcher.next_requests = counted  # type: ignore[method-assign, assignment]
        assert await members.poll(1_000) == []
        # The number is a few for each answer, and not one for each turn of the event loop.
        assert looks < 100


async def test_k62_max_in_flight_limits_unacknowledged_records(broker: ShareBroker) -> None:
    broker.append(*[b"x"] * 6)
    async with explicit(broker, max_in_flight=4) as members:
        records = await members.poll(5_000, max_records=3)
        records += await members.poll(5_000)
        assert len(records) == 4
        assert await members.poll(0) == []
        records[0].accept()
        assert len(await members.poll(5_000)) == 1


async def test_k74_a_result_tells_that_the_lock_was_lost(broker: ShareBroker) -> None:
    broker.append(b"a", b"b")
    told: list[Any] = []
    async with explicit(broker) as members:
        members.set_acknowledgement_callback(lambda record, error: told.append((record, error)))
        first, second = await members.poll(5_000)
        broker.leader._free(broker.leader.partitions[(topic_id("t"), 0)].records[0])
        lost, kept = first.accept(), second.accept()
        results = await members.commit()
        await kept
        with pytest.raises(Exception, match="INVALID_RECORD_STATE"):
            await lost
    assert results[TopicPartition("t", 0)] is first.error is not None
    assert {(record.offset, error is None) for record, error in told} == {(0, False), (1, True)}


async def test_k74_an_expired_lock_is_reported_to_the_callback(broker: ShareBroker) -> None:
    broker.leader.lock_ms = 200
    broker.append(b"a")
    expired = asyncio.Event()
    async with explicit(broker, renew_locks=False) as members:
        members.set_acknowledgement_callback(lambda record, error: expired.set())
        record = await members.getone()
        await expired.wait()
        assert isinstance(record.accept().exception(), LockExpired)


async def test_k75_locks_are_renewed_while_a_handler_runs(broker: ShareBroker) -> None:
    broker.leader.lock_ms = 300
    broker.append(b"a")
    async with explicit(broker) as members:
        record = await members.getone()
        async with record:
            await broker.renewed_often.wait()
        await members.commit()
        assert record.error is None
    assert broker.states() == [ACKNOWLEDGED]
    assert all(r.is_renew_ack for r in broker.received(ApiKey.SHARE_ACKNOWLEDGE)[:5])


async def test_k64_an_unreadable_record_fails_one_poll_and_the_next_continues(
    broker: ShareBroker,
) -> None:
    broker.append(b"1", b"no", b"3")
    async with explicit(broker, value_deserializer=int, unreadable_records="reject") as members:
        (first,) = await members.poll(5_000)
        with pytest.raises(UnreadableRecord, match="offset 1") as refused:
            await members.poll(5_000)
        (third,) = await members.poll(5_000)
        first.accept(), third.accept()
        await members.commit()
    assert (first.value, third.value) == (1, 3)
    assert refused.value.offsets == [1]
    assert broker.states() == [ACKNOWLEDGED, ARCHIVED, ACKNOWLEDGED]


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
async def test_k64_an_interrupted_deserializer_accepts_and_keeps_no_record(
    broker: ShareBroker, mode: str
) -> None:
    interrupted: list[bytes] = []

    class Interruption(BaseException):
        pass

    def value(data: bytes) -> bytes:
        if data == b"3" and not interrupted:
            interrupted.append(data)
            raise Interruption
        return data

    broker.leader.lock_ms = 3_600_000
    broker.append(b"1", b"2", b"3", b"4")
    given = {"share_acknowledgement_mode": mode, "value_deserializer": value}
    async with consumer(broker, **given) as members:
        with pytest.raises(Interruption):
            while True:
                await members.poll(5_000)
        seen: list[bytes] = []
        while len(seen) < 4 and (records := await members.poll(5_000)):
            seen += [record.value for record in records]
            for record in records:
                record.accept()
        await members.commit()
    assert sorted(seen) == [b"1", b"2", b"3", b"4"]
    assert broker.states() == [ACKNOWLEDGED] * 4


async def test_k65_a_share_consumer_reconnects(broker: ShareBroker) -> None:
    broker.append(b"a")
    async with explicit(broker) as members:
        await (await members.getone()).accept()
        broker.hang_up()
        broker.append(b"b")
        record = await members.getone()
        assert record.value == b"b"
        await record.accept()
    assert broker.states() == [ACKNOWLEDGED] * 2


async def test_k81_a_cluster_without_share_groups_is_a_clear_error(broker: ShareBroker) -> None:
    broker.always(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        lambda request, version: ShareGroupHeartbeatResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION
        ),
    )
    async with consumer(broker) as members:
        with pytest.raises(UnsupportedByBroker, match=r"share\.version"):
            while True:
                await members.poll(1_000)


@pytest.mark.parametrize("name", ["auto.offset.reset", "isolation_level", "session.timeout.ms"])
def test_settings_of_plain_consumers_are_refused_with_an_alternative(name: str) -> None:
    with pytest.raises(ConfigError, match=f"the share consumer has no setting '{name}': "):
        ShareConsumer("t", **{"group_id": "g", name: "latest"})  # type: ignore[arg-type]


def test_a_share_consumer_needs_a_group_id() -> None:
    with pytest.raises(ConfigError, match="set group_id"):
        ShareConsumer("t")


async def test_metrics_count_records_and_acknowledgements(broker: ShareBroker) -> None:
    broker.append(b"a", b"b")
    async with explicit(broker) as members:
        for record in await members.poll(5_000):
            record.accept()
        await members.commit()
        found = members.metrics()
    assert found["records-consumed-total"] == found["acknowledgements-send-total"] == 2
    assert found["acknowledgements-error-total"] == 0
    assert found["fetch-total"] >= 1


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
@pytest.mark.parametrize("taking", ["poll", "getmany", "getone"])
async def test_c80_ctrl_c_at_any_line_of_a_blocking_share_poll_loses_no_record(
    taking: str, mode: Any, broker: ShareBroker
) -> None:
    def work() -> int:
        with odradek.sync.ShareConsumer(
            "t", bootstrap_servers=broker.address, group_id="g", share_acknowledgement_mode=mode
        ) as members:
            for moment in itertools.count(1):
                broker.append(b"%d" % moment)
                found: Any = interrupted_at_line(moment, getattr(members, taking))
                records = members.poll(2_000) if found is None else found
                if isinstance(records, dict):
                    records = records["t", 0]
                record = records if isinstance(records, ShareRecord) else records[0]
                assert record.value == b"%d" % moment
                record.accept()
                members.commit()
                if found is not None:
                    return moment
        raise AssertionError

    lines = await asyncio.to_thread(work)
    assert lines > 15
    assert broker.states() == [ACKNOWLEDGED] * lines


async def test_the_blocking_share_consumer_acknowledges_records(broker: ShareBroker) -> None:
    broker.append(b"a", b"b", b"c")

    def work() -> list[bytes]:
        seen = []
        with odradek.sync.ShareConsumer(
            "t",
            bootstrap_servers=broker.address,
            group_id="g",
            share_acknowledgement_mode="explicit",
        ) as members:
            for record in members:
                seen.append(record.value)
                with record:
                    if record.value == b"b":
                        raise Reject("no")
                if len(seen) == 3:
                    break
            assert members.commit() == {("t", 0): None}
            assert members.poll(0) == []
            with pytest.raises(IllegalState):
                record.accept()
        return seen

    assert await asyncio.to_thread(work) == [b"a", b"b", b"c"]
    assert broker.states() == [ACKNOWLEDGED, ARCHIVED, ACKNOWLEDGED]
