"""Other workloads on two data directories, one of which may fail until the broker is restarted."""

from __future__ import annotations

from typing import ClassVar

from tests.sim.workloads.admin_churn import AdminChurnWorkload
from tests.sim.workloads.base import ALL_FAULTS, OF_SEVERAL_DIRECTORIES, ChosenWorkload, Workload
from tests.sim.workloads.groups import GroupsWorkload
from tests.sim.workloads.produce import ProduceWorkload
from tests.sim.workloads.retention import RetentionWorkload


class TwoDirectoriesWorkload(ChosenWorkload):
    """Runs one of several other workloads, chosen by the seed, with two log directories."""

    name: ClassVar[str] = "two-directories"
    kinds: ClassVar[tuple[type[Workload], ...]] = (
        ProduceWorkload,
        RetentionWorkload,
        AdminChurnWorkload,
        GroupsWorkload,
    )
    settings: ClassVar[dict[str, object]] = {
        **{name: value for kind in kinds for name, value in kind.settings.items()},
        "log.dirs": "data,second",
    }
    #: A quarter of all faults are directories that fail.
    faults: ClassVar[tuple[str, ...]] = ALL_FAULTS + OF_SEVERAL_DIRECTORIES * (len(ALL_FAULTS) // 3)
