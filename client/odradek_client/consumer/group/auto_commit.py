"""Automatic commits: the positions of earlier polls, every auto.commit.interval.ms (K-39)."""

from __future__ import annotations

import asyncio
import logging

from odradek_client.config.consumer import ConsumerConfig
from odradek_client.consumer.group.offsets import GroupOffsets
from odradek_client.consumer.subscription_state import SubscriptionState
from odradek_client.consumer.tasks import cancel
from odradek_client.errors import OdradekError, Retriable
from odradek_client.network.client import NetworkClient
from odradek_protocol.primitives import WireError

log = logging.getLogger("odradek.client.consumer")


class AutoCommit:
    """One consumer's automatic commits; nothing unless enable.auto.commit."""

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
        """Begin to commit what earlier polls returned, if it is time and no such commit is going on."""
        if not self._config.enable_auto_commit or self._network.now_ms() < self._next_ms:
            return
        if self._task is not None and not self._task.done():
            return
        self.restart_timer()
        offsets = self._subscription.consumed()
        if offsets:
            self._task = self._offsets.commit_automatically(offsets, self._commit_ended)

    def _commit_ended(self, error: OdradekError | WireError | None) -> None:
        """A failed commit is not sent again: the positions of a later poll are, and soon if the error may
        pass."""
        if error is None:
            self._failed = False
        elif isinstance(error, Retriable):
            self._next_ms = self._network.now_ms() + self._config.retry_backoff_ms
            level = logging.DEBUG if self._failed else logging.WARNING
            self._failed = True
            log.log(
                level,
                "group %s: automatic commit in background, to be tried again: %s",
                self._offsets.group_id,
                error,
            )
        else:
            log.warning(
                "group %s: automatic commit in background: %s", self._offsets.group_id, error
            )

    def restart_timer(self) -> None:
        """The next automatic commit a whole interval from now."""
        self._next_ms = self._network.now_ms() + self._config.auto_commit_interval_ms

    def due_in_ms(self) -> float | None:
        """How long until the next automatic commit; None if there are none, or if it is due and has to
        wait for something else."""
        left_ms = self._next_ms - self._network.now_ms()
        return left_ms if self._config.enable_auto_commit and left_ms > 0 else None

    async def stop(self) -> None:
        """End a commit that is going on; one at the end has the same positions, or newer ones."""
        task, self._task = self._task, None
        await cancel(task)
