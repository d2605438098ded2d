"""The producer's log lines about refused and failed records (C-81)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek_client.errors import DeliveryTimeout, StorageFailed
from odradek_client.producer.batch import ProducerBatch
from odradek_client.producer.sender_loop import GATHERED_MS, NEXT_LINE_MS, PATIENCE_MS, DeliveryLog
from odradek_client.structs import TopicPartition
from odradek_protocol.compression import Codec


class World:
    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.log = DeliveryLog(lambda at_ms, tell: self.timers.append((at_ms, tell)))

    def fire(self) -> float:
        at_ms, tell = self.timers.pop(0)
        tell()
        return at_ms


def failed(partition: int, *, unknown: bool = True) -> ProducerBatch:
    """A failed batch of two records."""
    loop: Any = None
    batch = ProducerBatch(TopicPartition("t", partition), Codec.NONE, 1_000, 0, 0.0, loop)
    batch.record_count = 2
    batch.unknown_fate = unknown
    batch.fail(DeliveryTimeout(f"of partition {partition}"))
    return batch


@pytest.fixture
def world() -> World:
    return World()


def test_c81_many_failures_are_logged_in_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in range(73):
        world.log.failed([failed(partition % 3)], 10.0 * partition)
    assert caplog.messages == []
    assert world.fire() == GATHERED_MS
    assert caplog.messages == [
        "146 records for t-0 and 2 other partitions may be written or not: of partition 0"
    ]
    world.log.tell()
    assert len(caplog.messages) == 1
    assert world.timers == []


def test_c81_failed_and_doubtful_records_have_separate_lines(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.log.failed([failed(0), failed(1, unknown=False), failed(0)], 0.0)
    world.log.tell()
    assert caplog.messages == [
        "2 records for t-1 not written: of partition 1",
        "4 records for t-0 may be written or not: of partition 0",
    ]


def test_c81_later_failures_are_gathered_for_longer(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.log.failed([failed(0)], 0.0)
    world.fire()
    world.log.failed([failed(0)], 2_000.0)
    world.log.failed([failed(0)], 3_000.0)
    assert world.fire() == GATHERED_MS + NEXT_LINE_MS
    assert caplog.messages[1].startswith("4 records")
    world.log.failed([failed(0)], 1e6)
    assert world.fire() == 1e6 + GATHERED_MS


def test_c81_refusals_are_logged_before_records_expire(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    full = StorageFailed("No space left on device")
    world.log.answered(full, 1_000.0)
    world.log.answered(full, 1_000.0 + PATIENCE_MS - 1)
    assert caplog.messages == []
    for later_ms in range(0, 29_000, 1_000):
        world.log.answered(full, 1_000.0 + PATIENCE_MS + later_ms)
    assert caplog.messages == [
        "no record has been acknowledged for 5 s; the records are sent again: No space left on device"
    ]
    world.log.answered(full, 1_000.0 + PATIENCE_MS + NEXT_LINE_MS)
    assert len(caplog.messages) == 2
    world.log.answered(None, 50_000.0)
    world.log.answered(full, 80_000.0)
    world.log.answered(full, 80_000.0 + PATIENCE_MS - 1)
    assert len(caplog.messages) == 2
