"""A broker for tests of the client: real sockets, real bytes, and a script for faults.

`PartitionLog` is a small model, independent of the broker, of the rules for a producer's batches
(P-09 to P-14). `ScriptedBroker` serves it over TCP in the versions that a test chooses; `on`
replaces a response.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from odradek_protocol.codec import decode
from odradek_protocol.errors import ErrorCode
from odradek_protocol.frames import decode_request_header, encode_response, skip_tags
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.message import Message
from odradek_protocol.records.batch import next_sequence, read_header, verify_crc
from odradek_protocol.records.record import read_records
from odradek_protocol.schemas.api_versions import ApiVersion, ApiVersionsResponse
from odradek_protocol.schemas.find_coordinator import Coordinator, FindCoordinatorResponse
from odradek_protocol.schemas.init_producer_id import InitProducerIdResponse
from odradek_protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek_protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

#: Results that a script may return instead of a response.
HANG_UP = object()
SILENCE = object()
DEFAULT = object()


@dataclass
class ProducerEntry:
    """The state of a producer in a partition.

    `batches`: (first sequence, last sequence, base offset) of the last five batches.
    """

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


class PartitionLog:
    """The records and the producers of one partition."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.headers: list[Any] = []
        # (producer id, epoch, base sequence, number of records).
        self.batches: list[tuple[int, int, int, int]] = []
        self._producers: dict[int, ProducerEntry] = {}

    def append(self, data: bytes | bytearray | memoryview) -> tuple[ErrorCode, int]:
        """Append one batch. Returns (error code, base offset)."""
        header = read_header(data)
        verify_crc(data, 0, header)
        assert header.size_bytes == len(data), "exactly one batch (P-06)"
        assert header.base_offset == 0 and header.record_count == header.last_offset_delta + 1
        if header.producer_id >= 0:
            code, offset = self._check(header)
            if code is not ErrorCode.NONE or offset >= 0:
                return code, offset
        base = len(self.values)
        records = read_records(data, 0, header)
        self.values += [record.value for record in records]
        self.keys += [record.key for record in records]
        self.headers += [record.headers for record in records]
        self.batches.append(
            (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count)
        )
        if header.producer_id >= 0:
            entry = self._producers.setdefault(
                header.producer_id, ProducerEntry(header.producer_epoch)
            )
            if entry.epoch != header.producer_epoch:
                entry.epoch = header.producer_epoch
                entry.batches.clear()
            entry.batches.append((header.base_sequence, header.last_sequence, base))
        return ErrorCode.NONE, base

    def _check(self, header: Any) -> tuple[ErrorCode, int]:
        """Check a batch by P-09 to P-14. Returns (error code, offset of the earlier batch if this
        is a duplicate); (NONE, -1) means that the batch may be appended."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return ErrorCode.NONE, -1
        if entry.epoch == header.producer_epoch:
            for first, last, offset in entry.batches:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return ErrorCode.NONE, offset
        if header.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        expected = 0
        if header.producer_epoch == entry.epoch and entry.batches:
            expected = next_sequence(entry.batches[-1][1], 1)
        if header.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return ErrorCode.NONE, -1


Script = Callable[[Any, int], Any]


class ScriptedBroker:
    """One node. `topics`: name -> number of partitions; other topics do not exist.

    `versions`: API -> (lowest, highest) version; None if the API is not offered.
    """

    def __init__(
        self,
        node_id: int = 1,
        *,
        topics: dict[str, int] | None = None,
        versions: dict[ApiKey, tuple[int, int] | None] | None = None,
    ) -> None:
        self.node_id = node_id
        self.topics = dict(topics or {})
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.leader_epochs: dict[tuple[str, int], int] = {}
        self.peers: list[ScriptedBroker] = [self]
        self.requests: list[tuple[ApiKey, int, Any]] = []
        self.connections = 0
        self.topic_errors: dict[str, ErrorCode] = {}
        self.controller_id = node_id
        self.next_producer_id = 1000
        self.port = 0
        self._versions = versions or {}
        self._scripts: dict[ApiKey, deque[Any]] = {}
        self._always: dict[ApiKey, Script] = {}
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    # --- start and stop ---------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()
        for _ in range(3):
            await asyncio.sleep(0)

    def hang_up(self) -> None:
        """Close every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    # --- the script -------------------------------------------------------------------------------

    def on(self, key: ApiKey, *answers: Any) -> None:
        """Set the responses to the next requests of an API, in order.

        An answer is a response, a function (request, version), HANG_UP, SILENCE or DEFAULT.
        """
        self._scripts.setdefault(key, deque()).extend(answers)

    def always(self, key: ApiKey, script: Script) -> None:
        """Set the response to all requests of an API for which `on` has set none."""
        self._always[key] = script

    def received(self, key: ApiKey) -> list[Any]:
        return [request for api, _, request in self.requests if api == key]

    def served(self, key: ApiKey) -> tuple[int, int] | None:
        if key in self._versions:
            return self._versions[key]
        return (APIS[key].versions.first, APIS[key].versions.last)

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        return self.logs.setdefault((topic, partition), PartitionLog())

    # --- serving ----------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = await self._answer(await reader.readexactly(size))
                if answer is HANG_UP:
                    break
                if answer is not SILENCE:
                    writer.write(b"".join(bytes(part) for part in answer))
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, frame: bytes) -> Any:
        header, position = decode_request_header(frame)
        key, version = ApiKey(header.api_key), header.api_version
        api = APIS[key]
        served = self.served(key)
        if key is ApiKey.API_VERSIONS and (served is None or version > served[1]):
            self.requests.append((key, version, None))
            refusal = self._api_versions()
            refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
            return encode_response(api, 0, header.correlation_id, refusal)
        if served is None or not served[0] <= version <= served[1]:
            return HANG_UP
        if api.request_header_version(version) == 2:
            position = skip_tags(frame, position)
        request: Any = decode(api.request, version, frame, position)
        self.requests.append((key, version, request))
        answer = await self._scripted(key, request, version)
        if isinstance(answer, bytes):
            return [answer]
        if not isinstance(answer, Message):
            return answer
        if isinstance(request, ProduceRequest) and request.acks == 0:
            return SILENCE
        return encode_response(api, version, header.correlation_id, answer)

    async def _scripted(self, key: ApiKey, request: Any, version: int) -> Any:
        queue = self._scripts.get(key)
        answer: Any = queue.popleft() if queue else self._always.get(key, DEFAULT)
        if callable(answer):
            answer = answer(request, version)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is DEFAULT:
            answer = getattr(self, f"_{key.name.lower()}")(request, version)
            if inspect.isawaitable(answer):
                answer = await answer
        return answer

    # --- default answers --------------------------------------------------------------------------

    def _api_versions(self, request: Any = None, version: int = 0) -> ApiVersionsResponse:
        keys = [(key, self.served(key)) for key in APIS]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=served[0], max_version=served[1])
                for key, served in keys
                if served is not None
            ]
        )

    def _metadata(self, request: Any, version: int) -> MetadataResponse:
        everything = request.topics is None or (version == 0 and not request.topics)
        names = list(self.topics) if everything else [topic.name for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=peer.node_id, host="127.0.0.1", port=peer.port)
                for peer in self.peers
            ],
            cluster_id="scripted" if version >= 2 else None,
            controller_id=self.controller_id if version >= 1 else -1,
            topics=[self._topic(name, version) for name in names],
        )

    def _topic(self, name: str, version: int) -> MetadataResponseTopic:
        code = self.topic_errors.get(name)
        if code is None and name not in self.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code is not None:
            return MetadataResponseTopic(error_code=code, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=topic_id(name) if version >= 10 else bytes(16),
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=self.leaders.get((name, index), self.node_id),
                    leader_epoch=self.leader_epochs.get((name, index), 0),
                    replica_nodes=[self.node_id],
                    isr_nodes=[self.node_id],
                )
                for index in range(self.topics[name])
            ],
        )

    def _init_producer_id(self, request: Any, version: int) -> InitProducerIdResponse:
        self.next_producer_id += 1
        return InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)

    def _find_coordinator(self, request: Any, version: int) -> FindCoordinatorResponse:
        node: dict[str, Any] = {"node_id": self.node_id, "host": "127.0.0.1", "port": self.port}
        if version < 4:
            return FindCoordinatorResponse(**node)
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key=key, **node) for key in request.coordinator_keys]
        )

    def _produce(self, request: ProduceRequest, version: int) -> ProduceResponse:
        return self.produce(request)

    def produce(
        self, request: ProduceRequest, codes: dict[int, ErrorCode] | None = None, **extra: Any
    ) -> ProduceResponse:
        """Append the batches. A partition in `codes` gets that error and `extra` fields instead."""

        def append(topic: str, index: int, records: Any) -> PartitionProduceResponse:
            code = (codes or {}).get(index, ErrorCode.NONE)
            if code is not ErrorCode.NONE:
                return PartitionProduceResponse(
                    index=index, error_code=code, base_offset=-1, **extra
                )
            code, offset = self.log(topic, index).append(records)
            return PartitionProduceResponse(index=index, error_code=code, base_offset=offset)

        return self.answer_produce(request, append)

    def answer_produce(
        self,
        request: ProduceRequest,
        append: Callable[[str, int, Any], PartitionProduceResponse],
    ) -> ProduceResponse:
        """Respond with the result of `append` (topic, partition, records) for each partition of a
        request."""
        names = {topic_id(name): name for name in self.topics}
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        append(topic.name or names[topic.topic_id], data.index, data.records)
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )


def topic_id(name: str) -> bytes:
    """A topic's id, derived from its name."""
    return name.encode().ljust(16, b"\1")[:16]
