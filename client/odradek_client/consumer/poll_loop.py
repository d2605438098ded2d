"""The loop of a poll: metadata, the group, positions, records, and the next fetches.

Each poll runs in the task of the application (K-01). Other tasks are one for every fetch in flight,
and those of the group and of the positions; a poll that times out, or is cancelled, does not cancel
them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.completed_fetch import Rows
from odradek_client.consumer.fetcher import FetchedRecords, Fetcher, FetchPlan
from odradek_client.consumer.group.group_loop import GroupLoop
from odradek_client.consumer.offset_fetcher import OffsetFetcher
from odradek_client.consumer.offset_reset import OffsetResetPolicy
from odradek_client.consumer.subscription_state import (
    SubscriptionState,
    SubscriptionType,
)
from odradek_client.consumer.tasks import cancel
from odradek_client.errors import (
    Closed,
    OdradekError,
    Retriable,
    error_for,
)
from odradek_client.network.client import NetworkClient
from odradek_client.network.cluster import TOPIC_REFUSALS
from odradek_client.structs import TopicPartition
from odradek_protocol.primitives import WireError

log = logging.getLogger("odradek.client.consumer")

#: The longest wait of a poll between two passes.
_MAX_WAIT_MS = 1_000


class PollLoop:
    """The polls of a consumer, and the fetches that they send. `offsets` finds the positions."""

    def __init__(
        self,
        config: ConsumerConfig,
        network: NetworkClient,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        group: GroupLoop | None,
        reset: OffsetResetPolicy,
    ) -> None:
        self._config = config
        self._network = network
        self._subscription = subscription
        self._fetcher = fetcher
        self._group = group
        self.offsets = OffsetFetcher(
            config, network, subscription, group.offsets if group else None, reset, self.signal
        )
        self._fetches: dict[asyncio.Task[None], None] = {}
        self._cluster_seen = -1
        self._failure: OdradekError | None = None
        self._wakeup = asyncio.Event()
        self.closing = False
        # New metadata may have partitions of subscribed topics, and new leaders.
        network.add_listener(lambda _: self.signal())

    def now_ms(self) -> int:
        """The network's monotonic clock."""
        return int(self._network.now_ms())

    def signal(self) -> None:
        """Wake a waiting poll, because something has changed."""
        self._wakeup.set()

    # --- poll -------------------------------------------------------------------------------------

    async def poll(
        self,
        limit: int,
        only: Collection[TopicPartition],
        timeout_ms: float,
        rows: Rows | None = None,
        joining_ms: float = 0,
    ) -> FetchedRecords:
        """Return up to `limit` records, only of the partitions `only` if given; with `rows`, add
        them to these.

        Returns none after `timeout_ms`, or earlier if positions moved over records that are not
        returned (K-13). The time until the first assignment of the group, up to `joining_ms`, does
        not count.
        """
        deadline_ms = self._network.now_ms() + timeout_ms
        joined_by_ms = self._network.now_ms() + joining_ms
        # Answers that have arrived, and heartbeats, are handled even if many records are buffered.
        await asyncio.sleep(0)
        while True:
            if self.closing:
                raise Closed("the consumer was closed while it was polled")
            self._wakeup.clear()
            self._apply_metadata()
            if self._group is not None:
                await self._group.poll()
            self.offsets.update_positions()
            self._raise_failure()
            collected = self._fetcher.collect(limit, only, rows)
            # The next fetches are sent before the application has its records (K-02).
            self._send_fetches()
            if collected.count or collected.advanced:
                return collected
            now_ms = self._network.now_ms()
            if (
                now_ms < joined_by_ms
                and self._group is not None
                and self._group.awaits_first_assignment
            ):
                deadline_ms = now_ms + timeout_ms
            left_ms = deadline_ms - now_ms
            if left_ms <= 0:
                return collected
            await self._wait(min(left_ms, self._wait_ms()))

    def _wait_ms(self) -> float:
        """The longest wait until there is something to do, in ms, if no signal comes."""
        waits: list[float] = [_MAX_WAIT_MS]
        if self._group is not None:
            waits.append(self._group.next_poll_ms())
        if self._fetcher.retry_at_ms is not None or not self._subscription.all_fetching():
            waits.append(max(self._config.retry_backoff_ms, 1))
        return min(waits)

    async def _wait(self, timeout_ms: float) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._wakeup.wait()
        except TimeoutError:
            pass

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # --- metadata ---------------------------------------------------------------------------------

    def want_topics(self) -> None:
        """Request metadata of the topics that are read."""
        subscription, cluster = self._subscription, self._network.cluster
        topics = set(subscription.topics) | {each.topic for each in subscription.assigned()}
        if self._group is not None:
            topics |= self._group.led_topics
        cluster.set_all_topics(subscription.kind is SubscriptionType.PATTERN)
        if cluster.set_wanted(topics) or cluster.needs_update:
            self._network.request_metadata_update()
        self._cluster_seen = -1

    def _apply_metadata(self) -> None:
        """Apply changed metadata: topics that match the pattern, errors of topics that may not be
        read."""
        cluster, subscription = self._network.cluster, self._subscription
        if cluster.version == self._cluster_seen:
            return
        self._cluster_seen = cluster.version
        if subscription.kind is SubscriptionType.PATTERN:
            skip_internal = self._config.exclude_internal_topics
            names = [
                name
                for name, info in cluster.topics.items()
                if not (skip_internal and info.is_internal)
            ]
            subscription.match(names)
        else:
            for topic, code in cluster.topic_errors.items():
                if code in TOPIC_REFUSALS and topic in cluster.wanted_topics:
                    raise error_for(code, about=f"topic {topic!r}")
        if subscription.by_group and self._group is None:
            self._assign_everything()

    def _assign_everything(self) -> None:
        """Assign all partitions of subscribed topics without a group, also new ones."""
        cluster, subscription = self._network.cluster, self._subscription
        everything = [
            TopicPartition(topic, number)
            for topic in sorted(subscription.topics)
            for number in cluster.partitions_of(topic) or ()
        ]
        if set(everything) != subscription.assigned():
            subscription.assign_by_group(everything)

    # --- fetches ----------------------------------------------------------------------------------

    def _send_fetches(self) -> None:
        network, fetcher = self._network, self._fetcher
        for plan in fetcher.next_fetches(network.cluster, self.now_ms()):
            task = network.loop.create_task(self._fetch(plan))
            self._fetches[task] = None
            task.add_done_callback(self._fetches.pop)
        if fetcher.metadata_wanted:
            fetcher.metadata_wanted = False
            network.request_metadata_update()

    async def _fetch(self, plan: FetchPlan) -> None:
        try:
            response = await self._network.send(
                plan.node_id,
                plan.request,
                timeout_ms=self._config.request_timeout_ms + self._config.fetch_max_wait_ms,
                channel="fetch",
                max_version=plan.max_version,
            )
            self._fetcher.on_response(plan, response, self.now_ms())
        except (OdradekError, WireError) as error:
            if self.closing:
                return
            self._fetcher.on_failure(plan, self.now_ms())
            if not isinstance(error, Retriable):
                self._failure = _as_odradek(error)
        self.signal()

    # --- closing ---

    async def close(self) -> None:
        """Stop fetching and looking for positions."""
        self.closing = True
        self.signal()
        await cancel(*self._fetches)
        await self.offsets.stop()


def _as_odradek(error: OdradekError | WireError) -> OdradekError:
    if isinstance(error, OdradekError):
        return error
    wrapped = OdradekError(f"the broker cannot be asked: {error}")
    wrapped.__cause__ = error
    return wrapped
