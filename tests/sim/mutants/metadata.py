"""Bugs of cluster metadata: recreated topics, producer ids, and records that nobody checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.deferred import Deferred
from odradek_broker.metadata import log
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.log import MetadataLog
from odradek_broker.mirror.appends import MirrorAppend, MirrorAppends
from odradek_broker.storage.manager import LogManager
from odradek_protocol.stored.cluster_metadata import MetadataRecord


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _unrecorded(self: ClusterMetadata) -> list[Any]:
    self._coming_block = range(self._next_producer_id, self._next_producer_id + 1_000)
    return []


_commit = MetadataLog.commit


def committed_at_once(self: MetadataLog, records: Any) -> Deferred[None]:
    _commit(self, records)
    return Deferred.of(None)


_to_record = MirrorAppends._to_record


def _recorded_by_partition(
    self: MirrorAppends, wanted: Sequence[MirrorAppend]
) -> list[MetadataRecord]:
    return [record for each in wanted for record in _to_record(self, [each])]


METADATA = (
    Mutant(
        "a topic that is created again has the records of the deleted one",
        "admin-churn",
        2,
        {(LogManager, "_schedule_removal"): _nothing},
    ),
    Mutant(
        "producer ids are assigned a second time after a crash",
        "produce",
        3,
        {(ClusterMetadata, "producer_id_block"): _unrecorded},
    ),
    Mutant(
        "a change of metadata is acknowledged before it is durable",
        "admin-churn",
        9,
        {(MetadataLog, "commit"): committed_at_once},
        ("admin-churn: ",),
    ),
    Mutant(
        "a metadata record that no start can replay is written without a check",
        "mirror",
        1,
        {
            (log, "check_all"): _nothing,
            # The missing check alone has no effect. This second bug writes a record that the check
            # would refuse, because producer ids decrease.
            (MirrorAppends, "_to_record"): _recorded_by_partition,
        },
        ("the broker does not start any more",),
    ),
)
