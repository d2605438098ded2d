"""The common parts of the descriptions of consumer, share and streams groups: their order, their
rights and their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import (
    Operation,
    authorized_operations,
    denied_topics,
    group,
)
from odradek_broker.slices import asked, each_once, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple


class DescribeRequest(Protocol):
    """A request for descriptions."""

    group_ids: list[str]
    include_authorized_operations: bool


class DescribedGroupAnswer(Protocol):
    """A group in an answer."""

    error_code: int
    group_id: str
    authorized_operations: int


D = TypeVar("D", bound=DescribedGroupAnswer)


class Descriptions(NamedTuple, Generic[D]):
    """The descriptions of groups of one type.

    `refused` makes the answer for a group that is not described, `topics` has the names of the
    topics in a description. `hidden`: the message for a group with topics that the client may not
    see.
    """

    describe: Callable[[str], Deferred[D]]
    refused: Callable[[str, ErrorCode, str | None], D]
    topics: Callable[[D], Iterable[str]]
    hidden: str = "The described group uses topics that the client is not authorized to describe."


async def describe_each(
    node: GroupAndMetadataParts,
    context: RequestContext,
    request: DescribeRequest,
    descriptions: Descriptions[D],
    *,
    is_off: bool,
    off: str | None = None,
) -> list[D]:
    """An entry for every group, in the order of the request and without repetition (D11). `off`:
    the message if groups of this type are disabled; None for an answer without a message."""

    def describe(name: str) -> Deferred[D]:
        if is_off:
            return refused(name, ErrorCode.UNSUPPORTED_VERSION, off)
        if not node.authorizer.allows(context, Operation.DESCRIBE, group(name)):
            return refused(name, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not name:
            return refused(name, ErrorCode.INVALID_GROUP_ID)
        return descriptions.describe(name)

    def refused(name: str, error: ErrorCode, message: str | None = None) -> Deferred[D]:
        return Deferred.of(descriptions.refused(name, error, message))

    async def shown(described: D) -> D:
        """The group, or the refusal if the group has topics that the client may not see, as in
        Kafka."""
        name = described.group_id
        if described.error_code:
            return described
        names = dict.fromkeys(descriptions.topics(described))
        if await denied_topics(node.authorizer, context, Operation.DESCRIBE, names):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return descriptions.refused(name, error, descriptions.hidden)
        if request.include_authorized_operations:
            described.authorized_operations = authorized_operations(
                node.authorizer, context, group(name)
            )
        return described

    names = await each_once(request.group_ids)
    found = await asked(names, describe)
    return [await shown(each) async for each in paced(found)]
