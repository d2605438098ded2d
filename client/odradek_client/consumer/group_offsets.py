"""The offsets that a group keeps: committing and fetching them, and the commit in the background.

Whether the group's protocol is the classic or the next one is the same here, but for who this
consumer is in it, which `Standing` says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from odradek_client.config import ConsumerConfig
from odradek_client.consumer.errors import describe
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
from odradek_client.consumer.subscription import PartitionState, SubscriptionState
from odradek_client.consumer.types import OffsetAndMetadata, TopicPartition
from odradek_client.errors import (
    CoordinatorUnavailable,
    OdradekError,
    RebalanceInProgress,
    RequestTimedOut,
    Retriable,
)
from odradek_client.network import Network
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.message import Message
from odradek_protocol.primitives import WireError
from odradek_protocol.schemas.offset_commit import OffsetCommitResponse

log = logging.getLogger("odradek.client.consumer")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Identity(NamedTuple):
    """Whose commit it is; generation -1 and no member id: nobody's in particular (O-04).

    `generation`: of the classic protocol, the member epoch of the next one.
    """

    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Standing(Protocol):
    """How a consumer stands in its group."""

    def identity(self) -> Identity:
        """As who to commit now. RebalanceInProgress if nobody's commit would be taken."""

    def refused(self, code: ErrorCode, identity: Identity) -> bool:
        """The coordinator refused a commit of `identity`. Whether polling puts it right (K-38)."""

    def renewed(self, code: ErrorCode, identity: Identity) -> bool:
        """Whether the same commit may be tried again, because the identity has changed since."""

    def still(self, identity: Identity, now: Identity) -> bool:
        """Whether who was `identity` when a commit was first tried may try it again, being `now`."""

    def told_of_rebalance(self) -> None:
        """A commit was answered REBALANCE_IN_PROGRESS."""


class _Commit:
    """One wish to have offsets committed, from the moment it is made.

    `held`: each partition's state at that moment. A partition that went and came back has another one,
    and somebody else may have committed it in between.
    `newer`: per partition, the wish that has taken this one's place.
    `asked_for`: by the application, and not due in the background.
    """

    __slots__ = ("asked_for", "held", "newer", "offsets", "outcome")

    def __init__(
        self,
        offsets: Offsets,
        subscription: SubscriptionState,
        outcome: asyncio.Future[BaseException | None],
        *,
        asked_for: bool,
    ) -> None:
        self.asked_for = asked_for
        self.offsets = dict(offsets)
        self.held: dict[TopicPartition, PartitionState | None] = {
            each: subscription.get(each) for each in offsets
        }
        self.newer: dict[TopicPartition, _Commit] = {}
        self.outcome = outcome

    def left(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {each: at for each, at in self.offsets.items() if each not in self.newer}


class _Tries:
    """How often a question may be put, None for any number, and what the last try met."""

    __slots__ = ("left", "trouble")

    def __init__(self, left: int | None = None) -> None:
        self.left = left
        self.trouble: OdradekError | None = None


class GroupOffsets:
    """One consumer's commits to its group.

    Commits are carried out one at a time, and none undoes a newer one: a commit that waits for its
    turn, or for another try, leaves to a newer one the partitions that both have. It goes under the
    member id and generation of its first try, and never for a partition that has been given up since.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        group_id: str,
        network: Network,
        subscription: SubscriptionState,
        standing: Standing,
    ) -> None:
        self._config = config
        self._group_id = group_id
        self._network = network
        self._subscription = subscription
        self._standing = standing
        self._auto_commit: asyncio.Task[None] | None = None
        self._auto_failed = False
        self._next_commit_ms = 0.0
        #: Commits that are not over, and the newest of each partition.
        self._line: dict[_Commit, None] = {}
        self._newest: dict[TopicPartition, _Commit] = {}
        self._in_background: _Commit | None = None
        self._turn = asyncio.Lock()

    # --- the commit in the background (K-39) ------------------------------------------------------

    def commit_if_due(self) -> None:
        """What earlier polls returned, in the background, if it is time."""
        now_ms = self._network.now_ms()
        if not self._config.enable_auto_commit or now_ms < self._next_commit_ms:
            return
        if self._auto_commit is not None and not self._auto_commit.done():
            return
        self.restart_timer()
        offsets = self._subscription.consumed()
        if offsets:
            call = self._wish(offsets, asked_for=False)
            self._auto_commit = self._begin(self._commit_in_background(call), call)

    async def _commit_in_background(self, call: _Commit) -> None:
        """One try: what failed is not sent again, the positions of a later poll are."""
        try:
            await self._finish(call, self._config.default_api_timeout_ms, tries=1)
        except Retriable as error:
            self._next_commit_ms = self._network.now_ms() + self._config.retry_backoff_ms
            level = logging.DEBUG if self._auto_failed else logging.WARNING
            self._auto_failed = True
            log.log(
                level,
                "group %s: automatic commit in background, to be tried again: %s",
                self._group_id,
                error,
            )
        except (OdradekError, WireError) as error:
            log.warning("group %s: automatic commit in background: %s", self._group_id, error)
        else:
            self._auto_failed = False

    def restart_timer(self) -> None:
        """The next commit in the background a whole interval from now."""
        self._next_commit_ms = self._network.now_ms() + self._config.auto_commit_interval_ms

    def due_in_ms(self) -> float | None:
        """How long until the next commit in the background; None if there are none, or if it is due
        and has to wait for something else."""
        left_ms = self._next_commit_ms - self._network.now_ms()
        return left_ms if self._config.enable_auto_commit and left_ms > 0 else None

    async def stop(self) -> None:
        """End a commit in the background that is going on; one at the end has the same, or newer."""
        task, self._auto_commit = self._auto_commit, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def commit_quietly(self, offsets: Offsets | None, timeout_ms: float, when: str) -> None:
        """Commit; what fails is logged, and comes again with the next commit or the next reader."""
        await self._finish_quietly(self._wish_for(offsets), timeout_ms, when)

    def commit_quietly_soon(
        self, offsets: Offsets, timeout_ms: float, when: str
    ) -> asyncio.Task[None]:
        """`commit_quietly`, beside the caller; it is in line when this returns."""
        call = self._wish_for(offsets)
        return self._begin(self._finish_quietly(call, timeout_ms, when), call)

    async def _finish_quietly(self, call: _Commit, timeout_ms: float, when: str) -> None:
        try:
            await self._finish(call, timeout_ms)
        except (OdradekError, WireError) as error:
            log.warning("group %s: automatic commit %s: %s", self._group_id, when, error)

    # --- committing -------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None, timeout_ms: float) -> None:
        """Commit `offsets`, or all positions if None. Raises CommitFailed; RebalanceInProgress, also for
        partitions that this consumer has given up; or RequestTimedOut when retrying did not help within
        `timeout_ms`."""
        await self._finish(self._wish_for(offsets), timeout_ms)

    def commit_soon(self, offsets: Offsets | None, timeout_ms: float) -> asyncio.Task[None]:
        """`commit`, carried out beside the caller; it is in line when this returns."""
        call = self._wish_for(offsets)
        return self._begin(self._finish(call, timeout_ms), call)

    def under_way(self) -> Collection[object]:
        """The commits that are not over."""
        return set(self._line)

    async def settled(self, timeout_ms: float, but: Collection[object] = ()) -> None:
        """Until the commits that were begun, `but` these, are over; at most so long."""
        outcomes = [call.outcome for call in self._line if call not in but]
        if outcomes:
            await asyncio.wait(outcomes, timeout=timeout_ms / 1000)

    def _begin(self, work: Coroutine[Any, Any, None], call: _Commit) -> asyncio.Task[None]:
        task = self._network.loop.create_task(work)
        # Also one that was cancelled before it began must not stay in line.
        task.add_done_callback(lambda _: self._settle(call, asyncio.CancelledError()))
        return task

    def _wish_for(self, offsets: Offsets | None) -> _Commit:
        return self._wish(self._subscription.consumed() if offsets is None else offsets)

    def _wish(self, offsets: Offsets, *, asked_for: bool = True) -> _Commit:
        """Into the line, at once: it is newer than all that are in it."""
        outcome = self._network.loop.create_future()
        call = _Commit(offsets, self._subscription, outcome, asked_for=asked_for)
        self._line[call] = None
        if not asked_for:
            # One try, in its turn, and nothing that was asked for makes way for it.
            self._in_background = call
            return call
        for partition in call.offsets:
            for older in (self._newest.get(partition), self._in_background):
                if older is not None and partition in older.offsets:
                    older.newer[partition] = call
            self._newest[partition] = call
        return call

    def _settle(self, call: _Commit, outcome: BaseException | None) -> None:
        self._line.pop(call, None)
        if self._in_background is call:
            self._in_background = None
        for partition in call.offsets:
            if self._newest.get(partition) is call:
                del self._newest[partition]
        if not call.outcome.done():
            call.outcome.set_result(outcome)

    async def _finish(self, call: _Commit, timeout_ms: float, tries: int | None = None) -> None:
        limit = _Tries(tries)
        try:
            await self._in_time(self._carry_out(call, limit), limit, timeout_ms)
        except BaseException as error:
            self._settle(call, error)
            raise
        self._settle(call, None)

    async def _carry_out(self, call: _Commit, tries: _Tries) -> None:
        replaced: Collection[_Commit] = ()
        if call.offsets:
            async with self._turn:
                sent = await self._send_commit(call, tries)
            replaced = {newer for each, newer in call.newer.items() if each not in sent}
        for newer in replaced:
            outcome = await asyncio.shield(newer.outcome)
            if isinstance(outcome, OdradekError | WireError):
                raise outcome
            if outcome is not None:
                raise RequestTimedOut(
                    f"group {self._group_id!r}: not committed; a newer commit of the same partitions "
                    f"had taken its place, and was given up"
                )

    async def _send_commit(self, call: _Commit, tries: _Tries) -> Collection[TopicPartition]:
        """The partitions that were committed: all that no newer commit has."""
        standing = self._standing
        used: Identity | None = None
        sent: Collection[TopicPartition] = ()

        async def request(node_id: int) -> Message | None:
            nonlocal used, sent
            sent = left = call.left()
            if not left:
                return None
            self._leave_out_gone(call, left)
            if not left:
                return None
            now = standing.identity()
            if used is None:
                used = now
            elif not standing.still(used, now):
                raise _rebalanced(f"group {self._group_id!r}", "the group was rebalanced meanwhile")
            return offset_commit_request(
                self._group_id,
                left,
                generation=used.generation,
                member_id=used.member_id,
                group_instance_id=used.group_instance_id,
            )

        def read(response: OffsetCommitResponse) -> bool | CoordinatorTrouble:
            refused = used
            assert refused is not None

            def renewed(code: ErrorCode) -> bool:
                nonlocal used
                if not standing.renewed(code, refused):
                    return False
                used = None
                return True

            try:
                trouble = read_offset_commit(
                    response, self._group_id, lambda code: standing.refused(code, refused), renewed
                )
            except RebalanceInProgress as error:
                if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                    standing.told_of_rebalance()
                raise
            return trouble or True

        await self._ask(request, OFFSET_COMMIT_NEWEST, read, tries)
        return sent

    def _leave_out_gone(
        self, call: _Commit, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """What was given up is not committed, even if it has come back. RebalanceInProgress for the
        application."""
        subscription = self._subscription
        if not subscription.by_group:
            return
        gone = [
            each
            for each in offsets
            if subscription.get(each) is not call.held[each]
            or (call.held[each] is None and each in subscription.given_up)
        ]
        if gone and call.asked_for:
            names = ", ".join(map(describe, sorted(gone)))
            raise _rebalanced(
                f"group {self._group_id!r}, {names}", "this consumer has given the partitions up"
            )
        for each in gone:
            del offsets[each]

    # --- fetching ---------------------------------------------------------------------------------

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

        tries = _Tries()
        await self._in_time(self._ask(request, OFFSET_FETCH_NEWEST, read, tries), tries, timeout_ms)
        return found

    # --- asking the coordinator -------------------------------------------------------------------

    async def _in_time(
        self, work: Coroutine[Any, Any, None], tries: _Tries, timeout_ms: float
    ) -> None:
        """RequestTimedOut, with the last failure as its cause, after `timeout_ms`. What is on the wire
        then stays there: what is sent after it is carried out after it."""
        try:
            async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                await work
        except TimeoutError as error:
            if isinstance(error, OdradekError):
                raise
            trouble = tries.trouble
            raise RequestTimedOut(
                f"group {self._group_id!r}: the coordinator did not do it within {timeout_ms:.0f} ms"
                f"{f' ({trouble})' if trouble else ''}"
            ) from trouble

    async def _ask(
        self,
        request: Callable[[int], Awaitable[Message | None]],
        max_version: int,
        read: Callable[..., bool | CoordinatorTrouble],
        tries: _Tries,
    ) -> None:
        """Until `read` is satisfied or raises, or there is nothing to ask; raises what the last try met
        when there are none left."""
        while True:
            try:
                node_id = await self._network.find_coordinator(self._group_id)
                message = await request(node_id)
                if message is None:
                    return
                response = await self._network.send(
                    node_id,
                    message,
                    channel="coordinator",
                    max_version=max_version,
                    timeout_ms=self._config.request_timeout_ms,
                )
            except Retriable as error:
                tries.trouble = error
                self._network.forget_coordinator(self._group_id)
            else:
                answer = read(response)
                if answer is True:
                    return
                tries.trouble = CoordinatorUnavailable(
                    f"group {self._group_id!r}: the coordinator cannot do it now"
                )
                if answer is CoordinatorTrouble.REDISCOVER:
                    self._network.forget_coordinator(self._group_id)
            if tries.left is not None:
                tries.left -= 1
                if tries.left <= 0:
                    raise tries.trouble
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)


def _rebalanced(about: str, why: str) -> RebalanceInProgress:
    return RebalanceInProgress(
        f"{about}: not committed, {why}; poll, then commit what is still assigned",
        code=ErrorCode.REBALANCE_IN_PROGRESS,
    )
