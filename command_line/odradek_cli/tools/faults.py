"""`odradek faults ...`: injects faults into a broker that was started with `--testing`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from odradek_cli.commands import fail as end_with
from odradek_cli.common import AsJson, print_table
from odradek_cli.options import Commands, argument, option
from odradek_cli.say import say
from odradek_testkit.faults import FaultRefused, Faults

app = Commands(help="Inject faults into a broker under test.")

Http = Annotated[
    str,
    option(
        "--http HOST:PORT",
        "The HTTP endpoint of the broker; its ready line has the address.",
        envvar="ODRADEK_FAULTS",
    ),
]
Api = Annotated[
    str, argument("API", "The APIs: Produce, Fetch, ..., separated by commas; * for all.")
]
Ms = Annotated[int, argument("MS", "Duration in milliseconds.")]
Topic = Annotated[str | None, option("--topic", "Only requests for this topic.")]
Partition = Annotated[int | None, option("--partition", "Only requests for this partition.")]
Group = Annotated[str | None, option("--group", "Only requests for this group.")]
TransactionalId = Annotated[
    str | None, option("--transactional-id", "Only requests for this transactional id.")
]
ClientId = Annotated[str | None, option("--client-id", "Only requests of this client id.")]
Times = Annotated[
    int,
    option(
        "--times", "Number of requests that the fault affects; 0: all, until the fault is cleared."
    ),
]
DiskTimes = Annotated[
    int,
    option(
        "--times",
        "Number of operations that the fault affects; 0: all, until the fault is cleared.",
    ),
]
Skip = Annotated[
    int, option("--skip", "Number of requests that pass before the fault takes effect.")
]
ForMs = Annotated[int | None, option("--for-ms", "Time after which the fault ends.")]


@dataclass(frozen=True)
class RequestsHit:
    """The requests that meet a fault."""

    topic: Topic = None
    partition: Partition = None
    group: Group = None
    transactional_id: TransactionalId = None
    client_id: ClientId = None
    times: Times = 1
    skip: Skip = 0
    for_ms: ForMs = None


def _order(http: str, fault: str, **fields: Any) -> None:
    given = {name: value for name, value in fields.items() if value is not None}
    if "times" in given:
        given["times"] = given["times"] or None
    if "api" in given:
        given["api"] = given["api"].split(",")
    say(json.dumps(_call(lambda: Faults.at(http).order(fault, **given))))


def _call(what: Callable[[], Any]) -> Any:
    try:
        return what()
    except FaultRefused as error:
        end_with(str(error))


@app.command()
def fail(
    api: Api,
    code: Annotated[str, argument("ERROR", "The error, by Kafka's name or number.")],
    http: Http,
    *,
    requests: RequestsHit,
) -> None:
    """Answer an error instead of handling a request."""
    number = int(code) if code.lstrip("-").isdigit() else code
    _order(http, "fail", api=api, code=number, **asdict(requests))


@app.command()
def delay(api: Api, ms: Ms, http: Http, *, requests: RequestsHit) -> None:
    """Handle a request, and answer it later."""
    _order(http, "delay", api=api, ms=ms, **asdict(requests))


@app.command("drop-reply")
def drop_reply(api: Api, http: Http, *, requests: RequestsHit) -> None:
    """Handle a request, and never answer it."""
    _order(http, "drop_reply", api=api, **asdict(requests))


@app.command()
def cut(
    api: Api,
    http: Http,
    handled: Annotated[bool, option("--handled", "Only after the request was handled.")] = False,
    *,
    requests: RequestsHit,
) -> None:
    """Close the connection instead of answering a request."""
    _order(http, "cut", api=api, handled=handled, **asdict(requests))


@app.command("slow-disk")
def slow_disk(
    ms: Ms, http: Http, times: DiskTimes = 0, skip: Skip = 0, for_ms: ForMs = None
) -> None:
    """Let flushes to disk take longer."""
    _order(fault="slow_disk", **locals())


@app.command("full-disk")
def full_disk(http: Http, times: DiskTimes = 0, skip: Skip = 0, for_ms: ForMs = None) -> None:
    """Let writes to disk fail."""
    _order(fault="full_disk", **locals())


@app.command("lose-leader")
def lose_leader(
    topic: Annotated[str, argument("TOPIC")],
    http: Http,
    partition: Partition = None,
    times: Times = 1,
    skip: Skip = 0,
    for_ms: ForMs = None,
) -> None:
    """Answer as a broker that does not lead a topic's partitions any more."""
    _order(fault="lose_leader", **locals())


@app.command("move-coordinator")
def move_coordinator(
    http: Http,
    group: Group = None,
    transactional_id: TransactionalId = None,
    times: Times = 1,
    skip: Skip = 0,
    for_ms: ForMs = None,
) -> None:
    """Answer as a broker that does not coordinate a group, or a transactional id, any more."""
    _order(fault="move_coordinator", **locals())


@app.command("expire-session")
def expire_session(
    group: Annotated[str, argument("GROUP")],
    http: Http,
    member: Annotated[
        str | None, option("--member", "A member id or a client id. [default: all members]")
    ] = None,
) -> None:
    """Expire the sessions of a group's members immediately."""
    _order(http, "expire_session", group=group, member=member)


@app.command("abort-transaction")
def abort_transaction(transactional_id: Annotated[str, argument("ID")], http: Http) -> None:
    """Abort an open transaction immediately, as if its timeout had passed."""
    _order(http, "abort_transaction", transactional_id=transactional_id)


@app.command("expire-lock")
def expire_lock(
    group: Annotated[str, argument("GROUP")],
    http: Http,
    topic: Annotated[str | None, option("--topic", "Only records of this topic.")] = None,
    partition: Annotated[
        int | None, option("--partition", "Only records of this partition.")
    ] = None,
) -> None:
    """Expire the locks of a share group's records immediately."""
    _order(fault="expire_lock", **locals())


@app.command("lose-acknowledgement")
def lose_acknowledgement(
    group: Annotated[str, argument("GROUP")],
    http: Http,
    handled: Annotated[
        bool,
        option("--handled/--not-handled", "After the acknowledgements took effect, or before."),
    ] = True,
    topic: Topic = None,
    partition: Partition = None,
    client_id: ClientId = None,
    times: Times = 1,
    skip: Skip = 0,
    for_ms: ForMs = None,
) -> None:
    """Close the connection instead of answering a share consumer that acknowledges records."""
    _order(fault="lose_acknowledgement", **locals())


@app.command("list")
def list_all(http: Http, as_json: AsJson = False) -> None:
    """List the faults that are in force."""
    found = _call(Faults.at(http).list)
    if as_json:
        rows = [
            {"id": each.id, "met": each.met, "left": each.left, "over": each.over, **each.order}
            for each in found
        ]
        say(json.dumps(rows))
        return
    print_table(
        ["ID", "MET", "LEFT", "ORDER"],
        [
            [
                str(each.id),
                str(each.met),
                "over" if each.over else "all" if each.left is None else str(each.left),
                json.dumps(each.order),
            ]
            for each in found
        ],
        folds="ORDER",
    )


@app.command()
def clear(
    http: Http, number: Annotated[int | None, argument("ID", "Only this fault.")] = None
) -> None:
    """Clear all faults, or one of them."""
    faults = Faults.at(http)
    _call(faults.clear if number is None else lambda: faults.remove(number))
