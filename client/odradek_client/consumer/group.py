"""What a consumer's dealings with its group have in common, whichever protocol it speaks.

`GroupLoop` speaks the classic one, `ConsumerGroupLoop` the next one (KIP-848). Listeners are called
in the polling task (K-33); joining, heartbeats and commits go on beside it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

from odradek_client.config import ConsumerConfig
from odradek_client.consumer.fetcher import Fetcher
from odradek_client.consumer.group_offsets import GroupOffsets, Identity, Offsets
from odradek_client.consumer.listener import RebalanceListener, call
from odradek_client.consumer.subscription import SubscriptionState
from odradek_client.consumer.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
)
from odradek_client.network import Network
from odradek_protocol.errors import ErrorCode

log = logging.getLogger("odradek.client.consumer")

#: The longest that leaving the group may hold up a close.
LEAVE_TIMEOUT_MS = 5_000


class Group(ABC):
    """One consumer's group; only its offsets matter while partitions are assigned by hand.

    `membership_lost` is set whenever this consumer may not count on its partitions.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        group_id: str,
        network: Network,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        signal: Callable[[], None],
    ) -> None:
        self._config = config
        self._group_id = group_id
        self._network = network
        self._subscription = subscription
        self._fetcher = fetcher
        self._signal = signal
        self._offsets = GroupOffsets(config, group_id, network, subscription, self)
        self.listener: RebalanceListener | None = None
        self.led_topics: frozenset[str] = frozenset()
        self.on_topics: Callable[[], None] = lambda: None
        self.membership_lost = asyncio.Event()
        self.membership_lost.set()
        self._watchdog: asyncio.TimerHandle | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        #: An assignment that has come, and is being taken over.
        self._incoming: list[TopicPartition] | None = None
        self._commit_first: asyncio.Task[None] | None = None
        self._commit_tried = False
        self._was_assigned = False

    def _now_ms(self) -> int:
        return int(self._network.now_ms())

    # --- what a poll does -------------------------------------------------------------------------

    @abstractmethod
    async def poll(self) -> None:
        """The group's part of a pass: what is due now. Waits for nothing but listeners."""

    def patience_ms(self) -> float:
        """How long nothing need be done if nothing is heard."""
        patience_ms = float(self._config.max_poll_interval_ms) / 3
        due_in_ms = self._offsets.due_in_ms()
        return patience_ms if due_in_ms is None else max(1.0, min(patience_ms, due_in_ms))

    @abstractmethod
    async def leave(self, reason: str, timeout_ms: float) -> None:
        """Commit if that is automatic, tell the listener, leave the group (K-34)."""

    # --- who this consumer is ---------------------------------------------------------------------

    @property
    def assigns(self) -> bool:
        """Whether the group assigns the partitions."""
        return self._subscription.by_group

    @property
    def is_new(self) -> bool:
        """Whether the group is to assign partitions, and has not done so yet."""
        return self.assigns and not self._was_assigned

    @property
    @abstractmethod
    def in_group(self) -> bool:
        """Whether this consumer is, as far as it knows, a member whose partitions are its own."""

    @abstractmethod
    def _session_left_ms(self) -> int:
        """How long until this consumer must think that the coordinator has dropped it."""

    def _tell_membership(self) -> None:
        """After anything that may have changed `in_group`."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if not self.in_group:
            self.membership_lost.set()
            return
        self.membership_lost.clear()
        # Silence is news as well, and nothing else would tell it.
        self._watchdog = self._network.loop.call_later(
            max(1, self._session_left_ms()) / 1000, self._tell_membership
        )

    @abstractmethod
    def identity(self) -> Identity:
        """As who to commit now. RebalanceInProgress if nobody's commit would be taken."""

    @abstractmethod
    def refused(self, code: ErrorCode, identity: Identity) -> bool:
        """The coordinator refused a commit of `identity`. Whether polling puts it right (K-38)."""

    def renewed(self, code: ErrorCode, identity: Identity) -> bool:
        """Whether a refused commit may be tried again as somebody newer."""
        return False

    def still(self, identity: Identity, now: Identity) -> bool:
        """Whether a commit first tried as `identity` may be tried again, by who is `now`."""
        return identity == now

    def told_of_rebalance(self) -> None:  # noqa: B027  only the classic protocol has to act
        """A commit was answered REBALANCE_IN_PROGRESS."""

    @abstractmethod
    def metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in the group now (KIP-447)."""

    # --- offsets ----------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None, timeout_ms: float) -> None:
        """As `GroupOffsets.commit`."""
        await self._offsets.commit(offsets, timeout_ms)

    def commit_soon(self, offsets: Offsets | None, timeout_ms: float) -> asyncio.Task[None]:
        """As `GroupOffsets.commit_soon`."""
        return self._offsets.commit_soon(offsets, timeout_ms)

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """As `GroupOffsets.committed`."""
        return await self._offsets.committed(partitions, timeout_ms)

    # --- partitions that come and go --------------------------------------------------------------

    def _committed_first(self, partitions: Collection[TopicPartition] | None) -> bool:
        """Whether the positions of these (of all if None) are committed, as far as that is automatic
        and can be; begins it if need be. Bounded by the rebalance timeout (K-31)."""
        if self._commit_tried or not self._config.enable_auto_commit:
            return True
        if self._commit_first is None:
            consumed = self._subscription.consumed()
            offsets = {
                each: at
                for each, at in consumed.items()
                if partitions is None or each in partitions
            }
            # In line at once: positions that are kept go on, and a commit of later ones must come after it.
            self._commit_first = self._offsets.commit_quietly_soon(
                offsets, self._config.max_poll_interval_ms, "before the rebalance"
            )
            self._commit_first.add_done_callback(lambda _: self._signal())
        if not self._commit_first.done():
            return False
        self._commit_first, self._commit_tried = None, True
        return True

    async def _give_up(self, partitions: Collection[TopicPartition], *, lost: bool) -> None:
        """Tell the listener, let it commit, and read them no more; whatever the listener raises."""
        if self._commit_first is not None:
            self._commit_first.cancel()
        self._commit_first, self._commit_tried = None, False
        try:
            if partitions and self.listener is not None:
                listener, before = self.listener, self._offsets.under_way()
                await call(
                    listener.on_partitions_lost if lost else listener.on_partitions_revoked,
                    partitions,
                )
                # What the listener began to commit can be committed only while it is held.
                await self._offsets.settled(self._config.default_api_timeout_ms, before)
        finally:
            self._subscription.drop(partitions)
            self._fetcher.drop(partitions)

    async def _take_over(self, *, incremental: bool) -> bool:
        """Make `_incoming` the assignment: revoked for what goes, then assigned for what is new, or
        for everything unless `incremental` (K-32). False if a commit has to be waited for first.

        Raises what the listener raised, when everything is in place (K-33). A poll that was cancelled
        in a listener leaves the rest to the next one.
        """
        incoming = self._incoming
        assert incoming is not None
        subscription = self._subscription
        failure: Exception | None = None
        gone = subscription.assigned() - set(incoming)
        if gone:
            subscription.hold_back(gone)
            if not self._committed_first(gone):
                return False
            try:
                await self._give_up(gone, lost=False)
            except Exception as error:  # noqa: BLE001  raised below
                failure = error
            if self._incoming is not incoming:
                # While the listener ran this consumer has left, or was told something newer.
                if failure is not None:
                    raise failure
                return False
        self._incoming = None
        self._was_assigned = True
        new = set(incoming) - subscription.assigned()
        subscription.assign_by_group(incoming)
        self._offsets.restart_timer()
        self.on_topics()
        log.info(
            "group %s: assigned %s",
            self._group_id,
            ", ".join(f"{topic}-{number}" for topic, number in sorted(incoming)) or "nothing",
        )
        if self.listener is not None:
            await call(self.listener.on_partitions_assigned, new if incremental else incoming)
        if failure is not None:
            raise failure
        return True

    async def _stop(self) -> None:
        """End what goes on in the background, but for the heartbeats."""
        await cancel(self._commit_first)
        self._commit_first, self._commit_tried = None, False
        self._incoming = None
        self._was_assigned = False
        await self._offsets.stop()


async def cancel(task: asyncio.Task[None] | None) -> None:
    """End a task, and wait for that."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
