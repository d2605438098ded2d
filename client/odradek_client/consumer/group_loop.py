"""The consumer's dealings with its group: joining, heartbeats, listener calls, commits.

Listeners are called in the polling task, around the join (K-31 to K-33). The join itself is a job
beside it, so that a poll may time out and a later one take up the result. Heartbeats are a task of
their own (K-35).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from odradek_client.config import ConsumerConfig
from odradek_client.consumer.coordinator import (
    JOIN_SLACK_MS,
    LEAVE_GROUP_NEWEST,
    NO_GENERATION,
    NO_MEMBER,
    Action,
    Membership,
    Stage,
)
from odradek_client.consumer.fetcher import Fetcher
from odradek_client.consumer.listener import RebalanceListener, call
from odradek_client.consumer.offsets import (
    OFFSET_COMMIT_NEWEST,
    OFFSET_FETCH_NEWEST,
    OFFSET_FETCH_STABLE,
    CoordinatorTrouble,
    offset_commit_request,
    offset_fetch_request,
    read_offset_commit,
    read_offset_fetch,
)
from odradek_client.consumer.subscription import SubscriptionState
from odradek_client.consumer.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
)
from odradek_client.errors import (
    OdradekError,
    RebalanceInProgress,
    RequestTimedOut,
    Retriable,
    error_for,
)
from odradek_client.network import Network
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.message import Message
from odradek_protocol.primitives import WireError
from odradek_protocol.schemas.offset_commit import OffsetCommitResponse

log = logging.getLogger("odradek.client.consumer")

#: The longest that leaving the group may hold up a close.
_LEAVE_TIMEOUT_MS = 5_000


class GroupLoop:
    """One consumer's group. Without `membership` (partitions assigned by hand) only its offsets."""

    def __init__(
        self,
        config: ConsumerConfig,
        group_id: str,
        network: Network,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        membership: Membership,
        signal: Callable[[], None],
    ) -> None:
        self._config = config
        self._group_id = group_id
        self._network = network
        self._subscription = subscription
        self._fetcher = fetcher
        self.membership = membership
        self._signal = signal
        self.listener: RebalanceListener | None = None
        self.led_topics: frozenset[str] = frozenset()
        self.on_topics: Callable[[], None] = lambda: None
        self._identity = ConsumerGroupMetadata(group_id)
        self._prepared = False
        self._join: asyncio.Task[None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._stable = asyncio.Event()
        self._auto_commit: asyncio.Task[None] | None = None
        self._next_commit_ms = 0
        self._checked = (-1, -1)

    def _now_ms(self) -> int:
        return int(self._network.now_ms())

    @property
    def is_member(self) -> bool:
        """Whether the group assigns the partitions."""
        return self._subscription.by_group

    # --- what a poll does -------------------------------------------------------------------------

    async def poll(self, deadline_ms: float) -> None:
        """The coordinator's part of a pass: join if needed, commit if it is time. Returns at the
        deadline at the latest, but for listeners."""
        membership = self.membership
        membership.polled(self._now_ms())
        if self.is_member:
            failure, membership.failure = membership.failure, None
            if failure is not None:
                raise failure
            self._check_subscription()
            # A join may also have come to its end between two polls.
            if membership.rebalancing or self._join is not None:
                await self._rejoin(deadline_ms)
                membership.polled(self._now_ms())
        self._commit_if_due()

    def patience_ms(self) -> float:
        """How long nothing need be done if nothing is heard."""
        if not self._config.enable_auto_commit:
            return float(self._config.max_poll_interval_ms) / 3
        return max(
            1, min(self._next_commit_ms - self._now_ms(), self._config.max_poll_interval_ms / 3)
        )

    def _check_subscription(self) -> None:
        cluster = self._network.cluster
        checked = (cluster.version, self._subscription.changes)
        if checked != self._checked:
            self._checked = checked
            self.membership.check_subscription(cluster)

    # --- rebalance --------------------------------------------------------------------------------

    async def _rejoin(self, deadline_ms: float) -> None:
        if not self._subscription.topics and self.membership.stage is Stage.UNJOINED:
            return  # a pattern that nothing fits yet
        if not self._prepared:
            await self._prepare()
        if self._join is None:
            self._join = self._network.loop.create_task(self._join_group(), name="odradek-join")
            self._join.add_done_callback(lambda _: self._signal())
        left_s = max(0.0, deadline_ms - self._network.now_ms()) / 1000
        await asyncio.wait({self._join}, timeout=left_s)
        if not self._join.done():
            return
        joined, self._join = self._join, None
        joined.result()
        self._prepared = False
        assigned = self.membership.take_assignment()
        self._identity = ConsumerGroupMetadata(
            self._group_id,
            self.membership.generation,
            self.membership.member_id,
            self._config.group_instance_id,
        )
        self._subscription.assign_by_group(assigned)
        self._next_commit_ms = self._now_ms() + self._config.auto_commit_interval_ms
        self._stable.set()
        self._start_heartbeats()
        self.on_topics()
        log.info(
            "group %s, generation %d: assigned %s",
            self._group_id,
            self.membership.generation,
            ", ".join(f"{topic}-{number}" for topic, number in sorted(assigned)) or "nothing",
        )
        if self.listener is not None:
            await call(self.listener.on_partitions_assigned, assigned)

    async def _prepare(self) -> None:
        """Before joining: commit, give up what is held, tell the listener (K-31, eager)."""
        subscription, membership = self._subscription, self.membership
        owned = subscription.assigned()
        log.info("group %s: joining, because of %s", self._group_id, membership.rejoin_reason)
        subscription.hold_back(owned)
        if not membership.lost:
            await self._commit_before_join()
        lost = membership.lost
        self._prepared = True
        try:
            if owned and self.listener is not None:
                listener = self.listener
                await call(
                    listener.on_partitions_lost if lost else listener.on_partitions_revoked, owned
                )
        finally:
            subscription.drop(owned)
            self._fetcher.drop(owned)

    async def _commit_before_join(self) -> None:
        """Retried within the rebalance timeout; nothing that fails may keep the member from joining."""
        if not self._config.enable_auto_commit:
            return
        try:
            await self.commit(None, self._config.max_poll_interval_ms)
        except OdradekError as error:
            log.warning("group %s: commit before the rebalance: %s", self._group_id, error)

    async def _join_group(self) -> None:
        """JoinGroup and SyncGroup until the member is stable. Raises what retrying cannot help."""
        membership = self.membership
        self._stable.clear()
        while True:
            if membership.stage is Stage.STABLE and membership.rejoin_reason is None:
                return
            try:
                action = await self._join_once()
            except Retriable as error:
                if membership.stage in (Stage.JOINING, Stage.SYNCING):
                    membership.on_join_failure()
                log.info("group %s: joining failed, trying again: %s", self._group_id, error)
                action = Action.REDISCOVER
            except (OdradekError, WireError):
                if membership.stage in (Stage.JOINING, Stage.SYNCING):
                    membership.on_join_failure()
                raise
            if action is Action.GO_ON:
                return
            if action is Action.REDISCOVER:
                self._network.forget_coordinator(self._group_id)
            if action is not Action.JOIN:
                await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def _join_once(self) -> Action:
        membership = self.membership
        node_id = await self._network.find_coordinator(self._group_id)
        joined = await self._network.send(
            node_id,
            membership.join_request(),
            timeout_ms=self._config.max_poll_interval_ms + JOIN_SLACK_MS,
            channel="coordinator",
        )
        action = membership.on_join(joined)
        if action is not Action.GO_ON:
            return action
        await self._know_topics()
        synced = await self._network.send(
            node_id,
            membership.sync_request(self._network.cluster),
            timeout_ms=self._config.max_poll_interval_ms + JOIN_SLACK_MS,
            channel="coordinator",
        )
        return membership.on_sync(synced, self._now_ms())

    async def _know_topics(self) -> None:
        """As leader: metadata of what the other members want. One that stays unknown is left out."""
        topics = self.membership.topics_to_know()
        self.led_topics = topics
        cluster = self._network.cluster
        if not cluster.want(topics):
            return
        try:
            await self._network.wait_for_metadata(topics, self._config.request_timeout_ms / 4)
        except OdradekError as error:
            log.warning("group %s: assigning without it: %s", self._group_id, error)

    # --- heartbeats -------------------------------------------------------------------------------

    def _start_heartbeats(self) -> None:
        if self._heartbeats is None:
            self._heartbeats = self._network.loop.create_task(
                self._beat(), name="odradek-heartbeats"
            )

    async def _beat(self) -> None:
        """Until cancelled: a heartbeat whenever one is due, none while joining."""
        membership = self.membership
        while True:
            wait_ms = membership.heartbeat_due_ms(self._now_ms())
            if wait_ms < 0:
                self._stable.clear()
                await self._stable.wait()
                continue
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)
                continue
            try:
                await self._beat_once()
            except Exception:
                log.exception("group %s: a heartbeat failed", self._group_id)
                await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def _beat_once(self) -> None:
        membership, now_ms = self.membership, self._now_ms()
        if membership.poll_overdue(now_ms):
            log.warning(
                "group %s: no poll for max_poll_interval_ms=%d, leaving; poll more often, raise it, "
                "or lower max_poll_records",
                self._group_id,
                self._config.max_poll_interval_ms,
            )
            await self._leave("the application has not polled for max.poll.interval.ms")
            self._signal()
            return
        if membership.session_expired(now_ms):
            self._network.forget_coordinator(self._group_id)
        request = membership.heartbeat_request(now_ms)
        try:
            node_id = await self._network.find_coordinator(self._group_id)
            response = await self._network.send(
                node_id,
                request,
                channel="coordinator",
                timeout_ms=self._config.session_timeout_ms,
            )
            action = membership.on_heartbeat(
                response.error_code, request.generation_id, self._now_ms()
            )
        except Retriable as error:
            log.info("group %s: no answer to a heartbeat: %s", self._group_id, error)
            action = Action.REDISCOVER
        if action is Action.REDISCOVER:
            self._network.forget_coordinator(self._group_id)
        if action in (Action.REDISCOVER, Action.BACK_OFF):
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        if membership.rejoin_reason is not None or membership.failure is not None:
            self._signal()

    # --- commits ----------------------------------------------------------------------------------

    def _commit_if_due(self) -> None:
        """K-39: what earlier polls returned, in the background."""
        now_ms = self._now_ms()
        if not self._config.enable_auto_commit or now_ms < self._next_commit_ms:
            return
        if self._auto_commit is not None and not self._auto_commit.done():
            return
        self._next_commit_ms = now_ms + self._config.auto_commit_interval_ms
        offsets = self._subscription.consumed()
        if offsets:
            self._auto_commit = self._network.loop.create_task(self._commit_quietly(offsets))

    async def _commit_quietly(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        try:
            await self.commit(offsets, self._config.default_api_timeout_ms)
        except (OdradekError, WireError) as error:
            log.warning("group %s: auto commit: %s", self._group_id, error)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timeout_ms: float
    ) -> None:
        """Commit `offsets`, or all positions if None. Raises CommitFailed, RebalanceInProgress, or
        RequestTimedOut when retrying did not help within `timeout_ms`."""
        if offsets is None:
            offsets = self._subscription.consumed()
        if not offsets:
            return
        membership = self.membership
        if self.is_member and membership.stage is not Stage.STABLE:
            raise RebalanceInProgress(
                f"group {self._group_id!r}: not committed, this consumer is not in the group now; "
                f"poll first",
                code=ErrorCode.REBALANCE_IN_PROGRESS,
            )
        generation = membership.generation if self.is_member else NO_GENERATION
        request = offset_commit_request(
            self._group_id,
            offsets,
            generation=generation,
            member_id=membership.member_id if self.is_member else NO_MEMBER,
            group_instance_id=self._config.group_instance_id if self.is_member else None,
        )

        def read(response: OffsetCommitResponse) -> bool | CoordinatorTrouble:
            def lose(code: ErrorCode) -> bool:
                return self._lose(code, generation)

            try:
                return read_offset_commit(response, self._group_id, lose) or True
            except RebalanceInProgress as error:
                if self.is_member and error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                    membership.request_rejoin("OffsetCommit was answered REBALANCE_IN_PROGRESS")
                    self._signal()
                raise

        await self._ask_coordinator(request, OFFSET_COMMIT_NEWEST, read, timeout_ms)

    def metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer was when it was last assigned partitions (KIP-447).

        A member that has lost its place keeps its old name here: without one the coordinator would
        take its offsets as those of someone outside the group, and check nothing (O-05).
        """
        return self._identity if self.is_member else ConsumerGroupMetadata(self._group_id)

    def _lose(self, code: ErrorCode, generation: int) -> bool:
        """The coordinator refused a commit of `generation`. Whether that is an old story (K-38)."""
        membership = self.membership
        if not self.is_member:
            return False
        if membership.generation != generation or membership.rebalancing:
            return True
        reason = f"OffsetCommit was answered {code.name}"
        if code is ErrorCode.ILLEGAL_GENERATION:
            membership.reset_generation(reason)
        else:
            membership.reset_member(reason)
        if code is ErrorCode.FENCED_INSTANCE_ID:
            membership.failure = error_for(code, about=f"group {self._group_id!r}")
        self._signal()
        return False

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed. RequestTimedOut when retrying did not help."""
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}

        def read(response: object) -> bool | CoordinatorTrouble:
            answer = read_offset_fetch(response, self._group_id)  # type: ignore[arg-type]
            if isinstance(answer, CoordinatorTrouble):
                return answer
            found.update(answer)
            return True

        async def request(node_id: int) -> Message:
            version = await self._network.version_for(
                node_id,
                ApiKey.OFFSET_FETCH,
                channel="coordinator",
                max_version=OFFSET_FETCH_NEWEST,
            )
            return offset_fetch_request(
                self._group_id, partitions, require_stable=version >= OFFSET_FETCH_STABLE
            )

        await self._ask_coordinator(request, OFFSET_FETCH_NEWEST, read, timeout_ms)
        return found

    async def _ask_coordinator(
        self,
        request: Message | Callable[[int], object],
        max_version: int,
        read: Callable[..., bool | CoordinatorTrouble],
        timeout_ms: float,
    ) -> None:
        """Until `read` is satisfied or raises; RequestTimedOut, with the last failure as its cause."""
        deadline_ms = self._network.now_ms() + timeout_ms
        trouble: OdradekError | None = None
        while (left_ms := deadline_ms - self._network.now_ms()) > 0:
            try:
                node_id = await self._network.find_coordinator(self._group_id)
                message = request if isinstance(request, Message) else await request(node_id)  # type: ignore[misc]
                response = await self._network.send(
                    node_id,
                    message,
                    channel="coordinator",
                    max_version=max_version,
                    timeout_ms=min(left_ms, self._config.request_timeout_ms),
                )
            except Retriable as error:
                trouble = error
                self._network.forget_coordinator(self._group_id)
            else:
                answer = read(response)
                if answer is True:
                    return
                if answer is CoordinatorTrouble.REDISCOVER:
                    self._network.forget_coordinator(self._group_id)
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        raise RequestTimedOut(
            f"group {self._group_id!r}: the coordinator did not do it within {timeout_ms:.0f} ms"
            f"{f' ({trouble})' if trouble else ''}"
        ) from trouble

    # --- leaving ----------------------------------------------------------------------------------

    async def leave(self, reason: str, timeout_ms: float) -> None:
        """Commit if that is automatic, tell the listener, leave the group (K-34)."""
        membership, subscription = self.membership, self._subscription
        await _cancel(self._join)
        self._join = None
        owned = subscription.assigned()
        if self._config.enable_auto_commit and not membership.lost:
            await self._finish_auto_commit()
            await self._commit_at_the_end(timeout_ms)
        lost = membership.lost or membership.stage is not Stage.STABLE
        try:
            if self.is_member and owned and self.listener is not None:
                listener = self.listener
                await call(
                    listener.on_partitions_lost if lost else listener.on_partitions_revoked, owned
                )
        finally:
            await _cancel(self._heartbeats)
            self._heartbeats = None
            await self._leave(reason)
            self._prepared = False
            self.led_topics = frozenset()

    async def _finish_auto_commit(self) -> None:
        if self._auto_commit is not None:
            await _cancel(self._auto_commit)
            self._auto_commit = None

    async def _commit_at_the_end(self, timeout_ms: float) -> None:
        try:
            await self.commit(None, timeout_ms)
        except (OdradekError, WireError) as error:
            log.warning("group %s: commit at the end: %s", self._group_id, error)

    async def _leave(self, reason: str) -> None:
        request = self.membership.leave_request(reason)
        if request is None:
            return
        try:
            node_id = await self._network.find_coordinator(self._group_id)
            await self._network.send(
                node_id,
                request,
                channel="coordinator",
                max_version=LEAVE_GROUP_NEWEST,
                timeout_ms=_LEAVE_TIMEOUT_MS,
            )
        except (OdradekError, WireError) as error:
            # The session timeout will do it.
            log.info("group %s: leaving: %s", self._group_id, error)


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
