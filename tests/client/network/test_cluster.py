"""The view of the cluster: leaders are looked up, and old answers do not overwrite new ones."""

from __future__ import annotations

from typing import Any

from odradek_client.network.cluster import BrokerAddress, ClusterView
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID = b"1" * 16


def answer(*topics: MetadataResponseTopic, nodes: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host="h", port=9000 + n) for n in nodes],
        cluster_id="c",
        controller_id=1,
        topics=list(topics),
    )


def topic(name: str, *leaders: tuple[int, int], topic_id: bytes = ID, **extra: Any) -> Any:
    return MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        partitions=[
            MetadataResponsePartition(partition_index=i, leader_id=leader, leader_epoch=epoch)
            for i, (leader, epoch) in enumerate(leaders)
        ],
        **extra,
    )


def view(*topics: MetadataResponseTopic) -> ClusterView:
    cluster = ClusterView(1000)
    cluster.update(answer(*topics), 0.0)
    return cluster


def test_a_cluster_view_gives_partitions_leaders_epochs_and_brokers() -> None:
    cluster = view(topic("t", (1, 4), (-1, 5)))
    assert cluster.partitions_of("t") == [0, 1]
    assert cluster.partitions_of("u") is None
    assert cluster.leader_of("t", 0) == 1
    assert cluster.leader_of("t", 1) is None and cluster.leader_of("t", 9) is None
    assert cluster.leader_epoch_of("t", 0) == 4 and cluster.leader_epoch_of("u", 0) == -1
    assert cluster.topic_id("t") == ID and cluster.topic_names == {ID: "t"}
    assert (cluster.controller_id, cluster.cluster_id) == (1, "c")
    assert cluster.brokers[2] == BrokerAddress(2, "h", 9002)


def test_an_older_leader_epoch_does_not_undo_a_newer_one() -> None:
    cluster = view(topic("t", (2, 7)))
    cluster.update(answer(topic("t", (1, 6))), 1.0)
    assert (cluster.leader_of("t", 0), cluster.leader_epoch_of("t", 0)) == (2, 7)
    cluster.update(answer(topic("t", (1, 8))), 2.0)
    assert cluster.leader_of("t", 0) == 1


def test_a_recreated_topic_starts_again_at_leader_epoch_0() -> None:
    cluster = view(topic("t", (2, 7)))
    cluster.update(answer(topic("t", (1, 0), topic_id=b"2" * 16)), 1.0)
    assert (cluster.leader_of("t", 0), cluster.leader_epoch_of("t", 0)) == (1, 0)


def test_the_view_version_grows_with_changes_only() -> None:
    cluster = view(topic("t", (1, 1)))
    before = cluster.version
    assert not cluster.update(answer(topic("t", (1, 1))), 5.0)
    assert cluster.version == before
    assert cluster.update(answer(topic("t", (1, 1)), nodes=(1,)), 6.0)
    assert cluster.version == before + 1


def test_a_leader_named_by_another_answer_needs_a_newer_epoch_and_an_address() -> None:
    cluster = view(topic("t", (1, 3)))
    assert not cluster.update_leader("t", 0, 2, 3), "no newer epoch"
    assert not cluster.update_leader("t", 0, 7, 4), "no address"
    assert not cluster.update_leader("t", 5, 2, 4), "no such partition"
    assert cluster.update_leader("t", 0, 7, 4, BrokerAddress(7, "h", 1))
    assert cluster.leader_of("t", 0) == 7


def test_topic_errors_are_kept_and_only_retriable_ones_need_an_update() -> None:
    cluster = ClusterView(1000)
    cluster.want(["a", "b"])
    refused = MetadataResponseTopic(name="a", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    missing = MetadataResponseTopic(name="b", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.update(answer(refused, missing), 0.0)
    assert cluster.topic_errors["a"] is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert cluster.needs_update, "b may come"
    cluster.unwant(["b"])
    cluster.update(answer(refused), 1.0)
    assert not cluster.needs_update, "a will not"


def test_metadata_is_stale_by_age_or_by_a_newly_wanted_topic() -> None:
    cluster = view()
    assert not cluster.is_stale(999.0) and cluster.is_stale(1000.0)
    assert cluster.stale_at_ms(10.0) == 1000.0
    assert cluster.want(["t"]) and cluster.is_stale(1.0)
    assert cluster.stale_at_ms(10.0) == 10.0


def test_wanted_topics_expire_unless_wanted_permanently() -> None:
    cluster = ClusterView(1000)
    cluster.want(["a"], until_ms=5.0)
    cluster.want(["a", "b"], until_ms=9.0)
    cluster.want(["c"], until_ms=5.0)
    cluster.want(["c"])
    cluster.forget_expired(5.0)
    assert set(cluster.wanted_topics) == {"a", "b", "c"}
    cluster.forget_expired(9.0)
    assert set(cluster.wanted_topics) == {"c"}
    cluster.set_wanted(["d"])
    assert set(cluster.wanted_topics) == {"d"}


def test_metadata_requests_name_the_wanted_topics() -> None:
    cluster = ClusterView(1000)
    cluster.want(["a"])
    request = cluster.request(12, allow_auto_create=False)
    assert [t.name for t in request.topics or []] == ["a"]
    assert not request.allow_auto_topic_creation
    assert cluster.request(3, allow_auto_create=False).allow_auto_topic_creation
    cluster.set_all_topics(True)
    assert cluster.request(12, allow_auto_create=False).topics is None
    assert cluster.request(0, allow_auto_create=False).topics == []
