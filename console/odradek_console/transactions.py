"""Transactions: the list of transactional ids, the details of one transactional id, and the offsets
that open transactions hold back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from odradek_client.admin import Admin, TransactionDescription, TransactionListing
from odradek_client.admin.history import Subject
from odradek_client.admin.transactions import OPEN_STATES
from odradek_client.errors import OdradekError
from odradek_client.structs import TopicPartition
from odradek_console.answers import Column, HttpProblem, Json, page_of
from odradek_console.asked import Asked, View
from odradek_console.histories import history_of
from odradek_console.live import Feed
from odradek_console.sessions import ConsoleSession
from odradek_protocol.errors import ErrorCode
from odradek_records.lag import end_offsets

_KEEP_MS = 1_500
#: The maximum number of open transactions that are described. Only described transactions can be
#: sorted by age.
_OPEN_MAX = 2_000
#: The maximum number of partitions of one transaction whose ends are looked up.
PARTITIONS_MAX = 500


@dataclass
class Transactions:
    """All transactional ids that the principal may see, and descriptions of open transactions."""

    listed: list[TransactionListing]
    described: dict[str, TransactionDescription] = field(default_factory=dict)

    def open_since(self, name: str) -> int | None:
        """The time at which the open transaction of an id began; None if none is open."""
        found = self.described.get(name)
        return None if found is None or not found.is_open else found.start_ms


async def all_transactions(session: ConsoleSession) -> Transactions:
    """The list of all transactional ids, shared by the pages that need it."""

    async def ask(admin: Admin) -> Transactions:
        listed = await admin.list_transactions()
        being_open = [each.transactional_id for each in listed if each.state in OPEN_STATES]
        # A transactional id that expired after the list was made is left out.
        found = await admin.describe_transactions(being_open[:_OPEN_MAX], raise_errors=False)
        return Transactions(listed, dict(found))

    return await session.cached("transactions", _KEEP_MS, ask)


def is_open_on(table: Transactions, owner: TransactionListing | None, tp: TopicPartition) -> bool:
    """True if `owner` may have an open transaction with this partition. If this is False
    for all transactional ids, an open transaction in the partition is hanging, because no
    coordinator will end the transaction."""
    if owner is None:
        return False
    described = table.described.get(owner.transactional_id)
    # An open transaction that was not described may have the partition.
    return tp in described.partitions if described is not None else owner.state in OPEN_STATES


async def transactions(asked: Asked) -> Json:
    """A page of the transactional ids. The query may have `state`; "open" means all states in which
    read_committed consumers are held back."""
    table = await all_transactions(asked.session)
    state = asked.query.text("state", "")
    wanted = OPEN_STATES if state == "open" else (state,)
    rows = [each for each in table.listed if not state or each.state in wanted]
    columns = {
        "transactional_id": Column(lambda row: row.transactional_id),
        "state": Column(lambda row: row.state),
        "producer_id": Column(lambda row: row.producer_id),
        "coordinator": Column(lambda row: row.coordinator),
        "start_ms": Column(lambda row: table.open_since(row.transactional_id)),
    }
    page, about = page_of(
        rows, asked.query, columns, name=lambda row: row.transactional_id, sort="start_ms"
    )
    described = await _described(asked.session, table, page)
    held = await held_back(
        asked.session,
        {
            tp
            for each in described.values()
            if each.is_open
            for tp in each.partitions[:PARTITIONS_MAX]
        },
    )
    return {
        **about,
        "now_ms": _now_ms(),
        "states": dict(sorted(Counter(each.state for each in table.listed).items())),
        "open": sum(each.state in OPEN_STATES for each in table.listed),
        "rows": [_row(row, described.get(row.transactional_id), held) for row in page],
    }


async def _described(
    session: ConsoleSession, table: Transactions, page: Sequence[TransactionListing]
) -> dict[str, TransactionDescription]:
    names = [each.transactional_id for each in page]
    unknown = tuple(name for name in names if name not in table.described)
    if not unknown:
        return table.described
    found = await session.cached(
        ("transactions", *unknown),
        _KEEP_MS,
        lambda admin: admin.describe_transactions(unknown, raise_errors=False),
    )
    return table.described | dict(found)


@dataclass(frozen=True)
class Held:
    """The last stable offset and the end of a partition; consumers with read_committed do not see
    the records between them."""

    stable: int
    end: int

    @property
    def hidden(self) -> int:
        """The number of hidden offsets."""
        return max(self.end - self.stable, 0)


async def held_back(
    session: ConsoleSession, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Held]:
    """The last stable offsets and ends of partitions; partitions without an answer are left out."""
    wanted = tuple(sorted(partitions))
    if not wanted:
        return {}

    async def ask(admin: Admin) -> dict[TopicPartition, Held]:
        stable = await admin.list_offsets(
            dict.fromkeys(wanted, "latest"), read_committed=True, raise_errors=False
        )
        ends = await end_offsets(admin, wanted)
        return {
            tp: Held(first.offset, ends[tp])
            for tp, first in stable.items()
            if first is not None and tp in ends
        }

    return await session.cached(("held back", wanted), _KEEP_MS, ask)


def _row(
    row: TransactionListing,
    described: TransactionDescription | None,
    held: Mapping[TopicPartition, Held],
) -> Json:
    partitions = [] if described is None else described.partitions
    hidden = [held[tp].hidden for tp in partitions if tp in held]
    return {
        "transactional_id": row.transactional_id,
        "coordinator": row.coordinator,
        "producer_id": row.producer_id,
        "state": row.state if described is None else described.state,
        "epoch": None if described is None else described.epoch,
        "timeout_ms": None if described is None else described.timeout_ms,
        "has_timeout": described is None or described.has_timeout,
        "start_ms": None if described is None else described.start_ms,
        "partitions": len(partitions),
        "hidden": sum(hidden) if hidden else None,
    }


# --- one transactional id -------------------------------------------------------------------------


async def transaction(session: ConsoleSession, transactional_id: str) -> Json:
    """A transactional id: its transaction, the offsets that the transaction holds back, and the
    events."""
    history = await history_of(session, Subject.TRANSACTIONAL_ID, transactional_id)
    try:
        found = await session.cached(
            ("transaction", transactional_id),
            _KEEP_MS,
            lambda admin: admin.describe_transactions(transactional_id),
        )
    except OdradekError as error:
        if not _is_unknown(error):
            raise
        if not history["events"]:
            raise HttpProblem(
                404,
                "There is no such transactional id",
                f"{transactional_id!r}",
                "Look for it in the list of transactions.",
                "/transactions",
            ) from error
        return {"transactional_id": transactional_id, "state": "Dead", "history": history}
    described = found[transactional_id]
    shown = described.partitions[:PARTITIONS_MAX]
    held = await held_back(session, shown) if described.is_open else {}
    return {
        "transactional_id": transactional_id,
        "state": described.state,
        "open": described.is_open,
        "coordinator": described.coordinator,
        "producer_id": described.producer_id,
        "epoch": described.epoch,
        "timeout_ms": described.timeout_ms,
        "has_timeout": described.has_timeout,
        "start_ms": described.start_ms,
        "now_ms": _now_ms(),
        "partitions_total": len(described.partitions),
        "partitions": [_partition(tp, held.get(tp)) for tp in shown],
        "history": history,
    }


def _is_unknown(error: OdradekError) -> bool:
    return error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def _partition(tp: TopicPartition, held: Held | None) -> Json:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "stable": None if held is None else held.stable,
        "end": None if held is None else held.end,
        "hidden": None if held is None else held.hidden,
    }


def _now_ms() -> int:
    return int(time.time() * 1_000)


async def _show(asked: Asked) -> Json:
    return await transaction(asked.session, asked.query.text("id"))


async def _open(session: ConsoleSession, _name: str) -> Json:
    """The open transactions and the number of all transactional ids. Pages reload their lists when
    these change."""
    table = await all_transactions(session)
    return {
        "total": len(table.listed),
        "open": sorted(
            [name, found.start_ms] for name, found in table.described.items() if found.is_open
        )[:PARTITIONS_MAX],
    }


VIEWS: dict[str, View] = {"/transactions": transactions, "/transaction": _show}
FEEDS = {"transaction": Feed(transaction, 2_000), "transactions": Feed(_open, 2_000)}
