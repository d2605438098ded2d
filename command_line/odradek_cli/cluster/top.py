"""`odradek top`: throughput, topics, groups, transactions and requests of a cluster, live."""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from odradek_cli.cluster.top_frame import (
    ClusterSample,
    Frame,
    GroupSample,
    OpenTransaction,
    make_frame,
)
from odradek_cli.cluster.top_view import SORTS, render
from odradek_cli.common import AsJson, BrokerOptions, run
from odradek_cli.options import option
from odradek_cli.say import say
from odradek_client.admin import Admin
from odradek_client.errors import OdradekError, UnsupportedByBroker
from odradek_client.structs import TopicPartition
from odradek_protocol.visible import json_line
from odradek_records.lag import (
    LagHistories,
    LagPoint,
    age_of,
    committed_offsets,
    end_offsets,
    states_of_each,
)

if TYPE_CHECKING:
    from odradek_client.admin import GroupListing
    from odradek_client.admin.broker import BrokerDescription
    from odradek_client.admin.history import CurrentState

T = TypeVar("T")

_PARTITIONS_MAX = 5_000
_GROUPS_MAX = 100
_TRANSACTIONS_MAX = 20
#: The maximum number of parallel requests about single groups.
_AT_ONCE = 16
_HEIGHT_WITHOUT_TERMINAL = 50
_KEYS_HELP = "q quits, s sorts"


def top(
    brokers: BrokerOptions,
    interval: Annotated[
        float, option("--interval -i SECONDS", "Time between two frames.", min=0.2, max=3600)
    ] = 2.0,
    once: Annotated[bool, option("--once", "Print one frame and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a cluster: throughput, topics by rate, groups by lag, open transactions, slow requests.

    Keys: q quits, s sorts by rate or by name. --once prints one frame, --json one JSON object, both
    after one interval. Output to a pipe or file is also one frame. Connections, requests and
    throughput in bytes come from Odradek's brokers; any Kafka has the rest.
    """
    watch = Watch(interval)
    if once or as_json or not sys.stdout.isatty():
        frame = run(_once(watch, brokers), close_on_sigterm=True)
        if as_json:
            say(json_line(frame.as_json()))
        else:
            _print(frame)
        return
    run(_live(watch, brokers), close_on_sigterm=True)


def _print(frame: Frame) -> None:
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(render(frame, height=_HEIGHT_WITHOUT_TERMINAL))


async def _once(watch: Watch, brokers: BrokerOptions) -> Frame:
    async with brokers.admin() as admin:
        await watch.frame(admin)
        await asyncio.sleep(watch.interval_s)
        return await watch.frame(admin)


# --- Live -----------------------------------------------------------------------------------------


async def _live(watch: Watch, brokers: BrokerOptions) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    async with brokers.admin() as admin:
        with _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            sort = SORTS[0]
            frame: Frame | None = None
            trouble = ""
            async for event in _events(watch, admin, keys):
                if isinstance(event, Frame):
                    frame, trouble = event, ""
                elif isinstance(event, OdradekError):
                    trouble = f"no answer: {event}"
                elif event in ("q", "Q"):
                    return
                elif event in ("s", "S"):
                    sort = SORTS[(SORTS.index(sort) + 1) % len(SORTS)]
                if frame is not None:
                    note = trouble or _KEYS_HELP
                    live.update(
                        render(
                            frame, height=console.size.height, sort=sort, note=note,
                            trouble=bool(trouble),
                        ),
                        refresh=True,
                    )  # fmt: skip


async def _events(
    watch: Watch, admin: Admin, keys: asyncio.Queue[str]
) -> AsyncIterator[Frame | OdradekError | str]:
    """Yields a frame at the start of each interval, or the error that prevented the frame. In
    between, yields each key as soon as it is pressed."""
    while True:
        deadline_s = time.monotonic() + watch.interval_s
        try:
            yield await watch.frame(admin)
        except OdradekError as error:
            yield error
        while (left_s := deadline_s - time.monotonic()) > 0:
            try:
                key = await asyncio.wait_for(keys.get(), left_s)
            except TimeoutError:
                break
            yield key


@contextmanager
def _keys() -> Iterator[asyncio.Queue[str]]:
    """The keys that are pressed, without an echo and without Enter; yields nothing if stdin is no
    terminal."""
    keys: asyncio.Queue[str] = asyncio.Queue(maxsize=64)
    if not sys.stdin.isatty():
        yield keys
        return
    import termios
    import tty

    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        import os

        for letter in os.read(descriptor, 64).decode("utf-8", "replace"):
            if not keys.full():
                keys.put_nowait(letter)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield keys
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


# --- Samples --------------------------------------------------------------------------------------


@dataclass
class Watch:
    """The samples of a cluster over time."""

    interval_s: float
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    _before: ClusterSample | None = None
    _histories: LagHistories = field(default_factory=LagHistories)

    async def frame(self, admin: Admin) -> Frame:
        """The frame of a new sample. Raises OdradekError if no broker answers."""
        sample = await self._sample(admin)
        frame = make_frame(self._before, sample)
        self._before = sample
        return frame

    async def _sample(self, admin: Admin) -> ClusterSample:
        cluster = await admin.describe_cluster()
        missing: list[str] = []

        async def had(what: str, ask: Awaitable[T], otherwise: T) -> T:
            try:
                return await ask
            except UnsupportedByBroker:
                missing.append(f"{what}: the brokers do not report it")
            except OdradekError as error:
                missing.append(f"{what}: {error}")
            return otherwise

        what = "bytes in and out, connections, durations of requests"
        brokers = await had(what, _brokers(admin, [each.node_id for each in cluster.brokers]), {})
        partitions = await had("topics", _partitions(admin, missing), [])
        listed = await had("groups", admin.list_groups(), [])
        positions = await had("positions of groups", _positions(admin, listed, missing), {})
        told = await had("ages of groups", states_of_each(admin, positions), {})
        shares = await had("lag of share groups", _share_lags(admin, listed), {})
        wanted = {tp for each in positions.values() for tp in each} | set(partitions)
        at_ms = self.now_ms()
        ends = await had("ends of partitions", end_offsets(admin, wanted), {})
        return ClusterSample(
            at_ms=at_ms,
            cluster_id=cluster.cluster_id,
            nodes=len(cluster.brokers),
            brokers=brokers,
            ends={tp: ends[tp] for tp in partitions if tp in ends},
            groups=[
                GroupSample(
                    each.group_id, each.type, each.state or "",
                    self._lag(
                        at_ms, each.group_id, positions.get(each.group_id), ends,
                        told.get(each.group_id, {}),
                    )
                    if each.group_id not in shares
                    else LagPoint(at_ms, shares[each.group_id], None, False),
                    *_verdict(told.get(each.group_id, {})),
                )
                for each in listed
            ],
            transactions=await had("transactions", _transactions(admin), []),
            missing=missing,
        )  # fmt: skip

    def _lag(
        self,
        at_ms: int,
        group_id: str,
        positions: Mapping[TopicPartition, int] | None,
        ends: Mapping[TopicPartition, int],
        told: Mapping[str, CurrentState],
    ) -> LagPoint | None:
        own = {tp: ends[tp] for tp in positions or () if tp in ends}
        if not positions or not own:
            return None
        age = age_of({name: state.details for name, state in told.items()})
        return self._histories.of(group_id).add(at_ms, positions, own, age)


def _verdict(told: Mapping[str, CurrentState]) -> tuple[str, str]:
    """The verdict about a group and its sentence, if the broker gives one."""
    found = told.get("now_verdict")
    return ("", "") if found is None else (found.details["verdict"], found.text)


async def _brokers(admin: Admin, nodes: list[int]) -> dict[int, BrokerDescription]:
    from odradek_client.admin.broker import Section

    sections = (Section.COUNTERS, Section.REQUESTS, Section.PROBLEMS)
    found = await asyncio.gather(
        *(admin.describe_broker_status(*sections, node_id=node) for node in nodes)
    )
    return dict(zip(nodes, found, strict=True))


async def _partitions(admin: Admin, missing: list[str]) -> list[TopicPartition]:
    """The first `_PARTITIONS_MAX` partitions of users' topics."""
    described = await admin.describe_topics(await admin.list_topics(), raise_errors=False)
    every = [
        TopicPartition(topic.name, part.partition)
        for topic in described.values()
        for part in topic.partitions
    ]
    if len(every) > _PARTITIONS_MAX:
        missing.append(f"topics: {_PARTITIONS_MAX:,} of {len(every):,} partitions are watched")
    return every[:_PARTITIONS_MAX]


async def _positions(
    admin: Admin, listed: list[GroupListing], missing: list[str]
) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets of the first `_GROUPS_MAX` groups that are no share groups."""
    groups = [each.group_id for each in listed if not _is_share(each)]
    if len(groups) > _GROUPS_MAX:
        missing.append(f"lag: {_GROUPS_MAX} of {len(groups):,} groups are watched")
    return await _of_each(groups, functools.partial(committed_offsets, admin))


async def _share_lags(admin: Admin, listed: list[GroupListing]) -> dict[str, int]:
    """The number of unfinished records of each of the first `_GROUPS_MAX` share groups, as the
    broker counts them."""

    async def ask(group_id: str) -> dict[TopicPartition, int]:
        found = await admin.list_share_group_offsets(group_id)
        return {tp: at.lag for tp, at in found.items() if at is not None and at.lag is not None}

    found = await _of_each([each.group_id for each in listed if _is_share(each)], ask)
    return {name: sum(lags.values()) for name, lags in found.items() if lags}


def _is_share(group: GroupListing) -> bool:
    return group.type.lower() == "share"


async def _of_each(
    groups: list[str], ask: Callable[[str], Awaitable[dict[TopicPartition, int]]]
) -> dict[str, dict[TopicPartition, int]]:
    """The answers about the first `_GROUPS_MAX` groups; an empty answer if a group cannot be
    described."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(group_id: str) -> dict[TopicPartition, int]:
        async with turn:
            try:
                return await ask(group_id)
            except OdradekError:
                return {}

    names = groups[:_GROUPS_MAX]
    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


async def _transactions(admin: Admin) -> list[OpenTransaction]:
    """All open transactions. Only the first `_TRANSACTIONS_MAX` have a start time."""
    listed = await admin.list_transactions(states=["Ongoing"])
    names = [each.transactional_id for each in listed[:_TRANSACTIONS_MAX]]
    described: Mapping[str, Any] = (
        await admin.describe_transactions(names, raise_errors=False) if names else {}
    )
    return [
        OpenTransaction(
            each.transactional_id,
            each.producer_id,
            getattr(described.get(each.transactional_id), "start_ms", None),
        )
        for each in listed
    ]
