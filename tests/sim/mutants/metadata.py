"""Bugs of cluster metadata: recreated topics, producer ids, and records that nobody checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.deferred import Deferred
from odradek_broker.metadata import log
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.log import MetadataLog
from odradek_broker.metadata.producer_ids import ProducerIdManager
from odradek_broker.mirror.appends import MirrorAppend, MirrorAppends
from odradek_broker.storage import startup
from odradek_broker.storage.log_directory import LastRun
from odradek_broker.storage.manager import LogManager
from odradek_broker.storage.startup import LogStartup
from odradek_broker.topic_partition import TopicPartition
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


def _any_topic_of_the_name(
    self: LogStartup, key: TopicPartition, found: Sequence[LastRun], _: bytes | None
) -> tuple[LastRun, bytes]:
    path = found[0].directory.path_of(f"{key[0]}-{key[1]}")
    return found[0], startup._read_topic_id(self._files, path, [])


METADATA = (
    Mutant(
        "a directory is taken for the topic of its name, whatever topic id it has",
        "lost-metadata",
        1,
        {(LogStartup, "_choose"): _any_topic_of_the_name},
        ("start: ",),
    ),
    Mutant(
        "producer ids are assigned a second time after the metadata log has lost their block",
        "lost-metadata",
        17,
        {(ProducerIdManager, "leave_out"): _nothing},
        ("does not have",),
    ),
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
