"""The calls of the admin client about producers of partitions, and about hanging transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek_client.admin.requests import AdminPart, partition_error
from odradek_client.admin.results import Outcomes, Results
from odradek_client.errors import Refused, UnknownTopicOrPartition
from odradek_client.structs import TopicPartition, group_by_topic
from odradek_protocol.schemas.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from odradek_protocol.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@dataclass(frozen=True)
class ProducerDescription:
    """A producer that has written to a partition. `transaction_start_offset` is None if the
    producer has no open transaction in this partition."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class ProducerAdmin(AdminPart):
    """The calls about producers with a producer id."""

    async def describe_producers(
        self, partitions: Iterable[tuple[str, int]], *, raise_errors: bool = True
    ) -> Results[TopicPartition, list[ProducerDescription]]:
        """The producers with a producer id that have written to each partition.

        Raises UnknownTopicOrPartition, TopicAuthorizationFailed.
        """
        wanted = [TopicPartition(*each) for each in partitions]

        async def ask(
            node_id: int, asked: list[TopicPartition]
        ) -> Outcomes[TopicPartition, list[ProducerDescription]]:
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=topic, partition_indexes=[tp.partition for tp in some])
                    for topic, some in group_by_topic(asked).items()
                ]
            )
            response: DescribeProducersResponse = await self.network.send(node_id, request)
            return {
                (tp := TopicPartition(topic.name, part.partition_index)): partition_error(
                    tp, part.error_code, part.error_message
                )
                if part.error_code
                else [_described(each) for each in part.active_producers]
                for topic in response.topics
                for part in topic.partitions
            }

        return await self.requests.for_each_partition(wanted, ask, raise_errors)

    async def abort_hanging_transaction(
        self, partition: tuple[str, int], start_offset: int, *, validate_only: bool = False
    ) -> ProducerDescription:
        """Write an abort marker for the transaction that is open on a partition since
        `start_offset`. Returns its producer; with `validate_only` nothing is written.

        The call is for transactions that no coordinator knows any more, and that block
        read_committed consumers for ever. If a coordinator still knows the transaction, its records
        in this partition are lost. Raises Refused unless a transaction began at that offset and is
        still open.
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
        if validate_only:
            return producer
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )

        async def ask(node_id: int, asked: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            request = WriteTxnMarkersRequest(markers=[marker])
            response: WriteTxnMarkersResponse = await self.network.send(node_id, request)
            codes = [
                part.error_code
                for answer in response.markers
                for topic in answer.topics
                for part in topic.partitions
            ]
            code = next(filter(None, codes), 0)
            return {tp: partition_error(tp, code) if code else None}

        await self.requests.for_each_partition([tp], ask, True, final=(UnknownTopicOrPartition,))
        return producer


def _described(state: ProducerState) -> ProducerDescription:
    start = state.current_txn_start_offset
    return ProducerDescription(
        producer_id=state.producer_id,
        epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp_ms=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        transaction_start_offset=None if start < 0 else start,
    )
