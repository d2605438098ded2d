"""The lag of consumer groups in seconds: the age of the first record that a group has not read."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker_in_loop import RunningBroker, StartBroker
from odradek import Admin, Consumer, NewTopic, Producer
from odradek_broker.metrics import lag
from odradek_broker.metrics.exposition import Exposition
from odradek_broker.storage.log import PartitionLog
from odradek_client.admin.history import Subject

SECONDS = "kafka_consumergroup_group_lag_seconds"
LONGEST = "kafka_consumergroup_group_max_lag_seconds"
LEFT_OUT = "odradek_consumergroup_lag_seconds_left_out_total"
#: The ages in seconds of ten records, which are in two batches of five.
AGES_S = [900, 800, 850, 700, 600, 500, 400, 300, 200, 100]


class FixedClock:
    """A broker's clock whose wall time stands still."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.fixed_ms = clock.wall_ms()

    def wall_ms(self) -> int:
        return int(self.fixed_ms)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


class World:
    """A broker with ten records of known ages in the only partition of "t"."""

    def __init__(self, broker: RunningBroker) -> None:
        self.node = broker.node
        self.node.clock = FixedClock(self.node.clock)
        self.bootstrap = f"{broker.host}:{broker.port}"
        self.exposition = Exposition(self.node.metrics, self.node)

    async def fill(self, compression: str = "none", **topic: str) -> None:
        now_ms = self.node.clock.wall_ms()
        async with Admin(bootstrap_servers=self.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 1, configs=topic)])
        settings: Any = {"compression_type": compression, "linger_ms": 10_000}
        async with Producer(bootstrap_servers=self.bootstrap, **settings) as producer:
            for first in (0, 5):
                for age_s in AGES_S[first : first + 5]:
                    await producer.send("t", b"x", timestamp_ms=now_ms - age_s * 1000)
                await producer.flush()

    async def commit(self, group: str, offset: int) -> None:
        async with Admin(bootstrap_servers=self.bootstrap) as admin:
            await admin.alter_group_offsets(group, {("t", 0): offset})

    def values(self, name: str, label: str = "group") -> dict[str, float]:
        """The values of a metric, by group or by another label."""
        families = text_string_to_metric_families(self.exposition.render().decode())
        samples = [sample for family in families for sample in family.samples]
        return {each.labels.get(label, ""): each.value for each in samples if each.name == name}

    @property
    def log(self) -> PartitionLog:
        found: PartitionLog = self.node.partition("t", 0).log
        return found


@pytest.fixture
async def world(start_broker: StartBroker) -> World:
    return World(await start_broker())


@pytest.mark.parametrize("compression", ["none", "lz4"])
async def test_the_lag_is_the_age_of_the_first_unread_record(
    world: World, compression: str
) -> None:
    """The offsets are at the start and in the middle of batches; timestamps do not rise within a
    batch."""
    await world.fill(compression)
    for offset in (0, 1, 2, 4, 5, 9, 10):
        await world.commit(f"at-{offset}", offset)
    expected = {f"at-{offset}": float(AGES_S[offset]) for offset in (0, 1, 2, 4, 5, 9)}
    assert world.values(SECONDS) == expected | {"at-10": 0}
    assert world.values(LONGEST) == expected | {"at-10": 0}
    assert world.values(LEFT_OUT) == {"": 0}


async def test_the_lag_of_a_position_below_the_log_start_begins_at_the_log_start(
    world: World,
) -> None:
    await world.fill()
    await world.commit("g", 1)
    async with Admin(bootstrap_servers=world.bootstrap) as admin:
        await admin.delete_records({("t", 0): 6})
    assert world.values(SECONDS) == {"g": AGES_S[6]}


async def test_the_lag_uses_append_times_if_the_topic_has_them(world: World) -> None:
    world.node.clock.fixed_ms += 3_600_000
    await world.fill(**{"message.timestamp.type": "LogAppendTime"})
    await world.commit("g", 3)
    world.node.clock.fixed_ms += 5_000
    header = world.log.unread_batch(3).header  # type: ignore[union-attr]
    expected = (world.node.clock.wall_ms() - header.max_timestamp) / 1000
    assert header.is_log_append_time and world.values(SECONDS) == {"g": expected}


async def test_transaction_markers_do_not_count_as_unread_records(world: World) -> None:
    """The offset of a group that has read all records may be that of a transaction marker."""
    await world.fill()
    async with Producer(bootstrap_servers=world.bootstrap, transactional_id="x") as producer:
        await producer.init_transactions()
        for _ in range(3):
            async with producer.transaction():
                stamp_ms = world.node.clock.wall_ms() - 50_000
                await producer.send("t", b"y", timestamp_ms=stamp_ms)
    await world.commit("before-marker", 11)
    await world.commit("before-last-marker", 15)
    assert world.log.high_watermark == 16
    assert world.values(SECONDS) == {"before-marker": 50, "before-last-marker": 0}
    assert world.values(LEFT_OUT) == {"": 0}


async def test_the_age_of_an_offset_is_looked_up_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.fill()
    await world.commit("start", 0)
    await world.commit("middle", 3)
    expected = {"start": AGES_S[0], "middle": AGES_S[3]}
    assert world.values(SECONDS) == expected
    monkeypatch.setattr(PartitionLog, "unread_batch", lambda *_: pytest.fail("looked up again"))
    assert world.values(SECONDS) == expected
    monkeypatch.undo()
    await world.commit("start", 5)
    assert world.values(SECONDS) == {"start": AGES_S[5], "middle": AGES_S[3]}


async def test_lookups_over_the_limit_of_a_scrape_are_left_to_the_next_scrape(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.fill()
    for offset in (0, 3, 4):
        await world.commit(f"at-{offset}", offset)
    monkeypatch.setattr(lag, "LOOKUPS_MAX", 2)
    monkeypatch.setattr(lag, "OPENED_MAX", 1)
    for shown in (2, 3):
        assert len(world.values(SECONDS)) == shown
    assert world.values(LEFT_OUT) == {"": 1}


@pytest.mark.full
async def test_the_lag_neither_rebuilds_indexes_nor_scans_segments(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample is left out if the index does not lead to the batch."""
    await world.fill(**{"index.interval.bytes": str(2**30)})
    async with Producer(bootstrap_servers=world.bootstrap) as producer:
        for _ in range(600):
            await producer.send_and_wait("t", b"x")
    segment = world.log.segments[0]
    segment.indexes._hints.clear()
    await world.commit("g", 550)
    monkeypatch.setattr(type(segment.indexes), "rebuild", lambda *_: pytest.fail("rebuilt"))
    assert world.values(SECONDS) == {}
    assert world.values(LEFT_OUT) == {"": 2}
    assert world.values(LONGEST) == {}


async def test_the_lag_does_not_load_the_index_of_a_closed_segment(world: World) -> None:
    await world.fill(**{"index.interval.bytes": "0"})
    world.log.roll(0)
    segment = world.log.segments[0]
    segment.indexes.unload()
    await world.commit("g", 5)
    assert world.values(SECONDS) == {"g": AGES_S[5]}
    assert not segment.indexes.loaded


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_the_labels_of_the_lag_name_the_member(world: World, protocol: str) -> None:
    await world.fill()
    settings: Any = {"bootstrap_servers": world.bootstrap, "auto_offset_reset": "earliest"}
    given: Any = {"group_protocol": protocol, "client_id": "reader", "enable_auto_commit": False}
    async with Consumer("t", group_id="g", **given, **settings) as consumer:
        assert (await consumer.getone()).offset == 0
        await consumer.commit()
        assert world.values(SECONDS, "client_id") == {"reader": AGES_S[1]}
        (member_id,) = world.values(SECONDS, "consumer_id")
        (group,) = world.node.groups.groups()
        found = world.node.groups.consumer_group("g") or world.node.groups.group("g")
        assert group.members == 1 and list(found.members) == [member_id]
        assert all("127.0.0.1" in host for host in world.values(SECONDS, "member_host"))
        assert list(world.values(SECONDS, "cluster_name")) == [world.node.cluster_id]
    assert list(world.values(SECONDS, "client_id")) == [""]


async def _told(world: World, group: str) -> tuple[str, int]:
    async with Admin(bootstrap_servers=world.bootstrap) as admin:
        (found,) = await admin.describe_history(Subject.GROUP, group, limit=0)
    (state,) = [state for state in found.states if state.name == "now_lag"]
    return state.text, int(state.details["age_ms"])


async def test_the_history_of_a_group_has_the_age_of_the_oldest_unread_record(
    world: World,
) -> None:
    """For an offset in the middle of a batch only a minimum of the age is known: the age of the
    batch's newest record."""
    await world.fill()
    for offset in (0, 3, 5, 10):
        await world.commit(f"at-{offset}", offset)
    text = "the oldest record that it has not read has an age of {}, in t-0"
    assert await _told(world, "at-0") == (text.format("15.0 min"), 900_000)
    assert await _told(world, "at-5") == (text.format("8.3 min"), 500_000)
    assert await _told(world, "at-3") == (text.format("10.0 min or older"), 600_000)
    async with Admin(bootstrap_servers=world.bootstrap) as admin:
        (found,) = await admin.describe_history(Subject.GROUP, "at-10", limit=0)
    assert "now_lag" not in {state.name for state in found.states}
