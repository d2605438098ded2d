"""Batches that inflate to megabytes, and so are checked in a thread, between small ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.sim.checkers.acknowledged import Sent, check_acknowledged
from tests.sim.reading import read_all
from tests.sim.workloads.base import ALL_FAULTS
from tests.sim.workloads.clients import keep_running

from odradek_broker.storage.validation import AT_ONCE_BYTES
from odradek_client.admin import Admin, NewTopic
from odradek_protocol import frames
from odradek_protocol.compression import Codec
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_testkit.simulation.world import World

_TOPIC = "large"
_PARTITIONS = 2
_CLIENTS = 3
_WAIT_S = 5.0
_VERSION = 9
_LARGE = bytes(AT_ONCE_BYTES)


class LargeBatchesWorkload:
    """Clients without sequences pipeline requests, of which some have large batches, and close
    connections without waiting for answers. No batch overtakes another of its connection."""

    name: ClassVar[str] = "large-batches"
    settings: ClassVar[dict[str, object]] = {}
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.chance("workload")
        self._sent: dict[tuple[str, str], Sent] = {}

    async def prepare(self) -> None:
        """Create one topic."""
        async with Admin(bootstrap_servers=self._world.broker.bootstrap) as admin:
            await admin.create_topics([NewTopic(_TOPIC, _PARTITIONS)])

    async def work(self) -> None:
        """Run the clients until the faults are over."""
        await keep_running(self._world, "client", _CLIENTS, self._client)

    async def _client(self, name: str) -> None:
        host, _, port = self._world.broker.bootstrap.partition(":")
        random = self._random
        try:
            async with asyncio.timeout(_WAIT_S):
                reader, writer = await asyncio.open_connection(host, int(port))
        except (OSError, TimeoutError):
            await self._world.sleep(50)
            return
        try:
            for number in range(random.randint(1, 4)):
                asked = [f"{name}/{number}/{place}" for place in range(random.randint(1, 5))]
                requests = [self._request(name, each) for each in asked]
                for correlation_id, request in enumerate(requests):
                    writer.writelines(
                        frames.encode_request(request, _VERSION, correlation_id, name)
                    )
                if random.random() < 0.2:
                    await self._world.sleep(random.choice((0.3, 1, 3, 10)))
                    return
                for each in asked:
                    async with asyncio.timeout(_WAIT_S):
                        self._answered(name, each, await _received(reader))
                await self._world.sleep(random.choice((1, 50, 200)))
        except (OSError, TimeoutError, EOFError) as problem:
            self._world.note(name, f"does not know what became of it: {problem!r}")
        finally:
            writer.close()

    def _request(self, name: str, value: str) -> ProduceRequest:
        """A request with a batch for one or both partitions, each of which may be large."""
        places = self._random.sample(range(_PARTITIONS), self._random.randint(1, _PARTITIONS))
        data = []
        for place in places:
            is_large = self._random.random() < 0.4
            record = f"{value}/{place}".encode()
            builder = BatchBuilder(Codec.ZSTD if is_large else Codec.NONE)
            builder.append(-1, _LARGE if is_large else None, record)
            self._sent.setdefault((name, f"{_TOPIC}-{place}"), Sent()).values.append(record)
            data.append(PartitionProduceData(index=place, records=builder.build()))
        topic = TopicProduceData(name=_TOPIC, partition_data=data)
        return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])

    def _answered(self, name: str, value: str, response: Any) -> None:
        for each in response.responses[0].partition_responses:
            if not each.error_code:
                sent = self._sent[name, f"{_TOPIC}-{each.index}"]
                sent.acknowledged[f"{value}/{each.index}".encode()] = each.base_offset

    async def check(self) -> Iterator[str]:
        """Check that records are in the logs once, and in the order of their connection."""
        logs = await read_all(self._world.broker.bootstrap, _TOPIC, _PARTITIONS)
        return check_acknowledged(self._sent, logs)


async def _received(reader: asyncio.StreamReader) -> Any:
    size = int.from_bytes(await reader.readexactly(4), "big")
    frame = await reader.readexactly(size)
    return frames.decode_response(APIS[ApiKey.PRODUCE], _VERSION, memoryview(frame))
