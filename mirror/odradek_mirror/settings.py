"""The settings of topics and groups that a mirror copies or leaves out, and its ACLs and quotas.

Settings of a topic are copied when it is created, those of a group if the group lacks them at the
target. Later only changes at the source are copied, also those since the last run, and only of
settings that were not changed at the target: a mirror never overwrites the settings of an
administrator of the target.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from odradek_client.admin import Admin
from odradek_client.admin.acls import AclBinding
from odradek_client.admin.configs import ConfigEntry, ConfigResource, ConfigSource, ResourceType
from odradek_client.admin.quotas import QuotaEntity
from odradek_client.errors import AuthenticationFailed, OdradekError
from odradek_client.producer.producer import producer_on_network
from odradek_client.structs import TopicPartition
from odradek_mirror.map_topic import make_map_topic, map_topic, stored_records
from odradek_protocol.acls import AclResourceType, PatternType

#: Settings that concern only the source (its nodes, its tiered storage, or the cluster that it
#: mirrors), with the reasons why they are not copied.
_OF_THE_SOURCE = {
    "leader.replication.throttled.replicas": "it names nodes of the source",
    "follower.replication.throttled.replicas": "it names nodes of the source",
    "remote.storage.enable": "tiered storage is the source's own",
    "remote.log.copy.disable": "tiered storage is the source's own",
    "remote.log.delete.on.disable": "tiered storage is the source's own",
    "local.retention.ms": "tiered storage is the source's own",
    "local.retention.bytes": "tiered storage is the source's own",
    "mirror.source": "it says what the source itself is a mirror of",
}
_MIN_IN_SYNC = "min.insync.replicas"
#: Settings of retention, which are copied because the target's defaults may delete records sooner.
_OF_RETENTION = ("retention.ms", "retention.bytes", "cleanup.policy")
#: The sources of settings that were set for a topic or a group itself.
_OWN = (ConfigSource.TOPIC, ConfigSource.GROUP)
_OF_BROKERS = (
    ConfigSource.DYNAMIC_BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER,
    ConfigSource.STATIC_BROKER,
)


def copied_settings(
    entries: Mapping[str, ConfigEntry], target_brokers: int
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The settings that the copy of a topic or group gets; and the settings that are not copied,
    with reasons.

    The copy gets the settings that were set for the topic or group itself, and the retention
    settings of the source's brokers. Other defaults of the source's brokers are not copied.
    """
    copied: dict[str, str] = {}
    left_out: list[tuple[str, str]] = []
    for name, entry in sorted(entries.items()):
        is_own = entry.source in _OWN
        of_brokers = entry.source in _OF_BROKERS and name in _OF_RETENTION
        if entry.value is None or entry.is_default or not (is_own or of_brokers):
            continue
        if (why := _reason_against(name, entry.value, target_brokers)) is None:
            copied[name] = entry.value
        else:
            left_out.append((name, why))
    return copied, left_out


def _reason_against(name: str, value: str, target_brokers: int) -> str | None:
    if name in _OF_THE_SOURCE:
        return _OF_THE_SOURCE[name]
    if name == _MIN_IN_SYNC and value.isdecimal() and int(value) > target_brokers:
        nodes = "one node" if target_brokers == 1 else f"{target_brokers} nodes"
        return f"it is {value}, and the target has {nodes}: no record could be produced there"
    return None


def changed_settings(
    before: Mapping[str, str], after: Mapping[str, str], target: Mapping[str, ConfigEntry]
) -> tuple[dict[str, str | None], list[tuple[str, str]]]:
    """The changes of a topic or group at the source that can be copied (None: setting deleted), and
    those that are not copied because the target's value was changed, with the reason."""
    followed: dict[str, str | None] = {}
    kept: list[tuple[str, str]] = []
    own = own_values(target)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name):
            continue
        there = own.get(name)
        if there == after.get(name):
            continue
        if there == before.get(name):
            followed[name] = after.get(name)
        else:
            kept.append((name, f"the target has {there or 'its default'}, set by somebody else"))
    return followed, kept


def own_values(entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """The values that were set for the topic or group itself."""
    return {name: entry.value for name, entry in entries.items() if entry.source in _OWN}


@dataclass(frozen=True, slots=True)
class GroupOverrides:
    """A group of the source with the settings that were set for the group."""

    name: str
    settings: Mapping[str, str]

    @property
    def resource(self) -> ConfigResource:
        """The group, as the key of its settings."""
        return ConfigResource.group(self.name)


class _Configured(Protocol):
    """A topic or group with the settings of its copy."""

    @property
    def resource(self) -> ConfigResource: ...

    @property
    def settings(self) -> Mapping[str, str]: ...


class _Notes(Protocol):
    """The settings that were copied last, which outlive the mirror."""

    async def read(self) -> Mapping[ConfigResource, Mapping[str, str]]: ...

    async def write(self, copied: Mapping[ConfigResource, Mapping[str, str]], /) -> None: ...


class SettingsCopier:
    """The copier of changed settings of topics and groups. `names`: the selected ones."""

    def __init__(
        self, target: Admin, tell: Callable[[str], None], notes: _Notes, names: _Names
    ) -> None:
        self._target, self._tell = target, tell
        self._notes, self._names = notes, names
        #: The settings of the source that were copied last, and those that are noted durably.
        self._known: dict[ConfigResource, Mapping[str, str]] = {}
        self._noted: dict[ConfigResource, Mapping[str, str]] = {}
        self._unnoted = ""
        #: The last errors of groups that could not be copied.
        self._refused: dict[ConfigResource, str] = {}

    async def begin(self, topics: Sequence[_Configured]) -> None:
        """Copy the changes of topics at the source since the last run. Show the differences between
        source and target that stay."""
        try:
            self._noted = dict(await self._notes.read())
        except OdradekError as error:
            self._tell_unnoted(error)
        is_selected = {
            ResourceType.TOPIC: self._names.has_topic,
            ResourceType.GROUP: self._names.has_group,
        }
        self._known = {
            resource: settings
            for resource, settings in self._noted.items()
            if resource.type in is_selected and is_selected[resource.type](resource.name)
        }
        await self.follow(topics)
        for topic in topics:
            there = await self._there(topic.resource)
            self._tell_differences(topic, {name: each.value for name, each in there.items()})

    async def follow(self, topics: Sequence[_Configured]) -> None:
        """Copy the changes at the source since the last call."""
        for topic in topics:
            await self._follow(topic.resource, topic.settings)
        await self._note()

    async def copy_groups(self, groups: Iterable[GroupOverrides], *, is_whole: bool) -> None:
        """Copy settings of groups. The first call for a group copies the settings that the group
        lacks at the target; later calls copy the changes since the last call. `is_whole`: `groups`
        has all groups with settings, so other groups have no settings any more."""
        named = {each.resource: each for each in groups}
        if is_whole:
            known = [each for each in self._known if each.type is ResourceType.GROUP]
            named |= {each: GroupOverrides(each.name, {}) for each in known if each not in named}
        for resource, group in named.items():
            try:
                if resource in self._known:
                    await self._follow(resource, group.settings)
                else:
                    await self._copy_group(group)
            except OdradekError as error:
                # The refusal of one group does not affect the others. The next call retries the
                # group.
                if error.retriable or isinstance(error, AuthenticationFailed):
                    raise
                if self._refused.get(resource) != (why := str(error)):
                    self._refused[resource] = why
                    self._tell_not_copied(resource, "its settings are", why)
        await self._note()

    async def _note(self) -> None:
        """Store what was copied, for the next run."""
        known = self._known.items()
        news = {each: settings for each, settings in known if self._noted.get(each) != settings}
        if not news:
            return
        try:
            await self._notes.write(news)
        except OdradekError as error:
            self._tell_unnoted(error)
        else:
            self._noted |= news

    def _tell_unnoted(self, error: OdradekError) -> None:
        """Tell that the next run will not know what was copied. Raises errors that affect the whole
        mirror."""
        if error.retriable or isinstance(error, AuthenticationFailed):
            raise error
        if self._unnoted != (why := str(error)):
            self._unnoted = why
            self._tell(
                "settings that change at the source while the mirror is stopped will not be copied,"
                f" because the mirror cannot note what it has copied: {why}"
            )

    async def _copy_group(self, group: GroupOverrides) -> None:
        there = own_values(await self._there(group.resource))
        self._tell_differences(group, there)
        missing = {name: each for name, each in group.settings.items() if name not in there}
        for name, error in (await self._alter(group.resource, missing)).items():
            self._tell_not_copied(group.resource, f"the setting {name} is", error)
        self._known[group.resource] = group.settings

    def _tell_differences(self, one: _Configured, there: Mapping[str, str | None]) -> None:
        for name, value in one.settings.items():
            if name in there and there[name] != value:
                self._tell(
                    f"{_named(one.resource)}: the setting {name} is {there[name]} at the target"
                    f" and {value} at the source; it stays as it is"
                )

    async def _follow(self, resource: ConfigResource, settings: Mapping[str, str]) -> None:
        before = self._known.setdefault(resource, settings)
        if before == settings:
            return
        followed, kept = changed_settings(before, settings, await self._there(resource))
        for name, why in kept:
            self._tell_not_copied(resource, f"the change of {name} is", why)
        errors = await self._alter(resource, followed)
        for name, value in followed.items():
            if name in errors:
                self._tell_not_copied(resource, f"the change of {name} is", errors[name])
            else:
                self._tell(f"{_named(resource)}: {name} is {value or 'the default'} as well")
        # The settings are noted last, so that the changes are retried after an error.
        self._known[resource] = settings

    def _tell_not_copied(self, resource: ConfigResource, what: str, why: object) -> None:
        self._tell(f"{_named(resource)}: {what} not copied: {why}")

    async def _alter(
        self, resource: ConfigResource, changes: Mapping[str, str | None]
    ) -> dict[str, OdradekError]:
        """Change settings at the target: all in one request, because some settings limit others. If
        the target refuses this request, change the settings one by one. Returns the errors of the
        settings that the target refuses."""
        errors: dict[str, OdradekError] = {}
        if not changes or await self._error_of(resource, changes) is None:
            return errors
        for name, value in changes.items():
            if (error := await self._error_of(resource, {name: value})) is not None:
                errors[name] = error
        return errors

    async def _error_of(
        self, resource: ConfigResource, changes: Mapping[str, str | None]
    ) -> OdradekError | None:
        changed = await self._target.alter_configs({resource: changes}, raise_errors=False)
        return changed.errors.get(resource)

    async def _there(self, resource: ConfigResource) -> Mapping[str, ConfigEntry]:
        return (await self._target.describe_configs(resource)).get(resource, {})


class SettingsNotes:
    """The settings topic of the mirror `name`, `odradek-mirror-NAME.settings`, a compacted topic at
    the target. It has the settings of each topic and group as the mirror has copied them last from
    this source, so that the next run can tell a change at the source from a change at the target.
    A mirror of the same name that copies from another source has notes of its own. Raises
    OdradekError.

    `source_cluster`: the cluster id of the source.
    """

    def __init__(self, target: Admin, name: str, source_cluster: str) -> None:
        self._target, self._name = target, f"{name}.settings"
        self._source_cluster = source_cluster

    async def read(self) -> dict[ConfigResource, Mapping[str, str]]:
        """The settings by topic and group; creates the settings topic unless it exists. Records of
        another form are ignored."""
        await make_map_topic(self._target, self._name)
        stored = await stored_records(self._target, TopicPartition(map_topic(self._name), 0))
        found = (
            _decoded(key, value, self._source_cluster) for key, (_, _, value) in stored.items()
        )
        return dict(each for each in found if each is not None)

    async def write(self, copied: Mapping[ConfigResource, Mapping[str, str]]) -> None:
        """Store the settings of topics and groups; returns when they are durable."""
        producer = producer_on_network(self._target.network, linger_ms=0)
        await producer.start()
        try:
            sent = []
            for resource, settings in copied.items():
                names = [resource.type.name, resource.name, self._source_cluster]
                key = json.dumps(names).encode()
                value = json.dumps(dict(settings)).encode()
                sent.append(await producer.send(map_topic(self._name), value, key, partition=0))
            for each in sent:
                await each
        finally:
            await producer.close()


def _decoded(
    key: bytes | None, value: bytes | None, source_cluster: str
) -> tuple[ConfigResource, Mapping[str, str]] | None:
    try:
        kind, name, source = json.loads(key or b"")
        settings = json.loads(value or b"")
        resource = ConfigResource(ResourceType[kind], name)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_valid = isinstance(settings, dict) and all(isinstance(v, str) for v in settings.values())
    is_valid = is_valid and isinstance(name, str) and source == source_cluster
    return (resource, settings) if is_valid else None


def _named(resource: ConfigResource) -> str:
    return f"{resource.type.name.lower()} {resource.name!r}"


class _Names(Protocol):
    """The names of the topics and groups that are copied."""

    def has_topic(self, name: str) -> bool: ...

    def has_group(self, name: str) -> bool: ...


def acls_to_copy(acls: Sequence[AclBinding], names: _Names) -> list[AclBinding]:
    """The ACLs of the source that apply to the copied topics and groups, by name, by prefix or by
    `*`, and the ACLs of all transactional ids."""

    def concerns(acl: AclBinding) -> bool:
        if acl.resource_type is AclResourceType.TRANSACTIONAL_ID:
            return True
        if acl.resource_type not in (AclResourceType.TOPIC, AclResourceType.GROUP):
            return False
        if acl.pattern_type is PatternType.PREFIXED or acl.name == "*":
            return True
        if acl.resource_type is AclResourceType.TOPIC:
            return names.has_topic(acl.name)
        return names.has_group(acl.name)

    return [acl for acl in acls if concerns(acl)]


async def copy_acls(source: Admin, target: Admin, names: _Names) -> list[str]:
    """Create the ACLs of the source at the target; returns lines for the user."""
    acls = await source.describe_acls()
    wanted = acls_to_copy(acls, names)
    made = await target.create_acls(wanted, raise_errors=False) if wanted else None
    lines = [f"ACL not copied: {error}" for error in (made.errors.values() if made else ())]
    others = len(acls) - len(wanted)
    lines.append(
        f"{len(made or ())} ACLs of topics, groups and transactional ids are at the target"
    )
    if others:
        lines.append(f"{others} ACLs of other resources or topics were left out")
    return lines


_Quotas = Mapping[QuotaEntity, Mapping[str, float]]


def quotas_to_copy(
    source: _Quotas, target: _Quotas
) -> tuple[dict[QuotaEntity, dict[str, float | None]], list[str]]:
    """The quotas that the target lacks, and lines for the user about quotas whose value at the
    target differs and is kept."""
    changes: dict[QuotaEntity, dict[str, float | None]] = {}
    kept: list[str] = []
    for entity, quotas in source.items():
        there = target.get(entity, {})
        for key, value in quotas.items():
            if key not in there:
                changes.setdefault(entity, {})[key] = value
            elif there[key] != value:
                kept.append(
                    f"quota {key} of {entity} is {there[key]:g} at the target and {value:g} at the"
                    " source; it stays as it is"
                )
    return changes, kept


async def copy_quotas(source: Admin, target: Admin) -> list[str]:
    """Set the quotas of the source at the target; returns lines for the user."""
    wanted = await source.describe_client_quotas()
    changes, lines = quotas_to_copy(wanted, await target.describe_client_quotas())
    errors = {}
    if changes:
        errors = (await target.alter_client_quotas(changes, raise_errors=False)).errors
    lines += [f"quotas not copied: {error}" for error in errors.values()]
    lines.append(f"quotas of {len(wanted) - len(errors)} users, clients and addresses are there")
    return lines
