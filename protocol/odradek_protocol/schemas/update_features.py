"""UpdateFeatures (key 57): raises or lowers the levels at which features of the cluster are
finalized (KIP-584).

Versions: 1 distinguishes safe and unsafe downgrades, and has `validate_only`; 2 has one error for
the whole request instead of one for each feature.

Of note: level 0 switches a feature off. The release of 4.3 (`kafka-features.sh upgrade
--release-version 4.3`) also includes eligible.leader.replicas.version and kraft.version. Their APIs
are not served, so their level 1 is ignored in a request with metadata.version, and refused in any
other request.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT8, INT16, INT32, STRING


class FeatureUpdateKey(Struct):
    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    allow_downgrade: bool = field(BOOL, "0")
    upgrade_type: int = field(INT8, "1+", default=1)


@api_message(ApiKey.UPDATE_FEATURES)
class UpdateFeaturesRequest(Message):
    timeout_ms: int = field(INT32, default=60_000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey))
    validate_only: bool = field(BOOL, "1+")


class UpdatableFeatureResult(Struct):
    feature: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


@api_message(ApiKey.UPDATE_FEATURES)
class UpdateFeaturesResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    results: list[UpdatableFeatureResult] = field(
        array(UpdatableFeatureResult), "0-1", ignorable=True
    )
