"""The calls of the admin client about transactions: list, describe, abort, fence and end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek_client.admin.requests import AdminPart
from odradek_client.admin.results import Outcomes, Results
from odradek_client.errors import (
    OdradekError,
    Refused,
    error_for,
)
from odradek_client.producer.transaction_manager import V2_LEVEL
from odradek_client.structs import PreparedTransaction, TopicPartition
from odradek_protocol.constants import NO_TRANSACTION_TIMEOUT_MS, TRANSACTION_COORDINATOR
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek_protocol.schemas.end_txn import TRANSACTIONS_V2_SINCE, EndTxnRequest, EndTxnResponse
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek_protocol.schemas.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

#: The states in which a transaction blocks consumers that read only committed records.
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
#: The transaction timeout in the InitProducerId of `fence_producer`. No transaction begins, so any
#: timeout would do; the shortest is used, because brokers refuse timeouts above their
#: `transaction.max.timeout.ms`, whose lowest possible value is 1. A producer of rows has a longer
#: one, which distinguishes both.
_FENCING_TIMEOUT_MS = 1


@dataclass(frozen=True)
class TransactionListing:
    """A transactional id in the list of its coordinator. `coordinator` is a node id."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True)
class TransactionDescription:
    """A transactional id in detail; `start_ms` since 1970, None while no transaction is open."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: list[TopicPartition]

    @property
    def is_open(self) -> bool:
        """True if a transaction is open or being ended."""
        return self.state in OPEN_STATES

    @property
    def has_timeout(self) -> bool:
        """False with two-phase commit (KIP-939): the transaction waits for its client's decision as
        long as it takes."""
        return self.timeout_ms != NO_TRANSACTION_TIMEOUT_MS

    @property
    def is_fenced(self) -> bool:
        """True if `fence_producer` was the last to use the id, and so no producer can begin a
        transaction under it."""
        return self.state == "Empty" and self.timeout_ms == _FENCING_TIMEOUT_MS


class TransactionAdmin(AdminPart):
    """The calls about transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
    ) -> list[TransactionListing]:
        """The transactional ids of all coordinators, by name, that match every given filter.

        `states` are Kafka's names such as "Ongoing"; `longer_than_ms` selects transactions that
        have been open for longer. Raises Refused for an unknown state, UnsupportedByBroker.
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
        )

        async def ask(node_id: int) -> list[TransactionListing]:
            response: ListTransactionsResponse = await self.network.send(node_id, request)
            if response.error_code:
                raise error_for(response.error_code, about=f"transactions of node {node_id}")
            if response.unknown_state_filters:
                names = ", ".join(response.unknown_state_filters)
                raise Refused(f"the broker knows no transaction state {names}; try Ongoing")
            return [
                TransactionListing(
                    each.transactional_id, each.producer_id, each.transaction_state, node_id
                )
                for each in response.transaction_states
                # The broker's filter by duration also matches ids whose last transaction has ended,
                # because it measures from the start of that transaction.
                if longer_than_ms < 0 or each.transaction_state in OPEN_STATES
            ]

        found = await self.requests.of_every_broker(ask)
        return sorted(found, key=lambda each: each.transactional_id)

    async def describe_transactions(
        self, transactional_ids: str | Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, TransactionDescription]:
        """State, identity and partitions of transactional ids, by name.

        Raises Refused for an id that does not exist, TransactionalIdAuthorizationFailed.
        """

        async def ask(node_id: int, names: list[str]) -> Outcomes[str, TransactionDescription]:
            request = DescribeTransactionsRequest(transactional_ids=names)
            response: DescribeTransactionsResponse = await self.network.send(node_id, request)
            return {
                state.transactional_id: self._error(state.transactional_id, state.error_code)
                if state.error_code
                else _described(node_id, state)
                for state in response.transaction_states
            }

        return await self.requests.for_each_coordinated(
            transactional_ids, TRANSACTION_COORDINATOR, ask, raise_errors
        )

    async def abort_transaction(self, transactional_id: str) -> TransactionDescription:
        """Abort the open transaction of an id, even a prepared one. Returns the description of the
        id from before the abort.

        The producer of the id is fenced. A transaction that is being committed is not stopped; the
        call waits for its end. Raises Refused if the id does not exist or has no transaction open.
        """
        described = (await self.describe_transactions(transactional_id))[transactional_id]
        if not described.is_open:
            raise Refused(
                f"transactional id {transactional_id!r} has no open transaction; its state is "
                f"{described.state}"
            )
        await self.fence_producer(transactional_id)
        return described

    async def fence_producer(self, transactional_id: str) -> None:
        """Fence the producer of an id, and abort its open transaction, if any.

        The call is for a producer that may still run and begin a transaction. An id that does not
        exist is created.
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
        )

        async def ask() -> None:
            response: InitProducerIdResponse = await self.requests.to_coordinator(
                transactional_id, TRANSACTION_COORDINATOR, request
            )
            if response.error_code:
                raise self._error(transactional_id, response.error_code)

        await self.requests.retrying(ask)

    async def end_transaction(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """Commit or abort a prepared transaction, without a producer (T-77).

        A second call with the same value of `commit` does nothing (T-65). Raises ProducerFenced,
        TransactionAborted or InvalidProducerIdMapping if the transaction has already ended in
        another way, or if another producer uses its id.
        """
        prepared = PreparedTransaction(*prepared)
        name, v2 = prepared.transactional_id, prepared.transaction_version >= V2_LEVEL
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.epoch,
            committed=commit,
        )

        async def ask() -> None:
            response: EndTxnResponse = await self.requests.to_coordinator(
                name,
                TRANSACTION_COORDINATOR,
                request,
                max_version=TRANSACTIONS_V2_SINCE if v2 else TRANSACTIONS_V2_SINCE - 1,
            )
            code = ErrorCode.of(response.error_code)
            if code is ErrorCode.INVALID_PRODUCER_EPOCH:
                # INVALID_PRODUCER_EPOCH is the older name of PRODUCER_FENCED (T-15).
                code = ErrorCode.PRODUCER_FENCED
            if code is not ErrorCode.NONE:
                raise self._error(name, code)

        await self.requests.retrying(ask)

    def _error(self, name: str, code: int) -> OdradekError:
        about = f"transactional id {name!r}"
        return self.requests.coordinator_error(code, name, TRANSACTION_COORDINATOR, about)


def _described(node_id: int, state: TransactionState) -> TransactionDescription:
    start_ms = state.transaction_start_time_ms
    return TransactionDescription(
        transactional_id=state.transactional_id,
        coordinator=node_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        start_ms=start_ms if start_ms >= 0 and state.transaction_state in OPEN_STATES else None,
        partitions=sorted(
            TopicPartition(topic.topic, index)
            for topic in state.topics
            for index in topic.partitions
        ),
    )
