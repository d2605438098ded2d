"""Long requests that are in progress at a time: other requests are carried out between two of their
slices, and each of their items is atomic (rule N-57)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

import budget
from handler_calls import context
from interleaved import Asked, InterleavedBroker
from logs import make_batch
from odradek_broker.metadata import topics as create_topics
from odradek_broker.request import CloseConnection
from odradek_broker.security.authorizer import Operation, topic
from odradek_protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek_protocol.codec import Buffer
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek_protocol.schemas.create_acls import AclCreation, CreateAclsRequest
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek_protocol.schemas.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek_protocol.schemas.describe_transactions import DescribeTransactionsRequest
from odradek_protocol.schemas.end_txn import EndTxnRequest
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.metadata import MetadataRequest
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek_protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raw_transactions import transactional_batch

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
E = ErrorCode
NAMES = [f"topic-{number:04}" for number in range(200 if budget.is_short() else 300)]


@pytest.fixture
def broker() -> InterleavedBroker:
    return InterleavedBroker()


@pytest.fixture
def guarded() -> InterleavedBroker:
    """A broker with ACLs; `admin` may do everything."""
    return InterleavedBroker(authorizer_class_name=AUTHORIZER, super_users="User:admin")


def creation(names: Iterable[str], partitions: int = 1, **more: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            for name in names
        ],
        timeout_ms=30_000,
        **more,
    )


def deletion(names: Iterable[str]) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names], timeout_ms=30_000
    )


def growth(names: Iterable[str], count: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name in names],
        timeout_ms=30_000,
    )


def errors(results: Iterable[Any]) -> dict[str, int]:
    """The error of each name, which has one result."""
    found: dict[str, int] = {}
    for each in results:
        assert each.name not in found
        found[each.name] = each.error_code
    return found


def topics_of(broker: InterleavedBroker) -> dict[str, tuple[bytes, list[int]]]:
    """The topics of a broker, each with its id and partitions."""
    return {
        name: (topic.topic_id, sorted(topic.partitions))
        for name, topic in broker.node.metadata.topics.items()
    }


def turns_of(broker: InterleavedBroker, *asked: Asked) -> Iterator[int]:
    """Each turn of the loop until the requests are answered or wait for the disk."""
    turn = 0
    while not all(each.done for each in asked) and broker.soon.turn():
        yield turn
        turn += 1


# --- Topics ---------------------------------------------------------------------------------------


def test_n57_two_clients_create_the_same_topics_and_each_is_created_once(
    broker: InterleavedBroker,
) -> None:
    first = broker.begin(creation(NAMES, partitions=2))
    second = broker.begin(creation(reversed(NAMES), partitions=2))
    one, other = (errors(answer.topics) for answer in broker.finish(first, second))
    for name in NAMES:
        assert {one[name], other[name]} == {E.NONE, E.TOPIC_ALREADY_EXISTS}
    # Both made progress at a time.
    assert 0 < Counter(one.values())[E.NONE] < len(NAMES)
    before = topics_of(broker)
    assert all(partitions == [0, 1] for _, partitions in before.values())
    broker.crash()
    assert topics_of(broker) == before


@pytest.mark.parametrize("begins", ["creation", "deletion"])
def test_n57_topics_are_created_while_they_are_deleted(
    broker: InterleavedBroker, begins: str
) -> None:
    names = NAMES[:200]
    if begins == "creation":
        create, delete = broker.begin(creation(names)), broker.begin(deletion(names))
    else:
        broker.ask(creation(names))
        delete, create = broker.begin(deletion(names)), broker.begin(creation(names))
    created, deleted = (
        errors(getattr(answer, field))
        for answer, field in zip(
            broker.finish(create, delete), ("topics", "responses"), strict=True
        )
    )
    existed = begins == "deletion"
    for name in names:
        made, gone = created[name] == E.NONE, deleted[name] == E.NONE
        assert made or created[name] == E.TOPIC_ALREADY_EXISTS
        assert gone or deleted[name] == E.UNKNOWN_TOPIC_OR_PARTITION
        assert gone if existed else made
        exists = name in broker.node.metadata.topics
        assert exists in ({existed + made - gone} if made + gone else {existed})
    before = topics_of(broker)
    broker.crash()
    assert topics_of(broker) == before


def test_n57_max_partitions_holds_for_requests_that_create_at_a_time() -> None:
    broker = InterleavedBroker(max_partitions="200")
    requests = [creation(NAMES[start : start + 80], 2) for start in (0, 80, 160)]
    answers = broker.finish(*(broker.begin(request) for request in requests))
    created = sum(topic.error_code == E.NONE for answer in answers for topic in answer.topics)
    assert created == 100 and broker.node.metadata.total_partitions == 200


def test_n57_max_partitions_holds_for_requests_that_add_partitions_at_a_time() -> None:
    broker = InterleavedBroker(max_partitions="220")
    names = NAMES[:100]
    broker.ask(creation(names))
    halves = [broker.begin(growth(names[::2], 4)), broker.begin(growth(names[1::2], 4))]
    answers = broker.finish(*halves)
    grown = sum(each.error_code == E.NONE for answer in answers for each in answer.results)
    assert grown == 40 and broker.node.metadata.total_partitions == 220


@pytest.mark.parametrize("times", [2, 300])
def test_n57_a_name_that_a_long_request_repeats_is_refused_once(
    broker: InterleavedBroker, times: int
) -> None:
    broker.ask(creation(["old"]))
    others = NAMES[:100]
    created = errors(broker.ask(creation([*others, *["new"] * times])).topics)
    assert created == {**dict.fromkeys(others, E.NONE), "new": E.INVALID_REQUEST}
    grown = errors(broker.ask(growth([*others, *["old"] * times], 2)).results)
    assert grown == {**dict.fromkeys(others, E.NONE), "old": E.INVALID_REQUEST}
    gone = errors(broker.ask(deletion([*others, *["old"] * times])).responses)
    assert gone == {**dict.fromkeys(others, E.NONE), "old": E.INVALID_REQUEST}


def test_n57_names_of_one_request_that_differ_in_dots_are_all_created(
    broker: InterleavedBroker,
) -> None:
    names = [
        f"{first}{number}{last}"
        for first in ("a.", "a_")
        for last in (".z", "_z")
        for number in range(50)
    ]
    assert set(errors(broker.ask(creation(names)).topics).values()) == {E.NONE}
    later = errors(broker.ask(creation(["a.0-z", "a_0.z.", "a.0.z_"])).topics)
    assert later == dict.fromkeys(later, E.NONE)
    assert broker.ask(creation(["b.z"])).topics[0].error_code == E.NONE
    assert broker.ask(creation(["b_z"])).topics[0].error_code == E.INVALID_TOPIC_EXCEPTION


# --- Rights ---------------------------------------------------------------------------------------


def acl(
    name: str, operation: AclOperation, permission: AclPermission = AclPermission.ALLOW, **more: Any
) -> AclCreation:
    return AclCreation(
        resource_type=AclResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=more.pop("pattern", PatternType.PREFIXED),
        principal="User:somebody",
        host="*",
        operation=operation,
        permission_type=permission,
    )


def test_a17_a_topic_that_appears_during_a_deletion_is_not_deleted_without_the_right(
    guarded: InterleavedBroker,
) -> None:
    guarded.ask(CreateAclsRequest(creations=[acl("topic-", AclOperation.DESCRIBE)]))
    delete = guarded.begin(deletion(NAMES), user="somebody")
    created: list[Asked] = []
    for turn in turns_of(guarded, delete):
        if turn % 4 == 0 and len(created) < 50:
            # The rights to the first names are looked at first, and long before the deletion.
            created.append(guarded.begin(creation([NAMES[len(created)]])))
    (deleted,) = guarded.finish(delete)
    assert E.NONE not in set(errors(deleted.responses).values())
    assert len(guarded.node.metadata.topics) == len(created)


def test_a10_a_topic_that_appears_during_a_request_for_all_topics_is_hidden(
    guarded: InterleavedBroker,
) -> None:
    guarded.ask(creation(NAMES))
    guarded.ask(CreateAclsRequest(creations=[acl("topic-", AclOperation.DESCRIBE)]))
    everything = guarded.begin(MetadataRequest(topics=None), user="somebody")
    for turn in turns_of(guarded, everything):
        if turn % 4 == 0 and turn < 100:
            guarded.begin(creation([f"secret-{turn}"]))
    (answer,) = guarded.finish(everything)
    assert len(answer.topics) == len(NAMES) and len(guarded.node.metadata.topics) > len(NAMES)


def test_a18_acls_that_are_changed_never_allow_what_they_do_not_allow_before_or_after(
    guarded: InterleavedBroker,
) -> None:
    may = guarded.node.authorizer

    def allowed() -> bool:
        asked = context(1)
        asked.user = "somebody"
        return may.would_allow(asked, Operation.READ, topic("secret-1"))

    fill = [acl(f"other-{number}", AclOperation.READ) for number in range(600)]
    allows = [acl("secret", AclOperation.READ)]
    denies = [acl("secret", AclOperation.READ, AclPermission.DENY)]
    create = guarded.begin(CreateAclsRequest(creations=[*allows, *fill, *denies]))
    for _ in turns_of(guarded, create):
        assert not allowed()
    assert {each.error_code for each in guarded.finish(create)[0].results} == {E.NONE}
    assert not allowed()
    filters = [
        DeleteAclsFilter(
            resource_type_filter=AclResourceType.TOPIC,
            resource_name_filter=each.resource_name,
            pattern_type_filter=PatternType.PREFIXED,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=each.permission_type,
        )
        for each in (*denies, *fill, *allows)
    ]
    delete = guarded.begin(DeleteAclsRequest(filters=filters))
    for _ in turns_of(guarded, delete):
        assert not allowed()
    results = guarded.finish(delete)[0].filter_results
    assert [len(each.matching_acls) for each in results] == [1] * 602


# --- Closed connections ---------------------------------------------------------------------------


def produced(names: Iterable[str], batch: Buffer, acks: int = -1, **more: Any) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=index, records=batch) for index in range(6)
                ],
            )
            for name in names
        ],
        **more,
    )


def offsets(names: Iterable[str]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
            for name in names
        ],
    )


def committed(broker: InterleavedBroker, names: Iterable[str]) -> dict[str, int]:
    """The committed offsets of the group; -1 without one."""
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in names]
    asked = OffsetFetchRequestGroup(group_id="g", topics=topics)
    answer = broker.ask(OffsetFetchRequest(groups=[asked]), 9)
    assert answer.groups[0].error_code == E.NONE
    return {each.name: each.partitions[0].committed_offset for each in answer.groups[0].topics}


def _made(broker: InterleavedBroker) -> set[str]:
    return set(NAMES) & topics_of(broker).keys()


def _gone(broker: InterleavedBroker) -> set[str]:
    return set(NAMES) - topics_of(broker).keys()


def _grown(broker: InterleavedBroker) -> set[str]:
    return {name for name, (_, partitions) in topics_of(broker).items() if len(partitions) == 9}


def _written(broker: InterleavedBroker) -> set[str]:
    return {name for name in topics_of(broker) if broker.end(name, 5) == 1}


def _stored(broker: InterleavedBroker) -> set[str]:
    return {name for name, offset in committed(broker, NAMES).items() if offset == 7}


CHANGES: dict[str, tuple[bool, Message, int, Callable[[InterleavedBroker], set[str]]]] = {
    "CreateTopics": (False, creation(NAMES), 7, _made),
    "DeleteTopics": (True, deletion(NAMES), 6, _gone),
    "CreatePartitions": (True, growth(NAMES, 9), 3, _grown),
    "Produce": (True, produced(NAMES, make_batch(1)), 12, _written),
    "Produce without answer": (True, produced(NAMES, make_batch(1), acks=0), 12, _written),
    "OffsetCommit": (True, offsets(NAMES), 9, _stored),
}


@pytest.mark.full
@pytest.mark.parametrize("change", CHANGES)
def test_n10_n57_a_change_is_whole_or_not_begun_wherever_its_connection_is_closed(
    change: str,
) -> None:
    topics_first, request, version, changed = CHANGES[change]
    seen: set[int] = set()

    def begun() -> tuple[InterleavedBroker, Asked]:
        broker = InterleavedBroker()
        if topics_first:
            broker.ask(creation(NAMES, 6))
        broker.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
        return broker, broker.begin(request, version)

    turns = sum(1 for _ in turns_of(*begun()))
    for before_end in (1, 6, turns):
        broker, asked = begun()
        closed_at = turns - before_end
        for turn in turns_of(broker, asked):
            if turn == closed_at:
                asked.hang_up()
                break
        broker.finish()
        assert not broker.node.slices.unfinished
        count = len(changed(broker))
        assert count in (0, len(NAMES)), closed_at
        seen.add(count)
        before = topics_of(broker)
        broker.crash()
        assert topics_of(broker) == before and len(changed(broker)) == count
    assert seen == {0, len(NAMES)}


@pytest.mark.parametrize("number", [0, 1, 20])
def test_n57_an_exception_in_the_middle_closes_one_connection_and_others_go_on(
    broker: InterleavedBroker, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches_made = 0

    def fails(*given: Any) -> Any:
        nonlocal batches_made
        batches_made += 1
        if batches_made == number + 1:
            raise ValueError("a bug")
        return create_topics.create_topics(*given)

    broker.ask(creation(["first"]))  # imports the handler
    monkeypatch.setattr("odradek_broker.handlers.create_topics.create_topics", fails)
    bad = broker.begin(creation(NAMES))
    other = broker.begin(deletion(NAMES))
    with capture_logs() as lines:
        closing, answered = broker.finish(bad, other)
    assert isinstance(closing, CloseConnection) and "its log has the cause" in str(closing)
    (line,) = lines
    assert line["event"] == "a request failed unexpectedly" and line["exc_info"]
    assert (line["peer"], line["api"]) == ("127.0.0.1", "CreateTopics")
    assert len(answered.responses) == len(NAMES)
    assert not broker.node.slices.unfinished
    before = topics_of(broker)
    broker.crash()
    assert topics_of(broker) == before


# --- Records and offsets --------------------------------------------------------------------------


def test_n57_a_batch_that_is_sent_twice_at_a_time_is_appended_once(
    broker: InterleavedBroker,
) -> None:
    broker.ask(creation(NAMES, 6))
    batch = transactional_batch(0, b"a", b"b", transactional=False)
    first = broker.begin(produced(NAMES, batch), 12)
    again = broker.begin(produced(reversed(NAMES), batch), 12)
    one, other = (
        {
            (topic.name, each.index): (each.error_code, each.base_offset)
            for topic in answer.responses
            for each in topic.partition_responses
        }
        for answer in broker.finish(first, again)
    )
    assert len(one) == 6 * len(NAMES) > 1_000
    assert set(one.values()) == set(other.values()) == {(E.NONE, 0)}
    assert {broker.end(name, index) for name, index in one} == {2}


def test_o03_no_offset_is_stored_for_a_topic_that_is_deleted_meanwhile(
    broker: InterleavedBroker,
) -> None:
    broker.ask(creation(NAMES))
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
    for begun in (0, 30, 60, 90):
        commit = broker.begin(offsets(NAMES), 9)
        for turn in turns_of(broker, commit):
            if turn == begun:
                break
        delete = broker.begin(deletion(NAMES[::2]))
        again = broker.begin(creation(NAMES[::2]))
        (stored, _, _) = broker.finish(commit, delete, again)
        assert not broker.node.slices.unfinished
        errors_of = {each.name: each.partitions[0].error_code for each in stored.topics}
        assert {errors_of[name] for name in NAMES[1::2]} == {E.NONE}
        broker.finish(broker.begin(deletion(NAMES[::2])))
        broker.ask(creation(NAMES[::2]))
        assert set(committed(broker, NAMES[::2]).values()) == {-1}
        broker.crash()
        assert set(committed(broker, NAMES[::2]).values()) == {-1}


# --- Transactions ---------------------------------------------------------------------------------


def begun(broker: InterleavedBroker, names: Iterable[str]) -> tuple[int, int]:
    broker.ask(creation(names, 4))
    broker.ask(FindCoordinatorRequest(coordinator_keys=["tx"], key_type=1))
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
    return initialised(broker)


def initialised(broker: InterleavedBroker) -> tuple[int, int]:
    for _ in range(20):
        answer = broker.ask(
            InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4
        )
        if answer.error_code == E.NONE:
            return answer.producer_id, answer.producer_epoch
        assert answer.error_code == E.CONCURRENT_TRANSACTIONS
    raise AssertionError("the transaction never ends")


def transactional_offsets(
    names: Iterable[str], producer: tuple[int, int]
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
            for name in names
        ],
    )


@pytest.mark.parametrize("fenced_at", [0, 5, 20, 60, 100])
def test_t61_a_producer_that_is_fenced_meanwhile_commits_no_offset(
    broker: InterleavedBroker, fenced_at: int
) -> None:
    old = begun(broker, NAMES)
    commit = broker.begin(transactional_offsets(NAMES, old), 5)
    for turn in turns_of(broker, commit):
        if turn == fenced_at:
            break
    fence = broker.begin(
        InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4
    )
    broker.finish(commit, fence)
    new = initialised(broker)
    assert new[1] > old[1]
    assert set(committed(broker, NAMES).values()) == {-1}
    broker.ask(transactional_offsets(NAMES[:1], new), 5)
    end = EndTxnRequest(
        transactional_id="tx", producer_id=new[0], producer_epoch=new[1], committed=True
    )
    assert broker.ask(end, 5).error_code == E.NONE
    broker.finish()
    assert committed(broker, NAMES) == {**dict.fromkeys(NAMES, -1), NAMES[0]: 7}
    broker.crash()
    assert committed(broker, NAMES) == {**dict.fromkeys(NAMES, -1), NAMES[0]: 7}


@pytest.mark.parametrize("fenced_at", [0, 20, 60, 100, 140])
def test_t21_partitions_are_added_all_or_none_beside_a_new_producer(
    broker: InterleavedBroker, fenced_at: int
) -> None:
    producer_id, epoch = begun(broker, NAMES)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=[0, 1, 2, 3]) for name in NAMES
        ],
    )
    asked = broker.begin(add, 3)
    for turn in turns_of(broker, asked):
        if turn == fenced_at:
            break
    fence = broker.begin(
        InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4
    )
    (answer, _) = broker.finish(asked, fence)
    codes = {
        each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }
    assert codes in (
        {E.NONE},
        {E.PRODUCER_FENCED},
        {E.INVALID_PRODUCER_EPOCH},
        {E.CONCURRENT_TRANSACTIONS},
    )
    initialised(broker)
    described = broker.ask(DescribeTransactionsRequest(transactional_ids=["tx"]))
    assert described.transaction_states[0].topics == []


# --- Durability -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [MetadataRequest(topics=None), DescribeTopicPartitionsRequest()],
    ids=["Metadata", "DescribeTopicPartitions"],
)
def test_d4_an_answer_waits_for_the_changes_that_are_made_while_it_is_read(
    broker: InterleavedBroker, request_: Message
) -> None:
    broker.ask(creation(NAMES))
    asked = broker.begin(request_)
    for turn in turns_of(broker, asked):
        if turn == 2:
            grown = broker.begin(growth(NAMES[-1:], 3))
    assert not grown.done and not asked.done
    broker.flush()
    broker.go_on()
    shown = {topic.name: len(topic.partitions) for topic in asked.answer.topics}
    assert shown == {**dict.fromkeys(NAMES, 1), NAMES[-1]: 3}
