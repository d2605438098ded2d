"""The offsets that a group keeps: committing and fetching them, and the commit in the background.

Whether the group's protocol is the classic or the next one is the same here, but for who this
consumer is in it, which `Standing` says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from odradek_client.config import ConsumerConfig
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
from odradek_client.consumer.subscription import SubscriptionState
from odradek_client.consumer.types import OffsetAndMetadata, TopicPartition
from odradek_client.errors import (
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

    def told_of_rebalance(self) -> None:
        """A commit was answered REBALANCE_IN_PROGRESS."""


class GroupOffsets:
    """One consumer's commits to its group."""

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
        self._next_commit_ms = 0.0

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
            self._auto_commit = self._network.loop.create_task(
                self.commit_quietly(offsets, self._config.default_api_timeout_ms, "in background")
            )

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
        try:
            await self.commit(offsets, timeout_ms)
        except (OdradekError, WireError) as error:
            log.warning("group %s: automatic commit %s: %s", self._group_id, when, error)

    # --- committing -------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None, timeout_ms: float) -> None:
        """Commit `offsets`, or all positions if None. Raises CommitFailed, RebalanceInProgress, or
        RequestTimedOut when retrying did not help within `timeout_ms`."""
        if offsets is None:
            offsets = self._subscription.consumed()
        if not offsets:
            return
        given, standing = offsets, self._standing
        used = standing.identity()

        async def request(node_id: int) -> Message:
            # Made anew for every try: a member's epoch may have been raised meanwhile.
            nonlocal used
            used = standing.identity()
            return offset_commit_request(
                self._group_id,
                given,
                generation=used.generation,
                member_id=used.member_id,
                group_instance_id=used.group_instance_id,
            )

        def read(response: OffsetCommitResponse) -> bool | CoordinatorTrouble:
            try:
                return (
                    read_offset_commit(
                        response,
                        self._group_id,
                        lambda code: standing.refused(code, used),
                        lambda code: standing.renewed(code, used),
                    )
                    or True
                )
            except RebalanceInProgress as error:
                if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                    standing.told_of_rebalance()
                raise

        await self._ask(request, OFFSET_COMMIT_NEWEST, read, timeout_ms)

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

        await self._ask(request, OFFSET_FETCH_NEWEST, read, timeout_ms)
        return found

    async def _ask(
        self,
        request: Callable[[int], object],
        max_version: int,
        read: Callable[..., bool | CoordinatorTrouble],
        timeout_ms: float,
    ) -> None:
        """Until `read` is satisfied or raises; RequestTimedOut, with the last failure as its cause."""
        deadline_ms = self._network.now_ms() + timeout_ms
        trouble: OdradekError | None = None
        while (left_ms := deadline_ms - self._network.now_ms()) > 0:
            try:
                node_id = await self._network.find_coordinator(self._group_id)
                message: Message = await request(node_id)  # type: ignore[misc]
                response = await self._network.send(
                    node_id,
                    message,
                    channel="coordinator",
                    max_version=max_version,
                    timeout_ms=min(left_ms, self._config.request_timeout_ms),
                )
            except Retriable as error:
                trouble = error
                self._network.forget_coordinator(self._group_id)
            else:
                answer = read(response)
                if answer is True:
                    return
                if answer is CoordinatorTrouble.REDISCOVER:
                    self._network.forget_coordinator(self._group_id)
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
        raise RequestTimedOut(
            f"group {self._group_id!r}: the coordinator did not do it within {timeout_ms:.0f} ms"
            f"{f' ({trouble})' if trouble else ''}"
        ) from trouble
