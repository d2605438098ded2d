"""A task's transaction. The task begins it before writing its rows, and the driver ends it (S-03).

Coroutines run on the loop of the connections, one at a time. `transactional_writer` calls them from
Spark's tasks.
"""

from __future__ import annotations

from odradek_client.producer.producer import Producer
from pyspark_odradek.exactly_once import protocol
from pyspark_odradek.exactly_once.brokers import Brokers
from pyspark_odradek.exactly_once.ledger import Participant
from pyspark_odradek.exactly_once.protocol import Terms

#: The time for which a failed task tries to abort its transaction. If the task does not succeed,
#: the driver aborts the transaction.
ABORT_TIMEOUT_MS = 5_000


class TaskTransaction:
    """A task's transaction, with a `name` that belongs to this process (S-02).

    `logged`: true if the decision log, in `log_topic`, has an entry for this write. Then the
    transaction has no timeout, if the brokers support that (KIP-939).
    """

    def __init__(
        self, brokers: Brokers, terms: Terms, name: str, log_topic: str, *, logged: bool = True
    ) -> None:
        self._brokers = brokers
        self._terms = terms
        self._name = name
        self._log_topic = log_topic
        self._logged = logged
        self._producer: Producer | None = None

    async def begin(self) -> Producer:
        """Open the transaction. Returns the producer for the rows. Raises OdradekError, SinkError,
        TooLate if the batch is over."""
        name = self._terms.writer.transactional_id(self._name)
        self._producer = await self._brokers.producer(name, two_phase=self._logged)
        confirm = protocol.confirm_task if self._logged else protocol.confirm_job_task
        await self._brokers.run(confirm(self._terms), self._terms, self._log_topic)
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
