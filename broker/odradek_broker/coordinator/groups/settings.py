"""The settings and the views of topics that groups need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol


class ConsumerGroupSettings(Protocol):
    """The settings of the broker that consumer groups read."""

    @property
    def group_consumer_session_timeout_ms(self) -> int: ...
    @property
    def group_consumer_heartbeat_interval_ms(self) -> int: ...
    @property
    def group_consumer_max_size(self) -> int: ...
    @property
    def group_consumer_assignors(self) -> tuple[str, ...]: ...
    @property
    def group_consumer_migration_policy(self) -> str: ...
    @property
    def group_max_size(self) -> int: ...


class ShareGroupSettings(Protocol):
    """The settings of the broker that share groups read."""

    @property
    def group_share_session_timeout_ms(self) -> int: ...
    @property
    def group_share_heartbeat_interval_ms(self) -> int: ...
    @property
    def group_share_max_size(self) -> int: ...


class StreamsGroupSettings(Protocol):
    """The settings of the broker that streams groups read."""

    @property
    def group_streams_session_timeout_ms(self) -> int: ...
    @property
    def group_streams_heartbeat_interval_ms(self) -> int: ...
    @property
    def group_streams_max_size(self) -> int: ...
    @property
    def group_streams_num_standby_replicas(self) -> int: ...
    @property
    def group_streams_initial_rebalance_delay_ms(self) -> int: ...


#: The topics among the given ones that the user of a member may see (A-67).
Visible = Callable[[frozenset[str]], frozenset[str]]


def every_topic(names: frozenset[str]) -> frozenset[str]:
    """All topics are visible."""
    return names


class Topics(Protocol):
    """The topics of the cluster, and the settings of groups."""

    @property
    def topics_version(self) -> int:
        """The version of the topics: a new number after every change."""
        ...

    def topic_names(self) -> Iterable[str]:
        """The names of all topics, including the broker's own."""
        ...

    def partition_count(self, name: str) -> int:
        """The number of partitions of a topic; 0 if it does not exist."""
        ...

    @property
    def broker_rack(self) -> str:
        """The rack of the broker that has all partitions; empty for none."""
        ...

    def topic_id(self, name: str) -> bytes: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    @property
    def share_assignment_interval_ms(self) -> int:
        """The present setting group.share.assignment.interval.ms, which may change at any time."""
        ...

    @property
    def streams_assignment_interval_ms(self) -> int:
        """The present setting group.streams.assignment.interval.ms, which may change at any
        time."""
        ...

    def group_setting_ms(self, group_id: str, name: str) -> int | None:
        """A group's own value of a setting; None if it has none."""
        ...


def _own_or(own_ms: int | None, broker_ms: int) -> int:
    return broker_ms if own_ms is None else own_ms


def session_timeout_ms(config: ConsumerGroupSettings, topics: Topics, group_id: str) -> int:
    """The longest silence of a member of the group: the group's own setting, or the broker's."""
    own_ms = topics.group_setting_ms(group_id, "consumer.session.timeout.ms")
    return _own_or(own_ms, config.group_consumer_session_timeout_ms)


def heartbeat_interval_ms(config: ConsumerGroupSettings, topics: Topics, group_id: str) -> int:
    """The interval between heartbeats of a member: the group's own setting, or the broker's."""
    own_ms = topics.group_setting_ms(group_id, "consumer.heartbeat.interval.ms")
    return _own_or(own_ms, config.group_consumer_heartbeat_interval_ms)


def share_session_timeout_ms(config: ShareGroupSettings, topics: Topics, group_id: str) -> int:
    """The longest silence of a member of a share group: the group's own setting, or the
    broker's."""
    own_ms = topics.group_setting_ms(group_id, "share.session.timeout.ms")
    return _own_or(own_ms, config.group_share_session_timeout_ms)


def share_heartbeat_interval_ms(config: ShareGroupSettings, topics: Topics, group_id: str) -> int:
    """The interval between heartbeats of a member of a share group: the group's own setting, or
    the broker's."""
    own_ms = topics.group_setting_ms(group_id, "share.heartbeat.interval.ms")
    return _own_or(own_ms, config.group_share_heartbeat_interval_ms)


def share_assignment_interval_ms(topics: Topics, group_id: str) -> int:
    """The shortest interval between two assignments of a share group: the group's own setting, or
    the broker's."""
    own_ms = topics.group_setting_ms(group_id, "share.assignment.interval.ms")
    return _own_or(own_ms, topics.share_assignment_interval_ms)


def streams_session_timeout_ms(config: StreamsGroupSettings, topics: Topics, group_id: str) -> int:
    """The longest silence of a member of a streams group: the group's own setting, or the
    broker's."""
    own_ms = topics.group_setting_ms(group_id, "streams.session.timeout.ms")
    return _own_or(own_ms, config.group_streams_session_timeout_ms)


def streams_heartbeat_interval_ms(
    config: StreamsGroupSettings, topics: Topics, group_id: str
) -> int:
    """The interval between heartbeats of a member of a streams group: the group's own setting, or
    the broker's."""
    own_ms = topics.group_setting_ms(group_id, "streams.heartbeat.interval.ms")
    return _own_or(own_ms, config.group_streams_heartbeat_interval_ms)


def streams_assignment_interval_ms(topics: Topics, group_id: str) -> int:
    """The shortest interval between two assignments of a streams group: the group's own setting, or
    the broker's."""
    own_ms = topics.group_setting_ms(group_id, "streams.assignment.interval.ms")
    return _own_or(own_ms, topics.streams_assignment_interval_ms)


def may_assign_again(assigned_ms: int, interval_ms: int, wall_ms: int) -> bool:
    """True unless the last assignment, 0 if its time is not known, is younger than the interval.
    An assignment in the future does not count: the clock was set back."""
    return not (assigned_ms and 0 <= wall_ms - assigned_ms < interval_ms)


def streams_initial_delay_ms(config: StreamsGroupSettings, topics: Topics, group_id: str) -> int:
    """The time between the first member of a streams group and the first assignment: the group's
    own setting, or the broker's."""
    own_ms = topics.group_setting_ms(group_id, "streams.initial.rebalance.delay.ms")
    return _own_or(own_ms, config.group_streams_initial_rebalance_delay_ms)


def streams_standby_replicas(config: StreamsGroupSettings, topics: Topics, group_id: str) -> int:
    """The number of standby tasks for each task with a state: the group's own setting, or the
    broker's."""
    own = topics.group_setting_ms(group_id, "streams.num.standby.replicas")
    return _own_or(own, config.group_streams_num_standby_replicas)


class GroupSettings(ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings, Protocol):
    """The settings of groups of all protocols."""

    @property
    def group_min_session_timeout_ms(self) -> int: ...
    @property
    def group_max_session_timeout_ms(self) -> int: ...
    @property
    def group_initial_rebalance_delay_ms(self) -> int: ...
    @property
    def offset_metadata_max_bytes(self) -> int: ...
    @property
    def offsets_retention_minutes(self) -> int: ...
    @property
    def offsets_retention_check_interval_ms(self) -> int: ...
