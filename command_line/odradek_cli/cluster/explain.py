"""`odradek explain txn|producer|group|share|partition|client|mirror`: a history in words, from
events that the broker keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from odradek_cli.common import AsJson, BrokerOptions, tell
from odradek_cli.completion import group_names, partition_names, topic_names
from odradek_cli.options import Commands, argument, option
from odradek_cli.say import say
from odradek_protocol.visible import json_line

if TYPE_CHECKING:
    from odradek_cli.cluster.explain_text import Printer
    from odradek_client.admin import Admin
    from odradek_client.admin.history import HistoryDescription, HistoryEvent, Subject

app = Commands(help="Explain what happened, in words.")

#: The pause between two requests of --follow.
_LOOK_EVERY_S = 0.5
#: The time after which a broker counts as not answering.
_PATIENCE_S = 5.0
#: A number of events that is larger than any broker keeps.
_ALL = 2**31 - 1


@dataclass(frozen=True)
class HistoryOptions(BrokerOptions):
    """The options of all subcommands of `odradek explain`."""

    limit: Annotated[
        int, option("--limit -n N", "Only the newest N events.", min=0, show_default="all")
    ] = _ALL
    follow: Annotated[bool, option("--follow -f", "Also show new events, until Ctrl+C.")] = False
    as_json: AsJson = False


#: The command that helps if there is no history, by the kind of the subject.
_INSTEAD = {
    "transactional id": "`odradek txn describe` shows its state, with any Kafka",
    "producer id": "`odradek txn list` shows the producer ids of transactional ids, with any Kafka",
    "group": "`odradek group describe` shows its state, with any Kafka",
    "partition": "`odradek topic describe` shows its settings, with any Kafka",
    "record of a share group": "`odradek share offsets` shows start offset and lag, with any Kafka",
    "mirror topic": "only an Odradek broker has mirror topics with the same offsets",
    "client id": "`odradek group describe` shows the clients of a group, with any Kafka",
}


@app.command()
def txn(
    transactional_id: Annotated[str, argument("ID", "A transactional id.")],
    *,
    options: HistoryOptions,
) -> None:
    """The history of a transactional id: the requests and the states to which they led, fenced
    producers, the times of markers, and refused requests with the reasons."""
    from odradek_client.admin.history import Subject

    _explain(Subject.TRANSACTIONAL_ID, transactional_id, options)


@app.command()
def producer(
    producer_id: Annotated[
        str, argument("ID", "A producer id, or a transactional id that has the producer id.")
    ],
    *,
    options: HistoryOptions,
) -> None:
    """The history of a producer id: expected and received sequences, duplicates, epochs, expiry.
    Batches that were accepted in order are not listed."""
    from odradek_client.admin.history import Subject

    async def find(admin: Admin) -> str:
        described = (await admin.describe_transactions(producer_id))[producer_id]
        return str(described.producer_id)

    known = None if producer_id.isdigit() else find
    _explain(Subject.PRODUCER_ID, producer_id, options, find=known)


@app.command()
def group(
    group_id: Annotated[str, argument("GROUP", "A consumer group.", group_names)],
    *,
    options: HistoryOptions,
) -> None:
    """The history of a group: members that joined or were removed, and the cause, the awaited
    members and the generation of each rebalance."""
    from odradek_client.admin.history import Subject

    _explain(Subject.GROUP, group_id, options)


@app.command()
def share(
    group_id: Annotated[str, argument("GROUP", "A share group.", group_names)],
    topic: Annotated[str | None, option("--topic TOPIC", "The topic of a record.")] = None,
    partition: Annotated[
        int | None,
        option("--partition N", "The partition of the record.", min=0, show_default="the only one"),
    ] = None,
    offset: Annotated[int | None, option("--offset N", "The offset of the record.", min=0)] = None,
    *,
    options: HistoryOptions,
) -> None:
    """The history of a share group. With --topic and --offset, the history of one record: who
    acquired it and when, why it was delivered again, and how it was finished."""
    from odradek_client.admin.history import Subject

    if topic is None and partition is None and offset is None:
        _explain(Subject.GROUP, group_id, options)
        return
    if topic is None or offset is None:
        raise typer.BadParameter("a record needs --topic and --offset (and --partition)")

    async def find(admin: Admin) -> str:
        number = await _only_partition(admin, topic) if partition is None else partition
        return f"{topic}-{number}:{offset}:{group_id}"

    _explain(Subject.SHARE_RECORD, group_id, options, find=find)


@app.command()
def partition(
    name: Annotated[str, argument("TOPIC-NUMBER", "A partition, as `orders-0`.", partition_names)],
    *,
    options: HistoryOptions,
) -> None:
    """The history of a partition: the times and results of compaction, its failures, the reasons
    why the rest of the log is not compacted yet, and the open transaction that blocks consumers of
    committed records."""
    from odradek_client.admin.history import Subject

    _explain(Subject.PARTITION, name, options)


@app.command()
def client(
    client_id: Annotated[str, argument("CLIENT_ID", "A client id.")], *, options: HistoryOptions
) -> None:
    """The history of a client's connections: the time, duration, user and software of each, and the
    reason for its end."""
    from odradek_client.admin.history import Subject

    _explain(Subject.CLIENT, client_id, options)


@app.command()
def mirror(
    topic: Annotated[
        str | None,
        argument(
            "[TOPIC]",
            "A mirror topic.",
            topic_names,
            show_default="all mirror topics, without events",
        ),
    ] = None,
    *,
    options: HistoryOptions,
) -> None:
    """The history of a mirror topic at its target: appends, refused batches and records, leader
    epochs, log starts, the promotion; and how far each partition is behind its source."""
    from odradek_client.admin.history import Subject

    _explain(Subject.MIRROR, topic or "", options)


# --- Asking ---------------------------------------------------------------------------------------


def _explain(
    subject: Subject,
    name: str,
    options: HistoryOptions,
    *,
    find: Callable[[Admin], Awaitable[str]] | None = None,
) -> None:
    """Show a history. `find`: asks the cluster for the subject's name in the protocol. If `find` is
    None, `name` is the name in the protocol."""

    async def main(admin: Admin) -> None:
        asked = name if find is None else await find(admin)
        shown: _Shown = _Json(subject, asked) if options.as_json else _Words(subject, asked, name)
        if options.follow:
            await _follow(admin, subject, asked, options.limit, shown)
            return
        found = await _describe(admin, subject, asked, options.limit)
        shown.history(found, _merged(found))

    options.ask(main)


async def _only_partition(admin: Admin, topic: str) -> int:
    """The number of the only partition of a topic. Refused if the topic has several."""
    from odradek_client.errors import Refused

    partitions = (await admin.describe_topics(topic))[topic].partitions
    if len(partitions) != 1:
        raise Refused(f"topic {topic!r} has {len(partitions)} partitions: name one by --partition")
    return 0


async def _describe(
    admin: Admin, subject: Subject, name: str, limit: int
) -> list[HistoryDescription]:
    from odradek_client.errors import UnsupportedByBroker

    try:
        return await admin.describe_history(subject, name, limit=min(limit, _ALL))
    except UnsupportedByBroker as error:
        raise UnsupportedByBroker(f"{error}; {_INSTEAD[subject.value]}") from error


def _merged(found: list[HistoryDescription]) -> list[tuple[HistoryDescription, HistoryEvent]]:
    """The events of all brokers, oldest first. Events of one broker keep their order, even if its
    clock was set back."""
    pairs = [(each, event) for each in found for event in each.events]
    return sorted(pairs, key=lambda pair: pair[1].time_ms) if len(found) > 1 else pairs


# --- Following ------------------------------------------------------------------------------------


async def _follow(admin: Admin, subject: Subject, name: str, limit: int, shown: _Shown) -> None:
    """Show the newest events, and then each new one, until the program is ended."""
    seen: dict[int, HistoryDescription] = {}
    printed = silent = False
    while True:
        found = await _look(admin, subject, name)
        if isinstance(found, str):
            if not silent:
                tell(f"odradek: {found}; looking again until Ctrl+C")
            silent = True
        elif not printed:
            printed = True
            events = _merged(found)
            shown.history(found, events[max(len(events) - limit, 0) :])
        else:
            for each in found:
                before = seen.get(each.node_id)
                if before is not None and before.started_ms != each.started_ms:
                    shown.restarted(each)
            for each, event in _merged([_since(seen.get(each.node_id), each) for each in found]):
                shown.event(each, event)
        if not isinstance(found, str):
            silent = False
            seen |= {each.node_id: each for each in found}
        await asyncio.sleep(_LOOK_EVERY_S)


async def _look(admin: Admin, subject: Subject, name: str) -> list[HistoryDescription] | str:
    """The history that the brokers have, or the reason why it is not known yet."""
    from odradek_client.errors import (
        ConnectionLost,
        CoordinatorUnavailable,
        NothingKnown,
        RequestTimedOut,
    )

    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await _describe(admin, subject, name, _ALL)
    except NothingKnown as error:
        return str(error)
    except (ConnectionLost, CoordinatorUnavailable, RequestTimedOut, TimeoutError) as error:
        return f"the broker does not answer ({error or 'no answer'})"


def _since(before: HistoryDescription | None, found: HistoryDescription) -> HistoryDescription:
    """The events of a history that are new since `before`. The last event counts as new if it has
    happened again."""
    if before is None or before.started_ms != found.started_ms or not before.events:
        return found
    last, events = before.events[-1], found.events
    for index in reversed(range(len(events))):
        event = events[index]
        if (event.time_ms, event.name, event.details) == (last.time_ms, last.name, last.details):
            first = index if event.times > last.times else index + 1
            return replace(found, events=events[first:])
    return found


# --- Showing --------------------------------------------------------------------------------------


class _Shown(Protocol):
    """The output for a history."""

    def history(
        self, found: list[HistoryDescription], events: list[tuple[HistoryDescription, HistoryEvent]]
    ) -> None:
        """Show the whole history: the time from which it is complete, its events, and the present
        state.
        """

    def event(self, found: HistoryDescription, event: HistoryEvent) -> None:
        """Show a later event."""

    def restarted(self, found: HistoryDescription) -> None:
        """Show that the broker was restarted."""


class _Words:
    """The output of a history as text for people."""

    def __init__(self, subject: Subject, asked: str, named: str) -> None:
        title = f"{subject.value} {asked}"
        if subject.name == "SHARE_RECORD":
            where, offset, group_id = asked.split(":", 2)
            title = f"record {offset} of {where}, for share group {group_id}"
        elif asked != named:
            title += f", of transactional id {named}"
        self._title = title
        self._is_group = subject.name in ("GROUP", "SHARE_RECORD")
        self._printer: Printer | None = None

    def history(
        self, found: list[HistoryDescription], events: list[tuple[HistoryDescription, HistoryEvent]]
    ) -> None:
        from odradek_cli.cluster.explain_text import Printer

        printer = self._printer = Printer(short_names=self._is_group, several=len(found) > 1)
        printer.head(self._title, found, shown=len(events))
        entries = [(event.text, event.details) for _, event in events]
        entries += [(state.text, state.details) for each in found for state in each.states]
        printer.legend(entries)
        for each, event in events:
            printer.event(each.node_id, event)
        printer.now(found)

    def event(self, found: HistoryDescription, event: HistoryEvent) -> None:
        assert self._printer is not None, "a history begins as a whole"
        self._printer.event(found.node_id, event)

    def restarted(self, found: HistoryDescription) -> None:
        assert self._printer is not None, "a history begins as a whole"
        self._printer.notes_of_restart(found)


class _Json:
    """The output of a history as JSON for programs, with full names and all times in
    milliseconds.
    """

    def __init__(self, subject: Subject, asked: str) -> None:
        self._subject, self._asked = subject, asked

    def history(
        self, found: list[HistoryDescription], events: list[tuple[HistoryDescription, HistoryEvent]]
    ) -> None:
        for each in found:
            self.restarted(each)
        for each, event in events:
            self.event(each, event)
        for each in found:
            for state in each.states:
                _print_json(
                    "now",
                    node=each.node_id,
                    time_ms=each.now_ms,
                    name=state.name,
                    text=state.text,
                    details=state.details,
                )

    def event(self, found: HistoryDescription, event: HistoryEvent) -> None:
        from odradek_cli.cluster.explain_text import moment

        _print_json(
            "event",
            node=found.node_id,
            time_ms=event.time_ms,
            time=moment(event.time_ms),
            last_time_ms=event.last_time_ms,
            times=event.times,
            name=event.name,
            text=event.text,
            details=event.details,
        )

    def restarted(self, found: HistoryDescription) -> None:
        _print_json(
            "history",
            subject_type=self._subject.value,
            subject=self._asked,
            node=found.node_id,
            started_ms=found.started_ms,
            complete_since_ms=found.complete_since_ms,
            dropped=found.dropped,
        )


def _print_json(kind: str, **values: Any) -> None:
    say(json_line({"type": kind, **values}))
