"""A broker's description of itself: DescribeCluster, FindCoordinator, ApiVersions, settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracle.script import Ask, Receive, Send, Wait, scenarios_of, topic


def _cluster(**body: Any) -> Ask:
    return Ask("DescribeCluster", body)


_CLUSTER = scenarios_of(
    {
        ("describe-cluster", "DescribeCluster"): [
            _cluster(),
            _cluster(include_cluster_authorized_operations=True),
            _cluster(include_fenced_brokers=True),
        ],
        ("describe-cluster-endpoints", "DescribeCluster", "1-2"): [
            _cluster(endpoint_type=kind) for kind in (0, 2, 3, -1)
        ],
    }
)


def _find(*keys: str, key_type: int = 0) -> Ask:
    body = {"key": keys[0] if keys else "", "key_type": key_type, "coordinator_keys": list(keys)}
    return Ask("FindCoordinator", body)


def _found(key: str, key_type: int) -> Ask:
    """Wait until the internal topics exist."""
    body = {"key": key, "key_type": key_type}
    return Ask("FindCoordinator", body, version=3, quiet=True)


_A_SHARE = {"coordinator_keys": ["@g:AAAAAAAAAAAAAAAAAAAACQ:0"], "key_type": 2}
_COORDINATOR = scenarios_of(
    {
        ("find-coordinator", "FindCoordinator"): [
            _found("@g", 0),
            _found("@id", 1),
            _find("@g"),
            _find("@id", key_type=1),
            _find(""),
        ],
        ("find-coordinator-types", "FindCoordinator", "1-6"): [
            _found("@g", 0),
            _found("@id", 1),
            _find("", key_type=1),
            _find("@g", key_type=-1),
            _find("@g", key_type=3),
            _find("@g", key_type=127),
        ],
        ("find-coordinator-of-shares", "FindCoordinator", "1-5"): [
            _find("@g", key_type=2),
            _find("@g:x:0", key_type=2),
            _find("", key_type=2),
            _find("@g:AAAAAAAAAAAAAAAAAAAACQ", key_type=2),
        ],
        ("find-coordinator-of-a-share", "FindCoordinator", "6"): [
            Ask("FindCoordinator", _A_SHARE, ignore=("coordinators",)),
            # Kafka now creates the internal topic that the coordinator needs.
            Wait(1_500),
            Ask("FindCoordinator", _A_SHARE),
        ],
        ("find-coordinator-several", "FindCoordinator", "4-6"): [
            _found("@g", 0),
            _find("@g", "@h", ""),
            _find("@g", "@g"),
            Ask("FindCoordinator", {"coordinator_keys": []}),
            Ask("FindCoordinator", {"coordinator_keys": [], "key_type": 9}),
        ],
        ("find-coordinator-pipelined", "FindCoordinator"): [
            _found("@g", 0),
            Send(_find("@g")),
            Send(_find("")),
            Send(_find("@h")),
            Receive(),
            Receive(),
            Receive(),
        ],
    }
)

#: The fields with the APIs and features of a broker; they differ between brokers.
_OFFERED = (
    *("api_keys", "supported_features", "finalized_features", "finalized_features_epoch"),
    "zk_migration_ready",
)


def _versions(name: str = "oracle", version: str = "1.0", on: str = "a") -> Ask:
    body = {"client_software_name": name, "client_software_version": version}
    return Ask("ApiVersions", body, on=on, ignore=_OFFERED)


def _in_version(number: int) -> Ask:
    """ApiVersions in an unknown version; the content of its body does not matter."""

    def renumbered(frame: bytes) -> bytes:
        return frame[:6] + number.to_bytes(2, "big", signed=True) + frame[8:]

    body = {"client_software_name": "oracle", "client_software_version": "1.0"}
    return Ask("ApiVersions", body, version=3, edit_frame=renumbered, ignore=("api_keys",))


_VERSIONS = scenarios_of(
    {
        ("api-versions", "ApiVersions"): [_versions(), _versions()],
        ("api-versions-software", "ApiVersions", "3-4"): [
            _versions(name, version)
            for name, version in (
                ("", "1.0"),
                ("oracle", ""),
                ("a b", "1.0"),
                ("oracle", "1 0"),
                ("-a", "1.0"),
                ("a-", "1.0"),
                (".a", "1.0"),
                ("a.b-c", "1-2.3"),
                ("a_b", "1.0"),
                ("a", "+"),
                ("é", "1.0"),
                ("x" * 1_000, "1.0"),
            )
        ],
        ("api-versions-in-a-version-that-nobody-has", "ApiVersions", "0"): [
            _in_version(5),
            _in_version(99),
            _in_version(32_767),
            _in_version(-1),
            _versions(),
        ],
        ("api-versions-without-a-client-id", "ApiVersions", "0"): [
            Ask("ApiVersions", {}, client_id=None, ignore=_OFFERED, version=0),
            Ask("ApiVersions", {}, client_id="", ignore=_OFFERED, version=2),
            Ask(
                "ApiVersions",
                {"client_software_name": "a", "client_software_version": "1"},
                client_id=None,
                ignore=_OFFERED,
                version=3,
            ),
        ],
    }
)

# --- Settings -------------------------------------------------------------------------------------

_TOPIC, _BROKER = 2, 4


def _shown(
    *resources: tuple[int, str, Sequence[str] | None], synonyms: bool = False, **more: Any
) -> Ask:
    return Ask(
        "DescribeConfigs",
        {
            "resources": [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configuration_keys": None if keys is None else list(keys),
                }
                for kind, name, keys in resources
            ],
            "include_synonyms": synonyms,
            **more,
        },
    )


def _altered(
    *resources: tuple[int, str, Sequence[tuple[str, int, str | None]]], **more: Any
) -> Ask:
    return Ask(
        "IncrementalAlterConfigs",
        {
            "resources": [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [
                        {"name": key, "config_operation": operation, "value": value}
                        for key, operation, value in configs
                    ],
                }
                for kind, name, configs in resources
            ],
            "validate_only": False,
            **more,
        },
    )


_KEYS = ("retention.ms", "cleanup.policy", "segment.ms")

_SETTINGS = scenarios_of(
    {
        ("topic-settings", "DescribeConfigs"): [
            *topic(configs={"cleanup.policy": "compact"}),
            _shown((_TOPIC, "@t", _KEYS)),
            _shown((_TOPIC, "@t", _KEYS), synonyms=True),
            _shown((_TOPIC, "@t", ["nonesuch"])),
            _shown((_TOPIC, "@none", _KEYS), (_TOPIC, "", _KEYS), (_TOPIC, "@a b", _KEYS)),
            _shown(),
        ],
        ("topic-settings-all", "DescribeConfigs", "4"): [*topic(), _shown((_TOPIC, "@t", []))],
        ("settings-of-nothing-known", "DescribeConfigs"): [
            _shown((0, "@t", _KEYS)),
            _shown((3, "@t", _KEYS)),
            _shown((127, "@t", _KEYS)),
            _shown((-1, "@t", _KEYS)),
            _shown((_BROKER, "@t", _KEYS)),
            _shown((_BROKER, "99", _KEYS)),
        ],
        ("settings-changed", "IncrementalAlterConfigs"): [
            *topic(),
            _altered((_TOPIC, "@t", [("retention.ms", 0, "1000")])),
            _altered((_TOPIC, "@t", [("cleanup.policy", 2, "compact")])),
            _altered((_TOPIC, "@t", [("cleanup.policy", 3, "delete")])),
            _altered((_TOPIC, "@t", [("max.message.bytes", 1, None)])),
            _altered((_TOPIC, "@t", [("retention.ms", 1, None)])),
        ],
        ("settings-refused", "IncrementalAlterConfigs"): [
            *topic(),
            _altered((_TOPIC, "@t", [("retention.ms", 0, "soon")])),
            _altered((_TOPIC, "@t", [("retention.ms", 0, None)])),
            _altered((_TOPIC, "@t", [("retention.ms", 2, "1")])),
            _altered((_TOPIC, "@t", [("nonesuch", 0, "1")])),
            _altered((_TOPIC, "@t", [("", 0, "1")])),
            _altered((_TOPIC, "@t", [("retention.ms", 0, "1"), ("retention.ms", 0, "2")])),
            _altered((_TOPIC, "@none", [("retention.ms", 0, "1")])),
            _altered((_TOPIC, "", [("retention.ms", 0, "1")])),
            _altered((_TOPIC, "@t", [])),
            _altered((0, "@t", [("retention.ms", 0, "1")])),
            _altered((_BROKER, "99", [("log.retention.ms", 0, "1")])),
            _altered((_BROKER, "@t", [("log.retention.ms", 0, "1")])),
            _altered(),
        ],
        ("settings-only-validated", "IncrementalAlterConfigs"): [
            *topic(),
            _altered((_TOPIC, "@t", [("retention.ms", 0, "1000")]), validate_only=True),
            _altered((_TOPIC, "@t", [("retention.ms", 0, "soon")]), validate_only=True),
            _altered((_TOPIC, "@none", [("retention.ms", 0, "1")]), validate_only=True),
        ],
        ("settings-repeated", "IncrementalAlterConfigs"): [
            *topic(),
            *topic("@u"),
            _altered(
                (_TOPIC, "@t", [("retention.ms", 0, "1")]),
                (_TOPIC, "@t", [("retention.ms", 0, "2")]),
                (_TOPIC, "@u", [("retention.ms", 0, "3")]),
            ),
        ],
    }
)

SCENARIOS = [*_CLUSTER, *_COORDINATOR, *_VERSIONS, *_SETTINGS]
