"""Producers with a producer id: the producers of a partition, and a single producer id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek_client.admin import ProducerDescription, TransactionListing
from odradek_client.admin.history import Subject
from odradek_client.errors import OdradekError
from odradek_client.structs import TopicPartition
from odradek_console.answers import Column, HttpProblem, Json, PageQuery, page_of
from odradek_console.asked import Asked, View
from odradek_console.histories import history_of
from odradek_console.sessions import ConsoleSession
from odradek_console.transactions import (
    PARTITIONS_MAX,
    Transactions,
    all_transactions,
    held_back,
    is_open_on,
)

_KEEP_MS = 1_500
_PARTITION_MAX = 2**31 - 1
_ID_MAX = 2**63 - 1
_COLUMNS = {
    "producer_id": Column(lambda row: row.producer_id),
    "epoch": Column(lambda row: row.epoch),
    "last_sequence": Column(lambda row: row.last_sequence),
    "last_timestamp_ms": Column(lambda row: row.last_timestamp_ms),
    "transaction_start_offset": Column(lambda row: row.transaction_start_offset),
}


async def producers(asked: Asked) -> Json:
    """A page of the producers that have written to a partition, and the offsets that open
    transactions hold back in it."""
    session, query = asked.session, asked.query
    tp = _partition_of(query)
    found = await _producers_of(session, (tp,))
    page, about = page_of(
        found[tp],
        query,
        _COLUMNS,
        name=lambda row: f"{row.producer_id:020d}",
        sort="-last_timestamp_ms",
    )
    owners, missing = await _owners(session)
    held = (await held_back(session, [tp])).get(tp)
    history = await history_of(session, Subject.PARTITION, f"{tp.topic}-{tp.partition}")
    return {
        **about,
        "topic": tp.topic,
        "partition": tp.partition,
        "stable": None if held is None else held.stable,
        "end": None if held is None else held.end,
        "hidden": None if held is None else held.hidden,
        "states": history["states"],
        "missing": missing,
        "rows": [_row(tp, row, owners) for row in page],
    }


def _partition_of(query: PageQuery) -> TopicPartition:
    return TopicPartition(query.text("topic"), query.whole("partition", most=_PARTITION_MAX))


async def _producers_of(
    session: ConsoleSession, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, list[ProducerDescription]]:
    """The producers of partitions. If there is only one partition, its error is raised."""
    return await session.cached(
        ("producers", *partitions),
        _KEEP_MS,
        lambda admin: admin.describe_producers(partitions, raise_errors=len(partitions) == 1),
    )


async def _owners(session: ConsoleSession) -> tuple[Transactions | None, list[str]]:
    """All transactional ids, to find the owner of a producer id; or None, with the reason why the
    transactional ids are missing."""
    try:
        return await all_transactions(session), []
    except OdradekError as error:
        return None, [f"Transactional ids: {error}"]


def _owner(owners: Transactions | None, producer_id: int) -> TransactionListing | None:
    if owners is None:
        return None
    return next((each for each in owners.listed if each.producer_id == producer_id), None)


def _row(tp: TopicPartition, row: ProducerDescription, owners: Transactions | None) -> Json:
    owner = _owner(owners, row.producer_id)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "producer_id": row.producer_id,
        "epoch": row.epoch,
        "last_sequence": row.last_sequence,
        "last_timestamp_ms": row.last_timestamp_ms,
        "coordinator_epoch": row.coordinator_epoch,
        "transaction_start_offset": row.transaction_start_offset,
        "transactional_id": None if owner is None else owner.transactional_id,
        # Without the list of transactional ids, no transaction is called hanging.
        "hanging": owners is not None
        and row.transaction_start_offset is not None
        and not is_open_on(owners, owner, tp),
    }


async def producer(asked: Asked) -> Json:
    """A producer id: its transactional id, its partitions as far as they are known, and the events.
    The query may have a partition to search (`topic`, `partition`)."""
    session, query = asked.session, asked.query
    producer_id = query.whole("id", most=_ID_MAX)
    owners, missing = await _owners(session)
    owner = _owner(owners, producer_id)
    history = await history_of(session, Subject.PRODUCER_ID, str(producer_id))
    partitions = set()
    if query.text("topic", ""):
        partitions.add(_partition_of(query))
    described = None
    if owners is not None and owner is not None:
        described = owners.described.get(owner.transactional_id)
        if described is not None:
            partitions |= set(described.partitions[:PARTITIONS_MAX])
    rows = []
    if partitions:
        found = await _producers_of(session, tuple(sorted(partitions)))
        rows = [
            _row(tp, each, owners)
            for tp, some in found.items()
            for each in some
            if each.producer_id == producer_id
        ]
    if not rows and owner is None and not history["events"] and not history["states"]:
        raise HttpProblem(
            404,
            "Nothing is known of this producer id",
            f"{producer_id}. {history['missing'] or ''}".strip(),
            "Look for it in a partition that it has written to.",
        )
    return {
        "producer_id": producer_id,
        "transactional_id": None if owner is None else owner.transactional_id,
        "state": None if owner is None else owner.state,
        "rows": rows,
        "history": history,
        "missing": missing,
    }


VIEWS: dict[str, View] = {"/producers": producers, "/producer": producer}
