"""A full disk: each write is refused, one report is made, and writing resumes when there is
room."""

from __future__ import annotations

import errno

import pytest
from structlog.testing import capture_logs

from broker_in_loop import RunningBroker
from logs import append, make_batch
from node_world import NodeWorld
from odradek_broker.storage.errors import AppendRejected
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.disk import DiskFailure
from raw_client import RawClient, batch_of, produce_request


class Told:
    """The reports about the disk."""

    def __init__(self, world: NodeWorld) -> None:
        self.lines: list[str] = []
        disk = world.logs.directories[0].disk
        disk.on_failing = lambda problem: self._tell("failing", problem)
        disk.on_working = lambda problem: self._tell("working", problem)
        disk.on_offline = lambda name, reason: self.lines.append(f"offline: {name}: {reason}")

    def _tell(self, what: str, problem: str) -> None:
        assert problem
        self.lines.append(what)


@pytest.fixture
def world() -> NodeWorld:
    world = NodeWorld()
    world.create("t", 2)
    world.flush()
    return world


def refused(world: NodeWorld, partition: int = 0, records: int = 1) -> AppendRejected:
    found = world.node.partition("t", partition)
    assert found is not None
    with pytest.raises(AppendRejected) as caught:
        append(found.log, make_batch(records))
    return caught.value


FULL = "No space left on device"
FIRST = "00000000000000000000.log"


def fill(world: NodeWorld) -> DiskFailure:
    return world.files.fail(DiskFailure("append", code=errno.ENOSPC, for_ever=True))


def test_l08_a_full_disk_is_reported_once_and_each_error_names_the_cause(world: NodeWorld) -> None:
    told = Told(world)
    fill(world)
    for turn in range(6):
        problem = refused(world, turn % 2)
        assert problem.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert problem.message.endswith(f"failed: append to data/t-{turn % 2}/{FIRST}")
    world.node.maintain()
    assert told.lines == ["failing"]
    assert world.logs.directories[0].disk.problem == f"append to data/t-0/{FIRST}"
    assert world.logs.directories[0].disk.failures == 6


def test_l08_a_full_disk_is_found_writable_again_without_a_write(world: NodeWorld) -> None:
    told = Told(world)
    fill(world)
    refused(world)
    world.files.heal()
    world.node.maintain()
    assert told.lines == ["failing", "working"]
    assert world.logs.directories[0].disk.problem == ""
    world.produce("t", 3)
    assert world.end("t") == 3
    assert [name for name in world.files.list("data") if "trial" in name] == []
    fill(world)
    refused(world)
    assert told.lines[2:] == ["failing"]


def test_l08_a_full_disk_needs_room_for_the_largest_failed_batch(world: NodeWorld) -> None:
    """A little room suffices for small batches: without this rule the report would change with
    every request."""
    told = Told(world)
    full = fill(world)
    found = world.node.partition("t", 0)
    assert found is not None
    big = make_batch(2, value=b"x" * 300_000)
    with pytest.raises(AppendRejected):
        append(found.log, big)
    full.path_part = "trial"
    asked = world.logs.directories[0].disk.trial_bytes
    assert asked >= 600_000
    world.produce("t", 1)
    world.node.maintain()
    assert told.lines == ["failing"]


def test_too_many_open_files_are_no_full_disk(world: NodeWorld) -> None:
    told = Told(world)
    world.files.fail(DiskFailure("append", code=errno.EMFILE, for_ever=True))
    refused(world)
    assert (told.lines, world.logs.directories[0].disk.problem) == ([], "")


def test_d5_a_partition_that_goes_offline_is_reported(world: NodeWorld) -> None:
    told = Told(world)
    world.files.fail(DiskFailure("sync", path_part="t-0"))
    found = world.node.partition("t", 0)
    assert found is not None
    append(found.log, make_batch(1))
    world.asked[found.log.durability] = None
    world.flush()
    assert len(told.lines) == 1
    assert told.lines[0].startswith("offline: t-0: fsync failed")


async def test_the_broker_logs_a_full_disk_and_its_end(
    client: RawClient, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create_topic("t")
    active = broker.node.partition("t", 0).log.segments[-1]

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, FULL)

    with capture_logs() as lines, monkeypatch.context() as patch:
        patch.setattr(type(active.file), "append", full)
        for _ in range(3):
            answer = await client.call(produce_request("t", batch_of(b"a")), 9)
            part = answer.responses[0].partition_responses[0]
            assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert FULL in part.error_message
        patch.undo()
        broker.node.maintain()
        answer = await client.call(produce_request("t", batch_of(b"a")), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    said = [(line["log_level"], line["event"].partition(":")[0]) for line in lines]
    assert said == [
        ("error", "the data directory cannot be written"),
        ("warning", "the data directory can be written again"),
    ]
