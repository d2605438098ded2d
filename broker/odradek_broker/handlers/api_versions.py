"""ApiVersions (key 18): the APIs and versions that this broker serves (rule N-07).

Versions: from 3 on the client names its software, and a bad name is answered INVALID_REQUEST;
features are in tagged fields.
"""

from __future__ import annotations

import re

from odradek_broker.metadata.features import FEATURES
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, Api, ApiKey
from odradek_protocol.schemas.api_versions import (
    CLIENT_SOFTWARE_SINCE,
    FEATURES_FROM_0_SINCE,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from odradek_protocol.schemas.init_producer_id import TWO_PHASE_COMMIT_SINCE

_LEGAL_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(node: Node, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Every API with a row in `APIS`, all of which have handlers, and the features (N-52).

    The finalized `transaction.version` makes clients use transactions of version 2 (T-60). Below
    version 4, clients fail at a supported feature with the lowest level 0.
    """
    if context.api_version >= CLIENT_SOFTWARE_SINCE:
        for text in (request.client_software_name, request.client_software_version):
            if not _LEGAL_SOFTWARE.fullmatch(text):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if context.authentication is not None:
        error = context.authentication.versions_asked()
        if error:
            return ApiVersionsResponse(error_code=error)
    of_any_level = context.api_version >= FEATURES_FROM_0_SINCE
    return ApiVersionsResponse(
        api_keys=[
            _row(api, TWO_PHASE_COMMIT_SINCE - 1)
            if key is ApiKey.INIT_PRODUCER_ID
            and not node.config.transaction_two_phase_commit_enable
            else _row(api)
            for key, api in sorted(APIS.items())
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
            for name, levels in FEATURES.items()
            if levels.lowest or of_any_level
        ],
        # Clients keep the features of the answer with the highest epoch.
        finalized_features_epoch=node.publisher.finalized_features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in node.publisher.finalized_features.levels.items()
            if level
        ],
    )


def handle_unsupported_version(node: Node, context: RequestContext) -> ApiVersionsResponse:
    """The answer to a version that is not served: in version 0, with the served range (N-07)."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_row(APIS[ApiKey.API_VERSIONS])]
    )


def _row(api: Api, last: int | None = None) -> ApiVersion:
    return ApiVersion(
        api_key=api.key,
        min_version=api.advertised.first,
        max_version=api.advertised.last if last is None else last,
    )
