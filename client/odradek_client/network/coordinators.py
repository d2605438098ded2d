"""The coordinators of groups and transactional ids, which are looked up and cached."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek_client.errors import BadAnswer, UnsupportedByBroker, error_for
from odradek_client.network.cluster import BrokerAddress
from odradek_protocol.constants import GROUP_COORDINATOR
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.find_coordinator import (
    SEVERAL_KEYS_SINCE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from odradek_client.network.connections import Connections, RequestSender

#: The limit of keys in one request for coordinators.
_KEYS_OF_REQUEST = 500


class Coordinators:
    """A cache of coordinators: node ids by key type and key."""

    def __init__(self, network: RequestSender, connections: Connections) -> None:
        self._network = network
        self._connections = connections
        self._nodes: dict[tuple[int, str], int] = {}

    async def find(self, key: str, key_type: int = GROUP_COORDINATOR) -> int:
        """The node id of the coordinator of a group (type 0) or a transactional id (type 1).

        Cached until `forget`. Raises the error for the broker's code. After CoordinatorUnavailable
        or another Retriable error, the call may succeed after a backoff.
        """
        known = self._nodes.get((key_type, key))
        if known is not None and self._connections.address(known) is not None:
            return known
        node_id = await self._connections.least_loaded_node()
        version = await self._network.version_for(node_id, ApiKey.FIND_COORDINATOR)
        if version == 0 and key_type != GROUP_COORDINATOR:
            raise UnsupportedByBroker("the broker is too old for transactions")
        request = FindCoordinatorRequest(key_type=key_type)
        if version >= SEVERAL_KEYS_SINCE:
            request.coordinator_keys = [key]
        else:
            request.key = key
        response: FindCoordinatorResponse = await self._network.send(
            node_id, request, max_version=version
        )
        found: FindCoordinatorResponse | Coordinator = response
        if version >= SEVERAL_KEYS_SINCE:
            of_key = [each for each in response.coordinators if each.key == key]
            if not of_key:
                raise BadAnswer(f"FindCoordinator does not mention {key!r}")
            found = of_key[0]
        if found.error_code:
            raise error_for(found.error_code, found.error_message, about=f"coordinator of {key!r}")
        self._network.cluster.add_broker(BrokerAddress(found.node_id, found.host, found.port))
        self._nodes[(key_type, key)] = found.node_id
        return found.node_id

    async def find_many(self, keys: Iterable[str], key_type: int) -> None:
        """Look up the coordinators of several keys in few requests, and cache those that the broker
        names. For other keys, `find` sends a request again and raises the error."""
        unknown = [key for key in dict.fromkeys(keys) if (key_type, key) not in self._nodes]
        if len(unknown) < 2:
            return
        node_id = await self._connections.least_loaded_node()
        version = await self._network.version_for(node_id, ApiKey.FIND_COORDINATOR)
        if version < SEVERAL_KEYS_SINCE:
            return
        for start in range(0, len(unknown), _KEYS_OF_REQUEST):
            request = FindCoordinatorRequest(
                key_type=key_type, coordinator_keys=unknown[start : start + _KEYS_OF_REQUEST]
            )
            response: FindCoordinatorResponse = await self._network.send(
                node_id, request, max_version=version
            )
            for found in response.coordinators:
                if not found.error_code:
                    address = BrokerAddress(found.node_id, found.host, found.port)
                    self._network.cluster.add_broker(address)
                    self._nodes[(key_type, found.key)] = found.node_id

    def forget(self, key: str, key_type: int = GROUP_COORDINATOR) -> None:
        """Drop the coordinator from the cache, because it has changed; the next `find` looks it
        up."""
        self._nodes.pop((key_type, key), None)

    def forget_all(self) -> None:
        """Drop all coordinators, because the known brokers no longer answer."""
        self._nodes.clear()
