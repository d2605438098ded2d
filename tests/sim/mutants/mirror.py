"""Bugs of mirror topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker.deferred import Deferred
from odradek_broker.mirror import appends
from odradek_broker.mirror.appends import MirrorAppend, MirrorAppends
from odradek_broker.mirror.promotion import MirrorPromotions
from odradek_broker.partition import Partition
from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.validation import DecompressionBudget, ValidatedBatch
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.append_mirror_records import MirroredPartitionResult
from odradek_protocol.stored.cluster_metadata import MetadataRecord, PartitionRecord

_append = MirrorAppends.append
_take = MirrorAppends._take
_to_record = MirrorAppends._to_record


def _take_at_any_end(
    self: MirrorAppends,
    wanted: MirrorAppend,
    partition: Partition,
    checked: Sequence[ValidatedBatch | AppendRejected],
    budget: DecompressionBudget,
) -> None:
    if wanted.part.records is not None:
        wanted.part.expected_end_offset = partition.log.log_end_offset
        wanted.part.fetch_offset = partition.log.log_end_offset
    _take(self, wanted, partition, checked, budget)


def _append_from_any_source(
    self: MirrorAppends, wanted: Sequence[MirrorAppend]
) -> Deferred[list[MirroredPartitionResult]]:
    metadata = self._metadata
    return _append(
        self,
        [
            MirrorAppend(
                each.topic,
                metadata.topic_id(each.topic),
                metadata.mirror_sources.get(each.topic, ""),
                each.part,
            )
            for each in wanted
        ],
    )


def _raise_no_epoch(self: MirrorAppends, wanted: Sequence[MirrorAppend]) -> list[MetadataRecord]:
    records = _to_record(self, wanted)
    return [each for each in records if not isinstance(each, PartitionRecord)]


def _abort_nothing(self: MirrorPromotions, partition: Partition) -> list[Deferred[ErrorCode]]:
    return []


def _forget_nothing(self: MirrorPromotions, partition: Partition) -> Deferred[ErrorCode]:
    return Deferred.of(ErrorCode.NONE)


def _nothing(*_: Any, **__: Any) -> None:
    pass


MIRROR = (
    Mutant(
        "a mirror topic accepts batches whatever its log end offset is",
        "mirror",
        1,
        {(MirrorAppends, "_take"): _take_at_any_end},
        ("mirror",),
    ),
    Mutant(
        "a mirror topic accepts batches fetched from any offset of the source",
        "mirror",
        1,
        {(appends, "_check_fetch_offset"): _nothing},
        ("is not the source's", "acknowledged batches are lost"),
    ),
    Mutant(
        "a mirror topic accepts batches of any source",
        "mirror-sources",
        1,
        {(MirrorAppends, "append"): _append_from_any_source},
        ("sources:",),
    ),
    Mutant(
        "a mirror topic's leader epoch does not rise with that of its records",
        "mirror",
        1,
        {(MirrorAppends, "_to_record"): _raise_no_epoch},
        ("metadata has leader epoch",),
    ),
    Mutant(
        "a promotion leaves transactions open",
        "mirror",
        1,
        {
            (MirrorPromotions, "_abort"): _abort_nothing,
            (MirrorPromotions, "_forget_producers"): _forget_nothing,
        },
        ("open transactions", "committed records end"),
    ),
    Mutant(
        "a promotion keeps the producer states of the source",
        "mirror",
        1,
        {(MirrorPromotions, "_forget_producers"): _forget_nothing},
        ("producers of the source are known",),
    ),
    Mutant(
        "the log start of a mirror topic does not follow the source",
        "mirror",
        3,
        {(MirrorAppends, "_move_log_starts"): _nothing},
        ("the log starts at",),
    ),
)
