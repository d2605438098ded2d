"""The faults of a run, with their times, drawn from a seed before it begins.

A list can be replayed without some of its faults, to find those that a failing seed needs.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

from odradek_broker.metadata.cluster import SHARE_STATE_TOPIC
from odradek_broker.share.events import (
    DeadLettered,
    LocksExpired,
    RecordsAcknowledged,
    RecordsReturned,
    ShareEvent,
)
from odradek_broker.share.in_flight import FINISHED
from odradek_protocol.records.batch import iter_batches
from odradek_testkit.simulation.disk import DiskFailure
from odradek_testkit.simulation.network import SimulatedTransport, Weather
from odradek_testkit.simulation.shortage import LastBytes, ScarceRoom, Shortage
from odradek_testkit.simulation.world import World

#: The errors of the wall clock. The errors are less than a day apart, because a broker drops its
#: state of an idle producer a day after its last record. The clock is at most an hour slow, because
#: the broker refuses records that are further ahead of its clock.
CLOCK_ERRORS_MS = (-3_600_000, -60_000, 60_000, 43_200_000)
#: For faults that follow an answer or a dead letter: the minimum and maximum duration of an fsync,
#: and the maximum wait for the event.
_BEHIND_AN_ANSWER_SYNC_MS = (20.0, 60.0)
_NEXT_ANSWER_MS = 3_000
#: The minimum and maximum duration of an fsync while a power cut waits for two unsynced segments.
_BEHIND_A_ROLL_SYNC_MS = (50.0, 200.0)
#: The minimum time for which no state of a share partition can be written.
_STATE_REFUSED_MS = 20
#: The minimum time for which the disk has no room.
_SHORTAGE_MS_MIN = 50
#: The shares of changes that a disk with scarce room refuses.
_REFUSED_SHARES = (0.05, 0.3, 0.9)
#: The time between the end of the process and the start on a failing disk.
_DOWN_MS = 20
#: The time in which a cleaner that runs all the time writes recovery points.
_UNTIL_CHECKPOINT_MS = 500
#: The maximum time between a start and a crash that follows soon after it.
_SOON_MS = 60
AT_START = ("open", "read", "append", "sync", "rename")
ANSWERS_LOST = (
    "Produce",
    "OffsetCommit",
    "JoinGroup",
    "SyncGroup",
    "ConsumerGroupHeartbeat",
    "LeaveGroup",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "CreateTopics",
    "DeleteTopics",
)
_LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
REFUSALS = (
    ("Produce", "NOT_LEADER_OR_FOLLOWER"),
    ("Produce", "NOT_ENOUGH_REPLICAS"),
    ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
    ("ListOffsets", "LEADER_NOT_AVAILABLE"),
    ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
    ("OffsetCommit", _LOADING),
    ("OffsetCommit", "NOT_COORDINATOR"),
    ("OffsetFetch", _LOADING),
    ("JoinGroup", _LOADING),
    ("SyncGroup", "NOT_COORDINATOR"),
    ("Heartbeat", "COORDINATOR_NOT_AVAILABLE"),
    ("ConsumerGroupHeartbeat", _LOADING),
    ("InitProducerId", _LOADING),
    ("AddPartitionsToTxn", "NOT_COORDINATOR"),
    ("AddOffsetsToTxn", _LOADING),
    ("TxnOffsetCommit", _LOADING),
    ("EndTxn", _LOADING),
    ("EndTxn", "NOT_COORDINATOR"),
)


#: The requests of share groups and streams groups.
NEW_GROUP_REQUESTS = (
    "ShareFetch",
    "ShareAcknowledge",
    "ShareGroupHeartbeat",
    "StreamsGroupHeartbeat",
)
NEW_GROUP_REFUSALS = (
    ("ShareFetch", "NOT_LEADER_OR_FOLLOWER"),
    ("ShareFetch", "SHARE_SESSION_NOT_FOUND"),
    ("ShareAcknowledge", "INVALID_SHARE_SESSION_EPOCH"),
    ("ShareGroupHeartbeat", _LOADING),
    ("ShareGroupHeartbeat", "NOT_COORDINATOR"),
    ("StreamsGroupHeartbeat", _LOADING),
    ("StreamsGroupHeartbeat", "COORDINATOR_NOT_AVAILABLE"),
)


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """A fault: `kind` of FAULTS happens at `at_ms`, for `lasts_ms`; `size` is a parameter of the
    kind."""

    at_ms: int
    kind: str
    lasts_ms: int
    size: int

    def __str__(self) -> str:
        return f"{self.kind} (for {self.lasts_ms} ms, size {self.size})"


async def kill_broker(world: World, fault: ScheduledFault) -> None:
    """The process is killed, and is started again at the end of the fault."""
    await world.kill_broker(power_lost=False, down_ms=fault.lasts_ms)


async def cut_power(world: World, fault: ScheduledFault) -> None:
    """The machine loses its power: unsynced data is lost, or torn."""
    await world.kill_broker(power_lost=True, down_ms=fault.lasts_ms)


async def cut_power_behind_an_answer(world: World, fault: ScheduledFault) -> None:
    """The disk is slow, and the machine loses its power just after one of the next answers has
    arrived."""
    left = 1 + fault.size % 20
    arrived = asyncio.Event()

    def received(at: SimulatedTransport) -> None:
        nonlocal left
        left -= at.process is not world.broker.process
        if not left:
            arrived.set()

    world.network.on_received = received
    with world.slow_disk(*_BEHIND_AN_ANSWER_SYNC_MS):
        await asyncio.wait([asyncio.ensure_future(arrived.wait())], timeout=_NEXT_ANSWER_MS / 1000)
        world.network.on_received = None
        await world.kill_broker(power_lost=True, down_ms=fault.lasts_ms)


async def cut_power_behind_a_roll(world: World, fault: ScheduledFault) -> None:
    """The disk is slow, and the machine loses its power when two successive segments are unsynced.
    The end of the first segment is lost, but the kernel has written the second segment to the disk.
    In half of the cases the process is killed and started before the power cut, and this start
    cannot sync the two segments."""
    disk = world.broker.disk
    with world.slow_disk(*_BEHIND_A_ROLL_SYNC_MS):
        rolled = await _unsynced_roll(world)
    if rolled is None:
        return
    if fault.size % 2:
        directory = rolled[0].rpartition("/")[0]
        await _restart_on_a_failing_disk(
            world, DiskFailure("sync", path_part=f"{directory}/", for_ever=True)
        )
        await world.sleep(_UNTIL_CHECKPOINT_MS)
    if not world.broker.survives_power_cuts:
        return
    world.broker.process.kill()
    if all(map(disk.exists, rolled)):
        disk.take_back(rolled[0])
        disk.write_back(rolled[1])
    await world.kill_broker(power_lost=True, down_ms=fault.lasts_ms)


async def _unsynced_roll(world: World) -> tuple[str, str] | None:
    """Wait for two successive unsynced segments of a user's topic, both with batches of the same
    producer. Returns the paths of the segments, or None if there are no such segments in time."""
    disk = world.broker.disk
    until_ms = world.now_ms + _NEXT_ANSWER_MS
    while world.now_ms < until_ms:
        paths = [each for each in disk.unsynced() if each.endswith(".log")]
        for first, second in pairwise(paths):
            directory = first.rpartition("/")[0]
            if (
                directory == second.rpartition("/")[0]
                and "/__" not in directory
                and _producers(disk.unsynced_content(first)) & _producers(disk.content(second))
            ):
                return first, second
        await world.sleep(1)
    return None


def _producers(batches: bytes) -> set[int]:
    return {header.producer_id for _, header in iter_batches(batches)}


async def crash_behind_a_dead_letter(world: World, fault: ScheduledFault) -> None:
    """The disk is slow. When the next dead letter of a share group is durable and the state of its
    share partition is not, the process is killed, or the machine loses its power."""
    process = world.broker.process
    # The crash happens when the dead letter is durable, or a little later, while the state is being
    # written.
    at_once = fault.size % 3 > 0
    with world.slow_disk(*_BEHIND_AN_ANSWER_SYNC_MS):
        if await _share_event(world, _is_dead_letter, process.kill if at_once else _nothing):
            if not at_once:
                await world.sleep(fault.size % int(_BEHIND_AN_ANSWER_SYNC_MS[1]))
            power_lost = bool(fault.size % 2)
            await world.kill_broker(power_lost=power_lost, down_ms=fault.lasts_ms)


async def refused_state_behind_a_dead_letter(world: World, fault: ScheduledFault) -> None:
    """After the next dead letter, no state of a share partition can be written for some time. In
    half of the cases an earlier record is still unfinished at that dead letter, and the process is
    killed later, after the next state that covers a later dead letter of the share partition."""
    disk = world.broker.disk
    failure = DiskFailure(
        "append",
        code=errno.ENOSPC,
        path_part=SHARE_STATE_TOPIC,
        torn_bytes=fault.size % 100,
        for_ever=True,
    )
    kills = bool(fault.size % 2)
    wanted = partial(_is_letter_behind_an_open_record, world) if kills else _is_dead_letter
    letter = await _share_event(world, wanted, lambda: disk.fail(failure))
    if letter is None:
        return
    await world.sleep(max(fault.lasts_ms, _STATE_REFUSED_MS))
    disk.heal()
    process = world.broker.process
    if kills and await _share_event(world, _StateBehindALetter(letter), process.kill):
        await world.kill_broker(power_lost=False, down_ms=fault.lasts_ms)


def _is_dead_letter(event: ShareEvent) -> bool:
    return isinstance(event, DeadLettered)


def _is_letter_behind_an_open_record(world: World, event: ShareEvent) -> bool:
    if not isinstance(event, DeadLettered):
        return False
    return any(
        run.last < event.first_offset and run.state not in FINISHED
        for led in world.broker.server.node.share_partitions.loaded()
        if led.key == event.key and led.state is not None
        for batch in led.state.in_flight
        for run in batch.runs
    )


class _StateBehindALetter:
    """A condition for events of share partitions: true for an event that stores the state of a dead
    letter which follows `earlier` in the same share partition."""

    def __init__(self, earlier: DeadLettered) -> None:
        self._key = earlier.key
        self._letters: set[int] = set()

    def __call__(self, event: ShareEvent) -> bool:
        if isinstance(event, DeadLettered) and event.key == self._key:
            self._letters.update(range(event.first_offset, event.last_offset + 1))
        if not isinstance(event, RecordsAcknowledged | RecordsReturned | LocksExpired):
            return False
        return event.key == self._key and any(
            first <= letter <= last for first, last, *_ in event.stored for letter in self._letters
        )


async def _share_event(
    world: World, wanted: Callable[[ShareEvent], bool], happens: Callable[[], object]
) -> Any:
    """Wait for the next wanted event of the share partitions, and call `happens` at that moment.
    Returns the event, or None if there is none in time."""
    if not world.broker.running or not hasattr(world.broker.server, "node"):
        return None
    partitions = world.broker.server.node.share_partitions
    tell = partitions.observer
    found: asyncio.Future[ShareEvent] = world.loop.create_future()

    def told(event: ShareEvent) -> None:
        tell(event)
        if not found.done() and wanted(event):
            found.set_result(event)
            happens()

    partitions.observer = told
    await asyncio.wait([found], timeout=_NEXT_ANSWER_MS / 1000)
    partitions.observer = tell
    return found.result() if found.done() else None


def _nothing() -> None:
    pass


async def crash_in_operation(world: World, fault: ScheduledFault) -> None:
    """The machine crashes in the middle of one of its next operations on the disk."""
    disk = world.broker.disk
    process = world.broker.process
    disk.crash_at = disk.operations + fault.size % 40
    await world.sleep(fault.lasts_ms)
    disk.crash_at = None
    if not process.alive and world.broker.process is process:
        await world.kill_broker(power_lost=bool(fault.size % 2), down_ms=fault.lasts_ms)


async def stop_broker(world: World, fault: ScheduledFault) -> None:
    """The broker is stopped cleanly, and started again."""
    await world.restart_broker(fault.lasts_ms)


async def crash_behind_a_stop(world: World, fault: ScheduledFault) -> None:
    """The broker is stopped cleanly and started again. Soon after the start the process is killed,
    or the machine loses its power, so the next start finds what the clean stop has written."""
    await world.restart_broker()
    await world.sleep(fault.size % _SOON_MS)
    await world.kill_broker(power_lost=bool(fault.size % 2), down_ms=fault.lasts_ms)


async def cut_connections(world: World, fault: ScheduledFault) -> None:
    """Every connection is reset."""
    world.network.cut_all()


async def silence(world: World, fault: ScheduledFault) -> None:
    """No more data arrives on some connections, in one direction or both, without an error."""
    for number, transport in enumerate(list(world.network.transports)):
        if (number + fault.size) % 3 == 0:
            transport.silent = True


async def unreachable(world: World, fault: ScheduledFault) -> None:
    """New connections are refused, and existing ones are cut."""
    world.network.unreachable.update(world.broker.addresses.values())
    world.network.cut_all()
    await world.sleep(fault.lasts_ms)
    world.network.unreachable.clear()


async def bad_weather(world: World, fault: ScheduledFault) -> None:
    """The network becomes slow, and divides sent data into pieces."""
    before = world.network.weather
    world.network.weather = Weather((0.1, fault.size % 400), 1 + fault.size % 1_000)
    await world.sleep(fault.lasts_ms)
    world.network.weather = before


async def slow_disk(world: World, fault: ScheduledFault) -> None:
    """An fsync takes up to a second."""
    with world.slow_disk(0.0, float(fault.size)):
        await world.sleep(fault.lasts_ms)


async def full_disk(world: World, fault: ScheduledFault) -> None:
    """Nothing can be written for some time."""
    failures = [
        DiskFailure(kind, code=errno.ENOSPC, for_ever=True, torn_bytes=fault.size % 100)
        for kind in ("append", "open")
    ]
    for failure in failures:
        world.broker.disk.fail(failure)
    await world.sleep(fault.lasts_ms)
    world.broker.disk.heal()


async def last_bytes(world: World, fault: ScheduledFault) -> None:
    """For some time there is room for only a few more bytes. If a write does not fit, its first
    part is written and the rest is refused."""
    left_bytes = fault.size**2 // 20
    await _short_of_room(world, fault, LastBytes(world.broker.disk.used_bytes, left_bytes))


async def scarce_room(world: World, fault: ScheduledFault) -> None:
    """For some time the disk refuses some of its changes (writes, names, truncations, removals) for
    lack of room, as a file system that copies blocks may do."""
    share = _REFUSED_SHARES[fault.size % len(_REFUSED_SHARES)]
    await _short_of_room(world, fault, ScarceRoom(Random(fault.size), share))


async def _short_of_room(world: World, fault: ScheduledFault, shortage: Shortage) -> None:
    """Keep the disk short of room while the fault lasts, even if the machine crashes during the
    fault."""
    disk = world.broker.disk
    disk.shortage = shortage
    await world.sleep(max(fault.lasts_ms, _SHORTAGE_MS_MIN))
    if disk.shortage is shortage:
        disk.shortage = None


async def failed_write(world: World, fault: ScheduledFault) -> None:
    """An append fails after a part of its bytes was written."""
    world.broker.disk.fail(
        DiskFailure("append", nth=1 + fault.size % 5, torn_bytes=fault.size % 200)
    )


async def failed_sync(world: World, fault: ScheduledFault) -> None:
    """A sync fails: the partition is offline until the broker is started again."""
    kind = "write_at" if fault.size % 3 == 0 else "sync"
    world.broker.disk.fail(DiskFailure(kind, nth=1 + fault.size % 5))


async def failed_read(world: World, fault: ScheduledFault) -> None:
    """A read fails."""
    world.broker.disk.fail(DiskFailure("read", nth=1 + fault.size % 5))


async def failed_directory(world: World, fault: ScheduledFault) -> None:
    """The disk of the last data directory fails until the broker is started again. If there is only
    one data directory, nothing happens."""
    paths = world.broker.config.log_dirs
    if len(paths) < 2:
        return
    for kind in (
        "append",
        "open",
        "read",
        "remove",
        "rename",
        "sync",
        "sync_dir",
        "truncate",
        "volume",
    ):
        world.broker.disk.fail(DiskFailure(kind, path_part=paths[-1], for_ever=True))


async def clock_jump(world: World, fault: ScheduledFault) -> None:
    """The broker's wall clock is set wrong, by a minute, an hour or half a day."""
    world.broker.clock.set_wrong(CLOCK_ERRORS_MS[fault.size % len(CLOCK_ERRORS_MS)])


async def kill_client(world: World, fault: ScheduledFault) -> None:
    """A client is killed; the workload starts another."""
    world.kill_client(fault.size)


async def lost_answers(world: World, fault: ScheduledFault) -> None:
    """Some requests of one kind are carried out, and never answered."""
    api = ANSWERS_LOST[fault.size % len(ANSWERS_LOST)]
    world.order(fault="drop_reply", api=api, times=1 + fault.size % 3)


async def refused_requests(world: World, fault: ScheduledFault) -> None:
    """Requests of one kind are refused for some time, with a retriable error."""
    api, code = REFUSALS[fault.size % len(REFUSALS)]
    for_ms = max(fault.lasts_ms, 1)
    world.order(fault="fail", api=api, code=code, times=None, for_ms=for_ms)


async def lost_group_answers(world: World, fault: ScheduledFault) -> None:
    """Some requests of a share group or streams group are carried out, but the answer is lost: it
    is never sent, or the connection is closed instead."""
    api = NEW_GROUP_REQUESTS[fault.size % len(NEW_GROUP_REQUESTS)]
    times = 1 + fault.size % 3
    if fault.size % 5 < 3:
        world.order(fault="cut", api=api, handled=True, times=times)
    else:
        world.order(fault="drop_reply", api=api, times=times)


async def refused_group_requests(world: World, fault: ScheduledFault) -> None:
    """Requests of a share group or streams group are refused for some time."""
    api, code = NEW_GROUP_REFUSALS[fault.size % len(NEW_GROUP_REFUSALS)]
    world.order(fault="fail", api=api, code=code, times=None, for_ms=max(fault.lasts_ms, 1))


async def refused_commits(world: World, fault: ScheduledFault) -> None:
    """Commits of offsets are refused for some time, during which groups may rebalance."""
    for_ms = 500 + 2 * fault.size
    world.order(fault="fail", api="OffsetCommit", code=_LOADING, times=None, for_ms=for_ms)


async def trouble_at_start(world: World, fault: ScheduledFault) -> None:
    """The process is killed, and the disk fails when it is started again."""
    failure = DiskFailure(AT_START[fault.size % len(AT_START)], nth=1 + fault.size % 17)
    await _restart_on_a_failing_disk(world, failure)


async def _restart_on_a_failing_disk(world: World, failure: DiskFailure) -> None:
    """Kill the process, and start it again with a disk that fails."""
    starting = asyncio.ensure_future(world.kill_broker(power_lost=False, down_ms=_DOWN_MS))
    # `fail` is called after the crash, because a crash removes all requested failures.
    await world.sleep(_DOWN_MS / 2)
    world.broker.disk.fail(failure)
    await starting


async def switch_durability(world: World, fault: ScheduledFault) -> None:
    """The broker is started with the other value of `log.durability`, after a clean stop or
    a kill."""
    await world.switch_durability(stop=bool(fault.size % 2))


async def cut_power_at_start(world: World, fault: ScheduledFault) -> None:
    """The broker is started with one of the two values of `log.durability`, and the machine loses
    its power soon afterwards."""
    durability = "page-cache" if fault.size % 3 else "fsync"
    await world.cut_power_at_start(durability=durability, stop=fault.size % 4 == 0)


FAULTS: dict[str, Callable[[World, ScheduledFault], Awaitable[None]]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        kill_broker,
        cut_power,
        crash_in_operation,
        stop_broker,
        crash_behind_a_stop,
        cut_connections,
        silence,
        unreachable,
        bad_weather,
        slow_disk,
        full_disk,
        failed_write,
        failed_sync,
        failed_read,
        failed_directory,
        clock_jump,
        kill_client,
        cut_power_behind_an_answer,
        cut_power_behind_a_roll,
        crash_behind_a_dead_letter,
        refused_state_behind_a_dead_letter,
        lost_answers,
        refused_requests,
        refused_commits,
        lost_group_answers,
        refused_group_requests,
        trouble_at_start,
        switch_durability,
        cut_power_at_start,
        last_bytes,
        scarce_room,
    )
}


async def play(world: World, faults: Iterable[ScheduledFault], duration_ms: int) -> None:
    """Cause the faults at their times. After the last one, end all of them."""
    running = [asyncio.ensure_future(_play_one(world, fault)) for fault in faults]
    await asyncio.gather(world.sleep(duration_ms), *running)
    await world.heal()
    world.faults_over.set()


async def _play_one(world: World, fault: ScheduledFault) -> None:
    await world.sleep(fault.at_ms)
    world.note("FAULT", str(fault))
    await FAULTS[fault.kind](world, fault)


def draw_faults(
    random: Random, duration_ms: int, most: int = 6, kinds: tuple[str, ...] = tuple(FAULTS)
) -> list[ScheduledFault]:
    """Up to `most` faults within the duration, in the order of their times."""
    return sorted(
        (
            ScheduledFault(
                at_ms=random.randrange(duration_ms),
                kind=random.choice(kinds),
                lasts_ms=random.choice((0, 5, 50, 500, 3_000)),
                size=random.randrange(1_000),
            )
            for _ in range(random.randint(0, most))
        ),
        key=lambda fault: fault.at_ms,
    )
