"""The requests of a consumer to its group in the consumer protocol (KIP-848). Every request is a
heartbeat. The polling task takes over the partitions that the answers assign."""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.fetcher import Fetcher
from odradek_client.consumer.group.consumer_membership import (
    ConsumerMembership,
    ConsumerMembershipSettings,
    MemberState,
    MemberSubscription,
    Reconciliation,
)
from odradek_client.consumer.group.group_loop import GroupLoop
from odradek_client.consumer.group.heartbeats import EpochHeartbeats
from odradek_client.consumer.group.membership import MembershipAction
from odradek_client.consumer.group.offsets import Identity
from odradek_client.consumer.subscription_state import SubscriptionState
from odradek_client.network.client import NetworkClient
from odradek_client.structs import ConsumerGroupMetadata
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.consumer_group_heartbeat import REGULAR_EXPRESSION_SINCE

log = logging.getLogger("odradek.client.consumer")


class ConsumerGroupLoop(EpochHeartbeats, GroupLoop):
    """The loop of a member in the consumer protocol: sends its heartbeats and calls its
    listener.
    """

    membership: ConsumerMembership
    _unsupported = (
        "the broker does not serve the consumer group protocol (KIP-848); set"
        ' group_protocol="classic" until it does'
    )

    def __init__(
        self,
        config: ConsumerConfig,
        group_id: str,
        network: NetworkClient,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        signal: Callable[[], None],
    ) -> None:
        settings = ConsumerMembershipSettings(
            group_id=group_id,
            group_instance_id=config.group_instance_id,
            session_timeout_ms=config.session_timeout_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            remote_assignor=config.group_remote_assignor,
        )
        membership = ConsumerMembership(settings, network.new_uuid())
        super().__init__(config, network, subscription, fetcher, membership, signal)
        self._sent_subscription = MemberSubscription()
        self._reconciliation: Reconciliation | None = None
        self._heartbeat_version = 0

    # --- commits ----------------------------------------------------------------------------------

    @property
    def _commits_automatically(self) -> bool:
        return self.membership.in_group

    def on_commit_refused(self, code: ErrorCode, identity: Identity) -> bool:
        membership = self.membership
        if not self.assigns:
            return False
        if membership.epoch != identity.generation or not membership.may_commit:
            return True
        self._hasten_heartbeat()  # the answer to the heartbeat has the error
        return False

    def may_commit_again(self, code: ErrorCode, identity: Identity) -> bool:
        """True after STALE_MEMBER_EPOCH if this member is still in the group, because the next
        heartbeat renews its epoch."""
        if code is not ErrorCode.STALE_MEMBER_EPOCH or not self.membership.may_commit:
            return False
        if self.membership.epoch == identity.generation:
            self._hasten_heartbeat()
        return True

    def _hasten_heartbeat(self) -> None:
        self.membership.hasten_heartbeat()
        self._heartbeat_wanted.set()

    def is_same_member(self, identity: Identity, now: Identity) -> bool:
        """True if the member ids are equal. The epochs may differ, because a new epoch does not by
        itself revoke partitions."""
        return identity.member_id == now.member_id

    def metadata(self) -> ConsumerGroupMetadata:
        """This consumer's identity in the group, or its last identity if it is no longer a member
        (KIP-447)."""
        self._remember_metadata()
        return super().metadata()

    def _remember_metadata(self) -> None:
        if self.membership.in_group:
            super()._remember_metadata()

    # --- the group's part of a poll ---

    def _needs_rebalance(self) -> bool:
        membership = self.membership
        if membership.failure is not None:
            raise membership.failure
        return (
            membership.state is not MemberState.STABLE
            or self._wanted_subscription() != self._sent_subscription
        )

    async def _go_on_with_rebalance(self) -> None:
        membership, subscription = self.membership, self._subscription
        wanted = self._wanted_subscription()
        match membership.state:
            # Only the broker knows which topics match a pattern, so a heartbeat must be answered
            # first.
            case MemberState.UNSUBSCRIBED if (
                wanted != MemberSubscription() or subscription.pattern_text is not None
            ):
                membership.join()
            case MemberState.FENCED | MemberState.STALE:
                self._rebalance.assignment = self._reconciliation = None
                try:
                    await self._rebalance.revoke(subscription.assigned(), lost=True)
                finally:
                    membership.rejoin()
                    self._on_member_changed()
            case MemberState.RECONCILING:
                await self._reconcile()
        if wanted != self._sent_subscription:
            self._sent_subscription = wanted
            membership.hasten_heartbeat()
            self._on_member_changed()
        if membership.state is not MemberState.UNSUBSCRIBED:
            self._start_heartbeats()

    def _on_member_changed(self) -> None:
        self._heartbeat_wanted.set()
        self._update_membership_lost()

    def _wanted_subscription(self) -> MemberSubscription:
        subscription = self._subscription
        if (
            subscription.pattern_text is not None
            and self._heartbeat_version >= REGULAR_EXPRESSION_SINCE
        ):
            return MemberSubscription(regex=subscription.pattern_text)
        return MemberSubscription(topics=subscription.topics)

    async def _reconcile(self) -> None:
        """Take over the target assignment, up to a step that has to wait. The end of that wait
        signals the poll loop."""
        membership, cluster, rebalance = self.membership, self._network.cluster, self._rebalance
        if rebalance.assignment is None:
            if membership.unnamed(cluster.topic_names):
                self._network.request_metadata_update()
            self._reconciliation = membership.reconcile(cluster.topic_names)
            if self._reconciliation is None:
                return
            rebalance.assignment = sorted(self._reconciliation.assigned)
        reconciliation = self._reconciliation
        assert reconciliation is not None
        try:
            if not await self._take_over_assignment(incremental=True):
                return
        finally:
            if rebalance.assignment is None and membership.state is MemberState.RECONCILING:
                membership.reconciled(reconciliation)
                self._on_member_changed()
        # A newer assignment may have arrived by now; the next poll takes it over.
        self._signal()

    # --- heartbeats -------------------------------------------------------------------------------

    def _heartbeat_due_ms(self) -> int:
        if self.membership.poll_overdue(self._now_ms()):
            self._warn_poll_overdue()
            self.membership.prepare_leaving()
            self.membership.leave(stale=True)
            self._update_membership_lost()
        return super()._heartbeat_due_ms()

    async def _send_heartbeat(self, node_id: int) -> MembershipAction:
        membership, coordinator = self.membership, self._coordinator
        self._heartbeat_version = await coordinator.version_for(
            node_id, ApiKey.CONSUMER_GROUP_HEARTBEAT
        )
        wanted = self._wanted_subscription()
        request = membership.heartbeat_request(wanted, self._heartbeat_version, self._now_ms())
        self._request, self._sent_subscription = request, wanted
        response = await coordinator.send(
            node_id,
            request,
            max_version=self._heartbeat_version,
            timeout_ms=min(self._config.request_timeout_ms, self._config.session_timeout_ms),
        )
        action = membership.on_heartbeat(request, response, self._now_ms())
        self._remember_metadata()
        return action

    def _on_heartbeat_ended(self) -> None:
        self._update_membership_lost()
        self._signal()

    # --- leaving ----------------------------------------------------------------------------------

    async def leave(self, reason: str, timeout_ms: float) -> None:
        membership = self.membership
        await self._stop()
        self._reconciliation = None
        lost = not membership.in_group
        if membership.in_group or not self.assigns:
            await self._commit_at_the_end(timeout_ms)
        was_in_group = membership.prepare_leaving()
        try:
            if self.assigns:
                await self._rebalance.revoke(self._subscription.assigned(), lost=lost)
        finally:
            await self._stop_heartbeats()
            membership.failure = None
            if was_in_group and membership.state is MemberState.PREPARE_LEAVING:
                membership.leave()
                await self._send_last_heartbeat()
            self._sent_subscription = MemberSubscription()
            self._update_membership_lost()
