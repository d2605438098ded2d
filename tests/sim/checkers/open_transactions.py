"""Checks that no transaction is open after the end of all clients: neither in the coordinator, nor
in partitions or offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek_broker.node import Node


def check_all_ended(node: Node, groups: Sequence[str] = ()) -> Iterator[str]:
    """Yield the transactions that are still open in a running broker. `groups`: the groups whose
    offsets are committed in transactions."""
    for held in node.transactions.transactions():
        if not held.state.is_idle:
            yield f"transactional id {held.transactional_id!r} is {held.state.label}"
    for log in node.logs:
        if log.loaded and not log.offline and log.last_stable_offset != log.high_watermark:
            yield (
                f"{log.name}: the last stable offset is {log.last_stable_offset}, and the high"
                f" watermark {log.high_watermark}"
            )
    for shard in node.groups.shards.cores:
        for group_id in groups:
            if shard.offsets.in_transaction(group_id):
                yield f"group {group_id!r} has offsets of an open transaction"
    if node.verification.waiting:
        yield f"{node.verification.waiting} batches wait for the word of the coordinator"
