"""Transactions as an administrator sees them: who has one open, since when, and how to end it.

A part of `Admin`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from odradek_client.admin_base import AdminBase
from odradek_client.admin_results import Results, settle
from odradek_client.consumer.types import TopicPartition
from odradek_client.errors import (
    OdradekError,
    Refused,
    UnknownTopicOrPartition,
    error_for,
)
from odradek_client.producer.transaction_life import V2_LEVEL, PreparedTransaction
from odradek_client.producer.transaction_requests import END_V2_FROM, TRANSACTION_COORDINATOR
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_producers import DescribeProducersRequest, TopicRequest
from odradek_protocol.schemas.describe_transactions import DescribeTransactionsRequest
from odradek_protocol.schemas.end_txn import EndTxnRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.list_transactions import ListTransactionsRequest
from odradek_protocol.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

#: States in which a transaction holds back consumers that read committed records only.
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
#: The timeout of the transactions that nobody will begin after `abort_transaction`.
_FENCING_TIMEOUT_MS = 60_000
_OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class TransactionListing:
    """One transactional id. `coordinator` is a node id."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True)
class TransactionDescription:
    """One transactional id in detail; `start_ms` since 1970, None while no transaction is open."""

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
        """Whether a transaction is under way or being ended."""
        return self.state in OPEN_STATES


@dataclass(frozen=True)
class ProducerDescription:
    """One producer that has written to a partition; None for no open transaction there."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class TransactionAdmin(AdminBase):
    """The calls about transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
    ) -> list[TransactionListing]:
        """The transactional ids of all coordinators, by name; every filter given must fit.

        `states` are Kafka's names such as "Ongoing"; `longer_than_ms` leaves transactions that are open
        and have been for longer. Raises Refused for a state that does not exist, UnsupportedByBroker.
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
        )

        async def ask() -> list[TransactionListing]:
            # Anew for each try: a node that is gone must not be asked for ever.
            await self._network.refresh_metadata(self.config.default_api_timeout_ms)
            found = []
            for node_id in list(self._network.cluster.brokers):
                response = await self._network.send(node_id, request)
                if response.error_code:
                    raise error_for(response.error_code, about=f"transactions of node {node_id}")
                if response.unknown_state_filters:
                    names = ", ".join(response.unknown_state_filters)
                    raise Refused(f"the broker knows no transaction state {names}; try Ongoing")
                found += [
                    TransactionListing(
                        each.transactional_id, each.producer_id, each.transaction_state, node_id
                    )
                    for each in response.transaction_states
                    # Brokers count from the last begin, and let pass what has ended since.
                    if longer_than_ms < 0 or each.transaction_state in _OPEN_STATES
                ]
            return sorted(found, key=lambda each: each.transactional_id)

        return await self._retrying(ask)

    async def describe_transactions(
        self, transactional_ids: str | Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, TransactionDescription]:
        """State, identity and partitions of transactional ids, by name.

        Raises Refused for one that does not exist, TransactionalIdAuthorizationFailed.
        """
        ids = [transactional_ids] if isinstance(transactional_ids, str) else list(transactional_ids)
        results: Results[str, TransactionDescription] = Results()

        async def ask(names: list[str]) -> dict[str, OdradekError]:
            homes, errors = await self._by_coordinator(names, TRANSACTION_COORDINATOR)
            for node_id, group in homes.items():
                request = DescribeTransactionsRequest(transactional_ids=group)
                response = await self._network.send(node_id, request)
                for state in response.transaction_states:
                    name = state.transactional_id
                    if state.error_code:
                        errors[name] = self._refused(name, state.error_code)
                    else:
                        results[name] = _described(node_id, state)
            return errors

        errors = await self._all(ids, ask)
        return settle(results, errors, raise_errors)

    async def abort_transaction(self, transactional_id: str) -> TransactionDescription:
        """Abort the open transaction of an id, a prepared one too; what it was before.

        The producer that has it is fenced. A transaction that is being committed is not stopped, its
        end is waited for. Raises Refused if the id does not exist or has no transaction open.
        """
        described = (await self.describe_transactions(transactional_id))[transactional_id]
        if not described.is_open:
            raise Refused(
                f"transactional id {transactional_id!r} has no open transaction; its state is "
                f"{described.state}"
            )
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
        )

        async def ask() -> None:
            response = await self._to_coordinator(
                transactional_id, TRANSACTION_COORDINATOR, request
            )
            if response.error_code:
                raise self._refused(transactional_id, response.error_code)

        await self._retrying(ask)
        return described

    async def end_transaction(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """Commit or abort what a producer has prepared; no producer need be made for it (T-77).

        May be asked again for the same end (T-65). Raises ProducerFenced, TransactionAborted or
        InvalidProducerIdMapping if it was ended otherwise, or its id is in use by somebody else.
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
            response = await self._to_coordinator(
                name,
                TRANSACTION_COORDINATOR,
                request,
                max_version=END_V2_FROM if v2 else END_V2_FROM - 1,
            )
            code = ErrorCode.of(response.error_code)
            if code is ErrorCode.INVALID_PRODUCER_EPOCH:
                # The older name of the same thing (T-15).
                code = ErrorCode.PRODUCER_FENCED
            if code is not ErrorCode.NONE:
                raise self._refused(name, code)

        await self._retrying(ask)

    def _refused(self, name: str, code: int) -> OdradekError:
        about = f"transactional id {name!r}"
        return self._coordinator_error(code, name, TRANSACTION_COORDINATOR, about)

    async def describe_producers(
        self, partitions: Iterable[tuple[str, int]], *, raise_errors: bool = True
    ) -> Results[TopicPartition, list[ProducerDescription]]:
        """Who has written to partitions with an identity, by partition.

        Raises UnknownTopicOrPartition, TopicAuthorizationFailed.
        """
        wanted = [TopicPartition(*each) for each in partitions]
        results: Results[TopicPartition, list[ProducerDescription]] = Results()

        async def ask(asked: list[TopicPartition]) -> dict[TopicPartition, OdradekError]:
            homes, errors = await self._by_leader(asked)
            for node_id, group in homes.items():
                topics: dict[str, list[int]] = {}
                for topic, partition in group:
                    topics.setdefault(topic, []).append(partition)
                request = DescribeProducersRequest(
                    topics=[
                        TopicRequest(name=name, partition_indexes=indexes)
                        for name, indexes in topics.items()
                    ]
                )
                response = await self._network.send(node_id, request)
                for answer in response.topics:
                    for part in answer.partitions:
                        tp = TopicPartition(answer.name, part.partition_index)
                        if part.error_code:
                            errors[tp] = error_for(
                                part.error_code, part.error_message, about=f"{tp.topic}-{tp[1]}"
                            )
                        else:
                            results[tp] = [_producer(each) for each in part.active_producers]
            return errors

        errors = await self._all(wanted, ask, place_of=lambda tp: tp)
        return settle(results, errors, raise_errors)

    async def abort_hanging_transaction(
        self, partition: tuple[str, int], start_offset: int
    ) -> ProducerDescription:
        """Write an abort marker for the transaction that is open on a partition since `start_offset`.

        For transactions that no coordinator knows of any more, and that hold back consumers for ever;
        of one that its coordinator knows it would tear out a part. Raises Refused if no transaction
        began at that offset and is still open.
        """
        tp = TopicPartition(*partition)
        producers = (await self.describe_producers([tp]))[tp]
        found = [each for each in producers if each.transaction_start_offset == start_offset]
        if not found:
            begun = sorted(
                each.transaction_start_offset
                for each in producers
                if each.transaction_start_offset is not None
            )
            raise Refused(
                f"{tp.topic}-{tp.partition} has no open transaction that began at offset "
                f"{start_offset}; those open began at {begun or 'none'}"
            )
        producer = found[0]
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )

        async def ask(asked: list[TopicPartition]) -> dict[TopicPartition, OdradekError]:
            homes, errors = await self._by_leader(asked)
            for node_id in homes:
                request = WriteTxnMarkersRequest(markers=[marker])
                response = await self._network.send(node_id, request)
                for answer in response.markers:
                    for topic in answer.topics:
                        for part in topic.partitions:
                            if part.error_code:
                                errors[tp] = error_for(
                                    part.error_code, about=f"{tp.topic}-{tp.partition}"
                                )
            return errors

        errors = await self._all([tp], ask, final=(UnknownTopicOrPartition,))
        settle(Results[TopicPartition, None](), errors, True)
        return producer


def _described(node_id: int, state: Any) -> TransactionDescription:
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


def _producer(state: Any) -> ProducerDescription:
    start = state.current_txn_start_offset
    return ProducerDescription(
        producer_id=state.producer_id,
        epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp_ms=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        transaction_start_offset=None if start < 0 else start,
    )
