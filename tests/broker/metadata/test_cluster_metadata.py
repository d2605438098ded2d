"""Cluster metadata: records, replay, producer-id blocks, decisions on topics and settings."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from counting_randomness import CountingRandomness
from fake_node import FakeNode
from handler_calls import ask
from node_world import NodeWorld
from odradek_broker.config.broker import ConfigSource, default_config
from odradek_broker.metadata import config_changes, config_resources
from odradek_broker.metadata.cluster import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    PRODUCER_ID_BLOCK,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    ClusterMetadata,
)
from odradek_broker.metadata.config_changes import (
    ResourceChanges,
    SettingChange,
    alter_configs,
)
from odradek_broker.metadata.errors import AdminError, MetadataError
from odradek_broker.metadata.topics import (
    NewPartitions,
    RequestedTopic,
    TopicRef,
    check_topic_name,
    create_partitions,
    create_topics,
    delete_topics,
)
from odradek_protocol.constants import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID, DecodeError
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.incremental_alter_configs import ConfigOperation
from odradek_protocol.stored.cluster_metadata import (
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
    encode_record,
)

RECORDS = [
    TopicRecord(name="t", topic_id=bytes(range(16))),
    PartitionRecord(
        partition_id=2, topic_id=bytes(range(16)), replicas=[1], isr=[1], leader=1, leader_epoch=0,
        partition_epoch=0,
    ),
    ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
    ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None),
    RemoveTopicRecord(topic_id=bytes(range(16))),
    ProducerIdsRecord(broker_id=1, next_producer_id=1000),
]  # fmt: skip


def state(metadata: ClusterMetadata) -> Any:
    """The whole state that replay builds."""
    return (
        metadata.topics,
        metadata._names_by_id,
        metadata._configs,
        metadata._next_producer_id,
        metadata.config,
    )


def replayed(node: FakeNode) -> ClusterMetadata:
    """The state after a restart: the recorded records, replayed into a new object."""
    metadata = ClusterMetadata(node.config, CountingRandomness())
    for value in node.recorded:
        metadata.replay(decode_record(value))
    return metadata


# --- Records --------------------------------------------------------------------------------------


def test_a_topic_record_is_encoded_in_kafkas_bytes() -> None:
    """The bytes are: frame version 1, record type 2, record version 0, compact name, id, no
    tags."""
    assert encode_record(RECORDS[0]) == b"\x01\x02\x00\x02t" + bytes(range(16)) + b"\x00"


def test_a_producer_ids_record_is_encoded_in_kafkas_bytes() -> None:
    expected = "010f00" + "00000001" + "ffffffffffffffff" + "00000000000003e8" + "00"
    assert encode_record(RECORDS[5]).hex() == expected


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_survive_a_round_trip(record: Any) -> None:
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("value", ["", "01", "0002", "020200", "017f00", "010201", "010200ff"])
def test_an_unreadable_metadata_record_is_refused(value: str) -> None:
    with pytest.raises(DecodeError):
        decode_record(bytes.fromhex(value))


# --- Replay ---------------------------------------------------------------------------------------


def test_d4_a_restart_replays_to_the_same_state() -> None:
    node = FakeNode()
    node.create("a", 3, retention_ms="7")
    first = node.create("b")
    changes = ResourceChanges(
        RESOURCE_BROKER, "", [SettingChange("log.retention.ms", ConfigOperation.SET, "99")]
    )
    node.metadata_log.commit(alter_configs(node.metadata, [changes])[0])
    node.metadata_log.commit(delete_topics(node.metadata, [TopicRef("b")])[0])
    second = node.create("b", 2)
    node.metadata_log.commit(node.metadata.producer_id_block())
    node.metadata_log.commit(
        alter_configs(
            node.metadata,
            [
                ResourceChanges(
                    RESOURCE_TOPIC,
                    "a",
                    [SettingChange("retention.ms", ConfigOperation.DELETE, None)],
                )
            ],
        )[0]
    )
    assert state(replayed(node)) == state(node.metadata)
    assert first != second
    assert node.metadata.topic_name(first) is None
    assert node.metadata.topic_name(second) == "b"
    assert node.metadata.log_config("a").retention_ms == 99


def test_replay_refuses_a_record_that_contradicts_the_state() -> None:
    metadata = ClusterMetadata(default_config(), CountingRandomness())
    metadata.replay(RECORDS[0])
    for record in (
        RECORDS[0],
        PartitionRecord(topic_id=bytes(16)),
        RemoveTopicRecord(topic_id=bytes(16)),
        ProducerIdsRecord(next_producer_id=0),
    ):
        with pytest.raises(MetadataError):
            metadata.replay(record)


def test_d8_the_leader_of_every_partition_is_this_node() -> None:
    node = FakeNode(node_id="7")
    node.create("t", 2)
    assert node.metadata.leader_of("t", 1) == 7
    assert node.metadata.leader_of("t", 2) is None
    assert node.metadata.leader_of("u", 0) is None


def test_a_new_topic_id_is_not_reserved_and_begins_with_no_dash() -> None:
    class Biased(CountingRandomness):
        ids = (bytes(16), bytes(15) + b"\x01", b"\xf8" + bytes(15), b"\x05" * 16)

        def uuid(self) -> bytes:
            self.calls += 1
            return self.ids[self.calls - 1]

    assert ClusterMetadata(default_config(), Biased()).new_topic_id() == b"\x05" * 16


# --- Producer ids ---------------------------------------------------------------------------------


def test_p29_no_producer_id_is_taken_before_its_block_is_durable() -> None:
    node = FakeNode()
    metadata = node.metadata
    assert metadata.take_producer_id() is None
    node.metadata_log.commit(metadata.producer_id_block())
    assert metadata.take_producer_id() is None, "recorded is not durable"
    metadata.use_producer_id_block()
    assert [metadata.take_producer_id() for _ in range(3)] == [0, 1, 2]


def test_p29_producer_id_blocks_of_a_thousand_are_consecutive() -> None:
    node = FakeNode()
    taken = []
    for _ in range(2):
        node.metadata_log.commit(node.metadata.producer_id_block())
        node.metadata.use_producer_id_block()
        while (producer_id := node.metadata.take_producer_id()) is not None:
            taken.append(producer_id)
    assert taken == list(range(2 * PRODUCER_ID_BLOCK))


def test_p29_a_restart_skips_the_rest_of_a_producer_id_block() -> None:
    node = FakeNode()
    node.metadata_log.commit(node.metadata.producer_id_block())
    node.metadata.use_producer_id_block()
    node.metadata.take_producer_id()
    again = replayed(node)
    assert again.take_producer_id() is None
    (record,) = again.producer_id_block()
    assert isinstance(record, ProducerIdsRecord)
    assert record.next_producer_id == 2 * PRODUCER_ID_BLOCK
    again.replay(record)
    again.use_producer_id_block()
    assert again.take_producer_id() == PRODUCER_ID_BLOCK


# --- Topics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249])
def test_legal_topic_names_are_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\0"])
def test_illegal_topic_names_are_refused(name: str) -> None:
    with pytest.raises(AdminError) as caught:
        check_topic_name(name)
    assert caught.value.error is ErrorCode.INVALID_TOPIC_EXCEPTION


def create(node: FakeNode, *wanted: RequestedTopic, **more: Any) -> list[ErrorCode]:
    records, results = create_topics(node.metadata, wanted, **more)
    node.metadata_log.commit(records)
    return [result.error for result in results]


def test_create_topics_takes_default_and_given_partition_counts() -> None:
    node = FakeNode(num_partitions="3")
    assert create(node, RequestedTopic("a"), RequestedTopic("b", 2, 1)) == [ErrorCode.NONE] * 2
    assert node.metadata.partition_count("a") == 3
    partition = node.metadata.topics["b"].partitions[1]
    assert (partition.leader, partition.replicas, partition.isr) == (1, [1], [1])


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (RequestedTopic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (RequestedTopic("a.b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (RequestedTopic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (RequestedTopic("__consumer_offsets"), ErrorCode.INVALID_REQUEST),
        (RequestedTopic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (RequestedTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (RequestedTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (RequestedTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (RequestedTopic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (RequestedTopic("t", 99), ErrorCode.POLICY_VIOLATION),
        (RequestedTopic("t", 1, -1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (RequestedTopic("t", -1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (RequestedTopic("t", assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", assignments={0: [2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (RequestedTopic("t", configs={"no.such": "x"}), ErrorCode.INVALID_CONFIG),
        (RequestedTopic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
    ],
    ids=lambda value: str(value)[:60],
)
def test_invalid_topics_are_refused_and_others_created(
    wanted: RequestedTopic, error: ErrorCode
) -> None:
    node = FakeNode(max_partitions="50")
    node.create("there")
    node.create("a_b")
    records, results = create_topics(node.metadata, [wanted, RequestedTopic("good")])
    assert [result.error for result in results] == [error, ErrorCode.NONE]
    assert results[0].message
    assert [record for record in records if isinstance(record, TopicRecord)] == [records[0]]


def test_one_request_creates_at_most_ten_thousand_partitions() -> None:
    node = FakeNode()
    wanted = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in (("a", 1), ("b", 6_000), ("c", 4_000))
        ]
    )
    refused = [ErrorCode.POLICY_VIOLATION] * 3
    assert [each.error_code for each in ask(node, wanted, 7).topics] == refused
    assert (
        create(node, RequestedTopic("b", 6_000), RequestedTopic("c", 4_000)) == [ErrorCode.NONE] * 2
    )
    _, results = create_partitions(
        node.metadata, [NewPartitions("b", 16_001), NewPartitions("b2", 1)]
    )
    assert results[0].error is ErrorCode.POLICY_VIOLATION


def test_a_value_that_is_too_long_is_refused() -> None:
    node = FakeNode()
    node.create("t")
    key = "leader.replication.throttled.replicas"
    for length, error in ((30_000, ErrorCode.NONE), (40_000, ErrorCode.INVALID_CONFIG)):
        value = "0:" + "1" * (length - 2)
        found, message = alter(
            node, RESOURCE_TOPIC, "t", SettingChange(key, ConfigOperation.SET, value)
        )
        assert found is error
        assert message is None or len(message) < 1000


def test_the_replication_factor_is_checked_before_the_partition_count() -> None:
    node = FakeNode()
    errors = create(
        node, RequestedTopic("a", 0, 0), RequestedTopic("b", 0, 1), RequestedTopic("c", -2, -1)
    )
    assert errors == [
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_PARTITIONS,
    ]


def test_a_topic_name_given_twice_is_refused_once() -> None:
    node = FakeNode()
    assert create(node, RequestedTopic("a"), RequestedTopic("b"), RequestedTopic("a")) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert list(node.metadata.topics) == ["b"]


def test_topic_names_collide_with_existing_topics_and_not_within_a_request() -> None:
    node = FakeNode()
    assert create(node, RequestedTopic("a.b"), RequestedTopic("a_b")) == [ErrorCode.NONE] * 2
    assert create(node, RequestedTopic("a.b"), RequestedTopic("a.b_c")) == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NONE,
    ]
    assert create(node, RequestedTopic("a_b.c")) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_replication_factor_accepted_by_policy_gives_one_replica() -> None:
    node = FakeNode(replication_factor_policy="accept")
    records, results = create_topics(node.metadata, [RequestedTopic("t", 1, 3)])
    assert (results[0].error, results[0].replication_factor) == (ErrorCode.NONE, 1)
    assert "one copy" in (results[0].message or "")
    assert any(isinstance(record, PartitionRecord) and record.replicas == [1] for record in records)


def test_a_manual_assignment_to_this_node_creates_the_topic() -> None:
    node = FakeNode()
    assert create(node, RequestedTopic("t", assignments={1: [1], 0: [1]})) == [ErrorCode.NONE]
    assert node.metadata.partition_count("t") == 2


def test_topics_are_deleted_by_name_and_by_id() -> None:
    node = FakeNode()
    node.create("a")
    topic_id = node.create("b")
    records, results = delete_topics(
        node.metadata,
        [
            TopicRef("a"),
            TopicRef(None, topic_id),
            TopicRef("nobody"),
            TopicRef(None, b"x" * 16),
            TopicRef(),
            TopicRef("a", topic_id),
        ],
    )
    assert [(result.error, result.name) for result in results] == [
        (ErrorCode.NONE, "a"),
        (ErrorCode.NONE, "b"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nobody"),
        (ErrorCode.UNKNOWN_TOPIC_ID, None),
        (ErrorCode.INVALID_REQUEST, None),
        (ErrorCode.INVALID_REQUEST, "a"),
    ]
    node.metadata_log.commit(records)
    assert node.metadata.topics == {}


def test_deleting_a_topic_by_name_and_by_id_is_refused_once() -> None:
    node = FakeNode()
    topic_id = node.create("a")
    records, results = delete_topics(node.metadata, [TopicRef("a"), TopicRef(None, topic_id)])
    assert records == []
    assert [(result.name, result.topic_id, result.error) for result in results] == [
        ("a", topic_id, ErrorCode.INVALID_REQUEST)
    ]


def test_delete_topics_answers_every_topic_even_if_given_twice() -> None:
    node = FakeNode()
    first, second = node.create("a"), node.create("b")
    refs = [TopicRef("a"), TopicRef("a"), TopicRef(None, first)]
    refs += [TopicRef("b"), TopicRef(None, second), TopicRef(None, second)]
    records, results = delete_topics(node.metadata, refs)
    assert records == [RemoveTopicRecord(topic_id=first)]
    assert [(result.name, result.topic_id, result.error) for result in results] == [
        ("a", ZERO_UUID, ErrorCode.INVALID_REQUEST),
        (None, second, ErrorCode.INVALID_REQUEST),
        ("b", second, ErrorCode.INVALID_REQUEST),
        ("a", first, ErrorCode.NONE),
    ]


class _CountedName(str):
    compared = 0

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_delete_topics_by_name_and_by_id_does_not_compare_all_names() -> None:
    node = FakeNode()
    refs = []
    for number in range(200):
        refs.append(TopicRef(None, node.create(f"t{number}")))
        refs.append(TopicRef(_CountedName(f"t{number}")))
    _, results = delete_topics(node.metadata, refs)
    assert len(results) == 200
    assert _CountedName.compared < 20 * len(refs)


def test_a_refusal_of_too_many_partitions_keeps_no_reference_to_the_request() -> None:
    """A shared exception object would keep the frames of every raise, and with them the
    requests."""
    node = FakeNode()
    node.create("t")
    more = [NewPartitions("t", 16_001)]
    for _ in range(3):
        _, results = create_partitions(node.metadata, more)
        assert results[0].error is ErrorCode.POLICY_VIOLATION
    assert len(gc.get_referrers(more)) <= 1


def test_internal_topics_are_neither_deleted_nor_grown() -> None:
    node = FakeNode()
    node.metadata_log.commit(node.metadata.internal_topic_records(OFFSETS_TOPIC))
    records, results = delete_topics(node.metadata, [TopicRef(OFFSETS_TOPIC)])
    assert (records, results[0].error) == ([], ErrorCode.INVALID_TOPIC_EXCEPTION)
    records, grown = create_partitions(node.metadata, [NewPartitions(OFFSETS_TOPIC, 60)])
    assert (records, grown[0].error) == ([], ErrorCode.INVALID_REQUEST)


def test_f14_a_recreated_topic_has_a_new_id_and_none_of_the_old_settings() -> None:
    node = FakeNode()
    old = node.create("t", retention_ms="5")
    node.metadata_log.commit(delete_topics(node.metadata, [TopicRef("t")])[0])
    new = node.create("t")
    assert new != old
    assert node.metadata.topic_overrides("t") == {}
    assert node.metadata.log_config("t").retention_ms == 604_800_000


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (NewPartitions("t", 5), ErrorCode.NONE),
        (NewPartitions("t", 5, [[1], [1]]), ErrorCode.NONE),
        (NewPartitions("t", 3), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 99), ErrorCode.POLICY_VIOLATION),
        (NewPartitions("nobody", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 5, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 5, [[1], [2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=str,
)
def test_create_partitions_adds_partitions_or_refuses(
    more: NewPartitions, error: ErrorCode
) -> None:
    node = FakeNode(max_partitions="50")
    node.create("t", 3)
    records, results = create_partitions(node.metadata, [more])
    node.metadata_log.commit(records)
    assert [result.error for result in results] == [error]
    expected = 5 if error is ErrorCode.NONE else 3
    assert sorted(node.metadata.topics["t"].partitions) == list(range(expected))


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_internal_topics_are_made_on_demand_with_kafkas_settings(name: str) -> None:
    node = FakeNode(
        offsets_topic_num_partitions="4", transaction_state_log_num_partitions="4",
        offsets_topic_segment_bytes="1000", transaction_state_log_segment_bytes="1000",
        share_coordinator_state_topic_num_partitions="4",
        share_coordinator_state_topic_segment_bytes="1000",
    )  # fmt: skip
    node.metadata_log.commit(node.metadata.internal_topic_records(name))
    assert node.metadata.partition_count(name) == 4
    log_config = node.metadata.log_config(name)
    assert log_config.segment_bytes == 1000
    assert log_config.compacted is (name != SHARE_STATE_TOPIC)
    assert (log_config.retention_ms == -1) is (name == SHARE_STATE_TOPIC)
    assert node.metadata.is_internal(name) and node.metadata.topics[name].is_internal
    assert node.metadata.internal_topic_records(name) == []


def test_o01_h101_internal_topics_have_fifty_partitions_by_default() -> None:
    node = FakeNode()
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC):
        node.metadata_log.commit(node.metadata.internal_topic_records(name))
        assert node.metadata.partition_count(name) == 50
        assert node.metadata.log_config(name).segment_bytes == 104_857_600


# --- Settings -------------------------------------------------------------------------------------


def alter(
    node: FakeNode, resource_type: int, name: str, *changes: SettingChange
) -> tuple[ErrorCode, str | None]:
    records, results = alter_configs(node.metadata, [ResourceChanges(resource_type, name, changes)])
    node.metadata_log.commit(records)
    return results[0].error, results[0].message


def test_a_list_setting_is_set_appended_subtracted_and_deleted() -> None:
    node = FakeNode()
    node.create("t")
    key = "cleanup.policy"
    for operation, value, expected in (
        (ConfigOperation.APPEND, "compact", {key: "delete,compact"}),
        (ConfigOperation.APPEND, "compact", {key: "delete,compact"}),
        (ConfigOperation.SUBTRACT, "delete", {key: "compact"}),
        (ConfigOperation.SUBTRACT, "compact", {key: ""}),
        (ConfigOperation.SET, "delete", {key: "delete"}),
        (ConfigOperation.DELETE, None, {}),
        (ConfigOperation.DELETE, None, {}),
    ):
        assert (
            alter(node, RESOURCE_TOPIC, "t", SettingChange(key, operation, value))[0]
            is ErrorCode.NONE
        )
        assert node.metadata.topic_overrides("t") == expected


class _CountedText(str):
    """A text that counts its comparisons with others."""

    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other: object) -> bool:
        _CountedText.compared += 1
        return str.__eq__(self, other)


def test_n57_a_long_list_is_subtracted_in_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    node = FakeNode()
    node.create("t")
    key, many = "leader.replication.throttled.replicas", 1_000
    present = ",".join(f"{number}:1" for number in range(many))
    assert (
        alter(node, RESOURCE_TOPIC, "t", SettingChange(key, ConfigOperation.SET, present))[0]
        is ErrorCode.NONE
    )
    monkeypatch.setattr(
        config_changes, "_parts", lambda text: list(map(_CountedText, text.split(",")))
    )
    others = ",".join(f"{number}:2" for number in range(many))
    assert (
        alter(node, RESOURCE_TOPIC, "t", SettingChange(key, ConfigOperation.SUBTRACT, others))[0]
        is ErrorCode.NONE
    )
    assert node.metadata.topic_overrides("t") == {key: present}
    assert _CountedText.compared < 10 * many


def test_a_stored_list_with_empty_parts_prevents_no_other_change() -> None:
    node = FakeNode()
    kept = ConfigRecord(resource_type=4, name="log.cleanup.policy", value="compact,")
    node.metadata_log.commit([kept])
    change = SettingChange("log.retention.ms", ConfigOperation.SET, "5")
    assert alter(node, RESOURCE_BROKER, "", change)[0] is ErrorCode.NONE
    assert node.metadata.config.log_cleanup_policy == ("compact",)
    assert node.metadata.config.log_retention_ms == 5


def test_a_change_to_the_same_value_makes_no_record() -> None:
    node = FakeNode()
    node.create("t", retention_ms="5")
    before = len(node.recorded)
    alter(node, RESOURCE_TOPIC, "t", SettingChange("retention.ms", ConfigOperation.SET, "5"))
    assert len(node.recorded) == before


@pytest.mark.parametrize(
    ("resource_type", "name", "key", "operation", "value", "error"),
    [
        (2, "nobody", "retention.ms", 0, "1", "UNKNOWN_TOPIC_OR_PARTITION"),
        (2, "t", "retention.ms", 0, "x", "INVALID_CONFIG"),
        (2, "t", "no.such", 0, "x", "INVALID_CONFIG"),
        (2, "", "retention.ms", 0, "1", "INVALID_REQUEST"),
        (2, "a b", "retention.ms", 0, "1", "INVALID_TOPIC_EXCEPTION"),
        (2, "t", "retention.ms", 2, "1", "INVALID_CONFIG"),
        (2, "t", "retention.ms", 0, None, "INVALID_REQUEST"),
        (2, "t", "retention.ms", 9, "1", "INVALID_REQUEST"),
        (2, "t", "cleanup.policy", 2, "", "INVALID_CONFIG"),
        (2, "t", "cleanup.policy", 2, "burn", "INVALID_CONFIG"),
        (4, "9", "log.retention.ms", 0, "1", "INVALID_REQUEST"),
        (4, "1", "num.partitions", 0, "1", "INVALID_REQUEST"),
        (4, "1", "no.such", 0, "1", "INVALID_CONFIG"),
        (4, "1", "no.such", 2, "1", "INVALID_CONFIG"),
        (4, "1", "num.partitions", 2, "1", "INVALID_CONFIG"),
        (4, "1", "metric.reporters", 2, "a", "INVALID_REQUEST"),
        (4, "1", "log.cleanup.policy", 0, "delete,", "INVALID_REQUEST"),
        (4, "1", "log.retention.ms", 0, "x", "INVALID_REQUEST"),
        (4, "1", "log.retention.hours", 0, "1", "INVALID_REQUEST"),
        (4, "1", "num.io.threads", 0, "0", "INVALID_REQUEST"),
        (4, "1", "ssl.keystore.location", 0, "x", "INVALID_REQUEST"),
        (4, "x", "log.retention.ms", 0, "1", "INVALID_REQUEST"),
        (32, "", "consumer.session.timeout.ms", 0, "50000", "INVALID_REQUEST"),
        (32, "g", "consumer.session.timeout.ms", 0, "44999", "INVALID_CONFIG"),
        (32, "g", "consumer.session.timeout.ms", 0, "60001", "INVALID_CONFIG"),
        (32, "g", "consumer.heartbeat.interval.ms", 0, "x", "INVALID_CONFIG"),
        (32, "g", "consumer.session.timeout.ms", 2, "50000", "INVALID_CONFIG"),
        (32, "g", "share.isolation.level", 0, "none", "INVALID_CONFIG"),
        (32, "g", "share.session.timeout.ms", 0, "44999", "INVALID_CONFIG"),
        (32, "g", "share.heartbeat.interval.ms", 0, "15001", "INVALID_CONFIG"),
        (32, "g", "share.assignment.interval.ms", 0, "15001", "INVALID_CONFIG"),
        (32, "g", "no.such", 0, "1", "INVALID_CONFIG"),
        (16, "", "interval.ms", 0, "1000", "INVALID_REQUEST"),
        (16, "s", "match", 0, "client_id=[", "INVALID_CONFIG"),
        (16, "s", "match", 0, "color=red", "INVALID_CONFIG"),
        (16, "s", "metrics", 2, "a", "INVALID_CONFIG"),
        (16, "s", "no.such", 0, "1", "INVALID_REQUEST"),
        (8, "1", "root", 0, "INFO", "INVALID_REQUEST"),
    ],
    ids=str,
)
def test_a_refused_change_of_a_resource_stops_its_other_changes(
    resource_type: int, name: str, key: str, operation: int, value: str | None, error: str
) -> None:
    node = FakeNode()
    node.create("t")
    sound = {
        2: ("max.message.bytes", "100"),
        16: ("interval.ms", "500"),
        4: ("message.max.bytes", "100"),
    }
    known = sound.get(resource_type, ("consumer.assignment.interval.ms", "5"))
    good = SettingChange(known[0], ConfigOperation.SET, known[1])
    change = SettingChange(key, operation, value)
    before = len(node.recorded)
    found, message = alter(node, resource_type, name, good, change)
    assert found is ErrorCode[error] and message
    assert len(node.recorded) == before, "all changes of a resource are made or none"


def test_duplicate_resources_and_keys_are_refused() -> None:
    node = FakeNode()
    node.create("t")
    change = SettingChange("retention.ms", ConfigOperation.SET, "1")
    twice = ResourceChanges(RESOURCE_TOPIC, "t", [change])
    records, results = alter_configs(node.metadata, [twice, twice])
    assert [result.error for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert records == []
    assert alter(node, RESOURCE_TOPIC, "t", change, change)[0] is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("resource_type", "name", "key"),
    [
        (2, "t", "no.such"),
        (2, "t", "retention.ms"),
        (4, "1", "no.such"),
        (4, "1", "num.partitions"),
        (32, "g", "no.such"),
        (16, "s", "interval.ms"),
    ],
)
def test_a_setting_that_is_not_set_may_be_deleted_known_or_unknown(
    resource_type: int, name: str, key: str
) -> None:
    node = FakeNode()
    node.create("t")
    before = len(node.recorded)
    assert alter(node, resource_type, name, SettingChange(key, ConfigOperation.DELETE, None)) == (
        ErrorCode.NONE,
        None,
    )
    assert len(node.recorded) == before


def test_settings_of_groups_and_client_metrics_are_kept_and_replayed() -> None:
    node = FakeNode()
    session = SettingChange("consumer.session.timeout.ms", ConfigOperation.SET, " 50000 ")
    assert alter(node, RESOURCE_GROUP, "g", session)[0] is ErrorCode.NONE
    match = SettingChange("match", ConfigOperation.SET, "client_id=a.*,client_source_port=90..")
    assert alter(node, RESOURCE_CLIENT_METRICS, "s", match)[0] is ErrorCode.NONE
    metadata = node.metadata
    assert metadata.overrides(RESOURCE_GROUP, "g") == {"consumer.session.timeout.ms": "50000"}
    assert metadata.overrides(RESOURCE_CLIENT_METRICS, "s") == {"match": match.value}
    assert metadata.group_setting_ms("g", "consumer.session.timeout.ms") == 50_000
    assert metadata.group_setting_ms("h", "consumer.session.timeout.ms") is None
    again = FakeNode(group_consumer_max_session_timeout_ms="48000")
    for value in node.recorded:
        again.metadata.replay(decode_record(value))
    found = again.metadata.group_setting_ms("g", "consumer.session.timeout.ms")
    assert found == 48_000, "within the broker's bounds, which have moved since"


def test_settings_that_fit_together_may_change_together_in_either_direction() -> None:
    """The record of each setting is replayed separately. After the first record, the new value of
    one setting contradicts the old value of the other."""
    least, most = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    node = FakeNode()
    for low, high in (("5", "10"), ("50", "100"), ("1", "2")):
        changes = [
            SettingChange(least, ConfigOperation.SET, low),
            SettingChange(most, ConfigOperation.SET, high),
        ]
        assert alter(node, RESOURCE_BROKER, "", *changes)[0] is ErrorCode.NONE
        config = node.metadata.config
        found = config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms
        assert found == (int(low), int(high))
        assert node.metadata.config_problem == ""
    again = FakeNode()
    for value in node.recorded:
        again.metadata.replay(decode_record(value))
    assert again.metadata.config == node.metadata.config


def test_dynamic_settings_that_no_longer_fit_do_not_stop_a_start() -> None:
    least, most = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    node = FakeNode()
    assert (
        alter(node, RESOURCE_BROKER, "", SettingChange(least, ConfigOperation.SET, "5000"))[0] == 0
    )
    again = FakeNode(**{most.replace(".", "_"): "100"})
    for value in node.recorded:
        again.metadata.replay(decode_record(value))
    assert least in again.metadata.config_problem
    assert again.metadata.config.log_cleaner_min_compaction_lag_ms == 0


def test_the_number_of_groups_with_settings_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_resources, "_NAMES_MAX", 2)
    node = FakeNode()
    change = SettingChange("consumer.session.timeout.ms", ConfigOperation.SET, "50000")
    assert [alter(node, RESOURCE_GROUP, name, change)[0] for name in "abca"] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NONE,
    ]
    metrics = SettingChange("interval.ms", ConfigOperation.SET, "1000")
    assert alter(node, RESOURCE_CLIENT_METRICS, "s", metrics)[0] is ErrorCode.NONE


def test_all_groups_of_a_request_count_towards_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_resources, "_NAMES_MAX", 2)
    node = FakeNode()
    change = SettingChange("consumer.session.timeout.ms", ConfigOperation.SET, "50000")
    wanted = [ResourceChanges(RESOURCE_GROUP, name, [change]) for name in "abc"]
    _, results = alter_configs(node.metadata, wanted)
    assert [result.error for result in results] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]


@pytest.mark.parametrize(
    ("value", "error"), [("99", ErrorCode.INVALID_REQUEST), ("x", ErrorCode.INVALID_CONFIG)]
)
def test_the_interval_of_client_metrics_has_bounds(value: str, error: ErrorCode) -> None:
    change = SettingChange("interval.ms", ConfigOperation.SET, value)
    assert alter(FakeNode(), RESOURCE_CLIENT_METRICS, "s", change)[0] is error


def test_a_group_heartbeat_interval_must_fit_its_session_timeout() -> None:
    node = FakeNode(
        group_consumer_max_heartbeat_interval_ms="50000",
        group_consumer_max_session_timeout_ms="60000",
    )
    heartbeat = SettingChange("consumer.heartbeat.interval.ms", ConfigOperation.SET, "46000")
    assert alter(node, RESOURCE_GROUP, "g", heartbeat)[0] is ErrorCode.INVALID_CONFIG
    session = SettingChange("consumer.session.timeout.ms", ConfigOperation.SET, "50000")
    assert alter(node, RESOURCE_GROUP, "g", heartbeat, session)[0] is ErrorCode.NONE


def test_n45_min_insync_replicas_is_a_setting_of_all_brokers_from_the_start_on() -> None:
    for node, text in ((FakeNode(), "1"), (FakeNode(min_insync_replicas="3"), "3")):
        node.create("a")
        (entry,) = node.metadata.topic_configs.describe({}, ["min.insync.replicas"])
        assert (entry.value, entry.source) == (text, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        (of_all,) = config_resources.resource_kind(RESOURCE_BROKER).describe(
            node.metadata, "", None
        )
        assert (of_all.name, of_all.value) == ("min.insync.replicas", text)
        assert not node.recorded or replayed(node).config == node.metadata.config


@pytest.mark.parametrize(
    ("broker", "operation", "value", "error"),
    [
        ("", ConfigOperation.SET, "2", ErrorCode.NONE),
        ("", ConfigOperation.SET, "0", ErrorCode.INVALID_REQUEST),
        ("", ConfigOperation.DELETE, None, ErrorCode.INVALID_CONFIG),
        ("1", ConfigOperation.SET, "1", ErrorCode.INVALID_CONFIG),
        ("1", ConfigOperation.SET, "0", ErrorCode.INVALID_REQUEST),
        ("1", ConfigOperation.DELETE, None, ErrorCode.INVALID_CONFIG),
    ],
)
def test_n45_min_insync_replicas_is_changed_for_all_brokers_and_never_removed(
    broker: str, operation: ConfigOperation, value: str | None, error: ErrorCode
) -> None:
    node = FakeNode()
    change = SettingChange("min.insync.replicas", operation, value)
    assert alter(node, RESOURCE_BROKER, broker, change)[0] is error
    (entry,) = node.metadata.topic_configs.describe({}, ["min.insync.replicas"])
    assert entry.value == ("2" if error is ErrorCode.NONE else "1")
    assert entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
    if error is ErrorCode.NONE:
        assert replayed(node).config == node.metadata.config


def test_an_unknown_setting_of_a_broker_is_refused_with_the_one_that_was_meant() -> None:
    node = FakeNode()
    change = SettingChange("log.retention.mz", ConfigOperation.SET, "5")
    error, text = alter(node, RESOURCE_BROKER, "", change)
    assert error is ErrorCode.INVALID_CONFIG
    assert "did you mean log.retention.ms?" in str(text)


def test_a_topic_setting_overrides_the_brokers_dynamic_setting() -> None:
    node = FakeNode(log_retention_ms="1")
    node.create("a")
    node.create("b", retention_ms="7")
    assert node.metadata.log_config("a").retention_ms == 1
    alter(node, RESOURCE_BROKER, "", SettingChange("log.retention.ms", ConfigOperation.SET, "2"))
    assert node.metadata.log_config("a").retention_ms == 2
    alter(node, RESOURCE_BROKER, "1", SettingChange("log.retention.ms", ConfigOperation.SET, "3"))
    assert node.metadata.log_config("a").retention_ms == 3
    assert node.metadata.log_config("b").retention_ms == 7
    (entry,) = node.metadata.topic_configs.describe({}, ["retention.ms"])
    assert [place.source for place in entry.synonyms] == [
        ConfigSource.DYNAMIC_BROKER,
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
        ConfigSource.STATIC_BROKER,
        ConfigSource.DEFAULT,
    ]
    alter(
        node, RESOURCE_BROKER, "1", SettingChange("log.retention.ms", ConfigOperation.DELETE, None)
    )
    assert node.metadata.log_config("a").retention_ms == 2


@pytest.mark.parametrize(
    ("name", "error"),
    [("1", ErrorCode.NONE), ("", ErrorCode.INVALID_REQUEST)],
    ids=["one broker", "all"],
)
def test_a80_a_kerberos_setting_is_accepted_for_a_single_broker_only(
    name: str, error: ErrorCode
) -> None:
    node = FakeNode()
    key = "sasl.kerberos.min.time.before.relogin"
    changes = [SettingChange(key, 0, "61000")]
    records, (result,) = alter_configs(
        node.metadata, [ResourceChanges(RESOURCE_BROKER, name, changes)]
    )
    assert result.error is error
    assert len(records) == (error is ErrorCode.NONE)
    (bad,) = alter_configs(
        node.metadata, [ResourceChanges(RESOURCE_BROKER, "1", [SettingChange(key, 0, "soon")])]
    )[1]
    assert bad.error is ErrorCode.INVALID_REQUEST


def test_n57_an_internal_topic_is_made_in_slices_and_all_wait_for_its_partitions() -> None:
    world = NodeWorld()
    first, second = (world.node.ensure_internal_topic(OFFSETS_TOPIC) for _ in range(2))
    world.flush()
    made = len(world.node.replicas._partitions[OFFSETS_TOPIC])
    assert made < 50 and not first.done and not second.done
    while not first.done:
        assert not second.done
        world.soon.turn()
    assert second.done
    assert len(world.node.replicas._partitions[OFFSETS_TOPIC]) == 50
    assert world.node.ensure_internal_topic(OFFSETS_TOPIC).done
