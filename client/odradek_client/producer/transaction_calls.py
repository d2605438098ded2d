"""What a producer's user calls for transactions. A part of `Producer`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

from odradek_client.config import ProducerConfig
from odradek_client.consumer.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
)
from odradek_client.errors import Closed, IllegalState, OdradekError, TransactionTimeout
from odradek_client.producer.accumulator import Accumulator
from odradek_client.producer.sender_loop import SenderLoop
from odradek_client.producer.transaction_requests import Operation
from odradek_client.producer.transactional import PreparedTransaction, TransactionalManager

log = logging.getLogger("odradek.client.producer")

#: A TopicPartition, or a pair of topic and number.
Place = TypeVar("Place", bound=tuple[str, int])


class TransactionCalls:
    """The calls of a producer with a transactional id; IllegalState without one."""

    config: ProducerConfig
    _accumulator: Accumulator | None
    _closing: bool
    _loop: SenderLoop | None
    _transactions: TransactionalManager | None
    _topics: dict[str, Any]
    #: What the fast way in sees: nothing while there is no transaction that takes records.
    _open_topics: dict[str, Any]

    async def flush(self) -> None:
        """Of the producer."""
        raise NotImplementedError

    def _check_open(self) -> None:
        raise NotImplementedError

    async def _close_transaction(self) -> None:
        """End what is open; not for longer than max_block_ms, the broker does it without us."""
        transactions = self._transactions
        if transactions is None or not transactions.has_open_transaction:
            return
        try:
            if not transactions.is_completing:
                await self._operate("abort_transaction", transactions.abort)
            elif transactions.ending is not None:
                await self._outcome(transactions.ending)
        except OdradekError as error:
            log.warning("the open transaction was not ended: %s", error)

    async def init_transactions(self) -> None:
        """Once, before the first transaction.

        Older producers of the same transactional_id are fenced; what they left open is aborted or, if
        they had decided to commit, finished (T-59). Raises TransactionalIdAuthorizationFailed and
        ClusterAuthorizationFailed (may be called again), Fatal, TransactionTimeout, IllegalState.
        """
        await self._operate("init_transactions", self._transactional().init)

    async def begin_transaction(self) -> None:
        """Open a transaction. No broker is asked (C-60). IllegalState, Abortable, Fatal."""
        self._check_open()
        self._transactional().begin()
        self._open_topics = self._topics

    async def commit_transaction(self) -> None:
        """Make everything sent since `begin_transaction` visible, all or nothing.

        Returns when the coordinator has decided; consumers see it a moment later (T-31). Raises an
        Abortable if a record was not written: `abort_transaction` is called for then. Fatal if this
        producer is fenced, for one. TransactionTimeout after max_block_ms: it is not known whether
        it is committed; the same call goes on waiting (C-67).
        """
        await self._operate("commit_transaction", self._transactional().commit)

    async def abort_transaction(self) -> None:
        """Drop everything sent since `begin_transaction`. The way out of every Abortable.

        Records that were not sent yet fail with TransactionAborted. Raises as `commit_transaction`.
        """
        await self._operate("abort_transaction", self._transactional().abort)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A transaction around a block: committed at its end, aborted if it raises.

        Whatever the block or the commit raises comes out; after an Abortable the block may be tried
        again. After a TransactionTimeout of the commit call `commit_transaction` again.
        """
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            await self._abort_quietly()
            raise

    async def _abort_quietly(self) -> None:
        """Abort because of an exception that matters more than what the abort may raise.

        A commit that is under way is left alone: it may be decided, as far as we know.
        """
        transactions = self._transactional()
        if not transactions.has_open_transaction or transactions.is_completing or self._closing:
            return
        try:
            await self.abort_transaction()
        except OdradekError as error:
            log.warning("the transaction was not aborted: %s", error)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[Place, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit a group's positions with the transaction: `offsets` are the next to read (K-40).

        `group` is `consumer.group_metadata()`, taken for this transaction (KIP-447); or a group id,
        for partitions assigned by hand. Do not let that consumer commit by itself. Raises
        GroupMovedOn and other Abortables, Fatal, TransactionTimeout, IllegalState.
        """
        transactions = self._transactional()
        self._check_open()
        if isinstance(group, str):
            group = ConsumerGroupMetadata(group)
        if not group.group_id:
            raise ValueError("offsets belong to a group; give consumer.group_metadata() or a name")
        given = {
            TopicPartition(*partition): OffsetAndMetadata(at) if isinstance(at, int) else at
            for partition, at in offsets.items()
        }
        if not given:
            transactions.check_open("send_offsets_to_transaction")
            return
        operation = transactions.send_offsets(given, group)
        await self._outcome(operation)

    async def prepare_transaction(self, *, may_time_out: bool = False) -> PreparedTransaction:
        """Make the transaction ready to be ended by anyone (KIP-939), and take nothing more into it.

        Waits until every record is written. The answer has all that `resume_transaction` needs, in
        another process too. Closing the producer leaves the transaction open then. Needs
        transaction_two_phase_commit_enable=True, or `may_time_out`: then the broker aborts it after
        transaction_timeout_ms. Raises Abortable, Fatal, IllegalState.
        """
        transactions = self._transactional()
        transactions.check_open("prepare_transaction")
        assert self._accumulator is not None
        await self.flush()
        while self._accumulator.incomplete:
            await self.flush()
        prepared = transactions.prepare(may_time_out=may_time_out)
        self._open_topics = {}
        return prepared

    async def resume_transaction(self, prepared: PreparedTransaction) -> None:
        """Take over a prepared transaction, in place of `init_transactions`, to commit or abort it.

        No broker is asked. It may be done again with the same `prepared` if nobody knows whether the
        last one who tried came through (T-65). IllegalState.
        """
        self._check_open()
        self._transactional().resume(PreparedTransaction(*prepared))

    def _transactional(self) -> TransactionalManager:
        if self._transactions is None:
            if self.config.transactional_id is not None:
                raise Closed('this producer was not started; use "async with" or call start()')
            raise IllegalState(
                "transactions need a name that outlives restarts: set transactional_id"
            )
        return self._transactions

    async def _operate(self, name: str, begin: Callable[[], Operation]) -> None:
        """Begin an operation, or go on waiting for it (C-67)."""
        transactions = self._transactional()
        if not self._closing:
            self._check_open()
        operation = transactions.operation(name, begin)
        self._open_topics = {}
        await self._outcome(operation)

    async def _outcome(self, operation: Operation) -> None:
        assert self._loop is not None
        self._loop.wake()
        try:
            async with asyncio.timeout(self.config.max_block_ms / 1000):
                while not operation.done:
                    await operation.wait()
        except TimeoutError:
            raise TransactionTimeout(
                f"{operation.name}() was not answered within max_block_ms="
                f"{self.config.max_block_ms}, it is still being tried; call {operation.name}() again "
                "to go on waiting, or close the producer"
            ) from None
        self._transactional().seen(operation)
