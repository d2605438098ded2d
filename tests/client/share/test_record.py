"""The states and answers of a record, without a consumer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from odradek_client.errors import IllegalState, OdradekError
from odradek_client.share.acknowledgements import AcknowledgeType, TopicIdPartition
from odradek_client.share.errors import Reject, Release
from odradek_client.share.record import RECORD_STEPS, DeliveryState, ShareRecord
from odradek_client.structs import ConsumerRecord, TopicPartition
from odradek_protocol.records.record import TimestampType

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


class Holder:
    """A fake consumer that notes the calls that its records make."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def answer(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        self.said.append(kind)
        if kind is not AcknowledgeType.RENEW:
            record.step(DeliveryState.ANSWERED)

    def begin_handling(self, record: ShareRecord) -> None:
        self.said.append("begin")

    def end_handling(self, record: ShareRecord) -> None:
        self.said.append("end")

    def note_decision(self, record: ShareRecord, decision: Reject | Release) -> None:
        self.said.append(str(decision))

    def new_waiter(self) -> Any:
        raise AssertionError("nobody waits here")


@pytest.fixture
def holder() -> Holder:
    return Holder()


@pytest.fixture
def record(holder: Holder) -> ShareRecord:
    raw = ConsumerRecord("t", 2, 9, 77, TimestampType.CREATE_TIME, b"k", b"v", (), 4)
    return ShareRecord(holder, TopicIdPartition(bytes(16), "t", 2), 1, raw, 3, 1_000)


def test_a_share_record_has_the_fields_of_a_consumer_record(record: ShareRecord) -> None:
    assert (record.topic, record.partition, record.offset) == ("t", 2, 9)
    assert (record.timestamp, record.timestamp_type) == (77, TimestampType.CREATE_TIME)
    assert (record.key, record.value, record.headers) == (b"k", b"v", ())
    assert (record.leader_epoch, record.delivery_count) == (4, 3)
    assert record.topic_partition == TopicPartition("t", 2)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(DeliveryState, DeliveryState)))
def test_a_record_takes_only_the_steps_of_its_state_table(
    record: ShareRecord, before: DeliveryState, after: DeliveryState
) -> None:
    record.state = before
    if after in RECORD_STEPS[before]:
        record.step(after)
        assert record.state is after
    else:
        with pytest.raises(IllegalState, match=f"from {before.value} to {after.value}"):
            record.step(after)


async def test_k71_the_end_of_a_with_block_accepts_the_record(
    record: ShareRecord, holder: Holder
) -> None:
    async with record:
        assert record.is_handled
    assert holder.said == ["begin", "end", ACCEPT]
    assert not record.is_handled


async def test_k71_an_exception_in_a_with_block_releases_the_record(
    record: ShareRecord, holder: Holder
) -> None:
    with pytest.raises(KeyError):
        async with record:
            raise KeyError
    assert holder.said[-1] is RELEASE


@pytest.mark.parametrize(("decision", "kind"), [(Reject("no"), REJECT), (Release("no"), RELEASE)])
async def test_k71_a_raised_decision_ends_the_with_block_without_an_error(
    record: ShareRecord, holder: Holder, decision: Exception, kind: AcknowledgeType
) -> None:
    async with record:
        raise decision
    assert holder.said == ["begin", "end", "no", kind]


def test_k71_an_acknowledgement_inside_a_with_block_is_kept(
    record: ShareRecord, holder: Holder
) -> None:
    with record:
        record.reject()
    assert holder.said == ["begin", REJECT, "end"]


def test_k71_a_second_acknowledgement_is_refused(record: ShareRecord) -> None:
    record.accept()
    with pytest.raises(IllegalState, match="acknowledged already \\(ACCEPT\\)"):
        record.release()


def test_k75_a_record_may_be_renewed_and_then_acknowledged(
    record: ShareRecord, holder: Holder
) -> None:
    record.acknowledge(AcknowledgeType.RENEW)
    record.accept()
    assert holder.said == [AcknowledgeType.RENEW, ACCEPT]


def test_k73_the_result_is_known_when_the_broker_has_answered(record: ShareRecord) -> None:
    result = record.accept()
    assert not result.done()
    with pytest.raises(IllegalState, match="on its way"):
        result.result()
    record.step(DeliveryState.DONE)
    assert result.done() and result.exception() is None
    result.result()


def test_k74_an_acknowledgement_of_a_lost_record_has_no_effect(
    record: ShareRecord, holder: Holder
) -> None:
    lost = OdradekError("lost")
    record.step(DeliveryState.FAILED, lost)
    result = record.accept()
    assert holder.said == []
    assert result.exception() is lost
    with pytest.raises(OdradekError, match="lost"):
        result.result()
