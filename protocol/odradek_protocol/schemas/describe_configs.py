"""DescribeConfigs (key 32): the configuration of topics and brokers.

Versions: 1 has sources and synonyms; 3 has types and documentation; 4 is flexible.

Of note: the levels of loggers (resource type 8) are kept until the broker stops, as in Kafka.

Left out: Kafka's settings that have no meaning on this broker (`controller.quorum.*`,
`controlled.shutdown.*` and similar ones). The configuration file may have these settings, but they
are not described.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT8, INT16, INT32, STRING

#: From this version on the documentation of a setting can be asked for (KIP-569).
DOCUMENTATION_SINCE = 3


class DescribeConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(array(STRING), nullable="0+")


@api_message(ApiKey.DESCRIBE_CONFIGS)
class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOL, "1+")
    include_documentation: bool = field(BOOL, "3+")


class DescribeConfigsSynonym(Struct):
    name: str = field(STRING, "1+")
    value: str | None = field(STRING, "1+", nullable="0+")
    source: int = field(INT8, "1+")


class DescribeConfigsResourceResult(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, "1+", default=-1, ignorable=True)
    is_default: bool = field(BOOL, "0")
    is_sensitive: bool = field(BOOL)
    synonyms: list[DescribeConfigsSynonym] = field(
        array(DescribeConfigsSynonym), "1+", ignorable=True
    )
    config_type: int = field(INT8, "3+", ignorable=True)
    documentation: str | None = field(STRING, "3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult))


@api_message(ApiKey.DESCRIBE_CONFIGS)
class DescribeConfigsResponse(Message):
    throttle_time_ms: int = field(INT32)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult))
