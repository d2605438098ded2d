"""Assertions about topics and groups."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek import Broker, NewTopic, sync
from odradek.assertions import Assertions, AsyncAssertions
from odradek.broker import SubprocessBroker
from odradek.clusters import Cluster
from odradek_client.errors import IllegalState, MetadataTimeout
from odradek_client.structs import ConsumerRecord

pytestmark = pytest.mark.own_broker

#: The timeout of assertions that are expected to fail.
SOON_S = 0.3


@pytest.fixture(scope="module")
def running() -> Iterator[SubprocessBroker]:
    settings = {"log.durability": "page-cache", "group.initial.rebalance.delay.ms": 0}
    with SubprocessBroker(settings=settings) as broker:
        yield broker


@pytest.fixture
def check(running: SubprocessBroker) -> Assertions:
    return running.assertions


@pytest.fixture(scope="module")
def producer(running: SubprocessBroker) -> Iterator[sync.Producer]:
    with sync.Producer(bootstrap_servers=running.bootstrap) as producer:
        yield producer


@pytest.fixture
def three(running: SubprocessBroker, unique_topic: str) -> str:
    """A topic with three partitions."""
    with sync.Admin(bootstrap_servers=running.bootstrap) as admin:
        admin.create_topics(NewTopic(unique_topic, 3))
    return unique_topic


def failure_of(call: Callable[..., Any], *args: Any, **options: Any) -> str:
    with pytest.raises(AssertionError) as failed:
        call(*args, **options)
    return str(failed.value)


def later(action: Callable[[], Any]) -> threading.Timer:
    timer = threading.Timer(0.2, action)
    timer.start()
    return timer


# --- Records --------------------------------------------------------------------------------------


def test_assert_produced_waits_for_a_later_record(
    check: Assertions, producer: sync.Producer, unique_topic: str
) -> None:
    timer = later(lambda: producer.send_and_wait(unique_topic, b"4 apples", key=b"ada"))
    record = check.assert_produced(unique_topic, b"4 apples")
    assert (record.key, record.offset) == (b"ada", 0)
    timer.join()


def test_assertions_do_not_create_their_topic(
    running: SubprocessBroker, check: Assertions, unique_topic: str
) -> None:
    text = failure_of(check.assert_produced, unique_topic, within_s=SOON_S)
    assert f"topic {unique_topic!r} does not exist" in text
    check.assert_nothing_produced(unique_topic, SOON_S)
    with sync.Admin(bootstrap_servers=running.bootstrap) as admin:
        assert unique_topic not in admin.list_topics()


@pytest.mark.parametrize(
    "matching",
    [
        b'{"apples": 4}',
        '{"apples": 4}',
        {"value": {"apples": 4}},
        {"key": "ada", "headers": {"from": b"shop"}, "partition": 1},
        {"key": lambda key: key.startswith(b"a")},
        lambda record: dict(record.headers) == {"from": b"shop", "n": None},
    ],
)
def test_assert_produced_matches_values_keys_headers_and_functions(
    check: Assertions, producer: sync.Producer, three: str, matching: Any
) -> None:
    producer.send_and_wait(three, b"other", partition=1, key=b"bob")
    headers = [("from", b"shop"), ("n", None)]
    producer.send_and_wait(three, b'{"apples": 4}', partition=1, key=b"ada", headers=headers)
    assert check.assert_produced(three, matching).offset == 1


def test_invalid_conditions_are_refused(check: Assertions, unique_topic: str) -> None:
    with pytest.raises(ValueError, match="unknown field vale; there are value, key"):
        check.assert_produced(unique_topic, {"vale": "4 apples"})
    with pytest.raises(TypeError, match="matching: 4 is int"):
        check.assert_produced(unique_topic, 4)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="count=0"):
        check.assert_produced(unique_topic, count=0)


def test_an_error_of_a_condition_names_the_record(
    check: Assertions, producer: sync.Producer, unique_topic: str
) -> None:
    producer.send_and_wait(unique_topic, b"no JSON")
    with pytest.raises(ValueError) as failed:
        check.assert_produced(unique_topic, lambda record: json.loads(record.value))
    assert failed.value.__notes__ == [
        f"while matching {unique_topic}-0 offset 0: key None, value 'no JSON'"
    ]


def test_assert_produced_takes_an_exact_count(
    check: Assertions, producer: sync.Producer, three: str
) -> None:
    for partition in (0, 1, 2):
        producer.send_and_wait(three, b"%d" % partition, partition=partition)
    found = check.assert_produced(three, count=3)
    assert sorted(record.value for record in found) == [b"0", b"1", b"2"]
    text = failure_of(check.assert_produced, three, count=4, within_s=SOON_S)
    assert text.startswith(f"3 of 4 records of topic {three!r} within 0.3 s")
    text = failure_of(check.assert_produced, three, count=2)
    assert text.startswith(f"more than 2 records of topic {three!r}")


def test_a_failure_shows_the_last_records_and_the_history(
    check: Assertions, producer: sync.Producer, unique_topic: str
) -> None:
    for number in range(7):
        producer.send_and_wait(unique_topic, b"%d pears" % number, key=b"bob")
    text = failure_of(check.assert_produced, unique_topic, "4 apples", within_s=SOON_S)
    first, *lines = text.splitlines()
    assert first == f"no record of topic {unique_topic!r} that matches '4 apples' within 0.3 s"
    assert lines[0] == "records that were read: 7 (1 partition), the last of them:"
    assert lines[1:6] == [
        f"  {unique_topic}-0 offset {number}: key 'bob', value '{number} pears'"
        for number in range(2, 7)
    ]
    assert any(line.startswith("explain producer id ") for line in lines)


def test_records_of_an_open_transaction_are_named(
    running: SubprocessBroker, check: Assertions, unique_topic: str
) -> None:
    with sync.Producer(
        bootstrap_servers=running.bootstrap, transactional_id=unique_topic
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_and_wait(unique_topic, b"4 apples")
        text = failure_of(check.assert_produced, unique_topic, "4 apples", within_s=SOON_S)
        assert (
            "that match, in transactions that are open or were aborted:\n"
            f"  {unique_topic}-0 offset 0: key None, value '4 apples'"
        ) in text
        assert f"explain partition {unique_topic}-0:" in text
        check.assert_nothing_produced(unique_topic, SOON_S)
        producer.commit_transaction()
    assert check.assert_produced(unique_topic, "4 apples").offset == 0


def test_assert_nothing_produced_fails_on_a_matching_record(
    check: Assertions, producer: sync.Producer, unique_topic: str
) -> None:
    producer.send_and_wait(unique_topic, b"4 apples")
    text = failure_of(check.assert_nothing_produced, unique_topic, 0)
    assert text.startswith(f"topic {unique_topic!r} has a record\nthat match:\n")
    check.assert_nothing_produced(unique_topic, SOON_S, matching=b"5 pears")
    before = check.positions(unique_topic)
    assert before == {0: 1}
    check.assert_nothing_produced(unique_topic, SOON_S, since=before)
    timer = later(lambda: producer.send_and_wait(unique_topic, b"5 pears"))
    failure_of(check.assert_nothing_produced, unique_topic, 20, since=before)
    timer.join()
    assert check.assert_produced(unique_topic, since=before).value == b"5 pears"


def test_assert_no_duplicates_shows_the_duplicates(
    check: Assertions, producer: sync.Producer, three: str
) -> None:
    for value in (b"1", b"2", b"3"):
        producer.send_and_wait(three, value, key=b"ada", partition=int(value) - 1)
    assert check.assert_no_duplicates(three) == 3
    text = failure_of(check.assert_no_duplicates, three, key=lambda record: record.key)
    assert text.startswith(f"topic {three!r} has 2 duplicates among 3 records\nthe same:\n")
    producer.send_and_wait(three, b"1", key=b"ada", partition=2)
    text = failure_of(check.assert_no_duplicates, three)
    assert f"{three}-0 offset 0: key 'ada', value '1'" in text
    assert f"{three}-2 offset 1: key 'ada', value '1'" in text
    assert failure_of(check.assert_no_duplicates, "never-made") == (
        "topic 'never-made' does not exist"
    )


def test_a_virtual_cluster_has_assertions(odradek_cluster: Cluster) -> None:
    with sync.Producer(bootstrap_servers=odradek_cluster.bootstrap) as producer:
        producer.send_and_wait("orders", b"4 apples")
    assert odradek_cluster.assertions.assert_produced("orders").value == b"4 apples"


# --- Groups ---------------------------------------------------------------------------------------


def consume(running: SubprocessBroker, topic: str, count: int, group: str) -> None:
    with sync.Consumer(
        topic,
        bootstrap_servers=running.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        found = 0
        while found < count:
            found += len(consumer.poll(timeout_ms=500, max_records=count - found))
        consumer.commit()


def test_assert_lag_zero_waits_for_the_group(
    running: SubprocessBroker, check: Assertions, producer: sync.Producer, unique_topic: str
) -> None:
    for value in (b"1", b"2", b"3"):
        producer.send_and_wait(unique_topic, value)
    group = f"{unique_topic}-group"
    assert "the group does not exist" in failure_of(check.assert_lag_zero, group, SOON_S)
    consume(running, unique_topic, 2, group)
    text = failure_of(check.assert_lag_zero, group, SOON_S)
    assert text.startswith(f"group {group!r} has not read everything within 0.3 s\n")
    assert f"  {unique_topic}-0: committed 2, 1 behind the end, 3" in text
    assert f"explain group {group}:" in text
    timer = later(lambda: consume(running, unique_topic, 1, group))
    check.assert_lag_zero(group)
    check.assert_lag_zero(group, topics=[unique_topic])
    timer.join()


def test_a_group_without_commits_has_lag(
    running: SubprocessBroker, check: Assertions, producer: sync.Producer, unique_topic: str
) -> None:
    producer.send_and_wait(unique_topic, b"1")
    group = f"{unique_topic}-group"
    with sync.Consumer(
        unique_topic,
        bootstrap_servers=running.bootstrap,
        group_id=group,
        client_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        while not consumer.poll():
            pass
        text = failure_of(check.assert_lag_zero, group, SOON_S)
        assert f"{unique_topic}-0: nothing committed, 1 behind the end, 1" in text
        assert f"billing at /127.0.0.1 has {unique_topic}-0" in text
        consumer.commit()
        check.assert_lag_zero(group)


def test_transaction_markers_and_aborted_records_are_no_lag(
    running: SubprocessBroker, check: Assertions, unique_topic: str
) -> None:
    with sync.Producer(
        bootstrap_servers=running.bootstrap, transactional_id=unique_topic
    ) as producer:
        producer.init_transactions()
        for ending in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.send_and_wait(unique_topic, b"4 apples")
            ending()
    group = f"{unique_topic}-group"
    with sync.Admin(bootstrap_servers=running.bootstrap) as admin:
        admin.alter_group_offsets(group, {(unique_topic, 0): 0})
        failure_of(check.assert_lag_zero, group, SOON_S)
        admin.alter_group_offsets(group, {(unique_topic, 0): 1})
        check.assert_lag_zero(group)


def test_assert_committed_waits_for_an_offset(
    running: SubprocessBroker, check: Assertions, producer: sync.Producer, unique_topic: str
) -> None:
    group = f"{unique_topic}-group"
    for value in (b"1", b"2"):
        producer.send_and_wait(unique_topic, value)
    timer = later(lambda: consume(running, unique_topic, 2, group))
    assert check.assert_committed(group, unique_topic, offset=2).offset == 2
    assert check.assert_committed(group, unique_topic).offset == 2
    timer.join()
    text = failure_of(check.assert_committed, group, unique_topic, 0, 3, SOON_S)
    assert text.startswith(f"group {group!r} has not committed offset 3 of {unique_topic}-0")
    assert f"{unique_topic}-0: committed 2\n" in text


# --- Snapshots ------------------------------------------------------------------------------------


def test_a_snapshot_has_the_records_of_a_topic(
    check: Assertions, producer: sync.Producer, three: str, tmp_path: Path
) -> None:
    producer.send_and_wait(three, b"2", partition=2, key=b"\xff", headers=[("from", b"shop")])
    producer.send_and_wait(three, "älter".encode(), partition=0, timestamp_ms=1000)
    producer.send_and_wait(three, None, partition=0, key=b"ada", timestamp_ms=2000)
    path = tmp_path / "deep" / "orders.jsonl"
    assert check.snapshot(three, path, count=3) == 3
    assert path.read_text("utf-8").splitlines() == [
        '{"partition": 0, "key": null, "payload": "älter"}',
        '{"partition": 0, "key": "ada", "payload": null}',
        '{"partition": 2, "headers": ["from", "shop"], "key_base64": "/w==", "payload": "2"}',
    ]
    check.assert_topic_equals(three, path)
    assert check.snapshot(three, path, partitions=False) == 3
    assert '{"headers": ["from", "shop"], "key_base64": "/w==", "payload": "2"}' in (
        path.read_text("utf-8").splitlines()
    )
    check.snapshot(three, path, count=3, offsets=True, timestamps=True)
    first = '{"partition": 0, "offset": 0, "ts": 1000, "key": null, "payload": "älter"}\n'
    assert path.read_text("utf-8").startswith(first)
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(ValueError, match="offsets=True needs partitions=True"):
        check.snapshot(three, path, offsets=True, partitions=False)


def test_assert_topic_equals_shows_the_difference_to_a_snapshot(
    check: Assertions,
    producer: sync.Producer,
    unique_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ODRADEK_UPDATE_SNAPSHOTS", raising=False)
    path = tmp_path / "orders.jsonl"
    producer.send_and_wait(unique_topic, b"1")
    text = failure_of(check.assert_topic_equals, unique_topic, path)
    assert text == f"there is no {path}; ODRADEK_UPDATE_SNAPSHOTS=1 makes the run write it"
    monkeypatch.setenv("ODRADEK_UPDATE_SNAPSHOTS", "1")
    check.assert_topic_equals(unique_topic, path)
    monkeypatch.delenv("ODRADEK_UPDATE_SNAPSHOTS")
    check.assert_topic_equals(unique_topic, path)
    producer.send_and_wait(unique_topic, b"2")
    text = failure_of(check.assert_topic_equals, unique_topic, path, within_s=SOON_S)
    assert '\n+{"partition": 0, "key": null, "payload": "2"}\n' in text
    check.assert_topic_equals(unique_topic, path, update=True)
    path.write_text(path.read_text() + '{"partition": 0, "key": null, "payload": "3"}\n')
    timer = later(lambda: producer.send_and_wait(unique_topic, b"3"))
    check.assert_topic_equals(unique_topic, path)
    timer.join()


def test_an_incomplete_snapshot_is_not_written(
    check: Assertions, producer: sync.Producer, unique_topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "orders.jsonl"
    text = failure_of(check.snapshot, unique_topic, path, within_s=SOON_S)
    assert f"topic {unique_topic!r} does not exist" in text
    producer.send_and_wait(unique_topic, b"1")
    text = failure_of(check.snapshot, unique_topic, path, count=2, within_s=SOON_S)
    assert text.startswith(f"topic {unique_topic!r} has 1 records, not 2, after 0.3 s")
    assert not path.exists()


# --- Async ----------------------------------------------------------------------------------------


async def test_async_assertions_let_the_code_under_test_run(unique_topic: str) -> None:
    async with Broker(settings={"log.durability": "page-cache"}) as broker:
        assert isinstance(broker.assertions, AsyncAssertions)

        async def code_under_test() -> None:
            from odradek import Producer

            async with Producer(bootstrap_servers=broker.bootstrap) as producer:
                await producer.send_and_wait(unique_topic, b"4 apples")

        task = asyncio.create_task(code_under_test())
        record: ConsumerRecord = await broker.assertions.assert_produced(unique_topic)
        assert record.value == b"4 apples"
        await task


async def test_blocking_assertions_refuse_to_block_an_event_loop(
    check: Assertions, unique_topic: str
) -> None:
    for call in (check.assert_produced, check.assert_nothing_produced):
        with pytest.raises(IllegalState, match=r"aio\.assert_(nothing_)?produced\(\)"):
            call(unique_topic)
    await check.aio.assert_nothing_produced(unique_topic, 0)


def test_assertions_without_a_broker_name_its_address() -> None:
    check = Assertions("127.0.0.1:1", default_api_timeout_ms=200)
    for call in (check.assert_produced, check.assert_lag_zero):
        with pytest.raises(MetadataTimeout, match=r"127\.0\.0\.1:1"):
            call("orders")
