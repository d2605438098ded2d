"""ApiVersions (key 18): the APIs and versions that this broker serves.

Versions: 3 is flexible, has the client's software, and has features in tags; 4 may have features
whose lowest level is 0.

Of note: a request in a version that is not served is answered in version 0, with
UNSUPPORTED_VERSION and the served versions. The header of every answer has version 0.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT16, INT32, INT64, STRING

#: From this version on the client names its software.
CLIENT_SOFTWARE_SINCE = 3
#: Before this version readers fail at a supported feature whose lowest level is 0.
FEATURES_FROM_0_SINCE = 4


@api_message(ApiKey.API_VERSIONS)
class ApiVersionsRequest(Message):
    client_software_name: str = field(STRING, "3+", ignorable=True)
    client_software_version: str = field(STRING, "3+", ignorable=True)


class ApiVersion(Struct):
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class SupportedFeatureKey(Struct):
    name: str = field(STRING, "3+")
    min_version: int = field(INT16, "3+")
    max_version: int = field(INT16, "3+")


class FinalizedFeatureKey(Struct):
    name: str = field(STRING, "3+")
    max_version_level: int = field(INT16, "3+")
    min_version_level: int = field(INT16, "3+")


@api_message(ApiKey.API_VERSIONS)
class ApiVersionsResponse(Message):
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
