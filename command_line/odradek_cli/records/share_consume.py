"""`odradek share consume`: take records of a share group, and print them."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.commands import fail
from odradek_cli.common import AsJson, BrokerOptions, connected, run, tell
from odradek_cli.completion import group_names, topic_names
from odradek_cli.options import argument, option
from odradek_records.record_format import FormatError, Printer, compile_format, to_json_line

if TYPE_CHECKING:
    from odradek_client.errors import OdradekError
    from odradek_client.share.consumer import ShareConsumer
    from odradek_client.share.record import ShareRecord

_POLL_MS = 500
_DEFAULT_FORMAT = "%s\\n"
#: The time limit for the last acknowledgements and for leaving the group. It is short, because a
#: user waits.
_CLOSE_MS = 10_000
_ANSWERS = ("accept", "release", "reject")


def consume(
    topics: Annotated[list[str], argument("TOPIC", "Topics.", topic_names)],
    group: Annotated[str, option("--group -g GROUP", "The share group.", group_names)],
    brokers: BrokerOptions,
    count: Annotated[int | None, option("--count -c N", "End after N records.", min=1)] = None,
    exit_: Annotated[
        bool,
        option("--exit -e", "Maximum time without a new record, after which the command ends."),
    ] = False,
    answer: Annotated[
        str,
        option(
            "--answer ANSWER",
            "The acknowledgement of printed records: accept, release (deliver again) or reject.",
        ),
    ] = "accept",
    format_: Annotated[
        str, option("--format -f FORMAT", "%s value, %k key, as in consume.")
    ] = _DEFAULT_FORMAT,
    as_json: AsJson = False,
) -> None:
    """Print records of a share group, and acknowledge them, until Ctrl+C.

    With --json each line has the delivery count in addition to what `consume --json` prints. A
    record is acknowledged after it was written to the output; if the acknowledgement is refused,
    because the record's lock has expired, the record is delivered again.
    """
    if answer not in _ANSWERS:
        fail(f"--answer {answer!r} is none; there are {', '.join(_ANSWERS)}", 2)
    try:
        printer = _json_line if as_json else compile_format(format_)
    except FormatError as error:
        fail(f"--format: {error}", 2)
    settings = {**brokers.settings(), "group_id": group, "share_acknowledgement_mode": "explicit"}
    if count is not None:
        settings["share_acquire_mode"] = "record_limit"
    taken, refused = run(
        _consume(settings, topics, count, exit_, answer, printer), close_on_sigterm=True
    )
    failed = f", of which {refused} were not answered" if refused else ""
    tell(f"{taken} record{'s' if taken != 1 else ''}{failed}")
    if refused:
        raise typer.Exit(1)


async def _consume(
    settings: dict[str, Any],
    topics: list[str],
    count: int | None,
    exit_: bool,
    answer: str,
    printer: Printer,
) -> tuple[int, int]:
    from odradek_client.share.consumer import ShareConsumer

    async with connected(ShareConsumer, settings) as consumer:
        consumer.subscribe(topics)
        try:
            return await _print(consumer, count, exit_, answer, printer)
        finally:
            await consumer.close(timeout_ms=_CLOSE_MS)


async def _print(
    consumer: ShareConsumer, count: int | None, exit_: bool, answer: str, printer: Printer
) -> tuple[int, int]:
    """Print and acknowledge records. Returns the numbers of records and of refused
    acknowledgements."""
    from odradek_client.errors import Closed
    from odradek_client.share.acknowledgements import AcknowledgeType

    kind = AcknowledgeType[answer.upper()]
    taken = quiet = refused = 0

    def has_result(_: ShareRecord, error: OdradekError | None) -> None:
        nonlocal refused
        if error is None or isinstance(error, Closed):
            return
        if not refused:
            tell(f"odradek: {error}")
        refused += 1

    consumer.set_acknowledgement_callback(has_result)
    while count is None or taken < count:
        records: list[Any] = await consumer.poll(_POLL_MS, None if count is None else count - taken)
        taken += len(records)
        await asyncio.to_thread(_write, b"".join(printer(record) for record in records))
        for record in records:
            record.acknowledge(kind)
        quiet = 0 if records or not consumer.assignment() else quiet + 1
        if exit_ and quiet * _POLL_MS >= 2_000:
            break
    await consumer.commit()
    return taken, refused


def _json_line(record: Any) -> bytes:
    """The line of `consume --json` with the delivery count."""
    line = json.loads(to_json_line(record))
    return json.dumps({**line, "delivery_count": record.delivery_count}).encode() + b"\n"


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
