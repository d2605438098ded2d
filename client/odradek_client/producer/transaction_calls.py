"""The transactional calls of a producer. They begin operations and wait for the outcome (C-60 to
C-67).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from odradek_client.errors import OdradekError, TransactionTimeout
from odradek_client.producer.accumulator import Accumulator
from odradek_client.producer.sender_loop import SenderLoop
from odradek_client.producer.transaction_manager import TransactionManager
from odradek_client.producer.transaction_requests import TransactionCall
from odradek_client.structs import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
)

log = logging.getLogger("odradek.client.producer")

#: A TopicPartition, or a pair of topic and number.
Partition = TypeVar("Partition", bound=tuple[str, int])


class TransactionCalls:
    """The calls of a started producer with a transactional id. They raise the errors that
    `Producer` documents.

    `take_no_records` is called when the open transaction accepts no more records.
    """

    def __init__(
        self,
        transactions: TransactionManager,
        accumulator: Accumulator,
        loop: SenderLoop,
        max_block_ms: float,
        take_no_records: Callable[[], None],
    ) -> None:
        self._transactions = transactions
        self._accumulator = accumulator
        self._loop = loop
        self._max_block_ms = max_block_ms
        self._take_no_records = take_no_records

    async def init(self) -> None:
        """Get a producer id and epoch from the coordinator. This request fences older producers."""
        await self._operate("init_transactions", self._transactions.init)

    def begin(self) -> None:
        """Open a transaction; no request is sent."""
        self._transactions.begin()

    async def commit(self) -> None:
        """Commit the open transaction; returns when the coordinator has decided."""
        await self._operate("commit_transaction", self._transactions.commit)

    async def abort(self) -> None:
        """Abort the open transaction; returns when the coordinator has decided."""
        await self._operate("abort_transaction", self._transactions.abort)

    async def abort_quietly(self) -> None:
        """Abort, and log an error instead of raising it.

        A commit in progress is not aborted, because it may be decided already.
        """
        if not self._transactions.has_open_transaction or self._transactions.is_completing:
            return
        try:
            await self.abort()
        except OdradekError as error:
            log.warning("the transaction was not aborted: %s", error)

    async def close(self) -> None:
        """End an open transaction, within max_block_ms. If that fails, the broker aborts the
        transaction after its timeout."""
        transactions = self._transactions
        if not transactions.has_open_transaction:
            return
        try:
            if not transactions.is_completing:
                await self.abort()
            elif transactions.ending is not None:
                await self._outcome(transactions.ending)
        except OdradekError as error:
            log.warning("the open transaction was not ended: %s", error)

    async def send_offsets(
        self,
        offsets: Mapping[Partition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """Add offsets of a group to the open transaction. ValueError without a group id."""
        if isinstance(group, str):
            group = ConsumerGroupMetadata(group)
        if not group.group_id:
            raise ValueError("offsets belong to a group; give consumer.group_metadata() or a name")
        given = {
            TopicPartition(*partition): OffsetAndMetadata(at) if isinstance(at, int) else at
            for partition, at in offsets.items()
        }
        if not given:
            self._transactions.check_open("send_offsets_to_transaction")
            return
        await self._outcome(self._transactions.send_offsets(given, group))

    async def prepare(
        self, flush: Callable[[], Awaitable[None]], *, may_time_out: bool
    ) -> PreparedTransaction:
        """Write all records with `flush`, then leave the transaction to the producer that ends it
        (KIP-939)."""
        self._transactions.check_open("prepare_transaction")
        await flush()
        while self._accumulator.incomplete:
            await flush()
        prepared = self._transactions.prepare(may_time_out=may_time_out)
        self._take_no_records()
        return prepared

    def resume(self, prepared: PreparedTransaction) -> None:
        """Take over a prepared transaction; no request is sent."""
        self._transactions.resume(prepared)

    async def _operate(self, name: str, begin: Callable[[], TransactionCall]) -> None:
        """Begin an operation, or continue to wait for it (C-67)."""
        operation = self._transactions.lifecycle.operation(name, begin)
        self._take_no_records()
        await self._outcome(operation)

    async def _outcome(self, operation: TransactionCall) -> None:
        self._loop.wake()
        try:
            async with asyncio.timeout(self._max_block_ms / 1000):
                while not operation.done:
                    await operation.wait()
        except TimeoutError:
            raise TransactionTimeout(
                f"{operation.name}() was not answered within max_block_ms="
                f"{self._max_block_ms}, it is still being tried; call {operation.name}() again "
                "to go on waiting, or close the producer"
            ) from None
        self._transactions.lifecycle.seen(operation)
