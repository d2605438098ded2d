"""The requests of a consumer to its group in the classic protocol: joining, heartbeats, leaving.

Listeners are called in the polling task, before and after the join (K-31 to K-33). The join runs in
another task, so that a poll may time out and a later poll continue with the result. Heartbeats have
a third task (K-35).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.assignors import resolve
from odradek_client.consumer.fetcher import Fetcher
from odradek_client.consumer.group.classic_membership import (
    JOIN_SLACK_MS,
    LEAVE_GROUP_NEWEST,
    ClassicGroupSettings,
    ClassicMembership,
    JoinState,
    leave_in_version,
)
from odradek_client.consumer.group.group_loop import GroupLoop
from odradek_client.consumer.group.heartbeats import LEAVE_TIMEOUT_MS
from odradek_client.consumer.group.membership import MembershipAction
from odradek_client.consumer.group.offsets import Identity
from odradek_client.consumer.subscription_state import SubscriptionState
from odradek_client.errors import BadAnswer, OdradekError, Retriable, error_for
from odradek_client.network.client import NetworkClient
from odradek_client.tasks import cancel
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.primitives import DecodeError, WireError

log = logging.getLogger("odradek.client.consumer")

#: The joins without a pause: the first one, one for the member id, one after the loss of that id.
JOINS_AT_ONCE = 3


class ClassicGroupLoop(GroupLoop):
    """The loop of a member of a classic group: sends its requests and calls its listener."""

    membership: ClassicMembership

    def __init__(
        self,
        config: ConsumerConfig,
        group_id: str,
        network: NetworkClient,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        signal: Callable[[], None],
    ) -> None:
        settings = ClassicGroupSettings(
            group_id=group_id,
            group_instance_id=config.group_instance_id,
            session_timeout_ms=config.session_timeout_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
        )
        assignors = resolve(config.partition_assignment_strategy)
        membership = ClassicMembership(settings, subscription, assignors)
        super().__init__(config, network, subscription, fetcher, membership, signal)
        self._join_prepared = False
        self._join: asyncio.Task[None] | None = None
        self._checked_versions = (-1, -1)

    # --- commits ----------------------------------------------------------------------------------

    @property
    def _commits_automatically(self) -> bool:
        return self.membership.state is JoinState.STABLE

    def on_commit_refused(self, code: ErrorCode, identity: Identity) -> bool:
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
            membership.failure = error_for(code, about=membership.about)
        self._update_membership_lost()
        self._signal()
        return False

    def on_rebalance_in_progress(self) -> None:
        if self.assigns:
            self.membership.request_rejoin("OffsetCommit was answered REBALANCE_IN_PROGRESS")
            self._signal()

    # --- rebalance --------------------------------------------------------------------------------

    def _needs_rebalance(self) -> bool:
        membership = self.membership
        failure, membership.failure = membership.failure, None
        if failure is not None:
            raise failure
        cluster = self._network.cluster
        versions = (cluster.version, self._subscription.changes)
        if versions != self._checked_versions:
            self._checked_versions = versions
            membership.check_subscription(cluster)
        # The join may have ended since the last poll, so the state of the membership alone does not
        # show that this consumer still has to take over its assignment.
        return (
            membership.rebalancing
            or self._join_prepared
            or self._join is not None
            or self._rebalance.assignment is not None
        )

    async def _go_on_with_rebalance(self) -> None:
        membership, rebalance = self.membership, self._rebalance
        if not self._subscription.topics and membership.state is JoinState.UNJOINED:
            return  # a pattern without a matching topic
        if self._join is not None and self._join.done():
            joined, self._join = self._join, None
            self._join_prepared = False
            if joined.cancelled():
                # The task may have ended without any of its code having been run.
                membership.on_join_failure()
                self._update_membership_lost()
            else:
                joined.result()
            if membership.state is JoinState.STABLE:
                self._on_joined()
        if rebalance.assignment is not None and membership.lost:
            rebalance.assignment = None  # of an older generation
        if rebalance.assignment is not None and not await self._take_over_assignment(
            incremental=membership.cooperative
        ):
            return
        if self._join is None and membership.rebalancing:
            if not self._join_prepared and not await self._prepare_join():
                return
            self._join = self._network.loop.create_task(self._join_group(), name="odradek-join")
            self._join.add_done_callback(lambda _: self._signal())

    def _on_joined(self) -> None:
        """Take over the assignment. Only this method updates the identity that `metadata` returns,
        so that records of one generation are not committed with the identity of the next."""
        membership = self.membership
        assignment = self._rebalance.assignment = membership.take_assignment()
        self._remember_metadata()
        self._update_membership_lost()
        if membership.cooperative and self._subscription.assigned() - set(assignment):
            membership.request_rejoin("partitions were revoked, for others to have")
        # The assignor is called last: if it raises, the next poll continues with the assignment
        # that is stored above.
        membership.notify_assignor()

    async def _prepare_join(self) -> bool:
        """Prepare a join: commit, revoke the partitions that are not kept, call the listener
        (K-31). False while the commit is not finished."""
        subscription, membership = self._subscription, self.membership
        revoked = subscription.assigned()
        if membership.cooperative and not membership.lost:
            revoked = {each for each in revoked if each.topic not in subscription.topics}
        subscription.mark_pending_revocation(revoked)
        if not membership.lost and not self._rebalance.committed(None):
            return False
        if membership.lost:  # the commit may have revealed the loss
            revoked = subscription.assigned()
        log.info("group %s: joining, because of %s", self._group_id, membership.rejoin_reason)
        self._join_prepared = True
        await self._rebalance.revoke(revoked, lost=membership.lost)
        return True

    async def _join_group(self) -> None:
        """Send JoinGroup and SyncGroup until the member is stable, or until it has lost its
        partitions. After a loss, the next poll calls the listener before the member joins again.
        Raises errors that retrying does not resolve."""
        membership = self.membership
        for tries in count(1):
            try:
                action = await self._join_once()
            except Retriable as error:
                membership.on_join_failure()
                log.info("group %s: joining failed, trying again: %s", self._group_id, error)
                action = MembershipAction.REDISCOVER
            except DecodeError as error:
                membership.on_join_failure()
                raise BadAnswer(
                    f"{membership.about}: a subscription or assignment cannot be read: {error}"
                ) from error
            except Exception:
                # The next poll raises the error (which may come from the application's assignor),
                # and the poll after that joins again.
                membership.on_join_failure()
                raise
            finally:
                self._update_membership_lost()
            if action is MembershipAction.GO_ON:
                self._heartbeat_wanted.set()
                self._start_heartbeats()
                return
            if membership.lost and self._subscription.assigned():
                return
            if action is MembershipAction.REDISCOVER:
                self._coordinator.forget()
            if action is not MembershipAction.JOIN or tries >= JOINS_AT_ONCE:
                await self._coordinator.back_off()

    async def _join_once(self) -> MembershipAction:
        membership, coordinator = self.membership, self._coordinator
        timeout_ms = self._config.max_poll_interval_ms + JOIN_SLACK_MS
        node_id = await coordinator.find()
        joined = await coordinator.send(node_id, membership.join_request(), timeout_ms=timeout_ms)
        action = membership.on_join(joined)
        if action is not MembershipAction.GO_ON:
            return action
        await self._know_topics()
        request = membership.sync_request(self._network.cluster)
        synced = await coordinator.send(node_id, request, timeout_ms=timeout_ms)
        return membership.on_sync(synced, self._now_ms())

    async def _know_topics(self) -> None:
        """Fetch the metadata of the topics to which other members subscribe, before this leader
        assigns partitions. Topics that remain unknown are left out."""
        topics = self.membership.topics_to_know()
        self.led_topics = topics
        cluster = self._network.cluster
        if not cluster.want(topics):
            return
        try:
            await self._network.wait_for_metadata(topics, self._config.request_timeout_ms / 4)
        except OdradekError as error:
            log.warning(
                "group %s: partitions are assigned without some topics' metadata: %s",
                self._group_id,
                error,
            )

    # --- heartbeats -------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        membership, coordinator, now_ms = self.membership, self._coordinator, self._now_ms()
        if membership.poll_overdue(now_ms):
            self._warn_poll_overdue()
            await self._leave("the application has not polled for max.poll.interval.ms")
            self._signal()
            return
        if membership.session_expired(now_ms):
            coordinator.forget()
        request = membership.heartbeat_request(now_ms)
        try:
            node_id = await coordinator.find()
            response = await coordinator.send(
                node_id, request, timeout_ms=self._config.session_timeout_ms
            )
            action = membership.on_heartbeat(
                response.error_code, request.generation_id, self._now_ms()
            )
        except Retriable as error:
            log.info("group %s: no answer to a heartbeat: %s", self._group_id, error)
            action = MembershipAction.REDISCOVER
        self._update_membership_lost()
        await self._act_on_heartbeat(action)
        if membership.rejoin_reason is not None or membership.failure is not None:
            self._signal()

    # --- leaving ----------------------------------------------------------------------------------

    async def leave(self, reason: str, timeout_ms: float) -> None:
        membership = self.membership
        await cancel(self._join)
        self._join, self._join_prepared = None, False
        await self._stop()
        if not membership.lost:
            await self._commit_at_the_end(timeout_ms)
        lost = membership.lost or membership.state is not JoinState.STABLE
        try:
            if self.assigns:
                await self._rebalance.revoke(self._subscription.assigned(), lost=lost)
        finally:
            await self._stop_heartbeats()
            await self._leave(reason)
            self.led_topics = frozenset()

    async def _leave(self, reason: str) -> None:
        request = self.membership.leave_request(reason)
        self._update_membership_lost()
        if request is None:
            return
        coordinator = self._coordinator
        try:
            node_id = await coordinator.find()
            version = await coordinator.version_for(
                node_id, ApiKey.LEAVE_GROUP, max_version=LEAVE_GROUP_NEWEST
            )
            await coordinator.send(
                node_id,
                leave_in_version(request, version, reason),
                max_version=version,
                timeout_ms=LEAVE_TIMEOUT_MS,
            )
        except (OdradekError, WireError) as error:
            # The session timeout will remove the member.
            log.info("group %s: the request to leave the group failed: %s", self._group_id, error)
