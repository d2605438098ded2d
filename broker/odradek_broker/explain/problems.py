"""The present problems of a broker as sentences (DescribeBroker), for the first page of the console
and for `odradek top`.

A problem names the subject whose history DescribeHistory returns.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

from odradek_broker.coordinator.transactions.transaction import Transaction, TransactionState
from odradek_broker.explain.sentences import duration_text
from odradek_broker.slices import with_pauses
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_directory import LogDirectory
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.schemas import describe_history as wire
from odradek_protocol.schemas.describe_broker import Problem

#: The limit of the problems of one kind. The number of further problems is shown as one more
#: problem.
EACH_MAX = 20
#: An open transaction is a problem when it has used this fraction of its timeout, or has been open
#: for TRANSACTION_OPEN_MS.
TRANSACTION_TIMEOUT_SHARE = 0.5
TRANSACTION_OPEN_MS = 60_000


def problem(name: str, text: str, subject_type: int = 0, subject: str = "") -> Problem:
    """A problem with its subject in DescribeHistory; the type 0 stands for no subject."""
    return Problem(name=name, text=text, subject_type=subject_type, subject=subject)


async def find_problems(
    directories: Sequence[LogDirectory],
    logs: Iterable[PartitionLog],
    uncleanable: Mapping[TopicPartition, str],
    transactions: Iterable[Transaction],
    groups: Iterable[tuple[str, str]],
    wall_ms: int,
) -> list[Problem]:
    """The problems of disks, partitions, compaction, transactions and groups, the worst first.
    `groups`: each group that is not OK, with the sentence about it."""
    found: list[Problem] = []
    for directory in directories:
        if directory.failure:
            text = (
                f"the data directory {directory.path} has failed, and its partitions are offline"
                f" until a start can use it: {directory.failure}"
            )
            found.append(problem("log_directory_failed", text))
        elif directory.disk.problem:
            text = f"the data directory {directory.path} takes no writes: {directory.disk.problem}"
            found.append(problem("log_directory_not_writable", text))
    for name, text, problems in (
        ("partition_offline", "partitions are offline", _offline(logs)),
        ("compaction_stopped", "partitions are not compacted", _not_compacted(uncleanable)),
        (
            "transaction_open",
            "transactions have been open for long",
            _open_transactions(transactions, wall_ms),
        ),
        ("group_behind", "groups are not OK", map(_group, groups)),
    ):
        found += await with_pauses(_limited(name, text, problems))
    return found


def _limited(
    name: str, text: str, problems: Iterator[Problem | None]
) -> Generator[None, None, list[Problem]]:
    """The first problems of one kind, and the number of others, with a pause for each that was
    looked at."""
    found: list[Problem] = []
    more = 0
    for each in problems:
        if each is not None and len(found) < EACH_MAX:
            found.append(each)
        elif each is not None:
            more += 1
        yield
    return [*found, problem(name, f"{more} more {text}")] if more else found


def _offline(logs: Iterable[PartitionLog]) -> Iterator[Problem | None]:
    for log in logs:
        if not log.offline:
            yield None
            continue
        text = (
            f"{log.name} is offline because of a disk error: its records can be neither written nor"
            " read"
        )
        yield problem("partition_offline", text, wire.PARTITION, log.name)


def _not_compacted(uncleanable: Mapping[TopicPartition, str]) -> Iterator[Problem | None]:
    for (name, index), reason in list(uncleanable.items()):
        yield problem(
            "compaction_stopped",
            f"{name}-{index} is not compacted any more until the next start: {reason}",
            wire.PARTITION,
            f"{name}-{index}",
        )


def _group(found: tuple[str, str]) -> Problem:
    group_id, text = found
    return problem("group_behind", f"group {group_id!r} is {text}", wire.GROUP, group_id)


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _open_transactions(
    transactions: Iterable[Transaction], wall_ms: int
) -> Iterator[Problem | None]:
    for each in list(transactions):
        yield None
        if each.state is not TransactionState.ONGOING:
            continue
        open_ms = wall_ms - each.start_ms
        limit_ms = TRANSACTION_OPEN_MS
        if each.has_timeout:
            limit_ms = min(limit_ms, int(each.timeout_ms * TRANSACTION_TIMEOUT_SHARE))
        if open_ms < limit_ms:
            continue
        end = "and has no timeout"
        if each.has_timeout:
            end = f"and ends by itself after {duration_text(each.timeout_ms)}"
        yield problem(
            "transaction_open",
            f"transaction {each.transactional_id!r} has been open for {duration_text(open_ms)}, {end};"
            f" consumers with read_committed wait there in {_partitions(len(each.partitions))}",
            wire.TRANSACTIONAL_ID,
            each.transactional_id,
        )
