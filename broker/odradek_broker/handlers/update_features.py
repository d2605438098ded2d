"""UpdateFeatures (key 57): changes the finalized levels of the cluster's features (A-78, N-53).

A request in version 0 can only raise levels, even with allow_downgrade. The answers in versions 0
and 1 list each feature.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.commit import all_committed, committed
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.features import FeatureUpdate, update_features
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_broker.slices import in_order, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek_protocol.stored.cluster_metadata import MetadataRecord


async def handle(
    node: MetadataChangeParts, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Make all updates or none; the answer comes when they are durable.

    If the emulated release treats updates separately, each update is made or refused on its own.
    """
    if not node.authorizer.allows(context, Operation.ALTER, CLUSTER):
        return UpdateFeaturesResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message=denial(Operation.ALTER, CLUSTER),
        )
    updates = [
        FeatureUpdate(each.feature, each.max_version_level, each.upgrade_type)
        async for each in paced(request.feature_updates)
    ]
    profile = node.metadata.config.profile
    separate = profile is not None and profile.separate_updates
    refused: dict[str, AdminError] = {}
    recorded: list[Deferred[bool]] = []
    async for group in paced(in_order(updates, 1) if separate else [updates], changing=True):
        try:
            records = update_features(
                node.metadata.feature_levels, group, node.metadata.supported_features
            )
        except AdminError as error:
            if not separate:
                return UpdateFeaturesResponse(error_code=error.error, error_message=error.message)
            refused[group[0].feature] = error
        else:
            if records and not request.validate_only:
                recorded.append(_committed(node, records, request))
    if not recorded and not request.validate_only:
        recorded.append(_committed(node, (), request))
    if not await all_committed(recorded):
        return UpdateFeaturesResponse(
            error_code=ErrorCode.REQUEST_TIMED_OUT, error_message="the disk is too slow"
        )
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            _result(update.feature, refused.get(update.feature)) async for update in paced(updates)
        ],
    )


def _committed(
    node: MetadataChangeParts, records: Sequence[MetadataRecord], request: UpdateFeaturesRequest
) -> Deferred[bool]:
    # A negative timeout is no reason to refuse the update, as in Kafka's controller.
    return committed(node, records, max(request.timeout_ms, 0))


def _result(feature: str, error: AdminError | None) -> UpdatableFeatureResult:
    if error is None:
        # As in Kafka, the message for success is the name of the error code, NONE.
        return UpdatableFeatureResult(feature=feature, error_message=ErrorCode.NONE.name)
    return UpdatableFeatureResult(
        feature=feature, error_code=error.error, error_message=error.message
    )
