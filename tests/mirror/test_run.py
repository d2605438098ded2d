"""A run of a mirror, with fake clusters and a fake copier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek_client.admin import Admin
from odradek_client.admin.configs import ConfigEntry, ConfigResource, ConfigSource
from odradek_client.admin.results import Results
from odradek_client.admin.topics import PartitionDescription, TopicDescription
from odradek_client.errors import (
    AuthenticationFailed,
    GroupAuthorizationFailed,
    OdradekError,
    PolicyViolation,
    RequestTimedOut,
    TaskCancelled,
)
from odradek_client.structs import OffsetAndTimestamp, TopicPartition
from odradek_mirror import plan as plans
from odradek_mirror import run as runs
from odradek_mirror.plan import (
    ClusterFacts,
    MirrorOptions,
    MirrorPlan,
    Mode,
    TopicAction,
    TopicPlan,
    TopicSelection,
    gather_both,
    make_plan,
    mirror_source,
)
from odradek_mirror.progress import Progress, ProgressSnapshot
from odradek_mirror.run import MirrorFailed, MirrorJob, run
from odradek_mirror.start_state import MirrorRefused
from task_killer import Ending, TaskKiller
from waiting import DEADLINE_S

TP = TopicPartition("orders", 0)
ID = bytes(range(16))


def described(name: str, leader: int | None = 1, partitions: int = 1) -> TopicDescription:
    parts = [PartitionDescription(n, leader, 0, [1], [1], []) for n in range(partitions)]
    return TopicDescription(name, ID, False, parts)


class Cluster:
    """A fake cluster with some topics, all partitions of which end at the offset `end`."""

    def __init__(self, *topics: TopicDescription, end: int = 10) -> None:
        self.topics = {topic.name: topic for topic in topics}
        self.end = end
        self.asked_for_ends: list[TopicPartition] = []
        self.refused = set[str]()
        self.made = list[str]()
        self.settings: dict[str, str] = {}
        self.altering: list[OdradekError] = []
        self.network = SimpleNamespace(loop=asyncio.get_running_loop())

    async def describe_topics(
        self, names: Sequence[str], *, raise_errors: bool = True
    ) -> Results[str, TopicDescription]:
        found = Results[str, TopicDescription]()
        found.update({name: self.topics[name] for name in names if name in self.topics})
        return found

    async def list_offsets(
        self, wanted: dict[TopicPartition, str], *, raise_errors: bool = True
    ) -> Results[TopicPartition, OffsetAndTimestamp]:
        self.asked_for_ends += wanted
        found = Results[TopicPartition, OffsetAndTimestamp]()
        for tp, where in wanted.items():
            found[tp] = OffsetAndTimestamp(0 if where == "earliest" else self.end, -1, -1)
        return found

    async def create_topics(self, topic: Any, **_: Any) -> Results[str, None]:
        if topic.name in self.refused:
            raise PolicyViolation(f"{topic.name} is against the rules")
        self.made.append(topic.name)
        return Results()

    async def describe_configs(
        self, resource: ConfigResource
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        return {
            resource: {
                name: ConfigEntry(name, value, ConfigSource.TOPIC, False, False, False)
                for name, value in self.settings.items()
            }
        }

    async def alter_configs(
        self, changes: dict[ConfigResource, dict[str, str]], *, raise_errors: bool
    ) -> Results[ConfigResource, None]:
        if self.altering:
            raise self.altering.pop()
        for some in changes.values():
            self.settings.update(some)
        return Results()


class FakeCopier:
    """A copier that has copied everything after its first step; it calls `on_step` in each step."""

    waits_for = "a broker that sleeps"

    def __init__(self, on_step: Callable[[], Any] = lambda: None) -> None:
        self.on_step = on_step
        self.progress: Progress | None = None
        self.added: list[str] = []
        self.dropped: dict[str, str] = {}
        self.refused: set[str] = set()

    async def start(self) -> None: ...

    async def add(self, topics: Sequence[TopicPlan]) -> None:
        assert self.progress is not None
        self.added = [topic.name for topic in topics]
        for topic in topics:
            for number in range(topic.partitions):
                self.progress.begin(TopicPartition(topic.name, number), 10, 10)
        if self.refused & set(self.added):
            raise MirrorRefused("orders was deleted at the source and created again")

    async def step(self, wait_ms: float) -> None:
        assert self.progress is not None
        for tp in self.progress.partitions:
            if tp not in self.progress.failures:
                self.progress.seen(tp, 10, 10)
        result = self.on_step()
        if result is not None:
            await result
        await asyncio.sleep(0)

    async def drop(self, topics: Mapping[str, str]) -> None:
        self.dropped |= topics

    async def flush(self) -> None: ...

    def translate(self, tp: TopicPartition, offset: int) -> int | None:
        return offset

    def topic_ids(self, tp: TopicPartition) -> tuple[bytes, bytes]:
        return ID, ID

    async def close(self) -> None: ...


class ScriptedGroups:
    """A fake copier of groups that leaves out these groups, or raises this error."""

    def __init__(self, left: dict[str, str] | OdradekError | None = None) -> None:
        self._left = left or {}
        self.copies = 0

    async def copy(self, plan: MirrorPlan) -> dict[str, str]:
        self.copies += 1
        if isinstance(self._left, OdradekError):
            raise self._left
        return self._left

    async def delete_unneeded(self, plan: MirrorPlan) -> None: ...


class NoNotes:
    """A fake settings topic, which is always empty."""

    async def read(self) -> dict[ConfigResource, dict[str, str]]:
        return {}

    async def write(self, copied: object) -> None: ...


class World:
    """A run between two fake clusters. `plan` is the plan that the run makes next."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, follow: bool, groups: ScriptedGroups | None = None
    ) -> None:
        self.source, self.target = Cluster(described("orders")), Cluster()
        self.copier = FakeCopier()
        self.told: list[str] = []
        self.shown: list[ProgressSnapshot] = []
        self.groups = groups or ScriptedGroups()
        self.plan = MirrorPlan(
            Mode.SAME_OFFSETS, "A", "B", (topic("orders"),), ("billing",), (), ()
        )
        self.looks = 0
        self.options = MirrorOptions(follow=follow, refresh_s=0.0, timeout_s=0.0)
        monkeypatch.setattr(runs, "GroupCopier", lambda *_, **__: self.groups)
        monkeypatch.setattr(runs, "SettingsNotes", lambda *_: NoNotes())
        monkeypatch.setattr(runs, "gather_both", self._gather)
        monkeypatch.setattr(runs, "make_plan", lambda *_: self.plan)
        monkeypatch.setattr(runs, "_GROUPS_EVERY_S", 0.0)

    async def _gather(self, *_: Any) -> tuple[None, None]:
        self.looks += 1
        return None, None

    async def run(self) -> ProgressSnapshot:
        job = MirrorJob(
            source=cast(Admin, self.source),
            target=cast(Admin, self.target),
            options=self.options,
            plan=self.plan,
            progress=Progress(0.0),
            target_settings={},
            tell=self.told.append,
            show=self.shown.append,
        )
        self.copier.progress = job.progress
        async with asyncio.timeout(DEADLINE_S):
            return await run(job, self.copier)

    async def follow_until(self, is_enough: Callable[[], bool]) -> None:
        """Run until the condition holds, then cancel the run as Ctrl+C does."""
        task = asyncio.create_task(self.run())
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not is_enough():
                    assert not task.done(), task.result()
                    await asyncio.sleep(0.001)
        finally:
            task.cancel()
            await asyncio.wait([task])


def topic(
    name: str, action: TopicAction = TopicAction.CONTINUE, retention_ms: str | None = None
) -> TopicPlan:
    settings = {} if retention_ms is None else {"retention.ms": retention_ms}
    return TopicPlan(name, action, ID, 1, settings, (), 10, 0)


async def test_a_drain_that_leaves_a_group_fails_and_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = ScriptedGroups({"billing": "it has members at the target (Stable): stop them"})
    with pytest.raises(MirrorFailed, match=r"group 'billing': it has members .* stop them"):
        await World(monkeypatch, follow=False, groups=groups).run()
    assert (await World(monkeypatch, follow=False).run()).groups == 1


async def test_c83_a_mirror_whose_display_is_cancelled_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, follow=True)
    killer = TaskKiller("_Run.show_progress", Ending.UNBEGUN)
    with killer, pytest.raises(TaskCancelled, match="the progress was cancelled"):
        await world.run()


async def test_groups_that_are_refused_do_not_end_a_mirror_that_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = ScriptedGroups(GroupAuthorizationFailed("no right"))
    world = World(monkeypatch, follow=True, groups=groups)
    await world.follow_until(lambda: groups.copies > 3)
    assert [line for line in world.told if "no right" in line] == [
        "groups were not copied, trying again: no right"
    ]


async def test_a_refused_login_ends_a_mirror_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, follow=True, groups=ScriptedGroups(AuthenticationFailed("who?")))
    with pytest.raises(AuthenticationFailed):
        await world.run()


async def test_a_following_mirror_continues_when_all_partitions_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, follow=True)

    def fail() -> None:
        assert world.copier.progress is not None
        for tp in world.copier.progress.partitions:
            world.copier.progress.failed(tp, "the topic was deleted")

    world.copier.on_step = fail
    await world.follow_until(lambda: world.looks > 3)
    world.copier.on_step = lambda: None
    assert world.copier.added == ["orders"], "the partitions were not tried again"


async def test_i41_a_refused_topic_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, follow=True)

    def add_topics() -> None:
        new = (topic("bad", TopicAction.CREATE), topic("good", TopicAction.CREATE))
        world.plan = replace(world.plan, topics=(topic("orders"), *new))

    world.copier.on_step = add_topics
    world.target.refused = {"bad"}
    await world.follow_until(lambda: world.looks > 3)
    assert world.copier.added == ["orders", "good"]
    (told,) = [line for line in world.told if "bad" in line]
    assert "topic 'bad' is not copied: bad is against the rules" in told


async def test_i41_a_topic_that_a_later_plan_lacks_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, follow=True)

    def refuse() -> None:
        refused = {"orders": "of the target: it is the mirror of another topic"}
        world.plan = replace(world.plan, topics=(topic("gone"),), refused=refused)
        if world.looks > 1:
            world.plan = replace(world.plan, topics=())

    world.copier.on_step = refuse
    await world.follow_until(lambda: world.looks > 3)
    assert world.copier.dropped == {
        "orders": "of the target: it is the mirror of another topic",
        "gone": runs.DELETED,
    }


async def test_a_topic_that_must_not_be_copied_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, follow=True)

    def refuse() -> None:
        world.copier.refused = {"orders"}

    world.copier.on_step = refuse
    await world.follow_until(lambda: world.looks > 3)
    (told,) = [line for line in world.told if "created again" in line]
    assert told.startswith("problem: ")


async def test_a_failed_listing_of_topics_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, follow=True)

    async def no_right(*_: Any) -> None:
        world.looks += 1
        raise GroupAuthorizationFailed("no right to see them")

    monkeypatch.setattr(runs, "gather_both", no_right)
    await world.follow_until(lambda: world.looks > 3)
    assert len([line for line in world.told if "no right to see them" in line]) == 1


async def test_partitions_without_a_leader_are_not_taken_for_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, follow=False)
    world.source.topics["orders"] = described("orders", None)
    with pytest.raises(MirrorFailed, match="does not tell where orders-0 end"):
        await world.run()


async def test_a_progress_line_is_shown_while_a_step_waits_for_a_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "_PROGRESS_EVERY_S", 0.01)
    world = World(monkeypatch, follow=True)
    world.copier.on_step = lambda: asyncio.sleep(3600)
    await world.follow_until(
        lambda: any("a broker that sleeps" in shown.line() for shown in world.shown[2:])
    )


async def test_a_progress_line_names_the_groups_that_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "_PROGRESS_EVERY_S", 0.01)
    world = World(monkeypatch, follow=True)

    async def sleep(_: MirrorPlan) -> dict[str, str]:
        await asyncio.sleep(3600)
        return {}

    monkeypatch.setattr(world.groups, "copy", sleep)
    await world.follow_until(
        lambda: any("waiting for the offsets of groups" in each.line() for each in world.shown)
    )


async def test_a_changed_setting_is_copied_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, follow=True)
    world.target.settings = {"retention.ms": "1"}
    world.plan = replace(world.plan, topics=(topic("orders", retention_ms="1"),))
    world.target.altering = [RequestTimedOut("no answer")]

    def change() -> None:
        world.plan = replace(world.plan, topics=(topic("orders", retention_ms="2"),))

    world.copier.on_step = change
    await world.follow_until(lambda: world.looks > 3)
    assert world.target.settings == {"retention.ms": "2"}


async def test_i40_the_target_is_listed_before_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the two listings, another instance copies everything, and producers append more
    records."""
    end = 10
    ours = mirror_source("A", ID)
    settings = {
        "orders": {
            "mirror.source": ConfigEntry(
                "mirror.source", ours, ConfigSource.TOPIC, False, False, False
            )
        }
    }

    async def gather(cluster: str, _: TopicSelection, *, source: bool) -> ClusterFacts:
        nonlocal end
        topics = {"orders": described("orders")}
        side = ClusterFacts(cluster, 1, True, topics, {} if source else settings, {TP: (0, end)})
        end += 5
        return side

    monkeypatch.setattr(plans, "gather", gather)
    sides = await gather_both(cast(Any, "A"), cast(Any, "B"), TopicSelection())
    assert make_plan(*sides, MirrorOptions()).problems == ()
