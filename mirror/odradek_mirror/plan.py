"""The plan of a mirror: the topics, settings and groups to copy, and all problems that prevent the
mirror.

Read-only requests gather facts about both clusters, from which the plan is made without I/O. A
running mirror makes its plan again from time to time, for new topics.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from odradek_client.admin import Admin
from odradek_client.admin.configs import ConfigEntry, ConfigResource, ResourceType
from odradek_client.admin.groups import GroupListing
from odradek_client.admin.results import Outcomes, Results
from odradek_client.admin.topics import TopicDescription
from odradek_client.errors import OdradekError, UnknownTopicOrPartition, error_for
from odradek_client.structs import TopicPartition
from odradek_mirror.settings import GroupOverrides, copied_settings
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.primitives import ZERO_UUID, uuid_text

#: The prefix of the names of mirrors: their map topics and transactional ids.
MIRROR_PREFIX = "odradek-mirror-"
#: The setting that makes a topic of Odradek a mirror of another topic.
MIRROR_SOURCE = "mirror.source"
_TIMESTAMPS = "message.timestamp.type"
_SHARE, _STREAMS = "share", "streams"
#: The maximum number of groups whose settings are read by one request.
_TOGETHER_MAX = 200


class Mode(StrEnum):
    """The two kinds of copies."""

    SAME_OFFSETS = "same-offsets"
    EXACTLY_ONCE = "exactly-once"


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The selected topics and groups, by expressions for whole names; None: all."""

    topics: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    groups: re.Pattern[str] | None = None

    def has_topic(self, name: str) -> bool:
        """True if a topic is to be copied."""
        return _reason_to_stay(name) is None and self._names_topic(name)

    def left_out(self, name: str) -> str | None:
        """The reason why a topic that --topics names can never be copied; None if it can."""
        return (
            _reason_to_stay(name) if self.topics is not None and self._names_topic(name) else None
        )

    def _names_topic(self, name: str) -> bool:
        return _matches(self.topics, name) and not (
            self.exclude is not None and self.exclude.fullmatch(name)
        )

    def has_group(self, name: str) -> bool:
        """True if the offsets of a group are to be copied."""
        return not name.startswith(MIRROR_PREFIX) and _matches(self.groups, name)


def _reason_to_stay(name: str) -> str | None:
    if name.startswith("__"):
        return "names that begin with __ belong to the cluster itself, which writes such topics"
    if name.startswith(MIRROR_PREFIX):
        return f"names that begin with {MIRROR_PREFIX} belong to mirrors"
    return None


def _matches(pattern: re.Pattern[str] | None, name: str) -> bool:
    return pattern is None or pattern.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """The options of the user. `mode` None: the best mode that the target supports. `skip_deleted`
    and `offset_header`: see `OutSettings`."""

    selection: TopicSelection = field(default_factory=TopicSelection)
    mode: Mode | None = None
    name: str = "default"
    acls: bool = False
    quotas: bool = False
    follow: bool = False
    max_bytes_per_s: int | None = None
    timeout_s: float = 60.0
    skip_deleted: bool = False
    offset_header: str | None = None
    refresh_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts about one cluster. `ends`: the first offset and the end offset of each partition.
    `refused`: topics that could not be described, with reasons. `left_out`: topics that --topics
    names although they can never be copied, with reasons. `group_settings`: the settings of groups.
    `groups_unread`: the reason why some of these settings are missing, "" if none is."""

    cluster_id: str | None
    brokers: int
    has_mirror_topics: bool
    topics: Mapping[str, TopicDescription]
    settings: Mapping[str, Mapping[str, ConfigEntry]]
    ends: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    groups: tuple[GroupListing, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    group_settings: Mapping[str, Mapping[str, ConfigEntry]] = field(default_factory=dict)
    groups_unread: str = ""


class TopicAction(StrEnum):
    """The work on a topic of the target before records are copied."""

    CREATE = "create"
    EXTEND = "add partitions"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic to copy. `settings`: the settings for its creation. `left_out`: settings of the
    source that are not copied, with reasons. `records`: the number of offsets between log start and
    end at the source. `missing`: the number of those offsets that the target does not have yet
    (only in the mode same-offsets)."""

    name: str
    action: TopicAction
    topic_id: bytes
    partitions: int
    settings: Mapping[str, str]
    left_out: tuple[tuple[str, str], ...]
    records: int
    missing: int

    @property
    def resource(self) -> ConfigResource:
        """The topic, as the key of its settings."""
        return ConfigResource.topic(self.name)


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """The plan. `problems` prevent the mirror; `notes` are information for the user.
    `has_all_group_settings`: false if the settings of a group could not be read. `refused`: topics
    of the source that cannot be copied, with reasons, which are among the problems."""

    mode: Mode
    source_cluster: str
    target_cluster: str
    topics: tuple[TopicPlan, ...]
    groups: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    group_settings: tuple[GroupOverrides, ...] = ()
    has_all_group_settings: bool = True
    refused: Mapping[str, str] = field(default_factory=dict)

    def has_topic(self, name: str) -> bool:
        """True if a topic is copied."""
        return any(each.name == name for each in self.topics)


async def gather(admin: Admin, selection: TopicSelection, *, source: bool) -> ClusterFacts:
    """The facts about a cluster, for the topics and groups of the selection."""
    cluster = await admin.describe_cluster()
    node = await admin.network.least_loaded_node()
    apis = (await admin.describe_broker(node)).apis
    all_names = await admin.list_topics(internal=True)
    names = [name for name in all_names if selection.has_topic(name)]
    left_out = {name: why for name in all_names if (why := selection.left_out(name)) is not None}
    described = await admin.describe_topics(names, raise_errors=False) if names else {}
    refused = {name: str(error) for name, error in getattr(described, "errors", {}).items()}
    resources = [ConfigResource.topic(name) for name in described]
    configs = await admin.describe_configs(resources, raise_errors=False) if resources else {}
    for resource, error in getattr(configs, "errors", {}).items():
        refused.setdefault(resource.name, str(error))
    listed = await admin.list_groups() if source else []
    groups = tuple(each for each in listed if selection.has_group(each.group_id))
    group_settings, unread = (
        await read_group_settings(admin, selection, groups) if source else ({}, "")
    )
    return ClusterFacts(
        cluster.cluster_id,
        len(cluster.brokers),
        APIS[ApiKey.APPEND_MIRROR_RECORDS].name in apis,
        described,
        {resource.name: entries for resource, entries in configs.items()},
        await ends_of(admin, leaders_of(described.values())),
        groups,
        refused,
        left_out if source else {},
        group_settings,
        unread,
    )


async def read_group_settings(
    admin: Admin, selection: TopicSelection, groups: Iterable[GroupListing]
) -> tuple[dict[str, Mapping[str, ConfigEntry]], str]:
    """The settings of groups by name, including groups that have settings and neither members nor
    offsets; and the reason why some are missing, "" if none is."""
    unread = ""
    try:
        listed = await admin.list_config_resources(ResourceType.GROUP)
        names = [each.name for each in listed if selection.has_group(each.name)]
    except OdradekError as error:
        if error.retriable:
            raise
        # Before Kafka 4.1, or without the right to list all settings, the listed groups are used
        # instead.
        names = [each.group_id for each in groups]
        unread = f"groups without offsets or members are not listed: {error}"
    found: dict[str, Mapping[str, ConfigEntry]] = {}
    for at in range(0, len(names), _TOGETHER_MAX):
        some = [ConfigResource.group(name) for name in names[at : at + _TOGETHER_MAX]]
        described = await admin.describe_configs(some, raise_errors=False)
        found |= {resource.name: entries for resource, entries in described.items()}
        unread = unread or next(map(str, described.errors.values()), "")
    return found, unread


async def gather_both(
    source: Admin, target: Admin, selection: TopicSelection
) -> tuple[ClusterFacts, ClusterFacts]:
    """The facts about source and target. The target is read first: if another instance is copying,
    ends of the target that were read later could exceed those of the source."""
    there = await gather(target, selection, source=False)
    return await gather(source, selection, source=True), there


def leaders_of(topics: Iterable[TopicDescription]) -> dict[TopicPartition, int]:
    """The node id of the leader of each partition that has a leader."""
    return {
        TopicPartition(topic.name, part.partition): part.leader
        for topic in topics
        for part in topic.partitions
        if part.leader is not None
    }


async def topic_ids_of(admin: Admin, names: Sequence[str]) -> Results[str, bytes]:
    """The present ids of topics. A topic that is missing is not waited for."""

    async def ask(some: list[str]) -> Outcomes[str, bytes]:
        response = await admin.requests.metadata(some)
        return {
            topic.name or "": error_for(topic.error_code, about=f"topic {topic.name!r}")
            if topic.error_code
            else topic.topic_id
            for topic in response.topics
        }

    return await admin.requests.for_each(names, ask, False, final=(UnknownTopicOrPartition,))


async def ends_of(
    admin: Admin, tps: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """The first offset and the end offset of partitions whose leaders answer. Waits for partitions
    without a leader."""
    if not tps:
        return {}
    first = await admin.list_offsets(dict.fromkeys(tps, "earliest"), raise_errors=False)
    last = await admin.list_offsets(dict.fromkeys(tps, "latest"), raise_errors=False)
    return {
        tp: (start.offset, end.offset)
        for tp in tps
        if (start := first.get(tp)) is not None and (end := last.get(tp)) is not None
    }


def mirror_source(cluster_id: str | None, topic_id: bytes) -> str:
    """The value of `mirror.source` for a topic of the source."""
    return f"{cluster_id or '-'}:{uuid_text(topic_id)}"


def make_plan(source: ClusterFacts, target: ClusterFacts, options: MirrorOptions) -> MirrorPlan:
    """The plan for these facts."""
    mode = options.mode
    if mode is None:
        mode = Mode.SAME_OFFSETS if target.has_mirror_topics else Mode.EXACTLY_ONCE
    problems = _problems_of_the_whole(source, target, options, mode)
    notes = [f"topic {name!r} is left out: {why}" for name, why in source.left_out.items()]
    refused = {name: f"of the source: {why}" for name, why in source.refused.items()}
    topics = []
    for name in sorted(source.topics.keys() - refused.keys()):
        planned = _topic_plan(name, source, target, mode)
        if isinstance(planned, str):
            refused[name] = f"of the target: {planned}"
        else:
            topics.append(planned)
            notes += _notes_of(planned)
            if mode is Mode.EXACTLY_ONCE and _is_append_time(planned, target):
                notes.append(
                    f"topic {name!r}: message.timestamp.type is LogAppendTime at the target, so its"
                    " records get the time of the copy there; to keep the timestamps of the source,"
                    " make the topic with CreateTime there first"
                )
    problems += [f"topic {name!r} {why}" for name, why in refused.items()]
    groups, group_notes = _groups(source.groups)
    if options.selection.groups is not None and not groups:
        group_notes.append(
            "no group of the source is selected by --groups, which takes names and regular"
            " expressions for whole names, such as 'billing-.*'"
        )
    if source.groups_unread:
        group_notes.append(f"settings of some groups are not copied: {source.groups_unread}")
    return MirrorPlan(
        mode,
        source.cluster_id or "-",
        target.cluster_id or "-",
        tuple(topics),
        groups,
        tuple(problems),
        tuple(notes + group_notes),
        _group_settings(source, target.brokers),
        not source.groups_unread,
        refused,
    )


def _group_settings(source: ClusterFacts, target_brokers: int) -> tuple[GroupOverrides, ...]:
    found = (
        GroupOverrides(name, copied_settings(entries, target_brokers)[0])
        for name, entries in sorted(source.group_settings.items())
    )
    return tuple(each for each in found if each.settings)


def _problems_of_the_whole(
    source: ClusterFacts, target: ClusterFacts, options: MirrorOptions, mode: Mode
) -> list[str]:
    problems = []
    if source.cluster_id is not None and source.cluster_id == target.cluster_id:
        problems.append(
            f"--from and --to are the same cluster ({source.cluster_id}): name two clusters"
        )
    if mode is Mode.SAME_OFFSETS and not target.has_mirror_topics:
        problems.append(
            "the target does not take records at given offsets: --mode same-offsets needs an"
            " Odradek there that has mirror topics; --mode exactly-once works with any Kafka"
        )
    if not source.topics and not source.refused and not options.follow:
        problems.append(
            "no topic of the source is selected: `odradek topic list` there shows its topics; see"
            " --topics and --exclude"
        )
    return problems


def _topic_plan(
    name: str, source: ClusterFacts, target: ClusterFacts, mode: Mode
) -> TopicPlan | str:
    """The plan of a topic, or the reason why it cannot be copied."""
    topic, there = source.topics[name], target.topics.get(name)
    count = len(topic.partitions)
    settings, left_out = copied_settings(source.settings.get(name, {}), target.brokers)
    wanted_source = mirror_source(source.cluster_id, topic.topic_id)
    if mode is Mode.SAME_OFFSETS:
        settings[MIRROR_SOURCE] = wanted_source
    trouble = target.refused.get(name)
    if trouble is None and there is not None:
        trouble = _trouble_with(there, count, mode, wanted_source, target.settings.get(name, {}))
    records, missing = 0, 0
    for part in topic.partitions:
        tp = TopicPartition(name, part.partition)
        first, end = source.ends.get(tp, (0, 0))
        _, copied = target.ends.get(tp, (0, 0))
        records += end - first
        missing += max(end - max(first, copied), 0) if mode is Mode.SAME_OFFSETS else 0
        if trouble is None and mode is Mode.SAME_OFFSETS and tp in source.ends and copied > end:
            trouble = (
                f"partition {part.partition} ends at offset {copied}, and that of the source at"
                f" {end}: the source has lost records that were copied, or is another cluster"
            )
    if trouble is not None:
        return trouble
    action = TopicAction.CREATE
    if there is not None:
        action = TopicAction.CONTINUE if len(there.partitions) == count else TopicAction.EXTEND
    return TopicPlan(
        name, action, topic.topic_id, count, settings, tuple(left_out), records, missing
    )


def _trouble_with(
    there: TopicDescription,
    count: int,
    mode: Mode,
    wanted_source: str,
    settings: Mapping[str, ConfigEntry],
) -> str | None:
    """The reason why an existing topic of the target cannot become or stay the copy; None if it
    can."""
    entry = settings.get(MIRROR_SOURCE)
    found = (entry.value or "") if entry is not None else ""
    if mode is Mode.SAME_OFFSETS and not found:
        return (
            "it exists and is no mirror: it was promoted, or is somebody else's. Delete it, or"
            " leave it out with --exclude"
        )
    if mode is Mode.SAME_OFFSETS and found != wanted_source:
        return (
            f"it is the mirror of another topic ({found}; the source's is {wanted_source}): the"
            " topic of the source was deleted and created again, or is of another cluster. Delete"
            " it to copy the new one, or promote it and leave it out with --exclude"
        )
    if mode is Mode.EXACTLY_ONCE and found:
        return "it is a mirror with the same offsets, which takes no other records: promote it"
    if len(there.partitions) > count:
        return (
            f"it has {len(there.partitions)} partitions, and that of the source {count}: somebody"
            " has added some. Delete it, or leave it out with --exclude"
        )
    return None


def _is_append_time(planned: TopicPlan, target: ClusterFacts) -> bool:
    """True if the target sets append times as the timestamps of records in a topic."""
    value = planned.settings.get(_TIMESTAMPS)
    if planned.action is not TopicAction.CREATE:
        entry = target.settings.get(planned.name, {}).get(_TIMESTAMPS)
        value = None if entry is None else entry.value
    return value == "LogAppendTime"


def _notes_of(planned: TopicPlan) -> list[str]:
    notes = [
        f"topic {planned.name!r}: the setting {name} is not copied: {why}"
        for name, why in planned.left_out
    ]
    if planned.topic_id == ZERO_UUID:
        notes.append(
            f"topic {planned.name!r}: the source has no ids of topics (before Kafka 2.8), so a"
            " topic that is deleted and created again there is taken for the old one"
        )
    return notes


def _groups(groups: tuple[GroupListing, ...]) -> tuple[tuple[str, ...], list[str]]:
    """The groups whose offsets are copied, and notes about share groups and streams groups."""
    copied = tuple(each.group_id for each in groups if each.type != _SHARE)
    notes = [
        f"share group {each.group_id!r}: its state (records in flight, delivery counts) is not"
        " copied; set its start offset with `odradek share reset-offsets`"
        for each in groups
        if each.type == _SHARE
    ]
    notes += [
        f"streams group {each.group_id!r}: its offsets are copied; its members create topology"
        " and tasks again"
        for each in groups
        if each.type == _STREAMS
    ]
    return copied, notes
