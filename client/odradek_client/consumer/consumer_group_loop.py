"""The consumer's dealings with its group in the next protocol (KIP-848): heartbeats, which are all
there is, and taking over in the polling task what they bring.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from odradek_client.config import ConsumerConfig
from odradek_client.consumer.consumer_membership import (
    REGEX_SINCE,
    ConsumerMembership,
    MemberState,
    Reconciliation,
    Wish,
)
from odradek_client.consumer.coordinator import Action
from odradek_client.consumer.fetcher import Fetcher
from odradek_client.consumer.group import LEAVE_TIMEOUT_MS, Group, cancel
from odradek_client.consumer.group_offsets import Identity
from odradek_client.consumer.subscription import SubscriptionState
from odradek_client.consumer.types import ConsumerGroupMetadata
from odradek_client.errors import (
    OdradekError,
    RebalanceInProgress,
    Retriable,
    UnsupportedByBroker,
)
from odradek_client.network import Network
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.primitives import WireError

log = logging.getLogger("odradek.client.consumer")


class ConsumerGroupLoop(Group):
    """One consumer's membership, carried out."""

    def __init__(
        self,
        config: ConsumerConfig,
        group_id: str,
        network: Network,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        membership: ConsumerMembership,
        signal: Callable[[], None],
    ) -> None:
        super().__init__(config, group_id, network, subscription, fetcher, signal)
        self.membership = membership
        self._identity = ConsumerGroupMetadata(group_id)
        self._beat_now = asyncio.Event()
        self._wished = Wish()
        self._step: Reconciliation | None = None
        self._told_version = 0

    # --- who this consumer is ---------------------------------------------------------------------

    @property
    def in_group(self) -> bool:
        """Whether partitions are this consumer's, as far as it knows."""
        return self.membership.in_group and self._session_left_ms() > 0

    def _session_left_ms(self) -> int:
        """The group's session timeout is the broker's to know; ours is the usual one."""
        silent_ms = self.membership.silent_for_ms(self._now_ms())
        return max(0, self._config.session_timeout_ms - silent_ms)

    def identity(self) -> Identity:
        """Of the current member epoch. RebalanceInProgress if this consumer is not in the group."""
        if not self.assigns:
            return Identity()
        membership = self.membership
        if not membership.may_commit:
            raise RebalanceInProgress(
                f"group {self._group_id!r}: not committed, this consumer is not in the group now; "
                f"poll first",
                code=ErrorCode.REBALANCE_IN_PROGRESS,
            )
        return Identity(membership.epoch, membership.member_id, self._config.group_instance_id)

    def refused(self, code: ErrorCode, identity: Identity) -> bool:
        """The coordinator refused a commit of `identity`. Whether that is an old story (K-38)."""
        membership = self.membership
        if not self.assigns:
            return False
        if membership.epoch != identity.generation or not membership.may_commit:
            return True
        membership.hurry()  # the answer to a heartbeat says what is wrong
        self._beat_now.set()
        return False

    def renewed(self, code: ErrorCode, identity: Identity) -> bool:
        """An epoch that is merely old is renewed by the next heartbeat."""
        if code is not ErrorCode.STALE_MEMBER_EPOCH or not self.membership.may_commit:
            return False
        if self.membership.epoch == identity.generation:
            self.membership.hurry()
            self._beat_now.set()
        return True

    def still(self, identity: Identity, now: Identity) -> bool:
        """A newer epoch takes nothing away by itself: the member gives partitions up when it says so."""
        return identity.member_id == now.member_id

    def metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in the group, or was when it was in it last (KIP-447).

        A member that was fenced keeps its old name here until it polls: without one the coordinator
        would take its offsets as those of someone outside the group, and check nothing (O-05).
        """
        self._remember()
        return self._identity if self.assigns else ConsumerGroupMetadata(self._group_id)

    def _remember(self) -> None:
        membership = self.membership
        if membership.in_group:
            self._identity = ConsumerGroupMetadata(
                self._group_id,
                membership.epoch,
                membership.member_id,
                self._config.group_instance_id,
            )

    # --- what a poll does -------------------------------------------------------------------------

    async def poll(self) -> None:
        """Join if needed, take over what was assigned, commit if it is time."""
        membership = self.membership
        membership.polled(self._now_ms())
        if self.assigns:
            if membership.failure is not None:
                raise membership.failure
            await self._act()
            membership.polled(self._now_ms())
        if not self.assigns or membership.in_group:
            self._offsets.commit_if_due()

    async def _act(self) -> None:
        membership, subscription = self.membership, self._subscription
        wish = self._wish()
        match membership.state:
            # What a pattern fits is for the broker to say, which must be asked first.
            case MemberState.UNSUBSCRIBED if (
                wish != Wish() or subscription.pattern_text is not None
            ):
                membership.join()
            case MemberState.FENCED | MemberState.STALE:
                self._incoming, self._step = None, None
                try:
                    await self._give_up(self._subscription.assigned(), lost=True)
                finally:
                    membership.rejoin()
                    self._hurry()
            case MemberState.RECONCILING:
                await self._reconcile()
        if wish != self._wished:
            self._wished = wish
            membership.hurry()
            self._hurry()
        if membership.state is not MemberState.UNSUBSCRIBED and self._heartbeats is None:
            self._heartbeats = self._network.loop.create_task(
                self._beat(), name="odradek-heartbeats"
            )

    def _hurry(self) -> None:
        self._beat_now.set()
        self._tell_membership()

    def _wish(self) -> Wish:
        subscription = self._subscription
        if subscription.pattern_text is not None and self._told_version >= REGEX_SINCE:
            return Wish(regex=subscription.pattern_text)
        return Wish(topics=subscription.topics)

    async def _reconcile(self) -> None:
        """As far as it goes now; whatever it waits for signals when it is there."""
        membership, cluster = self.membership, self._network.cluster
        if self._incoming is None:
            if membership.unnamed(cluster.topic_names):
                self._network.request_metadata_update()
            self._step = membership.reconcile(cluster.topic_names)
            if self._step is None:
                return
            self._incoming = sorted(self._step.assigned)
        step = self._step
        assert step is not None
        try:
            if not await self._take_over(incremental=True):
                return
        finally:
            if self._incoming is None and membership.state is MemberState.RECONCILING:
                membership.reconciled(step)
                self._hurry()
        # What came meanwhile is looked at by the next pass.
        self._signal()

    # --- heartbeats -------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Until cancelled: a heartbeat whenever one is due."""
        membership = self.membership
        while True:
            self._beat_now.clear()
            now_ms = self._now_ms()
            if membership.poll_overdue(now_ms):
                self._leave_overdue()
            wait_ms = membership.heartbeat_due_ms(now_ms)
            if wait_ms == 0:
                try:
                    await self._beat_once()
                except Exception:
                    log.exception("group %s: a heartbeat failed", self._group_id)
                    await asyncio.sleep(self._config.retry_backoff_ms / 1000)
                continue
            try:
                async with asyncio.timeout(None if wait_ms < 0 else wait_ms / 1000):
                    await self._beat_now.wait()
            except TimeoutError:
                pass

    def _leave_overdue(self) -> None:
        log.warning(
            "group %s: no poll for max_poll_interval_ms=%d, leaving; poll more often, raise it, "
            "or lower max_poll_records",
            self._group_id,
            self._config.max_poll_interval_ms,
        )
        self.membership.prepare_leaving()
        self.membership.leave(stale=True)
        self._tell_membership()

    async def _beat_once(self) -> None:
        membership = self.membership
        request = None
        try:
            node_id = await self._network.find_coordinator(self._group_id)
            self._told_version = await self._network.version_for(
                node_id, ApiKey.CONSUMER_GROUP_HEARTBEAT, channel="coordinator"
            )
            wish = self._wish()
            request = membership.heartbeat_request(wish, self._told_version, self._now_ms())
            self._wished = wish
            response = await self._network.send(
                node_id,
                request,
                channel="coordinator",
                max_version=self._told_version,
                timeout_ms=min(self._config.request_timeout_ms, self._config.session_timeout_ms),
            )
            action = membership.on_heartbeat(request, response, self._now_ms())
            self._remember()
        except UnsupportedByBroker as error:
            membership.fail(
                UnsupportedByBroker(
                    f"group {self._group_id!r}: the broker does not serve the consumer group "
                    f'protocol (KIP-848); set group_protocol="classic" until it does ({error})'
                )
            )
            action = Action.GO_ON
        except (Retriable, WireError) as error:
            log.info("group %s: no answer to a heartbeat: %s", self._group_id, error)
            if request is not None:
                membership.on_no_answer(request, self._now_ms())
            action = Action.REDISCOVER
        except OdradekError as error:
            membership.fail(error)
            action = Action.GO_ON
        self._tell_membership()
        self._signal()
        if action is Action.REDISCOVER:
            self._network.forget_coordinator(self._group_id)
        if action in (Action.REDISCOVER, Action.BACK_OFF):
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    # --- leaving ----------------------------------------------------------------------------------

    async def leave(self, reason: str, timeout_ms: float) -> None:
        """Commit if that is automatic, tell the listener, leave the group (K-34)."""
        membership = self.membership
        await self._stop()
        self._step = None
        lost = not membership.in_group
        if self._config.enable_auto_commit and (membership.in_group or not self.assigns):
            await self._offsets.commit_quietly(None, timeout_ms, "at the end")
        in_group = membership.prepare_leaving()
        try:
            if self.assigns:
                await self._give_up(self._subscription.assigned(), lost=lost)
        finally:
            await cancel(self._heartbeats)
            self._heartbeats = None
            membership.failure = None
            if in_group and membership.state is MemberState.PREPARE_LEAVING:
                membership.leave()
                await self._say_goodbye()
            self._wished = Wish()
            self._tell_membership()

    async def _say_goodbye(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                await self._beat_once()
        except TimeoutError:
            # The broker's session timeout will do it.
            log.info("group %s: leaving: no coordinator in time", self._group_id)
