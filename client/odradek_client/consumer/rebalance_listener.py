"""RebalanceListener: code of the application that runs when partitions come and go."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable

from odradek_client.structs import TopicPartition

Callback = Callable[[set[TopicPartition]], Awaitable[None] | None]


class RebalanceListener:
    """Subclass it, and override what you need; the methods may be plain or coroutine functions.

    They run in the task that polls, never in the background (K-33), in this order over one
    rebalance: revoked, then assigned. What they raise comes out of that poll.
    """

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """These are about to be given away: the last moment to commit what was done with them."""

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """These came. Positions may be sought here."""

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """These may be others' already; commits would be refused. As revoked, unless overridden."""
        return self.on_partitions_revoked(partitions)


async def call(callback: Callback, partitions: Iterable[TopicPartition]) -> None:
    """Call a method of a listener, and wait for it if it is a coroutine function."""
    answer = callback(set(partitions))
    if inspect.isawaitable(answer):
        await answer
