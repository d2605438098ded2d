"""Settings of topics that a mirror copies, and those that it leaves out with a reason; ACLs and
quotas.

Settings are copied when a topic is created. Later only changes that are made at the source are,
and only of settings that nobody has changed at the target: a mirror never takes back what an
administrator of the target has set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from odradek_client.admin import Admin
from odradek_client.admin.acls import AclBinding
from odradek_client.admin.configs import ConfigEntry, ConfigResource, ConfigSource
from odradek_client.admin.quotas import QuotaEntity
from odradek_protocol.acls import AclResourceType, PatternType

#: Settings about nodes, other storage or another mirror of the source, and why they stay there.
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
#: Settings that decide for how long records stay: the target's defaults may delete them sooner.
_OF_RETENTION = ("retention.ms", "retention.bytes", "cleanup.policy")
_OF_BROKERS = (
    ConfigSource.DYNAMIC_BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER,
    ConfigSource.STATIC_BROKER,
)


def copied_settings(
    entries: Mapping[str, ConfigEntry], target_brokers: int
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The settings of a topic of the source that its copy gets, and the others with a reason.

    Copied are the ones that were set for the topic, and what the brokers of the source say about
    retention. Other defaults of the source's brokers are not copied.
    """
    copied: dict[str, str] = {}
    left_out: list[tuple[str, str]] = []
    for name, entry in sorted(entries.items()):
        of_topic = entry.source is ConfigSource.TOPIC
        of_brokers = entry.source in _OF_BROKERS and name in _OF_RETENTION
        if entry.value is None or entry.is_default or not (of_topic or of_brokers):
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
    """The changes of a topic of the source that its copy follows, None for a deleted setting; and
    those that it does not, because the setting was changed at the target, with the reason."""
    followed: dict[str, str | None] = {}
    kept: list[tuple[str, str]] = []
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name):
            continue
        entry = target.get(name)
        of_topic = entry is not None and entry.source is ConfigSource.TOPIC
        there = entry.value if entry is not None and of_topic else None
        if there == after.get(name):
            continue
        if there == before.get(name):
            followed[name] = after.get(name)
        else:
            kept.append((name, f"the target has {there or 'its default'}, set by somebody else"))
    return followed, kept


class _Topic(Protocol):
    """A topic with the settings that its copy is to have."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Mapping[str, str]: ...


class SettingsCopier:
    """Follows changes of the settings of topics while a mirror runs."""

    def __init__(self, target: Admin, tell: Callable[[str], None]) -> None:
        self._target, self._tell = target, tell
        self._known: dict[str, Mapping[str, str]] = {}

    async def begin(self, topics: Sequence[_Topic]) -> None:
        """Note the settings of topics that exist at the target; tell where the two differ."""
        for topic in topics:
            there = await self._there(topic.name)
            for name, value in topic.settings.items():
                entry = there.get(name)
                if entry is not None and entry.value != value:
                    self._tell(
                        f"topic {topic.name!r}: the setting {name} is {entry.value} at the target"
                        f" and {value} at the source; it stays as it is"
                    )
            self._known[topic.name] = topic.settings

    async def follow(self, topics: Sequence[_Topic]) -> None:
        """Copy the changes that were made at the source since the last call."""
        for topic in topics:
            before = self._known.setdefault(topic.name, topic.settings)
            if before == topic.settings:
                continue
            followed, kept = changed_settings(before, topic.settings, await self._there(topic.name))
            for name, why in kept:
                self._tell(f"topic {topic.name!r}: the change of {name} is not copied: {why}")
            resource = ConfigResource.topic(topic.name)
            for name, value in followed.items():
                changed = await self._target.alter_configs(
                    {resource: {name: value}}, raise_errors=False
                )
                if (error := changed.errors.get(resource)) is not None:
                    self._tell(f"topic {topic.name!r}: the change of {name} is not copied: {error}")
                else:
                    self._tell(f"topic {topic.name!r}: {name} is {value or 'the default'} as well")
            # Only now: after an error the changes are tried again.
            self._known[topic.name] = topic.settings

    async def _there(self, topic: str) -> Mapping[str, ConfigEntry]:
        resource = ConfigResource.topic(topic)
        return (await self._target.describe_configs(resource)).get(resource, {})


class _Names(Protocol):
    """The topics and groups that are copied."""

    def has_topic(self, name: str) -> bool: ...

    def has_group(self, name: str) -> bool: ...


def acls_to_copy(acls: Sequence[AclBinding], names: _Names) -> list[AclBinding]:
    """The ACLs of the source that concern what is copied: those of its topics and groups by name,
    those that name them by prefix or by `*`, and those of all transactional ids."""

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
    """The quotas that the target lacks; and lines about those that it has with other values, which
    stay."""
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
