"""What is answered instead of an answer that would be larger than fetch.max.bytes (D11).

Each of the names asked for is refused with INVALID_REQUEST, or the request as a whole where its
answer has one code. Where there is no place for a code, the connection closes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek_broker.context import CloseConnection
from odradek_broker.coordinator.groups.administration import not_described
from odradek_broker.coordinator.groups.consumer.describe import consumer_not_described
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import Api, ApiKey
from odradek_protocol.message import Message
from odradek_protocol.schemas import describe_producers
from odradek_protocol.schemas.consumer_group_describe import ConsumerGroupDescribeResponse
from odradek_protocol.schemas.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from odradek_protocol.schemas.describe_groups import DescribeGroupsResponse
from odradek_protocol.schemas.describe_transactions import (
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek_protocol.schemas.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup

_CODE = ErrorCode.INVALID_REQUEST
_GROUPS_SINCE = 8
_GROUP_MESSAGES_SINCE = 6


def instead(api: Api, version: int, request: Message, text: str) -> Message:
    """The refusal of one request; `text` says why, where there is a place for it.

    CloseConnection, with the text, where the answer has no code.
    """
    refuse = _REFUSALS.get(api.key)
    if refuse is not None:
        return refuse(request, version, text)
    for spec in api.response.fields:
        if spec.name == "error_code" and version in spec.versions:
            refused = api.response()
            refused.error_code = _CODE  # type: ignore[attr-defined]
            return refused
    raise CloseConnection(text)


def _describe_groups(request: Any, version: int, text: str) -> Message:
    message = text if version >= _GROUP_MESSAGES_SINCE else None
    names = dict.fromkeys(request.groups)
    return DescribeGroupsResponse(groups=[not_described(name, _CODE, message) for name in names])


def _consumer_group_describe(request: Any, _: int, text: str) -> Message:
    names = dict.fromkeys(request.group_ids)
    return ConsumerGroupDescribeResponse(
        groups=[consumer_not_described(name, _CODE, text) for name in names]
    )


def _describe_transactions(request: Any, _: int, __: str) -> Message:
    names = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=_CODE, transactional_id=name) for name in names
        ]
    )


def _describe_configs(request: Any, _: int, text: str) -> Message:
    asked = {(each.resource_type, each.resource_name): None for each in request.resources}
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=_CODE, error_message=text, resource_type=kind, resource_name=name
            )
            for kind, name in asked
        ]
    )


def _describe_producers(request: Any, _: int, text: str) -> Message:
    return describe_producers.DescribeProducersResponse(
        topics=[
            describe_producers.TopicResponse(
                name=topic.name,
                partitions=[
                    describe_producers.PartitionResponse(
                        partition_index=index, error_code=_CODE, error_message=text
                    )
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: Any, version: int, text: str) -> Message:
    if version < _GROUPS_SINCE:
        if version < 2:
            raise CloseConnection(text)
        return OffsetFetchResponse(error_code=_CODE)
    names = dict.fromkeys(asked.group_id for asked in request.groups)
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id=name, error_code=_CODE) for name in names]
    )


_REFUSALS: Mapping[ApiKey, Callable[[Any, int, str], Message]] = {
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.OFFSET_FETCH: _offset_fetch,
}
