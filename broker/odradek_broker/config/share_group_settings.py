"""The settings of share groups: members and their assignments (KIP-932)."""

from __future__ import annotations

from odradek_broker.config.types import ConfigType, setting
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import any_of, at_least, between


@dataclass(frozen=True, kw_only=True)
class ShareGroupSettings:
    """The settings of the group coordinator for share groups."""

    group_share_session_timeout_ms: int = setting(
        ConfigType.INT,
        45_000,
        "Time without a heartbeat after which a member of a share group (KIP-932) is removed.",
        at_least(1),
    )
    group_share_min_session_timeout_ms: int = setting(
        ConfigType.INT, 45_000, "Lower bound of group.share.session.timeout.ms.", at_least(1)
    )
    group_share_max_session_timeout_ms: int = setting(
        ConfigType.INT, 60_000, "Upper bound of group.share.session.timeout.ms.", at_least(1)
    )
    group_share_heartbeat_interval_ms: int = setting(
        ConfigType.INT,
        5_000,
        "Time between two heartbeats of a member of a share group.",
        at_least(1),
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 5_000, "Lower bound of group.share.heartbeat.interval.ms.", at_least(1)
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 15_000, "Upper bound of group.share.heartbeat.interval.ms.", at_least(1)
    )
    group_share_max_size: int = setting(
        ConfigType.INT, 200, "Maximum number of members of a share group.", between(1, 1_000)
    )
    group_share_assignors: tuple[str, ...] = setting(
        ConfigType.LIST,
        ("simple",),
        "The assignor of share groups, by name or by Kafka's class name. Only one exists.",
        any_of("simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"),
        effective=False,
    )
    group_share_assignment_interval_ms: int = setting(
        ConfigType.INT,
        1_000,
        "Minimum time between two assignments of a share group; 0: a change leads to an "
        "assignment at once.",
        at_least(0),
        dynamic=True,
    )
    group_share_min_assignment_interval_ms: int = setting(
        ConfigType.INT, 0, "Lower bound of group.share.assignment.interval.ms.", at_least(0)
    )
    group_share_max_assignment_interval_ms: int = setting(
        ConfigType.INT, 15_000, "Upper bound of group.share.assignment.interval.ms.", at_least(0)
    )
