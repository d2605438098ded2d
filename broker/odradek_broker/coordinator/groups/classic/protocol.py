"""The four requests of the classic protocol (rules G-20 to G-82).

Each request is checked, looked up in the table of `states`, and carried out. A request that cannot be
answered yet is parked on its member, and answered by whatever makes the answer possible.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.coordinator.groups.classic.group import ClassicGroup
from odradek_broker.coordinator.groups.classic.heartbeat import Heartbeat
from odradek_broker.coordinator.groups.classic.join_group import JoinGroup
from odradek_broker.coordinator.groups.classic.leave_group import LeaveGroup
from odradek_broker.coordinator.groups.classic.rebalance import Rebalances
from odradek_broker.coordinator.groups.classic.sync_group import SyncGroup
from odradek_broker.coordinator.groups.events import Observer
from odradek_broker.coordinator.groups.settings import GroupSettings
from odradek_broker.coordinator.runtime import Instant
from odradek_broker.platform.seams import Randomness


class ClassicProtocol:
    """One callable for each request; see `JoinGroup` for the parameters."""

    def __init__(
        self,
        config: GroupSettings,
        groups: dict[str, ClassicGroup],
        rebalances: Rebalances,
        random: Randomness,
        create: Callable[[str, Instant], ClassicGroup | None],
        observer: Observer,
    ) -> None:
        self.join = JoinGroup(config, groups, rebalances, random, create, observer).decide
        self.sync = SyncGroup(groups, rebalances, observer).decide
        self.heartbeat = Heartbeat(groups, rebalances.timers, observer).decide
        self.leave = LeaveGroup(groups, rebalances).decide
