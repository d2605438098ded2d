"""Bytes written by foreign code are decoded to the same values, and encoded to the same bytes.

tests/golden/make.py describes their origin.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import golden
from many_cases import looped
from odradek_protocol import codec, frames
from odradek_protocol.keys import APIS, Api, ApiKey

BODIES = list(golden.bodies())
CAPTURED = golden.lines("captured")
API_BY_NAME = {api.name: api for api in APIS.values()}
#: librdkafka's mock broker appends one byte to this response, which readers must ignore (N-08).
_EXTRA_BYTES = {("Metadata", "response", 13): 1}


def _body_id(value: Any) -> str:
    if isinstance(value, Api):
        return value.name
    return f"{value['direction']}-v{value['version']}-{value.get('variant', value.get('client'))}"


@looped("api, line", BODIES, ids=_body_id, by=lambda api, line: api.name)
def test_golden_bodies_are_decoded_to_their_values_and_encoded_again(
    api: Api, line: dict[str, Any]
) -> None:
    cls = api.request if line["direction"] == "request" else api.response
    version, data = line["version"], bytes.fromhex(line["hex"])
    decoded, end = codec.decode_at(cls, version, data)
    assert end == len(data)
    assert golden.plain_struct(decoded, version) == line["value"]
    assert codec.encode_bytes(decoded, version) == data


@looped("api", APIS.values(), ids=lambda api: api.name)
def test_there_are_golden_bytes_for_every_version(api: Api) -> None:
    seen = defaultdict(set)
    for line in golden.lines(golden.module_name(api)):
        seen[line["direction"]].add(line["version"])
    assert seen["request"] >= set(api.request.versions)
    assert seen["response"] >= set(api.response.versions)


@looped("line", CAPTURED, ids=lambda line: f"{line['client']}-{line['api']}-{_body_id(line)}")
def test_captured_frames_are_decoded_as_by_kafka_python(line: dict[str, Any]) -> None:
    api = API_BY_NAME[line["api"]]
    version, frame = line["version"], bytes.fromhex(line["hex"])
    if line["direction"] == "response":
        decoded = frames.decode_response(api, version, frame)
        correlation_id = frames.decode_correlation_id(frame)
        again = frames.encode_response(api, version, correlation_id, decoded)
    else:
        header, position = frames.decode_request_header(frame)
        assert (header.api_key, header.api_version) == (api.key, version)
        if api.request_header_version(version) == 2:
            position = frames.skip_tags(frame, position)
        decoded, end = codec.decode_at(api.request, version, frame, position)
        assert end == len(frame)
        again = frames.encode_request(decoded, version, header.correlation_id, header.client_id)
    assert golden.plain_struct(decoded, version) == line["value"]
    extra = _EXTRA_BYTES.get((line["api"], line["direction"], version), 0)
    frame = frame[: len(frame) - extra]
    assert b"".join(again) == len(frame).to_bytes(4, "big") + frame


def test_captured_traffic_covers_producers_and_group_members() -> None:
    spoken = {(line["client"], line["api"]) for line in CAPTURED}
    needed = {"Produce", "Fetch", "Metadata", "FindCoordinator", "JoinGroup", "SyncGroup"}
    for client in ("confluent-kafka", "aiokafka"):
        assert needed <= {api for name, api in spoken if name == client}
    assert ("confluent-kafka", "InitProducerId") in spoken
    assert ApiKey.INIT_PRODUCER_ID in APIS
