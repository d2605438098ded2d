"""The broker's components for appends to mirror topics and for promotions."""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.log import MetadataLog
from odradek_broker.mirror.events import MirrorObserver
from odradek_broker.partition import Partition
from odradek_broker.platform.seams import Clock
from odradek_broker.slices import Slices
from odradek_broker.storage.manager import LogManager
from odradek_protocol.lazy_tuple import NamedTuple


class MirrorParts(NamedTuple):
    """The components. `partition` finds a partition; `observer` gets every decision."""

    metadata: ClusterMetadata
    metadata_log: MetadataLog
    partition: Callable[[str, int], Partition | None]
    logs: LogManager
    clock: Clock
    observer: MirrorObserver
    slices: Slices
