"""The table of APIs is complete and consistent."""

from __future__ import annotations

import pkgutil
import re

from tests.golden.kafka_schemas import schemas

import odradek_protocol.schemas
from many_cases import looped
from odradek_protocol.keys import APIS, PRIVATE_KEYS, Api, ApiKey, api_of

EVERY_API = looped("api", APIS.values(), ids=lambda api: api.name)


def test_the_api_keys_are_kafkas_and_the_private_ones() -> None:
    kafkas = {
        each["apiKey"]: each["name"].removesuffix("Request")
        for each in schemas().values()
        if each["type"] == "request" and each["validVersions"] != "none"
    }
    names = {int(key): key.name for key in ApiKey if key not in PRIVATE_KEYS}
    assert names == {
        key: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kafkas[key]).upper() for key in kafkas
    }
    assert min(PRIVATE_KEYS) > 10 * max(kafkas) and max(PRIVATE_KEYS) < 2**15


def test_the_table_of_apis_has_every_schema_in_key_order() -> None:
    files = {info.name for info in pkgutil.iter_modules(odradek_protocol.schemas.__path__)}
    assert {api.key.name.lower() for api in APIS.values()} == files
    assert list(APIS) == sorted(APIS) == [api.key for api in APIS.values()]


@EVERY_API
def test_each_api_names_its_own_messages(api: Api) -> None:
    assert api.request.__name__ == f"{api.name}Request"
    assert api.response.__name__ == f"{api.name}Response"
    assert api.request.api_key == api.response.api_key == api.key
    assert api.request.versions == api.response.versions
    assert api.request.flexible == api.response.flexible
    assert api_of(api.request) is api
    assert api.request.__module__ == api.response.__module__


@EVERY_API
def test_kafka_18659_only_produce_advertises_versions_it_does_not_serve(api: Api) -> None:
    if api.key is ApiKey.PRODUCE:
        assert (api.advertised.first, api.advertised.last) == (0, 13)
        assert [version for version in (0, 1, 2) if version in api.versions] == []
    else:
        assert api.advertised == api.versions


@EVERY_API
def test_n02_flexible_versions_have_flexible_headers(api: Api) -> None:
    for version in api.versions:
        flexible = version in api.request.flexible
        assert api.request_header_version(version) == (2 if flexible else 1)
        if api.key is ApiKey.API_VERSIONS:
            assert api.response_header_version(version) == 0
        else:
            assert api.response_header_version(version) == (1 if flexible else 0)


def test_kip939_two_phase_commit_is_served_although_kafka_calls_it_unstable() -> None:
    api = APIS[ApiKey.INIT_PRODUCER_ID]
    assert 6 in api.versions and 6 in api.advertised
