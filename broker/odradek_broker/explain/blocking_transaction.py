"""The transaction that keeps the last stable offset of a partition from advancing (`odradek explain
partition`)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from odradek_broker.coordinator.transactions.transaction import Transaction, TransactionState
from odradek_broker.explain.history import Fields, SubjectState
from odradek_broker.explain.sentences import EventKind, duration_text
from odradek_broker.storage.log import PartitionLog
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.lazy_tuple import NamedTuple

_S = TransactionState


class BlockedPartition(NamedTuple):
    """A partition whose last stable offset is below the high watermark.

    `producer_id`, `epoch`: the producer of the earliest open transaction; None if the blocking
    transaction has ended, but its marker is not durable yet. `open_behind`: the number of open
    transactions after the blocking transaction.
    """

    where: TopicPartition
    last_stable_offset: int
    high_watermark: int
    producer_id: int | None
    epoch: int | None
    open_behind: int


def blocked_partition(log: PartitionLog) -> BlockedPartition | None:
    """The transaction that keeps the last stable offset from advancing; None if there is none.
    Raises StorageError."""
    producers = log.producers
    stable, high = log.last_stable_offset, log.high_watermark
    if stable >= high:
        return None
    where = (log.topic, log.partition)
    first = producers.first_open_transaction
    # The last stable offset is never below the log start, but a transaction may have begun below
    # it.
    if first is None or max(first[0], log.log_start_offset) != stable:
        return BlockedPartition(where, stable, high, None, None, producers.open_transactions)
    entry = producers.entry(first[1])
    epoch = None if entry is None else entry.epoch
    return BlockedPartition(where, stable, high, first[1], epoch, producers.open_transactions - 1)


def state_of_everything_stable(log: PartitionLog) -> SubjectState:
    """The state of a partition whose last stable offset is the high watermark."""
    return SubjectState.of(EventKind.NOW_STABLE, offset=log.high_watermark)


def state_of_blocked(
    blocked: BlockedPartition,
    owners: Sequence[Transaction] | None,
    *,
    may_read: bool,
    may_describe: bool,
    wall_ms: int,
) -> SubjectState:
    """The state of a partition whose last stable offset is below the high watermark.

    `owners`: the transactional ids with this producer id; None if the coordinator is not available.
    `may_read`: true if the producer id may be shown; `may_describe`: the transactional ids that may
    be shown.
    """
    fields: Fields = {
        "offset": blocked.last_stable_offset,
        "end": blocked.high_watermark,
        "more": blocked.open_behind or None,
    }
    if blocked.producer_id is None:
        fields["reason"] = "it has ended, and the marker of its end is not on disk yet"
    elif not may_read:
        fields["reason"] = "only clients that may READ the topic see its producer"
    else:
        fields |= {"producer_id": blocked.producer_id, "epoch": blocked.epoch}
        if owners is None:
            fields["reason"] = "its coordinator is not ready: run the command again"
        else:
            fields |= fields_of_owner(blocked, owners, may_describe, wall_ms)
    return SubjectState.of(EventKind.NOW_HELD_BACK, fields)


def fields_of_owner(
    blocked: BlockedPartition, owners: Sequence[Transaction], may_describe: bool, wall_ms: int
) -> Fields:
    """The fields about the transaction of a producer: the reason why it blocks, and how to end it.
    See `state_of_blocked`."""
    owner = next((each for each in owners if _is_open_in(each, blocked.where)), None)
    topic, partition = blocked.where
    if owner is None:
        place = (
            f"--topic {topic} --partition {partition} --start-offset {blocked.last_stable_offset}"
        )
        return {
            "reason": "no coordinator knows of it, so it never ends by itself (it hangs)",
            "advice": f"odradek txn abort {place} --execute",
        }
    if not may_describe:
        return {"reason": "only clients that may DESCRIBE its transactional id see its producer"}
    fields: Fields = {
        "transactional_id": owner.transactional_id,
        "age": duration_text(wall_ms - owner.start_ms),
        "start_ms": owner.start_ms,
    }
    if owner.state.is_prepared:
        fields["reason"] = f"its end is decided ({owner.state.label}), and its marker is on the way"
        return fields
    if owner.has_timeout:
        fields["timeout"] = duration_text(owner.timeout_ms)
    else:
        fields["reason"] = (
            "it waits for its client's decision as long as it takes (two-phase commit)"
        )
    fields["advice"] = f"odradek txn abort {shlex.quote(owner.transactional_id)} --execute"
    return fields


def _is_open_in(owner: Transaction, where: TopicPartition) -> bool:
    is_open = owner.state is _S.ONGOING or owner.state.is_prepared
    return is_open and where in owner.partitions
