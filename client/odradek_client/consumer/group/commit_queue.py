"""The order of commits: each is newer than those before it, and none undoes a newer one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from odradek_client.consumer.subscription_state import SubscriptionState, TopicPartitionState
from odradek_client.structs import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Commit:
    """One commit of offsets, from the moment it is asked for until its `outcome`: None, or what it raised.

    `partition_states`: each partition's state at that moment. A partition that went and came back has
    another one, and another member may have committed it in between.
    `superseded_by`: per partition, the newer commit that has taken this one's place.
    `automatic`: begun by the timer of automatic commits.
    """

    __slots__ = ("automatic", "offsets", "outcome", "partition_states", "superseded_by")

    def __init__(
        self,
        offsets: Offsets,
        subscription: SubscriptionState,
        outcome: asyncio.Future[BaseException | None],
        *,
        automatic: bool,
    ) -> None:
        self.automatic = automatic
        self.offsets = dict(offsets)
        self.partition_states: dict[TopicPartition, TopicPartitionState | None] = {
            each: subscription.get(each) for each in offsets
        }
        self.superseded_by: dict[TopicPartition, Commit] = {}
        self.outcome = outcome

    def remaining(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets of partitions that no newer commit has."""
        return {each: at for each, at in self.offsets.items() if each not in self.superseded_by}


class CommitQueue:
    """The commits of one consumer that have no outcome yet."""

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._pending: dict[Commit, None] = {}
        self._newest: dict[TopicPartition, Commit] = {}
        self._automatic: Commit | None = None

    def add(
        self, offsets: Offsets, loop: asyncio.AbstractEventLoop, *, automatic: bool = False
    ) -> Commit:
        """A commit that is newer than all in the queue, and supersedes them for its partitions. An
        automatic one supersedes nothing: it has one try, in its turn."""
        commit = Commit(offsets, self._subscription, loop.create_future(), automatic=automatic)
        self._pending[commit] = None
        if automatic:
            self._automatic = commit
            return commit
        for partition in commit.offsets:
            for older in (self._newest.get(partition), self._automatic):
                if older is not None and partition in older.offsets:
                    older.superseded_by[partition] = commit
            self._newest[partition] = commit
        return commit

    def settle(self, commit: Commit, outcome: BaseException | None) -> None:
        """Out of the queue. May be repeated; the first outcome counts."""
        self._pending.pop(commit, None)
        if self._automatic is commit:
            self._automatic = None
        for partition in commit.offsets:
            if self._newest.get(partition) is commit:
                del self._newest[partition]
        if not commit.outcome.done():
            commit.outcome.set_result(outcome)

    def pending(self) -> Collection[Commit]:
        """The commits without an outcome."""
        return set(self._pending)

    async def settled(self, timeout_ms: float, but: Collection[Commit] = ()) -> None:
        """Until the pending commits, `but` these, have an outcome; at most so long."""
        outcomes = [commit.outcome for commit in self._pending if commit not in but]
        if outcomes:
            await asyncio.wait(outcomes, timeout=timeout_ms / 1000)
