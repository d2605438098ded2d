"""The coordinators of groups and transactional ids, found once and remembered."""

from __future__ import annotations

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


class Coordinators:
    """Node ids by key type and key."""

    def __init__(self, network: RequestSender, connections: Connections) -> None:
        self._network = network
        self._connections = connections
        self._nodes: dict[tuple[int, str], int] = {}

    async def find(self, key: str, key_type: int = GROUP_COORDINATOR) -> int:
        """The node id of the coordinator of a group (type 0) or a transactional id (type 1).

        Remembered until `forget`. Raises error_for the broker's code: CoordinatorUnavailable
        and other Retriable errors are worth another try after a backoff.
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

    def forget(self, key: str, key_type: int = GROUP_COORDINATOR) -> None:
        """Ask again next time: the one known is not it any more."""
        self._nodes.pop((key_type, key), None)

    def forget_all(self) -> None:
        """The brokers known so far are gone."""
        self._nodes.clear()
