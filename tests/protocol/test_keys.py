"""The table of APIs is complete and consistent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek_protocol.keys import API_OF_REQUEST, APIS, PRIVATE_KEYS, Api, ApiKey

EVERY_API = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)

#: Key, name, versions served, first flexible version or None: the table of a Kafka 4.2 broker.
KAFKA_4_2 = {
    0: ("Produce", 3, 13, 9),
    1: ("Fetch", 4, 18, 12),
    2: ("ListOffsets", 1, 11, 6),
    3: ("Metadata", 0, 13, 9),
    8: ("OffsetCommit", 2, 10, 8),
    9: ("OffsetFetch", 1, 10, 6),
    10: ("FindCoordinator", 0, 6, 3),
    11: ("JoinGroup", 0, 9, 6),
    12: ("Heartbeat", 0, 4, 4),
    13: ("LeaveGroup", 0, 5, 4),
    14: ("SyncGroup", 0, 5, 4),
    15: ("DescribeGroups", 0, 6, 5),
    16: ("ListGroups", 0, 5, 3),
    18: ("ApiVersions", 0, 4, 3),
    19: ("CreateTopics", 2, 7, 5),
    20: ("DeleteTopics", 1, 6, 4),
    21: ("DeleteRecords", 0, 2, 2),
    22: ("InitProducerId", 0, 6, 2),  # 6 is not stable in Kafka yet
    23: ("OffsetForLeaderEpoch", 2, 4, 4),
    24: ("AddPartitionsToTxn", 0, 5, 3),
    25: ("AddOffsetsToTxn", 0, 4, 3),
    26: ("EndTxn", 0, 5, 3),
    27: ("WriteTxnMarkers", 1, 2, 1),
    28: ("TxnOffsetCommit", 0, 5, 3),
    32: ("DescribeConfigs", 1, 4, 4),
    33: ("AlterConfigs", 0, 2, 2),
    35: ("DescribeLogDirs", 1, 5, 2),
    37: ("CreatePartitions", 0, 3, 2),
    42: ("DeleteGroups", 0, 2, 2),
    44: ("IncrementalAlterConfigs", 0, 1, 1),
    47: ("OffsetDelete", 0, 0, None),
    60: ("DescribeCluster", 0, 2, 0),
    61: ("DescribeProducers", 0, 0, 0),
    65: ("DescribeTransactions", 0, 0, 0),
    66: ("ListTransactions", 0, 2, 0),
    68: ("ConsumerGroupHeartbeat", 0, 1, 0),
    69: ("ConsumerGroupDescribe", 0, 1, 0),
}

#: Those that are not Kafka's.
PRIVATE = {10_000: ("DescribeHistory", 0, 0, 0)}


def _row(api: Api) -> tuple[str, int, int, int | None]:
    first_flexible = next(iter(api.request.flexible), None)
    return api.name, api.versions.first, api.versions.last, first_flexible


def test_the_table_is_kafkas_in_key_order() -> None:
    assert {int(api.key): _row(api) for api in APIS.values()} == KAFKA_4_2 | PRIVATE
    assert list(APIS) == sorted(ApiKey)


@EVERY_API
def test_a_row_names_its_own_messages(api: Api) -> None:
    assert api.request.__name__ == f"{api.name}Request"
    assert api.response.__name__ == f"{api.name}Response"
    assert api.request.api_key == api.response.api_key == api.key
    assert api.request.versions == api.response.versions
    assert api.request.flexible == api.response.flexible
    assert API_OF_REQUEST[api.request] is api
    assert api.request.__module__ == api.response.__module__


@EVERY_API
def test_kafka_18659_only_produce_advertises_what_it_does_not_serve(api: Api) -> None:
    if api.key is ApiKey.PRODUCE:
        assert (api.advertised.first, api.advertised.last) == (0, 13)
        assert [version for version in (0, 1, 2) if version in api.versions] == []
    else:
        assert api.advertised == api.versions


@EVERY_API
def test_n02_header_versions_follow_flexibility(api: Api) -> None:
    for version in api.versions:
        flexible = version in api.request.flexible
        assert api.request_header_version(version) == (2 if flexible else 1)
        if api.key is ApiKey.API_VERSIONS:
            assert api.response_header_version(version) == 0
        else:
            assert api.response_header_version(version) == (1 if flexible else 0)


def test_kip939_two_phase_commit_is_served_although_kafka_calls_it_unstable() -> None:
    api = APIS[ApiKey.INIT_PRODUCER_ID]
    assert 6 in api.versions and 6 in api.advertised


def test_the_documented_table_is_this_one(repository: Path) -> None:
    text = (repository / "docs" / "compatibility.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d+)-(\d+) \| (\d+|never) \|$", text, re.MULTILINE)
    documented = {
        int(key): (name, int(first), int(last), None if flexible == "never" else int(flexible))
        for key, name, first, last, flexible in rows
    }
    assert documented == KAFKA_4_2 | PRIVATE


def test_private_keys_are_far_from_those_of_kafka() -> None:
    assert {int(key) for key in PRIVATE_KEYS} == set(PRIVATE)
    assert min(PRIVATE) > 10 * max(KAFKA_4_2) and max(PRIVATE) < 2**15
