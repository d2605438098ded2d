"""The fetcher without a loop: requests, the buffer, and the results of polls (K-01 to K-20)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from odradek_client.consumer.completed_fetch import DecodeSettings
from odradek_client.consumer.errors import (
    CorruptRecord,
    DeserializationFailed,
    OversizedRecord,
    PositionOutOfRange,
)
from odradek_client.consumer.fetcher import Fetcher, FetchPlan, FetchSettings
from odradek_client.consumer.subscription_state import FetchState, SubscriptionState
from odradek_client.errors import TopicAuthorizationFailed
from odradek_client.network.cluster import ClusterView
from odradek_client.structs import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.builder import control_batch, simple_batch
from odradek_protocol.records.record import read_records
from odradek_protocol.schemas.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek_protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek_protocol.stored.control_marker import ControlType
from rewritten_batches import rewrite_batch

TOPIC_ID = bytes(range(16))


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def a_cluster(leaders: Sequence[int], topic_id: bytes = TOPIC_ID) -> ClusterView:
    """A cluster in which node `leaders[n]` leads partition n of topic t; -1 means no leader."""
    cluster = ClusterView(300_000)
    cluster.update(
        MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host="h", port=1) for node in set(leaders)
            ],
            topics=[
                MetadataResponseTopic(
                    name="t",
                    topic_id=topic_id,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=n, leader_id=leader, leader_epoch=5
                        )
                        for n, leader in enumerate(leaders)
                    ],
                )
            ],
        ),
        0,
    )
    return cluster


class Scene:
    """A fetcher of the partitions of one topic, with all positions at 0; the test answers its
    requests."""

    def __init__(self, leaders: Sequence[int] = (1,), **settings: Any) -> None:
        self.cluster = a_cluster(leaders)
        self.subscription = SubscriptionState()
        self.subscription.assign_by_user(partition(n) for n in range(len(leaders)))
        for n in range(len(leaders)):
            self.subscription.seek(partition(n), 0)
        self.fetcher = Fetcher(self.subscription, FetchSettings(**settings))
        self.now_ms = 0

    def fetches(self) -> list[FetchPlan]:
        return self.fetcher.next_fetches(self.cluster, self.now_ms)

    def fetch(self) -> FetchPlan:
        (plan,) = self.fetches()
        return plan

    def answer(self, plan: FetchPlan, /, session_id: int = 0, **data: Any) -> None:
        """Answer a fetch. `p0=..., p1=...`: bytes of records, an error code, or a whole
        PartitionData."""
        partitions = []
        for name, given in data.items():
            number = int(name[1:])
            if isinstance(given, PartitionData):
                given.partition_index = number
                partitions.append(given)
            elif isinstance(given, ErrorCode):
                partitions.append(PartitionData(partition_index=number, error_code=given))
            else:
                partitions.append(
                    PartitionData(partition_index=number, high_watermark=10_000, records=given)
                )
        self.fetcher.on_response(
            plan,
            FetchResponse(
                session_id=session_id,
                responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)],
            ),
            self.now_ms,
        )

    def offsets(self, limit: int = 10_000) -> list[tuple[int, int]]:
        """The (partition, offset) of each record that a poll returns."""
        collected = self.fetcher.collect(limit)
        return [
            (record.partition, record.offset)
            for records in collected.records.values()
            for record in records
        ]

    def position(self, number: int) -> int | None:
        return self.subscription.state(partition(number)).position

    def buffered(self) -> list[int]:
        return [each.partition for each in self.fetcher.buffered]


def records(first: int, count: int, **options: Any) -> bytes:
    """A batch of `count` records."""
    pairs = [(b"k%d" % n, b"v%d" % n) for n in range(first, first + count)]
    return bytes(simple_batch(pairs, 1_000, base_offset=first, leader_epoch=5, **options))


def asked(plan: FetchPlan) -> list[tuple[int, int]]:
    """The (partition, offset) pairs in a request."""
    return [
        (each.partition, each.fetch_offset)
        for topic in plan.request.topics
        for each in topic.partitions
    ]


def test_a_record_has_every_field_of_the_stored_record() -> None:
    scene = Scene()
    batch = simple_batch([(b"key", None)], 1234, base_offset=0, leader_epoch=7)
    scene.answer(scene.fetch(), p0=bytes(batch))
    (record,) = scene.fetcher.collect(10).records[partition(0)]
    assert (record.key, record.value) == (b"key", None)
    assert tuple(record) == ("t", 0, 0, 1234, 0, b"key", None, (), 7)
    assert not hasattr(record, "__dict__")
    assert scene.subscription.consumed()[partition(0)].leader_epoch == 7


def test_k03_k04_each_of_two_polls_returns_one_fetch_response() -> None:
    scene = Scene()
    first = scene.fetch()
    scene.answer(first, p0=records(0, 3))
    # Poll 1 takes response 1 out of the buffer, and then fetch 2 is sent.
    drained = scene.fetcher.collect(100).records
    assert scene.buffered() == []
    second = scene.fetch()
    assert asked(second) == [(0, 3)]
    # Response 2 arrives before poll 1 returns, and does not change its result.
    scene.answer(second, p0=records(3, 2))
    assert [record.offset for record in drained[partition(0)]] == [0, 1, 2]
    # Poll 2 takes response 2 out of the buffer, and then fetch 3 is sent.
    assert scene.offsets() == [(0, 3), (0, 4)]
    third = scene.fetch()
    assert asked(third) == [(0, 5)]
    # Response 3 is late: poll 3 finds nothing, and no offset is requested twice.
    assert scene.offsets() == []
    assert scene.fetches() == []
    scene.answer(third, p0=records(5, 1))
    assert scene.offsets() == [(0, 5)]


def test_k05_a_node_has_one_fetch_in_flight() -> None:
    scene = Scene(leaders=(1, 2))
    plans = {plan.node_id: plan for plan in scene.fetches()}
    assert set(plans) == {1, 2}
    scene.answer(plans[1], p0=records(0, 1))
    assert scene.fetches() == []  # partition 0 has buffered records, and node 2 a fetch in flight
    scene.offsets()
    (again,) = scene.fetches()
    assert again.node_id == 1


def test_k06_a_fetch_leaves_out_partitions_that_are_not_fetchable() -> None:
    scene = Scene(leaders=(1, 1, 1, 1, -1))
    scene.subscription.pause([partition(0)])
    scene.subscription.reset(partition(1), -1)
    scene.subscription.mark_pending_revocation([partition(2)])
    assert asked(scene.fetch()) == [(3, 0)]
    assert scene.fetcher.metadata_wanted  # for the partition without a leader


def test_k07_leftovers_come_before_newer_data_and_cause_no_fetch() -> None:
    scene = Scene()
    scene.answer(scene.fetch(), p0=records(0, 5) + records(5, 5))
    assert scene.offsets(3) == [(0, 0), (0, 1), (0, 2)]
    assert scene.fetches() == []
    assert scene.offsets(4) == [(0, 3), (0, 4), (0, 5), (0, 6)]
    assert scene.fetches() == []
    assert scene.offsets(100) == [(0, 7), (0, 8), (0, 9)]
    assert asked(scene.fetch()) == [(0, 10)]


def test_k08_a_poll_combines_partitions_up_to_the_cap() -> None:
    scene = Scene(leaders=(1, 1))
    scene.answer(scene.fetch(), p0=records(0, 3), p1=records(0, 3))
    assert scene.offsets(4) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert scene.buffered() == [1]


def test_k09_polls_of_ten_partitions_follow_the_worked_example() -> None:
    """Ten partitions of 1,000 records, and at most 100 records a poll: the exact results and
    fetches, and the order of the partitions in the buffer."""
    scene = Scene(leaders=[1] * 10)
    first = scene.fetch()
    assert [number for number, _ in asked(first)] == list(range(10))
    # A poll returns 100 records and a batch has 125, so polls end within batches.
    thousand = b"".join(records(start, 125) for start in range(0, 1000, 125))
    everything: dict[str, Any] = {f"p{n}": thousand for n in range(10)}
    scene.answer(first, **everything)
    for poll in range(9):
        assert scene.offsets(100) == [(0, n) for n in range(poll * 100, poll * 100 + 100)]
        assert scene.fetches() == []  # every partition has buffered records
        assert scene.buffered() == list(range(10))
    assert scene.offsets(100) == [(0, n) for n in range(900, 1000)]
    tenth = scene.fetch()
    assert asked(tenth) == [(0, 1000)]
    assert scene.buffered() == list(range(1, 10))
    scene.answer(tenth, p0=b"".join(records(start, 500) for start in (1000, 1500)))
    assert scene.offsets(100) == [(1, n) for n in range(100)]
    assert scene.buffered() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    for poll in range(11, 100):
        number, start = poll // 10, poll % 10 * 100
        assert scene.offsets(100) == [(number, n) for n in range(start, start + 100)]
    assert scene.buffered() == [0]
    assert scene.offsets(100) == [(0, n) for n in range(1000, 1100)]


def test_k11_the_position_moves_over_gaps_before_the_poll_returns() -> None:
    scene = Scene()
    whole = simple_batch([(None, b"%d" % n) for n in range(10)], 1, base_offset=0)
    ((at, header),) = iter_batches(bytes(whole))
    kept = [record for record in read_records(whole, at, header) if record.offset in (2, 5)]
    compacted = bytes(rewrite_batch(header, kept))
    scene.answer(scene.fetch(), p0=compacted)
    assert scene.offsets(1) == [(0, 2)]
    assert scene.position(0) == 3
    assert scene.offsets(1) == [(0, 5)]
    assert scene.position(0) == 10  # the batch is finished, and gaps at its end are passed over
    assert scene.buffered() == []


def test_k11_a_compacted_batch_without_records_moves_the_position() -> None:
    scene = Scene()
    ((_, header),) = iter_batches(bytes(simple_batch([(None, b"")] * 4, 1)))
    scene.answer(scene.fetch(), p0=bytes(rewrite_batch(header, [])))
    collected = scene.fetcher.collect(10)
    # a pass without records has advanced the position (K-13)
    assert (collected.count, collected.advanced) == (0, True)
    assert scene.position(0) == 4


def test_a_fetch_from_within_a_batch_returns_the_rest_of_it() -> None:
    scene = Scene()
    scene.subscription.seek(partition(0), 7)
    scene.answer(scene.fetch(), p0=records(0, 5) + records(5, 5))
    assert scene.offsets() == [(0, 7), (0, 8), (0, 9)]


def test_k12_stale_fetch_responses_are_dropped() -> None:
    scene = Scene(leaders=(1, 1, 1))
    plan = scene.fetch()
    scene.subscription.seek(partition(0), 50)
    scene.subscription.drop([partition(1)])
    scene.answer(plan, p0=records(0, 2), p1=records(0, 2), p2=records(0, 2))
    assert scene.offsets() == [(2, 0), (2, 1)]
    assert asked(scene.fetch()) == [(0, 50), (2, 2)]


def test_k11_buffered_data_is_stale_after_a_seek() -> None:
    scene = Scene()
    scene.answer(scene.fetch(), p0=records(0, 5))
    scene.offsets(2)
    scene.subscription.seek(partition(0), 4)
    assert scene.offsets() == []
    assert asked(scene.fetch()) == [(0, 4)]


def test_k12_buffered_records_of_paused_partitions_are_kept() -> None:
    scene = Scene(leaders=(1, 1))
    scene.answer(scene.fetch(), p0=records(0, 2), p1=records(0, 2))
    scene.subscription.pause([partition(0)])
    assert scene.offsets() == [(1, 0), (1, 1)]
    assert scene.buffered() == [0]
    scene.subscription.resume([partition(0)])
    assert scene.offsets() == [(0, 0), (0, 1)]


RETRIED = [6, 9, 56, 74, 78, 3, 100, 103]


@pytest.mark.parametrize("code", [*RETRIED, 75, -1])
def test_k14_retriable_fetch_errors_are_retried_after_a_backoff(code: int) -> None:
    scene = Scene(retry_backoff_ms=100)
    scene.answer(scene.fetch(), p0=ErrorCode(code))
    assert scene.offsets() == []
    assert scene.fetcher.metadata_wanted is (code in RETRIED)
    assert scene.fetches() == []
    assert scene.fetcher.retry_at_ms == 100
    scene.now_ms = 100
    assert asked(scene.fetch()) == [(0, 0)]
    assert scene.fetcher.retry_at_ms is None


def test_k14_out_of_range_resets_by_policy_or_raises() -> None:
    resets = Scene(reset_timestamp=-2)
    resets.answer(resets.fetch(), p0=ErrorCode.OFFSET_OUT_OF_RANGE)
    state = resets.subscription.state(partition(0))
    assert (state.fetch_state, state.reset_timestamp) == (FetchState.AWAIT_RESET, -2)

    raises = Scene(reset_timestamp=None)
    raises.answer(raises.fetch(), p0=ErrorCode.OFFSET_OUT_OF_RANGE)
    with pytest.raises(PositionOutOfRange, match="t-0: offset 0") as caught:
        raises.offsets()
    assert (caught.value.partition, caught.value.offset) == (partition(0), 0)
    assert asked(raises.fetch()) == [(0, 0)]


def test_k14_offset_out_of_range_is_ignored_after_a_seek() -> None:
    scene = Scene(reset_timestamp=None)
    scene.answer(scene.fetch(), p0=ErrorCode.OFFSET_OUT_OF_RANGE)
    scene.subscription.seek(partition(0), 3)
    assert scene.offsets() == []
    assert asked(scene.fetch()) == [(0, 3)]


def test_k14_fetch_errors_are_raised_after_the_buffered_records() -> None:
    scene = Scene(leaders=(1, 1))
    scene.answer(scene.fetch(), p0=ErrorCode.TOPIC_AUTHORIZATION_FAILED, p1=records(0, 1))
    assert scene.offsets() == [(1, 0)]
    with pytest.raises(TopicAuthorizationFailed, match="t-0"):
        scene.offsets()


def test_k15_the_position_stays_at_a_record_that_does_not_deserialize() -> None:
    scene = Scene(decode=DecodeSettings(value=json.loads))
    pairs = [(None, b"1"), (None, b"{"), (None, None), (None, b"4")]
    batch = bytes(simple_batch(pairs, 1))
    scene.answer(scene.fetch(), p0=batch)
    assert scene.offsets() == [(0, 0)]
    for _ in range(2):
        with pytest.raises(DeserializationFailed) as caught:
            scene.offsets()
        assert (caught.value.offset, caught.value.what) == (1, "value")
        assert isinstance(caught.value.__cause__, json.JSONDecodeError)
        assert scene.position(0) == 1
    scene.subscription.seek(partition(0), 2)
    assert scene.offsets() == []
    scene.answer(scene.fetch(), p0=batch)
    (none, four) = scene.fetcher.collect(9).records[partition(0)]
    assert (none.value, four.value) == (None, 4)  # null is not deserialized


@pytest.mark.parametrize("stops_at", [b"0", b"2", b"11"])
def test_k15_an_interrupted_deserializer_loses_no_record(stops_at: bytes) -> None:
    """Two partitions with two batches each; the deserializer is interrupted once."""
    stops = [stops_at]

    def value(data: bytes) -> bytes:
        if data in stops:
            stops.clear()
            raise KeyboardInterrupt
        return data

    scene = Scene(leaders=(1, 1), decode=DecodeSettings(value=value))

    def batches(first: int) -> bytes:
        pairs = [(None, b"%d" % (first + each)) for each in range(4)]
        return bytes(simple_batch(pairs[:2], 1)) + bytes(simple_batch(pairs[2:], 1, base_offset=2))

    def read() -> list[bytes]:
        scene.answer(scene.fetch(), p0=batches(0), p1=batches(10))
        found: list[bytes] = []
        while records := scene.fetcher.collect(9).records:
            found += [record.value for each in records.values() for record in each]
        return found

    with pytest.raises(KeyboardInterrupt):
        read()
    rest = [record.value for each in scene.fetcher.collect(9).records.values() for record in each]
    assert sorted(rest + read(), key=int) == [b"0", b"1", b"2", b"3", b"10", b"11", b"12", b"13"]


def test_k15_a_first_record_that_does_not_deserialize_is_an_error() -> None:
    scene = Scene(decode=DecodeSettings(key=lambda data: data.decode("ascii")))
    scene.answer(scene.fetch(), p0=bytes(simple_batch([(b"\xff", b"")], 1)))
    with pytest.raises(DeserializationFailed, match="t-0, offset 0: the key"):
        scene.offsets()
    assert scene.position(0) == 0


def test_k16_a_wrong_checksum_is_raised_after_the_good_records() -> None:
    scene = Scene()
    damaged = bytearray(records(2, 2))
    damaged[-1] ^= 1
    scene.answer(scene.fetch(), p0=records(0, 2) + bytes(damaged))
    assert scene.offsets() == [(0, 0), (0, 1)]
    with pytest.raises(CorruptRecord, match="t-0, offset 2") as caught:
        scene.offsets()
    assert (caught.value.first_offset, caught.value.next_offset) == (2, 4)
    assert scene.position(0) == 2
    # The same bytes are fetched again, because the damage may have happened in transit.
    assert asked(scene.fetch()) == [(0, 2)]


def test_k16_check_crcs_false_skips_the_checksum() -> None:
    scene = Scene(decode=DecodeSettings(check_crcs=False))
    damaged = bytearray(records(0, 1))
    damaged[17] ^= 1
    scene.answer(scene.fetch(), p0=bytes(damaged))
    assert scene.offsets() == [(0, 0)]


def damage_magic(batch: bytearray) -> None:
    batch[16] = 1


def damage_codec(batch: bytearray) -> None:
    batch[22] = 7


def damage_length(batch: bytearray) -> None:
    batch[8:12] = b"\xff\xff\xff\xff"


@pytest.mark.parametrize("damage", [damage_magic, damage_codec, damage_length])
def test_k16_unknown_formats_are_never_skipped(damage: Callable[[bytearray], None]) -> None:
    scene = Scene(decode=DecodeSettings(check_crcs=False))
    batch = bytearray(records(0, 1))
    damage(batch)
    scene.answer(scene.fetch(), p0=bytes(batch))
    with pytest.raises(CorruptRecord):
        scene.offsets()
    assert scene.position(0) == 0


@pytest.mark.parametrize("last", [-5, 2**31 - 1])
def test_k16_a_damaged_batch_header_gives_no_next_offset(last: int) -> None:
    """If the checksum is wrong, the last offset in the header may be wrong, too. A wrong last
    offset is noticed only if it is before the position."""
    scene = Scene()
    batch = bytearray(records(0, 3))
    batch[23:27] = last.to_bytes(4, "big", signed=True)
    scene.answer(scene.fetch(), p0=bytes(batch))
    with pytest.raises(CorruptRecord) as caught:
        scene.offsets()
    assert caught.value.next_offset == (None if last < 0 else last + 1)
    assert ("a later offset" in str(caught.value)) == (last < 0)


@pytest.mark.parametrize("size", [5, 30, 70])
def test_k17_a_fetch_without_a_complete_batch_is_an_error(size: int) -> None:
    scene = Scene()
    scene.answer(scene.fetch(), p0=records(0, 100)[:size])
    with pytest.raises(OversizedRecord, match="max_partition_fetch_bytes"):
        scene.offsets()


def test_r14_a_partial_batch_at_the_end_is_ignored() -> None:
    scene = Scene()
    scene.answer(scene.fetch(), p0=records(0, 2) + records(2, 9)[:-1])
    assert scene.offsets() == [(0, 0), (0, 1)]
    assert asked(scene.fetch()) == [(0, 2)]


@pytest.mark.parametrize("size", [12, 16, 17, 60])
def test_r14_zeros_at_the_end_of_a_fetch_do_not_block_the_partition(size: int) -> None:
    """Trailing bytes that cannot be a batch are requested again."""
    scene = Scene()
    scene.answer(scene.fetch(), p0=records(0, 2) + bytes(size))
    assert scene.offsets() == [(0, 0), (0, 1)]
    with contextlib.suppress(CorruptRecord):
        assert scene.offsets() == []
    assert asked(scene.fetch()) == [(0, 2)]


def test_k18_a_fetch_request_has_the_default_limits() -> None:
    request = Scene().fetch().request
    assert (request.min_bytes, request.max_wait_ms, request.max_bytes) == (1, 500, 52_428_800)
    (topic,) = request.topics
    assert [each.partition_max_bytes for each in topic.partitions] == [1_048_576]
    assert [each.current_leader_epoch for each in topic.partitions] == [5]


def transactional(first: int, count: int, producer_id: int) -> bytes:
    return records(
        first, count, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return bytes(control_batch(kind, 0, producer_id, 0, 1, base_offset=offset))


def log_with_transactions() -> bytes:
    """A log with transactions: producer 7 aborts records 0 and 1 and commits record 6, producer 8
    commits record 2, and record 5 belongs to no transaction."""
    return b"".join(
        [
            transactional(0, 2, 7),
            transactional(2, 1, 8),
            marker(3, 7, ControlType.ABORT),
            marker(4, 8, ControlType.COMMIT),
            records(5, 1),
            transactional(6, 1, 7),
            marker(7, 7, ControlType.COMMIT),
        ]
    )


def test_f10_read_committed_leaves_out_aborted_records() -> None:
    scene = Scene(decode=DecodeSettings(read_committed=True))
    plan = scene.fetch()
    assert plan.request.isolation_level == 1
    data = PartitionData(
        high_watermark=9,
        last_stable_offset=8,
        records=log_with_transactions(),
        aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=0)],
    )
    scene.answer(plan, p0=data)
    assert scene.offsets() == [(0, 2), (0, 5), (0, 6)]
    assert scene.position(0) == 8  # after the marker
    assert scene.subscription.state(partition(0)).last_stable_offset == 8


def test_k13_a_pass_over_a_control_batch_alone_advances_the_position() -> None:
    scene = Scene()
    scene.answer(scene.fetch(), p0=marker(0, 7, ControlType.COMMIT))
    collected = scene.fetcher.collect(10)
    assert (collected.count, collected.advanced, scene.position(0)) == (0, True, 1)


def test_f10_aborted_transactions_may_be_listed_in_any_order() -> None:
    scene = Scene(decode=DecodeSettings(read_committed=True))
    log = b"".join(
        [
            transactional(0, 1, 1),
            marker(1, 1, ControlType.ABORT),
            transactional(2, 1, 2),
            marker(3, 2, ControlType.ABORT),
            transactional(4, 1, 1),
            marker(5, 1, ControlType.ABORT),
            transactional(6, 1, 2),
            marker(7, 2, ControlType.COMMIT),
        ]
    )
    aborted = [(1, 4), (2, 2), (1, 0)]
    data = PartitionData(
        high_watermark=8,
        records=log,
        aborted_transactions=[
            AbortedTransaction(producer_id=producer, first_offset=at) for producer, at in aborted
        ],
    )
    scene.answer(scene.fetch(), p0=data)
    assert scene.offsets() == [(0, 6)]


def test_f10_read_uncommitted_returns_everything_but_markers() -> None:
    scene = Scene()
    scene.answer(scene.fetch(), p0=log_with_transactions())
    assert [offset for _, offset in scene.offsets()] == [0, 1, 2, 5, 6]


def test_k20_fetch_sessions_send_only_changed_partitions() -> None:
    scene = Scene(leaders=(1, 1))
    first = scene.fetch()
    assert (first.request.session_id, first.request.session_epoch) == (0, 0)
    scene.answer(first, session_id=9, p0=records(0, 2))
    second = scene.fetch()  # partition 0 has buffered records: the session must forget it
    assert (second.request.session_id, second.request.session_epoch) == (9, 1)
    assert asked(second) == []
    assert [topic.partitions for topic in second.request.forgotten_topics_data] == [[0]]
    scene.offsets()
    scene.answer(second, session_id=9)
    third = scene.fetch()
    assert third.request.session_epoch == 2
    assert asked(third) == [(0, 2)]
    assert third.request.forgotten_topics_data == []
    scene.answer(third, session_id=9, p1=records(0, 1))
    assert scene.offsets() == [(1, 0)]


@pytest.mark.parametrize("code", [70, 71, 106])
def test_k20_a_lost_session_is_followed_by_a_full_fetch(code: int) -> None:
    scene = Scene()
    scene.answer(scene.fetch(), session_id=9)
    second = scene.fetch()
    scene.fetcher.on_response(second, FetchResponse(error_code=code), 0)
    third = scene.fetch()
    assert (third.request.session_id, third.request.session_epoch) == (0, 0)
    assert asked(third) == [(0, 0)]


def test_k20_an_unexpected_partition_is_followed_by_a_full_fetch() -> None:
    scene = Scene()
    scene.answer(scene.fetch(), session_id=9, p4=records(0, 1))
    assert scene.offsets() == []
    again = scene.fetch().request
    assert (again.session_id, again.session_epoch) == (9, 0)  # closes the old session (F-20)


def test_a_lost_connection_backs_off_and_starts_a_new_session() -> None:
    scene = Scene(retry_backoff_ms=100)
    scene.answer(scene.fetch(), session_id=9)
    scene.fetcher.on_failure(scene.fetch(), 0)
    assert scene.fetcher.metadata_wanted
    assert scene.fetches() == []
    scene.now_ms = 100
    again = scene.fetch().request
    assert (again.session_id, again.session_epoch) == (9, 0)


def test_k20_a_topic_that_was_created_again_gets_a_new_session() -> None:
    scene = Scene()
    scene.answer(scene.fetch(), session_id=9)
    scene.cluster = a_cluster([1], topic_id=bytes(15) + b"\x02")
    plan = scene.fetch()
    again = plan.request
    assert (again.session_id, again.session_epoch) == (9, 0)  # closes the old session (F-20)
    assert [topic.topic_id for topic in again.topics] == [bytes(15) + b"\x02"]
    # A broker that knows topics by name would drop the new topic if the request forgot the old one.
    assert again.forgotten_topics_data == []


def test_f14_a_fetch_names_topics_that_have_no_id() -> None:
    scene = Scene()
    assert scene.fetch().max_version is None
    scene.cluster = a_cluster([1], topic_id=bytes(16))
    scene.fetcher = Fetcher(scene.subscription, FetchSettings())
    plan = scene.fetch()
    assert plan.max_version == 12
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t", partitions=[PartitionData(high_watermark=1, records=records(0, 1))]
            )
        ]
    )
    scene.fetcher.on_response(plan, response, 0)
    assert scene.offsets() == [(0, 0)]


def test_partitions_with_returned_records_are_requested_last() -> None:
    scene = Scene(leaders=(1, 1, 1))
    scene.answer(scene.fetch(), p0=records(0, 1))
    scene.offsets()
    assert [number for number, _ in asked(scene.fetch())] == [1, 2, 0]


def test_take_one_gives_records_until_the_batch_ends() -> None:
    scene = Scene()
    scene.answer(scene.fetch(), p0=records(0, 4))
    assert scene.fetcher.take_one() is None  # no record was collected yet
    assert scene.offsets(1) == [(0, 0)]
    for offset in (1, 2):
        record = scene.fetcher.take_one()
        assert record is not None
        assert (record.offset, scene.position(0)) == (offset, offset + 1)
    assert scene.fetcher.take_one() is None
    assert scene.offsets(1) == [(0, 3)]
    assert scene.fetcher.take_one() is None
    assert asked(scene.fetch()) == [(0, 4)]


def test_take_one_gives_nothing_after_a_seek_a_pause_or_a_revocation() -> None:
    disturbances: list[Callable[[Scene], None]] = [
        lambda scene: scene.subscription.seek(partition(0), 9),
        lambda scene: scene.subscription.pause([partition(0)]),
        lambda scene: scene.subscription.drop([partition(0)]),
        lambda scene: scene.subscription.mark_pending_revocation([partition(0)]),
    ]
    for disturb in disturbances:
        scene = Scene()
        scene.answer(scene.fetch(), p0=records(0, 4))
        assert scene.offsets(1) == [(0, 0)]
        disturb(scene)
        assert scene.fetcher.take_one() is None
