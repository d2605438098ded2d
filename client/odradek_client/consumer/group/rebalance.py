"""Partitions that change hands: those revoked are committed and dropped, those assigned are taken over.

Both protocols share it, and differ in when it happens. Listeners are called in the polling task (K-33).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.fetcher import Fetcher
from odradek_client.consumer.group.offsets import GroupOffsets
from odradek_client.consumer.rebalance_listener import RebalanceListener, call
from odradek_client.consumer.subscription_state import SubscriptionState
from odradek_client.consumer.tasks import cancel
from odradek_client.structs import TopicPartition

log = logging.getLogger("odradek.client.consumer")


class Rebalance:
    """One consumer's part in the rebalances of its group.

    `assignment`: what the group has assigned and is not taken over yet, None if there is nothing.
    `was_assigned`: whether an assignment was taken over since this consumer joined.
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
        """Whether the positions of these (of all if None) are committed, as far as that is automatic
        and can be; begins it if need be, and signals when it is done. Bounded by the rebalance timeout
        (K-31)."""
        if self._commit_tried or not self._config.enable_auto_commit:
            return True
        if self._commit is None:
            consumed = self._subscription.consumed()
            offsets = {
                each: at
                for each, at in consumed.items()
                if partitions is None or each in partitions
            }
            # In the queue at once: positions that are kept go on, and a commit of later ones must come
            # after it.
            self._commit = self._offsets.commit_quietly_soon(
                offsets, self._config.max_poll_interval_ms, "before the rebalance"
            )
            self._commit.add_done_callback(lambda _: self._signal())
        if not self._commit.done():
            return False
        self._commit, self._commit_tried = None, True
        return True

    async def revoke(self, partitions: Collection[TopicPartition], *, lost: bool) -> None:
        """Call the listener, let it commit, and read them no more; whatever the listener raises."""
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
                # What the listener began to commit can be committed only while the partitions are held.
                await self._offsets.settled(self._config.default_api_timeout_ms, before)
        finally:
            self._subscription.drop(partitions)
            self._fetcher.drop(partitions)

    async def take_over(self, on_assigned: Callable[[], None], *, incremental: bool) -> bool:
        """Make `assignment` the subscription's: revoked for what goes, then assigned for what is new, or
        for everything unless `incremental` (K-32). False if a commit has to be waited for first.

        `on_assigned` is called before the listener. Raises what the listener raised, when everything is
        in place (K-33). A poll that was cancelled in a listener leaves the rest to the next one.
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
                # While the listener ran this consumer has left, or was assigned something newer.
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
        """Give up what was begun: this consumer is leaving its group."""
        await cancel(self._commit)
        self._commit, self._commit_tried = None, False
        self.assignment = None
        self.was_assigned = False
