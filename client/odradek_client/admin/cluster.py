"""The cluster and its brokers: addresses, APIs and features, data directories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek_client.admin.requests import AdminPart
from odradek_client.admin.results import Outcomes, Results
from odradek_client.errors import OdradekError, Refused, error_for
from odradek_client.network.cluster import BrokerAddress
from odradek_client.network.handshake import versions_request
from odradek_client.structs import TopicPartition
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.api_versions import ApiVersionsResponse
from odradek_protocol.schemas.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek_protocol.schemas.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


@dataclass(frozen=True)
class ClusterDescription:
    """The brokers. `controller_id` is None if it is not known."""

    cluster_id: str | None
    controller_id: int | None
    brokers: list[BrokerAddress]


@dataclass(frozen=True)
class BrokerDescription:
    """The APIs and features of a broker.

    `apis`: the lowest and highest version of each API, by its name (its number if the name is
    unknown to this client). `supported_features`: the lowest and highest possible level;
    `finalized_features`: the present level of the cluster.
    """

    node_id: int
    apis: dict[str, tuple[int, int]]
    supported_features: dict[str, tuple[int, int]]
    finalized_features: dict[str, int]


@dataclass(frozen=True)
class ReplicaSize:
    """The size of one replica in a directory. `is_future`: true if the replica is being moved
    there."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True)
class LogDir:
    """A data directory of a broker. With an `error` the other fields are empty. `total_bytes` and
    `usable_bytes` are the sizes of its volume, None if the broker does not report them."""

    path: str
    error: OdradekError | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: dict[TopicPartition, ReplicaSize]

    @property
    def size_bytes(self) -> int:
        return sum(replica.size_bytes for replica in self.replicas.values())


class ClusterAdmin(AdminPart):
    """The calls about the cluster and its brokers."""

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers, the controller and the cluster's id."""

        async def ask() -> ClusterDescription:
            node_id = await self.network.least_loaded_node()
            try:
                await self.network.version_for(node_id, ApiKey.DESCRIBE_CLUSTER)
            except OdradekError:
                # Brokers before Kafka 2.8 do not have DescribeCluster; their answer to Metadata has
                # the same values.
                await self.network.refresh_metadata()
                view = self.network.cluster
                brokers = sorted(view.brokers.values(), key=lambda broker: broker.node_id)
                return ClusterDescription(view.cluster_id, view.controller_id, brokers)
            response: DescribeClusterResponse = await self.network.send(
                node_id, DescribeClusterRequest()
            )
            if response.error_code:
                raise error_for(response.error_code, response.error_message, about="cluster")
            brokers = [
                BrokerAddress(b.broker_id, b.host, b.port, b.rack)
                for b in sorted(response.brokers, key=lambda broker: broker.broker_id)
            ]
            controller = response.controller_id if response.controller_id >= 0 else None
            return ClusterDescription(response.cluster_id, controller, brokers)

        return await self.requests.retrying(ask)

    async def describe_broker(self, node_id: int) -> BrokerDescription:
        """The APIs and features of a broker. Raises ConnectionLost for a node that does not
        exist."""
        request = versions_request()
        response: ApiVersionsResponse = await self.requests.retrying(
            lambda: self.network.send(node_id, request)
        )
        if response.error_code:
            raise error_for(response.error_code, about=f"node {node_id}")
        return BrokerDescription(
            node_id,
            {
                _api_name(api.api_key): (api.min_version, api.max_version)
                for api in response.api_keys
            },
            {
                each.name: (each.min_version, each.max_version)
                for each in response.supported_features
            },
            {each.name: each.max_version_level for each in response.finalized_features},
        )

    async def describe_log_dirs(
        self, node_ids: int | Iterable[int] | None = None, *, raise_errors: bool = True
    ) -> Results[int, list[LogDir]]:
        """The data directories of the given brokers, or of all brokers, by node id.

        Raises ClusterAuthorizationFailed, ConnectionLost, Refused (the node does not exist).
        """
        there = sorted(broker.node_id for broker in (await self.requests.metadata([])).brokers)
        wanted = (
            [node_ids]
            if isinstance(node_ids, int)
            else list(there if node_ids is None else node_ids)
        )

        async def ask_one(node_id: int) -> list[LogDir]:
            if node_id not in there:
                known = ", ".join(map(str, there))
                raise Refused(f"there is no node {node_id}; the cluster has {known}")
            response: DescribeLogDirsResponse = await self.network.send(
                node_id, DescribeLogDirsRequest(topics=None)
            )
            if response.error_code:
                raise error_for(response.error_code, about=f"node {node_id}")
            return [_log_dir(each) for each in response.results]

        async def ask(asked: list[int]) -> Outcomes[int, list[LogDir]]:
            outcomes: Outcomes[int, list[LogDir]] = {}
            for node_id in asked:
                try:
                    outcomes[node_id] = await ask_one(node_id)
                except OdradekError as error:
                    outcomes[node_id] = error
            return outcomes

        return await self.requests.for_each(wanted, ask, raise_errors)


def _api_name(key: int) -> str:
    try:
        return APIS[ApiKey(key)].name
    except (KeyError, ValueError):
        return str(key)


def _log_dir(found: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        found.log_dir,
        error_for(found.error_code, about=found.log_dir) if found.error_code else None,
        found.total_bytes if found.total_bytes >= 0 else None,
        found.usable_bytes if found.usable_bytes >= 0 else None,
        {
            TopicPartition(topic.name, part.partition_index): ReplicaSize(
                part.partition_size, part.offset_lag, part.is_future_key
            )
            for topic in found.topics
            for part in topic.partitions
        },
    )
