"""The committed offsets of a group: committing and fetching them.

Both group protocols use this module. For commits, the protocols differ only in the identity of this
consumer in its group, which the `Committer` returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Protocol

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.errors import describe
from odradek_client.consumer.group.coordinator import ConsumerCoordinator, Retries
from odradek_client.consumer.group.offset_requests import (
    OFFSET_COMMIT_NEWEST,
    OFFSET_FETCH_NEWEST,
    CoordinatorRetry,
    offset_commit_request,
    offset_fetch_request,
    read_offset_commit,
    read_offset_fetch,
)
from odradek_client.consumer.subscription_state import SubscriptionState, TopicPartitionState
from odradek_client.errors import OdradekError, RebalanceInProgress, RequestTimedOut
from odradek_client.network.client import NetworkClient
from odradek_client.structs import OffsetAndMetadata, TopicPartition
from odradek_client.tasks import begin
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.message import Message
from odradek_protocol.primitives import WireError
from odradek_protocol.schemas.offset_commit import OffsetCommitResponse
from odradek_protocol.schemas.offset_fetch import REQUIRE_STABLE_SINCE, OffsetFetchResponse

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Commit:
    """A commit of offsets. `outcome`: a future that is done when the commit has ended, with the
    error or None.

    `partition_states`: the state object of each partition at the beginning. A partition that was
    revoked and assigned again has a new state object, and another member may have committed in
    between. `superseded_by`: by partition, the newer commit that replaces this one. `automatic`:
    true if the timer of automatic commits has begun the commit.
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
        """The offsets that no newer commit supersedes."""
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
        """Add a new commit, which supersedes all older commits in the queue for its partitions. An
        automatic commit supersedes no other commit, and is not repeated after an error."""
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

    def end(self, commit: Commit, outcome: BaseException | None) -> None:
        """Remove a commit from the queue, and set its outcome. May be called again; later outcomes
        are ignored."""
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

    async def wait_until_ended(self, timeout_ms: float, but: Collection[Commit] = ()) -> None:
        """Wait until the pending commits, except those in `but`, have an outcome, or until the
        timeout."""
        outcomes = [commit.outcome for commit in self._pending if commit not in but]
        if outcomes:
            await asyncio.wait(outcomes, timeout=timeout_ms / 1000)


log = logging.getLogger("odradek.client.consumer")


class Identity(NamedTuple):
    """The identity of the client that commits. Generation -1 and no member id: the client is not a
    member of any generation (O-04).

    `generation`: that of the classic protocol, or the member epoch of the consumer protocol.
    """

    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Committer(Protocol):
    """This consumer's membership, with the methods that commits need."""

    def identity(self) -> Identity:
        """The present identity of the member. RebalanceInProgress if the coordinator would not
        accept its commit."""

    def is_same_member(self, identity: Identity, now: Identity) -> bool:
        """True if a commit that began with `identity` may be retried while the member's identity is
        `now`."""

    def on_commit_refused(self, code: ErrorCode, identity: Identity) -> bool:
        """React to the refusal of a commit of `identity`. True if the next poll rejoins the group
        (K-38)."""

    def may_commit_again(self, code: ErrorCode, identity: Identity) -> bool:
        """True if a commit that was refused for `identity` may be sent again with a newer epoch."""

    def on_rebalance_in_progress(self) -> None:
        """React to a commit that was answered REBALANCE_IN_PROGRESS."""


class GroupOffsets:
    """The commits of a consumer to its group.

    Commits are carried out one at a time, and no commit overwrites the offsets of a newer commit:
    if a commit is waiting for its turn, or for a retry, a newer commit supersedes it for the
    partitions that both have. All attempts of a commit have the member id and generation of its
    first attempt. A partition that has been revoked since the commit began is never sent.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        network: NetworkClient,
        coordinator: ConsumerCoordinator,
        subscription: SubscriptionState,
        committer: Committer,
    ) -> None:
        self._config = config
        self._network = network
        self._coordinator = coordinator
        self._subscription = subscription
        self._committer = committer
        self._queue = CommitQueue(subscription)
        self._one_at_a_time = asyncio.Lock()

    @property
    def group_id(self) -> str:
        return self._coordinator.group_id

    # --- committing -------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None, timeout_ms: float) -> None:
        """Commit `offsets`, or all positions if None. Raises CommitFailed, RebalanceInProgress (the
        group is rebalancing, or a partition was revoked before its offset was sent), or
        RequestTimedOut if no retry succeeded within `timeout_ms`."""
        await self._carry_out(self._enqueue(offsets), timeout_ms)

    def commit_soon(self, offsets: Offsets | None, timeout_ms: float) -> asyncio.Task[None]:
        """Begin a `commit` in a task. The commit is in the queue when this method returns."""
        commit = self._enqueue(offsets)
        return self._begin(self._carry_out(commit, timeout_ms), commit)

    async def commit_quietly(self, offsets: Offsets | None, timeout_ms: float, when: str) -> None:
        """Commit. An error is only logged, because a later commit will include the offsets."""
        await self._carry_out_quietly(self._enqueue(offsets), timeout_ms, when)

    def commit_quietly_soon(
        self, offsets: Offsets, timeout_ms: float, when: str
    ) -> asyncio.Task[None]:
        """Begin a `commit_quietly` in a task. The commit is in the queue when this method
        returns."""
        commit = self._enqueue(offsets)
        return self._begin(self._carry_out_quietly(commit, timeout_ms, when), commit)

    def commit_automatically(
        self, offsets: Offsets, ended: Callable[[OdradekError | WireError | None], None]
    ) -> asyncio.Task[None]:
        """Send a commit once, in a task. Partitions that are revoked before it is sent are left
        out. `ended` is called with the error, or None."""
        commit = self._queue.add(offsets, self._network.loop, automatic=True)
        return self._begin(self._carry_out_automatically(commit, ended), commit)

    def pending(self) -> Collection[Commit]:
        """The commits that have not ended."""
        return self._queue.pending()

    async def wait_until_ended(self, timeout_ms: float, but: Collection[Commit] = ()) -> None:
        """Wait until the commits that have begun, except those in `but`, have ended, or until the
        timeout."""
        await self._queue.wait_until_ended(timeout_ms, but)

    def _enqueue(self, offsets: Offsets | None) -> Commit:
        if offsets is None:
            offsets = self._subscription.consumed()
        return self._queue.add(offsets, self._network.loop)

    def _begin(self, work: Coroutine[Any, Any, None], commit: Commit) -> asyncio.Task[None]:
        # Even a commit that was cancelled before it began must leave the queue.
        return begin(
            self._network.loop,
            work,
            f"a commit of group {self.group_id!r}",
            lambda _: self._queue.end(commit, asyncio.CancelledError()),
        )

    async def _carry_out_quietly(self, commit: Commit, timeout_ms: float, when: str) -> None:
        try:
            await self._carry_out(commit, timeout_ms)
        except (OdradekError, WireError) as error:
            log.warning("group %s: the automatic commit %s failed: %s", self.group_id, when, error)

    async def _carry_out_automatically(
        self, commit: Commit, ended: Callable[[OdradekError | WireError | None], None]
    ) -> None:
        try:
            await self._carry_out(commit, self._config.default_api_timeout_ms, tries=1)
        except (OdradekError, WireError) as error:
            ended(error)
        else:
            ended(None)

    async def _carry_out(self, commit: Commit, timeout_ms: float, tries: int | None = None) -> None:
        retries = Retries(tries)
        try:
            await self._coordinator.within(timeout_ms, retries, self._send_in_turn(commit, retries))
        except BaseException as error:
            self._queue.end(commit, error)
            raise
        self._queue.end(commit, None)

    async def _send_in_turn(self, commit: Commit, retries: Retries) -> None:
        """Send the offsets that no newer commit supersedes. For the other offsets, await the
        outcome of the commits that supersede them."""
        newer_commits: Collection[Commit] = ()
        if commit.offsets:
            async with self._one_at_a_time:
                sent = await self._send(commit, retries)
            newer_commits = {
                newer for each, newer in commit.superseded_by.items() if each not in sent
            }
        for newer in newer_commits:
            outcome = await asyncio.shield(newer.outcome)
            if isinstance(outcome, OdradekError | WireError):
                raise outcome
            if outcome is not None:
                raise RequestTimedOut(
                    f"group {self.group_id!r}: not committed; a newer commit of the same partitions "
                    f"had taken its place, and was given up"
                )

    async def _send(self, commit: Commit, retries: Retries) -> Collection[TopicPartition]:
        """Send the commit, without partitions that a newer commit supersedes. Returns the
        partitions that were sent."""
        committer = self._committer
        used: Identity | None = None
        sent: Collection[TopicPartition] = ()

        async def request(node_id: int) -> Message | None:
            nonlocal used, sent
            sent = remaining = commit.remaining()
            self._leave_out_given_up(commit, remaining)
            if not remaining:
                return None
            now = committer.identity()
            if used is None:
                used = now
            elif not committer.is_same_member(used, now):
                raise self._rebalanced("", "the group was rebalanced meanwhile")
            return offset_commit_request(
                self.group_id,
                remaining,
                generation=used.generation,
                member_id=used.member_id,
                group_instance_id=used.group_instance_id,
            )

        def read(response: OffsetCommitResponse) -> CoordinatorRetry | None:
            refused = used
            assert refused is not None

            def may_retry(code: ErrorCode) -> bool:
                nonlocal used
                if not committer.may_commit_again(code, refused):
                    return False
                used = None
                return True

            try:
                return read_offset_commit(
                    response,
                    self.group_id,
                    lambda code: committer.on_commit_refused(code, refused),
                    may_retry,
                )
            except RebalanceInProgress as error:
                if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                    committer.on_rebalance_in_progress()
                raise

        await self._coordinator.ask(request, OFFSET_COMMIT_NEWEST, read, retries)
        return sent

    def _leave_out_given_up(
        self, commit: Commit, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Remove from `offsets` the partitions that were revoked since the commit began, even if
        they were assigned again. If there are any and the commit is not automatic, raise
        RebalanceInProgress instead."""
        subscription = self._subscription
        if not subscription.by_group:
            return
        given_up = [
            each
            for each in offsets
            if subscription.get(each) is not commit.partition_states[each]
            or (commit.partition_states[each] is None and each in subscription.given_up)
        ]
        if given_up and not commit.automatic:
            names = ", ".join(map(describe, sorted(given_up)))
            raise self._rebalanced(f", {names}", "this consumer has given the partitions up")
        for each in given_up:
            del offsets[each]

    def _rebalanced(self, partitions: str, why: str) -> RebalanceInProgress:
        return RebalanceInProgress(
            f"group {self.group_id!r}{partitions}: not committed, {why}; poll, then commit what is "
            f"still assigned",
            code=ErrorCode.REBALANCE_IN_PROGRESS,
        )

    # --- fetching ---------------------------------------------------------------------------------

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets. RequestTimedOut if retries did not help."""
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        coordinator = self._coordinator

        def read(response: OffsetFetchResponse) -> CoordinatorRetry | None:
            answer = read_offset_fetch(response, self.group_id)
            if isinstance(answer, CoordinatorRetry):
                return answer
            found.update(answer)
            return None

        async def request(node_id: int) -> Message:
            version = await coordinator.version_for(
                node_id, ApiKey.OFFSET_FETCH, max_version=OFFSET_FETCH_NEWEST
            )
            return offset_fetch_request(
                self.group_id, partitions, require_stable=version >= REQUIRE_STABLE_SINCE
            )

        retries = Retries()
        await coordinator.within(
            timeout_ms, retries, coordinator.ask(request, OFFSET_FETCH_NEWEST, read, retries)
        )
        return found
