"""ApiVersions (key 18): the APIs and versions that this broker serves (rule N-07).

From version 3 on the request names the client's software (a bad name is answered INVALID_REQUEST),
and the response has features, in tagged fields.
"""

from __future__ import annotations

import re

from odradek_broker.emulation.profiles import NewerVersions
from odradek_broker.emulation.served import ServedApi
from odradek_broker.node import Node
from odradek_broker.request import CloseConnection, RequestContext
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.api_versions import (
    CLIENT_SOFTWARE_SINCE,
    FEATURES_FROM_0_SINCE,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

#: The APIs of client metrics, which are advertised while there is a subscription (M-01).
_OF_METRICS = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
_LEGAL_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(node: Node, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Every API that is served, and the features (N-52).

    The finalized `transaction.version` makes clients use transactions of version 2 (T-60). Features
    whose lowest level is 0 are left out in versions below 4, because clients with these versions
    reject such features.
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
    supported = node.metadata.supported_features
    response = ApiVersionsResponse(
        api_keys=_rows(node),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
            for name, levels in supported.items()
            if levels.lowest or of_any_level
        ],
    )
    if supported:
        finalized = node.publisher.finalized_features
        # Clients keep the features of the answer with the highest epoch.
        response.finalized_features_epoch = finalized.epoch
        response.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.levels.items()
            if level
        ]
    return response


def handle_unsupported_version(node: Node, context: RequestContext) -> ApiVersionsResponse:
    """The answer to a request in a version that is not served, in the form of version 0 and with
    the range of served versions (N-07). Raises CloseConnection if the emulated broker would close
    the connection."""
    rows = [_row(node.served[ApiKey.API_VERSIONS])]
    if node.profile is not None:
        if node.profile.newer_versions is NewerVersions.CLOSE:
            raise CloseConnection(
                f"ApiVersions request of version {context.api_version}, at which"
                f" {node.profile.title} closes the connection (odradek.emulate)"
            )
        if node.profile.newer_versions is NewerVersions.ALL:
            rows = _rows(node)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows)


def _rows(node: Node) -> list[ApiVersion]:
    # Without a subscription, librdkafka would ask for one, and log a line for each client.
    hidden = () if node.telemetry.subscriptions or node.profile is not None else _OF_METRICS
    return [
        _row(served)
        for key, served in node.served.items()
        if served.advertised is not None and key not in hidden
    ]


def _row(served: ServedApi) -> ApiVersion:
    assert served.advertised is not None
    return ApiVersion(
        api_key=served.api.key,
        min_version=served.advertised.first,
        max_version=served.advertised.last,
    )
