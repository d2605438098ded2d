"""The routing of admin requests to brokers, and their retries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from odradek_client.admin.results import Outcomes, Results, settle
from odradek_client.backoff import Backoff
from odradek_client.config.admin import AdminConfig
from odradek_client.errors import (
    BadAnswer,
    ConnectionLost,
    CoordinatorUnavailable,
    NotCoordinator,
    OdradekError,
    RequestTimedOut,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
    error_for,
)
from odradek_client.network.cluster import BrokerAddress
from odradek_client.structs import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey, api_of
from odradek_protocol.message import Message
from odradek_protocol.schemas.metadata import (
    AUTO_CREATION_SWITCH_SINCE,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    from odradek_client.network.client import NetworkClient

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Message)

#: The time for which UNKNOWN_TOPIC_OR_PARTITION is retried for a topic that this admin client has
#: not created. Another client may have created the topic, and some nodes may not know it yet.
UNKNOWN_TOPIC_PATIENCE_MS = 2_000
#: The time for which UNKNOWN_TOPIC_OR_PARTITION is retried for a topic, counted from the creation
#: of the topic by this admin client. After that time the topic may have been deleted.
CREATED_PATIENCE_MS = 30_000
#: The limit of created topics that an admin client remembers.
_CREATED_MAX = 1000


class AdminRequests:
    """Sends requests to the broker that can answer them, with retries.

    Requests with a retriable error are repeated, with a backoff, for `default_api_timeout_ms`.
    """

    def __init__(self, config: AdminConfig, network: NetworkClient, backoff: Backoff) -> None:
        self._config = config
        self._network = network
        self._backoff = backoff
        #: For each topic that this client has created: the number of its partitions if known, and
        #: the time of its creation. The newest topic is last. In KRaft, brokers learn of a new
        #: topic later than the controller, and until then answer that the topic does not exist.
        self._created: OrderedDict[str, tuple[int | None, float]] = OrderedDict()

    # --- one request ------------------------------------------------------------------------------

    async def to_controller(
        self, request: R, *, adapt: Callable[[R, int], None] | None = None
    ) -> Any:
        """Send a request to the controller. `adapt(request, version)` first fits it to the version.

        A broker that is not the controller answers NOT_CONTROLLER, and `for_each` then retries with
        new metadata. In KRaft any broker forwards the request.
        """
        controller = self._network.cluster.controller_id
        if controller is None or controller not in self._network.cluster.brokers:
            controller = await self._network.least_loaded_node()
        if adapt is None:
            return await self._network.send(controller, request)
        version = await self._network.version_for(controller, api_of(request).key)
        adapt(request, version)
        return await self._network.send(controller, request, max_version=version)

    async def to_coordinator(
        self, name: str, kind: int, request: Message, *, max_version: int | None = None
    ) -> Any:
        """Send to the coordinator of a group or transactional id, and forget the coordinator if its
        connection is lost."""
        node_id = await self._network.find_coordinator(name, kind)
        try:
            return await self._network.send(node_id, request, max_version=max_version)
        except (ConnectionLost, RequestTimedOut):
            self._network.forget_coordinator(name, kind)
            raise

    def coordinator_error(self, code: int, name: str, kind: int, about: str) -> OdradekError:
        """The error for a coordinator's code. If the code means that the coordinator has moved, the
        coordinator is looked up again before the next request."""
        error = error_for(code, about=about)
        if isinstance(error, NotCoordinator | CoordinatorUnavailable):
            self._network.forget_coordinator(name, kind)
        return error

    async def metadata(self, topics: list[str] | None) -> MetadataResponse:
        """The metadata of some topics, or of all topics. The call does not change the set of topics
        whose metadata the network layer keeps fresh."""

        async def ask() -> MetadataResponse:
            node_id = await self._network.least_loaded_node()
            version = await self._network.version_for(node_id, ApiKey.METADATA)
            asked = None if topics is None else [MetadataRequestTopic(name=t) for t in topics]
            if asked is None and version == 0:
                asked = []
            # Versions without allow_auto_topic_creation cannot encode False: the broker may create
            # topics.
            unswitched = version < AUTO_CREATION_SWITCH_SINCE
            request = MetadataRequest(topics=asked, allow_auto_topic_creation=unswitched)
            response: MetadataResponse = await self._network.send(
                node_id, request, max_version=version
            )
            if response.error_code:
                raise error_for(response.error_code, about="metadata")
            return response

        return await self.retrying(ask)

    # --- many items, each at its broker ---

    async def for_each_partition(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Outcomes[TopicPartition, V]]],
        raise_errors: bool,
        *,
        final: tuple[type[OdradekError], ...] = (),
    ) -> Results[TopicPartition, V]:
        """Call `ask(node_id, partitions)` for every leader with its partitions."""

        async def ask_leaders(asked: list[TopicPartition]) -> Outcomes[TopicPartition, V]:
            by_leader, leaderless = await self._by_leader(asked)
            outcomes: Outcomes[TopicPartition, V] = {**leaderless}
            return outcomes | await self.ask_nodes(by_leader, ask)

        return await self.for_each(
            partitions,
            ask_leaders,
            raise_errors,
            final=final,
            partition_of=None if final else _itself,
        )

    async def for_each_coordinated(
        self,
        names: str | Iterable[str],
        kind: int,
        ask: Callable[[int, list[str]], Awaitable[Outcomes[str, V]]],
        raise_errors: bool,
    ) -> Results[str, V]:
        """Call `ask(node_id, names)` for every coordinator with its groups or transactional ids."""

        async def ask_coordinators(asked: list[str]) -> Outcomes[str, V]:
            by_coordinator: dict[int, list[str]] = {}
            outcomes: Outcomes[str, V] = {}
            await self._network.find_coordinators(asked, kind)
            for name in asked:
                try:
                    node_id = await self._network.find_coordinator(name, kind)
                except OdradekError as error:
                    outcomes[name] = error
                else:
                    by_coordinator.setdefault(node_id, []).append(name)
            return outcomes | await self.ask_nodes(by_coordinator, ask)

        wanted = [names] if isinstance(names, str) else names
        return await self.for_each(wanted, ask_coordinators, raise_errors)

    async def ask_nodes(
        self,
        by_node: Mapping[int, list[K]],
        ask: Callable[[int, list[K]], Awaitable[Outcomes[K, V]]],
    ) -> Outcomes[K, V]:
        """Call `ask(node_id, items)` for one node after the other, and stop at the first lost
        connection.

        The results so far are kept, because a repeated request, for example a deletion, would fail.
        """
        outcomes: Outcomes[K, V] = {}
        for node_id, some in by_node.items():
            try:
                outcomes |= await ask(node_id, some)
            except (ConnectionLost, RequestTimedOut) as lost:
                return {item: lost for items in by_node.values() for item in items} | outcomes
        return outcomes

    async def of_every_broker(self, ask: Callable[[int], Awaitable[list[V]]]) -> list[V]:
        """Call `ask(node_id)` for every broker of the cluster, and return all results in one
        list."""

        async def ask_brokers() -> list[V]:
            # Metadata is requested in each attempt; otherwise a removed node would be asked again
            # and again.
            await self._network.refresh_metadata(self._config.default_api_timeout_ms)
            found: list[V] = []
            for node_id in list(self._network.cluster.brokers):
                found += await ask(node_id)
            return found

        return await self.retrying(ask_brokers)

    async def _by_leader(
        self, partitions: list[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, OdradekError]]:
        """The partitions by leader, and an error for each partition that has no leader or does not
        exist."""
        response = await self.metadata(sorted({tp.topic for tp in partitions}))
        leaders: dict[TopicPartition, int] = {}
        errors: dict[TopicPartition, OdradekError] = {}
        for topic in response.topics:
            name = topic.name or ""
            for part in topic.partitions:
                leaders[TopicPartition(name, part.partition_index)] = part.leader_id
            if topic.error_code:
                error = error_for(topic.error_code, about=f"topic {name!r}")
                errors |= {tp: error for tp in partitions if tp.topic == name}
        for broker in response.brokers:
            self._network.cluster.add_broker(
                BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            )
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            if tp in errors:
                continue
            leader = leaders.get(tp)
            if leader is None:
                # The topic has appeared, so it no longer counts as new.
                self.forget_created(tp.topic)
                errors[tp] = partition_error(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif leader < 0:
                errors[tp] = partition_error(tp, ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                by_leader.setdefault(leader, []).append(tp)
        return by_leader, errors

    # --- retries ---

    async def for_each(
        self,
        items: Iterable[K],
        ask: Callable[[list[K]], Awaitable[Outcomes[K, V]]],
        raise_errors: bool,
        *,
        final: tuple[type[OdradekError], ...] = (),
        partition_of: Callable[[K], tuple[str, int]] | None = None,
        patient: bool = True,
    ) -> Results[K, V]:
        """Send requests about all items, and repeat those with a retriable error until the timeout.

        `final`: retriable errors that are not retried here. `partition_of`: the topic and partition
        of an item. UNKNOWN_TOPIC_OR_PARTITION is retried while the partition may still appear;
        without `patient`, only for a topic that this admin client has created. Raises the first
        error, or leaves all errors in the results.
        """
        loop = self._network.loop
        begun = loop.time()
        deadline = begun + self._config.default_api_timeout_ms / 1000

        def is_final(item: K, error: OdradekError) -> bool:
            if partition_of is not None and isinstance(error, UnknownTopicOrPartition):
                patience_ms = UNKNOWN_TOPIC_PATIENCE_MS if patient else 0
                return not self._may_turn_up(
                    *partition_of(item), patience_ms - (loop.time() - begun) * 1000
                )
            return isinstance(error, final) or not error.retriable

        results: Results[K, V] = Results()
        errors: dict[K, OdradekError] = {}
        asked = list(items)
        failures = 0
        while asked:
            try:
                outcomes = await ask(asked)
            except OdradekError as failed:
                # The whole attempt failed, for example because a coordinator is not available yet.
                if not failed.retriable:
                    raise
                outcomes = dict.fromkeys(asked, failed)
            again = []
            for item in asked:
                outcome = outcomes[item] if item in outcomes else _unanswered(item)
                if not isinstance(outcome, OdradekError):
                    results[item] = outcome
                    errors.pop(item, None)
                    continue
                errors[item] = outcome
                if not is_final(item, outcome):
                    again.append(item)
            asked = again
            failures += 1
            delay_s = self._backoff.delay_ms(failures) / 1000
            if not asked or loop.time() + delay_s >= deadline:
                break
            self._network.request_metadata_update()
            await self._network.pause(delay_s)
        return settle(results, errors, raise_errors)

    async def retrying(self, ask: Callable[[], Awaitable[V]]) -> V:
        """Call `ask`. Repeat the call as long as it raises a retriable error, for at most
        default_api_timeout_ms."""
        loop = self._network.loop
        deadline = loop.time() + self._config.default_api_timeout_ms / 1000
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

    # --- topics that were just created ------------------------------------------------------------

    def remember_created(self, topic: str, partitions: int | None) -> None:
        """Called when the controller has created a topic, with this number of partitions if
        known."""
        self._created[topic] = partitions, self._network.now_ms()
        self._created.move_to_end(topic)
        while len(self._created) > _CREATED_MAX:
            self._created.popitem(last=False)

    def forget_created(self, topic: str) -> None:
        """Undo `remember_created`."""
        self._created.pop(topic, None)

    def _may_turn_up(self, topic: str, partition: int, patience_ms: float) -> bool:
        """True if a partition that a node does not know may appear there soon.

        Either this admin client has just created it, or there are several nodes and `patience_ms`
        has not passed.
        """
        created = self._created.get(topic)
        if created is not None and self._network.now_ms() - created[1] < CREATED_PATIENCE_MS:
            return created[0] is None or partition < created[0]
        return len(self._network.cluster.brokers) > 1 and patience_ms > 0


class AdminPart:
    """The base of every part of `Admin`."""

    config: AdminConfig
    #: The connections to the brokers; `send(node_id, request)` sends a request of the caller's own.
    network: NetworkClient
    #: Requests to the controller, a coordinator or each leader, with the retries of this client.
    requests: AdminRequests


def require_version(version: int, since: int, what: str) -> None:
    """Raise UnsupportedByBroker if the broker's version of a request is too low for `what`."""
    if version < since:
        raise UnsupportedByBroker(f"the broker is too old to be asked for {what}")


def partition_error(tp: TopicPartition, code: int, message: str | None = None) -> OdradekError:
    """The error for a broker's code about a partition."""
    return error_for(code, message, about=f"{tp.topic}-{tp.partition}")


def _unanswered(item: object) -> BadAnswer:
    name = repr(item) if isinstance(item, str | int) else str(item)
    return BadAnswer(
        f"the broker has not answered about {name}; whether it did anything is unknown"
    )


def _itself(tp: TopicPartition) -> TopicPartition:
    return tp
