"""The settings and the views of topics that groups need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Protocol


class ConsumerGroupSettings(Protocol):
    """The settings of the broker that consumer groups read."""

    @property
    def group_consumer_max_size(self) -> int: ...
    @property
    def group_consumer_assignors(self) -> tuple[str, ...]: ...
    @property
    def group_consumer_migration_policy(self) -> str: ...
    @property
    def group_max_size(self) -> int: ...


class GroupSettings(ConsumerGroupSettings, Protocol):
    """The settings for groups of all protocols, except settings that are read by name."""

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


#: A filter of topic names: it returns the topics that the user of a member may see (A-67).
Visible = Callable[[frozenset[str]], frozenset[str]]


def every_topic(names: frozenset[str]) -> frozenset[str]:
    """Return all names: the user may see every topic."""
    return names


class CoordinatorMetadata(Protocol):
    """The topics of the cluster, and the settings of groups."""

    @property
    def topics_version(self) -> int:
        """The version of the topics: a new number after every change."""
        ...

    def topic_names(self) -> Iterable[str]: ...

    def partition_count(self, name: str) -> int:
        """The number of partitions of a topic; 0 if it does not exist."""
        ...

    @property
    def broker_rack(self) -> str:
        """The rack of the broker, which has a replica of every partition; empty if the broker has
        no rack."""
        ...

    def topic_id(self, name: str) -> bytes: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def topic_made_ms(self, name: str) -> int:
        """The wall time at which a topic was made; 0 if it is not known."""
        ...

    def assignment_interval_ms(self, group_type: str) -> int:
        """The present value of group.TYPE.assignment.interval.ms, which may change at any time."""
        ...

    def group_setting_ms(self, group_id: str, name: str) -> int | None:
        """A group's own value of a setting; None if it has none."""
        ...


def group_setting(
    config: GroupSettings, topics: CoordinatorMetadata, group_id: str, name: str
) -> int:
    """The value of a setting of groups, such as `share.session.timeout.ms`: the group's own value,
    or the value of the broker's setting, whose name has the prefix `group.`."""
    own = topics.group_setting_ms(group_id, name)
    if own is not None:
        return own
    of_broker: int = getattr(config, _attribute(name))
    return of_broker


@cache
def _attribute(name: str) -> str:
    return f"group_{name.replace('.', '_')}"


def assignment_interval_ms(topics: CoordinatorMetadata, group_id: str, group_type: str) -> int:
    """The lower limit of the interval between two assignments of a modern group: the group's own
    setting if there is one, otherwise the broker's setting."""
    own_ms = topics.group_setting_ms(group_id, f"{group_type}.assignment.interval.ms")
    if own_ms is not None:
        return own_ms
    return topics.assignment_interval_ms(group_type)


def may_assign_again(assigned_ms: int, interval_ms: int, wall_ms: int) -> bool:
    """True if the interval has passed since the last assignment. Also true if the time of the last
    assignment is unknown (0), or is in the future because the clock was set back."""
    return not (assigned_ms and 0 <= wall_ms - assigned_ms < interval_ms)
