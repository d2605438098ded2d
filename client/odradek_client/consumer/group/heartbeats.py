"""The heartbeats of a member to its group's coordinator, in a separate task, for consumers and
share consumers."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

from odradek_client.config.common import ClientConfig
from odradek_client.consumer.group.coordinator import ConsumerCoordinator
from odradek_client.consumer.group.membership import EpochMembership, Membership, MembershipAction
from odradek_client.errors import OdradekError, Retriable, UnsupportedByBroker
from odradek_client.network.client import NetworkClient
from odradek_client.tasks import LastingTask
from odradek_protocol.message import Message
from odradek_protocol.primitives import WireError

log = logging.getLogger("odradek.client.consumer")

#: The limit of the time by which leaving the group may delay a close.
LEAVE_TIMEOUT_MS = 5_000
#: A member that is fenced again within this time pauses before it joins again.
FENCED_AGAIN_MS = 1_000


class HeartbeatLoop(ABC):
    """The task of a member's heartbeats. It sends a heartbeat whenever the membership makes one
    due."""

    membership: Membership

    def __init__(
        self, config: ClientConfig, network: NetworkClient, membership: Membership
    ) -> None:
        self._group_id = membership.group_id
        self._network = network
        self.membership = membership
        self._coordinator = ConsumerCoordinator(config, self._group_id, network)
        self._heartbeats: LastingTask | None = None
        self._heartbeat_wanted = asyncio.Event()
        self._fenced_ms: int | None = None

    def _now_ms(self) -> int:
        return int(self._network.now_ms())

    def _start_heartbeats(self) -> None:
        if self._heartbeats is None:
            self._heartbeats = self._network.stop_at_close(
                LastingTask(
                    self._network.loop,
                    self._run_heartbeats,
                    f"the heartbeats to group {self._group_id!r}",
                    self._interrupted,
                )
            )

    def _interrupted(self, failure: OdradekError) -> None:
        """Called when others have ended the task, perhaps during a heartbeat."""
        self._heartbeat_wanted.set()

    async def _run_heartbeats(self) -> None:
        """Send a heartbeat whenever one is due, until cancelled."""
        while True:
            self._heartbeat_wanted.clear()
            wait_ms = self._heartbeat_due_ms()
            if wait_ms == 0:
                try:
                    await self._heartbeat()
                except Exception:
                    log.exception("group %s: a heartbeat failed", self._group_id)
                    await self._coordinator.back_off()
                continue
            try:
                async with asyncio.timeout(None if wait_ms < 0 else wait_ms / 1000):
                    await self._heartbeat_wanted.wait()
            except TimeoutError:
                pass

    def _heartbeat_due_ms(self) -> int:
        return self.membership.heartbeat_due_ms(self._now_ms())

    @abstractmethod
    async def _heartbeat(self) -> None:
        """Send a heartbeat, and act on its answer."""

    async def _act_on_heartbeat(self, action: MembershipAction) -> None:
        if action is MembershipAction.JOIN:
            fenced_ms, self._fenced_ms = self._fenced_ms, self._now_ms()
            if fenced_ms is not None and self._fenced_ms - fenced_ms < FENCED_AGAIN_MS:
                await self._coordinator.back_off()
        if action is MembershipAction.REDISCOVER:
            self._coordinator.forget()
        if action in (MembershipAction.REDISCOVER, MembershipAction.BACK_OFF):
            await self._coordinator.back_off()

    def _warn_poll_overdue(self) -> None:
        log.warning(
            "group %s: no poll for max_poll_interval_ms=%d, leaving; poll more often, raise it, "
            "or lower max_poll_records",
            self._group_id,
            self.membership.max_poll_interval_ms,
        )

    async def _stop_heartbeats(self) -> None:
        heartbeats, self._heartbeats = self._heartbeats, None
        if heartbeats is not None:
            await heartbeats.stopped()


class EpochHeartbeats(HeartbeatLoop):
    """The heartbeats of a member that sends no other requests. `_unsupported`: the text of the
    error if the broker does not support these heartbeats."""

    membership: EpochMembership
    _unsupported: str
    _log = log
    #: The request of the heartbeat that is in progress.
    _request: Message | None = None

    def _interrupted(self, failure: OdradekError) -> None:
        if self._request is not None:
            self.membership.on_no_answer(self._request, self._now_ms())

    async def _heartbeat(self) -> None:
        membership = self.membership
        self._request = None
        action = MembershipAction.GO_ON
        try:
            action = await self._send_heartbeat(await self._coordinator.find())
        except UnsupportedByBroker as error:
            text = f"{membership.about}: {self._unsupported} ({error})"
            membership.fail(UnsupportedByBroker(text))
        except (Retriable, WireError) as error:
            self._log.info("group %s: no answer to a heartbeat: %s", self._group_id, error)
            if self._request is not None:
                membership.on_no_answer(self._request, self._now_ms())
            action = MembershipAction.REDISCOVER
        except OdradekError as error:
            membership.fail(error)
        self._on_heartbeat_ended()
        await self._act_on_heartbeat(action)

    @abstractmethod
    async def _send_heartbeat(self, node_id: int) -> MembershipAction:
        """Send the next heartbeat, kept in `_request`, to the coordinator, and take the answer."""

    @abstractmethod
    def _on_heartbeat_ended(self) -> None:
        """React to the answer of a heartbeat, or to its absence."""

    async def _send_last_heartbeat(self) -> None:
        """Send the heartbeat that leaves the group."""
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                await self._heartbeat()
        except TimeoutError:
            self._log.info(
                "group %s: no coordinator answered the request to leave in time", self._group_id
            )
        finally:
            # The membership ends even without an answer, because a later attempt to leave would
            # affect the next membership.
            self.membership.left()
