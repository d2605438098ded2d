"""From the changes of settings that are asked for to the answer: authorize, decide, record, apply.

What AlterConfigs and IncrementalAlterConfigs share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek_broker.authorizer import Authorizer, Operation, may_use_configs
from odradek_broker.config_admin import ChangeResult, ResourceChanges, alter_configs
from odradek_broker.config_resources import configured_resource
from odradek_broker.context import RequestContext
from odradek_broker.durable_answers import when_durable
from odradek_broker.later import Later
from odradek_broker.metadata import RESOURCE_BROKER, RESOURCE_TOPIC
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.cluster_metadata import ConfigRecord, MetadataRecord

if TYPE_CHECKING:
    from odradek_broker.node import Node

Response = TypeVar("Response")


def change_configs(
    node: Node,
    authorizer: Authorizer,
    context: RequestContext,
    wanted: Sequence[ResourceChanges],
    respond: Callable[[list[ChangeResult]], Response],
    *,
    validate_only: bool,
) -> Response | Later[Response]:
    """The answer once the changes are durable; at once where they are only to be checked."""
    allowed: list[ResourceChanges] = []
    refused: list[ChangeResult] = []
    for changes in wanted:
        resource = configured_resource(changes.resource_type, changes.resource_name)
        error = may_use_configs(authorizer, context, Operation.ALTER_CONFIGS, resource)
        if error:
            refused.append(ChangeResult(changes.resource_type, changes.resource_name, error))
        else:
            allowed.append(changes)
    records, results = alter_configs(node.metadata, allowed)
    results += refused
    if validate_only:
        return respond(results)

    def timed_out() -> Response:
        for result in results:
            if result.error is ErrorCode.NONE:
                result.error = ErrorCode.REQUEST_TIMED_OUT
        return respond(results)

    answer = when_durable(node, records, lambda: respond(results), timed_out)
    _apply(node, records)
    return answer


def _apply(node: Node, records: Iterable[MetadataRecord]) -> None:
    """Tell the running logs; a broker's setting may lie under that of any topic."""
    topics: set[str] = set()
    for record in records:
        if isinstance(record, ConfigRecord):
            if record.resource_type == RESOURCE_BROKER:
                topics.update(node.metadata.topics)
            elif record.resource_type == RESOURCE_TOPIC:
                topics.add(record.resource_name)
    for topic in sorted(topics):
        node.topic_config_changed(topic)
