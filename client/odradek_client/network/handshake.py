"""The first exchange on a connection: the versions of the APIs that the broker serves (N-07)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from odradek_client.errors import ConnectionLost
from odradek_protocol.errors import ErrorCode
from odradek_protocol.frames import decode_response
from odradek_protocol.keys import APIS, Api, ApiKey
from odradek_protocol.message import Message
from odradek_protocol.primitives import DecodeError
from odradek_protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_protocol.version import VERSION

#: The lowest and the highest version served, by API key.
Versions = Mapping[int, tuple[int, int]]

_SOFTWARE_NAME = "odradek"

#: The version of the first ApiVersions request. Version 4 adds only features whose lowest level is
#: 0, and Azure Event Hubs closes the connection when it receives version 4.
_FIRST_ASKED = 3


def versions_request() -> ApiVersionsRequest:
    """A request for the APIs, with the name and version of this software (KIP-511)."""
    return ApiVersionsRequest(client_software_name=_SOFTWARE_NAME, client_software_version=VERSION)


async def negotiate(
    ask: Callable[[ApiVersionsRequest, int], Awaitable[ApiVersionsResponse]],
) -> ApiVersionsResponse:
    """The APIs that a broker serves; the first request has version 3 of ApiVersions.

    A broker without version 3 answers in version 0 with UNSUPPORTED_VERSION and (since Kafka 2.4)
    its versions of ApiVersions. Raises ConnectionLost for an unusable answer.
    """
    api = APIS[ApiKey.API_VERSIONS]
    asked = _FIRST_ASKED
    for _ in range(2):
        answer = await ask(versions_request(), asked)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION and asked > 0:
            asked = min(_FIRST_ASKED, served_versions(answer).get(api.key, (0, 0))[1])
            continue
        if answer.error_code:
            code = ErrorCode.of(answer.error_code)
            raise ConnectionLost(f"the broker refused to say what it serves ({code.name})")
        return answer
    raise ConnectionLost("the broker takes no version of ApiVersions")


def served_versions(answer: ApiVersionsResponse) -> Versions:
    """The versions in an answer."""
    return {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}


def versions_refused(api: Api, frame: memoryview) -> Message:
    """The answer of a broker that does not have the version of an ApiVersions request; the answer
    is in version 0.

    Some brokers (such as the mock broker of librdkafka) write the list in the encoding of the
    requested version; from such an answer only the error code is used.
    """
    try:
        return decode_response(api, 0, frame)
    except DecodeError:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
