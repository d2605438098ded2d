"""Other workloads on a disk that is short of room for some time, even while the broker starts."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from typing import ClassVar

from tests.sim.workloads.admin_churn import AdminChurnWorkload
from tests.sim.workloads.base import ALL_FAULTS, OF_LITTLE_ROOM, ChosenWorkload, Workload
from tests.sim.workloads.compaction import CompactionWorkload
from tests.sim.workloads.copy import TransactionalCopyWorkload
from tests.sim.workloads.retention import RetentionWorkload

from odradek_broker.storage.log import PartitionLog
from odradek_testkit.simulation.world import World

_LOOK_EVERY_MS = 37
_NO_ROOM = f"[Errno {errno.ENOSPC}]"


class FullDiskWorkload(ChosenWorkload):
    """Another workload, chosen by the seed. Lack of room must not take partitions offline, except
    those that `_was_served` excludes."""

    name: ClassVar[str] = "full-disk"
    #: Half of the seeds run compaction, because nearly every step of a cleaning needs room.
    kinds: ClassVar[tuple[type[Workload], ...]] = (
        CompactionWorkload,
        CompactionWorkload,
        CompactionWorkload,
        TransactionalCopyWorkload,
        RetentionWorkload,
        AdminChurnWorkload,
    )
    settings: ClassVar[dict[str, object]] = {
        name: value for kind in kinds for name, value in kind.settings.items()
    }
    #: Two of five faults are a shortage of room; one of five is a power cut.
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS + (*OF_LITTLE_ROOM, "cut-power") * (
        len(ALL_FAULTS) // 2
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._world = world
        self._problems: dict[str, None] = {}

    async def work(self) -> None:
        watching = asyncio.ensure_future(self._watch())
        await super().work()
        watching.cancel()

    async def _watch(self) -> None:
        broker = self._world.broker
        while True:
            if broker.running and hasattr(broker.server, "node"):
                for log in broker.server.node.logs:
                    if log.offline and _was_served(log) and _NO_ROOM in log.offline_reason:
                        self._problems[f"{log.name} is offline: {log.offline_reason}"] = None
            await self._world.sleep(_LOOK_EVERY_MS)

    async def check(self) -> Iterator[str]:
        return iter([*self._problems, *await super().check()])


def _was_served(log: PartitionLog) -> bool:
    """False for a log that is allowed to be offline on a full disk.

    There are three such logs: the broker could not open the log, and tries again; a swap of its
    segments failed halfway; or an aborted transaction is missing from its transaction index.
    """
    swap = log._files.swap
    if not log.loaded or (swap is not None and swap.half_in):
        return False
    return "writing the transaction index" not in log.offline_reason
