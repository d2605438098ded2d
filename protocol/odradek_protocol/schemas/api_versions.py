"""ApiVersions (key 18): what this broker serves.

Versions: 3 is flexible, names the client's software and brings features as tags; 4 may show
features whose minimum is 0. The header of the answer is version 0 in all of them, and an unknown
version is answered in version 0 with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from odradek_protocol.message import Message, Struct, array, field, message, struct
from odradek_protocol.primitives import BOOL, INT16, INT32, INT64, STRING


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Message):
    """What the client asks."""

    client_software_name: str = field(STRING, "3+", ignorable=True)
    client_software_version: str = field(STRING, "3+", ignorable=True)


@struct
class ApiVersion(Struct):
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@struct
class SupportedFeatureKey(Struct):
    name: str = field(STRING, "3+")
    min_version: int = field(INT16, "3+")
    max_version: int = field(INT16, "3+")


@struct
class FinalizedFeatureKey(Struct):
    name: str = field(STRING, "3+")
    max_version_level: int = field(INT16, "3+")
    min_version_level: int = field(INT16, "3+")


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse(Message):
    """What the broker answers."""

    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        array(SupportedFeatureKey), "3+", tag=0, tagged="3+", ignorable=True
    )
    finalized_features_epoch: int = field(
        INT64, "3+", tag=1, tagged="3+", default=-1, ignorable=True
    )
    finalized_features: list[FinalizedFeatureKey] = field(
        array(FinalizedFeatureKey), "3+", tag=2, tagged="3+", ignorable=True
    )
    zk_migration_ready: bool = field(BOOL, "3+", tag=3, tagged="3+", ignorable=True)
