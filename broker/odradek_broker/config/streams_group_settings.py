"""The settings of streams groups: members and the assignment of their tasks (KIP-1071)."""

from __future__ import annotations

from odradek_broker.config.types import ConfigType, setting
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import at_least

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class StreamsGroupSettings:
    """The settings of the group coordinator for streams groups."""

    group_streams_session_timeout_ms: int = setting(
        ConfigType.INT,
        45_000,
        "Time without a heartbeat after which a member of a streams group (KIP-1071) is removed.",
        at_least(1),
    )
    group_streams_min_session_timeout_ms: int = setting(
        ConfigType.INT, 45_000, "Lower bound of group.streams.session.timeout.ms.", at_least(1)
    )
    group_streams_max_session_timeout_ms: int = setting(
        ConfigType.INT, 60_000, "Upper bound of group.streams.session.timeout.ms.", at_least(1)
    )
    group_streams_heartbeat_interval_ms: int = setting(
        ConfigType.INT,
        5_000,
        "Time between two heartbeats of a member of a streams group.",
        at_least(1),
    )
    group_streams_min_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 5_000, "Lower bound of group.streams.heartbeat.interval.ms.", at_least(1)
    )
    group_streams_max_heartbeat_interval_ms: int = setting(
        ConfigType.INT, 15_000, "Upper bound of group.streams.heartbeat.interval.ms.", at_least(1)
    )
    group_streams_max_size: int = setting(
        ConfigType.INT, _INT32_MAX, "Maximum number of members of a streams group.", at_least(1)
    )
    group_streams_num_standby_replicas: int = setting(
        ConfigType.INT,
        0,
        "Number of clients of a streams group that keep a copy of the state of each task, "
        "besides the one that processes it.",
        at_least(0),
    )
    group_streams_max_standby_replicas: int = setting(
        ConfigType.INT, 2, "Upper bound of group.streams.num.standby.replicas.", at_least(0)
    )
    group_streams_initial_rebalance_delay_ms: int = setting(
        ConfigType.INT,
        3_000,
        "Time for which an empty streams group waits for more members after the first one.",
        at_least(0),
    )
    group_streams_assignment_interval_ms: int = setting(
        ConfigType.INT,
        1_000,
        "Minimum time between two assignments of a streams group; 0: a change leads to an "
        "assignment at once.",
        at_least(0),
        dynamic=True,
    )
    group_streams_min_assignment_interval_ms: int = setting(
        ConfigType.INT, 0, "Lower bound of group.streams.assignment.interval.ms.", at_least(0)
    )
    group_streams_max_assignment_interval_ms: int = setting(
        ConfigType.INT, 15_000, "Upper bound of group.streams.assignment.interval.ms.", at_least(0)
    )
