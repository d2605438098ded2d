"""Offsets in transactions: pending until the marker is written (rules O-05, O-09, O-17, O-18,
T-24)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker, StartBroker
from fake_verifier import FakeVerifier, Question
from group_world import GROUP, GroupWorld, part
from odradek_broker.coordinator.groups.offsets import CommitCall, FetchedPart
from odradek_broker.coordinator.runtime import GROUP_APPEND_ERRORS, ProducerIdentity
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek_protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raw_client import RawClient
from raw_transactions import PRODUCER, marker_codes, marker_request
from waiting import until

E = ErrorCode
TOPIC = ("topic", 0)
UNSTABLE = [FetchedPart("topic", 0, error=E.UNSTABLE_OFFSET_COMMIT)]


def commit(
    world: GroupWorld, offset: int, producer_id: int = PRODUCER, *, epoch: int = 0, **how: Any
) -> Deferred[list[ErrorCode]]:
    """Commit one position in partition 0 of "topic" in a transaction."""
    call = CommitCall(
        group_id=how.get("group", GROUP),
        generation=how.get("generation", -1),
        member_id=how.get("member_id", ""),
        instance_id=how.get("instance"),
        api_version=5,
        retention_ms=-1,
        parts=[part(offset, metadata=how.get("metadata", ""))],
    )
    return world.groups.commit_offsets(call, ProducerIdentity(producer_id, epoch))


def end(world: GroupWorld, *, committed: bool, producer_id: int = PRODUCER) -> Deferred[ErrorCode]:
    """Write the marker that ends the transaction, as the leader of the partition does."""
    written = world.log.append_marker(producer_id, committed)
    world.groups.marker_written(0, producer_id, committed, written)
    return written


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


# --- The coordinator, in virtual time ---


@pytest.mark.parametrize(("committed", "seen"), [(True, 7), (False, 3)])
def test_o17_a_pending_offset_counts_once_its_transaction_is_committed(
    world: GroupWorld, committed: bool, seen: int
) -> None:
    world.commit(3)
    assert commit(world, 7).result() == [E.NONE]
    assert world.committed() == 3, "without require_stable the last committed one (O-09)"
    assert world.fetch(TOPIC, stable=True).parts == UNSTABLE
    end(world, committed=committed)
    assert world.committed() == seen
    assert world.fetch(TOPIC, stable=True).parts[0].offset == seen


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("decided", [True, False])
def test_o18_t50k_pending_offsets_are_the_same_after_a_restart(
    world: GroupWorld, committed: bool, decided: bool
) -> None:
    world.commit(3)
    commit(world, 7)
    commit(world, 9, PRODUCER + 1, group="other")
    if decided:
        end(world, committed=committed)
    before = [world.fetch(TOPIC, stable=stable) for stable in (True, False)]
    world.restart()
    assert [world.fetch(TOPIC, stable=stable) for stable in (True, False)] == before
    assert world.fetch(TOPIC, group="other", stable=True).parts == UNSTABLE
    end(world, committed=committed)
    assert world.committed() == (7 if committed else 3)


def test_o17_a_plain_commit_overrides_an_earlier_transactional_one(world: GroupWorld) -> None:
    commit(world, 7)
    world.commit(8)
    end(world, committed=True)
    assert world.committed() == 8
    world.restart()
    assert world.committed() == 8


def test_o17_a_marker_decides_only_the_offsets_of_its_producer(world: GroupWorld) -> None:
    commit(world, 1, PRODUCER)
    commit(world, 2, PRODUCER + 1)
    end(world, committed=True, producer_id=PRODUCER + 1)
    assert world.committed() == 2
    assert world.fetch(TOPIC, stable=True).parts == UNSTABLE
    end(world, committed=True, producer_id=PRODUCER)
    assert world.committed() == 2, "the first one was written before"


@pytest.mark.parametrize("restarts", [False, True])
def test_o17_o11_a_group_with_only_aborted_commits_is_removed_at_the_next_check(
    world: GroupWorld, restarts: bool
) -> None:
    """Until the check the group exists, is empty, and can be deleted, as in Kafka."""
    commit(world, 7)
    assert [listing.group_id for listing in world.groups.groups()] == [GROUP]
    end(world, committed=False)
    if restarts:
        world.restart()
    assert [listing.group_id for listing in world.groups.groups()] == [GROUP]
    before = len(world.log.records)
    world.wait(600_000)
    assert list(world.groups.groups()) == []
    assert len(world.log.records) == before, "nothing to be forgotten in the log"


def test_o05_a_transactional_commit_checks_member_and_generation(world: GroupWorld) -> None:
    assert commit(world, 1, generation=1, member_id="m").result() == [E.ILLEGAL_GENERATION]
    one, _ = world.enter()
    assert commit(world, 1).result() == [E.NONE], "no ids, any state"
    assert commit(world, 2, generation=1, member_id=one).result() == [E.NONE]
    assert commit(world, 3, generation=2, member_id=one).result() == [E.ILLEGAL_GENERATION]
    assert commit(world, 3, generation=1, member_id="x").result() == [E.UNKNOWN_MEMBER_ID]
    end(world, committed=True)
    assert world.committed() == 2


def test_o05_a_transactional_commit_extends_no_session(world: GroupWorld) -> None:
    (one,) = world.stable(1, session_ms=10_000)
    world.wait(9_000)
    assert commit(world, 1, generation=1, member_id=one).result() == [E.NONE]
    world.wait(2_000)
    assert world.heartbeat(one, 1) is E.UNKNOWN_MEMBER_ID


def test_o06_a_transactional_commit_with_too_long_metadata_is_refused(world: GroupWorld) -> None:
    assert commit(world, 1, metadata="x" * 4097).result() == [E.OFFSET_METADATA_TOO_LARGE]
    assert not world.log.records


def test_o17_an_offset_is_visible_when_its_marker_is_durable(world: GroupWorld) -> None:
    world.commit(3)
    commit(world, 7)
    world.log.hold = True
    written = end(world, committed=True)
    answer = world.groups.fetch_offsets(GROUP, [TOPIC], True)
    assert not answer.done
    world.log.flush()
    assert written.result() is E.NONE
    assert answer.result().parts[0].offset == 7


def test_o17_a_marker_that_the_disk_loses_stops_the_coordinator(world: GroupWorld) -> None:
    commit(world, 7)
    world.log.hold = True
    end(world, committed=True)
    answer = world.groups.fetch_offsets(GROUP, [TOPIC], True)
    world.log.flush(E.KAFKA_STORAGE_ERROR)
    told = GROUP_APPEND_ERRORS[E.KAFKA_STORAGE_ERROR]
    assert answer.result().error is told
    assert world.fetch(TOPIC).error is told


def test_o03_a_refused_append_changes_nothing(world: GroupWorld) -> None:
    world.log.refuse = E.INVALID_PRODUCER_EPOCH
    assert commit(world, 7).result() == [E.INVALID_PRODUCER_EPOCH]
    world.log.refuse = E.NONE
    assert world.fetch(TOPIC, stable=True).parts == [FetchedPart("topic", 0)]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("plain"), st.integers(0, 2), st.integers(0, 99)),
            st.tuples(st.just("pending"), st.integers(0, 2), st.integers(0, 99)),
            st.tuples(st.just("commit"), st.integers(0, 2), st.just(0)),
            st.tuples(st.just("abort"), st.integers(0, 2), st.just(0)),
            st.tuples(st.just("restart"), st.just(0), st.just(0)),
        ),
        max_size=40,
    )
)
def test_o17_o18_offsets_agree_with_a_list_of_writes(
    steps: list[tuple[str, int, int]],
) -> None:
    """The model is the list of all writes; those of open or aborted transactions have no effect."""
    world = GroupWorld()
    writes: list[list[Any]] = []
    for kind, producer, offset in steps:
        if kind == "plain":
            world.commit(offset)
            writes.append([None, offset])
        elif kind == "pending":
            commit(world, offset, producer)
            writes.append([producer, offset])
        elif kind == "restart":
            world.restart()
        else:
            end(world, committed=kind == "commit", producer_id=producer)
            for write in writes:
                if write[0] == producer:
                    write[0] = None if kind == "commit" else "aborted"
        counting = [value for owner, value in writes if owner is None]
        assert world.committed() == (counting[-1] if counting else -1)
        undecided = any(isinstance(owner, int) for owner, _ in writes)
        (found,) = world.fetch(TOPIC, stable=True).parts
        assert (found.error is E.UNSTABLE_OFFSET_COMMIT) == undecided


# --- TxnOffsetCommit, over a socket ---


def request(
    offset: int = 5, *, topics: tuple[str, ...] = ("t",), index: int = 0, **how: Any
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=how.get("group", "g"),
        producer_id=PRODUCER,
        producer_epoch=how.get("epoch", 0),
        generation_id=how.get("generation", -1),
        member_id=how.get("member_id", ""),
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata="m"
                    )
                ],
            )
            for name in topics
        ],
    )


def codes(response: Any) -> list[int]:
    return [part.error_code for topic in response.topics for part in topic.partitions]


async def position(client: RawClient, *, stable: bool = True) -> tuple[int, int]:
    """(error, offset) of t-0 in group g."""
    response = await client.call(
        OffsetFetchRequest(
            require_stable=stable,
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
                )
            ],
        ),
        9,
    )
    found = response.groups[0].topics[0].partitions[0]
    return found.error_code, found.committed_offset


@pytest.fixture
async def verifier(broker: RunningBroker, client: RawClient) -> FakeVerifier:
    await client.create_topic("t")
    await prepared(broker)
    fake = FakeVerifier()
    fake.install(broker.node)
    return fake


async def prepared(broker: RunningBroker) -> None:
    """Create the offsets topic."""
    made: list[None] = []
    broker.node.ensure_internal_topic(OFFSETS_TOPIC).then(made.append)
    await until(lambda: made)


def offsets_index(broker: RunningBroker) -> int:
    index = broker.node.groups.shards.partition_of("g")
    assert isinstance(index, int)
    return index


@pytest.mark.parametrize("version", range(6))
async def test_t24_every_version_stores_a_pending_offset(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier, version: int
) -> None:
    assert codes(await client.call(request(7), version)) == [E.NONE]
    index = offsets_index(broker)
    where = ((OFFSETS_TOPIC, index),)
    assert verifier.questions == [Question("tx", PRODUCER, 0, where, version >= 5)]
    assert await position(client) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert await position(client, stable=False) == (E.NONE, -1)
    response = await client.call(marker_request(topic=OFFSETS_TOPIC, partitions=[index]))
    assert marker_codes(response) == [E.NONE]
    assert await position(client) == (E.NONE, 7)
    log = broker.node.partition(OFFSETS_TOPIC, index).log
    data = log.read(0, 1 << 20, upper_bound=log.log_end_offset, minimum_one=True)
    offsets, marker = (header for _, header in iter_batches(data))
    assert offsets.is_transactional and not offsets.is_control
    assert (offsets.producer_id, offsets.producer_epoch, offsets.base_sequence) == (PRODUCER, 0, -1)
    assert marker.is_control


async def test_t24_an_aborted_offset_is_dropped(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    await client.call(request(7))
    index = offsets_index(broker)
    await client.call(marker_request(topic=OFFSETS_TOPIC, partitions=[index], commit=False))
    assert await position(client) == (E.NONE, -1)


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        (3, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
        (4, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (5, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (5, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS),
        (5, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_t24_t62_offsets_outside_of_the_transaction_are_not_stored(
    client: RawClient, verifier: FakeVerifier, version: int, said: ErrorCode, told: ErrorCode
) -> None:
    verifier.error = said
    assert codes(await client.call(request(), version)) == [told]
    assert await position(client) == (E.NONE, -1)


async def test_t24_a_commit_with_an_older_producer_epoch_is_refused(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    assert codes(await client.call(request(1, epoch=4))) == [E.NONE]
    assert codes(await client.call(request(2, epoch=3))) == [E.INVALID_PRODUCER_EPOCH]


async def test_t24_o06_each_partition_has_its_own_code(
    client: RawClient, verifier: FakeVerifier
) -> None:
    response = await client.call(request(topics=("absent", "t")))
    assert codes(response) == [E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE]
    nothing_left = await client.call(request(topics=("absent",)))
    assert codes(nothing_left) == [E.UNKNOWN_TOPIC_OR_PARTITION]


async def test_t24_an_empty_group_id_is_invalid(client: RawClient, verifier: FakeVerifier) -> None:
    response = await client.call(request(group="", topics=("absent", "t")))
    assert codes(response) == [E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_GROUP_ID]


async def test_t24_without_the_offsets_topic_the_coordinator_is_not_available(
    client: RawClient, broker: RunningBroker
) -> None:
    await client.create_topic("t")
    assert codes(await client.call(request())) == [E.COORDINATOR_NOT_AVAILABLE]


async def test_t24_a06_rights_are_checked_in_order(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    rules = broker.node.authorizer = RuleList()
    both = request(topics=("absent", "t"))
    assert codes(await client.call(both)) == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    rules.rules.append(Rule(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx"))
    assert codes(await client.call(both)) == [E.GROUP_AUTHORIZATION_FAILED] * 2
    rules.rules.append(Rule(Operation.READ, ResourceType.GROUP, "g"))
    assert codes(await client.call(both)) == [E.TOPIC_AUTHORIZATION_FAILED] * 2
    rules.rules.append(Rule(Operation.READ, ResourceType.TOPIC, "t"))
    assert codes(await client.call(both)) == [E.TOPIC_AUTHORIZATION_FAILED, E.NONE]


async def test_t24_c63_a_member_of_another_generation_is_refused(
    client: RawClient, verifier: FakeVerifier
) -> None:
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    join.member_id = (await client.call(join)).member_id
    joined = await client.call(join)
    assert joined.error_code == 0
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=join.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=join.member_id, assignment=b"")],
    )
    assert (await client.call(sync, 3)).error_code == 0
    own = request(1, generation=joined.generation_id, member_id=join.member_id)
    assert codes(await client.call(own)) == [E.NONE]
    stale = request(1, generation=joined.generation_id - 1, member_id=join.member_id)
    assert codes(await client.call(stale)) == [E.ILLEGAL_GENERATION]
    stranger = request(1, generation=joined.generation_id, member_id="stranger")
    assert codes(await client.call(stranger)) == [E.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("committed", [True, False])
async def test_o18_t50k_pending_offsets_survive_a_restart_of_the_broker(
    start_broker: StartBroker, committed: bool
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    await prepared(broker)
    FakeVerifier().install(broker.node)
    assert codes(await client.call(request(7))) == [E.NONE]
    for _ in range(2):
        await broker.stop()
        broker = await start_broker()
        client = await broker.client()
        assert await position(client) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    marker = marker_request(
        topic=OFFSETS_TOPIC, partitions=[offsets_index(broker)], commit=committed
    )
    assert marker_codes(await client.call(marker)) == [E.NONE]
    expected = (E.NONE, 7 if committed else -1)
    assert await position(client) == expected
    await broker.stop()
    broker = await start_broker()
    assert await position(await broker.client()) == expected
