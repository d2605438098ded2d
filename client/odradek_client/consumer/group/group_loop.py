"""The requests of a consumer to its group's coordinator: the part that both group protocols share.

`ClassicGroupLoop` uses the classic protocol, `ConsumerGroupLoop` the consumer protocol (KIP-848).
The polling task calls the listeners (K-33) and begins automatic commits. Joining, heartbeats and
commits run in other tasks.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Collection

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.fetcher import Fetcher
from odradek_client.consumer.group.heartbeats import HeartbeatLoop
from odradek_client.consumer.group.membership import Membership
from odradek_client.consumer.group.offsets import GroupOffsets, Identity
from odradek_client.consumer.rebalance_listener import RebalanceListener, call
from odradek_client.consumer.subscription_state import SubscriptionState
from odradek_client.errors import OdradekError, RebalanceInProgress, Retriable
from odradek_client.network.client import NetworkClient
from odradek_client.structs import ConsumerGroupMetadata, TopicPartition
from odradek_client.tasks import cancel
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import WireError

log = logging.getLogger("odradek.client.consumer")


class Rebalance:
    """A consumer's part of a rebalance: commits, listeners, and the takeover of an assignment.

    `assignment`: an assignment of the group that this consumer has not taken over yet, or None.
    `was_assigned`: True if an assignment was taken over since this consumer joined.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        offsets: GroupOffsets,
        signal: Callable[[], None],
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._fetcher = fetcher
        self._offsets = offsets
        self._signal = signal
        self.listener: RebalanceListener | None = None
        self.assignment: list[TopicPartition] | None = None
        self.was_assigned = False
        self._commit: asyncio.Task[None] | None = None
        self._commit_tried = False

    def committed(self, partitions: Collection[TopicPartition] | None) -> bool:
        """True if the automatic commit before a revocation has ended, or if commits are not
        automatic. Otherwise begin the commit for `partitions` (None: all). The end of the commit
        wakes the poll loop. The commit takes at most the rebalance timeout (K-31)."""
        if self._commit_tried or not self._config.enable_auto_commit:
            return True
        if self._commit is None:
            consumed = self._subscription.consumed()
            offsets = {
                each: at
                for each, at in consumed.items()
                if partitions is None or each in partitions
            }
            # The commit is added to the queue now, before its task runs: positions of kept
            # partitions advance, and a commit of later positions must come after this commit.
            self._commit = self._offsets.commit_quietly_soon(
                offsets, self._config.max_poll_interval_ms, "before the rebalance"
            )
            self._commit.add_done_callback(lambda _: self._signal())
        if not self._commit.done():
            return False
        cancelled, self._commit = self._commit.cancelled(), None
        if cancelled:
            return self.committed(partitions)
        self._commit_tried = True
        return True

    async def revoke(self, partitions: Collection[TopicPartition], *, lost: bool) -> None:
        """Call the listener, wait for its commits, and stop reading the partitions, even if the
        listener raises."""
        if self._commit is not None:
            self._commit.cancel()
        self._commit, self._commit_tried = None, False
        try:
            if partitions and self.listener is not None:
                listener, before = self.listener, self._offsets.pending()
                await call(
                    listener.on_partitions_lost if lost else listener.on_partitions_revoked,
                    partitions,
                )
                # Commits that the listener has begun are accepted only while the member owns the
                # partitions.
                await self._offsets.wait_until_ended(self._config.default_api_timeout_ms, before)
        finally:
            self._subscription.drop(partitions)
            self._fetcher.drop(partitions)

    async def take_over(self, on_assigned: Callable[[], None], *, incremental: bool) -> bool:
        """Pass `assignment` to the subscription. Call the listener for revoked partitions, and then
        for the newly assigned partitions (if `incremental`) or for all assigned partitions (K-32).
        False while a commit is not finished, or if the assignment is no longer the newest.

        `on_assigned` is called before the listener is called for assigned partitions. An exception
        of the listener is raised at the end (K-33). If a poll is cancelled in a listener, the next
        poll does the rest.
        """
        assignment = self.assignment
        assert assignment is not None
        subscription = self._subscription
        failure: Exception | None = None
        revoked = subscription.assigned() - set(assignment)
        if revoked:
            subscription.mark_pending_revocation(revoked)
            if not self.committed(revoked):
                return False
            try:
                await self.revoke(revoked, lost=False)
            except Exception as error:  # noqa: BLE001  raised below
                failure = error
            if self.assignment is not assignment:
                # The assignment is outdated: while the listener ran, this consumer has left, or has
                # received a newer assignment.
                if failure is not None:
                    raise failure
                return False
        self.assignment = None
        self.was_assigned = True
        new = set(assignment) - subscription.assigned()
        subscription.assign_by_group(assignment)
        on_assigned()
        log.info(
            "group %s: assigned %s",
            self._offsets.group_id,
            ", ".join(f"{topic}-{number}" for topic, number in sorted(assignment)) or "nothing",
        )
        if self.listener is not None:
            await call(self.listener.on_partitions_assigned, new if incremental else assignment)
        if failure is not None:
            raise failure
        return True

    async def stop(self) -> None:
        """Cancel the commit in progress, because this consumer is leaving its group."""
        await cancel(self._commit)
        self._commit, self._commit_tried = None, False
        self.assignment = None
        self.was_assigned = False


class AutoCommit:
    """The automatic commits of a consumer; without enable.auto.commit there are none."""

    def __init__(
        self,
        config: ConsumerConfig,
        network: NetworkClient,
        subscription: SubscriptionState,
        offsets: GroupOffsets,
    ) -> None:
        self._config = config
        self._network = network
        self._subscription = subscription
        self._offsets = offsets
        self._task: asyncio.Task[None] | None = None
        self._failed = False
        self._next_ms = 0.0

    def commit_if_due(self) -> None:
        """Begin to commit the positions of earlier polls, if a commit is due and no automatic
        commit is in progress."""
        if not self._config.enable_auto_commit or self._network.now_ms() < self._next_ms:
            return
        if self._task is not None and not self._task.done():
            return
        self.restart_timer()
        offsets = self._subscription.consumed()
        if offsets:
            self._task = self._offsets.commit_automatically(offsets, self._commit_ended)

    def _commit_ended(self, error: OdradekError | WireError | None) -> None:
        """Note the end of a commit. A failed commit is not retried, because the next commit has the
        positions of a later poll; the next commit is due soon if the error is retriable."""
        if error is None:
            self._failed = False
        elif isinstance(error, Retriable):
            self._next_ms = self._network.now_ms() + self._config.retry_backoff_ms
            level = logging.DEBUG if self._failed else logging.WARNING
            self._failed = True
            log.log(
                level,
                "group %s: an automatic commit in the background failed and is tried again: %s",
                self._offsets.group_id,
                error,
            )
        else:
            log.warning(
                "group %s: an automatic commit in the background failed: %s",
                self._offsets.group_id,
                error,
            )

    def restart_timer(self) -> None:
        """Make the next automatic commit due after a whole interval from now."""
        self._next_ms = self._network.now_ms() + self._config.auto_commit_interval_ms

    def due_in_ms(self) -> float | None:
        """The time until the next automatic commit, in ms. None if commits are not automatic, or if
        a commit is due already but cannot begin yet."""
        left_ms = self._next_ms - self._network.now_ms()
        return left_ms if self._config.enable_auto_commit and left_ms > 0 else None

    async def stop(self) -> None:
        """Cancel the automatic commit in progress. The commit that is made when the consumer leaves
        its group has the same positions or newer positions."""
        task, self._task = self._task, None
        await cancel(task)


class GroupLoop(HeartbeatLoop):
    """A consumer's part in its group. While partitions are assigned manually, the group is used
    only for committed offsets.

    `membership_lost` is set while the partitions may not belong to this consumer. `led_topics`: the
    topics whose metadata the leader of a classic group needs. `signal` wakes a waiting poll.
    """

    membership: Membership

    def __init__(
        self,
        config: ConsumerConfig,
        network: NetworkClient,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        membership: Membership,
        signal: Callable[[], None],
    ) -> None:
        super().__init__(config, network, membership)
        self._config = config
        self._subscription = subscription
        self._signal = signal
        self.offsets = GroupOffsets(config, network, self._coordinator, subscription, self)
        self._auto_commit = AutoCommit(config, network, subscription, self.offsets)
        self._rebalance = Rebalance(config, subscription, fetcher, self.offsets, signal)
        self._last_metadata = ConsumerGroupMetadata(self._group_id)
        self.led_topics: frozenset[str] = frozenset()
        #: Called when the topics whose metadata is needed have changed.
        self.on_topics: Callable[[], None] = lambda: None
        self.membership_lost = asyncio.Event()
        self.membership_lost.set()
        self._session_timer: asyncio.TimerHandle | None = None

    @property
    def listener(self) -> RebalanceListener | None:
        return self._rebalance.listener

    @listener.setter
    def listener(self, listener: RebalanceListener | None) -> None:
        self._rebalance.listener = listener

    # --- the group's part of a poll ---

    async def poll(self) -> None:
        """The group's part of a poll: join if needed, take over an assignment, commit if a commit
        is due. Waits only for listeners. Raises the error of a heartbeat."""
        membership, subscription = self.membership, self._subscription
        membership.polled(self._now_ms())
        if subscription.by_group and self._needs_rebalance():
            await self._go_on_with_rebalance()
            membership.polled(self._now_ms())
        if not subscription.by_group or self._commits_automatically:
            self._auto_commit.commit_if_due()

    @abstractmethod
    def _needs_rebalance(self) -> bool:
        """True if this member has to join, or to revoke or take over partitions. Raises the error
        of a heartbeat."""

    @abstractmethod
    async def _go_on_with_rebalance(self) -> None:
        """Continue the rebalance, up to a step that has to wait. The end of that wait signals the
        poll loop."""

    @property
    @abstractmethod
    def _commits_automatically(self) -> bool:
        """True if the member makes automatic commits in its present state."""

    def next_poll_ms(self) -> float:
        """The time within which `poll` must be called again, in ms, if no signal comes before."""
        wait_ms = float(self._config.max_poll_interval_ms) / 3
        due_in_ms = self._auto_commit.due_in_ms()
        return wait_ms if due_in_ms is None else max(1.0, min(wait_ms, due_in_ms))

    async def _take_over_assignment(self, *, incremental: bool) -> bool:
        return await self._rebalance.take_over(self._on_assigned, incremental=incremental)

    def _on_assigned(self) -> None:
        self._auto_commit.restart_timer()
        self.on_topics()

    @abstractmethod
    async def leave(self, reason: str, timeout_ms: float) -> None:
        """Commit if commits are automatic, call the listener, leave the group (K-34)."""

    # --- identity ---

    @property
    def assigns(self) -> bool:
        """True if the group assigns the partitions."""
        return self._subscription.by_group

    @property
    def awaits_first_assignment(self) -> bool:
        """True if the group assigns partitions and this consumer has no assignment yet."""
        return self.assigns and not self._rebalance.was_assigned

    @property
    def in_group(self) -> bool:
        """True if this consumer is, as far as it knows, a member that owns its partitions."""
        return self.membership.in_group and self.membership.session_left_ms(self._now_ms()) > 0

    def _update_membership_lost(self) -> None:
        """Update the event after anything that may have changed `in_group`."""
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        if not self.in_group:
            self.membership_lost.set()
            return
        self.membership_lost.clear()
        # A session expires without an event, so a timer checks for the expiry.
        left_ms = self.membership.session_left_ms(self._now_ms())
        self._session_timer = self._network.loop.call_later(
            max(1, left_ms) / 1000, self._update_membership_lost
        )

    def metadata(self) -> ConsumerGroupMetadata:
        """This consumer's identity in the group at the last `_remember_metadata` (KIP-447).

        A removed member keeps its old identity: without an identity the coordinator would accept
        its offsets unchecked, like those of a client outside of the group (O-05).
        """
        return self._last_metadata if self.assigns else ConsumerGroupMetadata(self._group_id)

    def _remember_metadata(self) -> None:
        membership = self.membership
        self._last_metadata = ConsumerGroupMetadata(
            self._group_id,
            membership.generation_or_epoch,
            membership.member_id,
            membership.group_instance_id,
        )

    # --- offsets: this consumer as a `Committer` --------------------------------------------------

    def identity(self) -> Identity:
        """The identity with the current generation or member epoch. RebalanceInProgress if the
        consumer is not in the group."""
        if not self.assigns:
            return Identity()
        membership = self.membership
        if not membership.may_commit:
            why = (
                "the group rebalances; poll until this consumer has its partitions, and then commit"
                if membership.member_id
                else "this consumer is not in the group now; poll first"
            )
            raise RebalanceInProgress(
                f"group {self._group_id!r}: not committed, {why}",
                code=ErrorCode.REBALANCE_IN_PROGRESS,
            )
        return Identity(
            membership.generation_or_epoch, membership.member_id, membership.group_instance_id
        )

    def is_same_member(self, identity: Identity, now: Identity) -> bool:
        """True if a commit that began with `identity` may be retried while the member's identity is
        `now`."""
        return identity == now

    @abstractmethod
    def on_commit_refused(self, code: ErrorCode, identity: Identity) -> bool:
        """React to the refusal of a commit of `identity`. True if the next poll rejoins the group
        (K-38)."""

    def may_commit_again(self, code: ErrorCode, identity: Identity) -> bool:
        """True if a commit that was refused for `identity` may be sent again with a newer epoch."""
        return False

    def on_rebalance_in_progress(self) -> None:
        """React to a commit that was answered REBALANCE_IN_PROGRESS."""

    async def _commit_at_the_end(self, timeout_ms: float) -> None:
        if self._config.enable_auto_commit:
            await self.offsets.commit_quietly(None, timeout_ms, "at the end")

    async def _stop(self) -> None:
        """Cancel the background tasks, except the heartbeats."""
        await self._rebalance.stop()
        await self._auto_commit.stop()
