"""`odradek explain txn|producer|group|partition`: what happened, in words, from what the broker remembers."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.common import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientSettings,
    console,
    open_admin,
    run,
)

if TYPE_CHECKING:
    from odradek_client.admin import Admin
    from odradek_client.admin.history import HistoryDescription, HistoryEvent, Subject

app = typer.Typer(help="Say what happened, in words.", no_args_is_help=True)

#: More than any broker keeps.
_ALL = 2**31 - 1
Limit = Annotated[
    int,
    typer.Option(
        "--limit", "-n", metavar="N", min=0, show_default="all", help="Only the newest N events."
    ),
]

#: What to use where no history is kept.
_INSTEAD = {
    "transactional id": "`odradek txn describe` shows its state, with any Kafka",
    "producer id": "`odradek txn list` shows the producer ids of transactional ids, with any Kafka",
    "group": "`odradek group describe` shows its state, with any Kafka",
    "partition": "`odradek topic describe` shows its settings, with any Kafka",
}
#: How events look on a terminal, by a part of their name.
_STYLES = {
    "refused": "red",
    "stopped": "red",
    "not_recorded": "red",
    "timeout": "yellow",
    "removed": "yellow",
    "replaced": "yellow",
    "again": "yellow",
    "duplicate": "yellow",
    "began": "bold",
    "complete": "green",
    "stable": "green",
}


@app.command()
def txn(
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="A transactional id.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    limit: Limit = _ALL,
    as_json: AsJson = False,
    setting: ClientSettings = None,
) -> None:
    """The history of a transactional id: which request moved which state, who fenced whom, when the
    markers went out, what was refused and why."""
    from odradek_client.admin.history import Subject

    _explain(Subject.TRANSACTIONAL_ID, transactional_id, bootstrap, limit, as_json, setting)


@app.command()
def producer(
    producer_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A producer id; or a transactional id, for the producer id that it has.",
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    limit: Limit = _ALL,
    as_json: AsJson = False,
    setting: ClientSettings = None,
) -> None:
    """The history of a producer id: which sequence was expected and which came, duplicates, epochs,
    expiry. Batches that were accepted in order are not told one by one."""
    from odradek_client.admin.history import Subject

    _explain(Subject.PRODUCER_ID, producer_id, bootstrap, limit, as_json, setting)


@app.command()
def group(
    group_id: Annotated[str, typer.Argument(metavar="GROUP", help="A consumer group.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    limit: Limit = _ALL,
    as_json: AsJson = False,
    setting: ClientSettings = None,
) -> None:
    """The history of a group: who joined, why a rebalance began, whom it waited for, which
    generation came out, who was removed and why."""
    from odradek_client.admin.history import Subject

    _explain(Subject.GROUP, group_id, bootstrap, limit, as_json, setting)


@app.command()
def partition(
    name: Annotated[
        str,
        typer.Argument(metavar="TOPIC-NUMBER", help="A partition, as `orders-0`."),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    limit: Limit = _ALL,
    as_json: AsJson = False,
    setting: ClientSettings = None,
) -> None:
    """The history of a partition: when compaction cleaned it and what was left, what went wrong,
    and why the rest is not cleaned yet."""
    from odradek_client.admin.history import Subject

    _explain(Subject.PARTITION, name, bootstrap, limit, as_json, setting)


# --- Asking -------------------------------------------------------------------------------------------


def _explain(
    subject: Subject,
    name: str,
    bootstrap: str,
    limit: int,
    as_json: bool,
    setting: list[str] | None,
) -> None:
    from odradek_client.admin.history import Subject

    async def main() -> tuple[str, list[HistoryDescription]]:
        async with open_admin(bootstrap, setting) as admin:
            asked = name
            if subject is Subject.PRODUCER_ID and not name.isdigit():
                asked = await _producer_id_of(admin, name)
            return asked, await _describe(admin, subject, asked, limit)

    asked, found = run(main())
    if as_json:
        _print_json(subject.value, asked, found)
        return
    title = f"{subject.value} {asked}"
    _print_words(title if asked == name else f"{title}, of transactional id {name}", found)


async def _producer_id_of(admin: Admin, transactional_id: str) -> str:
    described = (await admin.describe_transactions(transactional_id))[transactional_id]
    return str(described.producer_id)


async def _describe(
    admin: Admin, subject: Subject, name: str, limit: int
) -> list[HistoryDescription]:
    from odradek_client.errors import UnsupportedByBroker

    try:
        return await admin.describe_history(subject, name, limit=min(limit, _ALL))
    except UnsupportedByBroker as error:
        raise UnsupportedByBroker(f"{error}; {_INSTEAD[subject.value]}") from error


# --- Showing ------------------------------------------------------------------------------------------


def _moment(time_ms: int) -> str:
    """In this machine's time zone."""
    return datetime.fromtimestamp(time_ms / 1000).isoformat(sep=" ", timespec="milliseconds")


def _merged(found: list[HistoryDescription]) -> list[tuple[HistoryDescription, HistoryEvent]]:
    """The events of all brokers, oldest first. Those of one are in order, whatever its clock
    did."""
    pairs = [(each, event) for each in found for event in each.events]
    return sorted(pairs, key=lambda pair: pair[1].time_ms) if len(found) > 1 else pairs


def _print_json(kind: str, name: str, found: list[HistoryDescription]) -> None:
    def line(kind: str, **values: Any) -> None:
        typer.echo(json.dumps({"type": kind, **values}, ensure_ascii=False))

    for each in found:
        line(
            "history",
            subject_type=kind,
            subject=name,
            node=each.node_id,
            started_ms=each.started_ms,
            complete_since_ms=each.complete_since_ms,
            dropped=each.dropped,
        )
    for each, event in _merged(found):
        line(
            "event",
            node=each.node_id,
            time_ms=event.time_ms,
            time=_moment(event.time_ms),
            last_time_ms=event.last_time_ms,
            times=event.times,
            name=event.name,
            text=event.text,
            details=event.details,
        )
    for each in found:
        for state in each.states:
            line(
                "now",
                node=each.node_id,
                time_ms=each.now_ms,
                name=state.name,
                text=state.text,
                details=state.details,
            )


def _print_words(title: str, found: list[HistoryDescription]) -> None:
    rows: list[tuple[str, str, str]] = []
    several = len(found) > 1
    for each, event in _merged(found):
        text = event.text
        if event.times > 1:
            text += f" ({event.times} times, last at {_moment(event.last_time_ms)})"
        if several:
            text = f"node {each.node_id}: {text}"
        rows.append((_moment(event.time_ms), text, _style(event.name)))
    notes = [note for each in found for note in _notes(each, several=several)]
    if not rows:
        notes.append("nothing has happened to it since then")
    now = [
        (f"node {each.node_id}: {state.text}" if several else state.text)
        for each in found
        for state in each.states
    ]
    if sys.stdout.isatty():
        _draw(title, notes, rows, now)
        return
    typer.echo(title)
    for note in notes:
        typer.echo(f"({note})")
    for moment, text, _ in rows:
        typer.echo(f"{moment}  {text}")
    for text in now:
        typer.echo(f"now: {text}")


def _notes(found: HistoryDescription, *, several: bool) -> list[str]:
    """From when on the events are whole, and what is missing."""
    who = f"node {found.node_id}" if several else "the broker"
    notes = [f"{who} remembers what happened since its start at {_moment(found.started_ms)}"]
    if found.forgotten:
        count = f"{found.dropped} " if found.dropped else ""
        notes.append(f"{count}older events were dropped, up to {_moment(found.complete_since_ms)}")
    return notes


def _style(name: str) -> str:
    return next((style for part, style in _STYLES.items() if part in name), "")


def _draw(title: str, notes: list[str], rows: list[tuple[str, str, str]], now: list[str]) -> None:
    """For a person: long sentences are wrapped beside their time."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    out.print(Text(title, style="bold"))
    for note in notes:
        out.print(Text(f"({note})", style="dim"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for moment, text, style in rows:
        grid.add_row(Text(moment, style="dim"), Text(text, style=style))
    for index, text in enumerate(now):
        label = "now:" if index == 0 else ""
        grid.add_row(Text(label, style="bold cyan", justify="right"), Text(text, style="cyan"))
    out.print(grid)
