"""UpdateFeatures: the possible levels, and their effects."""

from __future__ import annotations

import pytest

from acl_rules import RuleList
from fake_node import FakeNode
from handler_calls import ask, received, send
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import MetadataError
from odradek_broker.metadata.image import MetadataImage
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek_protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek_protocol.schemas.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek_protocol.stored.cluster_metadata import FeatureLevelRecord, decode_record

UPGRADE, SAFE, UNSAFE = 1, 2, 3
E = ErrorCode
Update = tuple[str, int, int]


def _request(*updates: Update, validate_only: bool = False) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )


def _update(
    node: FakeNode, *updates: Update, version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    answer = ask(node, _request(*updates, validate_only=validate_only), version)
    assert isinstance(answer, UpdateFeaturesResponse)
    return answer


def _told(node: FakeNode) -> dict[str, int]:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = ask(node, request, 4)
    assert all(
        each.max_version_level == each.min_version_level for each in answer.finalized_features
    )
    return {each.name: each.max_version_level for each in answer.finalized_features}


ALL = {
    "group.version": 1,
    "metadata.version": 30,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_n53_a_feature_level_is_lowered_and_raised_again(kind: int) -> None:
    node = FakeNode()
    assert _update(node, ("transaction.version", 1, kind)).error_code == E.NONE
    assert _told(node) == ALL | {"transaction.version": 1}
    assert _update(node, ("transaction.version", 0, kind)).error_code == E.NONE
    assert _told(node).keys() == ALL.keys() - {"transaction.version"}, "0 is off"
    assert _update(node, ("transaction.version", 2, UPGRADE)).error_code == E.NONE
    assert _told(node) == ALL
    assert len(node.recorded) == 3


@pytest.mark.parametrize(
    "update",
    [
        ("no.such", 1, UPGRADE),
        ("no.such", 0, SAFE),
        ("", 0, UPGRADE),
        ("share.version", 2, UPGRADE),
        ("streams.version", 2, UPGRADE),
        ("kraft.version", 1, UPGRADE),
        ("transaction.version", 3, UPGRADE),
        ("transaction.version", -1, UNSAFE),
        ("transaction.version", 1, UPGRADE),
        ("transaction.version", 2, 0),
        ("transaction.version", 2, 4),
        ("transaction.version", 2, -1),
        ("metadata.version", 6, UNSAFE),
        ("metadata.version", 31, UPGRADE),
        ("metadata.version", 29, SAFE),
        ("metadata.version", 29, UNSAFE),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_n53_an_invalid_level_keeps_all_feature_levels(update: Update, version: int) -> None:
    node = FakeNode()
    answer = _update(node, ("group.version", 0, SAFE), update, version=version)
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert repr(update[0]) in str(answer.error_message)
    assert answer.results == [] and node.recorded == [] and _told(node) == ALL


#: The features of release 4.3, as `kafka-features upgrade --release-version 4.3` sends them.
RELEASE: list[Update] = [
    *[(name, level, UPGRADE) for name, level in ALL.items()],
    ("kraft.version", 1, UPGRADE),
    ("eligible.leader.replicas.version", 1, UPGRADE),
]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_n53_the_features_of_release_4_3_are_accepted(version: int) -> None:
    node = FakeNode()
    _update(node, ("transaction.version", 1, SAFE), ("group.version", 0, SAFE))
    answer = _update(node, *RELEASE, version=version)
    assert answer.error_code == E.NONE
    named = [(each.feature, each.error_code) for each in answer.results]
    assert named == ([(name, E.NONE) for name, _, _ in RELEASE] if version < 2 else [])
    assert _told(node) == ALL
    assert len(node.recorded) == 4, "two levels down, two up, and nothing of the others"


def test_j01_streams_groups_are_switched_off_and_on() -> None:
    node = FakeNode()
    assert not node.metadata.streams_groups_off
    assert _update(node, ("streams.version", 0, SAFE)).error_code == E.NONE
    assert _told(node).keys() == ALL.keys() - {"streams.version"}
    assert node.metadata.streams_groups_off
    assert _update(node, ("streams.version", 1, UPGRADE)).error_code == E.NONE
    assert not node.metadata.streams_groups_off


def test_n53_h31_share_groups_are_switched_off_and_on() -> None:
    node = FakeNode()
    assert not node.metadata.share_groups_off
    assert _update(node, ("share.version", 0, SAFE)).error_code == E.NONE
    assert _told(node).keys() == ALL.keys() - {"share.version"}
    assert node.metadata.share_groups_off
    assert _update(node, ("share.version", 1, UPGRADE)).error_code == E.NONE
    assert not node.metadata.share_groups_off


@pytest.mark.parametrize("name", [name for name, _, _ in RELEASE if name not in ALL])
@pytest.mark.parametrize(("level", "kind"), [(2, UPGRADE), (0, UPGRADE), (1, SAFE), (0, SAFE)])
def test_n53_an_unsupported_feature_is_refused_with_another_level(
    name: str, level: int, kind: int
) -> None:
    node = FakeNode()
    answer = _update(node, *RELEASE, (name, level, kind))
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert repr(name) in str(answer.error_message)


@pytest.mark.parametrize("update", [each for each in RELEASE if each[0] not in ALL])
def test_n53_an_unsupported_feature_is_refused_on_its_own(update: Update) -> None:
    node = FakeNode()
    answer = _update(node, update)
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "no such feature" not in str(answer.error_message), "the reason is another one"
    assert node.recorded == []


@pytest.mark.parametrize("level", [29, 31])
def test_n53_the_metadata_version_of_another_release_is_refused(level: int) -> None:
    node = FakeNode()
    answer = _update(node, *RELEASE, ("metadata.version", level, UPGRADE))
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "'metadata.version'" in str(answer.error_message)


def test_n53_a_downgrade_to_a_higher_level_is_refused() -> None:
    node = FakeNode()
    _update(node, ("group.version", 0, SAFE))
    for kind in (SAFE, UNSAFE):
        assert _update(node, ("group.version", 1, kind)).error_code == E.INVALID_UPDATE_VERSION
    assert "group.version" not in _told(node)


def test_n53_the_last_update_of_a_repeated_feature_counts() -> None:
    node = FakeNode()
    down, up = ("transaction.version", 0, SAFE), ("transaction.version", 2, UPGRADE)
    assert _update(node, down, up).error_code == E.NONE and node.recorded == []
    assert _update(node, ("transaction.version", 9, UPGRADE), down).error_code == E.NONE
    assert len(node.recorded) == 1
    answer = _update(node, *[up] * 5_000, version=1)
    assert len(answer.results) == 5_000 and len(node.recorded) == 2


def test_n53_unchanged_levels_and_validate_only_record_nothing() -> None:
    node = FakeNode()
    same = [(name, level, SAFE) for name, level in ALL.items()]
    assert _update(node, *same).error_code == E.NONE
    assert _update(node).error_code == E.NONE
    lower = ("group.version", 0, SAFE)
    assert _update(node, lower, validate_only=True).error_code == E.NONE
    assert node.recorded == [] and _told(node) == ALL


def test_n53_version_0_cannot_lower_a_feature_level() -> None:
    node = FakeNode()
    request = _request(("group.version", 0, UPGRADE))
    request.feature_updates[0].allow_downgrade = True
    assert ask(node, request, 0).error_code == E.INVALID_UPDATE_VERSION
    answer = _update(node, ("group.version", 1, UPGRADE), version=0)
    assert [(each.feature, each.error_code) for each in answer.results] == [("group.version", 0)]


def test_n53_an_update_is_answered_when_it_is_durable() -> None:
    node = FakeNode()
    node.durable = False
    request = _request(("group.version", 0, SAFE))
    answer = send(node, request, 2)
    assert not answer.done
    node.flush()
    assert received(request, 2, answer).error_code == E.NONE


def test_n53_consumer_groups_are_refused_without_group_version() -> None:
    node = FakeNode()
    _update(node, ("group.version", 0, SAFE))
    heartbeat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m")
    assert ask(node, heartbeat, 1).error_code == E.UNSUPPORTED_VERSION
    described = ask(node, ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
    assert [each.error_code for each in described.groups] == [E.UNSUPPORTED_VERSION]


def test_a78_update_features_needs_alter_on_the_cluster() -> None:
    node = FakeNode()
    node.authorizer = RuleList()
    answer = _update(node, ("group.version", 0, SAFE))
    assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED and answer.error_message
    assert node.recorded == []


def test_n53_feature_levels_survive_a_restart_and_a_snapshot() -> None:
    node = FakeNode()
    _update(node, ("group.version", 0, SAFE), ("transaction.version", 1, SAFE))
    _update(node, ("group.version", 1, UPGRADE))
    image = MetadataImage()
    for value in node.recorded:
        image.replay(decode_record(value), value)
    kept = list(image.values())
    assert len(kept) == 2, "one record for each feature"
    for values in (node.recorded, kept):
        again = FakeNode().metadata
        for value in values:
            again.replay(decode_record(value))
        assert again.feature_levels == ALL | {"transaction.version": 1}


@pytest.mark.parametrize(("name", "level"), [("no.such", 1), ("group.version", 2)])
def test_n53_feature_levels_of_a_newer_broker_are_refused(name: str, level: int) -> None:
    metadata: ClusterMetadata = FakeNode().metadata
    with pytest.raises(MetadataError, match=name):
        metadata.replay(FeatureLevelRecord(name=name, feature_level=level))
