"""Mirrors that copy a source into a mirror topic, readers of the mirror topic, a producer that must
be refused, and the promotion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, ClassVar, cast

from tests.sim.checkers.mirrored import SourcePartition, check_partition
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.clients import keep_running

from odradek_broker.mirror.appends import MirrorAppend
from odradek_broker.storage.errors import IndexesBeingRebuilt
from odradek_client.admin import Admin, NewTopic
from odradek_client.admin.results import Results
from odradek_client.consumer.consumer import Consumer
from odradek_client.errors import OdradekError
from odradek_client.network.client import NetworkClient
from odradek_client.producer.producer import Producer
from odradek_client.structs import TopicPartition
from odradek_mirror.plan import mirror_source
from odradek_mirror.progress import Progress
from odradek_mirror.same_offsets import SameOffsetsCopier
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    MirroredPartition,
    MirroredPartitionResult,
    MirroredTopic,
)
from odradek_protocol.schemas.promote_mirror_topics import PromoteMirrorTopicsRequest
from odradek_records.partition_fetch import FetchLimits
from odradek_testkit.simulation.broker import SimulatedBroker
from odradek_testkit.simulation.world import World

TOPIC = "mirrored"
_PARTITIONS = 2
_CLUSTER = "simulated"
#: What the source's own broker takes its batches for.
_SOURCE = mirror_source("model", ZERO_UUID)
_MIRRORS = 2
_STEPS_MAX = 30
_PRODUCERS_MAX = 100_000
#: A number of batches that no source has.
_ALL = 1_000


class _Mirror(SameOffsetsCopier):
    """The client's copier. Each response is compared with the offsets acknowledged before its
    request."""

    acknowledged: Callable[[], list[int]]
    acknowledge: Callable[[int, int, MirroredPartitionResult], None]

    async def _send(
        self,
        wanted: Mapping[TopicPartition, MirroredPartition],
        topic_ids: Mapping[TopicPartition, bytes],
    ) -> Results[TopicPartition, MirroredPartitionResult]:
        before = self.acknowledged()
        results = await super()._send(wanted, topic_ids)
        for tp, result in results.items():
            self.acknowledge(tp.partition, before[tp.partition], result)
        return results


class MirrorWorkload:
    """Two mirrors run at the same time, and do not know each other, until the topic is promoted.

    The source is another broker, without faults. It gets its batches from the model
    `SourcePartition`.
    """

    name: ClassVar[str] = "mirror"
    settings: ClassVar[dict[str, object]] = {}
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._sources = [
            SourcePartition(self._random.choice((0, 0, 40))) for _ in range(_PARTITIONS)
        ]
        self._there = SimulatedBroker(
            world.network, world.chance("source"), address=("source", 9092)
        )
        self._topic_id = self._copy_id = ZERO_UUID
        #: The setting mirror.source of the copy.
        self._named = ""
        #: The end offsets that were acknowledged before a promotion began.
        self._acknowledged = [0] * _PARTITIONS
        self._promoting = False
        self._promoted = False

    async def prepare(self) -> None:
        """Start the source, and create the topic in both brokers."""
        await self._there.start()
        self._topic_id = await self._create(self._there, _SOURCE)
        self._named = mirror_source(_CLUSTER, self._topic_id)
        self._copy_id = await self._create(self._world.broker, self._named)
        for index in range(_PARTITIONS):
            await self._give(index)

    async def _create(self, broker: SimulatedBroker, source: str) -> bytes:
        configs = {"mirror.source": source, "segment.bytes": "2000", "retention.ms": "-1"}
        async with Admin(bootstrap_servers=broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(TOPIC, _PARTITIONS, configs=configs)])
        return broker.server.node.metadata.topic_id(TOPIC)

    async def work(self) -> None:
        """Run all clients until the faults are over; then mirror the rest, and promote the
        topic."""
        early = self._random.random() < 0.4
        await asyncio.gather(
            self._write_source(),
            keep_running(self._world, "mirror", _MIRRORS, self._mirror),
            keep_running(self._world, "careless", 1, self._send_bad_batches),
            keep_running(self._world, "reader", 1, self._read),
            keep_running(self._world, "intruder", 1, self._intrude),
            self._promote(early=early),
        )
        if not self._promoting:
            await self._drain()
        await self._promote(early=True)

    def _admin(self, name: str, broker: SimulatedBroker | None = None) -> Admin:
        return Admin(
            bootstrap_servers=(broker or self._world.broker).bootstrap,
            request_timeout_ms=2_000,
            client_id=name,
        )

    # --- The source ---

    async def _write_source(self) -> None:
        random = self._random
        while not self._world.faults_over.is_set():
            index = random.randrange(_PARTITIONS)
            self._sources[index].change(random)
            await self._give(index)
            await self._world.sleep(random.choice((1, 10, 50)))

    async def _give(self, index: int) -> None:
        """Append to the source's broker those batches of the model that the broker does not have
        yet."""
        node = self._there.server.node
        partition = node.partition(TOPIC, index)
        assert partition is not None
        end = partition.log.log_end_offset
        content, _ = self._sources[index].read(end, _ALL)
        part = self._part(index, end, content or None)
        given = node.mirrors.append([MirrorAppend(TOPIC, self._topic_id, _SOURCE, part)])
        while not given.done:
            await self._world.sleep(1)
        (result,) = given.result()
        assert result.error_code == ErrorCode.NONE, result
        if partition.log.log_start_offset < self._sources[index].start:
            # A mutant may also keep the source's own broker from advancing this log start, so it is
            # advanced here in any case.
            node.logs.advance_log_starts([partition.log], [self._sources[index].start])

    # --- Mirrors ---

    async def _mirror(self, name: str) -> None:
        """Copy for a while with the client's copier."""
        async with self._copier(name) as copier:
            for _ in range(self._random.randint(1, _STEPS_MAX)):
                await copier.step(100)
                if self._promoting:
                    await self._world.sleep(100)

    @asynccontextmanager
    async def _copier(self, name: str) -> AsyncIterator[_Mirror]:
        plan = SimpleNamespace(source_cluster=_CLUSTER)
        job = SimpleNamespace(rate=None, progress=Progress(0.0), plan=plan)
        job.tell = lambda line: self._told(name, line)
        limit_bytes = self._random.choice((1, 400, 5_000))
        limits = FetchLimits(max_bytes=2 * limit_bytes, partition_bytes=limit_bytes, wait_ms=100)
        async with (
            self._admin(name, self._there) as job.source,
            self._admin(name) as job.target,
        ):
            copier = _Mirror(cast(Any, job), limits)
            copier.acknowledged = self._acknowledged.copy
            copier.acknowledge = self._acknowledge
            try:
                await copier.start()
                topic = SimpleNamespace(name=TOPIC, partitions=_PARTITIONS, topic_id=self._topic_id)
                await copier.add([cast(Any, topic)])
                yield copier
            finally:
                await copier.close()

    def _told(self, name: str, line: str) -> None:
        self._world.note(name, f"tells: {line}")
        if "is not copied any more" in line and not self._promoting:
            self._world.violated("mirror", f"a mirror gives up: {line}")

    def _acknowledge(self, index: int, acknowledged: int, result: MirroredPartitionResult) -> None:
        """Note a response: its end offset must not be lower than one acknowledged before the
        request."""
        end = result.log_end_offset
        if self._promoting or end < 0:
            return
        if end < acknowledged:
            self._world.violated(
                "mirror",
                f"partition {index} ends at {end}, after an answer with {acknowledged}",
            )
        if not result.error_code:
            self._acknowledged[index] = max(self._acknowledged[index], end)

    async def _drain(self) -> None:
        """Mirror everything that the source has."""
        async with self._copier("last") as copier, self._admin("asks") as admin:
            while not all([await self._is_drained(admin, each) for each in range(_PARTITIONS)]):
                await copier.step(100)
            # Sometimes the mirror reports the log start only in a request after the last batch.
            for _ in range(_STEPS_MAX):
                await copier.step(100)

    async def _is_drained(self, admin: Admin, index: int) -> bool:
        result = await self._ask(admin, index)
        return result is not None and result.log_end_offset == self._sources[index].end

    # --- A mirror that sends wrong batches ---

    async def _send_bad_batches(self, name: str) -> None:
        """Send batches that the broker must refuse: damaged batches, batches after a gap, and
        batches at offsets that the source has already passed."""
        world, random = self._world, self._random
        async with self._admin(name) as admin:
            for _ in range(random.randint(1, 10)):
                await world.sleep(random.choice((20, 200)))
                index = random.randrange(_PARTITIONS)
                found, source = await self._ask(admin, index), self._sources[index]
                if found is None or found.error_code:
                    continue
                end = found.log_end_offset
                content, behind = source.read(end, random.randint(1, 5))
                if content and random.random() < 0.3:
                    world.note(name, f"sends damaged bytes at {end} of {index}")
                    damaged = content[:-1] + bytes([content[-1] ^ 1])
                    await self._call(admin, self._part(index, end, damaged))
                following, _ = source.read(behind, 1)
                if following and behind > source.start:
                    world.note(name, f"leaves out what is before {behind} of {index}")
                    part = self._part(index, end, following)
                    part.fetch_offset = behind
                    await self._call(admin, part)
                if random.random() < 0.2:
                    await self._call(admin, *(self._late(each) for each in range(_PARTITIONS)))

    def _late(self, index: int) -> MirroredPartition:
        """A batch at an offset that the source has already passed, of a producer that the source
        does not know."""
        builder = BatchBuilder()
        builder.append(0, None, b"late")
        producer_id = self._random.randrange(_PRODUCERS_MAX)
        late = builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=0)
        part = self._part(index, self._sources[index].end, bytes(late))
        part.fetch_offset = -1
        return part

    async def _ask(self, admin: Admin, index: int) -> MirroredPartitionResult | None:
        """The state of a partition of the mirror topic; None if the request has no response."""
        found = await self._call(admin, MirroredPartition(partition_index=index))
        return found[0] if found else None

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

    async def _call(self, admin: Admin, *parts: MirroredPartition) -> list[MirroredPartitionResult]:
        """Send a request of a mirror. Returns the results; an empty sequence if there is no
        response."""
        named = MirroredTopic(
            name=TOPIC, topic_id=self._copy_id, source=self._named, partitions=list(parts)
        )
        asked = AppendMirrorRecordsRequest(timeout_ms=1_500, topics=[named])
        acknowledged = self._acknowledged.copy()
        try:
            answer = await self._request(admin, asked)
        except OdradekError as problem:
            self._world.note("careless", f"has no answer: {problem}")
            return []
        results: list[MirroredPartitionResult] = answer.topics[0].partitions
        for result in results:
            index = result.partition_index
            if result.error_code:
                self._world.note("careless", f"is refused in {index}: {result.error_message}")
            self._acknowledge(index, acknowledged[index], result)
        return results

    async def _request(self, admin: Admin, request: Message) -> Any:
        network = admin.network
        await network.refresh_metadata()
        (node_id,) = network.cluster.brokers
        return await network.send(node_id, request)

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
            epochs = [-1] * _PARTITIONS
            for _ in range(10):
                for record in await consumer.poll(0.3):
                    source = self._sources[record.partition]
                    problem = source.problem_with(record.offset, record.value)
                    if problem and not (self._promoting and record.offset >= source.copied_max):
                        self._world.violated("mirror", f"{record.partition}: {problem}")
                    epochs[record.partition] = record.leader_epoch
                await self._check_epochs(consumer.network, epochs)

    async def _check_epochs(self, network: NetworkClient, epochs: list[int]) -> None:
        """Check that metadata have at least the leader epochs of the records that a client has
        read.

        Otherwise the client would ask for newer metadata forever.
        """
        await network.refresh_metadata()
        for index, epoch in enumerate(epochs):
            known = network.cluster.leader_epoch_of(TOPIC, index)
            if 0 <= known < epoch:
                self._world.violated(
                    "mirror",
                    f"metadata has leader epoch {known} of {index}, whose records have {epoch}",
                )

    async def _intrude(self, name: str) -> None:
        """Produce to the mirror topic; the broker must refuse the records until a promotion has
        begun."""
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
        """If `early`, promote the topic, and retry until the promotion succeeds."""
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
        """Return the violations in a log, after its transaction indexes are rebuilt."""
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
        """Compare the logs with the source; then check that producers can write to the promoted
        topic."""
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
        await self._there.stop()
        return iter(problems)
