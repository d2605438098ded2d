"""The frame of `odradek top` as text for a terminal."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from odradek_cli.cluster.cluster import size_text
from odradek_cli.cluster.top_frame import Frame, GroupLag, OpenTransaction, SlowRequests, TopicRate
from odradek_cli.layout import shortened, wrap
from odradek_client.words import counted
from odradek_protocol.visible import visible, width

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, Group, RenderableType
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

#: The number of lines of the screen that are not rows of the tables.
_LINES_AROUND = 12
_ROWS_MIN = 3
_SLOW_ROWS = 4
_TRANSACTION_ROWS = 4
_NOTES_MAX = 4
#: Problems may take this part of the lines of the screen.
_SHARE_OF_PROBLEMS = 3
#: The ways to sort topics and groups.
SORTS = ("rate", "name")


def render(
    frame: Frame, *, height: int, sort: str = "rate", note: str = "", trouble: bool = False
) -> Group:
    """The frame for a terminal with a number of lines. `note`: a line below the figures; `trouble`:
    the line reports an error."""
    from rich.console import Group

    problems = list(_problem_lines(frame.problems, height // _SHARE_OF_PROBLEMS))
    notes = [*problems, *frame.missing[:_NOTES_MAX]]
    slow, transactions = frame.slow[:_SLOW_ROWS], frame.transactions[:_TRANSACTION_ROWS]
    used = _LINES_AROUND + len(notes) + (len(slow) + 3 if slow else 0)
    used += len(transactions) + 3 if transactions else 0
    rows = max((height - used) // 2, _ROWS_MIN)
    parts: list[RenderableType] = [_head(frame), _figures(frame)]
    if note:
        parts.append(_styled(note, "bold red" if trouble else "dim"))
    parts += [_styled(each, "red") for each in problems]
    tables = [_topics(frame, rows, sort), _groups(frame, rows, sort)]
    if slow:
        tables.append(_requests(slow))
    if transactions:
        tables.append(_transactions(frame, transactions))
    for table in tables:
        parts += ["", table]
    parts += [_styled(f"missing: {each}", "dim") for each in frame.missing[:_NOTES_MAX]]
    return Group(*parts)


def _problem_lines(problems: Sequence[str], lines_max: int) -> Iterator[str]:
    """The lines of whole sentences: of the first one, and of as many others as there is room
    for."""
    used = 0
    for number, each in enumerate(problems):
        lines = wrap(each, "! ")
        if number and used + len(lines) > lines_max:
            yield f"! {counted(len(problems) - number, 'problem')} more"
            return
        used += len(lines)
        yield from lines


class _Figures:
    """Names with figures, as many on a line as fit."""

    def __init__(self, figures: Sequence[tuple[str, str]]) -> None:
        self._figures = figures

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        line = Text()
        for name, figure in self._figures:
            part = Text.assemble((name, "dim"), " ", (figure, "bold"))
            if line and line.cell_len + 2 + part.cell_len > options.max_width:
                yield line
                line = Text()
            line = Text("  ").join([line, part]) if line else part
        yield line


class _Name:
    """A name that strangers chose, without its middle if the column is narrow."""

    def __init__(self, text: str) -> None:
        self._text = visible(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        yield Text(shortened(self._text, options.max_width), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement(1, min(width(self._text), options.max_width))


def _styled(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(visible(text), style=style, no_wrap=True, overflow="ellipsis")


def _head(frame: Frame) -> Text:
    from rich.text import Text

    time = dt.datetime.fromtimestamp(frame.at_ms / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("odradek top", style="bold")
    head.append(f"  cluster {frame.cluster_id or '-'}  {counted(frame.nodes, 'node')}  {time}")
    return head


def _figures(frame: Frame) -> _Figures:
    levels, rates = frame.levels, frame.throughput
    figures = []
    if "received_bytes" in rates:
        figures += [
            ("in", f"{size_text(rates['received_bytes'])}/s"),
            ("out", f"{size_text(rates['sent_bytes'])}/s"),
            ("requests", f"{rates['requests']:,.0f}/s"),
            ("errors", f"{rates['errors']:,.1f}/s"),
        ]
    figures.append(("records in", f"{_rate(frame.records_per_s)}/s"))
    if "connections" in levels:
        figures.append(("connections", f"{levels['connections']:,.0f}"))
    figures.append(("open transactions", f"{len(frame.transactions):,}"))
    figures.append(("rebalancing", f"{len(frame.rebalancing):,}"))
    if "processor_ms" in rates:
        figures.append(("processor", f"{rates['processor_ms'] / 10:.0f} %"))
    if "memory_peak_bytes" in levels:
        figures.append(("memory peak", size_text(levels["memory_peak_bytes"])))
    if levels.get("disk_total_bytes"):
        free = levels["disk_usable_bytes"] / levels["disk_total_bytes"]
        figures.append(("disk free", f"{free:.0%}"))
    return _Figures(figures)


def _table(*columns: str, sorted_by: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, expand=True, header_style="bold cyan")
    for number, column in enumerate(columns):
        table.add_column(
            f"{column} v" if column == sorted_by else column,
            justify="left" if number == 0 else "right",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if number == 0 else None,
        )
    return table


def _topics(frame: Frame, rows: int, sort: str) -> Table:
    topics: list[TopicRate] = frame.topics
    if sort == "name":
        topics = sorted(topics, key=lambda each: each.topic)
    table = _table("TOPIC", "PARTITIONS", "RECORDS/S", sorted_by=_MARKED[sort][0])
    for each in topics[:rows]:
        table.add_row(_Name(each.topic), str(each.partitions), _rate(each.records_per_s))
    _more(table, len(topics) - rows, "topic")
    return table


def _groups(frame: Frame, rows: int, sort: str) -> Table:
    groups: list[GroupLag] = frame.groups
    if sort == "name":
        groups = sorted(groups, key=lambda each: each.group)
    table = _table("GROUP", "TYPE", "STATE", "VERDICT", "LAG", "AGE", sorted_by=_MARKED[sort][1])
    for each in groups[:rows]:
        style = "yellow" if each.group in frame.rebalancing else None
        if each.verdict not in ("", "OK"):
            style = "red"
        lag, verdict = "-" if each.lag is None else f"{each.lag:,}", visible(each.verdict) or "-"
        table.add_row(
            _Name(each.group), each.kind, each.state, verdict, lag, _age(each), style=style
        )
    _more(table, len(groups) - rows, "group")
    return table


_MARKED = {"rate": ("RECORDS/S", "LAG"), "name": ("TOPIC", "GROUP")}


def _requests(slow: list[SlowRequests]) -> Table:
    table = _table("REQUESTS", "NUMBER", "AVERAGE", "99 % BELOW", sorted_by="99 % BELOW")
    for each in slow:
        bound = "more" if each.slow_ms is None else f"{each.slow_ms:,.1f} ms"
        table.add_row(each.name, f"{each.requests:,}", f"{each.average_ms:,.1f} ms", bound)
    return table


def _transactions(frame: Frame, transactions: list[OpenTransaction]) -> Table:
    table = _table("OPEN TRANSACTION", "PRODUCER", "FOR", sorted_by="FOR")
    for each in transactions:
        open_ms = None if each.start_ms is None else max(frame.at_ms - each.start_ms, 0)
        table.add_row(_Name(each.transactional_id), str(each.producer_id), duration(open_ms))
    _more(table, len(frame.transactions) - len(transactions), "transaction")
    return table


def _more(table: Table, count: int, noun: str) -> None:
    if count > 0:
        from rich.text import Text

        table.add_row(Text(f"{counted(count, noun)} more", style="dim"))


def _rate(per_s: float | None) -> str:
    if per_s is None:
        return "-"
    return f"{per_s:,.1f}" if 0 < per_s < 10 else f"{per_s:,.0f}"


def _age(group: GroupLag) -> str:
    if group.age_ms is None:
        return "-"
    return ("> " if group.age_at_least else "") + duration(group.age_ms)


def duration(duration_ms: int | None) -> str:
    """A duration for people: 12 s, 3 min, 2 h, 4 d."""
    if duration_ms is None:
        return "-"
    left_s = duration_ms / 1000
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if left_s >= seconds:
            return f"{left_s / seconds:,.0f} {unit}"
    return f"{left_s:.0f} s" if left_s >= 10 or not left_s else f"{left_s:.1f} s"
