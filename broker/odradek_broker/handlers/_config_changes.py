"""The common steps of AlterConfigs and IncrementalAlterConfigs: authorize, decide, record, apply,
answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import ConfigChangeParts
from odradek_broker.metadata.commit import when_durable
from odradek_broker.metadata.config_changes import ChangeResult, ResourceChanges, alter_configs
from odradek_broker.metadata.config_resources import configured_resource
from odradek_broker.metadata.logger_levels import alter_loggers, is_of_loggers
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Authorizer, Operation, denial, may_use_configs
from odradek_protocol.constants import RESOURCE_BROKER, RESOURCE_TOPIC
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.cluster_metadata import ConfigRecord, MetadataRecord

Response = TypeVar("Response")
Entry = TypeVar("Entry")


def change_configs(
    node: ConfigChangeParts,
    authorizer: Authorizer,
    context: RequestContext,
    wanted: Sequence[ResourceChanges],
    response: Callable[[list[Entry]], Response],
    entry: Callable[..., Entry],
    *,
    validate_only: bool,
) -> Response | Deferred[Response]:
    """Make the changes, and answer when they are durable. With `validate_only` the changes are only
    checked, and the answer is immediate.

    `response` and `entry`: the classes of the answer, and of the entry of one resource.
    """

    def respond() -> Response:
        return response(
            [
                entry(
                    error_code=result.error,
                    error_message=result.message,
                    resource_type=result.resource_type,
                    resource_name=result.resource_name,
                )
                for result in results
            ]
        )

    allowed: list[ResourceChanges] = []
    refused: list[ChangeResult] = []
    for changes in wanted:
        resource = configured_resource(changes.resource_type, changes.resource_name)
        error = may_use_configs(authorizer, context, Operation.ALTER_CONFIGS, resource)
        if error:
            message = denial(Operation.ALTER_CONFIGS, resource)
            refused.append(
                ChangeResult(changes.resource_type, changes.resource_name, error, message)
            )
        else:
            allowed.append(changes)
    loggers = [each for each in allowed if is_of_loggers(each)]
    recorded = [each for each in allowed if not is_of_loggers(each)]
    records, results = alter_configs(node.metadata, recorded)
    results += alter_loggers(node.log_levels, node.node_id, loggers, validate_only=validate_only)
    results += refused
    if validate_only:
        return respond()

    def timed_out() -> Response:
        for result in results:
            if result.error is ErrorCode.NONE:
                result.error = ErrorCode.REQUEST_TIMED_OUT
        return respond()

    answer = when_durable(node, records, respond, timed_out)
    _apply(node, records)
    return answer


def _apply(node: ConfigChangeParts, records: Iterable[MetadataRecord]) -> None:
    """Apply changed settings to running logs: to the topic's logs, or to all logs after a change of
    the broker's settings, because these may be defaults of topics."""
    topics: set[str] = set()
    for record in records:
        if isinstance(record, ConfigRecord):
            if record.resource_type == RESOURCE_BROKER:
                topics.update(node.metadata.topics)
            elif record.resource_type == RESOURCE_TOPIC:
                topics.add(record.resource_name)
    for topic in sorted(topics):
        node.replicas.topic_config_changed(topic)
