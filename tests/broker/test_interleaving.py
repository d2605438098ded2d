"""Long requests that are in progress at a time: other requests are carried out between two of their
slices, and each of their items is atomic (rule N-57)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from handler_calls import context
from interleaved import Asked, InterleavedBroker
from odradek_broker.security.authorizer import Operation, topic
from odradek_protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_acls import AclCreation, CreateAclsRequest
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek_protocol.schemas.metadata import MetadataRequest

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
E = ErrorCode
NAMES = [f"topic-{number:04}" for number in range(300)]


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
            created.append(guarded.begin(creation([NAMES[-1 - len(created)]])))
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
