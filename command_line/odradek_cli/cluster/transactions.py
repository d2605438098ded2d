"""`odradek txn list|describe|abort`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.commands import fail
from odradek_cli.common import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientSettings,
    end_with,
    errors_but,
    open_admin,
    print_table,
    run,
)
from odradek_cli.completion import topic_names
from odradek_cli.options import argument, option
from odradek_cli.say import say

if TYPE_CHECKING:
    from odradek_client.admin.transactions import TransactionDescription
    from odradek_client.errors import OdradekError

app = typer.Typer(help="List, describe, abort transactions.", no_args_is_help=True)

Ids = Annotated[list[str], argument("ID", "Transactional ids.")]


def _age_ms(described: TransactionDescription) -> int | None:
    """The time in ms since a transaction began, by this machine's clock; None if none is open."""
    if described.start_ms is None:
        return None
    return max(0, int(time.time() * 1000) - described.start_ms)


def _row(described: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": described.transactional_id,
        "coordinator": described.coordinator,
        "producer_id": described.producer_id,
        "epoch": described.epoch,
        "state": described.state,
        "timeout_ms": described.timeout_ms,
        "start_ms": described.start_ms,
        "age_ms": _age_ms(described),
        "partitions": [f"{topic}-{index}" for topic, index in described.partitions],
    }


def _cells(row: dict[str, Any], *names: str) -> list[str]:
    cells = []
    for name in names:
        value = row[name]
        if isinstance(value, list):
            value = ",".join(value)
        cells.append("-" if value is None or value == "" else str(value))
    return cells


@app.command("list")
def list_(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
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
    setting: ClientSettings = None,
) -> None:
    """List all transactional ids, and how long their transactions have been open."""

    from odradek_protocol.errors import ErrorCode

    async def main() -> tuple[list[dict[str, Any]], list[OdradekError]]:
        async with open_admin(bootstrap, setting) as admin:
            listed = await admin.list_transactions(
                states=state or (), longer_than_ms=longer_than_ms
            )
            ids = [each.transactional_id for each in listed]
            found = await admin.describe_transactions(ids, raise_errors=False)
            rows = [_row(found[name]) for name in ids if name in found]
            return rows, errors_but(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, found)

    rows, errors = run(main())
    if as_json:
        for row in rows:
            say(json.dumps(row))
    else:
        names = ("transactional_id", "coordinator", "producer_id", "epoch", "state", "age_ms")
        print_table(
            ["TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "EPOCH", "STATE", "AGE-MS"],
            [_cells(row, *names) for row in rows],
        )
    end_with(errors)


@app.command()
def describe(
    transactional_ids: Ids,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    setting: ClientSettings = None,
) -> None:
    """Show state, identity and partitions of transactional ids."""

    async def main() -> tuple[list[dict[str, Any]], list[OdradekError]]:
        async with open_admin(bootstrap, setting) as admin:
            found = await admin.describe_transactions(transactional_ids, raise_errors=False)
            rows = [_row(found[name]) for name in transactional_ids if name in found]
            return rows, list(found.errors.values())

    rows, errors = run(main())
    for row in rows:
        if as_json:
            say(json.dumps(row))
            continue
        for name, value in zip(row, _cells(row, *row), strict=True):
            say(f"{name.replace('_', '-')}: {value}")
    end_with(errors)


@app.command()
def abort(
    transactional_ids: Annotated[
        list[str] | None, argument("ID", "Transactional ids.", show_default=False)
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
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
    setting: ClientSettings = None,
) -> None:
    """Abort open transactions, including prepared transactions, and fence their producers.

    With --topic, --partition and --start-offset, abort a hanging transaction: no coordinator knows
    of it, but consumers of committed records cannot pass its first record.
    """
    place = (topic, partition, start_offset)
    hanging = topic is not None and partition is not None and start_offset is not None
    if bool(transactional_ids) == hanging or (not hanging and place != (None, None, None)):
        fail("give transactional ids; or --topic, --partition and --start-offset, all three", 2)

    async def one_hanging() -> str:
        assert topic is not None and partition is not None and start_offset is not None
        async with open_admin(bootstrap, setting) as admin:
            found = await admin.abort_hanging_transaction((topic, partition), start_offset)
        return (
            f"aborted the transaction of producer id {found.producer_id} at {topic}-{partition}, "
            f"offset {start_offset}"
        )

    if hanging:
        say(run(one_hanging()), err=True)
        return

    async def main() -> list[tuple[str, OdradekError | None]]:
        from odradek_client.errors import OdradekError

        outcomes: list[tuple[str, OdradekError | None]] = []
        async with open_admin(bootstrap, setting) as admin:
            for name in transactional_ids or []:
                try:
                    await admin.abort_transaction(name)
                    outcomes.append((name, None))
                except OdradekError as error:
                    outcomes.append((name, error))
        return outcomes

    failed = False
    for name, error in run(main()):
        failed = failed or error is not None
        say(f"aborted {name}" if error is None else f"odradek: {error}", err=True)
    if failed:
        raise typer.Exit(1)
