"""Bytes that no correct client sends: the broker survives, uses little memory, and serves other
clients.

Raw sockets are connected to a running broker. Every connection that the broker closes is counted,
and an earlier connection that behaves well keeps working.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import struct
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

import golden
from broker_process import BrokerProcess
from odradek_protocol import codec, frames
from odradek_protocol.checksums import crc32c
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, Api, ApiKey, api_of
from odradek_protocol.message import Message
from odradek_protocol.primitives import encode_uvarint
from odradek_protocol.records.builder import control_batch, simple_batch
from odradek_protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.describe_groups import DescribeGroupsRequest
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek_protocol.schemas.metadata import MetadataRequest
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest
from odradek_protocol.stored.control_marker import ControlType
from waiting import wait_until

TIMEOUT_S = 10.0
MEGABYTE = 1024 * 1024
REQUEST_BYTES_MAX = 100 * MEGABYTE
TOPIC = "victim"
_CLOSED = "closed a connection"
#: Requests that may have no answer: Produce with acks=0, and ACLs of kinds that Kafka does not
#: know.
_MAY_END = {ApiKey.PRODUCE, ApiKey.CREATE_ACLS, ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS}

linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="memory is read from /proc"
)


class Peer:
    """A connection on which the test sends any bytes."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S)
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_frame(self, frame: bytes) -> None:
        self.send(len(frame).to_bytes(4, "big") + frame)

    def read_frame(self) -> bytes | None:
        """The next frame; None if the connection is closed instead."""
        size = self._read(4)
        return None if size is None else self._read(int.from_bytes(size, "big"))

    def _read(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                got = self.socket.recv(count - len(data))
            except ConnectionResetError:
                return None
            if not got:
                return None
            data += got
        return data

    def ask(self, request: Message, version: int) -> Any:
        """The answer to a well-formed request."""
        self._number += 1
        api = api_of(request)
        self.send(b"".join(frames.encode_request(request, version, self._number, "peer")))
        frame = self.read_frame()
        assert frame is not None
        assert frames.decode_correlation_id(frame) == self._number
        return frames.decode_response(api, version, frame)

    def assert_closed(self) -> None:
        """Check that no answer comes, and that the connection is closed."""
        assert self.read_frame() is None


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a topic of one partition. At the end, the broker must stop cleanly."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("hostile"),
        [
            "log.durability=page-cache",
            "auto.create.topics.enable=false",
            f"socket.request.max.bytes={REQUEST_BYTES_MAX}",
            "log.retention.ms=-1",
            "http.listen=127.0.0.1:0",
        ],
    )
    process.start()
    with Peer(process) as peer:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        made = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
        assert [each.error_code for each in made.topics] == [0]
    yield process
    process.stop()


@pytest.fixture
def bystander(broker: BrokerProcess) -> Iterator[Peer]:
    """A connection that sends only valid requests. The broker must serve it before and after the
    test."""
    with Peer(broker) as peer:
        _assert_served(peer)
        yield peer
        broker.assert_alive()
        _assert_served(peer)


def _assert_served(peer: Peer) -> None:
    assert peer.ask(MetadataRequest(topics=[]), 9).cluster_id


def _hung_up_on(broker: BrokerProcess) -> int:
    """The number of closed connections in the broker's metrics."""
    (port,) = re.findall(r'"port": (\d+).*"serving metrics"', broker.log)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
        (count,) = re.findall(
            r"^odradek_connections_refused_total (\S+)$", answer.read().decode(), re.MULTILINE
        )
    return int(float(count))


@pytest.fixture
def hung_up_on(broker: BrokerProcess) -> Callable[[int], None]:
    """Checks that the broker has closed exactly `count` connections since the test began, and that
    the log has at most `count` lines about them."""
    before, lines = _hung_up_on(broker), broker.log.count(_CLOSED)

    def check(count: int) -> None:
        wait_until(
            lambda: _hung_up_on(broker) >= before + count,
            f"{count} connections; {_hung_up_on(broker) - before} so far",
        )
        assert _hung_up_on(broker) == before + count
        assert _CLOSED in broker.log
        assert broker.log.count(_CLOSED) <= lines + count

    return check


def _header(api: Api, version: int) -> bytes:
    tags = b"\0" if api.request_header_version(version) == 2 else b""
    return struct.pack(">hhih", api.key, version, 7, 1) + b"x" + tags


def _golden_requests(variant: str = "full") -> list[tuple[Api, int, bytes]]:
    """A frame of every served API and version, as another encoder wrote it."""
    return [
        (api, line["version"], _header(api, line["version"]) + bytes.fromhex(line["hex"]))
        for api, line in golden.bodies()
        if line["direction"] == "request"
        and line["variant"] == variant
        and line["version"] in api.versions
    ]


# --- Lengths and headers --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [REQUEST_BYTES_MAX + 1, 2**31 - 1, -1, -(2**31)])
def test_n01_an_impossible_frame_length_closes_the_connection(
    size: int, broker: BrokerProcess, bystander: Peer, hung_up_on: Callable[[int], None]
) -> None:
    with Peer(broker) as peer:
        peer.send(struct.pack(">i", size))
        peer.assert_closed()
    hung_up_on(1)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0",
        b"\0\x12\0\0\0\0\0\1",  # the client id is missing
        b"\0\x12\0\0\0\0\0\1\x7f\xff",  # a client id that is longer than the frame
        b"\0\x12\0\0\0\0\0\1\xff\xfe",  # a negative length other than -1, the length of null
        b"\0\x12\0\0\0\0\0\1\0\2\xff\xff",  # not UTF-8
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),  # a TLS ClientHello
    ],
    ids=["empty", "byte", "cut", "id-missing", "id-negative", "id-no-utf8", "http", "tls"],
)
def test_n06_a_frame_without_a_header_closes_the_connection(
    frame: bytes, broker: BrokerProcess, bystander: Peer, hung_up_on: Callable[[int], None]
) -> None:
    with Peer(broker) as peer:
        peer.send_frame(frame)
        peer.assert_closed()
    hung_up_on(1)


@pytest.mark.parametrize("text", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00" + bytes(60)])
def test_n01_bytes_of_another_protocol_close_the_connection(
    text: bytes, broker: BrokerProcess, bystander: Peer, hung_up_on: Callable[[int], None]
) -> None:
    with Peer(broker) as peer:
        peer.send(text)
        peer.assert_closed()
    hung_up_on(1)


@pytest.mark.parametrize("key", [-1, 4, 52, 999, 32767])
def test_n06_an_unknown_key_closes_the_connection(
    key: int, broker: BrokerProcess, bystander: Peer, hung_up_on: Callable[[int], None]
) -> None:
    assert key not in list(APIS)
    with Peer(broker) as peer:
        peer.send_frame(struct.pack(">hhih", key, 0, 1, -1) + bytes(100))
        peer.assert_closed()
    hung_up_on(1)


@pytest.mark.parametrize(
    "api",
    [api for key, api in APIS.items() if key != ApiKey.API_VERSIONS],
    ids=lambda api: api.name,
)
def test_n06_an_unknown_version_closes_the_connection(
    api: Api, broker: BrokerProcess, bystander: Peer, hung_up_on: Callable[[int], None]
) -> None:
    versions = [-1, api.versions.last + 1, 32767]
    if api.versions.first > 0:
        versions.append(api.versions.first - 1)
    for version in versions:
        with Peer(broker) as peer:
            peer.send_frame(struct.pack(">hhih", api.key, version, 1, -1) + bytes(100))
            peer.assert_closed()
    hung_up_on(len(versions))


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
@pytest.mark.parametrize("body", [b"", b"\xff" * 50])
def test_n07_an_unknown_version_of_api_versions_is_answered(
    version: int, body: bytes, broker: BrokerProcess, bystander: Peer
) -> None:
    with Peer(broker) as peer:
        peer.send_frame(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 77, -1) + body)
        frame = peer.read_frame()
        assert frame is not None
        assert frames.decode_correlation_id(frame) == 77
        answer = codec.decode(ApiVersionsResponse, 0, frame, 4)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        (row,) = [row for row in answer.api_keys if row.api_key == ApiKey.API_VERSIONS]
        assert (row.min_version, row.max_version) == (0, 4)
        # After the error the same connection accepts a request of the newest version in the answer.
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        assert peer.ask(request, row.max_version).error_code == 0


@pytest.mark.parametrize("name", ["", "-x", "x.", "größe", "a b", "x" * 32767 + "-"])
def test_n07_a_bad_software_name_is_an_invalid_request(
    name: str, broker: BrokerProcess, bystander: Peer
) -> None:
    with Peer(broker) as peer:
        if len(name) > 32767:
            name = name[-32767:]
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        assert peer.ask(request, 3).error_code == ErrorCode.INVALID_REQUEST
        _assert_served(peer)


# --- Bodies ---------------------------------------------------------------------------------------


def test_n06_every_truncated_request_closes_the_connection(
    broker: BrokerProcess, bystander: Peer, hung_up_on: Callable[[int], None]
) -> None:
    dice = random.Random(6)
    sent = 0
    for api, version, frame in _golden_requests():
        header = len(_header(api, version))
        if len(frame) == header or api.key is ApiKey.API_VERSIONS:
            continue  # an empty body, or one that may be any bytes
        for cut in {len(frame) - 1, dice.randrange(header, len(frame))}:
            with Peer(broker) as peer:
                peer.send_frame(frame[:cut])
                peer.assert_closed()
            sent += 1
    assert sent > 150
    hung_up_on(sent)


def test_n08_bytes_after_a_request_are_ignored(broker: BrokerProcess, bystander: Peer) -> None:
    request = b"".join(frames.encode_request(MetadataRequest(topics=[]), 9, 5, None))[4:]
    with Peer(broker) as peer:
        peer.send_frame(request + b"garbage")
        assert peer.read_frame() is not None


def test_n06_mutated_requests_are_answered_or_closed(
    broker: BrokerProcess, bystander: Peer
) -> None:
    """A mutated request may still be valid, so the test expects no particular answer."""
    dice = random.Random(20)
    # Requests that may wait or create records have their own tests.
    left_out = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.FETCH, ApiKey.PRODUCE}
    requests = [frame for api, _, frame in _golden_requests("long") if api.key not in left_out] + [
        frame for api, _, frame in _golden_requests("sparse") if api.key not in left_out
    ]
    for number in range(400):
        frame = bytearray(dice.choice(requests))
        for _ in range(dice.choice([1, 1, 2, 5])):
            # API key and version are not changed, so that most requests reach a handler.
            at = dice.randrange(4, len(frame))
            frame[at] = dice.choice([0, 1, 127, 128, 255, dice.randrange(256)])
        with Peer(broker) as peer:
            peer.send_frame(bytes(frame))
            peer.read_frame()
        if number % 50 == 0:
            _assert_served(bystander)
    assert "Traceback" not in broker.log
    assert "failed unexpectedly" not in broker.log


def test_n10_mutated_waiting_requests_without_a_reader_do_no_harm(
    broker: BrokerProcess, bystander: Peer
) -> None:
    """Mutated Fetch, JoinGroup, SyncGroup and Produce requests, from peers that close
    the connection immediately."""
    dice = random.Random(40)
    waiting = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.FETCH, ApiKey.PRODUCE}
    requests = [
        frame
        for variant in ("full", "sparse", "long")
        for api, _, frame in _golden_requests(variant)
        if api.key in waiting
    ]
    for _ in range(300):
        frame = bytearray(dice.choice(requests))
        for _ in range(dice.choice([0, 1, 2, 5])):
            frame[dice.randrange(4, len(frame))] = dice.choice([0, 1, 127, 255])
        with Peer(broker) as peer:
            peer.send_frame(bytes(frame))
    _assert_served(bystander)
    assert "failed unexpectedly" not in broker.log


@pytest.mark.full
@pytest.mark.parametrize("variant", ["full", "sparse", "long"])
def test_well_formed_requests_with_extreme_values_get_error_codes(
    variant: str, broker: BrokerProcess, bystander: Peer
) -> None:
    """Negative counts of partitions, unknown topics, extreme numbers: error codes, no
    exceptions."""
    for api, version, frame in _golden_requests(variant):
        if api.key in {ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}:
            continue  # these requests set how long they wait
        with Peer(broker) as peer:
            peer.send_frame(frame)
            answer = peer.read_frame()
            if api.key not in _MAY_END:
                assert answer is not None, f"{api.name} v{version} {variant}"
                frames.decode_response(api, version, answer)
    assert "failed unexpectedly" not in broker.log


def test_n06_random_bytes_are_answered_or_closed(broker: BrokerProcess, bystander: Peer) -> None:
    dice = random.Random(30)
    for _ in range(150):
        with Peer(broker) as peer:
            peer.send_frame(dice.randbytes(dice.randrange(200)))
            peer.read_frame()
    for _ in range(50):
        with Peer(broker) as peer:
            # These bytes have no valid length prefix: 0xff begins a negative length, and fewer than
            # 4 bytes are not even a whole length.
            peer.send(b"\xff" + dice.randbytes(dice.randrange(1, 500)))
            peer.assert_closed()


# --- Record batches -------------------------------------------------------------------------------


def _produce(peer: Peer, records: bytes | bytearray | None, version: int = 9) -> int:
    data = PartitionProduceData(index=0, records=records)
    topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
    answer = peer.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), version)
    (topic,) = answer.responses
    code: int = topic.partition_responses[0].error_code
    return code


def _end_offset(peer: Peer) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name=TOPIC, partitions=[partition])]
    answer = peer.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def _good(**settings: Any) -> bytearray:
    return simple_batch([(b"k", b"v"), (b"k2", b"v2")], 1_700_000_000_000, **settings)


def _changed(position: int, layout: str, value: int, *, sealed: bool = True) -> bytearray:
    """A valid batch with one overwritten header field. `sealed`: the checksum is corrected."""
    batch = _good()
    struct.pack_into(layout, batch, position, value)
    if sealed:
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


BAD_BATCHES = {
    "crc": (_changed(17, ">I", 1, sealed=False), ErrorCode.CORRUPT_MESSAGE),
    "last-byte": (_good()[:-1] + b"\x7f", ErrorCode.CORRUPT_MESSAGE),
    "magic-0": (_changed(16, ">b", 0), ErrorCode.INVALID_RECORD),
    "magic-1": (_changed(16, ">b", 1), ErrorCode.INVALID_RECORD),
    "magic-3": (_changed(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "control": (_changed(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
    # A marker is transactional, so the request needs a transactional id. The missing id is noticed
    # before the marker.
    "marker": (
        control_batch(ControlType.COMMIT, 0, 7, 0, 1),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "base-offset": (_good(base_offset=5), ErrorCode.INVALID_RECORD),
    "last-delta": (_changed(23, ">i", 5), ErrorCode.INVALID_RECORD),
    "no-records": (_changed(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "negative-count": (_changed(57, ">i", -1), ErrorCode.INVALID_RECORD),
    "sequence": (
        _good(producer_id=7, producer_epoch=0, base_sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "two-batches": (_good() + _good(), ErrorCode.INVALID_RECORD),
    "cut": (_good()[:-5], ErrorCode.INVALID_RECORD),
    "half-header": (_good()[:30], ErrorCode.INVALID_RECORD),
    "length-2GB": (_changed(8, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
    "length-negative": (_changed(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    "garbage": (bytearray(b"\xff" * 200), ErrorCode.CORRUPT_MESSAGE),
    "empty": (bytearray(), ErrorCode.INVALID_RECORD),
    "null": (None, ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("name", BAD_BATCHES)
def test_p07_a_bad_batch_is_refused_and_nothing_is_appended(
    name: str, version: int, broker: BrokerProcess, bystander: Peer
) -> None:
    batch, code = BAD_BATCHES[name]
    with Peer(broker) as peer:
        before = _end_offset(peer)
        got = _produce(peer, batch, version)
        assert ErrorCode.of(got) is code
        assert _end_offset(peer) == before
        assert _produce(peer, _good()) == 0
        assert _end_offset(peer) == before + 2


def test_p06_zstd_in_an_old_version_is_an_unsupported_compression(
    broker: BrokerProcess, bystander: Peer
) -> None:
    batch = _changed(21, ">h", 4)
    with Peer(broker) as peer:
        assert _produce(peer, batch, 6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_p22_impossible_acks_are_refused(acks: int, broker: BrokerProcess, bystander: Peer) -> None:
    data = PartitionProduceData(index=0, records=_good())
    topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
    with Peer(broker) as peer:
        before = _end_offset(peer)
        answer = peer.ask(ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics), 9)
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.INVALID_REQUIRED_ACKS
        assert _end_offset(peer) == before


def test_p23_an_error_without_acks_closes_the_connection(
    broker: BrokerProcess, bystander: Peer
) -> None:
    data = PartitionProduceData(index=0, records=BAD_BATCHES["crc"][0])
    request = ProduceRequest(
        acks=0, timeout_ms=1, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
    )
    with Peer(broker) as peer:
        peer.send(b"".join(frames.encode_request(request, 9, 1, None)))
        peer.assert_closed()


# --- Memory and timeouts --------------------------------------------------------------------------


@linux_only
def test_d11_unfinished_frames_take_no_more_memory_than_was_sent(
    broker: BrokerProcess, bystander: Peer
) -> None:
    """Three hundred peers each announce 90 MB, send a small part of it, and then nothing more."""
    before = broker.memory_bytes()
    peers = [Peer(broker) for _ in range(300)]
    try:
        for peer in peers:
            peer.send((90 * MEGABYTE).to_bytes(4, "big") + b"\0\x03\0\x09")
        _assert_served(bystander)
        assert broker.memory_bytes() - before < 50 * MEGABYTE
    finally:
        for peer in peers:
            peer.__exit__()


def test_slow_peers_do_not_delay_others(broker: BrokerProcess, bystander: Peer) -> None:
    request = b"".join(frames.encode_request(MetadataRequest(topics=[]), 9, 5, "slow"))
    peers = [Peer(broker) for _ in range(20)]
    try:
        for byte in request[:-1]:
            for peer in peers:
                peer.send(bytes([byte]))
        _assert_served(bystander)
        for peer in peers:
            peer.send(request[-1:])
            assert peer.read_frame() is not None
    finally:
        for peer in peers:
            peer.__exit__()


@linux_only
@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        (ApiKey.METADATA, 8, b"\x7f\xff\xff\xff"),
        (ApiKey.METADATA, 9, encode_uvarint(2**32 - 1)),
        (ApiKey.CREATE_TOPICS, 4, b"\x00\x0f\x42\x40" + bytes(1000)),
        (ApiKey.PRODUCE, 3, b"\xff\xff" + bytes(6) + b"\x7f\xff\xff\xff" + bytes(1000)),
        (ApiKey.PRODUCE, 9, b"\0" + bytes(6) + encode_uvarint(1_000_001) + bytes(1000)),
        (ApiKey.OFFSET_FETCH, 7, b"\x02g" + encode_uvarint(2**31)),
    ],
)
def test_n06_claimed_counts_take_no_memory(
    api: ApiKey,
    version: int,
    body: bytes,
    broker: BrokerProcess,
    bystander: Peer,
    hung_up_on: Callable[[int], None],
) -> None:
    before = broker.memory_peak_bytes()
    for _ in range(5):
        with Peer(broker) as peer:
            peer.send_frame(_header(APIS[api], version) + body)
            peer.assert_closed()
    hung_up_on(5)
    assert broker.memory_peak_bytes() - before < 20 * MEGABYTE


@linux_only
def test_d11_millions_of_tiny_elements_take_neither_time_nor_memory(
    broker: BrokerProcess, bystander: Peer, hung_up_on: Callable[[int], None]
) -> None:
    """A request of 18 MB would become three million objects."""
    before = broker.memory_peak_bytes()
    partition = bytes(4) + b"\0\0"
    topic = b"\x02t" + encode_uvarint(300_001) + partition * 300_000 + b"\0"
    body = b"\0\xff\xff" + bytes(4) + b"\x0b" + topic * 10 + b"\0"
    with Peer(broker) as peer:
        peer.send_frame(_header(APIS[ApiKey.PRODUCE], 9) + body)
        peer.assert_closed()
    hung_up_on(1)
    # The limit allows for two copies of the frame while its buffer grows, and a little more.
    assert broker.memory_peak_bytes() - before < 100 * MEGABYTE


@linux_only
def test_d11_an_idle_connection_takes_little_memory(broker: BrokerProcess, bystander: Peer) -> None:
    """A connection that has answered requests keeps no memory for them."""
    peers = [Peer(broker) for _ in range(20)]
    before = broker.memory_bytes()
    try:
        peers += [Peer(broker) for _ in range(1_000)]
        for peer in peers:
            peer.ask(MetadataRequest(topics=[]), 9)
        assert broker.memory_bytes() - before < 1_000 * 10_000
        _assert_served(bystander)
    finally:
        for peer in peers:
            peer.__exit__()


@linux_only
def test_d11_a_group_that_is_named_thousands_of_times_is_described_once(
    broker: BrokerProcess, bystander: Peer
) -> None:
    """With a description for each mention, a request of 30 KB would have an answer of 800 MB."""
    with Peer(broker) as peer:
        peer.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(400_000))
        joining = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = peer.ask(joining, 3)
        assert joined.error_code == ErrorCode.NONE
        synced = SyncGroupRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
        )
        peer.ask(synced, 3)
        before = broker.memory_peak_bytes()
        answer = peer.ask(DescribeGroupsRequest(groups=["g"] * 2_000), 5)
        assert [len(group.members[0].member_metadata) for group in answer.groups] == [400_000]
        assert broker.memory_peak_bytes() - before < 10 * MEGABYTE


@pytest.mark.full
@linux_only
def test_n14_unread_answers_do_not_fill_the_memory(broker: BrokerProcess, bystander: Peer) -> None:
    """The broker stops reading from a peer that reads no answers, instead of keeping them in
    memory."""
    before = broker.memory_bytes()
    request = b"".join(frames.encode_request(ApiVersionsRequest(), 0, 1, "deaf" * 100))
    with Peer(broker) as peer:
        peer.socket.settimeout(1.0)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 200 * MEGABYTE:
                peer.send(request * 100)
                sent += len(request) * 100
        _assert_served(bystander)
        assert broker.memory_bytes() - before < 50 * MEGABYTE


def test_reset_connections_do_not_disturb_others(broker: BrokerProcess, bystander: Peer) -> None:
    """Connections are reset within a length, within a frame, and before the answer."""
    request = b"".join(frames.encode_request(MetadataRequest(topics=None), 9, 5, "gone"))
    for cut in (0, 2, 10, len(request)):
        for _ in range(10):
            with Peer(broker) as peer:
                peer.send(request[:cut])
                # A linger time of 0 s makes close() reset the connection.
                peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    _assert_served(bystander)


@linux_only
@pytest.mark.full
def test_n14_unfinished_frames_of_all_connections_share_one_limit(tmp_path: Path) -> None:
    """Forty peers each send 20 MB of a frame of 90 MB, and then nothing: others are served, and the
    broker's memory stays small."""
    process = BrokerProcess(
        tmp_path, ["log.durability=page-cache", "queued.max.request.bytes=50000000"]
    )
    process.start()
    header = (90 * MEGABYTE).to_bytes(4, "big") + b"\0\0\0\x09" + bytes(100)
    peers: list[socket.socket] = []
    try:
        with Peer(process) as bystander:
            _assert_served(bystander)
            before = process.memory_bytes()
            for _ in range(40):
                peer = socket.create_connection(("127.0.0.1", process.port), TIMEOUT_S)
                peers.append(peer)
                peer.settimeout(0.2)
                peer.sendall(header)
                with contextlib.suppress(TimeoutError):
                    peer.sendall(bytes(20 * MEGABYTE))
                _assert_served(bystander)
            assert process.memory_bytes() - before < 150 * MEGABYTE
            for peer in peers:
                peer.close()
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
            bystander.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
            batch = simple_batch([(None, bytes(900_000))], 1_700_000_000_000)
            data = PartitionProduceData(index=0, records=batch)
            request = ProduceRequest(
                acks=1,
                timeout_ms=5_000,
                topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
            )
            answer = bystander.ask(request, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
    finally:
        process.stop()
