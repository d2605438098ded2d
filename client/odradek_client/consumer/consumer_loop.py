"""The consumer's traffic: carries out what fetcher, membership and subscription decide.

Each poll does its pass in the task of the application (K-01). Beside it run short tasks, one for
every fetch in flight, and jobs that a poll begins and a later one may see the end of: a poll that
times out, or is cancelled, leaves them going.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from odradek_client.cluster import TOPIC_REFUSALS
from odradek_client.config import ConsumerConfig
from odradek_client.consumer.errors import NoOffset
from odradek_client.consumer.fetcher import Collected, Fetcher, FetchPlan
from odradek_client.consumer.group import Group
from odradek_client.consumer.offsets import (
    FoundOffsets,
    list_offsets_requests,
    read_list_offsets,
)
from odradek_client.consumer.reset import BY_DURATION, ResetPolicy
from odradek_client.consumer.subscription import Kind, Phase, SubscriptionState
from odradek_client.consumer.types import LATEST_TIMESTAMP, OffsetAndTimestamp, TopicPartition
from odradek_client.consumer.validation import (
    OFFSET_FOR_LEADER_EPOCH_OLDEST,
    plan_validation,
    read_validation,
)
from odradek_client.errors import (
    Closed,
    OdradekError,
    RequestTimedOut,
    Retriable,
    UnsupportedByBroker,
    error_for,
)
from odradek_client.network import Network
from odradek_protocol.keys import ApiKey
from odradek_protocol.primitives import WireError
from odradek_protocol.records.arrow import ArrowRows

log = logging.getLogger("odradek.client.consumer")

#: The longest a poll waits without looking around.
_LOOK_AROUND_MS = 1_000

Job = Callable[[], Coroutine[Any, Any, None]]


class ConsumerLoop:
    """One consumer's requests and waits."""

    def __init__(
        self,
        config: ConsumerConfig,
        network: Network,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        group: Group | None,
        reset: ResetPolicy,
    ) -> None:
        self._config = config
        self._network = network
        self._subscription = subscription
        self._fetcher = fetcher
        self._group = group
        self._reset = reset
        self._fetches: set[asyncio.Task[None]] = set()
        self._positions: asyncio.Task[None] | None = None
        self._positions_known_at = (-1, -1)
        self._cluster_seen = -1
        self._failure: OdradekError | None = None
        self._news = asyncio.Event()
        self.closing = False

    def now_ms(self) -> int:
        """The network's clock; never goes back."""
        return int(self._network.now_ms())

    def signal(self) -> None:
        """Something happened that a waiting poll should look at."""
        self._news.set()

    # --- poll -------------------------------------------------------------------------------------

    async def poll(
        self,
        limit: int,
        only: Collection[TopicPartition],
        timeout_ms: float,
        rows: ArrowRows | None = None,
        joining_ms: float = 0,
    ) -> Collected:
        """One poll: up to `limit` records, of the partitions `only` if any are given, into `rows` if
        those are given.

        Empty after `timeout_ms`, or earlier when positions moved over nothing to return (K-13). Until
        the group has given partitions for the first time up to `joining_ms` are not counted.
        """
        deadline_ms = self._network.now_ms() + timeout_ms
        joined_by_ms = self._network.now_ms() + joining_ms
        # Answers that have arrived, and heartbeats, get their turn even if records are plenty here.
        await asyncio.sleep(0)
        while True:
            if self.closing:
                raise Closed("the consumer was closed while it was polled")
            self._news.clear()
            self._look_at_metadata()
            if self._group is not None:
                await self._group.poll()
            self._find_positions()
            self._raise_failure()
            collected = self._fetcher.collect(limit, only, rows)
            # Before the application has its records, the next ones are asked for (K-02).
            self._send_fetches()
            if collected.count or collected.advanced:
                return collected
            now_ms = self._network.now_ms()
            if now_ms < joined_by_ms and self._group is not None and self._group.is_new:
                deadline_ms = now_ms + timeout_ms
            left_ms = deadline_ms - now_ms
            if left_ms <= 0:
                return collected
            await self._wait(min(left_ms, self._patience_ms()))

    def _patience_ms(self) -> float:
        """How long nothing need be done if nothing is heard."""
        waits: list[float] = [_LOOK_AROUND_MS]
        if self._group is not None:
            waits.append(self._group.patience_ms())
        if self._fetcher.retry_at_ms is not None or not self._subscription.all_fetching():
            waits.append(max(self._config.retry_backoff_ms, 1))
        return min(waits)

    async def _wait(self, timeout_ms: float) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            pass

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # --- metadata ---------------------------------------------------------------------------------

    def want_topics(self) -> None:
        """Ask for metadata of what is read."""
        subscription, cluster = self._subscription, self._network.cluster
        topics = set(subscription.topics) | {each.topic for each in subscription.assigned()}
        if self._group is not None:
            topics |= self._group.led_topics
        cluster.set_all_topics(subscription.kind is Kind.PATTERN)
        if cluster.set_wanted(topics) or cluster.needs_update:
            self._network.request_metadata_update()
        self._cluster_seen = -1

    def _look_at_metadata(self) -> None:
        """If it is news: topics that fit the pattern, topics that may not be read."""
        cluster, subscription = self._network.cluster, self._subscription
        if cluster.version == self._cluster_seen:
            return
        self._cluster_seen = cluster.version
        if subscription.kind is Kind.PATTERN:
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
        """Topics without a group: all their partitions, also those that are added later."""
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
            self._fetches.add(task)
            task.add_done_callback(self._fetches.discard)
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

    # --- positions --------------------------------------------------------------------------------

    def _find_positions(self) -> None:
        """Have the job running while any partition's position is unknown or in doubt; raise what ended
        it."""
        subscription, cluster = self._subscription, self._network.cluster
        if self._positions_known_at != (subscription.changes, cluster.version):
            # Before anything is fetched with the new leader's epoch.
            subscription.validate(lambda partition: cluster.leader_epoch_of(*partition))
        job = self._positions
        if job is not None:
            if not job.done():
                return
            self._positions = None
            job.result()
        if self._positions_known_at == (subscription.changes, cluster.version):
            return
        if subscription.all_fetching():
            self._positions_known_at = (subscription.changes, cluster.version)
            return
        now_ms = self.now_ms()
        if any(subscription.in_phase(each, now_ms) for each in Phase if each is not Phase.FETCHING):
            self._positions = self._network.loop.create_task(self._position_job())
            self._positions.add_done_callback(lambda _: self.signal())

    async def find_positions(self, timeout_ms: float) -> None:
        """Until every assigned partition has a position. RequestTimedOut after `timeout_ms`."""
        deadline_ms = self._network.now_ms() + timeout_ms
        while not self._subscription.all_fetching():
            self._find_positions()
            left_ms = deadline_ms - self._network.now_ms()
            if left_ms <= 0:
                raise RequestTimedOut(
                    f"the positions were not found within {timeout_ms:.0f} ms; are the brokers up?"
                )
            job = self._positions
            if job is not None:
                await asyncio.wait({job}, timeout=left_ms / 1000)
            else:
                await asyncio.sleep(min(left_ms, self._config.retry_backoff_ms) / 1000)

    async def _position_job(self) -> None:
        """One try for every partition whose time it is (K-25, K-26, O-16)."""
        subscription = self._subscription
        unset = subscription.in_phase(Phase.INITIALIZING, self.now_ms())
        if unset:
            await self._begin(unset)
        doubtful = subscription.in_phase(Phase.VALIDATING, self.now_ms())
        if doubtful:
            await self._validate(doubtful)
        resetting = subscription.in_phase(Phase.RESETTING, self.now_ms())
        if resetting:
            await self._find_by_time(resetting)

    async def _find_by_time(self, partitions: list[TopicPartition]) -> None:
        subscription, cluster = self._subscription, self._network.cluster
        asked = {each: subscription.get(each) for each in partitions}
        wanted = {
            partition: state.reset_timestamp
            for partition, state in asked.items()
            if state is not None and state.reset_timestamp is not None
        }
        if any(each.topic not in cluster.topics for each in wanted):
            # A mere hint would wait for its turn, and this try would be in vain: the first record
            # after assign() would be late by two backoffs.
            await self._network.refresh_metadata()
        since_ms = int(time.time() * 1000) - self._reset.duration_ms
        found = await self.list_offsets_once(
            {each: since_ms if at == BY_DURATION else at for each, at in wanted.items()}
        )
        for partition, at in found.found.items():
            state = subscription.get(partition)
            # A seek meanwhile is newer; and a partition may have gone and come back.
            if state is not asked[partition] or state is None:
                continue
            if state.reset_timestamp != wanted[partition]:
                continue
            if at is not None:
                subscription.seek(partition, at.offset, at.leader_epoch)
                # It is the leader itself that said so.
                state.checked_epoch = max(at.leader_epoch, cluster.leader_epoch_of(*partition))
            elif wanted[partition] == BY_DURATION:
                subscription.reset(partition, LATEST_TIMESTAMP)  # nothing is so new
        self._put_off(found.retry)

    async def _begin(self, partitions: list[TopicPartition]) -> None:
        """From the group's offsets, else by auto.offset.reset."""
        subscription = self._subscription
        asked = {each: subscription.get(each) for each in partitions}
        committed: Mapping[TopicPartition, Any] = {}
        if self._group is not None:
            committed = await self._group.committed(partitions, self._config.default_api_timeout_ms)
        nowhere = []
        for partition in partitions:
            state = subscription.get(partition)
            # One that has gone and come back may have been read on by others in between.
            if state is None or state is not asked[partition]:
                continue
            if state.phase is not Phase.INITIALIZING:
                continue
            offset = committed.get(partition)
            if offset is not None:
                subscription.seek(partition, offset.offset, offset.leader_epoch)
            elif self._reset.timestamp is not None:
                subscription.reset(partition, self._reset.timestamp)
            else:
                nowhere.append(partition)
        if nowhere:
            raise NoOffset(nowhere)

    async def _validate(self, partitions: list[TopicPartition]) -> None:
        """K-26. Brokers that cannot be asked are believed."""
        subscription, network = self._subscription, self._network
        plans, retry = plan_validation(partitions, subscription, network.cluster)
        failure: Exception | None = None
        for node_id, plan in plans.items():
            try:
                version = await network.version_for(node_id, ApiKey.OFFSET_FOR_LEADER_EPOCH)
                if version < OFFSET_FOR_LEADER_EPOCH_OLDEST:
                    raise UnsupportedByBroker("only brokers may ask where an epoch ends")
                response = await network.send(node_id, plan.request, max_version=version)
            except UnsupportedByBroker:
                for partition, asked in plan.asked.items():
                    state = subscription.get(partition)
                    if state is not None and state.phase is Phase.VALIDATING:
                        subscription.validated(partition, asked.checked_epoch)
            except Retriable as error:
                log.info("node %d was not asked where epochs end: %s", node_id, error)
                retry |= set(plan.asked)
                network.request_metadata_update()
            else:
                verdict = read_validation(plan, response, subscription, self._reset.timestamp)
                retry |= verdict.retry
                failure = failure or verdict.failure
                if verdict.metadata_wanted:
                    network.request_metadata_update()
        if retry and not plans:
            network.request_metadata_update()
        self._put_off(retry)
        if failure is not None:
            raise failure

    def _put_off(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            state = self._subscription.get(partition)
            if state is not None:
                state.retry_at_ms = self.now_ms() + self._config.retry_backoff_ms

    # --- ListOffsets ------------------------------------------------------------------------------

    async def list_offsets_once(self, timestamps: Mapping[TopicPartition, int]) -> FoundOffsets:
        """Ask the leaders, all at once. What failed in a way that may pass is in `retry`."""
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
        """`list_offsets_once` until all are found. RequestTimedOut after `timeout_ms`."""
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

    # --- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop fetching and looking for positions."""
        self.closing = True
        self.signal()
        tasks = [*self._fetches]
        if self._positions is not None:
            tasks.append(self._positions)
            self._positions = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _as_odradek(error: OdradekError | WireError) -> OdradekError:
    if isinstance(error, OdradekError):
        return error
    wrapped = OdradekError(f"the broker cannot be asked: {error}")
    wrapped.__cause__ = error
    return wrapped
