"""The records that a ShareFetch reads: all that the member can acquire, and little more."""

from __future__ import annotations

import random

import pytest

from odradek_broker.share import fetching
from odradek_broker.storage.log import PartitionLog
from share_world import ACCEPT, RELEASE, ShareWorld

WHOLE_LOG_BYTES = 1 << 30


def test_h175_a_fetch_reads_little_more_than_it_acquires(monkeypatch: pytest.MonkeyPatch) -> None:
    read_bytes: list[int] = []
    original = PartitionLog.read

    def read(log: PartitionLog, *arguments: int, **more: int) -> bytes:
        found = original(log, *arguments, **more)  # type: ignore[arg-type]
        read_bytes.append(len(found))
        return found

    world = ShareWorld()
    for _ in range(400):
        world.produce(100)
    log = world.the_partition.log
    a_batch_bytes = log.size_bytes // 400
    monkeypatch.setattr(PartitionLog, "read", read)
    for member in ("a", "b", "c"):
        read_bytes.clear()
        count = sum(
            last - first + 1 for first, last, _ in world.acquired(member, max_bytes=1 << 26)
        )
        assert count == 500
        assert sum(read_bytes) < 64 * 1024 + 20 * a_batch_bytes < log.size_bytes // 4


@pytest.mark.parametrize("seed", range(20))
def test_h175_members_get_the_same_records_as_from_the_whole_log(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same history is played twice. The first time each fetch begins with a read of one byte,
    the second time with a read of the whole log."""
    stories = []
    for expected_bytes in (1, WHOLE_LOG_BYTES):
        monkeypatch.setattr(fetching, "_expected_bytes", lambda *_, size=expected_bytes: size)
        stories.append(_story(random.Random(seed)))
    assert stories[0] == stories[1]
    assert any(stories[0])


def _story(chance: random.Random) -> list[object]:
    world = ShareWorld()
    found: list[object] = []
    for _ in range(60):
        choice = chance.random()
        if choice < 0.35:
            for _ in range(chance.randint(1, 8)):
                world.produce(chance.randint(1, 40))
        elif choice < 0.8:
            answers = world.fetch(
                chance.choice("abc"),
                max_records=chance.choice([1, 7, 60, 500]),
                max_bytes=chance.choice([100, 3_000, 1 << 20]),
            ).result()
            acquired = [each for _, answer in answers for each in answer.acquired]
            found.append([(tuple(acquired), bytes(answer.records)) for _, answer in answers])
            for first, last, *_ in acquired:
                if chance.random() < 0.6:
                    kind = chance.choice([ACCEPT, RELEASE])
                    world.acknowledge(first, chance.randint(first, last), kind, "a")
        elif choice < 0.9:
            world.pass_time(20_000)
        else:
            end = world.the_partition.log.high_watermark
            world.delete_records(chance.randint(world.the_partition.log.log_start_offset, end))
    return found
