"""Metadata records that contradict the state are refused before they are written (D4)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from counting_randomness import CountingRandomness
from node_world import NodeWorld
from odradek_broker.config.broker import default_config
from odradek_broker.metadata.cluster import METADATA_TOPIC, ClusterMetadata
from odradek_broker.metadata.errors import MetadataError
from odradek_broker.metadata.record_checks import check_all
from odradek_broker.storage.errors import StorageError
from odradek_protocol.common_structs import QuotaEntityPart
from odradek_protocol.constants import RESOURCE_CLIENT_METRICS, RESOURCE_TOPIC
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.cluster_metadata import (
    RECORD_TYPES,
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)


def topic(number: int = 1, name: str = "t") -> TopicRecord:
    return TopicRecord(name=name, topic_id=bytes([number]) * 16)


def partition(number: int = 1, index: int = 0, epoch: int = 0) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=bytes([number]) * 16,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=epoch,
        partition_epoch=epoch,
    )


def no_topic(number: int = 1) -> RemoveTopicRecord:
    return RemoveTopicRecord(topic_id=bytes([number]) * 16)


def acl(number: int = 1, operation: int = 3, principal: str = "User:a") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=bytes([number]) * 16,
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=3,
    )


def no_acl(number: int = 1) -> RemoveAccessControlEntryRecord:
    return RemoveAccessControlEntryRecord(id=bytes([number]) * 16)


def token(token_id: str = "a") -> DelegationTokenRecord:
    return DelegationTokenRecord(owner="User:a", requester="User:a", token_id=token_id)


def no_token(token_id: str = "a") -> RemoveDelegationTokenRecord:
    return RemoveDelegationTokenRecord(token_id=token_id)


def credential(user: str = "a", mechanism: int = 1) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
    )


def no_credential(user: str = "a", mechanism: int = 1) -> RemoveUserScramCredentialRecord:
    return RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)


def producer_ids(end: int) -> ProducerIdsRecord:
    return ProducerIdsRecord(broker_id=1, next_producer_id=end)


def quota(key: str = "producer_byte_rate", *, remove: bool = False) -> ClientQuotaRecord:
    entity = [QuotaEntityPart(entity_type="user", entity_name="a")]
    return ClientQuotaRecord(entity=entity, key=key, value=1.0, remove=remove)


def feature(level: int, name: str = "group.version") -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=level)


def setting(kind: int, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name="t", name=name, value=value)


BEFORE: list[MetadataRecord] = [
    topic(),
    partition(),
    acl(),
    token(),
    credential(),
    producer_ids(1000),
]
IMPOSSIBLE = [
    topic(),
    topic(2),
    topic(1, "u"),
    partition(2),
    no_topic(2),
    acl(1, principal="User:b"),
    acl(2),
    acl(2, operation=99),
    no_acl(2),
    no_token("b"),
    credential(mechanism=9),
    no_credential("b"),
    no_credential(mechanism=2),
    no_credential(mechanism=9),
    producer_ids(1000),
    producer_ids(999),
    quota("fun"),
    feature(99),
    feature(1, "fun"),
    setting(RESOURCE_TOPIC, "retention.ms", "fun"),
    setting(RESOURCE_CLIENT_METRICS, "match", "fun"),
]


def test_the_impossible_records_cover_every_record_type() -> None:
    assert {type(record) for record in IMPOSSIBLE} | {DelegationTokenRecord} == set(
        RECORD_TYPES.values()
    )


@pytest.fixture
def world() -> NodeWorld:
    world = NodeWorld()
    assert world.node.metadata_log.commit(BEFORE).done is False
    world.flush()
    return world


def stored(world: NodeWorld) -> Any:
    """The metadata log on disk, its offsets, the content of the next snapshot, and the state."""
    node, directory = world.node, f"data/{METADATA_TOPIC}-0"
    metadata = node.metadata
    return deepcopy(
        (
            {path: world.files.content(path) for path in world.files.paths() if directory in path},
            node.metadata_log.state(),
            list(node.metadata_log._image.values()),
            metadata.topics,
            metadata._names_by_id,
            metadata._configs,
            metadata.client_quotas,
            metadata.scram_credentials,
            metadata.acls.by_id,
            list(metadata.delegation_tokens.all()),
            metadata.feature_levels,
            metadata.producer_ids_end,
        )
    )


@pytest.mark.parametrize("position", ["alone", "behind a sound one"])
@pytest.mark.parametrize("record", IMPOSSIBLE, ids=lambda record: type(record).__name__)
def test_d4_an_impossible_record_changes_neither_log_nor_memory(
    world: NodeWorld, record: Any, position: str
) -> None:
    before = stored(world)
    with pytest.raises(StorageError, match="which no start could read") as caught:
        world.node.metadata_log.commit(
            [record] if position == "alone" else [topic(9, "sound"), record]
        )
    assert caught.value.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert stored(world) == before
    assert world.node.maintain().problems == [caught.value.message]
    assert world.node.maintain().problems == []
    assert world.fatal == []
    assert not world.create("after").done
    world.flush()
    world.crash()
    assert world.node.metadata.topics.keys() == {"t", "after"}


def test_at_most_ten_refusals_are_reported(world: NodeWorld) -> None:
    for _ in range(50):
        with pytest.raises(StorageError):
            world.node.metadata_log.commit([topic()])
    assert len(world.node.maintain().problems) == 10


@pytest.mark.parametrize(
    "batch",
    [
        [topic(2, "u"), partition(2), partition(2, 1)],
        [no_topic(), topic(2), partition(2)],
        [no_acl(), acl(1, principal="User:b")],
        [no_acl(), acl(2)],
        [token("b"), no_token("b"), token("b")],
        [no_credential(), credential(), credential(mechanism=2)],
        [producer_ids(2000), producer_ids(3000)],
        [setting(RESOURCE_TOPIC, "retention.ms", "5"), setting(RESOURCE_TOPIC, "fun", "fun")],
        [quota(), quota(remove=True), quota(remove=True)],
    ],
    ids=lambda batch: type(batch[0]).__name__,
)
def test_records_may_depend_on_earlier_records_of_their_batch(
    world: NodeWorld, batch: list[Any]
) -> None:
    world.node.metadata_log.commit(batch)
    world.flush()
    world.crash()
    assert world.node.maintain().problems == []


@pytest.mark.parametrize(
    "batch",
    [
        [topic(2, "u"), topic(3, "u")],
        [topic(2, "u"), topic(2, "v")],
        [no_topic(), partition()],
        [no_topic(), no_topic()],
        [no_acl(), no_acl()],
        [acl(2, principal="User:b"), acl(3, principal="User:b")],
        [no_token(), no_token()],
        [no_credential(), no_credential()],
        [producer_ids(3000), producer_ids(2000)],
    ],
    ids=lambda batch: type(batch[0]).__name__,
)
def test_records_must_not_contradict_earlier_records_of_their_batch(
    world: NodeWorld, batch: list[Any]
) -> None:
    before = stored(world)
    with pytest.raises(StorageError):
        world.node.metadata_log.commit(batch)
    assert stored(world) == before


NUMBERS = st.integers(1, 3)
NAMES = st.sampled_from(["t", "u"])
ANY_RECORD = st.one_of(
    st.builds(topic, NUMBERS, NAMES),
    st.builds(partition, NUMBERS, st.integers(0, 1)),
    st.builds(no_topic, NUMBERS),
    st.builds(acl, NUMBERS, st.sampled_from([3, 4, 99]), st.sampled_from(["User:a", "User:b"])),
    st.builds(no_acl, NUMBERS),
    st.builds(token, NAMES),
    st.builds(no_token, NAMES),
    st.builds(credential, NAMES, st.sampled_from([1, 2, 9])),
    st.builds(no_credential, NAMES, st.sampled_from([1, 2, 9])),
    st.builds(producer_ids, st.integers(0, 4)),
    st.builds(quota, st.sampled_from(["producer_byte_rate", "fun"]), remove=st.booleans()),
    st.builds(feature, st.sampled_from([0, 1, 99])),
)


@settings(max_examples=budget.examples(500))
@given(first=st.lists(ANY_RECORD, max_size=12), then=st.lists(ANY_RECORD, min_size=1, max_size=6))
def test_the_check_of_a_batch_finds_the_same_problem_as_its_replay(
    first: list[MetadataRecord], then: list[MetadataRecord]
) -> None:
    metadata = ClusterMetadata(default_config(), CountingRandomness())
    for record in first:
        try:
            check_all([record], metadata)
        except MetadataError:
            continue
        metadata.replay(record)
    try:
        check_all(then, metadata)
    except MetadataError as refused:
        expected = str(refused)
    else:
        expected = ""
    found = ""
    for record in then:
        try:
            metadata.replay(record)
        except MetadataError as problem:
            found = str(problem)
            break
    assert found == expected
