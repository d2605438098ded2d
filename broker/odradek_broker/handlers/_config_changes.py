"""The common steps of AlterConfigs and IncrementalAlterConfigs: authorize, decide, record, apply,
answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import ConfigChangeParts
from odradek_broker.metadata.commit import committed, refuse_if_late
from odradek_broker.metadata.config_changes import ChangeResult, ResourceChanges, alter_configs
from odradek_broker.metadata.config_resources import configured_resource
from odradek_broker.metadata.logger_levels import alter_loggers, is_of_loggers
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denial, may_use_configs
from odradek_broker.slices import batches, paced
from odradek_protocol.constants import RESOURCE_BROKER, RESOURCE_TOPIC
from odradek_protocol.stored.cluster_metadata import ConfigRecord, MetadataRecord

Entry = TypeVar("Entry")


async def change_configs(
    node: ConfigChangeParts,
    context: RequestContext,
    wanted: Sequence[ResourceChanges],
    entry: Callable[..., Entry],
    *,
    validate_only: bool,
) -> list[Entry]:
    """Make the changes, and return the answers about resources when they are durable. With
    `validate_only` the changes are only checked. `entry`: the class of an answer."""
    of_loggers: list[ResourceChanges] = []
    of_others: list[ResourceChanges] = []
    refused: list[ChangeResult] = []
    async for changes in paced(wanted):
        resource = configured_resource(changes.resource_type, changes.resource_name)
        error = may_use_configs(node.authorizer, context, Operation.ALTER_CONFIGS, resource)
        if error:
            message = denial(Operation.ALTER_CONFIGS, resource)
            refused.append(
                ChangeResult(changes.resource_type, changes.resource_name, error, message)
            )
        else:
            (of_loggers if is_of_loggers(changes) else of_others).append(changes)
    results: list[ChangeResult] = []
    recorded: list[Deferred[bool]] = []
    topics: set[str] = set()
    async for batch in paced(await batches(of_others, _resource), changing=True):
        records, altered = alter_configs(node.metadata, batch)
        results += altered
        if records and not validate_only:
            recorded.append(committed(node, records))
            topics.update(_affected_topics(node, records))
    async for batch in paced(await batches(of_loggers, _resource), changing=True):
        results += alter_loggers(node.log_levels, node.node_id, batch, validate_only=validate_only)
    async for topic in paced(sorted(topics), changing=True):
        node.replicas.topic_config_changed(topic)
    if not recorded and not validate_only:
        recorded.append(committed(node))
    await refuse_if_late(results, recorded)
    return [
        entry(
            error_code=result.error,
            error_message=result.message,
            resource_type=result.resource_type,
            resource_name=result.resource_name,
        )
        async for result in paced(results + refused)
    ]


def _resource(changes: ResourceChanges) -> tuple[int, str]:
    return changes.resource_type, changes.resource_name


def _affected_topics(node: ConfigChangeParts, records: Iterable[MetadataRecord]) -> set[str]:
    """The topics whose logs have other settings after these records: also all topics after a change
    of the broker's settings, because these may be defaults of topics."""
    topics: set[str] = set()
    for record in records:
        if isinstance(record, ConfigRecord):
            if record.resource_type == RESOURCE_BROKER:
                topics.update(node.metadata.topics)
            elif record.resource_type == RESOURCE_TOPIC:
                topics.add(record.resource_name)
    return topics
