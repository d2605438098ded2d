"""Memory of the broker for records in flight in a share group, compared with Apache Kafka.

    python -m benchmarks.share_memory [--partitions 50] [--no-kafka]

A member acquires LOCKS records of each partition and acknowledges none ("as acquired"). Then it
acknowledges every second record ("every second acknowledged"). This is the worst case, because
neighbouring records have different states, and so each record needs a separate state. The figures
are for 10,000 acquired records. For our broker they are the growth of resident memory, and for
Kafka the growth of the live heap after a full collection (`jcmd PID GC.class_histogram`).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.broker import Load, create_topic, produce
from benchmarks.groups import Connection
from benchmarks.race.contenders import kafka_is_there
from benchmarks.support import (
    Report,
    Target,
    odradek_broker,
    parser,
    resident_bytes,
    run_on_uvloop,
    say,
)

from odradek_client.admin import Admin, ConfigResource, ResourceType
from odradek_protocol.common_structs import AcknowledgementBatch
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek_protocol.schemas.share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from kafka_cluster import KafkaCluster

#: The limit of records in flight in a partition, Kafka's default.
LOCKS = 2_000
_GROUP = "memory"
_VERSION = 1
_BATCH = 500
_ACCEPT = 1
_LOCK_SETTINGS = {
    "group.share.record.lock.duration.ms": "3600000",
    "group.share.max.record.lock.duration.ms": "3600000",
}
_JOIN_S = 60.0
_SETTLE_S = 2.0
_TOTAL = re.compile(r"^Total\s+\d+\s+(\d+)", re.MULTILINE)


def live_heap_bytes(pid: int) -> int:
    """The live bytes of a JVM's heap, after a full collection. Raises SystemExit without jcmd."""
    done = subprocess.run(
        ["jcmd", str(pid), "GC.class_histogram"],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    total = _TOTAL.search(done.stdout)
    if total is None:
        raise SystemExit(f"jcmd told no heap: {done.stderr[-300:]}")
    return int(total.group(1))


def our_bytes(pid: int) -> int:
    """The resident memory of our broker. Raises SystemExit if there is no /proc."""
    found = resident_bytes(pid)
    if found is None:
        raise SystemExit("memory needs /proc")
    return found


class Member:
    """A member of the group with a share session: one connection, one request in flight."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection, self._topic = connection, topic
        self._member_id = str(uuid.uuid4())
        self._session_epoch = 0
        self._topic_id = bytes(16)

    async def join(self, partitions: int) -> None:
        """Join, and wait until all partitions are assigned."""
        epoch, assigned = 0, 0
        # The first FindCoordinator creates the topic of groups.
        await self._connection.call(FindCoordinatorRequest(coordinator_keys=[_GROUP]), 4)
        async with asyncio.timeout(_JOIN_S):
            while assigned < partitions:
                answer = await self._connection.call(
                    ShareGroupHeartbeatRequest(
                        group_id=_GROUP,
                        member_id=self._member_id,
                        member_epoch=epoch,
                        subscribed_topic_names=[self._topic] if not epoch else None,
                    ),
                    _VERSION,
                )
                if answer.error_code not in (ErrorCode.NONE, *_NOT_READY):
                    raise SystemExit(f"no membership: {answer}")
                if not answer.error_code:
                    epoch = answer.member_epoch
                if answer.assignment is not None:
                    for topic in answer.assignment.topic_partitions:
                        self._topic_id = topic.topic_id
                        assigned = len(topic.partitions)
                await asyncio.sleep(0.2)

    async def acquire(self, partitions: int) -> list[tuple[int, int, int]]:
        """Acquire LOCKS records of each partition. Returns (partition, first offset, last offset)
        of the acquired records."""
        acquired: list[tuple[int, int, int]] = []
        count = 0
        async with asyncio.timeout(_JOIN_S):
            while count < partitions * LOCKS:
                wanted = range(partitions) if not self._session_epoch else ()
                answer = await self._connection.call(
                    ShareFetchRequest(
                        group_id=_GROUP,
                        member_id=self._member_id,
                        share_session_epoch=self._session_epoch,
                        max_wait_ms=500,
                        min_bytes=1,
                        max_bytes=10_000_000,
                        max_records=_BATCH,
                        batch_size=_BATCH,
                        topics=[
                            ShareFetchTopic(
                                topic_id=self._topic_id,
                                partitions=[
                                    ShareFetchPartition(partition_index=index) for index in wanted
                                ],
                            )
                        ]
                        if wanted
                        else [],
                    ),
                    _VERSION,
                )
                if answer.error_code:
                    raise SystemExit(f"no records: {answer.error_message}")
                self._session_epoch += 1
                for topic in answer.responses:
                    for partition in topic.partitions:
                        if partition.error_code:
                            raise SystemExit(f"no records: {partition.error_message}")
                        for some in partition.acquired_records:
                            run = (
                                partition.partition_index,
                                some.first_offset,
                                some.last_offset,
                            )
                            acquired.append(run)
                            count += some.last_offset - some.first_offset + 1
        return acquired

    async def acknowledge_every_second(self, acquired: list[tuple[int, int, int]]) -> None:
        for index, first, last in acquired:
            if first == last:
                continue
            answer = await self._connection.call(
                ShareAcknowledgeRequest(
                    group_id=_GROUP,
                    member_id=self._member_id,
                    share_session_epoch=self._session_epoch,
                    topics=[
                        AcknowledgeTopic(
                            topic_id=self._topic_id,
                            partitions=[
                                AcknowledgePartition(
                                    partition_index=index,
                                    acknowledgement_batches=[
                                        AcknowledgementBatch(
                                            first_offset=offset,
                                            last_offset=offset,
                                            acknowledge_types=[_ACCEPT],
                                        )
                                        for offset in range(first + 1, last + 1, 2)
                                    ],
                                )
                            ],
                        )
                    ],
                ),
                _VERSION,
            )
            self._session_epoch += 1
            errors = {p.error_code for topic in answer.responses for p in topic.partitions}
            if answer.error_code or errors != {0}:
                raise SystemExit(f"not acknowledged: {answer}")


#: The error codes in answers while the topic of share states is being created.
_NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


async def measure(
    target: Target, partitions: int, memory: Callable[[int], int]
) -> tuple[float, float]:
    """Measure the bytes for 10,000 records: (all acquired, every second acknowledged)."""
    topic = create_topic(target.bootstrap, partitions)
    # Batches of 16 KB with about 150 records.
    produce(target, topic, Load(100, 16_384, False, partitions * (LOCKS + _BATCH), partitions))
    async with Admin(bootstrap_servers=target.bootstrap) as admin:
        resource = ConfigResource(ResourceType.GROUP, _GROUP)
        await admin.alter_configs({resource: {"share.auto.offset.reset": "earliest"}})
    connection = await Connection.to(target.bootstrap)
    try:
        member = Member(connection, topic)
        await member.join(partitions)
        await asyncio.sleep(_SETTLE_S)
        before = memory(target.pid)
        acquired = await member.acquire(partitions)
        await asyncio.sleep(_SETTLE_S)
        held = memory(target.pid)
        await member.acknowledge_every_second(acquired)
        await asyncio.sleep(_SETTLE_S)
        mixed = memory(target.pid)
    finally:
        connection.close()
    records = sum(last - first + 1 for _, first, last in acquired)
    return (held - before) / records * 10_000, (mixed - before) / records * 10_000


@contextlib.contextmanager
def _targets(folder: Path, kafka: bool) -> Iterator[list[tuple[Target, Callable[[int], int]]]]:
    with contextlib.ExitStack() as stack:
        say("starting ours")
        ours = odradek_broker("page-cache", _LOCK_SETTINGS, metrics=False, data_dir=folder / "ours")
        found: list[tuple[Target, Callable[[int], int]]] = [(stack.enter_context(ours), our_bytes)]
        if kafka:
            say("starting Kafka")
            cluster = stack.enter_context(KafkaCluster(folder / "kafka", settings=_LOCK_SETTINGS))
            target = Target("Kafka", cluster.bootstrap, cluster.nodes[0].pid)
            found.append((target, live_heap_bytes))
        yield found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--partitions", type=int, default=50, help="with LOCKS records each")
    options.add_argument("--no-kafka", action="store_true", help="without Apache Kafka")
    arguments = options.parse_args()
    if not 0 < arguments.partitions <= 1_000:
        options.error("--partitions must be between 1 and 1,000")
    report = Report("share_memory", as_json=arguments.json)
    report.machine()
    report.table(
        f"Memory for 10,000 records in flight, KB ({arguments.partitions} partitions)",
        ["broker", "as acquired", "every second acknowledged"],
    )
    with (
        tempfile.TemporaryDirectory(prefix="odradek-share-") as folder,
        _targets(Path(folder), not arguments.no_kafka and kafka_is_there()) as targets,
    ):
        for target, memory in targets:
            say(f"measuring {target.name}")
            whole, mixed = run_on_uvloop(measure(target, arguments.partitions, memory))
            name = "ours, resident" if memory is our_bytes else "Kafka, live heap"
            report.row(
                [name, f"{whole / 1000:,.0f}", f"{mixed / 1000:,.0f}"],
                acquired_bytes=round(whole),
                every_second_acknowledged_bytes=round(mixed),
            )


if __name__ == "__main__":
    main()
