"""RebalanceListener: code of the application that runs when partitions are assigned and revoked."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable

from odradek_client.structs import TopicPartition

Callback = Callable[[set[TopicPartition]], Awaitable[None] | None]


class RebalanceListener:
    """The listener of a group's rebalances: subclass it, and override the methods that you need,
    with plain or coroutine functions.

    The methods run in the task that polls, never in the background (K-33), in this order: revoked,
    then assigned. The poll raises their exceptions.
    """

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions are revoked: the last moment to commit their processed
        records."""

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called with new partitions. Positions may be set here with `seek`."""

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> Awaitable[None] | None:
        """Called with partitions that may already belong to other members; commits would be
        refused. Calls `on_partitions_revoked` unless overridden."""
        return self.on_partitions_revoked(partitions)


async def call(callback: Callback, partitions: Iterable[TopicPartition]) -> None:
    """Call a method of a listener, and wait for it if it is a coroutine function."""
    answer = callback(set(partitions))
    if inspect.isawaitable(answer):
        await answer
