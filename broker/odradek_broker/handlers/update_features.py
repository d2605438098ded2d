"""UpdateFeatures (key 57): changes the finalized levels of the cluster's features (A-78, N-53).

A request in version 0 can only raise levels, even with allow_downgrade. The answers in versions 0
and 1 list each feature.
"""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.commit import when_durable
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.features import FeatureUpdate, update_features
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denial
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek_protocol.stored.cluster_metadata import MetadataRecord


def handle(
    node: MetadataChangeParts, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse | Deferred[UpdateFeaturesResponse]:
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
        for each in request.feature_updates
    ]
    levels, supported = node.metadata.feature_levels, node.metadata.supported_features
    profile = node.metadata.config.profile
    records: list[MetadataRecord] = []
    refused: dict[str, AdminError] = {}
    separate = profile is not None and profile.separate_updates
    for group in [[update] for update in updates] if separate else [updates]:
        try:
            records += update_features(levels, group, supported)
        except AdminError as error:
            if not separate:
                return UpdateFeaturesResponse(error_code=error.error, error_message=error.message)
            refused[group[0].feature] = error

    def result_of(feature: str) -> UpdatableFeatureResult:
        error = refused.get(feature)
        if error is None:
            # As in Kafka, the message for success is the name of the error code, NONE.
            return UpdatableFeatureResult(feature=feature, error_message=ErrorCode.NONE.name)
        return UpdatableFeatureResult(
            feature=feature, error_code=error.error, error_message=error.message
        )

    def respond() -> UpdateFeaturesResponse:
        results = [result_of(update.feature) for update in updates]
        return UpdateFeaturesResponse(error_message=None, results=results)

    def timed_out() -> UpdateFeaturesResponse:
        return UpdateFeaturesResponse(
            error_code=ErrorCode.REQUEST_TIMED_OUT, error_message="the disk is too slow"
        )

    if request.validate_only:
        return respond()
    # A negative timeout is no reason to refuse the update, as in Kafka's controller.
    return when_durable(node, records, respond, timed_out, max(request.timeout_ms, 0))
