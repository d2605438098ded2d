"""A client that sends raw frames: any request in any version, pipelined if a test wants it."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from odradek_protocol import frames
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.schemas.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

PATIENCE_S = 20


class RawClient:
    """One connection. `send` and `receive` are separate, so that tests can send several requests
    before a response."""

    #: The connections of this test, which the end of its broker closes.
    opened: ClassVar[list[RawClient]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.opened.append(self)
        self._sent: list[tuple[Any, int, int]] = []
        self._next_id = 1

    def send(self, request: Message, version: int | None = None) -> int:
        api = api_of(request)
        version = api.versions.last if version is None else version
        correlation_id = self._next_id
        self._next_id += 1
        self._sent.append((api, version, correlation_id))
        self.writer.writelines(frames.encode_request(request, version, correlation_id, "raw"))
        return correlation_id

    async def receive(self) -> Any:
        """Receive the response to the oldest unanswered request; fails if it is the response to
        another one."""
        api, version, correlation_id = self._sent.pop(0)
        frame = await self.receive_frame()
        assert frames.decode_correlation_id(frame) == correlation_id
        return frames.decode_response(api, version, frame)

    def expect_no_answer(self, requests: int = 1) -> None:
        """The oldest requests that are not answered yet get no answer."""
        del self._sent[:requests]

    async def receive_frame(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def call(self, request: Message, version: int | None = None) -> Any:
        self.send(request, version)
        return await self.receive()

    async def closed(self) -> bool:
        """Wait for the broker to close the connection. Returns True if it does."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self.writer.close()

    async def set_for_brokers(self, **settings: str) -> None:
        """Change settings of all brokers while they run."""
        resource = AlterConfigsResource(
            resource_type=4,
            resource_name="",
            configs=[
                AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
                for key, value in settings.items()
            ],
        )
        response = await self.call(IncrementalAlterConfigsRequest(resources=[resource]))
        assert response.responses[0].error_code == 0, response

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        response = await self.call(
            CreateTopicsRequest(
                timeout_ms=5000,
                topics=[
                    CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=1,
                        configs=[
                            CreatableTopicConfig(name=key.replace("_", "."), value=value)
                            for key, value in configs.items()
                        ],
                    )
                ],
            )
        )
        assert response.topics[0].error_code == 0, response


def batch_of(*values: bytes | None, timestamp_ms: int = 1_700_000_000_000, **identity: Any) -> Any:
    """A record batch whose timestamps increase by 1 ms from record to record."""
    builder = BatchBuilder()
    for index, value in enumerate(values):
        builder.append(timestamp_ms + index, None, value)
    return builder.build(**identity)


def produce_request(
    topic: str, batch: Any, *, partition: int = 0, acks: int = -1, topic_id: bytes = bytes(16)
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=partition, records=batch)],
            )
        ],
    )
