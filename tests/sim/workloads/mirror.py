"""Mirrors of a source into mirror topics, readers of them, a producer that must be refused, and
the promotion."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.sim.checkers.mirrored import SourcePartition, check_partition
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.clients import keep_running

from odradek.simulation.world import World
from odradek_broker.storage.errors import IndexesBeingRebuilt
from odradek_client.admin import Admin, NewTopic
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.producer.producer import Producer
from odradek_client.structs import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    MirroredPartition,
    MirroredPartitionResult,
    MirroredTopic,
)
from odradek_protocol.schemas.promote_mirror_topics import PromoteMirrorTopicsRequest

TOPIC = "mirrored"
_PARTITIONS = 2
_SOURCE = "simulated:AAAAAAAAAAAAAAAAAAAAAA"
_MIRRORS = 2
_CHUNKS_MAX = 30


class MirrorWorkload:
    """Two mirrors at a time, which know nothing of each other, until the topic is promoted."""

    name: ClassVar[str] = "mirror"
    settings: ClassVar[dict[str, object]] = {}
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._sources = [
            SourcePartition(self._random.choice((0, 0, 40))) for _ in range(_PARTITIONS)
        ]
        #: The ends that were acknowledged before a promotion began.
        self._acknowledged = [0] * _PARTITIONS
        self._promoting = False
        self._promoted = False

    async def prepare(self) -> None:
        """Create the mirror topic."""
        configs = {"mirror.source": _SOURCE, "segment.bytes": "2000", "retention.ms": "-1"}
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(TOPIC, _PARTITIONS, configs=configs)])

    async def work(self) -> None:
        """Run all kinds until the faults are over; then mirror the rest, and promote."""
        early = self._random.random() < 0.4
        await asyncio.gather(
            self._write_source(),
            keep_running(self._world, "mirror", _MIRRORS, self._mirror),
            keep_running(self._world, "reader", 1, self._read),
            keep_running(self._world, "intruder", 1, self._intrude),
            self._promote(early=early),
        )
        if not self._promoting:
            async with self._admin("last") as admin:
                for index in range(_PARTITIONS):
                    await self._drain(admin, index)
        await self._promote(early=True)

    def _admin(self, name: str) -> Admin:
        return Admin(
            bootstrap_servers=self._world.broker.bootstrap,
            request_timeout_ms=2_000,
            client_id=name,
        )

    # --- The source ---

    async def _write_source(self) -> None:
        random = self._random
        while not self._world.faults_over.is_set():
            random.choice(self._sources).change(random)
            await self._world.sleep(random.choice((1, 10, 50)))

    # --- Mirrors ---

    async def _mirror(self, name: str) -> None:
        world, random = self._world, self._random
        async with self._admin(name) as admin:
            ends = [-1] * _PARTITIONS
            for _ in range(random.randint(1, _CHUNKS_MAX)):
                index = random.randrange(_PARTITIONS)
                if ends[index] < 0:
                    ends[index] = await self._ask(admin, index)
                    continue
                ends[index] = await self._send(name, admin, index, ends[index])
                await world.sleep(random.choice((1, 20, 100)))

    async def _ask(self, admin: Admin, index: int) -> int:
        """The end of a partition of the mirror; -1 if it is not known."""
        part = self._part(index, -1, None)
        result = await self._call(admin, index, part)
        return -1 if result is None or result.error_code else result.log_end_offset

    async def _send(self, name: str, admin: Admin, index: int, end: int) -> int:
        """Send what follows the end; the end that the mirror goes on with. A careless mirror takes
        a request without an answer for a good one."""
        source, random = self._sources[index], self._random
        content, behind = source.read(end, random.randint(1, 5))
        if content and random.random() < 0.1:
            self._world.note(name, f"sends damaged bytes at {end} of {index}, and goes on")
            damaged = content[:-1] + bytes([content[-1] ^ 1])
            await self._call(admin, index, self._part(index, end, damaged))
            return behind
        result = await self._call(admin, index, self._part(index, end, content))
        if result is not None and not result.error_code:
            return result.log_end_offset
        if result is None and random.random() < 0.5:
            self._world.note(name, f"goes on at {behind} of {index} as if it had an answer")
            return behind
        return -1

    def _part(self, index: int, end: int, records: bytes | None) -> MirroredPartition:
        source = self._sources[index]
        return MirroredPartition(
            partition_index=index,
            expected_end_offset=end,
            fetch_offset=max(end, source.start),
            source_leader_epoch=source.leader_epoch,
            source_log_start_offset=source.start,
            source_high_watermark=source.end,
            records=records,
        )

    async def _call(
        self, admin: Admin, index: int, part: MirroredPartition
    ) -> MirroredPartitionResult | None:
        """The result, which must not take back what was acknowledged; None without an answer."""
        topics = [MirroredTopic(name=TOPIC, partitions=[part])]
        acknowledged = self._acknowledged[index]
        asked = AppendMirrorRecordsRequest(timeout_ms=1_500, topics=topics)
        try:
            answer = await self._request(admin, asked)
        except OdradekError as problem:
            self._world.note("mirror", f"has no answer: {problem}")
            return None
        result: MirroredPartitionResult = answer.topics[0].partitions[0]
        if result.error_code:
            self._world.note("mirror", f"is refused in {index}: {result.error_message}")
        if self._promoting:
            return result
        if result.log_end_offset >= 0:
            if result.log_end_offset < acknowledged:
                self._world.violated(
                    "mirror",
                    f"partition {index} ends at {result.log_end_offset}, after an answer with"
                    f" {acknowledged}",
                )
            if not result.error_code:
                end = max(self._acknowledged[index], result.log_end_offset)
                self._acknowledged[index] = end
        return result

    async def _request(self, admin: Admin, request: Message) -> Any:
        network = admin._network
        await network.refresh_metadata()
        (node_id,) = network.cluster.brokers
        return await network.send(node_id, request)

    async def _drain(self, admin: Admin, index: int) -> None:
        """Mirror everything that the source has."""
        while True:
            end = await self._ask(admin, index)
            source = self._sources[index]
            if end == source.end and self._acknowledged[index] == end:
                # The last epoch and log start are told too.
                if await self._send("last", admin, index, end) == end:
                    return
            elif end >= 0:
                await self._send("last", admin, index, end)
            await self._world.sleep(20)

    # --- Others ---

    async def _read(self, name: str) -> None:
        """Compare committed records with those of the source, at their offsets."""
        places = [TopicPartition(TOPIC, index) for index in range(_PARTITIONS)]
        async with Consumer(
            bootstrap_servers=self._world.broker.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            request_timeout_ms=2_000,
            client_id=name,
        ) as consumer:
            consumer.assign(places)
            for _ in range(10):
                for record in await consumer.poll(0.3):
                    source = self._sources[record.partition]
                    problem = source.problem_with(record.offset, record.value)
                    if problem and not (self._promoting and record.offset >= source.copied_max):
                        self._world.violated("mirror", f"{record.partition}: {problem}")

    async def _intrude(self, name: str) -> None:
        """Produce to the mirror topic, which must be refused until a promotion has begun."""
        async with Producer(
            bootstrap_servers=self._world.broker.bootstrap,
            request_timeout_ms=2_000,
            delivery_timeout_ms=5_000,
            client_id=name,
        ) as producer:
            delivery = await producer.send(TOPIC, b"intruder", partition=0)
            try:
                where = await delivery
            except OdradekError:
                await self._world.sleep(200)
                return
            if not self._promoting:
                self._world.violated("mirror", f"a mirror took a record at {where.offset}")

    # --- The promotion ---

    async def _promote(self, *, early: bool) -> None:
        """Promote the topic, again until that works. Not `early`: nothing is done."""
        if not early or self._promoted:
            return
        await self._world.sleep(self._random.choice((500, 2_000)))
        for source, end in zip(self._sources, self._acknowledged, strict=True):
            source.copied_max = end
        self._promoting = True
        async with self._admin("promoter") as admin:
            while True:
                asked = PromoteMirrorTopicsRequest(timeout_ms=1_500, topics=[TOPIC])
                try:
                    answer = await self._request(admin, asked)
                except OdradekError as problem:
                    self._world.note("promoter", f"asks again: {problem}")
                    await self._world.sleep(50)
                    continue
                (topic,) = answer.topics
                if topic.error_code == ErrorCode.NONE:
                    break
                self._world.note("promoter", f"asks again: {topic.error_message}")
                await self._world.sleep(50)
        self._promoted = True
        self._world.note("promoter", "has promoted it")

    async def _check_log(self, index: int) -> list[str]:
        """The violations in a log, once its indexes are there."""
        source, acknowledged = self._sources[index], self._acknowledged[index]
        for _ in range(100):
            partition = self._world.broker.server.node.partition(TOPIC, index)
            assert partition is not None
            try:
                found = list(check_partition(partition, source, acknowledged))
            except IndexesBeingRebuilt:
                await self._world.sleep(100)
            else:
                return [f"{TOPIC}-{index}: {problem}" for problem in found]
        return [f"{TOPIC}-{index}: its indexes are never rebuilt"]

    async def check(self) -> Iterator[str]:
        """Compare the logs with the source, and produce to the topic."""
        problems = []
        node = self._world.broker.server.node
        for index in range(_PARTITIONS):
            problems += await self._check_log(index)
        if node.metadata.is_mirror(TOPIC):
            problems.append("the topic is still a mirror after its promotion")
        async with Producer(
            bootstrap_servers=self._world.broker.bootstrap,
            transactional_id="after",
            request_timeout_ms=2_000,
            delivery_timeout_ms=30_000,
        ) as producer:
            await producer.init_transactions()
            for commit in (True, False):
                await producer.begin_transaction()
                for index in range(_PARTITIONS):
                    await producer.send(TOPIC, b"after", partition=index)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        return iter(problems)
