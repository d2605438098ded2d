"""Waiting work of coordinators: deadlines, markers in flight, parked requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek_broker.coordinator.groups.deadlines import GroupTimer as GroupDeadline
from odradek_broker.coordinator.runtime import Runtime, RuntimeState
from odradek_broker.coordinator.shards import Shards
from odradek_broker.coordinator.share.shard import Periodic
from odradek_broker.coordinator.transactions.completion import (
    TransactionTimer as TransactionDeadline,
)
from odradek_broker.coordinator.transactions.shard import TransactionShard
from odradek_broker.node import Node

#: A deadline may be overdue by this time, because the loop's timer is a little late.
_LATE_MS = 1_000
#: The cancelled deadlines in a coordinator's heap may exceed the valid ones by at most this number.
_STALE_MAX = 64
#: Deadlines that are always set.
_SCANS = (GroupDeadline.EXPIRY, TransactionDeadline.EXPIRY, TransactionDeadline.TIMEOUTS)


def check_coordinators(node: Node) -> Iterator[str]:
    """Yield overdue deadlines, and state kept without a reason; may be called at any time."""
    now_ms = node.clock.monotonic_ms()
    for name, shards in _coordinators(node):
        for runtime in shards:
            if runtime.state is RuntimeState.ACTIVE:
                yield from _check_timers(f"a {name} shard", runtime, now_ms)
    for runtime in node.transactions.shards:
        if runtime.state is RuntimeState.ACTIVE:
            yield from _check_markers(runtime.core)


def _coordinators(node: Node) -> Iterator[tuple[str, Shards[Any]]]:
    yield "group", node.groups.shards
    yield "transaction", node.transactions.shards
    yield "share state", node.share_state.shards


def _check_timers(where: str, runtime: Runtime[Any], now_ms: int) -> Iterator[str]:
    for timers in (runtime.core.timers, runtime._append_timeouts):
        if len(timers._heap) > 2 * len(timers) + _STALE_MAX:
            yield f"{where} has {len(timers._heap)} deadlines in its heap, and {len(timers)} count"
        for name, (at_ms, _) in timers._deadlines.items():
            if at_ms < now_ms - _LATE_MS:
                yield f"{where} has not acted on {name} for {now_ms - at_ms} ms"


def _check_markers(shard: TransactionShard) -> Iterator[str]:
    if shard.outbox:
        yield f"{len(shard.outbox)} effects of a transaction shard are not carried out"
    under_way, parked = shard.completion.under_way, shard.parking.calls
    for name in under_way:
        if name not in shard.transactions:
            yield f"markers of {name!r} are on their way, which is no transactional id"
    for timer in shard.timers._deadlines:
        if timer.kind is TransactionDeadline.MARKERS and timer.transactional_id not in under_way:
            yield f"markers of {timer.transactional_id!r} are due, and none are left"
        if timer.kind is TransactionDeadline.PARKED and timer not in parked:
            yield f"a call for {timer.transactional_id!r} is given up later, and none is parked"
    for timer in parked:
        if timer not in shard.timers:
            yield f"a call for {timer.transactional_id!r} is parked for ever"


def waiting_in_coordinators(node: Node) -> dict[str, int]:
    """The number of waiting items, deadlines included, for a check after all clients have ended."""
    waiting: dict[str, int] = {}
    for name, shards in _coordinators(node):
        for runtime in shards:
            waiting[f"answers that wait in a {name} shard"] = runtime.waiting_answers
            for timer in runtime.core.timers._deadlines:
                if not isinstance(timer, Periodic) and timer.kind not in _SCANS:
                    waiting[f"deadlines of a {name} shard ({timer})"] = 1
    for shard in node.transactions.shards.cores:
        waiting["calls parked by a transaction shard"] = len(shard.parking.calls)
        waiting["transactions that wait for markers"] = len(shard.completion.under_way)
        waiting["decided transactions that nobody ends"] = sum(
            held.state.is_prepared for held in shard.transactions.values()
        )
    for core in node.groups.shards.cores:
        for group in core.groups.values():
            for member in group.members.values():
                if member.awaits:
                    waiting[f"parked calls of {member.member_id} in {group.group_id}"] = 1
    return waiting
