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
    cell,
    end_each,
    end_with,
    errors_but,
    print_rows,
)
from odradek_cli.completion import topic_names
from odradek_cli.options import Commands, argument, option
from odradek_cli.say import say

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.admin.transactions import TransactionDescription
    from odradek_client.errors import OdradekError

app = Commands(help="List, describe, abort transactions.")
#: The maximum number of open transactions for whose clients the broker is asked.
_OPEN_MAX = 200


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
    from odradek_protocol.constants import NO_TRANSACTION_TIMEOUT_MS

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
) -> None:
    """Abort open transactions, including prepared transactions, and fence their producers.

    With --topic, --partition and --start-offset, abort a hanging transaction: no coordinator knows
    of it, but consumers of committed records cannot pass its first record.
    """
    place = (topic, partition, start_offset)
    hanging = topic is not None and partition is not None and start_offset is not None
    if bool(transactional_ids) == hanging or (not hanging and place != (None, None, None)):
        fail("give transactional ids; or --topic, --partition and --start-offset, all three", 2)

    async def one_hanging(admin: Admin) -> str:
        assert topic is not None and partition is not None and start_offset is not None
        found = await admin.abort_hanging_transaction((topic, partition), start_offset)
        return (
            f"aborted the transaction of producer id {found.producer_id} at {topic}-{partition}, "
            f"offset {start_offset}"
        )

    if hanging:
        say(brokers.ask(one_hanging), err=True)
        return

    async def main(admin: Admin) -> dict[str, OdradekError]:
        from odradek_client.errors import OdradekError

        errors: dict[str, OdradekError] = {}
        for name in transactional_ids or []:
            try:
                await admin.abort_transaction(name)
            except OdradekError as error:
                errors[name] = error
        return errors

    end_each("aborted", transactional_ids or [], brokers.ask(main))
