"""How an administrator's requests find their broker, and when they are tried again.

What is a part of `Admin` builds on `AdminBase`: the parts know what to ask and what an answer means.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from odradek_client.cluster import BrokerAddress
from odradek_client.config import AdminConfig
from odradek_client.consumer.types import TopicPartition
from odradek_client.errors import (
    ConnectionLost,
    CoordinatorUnavailable,
    NotCoordinator,
    OdradekError,
    RequestTimedOut,
    UnknownTopicOrPartition,
    error_for,
)
from odradek_client.retry import Backoff
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.message import Message
from odradek_protocol.schemas.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    from odradek_client.network import Network

K = TypeVar("K")
V = TypeVar("V")

#: How long nodes may contradict each other about a topic that this admin has not created.
UNKNOWN_TOPIC_PATIENCE_MS = 2_000
#: The same about one that this admin has created, from then on. Later, somebody may have deleted it.
CREATED_PATIENCE_MS = 30_000
#: Topics that an admin remembers to have created.
_CREATED_MAX = 1000


class AdminBase:
    """Routing and retries. `Admin` makes what they need."""

    config: AdminConfig
    _network: Network
    _backoff: Backoff
    #: Topics of which the controller has said that they are there, the newest last: the number of
    #: their partitions if it has told, and when that was. The other nodes hear of them later (KRaft), and say
    #: until then that there are no such.
    _created: OrderedDict[str, tuple[int | None, float]]

    # --- how requests find their broker -----------------------------------------------------------

    async def _to_controller(
        self, request: Message, *, shape: Callable[[Any, int], None] | None = None
    ) -> Any:
        """Send to the controller. A broker that is not it answers NOT_CONTROLLER, which `_all`
        retries behind new metadata; one that forwards (KRaft) may be any.
        """
        controller = self._network.cluster.controller_id
        if controller is None or controller not in self._network.cluster.brokers:
            controller = await self._network.least_loaded_node()
        if shape is None:
            return await self._network.send(controller, request)
        version = await self._network.version_for(controller, ApiKey.DELETE_TOPICS)
        shape(request, version)
        return await self._network.send(controller, request, max_version=version)

    async def _metadata(self, topics: list[str] | None) -> MetadataResponse:
        """Metadata of some topics, or of all, without changing what the network keeps fresh."""

        async def ask() -> MetadataResponse:
            node_id = await self._network.least_loaded_node()
            version = await self._network.version_for(node_id, ApiKey.METADATA)
            asked = None if topics is None else [MetadataRequestTopic(name=t) for t in topics]
            if asked is None and version == 0:
                asked = []
            # Before version 4 there is no such switch, and it may not be set.
            request = MetadataRequest(topics=asked, allow_auto_topic_creation=version < 4)
            response: MetadataResponse = await self._network.send(
                node_id, request, max_version=version
            )
            if response.error_code:
                raise error_for(response.error_code, about="metadata")
            return response

        return await self._retrying(ask)

    async def _by_leader(
        self, tps: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, OdradekError]]:
        """The partitions by leader, and those that have none."""
        tps = list(tps)
        response = await self._metadata(sorted({tp.topic for tp in tps}))
        leaders: dict[TopicPartition, int] = {}
        errors: dict[TopicPartition, OdradekError] = {}
        for topic in response.topics:
            name = topic.name or ""
            for part in topic.partitions:
                leaders[TopicPartition(name, part.partition_index)] = part.leader_id
            if topic.error_code:
                error = error_for(topic.error_code, about=f"topic {name!r}")
                errors |= {tp: error for tp in tps if tp.topic == name}
        for broker in response.brokers:
            self._network.cluster.add_broker(
                BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            )
        homes: dict[int, list[TopicPartition]] = {}
        for tp in tps:
            if tp in errors:
                continue
            leader = leaders.get(tp)
            if leader is None:
                # The topic is known: it is the partition that is not there.
                self._created.pop(tp.topic, None)
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                errors[tp] = error_for(code, about=f"{tp.topic}-{tp.partition}")
            elif leader < 0:
                code = ErrorCode.LEADER_NOT_AVAILABLE
                errors[tp] = error_for(code, about=f"{tp.topic}-{tp.partition}")
            else:
                homes.setdefault(leader, []).append(tp)
        return homes, errors

    async def _by_coordinator(
        self, names: Iterable[str], kind: int
    ) -> tuple[dict[int, list[str]], dict[str, OdradekError]]:
        """Groups (kind 0) or transactional ids (1) by coordinator, and those that have none."""
        homes: dict[int, list[str]] = {}
        errors: dict[str, OdradekError] = {}
        for name in names:
            try:
                node_id = await self._network.find_coordinator(name, kind)
            except OdradekError as error:
                errors[name] = error
            else:
                homes.setdefault(node_id, []).append(name)
        return homes, errors

    async def _to_coordinator(
        self, name: str, kind: int, request: Message, *, max_version: int | None = None
    ) -> Any:
        """Send to the coordinator of a group or transactional id, and forget one that is gone."""
        node_id = await self._network.find_coordinator(name, kind)
        try:
            return await self._network.send(node_id, request, max_version=max_version)
        except (ConnectionLost, RequestTimedOut):
            self._network.forget_coordinator(name, kind)
            raise

    def _coordinator_error(
        self, code: int, name: str, kind: int, about: str, message: str | None = None
    ) -> OdradekError:
        """The error for a coordinator's code; one that has moved is looked up again next time."""
        error = error_for(code, message, about=about)
        if isinstance(error, NotCoordinator | CoordinatorUnavailable):
            self._network.forget_coordinator(name, kind)
        return error

    # --- trying again -----------------------------------------------------------------------------

    async def _all(
        self,
        items: list[K],
        ask: Callable[[list[K]], Awaitable[dict[K, OdradekError]]],
        *,
        final: tuple[type[OdradekError], ...] = (),
        place_of: Callable[[K], tuple[str, int]] | None = None,
        patient: bool = True,
    ) -> dict[K, OdradekError]:
        """Ask about all items, and again about those with a retriable error while there is time.

        `final`: errors that are retriable elsewhere but are the answer here. `place_of` an item:
        its topic and partition. That it is unknown is the answer only if that is likely to be true; if
        not `patient`, then for every topic that this admin has not created.
        """
        loop = self._network.loop
        begun = loop.time()
        deadline = begun + self.config.default_api_timeout_ms / 1000

        def is_final(item: K, error: OdradekError) -> bool:
            if place_of is not None and isinstance(error, UnknownTopicOrPartition):
                patience_ms = UNKNOWN_TOPIC_PATIENCE_MS if patient else 0
                return not self._may_turn_up(
                    *place_of(item), patience_ms - (loop.time() - begun) * 1000
                )
            return isinstance(error, final) or not error.retriable

        errors: dict[K, OdradekError] = {}
        failures = 0
        while items:
            try:
                answered = await ask(items)
            except (ConnectionLost, RequestTimedOut) as lost:
                answered = dict.fromkeys(items, lost)
            again = []
            for item, error in answered.items():
                errors[item] = error
                if not is_final(item, error):
                    again.append(item)
            for item in items:
                if item not in answered:
                    errors.pop(item, None)
            items = again
            failures += 1
            delay_s = self._backoff.delay_ms(failures) / 1000
            if not items or loop.time() + delay_s >= deadline:
                break
            self._network.request_metadata_update()
            await self._network.pause(delay_s)
        return errors

    def _remember_created(self, topic: str, partitions: int | None) -> None:
        self._created[topic] = partitions, self._network.now_ms()
        self._created.move_to_end(topic)
        while len(self._created) > _CREATED_MAX:
            self._created.popitem(last=False)

    def _may_turn_up(self, topic: str, partition: int, patience_ms: float) -> bool:
        """Whether a partition that a node does not know may be there all the same.

        Certainly if this admin has just created it. Otherwise for a moment, where there are several
        nodes.
        """
        created = self._created.get(topic)
        if created is not None and self._network.now_ms() - created[1] < CREATED_PATIENCE_MS:
            return created[0] is None or partition < created[0]
        return len(self._network.cluster.brokers) > 1 and patience_ms > 0

    async def _retrying(self, ask: Callable[[], Awaitable[V]]) -> V:
        """One question, again while its error is retriable and there is time."""
        loop = self._network.loop
        deadline = loop.time() + self.config.default_api_timeout_ms / 1000
        failures = 0
        while True:
            try:
                return await ask()
            except OdradekError as error:
                failures += 1
                delay_s = self._backoff.delay_ms(failures) / 1000
                if not error.retriable or loop.time() + delay_s >= deadline:
                    raise
            await self._network.pause(delay_s)
