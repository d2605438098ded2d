"""Costs of groups: the time of a large rebalance, and memory and start time for idle groups.

    python -m benchmarks.groups [--members 100] [--partitions 1000] [--groups 10000] [--rounds 5]

A rebalance begins when one more member sends its first JoinGroup to a stable group, and ends when
the last member has its new assignment. Members learn of the rebalance from a heartbeat, which they
send every HEARTBEAT_MS, so up to HEARTBEAT_MS of the time is waiting. The members are bare
connections in one process that use the classic protocol; the leader assigns with our `range`
assignor. "CPU" is the broker's processor time. Then the rebalance is measured with the same number
of our own consumers instead of bare connections.

Idle groups are empty groups that have committed offsets and have had a member. Memory is the
resident memory that these groups add to the broker, measured before a restart and after it.
"Restart" is the time from the start of the process to its ready line, with the groups and without
any groups.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support import (
    Report,
    Spread,
    cpu_s,
    parser,
    resident_bytes,
    run_on_uvloop,
    say,
    shown,
)

from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, NewTopic
from odradek_client.consumer.assignors.base import GroupMember
from odradek_client.consumer.assignors.range import RangeAssignor
from odradek_client.consumer.consumer import Consumer
from odradek_client.consumer.rebalance_listener import RebalanceListener
from odradek_protocol import frames
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message
from odradek_protocol.schemas.heartbeat import HeartbeatRequest
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek_protocol.stored.assignment import (
    ConsumerAssignment,
    decode_assignment,
    encode_assignment,
)
from odradek_protocol.stored.subscription import ConsumerSubscription, encode_subscription

TOPIC = "groups"
GROUP = "large"
PROTOCOL_TYPE = "consumer"
PROTOCOL = "range"
HEARTBEAT_MS = 500
SESSION_MS = 30_000
REBALANCE_BUDGET_S = 2.0
IDLE_BUDGET_MB = 200
RESTART_BUDGET_S = 5.0
#: The number of partitions for which an idle group has committed offsets.
COMMITTED_EACH = 3
#: The number of idle groups that are created at the same time.
_ABREAST = 50
_PATIENCE_S = 120
_SETTLE_S = 1.0
_JOIN_VERSION, _COMMIT_VERSION, _LEAVE_VERSION = 9, 8, 5
#: A JoinGroup version that needs no second request for the member id.
_OLD_JOIN_VERSION = 3


class Connection:
    """A connection with one request in flight."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._correlation_id = 0

    @classmethod
    async def to(cls, bootstrap: str) -> Connection:
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def call(self, request: Message, version: int | None = None) -> Any:
        api = api_of(request)
        version = api.versions.last if version is None else version
        self._correlation_id += 1
        self._writer.writelines(
            frames.encode_request(request, version, self._correlation_id, "bench")
        )
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        if frames.decode_correlation_id(frame) != self._correlation_id:
            raise SystemExit("an answer to another request")
        return frames.decode_response(api, version, frame)

    def close(self) -> None:
        self._writer.close()


def _join_request(group: str, member_id: str, topic: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequestProtocol(
                name=PROTOCOL, metadata=encode_subscription(ConsumerSubscription(topics=[topic]))
            )
        ],
    )


async def prepare(bootstrap: str, partitions: int) -> None:
    """Create the topic to read, and let a first group create the topic of committed offsets."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, partitions, 1)])
    async with Consumer(bootstrap_servers=bootstrap, group_id="first") as consumer:
        consumer.assign([(TOPIC, 0)])
        await consumer.commit({(TOPIC, 0): 0})


# --- One large group ------------------------------------------------------------------------------


@dataclass
class Settled:
    """The assignments of all members, with their generation; `when_s`: the time of the last change.

    `over`: true when members are allowed to end without leaving the group.
    """

    generation: dict[int, int] = field(default_factory=dict)
    partitions: dict[int, frozenset[int]] = field(default_factory=dict)
    when_s: float = 0.0
    over: bool = False
    failure: BaseException | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, member: int, generation: int, partitions: frozenset[int]) -> None:
        self.generation[member] = generation
        self.partitions[member] = partitions
        self.when_s = time.perf_counter()
        self.changed.set()

    def watch(self, task: asyncio.Future[None]) -> None:
        """End the measurement if a member fails."""
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
            self.changed.set()

    async def until(self, members: int, partitions: int) -> None:
        """Wait until all members are in one generation and every partition has exactly one
        member."""

        def holds() -> bool:
            dealt = [each for held in self.partitions.values() for each in held]
            return (
                len(self.generation) == members
                and len(set(self.generation.values())) == 1
                and sorted(dealt) == list(range(partitions))
            )

        async with asyncio.timeout(_PATIENCE_S):
            while not holds():
                self.changed.clear()
                await self.changed.wait()
                if self.failure is not None:
                    raise self.failure


class Member:
    """A member that uses the classic protocol and fetches nothing."""

    def __init__(self, number: int, connection: Connection, partitions: int, all_: Settled) -> None:
        self._number = number
        self._connection = connection
        self._partitions = partitions
        self._settled = all_
        self._member_id = ""
        self._generation = -1

    async def live(self) -> None:
        """Stay in the group until cancelled."""
        while True:
            await self._rejoin()
            while True:
                await asyncio.sleep(HEARTBEAT_MS / 1000)
                answer = await self._connection.call(
                    HeartbeatRequest(
                        group_id=GROUP, generation_id=self._generation, member_id=self._member_id
                    )
                )
                if answer.error_code != ErrorCode.NONE:
                    break

    async def leave(self, connection: Connection) -> None:
        """Leave the group by another connection, because the member's connection may be waiting for
        an answer."""
        identity = MemberIdentity(member_id=self._member_id)
        await connection.call(LeaveGroupRequest(group_id=GROUP, members=[identity]), _LEAVE_VERSION)
        connection.close()

    async def _rejoin(self) -> None:
        while True:
            joined = await self._connection.call(
                _join_request(GROUP, self._member_id, TOPIC), _JOIN_VERSION
            )
            self._member_id = joined.member_id
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            if joined.error_code != ErrorCode.NONE:
                raise SystemExit(f"JoinGroup: {ErrorCode.of(joined.error_code).name}")
            self._generation = joined.generation_id
            synced = await self._connection.call(
                SyncGroupRequest(
                    group_id=GROUP,
                    generation_id=self._generation,
                    member_id=self._member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocol_name=PROTOCOL,
                    assignments=self._deal([each.member_id for each in joined.members]),
                )
            )
            if synced.error_code == ErrorCode.NONE:
                break
            if synced.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                raise SystemExit(f"SyncGroup: {ErrorCode.of(synced.error_code).name}")
        held = decode_assignment(synced.assignment).assigned_partitions
        self._settled.take(
            self._number,
            self._generation,
            frozenset(number for each in held for number in each.partitions),
        )

    def _deal(self, member_ids: list[str]) -> list[SyncGroupRequestAssignment]:
        members = [GroupMember(member_id, (TOPIC,)) for member_id in member_ids]
        dealt = RangeAssignor().assign({TOPIC: self._partitions}, members)
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_assignment(
                    ConsumerAssignment(
                        assigned_partitions=[
                            PartitionsOfTopic(topic=TOPIC, partitions=[at.partition for at in held])
                        ]
                    )
                ),
            )
            for member_id, held in dealt.items()
        ]


class _Watch(RebalanceListener):
    """A rebalance listener that records the assignments of one of our consumers."""

    def __init__(self, number: int, settled: Settled) -> None:
        self._number = number
        self._settled = settled
        self.consumer: Consumer | None = None

    def on_partitions_assigned(self, partitions: set[Any]) -> None:
        assert self.consumer is not None
        self._settled.take(
            self._number,
            self.consumer.group_metadata().generation_id,
            frozenset(each.partition for each in partitions),
        )


async def _bare(number: int, bootstrap: str, partitions: int, settled: Settled) -> None:
    connection = await Connection.to(bootstrap)
    member = Member(number, connection, partitions, settled)
    try:
        await member.live()
    finally:
        connection.close()
        if not settled.over:
            await member.leave(await Connection.to(bootstrap))


async def _ours(number: int, bootstrap: str, partitions: int, settled: Settled) -> None:
    watch = _Watch(number, settled)
    async with Consumer(
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        heartbeat_interval_ms=HEARTBEAT_MS,
        session_timeout_ms=SESSION_MS,
        partition_assignment_strategy="range",
        enable_auto_commit=False,
    ) as consumer:
        watch.consumer = consumer
        consumer.subscribe([TOPIC], listener=watch)
        while True:
            await consumer.poll(1_000)


async def rebalances(
    kind: Callable[..., Any], broker: SubprocessBroker, members: int, partitions: int, rounds: int
) -> tuple[list[float], list[float]]:
    """(seconds, seconds of the broker's processor time) of each rebalance."""
    await prepare(broker.bootstrap, partitions)
    settled = Settled()
    tasks = [
        asyncio.ensure_future(kind(number, broker.bootstrap, partitions, settled))
        for number in range(members - 1)
    ]
    for task in tasks:
        task.add_done_callback(settled.watch)
    took, cpu = [], []
    try:
        await settled.until(members - 1, partitions)
        for each in range(rounds):
            # All members send heartbeats together. In each round, the new member joins at a
            # different time between two heartbeats.
            await asyncio.sleep(_SETTLE_S + HEARTBEAT_MS / 1000 * each / rounds)
            before = cpu_s(broker.pid or 0) or 0.0
            started = time.perf_counter()
            late = asyncio.ensure_future(kind(members - 1, broker.bootstrap, partitions, settled))
            late.add_done_callback(settled.watch)
            await settled.until(members, partitions)
            took.append(settled.when_s - started)
            cpu.append((cpu_s(broker.pid or 0) or 0.0) - before)
            late.cancel()
            await asyncio.gather(late, return_exceptions=True)
            del settled.generation[members - 1], settled.partitions[members - 1]
            await settled.until(members - 1, partitions)
    finally:
        settled.over = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return took, cpu


def measure_rebalance(
    report: Report, title: str, kind: Callable[..., Any], members: int, partitions: int, rounds: int
) -> None:
    say(title)
    with tempfile.TemporaryDirectory() as directory:
        settings = {"log.durability": "fsync", "group.initial.rebalance.delay.ms": 0}
        with SubprocessBroker(data_dir=Path(directory), settings=settings, timeout_s=60) as broker:
            took, cpu = run_on_uvloop(rebalances(kind, broker, members, partitions, rounds))
    seconds, spent = Spread.of(took), Spread.of(cpu)
    met = seconds.high < REBALANCE_BUDGET_S
    report.row(
        (title, str(seconds), f"{spent.median * 1000:.0f}", "yes" if met else "**no**"),
        seconds=round(seconds.median, 3),
        seconds_high=round(seconds.high, 3),
        broker_cpu_ms=round(spent.median * 1000, 1),
        met=met,
    )


# --- Many idle groups -----------------------------------------------------------------------------


async def _idle_group(connection: Connection, group: str) -> None:
    """Make an idle group: one member joins, commits and leaves."""

    def must(error_code: int, what: str) -> None:
        if error_code != ErrorCode.NONE:
            raise SystemExit(f"{what} of group {group}: {ErrorCode.of(error_code).name}")

    joined = await connection.call(_join_request(group, "", TOPIC), _OLD_JOIN_VERSION)
    must(joined.error_code, "JoinGroup")
    who = {"group_id": group, "member_id": joined.member_id}
    assigned = encode_assignment(
        ConsumerAssignment(
            assigned_partitions=[
                PartitionsOfTopic(topic=TOPIC, partitions=list(range(COMMITTED_EACH)))
            ]
        )
    )
    synced = await connection.call(
        SyncGroupRequest(
            **who,
            generation_id=joined.generation_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=[
                SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assigned)
            ],
        )
    )
    must(synced.error_code, "SyncGroup")
    committed = await connection.call(
        OffsetCommitRequest(
            **who,
            generation_id_or_member_epoch=joined.generation_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=number, committed_offset=1000)
                        for number in range(COMMITTED_EACH)
                    ],
                )
            ],
        ),
        _COMMIT_VERSION,
    )
    must(committed.topics[0].partitions[0].error_code, "OffsetCommit")
    left = await connection.call(
        LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=joined.member_id)]),
        _LEAVE_VERSION,
    )
    must(left.members[0].error_code, "LeaveGroup")


async def make_idle_groups(bootstrap: str, groups: int) -> None:
    numbers = iter(range(groups))

    async def some() -> None:
        connection = await Connection.to(bootstrap)
        for number in numbers:
            await _idle_group(connection, f"idle-group-{number:06}")
        connection.close()

    await asyncio.gather(*[some() for _ in range(_ABREAST)])


def _restart(data_dir: Path, settings: dict[str, object]) -> tuple[float, int]:
    """Restart the broker. Returns (seconds until it is ready, bytes of resident memory)."""
    broker = SubprocessBroker(data_dir=data_dir, settings=settings, timeout_s=60)
    started = time.perf_counter()
    with broker:
        ready_s = time.perf_counter() - started
        time.sleep(_SETTLE_S)
        return ready_s, resident_bytes(broker.pid or 0) or 0


def measure_idle(report: Report, groups: int, rounds: int) -> None:
    say(f"{groups:,} idle groups")
    settings: dict[str, object] = {
        "log.durability": "page-cache",
        "group.initial.rebalance.delay.ms": 0,
    }
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        with SubprocessBroker(data_dir=folder, settings=settings, timeout_s=60) as broker:
            run_on_uvloop(prepare(broker.bootstrap, COMMITTED_EACH))
        without_s, without = _restart(folder, settings)
        with SubprocessBroker(data_dir=folder, settings=settings, timeout_s=60) as broker:
            time.sleep(_SETTLE_S)
            before = resident_bytes(broker.pid or 0) or 0
            run_on_uvloop(make_idle_groups(broker.bootstrap, groups))
            time.sleep(_SETTLE_S)
            grown_mb = ((resident_bytes(broker.pid or 0) or 0) - before) / 1e6
        logged = sum(path.stat().st_size for path in folder.glob("**/__consumer_offsets-*/*.log"))
        found = [_restart(folder, settings) for _ in range(rounds)]
    restart = Spread.of([each[0] for each in found])
    loaded_mb = (Spread.of([each[1] for each in found]).median - without) / 1e6
    met = (
        restart.high < RESTART_BUDGET_S and grown_mb < IDLE_BUDGET_MB and loaded_mb < IDLE_BUDGET_MB
    )
    report.row(
        (
            f"{groups:,}",
            shown(grown_mb, ".1f"),
            shown(loaded_mb, ".1f"),
            f"{logged / 1e6:.1f}",
            str(restart),
            f"{without_s:.2f}",
            "yes" if met else "**no**",
        ),
        grown_mb=round(grown_mb, 1),
        loaded_mb=round(loaded_mb, 1),
        log_mb=round(logged / 1e6, 1),
        restart_s=round(restart.median, 3),
        restart_s_high=round(restart.high, 3),
        restart_without_s=round(without_s, 3),
        met=met,
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--members", type=int, default=100)
    options.add_argument("--partitions", type=int, default=1000)
    options.add_argument("--groups", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=5)
    arguments = options.parse_args()
    report = Report("groups", as_json=arguments.json)
    report.machine()
    report.table(
        f"A rebalance of {arguments.members} members and {arguments.partitions:,} partitions, "
        f"heartbeats every {HEARTBEAT_MS} ms (budget: {REBALANCE_BUDGET_S:.0f} s)",
        ("members", "seconds", "broker CPU ms", "in budget"),
    )
    for title, kind in (("bare connections", _bare), ("our consumers", _ours)):
        measure_rebalance(
            report, title, kind, arguments.members, arguments.partitions, arguments.rounds
        )
    report.table(
        f"Idle groups with {COMMITTED_EACH} offsets each (budget: {IDLE_BUDGET_MB} MB, "
        f"restart in {RESTART_BUDGET_S:.0f} s)",
        ("groups", "MB", "MB after restart", "log MB", "restart s", "without s", "in budget"),
    )
    measure_idle(report, arguments.groups, arguments.rounds)


if __name__ == "__main__":
    main()
