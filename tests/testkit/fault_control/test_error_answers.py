"""The error answers of all APIs. In every version, clients find the error code in the field that
they read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from many_cases import looped
from odradek_broker.request import CloseConnection
from odradek_protocol import frames
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, Api, ApiKey
from odradek_protocol.message import ArrayOf
from odradek_protocol.schemas.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from odradek_protocol.schemas.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek_protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_testkit.fault_control.answers import ANSWERED_FIRST, refuse, spoil
from wire_values import full

CODE = ErrorCode.NOT_COORDINATOR
#: Versions of APIs whose answers have no field for an error code.
WITHOUT_CODE = {(ApiKey.DESCRIBE_LOG_DIRS, version) for version in range(3)}


def everything(topic: str | None, partition: int | None) -> bool:
    return True


def no_name(_: bytes) -> str | None:
    return None


def codes_in(value: Any) -> Iterator[int]:
    for spec in value.fields:
        held = getattr(value, spec.name)
        if spec.name in ("error_code", "partition_error_code"):
            yield held
        elif isinstance(spec.type, ArrayOf):
            for each in held or ():
                if hasattr(each, "fields"):
                    yield from codes_in(each)


@looped(
    "api, version",
    [
        (api, version)
        for api in APIS.values()
        if api.key not in ANSWERED_FIRST
        for version in api.versions
    ],
    ids=lambda value: value.name if isinstance(value, Api) else f"v{value}",
)
def test_every_api_has_an_error_answer_in_every_version(api: Api, version: int) -> None:
    request = full(api.request, version)
    if (api.key, version) in WITHOUT_CODE:
        with pytest.raises(CloseConnection):
            refuse(api, version, request, CODE, "ordered", everything, no_name)
        return
    refused = refuse(api, version, request, CODE, "ordered", everything, no_name)
    encoded = b"".join(map(bytes, frames.encode_response(api, version, 1, refused.answer)))
    answer = frames.decode_response(api, version, memoryview(encoded)[4:])
    assert CODE in set(codes_in(answer))
    assert not refused.rest
    if refused.parts is not None:
        # Each list of the request has two elements. AlterReplicaLogDirs has nested lists: two
        # directories of two topics each.
        many = 4 if api.key is ApiKey.ALTER_REPLICA_LOG_DIRS else 2
        assert len(getattr(answer, refused.parts)) == many


def test_partitions_that_the_fault_does_not_match_stay_in_the_request() -> None:
    request = ProduceRequest(
        acks=-1,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=index) for index in (0, 1)]
            )
            for name in ("a", "b")
        ],
    )

    def chooses(topic: str | None, partition: int | None) -> bool:
        return (topic, partition) == ("b", 1)

    api = APIS[ApiKey.PRODUCE]
    refused = refuse(api, 9, request, CODE, "ordered", chooses, no_name)
    assert refused.rest
    left = [
        (topic.name, part.index) for topic in request.topic_data for part in topic.partition_data
    ]
    assert left == [("a", 0), ("a", 1), ("b", 0)]
    answer: Any = refused.answer
    assert [
        (row.name, [(p.index, p.error_code) for p in row.partition_responses])
        for row in answer.responses
    ] == [("b", [(1, CODE)])]


def test_a_refused_produce_with_acks_0_closes_the_connection() -> None:
    with pytest.raises(CloseConnection):
        refuse(
            APIS[ApiKey.PRODUCE], 9, ProduceRequest(acks=0), CODE, "ordered", everything, no_name
        )


def test_an_error_replaces_the_matching_parts_of_an_answer() -> None:
    fetched = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t",
                partitions=[PartitionData(partition_index=i, records=b"xyz") for i in (0, 1)],
            )
        ]
    )
    spoil(fetched, CODE, lambda topic, index: (topic, index) == ("t", 1), no_name)
    assert [(p.error_code, p.records) for p in fetched.responses[0].partitions] == [
        (0, b"xyz"),
        (CODE, b""),
    ]
    metadata = MetadataResponse(
        topics=[
            MetadataResponseTopic(name=name, partitions=[MetadataResponsePartition()])
            for name in ("t", "u")
        ]
    )
    spoil(metadata, CODE, lambda topic, _: topic == "u", no_name)
    assert [(t.error_code, len(t.partitions)) for t in metadata.topics] == [(0, 1), (CODE, 0)]
    described = DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(
                name=name, partitions=[DescribeTopicPartitionsResponsePartition()]
            )
            for name in ("t", "u")
        ]
    )
    spoil(described, CODE, lambda topic, _: topic == "u", no_name)
    assert [(t.error_code, len(t.partitions)) for t in described.topics] == [(0, 1), (CODE, 0)]
