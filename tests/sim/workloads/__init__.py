"""Clients under faults: one workload in each file, with its final checks."""

from __future__ import annotations

from tests.sim.workloads.admin_churn import AdminChurnWorkload
from tests.sim.workloads.base import Workload
from tests.sim.workloads.compaction import CompactionWorkload
from tests.sim.workloads.copy import (
    TransactionalCopyV1Workload,
    TransactionalCopyWorkload,
)
from tests.sim.workloads.damaged import DamagedBatchesWorkload
from tests.sim.workloads.delegation_tokens import DelegationTokensWorkload
from tests.sim.workloads.everything import EverythingWorkload
from tests.sim.workloads.full_disk import FullDiskWorkload
from tests.sim.workloads.groups import GroupsWorkload
from tests.sim.workloads.jepsen import JepsenWorkload
from tests.sim.workloads.large_batches import LargeBatchesWorkload
from tests.sim.workloads.late_commits import LateCommitsWorkload
from tests.sim.workloads.lone_producers import LoneProducersWorkload
from tests.sim.workloads.long_requests import LongRequestsWorkload
from tests.sim.workloads.lost_metadata import LostMetadataWorkload
from tests.sim.workloads.mirror import MirrorWorkload
from tests.sim.workloads.mirror_out import MirrorOutWorkload
from tests.sim.workloads.mirror_sources import MirrorSourcesWorkload
from tests.sim.workloads.prepared import PreparedWorkload
from tests.sim.workloads.produce import ProduceWorkload
from tests.sim.workloads.recreated_topics import RecreatedTopicsWorkload
from tests.sim.workloads.retention import RetentionWorkload
from tests.sim.workloads.share_added import ShareAddedWorkload
from tests.sim.workloads.share_groups import ShareGroupsWorkload
from tests.sim.workloads.spark_sink import SparkSinkWorkload
from tests.sim.workloads.streams_groups import StreamsGroupsWorkload
from tests.sim.workloads.two_directories import TwoDirectoriesWorkload

#: Workloads by name, in the order in which they are run.
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
        MirrorOutWorkload,
        SparkSinkWorkload,
        GroupsWorkload,
        ShareGroupsWorkload,
        ShareAddedWorkload,
        StreamsGroupsWorkload,
        AdminChurnWorkload,
        LongRequestsWorkload,
        LargeBatchesWorkload,
        DelegationTokensWorkload,
        LateCommitsWorkload,
        LoneProducersWorkload,
        DamagedBatchesWorkload,
        MirrorWorkload,
        MirrorSourcesWorkload,
        TwoDirectoriesWorkload,
        FullDiskWorkload,
        RecreatedTopicsWorkload,
        LostMetadataWorkload,
        EverythingWorkload,
    )
}
