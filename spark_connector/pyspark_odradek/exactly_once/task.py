"""A task's transaction. The task begins it before writing its rows, and the driver ends it (S-03).

Coroutines run on the loop of the connections, one at a time. `transactional_writer` calls them from
Spark's tasks.
"""

from __future__ import annotations

from odradek_client.producer.producer import Producer
from pyspark_odradek.exactly_once.brokers import Brokers
from pyspark_odradek.exactly_once.identity import Writer
from pyspark_odradek.exactly_once.ledger import Participant

#: The time for which a failed task tries to abort its transaction. If the task does not succeed,
#: the driver aborts the transaction.
ABORT_TIMEOUT_MS = 5_000


class TaskTransaction:
    """A task's transaction, with a `name` that belongs to this process (S-02).

    `two_phase`: true for no timeout, if the brokers support that (KIP-939).
    """

    def __init__(self, brokers: Brokers, writer: Writer, name: str, *, two_phase: bool) -> None:
        self._brokers = brokers
        self._writer = writer
        self._name = name
        self._two_phase = two_phase
        self._producer: Producer | None = None

    async def begin(self) -> Producer:
        """Open the transaction. Returns the producer for the rows. Raises OdradekError."""
        name = self._writer.transactional_id(self._name)
        self._producer = await self._brokers.producer(name, self._two_phase)
        return self._producer

    async def prepare(self, slot: int, rows: int) -> Participant:
        """Prepare the transaction, with `rows` acknowledged rows of task `slot`, for the driver.

        Raises OdradekError.
        """
        assert self._producer is not None, "begin() comes first"
        prepared = await self._producer.prepare_transaction(may_time_out=True)
        await self._producer.close()
        return Participant(
            self._name,
            prepared.producer_id,
            prepared.epoch,
            prepared.transaction_version,
            slot,
            rows,
        )

    async def abandon(self) -> None:
        """Abort the transaction of a failed task, if that is possible within ABORT_TIMEOUT_MS.
        Raises OdradekError."""
        if self._producer is not None:
            await self._producer.close(timeout_ms=ABORT_TIMEOUT_MS)
