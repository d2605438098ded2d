"""The run of a mirror in one of the two modes: the copying of topics, records and groups, and the
end of the run.

Without `follow` the ends of the source at the start are a barrier: the run ends when all records
before the barrier are copied, open transactions have ended, and groups are copied. With `follow`
the run continues, and picks up new topics, partitions and settings.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from odradek_client.admin import Admin
from odradek_client.admin.topics import NewTopic
from odradek_client.admin.transactions import OPEN_STATES
from odradek_client.errors import Fatal, OdradekError, Refused, TopicAlreadyExists
from odradek_client.structs import TopicPartition
from odradek_client.tasks import failure_of
from odradek_mirror.group_offsets import GroupCopier
from odradek_mirror.plan import (
    MIRROR_PREFIX,
    MirrorOptions,
    MirrorPlan,
    Mode,
    TopicAction,
    TopicPlan,
    ends_of,
    gather_both,
    leaders_of,
    make_plan,
)
from odradek_mirror.progress import Progress, ProgressSnapshot, RateLimit
from odradek_mirror.settings import SettingsCopier, SettingsNotes, copy_acls, copy_quotas
from odradek_mirror.start_state import MirrorRefused

#: The time limit for the wait in one step. Between steps, the run checks for other work.
_STEP_MS = 500
_PROGRESS_EVERY_S = 2.0
_GROUPS_EVERY_S = 5.0
#: The maximum number of partitions, transactions or problems that an error names.
_NAMED_MAX = 5
#: The reason why a partition is no longer copied, if its topic is not at the source any more.
DELETED = "the topic was deleted at the source; the copy stays as it is"


class MirrorFailed(Refused):
    """The error of a mirror that has ended before everything was copied; the text says what is
    missing."""


@dataclass(slots=True)
class MirrorJob:
    """The clients, options and progress of a mirror. `target_settings`: the settings for further
    clients of the target. `tell` shows a line to the user."""

    source: Admin
    target: Admin
    options: MirrorOptions
    plan: MirrorPlan
    progress: Progress
    target_settings: dict[str, Any]
    tell: Callable[[str], None]
    show: Callable[[ProgressSnapshot], None]

    @property
    def rate(self) -> RateLimit | None:
        """The limit of the bytes per second; None if the user set none."""
        limit = self.options.max_bytes_per_s
        return None if limit is None else RateLimit(limit)


class Copier(Protocol):
    """The copying of records in one mode.

    A copier calls `begin`, `seen` and `copied` of the job's progress, and `failed` for a partition
    that it gives up; it adds transient problems to `troubles` of the progress.
    """

    async def start(self) -> None:
        """Find the positions at which the last run ended."""
        ...

    @property
    def waits_for(self) -> str:
        """The text that tells the user for which operation a long step waits."""
        ...

    async def add(self, topics: Sequence[TopicPlan]) -> None:
        """Add topics, which must exist at the target with all partitions. Partitions that are being
        copied are not affected, and failed partitions are retried. If some topics must not be
        copied, the other topics are added and MirrorRefused is raised."""
        ...

    async def drop(self, topics: Mapping[str, str]) -> None:
        """Stop the copying of topics, by name with the reasons, until they are added again."""
        ...

    async def step(self, wait_ms: float) -> None:
        """Copy the batches that have arrived, or wait for some. Failed partitions are reported to
        the progress; raises only errors that end the mirror."""
        ...

    async def flush(self) -> None:
        """Write all records that were read, and wait until they are durable at the target."""
        ...

    def translate(self, tp: TopicPartition, offset: int) -> int | None:
        """The offset at the target for a position of a group at the source; None if the records
        before it are not copied yet."""
        ...

    def topic_ids(self, tp: TopicPartition) -> tuple[bytes, bytes]:
        """The ids of the topic at the source and at the target, for a partition whose offsets
        `translate` knows; zeros if a side has no ids."""
        ...

    async def close(self) -> None:
        """End the copying, so that a later run can continue."""
        ...


async def run(job: MirrorJob, copier: Copier) -> ProgressSnapshot:
    """Copy until the barrier, or without an end with `follow`. MirrorFailed names what was not
    copied."""
    mirror = _Run(job, copier)
    ticker = asyncio.create_task(mirror.show_progress())
    try:
        await mirror.begin()
        while not await mirror.turn():
            if ticker.done() and (failure := failure_of(ticker, "the display of the progress")):
                raise failure
        return mirror.snapshot()
    finally:
        ticker.cancel()
        await asyncio.wait([ticker])
        await copier.close()


class _Run:
    """A run of a mirror, which proceeds in turns."""

    def __init__(self, job: MirrorJob, copier: Copier) -> None:
        self._job, self._copier = job, copier
        self._groups = GroupCopier(
            job.source,
            job.target,
            copier.translate,
            copier.topic_ids,
            job.tell,
            prefix=f"{MIRROR_PREFIX}{job.options.name}.",
            keep_epochs=job.plan.mode is Mode.SAME_OFFSETS,
        )
        notes = SettingsNotes(job.target, job.options.name, job.plan.source_cluster)
        self._settings = SettingsCopier(job.target, job.tell, notes, job.options.selection)
        self._loop = job.source.network.loop
        self._barrier: dict[TopicPartition, int] | None = None
        self._told: set[str] = set()
        now_s = self._loop.time()
        self._groups_at_s = now_s
        self._refresh_at_s = now_s + job.options.refresh_s
        self._open_until_s: float | None = None
        #: The operation for which the run waits between steps of the copier, and the time at which
        #: the wait began.
        self._waiting: tuple[str, float] | None = None
        self._step_since_s: float | None = None

    async def begin(self) -> None:
        """Create the topics, and begin to copy."""
        job = self._job
        if not job.options.follow:
            described = await job.source.describe_topics([each.name for each in job.plan.topics])
            ends = await ends_of(job.source, leaders_of(described.values()))
            planned = {each.name: each.partitions for each in job.plan.topics}
            tps = [
                TopicPartition(name, number)
                for name, count in planned.items()
                for number in range(count)
            ]
            unknown = [tp for tp in tps if tp not in ends]
            if unknown:
                raise MirrorFailed(
                    f"the source does not tell where {_names(unknown)} end: run this again when"
                    " they have leaders"
                )
            self._barrier = {tp: ends[tp][1] for tp in tps}
        with self._waiting_for("the target, to make topics"):
            await make_topics(job.target, job.plan.topics, job.tell)
            await self._settings.begin(job.plan.topics)
        with self._waiting_for("the settings of groups"):
            await self._copy_group_settings()
        with self._waiting_for("the target, to take over from the last run"):
            await self._copier.start()
        with self._waiting_for("the positions of both sides"):
            await self._copier.add(job.plan.topics)
        if job.options.acls:
            with self._waiting_for("the ACLs of both sides"):
                for line in await copy_acls(job.source, job.target, job.options.selection):
                    job.tell(line)
        if job.options.quotas:
            with self._waiting_for("the quotas of both sides"):
                for line in await copy_quotas(job.source, job.target):
                    job.tell(line)

    async def turn(self) -> bool:
        """Copy some batches, and do other work that is due. True if the run has ended."""
        self._step_since_s = self._loop.time()
        await self._copier.step(_STEP_MS)
        self._step_since_s = None
        now_s = self._loop.time()
        if self._barrier is not None:
            return await self._is_copied(self._barrier, now_s) and await self._end()
        if now_s >= self._groups_at_s:
            self._groups_at_s = now_s + _GROUPS_EVERY_S
            await self._copy_groups()
        if now_s >= self._refresh_at_s:
            self._refresh_at_s = now_s + self._job.options.refresh_s
            await self._refresh()
        return False

    def snapshot(self) -> ProgressSnapshot:
        """The progress at this time."""
        now_s, waiting = self._loop.time(), self._waiting
        if waiting is None and self._step_since_s is not None:
            waiting = self._copier.waits_for, self._step_since_s
        shown = self._job.progress.snapshot(now_s, int(time.time() * 1000))
        if waiting is None or now_s - waiting[1] < _PROGRESS_EVERY_S / 2:
            return shown
        return replace(shown, waiting_for=waiting[0], waiting_s=round(now_s - waiting[1], 1))

    async def show_progress(self) -> None:
        """Show the progress at intervals, even while the run waits."""
        while True:
            await asyncio.sleep(_PROGRESS_EVERY_S)
            self._job.show(self.snapshot())

    @contextmanager
    def _waiting_for(self, what: str) -> Iterator[None]:
        """Set the operation for which the run waits inside this block."""
        self._waiting = what, self._loop.time()
        try:
            yield
        finally:
            self._waiting = None

    # --- the end ----------------------------------------------------------------------------------

    async def _is_copied(self, barrier: dict[TopicPartition, int], now_s: float) -> bool:
        """True if all records before the barrier are copied. Transactions that are open at the
        barrier get the time of --timeout, from the moment when nothing else is left to copy."""
        progress = self._job.progress
        all_is_read = self._job.plan.mode is Mode.SAME_OFFSETS
        waiting, is_open = [], []
        for tp, end in barrier.items():
            if tp in progress.failures:
                continue
            state = progress.partitions.get(tp)
            if (
                state is None
                or state.last_stable_offset < 0
                or state.copied < (end if all_is_read else min(end, state.last_stable_offset))
            ):
                waiting.append(tp)
            elif state.last_stable_offset < end:
                is_open.append(tp)
        if waiting or not is_open:
            self._open_until_s = None
            return not waiting
        if self._open_until_s is None:
            self._open_until_s = now_s + self._job.options.timeout_s
            self._job.tell(f"waiting for open transactions in {_names(is_open)}")
        if now_s < self._open_until_s:
            return False
        raise MirrorFailed(await self._still_open(is_open))

    async def _still_open(self, tps: list[TopicPartition]) -> str:
        """The text about transactions that were still open after the time limit."""
        source, ids = self._job.source, []
        for each in await source.list_transactions(states=OPEN_STATES):
            described = await source.describe_transactions(
                each.transactional_id, raise_errors=False
            )
            found = described.get(each.transactional_id)
            if found is not None and not set(found.partitions).isdisjoint(tps):
                ids.append(repr(each.transactional_id))
        named = ", ".join(ids[:_NAMED_MAX]) or "producers that are gone"
        return (
            f"transactions of {named} are still open in {_names(tps)} after"
            f" {self._job.options.timeout_s:g} s: end them, or abort them with `odradek txn abort ID --execute`"
            " at the source, and run this again; or wait longer with --timeout"
        )

    async def _end(self) -> bool:
        await self._copier.flush()
        left = await self._copy_groups()
        await self._delete_unneeded()
        failures = self._job.progress.failures
        named = [f"{tp.topic}-{tp.partition}: {why}" for tp, why in failures.items()]
        named += [f"group {name!r}: {why}" for name, why in left.items()]
        if named:
            more = f"; and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
            raise MirrorFailed(f"not everything was copied: {'; '.join(named[:_NAMED_MAX])}{more}")
        return True

    # --- from time to time ------------------------------------------------------------------------

    async def _copy_groups(self) -> dict[str, str]:
        """Copy the offsets of groups; returns the groups that are not complete, with reasons."""
        plan, progress = self._job.plan, self._job.progress
        try:
            with self._waiting_for("the offsets of groups"):
                left = await self._groups.copy(plan)
        except OdradekError as error:
            if self._barrier is not None or isinstance(error, Fatal):
                raise
            self._once(f"groups were not copied, trying again: {error}")
            return {}
        progress.groups, progress.groups_left = len(plan.groups) - len(left), left
        return left

    async def _delete_unneeded(self) -> None:
        try:
            await self._groups.delete_unneeded(self._job.plan)
        except OdradekError as error:
            if isinstance(error, Fatal):
                raise
            self._once(
                f"groups of the mirror that are not needed any more are still there: {error}"
            )

    async def _refresh(self) -> None:
        """Pick up new topics, partitions and settings, and partitions that have failed."""
        try:
            with self._waiting_for("the topics of both sides"):
                await self._look_again()
        except MirrorRefused as error:
            self._once(f"problem: {error}")
        except OdradekError as error:
            if isinstance(error, Fatal):
                raise
            self._once(f"topics and settings were not looked up, trying again: {error}")
        await self._delete_unneeded()

    async def _look_again(self) -> None:
        job = self._job
        source, target = await gather_both(job.source, job.target, job.options.selection)
        plan = make_plan(source, target, replace(job.options, mode=job.plan.mode))
        for problem in plan.problems:
            self._once(f"problem: {problem}")
        refused = dict(plan.refused)
        for each in plan.topics:
            if each.action is TopicAction.CONTINUE:
                continue
            try:
                await make_topics(job.target, [each], job.tell)
            except Refused as error:
                refused[each.name] = str(error)
                self._once(f"problem: topic {each.name!r} is not copied: {error}")
        topics = tuple(each for each in plan.topics if each.name not in refused)
        gone = {each.name for each in job.plan.topics} - {each.name for each in topics}
        await self._copier.drop({name: refused.get(name, DELETED) for name in gone})
        job.plan = replace(plan, topics=topics)
        await self._settings.follow(topics)
        await self._copy_group_settings()
        await self._copier.add(topics)

    async def _copy_group_settings(self) -> None:
        plan = self._job.plan
        await self._settings.copy_groups(plan.group_settings, is_whole=plan.has_all_group_settings)

    def _once(self, line: str) -> None:
        """Show a line to the user, unless it was shown before."""
        if line not in self._told and len(self._told) < 10_000:
            self._told.add(line)
            self._job.tell(line)


def _names(tps: Sequence[TopicPartition]) -> str:
    named = ", ".join(f"{tp.topic}-{tp.partition}" for tp in tps[:_NAMED_MAX])
    return named + (f" and {len(tps) - _NAMED_MAX} more" if len(tps) > _NAMED_MAX else "")


async def make_topics(
    target: Admin, topics: Sequence[TopicPlan], tell: Callable[[str], None]
) -> None:
    """Create the topics of the target, and add missing partitions.

    A setting that the target does not accept is left out and reported.
    """
    for topic in topics:
        if topic.action is TopicAction.CREATE:
            await _make_topic(target, topic, tell)
        elif topic.action is TopicAction.EXTEND:
            await target.create_partitions({topic.name: topic.partitions})


async def _make_topic(target: Admin, topic: TopicPlan, tell: Callable[[str], None]) -> None:
    settings = dict(topic.settings)
    left_out = await refused_settings(target, topic)
    for name, why in left_out.items():
        del settings[name]
        tell(f"topic {topic.name!r}: the setting {name} is not copied: {why}")
    created = NewTopic(topic.name, topic.partitions, configs=settings)
    try:
        await target.create_topics(created)
    except TopicAlreadyExists:
        # Another mirror may have just created the topic; `add` checks it.
        tell(f"topic {topic.name!r} was created by somebody else meanwhile")


async def refused_settings(target: Admin, topic: TopicPlan) -> dict[str, str]:
    """The settings that the target does not accept for a new topic, with the target's reasons."""

    async def error_of(settings: dict[str, str]) -> OdradekError | None:
        new = NewTopic(topic.name, topic.partitions, configs=settings)
        checked = await target.create_topics(new, validate_only=True, raise_errors=False)
        return checked.errors.get(topic.name)

    whole = await error_of(dict(topic.settings))
    if whole is None or isinstance(whole, TopicAlreadyExists):
        return {}
    if await error_of({}) is not None:
        # The target refuses the topic even without settings.
        raise whole
    refused = {}
    for name, value in topic.settings.items():
        error = await error_of({name: value})
        if error is not None:
            refused[name] = str(error)
    return refused
