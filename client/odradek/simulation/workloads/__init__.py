"""Clients at work while things go wrong: one workload in each file, and what must hold of it."""

from __future__ import annotations

from odradek.simulation.workloads.admin_churn import AdminChurnWorkload
from odradek.simulation.workloads.base import Workload
from odradek.simulation.workloads.compaction import CompactionWorkload
from odradek.simulation.workloads.copy import (
    TransactionalCopyV1Workload,
    TransactionalCopyWorkload,
)
from odradek.simulation.workloads.damaged import DamagedBatchesWorkload
from odradek.simulation.workloads.everything import EverythingWorkload
from odradek.simulation.workloads.groups import GroupsWorkload
from odradek.simulation.workloads.jepsen import JepsenWorkload
from odradek.simulation.workloads.late_commits import LateCommitsWorkload
from odradek.simulation.workloads.lone_producers import LoneProducersWorkload
from odradek.simulation.workloads.prepared import PreparedWorkload
from odradek.simulation.workloads.produce import ProduceWorkload
from odradek.simulation.workloads.retention import RetentionWorkload
from odradek.simulation.workloads.spark_sink import SparkSinkWorkload
from odradek.simulation.workloads.two_directories import TwoDirectoriesWorkload

#: By name, in the order in which they are run.
WORKLOADS: dict[str, type[Workload]] = {
    each.name: each
    for each in (
        ProduceWorkload,
        JepsenWorkload,
        RetentionWorkload,
        CompactionWorkload,
        TransactionalCopyWorkload,
        TransactionalCopyV1Workload,
        PreparedWorkload,
        SparkSinkWorkload,
        GroupsWorkload,
        AdminChurnWorkload,
        LateCommitsWorkload,
        LoneProducersWorkload,
        DamagedBatchesWorkload,
        TwoDirectoriesWorkload,
        EverythingWorkload,
    )
}
