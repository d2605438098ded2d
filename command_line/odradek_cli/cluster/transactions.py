"""`odradek txn list|describe|abort`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.commands import fail
from odradek_cli.common import (
    AsJson,
    BrokerOptions,
    Execute,
    cell,
    end_each,
    end_plan,
    end_with,
    errors_but,
    print_rows,
    tell,
)
from odradek_cli.completion import topic_names
from odradek_cli.options import Commands, argument, option
from odradek_cli.say import say
from odradek_protocol.constants import NO_TRANSACTION_TIMEOUT_MS

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.admin.transactions import TransactionDescription
    from odradek_client.errors import OdradekError

app = Commands(help="List, describe, abort transactions.")
#: The maximum number of open transactions for whose clients the broker is asked.
_OPEN_MAX = 200
#: The maximum number of a transaction's partitions that the plan of an abort names.
_NAMED_PARTITIONS_MAX = 3
_NOTHING = "nothing was aborted"


def _age_ms(described: TransactionDescription) -> int | None:
    """The time in ms since a transaction began, by this machine's clock; None if none is open."""
    if described.start_ms is None:
        return None
    return max(0, int(time.time() * 1000) - described.start_ms)


async def _rows(
    admin: Admin, found: Mapping[str, TransactionDescription], names: Iterable[str]
) -> list[dict[str, Any]]:
    """A row for each transactional id; `client_gone` is only known of the first open ones."""
    from odradek_client.admin.history import Subject
    from odradek_records.lag import states_of_each

    there = [found[name] for name in names if name in found]
    being_open = [each.transactional_id for each in there if each.is_open][:_OPEN_MAX]
    told = await states_of_each(admin, being_open, Subject.TRANSACTIONAL_ID)
    gone = {
        name: states["now_transaction"].details.get("gone")
        for name, states in told.items()
        if "now_transaction" in states
    }
    return [_row(each, gone.get(each.transactional_id)) for each in there]


def _row(described: TransactionDescription, gone: str | None) -> dict[str, Any]:
    return {
        "transactional_id": described.transactional_id,
        "coordinator": described.coordinator,
        "producer_id": described.producer_id,
        "epoch": described.epoch,
        "state": described.state,
        "timeout_ms": described.timeout_ms,
        "start_ms": described.start_ms,
        "age_ms": _age_ms(described),
        "client_gone": gone,
        "partitions": [f"{topic}-{index}" for topic, index in described.partitions],
    }


@app.command("list")
def list_(
    brokers: BrokerOptions,
    state: Annotated[
        list[str] | None,
        option(
            "--state STATE", "Only transactional ids in this state, such as Ongoing; repeatable."
        ),
    ] = None,
    longer_than_ms: Annotated[
        int,
        option("--duration-ms MS", "Only transactions that have been open for longer than this."),
    ] = -1,
    as_json: AsJson = False,
) -> None:
    """List all transactional ids, and how long their transactions have been open.

    CLIENT-GONE: when the last connection of an open transaction's client ended, as far as an
    Odradek broker knows it; nobody is left to commit or abort.
    """

    from odradek_protocol.errors import ErrorCode

    async def main(admin: Admin) -> tuple[list[dict[str, Any]], list[OdradekError]]:
        listed = await admin.list_transactions(states=state or (), longer_than_ms=longer_than_ms)
        ids = [each.transactional_id for each in listed]
        found = await admin.describe_transactions(ids, raise_errors=False)
        return await _rows(admin, found, ids), errors_but(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, found
        )

    rows, errors = brokers.ask(main)
    headings = "TRANSACTIONAL-ID COORDINATOR PRODUCER-ID EPOCH STATE AGE-MS CLIENT-GONE"
    print_rows(headings, rows, as_json=as_json, nothing=None, drop="COORDINATOR EPOCH PRODUCER-ID")
    end_with(errors)


@app.command()
def describe(
    transactional_ids: Annotated[list[str], argument("ID", "Transactional ids.")],
    brokers: BrokerOptions,
    as_json: AsJson = False,
) -> None:
    """Show state, identity and partitions of transactional ids."""

    async def main(admin: Admin) -> tuple[list[dict[str, Any]], list[OdradekError]]:
        found = await admin.describe_transactions(transactional_ids, raise_errors=False)
        return await _rows(admin, found, transactional_ids), list(found.errors.values())

    rows, errors = brokers.ask(main)
    for row in rows:
        if as_json:
            say(json.dumps(row))
            continue
        if row["timeout_ms"] == NO_TRANSACTION_TIMEOUT_MS:
            row["timeout_ms"] = "none, it waits for its client's decision (two-phase commit)"
        for name, value in row.items():
            say(f"{name.replace('_', '-')}: {cell(value)}")
    end_with(errors)


@app.command()
def abort(
    brokers: BrokerOptions,
    transactional_ids: Annotated[
        list[str] | None, argument("ID", "Transactional ids.", show_default=False)
    ] = None,
    topic: Annotated[
        str | None,
        option(
            "--topic TOPIC",
            "The topic of a hanging transaction; with --partition and --start-offset.",
            topic_names,
        ),
    ] = None,
    partition: Annotated[int | None, option("--partition -p N", min=0)] = None,
    start_offset: Annotated[
        int | None,
        option("--start-offset N", "The first offset of the hanging transaction.", min=0),
    ] = None,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Abort open transactions, including prepared transactions, and fence their producers.

    Nothing is aborted without --execute. With --topic, --partition and --start-offset, abort a
    hanging transaction: no coordinator knows of it, but consumers of committed records cannot pass
    its first record.

    \b
    odradek txn abort payments
    odradek txn abort payments --execute
    """
    place = (topic, partition, start_offset)
    hanging = topic is not None and partition is not None and start_offset is not None
    if bool(transactional_ids) == hanging or (not hanging and place != (None, None, None)):
        fail("give transactional ids; or --topic, --partition and --start-offset, all three", 2)
    if topic is not None and partition is not None and start_offset is not None:
        at = topic, partition
        row = brokers.ask(lambda admin: _abort_hanging(admin, at, start_offset, execute))
        columns = "TOPIC PARTITION START-OFFSET PRODUCER-ID EPOCH TRANSACTIONAL-ID"
        print_rows(columns, [row], as_json=as_json, drop="EPOCH PRODUCER-ID")
        if execute:
            what = f"the transaction of producer id {row['producer_id']}"
            tell(f"aborted {what} at {topic}-{partition}, offset {start_offset}")
        end_plan([row], [], _NOTHING, execute=execute)
        return
    names = list(dict.fromkeys(transactional_ids or []))
    rows, errors = brokers.ask(lambda admin: _abort(admin, names, execute))
    shown = rows if as_json else [_planned(row) for row in rows]
    headings = "TRANSACTIONAL-ID PRODUCER-ID EPOCH STATE AGE-MS TIMEOUT-MS CLIENT-GONE PARTITIONS"
    print_rows(headings, shown, as_json=as_json, drop="PARTITIONS PRODUCER-ID EPOCH STATE")
    if execute:
        end_each("aborted", names, errors)
    elif any(row["timeout_ms"] == NO_TRANSACTION_TIMEOUT_MS for row in rows):
        tell("with two-phase commit, another program may have been told to commit: ask it first")
    end_plan(rows, errors.values(), _NOTHING, execute=execute)


def _planned(row: dict[str, Any]) -> dict[str, Any]:
    """A row for the table: many partitions become their number."""
    count = len(row["partitions"])
    partitions = row["partitions"] if count <= _NAMED_PARTITIONS_MAX else f"{count:,} partitions"
    none = row["timeout_ms"] == NO_TRANSACTION_TIMEOUT_MS
    timeout = "none (two-phase commit)" if none else row["timeout_ms"]
    return {**row, "timeout_ms": timeout, "partitions": partitions}


async def _abort(
    admin: Admin, names: list[str], execute: bool
) -> tuple[list[dict[str, Any]], dict[str, OdradekError]]:
    """A row for each transaction that is aborted, or would be; and the errors of other ids."""
    from odradek_client.errors import OdradekError, Refused

    found = await admin.describe_transactions(names, raise_errors=False)
    errors: dict[str, OdradekError] = dict(found.errors)
    for name, described in found.items():
        if described.state not in ("Ongoing", "PrepareAbort"):
            what = "is being committed" if described.is_open else "has no open transaction"
            errors[name] = Refused(
                f"transactional id {name!r} {what}; its state is {described.state}"
            )
    rows = await _rows(admin, found, [name for name in names if name not in errors])
    for name in [row["transactional_id"] for row in rows] if execute else ():
        try:
            await admin.abort_transaction(name)
        except OdradekError as error:
            errors[name] = error
    return rows, errors


async def _abort_hanging(
    admin: Admin, partition: tuple[str, int], start_offset: int, execute: bool
) -> dict[str, Any]:
    """The row of the transaction. It has a transactional id if a coordinator knows it, so that it
    is not hanging."""
    from odradek_client.admin.transactions import OPEN_STATES

    found = await admin.abort_hanging_transaction(partition, start_offset, validate_only=True)
    known = await admin.list_transactions(states=OPEN_STATES, producer_ids=[found.producer_id])
    if execute:
        await admin.abort_hanging_transaction(partition, start_offset)
    topic, index = partition
    return {
        "topic": topic,
        "partition": index,
        "start_offset": start_offset,
        "producer_id": found.producer_id,
        "epoch": found.epoch,
        "transactional_id": known[0].transactional_id if known else None,
    }
