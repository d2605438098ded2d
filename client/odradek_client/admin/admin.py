"""The public admin client.

    async with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
        await admin.create_topics(NewTopic("flights", partitions=6))

A call about one item raises the item's error. A call about several items tries all of them and then
raises the first error, with the other errors in its notes; with `raise_errors=False` the errors are
in `Results.errors` instead. Changes are sent to the controller. A controller that has moved is
looked up again.
"""

from __future__ import annotations

import random as random_module
from typing import TYPE_CHECKING, Self, Unpack

from odradek_client.admin.acls import AclAdmin
from odradek_client.admin.broker import BrokerAdmin
from odradek_client.admin.cluster import ClusterAdmin
from odradek_client.admin.configs import ConfigAdmin
from odradek_client.admin.delegation_tokens import DelegationTokenAdmin
from odradek_client.admin.group_offsets import GroupOffsetAdmin
from odradek_client.admin.groups import GroupAdmin
from odradek_client.admin.history import HistoryAdmin
from odradek_client.admin.partitions import PartitionAdmin
from odradek_client.admin.producers import ProducerAdmin
from odradek_client.admin.quotas import QuotaAdmin
from odradek_client.admin.requests import AdminRequests
from odradek_client.admin.share_groups import ShareGroupAdmin
from odradek_client.admin.streams_groups import StreamsGroupAdmin
from odradek_client.admin.telemetry import TelemetryAdmin
from odradek_client.admin.topics import TopicAdmin
from odradek_client.admin.transactions import TransactionAdmin
from odradek_client.admin.users import UserAdmin
from odradek_client.backoff import Backoff
from odradek_client.cancellation import short_cancellations
from odradek_client.config.admin import AdminConfig
from odradek_client.network.client import NetworkClient
from odradek_client.tasks import OfOneProcess

if TYPE_CHECKING:
    from odradek_client.config.keywords import AdminSettings


@short_cancellations()
class Admin(
    OfOneProcess,
    TopicAdmin,
    ConfigAdmin,
    PartitionAdmin,
    ClusterAdmin,
    GroupAdmin,
    GroupOffsetAdmin,
    ShareGroupAdmin,
    StreamsGroupAdmin,
    TransactionAdmin,
    ProducerAdmin,
    HistoryAdmin,
    BrokerAdmin,
    TelemetryAdmin,
    QuotaAdmin,
    UserAdmin,
    DelegationTokenAdmin,
    AclAdmin,
):
    """Administers a cluster. Settings are the rows of `AdminConfig`.

    Use it with `async with`, or call `start` and `close`. Every call is retried for
    `default_api_timeout_ms` at most.
    """

    def __init__(self, **settings: Unpack[AdminSettings]) -> None:
        self.config = AdminConfig.from_settings(settings)
        # A simulation replaces the attribute `random.Random`, so the class is not imported
        # directly.
        random = random_module.Random()
        self.network = NetworkClient(self.config, random=random)
        backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, random)
        self.requests = AdminRequests(self.config, self.network, backoff)

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connect. MetadataTimeout if no broker is reached within `timeout_ms`
        (default_api_timeout_ms if None)."""
        await self.network.start(timeout_ms)

    async def close(self) -> None:
        """Close. May be called again."""
        await self.network.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
