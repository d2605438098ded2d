"""Producers whose batches are damaged in transit, or have a false header."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import copy
from random import Random
from typing import Any, ClassVar

from tests.sim.workloads.produce import ProduceWorkload

from odradek_client.config.producer import ProducerConfig
from odradek_client.errors import OdradekError
from odradek_client.network.client import NetworkClient
from odradek_client.producer.producer import Producer, producer_on_network
from odradek_protocol.message import Message
from odradek_protocol.records.batch import update_crc
from odradek_protocol.records.layout import (
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    RECORD_COUNT_AT,
)
from odradek_protocol.schemas.produce import ProduceRequest
from odradek_testkit.simulation.world import World

_CHANCE = 0.2


class DamagedBatchesWorkload(ProduceWorkload):
    """The clients of the workload `produce`, over a network that damages some batches. The broker
    must refuse the damaged batches."""

    name: ClassVar[str] = "damaged-batches"
    faults: ClassVar[tuple[str, ...]] = (
        "kill-broker",
        "cut-power",
        "cut-power-behind-an-answer",
        "cut-connections",
        "slow-disk",
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._damage = world.chance("damage")

    @asynccontextmanager
    async def _producer(self, settings: dict[str, Any]) -> AsyncIterator[Producer]:
        network = _DamagingNetwork(ProducerConfig.from_settings(settings), self._damage)
        try:
            async with producer_on_network(network, **settings) as producer:
                yield producer
        finally:
            await network.close()

    async def check(self) -> Iterator[str]:
        """Check that acknowledged records are stored as they were sent, and can be read."""
        try:
            return await super().check()
        except OdradekError as problem:
            return iter([f"what is there cannot be read: {problem}"])


class _DamagingNetwork(NetworkClient):
    """A network that damages some batches before it sends them."""

    def __init__(self, config: ProducerConfig, random: Random) -> None:
        super().__init__(config)
        self._damage = random

    def submit(self, node_id: int, request: Message, **how: Any) -> asyncio.Future[Any]:
        """Submit a request as the client's own network does, but with some batches damaged."""
        if isinstance(request, ProduceRequest):
            request = self._damaged(request)
        return super().submit(node_id, request, **how)

    def _damaged(self, request: ProduceRequest) -> ProduceRequest:
        spoiled = copy(request)
        spoiled.topic_data = [copy(topic) for topic in request.topic_data]
        for topic in spoiled.topic_data:
            topic.partition_data = [copy(each) for each in topic.partition_data]
            for each in topic.partition_data:
                if each.records is not None and self._damage.random() < _CHANCE:
                    spoil = self._damage.choice((_flip_a_bit, _count_one_more))
                    each.records = spoil(bytearray(each.records), self._damage)
        return spoiled


def _flip_a_bit(batch: bytearray, random: Random) -> bytearray:
    """Flip a bit in a value, which the checksum must detect."""
    batch[random.randrange(HEADER_BYTES + 8, len(batch) - 1)] ^= 1 << random.randrange(8)
    return batch


def _count_one_more(batch: bytearray, random: Random) -> bytearray:
    """Write a header with a wrong number of records and a checksum that matches."""
    for at in (LAST_OFFSET_DELTA_AT, RECORD_COUNT_AT):
        (number,) = struct.unpack_from(">i", batch, at)
        struct.pack_into(">i", batch, at, number + 1)
    update_crc(batch, 0)
    return batch
