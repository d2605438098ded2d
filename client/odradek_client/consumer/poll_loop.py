"""The loop of a poll: metadata, the group, positions, records, and the next fetches.

Each poll runs in the task of the application (K-01). Other tasks run at the same time: one for
every fetch in flight, the tasks of the group, and one that finds positions. A poll begins the task
that finds positions, and the task may end during a later poll. A poll that times out, or is
cancelled, does not cancel the other tasks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.completed_fetch import Rows
from odradek_client.consumer.errors import NoOffset
from odradek_client.consumer.fetcher import FetchedRecords, Fetcher, FetchPlan
from odradek_client.consumer.group.group_loop import GroupLoop
from odradek_client.consumer.group.offsets import GroupOffsets
from odradek_client.consumer.list_offsets import (
    FoundOffsets,
    list_offsets_requests,
    read_list_offsets,
)
from odradek_client.consumer.offset_reset import BY_DURATION, OffsetResetPolicy
from odradek_client.consumer.position_validation import plan_validation, read_validation
from odradek_client.consumer.subscription_state import (
    FetchState,
    SubscriptionState,
    SubscriptionType,
)
from odradek_client.errors import (
    Closed,
    OdradekError,
    RequestTimedOut,
    Retriable,
    TaskCancelled,
    UnsupportedByBroker,
    error_for,
)
from odradek_client.network.client import NetworkClient
from odradek_client.network.cluster import TOPIC_REFUSALS
from odradek_client.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from odradek_client.tasks import begin, cancel, failure_of, together
from odradek_protocol.constants import LATEST_TIMESTAMP
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.offset_for_leader_epoch import CLIENTS_SINCE

log = logging.getLogger("odradek.client.consumer")

#: The limit of the wait between two passes of a poll.
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
        # A waiting poll is woken, because new metadata may have partitions of subscribed topics, or
        # new leaders.
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
        """Return up to `limit` records. If `only` is given, return only records of these
        partitions. With `rows`, add the records to `rows` instead.

        The result is empty after `timeout_ms`. The result is empty earlier if positions moved past
        records that are not returned (K-13). If the group has not assigned partitions yet, the
        poll first waits for the assignment, for at most `joining_ms`.
        """
        deadline_ms = self._network.now_ms() + timeout_ms
        joined_by_ms = self._network.now_ms() + joining_ms
        # Other tasks get a turn, so that answers and heartbeats are handled even if many records
        # are buffered.
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
        """The time until the next scheduled work of the poll loop, in ms; a signal ends the wait
        earlier.
        """
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
        """Assign all partitions of the subscribed topics, including new partitions, to a consumer
        without a group."""
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
            task = begin(
                network.loop, self._fetch(plan), "a fetch", partial(self._fetch_ended, plan)
            )
            self._fetches[task] = None
            task.add_done_callback(self._fetches.pop)
        if fetcher.metadata_wanted:
            fetcher.metadata_wanted = False
            network.request_metadata_update()

    async def _fetch(self, plan: FetchPlan) -> None:
        response = await self._network.send(
            plan.node_id,
            plan.request,
            timeout_ms=self._config.request_timeout_ms + self._config.fetch_max_wait_ms,
            channel="fetch",
            max_version=plan.max_version,
        )
        self._fetcher.on_response(plan, response, self.now_ms())

    def _fetch_ended(self, plan: FetchPlan, failure: OdradekError | None) -> None:
        if failure is not None:
            if self.closing:
                return
            self._fetcher.on_failure(plan, self.now_ms())
            if not isinstance(failure, Retriable):
                self._failure = failure
        self.signal()

    # --- closing ---

    async def close(self) -> None:
        """Stop fetching and looking for positions."""
        self.closing = True
        self.signal()
        await cancel(*self._fetches)
        await self.offsets.stop()


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
        """Run the task that finds positions while any position is unknown or unvalidated. Raises
        the error of the last task."""
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
            failure = failure_of(task, "the search for positions")
            if failure is not None and not isinstance(failure, TaskCancelled):
                raise failure
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
        """Try once to find each missing position (K-25, K-26, O-16). Partitions whose retry is not
        due yet are skipped."""
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
        """Find positions by timestamp with ListOffsets, for partitions that are to be reset
        (O-16)."""
        subscription, cluster = self._subscription, self._network.cluster
        asked = {each: subscription.get(each) for each in partitions}
        wanted = {
            partition: state.reset_timestamp
            for partition, state in asked.items()
            if state is not None and state.reset_timestamp is not None
        }
        if any(each.topic not in cluster.topics for each in wanted):
            # Without this wait the attempt would fail, and the first record after assign() would be
            # late by two backoffs.
            await self._network.refresh_metadata()
        # Negative timestamps have special meanings.
        since_ms = max(int(time.time() * 1000) - self._reset.duration_ms, 0)
        found = await self.list_offsets_once(
            {each: since_ms if at == BY_DURATION else at for each, at in wanted.items()}
        )
        for partition, at in found.found.items():
            state = subscription.get(partition)
            # A seek during the request takes precedence, and a partition may have been revoked and
            # assigned again.
            if state is not asked[partition] or state is None:
                continue
            if state.reset_timestamp != wanted[partition]:
                continue
            if at is not None:
                subscription.seek(partition, at.offset, at.leader_epoch)
                # The leader returned the offset, so the position needs no validation with this
                # leader.
                state.checked_epoch = max(at.leader_epoch, cluster.leader_epoch_of(*partition))
            elif wanted[partition] == BY_DURATION:
                subscription.reset(partition, LATEST_TIMESTAMP)  # all records are older
            else:
                found.retry.add(partition)  # every log has a start and an end
        self._retry_later(found.retry)

    async def _begin_at_committed(self, partitions: list[TopicPartition]) -> None:
        """Begin at the group's committed offset; without a committed offset, apply
        auto.offset.reset (K-25)."""
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
            # If a partition was revoked and assigned again during the request, another member may
            # have committed a newer offset.
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
                log.info(
                    "node %d has not answered at which offsets leader epochs end: %s",
                    node_id,
                    error,
                )
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
        """Send ListOffsets to all leaders in parallel. Partitions with a retriable error are in
        `retry`."""
        requests, leaderless = list_offsets_requests(
            timestamps,
            self._network.cluster,
            read_committed=self._config.isolation_level == "read_committed",
        )
        found = FoundOffsets(retry=leaderless, metadata_wanted=bool(leaderless))
        answers = await together(
            "a request for offsets",
            *(self._network.send(node_id, request) for node_id, request in requests.items()),
        )
        for request, answer in zip(requests.values(), answers, strict=True):
            if isinstance(answer, Retriable):
                found.metadata_wanted = True
                found.retry |= {
                    TopicPartition(topic.name, each.partition_index)
                    for topic in request.topics
                    for each in topic.partitions
                }
            elif isinstance(answer, OdradekError):
                raise answer
            else:
                read_list_offsets(request, answer, found)
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
