"""Producer ids, assigned from blocks that are recorded in the metadata log (rule P-29)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.platform.fault_points import FaultPoint, FaultPoints
from odradek_broker.storage.errors import StorageError
from odradek_protocol.stored.cluster_metadata import MetadataRecord

#: The number of ids in the blocks whose records a metadata log may have lost, at a start and while
#: the broker runs. Higher ids in logs are not the broker's: clients can make up an id, and must not
#: use up all that are left.
LOST_IDS_MAX = 2**40
LATE_LOST_IDS_MAX = 2**20


class ProducerIdManager:
    """The assignment of producer ids, block by block.

    `commit` appends records to the metadata log; see `MetadataLog.commit`.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        commit: Callable[[Sequence[MetadataRecord]], Deferred[None]],
        fault_points: FaultPoints,
    ) -> None:
        self._metadata = metadata
        self._commit = commit
        self._fault_points = fault_points
        #: Requests that wait for a block to be recorded.
        self._waiting: list[Deferred[int | None]] = []
        self._reserving = False

    def next(self) -> Deferred[int | None]:
        """A new producer id, once its block is durable; None if no block can be recorded."""
        deferred: Deferred[int | None] = Deferred()
        producer_id = self._metadata.take_producer_id()
        if producer_id is not None:
            deferred.resolve(producer_id)
            return deferred
        self._waiting.append(deferred)
        if not self._reserving:
            try:
                reserved = self._commit(self._metadata.producer_id_block())
            except StorageError:
                waiting, self._waiting = self._waiting, []
                for waiter in waiting:
                    waiter.resolve(None)
                return deferred
            self._reserving = True
            reserved.then(self._block_durable)
        return deferred

    def leave_out(self, stored: Iterable[int], lost_max: int = LOST_IDS_MAX) -> None:
        """Give out none of the producer ids that logs have, even if the metadata log has lost the
        records of their blocks: batches of the next producer would be taken for duplicates."""
        end = self._metadata.producer_ids_end + lost_max
        highest = max((each for each in stored if each < end), default=-1)
        records = self._metadata.leave_producer_ids_to_others(highest)
        if records:
            # On a full disk the next block, which is recorded before its use, leaves them out too.
            with suppress(StorageError):
                self._commit(records)

    def first_batch_of(self, producer_id: int) -> None:
        """Leave out the id of a producer that is new to a log, if no block has the id: the metadata
        log lost the block before the broker started, and the producer has written nothing since."""
        if producer_id >= self._metadata.producer_ids_end:
            self.leave_out((producer_id,), LATE_LOST_IDS_MAX)

    def _block_durable(self, _: None) -> None:
        self._fault_points.reach(FaultPoint.PRODUCER_ID_BLOCK_DURABLE)
        self._reserving = False
        self._metadata.use_producer_id_block()
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            self.next().then(deferred.resolve)
