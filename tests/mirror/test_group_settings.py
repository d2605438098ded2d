"""The settings of groups that a mirror copies, at the start of a run and while it follows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, ConfigResource
from odradek_client.admin.configs import ConfigEntry, ConfigSource, ResourceType
from odradek_client.admin.groups import GroupListing
from odradek_client.admin.results import Results
from odradek_client.errors import (
    AuthenticationFailed,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    InvalidConfig,
    OdradekError,
    RequestTimedOut,
    UnsupportedByBroker,
)
from odradek_mirror.plan import ClusterFacts, MirrorOptions, TopicSelection, gather, make_plan
from odradek_mirror.settings import GroupOverrides, SettingsCopier, SettingsNotes

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
DEFAULTS = {SESSION: "45000", HEARTBEAT: "5000"}


class Cluster:
    """The group settings of a cluster, which refuses settings that are not in `known`."""

    def __init__(self, **groups: Mapping[str, str]) -> None:
        self.groups = {name: dict(settings) for name, settings in groups.items()}
        self.known = set(DEFAULTS)
        self.listing: OdradekError | None = None
        self.describing: dict[str, OdradekError] = {}

    async def list_config_resources(self, kind: ResourceType) -> list[ConfigResource]:
        assert kind is ResourceType.GROUP
        if self.listing is not None:
            raise self.listing
        return [ConfigResource.group(name) for name in self.groups]

    async def describe_configs(
        self, resources: ConfigResource | Iterable[ConfigResource], *, raise_errors: bool = True
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        found = Results[ConfigResource, dict[str, ConfigEntry]]()
        for each in [resources] if isinstance(resources, ConfigResource) else resources:
            if (error := self.describing.get(each.name)) is not None:
                if raise_errors:
                    raise error
                found.errors[each] = error
                continue
            own = self.groups.get(each.name, {})
            found[each] = {
                name: ConfigEntry(
                    name,
                    own.get(name, DEFAULTS.get(name)),
                    ConfigSource.GROUP if name in own else ConfigSource.DEFAULT,
                    name not in own,
                    False,
                    False,
                )
                for name in {**DEFAULTS, **own}
            }
        return found

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]], *, raise_errors: bool
    ) -> Results[ConfigResource, None]:
        done = Results[ConfigResource, None]()
        for resource, some in changes.items():
            own = {**self.groups.get(resource.name, {}), **some}
            kept = {name: value for name, value in own.items() if value is not None}
            whole = DEFAULTS | kept
            if unknown := set(some) - self.known:
                done.errors[resource] = InvalidConfig(f"unknown: {sorted(unknown)}")
            elif int(whole[HEARTBEAT]) >= int(whole[SESSION]):
                done.errors[resource] = InvalidConfig("the heartbeat is too long")
            else:
                self.groups[resource.name] = kept
        return done


class Notes:
    """A settings topic in memory."""

    def __init__(self) -> None:
        self.stored: dict[ConfigResource, Mapping[str, str]] = {}
        self.failure: OdradekError | None = None

    async def read(self) -> dict[ConfigResource, Mapping[str, str]]:
        return dict(self.stored)

    async def write(self, copied: Mapping[ConfigResource, Mapping[str, str]]) -> None:
        if self.failure is not None:
            raise self.failure
        self.stored |= copied


class TopicSettings(GroupOverrides):
    """A topic of the source with its settings."""

    @property
    def resource(self) -> ConfigResource:
        return ConfigResource.topic(self.name)


class World:
    """A copier of group settings, and its target."""

    def __init__(self, **groups: Mapping[str, str]) -> None:
        self.target = Cluster(**groups)
        self.told: list[str] = []
        self.notes = Notes()
        self.restart()

    def restart(self, selection: TopicSelection = TopicSelection()) -> None:  # noqa: B008
        """Begin another run."""
        target = cast(Admin, self.target)
        self._copier = SettingsCopier(target, self.told.append, self.notes, selection)

    async def begin(self, **topics: Mapping[str, str]) -> None:
        """Begin a run that copies these topics of the source."""
        await self._copier.begin([TopicSettings(*each) for each in topics.items()])

    async def copy(self, is_whole: bool = True, **groups: Mapping[str, str]) -> None:
        """Copy the settings in `groups`, as if the groups of the source had them."""
        named = [GroupOverrides(name, settings) for name, settings in groups.items()]
        await self._copier.copy_groups(named, is_whole=is_whole)


async def test_i43_settings_that_the_target_lacks_are_copied_together() -> None:
    world = World()
    both = {HEARTBEAT: "50000", SESSION: "60000"}
    await world.copy(billing=both)
    assert (world.target.groups, world.told) == ({"billing": both}, [])


async def test_i43_settings_unknown_to_the_target_are_reported_and_others_copied() -> None:
    world = World()
    await world.copy(workers={"share.redelivery.delay.ms": "5", SESSION: "60000"})
    assert world.target.groups == {"workers": {SESSION: "60000"}}
    (told,) = world.told
    assert told == (
        "group 'workers': the setting share.redelivery.delay.ms is not copied:"
        " unknown: ['share.redelivery.delay.ms']"
    )


async def test_i43_a_different_setting_of_the_target_is_kept_and_reported() -> None:
    world = World(billing={SESSION: "50000"})
    await world.copy(billing={SESSION: "60000", HEARTBEAT: "6000"})
    assert world.target.groups == {"billing": {SESSION: "50000", HEARTBEAT: "6000"}}
    (told,) = world.told
    assert told == (
        "group 'billing': the setting consumer.session.timeout.ms is 50000 at the target and"
        " 60000 at the source; it stays as it is"
    )


async def test_i43_changed_and_removed_settings_are_copied() -> None:
    world = World()
    await world.copy(billing={SESSION: "60000"})
    await world.copy(billing={SESSION: "70000"}, more={SESSION: "60000"})
    assert world.target.groups == {"billing": {SESSION: "70000"}, "more": {SESSION: "60000"}}
    world.target.groups["more"][SESSION] = "61000"
    # `is_whole=False`: some groups could not be read, so missing settings are not taken for deleted
    # settings.
    await world.copy(is_whole=False)
    assert world.target.groups["billing"] == {SESSION: "70000"}
    await world.copy()
    assert world.target.groups == {"billing": {}, "more": {SESSION: "61000"}}
    assert "the target has 61000, set by somebody else" in world.told[-1]


async def test_i41_a_refused_group_stops_no_other_and_is_reported_once() -> None:
    world = World()
    world.target.describing["billing"] = GroupAuthorizationFailed("no right")
    for _ in range(2):
        await world.copy(billing={SESSION: "60000"}, more={SESSION: "60000"})
    assert world.target.groups == {"more": {SESSION: "60000"}}
    assert world.told == ["group 'billing': its settings are not copied: no right"]
    world.target.describing.clear()
    await world.copy(billing={SESSION: "60000"}, more={SESSION: "60000"})
    assert world.target.groups["billing"] == {SESSION: "60000"}


@pytest.mark.parametrize("error", [RequestTimedOut("late"), AuthenticationFailed("who?")])
async def test_errors_that_concern_all_groups_are_raised(error: OdradekError) -> None:
    world = World()
    world.target.describing["billing"] = error
    with pytest.raises(type(error)):
        await world.copy(billing={SESSION: "60000"})


class Source(Cluster):
    """A source cluster without topics."""

    def __init__(self, **groups: Mapping[str, str]) -> None:
        super().__init__(**groups)
        self.network: Any = self

    async def describe_cluster(self) -> Any:
        return type("Described", (), {"cluster_id": "A", "brokers": [1]})

    async def describe_broker(self, node_id: int) -> Any:
        return type("Described", (), {"apis": {}})

    async def least_loaded_node(self) -> int:
        return 1

    async def list_topics(self, *, internal: bool) -> list[str]:
        return []

    async def list_groups(self) -> list[GroupListing]:
        return [GroupListing(name, "", "Empty", "classic", 1) for name in ("billing", "plain")]


async def side(source: Source, **options: Any) -> ClusterFacts:
    return await gather(cast(Admin, source), TopicSelection(**options), source=True)


async def plan(source: Source) -> Any:
    return make_plan(
        await side(source), ClusterFacts("B", 1, True, {}, {}), MirrorOptions(follow=True)
    )


async def test_i43_a_plan_has_groups_that_have_only_settings() -> None:
    source = Source(billing={SESSION: "60000"}, nothing={}, workers={HEARTBEAT: "6000"})
    made = await plan(source)
    assert made.group_settings == (
        GroupOverrides("billing", {SESSION: "60000"}),
        GroupOverrides("workers", {HEARTBEAT: "6000"}),
    )
    assert (made.has_all_group_settings, made.notes) == (True, ())


@pytest.mark.parametrize(
    "error", [UnsupportedByBroker("too old"), ClusterAuthorizationFailed("no right")]
)
async def test_i43_known_groups_are_described_if_settings_cannot_be_listed(
    error: OdradekError,
) -> None:
    source = Source(billing={SESSION: "60000"}, workers={HEARTBEAT: "6000"})
    source.listing = error
    made = await plan(source)
    assert made.group_settings == (GroupOverrides("billing", {SESSION: "60000"}),)
    assert not made.has_all_group_settings
    (note,) = made.notes
    assert note == (
        "settings of some groups are not copied: groups without offsets or members are not"
        f" listed: {error}"
    )
    source.listing, source.describing = None, {"billing": error}
    made = await plan(source)
    assert made.group_settings == (GroupOverrides("workers", {HEARTBEAT: "6000"}),)
    assert made.notes == (f"settings of some groups are not copied: {error}",)


async def test_a_timeout_is_not_taken_for_a_broker_that_cannot_list_settings() -> None:
    source = Source()
    source.listing = RequestTimedOut("late")
    with pytest.raises(RequestTimedOut):
        await plan(source)


async def test_config_resources_of_groups_are_listed_by_type() -> None:
    settings = {"log.durability": "page-cache"}
    with SubprocessBroker(settings=settings) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap) as admin:
            group, metrics = ConfigResource.group("billing"), ConfigResource.client_metrics("all")
            await admin.alter_configs({group: {SESSION: "50000"}, metrics: {"interval.ms": "500"}})
            assert await admin.list_config_resources(ResourceType.GROUP) == [group]
            both = (ResourceType.CLIENT_METRICS, ResourceType.GROUP)
            assert await admin.list_config_resources(both) == [metrics, group]
            assert await admin.list_config_resources() == [
                ConfigResource.broker(1),
                ConfigResource.broker_logger(1),
                metrics,
                group,
            ]
            assert await admin.list_client_metrics() == ["all"]


# --- Between two runs ---


async def test_i43_changes_while_the_mirror_was_stopped_are_copied() -> None:
    world = World(orders={SESSION: "50000"}, kept={SESSION: "50000"})
    await world.begin(orders={SESSION: "50000"}, kept={SESSION: "50000"})
    await world.copy(billing={SESSION: "60000"}, gone={SESSION: "60000"})
    world.restart()
    world.target.groups["kept"] = {SESSION: "55000"}
    changed = {SESSION: "70000", HEARTBEAT: "6000"}
    await world.begin(orders=changed, kept={SESSION: "70000"})
    await world.copy(billing=changed)
    assert world.target.groups == {
        "orders": changed,
        "kept": {SESSION: "55000"},
        "billing": changed,
        "gone": {},
    }
    assert sum("set by somebody else" in line for line in world.told) == 1
    assert world.notes.stored[ConfigResource.topic("orders")] == changed


async def test_i43_a_run_for_other_groups_leaves_the_groups_of_the_last_run() -> None:
    world = World()
    await world.begin()
    await world.copy(billing={SESSION: "60000"})
    world.restart(TopicSelection(groups=re.compile("other")))
    await world.begin()
    await world.copy()
    assert world.target.groups == {"billing": {SESSION: "60000"}}


async def test_i43_a_mirror_without_a_settings_topic_copies_and_tells_once() -> None:
    world = World()
    world.notes.failure = GroupAuthorizationFailed("no right to write")
    await world.begin()
    for value in ("60000", "70000"):
        await world.copy(billing={SESSION: value})
    assert world.target.groups == {"billing": {SESSION: "70000"}}
    assert sum("no right to write" in line for line in world.told) == 1


async def test_i43_the_settings_topic_outlives_the_mirror(live_bootstrap: str) -> None:
    topic, group = ConfigResource.topic("orders"), ConfigResource.group("orders")
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        notes = SettingsNotes(admin, "notes", "A")
        assert await notes.read() == {}
        await notes.write({topic: {SESSION: "1"}, group: {}})
        await notes.write({topic: {SESSION: "2", "a": "b"}})
        assert await SettingsNotes(admin, "notes", "A").read() == {
            topic: {SESSION: "2", "a": "b"},
            group: {},
        }


async def test_i43_a_mirror_with_another_source_leaves_the_settings_of_the_first(
    live_bootstrap: str, unique_topic: str
) -> None:
    """Groups that the second source does not have are not taken for groups without settings."""
    resource = ConfigResource.group(unique_topic)
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        for source, groups in (
            ("A", [GroupOverrides(unique_topic, {SESSION: "50000"})]),
            ("B", []),
        ):
            notes = SettingsNotes(admin, unique_topic, source)
            copier = SettingsCopier(admin, lambda _: None, notes, TopicSelection())
            await copier.begin([])
            await copier.copy_groups(groups, is_whole=True)
        found = (await admin.describe_configs(resource))[resource]
        assert found[SESSION].value == "50000"
