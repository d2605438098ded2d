"""The consumer's dealings with its group in the classic protocol: joining, heartbeats, leaving.

Listeners are called in the polling task, around the join (K-31 to K-33). The join itself is a job
beside it, so that a poll may time out and a later one take up the result. Heartbeats are a task of
their own (K-35).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from odradek_client.config import ConsumerConfig
from odradek_client.consumer.coordinator import (
    JOIN_SLACK_MS,
    LEAVE_GROUP_NEWEST,
    NO_GENERATION,
    Action,
    Membership,
    Stage,
    leave_in_version,
)
from odradek_client.consumer.fetcher import Fetcher
from odradek_client.consumer.group import LEAVE_TIMEOUT_MS, Group, cancel
from odradek_client.consumer.group_offsets import Identity
from odradek_client.consumer.subscription import SubscriptionState
from odradek_client.consumer.types import ConsumerGroupMetadata
from odradek_client.errors import (
    OdradekError,
    RebalanceInProgress,
    Retriable,
    error_for,
)
from odradek_client.network import Network
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.primitives import WireError

log = logging.getLogger("odradek.client.consumer")


class GroupLoop(Group):
    """One consumer's membership, carried out."""

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
        super().__init__(config, group_id, network, subscription, fetcher, signal)
        self.membership = membership
        self._identity = ConsumerGroupMetadata(group_id)
        self._prepared = False
        self._join: asyncio.Task[None] | None = None
        self._stable = asyncio.Event()
        self._checked = (-1, -1)

    # --- who this consumer is ---------------------------------------------------------------------

    @property
    def in_group(self) -> bool:
        """Whether partitions are this consumer's, as far as it knows."""
        membership = self.membership
        return (
            membership.generation != NO_GENERATION
            and not membership.lost
            and not membership.session_expired(self._now_ms())
        )

    def _session_left_ms(self) -> int:
        return self.membership.session_left_ms(self._now_ms())

    def identity(self) -> Identity:
        """Of the current generation, while the group has one. RebalanceInProgress if it has none."""
        if not self.assigns:
            return Identity()
        membership = self.membership
        if membership.stage is not Stage.STABLE:
            raise RebalanceInProgress(
                f"group {self._group_id!r}: not committed, this consumer is not in the group now; "
                f"poll first",
                code=ErrorCode.REBALANCE_IN_PROGRESS,
            )
        return Identity(membership.generation, membership.member_id, self._config.group_instance_id)

    def refused(self, code: ErrorCode, identity: Identity) -> bool:
        """The coordinator refused a commit of `identity`. Whether that is an old story (K-38)."""
        membership = self.membership
        if not self.assigns:
            return False
        if membership.generation != identity.generation or membership.rebalancing:
            return True
        reason = f"OffsetCommit was answered {code.name}"
        if code is ErrorCode.ILLEGAL_GENERATION:
            membership.reset_generation(reason)
        else:
            membership.reset_member(reason)
        if code is ErrorCode.FENCED_INSTANCE_ID:
            membership.failure = error_for(code, about=f"group {self._group_id!r}")
        self._tell_membership()
        self._signal()
        return False

    def told_of_rebalance(self) -> None:
        """Join at the next poll."""
        if self.assigns:
            self.membership.request_rejoin("OffsetCommit was answered REBALANCE_IN_PROGRESS")
            self._signal()

    def metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer was when it last took over partitions (KIP-447).

        A member that has lost its place keeps its old name here: without one the coordinator would
        take its offsets as those of someone outside the group, and check nothing (O-05). And what
        was read under one generation does not pass as read under the next.
        """
        return self._identity if self.assigns else ConsumerGroupMetadata(self._group_id)

    # --- what a poll does -------------------------------------------------------------------------

    async def poll(self) -> None:
        """Join if needed, commit if it is time. Waits for nothing but listeners."""
        membership = self.membership
        membership.polled(self._now_ms())
        if self.assigns:
            failure, membership.failure = membership.failure, None
            if failure is not None:
                raise failure
            self._check_subscription()
            if self._under_way or membership.rebalancing:
                await self._rejoin()
                membership.polled(self._now_ms())
        if not self.assigns or membership.stage is Stage.STABLE:
            self._offsets.commit_if_due()

    @property
    def _under_way(self) -> bool:
        """Whether a rebalance that was begun is not finished; a join may end between two polls."""
        return self._prepared or self._join is not None or self._incoming is not None

    def _check_subscription(self) -> None:
        cluster = self._network.cluster
        checked = (cluster.version, self._subscription.changes)
        if checked != self._checked:
            self._checked = checked
            self.membership.check_subscription(cluster)

    # --- rebalance --------------------------------------------------------------------------------

    async def _rejoin(self) -> None:
        """As far as it goes now; whatever it waits for signals when it is there."""
        membership = self.membership
        if not self._subscription.topics and membership.stage is Stage.UNJOINED:
            return  # a pattern that nothing fits yet
        if self._join is not None and self._join.done():
            joined, self._join = self._join, None
            self._prepared = False
            joined.result()
            if membership.stage is Stage.STABLE:
                self._incoming = membership.take_assignment()
                self._identity = ConsumerGroupMetadata(
                    self._group_id,
                    membership.generation,
                    membership.member_id,
                    self._config.group_instance_id,
                )
                self._tell_membership()
                if membership.cooperative and self._subscription.assigned() - set(self._incoming):
                    membership.request_rejoin("partitions were revoked, for others to have")
                # Last: if it raises, the next poll takes over what has come.
                membership.tell_assignor()
        if self._incoming is not None and membership.lost:
            self._incoming = None  # of a generation that is over
        if self._incoming is not None and not await self._take_over(
            incremental=membership.cooperative
        ):
            return
        if self._join is None and membership.rebalancing:
            if not self._prepared and not await self._prepare():
                return
            self._join = self._network.loop.create_task(self._join_group(), name="odradek-join")
            self._join.add_done_callback(lambda _: self._signal())

    async def _prepare(self) -> bool:
        """Before joining: commit, give up what will not be kept, tell the listener (K-31). False if
        the commit has to be waited for."""
        subscription, membership = self._subscription, self.membership
        going = subscription.assigned()
        if membership.cooperative and not membership.lost:
            going = {each for each in going if each.topic not in subscription.topics}
        subscription.hold_back(going)
        if not membership.lost and not self._committed_first(None):
            return False
        if membership.lost:  # perhaps only since that commit
            going = subscription.assigned()
        log.info("group %s: joining, because of %s", self._group_id, membership.rejoin_reason)
        self._prepared = True
        await self._give_up(going, lost=membership.lost)
        return True

    async def _join_group(self) -> None:
        """JoinGroup and SyncGroup until the member is stable, or has lost partitions that it holds:
        the next poll has to tell the listener first. Raises what retrying cannot help."""
        membership = self.membership
        self._stable.clear()
        while True:
            try:
                action = await self._join_once()
            except Retriable as error:
                if membership.stage in (Stage.JOINING, Stage.SYNCING):
                    membership.on_join_failure()
                log.info("group %s: joining failed, trying again: %s", self._group_id, error)
                action = Action.REDISCOVER
            except Exception:
                # Whatever it is, an exception of the application's assignor as well: the next poll
                # raises it, and the one after that joins again.
                if membership.stage in (Stage.JOINING, Stage.SYNCING):
                    membership.on_join_failure()
                raise
            finally:
                self._tell_membership()
            if action is Action.GO_ON:
                self._stable.set()
                self._start_heartbeats()
                return
            if membership.lost and self._subscription.assigned():
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
        self._tell_membership()
        if action is Action.REDISCOVER:
            self._network.forget_coordinator(self._group_id)
        if action in (Action.REDISCOVER, Action.BACK_OFF):
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        if membership.rejoin_reason is not None or membership.failure is not None:
            self._signal()

    # --- leaving ----------------------------------------------------------------------------------

    async def leave(self, reason: str, timeout_ms: float) -> None:
        """Commit if that is automatic, tell the listener, leave the group (K-34)."""
        membership = self.membership
        await cancel(self._join)
        self._join, self._prepared = None, False
        await self._stop()
        if self._config.enable_auto_commit and not membership.lost:
            await self._offsets.commit_quietly(None, timeout_ms, "at the end")
        lost = membership.lost or membership.stage is not Stage.STABLE
        try:
            if self.assigns:
                await self._give_up(self._subscription.assigned(), lost=lost)
        finally:
            await cancel(self._heartbeats)
            self._heartbeats = None
            await self._leave(reason)
            self.led_topics = frozenset()

    async def _leave(self, reason: str) -> None:
        request = self.membership.leave_request(reason)
        self._tell_membership()
        if request is None:
            return
        try:
            node_id = await self._network.find_coordinator(self._group_id)
            version = await self._network.version_for(
                node_id,
                ApiKey.LEAVE_GROUP,
                channel="coordinator",
                max_version=LEAVE_GROUP_NEWEST,
            )
            await self._network.send(
                node_id,
                leave_in_version(request, version, reason),
                channel="coordinator",
                max_version=version,
                timeout_ms=LEAVE_TIMEOUT_MS,
            )
        except (OdradekError, WireError) as error:
            # The session timeout will do it.
            log.info("group %s: leaving: %s", self._group_id, error)
