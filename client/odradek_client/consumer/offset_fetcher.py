"""The positions of partitions: committed offsets, resets, validation, and ListOffsets itself.

Positions are found in a task of their own, which a poll begins and which may end during a later
one: a poll that times out, or is cancelled, does not cancel the task.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.errors import NoOffset
from odradek_client.consumer.group.offsets import GroupOffsets
from odradek_client.consumer.list_offsets import (
    FoundOffsets,
    list_offsets_requests,
    read_list_offsets,
)
from odradek_client.consumer.offset_reset import BY_DURATION, OffsetResetPolicy
from odradek_client.consumer.position_validation import plan_validation, read_validation
from odradek_client.consumer.subscription_state import FetchState, SubscriptionState
from odradek_client.consumer.tasks import cancel
from odradek_client.errors import RequestTimedOut, Retriable, UnsupportedByBroker
from odradek_client.network.client import NetworkClient
from odradek_client.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from odradek_protocol.constants import LATEST_TIMESTAMP
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.offset_for_leader_epoch import CLIENTS_SINCE

log = logging.getLogger("odradek.client.consumer")


class OffsetFetcher:
    """Finds the positions of a consumer's partitions. `signal` wakes a waiting poll."""

    def __init__(
        self,
        config: ConsumerConfig,
        network: NetworkClient,
        subscription: SubscriptionState,
        group_offsets: GroupOffsets | None,
        reset: OffsetResetPolicy,
        signal: Callable[[], None],
    ) -> None:
        self._config = config
        self._network = network
        self._subscription = subscription
        self._group_offsets = group_offsets
        self._reset = reset
        self._signal = signal
        self._task: asyncio.Task[None] | None = None
        self._complete_at_versions = (-1, -1)

    def _now_ms(self) -> int:
        return int(self._network.now_ms())

    # --- positions of assigned partitions ---------------------------------------------------------

    def update_positions(self) -> None:
        """Run the task while a partition's position is unknown or unvalidated; raise the error that
        ended it."""
        subscription, cluster = self._subscription, self._network.cluster
        task = self._task
        if self._complete_at_versions != (subscription.changes, cluster.version):
            # Positions are validated before anything is fetched with the new leader's epoch.
            subscription.validate(lambda partition: cluster.leader_epoch_of(*partition))
        elif task is None:
            return
        if task is not None:
            if not task.done():
                return
            self._task = None
            task.result()
        versions = (subscription.changes, cluster.version)
        if self._complete_at_versions == versions:
            return
        if subscription.all_fetching():
            self._complete_at_versions = versions
            return
        now_ms = self._now_ms()
        if any(
            subscription.in_fetch_state(each, now_ms)
            for each in FetchState
            if each is not FetchState.FETCHING
        ):
            self._task = self._network.loop.create_task(self._find_once())
            self._task.add_done_callback(lambda _: self._signal())

    async def find_positions(self, timeout_ms: float) -> None:
        """Find the positions of all assigned partitions. RequestTimedOut after `timeout_ms`."""
        deadline_ms = self._network.now_ms() + timeout_ms
        while not self._subscription.all_fetching():
            self.update_positions()
            left_ms = deadline_ms - self._network.now_ms()
            if left_ms <= 0:
                raise RequestTimedOut(
                    f"the positions were not found within {timeout_ms:.0f} ms; are the brokers up?"
                )
            task = self._task
            if task is not None:
                await asyncio.wait({task}, timeout=left_ms / 1000)
            else:
                await asyncio.sleep(min(left_ms, self._config.retry_backoff_ms) / 1000)

    async def _find_once(self) -> None:
        """Try once to find each missing position, except those whose retry is not due yet (K-25,
        K-26, O-16)."""
        subscription = self._subscription
        unset = subscription.in_fetch_state(FetchState.INITIALIZING, self._now_ms())
        if unset:
            await self._begin_at_committed(unset)
        unvalidated = subscription.in_fetch_state(FetchState.AWAIT_VALIDATION, self._now_ms())
        if unvalidated:
            await self._validate(unvalidated)
        resetting = subscription.in_fetch_state(FetchState.AWAIT_RESET, self._now_ms())
        if resetting:
            await self._find_by_timestamp(resetting)

    async def _find_by_timestamp(self, partitions: list[TopicPartition]) -> None:
        """Request the positions to be reset with ListOffsets (O-16)."""
        subscription, cluster = self._subscription, self._network.cluster
        asked = {each: subscription.get(each) for each in partitions}
        wanted = {
            partition: state.reset_timestamp
            for partition, state in asked.items()
            if state is not None and state.reset_timestamp is not None
        }
        if any(each.topic not in cluster.topics for each in wanted):
            # Without waiting for metadata this try would fail, and the first record after assign()
            # would be late by two backoffs.
            await self._network.refresh_metadata()
        # Negative timestamps have meanings of their own.
        since_ms = max(int(time.time() * 1000) - self._reset.duration_ms, 0)
        found = await self.list_offsets_once(
            {each: since_ms if at == BY_DURATION else at for each, at in wanted.items()}
        )
        for partition, at in found.found.items():
            state = subscription.get(partition)
            # A seek in the meantime is newer; and a partition may have been revoked and assigned
            # again.
            if state is not asked[partition] or state is None:
                continue
            if state.reset_timestamp != wanted[partition]:
                continue
            if at is not None:
                subscription.seek(partition, at.offset, at.leader_epoch)
                # The leader itself returned the offset.
                state.checked_epoch = max(at.leader_epoch, cluster.leader_epoch_of(*partition))
            elif wanted[partition] == BY_DURATION:
                subscription.reset(partition, LATEST_TIMESTAMP)  # no record is so new
        self._retry_later(found.retry)

    async def _begin_at_committed(self, partitions: list[TopicPartition]) -> None:
        """Begin at the group's committed offsets (K-25), else by auto.offset.reset."""
        subscription = self._subscription
        asked = {each: subscription.get(each) for each in partitions}
        committed: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        if self._group_offsets is not None:
            committed = await self._group_offsets.committed(
                partitions, self._config.default_api_timeout_ms
            )
        without_offset = []
        for partition in partitions:
            state = subscription.get(partition)
            # Other members may have read a partition that was revoked and assigned again.
            if state is None or state is not asked[partition]:
                continue
            if state.fetch_state is not FetchState.INITIALIZING:
                continue
            offset = committed.get(partition)
            if offset is not None:
                subscription.seek(partition, offset.offset, offset.leader_epoch)
            elif self._reset.timestamp is not None:
                subscription.reset(partition, self._reset.timestamp)
            else:
                without_offset.append(partition)
        if without_offset:
            raise NoOffset(without_offset)

    async def _validate(self, partitions: list[TopicPartition]) -> None:
        """Validate positions with OffsetForLeaderEpoch (K-26). Positions count as valid if the
        broker does not serve the request to clients."""
        subscription, network = self._subscription, self._network
        plans, retry = plan_validation(partitions, subscription, network.cluster)
        failure: Exception | None = None
        for node_id, plan in plans.items():
            try:
                version = await network.version_for(node_id, ApiKey.OFFSET_FOR_LEADER_EPOCH)
                if version < CLIENTS_SINCE:
                    raise UnsupportedByBroker("only brokers may ask where an epoch ends")
                response = await network.send(node_id, plan.request, max_version=version)
            except UnsupportedByBroker:
                for partition, asked in plan.asked.items():
                    state = subscription.get(partition)
                    if state is not None and state.fetch_state is FetchState.AWAIT_VALIDATION:
                        subscription.validated(partition, asked.checked_epoch)
            except Retriable as error:
                log.info("node %d was not asked where epochs end: %s", node_id, error)
                retry |= set(plan.asked)
                network.request_metadata_update()
            else:
                result = read_validation(plan, response, subscription, self._reset.timestamp)
                retry |= result.retry
                failure = failure or result.failure
                if result.metadata_wanted:
                    network.request_metadata_update()
        if retry and not plans:
            network.request_metadata_update()
        self._retry_later(retry)
        if failure is not None:
            raise failure

    def _retry_later(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            state = self._subscription.get(partition)
            if state is not None:
                state.retry_at_ms = self._now_ms() + self._config.retry_backoff_ms

    # --- ListOffsets ------------------------------------------------------------------------------

    async def list_offsets_once(self, timestamps: Mapping[TopicPartition, int]) -> FoundOffsets:
        """Send ListOffsets to the leaders, all at once. Partitions whose error may pass are in
        `retry`."""
        requests, leaderless = list_offsets_requests(
            timestamps,
            self._network.cluster,
            read_committed=self._config.isolation_level == "read_committed",
        )
        found = FoundOffsets(retry=leaderless, metadata_wanted=bool(leaderless))
        answers = await asyncio.gather(
            *(self._network.send(node_id, request) for node_id, request in requests.items()),
            return_exceptions=True,
        )
        for request, answer in zip(requests.values(), answers, strict=True):
            if isinstance(answer, Retriable):
                found.metadata_wanted = True
                found.retry |= {
                    TopicPartition(topic.name, each.partition_index)
                    for topic in request.topics
                    for each in topic.partitions
                }
            elif isinstance(answer, BaseException):
                raise answer
            else:
                read_list_offsets(answer, found)
        if found.metadata_wanted:
            self._network.request_metadata_update()
        return found

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Repeat `list_offsets_once` until all offsets are found. RequestTimedOut after
        `timeout_ms`."""
        deadline_ms = self._network.now_ms() + timeout_ms
        await self._network.wait_for_metadata({each.topic for each in timestamps}, timeout_ms)
        left = dict(timestamps)
        result: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        while left:
            found = await self.list_offsets_once(left)
            result |= found.found
            left = {each: left[each] for each in left if each in found.retry}
            if not left:
                break
            if self._network.now_ms() >= deadline_ms:
                raise RequestTimedOut(
                    f"no offsets of {sorted(left)} within {timeout_ms:.0f} ms; "
                    f"do the partitions exist, and have they a leader?"
                )
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        return result

    async def stop(self) -> None:
        """Cancel the search for positions."""
        task, self._task = self._task, None
        await cancel(task)
