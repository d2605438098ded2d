"""Refusals of requests whose answer would be larger than fetch.max.bytes (D11).

INVALID_REQUEST is answered for each requested name, or once if the response has a single error
code. If the response has no error code, the connection is closed.
"""

from __future__ import annotations

from odradek_broker.coordinator.groups.administration import consumer_not_described, not_described
from odradek_broker.request import CloseConnection
from odradek_broker.slices import paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import Api
from odradek_protocol.message import Message
from odradek_protocol.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek_protocol.schemas.describe_groups import (
    GROUP_ID_NOT_FOUND_SINCE,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek_protocol.schemas.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from odradek_protocol.schemas.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek_protocol.schemas.offset_fetch import (
    GROUPS_SINCE,
    TOP_LEVEL_ERROR_SINCE,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

_CODE = ErrorCode.INVALID_REQUEST


async def refusal_in_slices(api: Api, version: int, request: Message, text: str) -> Message:
    """The response that refuses a request; `text` is the reason, if the response has a field for
    it.

    Raises CloseConnection with the text if the response has no error code.
    """
    match request:
        case DescribeGroupsRequest():
            return await _describe_groups(request, version, text)
        case ConsumerGroupDescribeRequest():
            return await _consumer_group_describe(request, text)
        case DescribeTransactionsRequest():
            return await _describe_transactions(request)
        case DescribeConfigsRequest():
            return await _describe_configs(request, text)
        case DescribeProducersRequest():
            return await _describe_producers(request, text)
        case OffsetFetchRequest():
            return await _offset_fetch(request, version, text)
    return refusal(api, version, text)


def refusal(api: Api, version: int, text: str) -> Message:
    """The response that refuses a request with its one error code. Raises CloseConnection with the
    text if the response has none."""
    for spec in api.response.fields:
        if spec.name == "error_code" and version in spec.versions:
            refused = api.response()
            refused.error_code = _CODE  # type: ignore[attr-defined]
            return refused
    raise CloseConnection(text)


async def _describe_groups(request: DescribeGroupsRequest, version: int, text: str) -> Message:
    message = text if version >= GROUP_ID_NOT_FOUND_SINCE else None
    names = dict.fromkeys(request.groups)
    return DescribeGroupsResponse(
        groups=[not_described(name, _CODE, message) async for name in paced(names)]
    )


async def _consumer_group_describe(request: ConsumerGroupDescribeRequest, text: str) -> Message:
    names = dict.fromkeys(request.group_ids)
    return ConsumerGroupDescribeResponse(
        groups=[consumer_not_described(name, _CODE, text) async for name in paced(names)]
    )


async def _describe_transactions(request: DescribeTransactionsRequest) -> Message:
    names = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=_CODE, transactional_id=name) async for name in paced(names)
        ]
    )


async def _describe_configs(request: DescribeConfigsRequest, text: str) -> Message:
    asked = {(each.resource_type, each.resource_name): None for each in request.resources}
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=_CODE, error_message=text, resource_type=kind, resource_name=name
            )
            async for kind, name in paced(asked)
        ]
    )


async def _describe_producers(request: DescribeProducersRequest, text: str) -> Message:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=_CODE, error_message=text)
                    async for index in paced(dict.fromkeys(topic.partition_indexes))
                ],
            )
            async for topic in paced(request.topics)
        ]
    )


async def _offset_fetch(request: OffsetFetchRequest, version: int, text: str) -> Message:
    if version < GROUPS_SINCE:
        if version < TOP_LEVEL_ERROR_SINCE:
            raise CloseConnection(text)
        return OffsetFetchResponse(error_code=_CODE)
    names = dict.fromkeys(asked.group_id for asked in request.groups)
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(group_id=name, error_code=_CODE) async for name in paced(names)
        ]
    )
