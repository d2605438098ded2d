"""Scenarios about the versions and features of a release: each is played once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.oracle.script import (
    Ask,
    Batch,
    Scenario,
    Step,
    fetch_body,
    produce_body,
    producer,
    topic,
)

_SOFTWARE = {"client_software_name": "oracle", "client_software_version": "1.0"}
_GROUP = {"group_id": "@g", "member_id": "", "member_epoch": 0}
_MEMBER = {**_GROUP, "member_id": "@m"}
_UPGRADE, _SAFE_DOWNGRADE = 1, 2


def _versions(version: int) -> Ask:
    return Ask("ApiVersions", _SOFTWARE, version=version, ignore=("finalized_features_epoch",))


def _newer(frame: bytes) -> bytes:
    """Change the version in a frame's header to 99, which no broker knows."""
    return frame[:6] + b"\0\x63" + frame[8:]


def _update(*updates: tuple[str, int, int]) -> Ask:
    wanted = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind}
        for name, level, kind in updates
    ]
    body = {"timeout_ms": 10_000, "feature_updates": wanted, "validate_only": True}
    return Ask(
        "UpdateFeatures", body, version=1, ignore=("error_message", "results.*.error_message")
    )


def _batch(sequence: int) -> Batch:
    return Batch(
        producer_id="$pid",
        producer_epoch="$pid_epoch",
        base_sequence=sequence,
        transactional=True,
    )


def _of_transaction(version: int, **more: Any) -> dict[str, Any]:
    return {
        "transactional_id": "@id",
        "producer_id": "$pid",
        "producer_epoch": "$pid_epoch",
        **more,
    }


def _alone(name: str, *steps: Ask, first: Sequence[Step] = ()) -> Scenario:
    """A separate scenario for requests after which the broker may close the connection."""
    return Scenario(name, "ApiVersions", [*first, *steps], versions="3")


#: Requests that releases before 4.3 do not know, at least in this version.
_NEW: Mapping[str, tuple[int, dict[str, Any]]] = {
    "Produce": (13, {"acks": -1, "timeout_ms": 1000, "topic_data": []}),
    "Fetch": (18, fetch_body(topic_id=b"\1" * 16)),
    "ListOffsets": (11, {"replica_id": -1, "topics": []}),
    "OffsetCommit": (10, {"group_id": "@g", "topics": []}),
    "OffsetFetch": (10, {"groups": []}),
    "ListTransactions": (2, {}),
    "ListConfigResources": (1, {}),
    "ShareGroupHeartbeat": (1, _MEMBER),
    "ShareGroupDescribe": (1, {"group_ids": ["@g"]}),
    "ShareFetch": (1, {"group_id": "@g", "member_id": "@m", "share_session_epoch": 0}),
    "ShareAcknowledge": (1, {"group_id": "@g", "member_id": "@m", "share_session_epoch": 1}),
    "StreamsGroupHeartbeat": (0, _MEMBER),
    "StreamsGroupDescribe": (0, {"group_ids": ["@g"]}),
    "DescribeShareGroupOffsets": (0, {"groups": []}),
    "DescribeHistory": (0, {}),
    "DescribeBroker": (0, {}),
}

SCENARIOS: Sequence[Scenario] = (
    _alone("versions", *(_versions(version) for version in (0, 1, 2, 3, 4))),
    _alone("a-newer-version", Ask("ApiVersions", _SOFTWARE, edit_frame=_newer)),
    *(
        _alone(f"new-{name}", Ask(name, body, version=version))
        for name, (version, body) in _NEW.items()
    ),
    _alone(
        "consumer-group",
        Ask(
            "ConsumerGroupHeartbeat",
            {
                **_MEMBER,
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": ["@t"],
                "topic_partitions": [],
            },
            version=0,
            # The first epoch is 1 in 4.0, but 2 in 4.3 and in our broker.
            ignore=("error_message", "heartbeat_interval_ms", "assignment", "member_epoch"),
        ),
        Ask(
            "ConsumerGroupDescribe",
            {"group_ids": ["@none"]},
            version=0,
            ignore=("groups.*.error_message",),
        ),
        first=topic(),
    ),
    _alone(
        "telemetry",
        Ask(
            "GetTelemetrySubscriptions",
            {"client_instance_id": b"\0" * 16},
            version=0,
            ignore=("client_instance_id", "subscription_id"),
        ),
    ),
    _alone(
        "transaction",
        Ask("Produce", produce_body(_batch(0), transactional_id="@id"), version=11),
        Ask(
            "AddPartitionsToTxn",
            {
                "v3_and_below_transactional_id": "@id",
                "v3_and_below_producer_id": "$pid",
                "v3_and_below_producer_epoch": "$pid_epoch",
                "v3_and_below_topics": [{"name": "@t", "partitions": [0]}],
            },
            version=3,
        ),
        Ask("Produce", produce_body(_batch(0), transactional_id="@id"), version=11),
        Ask("EndTxn", _of_transaction(4, committed=True), version=4),
        first=[*topic(), *producer()],
    ),
    _alone(
        "transaction-of-version-2",
        Ask("Produce", produce_body(_batch(0), transactional_id="@id"), version=12),
        Ask("EndTxn", _of_transaction(5, committed=True), version=5, on="b"),
        first=[*topic(), *producer()],
    ),
    _alone(
        "features",
        _update(("group.version", 1, _UPGRADE)),
        _update(("transaction.version", 2, _UPGRADE)),
        _update(("share.version", 1, _UPGRADE)),
        _update(("streams.version", 1, _UPGRADE)),
        _update(("metadata.version", 30, _UPGRADE)),
        _update(("no.such", 1, _UPGRADE)),
    ),
    _alone(
        "describe-cluster",
        Ask("DescribeCluster", {}, version=1, ignore=("brokers", "controller_id", "cluster_id")),
    ),
    _alone(
        "fetch-by-name",
        Ask("Produce", produce_body(Batch()), version=11),
        Ask("Fetch", fetch_body(), version=12),
        first=topic(),
    ),
)
